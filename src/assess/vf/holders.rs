//! Puts together what processes, libvirt and namespaces say: who holds each VF.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::holder::{
    CgroupOwner, Claim, DeviceFile, Domain, FunctionPools, Holder, Libvirt, MissingAccess, NamespaceInterface,
    Namespaces, Opener, Openers, Pod, Proxmox, Vm, VmIdentity, VmManager,
};
use crate::model::ids::PciAddress;
use crate::model::pods::{Allocation, Allocations, PodNames};
use crate::model::snapshot::Snapshot;
use crate::model::sriov::{Pf, Vf};

/// Everything that a snapshot says of holders.
#[derive(Debug, Default)]
pub struct HolderSources<'a> {
    openers: Option<&'a Openers>,
    /// Libvirt's view.
    pub libvirt: Option<&'a Libvirt>,
    namespaces: Option<&'a Namespaces>,
    proxmox: Option<&'a Proxmox>,
    pods: Option<&'a PodNames>,
    allocations: Option<&'a Allocations>,
    /// What keeps idle functions ready for guests.
    pub pools: Option<&'a FunctionPools>,
    claims: BTreeMap<PciAddress, Vec<(&'a Domain, &'a Claim)>>,
    by_group: BTreeMap<u32, Vec<&'a Opener>>,
    by_node: BTreeMap<&'a str, Vec<&'a Opener>>,
    by_function: BTreeMap<PciAddress, Vec<&'a Opener>>,
    elsewhere: BTreeMap<PciAddress, &'a NamespaceInterface>,
}

/// A holder, and its process where it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedHolder {
    /// Who.
    pub holder: Holder,
    /// The process that has it open.
    pub pid: Option<u32>,
}

impl From<Holder> for ResolvedHolder {
    fn from(holder: Holder) -> Self {
        Self { holder, pid: None }
    }
}

impl<'a> HolderSources<'a> {
    /// Sorts what a snapshot has.
    pub fn new(snapshot: &'a Snapshot) -> Self {
        let mut sources = Self {
            openers: snapshot.all().next(),
            libvirt: snapshot.all().next(),
            namespaces: snapshot.all().next(),
            proxmox: snapshot.all().next(),
            pods: snapshot.all().next(),
            allocations: snapshot.all().next(),
            pools: snapshot.all().next(),
            ..Self::default()
        };
        for domain in sources.libvirt.iter().flat_map(|libvirt| &libvirt.domains) {
            for claim in &domain.claims {
                sources.claims.entry(claim.address).or_default().push((domain, claim));
            }
        }
        // Libvirt knows more of a domain than the command line of its QEMU.
        let libvirt = sources.libvirt;
        let machines = sources.openers.into_iter().flat_map(|openers| &openers.machines);
        let of_libvirt = |machine: &Domain| {
            let mut live = libvirt.into_iter().flat_map(|libvirt| &libvirt.domains).filter(|domain| domain.live);
            live.any(|domain| domain.name == machine.name || (domain.pid.is_some() && domain.pid == machine.pid))
        };
        for machine in machines.filter(|machine| !of_libvirt(machine)) {
            for claim in &machine.claims {
                sources.claims.entry(claim.address).or_default().push((machine, claim));
            }
        }
        for opener in sources.openers.iter().flat_map(|openers| &openers.openers) {
            for handle in &opener.handles {
                match handle {
                    DeviceFile::Group(group) => sources.by_group.entry(*group).or_default().push(opener),
                    DeviceFile::Node(node) => sources.by_node.entry(node).or_default().push(opener),
                    DeviceFile::Function(address) => sources.by_function.entry(*address).or_default().push(opener),
                }
            }
        }
        for interface in sources.namespaces.iter().flat_map(|namespaces| &namespaces.interfaces) {
            sources.elsewhere.insert(interface.address, interface);
        }
        sources
    }

    /// Claims of domains to functions, by function.
    pub fn claims(&self) -> impl Iterator<Item = (PciAddress, &[(&'a Domain, &'a Claim)])> {
        self.claims.iter().map(|(address, claims)| (*address, claims.as_slice()))
    }

    /// Claims of domains that run to this function.
    pub fn live_claims(&self, address: PciAddress) -> impl Iterator<Item = (&'a Domain, &'a Claim)> {
        self.claims.get(&address).into_iter().flatten().copied().filter(|(domain, _)| domain.live)
    }

    /// What the domain that holds a function wants of it: that of one that runs, else of the only one that names it.
    pub fn claim(&self, address: PciAddress) -> Option<(&'a Domain, &'a Claim)> {
        let all = self.claims.get(&address)?;
        self.live_claims(address).next().or_else(|| all.first().copied().filter(|_| all.len() == 1))
    }

    /// Whether the processes of this host could all be looked into.
    pub fn sees_all_processes(&self) -> bool {
        self.openers.is_some_and(|openers| openers.visible && openers.missing.is_none())
    }

    /// Whether a domain's guest came here from elsewhere, by libvirt's status or by the command line of its QEMU;
    /// `pid` is the process that holds the function.
    pub fn arrived(&self, name: &str, pid: Option<u32>) -> bool {
        let libvirt = self.libvirt.iter().flat_map(|libvirt| &libvirt.domains).filter(|domain| domain.live);
        let machines = self.openers.iter().flat_map(|openers| &openers.machines);
        let is_it = |domain: &&Domain| {
            let other_process = domain.pid.zip(pid).is_some_and(|(one, other)| one != other);
            (*domain.name == *name || (pid.is_some() && domain.pid == pid)) && !other_process
        };
        libvirt.chain(machines).filter(is_it).any(Domain::arrived)
    }

    /// Whether a holder still lives, whatever it holds: its process is there, its domain runs, its pod or namespace is
    /// seen. `None` if that is unknown.
    pub fn lives(&self, holder: &Holder, pid: Option<u32>) -> Option<bool> {
        match holder {
            Holder::Vm(vm) => {
                let libvirt = self.libvirt.filter(|libvirt| libvirt.readable);
                let domain = libvirt?.domains.iter().find(|domain| domain.live && domain.name == vm.domain);
                Some(domain.is_some_and(|domain| pid.is_none() || domain.pid.is_none() || domain.pid == pid))
            }
            Holder::Pod(pod) => {
                let is_it = |owner: &CgroupOwner| owner.pod() == Some(&pod.uid);
                let seen = self.namespaces?.seen.iter().any(|namespace| namespace.owner.as_ref().is_some_and(is_it));
                (seen || self.namespaces?.missing.is_none()).then_some(seen)
            }
            Holder::Netns(name) => {
                let seen = self.namespaces?.seen.iter().any(|namespace| namespace.name == *name);
                (seen || self.namespaces?.missing.is_none()).then_some(seen)
            }
            Holder::Host(_) | Holder::Job(_) | Holder::Process(_) | Holder::None | Holder::Unknown(_) => None,
        }
    }

    /// Who holds a VF. `present` is the process that held it before: it stays the holder beside others of its kind.
    pub fn holder(&self, vf: &Vf, present: Option<u32>) -> ResolvedHolder {
        let Some(address) = vf.address else { return Holder::Unknown(MissingAccess::Source).into() };
        if let Some(opener) = self.opener(vf, address, present) {
            return self.of_process(opener, address);
        }
        if vf.is_for_user_space() {
            return self.given_away(address);
        }
        if vf.driver.is_none() {
            return Holder::None.into();
        }
        // Interfaces first: in the shared mode an RDMA device shows in every namespace.
        if let Some(netdev) = vf.netdevs.first() {
            return Holder::Host(Arc::clone(netdev)).into();
        }
        if let Some(elsewhere) = self.elsewhere.get(&address) {
            return match &elsewhere.owner {
                // The process through which it was seen need not be of the container that uses it.
                Some(CgroupOwner::Pod { uid, .. }) => Holder::Pod(self.pod(uid, None)),
                _ => Holder::Netns(Arc::clone(&elsewhere.namespace)),
            }
            .into();
        }
        if let Some(device) = vf.devices.first() {
            return Holder::Host(Arc::from(device.as_str())).into();
        }
        // Every other namespace was looked into, so that its interface can only be in the one that is left.
        if let Some(name) = self.namespaces.and_then(Namespaces::only_hidden) {
            return Holder::Netns(Arc::clone(name)).into();
        }
        match self.namespaces {
            Some(namespaces) => namespaces.missing.map_or(Holder::None, Holder::Unknown).into(),
            None => Holder::Unknown(MissingAccess::Source).into(),
        }
    }

    /// Who holds a PF that a driver for user space has; none for one that this host drives itself.
    pub fn holder_of_pf(&self, pf: &Pf) -> Option<ResolvedHolder> {
        let function = Vf {
            address: Some(pf.address),
            driver: pf.driver.clone(),
            iommu_group: pf.iommu_group,
            node: pf.node.clone(),
            ..Vf::default()
        };
        function.is_for_user_space().then(|| self.holder(&function, None))
    }

    /// The process that has a VF open. While a removal waits for it, the VF has no driver any more.
    fn opener(&self, vf: &Vf, address: PciAddress, present: Option<u32>) -> Option<&'a Opener> {
        let by_node = || self.by_node.get(vf.node.as_deref()?);
        let may_be_open = vf.is_for_user_space() || vf.driver.is_none();
        let by_group = || vf.iommu_group.filter(|_| may_be_open).and_then(|group| self.by_group.get(&group));
        let openers = self.by_function.get(&address).or_else(by_node).or_else(by_group)?;
        // A domain outranks a pod, that a job, and that a mere process. Among equals the present holder stays; else it is the one
        // that was there first: a secondary process of DPDK comes after its primary.
        let rank = |opener: &&Opener| {
            let kind = match (self.domain_of(opener, address), &opener.owner) {
                (Some(_), _) => 0,
                (None, Some(CgroupOwner::Pod { .. })) => 1,
                (None, Some(_)) => 2,
                (None, None) => 3,
            };
            (kind, Some(opener.pid) != present, opener.started.unwrap_or(u64::MAX), opener.pid)
        };
        openers.iter().copied().min_by_key(rank)
    }

    /// The domain that a process runs, by its command line, libvirt's status or its control group.
    fn domain_of(&self, opener: &Opener, address: PciAddress) -> Option<Arc<str>> {
        let of_pid = |(domain, _): &(&'a Domain, &'a Claim)| domain.pid == Some(opener.pid);
        let by_libvirt = || self.live_claims(address).find(of_pid).map(|(domain, _)| Arc::clone(&domain.name));
        let by_group = || match &opener.owner {
            Some(CgroupOwner::Vm(name)) => Some(Arc::clone(name)),
            _ => None,
        };
        opener.domain.clone().or_else(by_libvirt).or_else(by_group)
    }

    /// A machine by its domain's name, else a pod or job, else the process itself.
    fn of_process(&self, opener: &Opener, address: PciAddress) -> ResolvedHolder {
        let holder = match (self.domain_of(opener, address), &opener.owner) {
            (Some(domain), _) => Holder::Vm(self.machine(domain, address)),
            (None, Some(CgroupOwner::Pod { uid, container })) => Holder::Pod(self.pod(uid, container.as_ref())),
            (None, Some(CgroupOwner::Job(id))) => Holder::Job(Arc::clone(id)),
            (None, Some(CgroupOwner::Vm(_)) | None) => Holder::Process(Arc::clone(&opener.name)),
        };
        ResolvedHolder { holder, pid: Some(opener.pid) }
    }

    /// The holder of a function with a driver for user space that no visible process has open.
    fn given_away(&self, address: PciAddress) -> ResolvedHolder {
        let by_command_line = |domain: &Domain| domain.state.is_none() && domain.id.is_none() && domain.pid.is_some();
        let claimant = self.live_claims(address).min_by_key(|(domain, _)| domain.pid);
        // A claim without a process is no holder, but for that of a machine whose descriptors nobody sees.
        if self.sees_all_processes() && !claimant.is_some_and(|(domain, _)| by_command_line(domain)) {
            return Holder::None.into();
        }
        if let Some((domain, _)) = claimant {
            let machine = self.machine(Arc::clone(&domain.name), address);
            return ResolvedHolder { holder: Holder::Vm(machine), pid: domain.pid };
        }
        Holder::Unknown(self.missing()).into()
    }

    fn pod(&self, uid: &Arc<str>, container: Option<&Arc<str>>) -> Pod {
        self.pods.map_or_else(|| Pod::new(Arc::clone(uid)), |names| names.pod(uid, container))
    }

    /// What the kubelet gave a function to, beside who holds it.
    pub fn allocation(&self, address: Option<PciAddress>, holder: &Holder) -> Option<&'a Allocation> {
        self.allocations?.of(address?, holder)
    }

    /// The UID of a pod by its name, if the name is of one alone.
    pub fn uid(&self, allocation: &Allocation) -> Option<&'a Arc<str>> {
        self.pods?.uid(&allocation.namespace, &allocation.pod)
    }

    fn machine(&self, domain: Arc<str>, address: PciAddress) -> Vm {
        let title = self.identity(&domain, Some(address)).and_then(|identity| identity.title);
        Vm { domain, title }
    }

    /// How a domain is called outside of this host; `None` if nothing says so. Names of Proxmox machines need not be unique:
    /// the machine is the one that is given the function, else the only one of that name.
    pub fn identity(&self, domain: &str, address: Option<PciAddress>) -> Option<VmIdentity> {
        let libvirt = self.libvirt.iter().flat_map(|libvirt| &libvirt.domains).find(|known| *known.name == *domain);
        let of_proxmox = || {
            let machines = &self.proxmox?.machines;
            let named = || machines.iter().filter(|vm| vm.name.as_deref() == Some(domain) || *vm.number == *domain);
            let given = named().find(|vm| address.is_some_and(|address| vm.is_given(address)));
            let vm = given.or_else(|| named().next().filter(|_| named().count() == 1))?;
            Some(VmIdentity {
                manager: Some(VmManager::Proxmox),
                uuid: vm.uuid.clone(),
                title: Some(Arc::clone(&vm.number)).filter(|number| **number != *domain),
                project: None,
            })
        };
        libvirt.map(|domain| domain.identity.clone()).or_else(of_proxmox)
    }

    fn missing(&self) -> MissingAccess {
        match self.openers {
            None => MissingAccess::Source,
            Some(openers) if !openers.visible => MissingAccess::Processes,
            Some(openers) => openers.missing.unwrap_or(MissingAccess::Descriptors),
        }
    }
}
