//! `lanewatch bench --read`: what somebody else's benchmark said, beside what a lane of this host carries.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use super::{BenchArgs, LIMIT, wanted};
use crate::bench::perftest::BandwidthUnit;
use crate::bench::reading::{BenchmarkOutput, Bottleneck, OutputResult, TransferKind, beside, read, together};
use crate::bench::target::BenchmarkTarget;
use crate::cli::args::values::DocumentFormat;
use crate::cli::error::CliError;
use crate::cli::one_shot::read_once;
use crate::cli::output::print;
use crate::cli::pasted_file;
use crate::cli::settings::Settings;
use crate::export::json::{self as json, ComparedOutput};
use crate::model::benchmark;
use crate::model::check::Check;
use crate::model::finding::Subject;
use crate::model::ids::PortKey;
use crate::model::rdma::PortState;
use crate::model::units::BytesPerSecond;
use crate::watch::HostReport;

/// Reads outputs of benchmarks, and says what they say alone and together.
pub(super) fn run(settings: &Settings, args: &BenchArgs) -> Result<ExitCode, CliError> {
    if args.read.iter().filter(|path| *path == Path::new("-")).count() > 1 {
        return Err(CliError::Usage("--read -: standard input can be read only once".to_owned()));
    }
    let outputs: Vec<(&PathBuf, BenchmarkOutput)> = args.read.iter().map(one).collect::<Result<_, _>>()?;
    let report = match &args.device {
        Some(_) => Some(read_once(settings, Duration::ZERO, LIMIT)?),
        // It was asked to read: that the host cannot be looked at is of no matter then.
        None if outputs.iter().any(|(_, output)| output.device().is_some()) => {
            read_once(settings, Duration::ZERO, LIMIT).ok()
        }
        None => None,
    };
    let named = match (&args.device, &report) {
        (Some(_), Some(report)) => wanted(report, args)?.into_iter().next().and_then(|key| key.port),
        _ => None,
    };
    let host = settings.host();
    let target = |output: &BenchmarkOutput| {
        let report = report.as_ref()?;
        let key = if args.device.is_some() { named.clone() } else { port_of(report, output.device()?) };
        BenchmarkTarget::new(report, &host, &key?)
    };
    let mut items: Vec<ComparedOutput> = Vec::new();
    for (path, output) in outputs {
        let target = target(&output);
        let (port, ceiling) = target.map_or((None, None), |target| (Some(target.port), target.ceiling));
        let mut item =
            ComparedOutput { file: pasted_file::called(path), output, port, ceiling, summary: String::new() };
        item.summary = summary(&item, report.as_deref(), args.device.is_none());
        items.push(item);
    }
    let all = together_or_alone(&items);
    let out = match args.format {
        DocumentFormat::Text => text(&items, all.as_deref()),
        DocumentFormat::Json => {
            let document = json::outputs(report.as_deref(), &items, all.as_deref());
            serde_json::to_string_pretty(&document).map_err(anyhow::Error::from)? + "\n"
        }
    };
    print(&out)?;
    let failed =
        items.iter().any(|item| matches!(item.output.result, OutputResult::Failed(..) | OutputResult::Nothing(_)));
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn one(path: &PathBuf) -> Result<(&PathBuf, BenchmarkOutput), CliError> {
    Ok((path, read(&pasted_file::contents(path)?, BandwidthUnit::MebibytesPerSecond)))
}

/// The first port of a device of this host: perftest takes that one, too, where it is not told.
fn port_of(report: &HostReport, name: &str) -> Option<PortKey> {
    let device = report.snapshot.devices().find(|device| device.name.as_str() == name)?;
    Some(PortKey { device: device.name.clone(), port: device.ports.first()?.number })
}

/// One output in one line. `by_name`: it is held against the device of this host that has its device's name.
fn summary(item: &ComparedOutput, report: Option<&HostReport>, by_name: bool) -> String {
    let output = &item.output;
    let held = if by_name && item.port.is_some() { " (compared with this host's)" } else { "" };
    let device = output.device().map(|device| format!(", {device}{held}")).unwrap_or_default();
    match &output.result {
        OutputResult::Bandwidth { way, value } => {
            let size = output.size().map(|size| format!(" ({size} B)")).unwrap_or_default();
            let note = way.not_comparable().map(|why| format!("; {why}")).unwrap_or_default();
            format!("{}{size}{device}{note}", beside(*way, *value, item.ceiling.as_ref()))
        }
        OutputResult::Latency(typical) => format!("latency: typically {:.2} µs{device}", typical * 1e6),
        OutputResult::Failed(failure, text) => {
            let now = match failure {
                benchmark::Failure::PortDown => {
                    report.zip(item.port.as_ref()).and_then(|(report, port)| now(report, port))
                }
                _ => None,
            };
            format!("FAILED ({}){device}: {text}{}", failure.as_str(), now.unwrap_or_default())
        }
        OutputResult::Nothing(why) => format!("no value: {why}"),
    }
}

/// How a port that was down stands now.
fn now(report: &HostReport, key: &PortKey) -> Option<String> {
    let down = report.findings.iter().map(|finding| &finding.condition).find(|condition| {
        condition.check == Check::PortDown && matches!(&condition.subject, Subject::Port(port) if port == key)
    });
    if let Some(down) = down {
        return Some(format!("; this host reports it, too: port_down {key} ({})", down.reason));
    }
    let device = report.snapshot.device(&key.device)?;
    let port = device.ports.iter().find(|port| port.number == key.port)?;
    (port.state.value() == Some(PortState::Active)).then(|| format!("; {key} of this host is ACTIVE now"))
}

/// What the numbers say together, or the only one alone.
fn together_or_alone(items: &[ComparedOutput]) -> Option<String> {
    let numbers = items.iter().filter_map(|item| match item.output.result {
        OutputResult::Bandwidth { way, value } => Some((item, (way, value))),
        _ => None,
    });
    let (held, numbers): (Vec<&ComparedOutput>, Vec<(TransferKind, BytesPerSecond)>) = numbers.unzip();
    if let ([item], [(way, value)]) = (held.as_slice(), numbers.as_slice()) {
        let ceiling = item.ceiling.as_ref().filter(|_| way.not_comparable().is_none())?;
        return Some(Bottleneck::of(*way, *value, item.output.size(), ceiling).says(ceiling));
    }
    // Outputs of several devices have no lane in common.
    let first = held.iter().find(|item| item.port.is_some());
    let same = held.iter().all(|item| item.port.is_none() || item.port == first.and_then(|first| first.port.clone()));
    together(&numbers, first.filter(|_| same).and_then(|first| first.ceiling.as_ref()))
}

fn text(items: &[ComparedOutput], all: Option<&str>) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    for item in items {
        let _ = writeln!(out, "{}: {}", item.file, item.summary);
    }
    if let Some(all) = all {
        let _ = writeln!(out, "\n{all}");
    }
    out
}
