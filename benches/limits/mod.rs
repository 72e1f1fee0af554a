//! Ratios and the limits that they are held against, and how what they are made of is measured.

#![allow(dead_code, reason = "each bench uses a part of this")]
#![allow(
    unreachable_pub,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a module of several programs, none of which is a library"
)]

use std::path::Path;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Collects what was measured; a limit that is passed ends the bench with a failure, after all are printed.
#[derive(Default)]
pub struct Limits {
    passed: Vec<String>,
}

impl Limits {
    /// Prints a number and its limit.
    pub fn at_most(&mut self, what: &str, value: f64, limit: f64) {
        let verdict = if value <= limit { "ok" } else { "TOO MUCH" };
        println!("{what}: {value:.3} (limit {limit}) {verdict}");
        // A number that is none is not within its limit.
        if value.partial_cmp(&limit).is_none_or(std::cmp::Ordering::is_gt) {
            self.passed.push(what.to_owned());
        }
    }

    /// Ends the bench.
    pub fn conclude(self) {
        assert!(self.passed.is_empty(), "over the limit: {}", self.passed.join("; "));
    }
}

/// Bytes in MiB.
#[allow(clippy::cast_precision_loss, reason = "printed to three digits")]
pub fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// A number from the environment.
pub fn setting<T: std::str::FromStr>(name: &str, default: T) -> T {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// A time in microseconds.
pub fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// CPU time of this process so far.
pub fn own_cpu() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap())
}

/// The middle one of some costs; of an even number the greater of both.
pub fn median(mut costs: Vec<Duration>) -> Duration {
    let middle = costs.len() / 2;
    *costs.select_nth_unstable(middle).1
}

/// A directory in memory where there is one, so that no disk is measured.
pub fn scratch() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory).unwrap() } else { tempfile::tempdir().unwrap() }
}
