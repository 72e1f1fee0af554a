//! Runs of probes as JSON.

use serde_json::{Map, Value, json};

use super::{SCHEMA, host};
use crate::model::benchmark::BenchmarkRun;
use crate::model::ids::DeviceName;
use crate::model::time::rfc3339;
use crate::watch::HostReport;

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
        "result": run.outcome.as_str(),
        "reason": run.reason,
        "summary": run.text,
        "profile": run.profile,
        "bandwidth_bytes_per_second": bandwidth,
        "latency_seconds": latency,
        "ceiling_bytes_per_second": run.ceiling,
    })
}
