//! Who measures with whom, and when: a round-robin schedule by the circle method, worked out by every host for itself
//! from the same list and the same clock.
//!
//! One host stands still, the others move around it by one place a turn; who stands opposite are a pair. A turn pairs
//! every host once (of an odd number one rests), and after as many turns as there are places around, a round, every
//! pair has met once. Where fewer may measure at once than a turn pairs, the turn takes several slots.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The schedule of a list of hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerSchedule {
    hosts: Vec<Arc<str>>,
    slot: Duration,
    /// Pairs of a slot.
    at_once: u64,
}

/// What a host has to do in a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotAssignment {
    /// The number of the slot, counted from 1970.
    pub slot: u64,
    /// The number of the round that it is part of.
    pub round: u64,
    /// The other host, as the list names it.
    pub peer: Arc<str>,
    /// Whether this host measures; else it is asked to.
    pub measures: bool,
}

impl PeerSchedule {
    /// The schedule of these hosts, in whatever order and however often they come. `concurrency`: hosts that may
    /// measure at once; a pair is two of them, and one pair always may.
    pub fn new(hosts: impl IntoIterator<Item = Arc<str>>, slot: Duration, concurrency: usize) -> Self {
        let mut hosts: Vec<Arc<str>> = hosts.into_iter().collect();
        hosts.sort();
        hosts.dedup();
        let at_once = number(concurrency / 2).max(1);
        Self { hosts, slot: slot.max(Duration::from_secs(1)), at_once }
    }

    /// How many hosts there are.
    pub fn len(&self) -> usize {
        self.hosts.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    /// Whether a host is one of them.
    pub fn has(&self, host: &str) -> bool {
        self.place(host).is_some()
    }

    /// Slots in which every pair meets once; 0 where there is no pair.
    pub fn slots(&self) -> u64 {
        self.turns() * self.slots_of_a_turn()
    }

    /// The slot of a moment, and how long it has lasted.
    pub fn slot_at(&self, now: SystemTime) -> (u64, Duration) {
        let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let slot = u64::try_from(since.as_nanos() / self.slot.as_nanos()).unwrap_or(u64::MAX);
        let begun = self.slot.as_nanos() * u128::from(slot);
        (slot, Duration::from_nanos(u64::try_from(since.as_nanos() - begun).unwrap_or(0)))
    }

    /// How long a slot is.
    pub fn slot(&self) -> Duration {
        self.slot
    }

    /// What a host has to do in a slot, if anything.
    pub fn assignment(&self, host: &str, slot: u64) -> Option<SlotAssignment> {
        let place = self.place(host)?;
        let (round, turn, wave) = self.moment(slot)?;
        let (other, pair) = self.opposite(place, turn)?;
        if pair / self.at_once != wave {
            return None;
        }
        let peer = Arc::clone(self.hosts.get(usize::try_from(other).ok()?)?);
        // Each of a pair measures in every other round, and about half of the hosts in a slot.
        let lower = (place + other + round).is_multiple_of(2);
        Some(SlotAssignment { slot, round, peer, measures: (place < other) == lower })
    }

    fn place(&self, host: &str) -> Option<u64> {
        self.hosts.binary_search_by(|known| (**known).cmp(host)).ok().map(number)
    }

    /// Round, turn in it and slot in that.
    fn moment(&self, slot: u64) -> Option<(u64, u64, u64)> {
        let within = slot.checked_rem(self.slots())?;
        let waves = self.slots_of_a_turn();
        Some((slot / self.slots(), within / waves, within % waves))
    }

    fn turns(&self) -> u64 {
        let hosts = number(self.hosts.len());
        if hosts < 2 { 0 } else { hosts + hosts % 2 - 1 }
    }

    fn slots_of_a_turn(&self) -> u64 {
        (number(self.hosts.len()) / 2).div_ceil(self.at_once)
    }

    /// Who stands opposite of a place in a turn, and which pair of the turn that is; none where it rests.
    fn opposite(&self, place: u64, turn: u64) -> Option<(u64, u64)> {
        let (hosts, around) = (number(self.hosts.len()), self.turns());
        // The place opposite of the one that stands still; the turn is twice that, around the circle.
        let alone = turn * around.div_ceil(2) % around.max(1);
        let odd = hosts % 2;
        if place == around {
            return Some((alone, 0));
        }
        let beside = (place + around - alone) % around;
        let apart = beside.min(around - beside);
        if apart == 0 {
            // Of an odd number nobody stands still, and this one rests.
            return (odd == 0).then_some((around, 0));
        }
        Some(((alone + around - beside) % around, apart - odd))
    }
}

fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
