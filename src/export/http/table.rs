//! The open connections: how many there may be, and what they may hold. hyper has no such limits.
//!
//! | limit | default |
//! |---|---|
//! | connections | 2,000 in all, 512 of an address |
//! | answers that clients have not taken yet | 512 in all, 256 of an address |
//! | bytes of different bodies among them | 32 MiB |
//!
//! Beyond a limit the newest client is served, and an older one makes room: an idle connection, or a reader of the
//! oldest body. Otherwise a crowd of slow readers would lock out everyone who comes later.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::task::AbortHandle;

use crate::export::clients::{ClientCounts, ClosedConnection, ClosedCounts};
use crate::export::web::origin;

/// What clients may hold at a time.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConnectionLimits {
    /// Connections in all.
    pub(super) connections: usize,
    /// Connections of an address; of IPv6 a /64 network is one.
    pub(super) connections_each: usize,
    /// Answers in all that are not taken yet.
    pub(super) answers: usize,
    /// The same of an address.
    pub(super) answers_each: usize,
    /// Bytes of different bodies that are not taken yet; a body that many read at a time counts once.
    pub(super) body_bytes: usize,
}

impl ConnectionLimits {
    /// The limits with so many connections and bytes of bodies in all.
    pub(super) fn new(connections: usize, body_bytes: usize) -> Self {
        let connections = connections.max(1);
        Self { connections, connections_each: connections.min(512), answers: 512, answers_each: 256, body_bytes }
    }
}

/// Closed connections are logged at most this often.
const LOGGED_EVERY: Duration = Duration::from_secs(60);

/// The phase of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Phase {
    /// Waiting for a request.
    Idle,
    /// Reading a request's head.
    ReadingHead,
    /// Making an answer.
    Handling,
    /// Writing it.
    Responding,
}

/// The open connections.
pub(super) struct ConnectionTable {
    limits: ConnectionLimits,
    counts: Arc<ClientCounts>,
    open: Mutex<OpenConnections>,
}

#[derive(Default)]
struct OpenConnections {
    next: u64,
    by_age: BTreeMap<u64, OpenConnection>,
    /// Answers that are not taken yet, by connection.
    answers: BTreeMap<u64, HeldAnswer>,
    logged: Option<Instant>,
}

struct OpenConnection {
    origin: [u8; 8],
    task: AbortHandle,
    state: Arc<ConnectionState>,
}

struct HeldAnswer {
    origin: [u8; 8],
    /// Where the body is in memory: the same for all who read it.
    body: usize,
    length: usize,
    /// Orders bodies and answers by age.
    body_number: u64,
    number: u64,
}

/// Who has to make room.
#[derive(Debug, Clone, Copy)]
enum Clients {
    All,
    Of([u8; 8]),
}

impl Clients {
    fn include(self, origin: [u8; 8]) -> bool {
        match self {
            Self::All => true,
            Self::Of(only) => only == origin,
        }
    }
}

#[derive(Debug, Default)]
struct ConnectionState {
    phase: AtomicU8,
    reset: AtomicBool,
}

impl ConnectionState {
    fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Relaxed) {
            0 => Phase::Idle,
            1 => Phase::ReadingHead,
            2 => Phase::Handling,
            _ => Phase::Responding,
        }
    }
}

impl ConnectionTable {
    pub(super) fn new(limits: ConnectionLimits, counts: Arc<ClientCounts>) -> Self {
        Self { limits, counts, open: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, OpenConnections> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a connection, whose task `start` begins. Beyond a limit another one makes room; if none can, the new one
    /// is dropped.
    pub(super) fn admit(self: &Arc<Self>, peer: IpAddr, start: impl FnOnce(ConnectionEntry) -> AbortHandle) {
        let origin = origin(Some(peer));
        let mut open = self.lock();
        let of_origin = open.by_age.values().filter(|other| other.origin == origin).count();
        let too_many = of_origin >= self.limits.connections_each;
        let within = if too_many { Clients::Of(origin) } else { Clients::All };
        if too_many || open.by_age.len() >= self.limits.connections {
            let oldest_answer = || open.oldest_answer(within, None).map(|id| (id, ClosedConnection::TooManyAnswers));
            let idle = open.oldest_idle(within).map(|id| (id, ClosedConnection::TooManyConnections));
            match idle.or_else(oldest_answer) {
                Some((id, why)) => self.close(&mut open, id, why),
                None => return self.count(&mut open, ClosedConnection::TooManyConnections),
            }
        }
        let id = open.next;
        open.next += 1;
        let state = Arc::new(ConnectionState::default());
        // The lock is held until the connection is entered, so that its task cannot leave before.
        let task = start(ConnectionEntry { id, state: Arc::clone(&state), table: Arc::clone(self) });
        open.by_age.insert(id, OpenConnection { origin, task, state });
    }

    /// Makes room if the system has no more descriptors.
    pub(super) fn close_oldest_idle(&self) {
        let mut open = self.lock();
        if let Some(id) = open.oldest_idle(Clients::All) {
            self.close(&mut open, id, ClosedConnection::TooManyConnections);
        }
    }

    /// Closes every connection for this reason.
    pub(super) fn close_all(&self, why: ClosedConnection) {
        let mut open = self.lock();
        let ids: Vec<u64> = open.by_age.keys().copied().collect();
        for id in ids {
            self.close(&mut open, id, why);
        }
    }

    /// Ends what is still open when the agent ends.
    pub(super) fn abort_all(&self) {
        for connection in self.lock().by_age.values() {
            connection.task.abort();
        }
    }

    fn close(&self, open: &mut OpenConnections, id: u64, why: ClosedConnection) {
        open.answers.remove(&id);
        if let Some(connection) = open.by_age.remove(&id) {
            connection.state.reset.store(true, Ordering::Relaxed);
            connection.task.abort();
        }
        self.count(open, why);
    }

    fn count(&self, open: &mut OpenConnections, why: ClosedConnection) {
        self.counts.close(why);
        let now = Instant::now();
        if open.logged.is_none_or(|logged| now.duration_since(logged) >= LOGGED_EVERY) {
            open.logged = Some(now);
            let [slow_reader, too_many_answers, too_many_connections, access_tightened]: ClosedCounts =
                self.counts.closed();
            tracing::warn!(
                slow_reader,
                too_many_answers,
                too_many_connections,
                access_tightened,
                open = open.by_age.len(),
                "connections closed by the server, since start by reason; logged once a minute"
            );
        }
    }

    fn begin_answer(&self, id: u64, body: &Bytes) {
        let mut open = self.lock();
        let Some(origin) = open.by_age.get(&id).map(|connection| connection.origin) else { return };
        let (number, address) = (open.next, body.as_ptr().addr());
        open.next += 1;
        let known = open.answers.values().find(|answer| answer.body == address && answer.length == body.len());
        let body_number = known.map_or(number, |answer| answer.body_number);
        let answer = HeldAnswer { origin, body: address, length: body.len(), body_number, number };
        open.answers.insert(id, answer);
        while let Some(within) = open.beyond(&self.limits, origin) {
            let Some(oldest) = open.oldest_answer(within, Some(id)) else { return };
            self.close(&mut open, oldest, ClosedConnection::TooManyAnswers);
        }
    }
}

impl OpenConnections {
    /// The connection that was accepted first of those that have no request at hand.
    fn oldest_idle(&self, clients: Clients) -> Option<u64> {
        let idle = |connection: &OpenConnection| {
            matches!(connection.state.phase(), Phase::Idle | Phase::ReadingHead) && clients.include(connection.origin)
        };
        let mut idle = self.by_age.iter().filter(|(_, connection)| idle(connection)).map(|(id, _)| *id);
        idle.find(|id| !self.answers.contains_key(id))
    }

    /// The reader of the oldest body, the first of them; `spared` is none of them.
    fn oldest_answer(&self, clients: Clients, spared: Option<u64>) -> Option<u64> {
        let other = |(id, answer): &(&u64, &HeldAnswer)| Some(**id) != spared && clients.include(answer.origin);
        let oldest = self.answers.iter().filter(other).min_by_key(|(_, answer)| (answer.body_number, answer.number));
        oldest.map(|(id, _)| *id)
    }

    /// Whose answers are beyond a limit; `None` if nobody's.
    fn beyond(&self, limits: &ConnectionLimits, origin: [u8; 8]) -> Option<Clients> {
        if self.answers.values().filter(|answer| answer.origin == origin).count() > limits.answers_each {
            return Some(Clients::Of(origin));
        }
        let bodies: BTreeMap<usize, usize> = self.answers.values().map(|answer| (answer.body, answer.length)).collect();
        let too_long = bodies.len() > 1 && bodies.values().sum::<usize>() > limits.body_bytes;
        (self.answers.len() > limits.answers || too_long).then_some(Clients::All)
    }
}

/// A connection's entry, for as long as its task lives.
pub(super) struct ConnectionEntry {
    id: u64,
    state: Arc<ConnectionState>,
    table: Arc<ConnectionTable>,
}

impl ConnectionEntry {
    pub(super) fn phase(&self) -> Phase {
        self.state.phase()
    }

    pub(super) fn set_phase(&self, phase: Phase) {
        self.state.phase.store(phase as u8, Ordering::Relaxed);
    }

    /// Enters an answer; readers of older ones may have to make room.
    pub(super) fn begin_answer(&self, body: &Bytes) {
        self.table.begin_answer(self.id, body);
    }

    /// The client has taken all of its answer.
    pub(super) fn end_answer(&self) {
        self.table.lock().answers.remove(&self.id);
    }

    /// The client is out of time to take its answer.
    pub(super) fn is_too_slow(&self) {
        self.state.reset.store(true, Ordering::Relaxed);
        let mut open = self.table.lock();
        self.table.count(&mut open, ClosedConnection::SlowReader);
    }

    /// Whether the connection ends without sending what the kernel still holds of an answer.
    pub(super) fn is_reset(&self) -> bool {
        self.state.reset.load(Ordering::Relaxed)
    }
}

impl Drop for ConnectionEntry {
    fn drop(&mut self) {
        let mut open = self.table.lock();
        open.answers.remove(&self.id);
        open.by_age.remove(&self.id);
    }
}
