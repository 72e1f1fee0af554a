//! Makes a policy of the configuration's `[policy]` tables.

use std::time::Duration;

use super::reader::TableReader;
use super::schema::{PolicyConfig, ThresholdConfig};
use crate::model::check::{Check, Severity};
use crate::model::counter::catalogue;
use crate::model::ids::DeviceName;
use crate::model::policy::{
    Allowance, ErrorLimit, Exception, LinkPolicy, MaintenanceWindow, Policy, PortPolicy, Thresholds, VfPolicy,
};
use crate::model::reason::FindingReason;
use crate::model::units::{BytesPerSecond, Lanes, TransfersPerSecond};

/// The longest hold time.
const WEEK: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The window of a limit that has none of its own.
const HOUR: Duration = Duration::from_secs(60 * 60);

/// The longest time that a host takes to settle.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Makes the policy; what is not allowed is reported and left out.
pub fn policy(read: &TableReader<'_>, config: &PolicyConfig) -> Policy {
    let mut policy =
        Policy { devices: config.devices.iter().map(|name| DeviceName::new(name)).collect(), ..Policy::default() };
    for (index, rule) in config.port.iter().enumerate() {
        let read = read.table(&format!("port[{index}]."));
        let rate = rule.rate.as_ref().and_then(|text| rate(&read, "rate", text));
        let ports = read.pattern("match", &rule.r#match);
        policy.ports.extend(ports.map(|ports| PortPolicy { ports, up: rule.up, rate }));
    }
    for (index, rule) in config.link.iter().enumerate() {
        let read = read.table(&format!("link[{index}]."));
        let speed = rule.speed.as_ref().and_then(|text| speed(&read, "speed", text));
        let width = rule.width.and_then(|lanes| width(&read, "width", lanes));
        let devices = read.pattern("match", &rule.r#match);
        policy.links.extend(devices.map(|devices| LinkPolicy { devices, speed, width }));
    }
    for (index, rule) in config.vfs.iter().enumerate() {
        let read = read.table(&format!("vfs[{index}]."));
        let count = read.number("count", Some(rule.count), 1..=65_535);
        let pfs = read.pattern("match", &rule.r#match);
        policy.vfs.extend(pfs.zip(count).map(|(pfs, count)| VfPolicy { pfs, count }));
    }
    for (index, rule) in config.exception.iter().enumerate() {
        let read = read.table(&format!("exception[{index}]."));
        let named = rule.checks.iter().enumerate();
        let checks: Vec<Check> = named.filter_map(|(n, name)| check(&read, &format!("checks[{n}]"), name)).collect();
        let subjects = read.pattern("match", &rule.r#match);
        // Without a check that is known it would accept every check.
        if checks.len() == rule.checks.len() {
            policy.exceptions.extend(subjects.map(|subjects| Exception {
                subjects,
                checks,
                reason: rule.reason.clone(),
            }));
        }
    }
    for (name, word) in &config.severity {
        let known = [Severity::Info, Severity::Warning, Severity::Critical];
        let severity = known.into_iter().find(|severity| severity.as_str() == word);
        let key = format!("severity.{name}");
        let Some(check) = check(read, &key, name) else { continue };
        if severity.is_none() {
            read.not_allowed(&key, word, "info, warning or critical");
        }
        policy.severities.extend(severity.map(|severity| (check, severity)));
    }
    for (name, text) in &config.hold {
        let key = format!("hold.{name}");
        let Some(check) = check(read, &key, name) else { continue };
        let hold = read.time(&key, Some(text), Duration::ZERO..=WEEK, "a time from 0s to 7d, such as 30s, 2m or 1h");
        policy.holds.extend(hold.map(|hold| (check, hold)));
    }
    policy.maintenance.file.clone_from(&config.maintenance.file);
    for (index, text) in config.maintenance.windows.iter().enumerate() {
        let window = MaintenanceWindow::parse(text);
        if window.is_none() {
            let allowed = "a window in UTC such as \"Sat 02:00-04:00\", or \"02:00-04:00\" for every day";
            read.not_allowed(&format!("maintenance.windows[{index}]"), text, allowed);
        }
        policy.maintenance.windows.extend(window);
    }
    policy.thresholds = thresholds(&read.table("threshold."), &config.threshold);
    policy
}

fn thresholds(read: &TableReader<'_>, table: &ThresholdConfig) -> Thresholds {
    let defaults = Thresholds::default();
    let correctable = read.number("correctable-aer-per-hour", table.correctable_aer_per_hour, 0..=1_000_000_000);
    let settle = "a time from 0s to 1d, such as 30m";
    let settle = read.time("settle", table.settle.as_deref(), Duration::ZERO..=DAY, settle);
    let flaps_critical = read.number("flaps-critical", table.flaps_critical, 1..=1_000);
    let mut thresholds = Thresholds {
        flaps_critical: flaps_critical.unwrap_or(defaults.flaps_critical),
        settle: settle.unwrap_or(defaults.settle),
        correctable_aer_per_hour: correctable.unwrap_or(defaults.correctable_aer_per_hour),
        errors: defaults.errors,
    };
    for (name, most) in &table.errors {
        let key = format!("errors.{name}");
        let Some(most) = read.number(&key, Some(*most), 0..=1_000_000_000_000) else { continue };
        if let Some(at) = thresholds.errors.iter().position(|limit| limit.counter == name) {
            // One limit takes the place of all that the counter has; what depends on the rate becomes one by the hour.
            let mut others = 0;
            thresholds.errors.retain(|limit| {
                others += usize::from(limit.counter == name);
                limit.counter != name || others == 1
            });
            if let Some(limit) = thresholds.errors.get_mut(at) {
                if matches!(limit.allowed, Allowance::OfBits(_)) {
                    limit.window = HOUR;
                }
                limit.allowed = Allowance::Count(most);
                limit.text = "as configured";
            }
            continue;
        }
        // A counter without a limit of its own is judged by the hour.
        let Some((counter, _)) = catalogue::find(name) else {
            let mut known: Vec<&str> = thresholds.errors.iter().map(|limit| limit.counter).collect();
            // A counter may have two limits, one after the other.
            known.dedup();
            let allowed = format!("one of {}, or another counter of docs/drivers.md", known.join(", "));
            read.not_allowed(&key, name, &allowed);
            continue;
        };
        let (reason, allowed) = (FindingReason::DriverCounter, Allowance::Count(most));
        thresholds.errors.push(ErrorLimit { counter, reason, allowed, window: HOUR, text: "as configured" });
    }
    thresholds
}

fn check(read: &TableReader<'_>, key: &str, name: &str) -> Option<Check> {
    let check = name.parse().ok();
    if check.is_none() {
        let names: Vec<&str> = Check::ALL.iter().map(|check| check.as_str()).collect();
        read.not_allowed(key, name, &format!("a check; the checks are {}", names.join(", ")));
    }
    check
}

fn rate(read: &TableReader<'_>, key: &str, text: &str) -> Option<BytesPerSecond> {
    let number = text.trim().strip_suffix("Gb/s").map(str::trim).and_then(|number| number.parse::<f64>().ok());
    let rate = number.filter(|gbits| (0.1..=100_000.0).contains(gbits)).map(BytesPerSecond::from_gbits);
    if rate.is_none() {
        read.not_allowed(key, text, "a rate such as \"200 Gb/s\", from 0.1 to 100000");
    }
    rate
}

fn width(read: &TableReader<'_>, key: &str, width: u8) -> Option<Lanes> {
    let known = [1, 2, 4, 8, 12, 16, 32].contains(&width);
    if !known {
        read.error(key, format!("{width} is not one of 1, 2, 4, 8, 12, 16, 32"));
    }
    known.then_some(Lanes(width))
}

fn speed(read: &TableReader<'_>, key: &str, text: &str) -> Option<TransfersPerSecond> {
    let known = [2_500, 5_000, 8_000, 16_000, 32_000, 64_000].map(TransfersPerSecond::from_mega);
    let speed = known.into_iter().find(|speed| speed.to_string() == text.trim());
    if speed.is_none() {
        read.not_allowed(key, text, "one of 2.5 GT/s, 5 GT/s, 8 GT/s, 16 GT/s, 32 GT/s, 64 GT/s");
    }
    speed
}
