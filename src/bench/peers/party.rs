//! The hosts that measure with each other, as this one sees them.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use super::caller::{Caller, Transport};
use super::list::split;
use super::pairing::{Meeting, Tournament};

/// A meeting is kept while no more than this part of its slot is over: its partner's clock may be another.
const LATE: u32 = 4;

/// The hosts.
pub struct Party {
    names: Vec<String>,
    slot: Duration,
    concurrency: usize,
    key: Option<PathBuf>,
    transport: Box<dyn Transport>,
    now: Mutex<Now>,
}

struct Now {
    tournament: Tournament,
    me: Option<Arc<str>>,
    /// The last slot that was looked at.
    slot: Option<u64>,
}

impl Party {
    /// One without hosts. `names`: what this host may be called in the list. `concurrency`: hosts that may measure at
    /// once. `key`: the file of the key to sign requests with.
    pub fn new(
        names: Vec<String>,
        slot: Duration,
        concurrency: usize,
        key: Option<PathBuf>,
        transport: Box<dyn Transport>,
    ) -> Self {
        let now = Now { tournament: Tournament::new([], slot, concurrency), me: None, slot: None };
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
        now.tournament = Tournament::new(hosts, self.slot, self.concurrency);
        now.me = me;
        found
    }

    /// The meeting that this host should measure in now; each comes once.
    pub fn due(&self, now: SystemTime) -> Option<Meeting> {
        let mut state = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        let (slot, over) = state.tournament.slot_at(now);
        if state.slot == Some(slot) || over > self.slot / LATE {
            return None;
        }
        state.slot = Some(slot);
        let me = state.me.as_ref()?;
        state.tournament.meeting(me, slot).filter(|meeting| meeting.measures)
    }

    /// Time until the next slot.
    pub fn wait(&self, now: SystemTime) -> Duration {
        let state = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, over) = state.tournament.slot_at(now);
        self.slot.saturating_sub(over).max(Duration::from_millis(100))
    }

    /// How to ask a peer.
    pub fn caller<'a>(&'a self, peer: &Arc<str>, rail: u32, now: &'a dyn Fn() -> SystemTime) -> Caller<'a> {
        Caller { transport: &*self.transport, key: self.key.as_deref(), to: Arc::clone(peer), rail, now }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::peers::caller::Reply;

    struct Nobody;

    impl Transport for Nobody {
        fn post(&self, _: &str, _: &[(&'static str, String)], _: Vec<u8>) -> Result<Reply, String> {
            Err("nobody".to_owned())
        }
    }

    fn party(name: &str) -> Party {
        Party::new(vec![name.to_owned()], Duration::from_secs(600), 64, None, Box::new(Nobody))
    }

    fn hosts(names: &[&str]) -> BTreeSet<Arc<str>> {
        names.iter().map(|name| Arc::from(*name)).collect()
    }

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn one_of_a_pair_measures_once_a_slot() {
        let (one, other) = (party("a"), party("b:1"));
        for party in [&one, &other] {
            assert!(party.set_hosts(hosts(&["a:1", "b:1"])));
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
        let party = party("a:1");
        party.set_hosts(hosts(&["a:1", "b:1"]));
        assert!((0..4).all(|slot| party.due(at(slot * 600 + 151)).is_none()));
        assert_eq!(party.wait(at(600 + 151)), Duration::from_secs(449));
    }

    #[test]
    fn who_is_not_in_the_list_has_no_partner() {
        let party = party("c");
        assert!(!party.set_hosts(hosts(&["a:1", "b:1"])));
        assert!((0..4).all(|slot| party.due(at(slot * 600)).is_none()));
        assert!(party.set_hosts(hosts(&["a:1", "c:1"])));
        assert!((4..6).any(|slot| party.due(at(slot * 600)).is_some()), "now it is");
    }
}
