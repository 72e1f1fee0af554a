//! Who holds a VF, and what the sources say of it: processes, libvirt, network namespaces.

mod domain;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use domain::{Claim, Domain, GivenFunctions, Libvirt, Proxmox, ProxmoxVm, VmIdentity, VmManager};

use super::ids::PciAddress;
use super::sriov::Pf;

/// Who holds a VF. Serialized as its kind and name; what hides a holder is not remembered.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "HolderRecord", into = "HolderRecord")]
pub enum Holder {
    /// A kernel driver of this host: the interface or RDMA device it made.
    Host(Arc<str>),
    /// A kernel driver of this host, and the interface is in another network namespace.
    Netns(Arc<str>),
    /// A virtual machine.
    Vm(Vm),
    /// A pod.
    Pod(Pod),
    /// A batch job (Slurm), by its number.
    Job(Arc<str>),
    /// Another process, by its name.
    Process(Arc<str>),
    /// Nobody.
    None,
    /// Not to be known: what is missing to see it.
    Unknown(MissingAccess),
}

/// A virtual machine that holds a VF. Two are the same if their domains have the same name.
#[derive(Debug, Clone)]
pub struct Vm {
    /// The name of its domain.
    pub domain: Arc<str>,
    /// How its manager calls it: the name of an OpenStack instance, the number of a Proxmox machine. `None` if it has no
    /// other name, or none that could be read.
    pub title: Option<Arc<str>>,
}

impl Vm {
    /// A machine of which only the domain is known.
    pub fn new(domain: impl Into<Arc<str>>) -> Self {
        Self { domain: domain.into(), title: None }
    }
}

/// A pod that holds a VF. Two are the same if their UIDs are.
#[derive(Debug, Clone)]
pub struct Pod {
    /// Its UID.
    pub uid: Arc<str>,
    /// Its name; `None` if it could not be read.
    pub name: Option<PodName>,
}

/// The name of a pod, and of one of its containers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodName {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub pod: Arc<str>,
    /// The container; `None` if it is unknown which of several it is.
    pub container: Option<Arc<str>>,
}

impl Pod {
    /// A pod of which only the UID is known.
    pub fn new(uid: impl Into<Arc<str>>) -> Self {
        Self { uid: uid.into(), name: None }
    }
}

impl std::fmt::Display for Pod {
    /// `namespace/name`; the UID if the name is unknown.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{}/{}", name.namespace, name.pod),
            None => f.write_str(&self.uid),
        }
    }
}

impl std::fmt::Display for Vm {
    /// `instance-0000001a (web1)`; the domain alone if it has no other name.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.title {
            Some(title) => write!(f, "{} ({title})", self.domain),
            None => f.write_str(&self.domain),
        }
    }
}

/// Compares, orders and hashes by one field: what else is known of a holder does not make it another.
macro_rules! identified_by {
    ($type:ty, $field:ident) => {
        impl PartialEq for $type {
            fn eq(&self, other: &Self) -> bool {
                self.$field == other.$field
            }
        }
        impl Eq for $type {}
        impl PartialOrd for $type {
            fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
                Some(self.cmp(other))
            }
        }
        impl Ord for $type {
            fn cmp(&self, other: &Self) -> std::cmp::Ordering {
                self.$field.cmp(&other.$field)
            }
        }
        impl std::hash::Hash for $type {
            fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
                self.$field.hash(state);
            }
        }
    };
}

identified_by!(Vm, domain);
identified_by!(Pod, uid);

/// What a process belongs to, by its control groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CgroupOwner {
    /// A pod, by UID.
    Pod {
        /// Its UID, with dashes; of a static pod the hash of its configuration.
        uid: Arc<str>,
        /// The container's identifier; `None` for a process of the pod itself, or beside its containers.
        container: Option<Arc<str>>,
    },
    /// A virtual machine: its domain in libvirt, or its number in Proxmox.
    Vm(Arc<str>),
    /// A batch job (Slurm), by its number.
    Job(Arc<str>),
}

impl CgroupOwner {
    /// The pod's UID; `None` if it is no pod.
    pub fn pod(&self) -> Option<&Arc<str>> {
        match self {
            Self::Pod { uid, .. } => Some(uid),
            Self::Vm(_) | Self::Job(_) => None,
        }
    }
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
            Self::Job(_) => "job",
            Self::Process(_) => "process",
            Self::None => "none",
            Self::Unknown(_) => "unknown",
        }
    }

    /// The `holder` label; empty where there is none.
    pub fn name(&self) -> &str {
        match self {
            Self::Host(name) | Self::Netns(name) | Self::Job(name) | Self::Process(name) => name,
            Self::Vm(vm) => &vm.domain,
            Self::Pod(pod) => &pod.uid,
            Self::None | Self::Unknown(_) => "",
        }
    }

    /// Whether somebody is known to use it besides this host's own drivers.
    pub const fn is_guest(&self) -> bool {
        matches!(self, Self::Netns(_) | Self::Vm(_) | Self::Pod(_) | Self::Job(_) | Self::Process(_))
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
    /// The machine's other name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    title: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    namespace: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pod: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    container: Option<Arc<str>>,
}

impl From<Holder> for HolderRecord {
    fn from(holder: Holder) -> Self {
        let (kind, name) = (Arc::from(holder.kind()), Arc::from(holder.name()));
        let record = Self { kind, name, title: None, namespace: None, pod: None, container: None };
        match holder {
            Holder::Vm(vm) => Self { title: vm.title, ..record },
            Holder::Pod(Pod { name: Some(PodName { namespace, pod, container }), .. }) => {
                Self { namespace: Some(namespace), pod: Some(pod), container, ..record }
            }
            _ => record,
        }
    }
}

impl From<HolderRecord> for Holder {
    fn from(record: HolderRecord) -> Self {
        let HolderRecord { kind, name, title, namespace, pod, container } = record;
        match &*kind {
            "host" => Self::Host(name),
            "netns" => Self::Netns(name),
            "vm" => Self::Vm(Vm { domain: name, title }),
            "pod" => {
                let pod_name = namespace.zip(pod).map(|(namespace, pod)| PodName { namespace, pod, container });
                Self::Pod(Pod { uid: name, name: pod_name })
            }
            "job" => Self::Job(name),
            "process" => Self::Process(name),
            "none" => Self::None,
            _ => Self::default(),
        }
    }
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Host(name) => write!(f, "this host ({name})"),
            Self::Netns(name) => write!(f, "network namespace {name}"),
            Self::Vm(vm) => write!(f, "VM {vm}"),
            Self::Pod(pod) => write!(f, "pod {pod}"),
            Self::Job(id) => write!(f, "job {id}"),
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
    /// What it belongs to, by its control groups.
    pub owner: Option<CgroupOwner>,
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

/// An interface in another network namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceInterface {
    /// The PCI function it belongs to.
    pub address: PciAddress,
    /// Its name there.
    pub netdev: Arc<str>,
    /// The namespace's name, or its number where it has none.
    pub namespace: Arc<str>,
    /// What the process through which it was seen belongs to.
    pub owner: Option<CgroupOwner>,
}

/// A network namespace other than this host's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkNamespace {
    /// Its name, or its number where it has none.
    pub name: Arc<str>,
    /// What the process through which it was seen belongs to.
    pub owner: Option<CgroupOwner>,
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
    /// Names of those that no process is in, so that nobody's view shows their interfaces.
    pub empty: Vec<Arc<str>>,
}

impl Namespaces {
    /// The namespace that an interface is in which no other shows; `None` unless a single one is left.
    pub fn only_hidden(&self) -> Option<&Arc<str>> {
        let [name] = self.empty.as_slice() else { return None };
        (self.missing == Some(MissingAccess::Namespace)).then_some(name)
    }
}

/// What keeps idle functions ready for guests, so that one without a user is no mistake.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FunctionPools {
    /// Whether this host is a Kubernetes node, where device plugins keep functions for pods.
    pub kubernetes: bool,
    /// Networks of libvirt that give VFs to domains.
    pub networks: Vec<FunctionNetwork>,
}

/// A network of libvirt that gives VFs to domains (`<forward mode='hostdev'>`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FunctionNetwork {
    /// Its name.
    pub name: Arc<str>,
    /// Interfaces of the PFs whose VFs it gives away (`<pf dev='…'/>`).
    pub pfs: Vec<Arc<str>>,
    /// Functions that it names one by one.
    pub functions: Vec<PciAddress>,
}

impl FunctionPools {
    /// The pool that keeps a VF, as it reads in a sentence; `None` if none does. A network that names the VF comes before
    /// what may keep any.
    pub fn pool_of(&self, pf: &Pf, vf: PciAddress) -> Option<String> {
        let names = |network: &&FunctionNetwork| {
            network.functions.contains(&vf) || network.pfs.iter().any(|netdev| pf.netdevs.contains(netdev))
        };
        let network = self.networks.iter().find(names).map(|network| format!("the libvirt network {}", network.name));
        network.or_else(|| self.kubernetes.then(|| "this Kubernetes node's device plugins".to_owned()))
    }
}
