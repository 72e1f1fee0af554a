//! Clients that the server turned away or cut off: why, and how many.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::export::web::TlsRejection;

/// Why the server closed a connection of its own accord: the `reason` label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClosedConnection {
    /// The client takes an answer more slowly than the least rate, or has not taken it within the longest time.
    SlowReader,
    /// Too many answers, or bytes of them, were waiting for clients to take them; this one was among the oldest.
    TooManyAnswers,
    /// Too many connections, in all or of one address; this one was idle the longest, or there was no room for it.
    TooManyConnections,
    /// The web configuration asks for more than when the connection was opened.
    AccessTightened,
}

impl ClosedConnection {
    /// All, in the order of the metrics.
    pub const ALL: [Self; 4] =
        [Self::SlowReader, Self::TooManyAnswers, Self::TooManyConnections, Self::AccessTightened];

    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SlowReader => "slow_reader",
            Self::TooManyAnswers => "too_many_answers",
            Self::TooManyConnections => "too_many_connections",
            Self::AccessTightened => "access_tightened",
        }
    }
}

/// How many clients got no encrypted connection, in the order of [`TlsRejection::ALL`].
pub type TlsRejectionCounts = [u64; TlsRejection::ALL.len()];

/// How many connections the server closed, in the order of [`ClosedConnection::ALL`].
pub type ClosedCounts = [u64; ClosedConnection::ALL.len()];

/// Counts of clients since the agent started. They are kept apart from the state of the agent: a client must not be
/// able to make every answer be encoded anew.
#[derive(Debug, Default)]
pub struct ClientCounts {
    rejected: [AtomicU64; TlsRejection::ALL.len()],
    closed: [AtomicU64; ClosedConnection::ALL.len()],
}

impl ClientCounts {
    /// Counts a client that got no encrypted connection.
    pub fn reject(&self, why: TlsRejection) {
        add(&self.rejected, TlsRejection::ALL.iter().position(|known| *known == why));
    }

    /// Counts a connection that was closed.
    pub fn close(&self, why: ClosedConnection) {
        add(&self.closed, ClosedConnection::ALL.iter().position(|known| *known == why));
    }

    /// Clients that got no encrypted connection.
    pub fn rejected(&self) -> TlsRejectionCounts {
        std::array::from_fn(|index| load(&self.rejected, index))
    }

    /// Connections that were closed.
    pub fn closed(&self) -> ClosedCounts {
        std::array::from_fn(|index| load(&self.closed, index))
    }
}

fn add(counts: &[AtomicU64], index: Option<usize>) {
    if let Some(count) = index.and_then(|index| counts.get(index)) {
        count.fetch_add(1, Ordering::Relaxed);
    }
}

fn load(counts: &[AtomicU64], index: usize) -> u64 {
    counts.get(index).map_or(0, |count| count.load(Ordering::Relaxed))
}
