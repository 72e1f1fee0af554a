//! One collector while it runs: its listing, its lanes, and how it fares.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::host::collector::Setup;
use crate::host::{Collector, Depth, DeviceReader, Discovered, Host, ReadContext, Spec};
use crate::model::ids::natural;
use crate::model::reading::ReadError;
use crate::model::snapshot::{CollectorState, Fact, Fault};
use crate::model::time::{BootTime, Timestamp};

/// How long after a change it is read: what changes together is read together.
const SETTLED: Duration = Duration::from_millis(250);

/// How soon after a pass a change makes another one.
const APART: Duration = Duration::from_secs(2);

/// What comes back from the crew: always with what was lent to it.
pub enum ReadResult {
    /// A collector listed what is there.
    Listed {
        /// Index of the collector.
        index: usize,
        /// The collector itself.
        collector: Box<dyn Collector>,
        /// What it found, with a new lane for each key that was not known; or why it could not list.
        found: Result<Vec<DiscoveredReader>, ReadError>,
        /// What could not be read on the way.
        faults: Vec<Fault>,
    },
    /// A lane was read.
    Read {
        /// Index of the collector.
        index: usize,
        /// Key of the lane.
        key: Arc<str>,
        /// Which lane of that key: one that was replaced meanwhile has an older number.
        generation: u64,
        /// The lane itself.
        lane: Box<dyn DeviceReader>,
        /// The facts.
        facts: Vec<Fact>,
        /// What could not be read.
        faults: Vec<Fault>,
        /// How long it took.
        took: Duration,
    },
}

/// Something that was found, with a lane where its key was not known.
pub type DiscoveredReader = (Discovered, Option<Box<dyn DeviceReader>>);

/// A reading or listing to be done.
pub type Task = Box<dyn FnOnce() -> ReadResult + Send>;

/// A lane that was stuck and has answered, and after how long.
pub type RecoveredReader = (Arc<str>, Duration);

/// A collector and its lanes.
pub struct CollectorRunner {
    /// Its row.
    pub spec: Spec,
    /// When it is to read next; none before its first pass.
    pub due: Option<BootTime>,
    /// When it is to list next what is there: a scrape between two passes of its own reads only what is known.
    list_due: Option<BootTime>,
    index: usize,
    host: Arc<Host>,
    /// The collector; lent while it lists.
    collector: Option<Box<dyn Collector>>,
    listing: Option<Instant>,
    lister_stuck: bool,
    lanes: BTreeMap<NaturalKey, ReaderSlot>,
    generation: u64,
    now: BootTime,
    depth: Depth,
    began: Instant,
    /// Whether it has read since its last success was noted.
    ran: bool,
    state: CollectorState,
    list_faults: Vec<Fault>,
}

/// Orders keys the way people count.
#[derive(Debug, Clone, PartialEq, Eq)]
struct NaturalKey(Arc<str>);

impl PartialOrd for NaturalKey {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for NaturalKey {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        natural(&self.0, &other.0)
    }
}

struct ReaderSlot {
    generation: u64,
    /// The lane; lent while it reads.
    lane: Option<Box<dyn DeviceReader>>,
    busy: Option<Instant>,
    stuck: bool,
    facts: Vec<Fact>,
    faults: Vec<Fault>,
    quarantined: usize,
}

impl CollectorRunner {
    /// Makes the collector.
    pub fn start(index: usize, spec: Spec, setup: &Setup, host: Arc<Host>) -> Self {
        Self {
            spec,
            due: None,
            list_due: None,
            index,
            host,
            collector: Some((spec.make)(setup)),
            listing: None,
            lister_stuck: false,
            lanes: BTreeMap::new(),
            generation: 0,
            now: BootTime::default(),
            depth: Depth::Full,
            began: Instant::now(),
            ran: false,
            state: CollectorState { name: spec.name, ..CollectorState::default() },
            list_faults: Vec::new(),
        }
    }

    /// Starts a pass: what is there is listed if that is due or `listing` asks for it, and then each lane that is here
    /// is read.
    pub fn begin(&mut self, now: BootTime, depth: Depth, listing: bool, tasks: &mut Vec<Task>) {
        self.due = Some(now.after(self.spec.interval));
        (self.now, self.depth, self.began, self.ran) = (now, depth, Instant::now(), true);
        let due = listing || self.state.listed.is_none() || self.list_due.is_none_or(|due| now >= due);
        match self.collector {
            Some(_) if due => tasks.extend(self.list()),
            // A listing that does not answer holds up nothing that is known already.
            None if !self.lister_stuck => {}
            None => self.dispatch(true, tasks),
            Some(_) => self.dispatch(false, tasks),
        }
    }

    /// Something that it reads has changed: it reads again soon, but not once for each of many changes.
    pub fn hasten(&mut self, now: BootTime) {
        let soon = now.after(SETTLED).max(self.now.after(APART));
        self.due = self.due.map(|due| due.min(soon));
    }

    /// Lists what is there; none while the last listing has not come back.
    fn list(&mut self) -> Option<Task> {
        let mut collector = self.collector.take()?;
        self.listing = Some(self.began);
        self.list_due = Some(self.now.after(self.spec.interval));
        let known: BTreeSet<Arc<str>> = self.lanes.keys().map(|key| Arc::clone(&key.0)).collect();
        let (index, now, host) = (self.index, self.now, Arc::clone(&self.host));
        Some(Box::new(move || {
            let mut cx = ReadContext::new(&host, now, Depth::Full);
            let found = collector.discover(&mut cx).map(|found| {
                let open = |found: Discovered| {
                    let lane = (!known.contains(&found.key)).then(|| collector.open(&found));
                    (found, lane)
                };
                found.into_iter().map(open).collect()
            });
            let faults = cx.faults;
            ReadResult::Listed { index, collector, found, faults }
        }))
    }

    /// Whether something is still to come that is not known to be stuck.
    pub fn is_reading(&self) -> bool {
        (self.listing.is_some() && !self.lister_stuck)
            || self.lanes.values().any(|slot| slot.busy.is_some() && !slot.stuck)
    }

    /// Takes what came back; new readings go to `tasks`.
    pub fn take(&mut self, done: ReadResult, tasks: &mut Vec<Task>) -> Option<RecoveredReader> {
        let answered = match done {
            ReadResult::Listed { collector, found, faults, .. } => {
                self.collector = Some(collector);
                self.listing = None;
                let late = std::mem::take(&mut self.lister_stuck);
                self.count(&faults);
                self.list_faults = faults;
                match found {
                    Ok(found) => self.adopt(found),
                    Err(reason) => {
                        self.state.listed = None;
                        tracing::debug!(collector = self.spec.name, "cannot list: {}", reason.as_str());
                    }
                }
                if !late {
                    self.dispatch(true, tasks);
                }
                None
            }
            ReadResult::Read { key, generation, lane, facts, faults, took, .. } => {
                self.count(&faults);
                let slot = self.lanes.get_mut(&NaturalKey(Arc::clone(&key)));
                slot.filter(|slot| slot.generation == generation).and_then(|slot| {
                    slot.quarantined = lane.quarantined();
                    slot.lane = Some(lane);
                    slot.busy = None;
                    (slot.facts, slot.faults) = (facts, faults);
                    std::mem::take(&mut slot.stuck).then_some((key, took))
                })
            }
        };
        if !self.is_reading() {
            self.state.duration = self.began.elapsed();
        }
        answered
    }

    /// Opens lanes for what is new and drops those of what is gone; one that is out ends when it comes back.
    fn adopt(&mut self, found: Vec<DiscoveredReader>) {
        let listed: Arc<[Arc<str>]> = found.iter().map(|(found, _)| Arc::clone(&found.key)).collect();
        if self.state.listed.as_deref() != Some(&*listed) {
            let here: BTreeSet<&Arc<str>> = listed.iter().collect();
            self.lanes.retain(|key, _| here.contains(&key.0));
            self.state.listed = Some(Arc::clone(&listed));
        }
        for (found, lane) in found {
            let Some(lane) = lane else { continue };
            self.generation += 1;
            let slot = ReaderSlot {
                generation: self.generation,
                lane: Some(lane),
                busy: None,
                stuck: false,
                facts: Vec::new(),
                faults: Vec::new(),
                quarantined: 0,
            };
            self.lanes.insert(NaturalKey(found.key), slot);
        }
    }

    fn dispatch(&mut self, listed: bool, tasks: &mut Vec<Task>) {
        let (began, index, now, depth) = (Instant::now(), self.index, self.now, self.depth);
        for (key, slot) in &mut self.lanes {
            let Some(mut lane) = slot.lane.take() else { continue };
            slot.busy = Some(began);
            let (key, generation, host) = (Arc::clone(&key.0), slot.generation, Arc::clone(&self.host));
            tasks.push(Box::new(move || {
                let mut cx = ReadContext { listed, ..ReadContext::new(&host, now, depth) };
                let began = Instant::now();
                let facts = lane.read(&mut cx);
                let (faults, took) = (cx.faults, began.elapsed());
                ReadResult::Read { index, key, generation, lane, facts, faults, took }
            }));
        }
    }

    fn count(&mut self, faults: &[Fault]) {
        for fault in faults {
            self.count_reason(fault.reason);
        }
    }

    fn count_reason(&mut self, reason: ReadError) {
        let counts = ReadError::ALL.iter().zip(&mut self.state.errors);
        if let Some((_, count)) = counts.into_iter().find(|(known, _)| **known == reason) {
            *count += 1;
        }
    }

    /// The facts of every lane that answers.
    pub fn facts(&self) -> impl Iterator<Item = Fact> {
        self.lanes.values().filter(|slot| !slot.stuck).flat_map(|slot| slot.facts.iter().cloned())
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
            self.count_reason(ReadError::Timeout);
        }
        if newly_stuck > 0 && !self.is_reading() {
            self.state.duration = self.began.elapsed();
        }
    }

    /// How it fares now.
    pub fn state(&mut self, now: Instant, taken: Timestamp) -> CollectorState {
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
        if state.success && std::mem::take(&mut self.ran) {
            state.last_success = Some(taken);
        }
        let silent = state.stuck.iter().map(|key| Fault { source: Arc::clone(key), reason: ReadError::Timeout });
        let read = self.lanes.values().filter(|slot| !slot.stuck).flat_map(|slot| &slot.faults);
        state.faults = self.list_faults.iter().chain(read).cloned().chain(silent).collect();
        state.quarantined = self.lanes.values().map(|slot| slot.quarantined).sum();
        state.clone()
    }
}
