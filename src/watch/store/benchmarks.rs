//! Benchmarks in the state file and in requests; counts since the agent's start are not saved.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::model::benchmark::{
    Benchmark, BenchmarkHistories, BenchmarkHistory, BenchmarkKey, BenchmarkRun, Measurements,
};
use crate::model::ids::{DeviceName, PciAddress, PortKey};
use crate::model::time::unix_millis;

/// A benchmark's history with its key.
#[derive(Serialize, Deserialize)]
struct HistoryRecord {
    #[serde(flatten)]
    key: KeyRecord,
    #[serde(default)]
    runs: VecDeque<BenchmarkRun>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last: Option<BenchmarkRun>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    measured: Option<BenchmarkRun>,
    /// When link time was used and how much, in milliseconds.
    #[serde(default)]
    spent: Vec<(u64, u64)>,
    #[serde(default)]
    good: Vec<(Arc<str>, VecDeque<Measurements>)>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct KeyRecord {
    probe: Benchmark,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    port: Option<(DeviceName, u32)>,
}

impl From<&BenchmarkKey> for KeyRecord {
    fn from(key: &BenchmarkKey) -> Self {
        Self { probe: key.probe, port: key.port.as_ref().map(|port| (port.device.clone(), port.port)) }
    }
}

impl From<KeyRecord> for BenchmarkKey {
    fn from(record: KeyRecord) -> Self {
        Self { probe: record.probe, port: record.port.map(|(device, port)| PortKey { device, port }) }
    }
}

/// A run with its key and function.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    #[serde(flatten)]
    key: KeyRecord,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    function: Option<PciAddress>,
    run: BenchmarkRun,
}

impl From<&BenchmarkRun> for RunRecord {
    fn from(run: &BenchmarkRun) -> Self {
        Self { key: KeyRecord::from(&run.key), function: run.function, run: run.clone() }
    }
}

impl From<RunRecord> for BenchmarkRun {
    fn from(record: RunRecord) -> Self {
        Self { key: record.key.into(), function: record.function, ..record.run }
    }
}

/// For `#[serde(with)]`.
///
/// # Errors
/// Those of the serializer.
pub(super) fn serialize<S: Serializer>(histories: &BenchmarkHistories, serializer: S) -> Result<S::Ok, S::Error> {
    let millis = |time: &Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let record = |(key, history): (&BenchmarkKey, &BenchmarkHistory)| HistoryRecord {
        key: KeyRecord::from(key),
        runs: history.runs.clone(),
        last: history.last.clone(),
        measured: history.measured.clone(),
        spent: history.spent.iter().map(|(at, took)| (unix_millis::of(*at), millis(took))).collect(),
        good: history.good.iter().map(|(profile, good)| (Arc::clone(profile), good.clone())).collect(),
    };
    serializer.collect_seq(histories.iter().map(record))
}

/// For `#[serde(with)]`.
///
/// # Errors
/// Something other than histories.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BenchmarkHistories, D::Error> {
    let history = |record: HistoryRecord| {
        let key = BenchmarkKey::from(record.key);
        let with_key = |run: BenchmarkRun| BenchmarkRun { key: key.clone(), ..run };
        let spent = |(at, took): (u64, u64)| -> (SystemTime, Duration) {
            (unix_millis::to_wall(at), Duration::from_millis(took))
        };
        let history = BenchmarkHistory {
            runs: record.runs.into_iter().map(with_key).collect(),
            last: record.last.map(with_key),
            measured: record.measured.map(with_key),
            spent: record.spent.into_iter().map(spent).collect(),
            good: record.good.into_iter().collect(),
            ..BenchmarkHistory::default()
        };
        (key, history)
    };
    Ok(Vec::<HistoryRecord>::deserialize(deserializer)?.into_iter().map(history).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::benchmark::{Direction, Doubt, Failure, Good, RunResult, Shortfall, Statistic};
    use crate::model::units::BytesPerSecond;

    #[test]
    fn histories_come_back_as_they_were() {
        let port = PortKey { device: DeviceName::new("mlx5_7"), port: 2 };
        let key = BenchmarkKey { probe: Benchmark::RdmaPeer, port: Some(port) };
        let mut histories = BenchmarkHistories::new();
        let history = histories.entry(key.clone()).or_default();
        let results = [
            RunResult::Ok(Good::NearCeiling),
            RunResult::Slow(Shortfall::BelowHistory),
            RunResult::Failed(Failure::PortDown),
            RunResult::Inconclusive(Doubt::PeerGone),
        ];
        for (at, result) in (0..).step_by(1_000).zip(results) {
            history.record(BenchmarkRun {
                key: key.clone(),
                at: unix_millis::to_wall(at * 1_000),
                took: Duration::from_millis(5_250),
                result,
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
        history.counts = [0; 5];
        let mut bytes = Vec::new();
        serialize(&histories, &mut serde_json::Serializer::new(&mut bytes)).unwrap();
        let read = deserialize(&mut serde_json::Deserializer::from_slice(&bytes)).unwrap();
        assert_eq!(read, histories);
    }
}
