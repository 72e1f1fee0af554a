//! Who measures with whom, and when: a round-robin schedule by the circle method that every host computes from the same
//! list (in the format of Prometheus' file-based service discovery) and the same clock.
//!
//! One host stays in place, the others move around it by one position a turn; hosts in opposite positions are a pair. A
//! turn pairs every host once (of an odd number one rests), and after a round, as many turns as there are positions to
//! move through, every pair has met once. If fewer may measure at once than a turn pairs, the turn takes several slots.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::Deserialize;

use crate::host::fs::read_regular;

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

    /// Who stands opposite of a place in a turn, and which pair of the turn that is; `None` if it rests.
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

/// Longest file, in bytes.
const LONGEST: u64 = 8 << 20;
/// Most hosts.
const MOST: usize = 20_000;

/// One group; its labels are of no interest.
#[derive(Debug, Deserialize)]
struct Group {
    targets: Vec<String>,
}

/// Why there is no list.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct PeerListError(String);

/// Reads a list: JSON, or YAML.
///
/// # Errors
/// The file cannot be read, or is none.
pub fn read_peers(path: &Path) -> Result<BTreeSet<Arc<str>>, PeerListError> {
    let wrong = |why: &dyn std::fmt::Display| PeerListError(format!("{}: {why}", path.display()));
    let bytes = read_regular(path, LONGEST).map_err(|error| wrong(&error))?;
    let text = String::from_utf8(bytes).map_err(|_| wrong(&"it is not UTF-8"))?;
    parse(&text).map_err(|PeerListError(why)| wrong(&why))
}

/// Reads the text of a list.
///
/// # Errors
/// It is neither JSON nor YAML of that form, or names something that is no host with a port.
pub fn parse(text: &str) -> Result<BTreeSet<Arc<str>>, PeerListError> {
    let form = "a list of groups such as [{\"targets\": [\"node17:10015\"]}]";
    let groups: Vec<Group> = if text.trim_start().starts_with('[') {
        // JSON is YAML, but its own parser is faster by far and says better where it is wrong.
        serde_json::from_str(text).map_err(|error| PeerListError(format!("it is not {form}: {error}")))?
    } else {
        serde_saphyr::from_str(text).map_err(|error| PeerListError(format!("it is not {form}: {error}")))?
    };
    let mut hosts = BTreeSet::new();
    for target in groups.into_iter().flat_map(|group| group.targets) {
        if split(&target).is_none() {
            return Err(PeerListError(format!("{target:?} is not host:port, such as node17:10015")));
        }
        hosts.insert(Arc::from(target));
        if hosts.len() > MOST {
            return Err(PeerListError(format!("more than {MOST} hosts")));
        }
    }
    Ok(hosts)
}

/// Host and port of a target: a name, an address, or an IPv6 address in brackets, which are left out.
pub fn split(target: &str) -> Option<(&str, u16)> {
    let (host, port) = target.rsplit_once(':')?;
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let port = port.parse().ok().filter(|port| *port != 0)?;
    let named = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let sound = match inner {
        Some(inner) => inner.parse::<std::net::Ipv6Addr>().is_ok(),
        // A name that begins with a dash would be taken for an option.
        None => !host.is_empty() && host.len() <= 253 && !host.starts_with('-') && host.chars().all(named),
    };
    sound.then_some((inner.unwrap_or(host), port))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const SLOT: Duration = Duration::from_secs(600);

    fn name(index: usize) -> Arc<str> {
        Arc::from(format!("node{index:05}:10015"))
    }

    fn schedule(hosts: usize, concurrency: usize) -> PeerSchedule {
        PeerSchedule::new((0..hosts).map(name), SLOT, concurrency)
    }

    /// The pairs of a slot, the one that measures first; every host is asked for itself.
    fn pairs(schedule: &PeerSchedule, slot: u64) -> Vec<(Arc<str>, Arc<str>)> {
        let mut pairs = Vec::new();
        for host in &schedule.hosts {
            let Some(assignment) = schedule.assignment(host, slot) else { continue };
            let back = schedule.assignment(&assignment.peer, slot).unwrap();
            assert_eq!((&back.peer, back.measures), (host, !assignment.measures), "both know of it, and one measures");
            assert_ne!(*host, assignment.peer);
            if assignment.measures {
                pairs.push((Arc::clone(host), assignment.peer));
            }
        }
        pairs
    }

    #[test]
    fn few_hosts() {
        assert_eq!((schedule(0, 64).slots(), schedule(1, 64).slots()), (0, 0));
        assert_eq!(schedule(1, 64).assignment(&name(0), 5), None);
        assert_eq!(schedule(2, 64).slots(), 1);
        assert_eq!(pairs(&schedule(2, 0), 8).len(), 1, "one pair always may");
        assert_eq!(schedule(5, 64).slots(), 5);
        assert_eq!(schedule(6, 64).slots(), 5);
        assert_eq!(schedule(6, 2).slots(), 15);
        assert_eq!(schedule(6, 64).assignment("node99:10015", 3), None, "who is not in the list has no partner");
    }

    #[test]
    fn slots_are_of_the_clock() {
        let schedule = schedule(4, 64);
        let at = |seconds| schedule.slot_at(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!([at(0), at(599), at(600)].map(|(slot, _)| slot), [0, 0, 1]);
        assert_eq!(at(1_801).1, Duration::from_secs(1));
    }

    proptest! {
        #[test]
        fn every_pair_meets_once_in_a_round(hosts in 2usize..40, concurrency in 0usize..50, rounds in 0u64..3) {
            let schedule = schedule(hosts, concurrency);
            let mut met = BTreeSet::new();
            for slot in (0..schedule.slots()).map(|slot| rounds * schedule.slots() + slot) {
                let pairs = pairs(&schedule, slot);
                prop_assert!(pairs.len() * 2 <= concurrency.max(2), "the cap is kept");
                let busy: BTreeSet<_> = pairs.iter().flat_map(|(a, b)| [a, b]).collect();
                prop_assert_eq!(busy.len(), pairs.len() * 2, "nobody twice in a slot");
                for (one, other) in pairs {
                    prop_assert!(met.insert(if one < other { (one, other) } else { (other, one) }), "met before");
                }
            }
            prop_assert_eq!(met.len(), hosts * (hosts - 1) / 2);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn so_do_those_of_a_large_fleet(
            hosts in 2usize..=10_000,
            concurrency in 2usize..12_000,
            seed in any::<u64>(),
        ) {
            let schedule = schedule(hosts, concurrency);
            // One slot, of all hosts.
            let pairs = pairs(&schedule, seed);
            let busy: BTreeSet<_> = pairs.iter().flat_map(|(a, b)| [a, b]).collect();
            prop_assert!(busy.len() == pairs.len() * 2 && busy.len() <= concurrency);
            // One host, in all turns of a round: its partners are all the others.
            let place = seed % number(hosts);
            let mut met = vec![false; hosts];
            let mut rests = 0;
            for turn in 0..schedule.turns() {
                let Some((other, pair)) = schedule.opposite(place, turn) else {
                    rests += 1;
                    continue;
                };
                prop_assert_eq!(schedule.opposite(other, turn), Some((place, pair)));
                prop_assert!(pair < number(hosts / 2) && other != place);
                prop_assert!(!std::mem::replace(&mut met[usize::try_from(other).unwrap()], true));
            }
            prop_assert_eq!(rests, hosts % 2);
            prop_assert_eq!(met.iter().filter(|met| **met).count(), hosts - 1);
        }

        #[test]
        fn the_order_of_the_list_does_not_matter(
            hosts in 2usize..2_000,
            gone in 0usize..20,
            order in any::<prop::sample::Index>(),
            slot in any::<u64>(),
        ) {
            let left = hosts.saturating_sub(gone).max(2);
            let mut list: Vec<_> = (0..left).map(name).collect();
            let straight = PeerSchedule::new(list.clone(), SLOT, 64);
            list.rotate_left(order.index(left));
            list.reverse();
            list.extend([name(0), name(left - 1)]);
            let other = PeerSchedule::new(list, SLOT, 64);
            prop_assert_eq!(&other, &straight);
            prop_assert_eq!(pairs(&other, slot), pairs(&straight, slot));
            // Who had the list with the hosts that are gone and now has this one agrees with who had it from the start.
            let before = schedule(hosts, 64);
            prop_assert_eq!(before == straight, left == hosts);
        }
    }

    /// All pairs of a whole round of a fleet as large as they come, asked of every host in every turn.
    fn a_whole_round(hosts: usize) {
        let schedule = schedule(hosts, 64);
        let all = number(hosts);
        let pairs_of_a_turn = hosts / 2;
        let mut met = vec![0u64; (hosts * hosts).div_ceil(64)];
        let mut count = 0;
        let mut rested = vec![0u32; hosts];
        for turn in 0..schedule.turns() {
            // Which pairs of the turn there are: each once, so that its slots share them out and keep the cap.
            let mut places = vec![false; pairs_of_a_turn];
            for place in 0..all {
                let Some((other, pair)) = schedule.opposite(place, turn) else {
                    rested[usize::try_from(place).unwrap()] += 1;
                    continue;
                };
                if place > other {
                    continue;
                }
                assert!(
                    !std::mem::replace(&mut places[usize::try_from(pair).unwrap()], true),
                    "a pair twice in a turn"
                );
                let bit = usize::try_from(place * all + other).unwrap();
                assert!(met[bit / 64] >> (bit % 64) & 1 == 0, "{place} and {other} met before");
                met[bit / 64] |= 1 << (bit % 64);
                count += 1;
            }
            assert!(places.iter().all(|there| *there), "half of the hosts are pairs");
        }
        assert_eq!(count, hosts * (hosts - 1) / 2);
        let rests = u32::from(hosts % 2 == 1);
        assert!(rested.iter().all(|rested| *rested == rests), "each rests as often as the others");
    }

    #[test]
    fn every_pair_of_ten_thousand_hosts_meets_once() {
        a_whole_round(10_000);
    }

    #[test]
    fn so_does_every_pair_of_an_odd_number() {
        a_whole_round(4_999);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// Whoever comes and goes, and whenever: from then on it is as if the list had always been so.
        #[test]
        fn hosts_that_come_and_go(
            changes in proptest::collection::vec(proptest::collection::btree_set(0usize..60, 2..30), 1..5),
            concurrency in 0usize..40,
            start in 0u64..1 << 40,
        ) {
            let mut slot = start;
            for hosts in changes {
                let list = || hosts.iter().map(|host| name(*host));
                let schedule = PeerSchedule::new(list(), SLOT, concurrency);
                let mut met = BTreeSet::new();
                // Any so many slots in a row are a round, wherever they begin.
                for _ in 0..schedule.slots() {
                    let pairs = pairs(&schedule, slot);
                    let busy: BTreeSet<_> = pairs.iter().flat_map(|(a, b)| [a, b]).collect();
                    prop_assert!(busy.len() == pairs.len() * 2 && busy.len() <= concurrency.max(2));
                    prop_assert!(busy.iter().all(|host| list().any(|known| known == **host)), "nobody who is gone");
                    for (one, other) in pairs {
                        prop_assert!(met.insert(if one < other { (one, other) } else { (other, one) }), "met before");
                    }
                    slot += 1;
                }
                prop_assert_eq!(met.len(), hosts.len() * (hosts.len() - 1) / 2);
            }
        }
    }
}

#[cfg(test)]
mod list_tests {
    use proptest::prelude::*;

    use super::*;

    fn names(text: &str) -> Vec<String> {
        parse(text).unwrap().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn both_forms_say_the_same() {
        let json = "[{\"targets\": [\"b:10015\", \"a:10015\"], \"labels\": {\"rack\": \"7\"}}, {\"targets\": [\"[2001:db8::1]:9\"]}]";
        let yaml = "- targets: ['b:10015', 'a:10015', 'a:10015']\n  labels:\n    rack: '7'\n- targets:\n  - '[2001:db8::1]:9'\n";
        assert_eq!(names(json), ["[2001:db8::1]:9", "a:10015", "b:10015"]);
        assert_eq!(names(json), names(yaml));
        assert!(names("[]").is_empty());
    }

    #[test]
    fn what_is_no_list_is_said() {
        for (text, part) in [
            ("{\"targets\": []}", "it is not a list of groups"),
            ("[{\"targets\": [\"a\"]}]", "\"a\" is not host:port"),
            ("[{\"targets\": [\"-x:1\"]}]", "\"-x:1\""),
            ("[{\"targets\": [\"http://a:1\"]}]", "\"http://a:1\""),
            ("[{\"targets\": [\"a b:1\"]}]", "\"a b:1\""),
            ("[{\"targets\": [\"a:0\"]}]", "\"a:0\""),
            ("[{\"labels\": {}}]", "targets"),
            ("- targets: 5\n", "it is not"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn targets() {
        assert_eq!(split("node17:10015"), Some(("node17", 10_015)));
        assert_eq!(split("[2001:db8::1]:9"), Some(("2001:db8::1", 9)));
        assert_eq!(split("2001:db8::1:9"), None);
        assert_eq!(split("node17"), None);
    }

    proptest! {
        #[test]
        fn no_text_breaks_it(text in any::<String>(), like in "[\\[{\"targets: a1,\\]}\n-]{0,60}") {
            let _ = (parse(&text), parse(&like), split(&text));
        }
    }
}
