//! Error counters that rise faster than their limits.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::View;
use super::limits::ERRORS_CLEAR;
use super::verdicts::Verdicts;
use crate::model::check::{Check, Severity};
use crate::model::finding::{Condition, Subject};
use crate::model::history::CounterWindow;
use crate::model::ids::PortKey;
use crate::model::policy::ErrorLimit;
use crate::model::rdma::RdmaDevice;
use crate::model::units::BytesPerSecond;

/// Errors that a single look of some seconds must exceed, whatever their rate.
const LEAST_ERRORS: u64 = 10;

/// `port_errors`: an error counter of a port, or of a device, rises faster than its limit.
pub fn errors(view: &View<'_>, verdicts: &mut Verdicts) {
    for device in view.snapshot.devices() {
        for port in &device.ports {
            let key = PortKey { device: device.name.clone(), port: port.number };
            let windows = view.history.ports.get(&key).map(|past| &past.windows);
            let rate = port.rate.value().map(|rate| rate.bandwidth);
            judge(view, verdicts, device, Subject::Port(key), rate, windows);
        }
        // Counters that a driver has for the device as a whole.
        if !device.counters.layout.is_empty() {
            let windows = view.history.devices.get(&device.name);
            judge(view, verdicts, device, Subject::Device(device.name.clone()), None, windows);
        }
    }
}

fn judge(
    view: &View<'_>,
    verdicts: &mut Verdicts,
    device: &RdmaDevice,
    subject: Subject,
    rate: Option<BytesPerSecond>,
    windows: Option<&BTreeMap<Arc<str>, CounterWindow>>,
) {
    let now = view.snapshot.taken.tick;
    let mut over = Vec::new();
    for limit in &view.policy.thresholds.errors {
        let Some(rise) = windows.and_then(|all| all.get(limit.counter)?.rise(now, limit.window)) else { continue };
        // A single look is shorter than the window: limits by the second are judged by their rate.
        let short = view.instant && limit.window <= Duration::from_secs(60) && rise.observed < limit.window;
        let most = limit.most(rate);
        let share = most * rise.observed.as_secs() / limit.window.as_secs();
        let allowed = if short { share.max(LEAST_ERRORS.min(most)) } else { most };
        if rise.count > allowed && !over.iter().any(|(known, _): &(&ErrorLimit, _)| known.counter == limit.counter) {
            over.push((limit, rise));
        }
    }
    let Some((first, _)) = over.first() else {
        verdicts.ok(Check::PortErrors);
        return;
    };
    let list: Vec<String> = over
        .iter()
        .map(|(limit, rise)| {
            let time = humantime::format_duration(Duration::from_secs(rise.observed.as_secs()));
            format!("{} +{} in {time} (allowed: {})", limit.counter, rise.count, limit.text)
        })
        .collect();
    let advice = match subject {
        Subject::Port(_) => "Check cable and module first",
        _ => "They count for the device as a whole: check its firmware and the kernel log",
    };
    let summary = format!("{subject}: error counters rise above their limits: {}. {advice}.", list.join(", "));
    let condition = Condition::new(Check::PortErrors, subject, Severity::Warning, first.reason, summary)
        .address(device.identity.pci_address)
        .clear_after(ERRORS_CLEAR);
    verdicts.found(
        over.iter()
            .fold(condition, |condition, (limit, rise)| condition.with_evidence(limit.counter, Some(rise.count))),
    );
}
