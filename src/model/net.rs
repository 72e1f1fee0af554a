//! Network interfaces that share a port with an RDMA device: state, settings, and their drivers' statistics.

use std::fmt;
use std::net::Ipv4Addr;
use std::sync::Arc;

use super::counter::CounterClass;
use super::ids::{DeviceName, PciAddress, PortKey};
use super::line::FecMode;
use super::reading::Reading;
use super::time::BootTime;
use super::units::BytesPerSecond;

/// One network interface of a watched function.
#[derive(Debug, Clone, PartialEq)]
pub struct Netdev {
    /// Interface name.
    pub name: Arc<str>,
    /// The PCI function it belongs to.
    pub pci_address: PciAddress,
    /// Port index on the function, from 0 (`dev_port`).
    pub port_index: Option<u32>,
    /// Hardware type (`type`): 1 Ethernet, 32 InfiniBand.
    pub hardware_type: Option<u32>,
    /// Whether the carrier is there; absent while the interface is down.
    pub carrier: Reading<bool>,
    /// Speed; absent when unknown (the kernel's -1).
    pub speed: Reading<BytesPerSecond>,
    /// Administrative and operational state (`operstate`).
    pub operstate: Option<Arc<str>>,
    /// Carrier changes since it was created.
    pub carrier_changes: Option<u64>,
    /// How often the carrier was lost since it was created, `ip link set down` included (`carrier_down_count`).
    pub carrier_downs: Option<u64>,
    /// The bond that it is a member of (`master`).
    pub bond: Option<Arc<str>>,
    /// Whether the bond uses it (`bonding_slave/state`): `false` for a backup.
    pub bond_active: Option<bool>,
}

/// A set of the eight priorities of Ethernet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Priorities(pub u8);

impl Priorities {
    /// Whether none is in it.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether a priority is in it.
    pub const fn has(self, priority: u8) -> bool {
        priority < 8 && self.0 >> priority & 1 == 1
    }

    /// Those in it, in order.
    pub fn iter(self) -> impl Iterator<Item = u8> {
        (0..8).filter(move |priority| self.has(*priority))
    }
}

impl fmt::Display for Priorities {
    /// `3,4`; `none`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("none");
        }
        for (index, priority) in self.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            write!(f, "{comma}{priority}")?;
        }
        Ok(())
    }
}

/// By what a port tells the priority of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PriorityTrust {
    /// By the IP header's DSCP.
    Dscp,
    /// By the VLAN tag.
    Pcp,
}

impl PriorityTrust {
    /// The word that `dcb` and `mlnx_qos` have for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Dscp => "dscp",
            Self::Pcp => "pcp",
        }
    }
}

/// Pauses by priority (IEEE 802.1Qbb).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pfc {
    /// Priorities that are paused and not dropped.
    pub enabled: Priorities,
    /// Pause frames by priority: sent, received. Drivers that do not count say 0, so there are none before the first
    /// one was counted.
    pub frames: Option<([u64; 8], [u64; 8])>,
}

/// The name under which the pause frames of [`Pfc`], all together, stand in an interface's history.
pub const PFC_FRAMES: &str = "dcb_pfc_frames";

impl Pfc {
    /// Pause frames of all priorities, both ways.
    pub fn total(&self) -> Option<u64> {
        let (sent, received) = self.frames?;
        Some(sent.iter().chain(&received).fold(0, |total: u64, count| total.saturating_add(*count)))
    }
}

/// Data Centre Bridging of an interface (`RTM_GETDCB`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Dcb {
    /// Pauses by priority.
    pub pfc: Option<Pfc>,
    /// By what priorities are told, where the driver says.
    pub trust: Option<PriorityTrust>,
    /// The priority that the application table gives to RoCE (UDP port 4791, or its Ethernet type).
    pub roce_priority: Option<u8>,
    /// Who speaks to the switch about these settings: `host`, `firmware`.
    pub dcbx: Option<&'static str>,
}

/// IPoIB settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ipoib {
    /// `datagram` or `connected`.
    pub mode: Arc<str>,
    /// Whether multicast groups that users join are handled by the kernel.
    pub user_multicast: Option<bool>,
}

/// Explicit congestion notification for RoCE, by priority; out-of-tree drivers alone say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ecn {
    /// Priorities for which marked packets are answered (notification point).
    pub notifies: Priorities,
    /// Priorities that slow down when told to (reaction point).
    pub reacts: Priorities,
}

/// One thing that the hardware may do in the kernel's stead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offload {
    /// The kernel's name.
    pub name: &'static str,
    /// Whether it is on.
    pub on: bool,
    /// Whether it can't be changed.
    pub fixed: bool,
}

/// The settings of one interface. What it does not say is absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetdevSetup {
    /// The interface.
    pub netdev: Arc<str>,
    /// Its function.
    pub pci_address: PciAddress,
    /// The RDMA device that shares its port.
    pub device: DeviceName,
    /// Data Centre Bridging.
    pub dcb: Dcb,
    /// Explicit congestion notification.
    pub ecn: Option<Ecn>,
    /// IPoIB.
    pub ipoib: Option<Ipoib>,
    /// Offloads that matter for RDMA ports and VFs.
    pub offloads: Vec<Offload>,
    /// When they were read.
    pub at: BootTime,
}

/// How a port is addressed, and how RoCE goes by default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortAddressing {
    /// The port.
    pub port: PortKey,
    /// GIDs by type, in the kernel's words (`IB/RoCE v1`, `RoCE v2`), by their names.
    pub gids: Vec<(Arc<str>, usize)>,
    /// The first entries of RoCE v2: their index in the table (what programs call the GID index), and their IPv4 address
    /// where they have one.
    pub roce_v2: Vec<(u32, Option<Ipv4Addr>)>,
    /// What connections made by address use (`default_roce_mode`), where somebody set it up.
    pub default_mode: Option<Arc<str>>,
    /// The type of service that those connections get (`default_roce_tos`).
    pub default_tos: Option<u64>,
    /// The traffic class forced on all connections; out-of-tree drivers alone have it.
    pub traffic_class: Option<u64>,
}

/// Which way, as seen from this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PauseDirection {
    /// From the network: it asked this host to wait.
    Received,
    /// To the network: this host asked it to wait.
    Transmitted,
}

impl PauseDirection {
    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Received => "received",
            Self::Transmitted => "transmitted",
        }
    }
}

/// What a statistic means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatisticKind {
    /// An event of a class.
    Event(CounterClass),
    /// Pause frames of a priority (PFC).
    PfcFrames {
        /// 0 to 7.
        priority: u8,
        /// Which way.
        direction: PauseDirection,
    },
    /// Time for which traffic stood still, in microseconds.
    PauseMicroseconds {
        /// 0 to 7; none for pauses of the whole link.
        priority: Option<u8>,
        /// Which way.
        direction: PauseDirection,
    },
    /// A level in percent of the last second.
    Percent,
}

/// One statistic that is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetdevStatistic {
    /// The driver's name for it.
    pub name: Arc<str>,
    /// What it means.
    pub meaning: StatisticKind,
}

/// The known statistics of an interface.
#[derive(Debug, Clone, PartialEq)]
pub struct NetdevStatistics {
    /// The interface.
    pub netdev: Arc<str>,
    /// Its function.
    pub pci_address: PciAddress,
    /// The RDMA device that shares its port.
    pub device: DeviceName,
    /// What there is, in the driver's order.
    pub layout: Arc<[NetdevStatistic]>,
    /// Values in the same order.
    pub values: Vec<u64>,
    /// When they were read.
    pub at: BootTime,
}

impl NetdevStatistics {
    /// Statistics and their values.
    pub fn iter(&self) -> impl Iterator<Item = (&NetdevStatistic, u64)> {
        self.layout.iter().zip(self.values.iter().copied())
    }

    /// The value of this name.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.iter().find_map(|(statistic, value)| (*statistic.name == *name).then_some(value))
    }
}

/// How an Ethernet line is run (ethtool netlink, `PAUSE_GET` and `FEC_GET`). What the driver does not say is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NetdevLine {
    /// The interface.
    pub netdev: Arc<str>,
    /// How errors are corrected.
    pub fec: Option<FecMode>,
    /// Whether pauses of the whole link are obeyed and sent: received, transmitted.
    pub pause: Option<(bool, bool)>,
}

/// Signs that packets were lost on the way.
pub const LOST: &[&str] = &[
    "out_of_sequence",
    "packet_seq_err",
    "local_ack_timeout_err",
    "oos_drop_count",
    "seq_err_naks_rcvd",
    "to_retransmits",
    "responder_oos",
    "requester_oos_nak",
    "requester_timeout",
];

/// Signs that somebody marks packets, or slows down when they are marked.
pub const CONTROLLED: &[&str] = &[
    "np_cnp_sent",
    "np_ecn_marked_roce_packets",
    "rp_cnp_handled",
    "cnpSent",
    "RxECNMrkd",
    "cnpHandled",
    "tx_cnp_pkts",
    "rx_cnp_pkts",
    "rx_ecn_marked_pkts",
    "sent_cnps",
    "received_cnps",
    "received_ecns",
    "tx_cnp_pkt",
    "rx_cnp_pkt",
];

/// Requests to slow down that were ignored.
pub const IGNORED: &[&str] = &["rp_cnp_ignored", "cnpIgnored"];

/// RDMA packets that the device itself dropped.
pub const DISCARDED: &[&str] = &["rx_roce_discards", "tx_roce_discards", "ip4InDiscards", "ip6InDiscards"];

/// All of them.
pub fn roce_counters() -> impl Iterator<Item = &'static str> {
    [LOST, CONTROLLED, IGNORED, DISCARDED].into_iter().flatten().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_frames_of_all_priorities() {
        let pfc = Pfc { enabled: Priorities(8), frames: Some(([1; 8], [2; 8])) };
        assert_eq!((pfc.total(), Pfc { frames: None, ..pfc }.total()), (Some(24), None));
    }

    #[test]
    fn sets_of_priorities() {
        assert_eq!(Priorities(0).to_string(), "none");
        assert_eq!(Priorities(0b1001_1000).to_string(), "3,4,7");
        assert!(Priorities(8).has(3) && !Priorities(8).has(2) && !Priorities(255).has(8));
    }
}
