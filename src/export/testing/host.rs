//! Facts about the host and its Ethernet ports.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{address, now};
use crate::model::counter::Class;
use crate::model::ethtool::{Direction, Meaning, NetdevStatistics, Statistic};
use crate::model::ids::DeviceName;
use crate::model::kmsg::{self, Driver, KernelLog};
use crate::model::posture::Posture;

pub(super) fn statistics() -> NetdevStatistics {
    let known = [
        ("rx_discards_phy", Meaning::Event(Class::Congestion), 7),
        ("rx_prio3_pause", Meaning::PfcFrames { priority: 3, direction: Direction::Received }, 9),
        (
            "tx_prio3_pause_duration",
            Meaning::PauseMicroseconds { priority: Some(3), direction: Direction::Transmitted },
            1_500_000,
        ),
        ("rx_global_pause_duration", Meaning::PauseMicroseconds { priority: None, direction: Direction::Received }, 1),
        ("outbound_pci_stalled_rd", Meaning::Percent, 12),
    ];
    NetdevStatistics {
        netdev: Arc::from("eth2"),
        pci_address: address("0000:3b:00.0"),
        device: DeviceName::new("bnxt_re0"),
        layout: known
            .iter()
            .map(|(name, meaning, _)| Statistic { name: Arc::from(*name), meaning: *meaning })
            .collect(),
        values: known.iter().map(|(_, _, value)| *value).collect(),
        at: now().tick,
    }
}

pub(super) fn kernel_log() -> KernelLog {
    let counts = vec![((Driver::Mlx5Core, kmsg::Kind::DeviceHealth), 1), ((Driver::VfioPci, kmsg::Kind::VfioError), 0)];
    KernelLog { counts, lost: 3, ..KernelLog::default() }
}

pub(super) fn posture() -> Posture {
    Posture {
        virtualization: Some("none"),
        iommu: Some(Arc::from("DMA-FQ")),
        arguments: vec![Arc::from("intel_iommu=on"), Arc::from("isolcpus=2-5")],
        rdma_netns_mode: Some("shared"),
        governors: BTreeMap::from([(Arc::from("performance"), 64)]),
        numa_balancing: Some(false),
        ..Posture::default()
    }
}
