//! The `[probe.peers]` table: benchmarks between hosts.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::reader::TableReader;
use super::{ConfigError, PeersConfig};
use crate::bench::peers::request::MOST_SECONDS;
use crate::bench::rdma::Timeouts;
use crate::fleet::peer_transport::HttpTransport;
use crate::fleet::tls::TlsFiles;
use crate::model::benchmark::Benchmark;

/// Probes between hosts.
#[derive(Debug, Clone)]
pub struct PeersSettings {
    /// Whether servers are started for peers that ask.
    pub serve: bool,
    /// The list of hosts.
    pub list: Option<PathBuf>,
    /// What this host may be called in it.
    pub names: Vec<String>,
    /// The key that the hosts share; none: certificates say who asks.
    pub key: Option<PathBuf>,
    /// Length of a time slot.
    pub slot: Duration,
    /// Hosts that measure at once.
    pub concurrency: usize,
    /// How peers are asked.
    pub post: HttpTransport,
}

/// What a peer may take to answer beside the start of its server: its lock, its job scheduler, the way there.
const AROUND: Duration = Duration::from_secs(15);

/// Reads the table. `probes`: which ones run. `duration`: how long bandwidth is measured. `timeouts`: how long the rest
/// may take.
///
/// # Errors
/// The first value that is not allowed, with its key and what is.
pub fn peers(
    file: &Path,
    table: &PeersConfig,
    probes: &[Benchmark],
    duration: Duration,
    timeouts: Timeouts,
) -> Result<PeersSettings, ConfigError> {
    let read = TableReader::new(file, "probe.");
    let between = probes.iter().find(|probe| matches!(probe, Benchmark::RdmaPeer | Benchmark::TcpPeer));
    if let Some(probe) = between.filter(|_| table.list.is_none()) {
        let message = format!("is missing: {} needs the list of hosts that measure with each other", probe.as_str());
        return Err(read.wrong("peers.list", message));
    }
    if between.is_some() && duration > Duration::from_secs(MOST_SECONDS) {
        let time = humantime::format_duration(duration);
        return Err(
            read.wrong("duration", format!("{time} is too long: a peer gives at most {MOST_SECONDS}s of its time"))
        );
    }
    let allowed = "a time from 10s to 7d, at least four times probe.duration, such as 2h";
    let longest = Duration::from_secs(7 * 24 * 60 * 60);
    let least = Duration::from_secs(10).max(duration * 4);
    let slot = read.time("peers.slot", table.slot.as_deref(), least..=longest, allowed)?;
    let concurrency = table.concurrency.unwrap_or(64);
    if !(2..=100_000).contains(&concurrency) {
        let message = format!("{concurrency} is not from 2 to 100000: two hosts are a pair");
        return Err(read.wrong("peers.concurrency", message));
    }
    let tls = match &table.tls {
        None => None,
        Some(tls) => Some(TlsFiles {
            authorities: tls.ca_file.clone(),
            identity: match (&tls.cert_file, &tls.key_file) {
                (Some(certificate), Some(key)) => Some((certificate.clone(), key.clone())),
                (None, None) => None,
                (Some(_), None) => {
                    return Err(read.wrong("peers.tls.key-file", "is missing: cert-file needs its key".to_owned()));
                }
                (None, Some(_)) => {
                    return Err(
                        read.wrong("peers.tls.cert-file", "is missing: key-file needs its certificate".to_owned())
                    );
                }
            },
            insecure: false,
        }),
    };
    let certified = tls.as_ref().is_some_and(|tls| tls.identity.is_some());
    if between.is_some() && table.key_file.is_none() && !certified {
        let message = "is missing: peers follow requests that are signed with a key, or come with a certificate \
                       (probe.peers.tls.cert-file)";
        return Err(read.wrong("peers.key-file", message.to_owned()));
    }
    if table.name.as_ref().is_some_and(|name| name.trim().is_empty()) {
        return Err(
            read.wrong("peers.name", "\"\" is not a name of this host, such as node17 or node17:10015".to_owned())
        );
    }
    Ok(PeersSettings {
        serve: table.serve.unwrap_or(false),
        list: table.list.clone(),
        names: table.name.clone().map_or_else(names, |name| vec![name]),
        key: table.key_file.clone(),
        slot: slot.unwrap_or(Duration::from_secs(2 * 60 * 60)),
        concurrency,
        post: HttpTransport { timeout: AROUND + timeouts.listen, tls },
    })
}

/// The name of this host, whole and without its domain.
fn names() -> Vec<String> {
    let whole = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let short = whole.split('.').next().map(str::to_owned).filter(|short| !short.is_empty() && *short != whole);
    std::iter::once(whole).chain(short).collect()
}
