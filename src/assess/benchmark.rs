//! Benchmarks: what a path could carry, how a run stands beside that and beside the past, and when it is a finding.

use super::View;
use super::capacity::HostCapacity;
use super::verdicts::Verdicts;
use crate::model::benchmark::{
    AGREE, Benchmark, BenchmarkHistory, BenchmarkKey, Direction, Doubt, Good, Measurements, Outcome, RunResult,
    Shortfall, Statistic,
};
use crate::model::check::{Check, Severity};
use crate::model::finding::{Condition, Hold, Subject};
use crate::model::ids::PortKey;
use crate::model::reason::FindingReason;
use crate::model::topology::Topology;
use crate::model::units::BytesPerSecond;
use crate::model::units::counted;

/// Share of the ceiling below which a run is slow.
const OF_CEILING: f64 = 0.85;

/// Share of what is usual below which a run is slow.
const OF_HISTORY: f64 = 0.90;

/// No measurement is above what physics allow by more than this.
const TOLERANCE: f64 = 1.02;

/// Bytes around the payload of a PCIe packet: framing, sequence number, header, checksums.
const PACKET_OVERHEAD: f64 = 24.0;

/// Largest payload of a PCIe packet that is taken for granted where the host does not say.
pub const USUAL_PAYLOAD: u32 = 256;

/// Speed from which links send fixed-size units (FLIT), of which 236 of 256 bytes are packets.
const FLIT: u64 = 64_000_000_000;

/// What a path could carry.
#[derive(Debug, Clone, PartialEq)]
pub struct Ceiling {
    /// Payload that the whole path carries each way.
    pub payload: BytesPerSecond,
    /// What its PCIe path carries, payload and all.
    pub path: Option<BytesPerSecond>,
    /// The port's rate; of a bond, that of all its ports.
    pub rate: Option<BytesPerSecond>,
    /// Whether the PCIe path is the limit.
    pub by_path: bool,
}

impl Ceiling {
    /// Puts a ceiling together from what is known of the rates and paths on the way. None when neither is known.
    pub fn new(rate: Option<BytesPerSecond>, path: Option<BytesPerSecond>, efficiency: f64) -> Option<Self> {
        let carried = path.map(|path| BytesPerSecond(path.0 * efficiency));
        let payload = match (rate, carried) {
            (Some(rate), Some(carried)) => rate.min(carried),
            (one, other) => one.or(other)?,
        };
        let by_path = rate.is_none_or(|rate| carried.is_some_and(|carried| carried.0 < rate.0));
        Some(Self { payload, path, rate, by_path })
    }

    /// The ceiling of a port. `bond`: the rate of the bond it belongs to. `payload`: the largest payload of its PCIe
    /// packets, in bytes, where the host says.
    pub fn of_port(
        lanes: &HostCapacity,
        topology: &Topology,
        port: &PortKey,
        bond: Option<BytesPerSecond>,
        payload: Option<u32>,
    ) -> Option<Self> {
        let path = lanes.paths.get(&port.device);
        let flit = path.is_some_and(|path| {
            let limiting = topology.links.get(&path.limiting);
            limiting.and_then(|link| link.speed().current).is_some_and(|speed| speed.0 >= FLIT)
        });
        let rate = lanes.ports.get(port).and_then(|lane| lane.rate);
        let rate = match (rate, bond) {
            (Some(rate), Some(bond)) => Some(BytesPerSecond(rate.0.max(bond.0))),
            (rate, bond) => rate.or(bond),
        };
        Self::new(rate, path.map(|path| path.bandwidth), efficiency(payload.unwrap_or(USUAL_PAYLOAD), flit))
    }

    /// The lesser of this and another end's.
    #[must_use]
    pub fn and(self, other: Option<Self>) -> Self {
        match other {
            Some(other) if other.payload.0 < self.payload.0 => other,
            _ => self,
        }
    }

    /// The most that a sound measurement can show. A loop inside a card does not meet the port's rate.
    fn bound(&self, probe: Benchmark) -> f64 {
        let raw = match (probe, self.path, self.rate) {
            (Benchmark::RdmaLoopback, Some(path), _) => path,
            (_, Some(path), Some(rate)) => path.min(rate),
            (_, path, rate) => path.or(rate).unwrap_or(self.payload),
        };
        raw.0 * TOLERANCE
    }
}

/// The share of a PCIe link's bytes that is payload, with packets of this largest payload.
pub fn efficiency(payload: u32, flit: bool) -> f64 {
    let payload = f64::from(payload.max(1));
    payload / (payload + PACKET_OVERHEAD) * if flit { 236.0 / 256.0 } else { 1.0 }
}

/// How a run stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunAssessment {
    /// Ok, slow, or inconclusive for what cannot be.
    pub result: RunResult,
    /// One sentence.
    pub text: String,
}

/// Judges what a run measured: bandwidth one way against the ceiling, where the device is hardware, and everything
/// against the past of the same profile.
pub fn judge(
    key: &BenchmarkKey,
    measured: &Measurements,
    ceiling: Option<&Ceiling>,
    hardware: bool,
    past: Option<(&BenchmarkHistory, &str)>,
) -> RunAssessment {
    let judged = |result, text| RunAssessment { result, text };
    let values = measured.bandwidth.iter().map(|(_, value)| *value);
    let mut values = values.chain(measured.latency.iter().map(|(_, _, value)| *value));
    if measured.is_empty() || values.any(|value| !value.is_finite() || value <= 0.0) {
        let text = "the program reported no plausible value".to_owned();
        return judged(RunResult::Inconclusive(Doubt::ImpossibleValue), text);
    }
    let ceiling = ceiling.filter(|_| hardware && matches!(key.probe, Benchmark::RdmaLoopback | Benchmark::RdmaPeer));
    let one_way = measured.bandwidth(Direction::OneWay);
    let ways = [(one_way, 1.0), (measured.bandwidth(Direction::Both), 2.0)];
    for (value, ways) in ways {
        let Some((value, ceiling)) = value.zip(ceiling) else { continue };
        if value.0 > ceiling.bound(key.probe) * ways {
            let text =
                format!("{value} exceeds what the path can carry ({}), so the result is discarded", ceiling.payload);
            return judged(RunResult::Inconclusive(Doubt::ImpossibleValue), text);
        }
    }
    if let Some((value, ceiling)) = one_way.zip(ceiling)
        && value.0 < ceiling.payload.0 * OF_CEILING
    {
        let text = format!(
            "{value} is {} of what the path can carry ({}), although its links look fine. Check the NUMA node of the \
             memory, `lanewatch check` and power settings, then run it again on an idle host",
            percent(value, ceiling.payload),
            ceiling.payload
        );
        return judged(RunResult::Slow(Shortfall::BelowCeiling), text);
    }
    if let Some(text) = past.and_then(|(past, profile)| below_history(measured, past, profile)) {
        return judged(RunResult::Slow(Shortfall::BelowHistory), text);
    }
    match one_way.zip(ceiling) {
        Some((value, ceiling)) => judged(RunResult::Ok(Good::NearCeiling), near(value, ceiling)),
        None => judged(RunResult::Ok(Good::AsUsual), plain(measured)),
    }
}

/// What is below what is usual, in words.
fn below_history(measured: &Measurements, past: &BenchmarkHistory, profile: &str) -> Option<String> {
    for (direction, value) in &measured.bandwidth {
        let usual = past.usual(profile, |m| m.bandwidth(*direction).map(|value| value.0));
        if let Some(usual) = usual.filter(|usual| *value < usual * OF_HISTORY) {
            let (value, usual) = (BytesPerSecond(*value), BytesPerSecond(usual));
            return Some(format!("{value} is {} of the usual {usual} on this host", percent(value, usual)));
        }
    }
    for (direction, statistic, value) in &measured.latency {
        if !matches!(statistic, Statistic::Typical | Statistic::Average) {
            continue;
        }
        let usual = past.usual(profile, |m| m.latency(*direction, *statistic));
        if let Some(usual) = usual.filter(|usual| *value > usual / OF_HISTORY) {
            return Some(format!(
                "a {} takes {:.2} µs; usual on this host: {:.2} µs",
                direction.as_str(),
                value * 1e6,
                usual * 1e6
            ));
        }
    }
    None
}

/// A value that is near the ceiling: which limit that is.
fn near(value: BytesPerSecond, ceiling: &Ceiling) -> String {
    match (ceiling.by_path, ceiling.path, ceiling.rate) {
        (true, Some(path), Some(rate)) if path.0 < rate.0 => format!(
            "{value} is {} of the PCIe path ({:.1}): PCIe-bound, not SR-IOV, not the cable",
            percent(value, path),
            path.gbits()
        ),
        (true, Some(path), _) => format!("{value} is {} of the PCIe path ({path})", percent(value, path)),
        (_, _, Some(rate)) => format!("{value} is {} of the port's rate ({rate})", percent(value, rate)),
        _ => format!("{value} is {} of the ceiling ({})", percent(value, ceiling.payload), ceiling.payload),
    }
}

/// What was measured, without a comparison.
fn plain(measured: &Measurements) -> String {
    let way = |direction: &Direction| match direction {
        Direction::OneWay | Direction::Write => String::new(),
        Direction::Both => " (sum of both directions)".to_owned(),
        other => format!(" ({})", other.as_str()),
    };
    let bandwidth = measured.bandwidth.iter().map(|(d, value)| format!("{}{}", BytesPerSecond(*value), way(d)));
    let typical = measured.latency.iter().filter(|(_, of, _)| matches!(of, Statistic::Typical | Statistic::Average));
    let latency = typical.take(1).map(|(d, _, value)| format!("{:.2} us{}", value * 1e6, way(d)));
    bandwidth.chain(latency).collect::<Vec<_>>().join(", ")
}

/// `96 %`
pub fn percent(value: BytesPerSecond, of: BytesPerSecond) -> String {
    format!("{:.0} %", value.0 / of.0 * 100.0)
}

fn subject(key: &BenchmarkKey) -> Subject {
    key.port.clone().map_or(Subject::Host("memory"), Subject::Port)
}

/// `probe_slow`: three of the last five runs at different times were slow.
pub fn slow(view: &View<'_>, verdicts: &mut Verdicts) {
    each(view, verdicts, Check::ProbeSlow, Outcome::Slow, |result| match result {
        RunResult::Slow(Shortfall::BelowHistory) => FindingReason::BelowHistory,
        _ => FindingReason::BelowCeiling,
    });
}

/// `probe_failing`: three of the last five runs at different times could not move data.
pub fn failing(view: &View<'_>, verdicts: &mut Verdicts) {
    each(view, verdicts, Check::ProbeFailing, Outcome::Failed, |result| match result {
        RunResult::Failed(failure) => FindingReason::from(failure),
        _ => FindingReason::Failed,
    });
}

fn each(
    view: &View<'_>,
    verdicts: &mut Verdicts,
    check: Check,
    outcome: Outcome,
    reason: fn(RunResult) -> FindingReason,
) {
    for (key, past) in &view.history.probes {
        let here = key.device().is_none_or(|device| view.snapshot.device(device).is_some());
        let last = past.runs.iter().rev().find(|run| run.result.outcome() == outcome);
        let Some(run) = last.filter(|_| here && past.recent(outcome) >= AGREE) else {
            if past.runs.is_empty() || !here {
                verdicts.skipped(check);
            } else {
                verdicts.ok(check);
            }
            continue;
        };
        let verb = if outcome == Outcome::Slow { "is slow" } else { "fails" };
        let (name, count, of) = (key.probe.as_str(), past.recent(outcome), past.runs.len());
        let peer = run.peer.as_ref().map(|peer| format!(" to {peer}")).unwrap_or_default();
        let at = subject(key);
        let summary =
            format!("{name}{peer} on {at} {verb} in {count} of the last {}: {}.", counted(of, "run"), run.text);
        let mut condition = Condition::new(check, at, Severity::Warning, reason(run.result), summary).hold(Hold::None);
        let measured = run.measured.bandwidth.first().map(|(_, value)| *value);
        condition = condition
            .with_evidence("probe", Some(name))
            .with_evidence("probe_bandwidth_bytes_per_second", measured)
            .with_evidence("probe_ceiling_bytes_per_second", run.ceiling.map(|ceiling| ceiling.0))
            .with_evidence("profile", Some(&*run.profile));
        verdicts.found(condition);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::sync::Arc;
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::model::benchmark::BenchmarkRun;
    use crate::model::ids::DeviceName;

    fn gbits(value: f64) -> BytesPerSecond {
        BytesPerSecond::from_gbits(value)
    }

    fn key(probe: Benchmark) -> BenchmarkKey {
        BenchmarkKey { probe, port: Some(PortKey { device: DeviceName::new("mlx5_7"), port: 1 }) }
    }

    fn one_way(value: f64) -> Measurements {
        Measurements { bandwidth: vec![(Direction::OneWay, gbits(value).0)], latency: Vec::new() }
    }

    /// 200 Gb/s behind 8 GT/s x8.
    fn narrow() -> Ceiling {
        Ceiling::new(Some(gbits(200.0)), Some(gbits(8.0 * 8.0 * 128.0 / 130.0)), efficiency(256, false)).unwrap()
    }

    fn judged(measured: &Measurements, ceiling: Option<&Ceiling>) -> RunAssessment {
        judge(&key(Benchmark::RdmaPeer), measured, ceiling, true, None)
    }

    #[test]
    fn payload_and_flit_take_their_share() {
        assert!((efficiency(256, false) - 256.0 / 280.0).abs() < 1e-12);
        assert!((efficiency(512, true) - 512.0 / 536.0 * 0.921_875).abs() < 1e-12);
        assert!(efficiency(0, false) > 0.0);
    }

    #[test]
    fn the_narrow_link_is_named() {
        let said = judged(&one_way(60.26), Some(&narrow()));
        assert_eq!(said.result.outcome(), Outcome::Ok);
        assert_eq!(said.text, "60.3 Gb/s is 96 % of the PCIe path (63.0): PCIe-bound, not SR-IOV, not the cable");
    }

    #[test]
    fn a_wide_link_leaves_the_port_as_the_limit() {
        let wide = Ceiling::new(Some(gbits(200.0)), Some(gbits(252.1)), efficiency(256, false)).unwrap();
        assert!(!wide.by_path && (wide.payload.gbits() - 200.0).abs() < 1e-9);
        assert_eq!(judged(&one_way(195.7), Some(&wide)).text, "195.7 Gb/s is 98 % of the port's rate (200 Gb/s)");
        let slow = judged(&one_way(13.2), Some(&wide));
        assert_eq!(slow.result, RunResult::Slow(Shortfall::BelowCeiling));
        assert!(slow.text.starts_with("13.2 Gb/s is 7 % of what the path can carry (200 Gb/s)"), "{}", slow.text);
    }

    #[test]
    fn the_worse_end_is_the_ceiling() {
        let wide = Ceiling::new(Some(gbits(200.0)), Some(gbits(252.1)), 0.9).unwrap();
        assert_eq!(wide.clone().and(Some(narrow())), narrow());
        assert_eq!(narrow().and(None), narrow());
        assert_eq!(Ceiling::new(None, None, 0.9), None);
    }

    #[test]
    fn a_sum_of_both_directions_meets_no_one_way_ceiling() {
        let both =
            |value: f64| Measurements { bandwidth: vec![(Direction::Both, gbits(value).0)], latency: Vec::new() };
        let said = judged(&both(111.7), Some(&narrow()));
        assert_eq!((said.result.outcome(), said.text.as_str()), (Outcome::Ok, "111.7 Gb/s (sum of both directions)"));
        assert_eq!(
            judged(&both(20.0), Some(&narrow())).result.outcome(),
            Outcome::Ok,
            "half of a sum may be one way alone"
        );
        assert_eq!(judged(&both(140.0), Some(&narrow())).result.outcome(), Outcome::Inconclusive);
    }

    #[test]
    fn what_cannot_be_is_not_believed() {
        for value in [f64::NAN, f64::INFINITY, -3.0, 0.0, 70.0] {
            let said = judged(&one_way(value), Some(&narrow()));
            assert_eq!(said.result, RunResult::Inconclusive(Doubt::ImpossibleValue), "{value}");
        }
        assert_eq!(judged(&Measurements::default(), None).result.outcome(), Outcome::Inconclusive);
        let wide = Ceiling::new(Some(gbits(100.0)), Some(gbits(252.1)), efficiency(256, false)).unwrap();
        let loopback = judge(&key(Benchmark::RdmaLoopback), &one_way(180.0), Some(&wide), true, None);
        assert_eq!(loopback.result.outcome(), Outcome::Ok, "inside the card the port's rate is no limit");
    }

    #[test]
    fn tcp_software_and_latency_meet_their_past_alone() {
        let mut past = BenchmarkHistory::default();
        let measured = |gbits: f64, us: f64| Measurements {
            latency: vec![(Direction::Write, Statistic::Typical, us * 1e-6)],
            ..one_way(gbits)
        };
        let record = |past: &mut BenchmarkHistory, at: u64, measured: Measurements| {
            past.record(BenchmarkRun {
                key: key(Benchmark::TcpPeer),
                at: SystemTime::UNIX_EPOCH + Duration::from_secs(at),
                took: Duration::from_secs(5),
                result: RunResult::Ok(Good::AsUsual),
                text: Arc::from(""),
                measured,
                ceiling: None,
                profile: Arc::from("p"),
                peer: None,
                function: None,
            });
        };
        (0..3).for_each(|n| record(&mut past, n * 1_000, measured(20.0, 2.0)));
        let said =
            |probe, m: &Measurements, hardware| judge(&key(probe), m, Some(&narrow()), hardware, Some((&past, "p")));
        assert_eq!(said(Benchmark::TcpPeer, &measured(19.0, 2.0), true).result.outcome(), Outcome::Ok);
        assert_eq!(
            said(Benchmark::RdmaPeer, &measured(19.0, 2.0), false).result.outcome(),
            Outcome::Ok,
            "software RDMA"
        );
        let slow = said(Benchmark::TcpPeer, &measured(17.0, 2.0), true);
        assert_eq!(slow.result, RunResult::Slow(Shortfall::BelowHistory));
        assert_eq!(slow.text, "17 Gb/s is 85 % of the usual 20 Gb/s on this host");
        let late = said(Benchmark::TcpPeer, &measured(20.0, 3.0), true);
        assert_eq!(
            (late.result.outcome(), late.text.as_str()),
            (Outcome::Slow, "a write takes 3.00 µs; usual on this host: 2.00 µs")
        );
        let other = judge(&key(Benchmark::TcpPeer), &measured(2.0, 9.0), None, true, Some((&past, "other")));
        assert_eq!(other.result.outcome(), Outcome::Ok, "profiles do not compare");
    }
}
