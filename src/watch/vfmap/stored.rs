//! The VF map in the state file.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::model::holder::Holder;
use crate::model::ids::Guid;
use crate::model::sriov::Mac;
use crate::model::vfmap::{MappedPf, MappedVf, Signal, SignalCount, Tenure, Verification, VfIdentity, VfMap};

/// A map as it is written.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Map {
    #[serde(default)]
    pfs: BTreeMap<String, Pf>,
    #[serde(default)]
    vfs: BTreeMap<String, Vf>,
    #[serde(default)]
    machines: BTreeMap<String, Vec<Stored>>,
    #[serde(default)]
    signals: BTreeMap<String, Signals>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    machine: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Pf {
    generation: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    changed: Option<u64>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Signals {
    count: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last: Option<u64>,
}

/// An identity.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Stored {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mac: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    node_guid: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    port_guid: Option<String>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Vf {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pci_address: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    driver: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    iommu_group: Option<u32>,
    #[serde(default)]
    identity: Stored,
    #[serde(default)]
    holder: Option<Who>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    held: Option<Held>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    verified: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unverified: Option<(u64, String)>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Who {
    kind: String,
    #[serde(default)]
    name: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Held {
    by: Who,
    since: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    #[serde(default)]
    identity: Stored,
}

impl From<&VfIdentity> for Stored {
    fn from(identity: &VfIdentity) -> Self {
        Self {
            mac: identity.mac.map(|mac| mac.to_string()),
            node_guid: identity.node_guid.map(|guid| guid.to_string()),
            port_guid: identity.port_guid.map(|guid| guid.to_string()),
        }
    }
}

impl From<Stored> for VfIdentity {
    fn from(stored: Stored) -> Self {
        Self {
            mac: stored.mac.and_then(|text| Mac::parse(&text)),
            node_guid: stored.node_guid.and_then(|text| Guid::parse(&text)),
            port_guid: stored.port_guid.and_then(|text| Guid::parse(&text)),
        }
    }
}

impl From<&Holder> for Who {
    fn from(holder: &Holder) -> Self {
        Self { kind: holder.kind().to_owned(), name: holder.name().to_owned() }
    }
}

impl From<&VfMap> for Map {
    fn from(map: &VfMap) -> Self {
        let pf = |row: &MappedPf| Pf { generation: row.generation, changed: row.changed.map(millis) };
        let machine = |identities: &Vec<VfIdentity>| identities.iter().map(Stored::from).collect();
        let signals = map.signals.iter().map(|(signal, seen)| {
            (signal.as_str().to_owned(), Signals { count: seen.count, last: seen.last.map(millis) })
        });
        Self {
            pfs: map.pfs.iter().map(|(address, row)| (address.to_string(), pf(row))).collect(),
            vfs: map.vfs.iter().map(|(key, row)| (key.to_string(), vf(row))).collect(),
            machines: map.machines.iter().map(|(name, all)| (name.to_string(), machine(all))).collect(),
            signals: signals.collect(),
            machine: map.machine.clone(),
        }
    }
}

fn vf(row: &MappedVf) -> Vf {
    let (verified, unverified) = match row.verification {
        Verification::Undisturbed => (None, None),
        Verification::Verified(at) => (Some(millis(at)), None),
        Verification::Unverified { since, signal } => (None, Some((millis(since), signal.as_str().to_owned()))),
    };
    let held = row.tenure.as_ref().map(|tenure| Held {
        by: Who::from(&tenure.holder),
        since: millis(tenure.since),
        pid: tenure.pid,
        identity: Stored::from(&tenure.identity),
    });
    Vf {
        pci_address: row.address.map(|address| address.to_string()),
        driver: row.driver.as_deref().map(str::to_owned),
        iommu_group: row.iommu_group,
        identity: Stored::from(&row.identity),
        holder: Some(Who::from(&row.holder)),
        held,
        verified,
        unverified,
    }
}

impl From<Map> for VfMap {
    fn from(stored: Map) -> Self {
        let mut map = Self { machine: stored.machine, ..Self::default() };
        for (address, pf) in stored.pfs {
            if let Ok(address) = address.parse() {
                let row = MappedPf { generation: pf.generation, changed: pf.changed.map(wall), probe: None };
                map.pfs.insert(address, row);
            }
        }
        for (key, vf) in stored.vfs {
            if let Ok(key) = key.parse() {
                map.vfs.insert(key, row(vf));
            }
        }
        for (name, identities) in stored.machines {
            map.machines.insert(Arc::from(name), identities.into_iter().map(VfIdentity::from).collect());
        }
        for signal in Signal::ALL {
            if let Some(stored) = stored.signals.get(signal.as_str()) {
                map.signals.insert(*signal, SignalCount { count: stored.count, last: stored.last.map(wall) });
            }
        }
        map
    }
}

fn row(vf: Vf) -> MappedVf {
    let holder =
        |who: &Who| serde_json::from_value::<Holder>(serde_json::json!({ "kind": who.kind, "name": who.name })).ok();
    let unknown = Holder::Unknown(crate::model::holder::MissingAccess::Source);
    let verification = match (vf.verified, vf.unverified) {
        (_, Some((since, signal))) => Signal::ALL
            .iter()
            .copied()
            .find(|known| known.as_str() == signal)
            .map_or(Verification::Undisturbed, |signal| Verification::Unverified { since: wall(since), signal }),
        (Some(at), None) => Verification::Verified(wall(at)),
        (None, None) => Verification::Undisturbed,
    };
    MappedVf {
        last_known: None,
        lost_by: None,
        address: vf.pci_address.and_then(|text| text.parse().ok()),
        driver: vf.driver.map(Arc::from),
        iommu_group: vf.iommu_group,
        identity: vf.identity.into(),
        holder: vf.holder.as_ref().and_then(holder).unwrap_or(unknown),
        tenure: vf.held.and_then(|held| {
            let (since, identity) = (wall(held.since), held.identity.into());
            Some(Tenure { holder: holder(&held.by)?, pid: held.pid, since, identity, config: None, arrival: false })
        }),
        verification,
        instance: None,
        mark: None,
    }
}

fn millis(wall: SystemTime) -> u64 {
    let since = wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn wall(millis: u64) -> SystemTime {
    let epoch = SystemTime::UNIX_EPOCH;
    epoch.checked_add(Duration::from_millis(millis)).unwrap_or(epoch)
}
