//! A port at the end of a path: what it can carry, and how it is set up.

use std::net::Ipv4Addr;

use super::hop::why;
use super::line::line_lines;
use crate::model::benchmark::BenchmarkRun;
use crate::model::counter::{CounterClass, CounterKind};
use crate::model::ids::{DeviceName, PortKey};
use crate::model::net::NetdevLine;
use crate::model::net::{NetdevSetup, Offload, PortAddressing};
use crate::model::rdma::{LinkLayer, Port, RdmaDevice};
use crate::model::reading::Reading;
use crate::model::time::rfc3339;
use crate::model::topology::Link;
use crate::model::units::BytesPerSecond;
use crate::watch::HostReport;

/// The end of a path.
#[derive(Debug)]
pub struct PathEnd<'a> {
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
    /// What is known of its physical end: cable or module, errors on the line, temperature, flaps.
    pub line: Vec<String>,
    /// What probes last said of it, one sentence a probe.
    pub probes: Vec<String>,
}

impl<'a> PathEnd<'a> {
    pub(super) fn new(report: &HostReport, device: &'a RdmaDevice, port: &'a Port, limit: Option<&Link>) -> Self {
        let key = PortKey { device: device.name.clone(), port: port.number };
        let capacity = report.lanes.ports.get(&key).cloned().unwrap_or_default();
        let carries = capacity.share.or(capacity.ceiling);
        let held_back = capacity.rate.zip(carries).is_some_and(|(rate, carries)| carries.0 < rate.0 * (1.0 - 1e-9));
        let verdict = match (capacity.rate, carries) {
            _ if port.state.value().is_none() => format!("unknown: the port is {}", states(port)),
            _ if !port.is_active() => format!("no traffic: the port is {}", states(port)),
            (None, _) => "the port is active, but its rate is unknown".to_owned(),
            (Some(rate), None) => {
                format!("{rate} at the port; the bandwidth of its PCIe path is unknown")
            }
            (Some(rate), Some(carries)) if held_back => {
                let shared = capacity.ceiling.is_some_and(|ceiling| carries.0 < ceiling.0 * (1.0 - 1e-9));
                let when = if shared { " when all ports on the path run at once" } else { "" };
                format!("{carries} of {rate}{when}: {}", limit.map_or_else(|| "the PCIe path is the limit".into(), why))
            }
            (Some(rate), Some(_)) => {
                let path = path_bandwidth(report, &device.name);
                let path = path.map(|path| format!(" (the PCIe path carries {path})")).unwrap_or_default();
                format!("{rate} of {rate}: nothing on the PCIe path holds it back{path}")
            }
        };
        let line = line_lines(report, device, port, &key);
        let probes = report.probes.iter().filter(|(of, _)| of.port.as_ref() == Some(&key));
        let probes = probes.filter_map(|(_, past)| past.last.as_ref()).map(probe).collect();
        Self {
            port,
            key,
            rate: capacity.rate,
            ceiling: capacity.ceiling,
            share: capacity.share,
            verdict,
            held_back,
            line,
            probes,
        }
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
        let stand_ins =
            port.hardware.iter().filter_map(|(counter, _)| Some((&counter.name, counter.stands_for.as_ref()?)));
        let stand_ins: Vec<String> = stand_ins.map(|(own, other)| format!("{own} for {other}")).collect();
        if !stand_ins.is_empty() {
            lines.push(format!("counters/ is not readable, so hw_counters/ is used: {}", stand_ins.join(", ")));
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
    let (name, at, outcome) = (run.key.probe.as_str(), rfc3339(run.at), run.result.outcome().as_str());
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

/// What is known of a port's addressing and of its interface, a line for each side of it.
pub fn setup_lines(report: &HostReport, end: &PathEnd<'_>) -> Vec<String> {
    let snapshot = &report.snapshot;
    let mut lines = Vec::new();
    if let Some(addressing) = snapshot.all::<PortAddressing>().find(|addressing| addressing.port == end.key) {
        lines.extend(addressing_line(addressing, end));
    }
    let Some(netdev) = end.port.netdev.as_deref() else { return lines };
    let setup = snapshot.all::<NetdevSetup>().find(|setup| &*setup.netdev == netdev);
    let line = snapshot.all::<NetdevLine>().find(|line| &*line.netdev == netdev);
    lines.extend(ethernet(setup, line));
    if let Some(setup) = setup {
        lines.extend(setup.ipoib.as_ref().map(|ipoib| format!("IPoIB in {} mode", ipoib.mode)));
        lines.extend(offloads(&setup.offloads));
    }
    lines
}

fn addressing_line(addressing: &PortAddressing, end: &PathEnd<'_>) -> Option<String> {
    let mut parts: Vec<String> = Vec::new();
    if end.port.link_layer == Some(LinkLayer::Ethernet) {
        let gids: Vec<String> = addressing.gids.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        if !gids.is_empty() {
            parts.push(format!("GIDs: {}", gids.join(", ")));
        }
        parts.extend(roce_v2(&addressing.roce_v2));
        parts.extend(addressing.default_mode.as_deref().map(|mode| format!("{mode} by default")));
        parts.extend(addressing.default_tos.map(|tos| format!("type of service {tos} by default")));
        parts.extend(addressing.traffic_class.map(|class| format!("traffic class {class} for all")));
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// Which GID index a program is given for RoCE v2.
fn roce_v2(entries: &[(u32, Option<Ipv4Addr>)]) -> Option<String> {
    let over_ipv4 = entries.iter().filter_map(|(index, address)| address.map(|address| format!("{index} ({address})")));
    let over_ipv4: Vec<String> = over_ipv4.collect();
    match (over_ipv4.is_empty(), entries.first()) {
        (false, _) => Some(format!("RoCE v2 of IPv4 at GID index {}", over_ipv4.join(", "))),
        (true, Some((index, _))) => Some(format!("RoCE v2 at GID index {index}, none of IPv4")),
        (true, None) => None,
    }
}

fn ethernet(setup: Option<&NetdevSetup>, line: Option<&NetdevLine>) -> Option<String> {
    let mut parts: Vec<String> = Vec::new();
    if let Some(setup) = setup {
        parts.extend(setup.dcb.pfc.map(|pfc| {
            if pfc.enabled.is_empty() {
                "PFC on no priority".to_owned()
            } else {
                format!("PFC on priority {}", pfc.enabled)
            }
        }));
        parts.extend(setup.dcb.trust.map(|trust| format!("priority by {}", trust.as_str())));
        parts.extend(setup.dcb.roce_priority.map(|priority| format!("RoCE given priority {priority}")));
        parts.extend(setup.ecn.map(|ecn| format!("ECN answered on {}, obeyed on {}", ecn.notifies, ecn.reacts)));
        parts.extend(setup.dcb.dcbx.map(|dcbx| format!("DCBX by the {dcbx}")));
    }
    if let Some(line) = line {
        parts.extend(line.fec.map(|fec| format!("FEC {}", fec.as_str())));
        parts.extend(line.pause.map(|pause| {
            let word = match pause {
                (true, true) => "both ways",
                (true, false) => "obeyed, not sent",
                (false, true) => "sent, not obeyed",
                (false, false) => "off",
            };
            format!("pauses of the whole link {word}")
        }));
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// On, off, and off for good; those that can't be switched off are among those that are on.
fn offloads(offloads: &[Offload]) -> Vec<String> {
    let list = |title: &str, suits: &dyn Fn(&Offload) -> bool| {
        let names: Vec<String> = offloads
            .iter()
            .filter(|offload| suits(offload))
            .map(|offload| format!("{}{}", offload.name, if offload.on && offload.fixed { " (fixed)" } else { "" }))
            .collect();
        (!names.is_empty()).then(|| format!("offloads {title}: {}", names.join(", ")))
    };
    let lists = [
        list("on", &|offload| offload.on),
        list("off", &|offload| !offload.on && !offload.fixed),
        list("it does not have", &|offload| !offload.on && offload.fixed),
    ];
    lists.into_iter().flatten().collect()
}
