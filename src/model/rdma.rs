//! RDMA devices and their ports (`/sys/class/infiniband`, rdma netlink).

use std::sync::Arc;

use super::counter::{Counter, CounterKind, Counters};
use super::ids::{DeviceName, Guid, PciAddress};
use super::net::Netdev;
use super::reading::Reading;
use super::time::BootTime;
use super::units::BytesPerSecond;

/// Logical state of a port (`ports/<n>/state`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PortState {
    /// No state change (never a resting state).
    Nop,
    /// Down.
    Down,
    /// Link up, waiting for a subnet manager.
    Init,
    /// Configured by the subnet manager, not yet active.
    Armed,
    /// Carries traffic.
    Active,
    /// Carries traffic, link lost for a moment.
    ActiveDefer,
}

impl PortState {
    /// All states, in the kernel's order.
    pub const ALL: [Self; 6] = [Self::Nop, Self::Down, Self::Init, Self::Armed, Self::Active, Self::ActiveDefer];

    /// The kernel's word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Nop => "NOP",
            Self::Down => "DOWN",
            Self::Init => "INIT",
            Self::Armed => "ARMED",
            Self::Active => "ACTIVE",
            Self::ActiveDefer => "ACTIVE_DEFER",
        }
    }

    /// The state of a netlink code (`RDMA_NLDEV_ATTR_PORT_STATE`).
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }
}

/// Physical state of a port (`ports/<n>/phys_state`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PhysicalState {
    /// Asleep.
    Sleep,
    /// Looking for the other end.
    Polling,
    /// Switched off.
    Disabled,
    /// Training.
    Training,
    /// Up.
    LinkUp,
    /// Recovering from an error.
    Recovery,
    /// Under test.
    PhyTest,
}

impl PhysicalState {
    /// All states, in the kernel's order; their codes start at 1.
    pub const ALL: [Self; 7] =
        [Self::Sleep, Self::Polling, Self::Disabled, Self::Training, Self::LinkUp, Self::Recovery, Self::PhyTest];

    /// The kernel's word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sleep => "Sleep",
            Self::Polling => "Polling",
            Self::Disabled => "Disabled",
            Self::Training => "PortConfigurationTraining",
            Self::LinkUp => "LinkUp",
            Self::Recovery => "LinkErrorRecovery",
            Self::PhyTest => "Phy Test",
        }
    }

    /// The state of a netlink code (`RDMA_NLDEV_ATTR_PORT_PHYS_STATE`).
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code).checked_sub(1)?).copied()
    }
}

/// What a port runs on (`ports/<n>/link_layer`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkLayer {
    /// InfiniBand, and Omni-Path, whose driver says so.
    InfiniBand,
    /// Ethernet: RoCE or iWARP.
    Ethernet,
    /// Another word (EFA says `Unspecified` or `Unknown`).
    Other(Arc<str>),
}

impl LinkLayer {
    /// The kernel's word.
    pub fn as_str(&self) -> &str {
        match self {
            Self::InfiniBand => "InfiniBand",
            Self::Ethernet => "Ethernet",
            Self::Other(word) => word,
        }
    }
}

/// A port's rate as its `rate` file says it: `200 Gb/sec (4X HDR)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PortRate {
    /// Data rate each way.
    pub bandwidth: BytesPerSecond,
    /// Width: 1, 2, 4, 8 or 12; `None` if the file does not say.
    pub width: Option<u8>,
    /// Speed generation, the kernel's word.
    pub speed: Speed,
}

/// Speed generation of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the definition")]
pub enum Speed {
    Sdr,
    Ddr,
    Qdr,
    Fdr10,
    Fdr,
    Edr,
    Hdr,
    Ndr,
    Xdr,
    /// A word this version does not know.
    Other,
}

impl Speed {
    /// The kernel's word; empty for one this version does not know.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sdr => "SDR",
            Self::Ddr => "DDR",
            Self::Qdr => "QDR",
            Self::Fdr10 => "FDR10",
            Self::Fdr => "FDR",
            Self::Edr => "EDR",
            Self::Hdr => "HDR",
            Self::Ndr => "NDR",
            Self::Xdr => "XDR",
            Self::Other => "",
        }
    }
}

/// What a device is, as far as it seldom changes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceIdentity {
    /// The PCI function behind it; none for software devices (rxe, siw).
    pub pci_address: Option<PciAddress>,
    /// The sub-function below it that is this device, by the name of its auxiliary device (`mlx5_core.sf.4`).
    pub sub_function: Option<Arc<str>>,
    /// `fw_ver`.
    pub firmware_version: Option<Arc<str>>,
    /// `board_id` (a PSID, or free text).
    pub board_id: Option<Arc<str>>,
    /// `hca_type`.
    pub hca_type: Option<Arc<str>>,
    /// `node_guid`.
    pub node_guid: Option<Guid>,
    /// `sys_image_guid`.
    pub sys_image_guid: Option<Guid>,
}

/// One port.
#[derive(Debug, Clone, PartialEq)]
pub struct Port {
    /// Port number, from 1.
    pub number: u32,
    /// Link layer.
    pub link_layer: Option<LinkLayer>,
    /// Logical state.
    pub state: Reading<PortState>,
    /// Physical state.
    pub physical_state: Reading<PhysicalState>,
    /// Rate as the `rate` file says; absent unless the port is active, because what the file says of others means
    /// nothing.
    pub rate: Reading<PortRate>,
    /// Local identifier given by the subnet manager; 0 when none was. None on Ethernet.
    pub lid: Option<u32>,
    /// The subnet manager's own identifier.
    pub sm_lid: Option<u32>,
    /// The network interface on the same port.
    pub netdev: Option<Arc<str>>,
    /// Port GUID.
    pub guid: Option<Guid>,
    /// `counters/`.
    pub pma: Counters,
    /// `hw_counters/`.
    pub hardware: Counters,
}

impl Port {
    /// Whether the port carries traffic, as far as its state says.
    pub fn is_active(&self) -> bool {
        matches!(self.state, Reading::Value(PortState::Active | PortState::ActiveDefer))
    }

    /// Whether its interface is up and has no carrier, whatever the port says: EFA's port always says ACTIVE. IPoIB's
    /// carrier is no sign of the link.
    pub fn lacks_carrier(&self, netdev: &Netdev) -> bool {
        self.link_layer != Some(LinkLayer::InfiniBand)
            && self.netdev.as_deref() == Some(&*netdev.name)
            && netdev.carrier == Reading::Value(false)
    }

    /// The raw value of a counter, from whichever directory has it.
    pub fn counter(&self, name: &str) -> Option<u64> {
        self.pma.get(name).or_else(|| self.hardware.get(name))
    }

    /// The value for a meaning in its family's unit: of `counters/`, else of `hw_counters/`. A counter that stands for one
    /// that could not be read goes on doing so, as both started at different times.
    pub fn total(&self, wanted: impl Fn(CounterKind) -> Option<u64>) -> Option<u64> {
        let stands_in = |counter: &Counter| counter.stands_for.is_some() && wanted(counter.meaning).is_some();
        if self.hardware.layout.iter().any(stands_in) {
            return self.hardware.total(wanted);
        }
        self.pma.total(&wanted).or_else(|| self.hardware.total(&wanted))
    }

    /// All counters and their raw values.
    pub fn counters(&self) -> impl Iterator<Item = (&Counter, u64)> {
        self.pma.iter().chain(self.hardware.iter())
    }
}

/// One RDMA device.
#[derive(Debug, Clone, PartialEq)]
pub struct RdmaDevice {
    /// Its name.
    pub name: DeviceName,
    /// What it is.
    pub identity: Arc<DeviceIdentity>,
    /// Its ports, by number.
    pub ports: Vec<Port>,
    /// `hw_counters/` of the device itself.
    pub counters: Counters,
    /// When the counters were read.
    pub counters_at: BootTime,
}

/// Queue pairs of a device by type and state (`RDMA_NLDEV_CMD_RES_QP_GET`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuePairs {
    /// The device.
    pub device: DeviceName,
    /// Type and state by the names of rdma tools, and how many there are.
    pub counts: std::collections::BTreeMap<(&'static str, &'static str), u64>,
}

/// Objects that programs hold on a device (`RDMA_NLDEV_CMD_RES_GET`), read from the kernel's memory only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RdmaResources {
    /// The device.
    pub device: DeviceName,
    /// Kernel's name of the resource (`qp`, `cq`, `mr`, …) and how many there are.
    pub counts: Vec<(Arc<str>, u64)>,
}
