//! `lanewatch serve`: the poller, the HTTP server, and the signals that steer them.

use std::future::Future;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use clap::ArgMatches;
use sd_notify::NotifyState;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::args::{Common, Serve};
use super::failure::Failure;
use super::listen::listen;
use super::settings::{Settings, WebSettings};
use crate::bench::child::stop_all;
use crate::bench::schedule::Schedule;
use crate::bench::scheduler::{Program, Scheduler};
use crate::bench::tools::Tools;
use crate::export::AgentState;
use crate::export::http::{App, Options, Source, serve as serve_http};
use crate::model::event::EventKind;
use crate::watch::Handle;
use crate::watch::clock::SystemClock;
use crate::watch::store::Store;
use crate::watch::{Engine, Poller, Report};

/// Runs the agent until it is asked to end.
///
/// # Errors
/// A socket cannot be opened, or the system has no more threads.
pub fn serve(settings: &Settings, common: &Common, matches: &ArgMatches, flags: &Serve) -> Result<ExitCode, Failure> {
    let web = settings.web(&flags.web)?;
    if rustix::process::geteuid().is_root() {
        tracing::warn!("running as root; nothing here needs it");
    }
    let mut store = Store::new(settings.storage.clone());
    let own = store.take();
    if !own {
        tracing::error!("another agent keeps its state in {}: this one keeps nothing", store.directory().display());
    }
    let engine = Engine::new(Arc::clone(&settings.policy), false);
    let specs = settings.collectors.iter().copied();
    let mut poller = Poller::new(&settings.setup(), specs, Arc::new(SystemClock), engine, own.then_some(store))
        .context("cannot start reading")?;
    poller.note(EventKind::Started, format!("lanewatch {} started", env!("CARGO_PKG_VERSION")));
    let again = || Settings::new(common, matches);
    let (stop, stopped) = std::sync::mpsc::channel();
    let probes = scheduler(settings, &poller).map(|scheduler| {
        let probes = std::thread::Builder::new().name("probes".to_owned());
        probes.spawn(move || scheduler.run(&stopped))
    });
    let probes = probes.transpose().context("cannot start probes")?;
    let code = run(poller, &web, again);
    stop_all();
    drop(stop);
    // Whatever is being measured ends with the agent, and leaves nothing behind.
    if let Some(probes) = probes {
        let _ = probes.join();
    }
    code.map_err(Failure::from)
}

/// What measures, if anything should, and this is the host that it would measure.
fn scheduler(settings: &Settings, poller: &Poller) -> Option<Scheduler> {
    let probe = &settings.probe;
    if !probe.enabled {
        return None;
    }
    if !settings.host().live {
        tracing::error!("no probes: the host that is read is not the one that this agent runs on");
        return None;
    }
    let uname = rustix::system::uname();
    let schedule = Schedule::new(probe.interval, probe.budget, &uname.nodename().to_string_lossy());
    let program = Program {
        probes: probe.probes.clone(),
        devices: probe.devices.clone(),
        tuning: probe.tuning.clone(),
        rules: probe.rules.clone(),
        lock: probe.lock.clone(),
        sysfs: settings.paths.1.clone(),
    };
    Some(Scheduler::new(poller.handle(), Arc::new(SystemClock), program, schedule, Tools::new()))
}

/// Runs a poller and serves what it finds; `again` reads the configuration anew.
///
/// # Errors
/// A socket cannot be opened, or the system has no more threads.
pub fn run<E: std::fmt::Display>(
    poller: Poller,
    web: &WebSettings,
    again: impl Fn() -> Result<Settings, E>,
) -> anyhow::Result<ExitCode> {
    let handle = poller.handle();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start")?;
    let agent = AgentState { reloaded: Some(SystemTime::now()), ..AgentState::default() };
    let options =
        Options { telemetry_path: web.telemetry_path.clone(), max_requests: web.max_requests, ..Options::default() };
    let app = Arc::new(App::new(Arc::new(Reports(handle.clone())), options, agent));
    runtime.block_on(async {
        let listeners = listen(web).await?;
        for listener in &listeners {
            if let Ok(address) = listener.local_addr() {
                tracing::info!(%address, "listening");
            }
        }
        let mut ends = [signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?];
        let mut hangup = signal(SignalKind::hangup())?;
        let worker = std::thread::Builder::new().name("poller".to_owned()).spawn(move || poller.run())?;
        let ready = tokio::spawn(say_when_ready(handle.clone()));
        let served = serve_http(listeners, Arc::clone(&app), async {
            loop {
                tokio::select! {
                    () = any(&mut ends) => break,
                    _ = hangup.recv() => reload(&again, &handle, &app),
                    () = tokio::time::sleep(Duration::from_secs(1)), if worker.is_finished() => break,
                }
            }
            ready.abort();
            let _ = sd_notify::notify(&[NotifyState::Stopping]);
        });
        served.await;
        let failed = worker.is_finished();
        handle.stop();
        tracing::info!("ended");
        Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    })
}

/// Resolves at the first of these signals.
pub(super) async fn any(signals: &mut [Signal; 2]) {
    let [first, second] = signals;
    tokio::select! {
        _ = first.recv() => {}
        _ = second.recv() => {}
    }
}

/// Tells systemd when the first complete pass is there.
async fn say_when_ready(handle: Handle) {
    // A service manager that does not listen is no reason to stop.
    if handle.report(Duration::MAX, Duration::from_secs(60)).await.is_some() {
        let _ = sd_notify::notify(&[NotifyState::Ready]);
        tracing::info!("ready");
    }
}

/// Reads the configuration again. One that is wrong changes nothing and is said in the log and the metrics.
fn reload<E: std::fmt::Display>(again: &impl Fn() -> Result<Settings, E>, handle: &Handle, app: &App) {
    match again() {
        Ok(settings) => {
            handle.set_policy(settings.policy, "the configuration was read again".to_owned());
            app.set_agent(AgentState { reload_successful: true, reloaded: Some(SystemTime::now()), ..app.agent() });
            tracing::info!("configuration read again; paths, addresses and collectors change at a restart");
        }
        Err(error) => {
            app.set_agent(AgentState { reload_successful: false, ..app.agent() });
            tracing::error!("configuration kept as it was: {error}");
        }
    }
}

/// The poller's reports, for the server.
struct Reports(Handle);

impl Source for Reports {
    fn report(
        &self,
        max_age: Duration,
        wait: Duration,
    ) -> Pin<Box<dyn Future<Output = Option<Arc<Report>>> + Send + '_>> {
        Box::pin(self.0.report(max_age, wait))
    }

    fn latest(&self) -> Option<Arc<Report>> {
        self.0.latest()
    }
}
