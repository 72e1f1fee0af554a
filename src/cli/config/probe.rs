//! The `[probe]` table: benchmarks of this host.

use std::path::PathBuf;
use std::time::Duration;

use regex_lite::Regex;

use super::peers::{PeersSettings, peers};
use super::reader::TableReader;
use super::schema::ProbeConfig;
use crate::bench::guard::HostLock;
use crate::bench::guard::IdleRules;
use crate::bench::probe::BenchmarkParameters;
use crate::bench::rdma::Timeouts;
use crate::cli::args::bench::HIGHEST_GID;
use crate::model::benchmark::Benchmark;

/// What is measured, how, and when.
#[derive(Debug, Clone)]
pub struct ProbeSettings {
    /// Whether the agent runs benchmarks by itself.
    pub enabled: bool,
    /// Which benchmarks.
    pub probes: Vec<Benchmark>,
    /// Pattern of device names; `None` for all.
    pub devices: Option<Regex>,
    /// Approximate time between two runs of a benchmark.
    pub interval: Duration,
    /// Share of a day's time that benchmarks may use of a port.
    pub budget: f64,
    /// How to measure.
    pub parameters: BenchmarkParameters,
    /// The lock that allows one benchmark at a time on a host.
    pub lock: PathBuf,
    /// When not to run.
    pub rules: IdleRules,
    /// Benchmarks between hosts.
    pub peers: PeersSettings,
}

/// Checks the table; what is not allowed is reported and its default used.
pub fn probe(read: &TableReader<'_>, config: &ProbeConfig) -> ProbeSettings {
    let mut probes = Vec::new();
    for (index, name) in config.probes.iter().enumerate() {
        let known = Benchmark::ALL.iter().copied().find(|probe| probe.as_str() == name);
        if known.is_none() {
            let all: Vec<&str> = Benchmark::ALL.iter().map(|probe| probe.as_str()).collect();
            read.not_allowed(&format!("probes[{index}]"), name, &format!("one of {}", all.join(", ")));
        }
        probes.extend(known);
    }
    if config.probes.is_empty() {
        probes = vec![Benchmark::RdmaLoopback];
    }
    let devices = config.devices.as_deref().and_then(|text| read.pattern("devices", text));
    let (defaults, rules) = (BenchmarkParameters::default(), IdleRules::default());
    let second = Duration::from_secs(1);
    let seconds = "a whole number of seconds from 1s to 10m";
    let mut measured = read.time("duration", config.duration.as_deref(), second..=600 * second, seconds);
    if let (Some(text), Some(true)) = (&config.duration, measured.map(|measured| measured.subsec_nanos() != 0)) {
        read.not_allowed("duration", text, seconds);
        measured = None;
    }
    let measured = measured.unwrap_or(defaults.duration);
    let overrun = read.time("patience", config.patience.as_deref(), second..=600 * second, "a time from 1s to 10m");
    let timeouts = overrun.map_or(defaults.timeouts, Timeouts::from_overrun);
    let hours = Duration::from_secs(6 * 60 * 60);
    let interval = "a time from 1m to 30d, such as 6h";
    let interval = read.time("interval", config.interval.as_deref(), 60 * second..=120 * hours, interval);
    if config.busy_command.first().is_some_and(String::is_empty) {
        read.not_allowed("busy-command[0]", "", "a program");
    }
    ProbeSettings {
        peers: peers(&read.table("peers."), &config.peers, &probes, measured, timeouts, read),
        enabled: config.enabled.unwrap_or(false),
        probes,
        devices,
        interval: interval.unwrap_or(hours),
        // Below that a run would be weeks away.
        budget: read.number("budget", config.budget, 0.000_01..=0.1).unwrap_or(0.001),
        parameters: BenchmarkParameters {
            size: read.number("size", config.size, 1..=1 << 30).unwrap_or(defaults.size),
            queue_pairs: read.number("queue-pairs", config.queue_pairs, 1..=1_024).unwrap_or(defaults.queue_pairs),
            duration: measured,
            both: config.both.unwrap_or(defaults.both),
            gid_index: read.number("gid-index", config.gid_index, 0..=HIGHEST_GID),
            timeouts,
        },
        lock: config.lock.clone().unwrap_or_else(HostLock::place),
        rules: IdleRules {
            busy_files: config.busy_files.clone(),
            busy_command: config.busy_command.clone(),
            most_load: read.number("most-load", config.most_load, 0.01..=100.0).unwrap_or(rules.most_load),
        },
    }
}
