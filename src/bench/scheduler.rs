//! Runs probes by schedule, one at a time, where the guard lets them.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use regex_lite::Regex;

use super::child::is_stopped;
use super::guard::{self, Rules};
use super::lock::HostLock;
use super::probe::{Bench, Tuning, own};
use super::schedule::Schedule;
use super::tools::Tools;
use crate::model::ids::DeviceName;
use crate::model::probe::{Outcome, Probe, ProbeKey, Run, SkipReason};
use crate::model::vfmap::Trust;
use crate::watch::clock::Clock;
use crate::watch::{Handle, Report};

/// What a run of programs takes beyond the time that it measures, as a guess for the budget.
const AROUND: Duration = Duration::from_secs(3);

/// What is measured, how, and when not.
#[derive(Debug, Clone)]
pub struct Program {
    /// Which probes.
    pub probes: Vec<Probe>,
    /// Which devices; all when there is none.
    pub devices: Option<Regex>,
    /// How to measure.
    pub tuning: Tuning,
    /// When not to.
    pub rules: Rules,
    /// The host's lock.
    pub lock: PathBuf,
    /// The host's `/sys`.
    pub sysfs: PathBuf,
}

/// Runs probes.
pub struct Scheduler {
    handle: Handle,
    clock: Arc<dyn Clock>,
    program: Program,
    schedule: Schedule,
    tools: Tools,
    /// Troubles of the host that were said already.
    said: BTreeSet<String>,
}

impl Scheduler {
    /// One that works for a poller.
    pub fn new(handle: Handle, clock: Arc<dyn Clock>, program: Program, schedule: Schedule, tools: Tools) -> Self {
        Self { handle, clock, program, schedule, tools, said: BTreeSet::new() }
    }

    /// Works until it is told to stop, or nobody is left to tell it.
    pub fn run(mut self, stop: &Receiver<()>) {
        while !is_stopped() {
            let wait = self.step();
            if !matches!(stop.recv_timeout(wait), Err(RecvTimeoutError::Timeout)) {
                return;
            }
        }
    }

    /// Runs what is due, if anything is; how long until the next look.
    pub fn step(&mut self) -> Duration {
        let now = self.clock.now();
        let Some(report) = self.handle.latest() else { return Duration::from_secs(1) };
        let keys = self.keys(&report);
        let urgent = |key: &ProbeKey| is_doubted(&report, key);
        let Some(key) = self.schedule.due(&keys, &report.probes, urgent, now) else {
            return self.schedule.wait(now.tick);
        };
        let run = self.guarded(&report, &key);
        let ran = run.outcome != Outcome::Skipped;
        if &*run.reason == SkipReason::Unavailable.as_str() && self.said.insert(run.text.to_string()) {
            tracing::warn!(probe = key.probe.as_str(), "unavailable: {}", run.text);
        }
        if !is_stopped() {
            self.handle.record(run);
        }
        let now = self.clock.now().tick;
        self.schedule.done(&key, now, ran);
        self.schedule.wait(now)
    }

    fn keys(&self, report: &Report) -> Vec<ProbeKey> {
        let Program { probes, devices, .. } = &self.program;
        let named = |key: &ProbeKey| {
            let device = key.device().map(DeviceName::as_str);
            devices.as_ref().is_none_or(|devices| device.is_none_or(|device| devices.is_match(device)))
        };
        own(report).into_iter().filter(|key| probes.contains(&key.probe) && named(key)).collect()
    }

    fn guarded(&self, report: &Report, key: &ProbeKey) -> Run {
        let now = self.clock.now().wall;
        let skipped = |(reason, text): guard::Refusal| Run::skipped(key, now, reason, &text);
        let Program { tuning, rules, lock, sysfs, .. } = &self.program;
        let takes = if key.probe == Probe::Memory { AROUND } else { tuning.duration + AROUND };
        if !self.schedule.affords(report.probes.get(key), takes, now) {
            return skipped((SkipReason::Budget, "the budget of the day is used up".to_owned()));
        }
        let free = guard::facts(report, key, rules, guard::load());
        if let Err(refusal) = free.and_then(|()| guard::ask_scheduler(&self.tools, rules)) {
            return skipped(refusal);
        }
        let _lock = match HostLock::take(lock) {
            Ok(Some(lock)) => lock,
            Ok(None) => return skipped((SkipReason::Locked, "another probe runs on this host".to_owned())),
            Err(error) => {
                return skipped((SkipReason::Locked, format!("{} cannot be locked: {error}", lock.display())));
            }
        };
        let clock = Arc::clone(&self.clock);
        let bench = Bench {
            report,
            sysfs,
            tools: &self.tools,
            tuning,
            route: None,
            progress: &|_| {},
            now: &move || clock.now().wall,
        };
        bench.run(key, None)
    }
}

/// Whether a port's function was moved, and nothing shows that it works since: a loop that moves data would.
fn is_doubted(report: &Report, key: &ProbeKey) -> bool {
    let device = key.device().and_then(|device| report.snapshot.device(device));
    let function = device.and_then(|device| device.identity.pci_address);
    let row = function.and_then(|function| report.vf_map.guest.get(&function));
    row.is_some_and(|row| matches!(row.trust, Trust::Unverified { .. }))
}
