//! How interfaces and ports of the host that tests speak of are set up.

use std::sync::Arc;

use super::{address, now};
use crate::model::ethtool::NetdevLine;
use crate::model::ids::{DeviceName, PortKey};
use crate::model::netsetup::{Dcb, Ipoib, NetdevSetup, Offload, Pfc, PortAddressing, Priorities, PriorityTrust};
use crate::model::snapshot::Fact;

pub(super) fn setups() -> Vec<Fact> {
    let mut sent = [0; 8];
    sent[3] = 12;
    let dcb = Dcb {
        pfc: Some(Pfc { enabled: Priorities(8), frames: Some((sent, [0; 8])) }),
        trust: Some(PriorityTrust::Dscp),
        roce_priority: Some(3),
        dcbx: Some("host"),
    };
    let offload = |name, on, fixed| Offload { name, on, fixed };
    let ethernet = NetdevSetup {
        netdev: Arc::from("eth2"),
        pci_address: address("0000:3b:00.0"),
        device: DeviceName::new("bnxt_re0"),
        dcb,
        ecn: None,
        ipoib: None,
        offloads: vec![
            offload("rx-checksum", true, true),
            offload("rx-gro", false, false),
            offload("rx-lro", false, true),
            offload("hw-tc-offload", true, false),
        ],
        at: now().tick,
    };
    let ipoib = NetdevSetup {
        netdev: Arc::from("ib0"),
        pci_address: address("0000:98:00.0"),
        device: DeviceName::new("mlx5_3"),
        dcb: Dcb::default(),
        ipoib: Some(Ipoib { mode: Arc::from("connected"), user_multicast: None }),
        offloads: Vec::new(),
        ..ethernet.clone()
    };
    // An interface that ethtool says nothing of.
    let plain = NetdevSetup {
        netdev: Arc::from("eth9"),
        dcb: Dcb { trust: None, roce_priority: None, dcbx: None, ..dcb },
        offloads: Vec::new(),
        ..ethernet.clone()
    };
    let addressing = PortAddressing {
        port: PortKey { device: DeviceName::new("bnxt_re0"), port: 1 },
        gids: vec![(Arc::from("IB/RoCE v1"), 2), (Arc::from("RoCE v2"), 1)],
        default_mode: Some(Arc::from("RoCE v2")),
        default_tos: Some(106),
        traffic_class: None,
    };
    let line = NetdevLine { netdev: Arc::from("eth2"), fec: Some("rs"), pause: Some((false, false)) };
    vec![Arc::new(ethernet), Arc::new(ipoib), Arc::new(plain), Arc::new(addressing), Arc::new(line)]
}
