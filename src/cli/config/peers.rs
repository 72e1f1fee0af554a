//! The `[probe.peers]` table: benchmarks between hosts.

use std::path::PathBuf;
use std::time::Duration;

use super::reader::TableReader;
use super::schema::{PeersConfig, PeersTlsConfig};
use crate::bench::peers::request::MOST_SECONDS;
use crate::bench::rdma::Timeouts;
use crate::fleet::peer_transport::HttpTransport;
use crate::fleet::tls::TlsFiles;
use crate::model::benchmark::Benchmark;

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
        read.error("concurrency", format!("{concurrency} is not from 2 to 100000: two hosts are a pair"));
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
