//! Ports: slow, flapping, blind.

use std::collections::BTreeMap;
use std::time::Duration;

use super::View;
use super::limits::PORT_RATE_HOLD;
use super::links::{last_cause, suspect};
use super::verdicts::Verdicts;
use crate::model::check::{Check, Severity};
use crate::model::finding::{Condition, Subject};
use crate::model::history::{DeviceBaseline, History};
use crate::model::ids::PortKey;
use crate::model::rdma::{LinkLayer, Port, PortState, RdmaDevice};
use crate::model::reading::Reading;
use crate::model::reason::FindingReason;
use crate::model::units::BytesPerSecond;
use crate::model::units::times;

const HOUR: Duration = Duration::from_secs(3600);

/// Every port with its device.
pub(super) fn ports<'a>(view: &'a View<'_>) -> impl Iterator<Item = (&'a RdmaDevice, &'a Port, PortKey)> {
    view.snapshot.devices().flat_map(|device| {
        device.ports.iter().map(move |port| (device, port, PortKey { device: device.name.clone(), port: port.number }))
    })
}

/// What the baseline knows of a device, by GUID or else by name.
pub fn baseline<'a>(history: &'a History, device: &RdmaDevice) -> Option<&'a DeviceBaseline> {
    history.baseline.devices.get(&baseline_key(history, device))
}

/// The key of a device in the baseline: its node GUID where it has one, else that of the device that had its name
/// when all was well, else its name.
pub fn baseline_key(history: &History, device: &RdmaDevice) -> String {
    if let Some(guid) = device.identity.node_guid.filter(|guid| !guid.is_zero()) {
        return guid.to_string();
    }
    let named = |known: &DeviceBaseline| known.name == device.name.as_str();
    let same = history.baseline.devices.iter().find(|(_, known)| named(known));
    same.map_or_else(|| device.name.to_string(), |(key, _)| key.clone())
}

/// A port's state; without one, the check's verdict is unknown.
pub(super) fn state(port: &Port, check: Check, key: &PortKey, verdicts: &mut Verdicts) -> Option<PortState> {
    match port.state {
        Reading::Value(state) => return Some(state),
        Reading::Absent => verdicts.unreported(check, Subject::Port(key.clone())),
        Reading::Unreadable(reason) => verdicts.unknown(check, Subject::Port(key.clone()), Some(reason)),
    }
    None
}

/// `port_rate_low`: active below policy, baseline, or most ports of the same model.
pub fn rate(view: &View<'_>, verdicts: &mut Verdicts) {
    let rates = rates_by_make(view);
    for (device, port, key) in ports(view) {
        if state(port, Check::PortRateLow, &key, verdicts).is_none() {
            continue;
        }
        if !port.is_active() {
            verdicts.skipped(Check::PortRateLow);
            continue;
        }
        let Some(rate) = view.lanes.ports.get(&key).and_then(|lane| lane.rate) else {
            verdicts.unknown(Check::PortRateLow, Subject::Port(key), port.rate.reason());
            continue;
        };
        let learned = baseline(view.history, device)
            .and_then(|known| known.ports.get(&port.number))
            .and_then(|known| known.rate_bytes_per_second)
            .map(BytesPerSecond);
        let below = |(expected, _): &(BytesPerSecond, _)| rate.0 < expected.0 * (1.0 - 1e-9);
        let expected = match view.policy.port_rate(&key) {
            Some(rate) => Some((rate, FindingReason::Policy)).filter(below),
            // A port that was slow from the start is slow by its peers.
            None => learned.map(|rate| (rate, FindingReason::Baseline)).filter(below).or_else(|| {
                let all = make(device, port).and_then(|make| rates.get(&make)).map_or(&[][..], Vec::as_slice);
                let peers = peer_rate(rate, all).map(|rate| (rate, FindingReason::Peers));
                peers.filter(below)
            }),
        };
        let Some((expected, reason)) = expected else {
            verdicts.ok(Check::PortRateLow);
            continue;
        };
        let source = match reason {
            FindingReason::Policy => "the policy expects",
            FindingReason::Baseline => "the baseline has",
            _ => "most ports of this model on this host run at",
        };
        let summary = format!(
            "{key} is ACTIVE at {rate}, {source} {expected}: check cable, module and the switch port's speed setting."
        );
        verdicts.found(
            Condition::new(Check::PortRateLow, Subject::Port(key), Severity::Warning, reason, summary)
                .address(device.identity.pci_address)
                .with_evidence("port_rate_bytes_per_second", Some(rate.0))
                .with_evidence("expected_bytes_per_second", Some(expected.0))
                .hold(PORT_RATE_HOLD),
        );
    }
}

/// Ports of one make: card model, board and link layer.
type Make<'a> = (&'a str, Option<&'a str>, Option<&'a str>);

fn make<'a>(device: &'a RdmaDevice, port: &'a Port) -> Option<Make<'a>> {
    let identity = &device.identity;
    Some((identity.hca_type.as_deref()?, identity.board_id.as_deref(), port.link_layer.as_ref().map(LinkLayer::as_str)))
}

/// The rates of the active ports of each make.
fn rates_by_make<'a>(view: &'a View<'_>) -> BTreeMap<Make<'a>, Vec<BytesPerSecond>> {
    let mut rates: BTreeMap<Make<'a>, Vec<BytesPerSecond>> = BTreeMap::new();
    for (device, port, key) in ports(view) {
        let rate = view.lanes.ports.get(&key).and_then(|lane| lane.rate);
        if let Some((make, rate)) = make(device, port).zip(rate) {
            rates.entry(make).or_default().push(rate);
        }
    }
    rates
}

/// The rate of most of the other active ports of the same make, of which there must be two.
fn peer_rate(own: BytesPerSecond, all: &[BytesPerSecond]) -> Option<BytesPerSecond> {
    let same = |a: BytesPerSecond, b: BytesPerSecond| (a.0 - b.0).abs() < 1.0;
    let others = all.len().checked_sub(1)?;
    // The port itself is among them, and only a higher rate of the others matters.
    let candidate = all.iter().copied().filter(|rate| rate.0 > own.0 && !same(*rate, own));
    let count = |rate: BytesPerSecond| all.iter().filter(|other| same(**other, rate)).count();
    let mut seen = Vec::new();
    for rate in candidate {
        if seen.iter().any(|known| same(*known, rate)) {
            continue;
        }
        seen.push(rate);
        let most = count(rate);
        if most >= 2 && most * 2 > others {
            return Some(rate);
        }
    }
    None
}

/// `port_flapping`: a flap within the last hour; critical from the third in twelve hours.
pub fn flapping(view: &View<'_>, verdicts: &mut Verdicts) {
    let now = view.snapshot.taken.tick;
    for (device, port, key) in ports(view) {
        let flaps = view.history.ports.get(&key).map(|past| &past.flaps);
        let Some(last) = flaps.and_then(|flaps| flaps.back()).filter(|last| now.since(**last) < HOUR) else {
            verdicts.ok(Check::PortFlapping);
            continue;
        };
        let count = flaps.into_iter().flatten().filter(|at| now.since(**at) <= 12 * HOUR).count();
        let critical = count >= view.policy.thresholds.flaps_critical;
        let severity = if critical { Severity::Critical } else { Severity::Warning };
        let cause = last_cause(view, port);
        let said = cause.map(|last| format!(" While it was down, the driver reported: {}.", last.cause));
        let summary = format!(
            "{key}: the link went down and came back {} in 12 h.{} Check cable, module and the other end before the card.",
            times(count),
            said.unwrap_or_default()
        );
        let steady = cause.filter(|last| last.steady).and_then(|last| suspect(last.cause));
        let reason = steady.unwrap_or(FindingReason::LinkLost);
        verdicts.found(
            Condition::new(Check::PortFlapping, Subject::Port(key), severity, reason, summary)
                .with_evidence("link_cause", cause.map(|last| last.cause.to_string()))
                .address(device.identity.pci_address)
                .with_evidence("flaps", Some(count))
                .with_evidence("last_flap_seconds_ago", Some(now.since(*last).as_secs())),
        );
    }
}

/// `port_counter_saturated`: counters that stand at their field's maximum.
pub fn saturated(view: &View<'_>, verdicts: &mut Verdicts) {
    for (device, port, key) in ports(view) {
        let stuck: Vec<&str> = port.pma.saturated().map(|counter| &*counter.name).collect();
        if stuck.is_empty() {
            verdicts.ok(Check::PortCounterSaturated);
            continue;
        }
        let names = stuck.join(", ");
        let summary = format!(
            "{key}: {names} reached their maximum and no longer count, so a flat graph does not mean that nothing is happening. \
             Reset them with the fabric's tools (`perfquery -R`)."
        );
        verdicts.found(
            Condition::new(
                Check::PortCounterSaturated,
                Subject::Port(key),
                Severity::Info,
                FindingReason::Saturated,
                summary,
            )
            .address(device.identity.pci_address)
            .with_evidence("counters", Some(names)),
        );
    }
}
