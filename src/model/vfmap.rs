//! The VF map: who holds which function, since when, and whether anything shows that it works. [`crate::watch`] keeps
//! it from pass to pass and from run to run; checks compare it with what is there now.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use super::holder::Holder;
use super::ids::{Guid, PciAddress};
use super::sriov::{Mac, VfConfig, VfKey};

/// A sign that a guest or a function was moved: the `signal` label of `lanewatch_migrations_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Signal {
    /// A domain that holds VFs appeared.
    DomainAppeared,
    /// A domain that held VFs went away.
    DomainGone,
    /// A VF went from one guest to another.
    HolderChanged,
    /// A VF was removed and made again.
    VfRecreated,
    /// A PF's driver was bound anew.
    PfReprobed,
    /// A VF's IOMMU group has another number.
    GroupRenumbered,
    /// In a guest: a function went away.
    FunctionRemoved,
    /// In a guest: a function appeared.
    FunctionAdded,
    /// In a guest: the wall clock stepped against the boot clock.
    ClockStepped,
    /// In a guest: the kernel said that the machine was forked (a snapshot or a clone).
    MachineForked,
    /// In a guest: the machine's identity (DMI) changed.
    MachineChanged,
}

impl Signal {
    /// All, in the order of the metrics.
    pub const ALL: [Self; 11] = [
        Self::DomainAppeared,
        Self::DomainGone,
        Self::HolderChanged,
        Self::VfRecreated,
        Self::PfReprobed,
        Self::GroupRenumbered,
        Self::FunctionRemoved,
        Self::FunctionAdded,
        Self::ClockStepped,
        Self::MachineForked,
        Self::MachineChanged,
    ];

    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::DomainAppeared => "domain_appeared",
            Self::DomainGone => "domain_gone",
            Self::HolderChanged => "holder_changed",
            Self::VfRecreated => "vf_recreated",
            Self::PfReprobed => "pf_reprobed",
            Self::GroupRenumbered => "group_renumbered",
            Self::FunctionRemoved => "function_removed",
            Self::FunctionAdded => "function_added",
            Self::ClockStepped => "clock_stepped",
            Self::MachineForked => "machine_forked",
            Self::MachineChanged => "machine_changed",
        }
    }

    /// The signal of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|signal| signal.as_str() == name)
    }

    /// What happened, to follow a name.
    pub const fn about(self) -> &'static str {
        match self {
            Self::DomainAppeared => "came with a domain that was moved here",
            Self::DomainGone => "lost the domain that held it",
            Self::HolderChanged => "went from one holder to another",
            Self::VfRecreated => "was removed and made again under its holder",
            Self::PfReprobed => "lost its state when its PF's driver was bound anew",
            Self::GroupRenumbered => "has another IOMMU group than its holder opened",
            Self::FunctionRemoved => "went away",
            Self::FunctionAdded => "appeared",
            Self::ClockStepped => "is in a guest whose wall clock stepped, as after a live migration",
            Self::MachineForked => "is in a guest that was restored from a snapshot or cloned",
            Self::MachineChanged => "is in a guest whose machine has another identity now",
        }
    }
}

/// Whether a function is known to work for its holder.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Verification {
    /// Nothing happened that calls for a proof.
    #[default]
    Undisturbed,
    /// It was bound, opened or configured anew, or proven by traffic or a probe, at this time.
    Verified(SystemTime),
    /// Something happened to it since which nothing shows that it works.
    Unverified {
        /// When.
        since: SystemTime,
        /// What.
        signal: Signal,
    },
}

/// MAC address and GUIDs as far as they are set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VfIdentity {
    /// Administrative MAC address.
    pub mac: Option<Mac>,
    /// Node GUID.
    pub node_guid: Option<Guid>,
    /// Port GUID.
    pub port_guid: Option<Guid>,
}

impl VfIdentity {
    /// Those parts of a configuration that somebody has set.
    pub fn of(config: &VfConfig) -> Self {
        Self {
            mac: config.mac.filter(|mac| !mac.is_zero()),
            node_guid: config.node_guid.filter(|guid| !guid.is_zero()),
            port_guid: config.port_guid.filter(|guid| !guid.is_zero()),
        }
    }

    /// Whether nothing is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether it is the other, as far as both are known: a part that is not to be read now is no other.
    pub fn is(&self, other: &Self) -> bool {
        let in_common = (self.mac.is_some() && other.mac.is_some())
            || (self.node_guid.is_some() && other.node_guid.is_some())
            || (self.port_guid.is_some() && other.port_guid.is_some());
        in_common && !self.differs(other)
    }

    /// With the other's parts where it has none.
    #[must_use]
    pub fn with(&self, other: &Self) -> Self {
        Self {
            mac: self.mac.or(other.mac),
            node_guid: self.node_guid.or(other.node_guid),
            port_guid: self.port_guid.or(other.port_guid),
        }
    }

    /// Whether a part that both have differs.
    pub fn differs(&self, other: &Self) -> bool {
        fn part<T: PartialEq>(a: Option<T>, b: Option<T>) -> bool {
            a.zip(b).is_some_and(|(a, b)| a != b)
        }
        part(self.mac, other.mac) || part(self.node_guid, other.node_guid) || part(self.port_guid, other.port_guid)
    }
}

impl std::fmt::Display for VfIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let parts = [
            self.mac.map(|mac| format!("MAC {mac}")),
            self.node_guid.map(|guid| format!("node GUID {guid}")),
            self.port_guid.map(|guid| format!("port GUID {guid}")),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        f.write_str(if parts.is_empty() { "none" } else { "" }).and_then(|()| f.write_str(&parts.join(", ")))
    }
}

/// A holding: one holder's time with one VF.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenure {
    /// Who.
    pub holder: Holder,
    /// The process, where it is known: another one is another tenure.
    pub pid: Option<u32>,
    /// Since when.
    pub since: SystemTime,
    /// The identity that the VF had when it was taken, or got first.
    pub identity: VfIdentity,
    /// The configuration that it had then.
    pub config: Option<VfConfig>,
}

/// One VF in the map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MappedVf {
    /// Its function.
    pub address: Option<PciAddress>,
    /// Bound driver.
    pub driver: Option<Arc<str>>,
    /// IOMMU group.
    pub iommu_group: Option<u32>,
    /// Its identity.
    pub identity: VfIdentity,
    /// Who holds it now.
    pub holder: Holder,
    /// The last tenure of somebody who is known.
    pub tenure: Option<Tenure>,
    /// Whether it is known to work.
    pub verification: Verification,
    /// Which making of the function it was; none for one that is remembered from an earlier run.
    pub instance: Option<u64>,
    /// Bytes received and transmitted when it became unverified.
    pub mark: Option<(u64, u64)>,
}

/// One PF in the map.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MappedPf {
    /// Counts changes of the map.
    pub generation: u64,
    /// When it last changed.
    pub changed: Option<SystemTime>,
    /// Which binding of its driver it was; none for one that is remembered from an earlier run.
    pub probe: Option<u64>,
}

/// A guest's own function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestFunction {
    /// Whether it is known to work.
    pub verification: Verification,
    /// Bytes received and transmitted when it became unverified.
    pub mark: Option<(u64, u64)>,
}

/// How often and when each signal was seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SignalCount {
    /// How often.
    pub count: u64,
    /// When last.
    pub last: Option<SystemTime>,
}

/// The map of a host.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct VfMap {
    /// PFs.
    pub pfs: BTreeMap<PciAddress, MappedPf>,
    /// VFs, those that are there and those that were under a holder when they went.
    pub vfs: BTreeMap<VfKey, MappedVf>,
    /// What each VM's VFs were when it last had some.
    pub machines: BTreeMap<Arc<str>, Vec<VfIdentity>>,
    /// Functions of this host, where it is a guest.
    pub guest: BTreeMap<PciAddress, GuestFunction>,
    /// The machine's identity, where this host is a guest and may read it.
    pub machine: Option<String>,
    /// Signals, in the order of [`Signal::ALL`].
    pub signals: [SignalCount; Signal::ALL.len()],
}

impl VfMap {
    /// When all VFs of a PF that somebody was disturbed with were last shown to work; none while one was not.
    pub fn verified(&self, pf: PciAddress) -> Option<SystemTime> {
        let mut latest = None;
        for (_, row) in self.vfs.iter().filter(|(key, _)| key.pf == pf) {
            match row.verification {
                Verification::Undisturbed => {}
                Verification::Verified(at) => latest = latest.max(Some(at)),
                Verification::Unverified { .. } => return None,
            }
        }
        latest
    }

    /// Takes what is there now as right: identities are learned anew, and nothing has to be shown to work.
    pub fn accept(&mut self) {
        self.machines.clear();
        for row in self.vfs.values_mut() {
            (row.tenure, row.verification, row.mark) = (None, Verification::Undisturbed, None);
        }
        for row in self.guest.values_mut() {
            (row.verification, row.mark) = (Verification::Undisturbed, None);
        }
    }

    /// Takes note that a probe which began then moved data through a function: a VF that this host's own driver has, or
    /// one of this guest. What happened to it later is not proven.
    pub fn prove(&mut self, address: PciAddress, began: SystemTime) {
        let vfs = self.vfs.values_mut().filter(|row| row.address == Some(address));
        let vfs = vfs.map(|row| (&mut row.verification, &mut row.mark));
        let own = self.guest.get_mut(&address).map(|row| (&mut row.verification, &mut row.mark));
        for (trust, mark) in vfs.chain(own) {
            if !matches!(*trust, Verification::Unverified { since, .. } if since > began) {
                (*trust, *mark) = (Verification::Verified(began), None);
            }
        }
    }
}
