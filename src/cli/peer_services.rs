//! What an agent runs for benchmarks between hosts: servers for peers that ask, and the list of hosts that take turns.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use super::config::error::ConfigError;
use super::config::files::NO_PEER_AUTHENTICATION;
use super::reload::{FileChanges, read_on_own_thread};
use super::settings::Settings;
use crate::bench::peers::PeerRuntime;
use crate::bench::peers::authentication::{PeerKey, PeerTrust, RequestAuthenticator};
use crate::bench::peers::schedule;
use crate::bench::peers::servers::BenchmarkServers;
use crate::bench::process::Toolbox;
use crate::export::http::App;
use crate::model::benchmark::Benchmark;
use crate::watch::PollerHandle;
use crate::watch::clock::SystemClock;

/// The parts of an agent that work with peers.
#[derive(Default)]
pub struct PeerServices {
    /// Starts servers for them.
    pub servers: Option<Arc<BenchmarkServers>>,
    /// The hosts that measure with each other, and where they are listed.
    pub peer_runtime: Option<(PathBuf, Arc<PeerRuntime>)>,
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
            tracing::error!("benchmarks with peers are off: the agent reads a different host than the one it runs on");
            return Ok(Self::default());
        }
        if let Some(Err(error)) = peers.key.as_deref().map(PeerKey::read) {
            let key = "probe.peers.key-file".to_owned();
            return Err(ConfigError::Value { file, key, message: error.to_string() });
        }
        let trust = peers.key.clone().map_or(PeerTrust::Certificate, PeerTrust::Key);
        let by_certificate = peers.serve && trust == PeerTrust::Certificate;
        let servers = peers.serve.then(|| {
            let authenticator = RequestAuthenticator::new(trust, peers.names.clone(), SystemTime::now());
            Arc::new(BenchmarkServers::new(
                handle.clone(),
                Arc::new(SystemClock),
                settings.benchmark_context(),
                Toolbox::new(),
                authenticator,
            ))
        });
        let peer_runtime = peers.list.clone().filter(|_| measures).map(|list| {
            let post = Box::new(peers.post.clone());
            let peer_runtime =
                PeerRuntime::new(peers.names.clone(), peers.slot, peers.concurrency, peers.key.clone(), post);
            take_peer_list(&list, schedule::read_peers(&list), &peer_runtime);
            (list, Arc::new(peer_runtime))
        });
        Ok(Self { servers, peer_runtime, by_certificate, file })
    }

    /// Lets peers ask.
    ///
    /// # Errors
    /// Nothing would say who they are.
    pub fn attach(&self, app: &App) -> Result<(), ConfigError> {
        let Some(servers) = &self.servers else { return Ok(()) };
        if self.by_certificate && !app.web().verifies_clients {
            let key = "probe.peers.key-file".to_owned();
            return Err(ConfigError::Value {
                file: self.file.clone(),
                key,
                message: NO_PEER_AUTHENTICATION.to_owned(),
            });
        }
        app.set_probe_server(Arc::clone(servers) as _);
        tracing::info!("accepting benchmark requests from peers");
        Ok(())
    }
}

/// Reloads the list of hosts whenever it changes; never ends.
pub async fn watch_peer_list(path: PathBuf, peer_runtime: Arc<PeerRuntime>) {
    let changes = FileChanges::new(vec![path.clone()]);
    loop {
        changes.wait().await;
        let list = path.clone();
        let read = read_on_own_thread(
            move || schedule::read_peers(&list),
            |error| {
                tracing::error!("{}: {error}", path.display());
            },
        );
        take_peer_list(&path, read.await, &peer_runtime);
    }
}

/// Takes the list; one that cannot be read leaves the hosts as they were.
fn take_peer_list<E: Display>(path: &Path, read: Result<BTreeSet<Arc<str>>, E>, peer_runtime: &PeerRuntime) {
    match read {
        Ok(hosts) => {
            let count = hosts.len();
            if peer_runtime.set_hosts(hosts) {
                tracing::info!(hosts = count, "{}: peers loaded", path.display());
            } else {
                tracing::warn!(
                    "{}: this host ({}) is not in the list, so it has no peers; set probe.peers.name to its name there",
                    path.display(),
                    peer_runtime.names().join(", ")
                );
            }
        }
        Err(error) => tracing::error!("cannot load the list of peers, keeping the old one: {error}"),
    }
}
