//! The poller as others see it: requests for reports, changes of policy, its end, and its heartbeat for the watchdog.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use tokio::sync::{oneshot, watch};

use super::report::HostReport;
use crate::model::benchmark::BenchmarkRun;
use crate::model::policy::Policy;

/// A report and when its reading began.
#[derive(Debug, Clone)]
pub struct PublishedReport {
    /// The report.
    pub report: Arc<HostReport>,
    /// When the reading of what a scrape wants fresh began.
    pub began: Instant,
}

/// A message to the poller.
pub enum PollerMessage {
    /// The reader pool has run out of work.
    PoolIdle,
    /// Files that this collector reads have changed.
    FilesChanged(usize),
    /// A command has handed over a request.
    RequestsChanged,
    /// Someone wants facts no older than this.
    ReportWanted(Duration, oneshot::Sender<Arc<HostReport>>),
    /// The policy changed; a sentence for the events.
    Policy(Arc<Policy>, String),
    /// A probe ran, or was skipped.
    Probe(Box<BenchmarkRun>),
    /// Stop.
    Stop,
}

/// A way to talk to a running poller.
#[derive(Debug, Clone)]
pub struct PollerHandle {
    pub(super) inbox: Sender<PollerMessage>,
    pub(super) latest: watch::Receiver<Option<PublishedReport>>,
}

impl PollerHandle {
    /// The newest report, however old.
    pub fn latest(&self) -> Option<Arc<HostReport>> {
        self.latest.borrow().as_ref().map(|published| Arc::clone(&published.report))
    }

    /// A report whose reading began no longer than `age` ago; the newest there is when `wait` is over before that.
    pub async fn report(&self, age: Duration, wait: Duration) -> Option<Arc<HostReport>> {
        if let Some(published) = &*self.latest.borrow()
            && published.began.elapsed() <= age
        {
            return Some(Arc::clone(&published.report));
        }
        let (reply, answer) = oneshot::channel();
        if self.inbox.send(PollerMessage::ReportWanted(age, reply)).is_err() {
            return self.latest();
        }
        match tokio::time::timeout(wait, answer).await {
            Ok(Ok(report)) => Some(report),
            _ => self.latest(),
        }
    }

    /// Replaces the policy; `text` goes to the events.
    pub fn set_policy(&self, policy: Arc<Policy>, text: String) {
        // A poller that has stopped needs no policy.
        let _ = self.inbox.send(PollerMessage::Policy(policy, text));
    }

    /// Hands over what came of a probe.
    pub fn record(&self, run: BenchmarkRun) {
        let _ = self.inbox.send(PollerMessage::Probe(Box::new(run)));
    }

    /// Asks the poller to stop.
    pub fn stop(&self) {
        let _ = self.inbox.send(PollerMessage::Stop);
    }
}

/// Counts the poller's rounds. The count rises as long as readings are collected and assessed, whatever hangs in a
/// collector.
#[derive(Debug, Clone, Default)]
pub struct Heartbeat(Arc<AtomicU64>);

impl Heartbeat {
    /// Counts one more round.
    pub(super) fn increment(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of rounds so far.
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
