//! Keeps the VF map from pass to pass: what changed, who came and went, and what must be shown to work again.

mod domains;
mod guest;
pub mod stored;
#[cfg(test)]
mod tests;
mod vf;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use super::history_updater::HistoryEvent;
use crate::assess::vf::holders::HolderSources;
use crate::model::event::EventKind;
use crate::model::holder::Holder;
use crate::model::ids::PciAddress;
use crate::model::snapshot::Snapshot;
use crate::model::sriov::{Pf, VfKey};
use crate::model::vfmap::{MappedVf, Signal, Verification, VfIdentity, VfMap};
use guest::GuestTracker;

/// Machines whose identities are remembered.
const MOST_MACHINES: usize = 4096;

/// What a mapper carries from one pass to the next besides the map itself.
#[derive(Debug, Default)]
pub struct VfMapUpdater {
    guest: GuestTracker,
}

/// The map while a pass is taken in.
struct VfMapDraft<'a> {
    map: &'a mut VfMap,
    now: SystemTime,
    news: Vec<HistoryEvent>,
}

impl VfMapDraft<'_> {
    /// Counts a signal and says so.
    fn signal(&mut self, signal: Signal, subject: &str, text: String) {
        let seen = self.map.signals.entry(signal).or_default();
        seen.count += 1;
        seen.last = Some(self.now);
        self.news.push((EventKind::Migration, subject.to_owned(), text));
    }

    /// Says that something in the map changed, and counts its generation.
    fn changed(&mut self, pf: PciAddress, key: &str, text: String) {
        self.news.push((EventKind::VfChanged, key.to_owned(), text));
        let row = self.map.pfs.entry(pf).or_default();
        row.generation += 1;
        row.changed = Some(self.now);
    }

    /// Takes back the trust in a VF until something shows that it works.
    fn doubt(&mut self, key: VfKey, signal: Signal, traffic: Option<(u64, u64)>) {
        if let Some(row) = self.map.vfs.get_mut(&key) {
            row.verification = Verification::Unverified { since: self.now, signal };
            row.mark = traffic;
        }
    }
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
        draft.signal(Signal::PfReprobed, &subject, format!("the driver of PF {} was bound anew", pf.address));
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
    while draft.map.gone.len() > MOST_MACHINES {
        draft.map.gone.pop_first();
    }
}

/// Remembers what the VFs of each machine are. What was remembered stays expected until the machine has it again,
/// or wants what it has now.
fn remember_machines(draft: &mut VfMapDraft<'_>, sources: &HolderSources<'_>) {
    let mut now: BTreeMap<Arc<str>, Vec<(&MappedVf, VfIdentity)>> = BTreeMap::new();
    for row in draft.map.vfs.values() {
        if let Holder::Vm(name) = &row.holder
            && !row.identity.is_empty()
        {
            now.entry(Arc::clone(name)).or_default().push((row, row.identity));
        }
    }
    let wanted = |row: &MappedVf| {
        let mut claims = row.address.into_iter().flat_map(|address| sources.live_claims(address));
        claims.any(|(_, claim)| claim.mac.is_some() && claim.mac == row.identity.mac)
    };
    for (name, rows) in now {
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
    while draft.map.machines.len() > MOST_MACHINES {
        draft.map.machines.pop_first();
    }
}
