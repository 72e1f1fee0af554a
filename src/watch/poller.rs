//! The poller: the only reader of the host.
//!
//! It keeps each collector's interval, has every lane read by a [crew](super::crew) in which nobody waits for one that
//! hangs, publishes a pass when all lanes have answered or `GRACE` is over, and reports a lane past its deadline as
//! stuck until it answers. Whoever wants fresh facts asks [`PollerHandle::report`]; all who ask at once share one pass.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use tokio::sync::{oneshot, watch};

use super::alarm::Alarm;
use super::clock::Clock;
use super::collector_runner::{CollectorRunner, ReadResult};
use super::engine::Engine;
use super::heartbeat::Heartbeat;
use super::poller_handle::{PollerHandle, PollerMessage, PublishedReport};
use super::reader_pool::ReaderPool;
use super::report::HostReport;
use super::store::Store;
use crate::host::collector::Setup;
use crate::host::{Depth, Host, Spec};
use crate::model::finding::EventKind;
use crate::model::history::Baseline;
use crate::model::snapshot::Snapshot;
use crate::model::time::BootTime;

/// After so long without an answer, other hands take over the readings that wait.
const RELIEF: Duration = Duration::from_millis(20);

/// How long a pass waits for lanes that are late; they join the next report.
const GRACE: Duration = Duration::from_millis(500);

/// Counters are read at least this often.
const COUNTERS: Duration = Duration::from_secs(15);

/// Someone who wants a report.
struct ReportRequest {
    asked: Instant,
    age: Duration,
    reply: oneshot::Sender<Arc<HostReport>>,
}

/// How long the kernel log may go on before it is kept how far it was read.
const LOG_KEPT: Duration = Duration::from_secs(60);

/// Reads a host and publishes reports.
pub struct Poller {
    clock: Arc<dyn Clock>,
    engine: Engine,
    store: Option<Store>,
    saved: bool,
    /// The last kernel log record that the state directory knows, and since when.
    log_kept: (Option<u64>, BootTime),
    host: Arc<Host>,
    collectors: Vec<CollectorRunner>,
    crew: ReaderPool<ReadResult>,
    inbox: Receiver<PollerMessage>,
    sender: Sender<PollerMessage>,
    publish: watch::Sender<Option<PublishedReport>>,
    waiting: Vec<ReportRequest>,
    counters_read: Option<BootTime>,
    /// When the last pass over everything that a scrape wants fresh began.
    fresh: Option<Instant>,
    heartbeat: Heartbeat,
    /// How long it may sleep at a time.
    nap: Duration,
}

impl Poller {
    /// Makes these collectors and a crew for them. With a store, what it remembers is taken up.
    ///
    /// # Errors
    /// The system has no more threads.
    pub fn new(
        setup: &Setup,
        specs: impl IntoIterator<Item = Spec>,
        clock: Arc<dyn Clock>,
        mut engine: Engine,
        store: Option<Store>,
    ) -> io::Result<Self> {
        let (sender, inbox) = channel();
        let bell = sender.clone();
        // A poller that has stopped hears nothing any more.
        let crew = ReaderPool::new(move || _ = bell.send(PollerMessage::Idle))?;
        let host = Arc::new(setup.host.clone());
        let start = |(index, spec)| CollectorRunner::start(index, spec, setup, Arc::clone(&host));
        let collectors = specs.into_iter().enumerate().map(start).collect();
        let mut store = store;
        if let Some(store) = &mut store {
            let (remembered, troubles) = store.load();
            for trouble in troubles {
                tracing::error!("{trouble}");
            }
            engine.restore(remembered, clock.now());
            engine.keep_baseline(|name| setup.filter.allows(name));
        }
        let (publish, _) = watch::channel(None);
        let (waiting, counters_read, fresh) = (Vec::new(), None, None);
        Ok(Self {
            clock,
            engine,
            store,
            saved: true,
            log_kept: (None, BootTime(0)),
            host,
            collectors,
            crew,
            inbox,
            sender,
            publish,
            waiting,
            counters_read,
            fresh,
            heartbeat: Heartbeat::default(),
            nap: COUNTERS,
        })
    }

    /// A handle to ask for reports and to stop it.
    pub fn handle(&self) -> PollerHandle {
        PollerHandle { inbox: self.sender.clone(), latest: self.publish.subscribe() }
    }

    /// Its sign of life, which comes at least this often while it runs.
    pub fn heartbeat(&mut self, every: Duration) -> Heartbeat {
        self.nap = every.max(Duration::from_millis(1));
        self.heartbeat.clone()
    }

    /// The baseline as it is now.
    pub fn baseline(&self) -> &Baseline {
        self.engine.baseline()
    }

    /// Makes the state of the last pass the baseline, and keeps it.
    ///
    /// # Errors
    /// The state directory cannot be written.
    pub fn accept_baseline(&mut self, limit: Duration) -> Result<Arc<HostReport>, super::store::StoreError> {
        self.engine.forget_baseline();
        let report = self.pass(limit);
        self.save(&report)?;
        Ok(report)
    }

    /// Notes something for the events.
    pub fn note(&mut self, kind: EventKind, text: String) {
        self.engine.note(self.clock.now(), kind, text);
    }

    /// Runs until it is told to stop.
    pub fn run(mut self) {
        let place = |name: &str| self.collectors.iter().position(|collector| collector.spec.name == name);
        let alarm = Alarm::of_collectors(&self.host, place, &self.sender);
        loop {
            self.heartbeat.increment();
            let now = self.clock.now().tick;
            let wanted = !self.waiting.is_empty();
            let deep = wanted || self.counters_read.is_none_or(|at| now.since(at) >= COUNTERS);
            let first = self.counters_read.is_none();
            let due: Vec<usize> = (0..self.collectors.len()).filter(|i| self.due(*i, now, wanted)).collect();
            if !due.is_empty() {
                let depth = if deep { Depth::Full } else { Depth::State };
                let limit = if first { self.longest_deadline() } else { GRACE };
                if !self.read(&due, now, depth, false, limit) {
                    break;
                }
                self.publish();
                if let Some(alarm) = &alarm {
                    alarm.look(&due);
                }
            }
            if !self.idle() {
                break;
            }
        }
        self.leave();
    }

    /// Keeps how far the kernel log was read, so that what is dropped until the next start is told apart from that.
    fn leave(&mut self) {
        let last = self.publish.borrow().as_ref().map(|published| Arc::clone(&published.report));
        let moved = self.engine.history().kernel_log != self.log_kept.0;
        if let Some(report) = last.filter(|_| moved)
            && let Err(error) = self.save(&report)
        {
            tracing::error!("state is not kept: {error}");
        }
    }

    /// One pass of everything, waited for until every lane has answered or is stuck, or `limit` is over.
    pub fn pass(&mut self, limit: Duration) -> Arc<HostReport> {
        let now = self.clock.now().tick;
        let all: Vec<usize> = (0..self.collectors.len()).collect();
        self.read(&all, now, Depth::Full, true, limit);
        self.publish()
    }

    fn longest_deadline(&self) -> Duration {
        let longest = self.collectors.iter().map(|collector| collector.spec.deadline).max();
        // For the listing and then for the lanes, so that what does not answer is stuck in the first report already.
        longest.unwrap_or_default() * 2
    }

    fn due(&self, index: usize, now: BootTime, wanted: bool) -> bool {
        self.collectors.get(index).is_some_and(|c| (wanted && c.spec.fresh) || c.due.is_none_or(|due| now >= due))
    }

    /// Reads these collectors; false when told to stop.
    fn read(&mut self, due: &[usize], now: BootTime, depth: Depth, listing: bool, limit: Duration) -> bool {
        let began = Instant::now();
        let until = began + limit;
        let mut tasks = Vec::new();
        for index in due {
            if let Some(collector) = self.collectors.get_mut(*index) {
                collector.begin(now, depth, listing, &mut tasks);
            }
        }
        self.crew.add(tasks);
        if depth == Depth::Full {
            self.counters_read = Some(now);
            let whole = (0..).zip(&self.collectors).all(|(index, c)| !c.spec.fresh || due.contains(&index));
            self.fresh = if whole { Some(began) } else { self.fresh };
        }
        let mut relieved = began;
        while self.collectors.iter().any(CollectorRunner::is_reading) {
            let now = Instant::now();
            if now >= until {
                break;
            }
            // By the clock and not by silence: however many ask meanwhile, what hangs is relieved.
            if now.duration_since(relieved) >= RELIEF {
                relieved = now;
                self.heartbeat.increment();
                self.relieve(now);
                continue;
            }
            match self.inbox.recv_timeout(until.saturating_duration_since(now).min(RELIEF)) {
                Ok(message) => {
                    if !self.take(message) {
                        return false;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return false,
            }
        }
        true
    }

    /// Puts more hands to readings that wait, and finds what has not come back in time.
    fn relieve(&mut self, now: Instant) {
        self.take_results();
        if let Err(error) = self.crew.relieve() {
            tracing::error!("no more threads: {error}");
        }
        self.collectors.iter_mut().for_each(|collector| collector.expire(now));
    }

    /// Takes what the crew has finished, and gives it what follows from that.
    fn take_results(&mut self) {
        let mut tasks = Vec::new();
        for done in self.crew.collect() {
            let (ReadResult::Listed { index, .. } | ReadResult::Read { index, .. }) = &done;
            let Some(collector) = self.collectors.get_mut(*index) else { continue };
            if let Some((lane, took)) = collector.take(done, &mut tasks) {
                let name = collector.spec.name;
                tracing::warn!(collector = name, lane = &*lane, "answers again after {} s", took.as_secs());
            }
        }
        self.crew.add(tasks);
    }

    /// Waits for the next thing to do; false when told to stop.
    fn idle(&mut self) -> bool {
        while self.waiting.is_empty() {
            let now = self.clock.now().tick;
            let next = self.collectors.iter().map(|c| c.due.map_or(Duration::ZERO, |due| due.since(now))).min();
            let left = next.unwrap_or(COUNTERS);
            if left.is_zero() {
                return true;
            }
            match self.inbox.recv_timeout(left.min(self.nap)) {
                Ok(message) => {
                    if !self.take(message) {
                        return false;
                    }
                }
                Err(RecvTimeoutError::Timeout) => return true,
                Err(RecvTimeoutError::Disconnected) => return false,
            }
        }
        true
    }

    /// Takes one message; false when it says stop.
    fn take(&mut self, message: PollerMessage) -> bool {
        match message {
            PollerMessage::Idle => self.take_results(),
            PollerMessage::Changed(index) => {
                let now = self.clock.now().tick;
                self.collectors.get_mut(index).into_iter().for_each(|collector| collector.hasten(now));
            }
            PollerMessage::Want(age, reply) => {
                self.waiting.push(ReportRequest { asked: Instant::now(), age, reply });
                self.answer();
            }
            PollerMessage::Policy(policy, text) => {
                self.engine.set_policy(policy);
                self.note(EventKind::Reloaded, text);
            }
            PollerMessage::Probe(run) => {
                self.engine.record(*run, self.clock.now());
                self.saved = false;
            }
            PollerMessage::Stop => return false,
        }
        true
    }

    /// Judges what was read and lets everyone see it.
    fn publish(&mut self) -> Arc<HostReport> {
        let taken = self.clock.now();
        let now = Instant::now();
        let states = self.collectors.iter_mut().map(|collector| collector.state(now, taken)).collect();
        let facts = self.collectors.iter().flat_map(CollectorRunner::facts);
        let snapshot = Snapshot::new(taken, facts, states);
        self.engine.look_for_maintenance(taken.wall, |marker| std::fs::symlink_metadata(marker).is_ok());
        let report = Arc::new(self.engine.observe(snapshot));
        self.keep(&report);
        let published = PublishedReport { report: Arc::clone(&report), began: self.fresh.unwrap_or(now) };
        self.publish.send_replace(Some(published));
        self.answer();
        report
    }

    /// Gives the newest report to those for whom it is fresh enough.
    fn answer(&mut self) {
        let Some(PublishedReport { report, began }) = self.publish.borrow().clone() else { return };
        for waiter in std::mem::take(&mut self.waiting) {
            if began >= waiter.asked || began.elapsed() <= waiter.age {
                // Whoever is gone already needs no answer.
                let _ = waiter.reply.send(Arc::clone(&report));
            } else {
                self.waiting.push(waiter);
            }
        }
    }

    /// Writes events, and the state when something happened, the last attempt failed, or the kernel log went on.
    fn keep(&mut self, report: &HostReport) {
        let events = self.engine.take_events();
        let Some(store) = &mut self.store else { return };
        for run in super::probes::take_up(store.directory()) {
            self.engine.record(run, self.clock.now());
            self.saved = false;
        }
        if let Some(baseline) = store.replaced() {
            self.engine.set_baseline(baseline);
        }
        let (log, now) = (self.engine.history().kernel_log, report.snapshot.taken.tick);
        let (known, since) = self.log_kept;
        let moved = log != known && now.since(since) >= LOG_KEPT;
        let quiet = events.is_empty() && self.saved && !moved;
        let appended = store.append(events);
        let saved = if quiet { Ok(()) } else { self.save(report) };
        match appended.and(saved) {
            Ok(()) => {
                self.saved = true;
                if !quiet {
                    self.log_kept = (log, now);
                }
            }
            Err(error) => {
                if std::mem::replace(&mut self.saved, false) {
                    tracing::error!("state is not kept: {error}");
                }
            }
        }
    }

    fn save(&mut self, report: &HostReport) -> Result<(), super::store::StoreError> {
        let Some(store) = &mut self.store else { return Ok(()) };
        let boot_id = report.snapshot.system().and_then(|system| system.boot_id.clone());
        store.save(boot_id.as_deref(), self.engine.history(), &report.findings, report.snapshot.taken)
    }
}
