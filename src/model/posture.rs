//! How the host is set up for RDMA and pass-through: facts about the whole of it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::ids::PciAddress;

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

    /// Whether requests from one function below to another go up to the root first.
    pub const fn redirects_requests(self) -> bool {
        self.0 & 4 != 0
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
