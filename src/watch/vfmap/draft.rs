//! The VF map while a pass is taken in.

use std::time::SystemTime;

use crate::model::finding::EventKind;
use crate::model::ids::PciAddress;
use crate::model::sriov::VfKey;
use crate::model::vfmap::{Signal, Verification, VfMap};
use crate::watch::history_event::HistoryEvent;

/// The map while a pass is taken in.
pub(super) struct VfMapDraft<'a> {
    pub(super) map: &'a mut VfMap,
    pub(super) now: SystemTime,
    pub(super) news: Vec<HistoryEvent>,
}

impl VfMapDraft<'_> {
    /// Counts a signal and says so.
    pub(super) fn signal(&mut self, signal: Signal, subject: &str, text: String) {
        let seen = self.map.signals.entry(signal).or_default();
        seen.count += 1;
        seen.last = Some(self.now);
        self.news.push((EventKind::Migration, subject.to_owned(), text));
    }

    /// Says that something in the map changed, and counts its generation.
    pub(super) fn changed(&mut self, pf: PciAddress, key: &str, text: String) {
        self.news.push((EventKind::VfChanged, key.to_owned(), text));
        let row = self.map.pfs.entry(pf).or_default();
        row.generation += 1;
        row.changed = Some(self.now);
    }

    /// Takes back the trust in a VF until something shows that it works.
    pub(super) fn doubt(&mut self, key: VfKey, signal: Signal, traffic: Option<(u64, u64)>) {
        if let Some(row) = self.map.vfs.get_mut(&key) {
            row.verification = Verification::Unverified { since: self.now, signal };
            row.mark = traffic;
        }
    }
}
