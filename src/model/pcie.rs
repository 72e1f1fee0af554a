//! PCI functions as sysfs shows them, one at a time. [`super::topology`] joins them into links and paths.

use std::sync::Arc;

use super::ids::PciAddress;
use super::reading::Reading;
use super::units::{Lanes, TransfersPerSecond};

/// The 24-bit class code (`class`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PciClass(pub u32);

impl PciClass {
    /// Whether the function is a bridge (base class 06, subclass 04): a root port or a switch port.
    pub fn is_bridge(self) -> bool {
        self.0 >> 8 == 0x0604
    }

    /// Whether the function is a network controller of any kind (base class 02), or an InfiniBand one of before there was
    /// a class for them (0c06).
    pub fn is_network(self) -> bool {
        self.0 >> 16 == 0x02 || self.is_fabric()
    }

    /// Whether the function is an InfiniBand (0207, once 0c06) or Omni-Path (0208) controller.
    pub fn is_fabric(self) -> bool {
        matches!(self.0 >> 8, 0x0207 | 0x0208 | 0x0c06)
    }

    /// Whether devices of this class slow their link down when idle: display controllers and accelerators do,
    /// network and InfiniBand controllers do not.
    pub fn saves_link_power(self) -> bool {
        matches!(self.0 >> 16, 0x03 | 0x12)
    }
}

/// What a function is in SR-IOV's terms: the `function` label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FunctionKind {
    /// Has or can have VFs.
    Physical,
    /// A VF of that PF.
    Virtual {
        /// Its PF; `None` if the host does not show it (a guest).
        pf: Option<PciAddress>,
    },
    /// Neither.
    Plain,
}

/// One end's view of its PCIe link (`current_link_*`, `max_link_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkEnd {
    /// Speed the link runs at.
    pub speed: Reading<TransfersPerSecond>,
    /// Width the link runs at.
    pub width: Reading<Lanes>,
    /// Fastest speed this end can do.
    pub max_speed: Reading<TransfersPerSecond>,
    /// Widest this end can do.
    pub max_width: Reading<Lanes>,
    /// Configuration space reads all ones: the device fell off the bus.
    pub off_bus: bool,
}

/// Advanced error reporting counters of one function and class (`aer_dev_*`): the named errors in the file's order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AerClass {
    /// Error names as the kernel prints them, with their counts.
    pub errors: Vec<(Arc<str>, u64)>,
    /// The `TOTAL_ERR_*` line; the sum of the names where the file has none.
    pub total: u64,
}

/// The severity classes of AER.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AerSeverity {
    /// Repaired by hardware.
    Correctable,
    /// A transaction was lost.
    Nonfatal,
    /// The link is no longer reliable.
    Fatal,
}

impl AerSeverity {
    /// All, mildest first.
    pub const ALL: [Self; 3] = [Self::Correctable, Self::Nonfatal, Self::Fatal];

    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Correctable => "correctable",
            Self::Nonfatal => "nonfatal",
            Self::Fatal => "fatal",
        }
    }
}

/// AER counters of one function.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Aer {
    /// By class, in the order of [`AerSeverity::ALL`]; `None` if the function does not count them.
    pub classes: [Option<AerClass>; 3],
    /// Error messages that a root port received from below (`aer_rootport_total_err_*`), in the same order.
    pub root_totals: [Option<u64>; 3],
}

/// One PCI function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PciFunction {
    /// Its address.
    pub address: PciAddress,
    /// The function above it in sysfs: the port at the upper end of its link.
    pub upstream: Option<PciAddress>,
    /// The lowest function at this end of the link, which names it.
    pub link_name: PciAddress,
    /// Class code.
    pub class: Option<PciClass>,
    /// Vendor and device identifiers.
    pub ids: Option<(u16, u16)>,
    /// Bound driver.
    pub driver: Option<Arc<str>>,
    /// NUMA node; none when the firmware does not say (-1).
    pub numa_node: Option<u32>,
    /// Whether nothing is made of it: it has no RDMA device, interface, interrupt or device of its driver's below it.
    pub is_idle: bool,
    /// Its part in SR-IOV.
    pub kind: FunctionKind,
    /// How many VFs there can be (`sriov_totalvfs`).
    pub vfs_limit: Option<u32>,
    /// How many `virtfn*` links there are; none for a function that cannot have VFs.
    pub vfs_present: Option<u32>,
    /// Its end of the link above it.
    pub link: LinkEnd,
    /// Its error counters.
    pub aer: Aer,
}

/// A card that can do RDMA, with no RDMA device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RdmaCard {
    /// Its function.
    pub address: PciAddress,
    /// Class code.
    pub class: PciClass,
    /// Vendor and device identifiers.
    pub ids: (u16, u16),
    /// Bound driver.
    pub driver: Option<Arc<str>>,
    /// Whether its driver has made nothing of it.
    pub is_idle: bool,
    /// Whether its part for RDMA is there, and no driver has it: its module is not loaded.
    pub lacks_rdma_driver: bool,
}

#[cfg(test)]
impl PciFunction {
    /// A function of which only its address is known.
    pub(crate) fn at(address: PciAddress) -> Self {
        Self {
            address,
            upstream: None,
            link_name: address,
            class: None,
            ids: None,
            driver: None,
            numa_node: None,
            is_idle: false,
            kind: FunctionKind::Plain,
            vfs_limit: None,
            vfs_present: None,
            link: LinkEnd::default(),
            aer: Aer::default(),
        }
    }
}
