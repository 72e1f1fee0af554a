//! The poller's sign of life, for the watchdog.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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
