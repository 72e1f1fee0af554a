//! One run of one probe, from the facts to what is said of it.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use super::process::PerftestOutcome;
use super::process::Toolbox;
use super::rdma::{self, BenchmarkTool, Peer, PeerError, RemoteServer, TestPlan, Timeouts};
use super::target::BenchmarkTarget;
use super::{iperf, memory};
use crate::assess::benchmark::judge;
use crate::host::Host;
use crate::host::netlink::socket::NetlinkConnector;
use crate::model::benchmark::{
    Benchmark, BenchmarkKey, BenchmarkRun, Direction, Doubt, Failure, Measurements, Outcome, RunResult, SkipReason,
    Statistic,
};
use crate::model::ids::PortKey;
use crate::model::pcie::FunctionKind;
use crate::model::rdma::RdmaDevice;
use crate::watch::HostReport;

/// How probes measure.
#[derive(Debug, Clone, PartialEq)]
pub struct BenchmarkParameters {
    /// Message size in bytes.
    pub size: u64,
    /// Queue pairs of RDMA, streams of TCP.
    pub queue_pairs: u32,
    /// How long bandwidth is measured.
    pub duration: Duration,
    /// Whether the sum of both directions is measured too.
    pub both: bool,
    /// A GID index in the place of the one that is found.
    pub gid_index: Option<u32>,
    /// How long things may take.
    pub timeouts: Timeouts,
}

impl Default for BenchmarkParameters {
    fn default() -> Self {
        Self {
            size: 1 << 20,
            queue_pairs: 4,
            duration: Duration::from_secs(5),
            both: false,
            gid_index: None,
            timeouts: Timeouts::default(),
        }
    }
}

/// The share of the bytes that a program claims which the port's counters must show.
const MOVED: f64 = 0.8;
/// How many times the bytes that a program claims they may show: it starts before it measures, and ends after.
const MOVED_MORE: f64 = 3.0;

/// What a run needs.
pub struct BenchmarkRunner<'a> {
    /// The host as it is now.
    pub report: &'a HostReport,
    /// Its files.
    pub host: &'a Host,
    /// The programs.
    pub tools: &'a Toolbox,
    /// How to measure.
    pub parameters: &'a BenchmarkParameters,
    /// Whom to ask for routes.
    pub route: Option<&'a NetlinkConnector>,
    /// What to call each step while it runs.
    pub progress: &'a dyn Fn(&str),
    /// The wall clock.
    pub now: &'a dyn Fn() -> SystemTime,
}

/// What came of a run before it is judged.
enum Measurement {
    Measured(Measurements, Option<String>),
    Ended(RunResult, String),
}

impl Measurement {
    fn skipped(reason: SkipReason, text: String) -> Self {
        Self::Ended(RunResult::Skipped(reason), text)
    }

    fn inconclusive(doubt: Doubt, text: String) -> Self {
        Self::Ended(RunResult::Inconclusive(doubt), text)
    }

    fn unavailable(program: &str) -> Self {
        Self::skipped(SkipReason::Unavailable, format!("{program} is not installed"))
    }

    fn io(program: &str, error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::NotFound {
            return Self::unavailable(program);
        }
        Self::inconclusive(Doubt::NotStarted, format!("{program} cannot be started: {error}"))
    }
}

impl BenchmarkRunner<'_> {
    /// Runs a probe; those between hosts need a peer.
    pub fn run(&self, key: &BenchmarkKey, peer: Option<&dyn Peer>) -> BenchmarkRun {
        let began = Instant::now();
        let target =
            key.port.as_ref().and_then(|port| BenchmarkTarget::new(self.report, self.host, port)).map(|mut target| {
                target.gid_index = self.parameters.gid_index.or(target.gid_index);
                target
            });
        let mut server = None;
        let came = match (key.probe, &target, peer) {
            (Benchmark::Memory, _, _) => self.memory(),
            (_, None, _) => {
                let port = key.port.as_ref().map_or_else(String::new, ToString::to_string);
                Measurement::skipped(SkipReason::Unknown, format!("there is no port {port} on this host"))
            }
            (Benchmark::RdmaLoopback, Some(target), _) => self.rdma(target, None, &mut server),
            (_, Some(_), None) => Measurement::skipped(SkipReason::Unknown, "it needs a peer".to_owned()),
            (Benchmark::RdmaPeer, Some(target), Some(peer)) => self.rdma(target, Some(peer), &mut server),
            (Benchmark::TcpPeer, Some(target), Some(peer)) => self.tcp(target, peer, &mut server),
        };
        let profile = self.profile(key.probe, peer);
        let ceiling = target.as_ref().and_then(|target| target.ceiling.clone());
        let far = server.and_then(|server: RemoteServer| server.ceiling);
        let ceiling = match (ceiling, far) {
            (Some(near), far) => Some(near.and(far)),
            (None, far) => far,
        };
        let hardware = target.as_ref().is_some_and(BenchmarkTarget::is_hardware);
        let (result, text, measured) = match came {
            Measurement::Ended(result, text) => (result, text, Measurements::default()),
            Measurement::Measured(measured, remark) => {
                let past = self.report.probes.get(key).map(|past| (past, profile.as_str()));
                let judged = judge(key, &measured, ceiling.as_ref(), hardware, past);
                let believed = judged.result.outcome() != Outcome::Inconclusive;
                let remark = remark.map(|remark| format!("; {remark}")).unwrap_or_default();
                let measured = if believed { measured } else { Measurements::default() };
                (judged.result, judged.text + &remark, measured)
            }
        };
        BenchmarkRun {
            key: key.clone(),
            at: (self.now)(),
            took: began.elapsed(),
            result,
            text: Arc::from(text),
            measured,
            ceiling: ceiling.filter(|_| hardware && key.probe != Benchmark::TcpPeer).map(|ceiling| ceiling.payload),
            profile: Arc::from(profile),
            peer: peer.map(|peer| Arc::from(peer.name())),
            function: target.and_then(|target| target.function),
        }
    }

    /// Only runs of one profile compare.
    fn profile(&self, probe: Benchmark, peer: Option<&dyn Peer>) -> String {
        let BenchmarkParameters { size, queue_pairs, duration, both, .. } = self.parameters;
        let to = peer.map(|peer| format!(" to {}", peer.name())).unwrap_or_default();
        let seconds = duration.as_secs();
        match probe {
            Benchmark::Memory => "copy".to_owned(),
            Benchmark::TcpPeer => format!("{queue_pairs} streams, {seconds} s{to}"),
            Benchmark::RdmaLoopback | Benchmark::RdmaPeer => {
                let both = if *both { ", both ways too" } else { "" };
                format!("write {size} B x {queue_pairs} queue pairs, {seconds} s{both}{to}")
            }
        }
    }

    fn memory(&self) -> Measurement {
        (self.progress)("memory");
        match memory::measure(&memory::nodes(self.report)) {
            Ok(measured) => Measurement::Measured(measured, None),
            Err(why) => Measurement::inconclusive(Doubt::NotStarted, why.to_owned()),
        }
    }

    fn plan(&self, program: BenchmarkTool, both: bool) -> TestPlan {
        let BenchmarkParameters { size, queue_pairs, duration, .. } = *self.parameters;
        TestPlan { program, size, queue_pairs, duration, both }
    }

    fn rdma(
        &self,
        target: &BenchmarkTarget,
        peer: Option<&dyn Peer>,
        server: &mut Option<RemoteServer>,
    ) -> Measurement {
        let mut measured = Measurements::default();
        let before = target.moved();
        let mut claimed = 0.0;
        let mut plans = vec![self.plan(BenchmarkTool::WriteBandwidth, false)];
        if self.parameters.both {
            plans.push(self.plan(BenchmarkTool::WriteBandwidth, true));
        }
        plans
            .extend([BenchmarkTool::WriteLatency, BenchmarkTool::ReadLatency].map(|program| self.plan(program, false)));
        for (index, plan) in plans.iter().enumerate() {
            (self.progress)(plan.program.name());
            let attempt = match self.attempt(target, plan, peer, server) {
                Ok(attempt) => attempt,
                // Without the first there is no probe; without the others it says less.
                Err(_) if index > 0 => continue,
                Err(came) => return came,
            };
            match attempt {
                PerftestOutcome::Measured(report) => {
                    if let Some(row) = report.best() {
                        let direction = if plan.both { Direction::Both } else { Direction::OneWay };
                        measured.bandwidth.push((direction, row.average.0));
                        claimed += row.average.0 * plan.duration.as_secs_f64() / if plan.both { 2.0 } else { 1.0 };
                    }
                    let direction =
                        if plan.program == BenchmarkTool::ReadLatency { Direction::Read } else { Direction::Write };
                    for (statistic, value) in report.latency.iter().flat_map(|row| &row.values) {
                        measured.latency.push((direction, *statistic, *value));
                    }
                }
                _ if index > 0 => {}
                PerftestOutcome::Failed(failure, text) if is_gone(failure, peer) => {
                    return Measurement::inconclusive(Doubt::PeerGone, text);
                }
                PerftestOutcome::Failed(failure, text) => {
                    return Measurement::Ended(RunResult::Failed(failure), text);
                }
                PerftestOutcome::Inconclusive(doubt, text) => {
                    return Measurement::inconclusive(doubt, text);
                }
            }
        }
        let latency =
            measured.latency(Direction::Write, Statistic::Typical).map(|v| format!("a write takes {:.2} µs", v * 1e6));
        match counted(before, target.moved(), claimed, peer.is_some()) {
            Ok(remark) => {
                let remarks: Vec<String> = latency.into_iter().chain(remark).collect();
                Measurement::Measured(measured, (!remarks.is_empty()).then(|| remarks.join("; ")))
            }
            Err(text) => Measurement::inconclusive(Doubt::CountersDisagree, text),
        }
    }

    fn attempt(
        &self,
        target: &BenchmarkTarget,
        plan: &TestPlan,
        peer: Option<&dyn Peer>,
        server: &mut Option<RemoteServer>,
    ) -> Result<PerftestOutcome, Measurement> {
        let name = plan.program.name();
        if self.tools.find(name).is_none() {
            return Err(Measurement::unavailable(name));
        }
        if let Some(peer) = peer {
            let started = peer.start(plan).map_err(|why| no_peer(peer, &why))?;
            *server = Some(started);
        }
        let timeouts = self.parameters.timeouts;
        rdma::run(self.tools, target, plan, server.as_ref(), timeouts).map_err(|error| Measurement::io(name, &error))
    }

    fn tcp(&self, target: &BenchmarkTarget, peer: &dyn Peer, server: &mut Option<RemoteServer>) -> Measurement {
        if self.tools.find(iperf::PROGRAM).is_none() {
            return Measurement::unavailable(iperf::PROGRAM);
        }
        (self.progress)(iperf::PROGRAM);
        // Where the data would go is unknown until the kernel responds.
        let Some(Ok(mut kernel)) = self.route.map(|connect| connect()) else {
            let why = "the kernel does not say which route it would use".to_owned();
            return Measurement::skipped(SkipReason::Unknown, why);
        };
        // Where it is known already, no server is started for nothing.
        if let Ok(Some(why)) = iperf::stays_here(peer.host(), &mut *kernel) {
            return Measurement::skipped(SkipReason::LocalRoute, why);
        }
        let started = match peer.start(&self.plan(BenchmarkTool::Iperf, false)) {
            Ok(started) => started,
            Err(why) => return no_peer(peer, &why),
        };
        match iperf::stays_here(&started.host, &mut *kernel) {
            Ok(None) => {}
            Ok(Some(why)) => return Measurement::skipped(SkipReason::LocalRoute, why),
            Err(error) => {
                return Measurement::skipped(SkipReason::Unknown, format!("no route to {}: {error}", started.host));
            }
        }
        let BenchmarkParameters { queue_pairs, duration, timeouts, .. } = *self.parameters;
        let run = iperf::run(self.tools, &started, queue_pairs, duration, target.cpus.as_ref(), timeouts);
        *server = Some(started);
        match run {
            Ok(iperf::TcpOutcome::Measured(measured, again)) => {
                Measurement::Measured(measured, again.map(|count| format!("{count} segments were retransmitted")))
            }
            Ok(iperf::TcpOutcome::Failed(failure, text)) if is_gone(failure, Some(peer)) => {
                Measurement::inconclusive(Doubt::PeerGone, text)
            }
            Ok(iperf::TcpOutcome::Failed(failure, text)) => Measurement::Ended(RunResult::Failed(failure), text),
            Ok(iperf::TcpOutcome::Inconclusive(doubt, text)) => Measurement::inconclusive(doubt, text),
            Err(error) => Measurement::io(iperf::PROGRAM, &error),
        }
    }
}

fn no_peer(peer: &dyn Peer, why: &PeerError) -> Measurement {
    let text = format!("{} did not start a server: {}", peer.name(), why.text);
    Measurement::inconclusive(why.reason, text)
}

/// A server that was there when it was started and is not any more says something of its host, not of the device.
fn is_gone(failure: Failure, peer: Option<&dyn Peer>) -> bool {
    peer.is_some() && failure == Failure::TcpSetup
}

/// Whether the port's counters agree with what a program claims. What stays inside a card need not be counted.
fn counted(
    before: Option<(u64, u64)>,
    after: Option<(u64, u64)>,
    claimed: f64,
    wire: bool,
) -> Result<Option<String>, String> {
    let Some(((received, sent), (now_received, now_sent))) = before.zip(after) else { return Ok(None) };
    let risen = now_received.saturating_sub(received).max(now_sent.saturating_sub(sent));
    #[expect(clippy::cast_precision_loss, reason = "within a run far below 2^53 bytes")]
    let share = risen as f64 / claimed.max(1.0);
    let gigabytes = |bytes: f64| format!("{:.1} GB", bytes / 1e9);
    if share > MOVED_MORE {
        return Err(format!(
            "the port moved {:.1} times the {} of the benchmark: other traffic used it, so the value is discarded",
            share,
            gigabytes(claimed)
        ));
    }
    if share >= MOVED {
        return Ok(None);
    }
    if wire {
        return Err(format!(
            "the program reports {}, but the port's counters rose by {:.0} % of that: the data took another path",
            gigabytes(claimed),
            share * 100.0
        ));
    }
    Ok(Some("the port's counters did not rise: the data stayed inside the card".to_owned()))
}

/// The probes of a host that need nobody else: a loop on each active port, and memory. VFs share their PF's path.
pub fn own(report: &HostReport) -> Vec<BenchmarkKey> {
    let is_vf = |device: &&RdmaDevice| {
        let function = device.identity.pci_address.and_then(|address| report.snapshot.function(address));
        function.is_some_and(|function| matches!(function.kind, FunctionKind::Virtual { pf: Some(_) }))
    };
    let active = report.snapshot.devices().filter(|device| !is_vf(device)).flat_map(|device| {
        let ports = device.ports.iter().filter(|port| port.is_active());
        ports.map(|port| PortKey { device: device.name.clone(), port: port.number })
    });
    let mut keys: Vec<BenchmarkKey> =
        active.map(|port| BenchmarkKey { probe: Benchmark::RdmaLoopback, port: Some(port) }).collect();
    keys.push(BenchmarkKey { probe: Benchmark::Memory, port: None });
    keys.sort();
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_must_follow_on_the_wire() {
        let claimed = 10e9;
        let after = |bytes: u64| Some((1_000, 1_000 + bytes));
        let before = Some((1_000, 1_000));
        assert_eq!(counted(before, after(11_000_000_000), claimed, true), Ok(None));
        assert_eq!(counted(None, after(1), claimed, true), Ok(None), "what is not counted says nothing");
        assert!(counted(before, after(1_000), claimed, true).is_err_and(|text| text.contains("another path")));
        assert!(counted(before, after(1_000), claimed, false).is_ok_and(|remark| remark.is_some()));
        assert!(
            counted(before, after(90_000_000_000), claimed, false)
                .is_err_and(|text| text.contains("other traffic used it"))
        );
    }
}
