//! The past of probes in the state file, where counts are not kept, and runs that a command hands over to the agent.
//!
//! The agent alone writes its state. What `lanewatch bench` measured waits beside it, one line a run, until the agent
//! takes it up.

use std::collections::VecDeque;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::files;
use super::written::{millis, millis_of, wall};
use crate::host::fs::read_regular;
use crate::model::benchmark::{
    Benchmark, BenchmarkHistories, BenchmarkHistory, BenchmarkKey, BenchmarkRun, Measurements, Outcome,
};
use crate::model::ids::{DeviceName, PortKey};
use crate::model::units::BytesPerSecond;

/// One probe's past as it is written.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Stored {
    probe: Benchmark,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    port: Option<(String, u32)>,
    #[serde(default)]
    runs: Vec<StoredRun>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last: Option<StoredRun>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    measured: Option<StoredRun>,
    #[serde(default)]
    spent: Vec<(u64, u64)>,
    #[serde(default)]
    good: Vec<(String, Vec<Measurements>)>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct StoredRun {
    at: u64,
    took: u64,
    outcome: Outcome,
    reason: String,
    text: String,
    #[serde(default)]
    measured: Measurements,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ceiling: Option<f64>,
    profile: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    peer: Option<String>,
}

/// A run of a command.
#[derive(Debug, Serialize, Deserialize)]
struct HandedOver {
    probe: Benchmark,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    port: Option<(String, u32)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    function: Option<String>,
    run: StoredRun,
}

/// Runs that wait.
const WAITING: &str = "probe-runs.jsonl";
/// Longest file of them, in bytes.
const LONGEST: u64 = 1 << 20;

/// Hands runs over to the agent that keeps its state in this directory.
///
/// # Errors
/// The directory is not there or cannot be written, or nobody has taken runs up for long.
pub fn hand_over(directory: &Path, runs: &[BenchmarkRun]) -> io::Result<()> {
    let mut lines = Vec::new();
    for run in runs {
        let line = HandedOver {
            probe: run.key.probe,
            port: run.key.port.as_ref().map(|port| (port.device.as_str().to_owned(), port.port)),
            function: run.function.map(|function| function.to_string()),
            run: store_run(run),
        };
        serde_json::to_writer(&mut lines, &line)?;
        lines.push(b'\n');
    }
    let path = directory.join(WAITING);
    if std::fs::symlink_metadata(&path).is_ok_and(|meta| !meta.is_file() || meta.len() > LONGEST / 2) {
        return Err(io::Error::other("no agent takes up what waits there"));
    }
    files::writable(&path)?.write_all(&lines)
}

/// The runs that wait in a directory, oldest first.
pub fn waiting(directory: &Path) -> Vec<BenchmarkRun> {
    let bytes = read_regular(&directory.join(WAITING), LONGEST).unwrap_or_default();
    let line = |line: &[u8]| {
        let handed: HandedOver = serde_json::from_slice(line).ok()?;
        let port = handed.port.map(|(device, port)| PortKey { device: DeviceName::new(&device), port });
        let run = restore_run(&BenchmarkKey { probe: handed.probe, port }, handed.run);
        Some(BenchmarkRun { function: handed.function.and_then(|function| function.parse().ok()), ..run })
    };
    bytes.split(|byte| *byte == b'\n').filter_map(line).collect()
}

/// Takes up the runs that wait.
pub fn take_up(directory: &Path) -> Vec<BenchmarkRun> {
    let path = directory.join(WAITING);
    if std::fs::symlink_metadata(&path).is_err() {
        return Vec::new();
    }
    let runs = waiting(directory);
    // What cannot be removed would be taken up again and again.
    if std::fs::remove_file(&path).is_ok() { runs } else { Vec::new() }
}

/// What is written of the past of probes.
pub fn store(pasts: &BenchmarkHistories) -> Vec<Stored> {
    let stored = |(key, past): (&BenchmarkKey, &BenchmarkHistory)| Stored {
        probe: key.probe,
        port: key.port.as_ref().map(|port| (port.device.as_str().to_owned(), port.port)),
        runs: past.runs.iter().map(store_run).collect(),
        last: past.last.as_ref().map(store_run),
        measured: past.measured.as_ref().map(store_run),
        spent: past.spent.iter().map(|(at, took)| (millis_of(*at), millis(*took))).collect(),
        good: past.good.iter().map(|(profile, good)| (profile.to_string(), good.iter().cloned().collect())).collect(),
    };
    pasts.iter().map(stored).collect()
}

/// The past of probes from what was written.
pub fn restore(stored: Vec<Stored>) -> BenchmarkHistories {
    let past = |stored: Stored| {
        let port = stored.port.map(|(device, port)| PortKey { device: DeviceName::new(&device), port });
        let key = BenchmarkKey { probe: stored.probe, port };
        let run = |run: StoredRun| restore_run(&key, run);
        let past = BenchmarkHistory {
            runs: stored.runs.into_iter().map(run).collect(),
            last: stored.last.map(run),
            measured: stored.measured.map(run),
            spent: stored.spent.into_iter().map(|(at, took)| (wall(at), Duration::from_millis(took))).collect(),
            good: stored.good.into_iter().map(|(name, good)| (Arc::from(name), VecDeque::from(good))).collect(),
            ..BenchmarkHistory::default()
        };
        (key, past)
    };
    stored.into_iter().map(past).collect()
}

fn store_run(run: &BenchmarkRun) -> StoredRun {
    StoredRun {
        at: millis_of(run.at),
        took: millis(run.took),
        outcome: run.outcome,
        reason: run.reason.to_string(),
        text: run.text.to_string(),
        measured: run.measured.clone(),
        ceiling: run.ceiling.map(|ceiling| ceiling.0),
        profile: run.profile.to_string(),
        peer: run.peer.as_deref().map(str::to_owned),
    }
}

fn restore_run(key: &BenchmarkKey, run: StoredRun) -> BenchmarkRun {
    BenchmarkRun {
        key: key.clone(),
        at: wall(run.at),
        took: Duration::from_millis(run.took),
        outcome: run.outcome,
        reason: Arc::from(run.reason),
        text: Arc::from(run.text),
        measured: run.measured,
        ceiling: run.ceiling.map(BytesPerSecond),
        profile: Arc::from(run.profile),
        peer: run.peer.map(Arc::from),
        function: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::benchmark::{Direction, Statistic};

    #[test]
    fn runs_are_handed_over_once() {
        let directory = tempfile::tempdir().unwrap();
        let key = BenchmarkKey { probe: Benchmark::Memory, port: None };
        let run = |at: u64| BenchmarkRun {
            key: key.clone(),
            at: wall(at),
            took: Duration::from_millis(3),
            outcome: Outcome::Ok,
            reason: Arc::from("as_usual"),
            text: Arc::from("a\nb"),
            measured: Measurements::default(),
            ceiling: None,
            profile: Arc::from("copy"),
            peer: None,
            function: "0000:98:00.0".parse().ok(),
        };
        assert_eq!(take_up(directory.path()), []);
        hand_over(directory.path(), &[run(1), run(2)]).unwrap();
        hand_over(directory.path(), &[run(3)]).unwrap();
        assert_eq!(waiting(directory.path()), [run(1), run(2), run(3)]);
        assert_eq!(take_up(directory.path()).len(), 3);
        assert_eq!(take_up(directory.path()), []);
        assert!(hand_over(&directory.path().join("nowhere"), &[run(1)]).is_err());
    }

    #[test]
    fn what_is_written_comes_back() {
        let port = PortKey { device: DeviceName::new("mlx5_7"), port: 2 };
        let key = BenchmarkKey { probe: Benchmark::RdmaPeer, port: Some(port) };
        let mut pasts = BenchmarkHistories::new();
        let past = pasts.entry(key.clone()).or_default();
        for (at, outcome) in [(0, Outcome::Ok), (1_000, Outcome::Failed), (2_000, Outcome::Inconclusive)] {
            past.record(BenchmarkRun {
                key: key.clone(),
                at: wall(at * 1_000),
                took: Duration::from_millis(5_250),
                outcome,
                reason: Arc::from("x"),
                text: Arc::from("y"),
                measured: Measurements {
                    bandwidth: vec![(Direction::OneWay, 1.5e9)],
                    latency: vec![(Direction::Write, Statistic::P99, 2.1e-6)],
                },
                ceiling: Some(BytesPerSecond(2e9)),
                profile: Arc::from("p"),
                peer: Some(Arc::from("node9")),
                function: None,
            });
        }
        past.counts = [0; 5];
        let written = serde_json::to_string(&store(&pasts)).unwrap_or_default();
        let read: Vec<Stored> = serde_json::from_str(&written).unwrap_or_default();
        assert_eq!(restore(read), pasts);
    }
}
