//! The checks: a closed list of names, and what a check says of one subject.

use serde::Serialize;

/// How bad a finding is. Ordered: `info` never changes a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing.
    Info,
    /// Should be looked at.
    Warning,
    /// Should be looked at now.
    Critical,
}

impl Severity {
    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

/// The state of a host as a whole. Ordered from best to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Nothing found.
    Ok,
    /// Something needed could not be read.
    Unknown,
    /// The worst finding is a warning.
    Warning,
    /// The worst finding is critical.
    Critical,
}

impl Status {
    /// The word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Unknown => "unknown",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

/// Where a subject stands with a check: the `result` label of `lanewatch_check_subjects`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckResult {
    /// Nothing to find, or an info finding only.
    Ok,
    /// A finding of severity warning.
    Degraded,
    /// A finding of severity critical.
    Failed,
    /// What the check needs could not be read, or the host does not say.
    Unknown,
    /// The check does not apply, or policy excepts the subject.
    Skipped,
}

impl CheckResult {
    /// All, in the order of the metrics.
    pub const ALL: [Self; 5] = [Self::Ok, Self::Degraded, Self::Failed, Self::Unknown, Self::Skipped];

    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Degraded => "degraded",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
            Self::Skipped => "skipped",
        }
    }
}

impl From<Severity> for CheckResult {
    fn from(severity: Severity) -> Self {
        match severity {
            Severity::Info => Self::Ok,
            Severity::Warning => Self::Degraded,
            Severity::Critical => Self::Failed,
        }
    }
}

macro_rules! checks {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal,)+) => {
        /// A check.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Check { $($(#[doc = $doc])+ $name,)+ }

        impl Check {
            /// Every check, in the order people read them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The name: the `check` label and JSON key.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }

            /// One sentence on what it finds.
            pub const fn about(self) -> &'static str {
                match self { $(Self::$name => concat!($($doc),+).trim_ascii(),)+ }
            }
        }
    };
}

checks! {
    /// A port that should be up is not ACTIVE.
    PortDown = "port_down",
    /// An active port runs below its expected rate.
    PortRateLow = "port_rate_low",
    /// A port's link went down and came back.
    PortFlapping = "port_flapping",
    /// Error counters of a port rise faster than their limits.
    PortErrors = "port_errors",
    /// A port's link loses data, or is close to it: errors before and after correction (FEC).
    LinkQuality = "link_quality",
    /// A module reports a fault, or is beyond its own temperature limits.
    ModuleFault = "module_fault",
    /// A lane of a module receives or sends too little light.
    ModuleLight = "module_light",
    /// Counters of a port reached their maximum and no longer count.
    PortCounterSaturated = "port_counter_saturated",
    /// A sensor of a card is near or above its limit.
    NicHot = "nic_hot",
    /// A device of the baseline or policy is missing.
    DeviceMissing = "device_missing",
    /// An RDMA card has no driver, or its driver has made no RDMA device of it.
    DeviceNoDriver = "device_no_driver",
    /// The PCIe path of active ports is slower than their rates.
    PcieBelowPortRate = "pcie_below_port_rate",
    /// A PCIe link runs below what both ends support.
    PcieDegraded = "pcie_degraded",
    /// A PCIe link is limited by its slot: the card supports more.
    PcieLimitedBySlot = "pcie_limited_by_slot",
    /// A PCIe link is slower than the baseline or the policy.
    PcieDrifted = "pcie_drifted",
    /// A GPU has no near RDMA card, unlike its siblings or the baseline.
    GpuNicFar = "gpu_nic_far",
    /// A device is not responding on the PCIe bus.
    PcieOffBus = "pcie_off_bus",
    /// A device or port reports PCIe errors (AER).
    PcieAer = "pcie_aer",
    /// The counts of a PF's VFs disagree: expected, configured, present, listed over netlink.
    VfCountMismatch = "vf_count_mismatch",
    /// A VF is set up for use, but unused.
    VfOrphan = "vf_orphan",
    /// A domain claims a VF that is gone or used by another.
    VfDangling = "vf_dangling",
    /// A VF's GUID was never set.
    VfIdentityZero = "vf_identity_zero",
    /// Two VFs have one MAC address or GUID.
    VfIdentityDuplicate = "vf_identity_duplicate",
    /// A VF's MAC address or GUID changed while in use.
    VfIdentityChanged = "vf_identity_changed",
    /// A VF is bound to another driver than driver_override names.
    VfDriverChanged = "vf_driver_changed",
    /// An unused VF still has the configuration of its last user.
    VfLeftoverConfig = "vf_leftover_config",
    /// VFs were moved or recreated while in use, and nothing has shown since then that they work.
    VfMapStale = "vf_map_stale",
    /// A PF is down while its VFs are in use.
    VfPfDown = "vf_pf_down",
    /// The PF keeps the link of a VF down while it is in use.
    VfLinkDisabled = "vf_link_disabled",
    /// In a guest: an interface keeps losing its VF, or works without it.
    VfFailover = "vf_failover",
    /// A passed-through VF shares its IOMMU group.
    VfGroupShared = "vf_group_shared",
    /// A VF's configuration changed while in use, or differs from its domain's.
    VfConfigDrifted = "vf_config_drifted",
    /// A device's interrupts are served outside its NUMA node.
    IrqRemote = "irq_remote",
    /// One CPU serves most interrupts of a device with many vectors.
    IrqPiledUp = "irq_piled_up",
    /// Fewer of a device's interrupt vectors are on its NUMA node than in the baseline.
    IrqDrifted = "irq_drifted",
    /// An Ethernet port loses or stalls RDMA traffic.
    RoceLossy = "roce_lossy",
    /// A pod or job is near its limit of RDMA contexts or objects.
    RdmaCgroupLimitNear = "rdma_cgroup_limit_near",
    /// Benchmarks measure less than the path can carry, or less than usual.
    ProbeSlow = "probe_slow",
    /// Benchmarks cannot move data through a port.
    ProbeFailing = "probe_failing",
    /// The kernel logged an error about a watched device, or a health reporter of its driver is in error.
    KernelMessage = "kernel_message",
    /// A host setting costs speed or prevents pass-through.
    HostPosture = "host_posture",
}

impl std::str::FromStr for Check {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL.iter().copied().find(|check| check.as_str() == text).ok_or(())
    }
}

impl Serialize for Check {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}
