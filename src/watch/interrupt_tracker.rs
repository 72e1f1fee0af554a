//! InterruptTracker over time: counts that go on over wraps, hotplug and reloads, what was served last, moved vectors.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::history::IrqHistory;
use crate::model::ids::PciAddress;
use crate::model::irq::CpuSet;
use crate::model::irq::{IrqFunction, IrqVector, RawCounts};
use crate::model::time::BootTime;

/// More interrupts in a second than one CPU takes from one vector: a count that fell by more than so many could
/// explain did not wrap, it started again.
const MOST_A_SECOND: u64 = 5_000_000;

/// What was read of each vector before.
#[derive(Debug, Default)]
pub struct InterruptTracker {
    functions: BTreeMap<PciAddress, Function>,
}

#[derive(Debug, Default)]
struct Function {
    at: Option<BootTime>,
    vectors: BTreeMap<u32, Vector>,
}

#[derive(Debug, Default)]
struct Vector {
    action: Option<Arc<str>>,
    counts: Option<RawCounts>,
    counted: BootTime,
    effective: Option<Arc<CpuSet>>,
}

impl InterruptTracker {
    /// Takes a pass into the past.
    pub fn observe<'a>(
        &mut self,
        past: &mut BTreeMap<PciAddress, IrqHistory>,
        functions: impl Iterator<Item = &'a IrqFunction>,
    ) {
        for function in functions {
            let known = self.functions.entry(function.address).or_default();
            if known.at == Some(function.at) {
                continue;
            }
            known.at = Some(function.at);
            known.observe(past.entry(function.address).or_default(), function);
        }
    }

    /// Forgets a function that is gone.
    pub fn forget(&mut self, address: PciAddress) {
        self.functions.remove(&address);
    }
}

impl Function {
    fn observe(&mut self, past: &mut IrqHistory, function: &IrqFunction) {
        let first = past.served.is_none();
        let mut fresh: BTreeMap<u32, Vec<(u32, u64)>> = BTreeMap::new();
        for vector in &function.vectors {
            let known = self.vectors.entry(vector.irq).or_default();
            let moved = known.effective.as_ref().zip(vector.effective.as_ref()).is_some_and(|(a, b)| a != b);
            past.affinity_changes += u64::from(moved);
            if vector.effective.is_some() {
                known.effective.clone_from(&vector.effective);
            }
            let Some(counts) = &vector.counts else { continue };
            let rises = known.rises(vector, counts, function.at);
            let served = past.served.get_or_insert_default();
            for (cpu, rise) in &rises {
                let total = served.entry(*cpu).or_default();
                *total = total.saturating_add(*rise);
            }
            if !rises.is_empty() {
                fresh.insert(vector.irq, rises);
            }
        }
        self.vectors.retain(|irq, _| function.vectors.iter().any(|vector| vector.irq == *irq));
        if !fresh.is_empty() {
            past.recent = fresh;
            past.since_boot = first;
        }
    }
}

impl Vector {
    /// By how much each CPU's count has risen since the last reading; the counts themselves at the first one and for
    /// a number that was given to another.
    fn rises(&mut self, vector: &IrqVector, counts: &RawCounts, now: BootTime) -> Vec<(u32, u64)> {
        let same = self.action.is_none() || vector.action.is_none() || self.action == vector.action;
        let before = self.counts.take().filter(|_| same).unwrap_or_else(|| Arc::from([]));
        let most = MOST_A_SECOND.saturating_mul(now.since(self.counted).as_secs() + 1);
        let rise = |(cpu, count): &(u32, u32)| {
            let old = before.binary_search_by_key(cpu, |(cpu, _)| *cpu).ok().and_then(|at| before.get(at));
            let old = old.map_or(0, |(_, old)| *old);
            let wrapped = u64::from(count.wrapping_sub(old));
            let rise = if *count >= old || wrapped <= most { wrapped } else { u64::from(*count) };
            (rise > 0).then_some((*cpu, rise))
        };
        let rises = counts.iter().filter_map(rise).collect();
        // A CPU that went away has no column; its count goes on when it comes back.
        let gone = before.iter().filter(|(cpu, _)| counts.binary_search_by_key(cpu, |(cpu, _)| *cpu).is_err());
        let mut now_known: Vec<(u32, u32)> = counts.iter().chain(gone).copied().collect();
        now_known.sort_unstable();
        self.counts = Some(now_known.into());
        self.counted = now;
        if vector.action.is_some() {
            self.action.clone_from(&vector.action);
        }
        rises
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::irq::VectorRole;

    /// Number, CPUs in force, counts.
    type Row<'a> = (u32, &'a str, &'a [(u32, u32)]);

    fn function(second: i64, vectors: &[Row<'_>]) -> IrqFunction {
        let vector = |(irq, cpus, counts): &Row<'_>| IrqVector {
            irq: *irq,
            action: Some(Arc::from("mlx5_comp0")),
            role: VectorRole::Completion,
            effective: CpuSet::from_list(cpus).map(Arc::new),
            allowed: None,
            hint: None,
            managed: false,
            counts: Some(RawCounts::from(*counts)),
        };
        let vectors = vectors.iter().map(vector).collect();
        IrqFunction {
            address: "0000:81:00.0".parse().unwrap(),
            numa_node: Some(0),
            vectors,
            at: BootTime(second * 1000),
        }
    }

    fn play(readings: &[IrqFunction]) -> IrqHistory {
        let (mut interrupts, mut past) = (InterruptTracker::default(), BTreeMap::new());
        for reading in readings {
            interrupts.observe(&mut past, [reading].into_iter());
        }
        past.into_values().next().unwrap()
    }

    fn served(past: &IrqHistory) -> Vec<(u32, u64)> {
        past.served.iter().flatten().map(|(cpu, count)| (*cpu, *count)).collect()
    }

    #[test]
    fn what_was_served_last_stands_until_something_is_served_again() {
        let first = function(0, &[(40, "1", &[(1, 100)]), (41, "2", &[])]);
        let past = play(std::slice::from_ref(&first));
        assert_eq!((past.recent.len(), past.since_boot), (1, true));
        let second = function(15, &[(40, "1", &[(1, 100)]), (41, "2", &[(2, 7)])]);
        let idle = function(30, &[(40, "1", &[(1, 100)]), (41, "2", &[(2, 7)])]);
        let past = play(&[first, second, idle]);
        assert_eq!(past.recent, BTreeMap::from([(41, vec![(2, 7)])]));
        assert!(!past.since_boot);
        assert_eq!(served(&past), [(1, 100), (2, 7)]);
    }

    #[test]
    fn counts_go_on_over_a_wrap_a_reload_and_a_cpu_that_was_away() {
        let near = u32::MAX - 9;
        let wrap = [function(0, &[(40, "1", &[(1, near)])]), function(15, &[(40, "1", &[(1, 5)])])];
        assert_eq!(served(&play(&wrap)), [(1, u64::from(near) + 15)]);
        let reload = [function(0, &[(40, "1", &[(1, 3_000_000_000)])]), function(15, &[(40, "1", &[(1, 5)])])];
        assert_eq!(served(&play(&reload)), [(1, 3_000_000_005)]);
        let away = [
            function(0, &[(40, "1", &[(1, 50), (2, 9)])]),
            function(15, &[(40, "2", &[(2, 10)])]),
            function(30, &[(40, "1", &[(1, 55), (2, 10)])]),
        ];
        let past = play(&away);
        assert_eq!(served(&past), [(1, 55), (2, 10)]);
        assert_eq!(past.affinity_changes, 2);
    }

    #[test]
    fn the_same_reading_twice_is_one() {
        let reading = function(0, &[(40, "1", &[(1, 50)])]);
        let past = play(&[reading.clone(), reading]);
        assert!(past.since_boot);
        assert_eq!(served(&past), [(1, 50)]);
    }

    #[test]
    fn a_number_that_was_given_to_another_starts_again() {
        let mut other = function(15, &[(40, "1", &[(1, 60)])]);
        other.vectors[0].action = Some(Arc::from("mlx5_comp1"));
        assert_eq!(served(&play(&[function(0, &[(40, "1", &[(1, 50)])]), other])), [(1, 110)]);
    }

    proptest! {
        #[test]
        fn totals_only_rise(readings in proptest::collection::vec(proptest::collection::btree_map(0u32..6, any::<u32>(), 0..6), 1..12)) {
            let (mut interrupts, mut past) = (InterruptTracker::default(), BTreeMap::new());
            let mut before = BTreeMap::new();
            for (second, counts) in (0..).step_by(15).zip(readings) {
                let counts: Vec<(u32, u32)> = counts.into_iter().filter(|(_, count)| *count > 0).collect();
                interrupts.observe(&mut past, [&function(second, &[(40, "1", &counts)])].into_iter());
                let now = past.values().next().unwrap().served.clone().unwrap_or_default();
                for (cpu, count) in &before {
                    prop_assert!(now.get(cpu) >= Some(count));
                }
                before = now;
            }
        }
    }
}
