//! One collector while it runs: its listing, its device readers, and its state.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::host::collector::Setup;
use crate::host::{Collector, Depth, DeviceReader, Discovered, Host, ReadContext, Spec};
use crate::model::ids::natural;
use crate::model::reading::ReadError;
use crate::model::snapshot::{CollectorState, Fact, Fault};
use crate::model::time::{BootTime, Timestamp};

/// How long after a change its files are read: changes come in groups.
const SETTLE: Duration = Duration::from_millis(250);

/// Least time between a pass and the next one that a change causes.
const MIN_INTERVAL: Duration = Duration::from_secs(2);

/// What a task of the pool returns: the result, and the collector or reader that was moved into it.
pub enum ReadResult {
    /// A collector has listed its devices.
    Listed {
        /// Index of the collector.
        index: usize,
        /// The collector itself.
        collector: Box<dyn Collector>,
        /// What it found, with a new reader for each key that was not known; or why it could not list.
        found: Result<Vec<DiscoveredReader>, ReadError>,
        /// What could not be read on the way.
        faults: Vec<Fault>,
        /// How long it took.
        spent: TaskTime,
    },
    /// A device was read.
    Read {
        /// Index of the collector.
        index: usize,
        /// Key of the reader.
        key: Arc<str>,
        /// Which reader of that key: one that was replaced meanwhile has an older number.
        generation: u64,
        /// The reader itself.
        reader: Box<dyn DeviceReader>,
        /// The facts.
        facts: Vec<Fact>,
        /// What could not be read.
        faults: Vec<Fault>,
        /// How long it took.
        spent: TaskTime,
    },
    /// A listing or reading panicked; the collector or reader is lost.
    Panicked {
        /// Index of the collector.
        index: usize,
        /// Key and generation of the reader; `None` for a listing.
        reader: Option<(Arc<str>, u64)>,
        /// The panic's message.
        message: String,
    },
}

/// How long a task waited for a worker, and how long it ran.
#[derive(Debug, Clone, Copy)]
pub struct TaskTime {
    waited: Duration,
    ran: Duration,
}

impl TaskTime {
    /// Of a task that was queued and began then, and ends now.
    fn of(queued: Instant, began: Instant) -> Self {
        Self { waited: began.duration_since(queued), ran: began.elapsed() }
    }
}

impl ReadResult {
    /// Index of the collector.
    pub const fn index(&self) -> usize {
        match self {
            Self::Listed { index, .. } | Self::Read { index, .. } | Self::Panicked { index, .. } => *index,
        }
    }
}

/// Something that was found, with a reader if its key was not known.
pub type DiscoveredReader = (Discovered, Option<Box<dyn DeviceReader>>);

/// A reading or listing to be done.
pub type Task = Box<dyn FnOnce() -> ReadResult + Send>;

/// A reader that was stuck and responds again, and after how long.
pub type RecoveredReader = (Arc<str>, Duration);

/// A collector and its readers.
pub struct CollectorRunner {
    /// What it is.
    pub spec: Spec,
    /// When it is to read next; `None` before its first pass.
    pub due: Option<BootTime>,
    /// When it lists its devices next: a scrape between two passes of its own reads only what is known.
    list_due: Option<BootTime>,
    index: usize,
    setup: Arc<Setup>,
    host: Arc<Host>,
    /// The collector; `None` while a task has it.
    collector: Option<Box<dyn Collector>>,
    listing: Option<Instant>,
    lister_stuck: bool,
    readers: BTreeMap<NaturalKey, ReaderSlot>,
    generation: u64,
    now: BootTime,
    depth: Depth,
    began: Instant,
    /// Running and longest waiting time of the pass so far.
    spent: TaskTime,
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
    /// The reader; `None` while a task has it.
    reader: Option<Box<dyn DeviceReader>>,
    busy: Option<Instant>,
    stuck: bool,
    facts: Vec<Fact>,
    faults: Vec<Fault>,
    quarantined: usize,
}

impl CollectorRunner {
    /// Makes a collector ready to run.
    pub fn start(index: usize, spec: Spec, setup: &Arc<Setup>, host: Arc<Host>) -> Self {
        Self {
            spec,
            due: None,
            list_due: None,
            index,
            setup: Arc::clone(setup),
            host,
            collector: Some((spec.make)(setup)),
            listing: None,
            lister_stuck: false,
            readers: BTreeMap::new(),
            generation: 0,
            now: BootTime::default(),
            depth: Depth::Full,
            began: Instant::now(),
            spent: TaskTime { waited: Duration::ZERO, ran: Duration::ZERO },
            ran: false,
            state: CollectorState { name: spec.name, ..CollectorState::default() },
            list_faults: Vec::new(),
        }
    }

    /// Starts a pass: lists the devices if that is due or `listing` asks for it, then reads each one that no task has.
    pub fn begin(&mut self, now: BootTime, depth: Depth, listing: bool, tasks: &mut Vec<Task>) {
        self.due = Some(now.after(self.spec.interval));
        (self.now, self.depth, self.began, self.ran) = (now, depth, Instant::now(), true);
        self.spent = TaskTime { waited: Duration::ZERO, ran: Duration::ZERO };
        let due = listing || self.state.listed.is_none() || self.list_due.is_none_or(|due| now >= due);
        match self.collector {
            Some(_) if due => tasks.extend(self.list()),
            // A listing that hangs does not delay what is known already.
            None if !self.lister_stuck => {}
            None => self.dispatch(true, tasks),
            Some(_) => self.dispatch(false, tasks),
        }
    }

    /// Reads again soon, because a file has changed; not once for each of many changes.
    pub fn hasten(&mut self, now: BootTime) {
        let soon = now.after(SETTLE).max(self.now.after(MIN_INTERVAL));
        self.due = self.due.map(|due| due.min(soon));
    }

    /// Lists the devices; `None` while the last listing has not come back.
    fn list(&mut self) -> Option<Task> {
        let mut collector = self.collector.take()?;
        self.listing = Some(self.began);
        self.list_due = Some(self.now.after(self.spec.interval));
        let known: BTreeSet<Arc<str>> = self.readers.keys().map(|key| Arc::clone(&key.0)).collect();
        let (index, now, host, queued) = (self.index, self.now, Arc::clone(&self.host), Instant::now());
        let list = move || {
            let began = Instant::now();
            let mut cx = ReadContext::new(&host, now, Depth::Full);
            let found = collector.discover(&mut cx).map(|found| {
                let open = |found: Discovered| {
                    let reader = (!known.contains(&found.key)).then(|| collector.open(&found));
                    (found, reader)
                };
                found.into_iter().map(open).collect()
            });
            let faults = cx.faults;
            ReadResult::Listed { index, collector, found, faults, spent: TaskTime::of(queued, began) }
        };
        Some(Box::new(move || {
            guarded(list).unwrap_or_else(|message| ReadResult::Panicked { index, reader: None, message })
        }))
    }

    /// Whether a task that is not known to be stuck has not come back.
    pub fn is_reading(&self) -> bool {
        (self.listing.is_some() && !self.lister_stuck)
            || self.readers.values().any(|slot| slot.busy.is_some() && !slot.stuck)
    }

    /// Takes a result; readings that follow from it go to `tasks`.
    pub fn accept(&mut self, result: ReadResult, tasks: &mut Vec<Task>) -> Option<RecoveredReader> {
        let recovered = match result {
            ReadResult::Listed { collector, found, faults, spent, .. } => {
                self.collector = Some(collector);
                self.listing = None;
                let late = std::mem::take(&mut self.lister_stuck);
                if !late {
                    self.spend(spent);
                }
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
            ReadResult::Read { key, generation, reader, facts, faults, spent, .. } => {
                self.count(&faults);
                let slot = self.readers.get_mut(&NaturalKey(Arc::clone(&key)));
                let late = slot.filter(|slot| slot.generation == generation).map(|slot| {
                    slot.quarantined = reader.quarantined();
                    slot.reader = Some(reader);
                    slot.busy = None;
                    (slot.facts, slot.faults) = (facts, faults);
                    std::mem::take(&mut slot.stuck)
                });
                // The time of one that was stuck is counted already, up to its deadline.
                if late == Some(false) {
                    self.spend(spent);
                }
                late.is_some_and(|late| late).then_some((key, spent.ran))
            }
            ReadResult::Panicked { reader, message, .. } => {
                self.replace_panicked(reader, &message);
                None
            }
        };
        self.note_time();
        recovered
    }

    /// Adds the time of a task to that of the pass.
    fn spend(&mut self, time: TaskTime) {
        self.spent.ran += time.ran;
        self.spent.waited = self.spent.waited.max(time.waited);
    }

    /// Says how long the pass took, once nothing more is awaited.
    fn note_time(&mut self) {
        if !self.is_reading() {
            (self.state.duration, self.state.waited) = (self.spent.ran, self.spent.waited);
        }
    }

    /// A panic is a bug of this program and costs one reading: the next pass lists again with a new collector or opens a
    /// new reader.
    fn replace_panicked(&mut self, reader: Option<(Arc<str>, u64)>, message: &str) {
        let name = self.spec.name;
        self.count_reason(ReadError::Malformed);
        self.list_due = None;
        let Some((key, generation)) = reader else {
            tracing::error!(collector = name, "listing panicked, the collector is replaced: {message}");
            self.collector = Some((self.spec.make)(&self.setup));
            (self.listing, self.lister_stuck) = (None, false);
            self.state.listed = None;
            return;
        };
        tracing::error!(collector = name, device = &*key, "reading panicked, the reader is replaced: {message}");
        let key = NaturalKey(key);
        if self.readers.get(&key).is_some_and(|slot| slot.generation == generation) {
            self.readers.remove(&key);
        }
    }

    /// Opens readers for what is new and drops those of what is gone; one that a task has ends when it comes back.
    fn adopt(&mut self, found: Vec<DiscoveredReader>) {
        let listed: Arc<[Arc<str>]> = found.iter().map(|(found, _)| Arc::clone(&found.key)).collect();
        if self.state.listed.as_deref() != Some(&*listed) {
            let here: BTreeSet<&Arc<str>> = listed.iter().collect();
            self.readers.retain(|key, _| here.contains(&key.0));
            self.state.listed = Some(Arc::clone(&listed));
        }
        for (found, reader) in found {
            let Some(reader) = reader else { continue };
            self.generation += 1;
            let slot = ReaderSlot {
                generation: self.generation,
                reader: Some(reader),
                busy: None,
                stuck: false,
                facts: Vec::new(),
                faults: Vec::new(),
                quarantined: 0,
            };
            self.readers.insert(NaturalKey(found.key), slot);
        }
    }

    fn dispatch(&mut self, listed: bool, tasks: &mut Vec<Task>) {
        let (queued, index, now, depth) = (Instant::now(), self.index, self.now, self.depth);
        for (key, slot) in &mut self.readers {
            let Some(mut reader) = slot.reader.take() else { continue };
            slot.busy = Some(queued);
            let (key, generation, host) = (Arc::clone(&key.0), slot.generation, Arc::clone(&self.host));
            let lost = Arc::clone(&key);
            let read = move || {
                let mut cx = ReadContext { listed, ..ReadContext::new(&host, now, depth) };
                let began = Instant::now();
                let facts = reader.read(&mut cx);
                let (faults, spent) = (cx.faults, TaskTime::of(queued, began));
                ReadResult::Read { index, key, generation, reader, facts, faults, spent }
            };
            tasks.push(Box::new(move || {
                let panicked = |message| ReadResult::Panicked { index, reader: Some((lost, generation)), message };
                guarded(read).unwrap_or_else(panicked)
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

    /// The facts of every reader that responds.
    pub fn facts(&self) -> impl Iterator<Item = Fact> {
        self.readers.values().filter(|slot| !slot.stuck).flat_map(|slot| slot.facts.iter().cloned())
    }

    /// Marks what is past its deadline as stuck: reported, counted once, left alone.
    pub fn expire(&mut self, now: Instant) {
        let deadline = self.spec.deadline;
        let late = |since: &Option<Instant>| since.is_some_and(|since| now.duration_since(since) >= deadline);
        let mut newly_stuck = 0;
        let mut lost = Duration::ZERO;
        if late(&self.listing) && !self.lister_stuck {
            self.lister_stuck = true;
            newly_stuck += 1;
            lost += deadline;
            tracing::warn!(collector = self.spec.name, "listing its devices does not return; skipped until it does");
        }
        for (key, slot) in &mut self.readers {
            if late(&slot.busy) && !slot.stuck {
                slot.stuck = true;
                newly_stuck += 1;
                lost += deadline;
                let name = self.spec.name;
                tracing::warn!(collector = name, device = &*key.0, "not responding; skipped until it does");
            }
        }
        for _ in 0..newly_stuck {
            self.count_reason(ReadError::Timeout);
        }
        if newly_stuck > 0 {
            self.spent.ran += lost;
            self.note_time();
        }
    }

    /// Its state now.
    pub fn state(&mut self, now: Instant, taken: Timestamp) -> CollectorState {
        self.expire(now);
        let reading = self.is_reading();
        if self.lister_stuck {
            self.state.listed = None;
        }
        let state = &mut self.state;
        state.stuck = self.readers.iter().filter(|(_, slot)| slot.stuck).map(|(key, _)| Arc::clone(&key.0)).collect();
        if self.lister_stuck {
            state.stuck.push(Arc::from("listing"));
        }
        state.success = !reading && state.listed.is_some() && state.stuck.is_empty();
        if state.success && std::mem::take(&mut self.ran) {
            state.last_success = Some(taken);
        }
        let silent = state.stuck.iter().map(|key| Fault { source: Arc::clone(key), reason: ReadError::Timeout });
        let read = self.readers.values().filter(|slot| !slot.stuck).flat_map(|slot| &slot.faults);
        state.faults = self.list_faults.iter().chain(read).cloned().chain(silent).collect();
        state.quarantined = self.readers.values().map(|slot| slot.quarantined).sum();
        state.clone()
    }
}

/// Runs a task; the message if it panicked.
fn guarded<T>(task: impl FnOnce() -> T) -> Result<T, String> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(task)).map_err(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::host::collector::Filter;
    use crate::host::fs::Fs;
    use crate::host::io::Roots;
    use crate::model::host::System;

    /// Panics while it lists at 30 s and while it reads at 10 s.
    struct Fragile;

    impl Collector for Fragile {
        fn discover(&mut self, cx: &mut ReadContext<'_>) -> Result<Vec<Discovered>, ReadError> {
            assert_ne!(cx.now, BootTime(30_000), "listing at an odd moment");
            Ok(vec![Discovered { key: Arc::from("mlx5_0"), device: None }])
        }

        fn open(&mut self, _found: &Discovered) -> Box<dyn DeviceReader> {
            Box::new(Fragile)
        }
    }

    impl DeviceReader for Fragile {
        fn read(&mut self, cx: &mut ReadContext<'_>) -> Vec<Fact> {
            assert_ne!(cx.now, BootTime(10_000), "reading at an odd moment");
            vec![Arc::new(System::default()) as Fact]
        }
    }

    fn runner() -> CollectorRunner {
        let below = Path::new("/nonexistent");
        let host = Host {
            io: Arc::new(Fs::new()),
            sysfs: below.join("sys"),
            procfs: below.join("proc"),
            roots: Roots::below(below),
            route: None,
            ethtool: None,
            live: false,
        };
        let spec = Spec {
            name: "fragile",
            about: "",
            interval: Duration::from_secs(10),
            deadline: Duration::from_secs(1),
            fresh: false,
            make: |_| Box::new(Fragile),
        };
        let setup = Arc::new(Setup { host: host.clone(), filter: Filter::default() });
        CollectorRunner::start(0, spec, &setup, Arc::new(host))
    }

    /// A task that takes a while holds the worker: what waits behind it has waited, and not worked.
    #[test]
    fn time_that_a_collector_waits_is_not_its_own() {
        const BUSY: Duration = Duration::from_millis(20);
        let (mut runner, mut tasks) = (runner(), Vec::new());
        runner.begin(BootTime(0), Depth::Full, false, &mut tasks);
        while let Some(task) = tasks.pop() {
            let others = Instant::now();
            while others.elapsed() < BUSY {
                std::hint::spin_loop();
            }
            runner.accept(task(), &mut tasks);
        }
        assert!(runner.state.duration < BUSY, "{:?}", runner.state.duration);
        assert!(runner.state.waited >= BUSY, "{:?}", runner.state.waited);
    }

    fn pass(runner: &mut CollectorRunner, seconds: i64) -> usize {
        let mut tasks = Vec::new();
        runner.begin(BootTime(seconds * 1000), Depth::Full, false, &mut tasks);
        while let Some(task) = tasks.pop() {
            runner.accept(task(), &mut tasks);
        }
        assert!(!runner.is_reading(), "nothing is stuck");
        runner.facts().count()
    }

    #[test]
    fn a_reader_or_collector_that_panics_is_counted_and_replaced() {
        let mut runner = runner();
        let malformed = ReadError::ALL.iter().position(|reason| *reason == ReadError::Malformed).unwrap();
        assert_eq!(pass(&mut runner, 0), 1);
        assert_eq!((pass(&mut runner, 10), runner.state.errors[malformed]), (0, 1));
        assert_eq!((pass(&mut runner, 20), runner.state.errors[malformed]), (1, 1));
        // A listing that panics costs no reader.
        assert_eq!((pass(&mut runner, 30), runner.state.errors[malformed]), (1, 2));
        assert_eq!((pass(&mut runner, 40), runner.state.errors[malformed]), (1, 2));
        assert!(runner.state.listed.is_some());
    }
}
