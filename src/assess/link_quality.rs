//! Links that lose data or soon will, from what FEC corrects.

use std::time::Duration;

use super::View;
use super::limits::{
    ERRORS_CLEAR, LANE_HOLD, LOSS_CLEAR, LOST, RAW_COPPER, RAW_END, RAW_OPTICAL, UNEVEN, UNEVEN_LEAST,
};
use super::verdicts::Verdicts;
use crate::model::check::{Check, Severity};
use crate::model::finding::{Condition, Subject};
use crate::model::ids::PortKey;
use crate::model::line::{LOSS_WINDOW, Line, LineHistory, lossy};
use crate::model::module::{CableTechnology, Module};
use crate::model::reason::FindingReason;
use crate::model::time::BootTime;

const MINUTE: Duration = Duration::from_secs(60);

/// Windows of two hours in which losses are counted.
const LOSS_WINDOWS: u32 = 10;

/// `link_quality`: codewords lost, too many errors before correction, codewords that are nearly lost, or one bad lane.
/// Ports whose driver counts nothing of that are skipped.
pub fn quality(view: &View<'_>, verdicts: &mut Verdicts) {
    let now = view.snapshot.taken.tick;
    for device in view.snapshot.devices() {
        for port in &device.ports {
            let past = port.netdev.as_ref().and_then(|netdev| view.history.lines.get(netdev));
            let Some((past, line)) = past.and_then(|past| Some((past, past.line?))) else {
                verdicts.skipped(Check::LinkQuality);
                continue;
            };
            if past.last(now).is_none() {
                verdicts.skipped(Check::LinkQuality);
                continue;
            }
            let key = PortKey { device: device.name.clone(), port: port.number };
            let limit = raw_limit(line, Module::of(view.snapshot, port).map(|module| module.identity.technology));
            match worst(&key, past, line, limit, now) {
                Some(condition) => verdicts.found(condition.address(device.identity.pci_address)),
                None => verdicts.ok(Check::LinkQuality),
            }
        }
    }
}

/// What is worst about a line, with all that is known of it.
fn worst(key: &PortKey, past: &LineHistory, line: Line, limit: f64, now: BootTime) -> Option<Condition> {
    let reasons = [lost, raw_errors, nearly_lost, uneven];
    let condition = reasons.into_iter().find_map(|reason| reason(key, past, line, limit, now))?;
    let last = past.last(now);
    let worst_lane = last.and_then(|minute| minute.worst_lane);
    Some(
        condition
            .with_evidence("raw_bit_error_ratio", last.and_then(|minute| minute.raw))
            .with_evidence("worst_lane", worst_lane.map(|worst| worst.lane))
            .with_evidence("worst_lane_raw_bit_error_ratio", worst_lane.map(|worst| worst.raw))
            .with_evidence(
                "lost_codewords",
                past.losses(now, LOSS_WINDOW + MINUTE, Duration::ZERO).map(|lost| lost.count),
            ),
    )
}

/// The share of bits that may be wrong before correction.
pub fn raw_limit(line: Line, technology: Option<CableTechnology>) -> f64 {
    let is_copper = technology == Some(CableTechnology::PassiveCopper);
    if line.is_pam4() && !is_copper { RAW_OPTICAL } else { RAW_COPPER }
}

fn condition(key: &PortKey, severity: Severity, reason: FindingReason, summary: String) -> Condition {
    let subject = Subject::Port(key.clone());
    Condition::new(Check::LinkQuality, subject, severity, reason, summary).clear_after(ERRORS_CLEAR)
}

fn lost(key: &PortKey, past: &LineHistory, line: Line, limit: f64, now: BootTime) -> Option<Condition> {
    let losses = past.losses(now, LOSS_WINDOW + MINUTE, Duration::ZERO)?;
    let long_enough = losses.seconds >= 2.0 * MINUTE.as_secs_f64();
    if losses.count < LOST || !long_enough {
        return None;
    }
    let window = |index: u32| past.losses(now, LOSS_WINDOW * (index + 1), LOSS_WINDOW * index);
    let often =
        (0..LOSS_WINDOWS).filter(|index| window(*index).is_some_and(|losses| losses.count >= LOST)).count() >= 3;
    let heavy = past.within(now, LOSS_WINDOW, Duration::ZERO).any(|minute| {
        let rate = minute.lost.map(|lost| lossy(lost) / minute.seconds);
        rate.is_some_and(|rate| rate >= 1.0)
    });
    let severity = if often || heavy { Severity::Critical } else { Severity::Warning };
    let raw = past.within(now, LOSS_WINDOW + MINUTE, Duration::ZERO).filter_map(|minute| minute.raw).reduce(f64::max);
    let what = if line.code.is_some() { "codewords" } else { "symbols" };
    let (at, advice) = match raw {
        Some(raw) if raw >= limit => (
            format!(" at a raw error ratio of {raw:.0e}: the signal is weak"),
            "Clean both ends, then change cable or modules",
        ),
        Some(raw) => (
            format!(" at a raw error ratio of {raw:.0e}: bursts, not a weak signal"),
            "Reseat and clean the connectors, then replace the cable; suspect optics last",
        ),
        None => (String::new(), "Reseat and clean the connectors, then replace the cable"),
    };
    let minutes = (losses.seconds / 60.0).round();
    let summary = format!("{key} lost {} {what} in {minutes} min{at}. {advice}.", losses.count);
    Some(condition(key, severity, FindingReason::CodewordsLost, summary).clear_after(LOSS_CLEAR))
}

fn raw_errors(key: &PortKey, past: &LineHistory, line: Line, limit: f64, now: BootTime) -> Option<Condition> {
    let worst = |window: u32| {
        let minutes = past.within(now, 10 * MINUTE * (window + 1), 10 * MINUTE * window);
        minutes.filter_map(|minute| minute.raw).reduce(f64::max)
    };
    let over: Vec<f64> = (0..3).filter_map(worst).filter(|raw| *raw > limit).collect();
    if over.len() < 2 {
        return None;
    }
    let raw = over.into_iter().fold(0.0, f64::max);
    let share = past.last(now).and_then(|minute| {
        let (worst, lanes) = (minute.worst_lane?, f64::from(line.lanes?));
        let share = worst.raw / (minute.raw? * lanes);
        (share > 0.5).then(|| format!(" (lane {}: {:.0} % of them)", worst.lane, share.min(1.0) * 100.0))
    });
    let state = if raw >= RAW_END { "FEC is at its limit" } else { "No data is lost yet" };
    let summary = format!(
        "{key}: {raw:.0e} of the bits are wrong before correction{}; the limit is {limit:e}. {state}. Clean or replace that cable or module at the next opportunity.",
        share.unwrap_or_default()
    );
    Some(condition(key, Severity::Warning, FindingReason::RawErrors, summary))
}

fn nearly_lost(key: &PortKey, past: &LineHistory, line: Line, _: f64, now: BootTime) -> Option<Condition> {
    let code = line.code?;
    let windows = (0..5u32).filter(|&window| {
        let mut minutes = past.within(now, 2 * MINUTE * (window + 1), 2 * MINUTE * window);
        minutes.any(|minute| minute.nearly_lost.is_some_and(|count| count > 0))
    });
    let (windows, least, most) = (windows.count(), code.nearly_lost_symbols()?, code.correctable_symbols()?);
    if windows < 3 {
        return None;
    }
    let summary = format!(
        "{key}: in {windows} of the last 5 windows of 2 min, codewords had at least {least} wrong symbols; FEC corrects up to {most}. No data is lost yet. Clean or replace that cable or module at the next opportunity."
    );
    Some(condition(key, Severity::Warning, FindingReason::FecMargin, summary))
}

fn uneven(key: &PortKey, past: &LineHistory, _: Line, _: f64, now: BootTime) -> Option<Condition> {
    let worst = past.last(now)?.worst_lane?;
    if worst.raw < UNEVEN_LEAST || worst.raw < worst.others * UNEVEN {
        return None;
    }
    let summary = format!(
        "{key}: lane {} has {:.0e} wrong bits before correction, the other lanes {:.0e}. Reseat and clean that cable when \
         convenient.",
        worst.lane, worst.raw, worst.others
    );
    let found = condition(key, Severity::Info, FindingReason::LaneUneven, summary);
    Some(Condition { hold: LANE_HOLD, clear_after: Duration::ZERO, ..found })
}
