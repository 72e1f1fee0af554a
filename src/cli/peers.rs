//! The `[probe.peers]` table, and what is made of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::config::{ConfigError, Peers as Table};
use super::settings::Settings;
use super::value::Reader;
use super::watched::Watched;
use crate::bench::peers::gate::{Gate, Trust};
use crate::bench::peers::key::Key;
use crate::bench::peers::list;
use crate::bench::peers::party::Party;
use crate::bench::peers::request::MOST_SECONDS;
use crate::bench::peers::servers::Servers;
use crate::bench::rdma::Patience;
use crate::bench::tools::Tools;
use crate::export::http::App;
use crate::fleet::post::Post;
use crate::fleet::tls::TlsFiles;
use crate::model::probe::Probe;
use crate::watch::Handle;
use crate::watch::clock::SystemClock;

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
    pub post: Post,
}

/// What a peer may take to answer beside the start of its server: its lock, its job scheduler, the way there.
const AROUND: Duration = Duration::from_secs(15);

/// Reads the table. `probes`: which ones run. `duration`: how long bandwidth is measured. `patience`: how long the rest
/// may take.
///
/// # Errors
/// The first value that is not allowed, with its key and what is.
pub fn peers(
    file: &Path,
    table: &Table,
    probes: &[Probe],
    duration: Duration,
    patience: Patience,
) -> Result<PeersSettings, ConfigError> {
    let read = Reader::new(file, "probe.");
    let between = probes.iter().find(|probe| matches!(probe, Probe::RdmaPeer | Probe::TcpPeer));
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
        post: Post { patience: AROUND + patience.listen, tls },
    })
}

/// The name of this host, whole and without its domain.
fn names() -> Vec<String> {
    let whole = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let short = whole.split('.').next().map(str::to_owned).filter(|short| !short.is_empty() && *short != whole);
    std::iter::once(whole).chain(short).collect()
}

/// What works with peers in an agent.
#[derive(Default)]
pub struct AtWork {
    /// Starts servers for them.
    pub servers: Option<Arc<Servers>>,
    /// The hosts that measure with each other, and where they are listed.
    pub party: Option<(PathBuf, Arc<Party>)>,
    /// Whether a certificate is all that says who asks.
    by_certificate: bool,
    /// The configuration file.
    file: PathBuf,
}

impl AtWork {
    /// Puts it together for the agent of this host.
    ///
    /// # Errors
    /// The key cannot be used.
    pub fn new(settings: &Settings, handle: &Handle) -> Result<Self, ConfigError> {
        let (probe, peers) = (&settings.probe, &settings.probe.peers);
        let file = settings.file.clone().unwrap_or_else(|| PathBuf::from("command line"));
        let measures = probe.enabled && probe.probes.iter().any(|p| matches!(p, Probe::RdmaPeer | Probe::TcpPeer));
        if !(peers.serve || measures) {
            return Ok(Self::default());
        }
        if !settings.host().live {
            tracing::error!("no probes with peers: the host that is read is not the one that this agent runs on");
            return Ok(Self::default());
        }
        if let Some(Err(error)) = peers.key.as_deref().map(Key::read) {
            let key = "probe.peers.key-file".to_owned();
            return Err(ConfigError::Value { file, key, message: error.to_string() });
        }
        let trust = peers.key.clone().map_or(Trust::Certificate, Trust::Key);
        let by_certificate = peers.serve && trust == Trust::Certificate;
        let servers = peers.serve.then(|| {
            let gate = Gate::new(trust, peers.names.clone(), SystemTime::now());
            Arc::new(Servers::new(handle.clone(), Arc::new(SystemClock), settings.station(), Tools::new(), gate))
        });
        let party = peers.list.clone().filter(|_| measures).map(|list| {
            let post = Box::new(peers.post.clone());
            let party = Party::new(peers.names.clone(), peers.slot, peers.concurrency, peers.key.clone(), post);
            take_list(&list, &party);
            (list, Arc::new(party))
        });
        Ok(Self { servers, party, by_certificate, file })
    }

    /// Lets peers ask.
    ///
    /// # Errors
    /// Nothing would say who they are.
    pub fn open(&self, app: &App) -> Result<(), ConfigError> {
        let Some(servers) = &self.servers else { return Ok(()) };
        if self.by_certificate && !app.web().verifies_clients {
            let message = "is missing: without it the web configuration must verify clients' certificates \
                           (client_auth_type: RequireAndVerifyClientCert)";
            let key = "probe.peers.key-file".to_owned();
            return Err(ConfigError::Value { file: self.file.clone(), key, message: message.to_owned() });
        }
        app.set_probe_server(Arc::clone(servers) as _);
        tracing::info!("starts servers for probes of peers that ask");
        Ok(())
    }
}

/// Takes up the list of hosts whenever it changes; never ends.
pub async fn follow(path: PathBuf, party: Arc<Party>) {
    let mut watched = Watched::new(vec![path.clone()]);
    loop {
        watched.changed().await;
        take_list(&path, &party);
    }
}

/// Takes up the list as it is; one that cannot be read leaves the hosts as they were.
fn take_list(path: &Path, party: &Party) {
    match list::read(path) {
        Ok(hosts) => {
            let count = hosts.len();
            if party.set_hosts(hosts) {
                tracing::info!(hosts = count, "{}: hosts that measure with each other", path.display());
            } else {
                tracing::warn!(
                    "{}: this host is not in it ({}): nobody measures with it; probe.peers.name says what it is called",
                    path.display(),
                    party.names().join(", ")
                );
            }
        }
        Err(error) => tracing::error!("hosts that measure with each other stay as they were: {error}"),
    }
}
