//! Makes a policy of the configuration's `[policy]` tables.

use std::path::Path;
use std::time::Duration;

use super::reader::TableReader;
use super::{ConfigError, PolicyConfig, ThresholdConfig};
use crate::model::check::{Check, Severity};
use crate::model::ids::DeviceName;
use crate::model::policy::MaintenanceWindow;
use crate::model::policy::{Exception, LinkPolicy, Policy, PortPolicy, Thresholds};
use crate::model::units::{BytesPerSecond, Lanes, TransfersPerSecond};

/// The longest hold time.
const WEEK: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The longest time that a host takes to settle.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Makes the policy.
///
/// # Errors
/// The first value that is not allowed, with its key and what is.
pub fn policy(file: &Path, tables: &PolicyConfig) -> Result<Policy, ConfigError> {
    let read = TableReader::new(file, "policy.");
    let mut policy =
        Policy { devices: tables.devices.iter().map(|name| DeviceName::new(name)).collect(), ..Policy::default() };
    for rule in &tables.port {
        let rate = rule.rate.as_ref().map(|text| rate(&read, "port.rate", text)).transpose()?;
        policy.ports.push(PortPolicy { ports: read.pattern("port.match", &rule.r#match)?, up: rule.up, rate });
    }
    for rule in &tables.link {
        let speed = rule.speed.as_ref().map(|text| speed(&read, "link.speed", text)).transpose()?;
        let devices = read.pattern("link.match", &rule.r#match)?;
        let width = rule.width.map(|lanes| width(&read, "link.width", lanes)).transpose()?;
        policy.links.push(LinkPolicy { devices, speed, width });
    }
    for rule in &tables.exception {
        let checks = rule.checks.iter().map(|name| check(&read, "exception.checks", name)).collect::<Result<_, _>>()?;
        let subjects = read.pattern("exception.match", &rule.r#match)?;
        policy.exceptions.push(Exception { subjects, checks, reason: rule.reason.clone() });
    }
    for (name, word) in &tables.severity {
        let check = check(&read, "severity", name)?;
        let known = [Severity::Info, Severity::Warning, Severity::Critical];
        let severity = known.into_iter().find(|severity| severity.as_str() == word);
        let key = format!("severity.{name}");
        policy.severities.insert(check, severity.ok_or_else(|| read.is_not(&key, word, "info, warning or critical"))?);
    }
    for (name, text) in &tables.hold {
        let check = check(&read, "hold", name)?;
        let key = format!("hold.{name}");
        let hold = read.time(&key, Some(text), Duration::ZERO..=WEEK, "a time from 0s to 7d, such as 30s, 2m or 1h")?;
        policy.holds.extend(hold.map(|hold| (check, hold)));
    }
    policy.maintenance.file.clone_from(&tables.maintenance.file);
    for text in &tables.maintenance.windows {
        let allowed = "a window in UTC such as \"Sat 02:00-04:00\", or \"02:00-04:00\" for every day";
        let window = MaintenanceWindow::parse(text).ok_or_else(|| read.is_not("maintenance.windows", text, allowed))?;
        policy.maintenance.windows.push(window);
    }
    policy.thresholds = thresholds(&read, &tables.threshold)?;
    Ok(policy)
}

fn thresholds(read: &TableReader<'_>, table: &ThresholdConfig) -> Result<Thresholds, ConfigError> {
    let usual = Thresholds::default();
    let most = read.number("threshold.correctable-aer-per-hour", table.correctable_aer_per_hour, 0..=1_000_000_000)?;
    let settle = "a time from 0s to 1d, such as 30m";
    let settle = read.time("threshold.settle", table.settle.as_deref(), Duration::ZERO..=DAY, settle)?;
    let mut thresholds = Thresholds {
        flaps_critical: read
            .number("threshold.flaps-critical", table.flaps_critical, 1..=1_000)?
            .unwrap_or(usual.flaps_critical),
        settle: settle.unwrap_or(usual.settle),
        correctable_aer_per_hour: most.unwrap_or(usual.correctable_aer_per_hour),
        errors: usual.errors,
    };
    for (name, most) in &table.errors {
        let known: Vec<&str> = thresholds.errors.iter().map(|limit| limit.counter).collect();
        let allowed = format!("one of {}", known.join(", "));
        let limit = thresholds.errors.iter_mut().find(|limit| limit.counter == name);
        let limit = limit.ok_or_else(|| read.is_not("threshold.errors", name, &allowed))?;
        read.number(&format!("threshold.errors.{name}"), Some(*most), 0..=1_000_000_000_000)?;
        limit.most = *most;
        limit.text = "as configured";
    }
    Ok(thresholds)
}

fn check(read: &TableReader<'_>, key: &str, name: &str) -> Result<Check, ConfigError> {
    let names: Vec<&str> = Check::ALL.iter().map(|check| check.as_str()).collect();
    name.parse().map_err(|()| read.is_not(key, name, &format!("a check; the checks are {}", names.join(", "))))
}

fn rate(read: &TableReader<'_>, key: &str, text: &str) -> Result<BytesPerSecond, ConfigError> {
    let number = text.trim().strip_suffix("Gb/s").map(str::trim).and_then(|number| number.parse::<f64>().ok());
    number
        .filter(|gbits| (0.1..=100_000.0).contains(gbits))
        .map(BytesPerSecond::from_gbits)
        .ok_or_else(|| read.is_not(key, text, "a rate such as \"200 Gb/s\", from 0.1 to 100000"))
}

fn width(read: &TableReader<'_>, key: &str, width: u8) -> Result<Lanes, ConfigError> {
    let known = [1, 2, 4, 8, 12, 16, 32];
    let wrong = || read.is_not(key, &width.to_string(), "one of 1, 2, 4, 8, 12, 16, 32");
    known.contains(&width).then_some(Lanes(width)).ok_or_else(wrong)
}

fn speed(read: &TableReader<'_>, key: &str, text: &str) -> Result<TransfersPerSecond, ConfigError> {
    let known = [2_500, 5_000, 8_000, 16_000, 32_000, 64_000].map(TransfersPerSecond::from_mega);
    let allowed = "one of 2.5 GT/s, 5 GT/s, 8 GT/s, 16 GT/s, 32 GT/s, 64 GT/s";
    known.into_iter().find(|speed| speed.to_string() == text.trim()).ok_or_else(|| read.is_not(key, text, allowed))
}
