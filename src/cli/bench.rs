//! `lanewatch bench`: run probes now, or read what somebody else's benchmark said.

mod read;

use std::io::IsTerminal as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use indicatif::{ProgressBar, ProgressStyle};
use tokio::signal::unix::{SignalKind, signal};

use super::agent::first_signal;
use super::args::BenchArgs;
use super::args::values::{Color, DocumentFormat};
use super::baseline::ask_agent;
use super::error::CliError;
use super::one_shot::read_once;
use super::output::{complain, print, print_styled, style};
use super::settings::Settings;
use crate::bench::context::BenchmarkContext;
use crate::bench::guard::HostLock;
use crate::bench::guard::{self, IdleRules};
use crate::bench::iperf;
use crate::bench::peers::http_peer::HttpPeer;
use crate::bench::probe::{BenchmarkParameters, own};
use crate::bench::process::Toolbox;
use crate::bench::process::{is_stopped, stop_all};
use crate::bench::rdma::Peer;
use crate::export::json;
use crate::export::text;
use crate::model::benchmark::{Benchmark, BenchmarkKey, BenchmarkRun, Outcome, SkipReason};
use crate::model::ids::PortKey;
use crate::watch::HostReport;
use crate::watch::store::{Request, Store};

/// Time between the two readings that tell whether a port carries traffic.
const SAMPLE: Duration = Duration::from_secs(2);

/// When to give up on devices that do not answer.
const LIMIT: Duration = Duration::from_secs(10);

/// Runs what was asked for.
///
/// # Errors
/// There is no such device or probe, the host cannot be looked at, or another probe runs on it.
pub fn run(settings: &Settings, args: &BenchArgs) -> Result<ExitCode, CliError> {
    if !args.read.is_empty() {
        return read::run(settings, args);
    }
    if !settings.host().live && !args.force {
        let message =
            "a benchmark measures this machine, not the host that --demo or --path.* selects; --force runs it anyway";
        return Err(CliError::Usage(message.to_owned()));
    }
    let report = read_once(settings, if args.force { Duration::ZERO } else { SAMPLE }, LIMIT)?;
    let mut keys = wanted(&report, args)?;
    let tools = Toolbox::new();
    if args.peer.is_some() {
        keys = between(&keys, &tools);
        if keys.is_empty() {
            return Err(CliError::Usage("--peer needs an RDMA port on this host, and there is none".to_owned()));
        }
    }
    let place = settings.probe.lock.clone();
    let lock = HostLock::take(&place).with_context(|| format!("cannot lock {}", place.display()))?;
    let Some(_lock) = lock else {
        return Err(anyhow::anyhow!("another benchmark is running on this host ({} is locked)", place.display()).into());
    };
    stop_when_asked()?;
    let context = BenchmarkContext { parameters: parameters(settings, args), ..settings.benchmark_context() };
    let runs: Vec<BenchmarkRun> = keys.iter().map(|key| one(settings, &context, &report, &tools, args, key)).collect();
    let style = style(Color::Auto);
    let out = match args.format {
        DocumentFormat::Text => text::runs(&report, &runs, &style),
        DocumentFormat::Json => {
            serde_json::to_string_pretty(&json::runs(&report, &runs)).map_err(anyhow::Error::from)? + "\n"
        }
    };
    if args.format == DocumentFormat::Text { print_styled(&out, &style) } else { print(&out) }?;
    let ran: Vec<BenchmarkRun> = runs.iter().filter(|run| run.result.outcome() != Outcome::Skipped).cloned().collect();
    if is_stopped() {
        return Ok(ExitCode::FAILURE);
    }
    if let Err(error) = record(&settings.storage, &ran) {
        complain(&format!("cannot save the result in {}: {error}", settings.storage.display()));
    }
    let well = runs.iter().all(|run| run.result.outcome() == Outcome::Ok);
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Records runs: the agent does it where one runs, this command otherwise. Without a state directory nothing is kept.
fn record(storage: &Path, runs: &[BenchmarkRun]) -> anyhow::Result<()> {
    if runs.is_empty() || !storage.is_dir() {
        return Ok(());
    }
    let mut store = Store::new(storage.to_owned());
    if store.take()? {
        store.record_runs(runs, SystemTime::now())?;
    } else {
        ask_agent(storage, &Request::record(runs))?;
    }
    Ok(())
}

fn parameters(settings: &Settings, args: &BenchArgs) -> BenchmarkParameters {
    let configured = settings.probe.parameters.clone();
    BenchmarkParameters {
        size: args.size.unwrap_or(configured.size),
        queue_pairs: args.queue_pairs.unwrap_or(configured.queue_pairs),
        duration: args.duration.unwrap_or(configured.duration),
        both: args.both || configured.both,
        gid_index: args.gid_index.or(configured.gid_index),
        timeouts: configured.timeouts,
    }
}

/// The probes to another host in the place of loops: RDMA, and TCP where iperf3 is installed.
fn between(keys: &[BenchmarkKey], tools: &Toolbox) -> Vec<BenchmarkKey> {
    let ports = keys.iter().filter_map(|key| key.port.clone());
    let tcp = tools.find(iperf::PROGRAM).map(|_| Benchmark::TcpPeer);
    let probes = |port: PortKey| {
        std::iter::once(Benchmark::RdmaPeer)
            .chain(tcp)
            .map(move |probe| BenchmarkKey { probe, port: Some(port.clone()) })
    };
    ports.flat_map(probes).collect()
}

/// What to run: everything that needs no other host, or what was named.
fn wanted(report: &HostReport, args: &BenchArgs) -> Result<Vec<BenchmarkKey>, CliError> {
    let all = own(report);
    let Some(name) = &args.device else { return Ok(all) };
    if name == Benchmark::Memory.as_str() {
        return Ok(vec![BenchmarkKey { probe: Benchmark::Memory, port: None }]);
    }
    let ports: Vec<PortKey> = report
        .snapshot
        .devices()
        .flat_map(|device| device.ports.iter().map(|p| PortKey { device: device.name.clone(), port: p.number }))
        .collect();
    let named: Vec<BenchmarkKey> = ports
        .iter()
        .filter(|port| port.device.as_str() == name || port.to_string() == *name)
        .map(|port| BenchmarkKey { probe: Benchmark::RdmaLoopback, port: Some(port.clone()) })
        .collect();
    if named.is_empty() {
        let there: Vec<String> = ports.iter().map(ToString::to_string).collect();
        let there = if there.is_empty() { "it has none".to_owned() } else { format!("it has {}", there.join(", ")) };
        return Err(CliError::Usage(format!(
            "no RDMA device or port {name:?} on this host; {there}; or name \"memory\""
        )));
    }
    Ok(named)
}

fn one(
    settings: &Settings,
    context: &BenchmarkContext,
    report: &HostReport,
    tools: &Toolbox,
    args: &BenchArgs,
    key: &BenchmarkKey,
) -> BenchmarkRun {
    let refused = if args.force { Ok(()) } else { refuse(report, tools, &context.rules, key) };
    if let Err((reason, text)) = refused {
        let text = format!("{text} (--force runs it anyway)");
        return BenchmarkRun::skipped(key, SystemTime::now(), reason, &text);
    }
    let bar = bar(&context.parameters);
    let name = key.to_string();
    let progress = |step: &str| bar.set_message(format!("{name}: {step}"));
    progress("");
    let peers = &settings.probe.peers;
    let http_peer = args.peer.as_ref().map(|to| HttpPeer {
        transport: &peers.post,
        key: peers.key.as_deref(),
        to: Arc::from(to.as_str()),
        rail: context.rail(report, key.port.as_ref()),
        now: &SystemTime::now,
    });
    let peer = http_peer.as_ref().map(|http_peer| http_peer as &dyn Peer);
    let run = context.run(report, tools, key, peer, &progress, &SystemTime::now);
    bar.finish_and_clear();
    run
}

/// What is not known does not stay a person who asks.
fn refuse(report: &HostReport, tools: &Toolbox, rules: &IdleRules, key: &BenchmarkKey) -> Result<(), guard::SkipCause> {
    match guard::facts(report, key, rules, guard::load()) {
        Err((SkipReason::Unknown, _)) => {}
        other => other?,
    }
    guard::ask_scheduler(tools, rules)
}

/// Ends what was started when this process is asked to end: what runs in groups of its own does not hear of it.
fn stop_when_asked() -> anyhow::Result<()> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start the event loop")?;
    let wait = async {
        let mut ends = [signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?];
        first_signal(&mut ends).await;
        stop_all();
        std::io::Result::Ok(())
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || runtime.block_on(wait))?;
    Ok(())
}

/// A bar on a terminal, by the time that the steps should take.
fn bar(parameters: &BenchmarkParameters) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let tenths = (parameters.duration.as_millis() / 100).saturating_mul(if parameters.both { 2 } else { 1 }) + 20;
    let bar = ProgressBar::new(u64::try_from(tenths).unwrap_or(u64::MAX));
    if let Ok(style) = ProgressStyle::with_template("{msg:40} [{bar:30}] {elapsed}") {
        bar.set_style(style.progress_chars("=> "));
    }
    let ticking = bar.clone();
    // It ends with the bar.
    let _ = std::thread::Builder::new().name("progress".to_owned()).spawn(move || {
        while !ticking.is_finished() {
            if ticking.position() + 1 < ticking.length().unwrap_or(0) {
                ticking.inc(1);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    bar
}
