//! One collector while it runs: its listing worker, its lanes, and how it fares.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Sender, SyncSender};
use std::time::{Duration, Instant};

use super::poller::Message;
use super::worker::{self, Done, List, Opened, Read};
use crate::host::collector::Setup;
use crate::host::{Depth, Host, Spec};
use crate::model::ids::natural;
use crate::model::reading::Reason;
use crate::model::snapshot::{CollectorState, Fact, Fault};
use crate::model::time::{Stamp, Tick};

/// Something worth a line in the log.
pub enum Trouble {
    /// A worker could not be started.
    Thread(io::Error),
    /// A lane that was stuck has answered.
    Answered(Arc<str>, Duration),
}

/// A collector and its workers.
pub struct Running {
    /// Its row.
    pub spec: Spec,
    /// When it is to read next; none before its first pass.
    pub due: Option<Tick>,
    index: usize,
    host: Host,
    lister: SyncSender<List>,
    listing: Option<Instant>,
    lister_stuck: bool,
    lanes: BTreeMap<Natural, Slot>,
    generation: u64,
    job: Read,
    began: Instant,
    state: CollectorState,
    list_faults: Vec<Fault>,
}

/// Orders keys the way people count.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Natural(Arc<str>);

impl PartialOrd for Natural {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Natural {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        natural(&self.0, &other.0)
    }
}

struct Slot {
    generation: u64,
    worker: SyncSender<Read>,
    busy: Option<Instant>,
    stuck: bool,
    facts: Vec<Fact>,
    faults: Vec<Fault>,
    quarantined: usize,
}

impl Running {
    /// Makes the collector and starts its listing worker.
    ///
    /// # Errors
    /// The system has no more threads.
    pub fn start(index: usize, spec: Spec, setup: &Setup, done: Sender<Message>) -> io::Result<Self> {
        let lister = worker::lister(index, spec.name, (spec.make)(setup), setup.host.clone(), done)?;
        let state = CollectorState { name: spec.name, ..CollectorState::default() };
        Ok(Self {
            spec,
            due: None,
            index,
            host: setup.host.clone(),
            lister,
            listing: None,
            lister_stuck: false,
            lanes: BTreeMap::new(),
            generation: 0,
            job: Read { now: Tick::default(), depth: Depth::Full },
            began: Instant::now(),
            state,
            list_faults: Vec::new(),
        })
    }

    /// Starts a pass: lists, and then reads each lane that is not busy.
    pub fn begin(&mut self, now: Tick, depth: Depth) {
        self.due = Some(now.after(self.spec.interval));
        self.job = Read { now, depth };
        self.began = Instant::now();
        if self.listing.is_some() {
            // A listing that does not answer holds up nothing that is known already.
            if self.lister_stuck {
                self.dispatch();
            }
            return;
        }
        let known = self.lanes.keys().map(|key| Arc::clone(&key.0)).collect();
        if self.lister.try_send(List { now, known }).is_ok() {
            self.listing = Some(self.began);
        }
    }

    /// Whether something is still to come that is not known to be stuck.
    pub fn is_reading(&self) -> bool {
        (self.listing.is_some() && !self.lister_stuck)
            || self.lanes.values().any(|slot| slot.busy.is_some() && !slot.stuck)
    }

    /// Takes what a worker sent.
    pub fn take(&mut self, done: Done, sender: &Sender<Message>) -> Option<Trouble> {
        let trouble = self.take_in(done, sender);
        if !self.is_reading() {
            self.state.duration = self.began.elapsed();
        }
        trouble
    }

    fn take_in(&mut self, done: Done, sender: &Sender<Message>) -> Option<Trouble> {
        match done {
            Done::Listed { found, faults, .. } => {
                self.listing = None;
                let late = std::mem::take(&mut self.lister_stuck);
                self.count(&faults);
                self.list_faults = faults;
                let trouble = match found {
                    Ok(found) => self.adopt(found, sender),
                    Err(reason) => {
                        self.state.listed = None;
                        tracing::debug!(collector = self.spec.name, "cannot list: {}", reason.as_str());
                        None
                    }
                };
                if !late {
                    self.dispatch();
                }
                trouble
            }
            Done::Read { key, generation, facts, faults, quarantined, took, .. } => {
                self.count(&faults);
                let slot = self.lanes.get_mut(&Natural(Arc::clone(&key)))?;
                if slot.generation != generation {
                    return None;
                }
                slot.busy = None;
                (slot.facts, slot.faults, slot.quarantined) = (facts, faults, quarantined);
                std::mem::take(&mut slot.stuck).then_some(Trouble::Answered(key, took))
            }
        }
    }

    /// Opens lanes for what is new and drops those of what is gone; a worker that blocks ends when it returns.
    fn adopt(&mut self, found: Vec<Opened>, sender: &Sender<Message>) -> Option<Trouble> {
        let listed: Arc<[Arc<str>]> = found.iter().map(|(found, _)| Arc::clone(&found.key)).collect();
        if self.state.listed.as_deref() != Some(&*listed) {
            self.lanes.retain(|key, _| listed.contains(&key.0));
            self.state.listed = Some(listed);
        }
        let mut trouble = None;
        for (found, lane) in found {
            let Some(lane) = lane else { continue };
            self.generation += 1;
            let key = Arc::clone(&found.key);
            match worker::lane(self.index, key, self.generation, lane, self.host.clone(), sender.clone()) {
                Ok(worker) => {
                    let slot = Slot {
                        generation: self.generation,
                        worker,
                        busy: None,
                        stuck: false,
                        facts: Vec::new(),
                        faults: Vec::new(),
                        quarantined: 0,
                    };
                    self.lanes.insert(Natural(found.key), slot);
                }
                Err(error) => trouble = Some(Trouble::Thread(error)),
            }
        }
        trouble
    }

    fn dispatch(&mut self) {
        let now = Instant::now();
        for slot in self.lanes.values_mut().filter(|slot| slot.busy.is_none()) {
            if slot.worker.try_send(self.job).is_ok() {
                slot.busy = Some(now);
            }
        }
    }

    fn count(&mut self, faults: &[Fault]) {
        for fault in faults {
            self.count_reason(fault.reason);
        }
    }

    fn count_reason(&mut self, reason: Reason) {
        let counts = Reason::ALL.iter().zip(&mut self.state.errors);
        if let Some((_, count)) = counts.into_iter().find(|(known, _)| **known == reason) {
            *count += 1;
        }
    }

    /// The facts of every lane that answers.
    pub fn facts(&self) -> impl Iterator<Item = Fact> {
        self.lanes.values().filter(|slot| !slot.stuck).flat_map(|slot| slot.facts.iter().cloned())
    }

    /// When the first of what is still to come will be past its deadline.
    pub fn next_deadline(&self) -> Option<Instant> {
        let listing = self.listing.filter(|_| !self.lister_stuck);
        let busy = self.lanes.values().filter(|slot| !slot.stuck).filter_map(|slot| slot.busy);
        listing.into_iter().chain(busy).min().and_then(|since| since.checked_add(self.spec.deadline))
    }

    /// What is past its deadline becomes stuck: reported, counted once, left alone.
    pub fn expire(&mut self, now: Instant) {
        let deadline = self.spec.deadline;
        let late = |since: &Option<Instant>| since.is_some_and(|since| now.duration_since(since) >= deadline);
        let mut newly_stuck = 0;
        if late(&self.listing) && !self.lister_stuck {
            self.lister_stuck = true;
            newly_stuck += 1;
            tracing::warn!(collector = self.spec.name, "its listing does not answer; it is left alone until it does");
        }
        for (key, slot) in &mut self.lanes {
            if late(&slot.busy) && !slot.stuck {
                slot.stuck = true;
                newly_stuck += 1;
                let name = self.spec.name;
                tracing::warn!(collector = name, lane = &*key.0, "does not answer; it is left alone until it does");
            }
        }
        for _ in 0..newly_stuck {
            self.count_reason(Reason::Timeout);
        }
        if newly_stuck > 0 && !self.is_reading() {
            self.state.duration = self.began.elapsed();
        }
    }

    /// How it fares now.
    pub fn state(&mut self, now: Instant, taken: Stamp) -> CollectorState {
        self.expire(now);
        let reading = self.is_reading();
        if self.lister_stuck {
            self.state.listed = None;
        }
        let state = &mut self.state;
        state.stuck = self.lanes.iter().filter(|(_, slot)| slot.stuck).map(|(key, _)| Arc::clone(&key.0)).collect();
        if self.lister_stuck {
            state.stuck.push(Arc::from("listing"));
        }
        state.success = !reading && state.listed.is_some() && state.stuck.is_empty();
        if state.success {
            state.last_success = Some(taken);
        }
        let silent = state.stuck.iter().map(|key| Fault { source: Arc::clone(key), reason: Reason::Timeout });
        let read = self.lanes.values().filter(|slot| !slot.stuck).flat_map(|slot| &slot.faults);
        state.faults = self.list_faults.iter().chain(read).cloned().chain(silent).collect();
        state.quarantined = self.lanes.values().map(|slot| slot.quarantined).sum();
        state.clone()
    }
}
