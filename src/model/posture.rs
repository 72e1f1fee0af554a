//! How the host is set up for RDMA and pass-through: facts about the whole of it.

use std::collections::BTreeMap;
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
