//! What a check found: subject, severity, a sentence, and the evidence for it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::check::{Check, Severity};
use super::holder::{Holder, Pod};
use super::ids::{DeviceName, PciAddress, PortKey};
use super::reading::ReadError;
use super::reason::FindingReason;
use super::sriov::VfKey;
use super::time::BootTime;

/// Who a finding is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// A port: `mlx5_3/1`.
    Port(PortKey),
    /// An RDMA device: `mlx5_3`.
    Device(DeviceName),
    /// A PCI function, or the link above it: its address.
    Pci(PciAddress),
    /// A VF: `0000:98:00.0/vf3`.
    Vf(VfKey),
    /// A network interface of a guest: `eth0`.
    Netdev(Arc<str>),
    /// An aspect of the host itself: `host/iommu`.
    Host(&'static str),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port(port) => port.fmt(f),
            Self::Device(device) => device.fmt(f),
            Self::Pci(address) => address.fmt(f),
            Self::Vf(key) => key.fmt(f),
            Self::Netdev(name) => f.write_str(name),
            Self::Host(aspect) => write!(f, "host/{aspect}"),
        }
    }
}

/// Values that a finding rests on, by the names of the metrics (`port_rate_bytes_per_second`).
pub type Evidence = Map<String, Value>;

/// How long a condition must hold before it is a finding. One-shot commands do not wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// At once.
    None,
    /// So long.
    For(Duration),
    /// In so many consecutive passes.
    Passes(u32),
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None | Self::For(Duration::ZERO) => f.write_str("at once"),
            Self::For(time) => humantime::format_duration(*time).fmt(f),
            Self::Passes(count) => write!(f, "{count} readings"),
        }
    }
}

/// A condition that a check saw on a subject.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    /// The check.
    pub check: Check,
    /// Who.
    pub subject: Subject,
    /// How bad.
    pub severity: Severity,
    /// A word for the case, from the check's closed set.
    pub reason: FindingReason,
    /// One sentence a person can act on.
    pub summary: String,
    /// The RDMA device concerned.
    pub device: Option<DeviceName>,
    /// Its port.
    pub port: Option<u32>,
    /// The PCI function concerned.
    pub pci_address: Option<PciAddress>,
    /// What it rests on.
    pub evidence: Evidence,
    /// How long it must hold.
    pub hold: Hold,
    /// How long it must be gone before the finding clears.
    pub clear_after: Duration,
}

impl Condition {
    /// A condition that is a finding at once and ends at once; its device, port and address follow from the subject.
    pub fn new(check: Check, subject: Subject, severity: Severity, reason: FindingReason, summary: String) -> Self {
        let (device, port, pci_address) = match &subject {
            Subject::Port(key) => (Some(key.device.clone()), Some(key.port), None),
            Subject::Device(device) => (Some(device.clone()), None, None),
            Subject::Pci(address) => (None, None, Some(*address)),
            Subject::Vf(_) | Subject::Netdev(_) | Subject::Host(_) => (None, None, None),
        };
        Self {
            check,
            subject,
            severity,
            reason,
            summary,
            device,
            port,
            pci_address,
            evidence: Evidence::new(),
            hold: Hold::None,
            clear_after: Duration::ZERO,
        }
    }

    /// Names the device concerned.
    #[must_use]
    pub fn device(mut self, device: Option<DeviceName>) -> Self {
        self.device = device;
        self
    }

    /// Names the PCI function concerned.
    #[must_use]
    pub fn address(mut self, address: Option<PciAddress>) -> Self {
        self.pci_address = address;
        self
    }

    /// Adds a value that it rests on; an unknown one is left out.
    #[must_use]
    pub fn with_evidence(mut self, name: &str, value: Option<impl Into<Value>>) -> Self {
        if let Some(value) = value {
            self.evidence.insert(name.to_owned(), value.into());
        }
        self
    }

    /// Adds the names of a pod or machine that uses what is concerned, as far as they are known.
    #[must_use]
    pub fn with_holder_names(self, holder: &Holder) -> Self {
        match holder {
            Holder::Pod(Pod { name: Some(name), .. }) => self
                .with_evidence("namespace", Some(&*name.namespace))
                .with_evidence("pod", Some(&*name.pod))
                .with_evidence("container", name.container.as_deref()),
            Holder::Vm(vm) => self.with_evidence("vm_title", vm.title.as_deref()),
            _ => self,
        }
    }

    /// Sets how long it must hold.
    #[must_use]
    pub fn hold(mut self, hold: Hold) -> Self {
        self.hold = hold;
        self
    }

    /// Sets how long it must be gone before it clears.
    #[must_use]
    pub fn clear_after(mut self, time: Duration) -> Self {
        self.clear_after = time;
        self
    }
}

/// A condition that has held long enough.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// What holds.
    pub condition: Condition,
    /// When it began.
    pub since: BootTime,
}

/// A condition that has not held for long enough to be a finding. It changes no status and never alerts.
#[derive(Debug, Clone, PartialEq)]
pub struct PendingFinding(pub Finding);

impl PendingFinding {
    /// When it will be a finding if it holds until then; `None` if a number of readings decides.
    pub fn due(&self) -> Option<BootTime> {
        match self.0.condition.hold {
            Hold::None => Some(self.0.since),
            Hold::For(time) => Some(self.0.since.after(time)),
            Hold::Passes(_) => None,
        }
    }
}

/// A subject that a check could not judge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownSubject {
    /// The check.
    pub check: Check,
    /// Who.
    pub subject: Subject,
    /// Why it could not be read; none when the host has nothing to say on it.
    pub reason: Option<ReadError>,
    /// Whether a host says it as a rule: that this one does not is worth a word.
    pub due: bool,
}

impl UnknownSubject {
    /// Whether the host has it and it could not be read, for another cause than a missing permission.
    pub fn is_unread(&self) -> bool {
        self.reason.is_some_and(|reason| reason != ReadError::Permission)
    }
}

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
    /// A port got another LID, another subnet manager, or other GIDs.
    AddressChanged,
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
            Self::AddressChanged => "address_changed",
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
    /// `link_downed` of a port that lost its link, up to which its losses are recorded; absent for other events. After a
    /// restart the losses since then are recorded, each once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_downed: Option<u64>,
}
