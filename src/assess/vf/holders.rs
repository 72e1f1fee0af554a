//! Puts together what processes, libvirt and namespaces say: who holds each VF.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::holder::{
    Claim, DeviceFile, Domain, Holder, Libvirt, MissingAccess, NamespaceInterface, Namespaces, Opener, Openers,
};
use crate::model::ids::PciAddress;
use crate::model::snapshot::Snapshot;
use crate::model::sriov::{Pf, Vf};

/// Everything that a snapshot says of holders.
#[derive(Debug, Default)]
pub struct HolderSources<'a> {
    openers: Option<&'a Openers>,
    /// Libvirt's view.
    pub libvirt: Option<&'a Libvirt>,
    namespaces: Option<&'a Namespaces>,
    claims: BTreeMap<PciAddress, Vec<(&'a Domain, &'a Claim)>>,
    by_group: BTreeMap<u32, &'a Opener>,
    by_node: BTreeMap<&'a str, &'a Opener>,
    by_function: BTreeMap<PciAddress, &'a Opener>,
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
            ..Self::default()
        };
        for domain in sources.libvirt.iter().flat_map(|libvirt| &libvirt.domains) {
            for claim in &domain.claims {
                sources.claims.entry(claim.address).or_default().push((domain, claim));
            }
        }
        for opener in sources.openers.iter().flat_map(|openers| &openers.openers) {
            for handle in &opener.handles {
                match handle {
                    DeviceFile::Group(group) => drop(sources.by_group.insert(*group, opener)),
                    DeviceFile::Node(node) => drop(sources.by_node.insert(node, opener)),
                    DeviceFile::Function(address) => drop(sources.by_function.insert(*address, opener)),
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

    /// Who holds a VF.
    pub fn holder(&self, vf: &Vf) -> ResolvedHolder {
        let Some(address) = vf.address else { return Holder::Unknown(MissingAccess::Source).into() };
        if let Some(opener) = self.opener(vf, address) {
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
            let pod = elsewhere.pod.clone().map(Holder::Pod);
            return pod.unwrap_or_else(|| Holder::Netns(Arc::clone(&elsewhere.namespace))).into();
        }
        if let Some(device) = vf.devices.first() {
            return Holder::Host(Arc::from(device.as_str())).into();
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
        function.is_for_user_space().then(|| self.holder(&function))
    }

    fn opener(&self, vf: &Vf, address: PciAddress) -> Option<&'a Opener> {
        let by_node = || self.by_node.get(vf.node.as_deref()?);
        let by_group = || vf.iommu_group.filter(|_| vf.is_for_user_space()).and_then(|group| self.by_group.get(&group));
        self.by_function.get(&address).or_else(by_node).or_else(by_group).copied()
    }

    /// A machine by its domain's name, else a pod, else the process itself.
    fn of_process(&self, opener: &Opener, address: PciAddress) -> ResolvedHolder {
        let of_pid = |(domain, _): &(&'a Domain, &'a Claim)| domain.pid == Some(opener.pid);
        let by_libvirt = || self.live_claims(address).find(of_pid).map(|(domain, _)| Arc::clone(&domain.name));
        let holder = match (opener.domain.clone().or_else(by_libvirt), &opener.pod) {
            (Some(domain), _) => Holder::Vm(domain),
            (None, Some(pod)) => Holder::Pod(Arc::clone(pod)),
            (None, None) => Holder::Process(Arc::clone(&opener.name)),
        };
        ResolvedHolder { holder, pid: Some(opener.pid) }
    }

    /// The holder of a function with a driver for user space that no visible process has open.
    fn given_away(&self, address: PciAddress) -> ResolvedHolder {
        if self.sees_all_processes() {
            // A claim without a process is no holder.
            return Holder::None.into();
        }
        if let Some((domain, _)) = self.live_claims(address).next() {
            return ResolvedHolder { holder: Holder::Vm(Arc::clone(&domain.name)), pid: domain.pid };
        }
        Holder::Unknown(self.missing()).into()
    }

    fn missing(&self) -> MissingAccess {
        match self.openers {
            None => MissingAccess::Source,
            Some(openers) if !openers.visible => MissingAccess::Processes,
            Some(openers) => openers.missing.unwrap_or(MissingAccess::Descriptors),
        }
    }
}
