//! What perftest (`ib_write_bw`, `ib_write_lat`, `ib_read_lat`, …) says, in text and in every dialect of its JSON.

mod json;
mod status;
mod text;
mod trouble;

#[cfg(test)]
mod tests;

pub use json::{PerftestJsonError, from_json};
pub use status::WorkCompletion;
pub use text::from_text;
pub use trouble::PerftestFailure;

use std::ops::RangeInclusive;

use crate::model::benchmark::Statistic;
use crate::model::units::BytesPerSecond;

/// More than any port or slot that is made carries, both ways together: 10 Tb/s.
const MOST: BytesPerSecond = BytesPerSecond(1.25e12);

/// Times of a message that can be, in microseconds: from a nanosecond to an hour.
const TIMES: RangeInclusive<f64> = 1e-3..=3.6e9;

/// Whether there is a lane that could carry so much.
pub fn can_be(rate: BytesPerSecond) -> bool {
    rate.0 > 0.0 && rate.0 <= MOST.0
}

/// What a column of bandwidth is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BandwidthUnit {
    /// 2^20 bytes a second; older releases call it MB.
    MebibytesPerSecond,
    /// 10^9 bits a second.
    GigabitsPerSecond,
}

impl BandwidthUnit {
    /// The unit of a column's brackets: `Gb/sec`, `MiB/sec`, `MB/sec`.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "Gb/sec" => Some(Self::GigabitsPerSecond),
            "MiB/sec" | "MB/sec" => Some(Self::MebibytesPerSecond),
            _ => None,
        }
    }

    /// A value in this unit.
    pub fn rate(self, value: f64) -> BytesPerSecond {
        match self {
            Self::MebibytesPerSecond => BytesPerSecond(value * 1_048_576.0),
            Self::GigabitsPerSecond => BytesPerSecond::from_gbits(value),
        }
    }
}

/// Bandwidth with one message size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BandwidthRow {
    /// Message size in bytes.
    pub size: Option<u64>,
    /// Messages.
    pub iterations: Option<u64>,
    /// The peak; none where it was not measured (a timed run says 0.00).
    pub peak: Option<BytesPerSecond>,
    /// The average; of a bidirectional run, the sum of both directions.
    pub average: BytesPerSecond,
    /// Messages a second.
    pub messages: Option<f64>,
    /// CPU utilisation in percent.
    pub cpu: Option<f64>,
}

/// Latency with one message size, in seconds.
#[derive(Debug, Clone, PartialEq)]
pub struct LatencyRow {
    /// Message size in bytes.
    pub size: Option<u64>,
    /// Messages.
    pub iterations: Option<u64>,
    /// Times, in the order of the report.
    pub values: Vec<(Statistic, f64)>,
}

impl LatencyRow {
    /// One of the times, in seconds.
    pub fn value(&self, statistic: Statistic) -> Option<f64> {
        self.values.iter().find(|(of, _)| *of == statistic).map(|(_, value)| *value)
    }
}

/// What a program said.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PerftestReport {
    /// The test: `RDMA_Write BW`.
    pub test: Option<String>,
    /// The device.
    pub device: Option<String>,
    /// `IB` or `Ethernet`.
    pub link_type: Option<String>,
    /// `IB` or `IW`.
    pub transport: Option<String>,
    /// The GID index in use.
    pub gid_index: Option<u32>,
    /// Whether an end had a GID of zeros.
    pub zero_gid: bool,
    /// Whether the connection manager set the queue pairs up (`-R`).
    pub connection_manager: bool,
    /// The unit of the table.
    pub unit: Option<BandwidthUnit>,
    /// Rows of bandwidth.
    pub bandwidth: Vec<BandwidthRow>,
    /// Rows of latency.
    pub latency: Vec<LatencyRow>,
    /// Whether a value was left out because it cannot be: negative, no number, or beyond physics.
    pub impossible: bool,
    /// What went wrong.
    pub trouble: Option<PerftestFailure>,
    /// Lines that are for information.
    pub notes: Vec<String>,
}

impl PerftestReport {
    /// The row with the best average.
    pub fn best(&self) -> Option<&BandwidthRow> {
        self.bandwidth.iter().max_by(|a, b| a.average.0.total_cmp(&b.average.0))
    }

    /// Whether its bandwidths are sums of both directions (`-b`).
    pub fn is_bidirectional(&self) -> bool {
        self.test.as_deref().is_some_and(|test| test.contains("Bidirectional"))
    }

    /// Whether it has a value.
    pub fn has_values(&self) -> bool {
        !self.bandwidth.is_empty() || !self.latency.is_empty()
    }

    /// Takes a row of bandwidth, unless there is one of its size: both ends of a loop may speak into one stream.
    fn add_bandwidth(&mut self, row: BandwidthRow) {
        let row = BandwidthRow {
            peak: row.peak.filter(|peak| can_be(*peak)),
            messages: row.messages.filter(|messages| (0.0..=MOST.0).contains(messages)),
            cpu: row.cpu.filter(|cpu| cpu.is_finite() && *cpu >= 0.0),
            ..row
        };
        if !can_be(row.average) {
            self.impossible = true;
        } else if !self.bandwidth.iter().any(|known| known.size == row.size) {
            self.bandwidth.push(row);
        }
    }

    /// Takes a row of latency in microseconds, unless there is one of its size.
    fn add_latency(&mut self, size: Option<u64>, iterations: Option<u64>, micros: &[(Statistic, f64)]) {
        if micros.is_empty() || micros.iter().any(|(_, value)| !TIMES.contains(value)) {
            self.impossible = true;
        } else if !self.latency.iter().any(|known| known.size == size) {
            let values = micros.iter().map(|(statistic, value)| (*statistic, value * 1e-6)).collect();
            self.latency.push(LatencyRow { size, iterations, values });
        }
    }
}
