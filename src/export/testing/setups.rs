//! How interfaces and ports of the host that tests speak of are set up.

use std::net::Ipv4Addr;
use std::sync::Arc;

use super::{address, now};
use crate::model::health::{FunctionHealth, Reporter};
use crate::model::ids::{DeviceName, PortKey};
use crate::model::net::NetdevLine;
use crate::model::net::{Dcb, Ipoib, NetdevSetup, Offload, Pfc, PortAddressing, Priorities, PriorityTrust};
use crate::model::posture::{Acs, AcsSwitches, PciIsolation};
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
        roce_v2: vec![(1, None), (3, Some(Ipv4Addr::new(192, 0, 2, 17)))],
        default_mode: Some(Arc::from("RoCE v2")),
        default_tos: Some(106),
        traffic_class: None,
    };
    let reporter = |name: &str, in_error, errors| Reporter {
        name: Arc::from(name),
        in_error,
        errors,
        recoveries: 2,
        auto_recover: Some(true),
    };
    let health = FunctionHealth {
        pci_address: address("0000:98:00.0"),
        device: DeviceName::new("mlx5_3"),
        reporters: vec![reporter("fw", true, 3), reporter("tx", false, 2)],
    };
    let isolation = |text: &str, acs, ari| PciIsolation { address: address(text), acs: Some(acs), ari };
    let isolations = [
        isolation("0000:97:02.0", Acs::Switches(AcsSwitches(0x1d)), None),
        isolation("0000:98:00.0", Acs::None, Some(true)),
        isolation("0000:3a:00.0", Acs::Hidden, None),
        isolation("0000:3b:00.0", Acs::Hidden, Some(true)),
    ];
    let line = NetdevLine { netdev: Arc::from("eth2"), fec: Some("rs"), pause: Some((false, false)) };
    let mut facts: Vec<Fact> = vec![
        Arc::new(ethernet),
        Arc::new(ipoib),
        Arc::new(plain),
        Arc::new(addressing),
        Arc::new(line),
        Arc::new(health),
    ];
    facts.extend(isolations.map(|isolation| Arc::new(isolation) as Fact));
    facts
}
