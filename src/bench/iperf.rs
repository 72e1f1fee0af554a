//! TCP between two hosts (iperf3), for comparison, and iperf3's output: JSON, which may hold `error` although the program
//! exits with 0, and plain text. Between two addresses of one host it would measure nothing.

use std::io;
use std::net::{IpAddr, ToSocketAddrs as _};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::perftest::can_be;
use super::process::{Child, Invocation, ProcessExit, RunDirectory, Toolbox};
use super::rdma::{RemoteServer, Timeouts};
use crate::host::netlink::routing::lookup;
use crate::host::netlink::socket::NetlinkConnection;
use crate::model::benchmark::{Direction, Doubt, Failure, Measurements};
use crate::model::irq::CpuSet;
use crate::model::units::BytesPerSecond;

/// Longest document that is looked at, in bytes.
const LONGEST: usize = 4 << 20;

/// The result of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct IperfReport {
    /// The two ends of the first stream, local and remote; `None` if the output does not name them.
    pub ends: Option<(String, String)>,
    /// What arrived, all streams together.
    pub received: BytesPerSecond,
    /// What arrived in the other direction at the same time (`--bidir`).
    pub reverse: Option<BytesPerSecond>,
    /// Retransmitted segments; `None` if the sender's system does not count them.
    pub retransmits: Option<u64>,
    /// Duration of the run in seconds; `None` if the output does not say.
    pub seconds: Option<f64>,
}

impl IperfReport {
    /// Whether both ends are one address, or one of them is a loopback address: then nothing left the host.
    pub fn is_loopback(&self) -> bool {
        let Some((local, remote)) = &self.ends else { return false };
        let is_loopback = |host: &str| {
            let address = host.parse::<IpAddr>().map(|address| address.to_canonical());
            host == "localhost" || address.is_ok_and(|address| address.is_loopback())
        };
        local == remote || is_loopback(local) || is_loopback(remote)
    }
}

/// Why there is no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IperfError {
    /// The program reported an error.
    #[error("iperf3: {0}")]
    Program(String),
    /// It is not iperf3's.
    #[error("not an iperf3 report")]
    NotAReport,
    /// It ends before the summary.
    #[error("the iperf3 run did not finish: there is no summary of sender or receiver")]
    Unfinished,
    /// A value is out of range.
    #[error("iperf3's bandwidth is out of range: negative, zero or above 10 Tb/s")]
    Impossible,
}

/// Reads what `iperf3 --json` printed; lines before it are passed over.
///
/// # Errors
/// See [`IperfError`].
pub fn from_json(text: &str) -> Result<IperfReport, IperfError> {
    let from = text.find('{').filter(|_| text.len() <= LONGEST).ok_or(IperfError::NotAReport)?;
    let mut documents = serde_json::Deserializer::from_str(text.get(from..).unwrap_or_default()).into_iter::<Value>();
    let document = documents.next().and_then(Result::ok).ok_or(IperfError::NotAReport)?;
    if let Some(error) = document.get("error").and_then(Value::as_str) {
        return Err(IperfError::Program(error.chars().take(200).collect()));
    }
    let end = document.get("end").ok_or(IperfError::NotAReport)?;
    let rate = |name: &str| end.get(name)?.get("bits_per_second")?.as_f64();
    let received = rate("sum_received").or_else(|| rate("sum")).ok_or(IperfError::NotAReport)?;
    let reverse = rate("sum_received_bidir_reverse");
    if [Some(received), reverse].into_iter().flatten().any(|rate| !can_be(BytesPerSecond(rate / 8.0))) {
        return Err(IperfError::Impossible);
    }
    let sum = end.get("sum_sent").or_else(|| end.get("sum"));
    let first = document.get("start").and_then(|start| start.get("connected")?.get(0));
    let host = |name: &str| first.and_then(|stream| stream.get(name)?.as_str()).map(without_scope);
    Ok(IperfReport {
        ends: host("local_host").zip(host("remote_host")),
        received: BytesPerSecond(received / 8.0),
        reverse: reverse.map(|rate| BytesPerSecond(rate / 8.0)),
        retransmits: sum.and_then(|sum| sum.get("retransmits")?.as_u64()),
        seconds: sum.and_then(|sum| sum.get("seconds")?.as_f64()),
    })
}

/// An address without its scope: `fe80::1%eth0` is `fe80::1`.
fn without_scope(host: &str) -> String {
    host.split('%').next().unwrap_or_default().to_owned()
}

/// What one direction's summary lines add up to.
#[derive(Debug, Clone, Copy, Default)]
struct Summary {
    /// Sum of the streams' own lines.
    streams: Option<f64>,
    /// The line `[SUM]`, which only runs with several streams have.
    sum: Option<f64>,
}

impl Summary {
    fn add(&mut self, is_sum: bool, rate: f64) {
        if is_sum {
            self.sum = Some(rate);
        } else {
            self.streams = Some(self.streams.unwrap_or(0.0) + rate);
        }
    }

    fn rate(self) -> Option<f64> {
        self.sum.or(self.streams)
    }
}

/// The summaries of one run, in bytes per second.
#[derive(Debug, Clone, Default)]
struct Summaries {
    ends: Option<(String, String)>,
    has_heading: bool,
    sent: [Summary; 2],
    received: [Summary; 2],
    retransmits: Option<u64>,
    seconds: Option<f64>,
    error: Option<String>,
}

/// Reads iperf3's plain text, of a client or a server. Of several runs in one text the last one counts.
///
/// # Errors
/// See [`IperfError`].
pub fn from_text(text: &str) -> Result<IperfReport, IperfError> {
    if text.len() > LONGEST {
        return Err(IperfError::NotAReport);
    }
    let mut run = Summaries::default();
    for line in text.lines() {
        if line.contains("Connecting to host ") || line.contains("Accepted connection from ") {
            run = Summaries::default();
        } else if let Some((_, error)) = line.split_once("iperf3: error - ") {
            run.error = Some(error.trim().chars().take(200).collect());
        } else if line.contains("[ ID]") && line.contains("Interval") {
            run.has_heading = true;
        } else if let Some((_, ends)) = line.split_once("] local ") {
            run.ends = run.ends.take().or_else(|| ends_of(ends));
        } else {
            summary_line(&mut run, line);
        }
    }
    if let Some(error) = run.error {
        return Err(IperfError::Program(error));
    }
    if !run.has_heading {
        return Err(IperfError::NotAReport);
    }
    // What arrived counts; an end that was cut off may know only what it sent.
    let rate = |direction: usize| {
        let of = |summaries: &[Summary; 2]| summaries.get(direction).and_then(|summary| summary.rate());
        of(&run.received).or_else(|| of(&run.sent))
    };
    let (forward, reverse) = match (rate(0), rate(1)) {
        (Some(forward), reverse) => (forward, reverse),
        (None, Some(reverse)) => (reverse, None),
        (None, None) => return Err(IperfError::Unfinished),
    };
    if [Some(forward), reverse].into_iter().flatten().any(|rate| !can_be(BytesPerSecond(rate))) {
        return Err(IperfError::Impossible);
    }
    Ok(IperfReport {
        ends: run.ends,
        received: BytesPerSecond(forward),
        reverse: reverse.map(BytesPerSecond),
        retransmits: run.retransmits,
        seconds: run.seconds,
    })
}

/// `192.0.2.1 port 40112 connected to 192.0.2.2 port 5201`
fn ends_of(text: &str) -> Option<(String, String)> {
    let (local, remote) = text.split_once(" connected to ")?;
    let host = |text: &str| text.split_whitespace().next().map(without_scope);
    host(local).zip(host(remote))
}

/// `[SUM][TX-C]   0.00-10.00  sec  11.0 GBytes  9.42 Gbits/sec    3             sender`
fn summary_line(run: &mut Summaries, line: &str) {
    let line = line.trim_end();
    let sent = line.ends_with("sender");
    if !sent && !line.ends_with("receiver") {
        return;
    }
    let Some((id, fields)) = line.split_once('[').and_then(|(_, rest)| rest.split_once(']')) else { return };
    let (is_sum, is_reverse) = (id.trim() == "SUM", fields.starts_with("[RX-"));
    let words: Vec<&str> = fields.split_whitespace().collect();
    let rates = words.windows(2).enumerate();
    let mut rates = rates.filter_map(|(at, pair)| Some((at, pair.first()?.parse::<f64>().ok()? * unit(pair.get(1)?)?)));
    let Some((at, rate)) = rates.next() else { return };
    let summaries = if sent { &mut run.sent } else { &mut run.received };
    if let Some(summary) = summaries.get_mut(usize::from(is_reverse)) {
        summary.add(is_sum, rate);
    }
    let interval = words.iter().find_map(|word| {
        let (from, to) = word.split_once('-')?;
        Some(to.parse::<f64>().ok()? - from.parse::<f64>().ok()?)
    });
    run.seconds = run.seconds.or(interval.filter(|seconds| seconds.is_finite()));
    if sent && !is_reverse {
        let count = words.get(at + 2).and_then(|word| word.parse::<u64>().ok());
        run.retransmits =
            if is_sum { count } else { count.map(|count| count.saturating_add(run.retransmits.unwrap_or(0))) };
    }
}

/// Bytes per second in one of a unit: prefixes of bits are decimal, those of bytes binary.
fn unit(word: &str) -> Option<f64> {
    let (prefix, base, one) = match (word.strip_suffix("bits/sec"), word.strip_suffix("Bytes/sec")) {
        (Some(prefix), _) => (prefix, 1_000.0_f64, 0.125),
        (_, Some(prefix)) => (prefix, 1_024.0, 1.0),
        _ => return None,
    };
    let power = ["", "K", "M", "G", "T"].iter().position(|known| *known == prefix)?;
    Some(one * base.powi(i32::try_from(power).ok()?))
}

/// Whether an error means that the server did not answer.
pub fn is_unreachable(error: &str) -> bool {
    error.contains("unable to connect")
}

/// The program.
pub const PROGRAM: &str = "iperf3";

/// What came of a run.
#[derive(Debug, Clone, PartialEq)]
pub enum TcpOutcome {
    /// It measured; segments sent again, where they are counted.
    Measured(Measurements, Option<u64>),
    /// Data could not be moved.
    Failed(Failure, String),
    /// The tool got into trouble.
    Inconclusive(Doubt, String),
}

/// Why a host must not be measured with TCP: an address of it is this host's own.
///
/// # Errors
/// Its name has no address, or the kernel does not say which route it would use.
pub fn stays_here(host: &str, kernel: &mut dyn NetlinkConnection) -> io::Result<Option<String>> {
    let addresses: Vec<IpAddr> = match host.parse() {
        Ok(address) => vec![address],
        Err(_) => (host, 0).to_socket_addrs()?.map(|socket| socket.ip()).collect(),
    };
    for address in addresses {
        if lookup(kernel, address)?.local {
            return Ok(Some(format!(
                "{address} is an address of this host: the route is local (dev lo), so TCP would measure memory and not \
                 the link. Use another host, or network namespaces that force traffic over the link"
            )));
        }
    }
    Ok(None)
}

/// Runs a client against a server that a peer started.
///
/// # Errors
/// The program is not there or cannot be started.
pub fn run(
    tools: &Toolbox,
    server: &RemoteServer,
    streams: u32,
    duration: Duration,
    cpus: Option<&CpuSet>,
    timeouts: Timeouts,
) -> io::Result<TcpOutcome> {
    let program = tools.find(PROGRAM).ok_or(io::ErrorKind::NotFound)?;
    let directory = RunDirectory::new()?;
    let words = ["--client", &server.host, "--port", &server.tcp_port.to_string(), "--json", "--time"];
    let mut arguments: Vec<String> = words.map(str::to_owned).to_vec();
    arguments.extend([duration.as_secs().max(1).to_string(), "--parallel".to_owned(), streams.max(1).to_string()]);
    let mut child = Child::start(&Invocation { program, arguments }, directory.path(), cpus)?;
    Ok(classify(&child.wait(Instant::now() + duration + timeouts.overrun)))
}

fn classify(ended: &ProcessExit) -> TcpOutcome {
    if ended.timed_out {
        return TcpOutcome::Inconclusive(Doubt::Timeout, "iperf3 timed out and was killed".to_owned());
    }
    match from_json(&ended.output) {
        Ok(report) => {
            let direction = if report.reverse.is_some() { Direction::Both } else { Direction::OneWay };
            let sum = report.received.0 + report.reverse.map_or(0.0, |reverse| reverse.0);
            let measured = Measurements { bandwidth: vec![(direction, sum)], latency: Vec::new() };
            TcpOutcome::Measured(measured, report.retransmits)
        }
        Err(IperfError::Program(text)) if is_unreachable(&text) => {
            TcpOutcome::Failed(Failure::TcpSetup, format!("iperf3: {text}"))
        }
        Err(error @ IperfError::Impossible) => TcpOutcome::Inconclusive(Doubt::ImpossibleValue, error.to_string()),
        Err(error) => TcpOutcome::Inconclusive(Doubt::NoResult, error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_arrived_counts() {
        let text = r#"warning: odd
            {"start":{},"intervals":[],"end":{"streams":[],
            "sum_sent":{"seconds":5.0,"bytes":9,"bits_per_second":6.2e10,"retransmits":12},
            "sum_received":{"seconds":5.0,"bytes":9,"bits_per_second":5.87e10}}}"#;
        let report = from_json(text).unwrap();
        assert!((report.received.gbits() - 58.7).abs() < 1e-9);
        assert_eq!((report.reverse, report.retransmits), (None, Some(12)));
    }

    const CLIENT: &str = "Connecting to host 192.0.2.7, port 5201\n\
        [  5] local 192.0.2.6 port 57774 connected to 192.0.2.7 port 5201\n\
        [ ID] Interval           Transfer     Bitrate         Retr  Cwnd\n\
        [  5]   0.00-1.00   sec  2.86 GBytes  24.6 Gbits/sec   41   1.41 MBytes       \n\
        - - - - - - - - - - - - - - - - - - - - - - - - -\n\
        [ ID] Interval           Transfer     Bitrate         Retr\n\
        [  5]   0.00-10.00  sec  28.4 GBytes  24.4 Gbits/sec  154             sender\n\
        [  5]   0.00-10.01  sec  28.3 GBytes  24.3 Gbits/sec                  receiver\n\niperf Done.\n";

    fn ends(local: &str, remote: &str) -> IperfReport {
        let ends = Some((without_scope(local), without_scope(remote)));
        IperfReport { ends, received: BytesPerSecond(1.0), reverse: None, retransmits: None, seconds: None }
    }

    #[test]
    fn text_gives_what_the_receiver_got() {
        let report = from_text(CLIENT).unwrap();
        assert!((report.received.gbits() - 24.3).abs() < 1e-9);
        assert_eq!((report.retransmits, report.seconds, report.reverse), (Some(154), Some(10.0), None));
        assert_eq!(report.ends, Some(("192.0.2.6".to_owned(), "192.0.2.7".to_owned())));
        assert!(!report.is_loopback());
    }

    #[test]
    fn parallel_streams_count_by_their_sum_line() {
        let text = "[ ID] Interval           Transfer     Bandwidth       Retr\n\
            [  4]   0.00-5.00   sec  10.0 GBytes  17.2 Gbits/sec    1             sender\n\
            [  4]   0.00-5.00   sec  10.0 GBytes  17.1 Gbits/sec                  receiver\n\
            [  6]   0.00-5.00   sec  10.0 GBytes  17.3 Gbits/sec    2             sender\n\
            [  6]   0.00-5.00   sec  10.0 GBytes  17.2 Gbits/sec                  receiver\n\
            [SUM]   0.00-5.00   sec  20.0 GBytes  34.5 Gbits/sec    3             sender\n\
            [SUM]   0.00-5.00   sec  20.0 GBytes  34.3 Gbits/sec                  receiver\n";
        let report = from_text(text).unwrap();
        assert!((report.received.gbits() - 34.3).abs() < 1e-9);
        assert_eq!(report.retransmits, Some(3));
        let without_sum = text.lines().filter(|line| !line.contains("SUM")).collect::<Vec<_>>().join("\n");
        let report = from_text(&without_sum).unwrap();
        assert!((report.received.gbits() - 34.3).abs() < 1e-9);
        assert_eq!(report.retransmits, Some(3));
    }

    #[test]
    fn a_bidirectional_text_has_two_values() {
        let text = "[ ID][Role] Interval           Transfer     Bitrate         Retr\n\
            [  5][TX-C]   0.00-5.00   sec  5.00 GBytes  8.61 Gbits/sec    7             sender\n\
            [  5][TX-C]   0.00-5.00   sec  5.00 GBytes  8.59 Gbits/sec                  receiver\n\
            [  7][RX-C]   0.00-5.00   sec  4.00 GBytes  6.88 Gbits/sec    9             sender\n\
            [  7][RX-C]   0.00-5.00   sec  4.00 GBytes  6.87 Gbits/sec                  receiver\n";
        let report = from_text(text).unwrap();
        assert!((report.received.gbits() - 8.59).abs() < 1e-9);
        assert!(report.reverse.is_some_and(|reverse| (reverse.gbits() - 6.87).abs() < 1e-9));
        assert_eq!(report.retransmits, Some(7));
    }

    #[test]
    fn units_of_bytes_are_binary() {
        let text = CLIENT.replace("24.3 Gbits/sec", "2.83 GBytes/sec");
        assert!((from_text(&text).unwrap().received.0 - 2.83 * 1_073_741_824.0).abs() < 1.0);
        assert_eq!(from_text(&CLIENT.replace("Gbits/sec", "furlongs/sec")), Err(IperfError::Unfinished));
    }

    #[test]
    fn text_without_a_result() {
        assert_eq!(from_text(""), Err(IperfError::NotAReport));
        assert_eq!(from_text("hello"), Err(IperfError::NotAReport));
        let cut = CLIENT.lines().take(4).collect::<Vec<_>>().join("\n");
        assert_eq!(from_text(&cut), Err(IperfError::Unfinished));
        let refused = "iperf3: error - unable to connect to server: Connection refused\n";
        assert_eq!(
            from_text(refused),
            Err(IperfError::Program("unable to connect to server: Connection refused".to_owned()))
        );
        assert_eq!(from_text(&CLIENT.replace("24.3 G", "24.3e30 G")), Err(IperfError::Impossible));
    }

    #[test]
    fn two_ends_on_one_address_or_on_a_loopback_address_are_the_loopback_interface() {
        for (local, remote) in [
            ("192.0.2.6", "192.0.2.6"),
            ("127.0.0.1", "127.0.0.1"),
            ("192.0.2.6", "127.1.2.3"),
            ("::1", "::1"),
            ("::ffff:127.0.0.1", "192.0.2.7"),
            ("fe80::1%eth0", "fe80::1"),
        ] {
            assert!(ends(local, remote).is_loopback(), "{local} {remote}");
        }
        assert!(!ends("192.0.2.6", "192.0.2.7").is_loopback() && !ends("2001:db8::1", "2001:db8::2").is_loopback());
        let json = r#"{"start":{"connected":[{"local_host":"198.51.100.4","remote_host":"198.51.100.4"}]},
            "end":{"sum_received":{"bits_per_second":4e10}}}"#;
        assert!(from_json(json).unwrap().is_loopback());
    }

    #[test]
    fn both_ways_are_two_values() {
        let text = r#"{"end":{"sum_received":{"bits_per_second":4e10},
            "sum_received_bidir_reverse":{"bits_per_second":2e10}}}"#;
        let report = from_json(text).unwrap();
        assert_eq!(report.reverse.map(BytesPerSecond::gbits), Some(20.0));
    }

    #[test]
    fn an_error_comes_with_success() {
        let text = r#"{"start":{"connected":[],"version":"iperf 3.12"},"intervals":[],"end":{},
            "error":"unable to connect to server: Connection refused"}"#;
        let said = "unable to connect to server: Connection refused".to_owned();
        assert_eq!(from_json(text), Err(IperfError::Program(said)));
    }

    #[test]
    fn what_cannot_be() {
        for text in ["", "[]", "{", r#"{"end":{}}"#, r#"{"end":{"sum_received":{"bits_per_second":"fast"}}}"#] {
            assert_eq!(from_json(text), Err(IperfError::NotAReport), "{text}");
        }
        for rate in ["-1.0", "0", "1e30"] {
            let text = format!(r#"{{"end":{{"sum_received":{{"bits_per_second":{rate}}}}}}}"#);
            assert_eq!(from_json(&text), Err(IperfError::Impossible), "{rate}");
        }
    }

    proptest! {
        #[test]
        fn no_text_breaks_it(text in ".{0,200}", line in "[\\[\\]SUMTXRC 0-9.]{0,40}(bits|Bytes)?/sec +[0-9]* +(sender|receiver)") {
            let _ = (from_json(&text), from_text(&text), from_text(&format!("[ ID] Interval\n{line}\n")));
        }

        #[test]
        fn a_text_gives_back_its_rates(rates in proptest::collection::vec(0.01f64..400.0, 1..8), again in 0u64..1_000_000) {
            let mut lines = vec!["[ ID] Interval           Transfer     Bitrate         Retr".to_owned()];
            for (index, rate) in rates.iter().enumerate() {
                let start = format!("[{index:>3}]   0.00-7.00   sec  1.00 GBytes  {rate} Gbits/sec");
                lines.extend([format!("{start}  {again}             sender"), format!("{start}                  receiver")]);
            }
            let text = lines.join("\n");
            let report = from_text(&text).unwrap();
            prop_assert!((report.received.gbits() - rates.iter().sum::<f64>()).abs() < 1e-6);
            prop_assert_eq!(report.retransmits, Some(again * rates.len() as u64));
            prop_assert_eq!(report.seconds, Some(7.0));
        }

        #[test]
        fn what_is_read_is_possible(rate in any::<f64>()) {
            let text = format!(r#"{{"end":{{"sum_received":{{"bits_per_second":{rate}}}}}}}"#);
            if let Ok(report) = from_json(&text) {
                prop_assert!(report.received.0.is_finite() && report.received.0 > 0.0);
            }
        }
    }
}

#[cfg(test)]
mod tcp_tests {
    use super::*;
    use crate::host::netlink::socket::route;

    #[test]
    fn a_test_between_two_addresses_of_one_host_is_refused() {
        let Ok(mut kernel) = route()() else { return };
        let why = stays_here("127.0.0.1", &mut *kernel).unwrap().unwrap();
        assert!(why.contains("local (dev lo)"), "{why}");
        assert!(stays_here("localhost", &mut *kernel).unwrap().is_some());
    }

    #[test]
    fn iperf3_that_finds_nobody() {
        let ended = |output: &str| ProcessExit {
            code: Some(0),
            signal: None,
            timed_out: false,
            flooded: false,
            output: output.to_owned(),
        };
        let refused = classify(&ended("{\"error\": \"unable to connect to server: Connection refused\"}"));
        assert!(matches!(refused, TcpOutcome::Failed(Failure::TcpSetup, _)));
        assert!(matches!(classify(&ended("nonsense")), TcpOutcome::Inconclusive(Doubt::NoResult, _)));
        let busy = classify(&ended("{\"error\": \"the server is busy running a test. try again later\"}"));
        assert!(matches!(busy, TcpOutcome::Inconclusive(Doubt::NoResult, _)));
    }
}
