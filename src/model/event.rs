//! Things that happened, for the status page, `/api/v1/events` and the journal in the state directory.

use serde::{Deserialize, Serialize};

/// What kind of thing happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// The agent started.
    Started,
    /// The host was booted since the agent last ran.
    Booted,
    /// A device appeared.
    DeviceAppeared,
    /// A device went away.
    DeviceGone,
    /// A port changed its state.
    PortState,
    /// A port lost its link and got it back.
    PortFlap,
    /// A PCIe link changed speed or width.
    LinkChanged,
    /// A counter went backwards: someone reset it, or the driver was reloaded.
    CounterReset,
    /// A finding began.
    FindingBegan,
    /// A finding ended.
    FindingEnded,
    /// The learned baseline changed.
    BaselineLearned,
    /// Kernel messages were dropped before they could be read.
    KernelLogLost,
    /// The configuration was read again.
    Reloaded,
    /// A VF appeared, went away, or changed its driver, identity or holder.
    VfChanged,
    /// A sign that a guest or a function was moved.
    Migration,
    /// A probe ran.
    Probe,
}

impl EventKind {
    /// The word in JSON and on the page.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Booted => "booted",
            Self::DeviceAppeared => "device_appeared",
            Self::DeviceGone => "device_gone",
            Self::PortState => "port_state",
            Self::PortFlap => "port_flap",
            Self::LinkChanged => "link_changed",
            Self::CounterReset => "counter_reset",
            Self::FindingBegan => "finding_began",
            Self::FindingEnded => "finding_ended",
            Self::BaselineLearned => "baseline_learned",
            Self::KernelLogLost => "kernel_log_lost",
            Self::Reloaded => "reloaded",
            Self::VfChanged => "vf_changed",
            Self::Migration => "migration",
            Self::Probe => "probe",
        }
    }
}

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When, RFC 3339.
    pub time: String,
    /// What kind.
    pub kind: EventKind,
    /// Who: a port, a device, a PCI address; empty for the agent itself.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub subject: String,
    /// One sentence.
    pub text: String,
}
