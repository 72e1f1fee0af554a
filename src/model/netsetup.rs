//! How the network interfaces beside RDMA devices are set up.

use std::fmt;
use std::net::Ipv4Addr;
use std::sync::Arc;

use super::ids::{DeviceName, PciAddress, PortKey};
use super::time::BootTime;

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
