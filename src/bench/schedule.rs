//! When each probe is due: spread over hosts and time, at most so often, within a budget. Pure; the clock is an argument.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher as _};
use std::time::{Duration, SystemTime};

use crate::model::benchmark::{BenchmarkHistories, BenchmarkHistory, BenchmarkKey};
use crate::model::time::{BootTime, Timestamp};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A probe that could not run is tried again after this part of the interval.
const RETRIES: u32 = 12;

/// It is never tried again sooner than this.
const LEAST: Duration = Duration::from_secs(60);

/// Longest time without a look at what there is.
const LOOK: Duration = Duration::from_secs(60);

/// The times of the probes of one host.
#[derive(Debug, Clone)]
pub struct BenchmarkSchedule {
    interval: Duration,
    budget: f64,
    seed: u64,
    due: BTreeMap<BenchmarkKey, BootTime>,
}

impl BenchmarkSchedule {
    /// A schedule. `budget`: share of a day that probes may use of a port. `host`: what tells this host from others, so
    /// that a fleet that starts at once does not measure at once.
    pub fn new(interval: Duration, budget: f64, host: &str) -> Self {
        Self { interval, budget, seed: hash(&host), due: BTreeMap::new() }
    }

    /// The probe that has been due longest, of those that there are. `urgent` ones are due as soon as they may be tried.
    pub fn due(
        &mut self,
        keys: &[BenchmarkKey],
        pasts: &BenchmarkHistories,
        urgent: impl Fn(&BenchmarkKey) -> bool,
        now: Timestamp,
    ) -> Option<BenchmarkKey> {
        self.due.retain(|key, _| keys.contains(key));
        for key in keys {
            let last = pasts.get(key).and_then(|past| past.last.as_ref()).map(|run| run.at);
            let first = || self.first(key, last, now);
            let due = self.due.get(key).copied().unwrap_or_else(first);
            let late = now.tick.after(self.retry());
            let due = if urgent(key) && due > late { now.tick } else { due };
            self.due.insert(key.clone(), due);
        }
        let due = self.due.iter().filter(|(_, due)| **due <= now.tick);
        due.min_by_key(|(_, due)| **due).map(|(key, _)| key.clone())
    }

    /// Notes that a probe ran, or that it was left out.
    pub fn done(&mut self, key: &BenchmarkKey, now: BootTime, ran: bool) {
        let wait = if ran { self.jittered(key, now) } else { self.retry() };
        self.due.insert(key.clone(), now.after(wait));
    }

    /// Time until something may be due; never so long that what appears waits for it.
    pub fn wait(&self, now: BootTime) -> Duration {
        let next = self.due.values().map(|due| due.since(now)).min();
        next.unwrap_or(LOOK).clamp(Duration::from_secs(1), LOOK)
    }

    /// Whether the budget of the day allows a run that takes so long.
    pub fn affords(&self, past: Option<&BenchmarkHistory>, takes: Duration, now: SystemTime) -> bool {
        let used = past.map_or(Duration::ZERO, |past| past.used(now));
        used.saturating_add(takes).as_secs_f64() <= DAY.as_secs_f64() * self.budget
    }

    /// After a restart the interval goes on; without a past, hosts begin at different times.
    fn first(&self, key: &BenchmarkKey, last: Option<SystemTime>, now: Timestamp) -> BootTime {
        match last.map(|last| now.boot_time(last)) {
            Some(last) if last <= now.tick => last.after(self.jittered(key, last)),
            _ => now.tick.after(self.interval.mul_f64(part(hash(&(self.seed, key.to_string()))))),
        }
    }

    /// Between three and five quarters of the interval.
    fn jittered(&self, key: &BenchmarkKey, at: BootTime) -> Duration {
        self.interval.mul_f64(0.75 + 0.5 * part(hash(&(self.seed, key.to_string(), at))))
    }

    fn retry(&self) -> Duration {
        (self.interval / RETRIES).max(LEAST).min(self.interval)
    }
}

fn hash(value: &impl std::hash::Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// A hash as a number from 0 to below 1.
#[expect(clippy::cast_precision_loss, reason = "53 bits are exact")]
fn part(hash: u64) -> f64 {
    (hash >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::benchmark::{Benchmark, BenchmarkRun, Good, Measurements, RunResult};
    use crate::model::ids::{DeviceName, PortKey};
    use std::sync::Arc;

    const HOUR: Duration = Duration::from_secs(3_600);

    fn key(index: u32) -> BenchmarkKey {
        let port = PortKey { device: DeviceName::new(&format!("mlx5_{index}")), port: 1 };
        BenchmarkKey { probe: Benchmark::RdmaLoopback, port: Some(port) }
    }

    fn at(seconds: u64) -> Timestamp {
        let wall = SystemTime::UNIX_EPOCH + Duration::from_secs(1_790_000_000 + seconds);
        Timestamp { tick: BootTime(0).after(Duration::from_secs(seconds)), wall }
    }

    /// How often a probe runs in a day, looked at every minute.
    fn runs_in_a_day(schedule: &mut BenchmarkSchedule, pasts: &BenchmarkHistories) -> Vec<u64> {
        let mut ran = Vec::new();
        for minute in 0..24 * 60 {
            let now = at(minute * 60);
            while let Some(key) = schedule.due(&[key(0)], pasts, |_| false, now) {
                ran.push(minute * 60);
                schedule.done(&key, now.tick, true);
            }
        }
        ran
    }

    #[test]
    fn intervals_vary_and_keep_their_mean() {
        let mut schedule = BenchmarkSchedule::new(HOUR, 0.01, "a");
        let ran = runs_in_a_day(&mut schedule, &BenchmarkHistories::new());
        assert!((20..=28).contains(&ran.len()), "{ran:?}");
        let gaps: Vec<u64> = ran.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(gaps.iter().all(|gap| (2_700..=4_560).contains(gap)), "{gaps:?}");
        assert!(gaps.iter().any(|gap| *gap != gaps[0]), "{gaps:?}");
    }

    #[test]
    fn hosts_begin_at_different_times() {
        let first = |host: &str| {
            let mut schedule = BenchmarkSchedule::new(HOUR, 0.01, host);
            (0..60).find(|minute| {
                schedule.due(&[key(0)], &BenchmarkHistories::new(), |_| false, at(minute * 60)).is_some()
            })
        };
        let hosts: std::collections::BTreeSet<_> = (0..50).map(|n| first(&format!("node{n}"))).collect();
        assert!(hosts.len() > 20, "{hosts:?}");
    }

    #[test]
    fn a_restart_does_not_run_everything_again() {
        let run = BenchmarkRun {
            result: RunResult::Ok(Good::AsUsual),
            took: HOUR,
            ..BenchmarkRun::skipped(&key(0), at(0).wall, SKIP, "")
        };
        let past = BenchmarkHistory { last: Some(run), ..BenchmarkHistory::default() };
        let pasts = BenchmarkHistories::from([(key(0), past)]);
        let mut schedule = BenchmarkSchedule::new(HOUR, 0.01, "a");
        assert_eq!(schedule.due(&[key(0)], &pasts, |_| false, at(60)), None);
        assert_eq!(schedule.due(&[key(0)], &pasts, |_| false, at(2 * 3_600)), Some(key(0)));
    }

    const SKIP: crate::model::benchmark::SkipReason = crate::model::benchmark::SkipReason::PortBusy;

    #[test]
    fn what_was_left_out_is_tried_again_sooner_and_urgent_ones_at_once() {
        let mut schedule = BenchmarkSchedule::new(HOUR, 0.01, "a");
        schedule.done(&key(0), at(0).tick, false);
        let pasts = BenchmarkHistories::new();
        assert_eq!(schedule.due(&[key(0)], &pasts, |_| true, at(60)), None, "not before it may be tried again");
        assert_eq!(schedule.due(&[key(0)], &pasts, |_| false, at(301)), Some(key(0)));
        schedule.done(&key(0), at(301).tick, true);
        assert_eq!(schedule.due(&[key(0)], &pasts, |_| false, at(400)), None);
        assert_eq!(schedule.due(&[key(0)], &pasts, |_| true, at(400)), Some(key(0)));
        assert_eq!(schedule.due(&[], &pasts, |_| true, at(400)), None, "what is gone is not due");
    }

    #[test]
    fn the_budget_is_of_the_last_day() {
        let schedule = BenchmarkSchedule::new(HOUR, 0.001, "a");
        let mut past = BenchmarkHistory::default();
        let takes = Duration::from_secs(8);
        let mut ran = 0;
        for minute in 0..24 * 60 {
            let now = at(minute * 60).wall;
            if schedule.affords(Some(&past), takes, now) {
                let run = BenchmarkRun {
                    result: RunResult::Ok(Good::AsUsual),
                    took: takes,
                    measured: Measurements::default(),
                    profile: Arc::from("p"),
                    ..BenchmarkRun::skipped(&key(0), now, SKIP, "")
                };
                past.record(run);
                ran += 1;
            }
        }
        assert_eq!(ran, 10, "86.4 s a day");
        assert!(schedule.affords(Some(&past), takes, at(2 * 86_400).wall));
    }

    proptest! {
        #[test]
        fn no_probe_is_due_twice_in_half_an_interval(host in "[a-z]{1,8}", minutes in 10u64..600) {
            let interval = Duration::from_secs(minutes * 60);
            let mut schedule = BenchmarkSchedule::new(interval, 1.0, &host);
            let ran = runs_in_a_day(&mut schedule, &BenchmarkHistories::new());
            prop_assert!(ran.windows(2).all(|pair| (pair[1] - pair[0]) * 2 >= minutes * 60));
        }

        #[test]
        fn it_never_sleeps_long_nor_spins(host in "[a-z]{1,8}", seconds in 0u64..1_000_000) {
            let mut schedule = BenchmarkSchedule::new(HOUR, 1.0, &host);
            let _ = schedule.due(&[key(0), key(1)], &BenchmarkHistories::new(), |_| false, at(seconds));
            let wait = schedule.wait(at(seconds).tick);
            prop_assert!((Duration::from_secs(1)..=LOOK).contains(&wait));
        }
    }
}
