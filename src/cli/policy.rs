//! Makes a policy of the configuration's `[policy]` tables.

use std::path::Path;
use std::time::Duration;

use regex_lite::Regex;

use super::config::{ConfigError, Policy as Tables};
use crate::host::collector::Filter;
use crate::model::check::{Check, Severity};
use crate::model::ids::DeviceName;
use crate::model::maintenance::Window;
use crate::model::policy::{Exception, LinkPolicy, Policy, PortPolicy, Thresholds};
use crate::model::units::{BytesPerSecond, Lanes, TransfersPerSecond};

/// Reads values of one file, and says which of its keys is wrong.
struct Reader<'a> {
    file: &'a Path,
}

/// Makes the policy.
///
/// # Errors
/// The first value that is not allowed, with its key and what is.
pub fn policy(file: &Path, tables: &Tables) -> Result<Policy, ConfigError> {
    let read = Reader { file };
    let mut policy =
        Policy { devices: tables.devices.iter().map(|name| DeviceName::new(name)).collect(), ..Policy::default() };
    for rule in &tables.port {
        let rate = rule.rate.as_ref().map(|text| read.rate("policy.port.rate", text)).transpose()?;
        policy.ports.push(PortPolicy { ports: read.pattern("policy.port.match", &rule.r#match)?, up: rule.up, rate });
    }
    for rule in &tables.link {
        let speed = rule.speed.as_ref().map(|text| read.speed("policy.link.speed", text)).transpose()?;
        let devices = read.pattern("policy.link.match", &rule.r#match)?;
        let width = rule.width.map(|width| read.width("policy.link.width", width)).transpose()?;
        policy.links.push(LinkPolicy { devices, speed, width });
    }
    for rule in &tables.exception {
        let checks =
            rule.checks.iter().map(|name| read.check("policy.exception.checks", name)).collect::<Result<_, _>>()?;
        let subjects = read.pattern("policy.exception.match", &rule.r#match)?;
        policy.exceptions.push(Exception { subjects, checks, reason: rule.reason.clone() });
    }
    for (name, word) in &tables.severity {
        let check = read.check("policy.severity", name)?;
        let known = [Severity::Info, Severity::Warning, Severity::Critical];
        let severity = known.into_iter().find(|severity| severity.as_str() == word);
        let key = format!("policy.severity.{name}");
        policy.severities.insert(check, severity.ok_or_else(|| read.wrong(&key, word, "info, warning or critical"))?);
    }
    for (name, text) in &tables.hold {
        let check = read.check("policy.hold", name)?;
        policy.holds.insert(check, read.time(&format!("policy.hold.{name}"), text)?);
    }
    policy.maintenance.file.clone_from(&tables.maintenance.file);
    for text in &tables.maintenance.windows {
        let allowed = "a window in UTC such as \"Sat 02:00-04:00\", or \"02:00-04:00\" for every day";
        let window = Window::parse(text).ok_or_else(|| read.wrong("policy.maintenance.windows", text, allowed))?;
        policy.maintenance.windows.push(window);
    }
    policy.thresholds = thresholds(&read, &tables.threshold)?;
    Ok(policy)
}

fn thresholds(read: &Reader<'_>, table: &super::config::Threshold) -> Result<Thresholds, ConfigError> {
    let mut thresholds = Thresholds::default();
    if let Some(flaps) = table.flaps_critical {
        thresholds.flaps_critical = flaps;
    }
    if let Some(text) = &table.settle {
        thresholds.settle = read.time("policy.threshold.settle", text)?;
    }
    if let Some(errors) = table.correctable_aer_per_hour {
        thresholds.correctable_aer_per_hour = errors;
    }
    for (name, most) in &table.errors {
        let known: Vec<&str> = thresholds.errors.iter().map(|limit| limit.counter).collect();
        let allowed = format!("one of {}", known.join(", "));
        let limit = thresholds.errors.iter_mut().find(|limit| limit.counter == name);
        let limit = limit.ok_or_else(|| read.wrong("policy.threshold.errors", name, &allowed))?;
        limit.most = *most;
        limit.text = "as configured";
    }
    Ok(thresholds)
}

impl Reader<'_> {
    fn wrong(&self, key: &str, value: &str, allowed: &str) -> ConfigError {
        let message = format!("{value:?} is not {allowed}");
        ConfigError::Value { file: self.file.to_owned(), key: key.to_owned(), message }
    }

    fn pattern(&self, key: &str, text: &str) -> Result<Regex, ConfigError> {
        Filter::pattern(text).map_err(|error| self.wrong(key, text, &format!("a regular expression: {error}")))
    }

    fn check(&self, key: &str, name: &str) -> Result<Check, ConfigError> {
        let names: Vec<&str> = Check::ALL.iter().map(|check| check.as_str()).collect();
        name.parse().map_err(|()| self.wrong(key, name, &format!("a check; the checks are {}", names.join(", "))))
    }

    fn time(&self, key: &str, text: &str) -> Result<Duration, ConfigError> {
        humantime::parse_duration(text).map_err(|_| self.wrong(key, text, "a time such as 30s, 2m or 1h"))
    }

    fn rate(&self, key: &str, text: &str) -> Result<BytesPerSecond, ConfigError> {
        let number = text.trim().strip_suffix("Gb/s").map(str::trim).and_then(|number| number.parse::<f64>().ok());
        number
            .filter(|gbits| gbits.is_finite() && *gbits > 0.0)
            .map(BytesPerSecond::from_gbits)
            .ok_or_else(|| self.wrong(key, text, "a rate such as \"200 Gb/s\""))
    }

    fn width(&self, key: &str, width: u8) -> Result<Lanes, ConfigError> {
        let known = [1, 2, 4, 8, 12, 16, 32];
        let wrong = || self.wrong(key, &width.to_string(), "one of 1, 2, 4, 8, 12, 16, 32");
        known.contains(&width).then_some(Lanes(width)).ok_or_else(wrong)
    }

    fn speed(&self, key: &str, text: &str) -> Result<TransfersPerSecond, ConfigError> {
        let known = [2_500, 5_000, 8_000, 16_000, 32_000, 64_000].map(TransfersPerSecond::from_mega);
        let allowed = "one of 2.5 GT/s, 5 GT/s, 8 GT/s, 16 GT/s, 32 GT/s, 64 GT/s";
        known.into_iter().find(|speed| speed.to_string() == text.trim()).ok_or_else(|| self.wrong(key, text, allowed))
    }
}
