//! The VF map: who holds which function, since when, and whether anything shows that it works. [`crate::watch`] keeps
//! it from pass to pass and from run to run; checks compare it with what is there now.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::datapath::GuestPath;
use super::holder::Holder;
use super::ids::{Guid, PciAddress};
use super::labels::label_enum;
use super::sriov::{Mac, VfConfig, VfKey};
use super::time::unix_millis;

label_enum! {
    /// A sign that a guest or a function was moved: the `signal` label of `lanewatch_migrations_total`.
    Signal {
        /// A domain that holds VFs appeared.
        DomainAppeared = "domain_appeared",
        /// A domain that held VFs went away.
        DomainGone = "domain_gone",
        /// A VF went from one guest to another.
        HolderChanged = "holder_changed",
        /// A VF was removed and recreated.
        VfRecreated = "vf_recreated",
        /// A PF's driver was bound anew.
        PfReprobed = "pf_reprobed",
        /// A VF's IOMMU group has another number.
        GroupRenumbered = "group_renumbered",
        /// In a guest: a function went away.
        FunctionRemoved = "function_removed",
        /// In a guest: a function appeared.
        FunctionAdded = "function_added",
        /// In a guest: an interface changed between its VF and the hypervisor's path.
        DataPathSwitched = "data_path_switched",
        /// In a guest: the host took an interface's VF away.
        VfRevoked = "vf_revoked",
        /// In a guest: the host gave an interface a VF.
        VfReturned = "vf_returned",
        /// In a guest: the wall clock stepped against the boot clock.
        ClockStepped = "clock_stepped",
        /// In a guest: the kernel said that the machine was forked (a snapshot or a clone).
        MachineForked = "machine_forked",
        /// In a guest: the machine's identity (DMI) changed.
        MachineChanged = "machine_changed",
    }
}

impl Signal {
    /// What happened, to follow a name.
    pub const fn about(self) -> &'static str {
        match self {
            Self::DomainAppeared => "arrived with a domain that migrated here",
            Self::DomainGone => "lost the domain that used it",
            Self::HolderChanged => "changed its user",
            Self::VfRecreated => "was removed and recreated while in use",
            Self::PfReprobed => "lost its state when its PF's driver was rebound",
            Self::GroupRenumbered => "is in another IOMMU group than the one that its user opened",
            Self::FunctionRemoved => "disappeared",
            Self::FunctionAdded => "appeared",
            Self::DataPathSwitched => "changed its path",
            Self::VfRevoked => "was taken away by the host",
            Self::VfReturned => "was given by the host",
            Self::ClockStepped => "is in a guest whose wall clock stepped, as after a live migration",
            Self::MachineForked => "is in a guest that was restored from a snapshot or cloned",
            Self::MachineChanged => "is in a guest whose machine identity changed",
        }
    }
}

/// Whether a function is known to work for its holder.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "VerificationRecord", into = "VerificationRecord")]
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

/// A verification in the state file: times in milliseconds since 1970.
#[derive(Serialize, Deserialize)]
struct VerificationRecord {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    verified: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unverified: Option<(u64, Signal)>,
}

impl From<Verification> for VerificationRecord {
    fn from(verification: Verification) -> Self {
        let (verified, unverified) = match verification {
            Verification::Undisturbed => (None, None),
            Verification::Verified(at) => (Some(unix_millis::of(at)), None),
            Verification::Unverified { since, signal } => (None, Some((unix_millis::of(since), signal))),
        };
        Self { verified, unverified }
    }
}

impl From<VerificationRecord> for Verification {
    fn from(record: VerificationRecord) -> Self {
        match (record.unverified, record.verified) {
            (Some((since, signal)), _) => Self::Unverified { since: unix_millis::to_wall(since), signal },
            (None, Some(at)) => Self::Verified(unix_millis::to_wall(at)),
            (None, None) => Self::Undisturbed,
        }
    }
}

/// MAC address and GUIDs as far as they are set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct VfIdentity {
    /// Administrative MAC address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac: Option<Mac>,
    /// Node GUID.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_guid: Option<Guid>,
    /// Port GUID.
    #[serde(skip_serializing_if = "Option::is_none")]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tenure {
    /// Who.
    #[serde(rename = "by")]
    pub holder: Holder,
    /// The process, where it is known: another one is another tenure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Since when.
    #[serde(with = "unix_millis")]
    pub since: SystemTime,
    /// The identity that the VF had when it was taken, or got first.
    #[serde(default)]
    pub identity: VfIdentity,
    /// The configuration that it had then; not kept from run to run.
    #[serde(skip)]
    pub config: Option<VfConfig>,
    /// Whether it is settled already that the holder's guest came here from elsewhere with this function: a proof was
    /// asked for, once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub arrival: bool,
}

/// One VF in the map.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MappedVf {
    /// Its function.
    #[serde(default, rename = "pci_address", skip_serializing_if = "Option::is_none")]
    pub address: Option<PciAddress>,
    /// Bound driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<Arc<str>>,
    /// IOMMU group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iommu_group: Option<u32>,
    /// Its identity.
    #[serde(default)]
    pub identity: VfIdentity,
    /// Who holds it now.
    #[serde(default)]
    pub holder: Holder,
    /// The last known holder, which may be none; `None` if it was never known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_known: Option<Holder>,
    /// A pod or namespace that lives on without this VF: the one it had was removed, and this is another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_by: Option<Holder>,
    /// The last tenure of somebody who is known.
    #[serde(default, rename = "held", skip_serializing_if = "Option::is_none")]
    pub tenure: Option<Tenure>,
    /// Whether it is known to work.
    #[serde(flatten)]
    pub verification: Verification,
    /// Which making of the function it was; none for one that is remembered from an earlier run.
    #[serde(skip)]
    pub instance: Option<u64>,
    /// Bytes received and transmitted when it became unverified.
    #[serde(skip)]
    pub mark: Option<(u64, u64)>,
}

/// A virtual machine that runs: one start of it on this host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[expect(clippy::struct_excessive_bools, reason = "facts that are learned in any order, each on its own")]
pub struct DomainRecord {
    /// Its QEMU's process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Libvirt's number of this start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<u32>,
    /// Whether it has or had VFs.
    pub holds: bool,
    /// Whether its guest came here from elsewhere: a migration, a saved image, a snapshot.
    pub arrived: bool,
    /// Whether that was so before this host was watched: nothing is known against its VFs.
    pub arrived_unseen: bool,
    /// Whether its guest was seen to run with nothing being done to it.
    pub settled: bool,
    /// Functions that it claims.
    pub claims: BTreeSet<PciAddress>,
    /// Those of them that were attached while its guest ran, and so were probed by the guest.
    pub attached: BTreeSet<PciAddress>,
}

/// One PF in the map.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MappedPf {
    /// Counts changes of the map.
    pub generation: u64,
    /// When it last changed.
    #[serde(default, with = "unix_millis::option", skip_serializing_if = "Option::is_none")]
    pub changed: Option<SystemTime>,
    /// Which binding of its driver it was; none for one that is remembered from an earlier run.
    #[serde(skip)]
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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignalCount {
    /// How often.
    pub count: u64,
    /// When last.
    #[serde(default, with = "unix_millis::option", skip_serializing_if = "Option::is_none")]
    pub last: Option<SystemTime>,
}

/// The map of a host.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct VfMap {
    /// PFs.
    pub pfs: BTreeMap<PciAddress, MappedPf>,
    /// VFs, those that are there and those that were under a holder when they went.
    pub vfs: BTreeMap<VfKey, MappedVf>,
    /// VFs that went while a guest had them, as they were then.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub gone: BTreeMap<VfKey, MappedVf>,
    /// Running machines, by name; `None` before the first pass that could read them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domains: Option<BTreeMap<Arc<str>, DomainRecord>>,
    /// What each VM's VFs were when it last had some.
    pub machines: BTreeMap<Arc<str>, Vec<VfIdentity>>,
    /// When each VM last had VFs, in milliseconds since 1970.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub machines_seen: BTreeMap<Arc<str>, u64>,
    /// Functions of this host, where it is a guest.
    #[serde(skip)]
    pub guest: BTreeMap<PciAddress, GuestFunction>,
    /// Interfaces of this host that are joined with a VF, where it is a guest.
    #[serde(skip)]
    pub paths: BTreeMap<Arc<str>, GuestPath>,
    /// The machine's identity, where this host is a guest and may read it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// Signals that were seen.
    pub signals: BTreeMap<Signal, SignalCount>,
}

impl VfMap {
    /// How often and when a signal was seen.
    pub fn signal(&self, signal: Signal) -> SignalCount {
        self.signals.get(&signal).copied().unwrap_or_default()
    }

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
        self.machines_seen.clear();
        for row in self.vfs.values_mut() {
            (row.tenure, row.verification, row.mark) = (None, Verification::Undisturbed, None);
            row.lost_by = None;
        }
        self.gone.clear();
        for domain in self.domains.iter_mut().flat_map(BTreeMap::values_mut) {
            domain.arrived_unseen = true;
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    /// As version 1 of the state file has it.
    const WRITTEN: &str = r#"{
        "pfs": {"0000:98:00.0": {"generation": 4, "changed": 1790000000123}},
        "vfs": {
            "0000:98:00.0/vf3": {
                "pci_address": "0000:98:01.2", "driver": "vfio-pci", "iommu_group": 43,
                "identity": {"node_guid": "0011:2233:4455:6677", "port_guid": "0011:2233:4455:6678"},
                "holder": {"kind": "vm", "name": "db1"},
                "held": {"by": {"kind": "vm", "name": "db1"}, "since": 1789999990000, "pid": 77, "identity": {}},
                "unverified": [1790000000123, "vf_recreated"]
            },
            "0000:98:00.0/vf4": {"holder": {"kind": "none", "name": ""}, "verified": 1790000000456}
        },
        "machines": {"db1": [{"mac": "02:00:00:00:00:01"}]},
        "signals": {"vf_recreated": {"count": 2, "last": 1790000000123}}
    }"#;

    #[test]
    fn a_map_of_an_earlier_release_is_read_and_written_in_the_same_form() {
        let map: VfMap = serde_json::from_str(WRITTEN).unwrap();
        let pf: PciAddress = "0000:98:00.0".parse().unwrap();
        let vf = &map.vfs[&VfKey { pf, vf: 3 }];
        let since = unix_millis::to_wall(1_790_000_000_123);
        assert_eq!(vf.verification, Verification::Unverified { since, signal: Signal::VfRecreated });
        assert_eq!((vf.holder.kind(), vf.holder.name(), vf.tenure.as_ref().unwrap().pid), ("vm", "db1", Some(77)));
        let free = &map.vfs[&VfKey { pf, vf: 4 }];
        assert_eq!((&free.holder, free.address), (&Holder::None, None));
        assert_eq!(free.verification, Verification::Verified(unix_millis::to_wall(1_790_000_000_456)));
        assert_eq!(map.signal(Signal::VfRecreated).count, 2);
        assert_eq!(map.signal(Signal::DomainGone), SignalCount::default());
        let before: serde_json::Value = serde_json::from_str(WRITTEN).unwrap();
        let mut after = serde_json::to_value(&map).unwrap();
        // An identity without a part was always written.
        after["vfs"]["0000:98:00.0/vf4"].as_object_mut().unwrap().remove("identity");
        assert_eq!(after, before);
    }
}
