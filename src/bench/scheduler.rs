//! Runs probes by schedule, one at a time, where the guard lets them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use super::context::BenchmarkContext;
use super::guard;
use super::guard::HostLock;
use super::peers::PeerRuntime;
use super::peers::schedule::SlotAssignment;
use super::probe::own;
use super::process::Toolbox;
use super::process::is_stopped;
use super::rdma::Peer;
use super::schedule::BenchmarkSchedule;
use crate::model::benchmark::{Benchmark, BenchmarkKey, BenchmarkRun, Outcome, RunResult, SkipReason};
use crate::model::ids::PortKey;
use crate::model::time::Timestamp;
use crate::model::vfmap::Verification;
use crate::watch::clock::Clock;
use crate::watch::{HostReport, PollerHandle};

/// What a run of programs takes beyond the time that it measures, as a guess for the budget.
const AROUND: Duration = Duration::from_secs(3);

/// What is measured, how, and when not.
#[derive(Debug, Clone)]
pub struct ScheduledBenchmarks {
    /// Which probes.
    pub probes: Vec<Benchmark>,
    /// What with.
    pub context: BenchmarkContext,
}

/// Runs probes.
pub struct BenchmarkScheduler {
    handle: PollerHandle,
    clock: Arc<dyn Clock>,
    program: ScheduledBenchmarks,
    schedule: BenchmarkSchedule,
    tools: Toolbox,
    peer_runtime: Option<Arc<PeerRuntime>>,
    /// Troubles of the host that were said already.
    said: BTreeSet<String>,
}

impl BenchmarkScheduler {
    /// One that works for a poller.
    pub fn new(
        handle: PollerHandle,
        clock: Arc<dyn Clock>,
        program: ScheduledBenchmarks,
        schedule: BenchmarkSchedule,
        tools: Toolbox,
    ) -> Self {
        Self { handle, clock, program, schedule, tools, peer_runtime: None, said: BTreeSet::new() }
    }

    /// One that measures with other hosts, too.
    #[must_use]
    pub fn with_peers(self, peer_runtime: Option<Arc<PeerRuntime>>) -> Self {
        Self { peer_runtime, ..self }
    }

    /// Works until it is asked to stop, or its owner is gone.
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
        let peer_runtime = self.peer_runtime.clone();
        let Some(peer_runtime) = peer_runtime else { return self.alone(&report, now) };
        if let Some(assignment) = peer_runtime.due(now.wall) {
            self.meet(&report, &peer_runtime, &assignment);
            return Duration::ZERO;
        }
        self.alone(&report, now).min(peer_runtime.wait(self.clock.now().wall))
    }

    /// Runs what needs no other host.
    fn alone(&mut self, report: &HostReport, now: Timestamp) -> Duration {
        let keys = self.keys(report);
        let urgent = |key: &BenchmarkKey| is_doubted(report, key);
        let Some(key) = self.schedule.due(&keys, &report.probes, urgent, now) else {
            return self.schedule.wait(now.tick);
        };
        let run = self.guarded(report, &key);
        let ran = run.result.outcome() != Outcome::Skipped;
        self.keep(run);
        let now = self.clock.now().tick;
        self.schedule.done(&key, now, ran);
        self.schedule.wait(now)
    }

    /// Measures with the host that is this one's partner: one port, another one in the next round.
    fn meet(&mut self, report: &HostReport, peer_runtime: &PeerRuntime, assignment: &SlotAssignment) {
        let ports: Vec<PortKey> = self.program.context.ports(report);
        let Some(rail) = usize::try_from(assignment.round).ok().and_then(|round| round.checked_rem(ports.len())) else {
            return;
        };
        let clock = Arc::clone(&self.clock);
        let now = move || clock.now().wall;
        let http_peer = peer_runtime.http_peer(&assignment.peer, u32::try_from(rail).unwrap_or(0), &now);
        let mut free = None;
        for probe in [Benchmark::RdmaPeer, Benchmark::TcpPeer] {
            if !self.program.probes.contains(&probe) || is_stopped() {
                continue;
            }
            let key = BenchmarkKey { probe, port: ports.get(rail).cloned() };
            // Whether the port is silent is asked before the first only: the second would see its traffic.
            let may = free.get_or_insert_with(|| self.may_run(report, &key)).clone();
            let run = match may {
                Ok(()) => self.locked(report, &key, Some(&http_peer)),
                Err((reason, text)) => BenchmarkRun::skipped(&key, self.clock.now().wall, reason, &text),
            };
            tracing::debug!(
                probe = probe.as_str(),
                peer = &*assignment.peer,
                "{}: {}",
                run.result.outcome().as_str(),
                run.text
            );
            self.keep(run);
        }
    }

    fn keep(&mut self, run: BenchmarkRun) {
        let probe = run.key.probe;
        if run.result == RunResult::Skipped(SkipReason::Unavailable) && self.said.insert(run.text.to_string()) {
            tracing::warn!(probe = probe.as_str(), "unavailable: {}", run.text);
        }
        if !is_stopped() {
            self.handle.record(run);
        }
    }

    fn keys(&self, report: &HostReport) -> Vec<BenchmarkKey> {
        let ScheduledBenchmarks { probes, context } = &self.program;
        own(report).into_iter().filter(|key| probes.contains(&key.probe) && context.has(key)).collect()
    }

    fn guarded(&self, report: &HostReport, key: &BenchmarkKey) -> BenchmarkRun {
        match self.may_run(report, key) {
            Ok(()) => self.locked(report, key, None),
            Err((reason, text)) => BenchmarkRun::skipped(key, self.clock.now().wall, reason, &text),
        }
    }

    /// Whether budget and guard let a probe run.
    fn may_run(&self, report: &HostReport, key: &BenchmarkKey) -> Result<(), guard::SkipCause> {
        let BenchmarkContext { parameters, rules, .. } = &self.program.context;
        let takes = if key.probe == Benchmark::Memory { AROUND } else { parameters.duration + AROUND };
        if !self.schedule.affords(report.probes.get(key), takes, self.clock.now().wall) {
            return Err((SkipReason::Budget, "the daily budget is used up".to_owned()));
        }
        guard::facts(report, key, rules, guard::load())?;
        guard::ask_scheduler(&self.tools, rules)
    }

    /// Runs a probe under the lock of the host.
    fn locked(&self, report: &HostReport, key: &BenchmarkKey, peer: Option<&dyn Peer>) -> BenchmarkRun {
        let now = self.clock.now().wall;
        let (context, lock) = (&self.program.context, &self.program.context.lock);
        let locked = |text: &str| BenchmarkRun::skipped(key, now, SkipReason::Locked, text);
        let _lock = match HostLock::take(lock) {
            Ok(Some(lock)) => lock,
            Ok(None) => return locked("another benchmark is running on this host"),
            Err(error) => return locked(&format!("{} cannot be locked: {error}", lock.display())),
        };
        let clock = Arc::clone(&self.clock);
        context.run(report, &self.tools, key, peer, &|_| {}, &move || clock.now().wall)
    }
}

/// Whether a port's function was moved, and nothing shows that it works since: a loop that moves data would.
fn is_doubted(report: &HostReport, key: &BenchmarkKey) -> bool {
    let device = key.device().and_then(|device| report.snapshot.device(device));
    let function = device.and_then(|device| device.identity.pci_address);
    let row = function.and_then(|function| report.vf_map.guest.get(&function));
    row.is_some_and(|row| matches!(row.verification, Verification::Unverified { .. }))
}
