//! `lanewatch serve`: the poller, the HTTP server, the signals that control them, and systemd's watchdog, which is notified
//! as long as the poller makes passes and the server's thread runs.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use clap::ArgMatches;
use sd_notify::NotifyState;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::args::{CommonArgs, ServeArgs};
use super::error::CliError;
use super::listen::{listen, url};
use super::peer_services::{PeerServices, watch_peer_list};
use super::reload::{self, ReadSettings};
use super::settings::{Settings, WebSettings};
use crate::assess::visibility::{summary, visibility};
use crate::bench::peers::PeerRuntime;
use crate::bench::process::{Toolbox, stop_all};
use crate::bench::schedule::BenchmarkSchedule;
use crate::bench::scheduler::{BenchmarkScheduler, ScheduledBenchmarks};
use crate::export::AgentState;
use crate::export::http::{App, HttpOptions, ReportSource, serve as serve_http};
use crate::model::finding::EventKind;
use crate::watch::clock::SystemClock;
use crate::watch::poller_handle::Heartbeat;
use crate::watch::store::Store;
use crate::watch::{Engine, HostReport, Poller, PollerHandle};

/// How long the last save may take at the end.
const LAST_SAVE: Duration = Duration::from_secs(10);

/// Runs the agent until it is asked to end.
///
/// # Errors
/// A socket cannot be opened, or the system has no more threads.
pub fn serve(
    settings: &Settings,
    common: &CommonArgs,
    matches: &ArgMatches,
    args: &ServeArgs,
) -> Result<ExitCode, CliError> {
    let web = settings.web(&args.web)?;
    if rustix::process::geteuid().is_root() {
        tracing::warn!("running as root, which lanewatch does not need");
    }
    let mut store = Store::new(settings.storage.clone());
    let own = store.take().unwrap_or_else(|error| {
        tracing::error!("cannot save the state: {error}; retrying at each pass");
        true
    });
    if !own {
        tracing::error!(
            "another agent is using the state directory {}; this one does not save its state",
            store.directory().display()
        );
    }
    let engine = Engine::new(Arc::clone(&settings.policy), false);
    let specs = settings.collectors.iter().copied();
    let mut poller = Poller::new(&settings.setup(), specs, Arc::new(SystemClock), engine, own.then_some(store))
        .context("cannot start the poller")?;
    poller.note(EventKind::Started, format!("lanewatch {} started", env!("CARGO_PKG_VERSION")));
    let reload_settings = reload_settings(common, matches);
    let (stop, stopped) = std::sync::mpsc::channel();
    let peers = PeerServices::new(settings, &poller.handle())?;
    let peer_runtime = peers.peer_runtime.as_ref().map(|(_, peer_runtime)| Arc::clone(peer_runtime));
    let probes = scheduler(settings, &poller, peer_runtime).map(|scheduler| {
        let probes = std::thread::Builder::new().name("probes".to_owned());
        probes.spawn(move || scheduler.run(&stopped))
    });
    let probes = probes.transpose().context("cannot start benchmarks")?;
    let code = run(poller, &web, settings, &peers, &reload_settings, |_| {});
    stop_all();
    drop(stop);
    // Whatever is being measured ends with the agent, and leaves nothing behind.
    if let Some(probes) = probes {
        let _ = probes.join();
    }
    if let Some(servers) = &peers.servers {
        servers.finish();
    }
    code
}

/// What measures, if anything should, and this is the host that it would measure.
fn scheduler(
    settings: &Settings,
    poller: &Poller,
    peer_runtime: Option<Arc<PeerRuntime>>,
) -> Option<BenchmarkScheduler> {
    let probe = &settings.probe;
    if !probe.enabled {
        return None;
    }
    if !settings.host().live {
        tracing::error!("benchmarks are off: the agent reads a different host than the one it runs on");
        return None;
    }
    let uname = rustix::system::uname();
    let schedule = BenchmarkSchedule::new(probe.interval, probe.budget, &uname.nodename().to_string_lossy());
    let program = ScheduledBenchmarks { probes: probe.probes.clone(), context: settings.benchmark_context() };
    let scheduler = BenchmarkScheduler::new(poller.handle(), Arc::new(SystemClock), program, schedule, Toolbox::new());
    Some(scheduler.with_peers(peer_runtime))
}

/// Reads the settings of these flags, and the file that they name, whenever it is called.
pub fn reload_settings(common: &CommonArgs, matches: &ArgMatches) -> ReadSettings {
    let (common, matches) = (common.clone(), matches.clone());
    Arc::new(move || Settings::new(&common, &matches))
}

/// Runs a poller and serves what it finds; `reload_settings` reads the configuration anew, `on_listening` gets the
/// address once the agent listens on it.
///
/// # Errors
/// A socket cannot be opened, or the system has no more threads.
pub fn run(
    mut poller: Poller,
    web: &WebSettings,
    settings: &Settings,
    peers: &PeerServices,
    reload_settings: &ReadSettings,
    on_listening: impl FnOnce(&str),
) -> Result<ExitCode, CliError> {
    let handle = poller.handle();
    let watchdog = sd_notify::watchdog_enabled().map(|every| (every, poller.heartbeat(beat(every))));
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start the event loop")?;
    let (reloaded, vf_ports) = (Some(SystemTime::now()), settings.vf_ports);
    let agent = AgentState { reloaded, vf_ports, ..AgentState::default() };
    let options = HttpOptions {
        telemetry_path: web.telemetry_path.clone(),
        max_requests: web.max_requests,
        public_snapshot: web.public_snapshot,
        ..HttpOptions::default()
    };
    let app = Arc::new(App::new(Arc::new(PollerReports(handle.clone())), options, agent));
    let mut encrypted = false;
    if let Some(file) = &web.config {
        let web = reload::read_web_config(file)?;
        encrypted = web.tls.is_some();
        reload::install(&app, web);
    }
    peers.attach(&app)?;
    let code = runtime.block_on(async {
        let listeners = listen(web).await?;
        for listener in &listeners {
            if let Ok(address) = listener.local_addr() {
                tracing::info!(%address, "listening");
            }
        }
        if let Some(address) = listeners.first().and_then(|listener| listener.local_addr().ok()) {
            on_listening(&url(address, encrypted));
        }
        let mut ends = [signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?];
        let (alive, mut ended) = oneshot::channel::<()>();
        let failed = Cell::new(false);
        std::thread::Builder::new().name("poller".to_owned()).spawn(move || {
            // Dropped however the poller ends, by a panic, too.
            let _alive = alive;
            poller.run();
        })?;
        let mut tasks = JoinSet::new();
        tasks.spawn(notify_ready(handle.clone()));
        if let Some((list, peer_runtime)) = peers.peer_runtime.clone() {
            tasks.spawn(watch_peer_list(list, peer_runtime));
        }
        if let Some((every, heartbeat)) = watchdog {
            tasks.spawn(feed(every, heartbeat));
        }
        let served = serve_http(listeners, Arc::clone(&app), async {
            // On the heap: while a file is read, they are large.
            let config = Box::pin(reload::watch_config(
                settings.file.as_deref(),
                &settings.config.values,
                reload_settings,
                &handle,
                &app,
            ));
            let web_config = Box::pin(reload::watch_web_config(web.config.as_deref(), web.allow_weaker_reload, &app));
            tokio::select! {
                () = first_signal(&mut ends) => {}
                _ = &mut ended => failed.set(true),
                Err(error) = config => tracing::error!("{error}"),
                Err(error) = web_config => tracing::error!("{error}"),
            }
            tasks.abort_all();
            let _ = sd_notify::notify(&[NotifyState::Stopping]);
        });
        served.await;
        let failed = failed.get();
        handle.stop();
        if !failed && timeout(LAST_SAVE, ended).await.is_err() {
            tracing::error!(
                "cannot save the final state: the evaluation has been running for {} s",
                LAST_SAVE.as_secs()
            );
        }
        tracing::info!("stopped");
        Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    });
    // Work for a peer may be reading a file that does not respond.
    runtime.shutdown_background();
    code
}

/// Resolves at the first of these signals.
pub(super) async fn first_signal(signals: &mut [Signal; 2]) {
    let [first, second] = signals;
    tokio::select! {
        _ = first.recv() => {}
        _ = second.recv() => {}
    }
}

/// Tells systemd when the first complete pass is there.
async fn notify_ready(handle: PollerHandle) {
    // A service manager that does not listen is no reason to stop.
    if let Some(report) = handle.report(Duration::MAX, Duration::from_secs(60)).await {
        let _ = sd_notify::notify(&[NotifyState::Ready]);
        tracing::info!("ready");
        tracing::info!("{}", summary(&visibility(&report.snapshot, &report.vf_map), &report.limited));
    }
}

/// The poller's reports, for the server.
struct PollerReports(PollerHandle);

impl ReportSource for PollerReports {
    fn report(
        &self,
        max_age: Duration,
        wait: Duration,
    ) -> Pin<Box<dyn Future<Output = Option<Arc<HostReport>>> + Send + '_>> {
        Box::pin(self.0.report(max_age, wait))
    }

    fn latest(&self) -> Option<Arc<HostReport>> {
        self.0.latest()
    }
}

/// How often the poller must go round for a watchdog of this length.
pub fn beat(watchdog: Duration) -> Duration {
    watchdog / 8
}

/// Feeds the watchdog as long as the heartbeat goes on; never returns.
pub async fn feed(watchdog: Duration, heartbeat: Heartbeat) {
    let mut ticks = interval(watchdog / 3);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut before, mut silent) = (0, false);
    loop {
        ticks.tick().await;
        let count = heartbeat.count();
        if count != before {
            // A service manager that does not listen is no reason to stop.
            let _ = sd_notify::notify(&[NotifyState::Watchdog]);
        }
        if count == before && !silent {
            tracing::error!("the evaluation is stuck; no longer notifying the systemd watchdog");
        }
        (silent, before) = (count == before, count);
    }
}
