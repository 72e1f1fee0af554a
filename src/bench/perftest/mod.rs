//! Output of perftest (`ib_write_bw`, `ib_write_lat`, `ib_read_lat`, …): text, and every dialect of its JSON.
//!
//! Text is a block of settings, a table, and messages between them. Columns are known by their headings, since releases
//! and options add some; values below 0.1 have another number of decimals; lines of both ends may be mixed.
//!
//! JSON of earlier releases has keys and words without quotes, commas before a closing brace, and a comma after a lone
//! value. It carries no unit: the caller passes the unit it asked for.

pub mod failure;

pub use failure::{PerftestFailure, WorkCompletion};

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

    /// The one that it is not.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::MebibytesPerSecond => Self::GigabitsPerSecond,
            Self::GigabitsPerSecond => Self::MebibytesPerSecond,
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
    /// The peak; `None` if it was not measured (a timed run says 0.00).
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

/// A column of a table.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Column {
    Size,
    Iterations,
    Peak(Option<BandwidthUnit>),
    Average(Option<BandwidthUnit>),
    Messages,
    Cpu,
    Time(Statistic),
    Other,
}

/// Most rows of a table.
const MOST_ROWS: usize = 64;

/// Reads what a program printed, standard output and error together.
pub fn from_text(text: &str) -> PerftestReport {
    let mut end = text.len().min(LONGEST);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let text = text.get(..end).unwrap_or_default();
    let mut report = PerftestReport::default();
    let mut columns: Vec<Column> = Vec::new();
    for line in text.lines() {
        if let Some(heading) = line.find("#bytes").and_then(|at| line.get(at..)) {
            columns = headings(heading);
            continue;
        }
        let trimmed = line.trim();
        if trimmed.starts_with("WARNING") || trimmed.starts_with("Conflicting CPU frequency") {
            if report.notes.len() < MOST_ROWS {
                report.notes.push(trimmed.to_owned());
            }
        } else if let Some(test) = trimmed.strip_suffix(" Test") {
            report.test.get_or_insert_with(|| test.to_owned());
        } else if let Some(gid) = trimmed.strip_prefix("GID:") {
            report.zero_gid |= gid.bytes().all(|b| matches!(b, b'0' | b':' | b' ')) && gid.contains('0');
        } else if columns.is_empty() {
            setting(&mut report, line);
        } else if report.bandwidth.len() + report.latency.len() < MOST_ROWS {
            row(&mut report, &columns, trimmed);
        }
    }
    report.trouble = failure::find(text, report.zero_gid);
    report
}

/// Two settings may stand in one line: `Number of qps   : 1   Transport type : IB`.
fn setting(report: &mut PerftestReport, line: &str) {
    let value = |name: &str| {
        let at = line.to_ascii_lowercase().find(name)?;
        let rest = line.get(at + name.len()..)?.trim_start().strip_prefix(':')?;
        rest.split_whitespace().next().map(str::to_owned)
    };
    for (name, place) in [
        ("device ", &mut report.device),
        ("transport type", &mut report.transport),
        ("link type", &mut report.link_type),
    ] {
        if let Some(value) = value(name) {
            place.get_or_insert(value);
        }
    }
    report.connection_manager |= value("rdma_cm qps").is_some_and(|word| word == "ON");
    report.gid_index = report.gid_index.or_else(|| value("gid index")?.parse().ok());
}

fn headings(line: &str) -> Vec<Column> {
    let mut words: Vec<String> = Vec::new();
    let mut prefix = "";
    for word in line.split_whitespace() {
        if matches!(word, "BW" | "99%" | "99.9%" | "tps") {
            prefix = word;
        } else {
            words.push(if prefix.is_empty() { word.to_owned() } else { format!("{prefix} {word}") });
            prefix = "";
        }
    }
    words.iter().map(|word| column(word)).collect()
}

fn column(word: &str) -> Column {
    let (name, unit) = word.split_once('[').unwrap_or((word, ""));
    let unit = BandwidthUnit::named(unit.trim_end_matches(']'));
    match name {
        "#bytes" => Column::Size,
        "#iterations" => Column::Iterations,
        "BW peak" => Column::Peak(unit),
        "BW average" => Column::Average(unit),
        "MsgRate" => Column::Messages,
        "CPU_Util" => Column::Cpu,
        "t_min" => Column::Time(Statistic::Minimum),
        "t_max" => Column::Time(Statistic::Maximum),
        "t_typical" => Column::Time(Statistic::Typical),
        "t_avg" => Column::Time(Statistic::Average),
        "99% percentile" => Column::Time(Statistic::P99),
        "99.9% percentile" => Column::Time(Statistic::P999),
        _ => Column::Other,
    }
}

/// A line of numbers, one a column; what follows them is another message in the same line.
fn row(report: &mut PerftestReport, columns: &[Column], line: &str) {
    let words = line.split_whitespace().take(columns.len());
    let values: Vec<f64> = words.map_while(|word| word.parse().ok()).collect();
    // The CPU column is the last, and not every release that names it fills it.
    let needed = columns.iter().rposition(|column| *column != Column::Cpu).map_or(0, |last| last + 1);
    if values.len() < needed.max(2) || !line.starts_with(|c: char| c.is_ascii_digit()) {
        return;
    }
    let find = |wanted: Column| {
        let at = columns.iter().position(|column| *column == wanted)?;
        values.get(at).copied()
    };
    let size = line.split_whitespace().next().and_then(|word| word.parse().ok());
    let iterations = line.split_whitespace().nth(1).and_then(|word| word.parse().ok());
    let average = columns.iter().zip(&values).find_map(|(column, value)| match column {
        Column::Average(unit) => Some((*unit, *value)),
        _ => None,
    });
    if let Some((unit, average)) = average {
        // A unit that is not known makes the value worthless.
        let Some(unit) = unit else { return };
        report.unit.get_or_insert(unit);
        let peak = find(Column::Peak(Some(unit))).filter(|peak| *peak > 0.0).map(|peak| unit.rate(peak));
        let messages = find(Column::Messages).map(|millions| millions * 1e6);
        let average = unit.rate(average);
        let cpu = find(Column::Cpu);
        return report.add_bandwidth(BandwidthRow { size, iterations, peak, average, messages, cpu });
    }
    let times = columns.iter().zip(&values).filter_map(|(column, value)| match column {
        Column::Time(statistic) => Some((*statistic, *value)),
        _ => None,
    });
    let times: Vec<(Statistic, f64)> = times.collect();
    if !times.is_empty() {
        report.add_latency(size, iterations, &times);
    }
}

/// Longest output that is read, in bytes.
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

const TIME_KEYS: [(&str, Statistic); 6] = [
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
    for (key, statistic) in TIME_KEYS {
        if let Some(value) = value(key)? {
            times.push((statistic, value));
        }
    }
    if !times.is_empty() {
        report.add_latency(size, iterations, &times);
    }
    if report.impossible {
        let time = TIME_KEYS.iter().map(|(key, _)| *key).find(|key| word(key).is_some_and(|word| !is_time(word)));
        let key = time.filter(|_| report.bandwidth.is_empty() == average.is_none()).unwrap_or(name);
        return Err(PerftestJsonError::Impossible {
            key: key.to_owned(),
            value: word(key).unwrap_or_default().to_owned(),
        });
    }
    if report.has_values() { Ok(report) } else { Err(PerftestJsonError::NoResult) }
}

fn is_time(word: &str) -> bool {
    word.parse().is_ok_and(|micros: f64| TIMES.contains(&micros))
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    mod documents {
        //! JSON, and what it was before it was JSON.

        use proptest::prelude::*;

        use super::super::*;

        const UNQUOTED: &str = "{\ntest_info: {\ntest: RDMA_Write_Latency_Test,\nDual_port: OFF,\nDevice: \"rxe4\",\nMtu: 1024,\n\
    TX_depth : 1,\nLink_type: Ethernet,\nGID_index: 1,\n},\nresults: {\nMsgSize: 64,\nn_iterations: 2000,\nt_min: 3.07,\n\
    t_max: 8.11,\nt_typical: 3.21,\nt_avg: 3.25,\nt_stdev: 0.11,\npercentile_99: 3.90,\npercentile_99.9: 6.72,\n},\n}\n";

        const QUOTED: &str = r#"{
"test_info": { "test": "RDMA_Write_BW_Test", "Device": "mlx5_4", "Link_type": "IB", "GID_index": "3" },
"results": { "MsgSize": 1048576, "n_iterations": 30000, "BW_peak": 0, "BW_average": 92.35, "MsgRate": 0.011, "CPU_util": 1.5 }
}"#;

        fn read(text: &str) -> Result<PerftestReport, PerftestJsonError> {
            from_json(text, BandwidthUnit::GigabitsPerSecond)
        }

        #[test]
        fn unquoted_latency() {
            let report = read(UNQUOTED).unwrap();
            let row = &report.latency[0];
            assert_eq!((row.size, row.iterations, report.device.as_deref()), (Some(64), Some(2_000), Some("rxe4")));
            let micros = |statistic| (row.value(statistic).unwrap() * 1e8).round() / 100.0;
            for (statistic, expected) in [
                (Statistic::Average, 3.25),
                (Statistic::Minimum, 3.07),
                (Statistic::Maximum, 8.11),
                (Statistic::P99, 3.90),
                (Statistic::P999, 6.72),
            ] {
                assert!((micros(statistic) - expected).abs() < 1e-9, "{statistic:?}");
            }
            assert!(report.bandwidth.is_empty() && report.gid_index == Some(1));
        }

        #[test]
        fn quoted_bandwidth_in_the_unit_that_was_asked_for() {
            let report = read(QUOTED).unwrap();
            let row = report.bandwidth[0];
            assert!((row.average.gbits() - 92.35).abs() < 1e-9);
            assert_eq!((row.peak, row.cpu, row.size), (None, Some(1.5), Some(1_048_576)));
            let other = from_json(QUOTED, BandwidthUnit::MebibytesPerSecond).unwrap();
            assert!((other.bandwidth[0].average.0 - 92.35 * 1_048_576.0).abs() < 1e-3);
        }

        #[test]
        fn a_lone_value_with_a_comma_and_a_key_without_quotes() {
            let lone = read("{\n\"results\": {\n\"bw_avg\": 88.1,\n}\n}\n").unwrap();
            assert!((lone.bandwidth[0].average.gbits() - 88.1).abs() < 1e-9);
            let one_line = read(r#"{"results": {BW_average: 70.5, "MsgSize": 65536,}}"#).unwrap();
            assert_eq!(one_line.bandwidth[0].size, Some(65_536));
        }

        #[test]
        fn of_three_results_the_first_is_the_own() {
            let text = format!("{QUOTED}\n{}\n{}", QUOTED.replace("92.35", "184.0"), QUOTED.replace("92.35", "91.65"));
            assert!((read(&text).unwrap().bandwidth[0].average.gbits() - 92.35).abs() < 1e-9);
        }

        #[test]
        fn all_of_a_result_or_nothing() {
            assert_eq!(read("garbage"), Err(PerftestJsonError::NoResult));
            assert_eq!(read("{\"test_info\": {\"Device\": \"x\"}}"), Err(PerftestJsonError::NoResult));
            assert!(matches!(read(&QUOTED.replace("92.35", "-nan")), Err(PerftestJsonError::NotANumber { .. })));
            assert!(matches!(read(&QUOTED.replace("92.35", "-4.0")), Err(PerftestJsonError::Impossible { .. })));
            assert!(matches!(read(&QUOTED.replace("92.35", "1e30")), Err(PerftestJsonError::Impossible { .. })));
            let beyond = read(&UNQUOTED.replace("3.21", "1e30")).unwrap_err();
            assert_eq!(beyond.to_string(), "t_typical is 1e30, which is impossible");
            assert!(matches!(read(&UNQUOTED.replace("3.21", "oops")), Err(PerftestJsonError::NotANumber { .. })));
            assert_eq!(read(&"x".repeat(2 << 20)), Err(PerftestJsonError::TooLong));
        }

        proptest! {
            #[test]
            fn no_text_breaks_it(text in ".{0,300}") {
                let _ = read(&text);
            }

            #[test]
            fn what_is_read_is_possible(value in any::<f64>(), cut in 0usize..300) {
                let text = QUOTED.replace("92.35", &value.to_string());
                let cut = cut.min(text.len());
                for text in [text.as_str(), &text[..cut]] {
                    if let Ok(report) = read(text) {
                        prop_assert!(report.bandwidth.iter().all(|row| can_be(row.average)));
                    }
                }
            }
        }
    }
    mod messages {
        //! What went wrong.

        use super::super::*;
        use super::settings;
        use crate::model::benchmark::Failure;

        fn trouble(text: &str) -> PerftestFailure {
            let report = from_text(text);
            assert!(!report.has_values(), "no value, and not 0");
            report.trouble.unwrap()
        }

        #[test]
        fn a_queue_pair_that_stays_down_for_a_gid_of_zeros() {
            let zero = " GID: 00:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00\n";
            let text = format!(
                "                    RDMA_Write BW Test\n Dual-port       : OFF          Device         : mlx5_6\n Link type       \
         : Ethernet\n GID index       : 2\n local address: LID 0000 QPN 0x0044\n{zero} remote address: LID 0000 QPN \
         0x0045\n{zero}Failed to modify QP 68 to RTR\n Unable to Connect the HCA's through the link\n"
            );
            let found = trouble(&text);
            assert_eq!(found.failure, Failure::QpSetup);
            assert!(found.text.contains("QP to RTR") && found.text.contains("all zeros"), "{}", found.text);
            let report = from_text(&text);
            assert_eq!((report.device.as_deref(), report.gid_index), (Some("mlx5_6"), Some(2)));
            let other = trouble(&text.replace(":00\n", ":0a\n"));
            assert!(other.text.contains("GID index, MTU and addresses"), "{}", other.text);
        }

        #[test]
        fn two_messages_in_one_line() {
            let text = "Couldn't connect to 198.51.100.7:18599\nUnable to open file descriptor for socket connection Unable to init \
                the socket connection\n";
            let found = trouble(text);
            assert_eq!(found.failure, Failure::TcpSetup);
            assert!(found.text.contains("server 198.51.100.7:18599 unreachable"), "{}", found.text);
            assert!(found.text.contains("not a fabric fault"));
            let (_, second) = text.split_once('\n').unwrap();
            assert_eq!(trouble(second).failure, Failure::TcpSetup);
        }

        #[test]
        fn a_failed_completion_says_which_and_how_far_it_came() {
            let text = "Completion with error at client\n  Failed status 4: wr_id 0 syndrom 0x4f\nscnt=640, ccnt=512\n  Failed to \
                complete run_iter_bw function successfully\n";
            let found = trouble(text);
            assert_eq!(
                (found.failure, found.syndrome, found.progress),
                (Failure::Completion, Some(0x4f), Some((512, 640)))
            );
            assert_eq!(found.completion.map(|c| (c.code, c.name)), Some((4, "local protection error")));
            assert!(found.text.contains("after 512 of 640 completed"), "{}", found.text);
            let retry = trouble(&text.replace("status 4", "status 12"));
            assert!(
                retry.text.contains("status 12 (transport retry exceeded)") && retry.text.contains("VF map"),
                "{}",
                retry.text
            );
            assert_eq!(trouble("Completion with error at server\n").completion, None);
            assert_eq!(WorkCompletion::of(99).name, "unknown status");
        }

        #[test]
        fn a_port_that_is_down() {
            let text =
                " Port number 2 state is Down\n Couldn't set the link layer\n Couldn't get context for the device\n";
            let found = trouble(text);
            assert_eq!(
                (found.failure, found.text.as_str()),
                (Failure::PortDown, "port 2 is down: see the finding port_down")
            );
        }

        #[test]
        fn memory_that_cannot_be_registered_and_a_crash() {
            let end =
                settings("Send BW", "siw_eth7", "Ethernet", " Gid index       : 0\n").replace("type : IB", "type : IW");
            let text = format!(
                "{end}Couldn't allocate MR\nfailed to create mr\nFailed to create MR\nSegmentation fault (core dumped)\n"
            );
            let found = trouble(&text);
            assert_eq!((found.failure, found.crashed), (Failure::MemoryRegistration, true));
            assert!(found.text.ends_with("the program then crashed"), "{}", found.text);
            let report = from_text(&text);
            assert_eq!((report.transport.as_deref(), report.gid_index), (Some("IW"), Some(0)));
        }

        #[test]
        fn a_device_that_is_not_there() {
            let text = " Did not detect devices \n If device exists, check if driver is up\n Unable to find the Infiniband/RoCE device\n";
            assert_eq!(trouble(text).failure, Failure::DeviceMissing);
            assert_eq!(
                from_text("Segmentation fault (core dumped)\n").trouble,
                None,
                "a crash alone says nothing of the device"
            );
        }
    }

    use proptest::prelude::*;

    use super::*;

    const RULE: &str = "---------------------------------------------------------------------------------------\n";

    /// A block of settings as perftest 6 prints it.
    fn settings(test: &str, device: &str, link: &str, gid: &str) -> String {
        format!(
            "{RULE}                    {test} Test\n Dual-port       : OFF\t\tDevice         : {device}\n Number of qps   : 1\t\t\
         Transport type : IB\n Connection type : RC\t\tUsing SRQ      : OFF\n PCIe relax order: ON\n Mtu             : \
         4096[B]\n Link type       : {link}\n{gid} Max inline data : 0[B]\n rdma_cm QPs\t : OFF\n Data ex. method : \
         Ethernet\n{RULE} local address: LID 0x07 QPN 0x0a01 PSN 0x11aa22\n remote address: LID 0x07 QPN 0x0a02 PSN \
         0x33bb44\n{RULE}"
        )
    }

    const GBITS: &str = " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n";

    #[test]
    fn a_sweep_with_mixed_precision_and_tabs() {
        let rows = " 2          5000           0.031250            0.031125            1.945313\n \
                16         5000             0.25               0.25   \t\t     1.953125\n \
                4194304    5000             94.15              94.11  \t\t     0.002805\n";
        let text = format!("{}{GBITS}{rows}{RULE}", settings("RDMA_Write BW", "mlx5_4", "IB", ""));
        let report = from_text(&text);
        let words = [&report.test, &report.device, &report.link_type, &report.transport].map(|w| w.as_deref().unwrap());
        assert_eq!(words, ["RDMA_Write BW", "mlx5_4", "IB", "IB"]);
        assert_eq!(
            (report.unit, report.bandwidth.len(), report.trouble.is_none()),
            (Some(BandwidthUnit::GigabitsPerSecond), 3, true)
        );
        let best = report.best().unwrap();
        assert_eq!((best.size, best.iterations), (Some(4_194_304), Some(5_000)));
        assert!((best.average.gbits() - 94.11).abs() < 1e-9 && (best.peak.unwrap().gbits() - 94.15).abs() < 1e-9);
        assert!((report.bandwidth[0].average.gbits() - 0.031_125).abs() < 1e-12);
        assert!((report.bandwidth[0].messages.unwrap() - 1_945_313.0).abs() < 1e-6);
    }

    #[test]
    fn a_loop_whose_ends_speak_into_one_stream() {
        let heading = GBITS.replace("Gb/sec", "MB/sec");
        let row = " 1048576    20000            11250.41            11250.33\t\t   0.011250\n";
        let waits = "************************************\n* Waiting for client to connect... *\n\
                 ************************************\n";
        let end = settings("RDMA_Write BW", "ib3", "IB", "");
        let report = from_text(&format!("{end}{heading}{row}{waits}{end}{heading}{row}{RULE}\n{RULE}"));
        assert_eq!(report.bandwidth.len(), 1, "one row though both ends say it");
        assert_eq!((report.unit, report.trouble), (Some(BandwidthUnit::MebibytesPerSecond), None));
        assert!((report.bandwidth[0].average.0 - 11_250.33 * 1_048_576.0).abs() < 1.0);
    }

    #[test]
    fn a_timed_run_has_no_peak_and_may_have_one_column_more() {
        let text = format!(
            " WARNING: BW peak won't be measured in this run.\n{}{}{}",
            settings("RDMA_Write BW", "mlx5_4", "Ethernet", " GID index       : 5\n"),
            GBITS.replace("MsgRate[Mpps]", "MsgRate[Mpps]    CPU_Util[%]"),
            " 1048576    111222           0.00               92.71 \t\t   0.011052\t    2.63\n"
        );
        let report = from_text(&text);
        let row = report.bandwidth[0];
        assert_eq!((row.peak, row.cpu, row.messages), (None, Some(2.63), Some(11_052.0)));
        assert_eq!((report.gid_index, report.notes.len(), report.trouble.is_none()), (Some(5), 1, true));
        assert!((row.average.gbits() - 92.71).abs() < 1e-9);
    }

    #[test]
    fn mebibytes_are_not_megabytes() {
        let text = format!(
            "{}{}{}",
            settings("RDMA_Write BW", "mlx5_4", "IB", ""),
            GBITS.replace("Gb/sec", "MiB/sec"),
            " 65536      5000             6902.00            6890.50\t\t     0.110248\n"
        );
        let report = from_text(&text);
        assert_eq!(report.unit, Some(BandwidthUnit::MebibytesPerSecond));
        assert!((report.best().unwrap().average.gbits() - 57.801_703_424).abs() < 1e-6);
        let unknown = from_text(&text.replace("MiB/sec", "furlong/sec"));
        assert!(!unknown.has_values(), "a unit that is not known makes no value");
    }

    #[test]
    fn latency() {
        let text = format!(
            "{}{}{}",
            settings("RDMA_Write Latency", "mlx5_4", "IB", ""),
            " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   \
         99% percentile[usec]   99.9% percentile[usec] \n",
            " 2       1000          1.05           9.81         1.10     \t       1.11        \t0.09   \t\t1.33    \t\t9.81   \n"
        );
        let report = from_text(&text);
        let row = &report.latency[0];
        assert!(report.bandwidth.is_empty() && (row.size, row.iterations) == (Some(2), Some(1_000)));
        let micros = |statistic| (row.value(statistic).unwrap() * 1e8).round() / 100.0;
        assert!((micros(Statistic::Typical) - 1.10).abs() < 1e-9 && (micros(Statistic::P99) - 1.33).abs() < 1e-9);
        assert!((micros(Statistic::Maximum) - 9.81).abs() < 1e-9 && (micros(Statistic::P999) - 9.81).abs() < 1e-9);
    }

    #[test]
    fn a_warning_within_the_table_and_a_negative_average() {
        let text = format!(
            "{GBITS}Conflicting CPU frequency values detected: 800.000000 != 2100.000000. CPU Frequency is not max.\n \
         65536      5000             91.10              91.02\t\t     0.173607\n"
        );
        let report = from_text(&text);
        assert_eq!((report.bandwidth.len(), report.notes.len()), (1, 1));
        let negative = from_text(&text.replace("91.02", "-91.02"));
        assert!(negative.impossible && !negative.has_values());
        let beyond = from_text(&text.replace("91.02", "1e30"));
        assert!(beyond.impossible && !beyond.has_values());
        let odd = from_text(&text.replace("91.10", "1e30").replace("0.173607", "-inf"));
        assert_eq!((odd.bandwidth[0].peak, odd.bandwidth[0].messages), (None, None), "and the average stands");
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_reader(text in ".{0,400}") {
            let _ = from_text(&text);
        }

        #[test]
        fn no_table_gives_a_value_that_cannot_be(cells in proptest::collection::vec(".{0,12}", 0..12)) {
            for heading in [GBITS, " #bytes #iterations t_min[usec] t_max[usec] t_typical[usec] t_avg[usec]\n"] {
                let report = from_text(&format!("{heading} {}\n", cells.join(" ")));
                prop_assert!(report.bandwidth.iter().all(|row| can_be(row.average)));
                let mut times = report.latency.iter().flat_map(|row| &row.values);
                prop_assert!(times.all(|(_, value)| value.is_finite() && *value > 0.0));
            }
        }

        #[test]
        fn a_row_comes_back(size in 1u64..1 << 40, average in 0.01f64..900.0) {
            let report = from_text(&format!("{GBITS} {size} 5000 {average:.6} {average:.6} 0.5\n"));
            prop_assert_eq!(report.bandwidth.len(), 1);
            prop_assert!((report.bandwidth[0].average.gbits() - average).abs() < 1e-5);
            prop_assert_eq!(report.bandwidth[0].size, Some(size));
        }
    }
}
