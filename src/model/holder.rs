//! Who holds a VF, and what the sources say of it: processes, libvirt, network namespaces.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::ids::PciAddress;
use super::sriov::{Mac, VfConfig};

/// Who holds a VF. Serialized as its kind and name; what hides a holder is not remembered.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "HolderRecord", into = "HolderRecord")]
pub enum Holder {
    /// A kernel driver of this host: the interface or RDMA device it made.
    Host(Arc<str>),
    /// A kernel driver of this host, and the interface is in another network namespace.
    Netns(Arc<str>),
    /// A virtual machine, by its domain name.
    Vm(Arc<str>),
    /// A pod, by its UID.
    Pod(Arc<str>),
    /// Another process, by its name.
    Process(Arc<str>),
    /// Nobody.
    None,
    /// Not to be known: what is missing to see it.
    Unknown(MissingAccess),
}

/// What hides a holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MissingAccess {
    /// The descriptors of other users' processes: their list and where they lead.
    Descriptors,
    /// Where the descriptors of other users' processes lead.
    Ptrace,
    /// The list of other users' descriptors, or libvirt's files.
    Search,
    /// Processes that are closed to this one though it has every capability for them.
    Refused,
    /// A network namespace in which no process shows its interfaces.
    Namespace,
    /// There is no `/proc` (a recorded host).
    Processes,
    /// The source was not read yet, or not at all.
    Source,
}

impl MissingAccess {
    /// Whether it is a permission.
    pub const fn is_permission(self) -> bool {
        matches!(self, Self::Descriptors | Self::Ptrace | Self::Search | Self::Refused)
    }

    /// What would show it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Descriptors => "CAP_SYS_PTRACE with CAP_DAC_READ_SEARCH",
            Self::Ptrace => "CAP_SYS_PTRACE",
            Self::Search => "CAP_DAC_READ_SEARCH",
            Self::Refused => "a reader that no security module or user namespace restricts",
            Self::Namespace => "a process with a /sys of its own in each network namespace",
            Self::Processes => "the host's /proc",
            Self::Source => "the holders collector",
        }
    }
}

impl Holder {
    /// The `holder_kind` label.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Host(_) => "host",
            Self::Netns(_) => "netns",
            Self::Vm(_) => "vm",
            Self::Pod(_) => "pod",
            Self::Process(_) => "process",
            Self::None => "none",
            Self::Unknown(_) => "unknown",
        }
    }

    /// The `holder` label; empty where there is none.
    pub fn name(&self) -> &str {
        match self {
            Self::Host(name) | Self::Netns(name) | Self::Vm(name) | Self::Pod(name) | Self::Process(name) => name,
            Self::None | Self::Unknown(_) => "",
        }
    }

    /// Whether somebody is known to use it besides this host's own drivers.
    pub const fn is_guest(&self) -> bool {
        matches!(self, Self::Netns(_) | Self::Vm(_) | Self::Pod(_) | Self::Process(_))
    }
}

impl Default for Holder {
    /// Nothing was read yet.
    fn default() -> Self {
        Self::Unknown(MissingAccess::Source)
    }
}

/// A holder in the state file.
#[derive(Serialize, Deserialize)]
struct HolderRecord {
    kind: Arc<str>,
    #[serde(default)]
    name: Arc<str>,
}

impl From<Holder> for HolderRecord {
    fn from(holder: Holder) -> Self {
        Self { kind: Arc::from(holder.kind()), name: Arc::from(holder.name()) }
    }
}

impl From<HolderRecord> for Holder {
    fn from(record: HolderRecord) -> Self {
        let make = match &*record.kind {
            "host" => Self::Host,
            "netns" => Self::Netns,
            "vm" => Self::Vm,
            "pod" => Self::Pod,
            "process" => Self::Process,
            "none" => return Self::None,
            _ => return Self::default(),
        };
        make(record.name)
    }
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Host(name) => write!(f, "this host ({name})"),
            Self::Netns(name) => write!(f, "network namespace {name}"),
            Self::Vm(name) => write!(f, "VM {name}"),
            Self::Pod(name) => write!(f, "pod {name}"),
            Self::Process(name) => write!(f, "process {name}"),
            Self::None => f.write_str("nobody"),
            Self::Unknown(missing) => write!(f, "unknown ({} would show it)", missing.as_str()),
        }
    }
}

/// Something of vfio or uio that a process has open.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeviceFile {
    /// `/dev/vfio/<G>`: the IOMMU group.
    Group(u32),
    /// `/dev/vfio/devices/vfio3`, `/dev/uio2`: the path below `/dev`.
    Node(Arc<str>),
    /// The function itself, as `fdinfo` names it.
    Function(PciAddress),
}

/// A process that has functions open.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Opener {
    /// Its number, in the namespace that this `/proc` shows.
    pub pid: u32,
    /// Its name.
    pub name: Arc<str>,
    /// The domain that a QEMU runs.
    pub domain: Option<Arc<str>>,
    /// The pod it belongs to, by UID.
    pub pod: Option<Arc<str>>,
    /// What it has open.
    pub handles: Vec<DeviceFile>,
    /// When it started, in clock ticks since boot (`starttime` of `/proc/<pid>/stat`).
    pub started: Option<u64>,
}

/// What `/proc/<pid>/fd` shows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Openers {
    /// Processes that have functions open.
    pub openers: Vec<Opener>,
    /// What hides the descriptors of some processes; none when every process could be looked into.
    pub missing: Option<MissingAccess>,
    /// Whether there is a `/proc` with processes at all.
    pub visible: bool,
    /// QEMUs by their command lines (`/proc/<pid>/cmdline`, which everybody may read). They claim the functions that
    /// the command line names only while their descriptors are hidden: a function may have been unplugged since.
    pub machines: Vec<Domain>,
}

/// A PCI function that a domain's definition names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The function on this host.
    pub address: PciAddress,
    /// The MAC address that the domain wants for it.
    pub mac: Option<Mac>,
    /// The VLAN that the domain wants for it.
    pub vlan: Option<u16>,
    /// Whether there is such a function here; `None` if the host shows no functions.
    pub present: Option<bool>,
}

impl Claim {
    /// Whether the PF makes something else of the function than the domain wants. A MAC address that nobody set is none.
    pub fn differs(&self, config: &VfConfig) -> bool {
        self.wrong_mac(config).is_some() || self.wrong_vlan(config).is_some()
    }

    /// The MAC address that is wanted and that which it has, where they differ.
    pub fn wrong_mac(&self, config: &VfConfig) -> Option<(Mac, Mac)> {
        self.mac.zip(config.mac).filter(|(wanted, mac)| !mac.is_zero() && wanted != mac)
    }

    /// The VLAN that is wanted and that which it has, where they differ.
    pub fn wrong_vlan(&self, config: &VfConfig) -> Option<(u16, u16)> {
        self.vlan.zip(config.vlan.map(|vlan| vlan.id)).filter(|(wanted, vlan)| wanted != vlan)
    }
}

/// A domain as libvirt's files describe it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Domain {
    /// Its name.
    pub name: Arc<str>,
    /// Whether it runs, as far as the file says: a live status, or a definition with an `id`.
    pub live: bool,
    /// Its state (`running`, `paused`, …), from the live status only.
    pub state: Option<Arc<str>>,
    /// Why it is in that state (`booted`, `migrated`, …).
    pub reason: Option<Arc<str>>,
    /// Its QEMU's process.
    pub pid: Option<u32>,
    /// Its identifier on this host: another number at each start.
    pub id: Option<u32>,
    /// Whether its memory comes from elsewhere: a QEMU that was started with `-incoming` (a migration, or a saved image),
    /// or a live status with a job that moves it here.
    pub incoming: bool,
    /// Whether it is being moved here right now (`<job async='migration in'>`).
    pub incoming_job: bool,
    /// Functions it names.
    pub claims: Vec<Claim>,
}

impl Domain {
    /// Whether its guest went on here from a state that was made elsewhere or before: a migration, a saved image, a
    /// snapshot. Its devices then have a past that this host's functions don't share.
    pub fn arrived(&self) -> bool {
        let running = !matches!(self.state.as_deref(), Some("paused"));
        let reason = match self.reason.as_deref() {
            Some("migrated" | "restored" | "from snapshot") => true,
            // The source says so, too, while it is paused.
            Some("post-copy" | "post-copy failed") => running,
            _ => false,
        };
        self.incoming || reason
    }

    /// Whether its guest runs and nothing is being done to it, so that a function which is claimed from now on was
    /// attached while it ran.
    pub fn is_settled(&self) -> bool {
        self.live && self.state.as_deref() == Some("running") && !self.incoming_job
    }
}

/// What libvirt's directories show.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Libvirt {
    /// Domains; one that runs by its live status, others by their definition.
    pub domains: Vec<Domain>,
    /// Whether what is there could be read.
    pub readable: bool,
    /// Whether the directory of live statuses is there, so that a domain without one does not run.
    pub has_live: bool,
}

/// An interface in another network namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceInterface {
    /// The PCI function it belongs to.
    pub address: PciAddress,
    /// Its name there.
    pub netdev: Arc<str>,
    /// The namespace's name, or its number where it has none.
    pub namespace: Arc<str>,
    /// The pod of the process through which it was seen.
    pub pod: Option<Arc<str>>,
}

/// A network namespace other than this host's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkNamespace {
    /// Its name, or its number where it has none.
    pub name: Arc<str>,
    /// The pod of the process through which it was seen.
    pub pod: Option<Arc<str>>,
}

/// What other network namespaces show.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Namespaces {
    /// Their interfaces of PCI functions.
    pub interfaces: Vec<NamespaceInterface>,
    /// Those that could be looked into, whatever is in them.
    pub seen: Vec<NetworkNamespace>,
    /// What hides some namespaces; none when every namespace could be looked into.
    pub missing: Option<MissingAccess>,
}
