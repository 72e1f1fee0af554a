//! What an agent runs for benchmarks between hosts: servers for peers that ask, and the list of hosts that take turns.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use super::config::ConfigError;
use super::settings::Settings;
use super::watched::Watched;
use crate::bench::peers::gate::{Gate, Trust};
use crate::bench::peers::key::Key;
use crate::bench::peers::list;
use crate::bench::peers::party::Party;
use crate::bench::peers::servers::Servers;
use crate::bench::tools::Tools;
use crate::export::http::App;
use crate::model::benchmark::Benchmark;
use crate::watch::PollerHandle;
use crate::watch::clock::SystemClock;

/// The parts of an agent that work with peers.
#[derive(Default)]
pub struct PeerServices {
    /// Starts servers for them.
    pub servers: Option<Arc<Servers>>,
    /// The hosts that measure with each other, and where they are listed.
    pub party: Option<(PathBuf, Arc<Party>)>,
    /// Whether a certificate is all that says who asks.
    by_certificate: bool,
    /// The configuration file.
    file: PathBuf,
}

impl PeerServices {
    /// Puts it together for the agent of this host.
    ///
    /// # Errors
    /// The key cannot be used.
    pub fn new(settings: &Settings, handle: &PollerHandle) -> Result<Self, ConfigError> {
        let (probe, peers) = (&settings.probe, &settings.probe.peers);
        let file = settings.file.clone().unwrap_or_else(|| PathBuf::from("command line"));
        let measures =
            probe.enabled && probe.probes.iter().any(|p| matches!(p, Benchmark::RdmaPeer | Benchmark::TcpPeer));
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
            load_peer_list(&list, &party);
            (list, Arc::new(party))
        });
        Ok(Self { servers, party, by_certificate, file })
    }

    /// Lets peers ask.
    ///
    /// # Errors
    /// Nothing would say who they are.
    pub fn attach(&self, app: &App) -> Result<(), ConfigError> {
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
pub async fn watch_peer_list(path: PathBuf, party: Arc<Party>) {
    let mut watched = Watched::new(vec![path.clone()]);
    loop {
        watched.changed().await;
        load_peer_list(&path, &party);
    }
}

/// Takes up the list as it is; one that cannot be read leaves the hosts as they were.
fn load_peer_list(path: &Path, party: &Party) {
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
