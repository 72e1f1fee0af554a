//! The host: its machine, kernel and NUMA nodes, the agent's environment, and its configuration for RDMA and pass-through.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::ids::PciAddress;

/// What is known of the machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Machine {
    /// Whether a hypervisor is below (`/proc/cpuinfo`, `/sys/hypervisor/type`, DMI).
    pub hypervisor: Option<bool>,
    /// Its identity (`/sys/class/dmi/id/product_uuid`), readable by root only.
    pub identity: Option<Arc<str>>,
}

/// What the host says of itself under its `/proc`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct System {
    /// Host name (`sys/kernel/hostname`).
    pub hostname: Option<Arc<str>>,
    /// Kernel release (`sys/kernel/osrelease`).
    pub kernel: Option<Arc<str>>,
    /// Random identifier of this boot (`sys/kernel/random/boot_id`).
    pub boot_id: Option<Arc<str>>,
    /// Time since boot (`uptime`).
    pub uptime: Option<Duration>,
}

/// One NUMA node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NumaNode {
    /// Node number.
    pub id: u32,
    /// Its CPUs, as the kernel lists them (`0-15,64-79`).
    pub cpus: Option<Arc<str>>,
}

/// The agent's surroundings. What they do not say is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Environment {
    /// Whether the host is the one that the agent runs on, not a recorded one.
    pub live: bool,
    /// Where the host's sysfs should be.
    pub sysfs: Arc<str>,
    /// Whether something is there.
    pub has_sysfs: bool,
    /// Whether there is a procfs.
    pub has_procfs: bool,
    /// What kind of container the agent is in, if it is in one.
    pub container: Option<&'static str>,
    /// Whether the agent is in a user namespace of its own (`/proc/self/uid_map`).
    pub user_namespace: Option<bool>,
    /// Effective capabilities, a bit each (`/proc/self/status`).
    pub capabilities: Option<u64>,
    /// The profile (AppArmor) or context (SELinux) that confines the agent (`/proc/self/attr/current`); `None` if
    /// nothing does.
    pub confinement: Option<Arc<str>>,
    /// The least memory limit of its control groups, in bytes.
    pub memory_limit_bytes: Option<u64>,
}

/// A capability that shows something (`include/uapi/linux/capability.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capability {
    /// Files that their owner hides.
    DacReadSearch,
    /// Other users' processes.
    SysPtrace,
    /// The kernel log.
    Syslog,
}

impl Capability {
    /// The kernel's word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::DacReadSearch => "CAP_DAC_READ_SEARCH",
            Self::SysPtrace => "CAP_SYS_PTRACE",
            Self::Syslog => "CAP_SYSLOG",
        }
    }

    const fn bit(self) -> u64 {
        match self {
            Self::DacReadSearch => 1 << 2,
            Self::SysPtrace => 1 << 19,
            Self::Syslog => 1 << 34,
        }
    }
}

impl Environment {
    /// Whether the agent has a capability; `None` if that is not known.
    pub fn has(&self, capability: Capability) -> Option<bool> {
        self.capabilities.map(|held| held & capability.bit() != 0)
    }
}

/// What the host says of its setup. What it does not say is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Posture {
    /// What it runs on: `none`, or the hypervisor (`kvm`, `vmware`, `microsoft`, `xen`, `amazon`, `vm-other`).
    pub virtualization: Option<&'static str>,
    /// How the IOMMU treats watched functions: `off`, the kernel's word for their groups (`DMA`, `DMA-FQ`,
    /// `identity`), `mixed` where they differ, `on` where their groups do not say.
    pub iommu: Option<Arc<str>>,
    /// The groups of watched functions that have one.
    pub iommu_groups: BTreeMap<PciAddress, Arc<str>>,
    /// Whether functions of a card are numbered through beyond eight (ARI), of watched functions that say.
    pub ari: BTreeMap<PciAddress, bool>,
    /// Kernel arguments about IOMMU, PCI, CPUs and huge pages (`/proc/cmdline`), in their order.
    pub arguments: Vec<Arc<str>>,
    /// `shared`: every network namespace sees every RDMA device; `exclusive`: each sees its own.
    pub rdma_netns_mode: Option<&'static str>,
    /// Whether the agent is in another network namespace than the host's first process.
    pub foreign_netns: Option<bool>,
    /// CPUs by frequency governor.
    pub governors: BTreeMap<Arc<str>, usize>,
    /// Whether the kernel moves memory between nodes by itself.
    pub numa_balancing: Option<bool>,
    /// Huge pages by size, in kB (`2048`): how many there are, how many are free.
    pub hugepages: BTreeMap<u64, (u64, u64)>,
    /// Modules that let network cards reach the memory of GPUs, with their versions, which may be empty
    /// (`/sys/module`, `/sys/kernel/mm/memory_peers`).
    pub peer_memory: BTreeMap<Arc<str>, Arc<str>>,
    /// Versions of drivers that have one (those from outside of the kernel do).
    pub driver_versions: BTreeMap<Arc<str>, Arc<str>>,
}

/// What keeps a function or port and others apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PciIsolation {
    /// The function or port.
    pub address: PciAddress,
    /// Access Control Services; `None` if the host does not have its configuration space.
    pub acs: Option<Acs>,
    /// Whether functions below are numbered without regard to devices (Alternative Routing-ID), which more than
    /// eight functions of a card need.
    pub ari: Option<bool>,
    /// Whether the function can have addresses translated in advance (ATS); `None` if its capabilities are hidden.
    pub ats: Option<bool>,
}

/// Access Control Services of a function or port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acs {
    /// Not readable without `CAP_SYS_ADMIN`.
    Hidden,
    /// It has none.
    None,
    /// It has some; which are on.
    Switches(AcsSwitches),
}

impl fmt::Display for Acs {
    /// `hidden`, `none`, or what [`AcsSwitches`] says.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hidden => f.write_str("hidden"),
            Self::None => f.write_str("none"),
            Self::Switches(switches) => switches.fmt(f),
        }
    }
}

/// The ACS control register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AcsSwitches(pub u16);

impl AcsSwitches {
    /// In the order of the register.
    const NAMES: [&str; 7] = [
        "source_validation",
        "translation_blocking",
        "request_redirect",
        "completion_redirect",
        "upstream_forwarding",
        "egress_control",
        "direct_translated",
    ];

    /// Whether requests from below a port to its siblings go up to the root first (request redirect, egress control).
    pub const fn redirects_requests(self) -> bool {
        self.0 & (1 << 2 | 1 << 5) != 0
    }

    /// Whether answers from below a port to its siblings go up to the root first (completion redirect).
    pub const fn redirects_completions(self) -> bool {
        self.0 & (1 << 3) != 0
    }
}

impl fmt::Display for AcsSwitches {
    /// `source_validation,request_redirect`; `off`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let on = Self::NAMES.iter().enumerate().filter(|(bit, _)| self.0 >> bit & 1 == 1);
        let names: Vec<&str> = on.map(|(_, name)| *name).collect();
        f.write_str(if names.is_empty() { "off" } else { "" })?;
        f.write_str(&names.join(","))
    }
}
