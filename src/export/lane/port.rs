//! A port at the end of a lane.

use crate::model::benchmark::BenchmarkRun;
use crate::model::counter::{CounterClass, CounterKind};
use crate::model::ids::{DeviceName, PortKey};
use crate::model::rdma::{Port, RdmaDevice};
use crate::model::reading::Reading;
use crate::model::time::rfc3339;
use crate::model::topology::Link;
use crate::model::units::BytesPerSecond;
use crate::watch::HostReport;

/// The end of a lane.
#[derive(Debug)]
pub struct PortEnd<'a> {
    /// The port.
    pub port: &'a Port,
    /// Its name.
    pub key: PortKey,
    /// Its rate, when it is active.
    pub rate: Option<BytesPerSecond>,
    /// The least of rate and path.
    pub ceiling: Option<BytesPerSecond>,
    /// What is left when all active ports of the path run at once.
    pub share: Option<BytesPerSecond>,
    /// One plain sentence on what the port can carry, and what holds it back.
    pub verdict: String,
    /// Whether something holds it back.
    pub held_back: bool,
    /// What probes last said of it, one sentence a probe.
    pub probes: Vec<String>,
}

impl<'a> PortEnd<'a> {
    pub(super) fn new(report: &HostReport, device: &'a RdmaDevice, port: &'a Port, limit: Option<&Link>) -> Self {
        let key = PortKey { device: device.name.clone(), port: port.number };
        let lane = report.lanes.ports.get(&key).cloned().unwrap_or_default();
        let carries = lane.share.or(lane.ceiling);
        let held_back = lane.rate.zip(carries).is_some_and(|(rate, carries)| carries.0 < rate.0 * (1.0 - 1e-9));
        let verdict = match (lane.rate, carries) {
            _ if port.state.value().is_none() => format!("not known: the port is {}", states(port)),
            _ if !port.is_active() => format!("no traffic: the port is {}", states(port)),
            (None, _) => "the port is active, and its rate is not known".to_owned(),
            (Some(rate), None) => {
                format!("{rate} at the port; what its PCIe path carries is not known")
            }
            (Some(rate), Some(carries)) if held_back => {
                let shared = lane.ceiling.is_some_and(|ceiling| carries.0 < ceiling.0 * (1.0 - 1e-9));
                let when = if shared { " when all ports on the path run at once" } else { "" };
                format!(
                    "{carries} of {rate}{when}: {}",
                    limit.map_or_else(|| "the PCIe path is the limit".into(), super::why)
                )
            }
            (Some(rate), Some(_)) => {
                let path = path_bandwidth(report, &device.name);
                let path = path.map(|path| format!(" (the PCIe path carries {path})")).unwrap_or_default();
                format!("{rate} of {rate}: nothing on the PCIe path holds it back{path}")
            }
        };
        let probes = report.probes.iter().filter(|(of, _)| of.port.as_ref() == Some(&key));
        let probes = probes.filter_map(|(_, past)| past.last.as_ref()).map(probe).collect();
        Self { port, key, rate: lane.rate, ceiling: lane.ceiling, share: lane.share, verdict, held_back, probes }
    }

    /// Its rate with the words for it: `200 Gb/s (4X HDR)`.
    pub fn rate_text(&self) -> Option<String> {
        let rate = self.rate?;
        let (width, speed) = self.port.rate.value().map_or((None, ""), |rate| (rate.width, rate.speed.as_str()));
        let words = match (width, speed) {
            (None, "") => String::new(),
            (None, speed) => format!(" ({speed})"),
            (Some(width), "") => format!(" ({width}X)"),
            (Some(width), speed) => format!(" ({width}X {speed})"),
        };
        Some(format!("{rate}{words}"))
    }

    /// Counters that say something: those that no longer count, and errors that are not zero; and what probes said.
    pub fn remarks(&self) -> Vec<String> {
        let port = self.port;
        let saturated: Vec<&str> = port.pma.saturated().chain(port.hardware.saturated()).map(|c| &*c.name).collect();
        let is_error = |meaning| meaning == CounterKind::Event(CounterClass::Error);
        let errors: Vec<String> = port
            .counters()
            .filter(|(counter, value)| is_error(counter.meaning) && *value > 0 && !saturated.contains(&&*counter.name))
            .map(|(counter, value)| format!("{} {value}", counter.name))
            .collect();
        let mut lines = Vec::new();
        if !saturated.is_empty() {
            lines.push(format!("at their maximum, no longer counting: {}", saturated.join(", ")));
        }
        if !errors.is_empty() {
            lines.push(format!("errors counted so far: {}", errors.join(", ")));
        }
        lines.extend(self.probes.iter().cloned());
        lines
    }

    /// The port's states in the kernel's words: `DOWN, Polling`.
    pub fn states(&self) -> String {
        states(self.port)
    }
}

/// What a run said: `rdma_loopback measured (2026-01-31T12:00:00Z, ok): …`.
fn probe(run: &BenchmarkRun) -> String {
    let peer = run.peer.as_ref().map(|peer| format!(" to {peer}")).unwrap_or_default();
    let (name, at, outcome) = (run.key.probe.as_str(), rfc3339(run.at), run.outcome.as_str());
    format!("{name}{peer} measured ({at}, {outcome}): {}", run.text)
}

fn path_bandwidth(report: &HostReport, device: &DeviceName) -> Option<BytesPerSecond> {
    report.lanes.paths.get(device).map(|path| path.bandwidth)
}

fn states(port: &Port) -> String {
    let state = match port.state {
        Reading::Value(state) => state.as_str(),
        Reading::Absent => "in an unknown state",
        Reading::Unreadable(_) => "in a state that cannot be read",
    };
    match port.physical_state {
        Reading::Value(physical) => format!("{state}, {}", physical.as_str()),
        Reading::Absent | Reading::Unreadable(_) => state.to_owned(),
    }
}
