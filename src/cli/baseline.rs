//! `lanewatch baseline`: what this host is expected to be like.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;

use super::args::{BaselineAction, BaselineArgs};
use super::error::CliError;
use super::one_shot::{example_baseline, read_once};
use super::output::print;
use super::settings::Settings;
use crate::model::check::Check;
use crate::model::history::Baseline;
use crate::model::policy::Policy;
use crate::model::reason::FindingReason;
use crate::model::units::BytesPerSecond;
use crate::watch::clock::SystemClock;
use crate::watch::store::{Answer, Request, Store, send};
use crate::watch::{Engine, Poller};

const LIMIT: Duration = Duration::from_secs(10);

/// How long the agent may take to apply a request.
const PATIENCE: Duration = Duration::from_secs(60);

/// Shows, compares or accepts the baseline.
///
/// # Errors
/// The host cannot be looked at, or the state directory cannot be written.
pub fn run(settings: &Settings, args: &BaselineArgs) -> Result<ExitCode, CliError> {
    match args.action {
        BaselineAction::Show if settings.demo => Ok(print(&show(&example_baseline(settings, LIMIT)?, settings))?),
        BaselineAction::Accept if settings.demo => {
            Err(CliError::Usage("the example host has no baseline to accept".to_owned()))
        }
        BaselineAction::Show => {
            let store = Store::new(settings.storage.clone());
            store.usable().map_err(|why| anyhow::anyhow!("{why}"))?;
            Ok(print(&show(&store.peek().baseline, settings))?)
        }
        BaselineAction::Diff => diff(settings),
        BaselineAction::Accept => accept(settings),
    }
}

fn show(baseline: &Baseline, settings: &Settings) -> String {
    if baseline.devices.is_empty() {
        return format!("no baseline in {}\n", settings.storage.display());
    }
    let mut out = String::new();
    for (key, device) in &baseline.devices {
        let at = device.pci_address.as_deref().map(|at| format!(" at {at}")).unwrap_or_default();
        let _ = writeln!(out, "{} ({key}){at}", device.name);
        for (number, port) in &device.ports {
            let rate =
                port.rate_bytes_per_second.map(|rate| format!(" at {}", BytesPerSecond(rate))).unwrap_or_default();
            let _ = writeln!(out, "  port {number}: {}{rate}", if port.active { "up" } else { "never seen up" });
        }
        for link in &device.path {
            let (speed, width) = link.rate();
            let _ = writeln!(out, "  link above {}: {speed} {width}", link.pci_address);
        }
    }
    for gpu in baseline.gpus.values() {
        let _ = writeln!(out, "GPU at {}: nearest RDMA card {}", gpu.pci_address, gpu.nearest);
    }
    out
}

/// Prints the findings that rest on the baseline: exit 0 when there is none, 1 otherwise.
fn diff(settings: &Settings) -> Result<ExitCode, CliError> {
    if !settings.demo {
        Store::new(settings.storage.clone()).usable().map_err(|why| anyhow::anyhow!("{why}"))?;
    }
    let report = read_once(settings, Duration::ZERO, LIMIT)?;
    let differs = report.findings.iter().map(|finding| &finding.condition).filter(|condition| {
        matches!(condition.check, Check::DeviceMissing | Check::PcieDrifted)
            || condition.reason == FindingReason::Baseline
    });
    let mut out = String::new();
    for condition in differs {
        let _ = writeln!(out, "{} {}: {}", condition.check.as_str(), condition.subject, condition.summary);
    }
    if out.is_empty() {
        Ok(print("no difference\n")?)
    } else {
        print(&out)?;
        Ok(ExitCode::from(1))
    }
}

/// Makes what is there now the baseline: the agent does it where one runs, this command otherwise.
fn accept(settings: &Settings) -> Result<ExitCode, CliError> {
    let mut store = Store::new(settings.storage.clone());
    let taken = store.take().map_err(|error| anyhow::anyhow!("cannot save the baseline: {error}"))?;
    if !taken {
        let baseline = ask_agent(&settings.storage, &Request::AcceptBaseline)?.baseline;
        return Ok(print(&show(&baseline, settings))?);
    }
    let engine = Engine::new(Arc::new(Policy::default()), false);
    let specs = settings.collectors.iter().copied();
    let mut poller = Poller::new(&settings.setup(), specs, Arc::new(SystemClock), engine, Some(store))
        .context("cannot start the poller")?;
    poller.accept_baseline(LIMIT).map_err(|error| anyhow::anyhow!("cannot save the baseline: {error}"))?;
    // Another command may have found the directory locked by this one.
    poller.apply_requests();
    Ok(print(&show(poller.baseline(), settings))?)
}

/// Hands a request to the running agent and returns its answer.
///
/// # Errors
/// The request cannot be written, the agent does not respond in time, or it could not do what was asked.
pub(super) fn ask_agent(storage: &Path, request: &Request) -> anyhow::Result<Answer> {
    let answer = send(storage, request, PATIENCE)
        .with_context(|| format!("cannot write a request to {}", storage.display()))?
        .with_context(|| {
            let seconds = PATIENCE.as_secs();
            format!("the agent has not responded within {seconds} s; it will apply the request once it responds")
        })?;
    match answer.error {
        Some(error) => Err(anyhow::anyhow!("the agent: {error}")),
        None => Ok(answer),
    }
}
