//! perftest's JSON, and what it took for JSON in earlier releases: keys and words without quotes, commas before a
//! closing brace, a comma after a lone value. It carries no unit: that is the caller's, who asked for one.

use super::{BandwidthRow, BandwidthUnit, PerftestReport};
use crate::model::benchmark::Statistic;

/// Longest document that is looked at, in bytes.
const LONGEST: usize = 1 << 20;

/// Why a document could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PerftestJsonError {
    /// It has none of perftest's results.
    #[error("there is no perftest result")]
    NoResult,
    /// A result is no number.
    #[error("{key} is {value:?}, not a number")]
    NotANumber {
        /// Which.
        key: String,
        /// What it is instead.
        value: String,
    },
    /// A result cannot be: it is negative, zero, or beyond physics.
    #[error("{key} is {value}, which is impossible")]
    Impossible {
        /// Which.
        key: String,
        /// What it is.
        value: String,
    },
    /// It is longer than any result.
    #[error("longer than {LONGEST} bytes")]
    TooLong,
}

const TIMES: [(&str, Statistic); 6] = [
    ("t_min", Statistic::Minimum),
    ("t_max", Statistic::Maximum),
    ("t_typical", Statistic::Typical),
    ("t_avg", Statistic::Average),
    ("percentile_99", Statistic::P99),
    ("percentile_99.9", Statistic::P999),
];

/// Reads a document whose bandwidths are in this unit.
///
/// # Errors
/// See [`PerftestJsonError`]: all of a result or nothing.
pub fn from_json(text: &str, unit: BandwidthUnit) -> Result<PerftestReport, PerftestJsonError> {
    if text.len() > LONGEST {
        return Err(PerftestJsonError::TooLong);
    }
    // A document that is cut off may end within a number.
    if !text.trim_end().ends_with('}') {
        return Err(PerftestJsonError::NoResult);
    }
    let pairs = pairs(text);
    // Where a result is written more than once, the last is the other end's.
    let word = |key: &str| pairs.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str());
    let value = |key: &str| {
        let Some(text) = word(key) else { return Ok(None) };
        let not = || PerftestJsonError::NotANumber { key: key.to_owned(), value: text.chars().take(32).collect() };
        text.parse::<f64>().ok().filter(|value| value.is_finite()).ok_or_else(not).map(Some)
    };
    let size = value("MsgSize")?.and_then(whole);
    let iterations = value("n_iterations")?.and_then(whole);
    let mut report = PerftestReport {
        test: word("test").map(|test| test.trim_end_matches("_Test").to_owned()),
        device: word("Device").map(str::to_owned),
        link_type: word("Link_type").map(str::to_owned),
        transport: word("Transport_type").map(str::to_owned),
        connection_manager: word("rdma_cm_QPs") == Some("ON"),
        gid_index: word("GID_index").and_then(|index| index.parse().ok()),
        ..PerftestReport::default()
    };
    let (name, average) = match value("BW_average")? {
        Some(average) => ("BW_average", Some(average)),
        None => ("bw_avg", value("bw_avg")?),
    };
    if let Some(average) = average {
        report.unit = Some(unit);
        let peak = value("BW_peak")?.filter(|peak| *peak > 0.0).map(|peak| unit.rate(peak));
        let messages = value("MsgRate")?.map(|millions| millions * 1e6);
        let (average, cpu) = (unit.rate(average), value("CPU_util")?);
        report.add_bandwidth(BandwidthRow { size, iterations, peak, average, messages, cpu });
    }
    let mut times = Vec::new();
    for (key, statistic) in TIMES {
        if let Some(value) = value(key)? {
            times.push((statistic, value));
        }
    }
    if !times.is_empty() {
        report.add_latency(size, iterations, &times);
    }
    if report.impossible {
        let time = TIMES.iter().map(|(key, _)| *key).find(|key| word(key).is_some_and(|word| !is_time(word)));
        let key = time.filter(|_| report.bandwidth.is_empty() == average.is_none()).unwrap_or(name);
        return Err(PerftestJsonError::Impossible {
            key: key.to_owned(),
            value: word(key).unwrap_or_default().to_owned(),
        });
    }
    if report.has_values() { Ok(report) } else { Err(PerftestJsonError::NoResult) }
}

fn is_time(word: &str) -> bool {
    word.parse().is_ok_and(|micros: f64| super::TIMES.contains(&micros))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole and within bounds")]
fn whole(value: f64) -> Option<u64> {
    (value.fract() == 0.0 && (0.0..9e15).contains(&value)).then_some(value as u64)
}

/// `key: value` wherever it stands, with or without quotes.
fn pairs(text: &str) -> Vec<(String, String)> {
    let mut pieces = vec![String::new()];
    let mut quoted = false;
    for char in text.chars() {
        match char {
            '"' => {
                quoted = !quoted;
                if let Some(piece) = pieces.last_mut() {
                    piece.push(char);
                }
            }
            // Old releases leave quotes open nowhere, but a line never goes on inside of one.
            '\n' | '\r' => {
                quoted = false;
                pieces.push(String::new());
            }
            '{' | '}' | ',' if !quoted => pieces.push(String::new()),
            _ => {
                if let Some(piece) = pieces.last_mut() {
                    piece.push(char);
                }
            }
        }
    }
    let bare = |text: &str| text.trim().trim_matches('"').trim().to_owned();
    let pair = |piece: &String| {
        let (key, value) = piece.split_once(':')?;
        let (key, value) = (bare(key), bare(value));
        (!key.is_empty() && !value.is_empty()).then_some((key, value))
    };
    pieces.iter().filter_map(pair).collect()
}
