//! When things that have a history were last there, so that what is remembered of them is bounded.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::model::time::BootTime;

/// Histories of what is gone are forgotten after this time.
const GONE_AGE: Duration = Duration::from_secs(24 * 3600);

/// Most histories of each kind of what is gone; the oldest are forgotten first.
const MAX_GONE: usize = 1024;

/// When each thing that has a history was last there.
#[derive(Debug)]
pub(super) struct LastSeen<K>(BTreeMap<K, BootTime>);

impl<K> Default for LastSeen<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord + Clone> LastSeen<K> {
    /// Notes which of the known things are there now, and returns those to forget.
    pub(super) fn expire(&mut self, known: BTreeSet<K>, is_present: impl Fn(&K) -> bool, now: BootTime) -> Vec<K> {
        for key in known {
            let is_present = is_present(&key);
            let seen = self.0.entry(key).or_insert(now);
            if is_present {
                *seen = now;
            }
        }
        let gone = self.0.iter().filter(|(_, seen)| **seen != now).map(|(key, seen)| (*seen, key.clone()));
        let mut gone: Vec<(BootTime, K)> = gone.collect();
        gone.sort();
        let surplus = gone.len().saturating_sub(MAX_GONE);
        let is_expired =
            |(position, (seen, _)): &(usize, (BootTime, K))| *position < surplus || now.since(*seen) > GONE_AGE;
        let expired: Vec<K> = gone.into_iter().enumerate().filter(is_expired).map(|(_, (_, key))| key).collect();
        for key in &expired {
            self.0.remove(key);
        }
        expired
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_gone_is_forgotten_by_age_and_by_number_oldest_first() {
        let (mut seen, at) = (LastSeen::<u64>::default(), |seconds: i64| BootTime(seconds * 1000));
        let is_even = |key: &u64| key.is_multiple_of(2);
        assert_eq!(seen.expire(BTreeSet::from([1, 2]), is_even, at(0)), [0u64; 0]);
        assert_eq!(seen.expire(BTreeSet::from([1, 2]), is_even, at(24 * 3600)), [0u64; 0]);
        assert_eq!(seen.expire(BTreeSet::from([1, 2]), is_even, at(24 * 3600 + 1)), [1]);
        assert_eq!(seen.expire(BTreeSet::from([2]), is_even, at(72 * 3600)), [0u64; 0]);
        assert_eq!(seen.expire(BTreeSet::new(), is_even, at(100 * 3600)), [2]);
        // Two more than are remembered: the first two go.
        for number in 0..MAX_GONE as u64 {
            let now = at(101 * 3600 + i64::try_from(number).unwrap());
            assert_eq!(seen.expire(BTreeSet::from([number]), |_| true, now), [0u64; 0]);
        }
        assert_eq!(seen.expire(BTreeSet::from([2000, 2001]), |_| true, at(102 * 3600)), [0u64; 0]);
        assert_eq!(seen.expire(BTreeSet::new(), |_| true, at(103 * 3600)), [0, 1]);
    }
}
