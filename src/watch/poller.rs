//! The poller: the only reader of the host.
//!
//! It keeps each collector's interval, has every device read by a [pool](super::reader_pool) in which nothing waits for a
//! reader that hangs, publishes a pass when all readers have responded or `GRACE` is over, and reports a reader past its
//! deadline as stuck until it responds. Whoever wants fresh facts asks [`PollerHandle::report`]; all who ask at once share
//! one pass. It alone writes the state directory, and applies the requests that commands leave there.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use tokio::sync::{oneshot, watch};

use super::clock::Clock;
use super::collector_runner::{CollectorRunner, ReadResult};
use super::engine::Engine;
use super::file_watcher::FileWatcher;
use super::maintenance_marker::MaintenanceMarker;
use super::poller_handle::Heartbeat;
use super::poller_handle::{PollerHandle, PollerMessage, PublishedReport};
use super::reader_pool::ReaderPool;
use super::report::HostReport;
use super::state_writer::StateWriter;
use super::store::{Store, StoreError};
use crate::host::collector::Setup;
use crate::host::{Depth, Host, Spec};
use crate::model::check::Severity;
use crate::model::finding::EventKind;
use crate::model::finding::Finding;
use crate::model::history::Baseline;
use crate::model::snapshot::Snapshot;
use crate::model::time::BootTime;

/// After so long without a result, more workers take over the readings that wait.
const WORKER_DELAY: Duration = Duration::from_millis(20);

/// How long a pass waits for readers that are late; they join the next report.
const GRACE: Duration = Duration::from_millis(500);

/// Counters are read at least this often.
const COUNTERS: Duration = Duration::from_secs(15);

/// Someone who wants a report.
struct ReportRequest {
    asked: Instant,
    age: Duration,
    reply: oneshot::Sender<Arc<HostReport>>,
}

/// Reads a host and publishes reports.
pub struct Poller {
    clock: Arc<dyn Clock>,
    engine: Engine,
    state: StateWriter,
    /// Whether findings that begin and end are logged.
    logs_findings: bool,
    host: Arc<Host>,
    collectors: Vec<CollectorRunner>,
    pool: ReaderPool<ReadResult>,
    inbox: Receiver<PollerMessage>,
    sender: Sender<PollerMessage>,
    publish: watch::Sender<Option<PublishedReport>>,
    waiting: Vec<ReportRequest>,
    /// Whether requests may wait in the state directory.
    requests_changed: bool,
    counters_read: Option<BootTime>,
    /// When the last pass over everything that a scrape wants fresh began.
    fresh: Option<Instant>,
    heartbeat: Heartbeat,
    marker: MaintenanceMarker,
    /// How long it may sleep at a time.
    max_sleep: Duration,
}

impl Poller {
    /// Makes these collectors and a pool for them. With a store, what it has saved is restored.
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
        let on_idle = sender.clone();
        // A poller that has stopped receives nothing.
        let pool = ReaderPool::new(move || _ = on_idle.send(PollerMessage::PoolIdle))?;
        let host = Arc::new(setup.host.clone());
        let setup = Arc::new(setup.clone());
        let start = |(index, spec)| CollectorRunner::start(index, spec, &setup, Arc::clone(&host));
        let collectors = specs.into_iter().enumerate().map(start).collect();
        let has_store = store.is_some();
        let state = StateWriter::open(store, &mut engine, clock.now());
        if has_store {
            engine.keep_baseline(|name| setup.filter.allows(name));
        }
        let (publish, _) = watch::channel(None);
        let (waiting, counters_read, fresh) = (Vec::new(), None, None);
        Ok(Self {
            clock,
            engine,
            state,
            logs_findings: false,
            host,
            collectors,
            pool,
            inbox,
            sender,
            publish,
            waiting,
            requests_changed: false,
            counters_read,
            fresh,
            heartbeat: Heartbeat::default(),
            marker: MaintenanceMarker::default(),
            max_sleep: COUNTERS,
        })
    }

    /// A handle to ask for reports and to stop it.
    pub fn handle(&self) -> PollerHandle {
        PollerHandle { inbox: self.sender.clone(), latest: self.publish.subscribe() }
    }

    /// Its sign of life, which comes at least this often while it runs.
    pub fn heartbeat(&mut self, every: Duration) -> Heartbeat {
        self.max_sleep = every.max(Duration::from_millis(1));
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
    pub fn accept_baseline(&mut self, limit: Duration) -> Result<Arc<HostReport>, StoreError> {
        self.engine.forget_baseline();
        let report = self.pass(limit);
        self.state.save(&self.engine, &report)?;
        Ok(report)
    }

    /// Notes something for the events.
    pub fn note(&mut self, kind: EventKind, text: String) {
        self.engine.note(self.clock.now(), kind, text);
    }

    /// Runs until it is asked to stop.
    pub fn run(mut self) {
        self.logs_findings = true;
        let index_of = |name: &str| self.collectors.iter().position(|collector| collector.spec.name == name);
        let sender = self.sender.clone();
        let on_change = move |collector: Option<usize>| {
            // A poller that has stopped receives nothing.
            let _ = sender.send(collector.map_or(PollerMessage::RequestsChanged, PollerMessage::FilesChanged));
        };
        let watcher = FileWatcher::of_collectors(&self.host, index_of, self.state.requests_folder(), on_change);
        loop {
            self.heartbeat.increment();
            if !self.apply_requests() {
                break;
            }
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
                if let Some(watcher) = &watcher {
                    watcher.refresh();
                }
            }
            if !self.idle() {
                break;
            }
        }
        let last = self.publish.borrow().as_ref().map(|published| Arc::clone(&published.report));
        if let Some(report) = last {
            self.state.finish(&mut self.engine, &report);
        }
    }

    /// Applies the requests that wait, saves, and answers them; false when told to stop.
    pub fn apply_requests(&mut self) -> bool {
        let Some(applied) = self.state.take_requests(&mut self.engine, self.clock.now()) else { return true };
        if applied.accepts {
            // What is there now, and not what was there at the last pass.
            let all: Vec<usize> = (0..self.collectors.len()).collect();
            let now = self.clock.now().tick;
            if !self.read(&all, now, Depth::Full, true, self.longest_deadline()) {
                // Neither saved nor answered as applied: the next start applies them.
                return false;
            }
            self.engine.forget_baseline();
        }
        self.state.mark_applied(&applied);
        self.publish();
        self.state.answer(applied, &self.engine);
        true
    }

    /// One pass of everything; waits until every reader has responded or is stuck, or `limit` is over.
    pub fn pass(&mut self, limit: Duration) -> Arc<HostReport> {
        let now = self.clock.now().tick;
        let all: Vec<usize> = (0..self.collectors.len()).collect();
        self.read(&all, now, Depth::Full, true, limit);
        self.publish()
    }

    fn longest_deadline(&self) -> Duration {
        let longest = self.collectors.iter().map(|collector| collector.spec.deadline).max();
        // For the listing and then for the readers, so that what hangs is stuck in the first report already.
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
        self.pool.add(tasks);
        if depth == Depth::Full {
            self.counters_read = Some(now);
            let whole = (0..).zip(&self.collectors).all(|(index, c)| !c.spec.fresh || due.contains(&index));
            self.fresh = if whole { Some(began) } else { self.fresh };
        }
        let mut checked = began;
        while self.collectors.iter().any(CollectorRunner::is_reading) {
            let now = Instant::now();
            if now >= until {
                break;
            }
            // By the clock and not by silence: however many ask meanwhile, workers are added.
            if now.duration_since(checked) >= WORKER_DELAY {
                checked = now;
                self.heartbeat.increment();
                self.add_workers(now);
                continue;
            }
            match self.inbox.recv_timeout(until.saturating_duration_since(now).min(WORKER_DELAY)) {
                Ok(message) => {
                    if !self.handle_message(message) {
                        return false;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return false,
            }
        }
        true
    }

    /// Adds workers for readings that wait, and finds what has not come back in time.
    fn add_workers(&mut self, now: Instant) {
        self.collect_results();
        if let Err(error) = self.pool.add_workers() {
            tracing::error!("no more threads: {error}");
        }
        self.collectors.iter_mut().for_each(|collector| collector.expire(now));
    }

    /// Takes the pool's results and queues the readings that follow from them.
    fn collect_results(&mut self) {
        let mut tasks = Vec::new();
        for result in self.pool.collect() {
            let Some(collector) = self.collectors.get_mut(result.index()) else { continue };
            if let Some((device, took)) = collector.accept(result, &mut tasks) {
                let name = collector.spec.name;
                tracing::warn!(collector = name, device = &*device, "responds again after {} s", took.as_secs());
            }
        }
        self.pool.add(tasks);
    }

    /// Waits for the next thing to do; false when told to stop.
    fn idle(&mut self) -> bool {
        while self.waiting.is_empty() && !std::mem::take(&mut self.requests_changed) {
            let now = self.clock.now().tick;
            let next = self.collectors.iter().map(|c| c.due.map_or(Duration::ZERO, |due| due.since(now))).min();
            let left = next.unwrap_or(COUNTERS);
            if left.is_zero() {
                return true;
            }
            match self.inbox.recv_timeout(left.min(self.max_sleep)) {
                Ok(message) => {
                    if !self.handle_message(message) {
                        return false;
                    }
                }
                Err(RecvTimeoutError::Timeout) => return true,
                Err(RecvTimeoutError::Disconnected) => return false,
            }
        }
        true
    }

    /// Handles one message; false when it says stop.
    fn handle_message(&mut self, message: PollerMessage) -> bool {
        match message {
            PollerMessage::PoolIdle => self.collect_results(),
            // The next round of the loop applies them.
            PollerMessage::RequestsChanged => self.requests_changed = true,
            PollerMessage::FilesChanged(index) => {
                let now = self.clock.now().tick;
                self.collectors.get_mut(index).into_iter().for_each(|collector| collector.hasten(now));
            }
            PollerMessage::ReportWanted(age, reply) => {
                self.waiting.push(ReportRequest { asked: Instant::now(), age, reply });
                self.answer();
            }
            PollerMessage::Policy(policy, text) => {
                self.engine.set_policy(policy);
                self.note(EventKind::Reloaded, text);
            }
            PollerMessage::Probe(run) => {
                self.engine.record(*run, self.clock.now());
                self.state.mark_unsaved();
            }
            PollerMessage::Stop => return false,
        }
        true
    }

    /// Judges what was read.
    fn evaluate(&mut self) -> Arc<HostReport> {
        let taken = self.clock.now();
        let now = Instant::now();
        let states = self.collectors.iter_mut().map(|collector| collector.state(now, taken)).collect();
        let facts = self.collectors.iter().flat_map(CollectorRunner::facts);
        let snapshot = Snapshot::new(taken, facts, states);
        self.engine.look_for_maintenance(taken.wall, |marker| self.marker.exists(marker));
        Arc::new(self.engine.observe(snapshot))
    }

    /// Judges what was read and lets everyone see it.
    fn publish(&mut self) -> Arc<HostReport> {
        let report = self.evaluate();
        if self.logs_findings {
            let changes = self.engine.take_finding_changes();
            changes.began.iter().for_each(log_beginning);
            changes.ended.iter().for_each(log_end);
        }
        self.state.persist(&mut self.engine, &report);
        let published = PublishedReport { report: Arc::clone(&report), began: self.fresh.unwrap_or_else(Instant::now) };
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
}

fn log_beginning(finding: &Finding) {
    let condition = &finding.condition;
    let (check, subject, summary) = (condition.check.as_str(), condition.subject.to_string(), &condition.summary);
    match condition.severity {
        Severity::Critical => tracing::error!(check, subject, "{summary}"),
        Severity::Warning => tracing::warn!(check, subject, "{summary}"),
        Severity::Info => tracing::info!(check, subject, "{summary}"),
    }
}

fn log_end(finding: &Finding) {
    let condition = &finding.condition;
    let (check, subject) = (condition.check.as_str(), condition.subject.to_string());
    tracing::info!(check, subject, "ended: {}", condition.summary);
}
