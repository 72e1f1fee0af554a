//! What the poller writes to the state directory: events, the state, and answers to the requests of commands.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::engine::Engine;
use super::report::HostReport;
use super::store::{Answer, Request, Store, StoreError};
use crate::model::check::Check;
use crate::model::finding::{PendingFinding, Subject};
use crate::model::ids::PortKey;
use crate::model::time::{BootTime, Timestamp};

/// How long the kernel log may go on before its last record is saved.
const LOG_SAVE_INTERVAL: Duration = Duration::from_secs(60);

/// Writes a state directory; nothing without one.
pub(super) struct StateWriter {
    store: Option<Store>,
    /// Whether the state on disk has everything that should be saved.
    is_saved: bool,
    /// Whether an earlier release left runs, which are removed once they are saved.
    has_old_runs: bool,
    /// The last kernel log record that was saved, and when.
    log_saved: (Option<u64>, BootTime),
    /// What was pending in the last state that was saved.
    pending_saved: Vec<(Check, Subject)>,
    /// `link_downed` of ports as it was saved.
    counters_saved: BTreeMap<PortKey, u64>,
}

/// Requests that are being applied.
pub(super) struct Applied {
    /// Whether one of them accepts what is there as the baseline.
    pub(super) accepts: bool,
    /// Their names, and what is wrong with them.
    requests: Vec<(String, Option<String>)>,
}

impl StateWriter {
    /// Restores what the directory has saved.
    pub(super) fn open(store: Option<Store>, engine: &mut Engine, now: Timestamp) -> Self {
        let mut writer = Self {
            store,
            is_saved: true,
            has_old_runs: false,
            log_saved: (None, BootTime(0)),
            pending_saved: Vec::new(),
            counters_saved: BTreeMap::new(),
        };
        let Some(store) = &mut writer.store else { return writer };
        let (saved, troubles) = store.load();
        for trouble in troubles {
            tracing::error!("{trouble}");
        }
        engine.restore(saved, store.events(), now);
        let runs = store.old_runs();
        writer.has_old_runs = !runs.is_empty();
        writer.is_saved = runs.is_empty();
        for run in runs {
            engine.record(run.into(), now);
        }
        writer
    }

    /// The folder where commands leave requests.
    pub(super) fn requests_folder(&self) -> Option<PathBuf> {
        self.store.as_ref().map(Store::requests_folder)
    }

    /// Something is to be saved that no event tells of.
    pub(super) fn mark_unsaved(&mut self) {
        self.is_saved = false;
    }

    /// Takes up the requests that wait; `None` if there are none. The next [`StateWriter::persist`] saves them, then they
    /// must be answered.
    pub(super) fn take_requests(&mut self, engine: &mut Engine, now: Timestamp) -> Option<Applied> {
        let store = self.store.as_mut()?;
        let waiting = store.requests(now.wall);
        if waiting.is_empty() {
            return None;
        }
        let mut applied = Applied { accepts: false, requests: Vec::new() };
        for (id, request) in waiting {
            let mut error = None;
            if !store.was_applied(&id) {
                match request {
                    Ok(Request::AcceptBaseline) => applied.accepts = true,
                    Ok(Request::RecordRuns(runs)) => runs.into_iter().for_each(|run| engine.record(run.into(), now)),
                    Err(why) => error = Some(format!("invalid request: {why}")),
                }
            }
            applied.requests.push((id, error));
        }
        self.is_saved = false;
        Some(applied)
    }

    /// Marks requests as applied, so that the next state that is saved has them with what they changed.
    pub(super) fn mark_applied(&mut self, applied: &Applied) {
        let Some(store) = &mut self.store else { return };
        for (id, _) in &applied.requests {
            if !store.was_applied(id) {
                store.mark_applied(id);
            }
        }
    }

    /// Answers requests after their state was saved, or could not be.
    pub(super) fn answer(&self, applied: Applied, engine: &Engine) {
        let Some(store) = &self.store else { return };
        for (id, error) in applied.requests {
            let not_saved = || "applied, but the state cannot be saved now; retrying at each pass".to_owned();
            let error = error.or_else(|| (!self.is_saved).then(not_saved));
            store.answer(&id, &Answer { error, baseline: engine.baseline().clone() });
        }
    }

    /// Writes events, and the state when something happened, other conditions are pending, the last attempt failed, or the
    /// kernel log went on.
    pub(super) fn persist(&mut self, engine: &mut Engine, report: &HostReport) {
        let events = engine.take_events();
        let Some(store) = &mut self.store else { return };
        let (log, now) = (engine.history().kernel_log, report.snapshot.taken.tick);
        let (known, since) = self.log_saved;
        let moved = log != known && now.since(since) >= LOG_SAVE_INTERVAL;
        let key = |pending: &PendingFinding| (pending.0.condition.check, pending.0.condition.subject.clone());
        let pending: Vec<(Check, Subject)> = report.pending.iter().map(key).collect();
        // The first readings of a port, say; else an event goes with each change.
        let counters = engine.recorded_counters();
        let same = pending == self.pending_saved && counters == self.counters_saved;
        let quiet = events.is_empty() && self.is_saved && !moved && same;
        let appended = store.append(events);
        let saved = if quiet { Ok(()) } else { store.save(engine.saved_state(report)) };
        let outcome = appended.and(saved);
        store.log_outcome(outcome.as_ref().err(), report.snapshot.taken.wall);
        self.is_saved = outcome.is_ok();
        if self.is_saved && !quiet {
            (self.log_saved, self.pending_saved) = ((log, now), pending);
            self.counters_saved = counters;
        }
        if self.is_saved && std::mem::take(&mut self.has_old_runs) {
            store.remove_old_runs();
        }
    }

    /// Saves what is not saved yet: events, and how far the kernel log was read, so that the next start knows what was
    /// dropped since.
    pub(super) fn finish(&mut self, engine: &mut Engine, report: &HostReport) {
        let events = engine.take_events();
        let moved = engine.history().kernel_log != self.log_saved.0;
        let needed = moved || !events.is_empty() || !self.is_saved;
        let Some(store) = &mut self.store else { return };
        let appended = store.append(events);
        let saved = if needed { store.save(engine.saved_state(report)) } else { Ok(()) };
        if let Err(error) = appended.and(saved) {
            tracing::error!("cannot save the final state: {error}");
        }
    }

    /// Saves the state.
    ///
    /// # Errors
    /// It cannot be saved.
    pub(super) fn save(&mut self, engine: &Engine, report: &HostReport) -> Result<(), StoreError> {
        let Some(store) = &mut self.store else { return Ok(()) };
        store.save(engine.saved_state(report))
    }
}
