//! The `[probe]` table.

use std::path::{Path, PathBuf};
use std::time::Duration;

use regex_lite::Regex;

use super::config::{ConfigError, Probe as Table};
use super::peers::{PeersSettings, peers};
use crate::bench::guard::Rules;
use crate::bench::lock::HostLock;
use crate::bench::probe::Tuning;
use crate::host::collector::Filter;
use crate::model::probe::Probe;

/// What is measured, how, and when.
#[derive(Debug, Clone)]
pub struct ProbeSettings {
    /// Whether the agent measures by itself.
    pub enabled: bool,
    /// Which probes.
    pub probes: Vec<Probe>,
    /// Which devices; all when there is none.
    pub devices: Option<Regex>,
    /// Time between two runs of a probe, about.
    pub interval: Duration,
    /// Share of a day's time that probes may use of a port.
    pub budget: f64,
    /// How to measure.
    pub tuning: Tuning,
    /// The lock that keeps probes of one host apart.
    pub lock: PathBuf,
    /// When not to.
    pub rules: Rules,
    /// Other hosts.
    pub peers: PeersSettings,
}

/// Reads the table.
///
/// # Errors
/// The first value that is not allowed, with its key and what is.
pub fn probe(file: &Path, table: &Table) -> Result<ProbeSettings, ConfigError> {
    let wrong = |key: &str, value: &dyn std::fmt::Display, allowed: &str| ConfigError::Value {
        file: file.to_owned(),
        key: format!("probe.{key}"),
        message: format!("{value} is not {allowed}"),
    };
    let mut probes = Vec::new();
    for name in &table.probes {
        let all: Vec<&str> = Probe::ALL.iter().map(|probe| probe.as_str()).collect();
        let allowed = format!("a probe; they are {}", all.join(", "));
        let known = Probe::ALL.iter().copied().find(|probe| probe.as_str() == name);
        probes.push(known.ok_or_else(|| wrong("probes", &format!("{name:?}"), &allowed))?);
    }
    if probes.is_empty() {
        probes = vec![Probe::RdmaLoopback];
    }
    let devices = table.devices.as_deref().map(Filter::pattern).transpose();
    let devices = devices.map_err(|error| wrong("devices", &"it", &format!("a regular expression: {error}")))?;
    let time = |key: &str, text: Option<&String>, default: Duration, least: Duration, allowed: &str| {
        let Some(text) = text else { return Ok(default) };
        let time = humantime::parse_duration(text).ok().filter(|time| *time >= least);
        time.ok_or_else(|| wrong(key, &format!("{text:?}"), allowed))
    };
    let number = |key: &str, value: Option<u64>, default: u64, most: u64| match value {
        None => Ok(default),
        Some(value) if (1..=most).contains(&value) => Ok(value),
        Some(value) => Err(wrong(key, &value, &format!("from 1 to {most}"))),
    };
    let share = |key: &str, value: Option<f64>, default: f64, most: f64| match value {
        None => Ok(default),
        Some(value) if value > 0.0 && value <= most => Ok(value),
        Some(value) => Err(wrong(key, &value, &format!("above 0 and at most {most}"))),
    };
    let (usual, rules) = (Tuning::default(), Rules::default());
    let second = Duration::from_secs(1);
    let duration = "whole seconds from 1s to 10m";
    let measured = time("duration", table.duration.as_ref(), usual.duration, second, duration)?;
    if measured.subsec_nanos() != 0 || measured > Duration::from_secs(600) {
        return Err(wrong("duration", &humantime::format_duration(measured), duration));
    }
    let hours = Duration::from_secs(6 * 60 * 60);
    let interval = time("interval", table.interval.as_ref(), hours, 60 * second, "a time of at least 1m, such as 6h")?;
    let queue_pairs = number("queue-pairs", table.queue_pairs.map(u64::from), usual.queue_pairs.into(), 1024)?;
    if table.busy_command.first().is_some_and(String::is_empty) {
        return Err(wrong("busy-command", &"\"\"", "a program and its arguments"));
    }
    let peers = peers(file, &table.peers, &probes, measured)?;
    Ok(ProbeSettings {
        peers,
        enabled: table.enabled.unwrap_or(false),
        probes,
        devices,
        interval,
        budget: share("budget", table.budget, 0.001, 0.1)?,
        tuning: Tuning {
            size: number("size", table.size, usual.size, 1 << 30)?,
            queue_pairs: u32::try_from(queue_pairs).unwrap_or(usual.queue_pairs),
            duration: measured,
            both: table.both.unwrap_or(usual.both),
            gid_index: table.gid_index,
            patience: usual.patience,
        },
        lock: table.lock.clone().unwrap_or_else(HostLock::place),
        rules: Rules {
            busy_files: table.busy_files.clone(),
            busy_command: table.busy_command.clone(),
            most_load: share("most-load", table.most_load, rules.most_load, 100.0)?,
        },
    })
}
