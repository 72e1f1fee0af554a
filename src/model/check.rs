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
    /// A port lost its link and got it back.
    PortFlapping = "port_flapping",
    /// Error counters of a port rise faster than they should.
    PortErrors = "port_errors",
    /// Counters of a port stand at their field's maximum and no longer count.
    PortCounterSaturated = "port_counter_saturated",
    /// A device that was here is gone.
    DeviceMissing = "device_missing",
    /// The PCIe path of active ports carries less than their rates.
    PcieBelowPortRate = "pcie_below_port_rate",
    /// A PCIe link runs below what both of its ends can do.
    PcieDegraded = "pcie_degraded",
    /// A PCIe link is limited by its slot: the device could do more elsewhere.
    PcieLimitedBySlot = "pcie_limited_by_slot",
    /// A PCIe link is slower than this host's own baseline.
    PcieDrifted = "pcie_drifted",
    /// A device no longer answers on the PCIe bus.
    PcieOffBus = "pcie_off_bus",
    /// PCIe errors are being reported.
    PcieAer = "pcie_aer",
    /// The ways to count a PF's VFs disagree.
    VfCountMismatch = "vf_count_mismatch",
    /// A VF is set up for use and nobody holds it.
    VfOrphan = "vf_orphan",
    /// Someone claims a VF that is gone or that another holds.
    VfDangling = "vf_dangling",
    /// A VF's GUID was never set.
    VfIdentityZero = "vf_identity_zero",
    /// Two VFs have one MAC address or GUID.
    VfIdentityDuplicate = "vf_identity_duplicate",
    /// A VF's MAC address or GUID is no longer what its holder knows.
    VfIdentityChanged = "vf_identity_changed",
    /// A VF is bound to another driver than it should be.
    VfDriverChanged = "vf_driver_changed",
    /// A VF that nobody holds is still configured for someone.
    VfLeftoverConfig = "vf_leftover_config",
    /// VFs were moved or made anew under their holders and nothing shows that they work since.
    VfMapStale = "vf_map_stale",
    /// A PF is down under VFs that are in use.
    VfPfDown = "vf_pf_down",
    /// A VF that was given away shares its IOMMU group.
    VfGroupShared = "vf_group_shared",
    /// A VF's configuration is no longer what it was, or not what its holder wants.
    VfConfigDrifted = "vf_config_drifted",
    /// A device's interrupts are served on another NUMA node than its own.
    IrqRemote = "irq_remote",
    /// One CPU serves most of the interrupts of a device that has many vectors.
    IrqPiledUp = "irq_piled_up",
    /// A device's vectors stand elsewhere than they did when all was well.
    IrqDrifted = "irq_drifted",
    /// An Ethernet port loses RDMA traffic, or stands still.
    RoceLossy = "roce_lossy",
    /// Probes measure less than the lane can carry, or than they used to.
    ProbeSlow = "probe_slow",
    /// Probes cannot move data through a port.
    ProbeFailing = "probe_failing",
    /// The kernel said something about a watched device, or a health reporter of its driver is in error.
    KernelMessage = "kernel_message",
    /// How the host is set up costs speed, or stands in the way of pass-through.
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
