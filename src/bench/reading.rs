//! Outputs of benchmarks that somebody ran, read in plain words: which numbers are one limit seen several ways.

use std::fmt::{self, Write as _};

use super::iperf;
use super::perftest::{self, Unit, from_json, from_text};
use crate::assess::probe::{Ceiling, percent};
use crate::model::probe::{Failure, Statistic};
use crate::model::units::BytesPerSecond;

/// Values further apart than this are not one limit.
const SPREAD: f64 = 1.15;

/// Share of a path from which it is named as the limit.
const AT_LIMIT: f64 = 0.85;

/// No value is above a path by more than this.
const TOLERANCE: f64 = 1.02;

/// How a number was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// RDMA, one way.
    Rdma,
    /// RDMA whose connection the connection manager set up.
    ConnectionManager,
    /// RDMA both ways at once: a sum.
    BothWays,
    /// TCP.
    Tcp,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rdma => "RDMA one way",
            Self::ConnectionManager => "RDMA with the connection manager",
            Self::BothWays => "RDMA both ways at once",
            Self::Tcp => "TCP",
        })
    }
}

/// What an output says.
#[derive(Debug, Clone, PartialEq)]
pub enum Said {
    /// A bandwidth.
    Bandwidth {
        /// How it was measured.
        way: Way,
        /// The value; of both ways, their sum.
        value: BytesPerSecond,
        /// Message size in bytes.
        size: Option<u64>,
        /// What the output calls its device.
        device: Option<String>,
    },
    /// A typical latency in seconds, with its report.
    Latency(f64, Box<perftest::Report>),
    /// Data could not be moved.
    Failed(Failure, String),
    /// There is no value, and why.
    Nothing(String),
}

/// Reads an output: perftest's text or JSON (bandwidths in `unit`), or iperf3's JSON.
pub fn read(text: &str, unit: Unit) -> Said {
    let table = from_text(text);
    if let Some(trouble) = table.trouble {
        return Said::Failed(trouble.failure, trouble.text);
    }
    let report = if table.has_values() {
        table
    } else if table.impossible {
        return Said::Nothing("it has a value that cannot be".to_owned());
    } else {
        match (iperf::from_json(text), from_json(text, unit)) {
            (Ok(report), _) => {
                let value = BytesPerSecond(report.received.0 + report.reverse.map_or(0.0, |reverse| reverse.0));
                let way = if report.reverse.is_some() { Way::BothWays } else { Way::Tcp };
                return Said::Bandwidth { way, value, size: None, device: None };
            }
            (_, Ok(report)) => report,
            (Err(iperf::NoResult::Said(said)), _) => return Said::Nothing(format!("iperf3 says: {said}")),
            (_, Err(error)) => return Said::Nothing(error.to_string()),
        }
    };
    if let Some(row) = report.best() {
        let way = match (report.is_bidirectional(), report.connection_manager) {
            (true, _) => Way::BothWays,
            (false, true) => Way::ConnectionManager,
            (false, false) => Way::Rdma,
        };
        return Said::Bandwidth { way, value: row.average, size: row.size, device: report.device.clone() };
    }
    let typical = report.latency.iter().find_map(|row| row.value(Statistic::Typical).or(row.value(Statistic::Average)));
    match typical {
        Some(value) => Said::Latency(value, Box::new(report)),
        None => Said::Nothing("it has no value".to_owned()),
    }
}

/// What each number says of one direction: half of a sum.
fn one_way(way: Way, value: BytesPerSecond) -> BytesPerSecond {
    BytesPerSecond(if way == Way::BothWays { value.0 / 2.0 } else { value.0 })
}

/// One output's value beside what the lane carries.
pub fn beside(way: Way, value: BytesPerSecond, ceiling: Option<&Ceiling>) -> String {
    let sum = if way == Way::BothWays { format!(", {} each way", one_way(way, value)) } else { String::new() };
    let Some(ceiling) = ceiling else { return format!("{way}: {value}{sum}") };
    let each = one_way(way, value);
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
pub fn together(numbers: &[(Way, BytesPerSecond)], ceiling: Option<&Ceiling>) -> Option<String> {
    let ways = numbers.iter().map(|(way, value)| one_way(*way, *value).0);
    let (least, most) = ways.fold((f64::INFINITY, 0.0f64), |(least, most), rate| (least.min(rate), most.max(rate)));
    if numbers.len() < 2 || least <= 0.0 {
        return None;
    }
    let (least, most) = (BytesPerSecond(least), BytesPerSecond(most));
    if most.0 / least.0 > SPREAD {
        let slowest = numbers.iter().min_by(|a, b| one_way(a.0, a.1).0.total_cmp(&one_way(b.0, b.1).0))?.0;
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
    let sum = numbers.iter().any(|(way, _)| *way == Way::BothWays);
    if sum {
        text.push_str(" A sum of both directions is not to be held against the rate of one.");
    }
    let at = |limit: BytesPerSecond| most.0 >= limit.0 * AT_LIMIT && most.0 <= limit.0 * TOLERANCE;
    let limit = match ceiling.map(|ceiling| (ceiling.by_path, ceiling.path, ceiling.rate)) {
        Some((true, Some(path), _)) if at(path) => format!(
            " It is the PCIe path, which carries {path}: not SR-IOV, not the connection manager, not TCP, not the \
             cable. Look at `lanewatch explain`."
        ),
        Some((_, _, Some(rate))) if at(rate) => format!(" It is the port's rate, {rate}."),
        Some(_) => " It is below what port and PCIe path carry: look at the other end, at NUMA and CPUs.".to_owned(),
        None => String::new(),
    };
    text.push_str(&limit);
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
        let numbers: Vec<(Way, BytesPerSecond)> = outputs
            .iter()
            .filter_map(|text| match read(text, Unit::MebibytesPerSecond) {
                Said::Bandwidth { way, value, .. } => Some((way, value)),
                _ => None,
            })
            .collect();
        let ways: Vec<Way> = numbers.iter().map(|(way, _)| *way).collect();
        assert_eq!(ways, [Way::Rdma, Way::ConnectionManager, Way::BothWays, Way::Tcp]);
        let text = together(&numbers, narrow().as_ref()).unwrap_or_default();
        assert!(text.starts_with("This is one limit seen four ways: 58.2 Gb/s to 59.6 Gb/s each way."), "{text}");
        assert!(text.contains("the PCIe path, which carries 63.0 Gb/s: not SR-IOV"), "{text}");
        let both = beside(Way::BothWays, numbers[2].1, narrow().as_ref());
        assert!(both.contains("58.3 Gb/s each way, 29 % of the port's 200 Gb/s, 93 % of the PCIe path's"), "{both}");
    }

    #[test]
    fn numbers_apart_are_not() {
        let text = together(&[(Way::Rdma, gbits(190.0)), (Way::Tcp, gbits(40.0))], None).unwrap_or_default();
        assert!(text.contains("not one limit") && text.ends_with("look first at TCP."), "{text}");
        assert_eq!(together(&[(Way::Rdma, gbits(190.0))], None), None);
        let below = together(&[(Way::Rdma, gbits(20.0)), (Way::Tcp, gbits(20.0))], narrow().as_ref());
        assert!(below.is_some_and(|text| text.contains("below what port and PCIe path carry")));
    }

    #[test]
    fn what_is_no_number() {
        let read = |text: &str| read(text, Unit::GigabitsPerSecond);
        let failed = read("Couldn't connect to 198.51.100.7:18599\n");
        assert!(matches!(failed, Said::Failed(Failure::TcpSetup, _)));
        assert!(
            matches!(read("{\"error\": \"unable to connect\"}"), Said::Nothing(text) if text.contains("iperf3 says"))
        );
        assert!(matches!(read("hello"), Said::Nothing(_)));
        let latency = read("{\nresults: {\nMsgSize: 2,\nt_typical: 2.00,\nt_avg: 2.5,\n},\n}\n");
        assert!(matches!(latency, Said::Latency(value, _) if (value - 2e-6).abs() < 1e-12));
    }
}
