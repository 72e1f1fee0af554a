//! Keeps the VF map from pass to pass: what changed, who came and went, and what must be shown to work again.

mod domains;
mod guest;
mod paths;
mod vf;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::history_event::HistoryEvent;
use crate::assess::vf::holders::HolderSources;
use crate::model::finding::EventKind;
use crate::model::holder::Holder;
use crate::model::ids::PciAddress;
use crate::model::snapshot::Snapshot;
use crate::model::sriov::{Pf, VfKey};
use crate::model::time::unix_millis;
use crate::model::vfmap::{MappedVf, Signal, VfIdentity, VfMap};
use guest::GuestTracker;
use vf::VfMapDraft;

/// Machines without VFs whose identities are remembered; the one that had some longest ago goes first.
const MAX_GONE_MACHINES: usize = 4096;

/// VFs that went while a guest had them; the one that was taken longest ago goes first.
const MAX_GONE_VFS: usize = 4096;

/// How long a machine without VFs is remembered, in milliseconds: 180 days.
const MACHINE_AGE: u64 = 180 * 24 * 3_600_000;

/// What a mapper carries from one pass to the next besides the map itself.
#[derive(Debug, Default)]
pub struct VfMapUpdater {
    guest: GuestTracker,
}

impl VfMapUpdater {
    /// Takes a pass into the map and says what happened.
    pub fn observe(&mut self, map: &mut VfMap, snapshot: &Snapshot) -> Vec<HistoryEvent> {
        let sources = HolderSources::new(snapshot);
        let mut draft = VfMapDraft { map, now: snapshot.taken.wall, news: Vec::new() };
        forget_gone(&mut draft, snapshot);
        for pf in snapshot.all::<Pf>() {
            observe_pf(&mut draft, &sources, pf);
        }
        domains::observe(&mut draft, &sources, snapshot);
        forget_owners_of_gone(&mut draft, &sources);
        remember_machines(&mut draft, &sources);
        self.guest.observe(&mut draft, snapshot);
        draft.news
    }
}

/// Leaves out PFs that are no longer listed. One that does not answer stays as it was.
fn forget_gone(draft: &mut VfMapDraft<'_>, snapshot: &Snapshot) {
    let Some(listed) = snapshot.collector("sriov").and_then(|collector| collector.listed.as_ref()) else { return };
    let gone: Vec<PciAddress> =
        draft.map.pfs.keys().copied().filter(|pf| !listed.iter().any(|key| **key == *pf.to_string())).collect();
    for pf in gone {
        draft.map.pfs.remove(&pf);
        draft.map.vfs.retain(|key, _| key.pf != pf);
        draft.map.gone.retain(|key, _| key.pf != pf);
        draft.news.push((EventKind::VfChanged, pf.to_string(), format!("PF {pf} is gone with its VFs")));
    }
}

fn observe_pf(draft: &mut VfMapDraft<'_>, sources: &HolderSources<'_>, pf: &Pf) {
    let known = draft.map.pfs.contains_key(&pf.address);
    let row = draft.map.pfs.entry(pf.address).or_default();
    let reprobed = row.probe.zip(pf.probe).is_some_and(|(before, now)| before != now);
    row.probe = pf.probe.or(row.probe);
    if reprobed {
        let subject = pf.address.to_string();
        draft.signal(Signal::PfReprobed, &subject, format!("the driver of PF {} was rebound", pf.address));
    }
    let gone: Vec<VfKey> = draft
        .map
        .vfs
        .range(VfKey { pf: pf.address, vf: 0 }..=VfKey { pf: pf.address, vf: u32::MAX })
        .map(|(key, _)| *key)
        .filter(|key| pf.vfs.binary_search_by_key(&key.vf, |vf| vf.number).is_err())
        .collect();
    for key in gone {
        let Some(vf) = draft.map.vfs.remove(&key) else { continue };
        let held = if vf.holder == Holder::None { String::new() } else { format!(" (used by {})", vf.holder) };
        draft.changed(key.pf, &key.to_string(), format!("{key} is gone{held}"));
        if vf.tenure.as_ref().is_some_and(|tenure| tenure.holder.is_guest()) {
            draft.map.gone.insert(key, vf);
        }
    }
    for vf in &pf.vfs {
        vf::observe(draft, sources, pf, vf, reprobed, known);
    }
}

/// A VF that is gone matters as long as the one who had it lives.
fn forget_owners_of_gone(draft: &mut VfMapDraft<'_>, sources: &HolderSources<'_>) {
    draft.map.gone.retain(|_, vf| {
        let tenure = vf.tenure.as_ref();
        tenure.is_some_and(|tenure| sources.lives(&tenure.holder, tenure.pid) != Some(false))
    });
    while draft.map.gone.len() > MAX_GONE_VFS {
        let since = |vf: &MappedVf| vf.tenure.as_ref().map(|tenure| tenure.since);
        let oldest = draft.map.gone.iter().min_by_key(|(_, vf)| since(vf)).map(|(key, _)| *key);
        oldest.and_then(|key| draft.map.gone.remove(&key));
    }
}

/// Remembers what the VFs of each machine are. What was remembered stays expected until the machine has it again,
/// or wants what it has now.
fn remember_machines(draft: &mut VfMapDraft<'_>, sources: &HolderSources<'_>) {
    let mut now: BTreeMap<Arc<str>, Vec<(&MappedVf, VfIdentity)>> = BTreeMap::new();
    for row in draft.map.vfs.values() {
        if let Holder::Vm(vm) = &row.holder
            && !row.identity.is_empty()
        {
            now.entry(Arc::clone(&vm.domain)).or_default().push((row, row.identity));
        }
    }
    let wanted = |row: &MappedVf| {
        let mut claims = row.address.into_iter().flat_map(|address| sources.live_claims(address));
        claims.any(|(_, claim)| claim.mac.is_some() && claim.mac == row.identity.mac)
    };
    let seen = unix_millis::of(draft.now);
    for (name, rows) in now {
        draft.map.machines_seen.insert(Arc::clone(&name), seen);
        let expected = draft.map.machines.get(&name);
        let whole = |identity: &VfIdentity| {
            let known = expected.and_then(|expected| expected.iter().find(|one| one.is(identity)));
            known.map_or(*identity, |known| identity.with(known))
        };
        let identities: Vec<VfIdentity> = rows.iter().map(|(_, identity)| whole(identity)).collect();
        let is_missing = |one: &VfIdentity| !identities.iter().any(|now| now.is(one));
        let missing = expected.is_some_and(|expected| expected.iter().any(is_missing));
        let known = expected.is_some_and(|expected| *expected == identities);
        if !known && (!missing || rows.iter().all(|(row, _)| wanted(row))) {
            draft.map.machines.insert(name, identities);
        }
    }
    forget_machines(draft.map, seen);
}

/// Forgets machines that have had no VF for long, and those beyond the number that is remembered, oldest first.
fn forget_machines(map: &mut VfMap, now: u64) {
    let VfMap { machines, machines_seen, .. } = map;
    machines_seen.retain(|name, _| machines.contains_key(name));
    let mut gone: Vec<(u64, Arc<str>)> = Vec::new();
    for name in machines.keys() {
        // An earlier release did not save when.
        let seen = *machines_seen.entry(Arc::clone(name)).or_insert(now);
        if seen < now {
            gone.push((seen, Arc::clone(name)));
        }
    }
    gone.sort();
    let surplus = gone.len().saturating_sub(MAX_GONE_MACHINES);
    for (position, (seen, name)) in gone.into_iter().enumerate() {
        if position < surplus || now - seen > MACHINE_AGE {
            machines.remove(&name);
            machines_seen.remove(&name);
        }
    }
}

#[cfg(test)]
mod tests;
