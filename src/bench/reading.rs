//! Output of benchmarks that somebody else ran: what was measured, what limits it, and which results share one limit.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};

use super::iperf::{self, IperfError, IperfReport};
use super::nccl::{self, NcclError, NcclReport};
use super::perftest::{BandwidthRow, BandwidthUnit, PerftestJsonError, PerftestReport, from_json, from_text};
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

/// How a bandwidth was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TransferKind {
    /// RDMA in one direction.
    Rdma,
    /// RDMA whose connection the connection manager set up.
    ConnectionManager,
    /// RDMA in both directions at once: a sum.
    Bidirectional,
    /// TCP.
    Tcp,
    /// TCP in both directions at once: a sum.
    TcpBidirectional,
    /// TCP between two addresses of one host, over its loopback interface.
    TcpLoopback,
    /// A collective operation of several GPUs.
    Collective,
}

impl TransferKind {
    /// Its word in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Rdma => "rdma",
            Self::ConnectionManager => "rdma_cm",
            Self::Bidirectional => "rdma_both",
            Self::Tcp => "tcp",
            Self::TcpBidirectional => "tcp_both",
            Self::TcpLoopback => "tcp_loopback",
            Self::Collective => "nccl",
        }
    }

    /// How many directions the value adds up.
    const fn directions(self) -> f64 {
        if self.is_sum() { 2.0 } else { 1.0 }
    }

    const fn is_sum(self) -> bool {
        matches!(self, Self::Bidirectional | Self::TcpBidirectional)
    }

    /// Why the value cannot be compared with one port and its PCIe path; `None` if it can.
    pub const fn not_comparable(self) -> Option<&'static str> {
        match self {
            Self::TcpLoopback => {
                Some("both ends are on one host, so this measured the loopback interface, not the PCIe path")
            }
            Self::Collective => Some("it uses several links at once, so it is not compared with one port"),
            _ => None,
        }
    }
}

impl fmt::Display for TransferKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rdma => "RDMA, one direction",
            Self::ConnectionManager => "RDMA with the connection manager",
            Self::Bidirectional => "RDMA, both directions",
            Self::Tcp => "TCP",
            Self::TcpBidirectional => "TCP, both directions",
            Self::TcpLoopback => "TCP over loopback",
            Self::Collective => "NCCL bus bandwidth",
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
    /// What perftest reported; of nccl-tests, the test and its table by size; empty for other programs.
    pub report: PerftestReport,
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

/// Reads an output: perftest's text or JSON (bandwidths in `unit`, where it does not say), iperf3's text or JSON, or a table of nccl-tests.
pub fn read(text: &str, unit: BandwidthUnit) -> BenchmarkOutput {
    let table = from_text(text);
    if let Some(trouble) = &table.trouble {
        return BenchmarkOutput { result: OutputResult::Failed(trouble.failure, trouble.text.clone()), report: table };
    }
    if table.has_values() {
        return BenchmarkOutput { result: value(&table), report: table };
    }
    let only = |result: OutputResult| BenchmarkOutput { result, report: PerftestReport::default() };
    if table.impossible {
        return only(OutputResult::Nothing(
            "a value is out of range: negative, not a number or above 10 Tb/s".to_owned(),
        ));
    }
    let iperf = match iperf::from_json(text) {
        Err(IperfError::NotAReport) => iperf::from_text(text),
        other => other,
    };
    match iperf {
        Ok(report) => return only(tcp(&report)),
        Err(IperfError::Program(error)) if iperf::is_unreachable(&error) => {
            return only(OutputResult::Failed(Failure::TcpSetup, format!("iperf3: {error}")));
        }
        Err(IperfError::NotAReport) => {}
        Err(error) => return only(OutputResult::Nothing(error.to_string())),
    }
    match nccl::from_text(text) {
        Ok(report) => return collective(&report),
        Err(NcclError::NotAReport) => {}
        Err(error) => return only(OutputResult::Nothing(error.to_string())),
    }
    match document(text, unit) {
        Ok(report) => BenchmarkOutput { result: value(&report), report },
        Err(PerftestJsonError::NoResult) => only(OutputResult::Nothing(no_result(text, &table))),
        Err(error) => only(OutputResult::Nothing(error.to_string())),
    }
}

/// A document of perftest's. It never names its unit, which an option of the run chose: messages a second and their size
/// tell it, else it is `unit`.
fn document(text: &str, unit: BandwidthUnit) -> Result<PerftestReport, PerftestJsonError> {
    let report = from_json(text, unit)?;
    if contradicts_itself(&report)
        && let Ok(other) = from_json(text, unit.other())
        && !contradicts_itself(&other)
    {
        return Ok(other);
    }
    Ok(report)
}

/// Whether messages a second and their size give a bandwidth that is far from the one reported.
fn contradicts_itself(report: &PerftestReport) -> bool {
    report.bandwidth.first().is_some_and(|row| {
        let Some((size, messages)) = row.size.zip(row.messages).filter(|(_, messages)| *messages > 0.0) else {
            return false;
        };
        #[expect(clippy::cast_precision_loss, reason = "sizes of messages are far below 2^52")]
        let moved = size as f64 * messages;
        (row.average.0 / moved - 1.0).abs() > 0.5
    })
}

fn tcp(report: &IperfReport) -> OutputResult {
    let way = match (report.is_loopback(), report.reverse) {
        (true, _) => TransferKind::TcpLoopback,
        (false, Some(_)) => TransferKind::TcpBidirectional,
        (false, None) => TransferKind::Tcp,
    };
    let value = BytesPerSecond(report.received.0 + report.reverse.map_or(0.0, |reverse| reverse.0));
    OutputResult::Bandwidth { way, value }
}

/// The table's best size. Data that arrived wrong has no bandwidth.
fn collective(report: &NcclReport) -> BenchmarkOutput {
    let result = match report.best() {
        _ if report.wrong_values > 0 => OutputResult::Nothing(format!(
            "nccl-tests found {} wrong values: the data was corrupted",
            report.wrong_values
        )),
        Some(best) => OutputResult::Bandwidth { way: TransferKind::Collective, value: best.bandwidth },
        None => OutputResult::Nothing("it has no value".to_owned()),
    };
    let rows = report.sizes.iter().map(|size| BandwidthRow {
        size: Some(size.size),
        iterations: None,
        peak: None,
        average: size.bandwidth,
        messages: None,
        cpu: None,
    });
    let report = PerftestReport { test: report.test.clone(), bandwidth: rows.collect(), ..PerftestReport::default() };
    BenchmarkOutput { result, report }
}

/// Why nothing was found in a text.
fn no_result(text: &str, table: &PerftestReport) -> String {
    if text.trim().is_empty() {
        return "the file is empty".to_owned();
    }
    match &table.test {
        Some(name) => format!("{name} started but printed no result"),
        None => "not the output of perftest, iperf3 or nccl-tests".to_owned(),
    }
}

fn value(report: &PerftestReport) -> OutputResult {
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

    /// What it means, in one sentence or two.
    pub fn says(self, ceiling: &Ceiling) -> String {
        let text = |limit: Option<BytesPerSecond>| limit.map(|limit| limit.to_string()).unwrap_or_default();
        match self {
            Self::Path => format!(
                "The limit is the PCIe path ({}), not SR-IOV, the connection manager, TCP or the cable. See `lanewatch \
                 explain`.",
                text(ceiling.path)
            ),
            Self::Rate => format!("The limit is the port's rate, {}.", text(ceiling.rate)),
            Self::Size => format!("Messages this small cannot fill the path: use at least {FILLS} bytes."),
            Self::Other => "Below what the port and its PCIe path carry: check the other end, NUMA placement and CPU \
                            load."
                .to_owned(),
            Self::NotThis => format!(
                "More than this path carries ({}): it was measured within a card or on another device.",
                text(Some(ceiling.payload))
            ),
        }
    }
}

/// The bandwidth of one direction: half of a sum.
fn per_direction(way: TransferKind, value: BytesPerSecond) -> BytesPerSecond {
    BytesPerSecond(value.0 / way.directions())
}

/// One output's value beside what the port and its path carry.
pub fn beside(way: TransferKind, value: BytesPerSecond, ceiling: Option<&Ceiling>) -> String {
    let each = per_direction(way, value);
    let mut text = format!("{way}: {value}");
    // Writing to a string cannot fail.
    if way.is_sum() {
        let _ = write!(text, ", {each} per direction");
    }
    let Some(ceiling) = ceiling.filter(|_| way.not_comparable().is_none()) else { return text };
    if let Some(rate) = ceiling.rate {
        let _ = write!(text, ", {} of the port's {rate}", percent(each, rate));
    }
    if let Some(path) = ceiling.path {
        let _ = write!(text, ", {} of the PCIe path's {path}", percent(each, path));
    }
    text
}

/// What several results say together. `None` for fewer than two that can be compared.
pub fn together(numbers: &[(TransferKind, BytesPerSecond)], ceiling: Option<&Ceiling>) -> Option<String> {
    let rates: Vec<(TransferKind, BytesPerSecond)> = numbers
        .iter()
        .filter(|(way, _)| way.not_comparable().is_none())
        .map(|(way, value)| (*way, per_direction(*way, *value)))
        .collect();
    let (slowest, least) = *rates.iter().min_by(|a, b| a.1.0.total_cmp(&b.1.0))?;
    let (_, most) = *rates.iter().max_by(|a, b| a.1.0.total_cmp(&b.1.0))?;
    if rates.len() < 2 || least.0 <= 0.0 {
        return None;
    }
    if most.0 / least.0 > SPREAD {
        return Some(format!(
            "The results do not share one limit: {least} to {most} per direction. Start with the slowest, {slowest}."
        ));
    }
    let kinds: BTreeSet<TransferKind> = rates.iter().map(|(way, _)| *way).collect();
    // Runs of one kind repeat a measurement; only different kinds show that the limit is common to all.
    let mut text = if kinds.len() < 2 {
        format!("{} runs agree: {least} to {most} per direction.", rates.len())
    } else {
        let all = if rates.len() == 2 { "Both".to_owned() } else { format!("All {}", rates.len()) };
        format!("{all} results share one limit: {least} to {most} per direction.")
    };
    if rates.iter().any(|(way, _)| way.is_sum()) {
        text.push_str(" Halve a sum of both directions before you compare it with a rate.");
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
        assert!(text.starts_with("All 4 results share one limit: 58.2 Gb/s to 59.6 Gb/s per direction."), "{text}");
        assert!(text.contains("The limit is the PCIe path (63.0 Gb/s), not SR-IOV"), "{text}");
        let both = beside(TransferKind::Bidirectional, numbers[2].1, narrow().as_ref());
        assert!(
            both.contains("58.3 Gb/s per direction, 29 % of the port's 200 Gb/s, 93 % of the PCIe path's"),
            "{both}"
        );
    }

    #[test]
    fn numbers_apart_are_not() {
        let text =
            together(&[(TransferKind::Rdma, gbits(190.0)), (TransferKind::Tcp, gbits(40.0))], None).unwrap_or_default();
        assert!(text.contains("do not share one limit") && text.ends_with("Start with the slowest, TCP."), "{text}");
        assert_eq!(together(&[(TransferKind::Rdma, gbits(190.0))], None), None);
        let below = together(&[(TransferKind::Rdma, gbits(20.0)), (TransferKind::Tcp, gbits(20.0))], narrow().as_ref());
        assert!(below.is_some_and(|text| text.contains("Below what the port and its PCIe path carry")));
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
        assert!(Bottleneck::Path.says(&narrow).starts_with("The limit is the PCIe path (63.0 Gb/s)"));
        assert!(Bottleneck::NotThis.says(&wide).contains("More than this path carries (200 Gb/s)"));
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
        assert!(
            matches!(iperf("the server is busy"), OutputResult::Nothing(text) if text == "iperf3: the server is busy")
        );
        for (text, part) in [
            ("", "the file is empty"),
            (" \n", "the file is empty"),
            ("hello", "not the output of perftest, iperf3 or nccl-tests"),
            ("[ ID] Interval           Transfer     Bitrate\n", "did not finish"),
            (
                "                    RDMA_Write BW Test\n Device : mlx5_3\n",
                "RDMA_Write BW started but printed no result",
            ),
            ("{\"end\":{\"sum_received\":{\"bits_per_second\":1e30}}}", "out of range"),
            ("{\"results\": {\"BW_average\": 1e30}}", "impossible"),
            (
                " #bytes #iterations BW peak[Gb/sec] BW average[Gb/sec] MsgRate[Mpps]\n 8 9 1e30 1e30 1\n",
                "out of range",
            ),
        ] {
            assert!(matches!(read(text), OutputResult::Nothing(why) if why.contains(part)), "{text}");
        }
        let latency = read("{\nresults: {\nMsgSize: 2,\nt_typical: 2.00,\nt_avg: 2.5,\n},\n}\n");
        assert!(matches!(latency, OutputResult::Latency(value) if (value - 2e-6).abs() < 1e-12));
    }

    /// An iperf3 run between two addresses, as text.
    fn iperf_text(local: &str, remote: &str) -> String {
        format!(
            "Connecting to host {remote}, port 5201\n[  5] local {local} port 40112 connected to {remote} port 5201\n\
             [ ID] Interval           Transfer     Bitrate         Retr\n\
             [  5]   0.00-10.00  sec  67.5 GBytes  58.0 Gbits/sec    0             sender\n\
             [  5]   0.00-10.00  sec  67.5 GBytes  58.0 Gbits/sec                  receiver\n"
        )
    }

    fn bandwidth(text: &str) -> (TransferKind, BytesPerSecond) {
        match read(text, BandwidthUnit::MebibytesPerSecond).result {
            OutputResult::Bandwidth { way, value } => (way, value),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn tcp_within_one_host_is_not_held_against_the_path() {
        let (way, value) = bandwidth(&iperf_text("192.0.2.6", "192.0.2.6"));
        assert_eq!(way, TransferKind::TcpLoopback);
        assert!(way.not_comparable().is_some_and(|why| why.contains("loopback interface")));
        assert_eq!(beside(way, value, narrow().as_ref()), "TCP over loopback: 58 Gb/s");
        assert_eq!(together(&[(way, value), (TransferKind::Rdma, gbits(58.0))], narrow().as_ref()), None);
        assert_eq!(bandwidth(&iperf_text("192.0.2.6", "192.0.2.7")).0, TransferKind::Tcp);
    }

    #[test]
    fn one_result_or_one_kind_of_result_is_not_several_views_of_a_limit() {
        assert_eq!(together(&[(TransferKind::Rdma, gbits(58.0))], narrow().as_ref()), None);
        let twice = [(TransferKind::Rdma, gbits(58.0)), (TransferKind::Rdma, gbits(58.4))];
        let text = together(&twice, narrow().as_ref()).unwrap_or_default();
        assert!(text.starts_with("2 runs agree: 58 Gb/s to 58.4 Gb/s per direction. The limit is"), "{text}");
    }

    #[test]
    fn tests_of_sends_and_reads_are_bandwidths() {
        for test in ["Send BW", "RDMA_Read BW"] {
            let (way, value) = bandwidth(&output(test, "OFF", "7100.00"));
            assert_eq!((way, value.0), (TransferKind::Rdma, 7100.0 * 1_048_576.0), "{test}");
        }
        assert_eq!(bandwidth(&output("Send Bidirectional BW", "OFF", "13900.00")).0, TransferKind::Bidirectional);
    }

    #[test]
    fn a_collective_has_a_value_and_no_port() {
        let text = "# Collective test starting: all_reduce_perf\n\
            #  size  count  type  redop  root  time  algbw  busbw  #wrong  time  algbw  busbw  #wrong\n\
            1073741824  268435456  float  sum  -1  4027.3  266.61  466.57  0  4029.1  266.50  466.37  0\n";
        let (way, value) = bandwidth(text);
        assert_eq!((way, value.0), (TransferKind::Collective, 466.57e9));
        let output = read(text, BandwidthUnit::MebibytesPerSecond);
        assert_eq!((output.size(), output.report.test.as_deref()), (Some(1 << 30), Some("all_reduce_perf")));
        let wrong = text.replace("466.57  0", "466.57  3");
        assert!(
            matches!(read(&wrong, BandwidthUnit::MebibytesPerSecond).result, OutputResult::Nothing(why) if why.contains("3 wrong"))
        );
    }
}
