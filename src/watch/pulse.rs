//! The poller's sign of life: it goes on only while readings are taken up and judged, whatever hangs in a collector.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts how often the poller went round.
#[derive(Debug, Clone, Default)]
pub struct Pulse(Arc<AtomicU64>);

impl Pulse {
    /// The poller went round once more.
    pub(super) fn beat(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// How often it did.
    pub fn beats(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
