//! Benchmarks between hosts: who measures with whom, and how one asks the other to start a server.
//!
//! There is no coordinator. Every host reads the same list and computes the same pairs; a host that measures asks its
//! partner over HTTP (`POST /api/v1/probe-server`). A request names a program and bounded numbers, nothing else, and is
//! signed with a key that the hosts share, or comes over a connection with a verified client certificate.

pub mod authentication;
pub mod http_peer;
pub mod request;
pub mod schedule;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use http_peer::{HttpPeer, PeerTransport};
use schedule::{PeerSchedule, SlotAssignment, split};

pub mod servers;

/// An assignment is valid while no more than this part of its slot is over: its partner's clock may be another.
const LATE: u32 = 4;

/// The hosts.
pub struct PeerRuntime {
    names: Vec<String>,
    slot: Duration,
    concurrency: usize,
    key: Option<PathBuf>,
    transport: Box<dyn PeerTransport>,
    now: Mutex<Now>,
}

struct Now {
    schedule: PeerSchedule,
    me: Option<Arc<str>>,
    /// The last slot that was looked at.
    slot: Option<u64>,
}

impl PeerRuntime {
    /// One without hosts. `names`: what this host may be called in the list. `concurrency`: hosts that may measure at
    /// once. `key`: the file of the key to sign requests with.
    pub fn new(
        names: Vec<String>,
        slot: Duration,
        concurrency: usize,
        key: Option<PathBuf>,
        transport: Box<dyn PeerTransport>,
    ) -> Self {
        let now = Now { schedule: PeerSchedule::new([], slot, concurrency), me: None, slot: None };
        Self { names, slot, concurrency, key, transport, now: Mutex::new(now) }
    }

    /// What this host may be called in the list.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Takes a list of hosts. Whether this one is in it comes back: else nobody is its partner.
    pub fn set_hosts(&self, hosts: BTreeSet<Arc<str>>) -> bool {
        let whole = hosts.iter().find(|host| self.names.iter().any(|name| name == &***host));
        let named = |host: &&Arc<str>| split(host).is_some_and(|(host, _)| self.names.iter().any(|name| name == host));
        let me = whole.or_else(|| hosts.iter().find(named)).cloned();
        let found = me.is_some();
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        now.schedule = PeerSchedule::new(hosts, self.slot, self.concurrency);
        now.me = me;
        found
    }

    /// The assignment that this host should measure in now; each comes once.
    pub fn due(&self, now: SystemTime) -> Option<SlotAssignment> {
        let mut state = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        let (slot, over) = state.schedule.slot_at(now);
        if state.slot == Some(slot) || over > self.slot / LATE {
            return None;
        }
        state.slot = Some(slot);
        let me = state.me.as_ref()?;
        state.schedule.assignment(me, slot).filter(|assignment| assignment.measures)
    }

    /// Time until the next slot.
    pub fn wait(&self, now: SystemTime) -> Duration {
        let state = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, over) = state.schedule.slot_at(now);
        self.slot.saturating_sub(over).max(Duration::from_millis(100))
    }

    /// How to ask a peer.
    pub fn http_peer<'a>(&'a self, peer: &Arc<str>, rail: u32, now: &'a dyn Fn() -> SystemTime) -> HttpPeer<'a> {
        HttpPeer { transport: &*self.transport, key: self.key.as_deref(), to: Arc::clone(peer), rail, now }
    }
}

#[cfg(test)]
mod runtime_tests {
    use super::http_peer::HttpReply;
    use super::*;

    struct Nobody;

    impl PeerTransport for Nobody {
        fn post(&self, _: &str, _: &[(&'static str, String)], _: Vec<u8>) -> Result<HttpReply, String> {
            Err("nobody".to_owned())
        }
    }

    fn peer_runtime(name: &str) -> PeerRuntime {
        PeerRuntime::new(vec![name.to_owned()], Duration::from_secs(600), 64, None, Box::new(Nobody))
    }

    fn hosts(names: &[&str]) -> BTreeSet<Arc<str>> {
        names.iter().map(|name| Arc::from(*name)).collect()
    }

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn one_of_a_pair_measures_once_a_slot() {
        let (one, other) = (peer_runtime("a"), peer_runtime("b:1"));
        for peer_runtime in [&one, &other] {
            assert!(peer_runtime.set_hosts(hosts(&["a:1", "b:1"])));
        }
        let mut measured = [0, 0];
        for slot in 0..10 {
            let now = at(slot * 600 + 1);
            let due = [one.due(now), other.due(now)];
            assert_eq!(due.iter().flatten().count(), 1);
            for (count, due) in measured.iter_mut().zip(&due) {
                *count += u32::from(due.is_some());
            }
            assert!(one.due(now).is_none() && other.due(now).is_none(), "not twice");
        }
        assert_eq!(measured, [5, 5]);
    }

    #[test]
    fn late_is_not_at_all() {
        let peer_runtime = peer_runtime("a:1");
        peer_runtime.set_hosts(hosts(&["a:1", "b:1"]));
        assert!((0..4).all(|slot| peer_runtime.due(at(slot * 600 + 151)).is_none()));
        assert_eq!(peer_runtime.wait(at(600 + 151)), Duration::from_secs(449));
    }

    #[test]
    fn who_is_not_in_the_list_has_no_partner() {
        let peer_runtime = peer_runtime("c");
        assert!(!peer_runtime.set_hosts(hosts(&["a:1", "b:1"])));
        assert!((0..4).all(|slot| peer_runtime.due(at(slot * 600)).is_none()));
        assert!(peer_runtime.set_hosts(hosts(&["a:1", "c:1"])));
        assert!((4..6).any(|slot| peer_runtime.due(at(slot * 600)).is_some()), "now it is");
    }
}
