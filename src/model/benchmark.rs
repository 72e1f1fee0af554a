//! Probes (micro-benchmarks): what they are, what a run brought, and the past of one.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::ids::{DeviceName, PciAddress, PortKey};
use super::labels::label_enum;
use super::time::{duration_millis, unix_millis};
use super::units::BytesPerSecond;

label_enum! {
    /// What is measured.
    Benchmark {
        /// RDMA writes between two processes over one port: PCIe, card and memory, no cable.
        RdmaLoopback = "rdma_loopback",
        /// RDMA writes to another host: cable and fabric too.
        RdmaPeer = "rdma_peer",
        /// TCP to another host, for comparison.
        TcpPeer = "tcp_peer",
        /// Copies in memory, on the CPUs' own NUMA node and to another.
        Memory = "memory",
    }
}

label_enum! {
    /// How a run ended.
    Outcome {
        /// It measured what it should.
        Ok = "ok",
        /// It measured less than it should.
        Slow = "slow",
        /// Data could not be moved, for a reason of the device, its port or the way.
        Failed = "failed",
        /// The tool got into trouble: nothing is known of the device.
        Inconclusive = "inconclusive",
        /// It did not run, so as not to disturb.
        Skipped = "skipped",
    }
}

label_enum! {
    /// Which way data went: the `direction` label.
    Direction {
        /// One way.
        OneWay = "one_way",
        /// Both ways at once; the value is their sum.
        Both = "both",
        /// Memory of the CPUs' own NUMA node.
        Local = "local",
        /// Memory of another NUMA node.
        Remote = "remote",
        /// Latency of a write.
        Write = "write",
        /// Latency of a read, there and back.
        Read = "read",
    }
}

label_enum! {
    /// What of many values: the `statistic` label.
    Statistic {
        /// The least.
        Minimum = "minimum",
        /// The median.
        Typical = "typical",
        /// The mean.
        Average = "average",
        /// 99 of 100 are not above it.
        P99 = "p99",
        /// 999 of 1000 are not above it.
        P999 = "p99.9",
        /// The greatest.
        Maximum = "maximum",
    }
}

label_enum! {
    /// Why a probe did not run: the `reason` label of skipped runs.
    SkipReason {
        /// A program that it needs is not installed.
        Unavailable = "unavailable",
        /// The port is not ACTIVE.
        PortDown = "port_down",
        /// The port carries traffic.
        PortBusy = "port_busy",
        /// A process holds the device.
        DeviceHeld = "device_held",
        /// The job scheduler says that the host works, or does not answer.
        JobRunning = "job_running",
        /// The host is in maintenance.
        Maintenance = "maintenance",
        /// The CPUs are busy.
        CpuBusy = "cpu_busy",
        /// Another probe runs on this host.
        Locked = "locked",
        /// The budget of the day is used up.
        Budget = "budget",
        /// Both addresses are this host's own: the data would not leave it.
        LocalRoute = "local_route",
        /// What must be known before is not known.
        Unknown = "unknown",
    }
}

label_enum! {
    /// Why data could not be moved: the reason of a failed run.
    Failure {
        /// The port is not ACTIVE.
        PortDown = "port_down",
        /// The device is not there.
        DeviceMissing = "device_missing",
        /// The two ends cannot talk over TCP to set the test up: no fault of the fabric.
        TcpSetup = "tcp_setup",
        /// The queue pairs could not be connected.
        QpSetup = "qp_setup",
        /// A work request ended in an error.
        Completion = "completion_error",
        /// Memory could not be registered with the card.
        MemoryRegistration = "memory_registration",
        /// Something that the test needs could not be made on the device.
        Resources = "resources",
    }
}

label_enum! {
    /// Why a measured value is good.
    Good {
        /// It is near what the path can carry.
        NearCeiling = "near_ceiling",
        /// It is what this host usually measures; there is no ceiling to compare with.
        AsUsual = "as_usual",
    }
}

label_enum! {
    /// Why a measured value is too low.
    Shortfall {
        /// Far below what the path can carry.
        BelowCeiling = "below_ceiling",
        /// Far below what this host measured before.
        BelowHistory = "below_history",
    }
}

label_enum! {
    /// Why a run says nothing of the device.
    Doubt {
        /// The program could not be started.
        NotStarted = "not_started",
        /// Its TCP port is in use.
        PortTaken = "port_taken",
        /// It was killed at the end of its time.
        Timeout = "timeout",
        /// It printed too much and was killed.
        Garbage = "garbage",
        /// It was killed by a signal.
        Crashed = "crashed",
        /// It measured, and then failed.
        ExitStatus = "exit_status",
        /// It printed no result.
        NoResult = "no_result",
        /// It reported what cannot be.
        ImpossibleValue = "impossible_value",
        /// The port's counters did not count what it claims to have moved.
        CountersDisagree = "counters_disagree",
        /// The other host went away during the run.
        PeerGone = "peer_gone",
        /// The other host cannot be reached.
        PeerUnreachable = "peer_unreachable",
        /// The other host refused.
        PeerRefused = "peer_refused",
        /// The clocks of the two hosts are too far apart.
        PeerClock = "peer_clock",
    }
}

/// How a run ended, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", content = "reason", rename_all = "snake_case")]
pub enum RunResult {
    /// [`Outcome::Ok`].
    Ok(Good),
    /// [`Outcome::Slow`].
    Slow(Shortfall),
    /// [`Outcome::Failed`].
    Failed(Failure),
    /// [`Outcome::Inconclusive`].
    Inconclusive(Doubt),
    /// [`Outcome::Skipped`].
    Skipped(SkipReason),
}

impl RunResult {
    /// How it ended.
    pub const fn outcome(self) -> Outcome {
        match self {
            Self::Ok(_) => Outcome::Ok,
            Self::Slow(_) => Outcome::Slow,
            Self::Failed(_) => Outcome::Failed,
            Self::Inconclusive(_) => Outcome::Inconclusive,
            Self::Skipped(_) => Outcome::Skipped,
        }
    }

    /// Why: the word in JSON and text.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Ok(good) => good.as_str(),
            Self::Slow(shortfall) => shortfall.as_str(),
            Self::Failed(failure) => failure.as_str(),
            Self::Inconclusive(doubt) => doubt.as_str(),
            Self::Skipped(reason) => reason.as_str(),
        }
    }
}

/// What a probe runs on: the labels of its metrics.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BenchmarkKey {
    /// What is measured.
    pub probe: Benchmark,
    /// The port; none for memory.
    pub port: Option<PortKey>,
}

impl BenchmarkKey {
    /// What stands in a run that was read and not yet given to its history.
    fn unset() -> Self {
        Self { probe: Benchmark::Memory, port: None }
    }

    /// The device.
    pub fn device(&self) -> Option<&DeviceName> {
        self.port.as_ref().map(|port| &port.device)
    }
}

impl fmt::Display for BenchmarkKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.port {
            Some(port) => write!(f, "{} {port}", self.probe.as_str()),
            None => f.write_str(self.probe.as_str()),
        }
    }
}

/// What a run measured.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Measurements {
    /// Payload moved in a second.
    #[serde(default)]
    pub bandwidth: Vec<(Direction, f64)>,
    /// Times in seconds.
    #[serde(default)]
    pub latency: Vec<(Direction, Statistic, f64)>,
}

impl Measurements {
    /// Nothing.
    pub fn is_empty(&self) -> bool {
        self.bandwidth.is_empty() && self.latency.is_empty()
    }

    /// The bandwidth of a direction.
    pub fn bandwidth(&self, direction: Direction) -> Option<BytesPerSecond> {
        self.bandwidth.iter().find(|(way, _)| *way == direction).map(|(_, value)| BytesPerSecond(*value))
    }

    /// The latency of a direction, in seconds.
    pub fn latency(&self, direction: Direction, statistic: Statistic) -> Option<f64> {
        self.latency.iter().find(|(way, of, _)| (*way, *of) == (direction, statistic)).map(|(_, _, value)| *value)
    }
}

/// One run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BenchmarkRun {
    /// What ran, and on what. Not serialized: the history that holds the run has it once.
    #[serde(skip, default = "BenchmarkKey::unset")]
    pub key: BenchmarkKey,
    /// When it ended.
    #[serde(with = "unix_millis")]
    pub at: SystemTime,
    /// How long it took.
    #[serde(with = "duration_millis")]
    pub took: Duration,
    /// How it ended, and why.
    #[serde(flatten)]
    pub result: RunResult,
    /// One sentence.
    pub text: Arc<str>,
    /// What it measured.
    #[serde(default)]
    pub measured: Measurements,
    /// The payload that the path could carry; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling: Option<BytesPerSecond>,
    /// How it was measured (sizes, queue pairs, time, direction): only runs of one profile compare.
    pub profile: Arc<str>,
    /// The other host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<Arc<str>>,
    /// The PCI function that the data went through.
    #[serde(skip)]
    pub function: Option<PciAddress>,
}

impl BenchmarkRun {
    /// A run that did not take place.
    pub fn skipped(key: &BenchmarkKey, at: SystemTime, reason: SkipReason, text: &str) -> Self {
        Self {
            key: key.clone(),
            at,
            took: Duration::ZERO,
            result: RunResult::Skipped(reason),
            text: Arc::from(text),
            measured: Measurements::default(),
            ceiling: None,
            profile: Arc::from(""),
            peer: None,
            function: None,
        }
    }
}

impl BenchmarkRun {
    /// Whether data went through the device's RDMA engine: however fast, it works.
    pub fn moved_data(&self) -> bool {
        let over_rdma = matches!(self.key.probe, Benchmark::RdmaLoopback | Benchmark::RdmaPeer);
        over_rdma && self.measured_something()
    }

    /// Whether it ended with a value that is believed.
    pub fn measured_something(&self) -> bool {
        matches!(self.result, RunResult::Ok(_) | RunResult::Slow(_))
    }

    /// When it began.
    pub fn began(&self) -> SystemTime {
        self.at.checked_sub(self.took).unwrap_or(self.at)
    }
}

/// Runs that are looked at together.
pub const LAST: usize = 5;

/// Of these so many must agree.
pub const AGREE: usize = 3;

/// Runs closer together than this are one observation: the later takes the place of the earlier.
pub const APART: Duration = Duration::from_secs(5 * 60);

/// What a budget is for.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Good values that are remembered of a profile.
const REMEMBERED: usize = 20;

/// Good values that make a history.
const HISTORY: usize = 3;

/// Profiles that are remembered of a probe.
const MOST_PROFILES: usize = 8;

/// The past of one probe on one port.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BenchmarkHistory {
    /// Runs since the agent's start, in the order of [`Outcome::ALL`].
    pub counts: [u64; 5],
    /// Skipped runs since the agent's start, by reason.
    pub skips: BTreeMap<SkipReason, u64>,
    /// The last runs that say something of the device (ok, slow, failed), oldest first.
    pub runs: VecDeque<BenchmarkRun>,
    /// The last run that was not skipped.
    pub last: Option<BenchmarkRun>,
    /// The last run that measured something.
    pub measured: Option<BenchmarkRun>,
    /// When link time was used, and how much, over the last day.
    pub spent: VecDeque<(SystemTime, Duration)>,
    /// What was measured when all was well, by profile, oldest first.
    pub good: BTreeMap<Arc<str>, VecDeque<Measurements>>,
}

impl BenchmarkHistory {
    /// Takes a run.
    pub fn record(&mut self, run: BenchmarkRun) {
        if let Some((_, count)) =
            Outcome::ALL.iter().zip(&mut self.counts).find(|(outcome, _)| **outcome == run.result.outcome())
        {
            *count += 1;
        }
        if let RunResult::Skipped(reason) = run.result {
            *self.skips.entry(reason).or_default() += 1;
            return;
        }
        let day_ago = run.at.checked_sub(DAY).unwrap_or(SystemTime::UNIX_EPOCH);
        self.spent.push_back((run.at, run.took));
        self.spent.retain(|(at, _)| *at > day_ago);
        if run.result.outcome() != Outcome::Inconclusive {
            let close = |last: &BenchmarkRun| run.at.duration_since(last.at).is_ok_and(|time| time < APART);
            if self.runs.back().is_some_and(close) {
                self.runs.pop_back();
            }
            self.runs.push_back(run.clone());
            self.runs.drain(..self.runs.len().saturating_sub(LAST));
        }
        if matches!(run.result, RunResult::Ok(_)) {
            if !self.good.contains_key(&run.profile) && self.good.len() >= MOST_PROFILES {
                self.good.pop_first();
            }
            let good = self.good.entry(Arc::clone(&run.profile)).or_default();
            good.push_back(run.measured.clone());
            good.drain(..good.len().saturating_sub(REMEMBERED));
        }
        if run.measured_something() {
            self.measured = Some(run.clone());
        }
        self.last = Some(run);
    }

    /// How many of the last runs ended so.
    pub fn recent(&self, outcome: Outcome) -> usize {
        self.runs.iter().filter(|run| run.result.outcome() == outcome).count()
    }

    /// The middle of the good values of a profile; none before there are `HISTORY` of them.
    pub fn usual(&self, profile: &str, value: impl Fn(&Measurements) -> Option<f64>) -> Option<f64> {
        let mut values: Vec<f64> = self.good.get(profile)?.iter().filter_map(value).collect();
        values.sort_by(f64::total_cmp);
        (values.len() >= HISTORY).then(|| values.get(values.len() / 2).copied()).flatten()
    }

    /// Link time used in the day before a moment.
    pub fn used(&self, now: SystemTime) -> Duration {
        let day_ago = now.checked_sub(DAY).unwrap_or(SystemTime::UNIX_EPOCH);
        let today = self.spent.iter().filter(|(at, _)| *at > day_ago).map(|(_, took)| *took);
        today.fold(Duration::ZERO, Duration::saturating_add)
    }
}

/// The past of every probe.
pub type BenchmarkHistories = BTreeMap<BenchmarkKey, BenchmarkHistory>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_time_used_does_not_overflow() {
        let now = SystemTime::UNIX_EPOCH + DAY * 2;
        let history = BenchmarkHistory {
            spent: [(now, Duration::MAX), (now, Duration::from_secs(1))].into_iter().collect(),
            ..BenchmarkHistory::default()
        };
        assert_eq!(history.used(now), Duration::MAX);
    }

    const GOOD: RunResult = RunResult::Ok(Good::AsUsual);
    const SLOW: RunResult = RunResult::Slow(Shortfall::BelowCeiling);

    fn run(at: u64, result: RunResult, gbits: f64) -> BenchmarkRun {
        let port = PortKey { device: DeviceName::new("mlx5_7"), port: 1 };
        BenchmarkRun {
            key: BenchmarkKey { probe: Benchmark::RdmaLoopback, port: Some(port) },
            at: SystemTime::UNIX_EPOCH + Duration::from_secs(at),
            took: Duration::from_secs(7),
            result,
            text: Arc::from(""),
            measured: Measurements {
                bandwidth: vec![(Direction::OneWay, BytesPerSecond::from_gbits(gbits).0)],
                latency: Vec::new(),
            },
            ceiling: None,
            profile: Arc::from("p"),
            peer: None,
            function: None,
        }
    }

    #[test]
    fn runs_at_one_time_are_one_observation() {
        let mut past = BenchmarkHistory::default();
        for second in 0..10 {
            past.record(run(second, SLOW, 10.0));
        }
        assert_eq!((past.recent(Outcome::Slow), past.counts), (1, [0, 10, 0, 0, 0]));
        past.record(run(1_000, SLOW, 10.0));
        assert_eq!(past.recent(Outcome::Slow), 2);
    }

    #[test]
    fn slow_runs_do_not_lower_what_is_usual() {
        let mut past = BenchmarkHistory::default();
        let usual =
            |past: &BenchmarkHistory| past.usual("p", |m| m.bandwidth(Direction::OneWay).map(BytesPerSecond::gbits));
        for (at, gbits) in [(0, 90.0), (1_000, 92.0)] {
            past.record(run(at, GOOD, gbits));
        }
        assert_eq!(usual(&past), None, "two values are no history");
        past.record(run(2_000, GOOD, 91.0));
        for at in 3..30 {
            past.record(run(at * 1_000, SLOW, 20.0));
        }
        assert!(usual(&past).is_some_and(|usual| (usual - 91.0).abs() < 1e-9));
        assert_eq!(past.runs.len(), LAST);
    }

    #[test]
    fn a_skipped_run_is_counted_by_its_reason_and_leaves_the_last_result() {
        let mut past = BenchmarkHistory::default();
        past.record(run(0, GOOD, 90.0));
        past.record(BenchmarkRun { result: RunResult::Skipped(SkipReason::PortBusy), ..run(1_000, GOOD, 0.0) });
        assert_eq!(past.skips.get(&SkipReason::PortBusy), Some(&1));
        assert_eq!(past.last.map(|run| run.result.outcome()), Some(Outcome::Ok));
    }
}
