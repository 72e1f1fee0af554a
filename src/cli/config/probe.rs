//! The `[probe]` table: benchmarks of this host; `[probe.peers]`: benchmarks between hosts.

use std::path::PathBuf;
use std::time::Duration;

use regex_lite::Regex;

use super::super::args::HIGHEST_GID;
use super::reader::TableReader;
use super::schema::{PeersConfig, PeersTlsConfig, ProbeConfig};
use crate::bench::guard::{HostLock, IdleRules};
use crate::bench::peers::request::MOST_SECONDS;
use crate::bench::probe::BenchmarkParameters;
use crate::bench::rdma::Timeouts;
use crate::fleet::peer_transport::HttpTransport;
use crate::fleet::tls::TlsFiles;
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

/// Benchmarks between hosts.
#[derive(Debug, Clone)]
pub struct PeersSettings {
    /// Whether servers are started for peers that ask.
    pub serve: bool,
    /// The list of hosts.
    pub list: Option<PathBuf>,
    /// Names of this host in the list.
    pub names: Vec<String>,
    /// The key that the hosts share; `None` if certificates identify them.
    pub key: Option<PathBuf>,
    /// Length of a time slot.
    pub slot: Duration,
    /// Hosts that measure at the same time.
    pub concurrency: usize,
    /// How requests are sent to peers.
    pub post: HttpTransport,
}

/// Time a peer may take to answer besides the start of its server: its lock, its job scheduler, the network.
const AROUND: Duration = Duration::from_secs(15);

/// Checks the table; what is not allowed is reported. `probes`: which ones run. `duration`: how long bandwidth is
/// measured. `timeouts`: how long the rest may take. `probe` reads the table above.
pub fn peers(
    read: &TableReader<'_>,
    config: &PeersConfig,
    probes: &[Benchmark],
    duration: Duration,
    timeouts: Timeouts,
    probe: &TableReader<'_>,
) -> PeersSettings {
    let between = probes.iter().find(|probe| matches!(probe, Benchmark::RdmaPeer | Benchmark::TcpPeer));
    if let Some(probe) = between.filter(|_| config.list.is_none()) {
        let message = format!("is missing: {} needs the list of hosts that benchmark each other", probe.as_str());
        read.error("list", message);
    }
    if between.is_some() && duration > Duration::from_secs(MOST_SECONDS) {
        let time = humantime::format_duration(duration);
        probe.error("duration", format!("{time} is too long: a peer measures for at most {MOST_SECONDS}s"));
    }
    let allowed = "a time from 10s to 7d, at least four times probe.duration, such as 2h";
    let longest = Duration::from_secs(7 * 24 * 60 * 60);
    let least = Duration::from_secs(10).max(duration * 4);
    let slot = read.time("slot", config.slot.as_deref(), least..=longest, allowed);
    let concurrency = config.concurrency.unwrap_or(64);
    if !(2..=100_000).contains(&concurrency) {
        read.error("concurrency", format!("{concurrency} is not between 2 and 100000: a pair is two hosts"));
    }
    let tls = config.tls.as_ref().map(|tls| tls_files(&read.table("tls."), tls));
    let certified = tls.as_ref().is_some_and(|tls| tls.identity.is_some());
    if between.is_some() && config.key_file.is_none() && !certified {
        let message = "is missing: peers accept requests that are signed with a key, or come with a certificate \
                       (probe.peers.tls.cert-file)";
        read.error("key-file", message);
    }
    if config.name.as_ref().is_some_and(|name| name.trim().is_empty()) {
        read.not_allowed("name", "", "a name of this host, such as node17 or node17:10015");
    }
    PeersSettings {
        serve: config.serve.unwrap_or(false),
        list: config.list.clone(),
        names: config.name.clone().map_or_else(names, |name| vec![name]),
        key: config.key_file.clone(),
        slot: slot.unwrap_or(Duration::from_secs(2 * 60 * 60)),
        concurrency,
        post: HttpTransport { timeout: AROUND + timeouts.listen, tls },
    }
}

fn tls_files(read: &TableReader<'_>, config: &PeersTlsConfig) -> TlsFiles {
    match (&config.cert_file, &config.key_file) {
        (Some(_), None) => read.error("key-file", "is missing: cert-file needs its key"),
        (None, Some(_)) => read.error("cert-file", "is missing: key-file needs its certificate"),
        _ => {}
    }
    let identity = config.cert_file.clone().zip(config.key_file.clone());
    TlsFiles { authorities: config.ca_file.clone(), identity, insecure: false }
}

/// The name of this host, whole and without its domain.
fn names() -> Vec<String> {
    let whole = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let short = whole.split('.').next().map(str::to_owned).filter(|short| !short.is_empty() && *short != whole);
    std::iter::once(whole).chain(short).collect()
}
