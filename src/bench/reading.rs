//! Outputs of benchmarks that somebody ran, read in plain words: which numbers are one limit seen several ways.

use std::fmt::{self, Write as _};

use super::iperf;
use super::perftest::{self, BandwidthUnit, from_json, from_text};
use crate::assess::benchmark::{Ceiling, percent};
use crate::model::benchmark::{Failure, Statistic};
use crate::model::units::BytesPerSecond;

/// Values further apart than this are not one limit.
const SPREAD: f64 = 1.15;

/// Share of what a limit lets through from which it is named as the limit.
const AT_LIMIT: f64 = 0.85;

/// No value is above a path by more than this.
const TOLERANCE: f64 = 1.02;

/// Messages smaller than this do not fill a lane, in bytes.
const FILLS: u64 = 65536;

/// How a number was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransferKind {
    /// RDMA, one way.
    Rdma,
    /// RDMA whose connection the connection manager set up.
    ConnectionManager,
    /// RDMA both ways at once: a sum.
    Bidirectional,
    /// TCP.
    Tcp,
}

impl TransferKind {
    /// Its word in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Rdma => "rdma",
            Self::ConnectionManager => "rdma_cm",
            Self::Bidirectional => "rdma_both",
            Self::Tcp => "tcp",
        }
    }
}

impl fmt::Display for TransferKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rdma => "RDMA one way",
            Self::ConnectionManager => "RDMA with the connection manager",
            Self::Bidirectional => "RDMA both ways at once",
            Self::Tcp => "TCP",
        })
    }
}

/// What an output says.
#[derive(Debug, Clone, PartialEq)]
pub enum OutputResult {
    /// A bandwidth.
    Bandwidth {
        /// How it was measured.
        way: TransferKind,
        /// The value; of both ways, their sum.
        value: BytesPerSecond,
    },
    /// A typical latency in seconds.
    Latency(f64),
    /// Data could not be moved.
    Failed(Failure, String),
    /// There is no value, and why.
    Nothing(String),
}

/// An output that was read.
#[derive(Debug, Clone, PartialEq)]
pub struct BenchmarkOutput {
    /// What it says.
    pub result: OutputResult,
    /// Everything that perftest reported; empty where another program spoke.
    pub report: perftest::PerftestReport,
}

impl BenchmarkOutput {
    /// What the output calls its device.
    pub fn device(&self) -> Option<&str> {
        self.report.device.as_deref()
    }

    /// The message size of its bandwidth, in bytes.
    pub fn size(&self) -> Option<u64> {
        self.report.best().and_then(|row| row.size)
    }
}

/// Reads an output: perftest's text or JSON (bandwidths in `unit`), or iperf3's JSON.
pub fn read(text: &str, unit: BandwidthUnit) -> BenchmarkOutput {
    let mut table = from_text(text);
    if let Some(trouble) = &table.trouble {
        return BenchmarkOutput { result: OutputResult::Failed(trouble.failure, trouble.text.clone()), report: table };
    }
    if !table.has_values() {
        let nothing = |why: String| BenchmarkOutput {
            result: OutputResult::Nothing(why),
            report: perftest::PerftestReport::default(),
        };
        if table.impossible {
            return nothing(
                "it has a value that cannot be: negative, no number, or beyond what any lane carries".to_owned(),
            );
        }
        table = match (iperf::from_json(text), from_json(text, unit)) {
            (Ok(report), _) => {
                let value = BytesPerSecond(report.received.0 + report.reverse.map_or(0.0, |reverse| reverse.0));
                let way = if report.reverse.is_some() { TransferKind::Bidirectional } else { TransferKind::Tcp };
                return BenchmarkOutput {
                    result: OutputResult::Bandwidth { way, value },
                    report: perftest::PerftestReport::default(),
                };
            }
            (_, Ok(report)) => report,
            (Err(iperf::IperfError::Program(result)), _) if iperf::is_unreachable(&result) => {
                let result = OutputResult::Failed(Failure::TcpSetup, format!("iperf3: {result}"));
                return BenchmarkOutput { result, report: perftest::PerftestReport::default() };
            }
            (Err(error @ (iperf::IperfError::Program(_) | iperf::IperfError::Impossible)), _) => {
                return nothing(error.to_string());
            }
            (_, Err(perftest::PerftestJsonError::NoResult)) => return nothing(no_result(text, &table)),
            (_, Err(error)) => return nothing(error.to_string()),
        };
    }
    BenchmarkOutput { result: value(&table), report: table }
}

/// Why nothing was found in a text.
fn no_result(text: &str, table: &perftest::PerftestReport) -> String {
    if text.trim().is_empty() {
        return "it is empty".to_owned();
    }
    if let Some(test) = &table.test {
        return format!("{test} was begun, and no result follows");
    }
    if text.contains("[ ID] Interval") {
        return "it looks like the text of iperf3, which has no fixed form: run it with --json".to_owned();
    }
    "it is no output of perftest (text or JSON) and no JSON of iperf3".to_owned()
}

fn value(report: &perftest::PerftestReport) -> OutputResult {
    if let Some(row) = report.best() {
        let way = match (report.is_bidirectional(), report.connection_manager) {
            (true, _) => TransferKind::Bidirectional,
            (false, true) => TransferKind::ConnectionManager,
            (false, false) => TransferKind::Rdma,
        };
        return OutputResult::Bandwidth { way, value: row.average };
    }
    let typical = report.latency.iter().find_map(|row| row.value(Statistic::Typical).or(row.value(Statistic::Average)));
    typical.map_or_else(|| OutputResult::Nothing("it has no value".to_owned()), OutputResult::Latency)
}

/// What keeps a value from being more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bottleneck {
    /// The PCIe path.
    Path,
    /// The port's rate.
    Rate,
    /// The size of its messages.
    Size,
    /// Something else: the lane could carry more.
    Other,
    /// Nothing of this lane, which carries less than that.
    NotThis,
}

impl Bottleneck {
    /// Its word in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Path => "pcie_path",
            Self::Rate => "port_rate",
            Self::Size => "message_size",
            Self::Other => "other",
            Self::NotThis => "not_this_lane",
        }
    }

    /// What stands at a value, with messages of this size in bytes.
    pub fn of(way: TransferKind, value: BytesPerSecond, size: Option<u64>, ceiling: &Ceiling) -> Self {
        let value = per_direction(way, value).0;
        let at = |least: f64, most: BytesPerSecond| value >= least * AT_LIMIT && value <= most.0 * TOLERANCE;
        // A loop within a card does not meet the port's rate.
        let most = ceiling.path.or(ceiling.rate).map_or(f64::INFINITY, |most| most.0 * TOLERANCE);
        match (ceiling.path.filter(|_| ceiling.by_path), ceiling.rate) {
            // Of a path's bytes only the payload is measured.
            (Some(path), _) if at(ceiling.payload.0, path) => Self::Path,
            (_, Some(rate)) if at(rate.0, rate) && value <= most => Self::Rate,
            _ if value > most || ceiling.rate.is_some_and(|rate| value > rate.0) => Self::NotThis,
            _ if size.is_some_and(|size| size < FILLS) => Self::Size,
            _ => Self::Other,
        }
    }

    /// One sentence of it, or two.
    pub fn says(self, ceiling: &Ceiling) -> String {
        let text = |limit: Option<BytesPerSecond>| limit.map(|limit| limit.to_string()).unwrap_or_default();
        match self {
            Self::Path => format!(
                "It is the PCIe path, which carries {}: not SR-IOV, not the connection manager, not TCP, not the \
                 cable. Look at `lanewatch explain`.",
                text(ceiling.path)
            ),
            Self::Rate => format!("It is the port's rate, {}.", text(ceiling.rate)),
            Self::Size => format!("Messages this small do not fill a lane: measure with {FILLS} bytes or more."),
            Self::Other => {
                "It is below what port and PCIe path carry: look at the other end, at NUMA and CPUs.".to_owned()
            }
            Self::NotThis => format!(
                "It is more than this lane carries ({}): it was measured within a card, or on another device.",
                text(Some(ceiling.payload))
            ),
        }
    }
}

/// What each number says of one direction: half of a sum.
fn per_direction(way: TransferKind, value: BytesPerSecond) -> BytesPerSecond {
    BytesPerSecond(if way == TransferKind::Bidirectional { value.0 / 2.0 } else { value.0 })
}

/// One output's value beside what the lane carries.
pub fn beside(way: TransferKind, value: BytesPerSecond, ceiling: Option<&Ceiling>) -> String {
    let sum = if way == TransferKind::Bidirectional {
        format!(", {} each way", per_direction(way, value))
    } else {
        String::new()
    };
    let Some(ceiling) = ceiling else { return format!("{way}: {value}{sum}") };
    let each = per_direction(way, value);
    let mut text = format!("{way}: {value}{sum}");
    // Writing to a string cannot fail.
    if let Some(rate) = ceiling.rate {
        let _ = write!(text, ", {} of the port's {rate}", percent(each, rate));
    }
    if let Some(path) = ceiling.path {
        let _ = write!(text, ", {} of the PCIe path's {path}", percent(each, path));
    }
    text
}

/// What several numbers say together; none for fewer than two.
pub fn together(numbers: &[(TransferKind, BytesPerSecond)], ceiling: Option<&Ceiling>) -> Option<String> {
    let ways = numbers.iter().map(|(way, value)| per_direction(*way, *value).0);
    let (least, most) = ways.fold((f64::INFINITY, 0.0f64), |(least, most), rate| (least.min(rate), most.max(rate)));
    if numbers.len() < 2 || least <= 0.0 {
        return None;
    }
    let (least, most) = (BytesPerSecond(least), BytesPerSecond(most));
    if most.0 / least.0 > SPREAD {
        let slowest = numbers.iter().min_by(|a, b| per_direction(a.0, a.1).0.total_cmp(&per_direction(b.0, b.1).0))?.0;
        return Some(format!(
            "These are not one limit: from {least} to {most} each way. What is slower alone has a cause of its own; look \
             first at {slowest}."
        ));
    }
    let count = match numbers.len() {
        2 => "two",
        3 => "three",
        4 => "four",
        _ => "several",
    };
    let mut text = format!("This is one limit seen {count} ways: {least} to {most} each way.");
    let sum = numbers.iter().any(|(way, _)| *way == TransferKind::Bidirectional);
    if sum {
        text.push_str(" A sum of both directions is not to be held against the rate of one.");
    }
    if let Some(ceiling) = ceiling {
        text.push(' ');
        text.push_str(&Bottleneck::of(TransferKind::Rdma, most, None, ceiling).says(ceiling));
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gbits(value: f64) -> BytesPerSecond {
        BytesPerSecond::from_gbits(value)
    }

    fn narrow() -> Option<Ceiling> {
        Ceiling::new(Some(gbits(200.0)), Some(gbits(63.015)), 256.0 / 280.0)
    }

    fn output(test: &str, manager: &str, average: &str) -> String {
        format!(
            "                    {test} Test\n Dual-port       : OFF\t\tDevice         : mlx5_5\n rdma_cm QPs\t : {manager}\n \
             #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]\n 1048576    5000             \
             {average}            {average}\t\t     0.007\n"
        )
    }

    #[test]
    fn four_numbers_are_one_limit() {
        let tcp = r#"{"end":{"sum_received":{"bits_per_second":5.82e10}}}"#.to_owned();
        let outputs = [
            output("RDMA_Write BW", "OFF", "7100.00"),
            output("RDMA_Write BW", "ON", "7010.00"),
            output("RDMA_Write Bidirectional BW", "OFF", "13900.00"),
            tcp,
        ];
        let numbers: Vec<(TransferKind, BytesPerSecond)> = outputs
            .iter()
            .filter_map(|text| match read(text, BandwidthUnit::MebibytesPerSecond).result {
                OutputResult::Bandwidth { way, value } => Some((way, value)),
                _ => None,
            })
            .collect();
        let ways: Vec<TransferKind> = numbers.iter().map(|(way, _)| *way).collect();
        assert_eq!(
            ways,
            [TransferKind::Rdma, TransferKind::ConnectionManager, TransferKind::Bidirectional, TransferKind::Tcp]
        );
        let text = together(&numbers, narrow().as_ref()).unwrap_or_default();
        assert!(text.starts_with("This is one limit seen four ways: 58.2 Gb/s to 59.6 Gb/s each way."), "{text}");
        assert!(text.contains("the PCIe path, which carries 63.0 Gb/s: not SR-IOV"), "{text}");
        let both = beside(TransferKind::Bidirectional, numbers[2].1, narrow().as_ref());
        assert!(both.contains("58.3 Gb/s each way, 29 % of the port's 200 Gb/s, 93 % of the PCIe path's"), "{both}");
    }

    #[test]
    fn numbers_apart_are_not() {
        let text =
            together(&[(TransferKind::Rdma, gbits(190.0)), (TransferKind::Tcp, gbits(40.0))], None).unwrap_or_default();
        assert!(text.contains("not one limit") && text.ends_with("look first at TCP."), "{text}");
        assert_eq!(together(&[(TransferKind::Rdma, gbits(190.0))], None), None);
        let below = together(&[(TransferKind::Rdma, gbits(20.0)), (TransferKind::Tcp, gbits(20.0))], narrow().as_ref());
        assert!(below.is_some_and(|text| text.contains("below what port and PCIe path carry")));
    }

    #[test]
    fn one_number_has_a_limit_too() {
        let of = |value, size, ceiling: &Ceiling| Bottleneck::of(TransferKind::Rdma, gbits(value), size, ceiling);
        let (narrow, wide) = (narrow().unwrap(), Ceiling::new(Some(gbits(200.0)), Some(gbits(252.06)), 0.9).unwrap());
        let port_alone = Ceiling::new(Some(gbits(100.0)), None, 0.9).unwrap();
        for (value, size, ceiling, limit) in [
            (57.1, Some(131_072), &narrow, Bottleneck::Path),
            (51.9, Some(131_072), &narrow, Bottleneck::Path),
            (44.0, Some(131_072), &narrow, Bottleneck::Other),
            (44.0, Some(2048), &narrow, Bottleneck::Size),
            (191.0, None, &narrow, Bottleneck::NotThis),
            (191.0, Some(1 << 20), &wide, Bottleneck::Rate),
            (57.1, Some(1 << 20), &wide, Bottleneck::Other),
            (221.0, Some(1 << 20), &wide, Bottleneck::NotThis),
            (97.0, Some(1 << 20), &port_alone, Bottleneck::Rate),
            (140.0, Some(1 << 20), &port_alone, Bottleneck::NotThis),
        ] {
            assert_eq!(of(value, size, ceiling), limit, "{value} {size:?} {ceiling:?}");
        }
        assert_eq!(Bottleneck::of(TransferKind::Bidirectional, gbits(115.0), None, &narrow), Bottleneck::Path);
        assert!(Bottleneck::Path.says(&narrow).starts_with("It is the PCIe path, which carries 63.0 Gb/s"));
        assert!(Bottleneck::NotThis.says(&wide).contains("more than this lane carries (200 Gb/s)"));
    }

    #[test]
    fn what_is_no_number() {
        let read = |text: &str| read(text, BandwidthUnit::GigabitsPerSecond).result;
        let failed = read("Couldn't connect to 198.51.100.7:18599\n");
        assert!(matches!(failed, OutputResult::Failed(Failure::TcpSetup, _)));
        let iperf = |result: &str| read(&format!("{{\"error\": \"{result}\"}}"));
        assert!(matches!(
            iperf("unable to connect to server: No route to host"),
            OutputResult::Failed(Failure::TcpSetup, _)
        ));
        assert!(matches!(iperf("the server is busy"), OutputResult::Nothing(text) if text.contains("iperf3 says")));
        for (text, part) in [
            ("", "it is empty"),
            (" \n", "it is empty"),
            ("hello", "it is no output of perftest (text or JSON) and no JSON of iperf3"),
            ("[ ID] Interval           Transfer     Bitrate\n", "run it with --json"),
            ("                    RDMA_Write BW Test\n Device : mlx5_3\n", "RDMA_Write BW was begun, and no result"),
            ("{\"end\":{\"sum_received\":{\"bits_per_second\":1e30}}}", "cannot be"),
            ("{\"results\": {\"BW_average\": 1e30}}", "cannot be"),
            (" #bytes #iterations BW peak[Gb/sec] BW average[Gb/sec] MsgRate[Mpps]\n 8 9 1e30 1e30 1\n", "cannot be"),
        ] {
            assert!(matches!(read(text), OutputResult::Nothing(why) if why.contains(part)), "{text}");
        }
        let latency = read("{\nresults: {\nMsgSize: 2,\nt_typical: 2.00,\nt_avg: 2.5,\n},\n}\n");
        assert!(matches!(latency, OutputResult::Latency(value) if (value - 2e-6).abs() < 1e-12));
    }
}
