//! The `[probe]` table.

use std::path::{Path, PathBuf};
use std::time::Duration;

use regex_lite::Regex;

use super::peers::{PeersSettings, peers};
use super::reader::TableReader;
use super::{ConfigError, ProbeConfig};
use crate::bench::guard::IdleRules;
use crate::bench::lock::HostLock;
use crate::bench::probe::BenchmarkParameters;
use crate::bench::rdma::Timeouts;
use crate::cli::args::bench::HIGHEST_GID;
use crate::model::benchmark::Benchmark;

/// What is measured, how, and when.
#[derive(Debug, Clone)]
pub struct ProbeSettings {
    /// Whether the agent measures by itself.
    pub enabled: bool,
    /// Which probes.
    pub probes: Vec<Benchmark>,
    /// Which devices; all when there is none.
    pub devices: Option<Regex>,
    /// Time between two runs of a probe, about.
    pub interval: Duration,
    /// Share of a day's time that probes may use of a port.
    pub budget: f64,
    /// How to measure.
    pub parameters: BenchmarkParameters,
    /// The lock that keeps probes of one host apart.
    pub lock: PathBuf,
    /// When not to.
    pub rules: IdleRules,
    /// Other hosts.
    pub peers: PeersSettings,
}

/// Reads the table.
///
/// # Errors
/// The first value that is not allowed, with its key and what is.
pub fn probe(file: &Path, table: &ProbeConfig) -> Result<ProbeSettings, ConfigError> {
    let read = TableReader::new(file, "probe.");
    let mut probes = Vec::new();
    for name in &table.probes {
        let all: Vec<&str> = Benchmark::ALL.iter().map(|probe| probe.as_str()).collect();
        let allowed = format!("a probe; they are {}", all.join(", "));
        let known = Benchmark::ALL.iter().copied().find(|probe| probe.as_str() == name);
        probes.push(known.ok_or_else(|| read.is_not("probes", name, &allowed))?);
    }
    if probes.is_empty() {
        probes = vec![Benchmark::RdmaLoopback];
    }
    let devices = table.devices.as_deref().map(|text| read.pattern("devices", text)).transpose()?;
    let (usual, rules) = (BenchmarkParameters::default(), IdleRules::default());
    let second = Duration::from_secs(1);
    let duration = "whole seconds from 1s to 10m";
    let measured = read.time("duration", table.duration.as_deref(), second..=600 * second, duration)?;
    if let (Some(text), Some(true)) = (&table.duration, measured.map(|measured| measured.subsec_nanos() != 0)) {
        return Err(read.is_not("duration", text, duration));
    }
    let measured = measured.unwrap_or(usual.duration);
    let overrun = read.time("patience", table.patience.as_deref(), second..=600 * second, "a time from 1s to 10m")?;
    let timeouts = overrun.map_or(usual.timeouts, Timeouts::from_overrun);
    let hours = Duration::from_secs(6 * 60 * 60);
    let interval = "a time from 1m to 30d, such as 6h";
    let interval = read.time("interval", table.interval.as_deref(), 60 * second..=120 * hours, interval)?;
    if table.busy_command.first().is_some_and(String::is_empty) {
        return Err(read.is_not("busy-command", "", "a program and its arguments"));
    }
    let peers = peers(file, &table.peers, &probes, measured, timeouts)?;
    Ok(ProbeSettings {
        peers,
        enabled: table.enabled.unwrap_or(false),
        probes,
        devices,
        interval: interval.unwrap_or(hours),
        // Below that a run would be weeks away.
        budget: read.number("budget", table.budget, 0.000_01..=0.1)?.unwrap_or(0.001),
        parameters: BenchmarkParameters {
            size: read.number("size", table.size, 1..=1 << 30)?.unwrap_or(usual.size),
            queue_pairs: read.number("queue-pairs", table.queue_pairs, 1..=1_024)?.unwrap_or(usual.queue_pairs),
            duration: measured,
            both: table.both.unwrap_or(usual.both),
            gid_index: read.number("gid-index", table.gid_index, 0..=HIGHEST_GID)?,
            timeouts,
        },
        lock: table.lock.clone().unwrap_or_else(HostLock::place),
        rules: IdleRules {
            busy_files: table.busy_files.clone(),
            busy_command: table.busy_command.clone(),
            most_load: read.number("most-load", table.most_load, 0.01..=100.0)?.unwrap_or(rules.most_load),
        },
    })
}
