//! perftest's text: a block of settings, a table, and messages between them. Columns are known by their headings, since
//! releases and options add some; values below 0.1 have another number of decimals; lines of both ends may be mixed.

use super::{BandwidthRow, BandwidthUnit, PerftestReport, failure};
use crate::model::benchmark::Statistic;

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

/// Longest text that is looked at, in bytes.
const LONGEST: usize = 1 << 20;

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
