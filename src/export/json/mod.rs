//! The JSON documents: findings (also what `check --format json` prints), events, facts, the VF map and benchmarks (runs of
//! this host, and output of benchmark programs). Each has a version in `schema`; keys are added, never renamed. Unknown
//! values are `null`.

mod facts;
mod findings;

pub use facts::snapshot;
pub use findings::{SCHEMA, events, findings};

use findings::host;
use serde_json::{Map, Value, json};

use crate::assess::benchmark::Ceiling;
use crate::bench::reading::{BenchmarkOutput, Bottleneck, OutputResult};
use crate::model::benchmark::BenchmarkRun;
use crate::model::ids::{DeviceName, PortKey};
use crate::model::time::rfc3339;
use crate::watch::HostReport;

pub mod topo;
pub mod vf;

/// What came of some runs.
pub fn runs(report: &HostReport, runs: &[BenchmarkRun]) -> Value {
    json!({ "schema": SCHEMA, "host": host(report), "runs": runs.iter().map(run).collect::<Vec<_>>() })
}

fn run(run: &BenchmarkRun) -> Value {
    let bandwidth: Map<String, Value> =
        run.measured.bandwidth.iter().map(|(way, value)| (way.as_str().to_owned(), json!(value))).collect();
    let mut latency: Map<String, Value> = Map::new();
    for (way, statistic, value) in &run.measured.latency {
        let of = latency.entry(way.as_str()).or_insert_with(|| json!({}));
        if let Value::Object(of) = of {
            of.insert(statistic.as_str().to_owned(), json!(value));
        }
    }
    json!({
        "probe": run.key.probe.as_str(),
        "device": run.key.device().map(DeviceName::as_str),
        "port": run.key.port.as_ref().map(|port| port.port),
        "peer": run.peer,
        "at": rfc3339(run.at),
        "duration_seconds": run.took.as_secs_f64(),
        "result": run.result.outcome().as_str(),
        "reason": run.result.reason(),
        "summary": run.text,
        "profile": run.profile,
        "bandwidth_bytes_per_second": bandwidth,
        "latency_seconds": latency,
        "ceiling_bytes_per_second": run.ceiling,
    })
}

/// An output beside the port that it is held against.
#[derive(Debug)]
pub struct ComparedOutput {
    /// Where it was read.
    pub file: String,
    /// What was read.
    pub output: BenchmarkOutput,
    /// The port; `None` if none is known to be its.
    pub port: Option<PortKey>,
    /// What the port's path carries.
    pub ceiling: Option<Ceiling>,
    /// One line of it.
    pub summary: String,
}

/// Outputs, and what they say together. `report`: the host they are held against.
pub fn outputs(report: Option<&HostReport>, items: &[ComparedOutput], together: Option<&str>) -> Value {
    json!({
        "schema": SCHEMA,
        "host": report.and_then(host),
        "outputs": items.iter().map(output).collect::<Vec<_>>(),
        "summary": together,
    })
}

fn output(item: &ComparedOutput) -> Value {
    let (output, report) = (&item.output, &item.output.report);
    let (result, reason) = match &output.result {
        OutputResult::Bandwidth { .. } | OutputResult::Latency(_) => ("measured", None),
        OutputResult::Failed(failure, _) => ("failed", Some(failure.as_str())),
        OutputResult::Nothing(_) => ("no_value", None),
    };
    let bandwidth = if let OutputResult::Bandwidth { way, value } = output.result { Some((way, value)) } else { None };
    let ceiling = item.ceiling.as_ref();
    let limit =
        bandwidth.zip(ceiling).map(|((way, value), ceiling)| Bottleneck::of(way, value, output.size(), ceiling));
    let row = report.best().filter(|_| bandwidth.is_some());
    let latency: Map<String, Value> = report
        .latency
        .first()
        .map(|row| row.values.iter().map(|(of, value)| (of.as_str().to_owned(), json!(value))).collect())
        .unwrap_or_default();
    let size = output.size().or_else(|| report.latency.first().and_then(|row| row.size));
    let iterations = row.and_then(|row| row.iterations).or_else(|| report.latency.first().and_then(|r| r.iterations));
    json!({
        "file": item.file,
        "result": result,
        "reason": reason,
        "summary": item.summary,
        "test": report.test,
        "device": report.device,
        "link_type": report.link_type,
        "transport": report.transport,
        "way": bandwidth.map(|(way, _)| way.as_str()),
        "size_bytes": size,
        "iterations": iterations,
        "bandwidth_bytes_per_second": bandwidth.map(|(_, value)| value.0),
        "peak_bandwidth_bytes_per_second": row.and_then(|row| row.peak).map(|peak| peak.0),
        "messages_per_second": row.and_then(|row| row.messages),
        "cpu_ratio": row.and_then(|row| row.cpu).map(|percent| percent / 100.0),
        "latency_seconds": latency,
        "port": item.port.as_ref().map(ToString::to_string),
        "port_rate_bytes_per_second": ceiling.and_then(|ceiling| ceiling.rate).map(|rate| rate.0),
        "path_bandwidth_bytes_per_second": ceiling.and_then(|ceiling| ceiling.path).map(|path| path.0),
        "ceiling_bytes_per_second": ceiling.map(|ceiling| ceiling.payload.0),
        "limit": limit.map(Bottleneck::as_str),
    })
}
