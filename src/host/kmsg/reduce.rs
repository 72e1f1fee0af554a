//! A kernel log with the lines that its reader understands, for recordings.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::reader::{self, Reader};
use super::record::{self, Record, When};
use super::speaker::Names;

/// A log with the lines that its reader uses, `safe` applied to their texts; of lines that only show which functions RDMA
/// drivers have, and of the last one, which shows the time, only the beginning. `records`: in the form of `/dev/kmsg`, where
/// lines keep the number of those that were lost before them.
pub fn reduce(log: &str, records: bool, names: &dyn Names, mut safe: impl FnMut(&str) -> String) -> String {
    let mut reducer = Reducer { reader: Reader::default(), functions: BTreeSet::new(), names };
    let (mut out, mut number, mut gaps, mut before) = (String::new(), 0u64, 0u64, None::<u64>);
    let mut last = None;
    for (line, device) in entries(log, records) {
        let record = if records {
            let Some(sequence) = record::sequence(line) else { continue };
            gaps = gaps.saturating_add(before.map_or(0, |before| sequence.saturating_sub(before.saturating_add(1))));
            before = Some(sequence);
            let Some(mut record) = record::kmsg(line) else { continue };
            record.device = device.and_then(record::device);
            record
        } else {
            record::dmesg(line)
        };
        let Some(text) = reducer.kept(&record) else {
            last = Some((line, record.when));
            continue;
        };
        last = None;
        // The words of an SMMU's event look like GUIDs and are none.
        let text = if text.starts_with("arm-smmu-v3 ") { text.into_owned() } else { safe(&text) };
        write_line(&mut out, line, record.when, records, number + gaps, &text);
        number += 1;
        if let Some(device) = device.filter(|_| records) {
            let _ = writeln!(out, " {}", safe(device.trim()));
        }
    }
    if let Some((line, when)) = last.filter(|(_, when)| *when != When::Unknown) {
        write_line(&mut out, line, when, records, number + gaps, "-");
    }
    out
}

/// Lines, and the continuation that names their device.
fn entries(log: &str, records: bool) -> Vec<(&str, Option<&str>)> {
    let mut all: Vec<(&str, Option<&str>)> = Vec::new();
    for line in log.lines() {
        match all.last_mut() {
            Some((_, device)) if records && line.starts_with(' ') => {
                if record::device(line).is_some() {
                    *device = device.or(Some(line));
                }
            }
            _ => all.push((line, None)),
        }
    }
    all
}

fn write_line(out: &mut String, line: &str, when: When, records: bool, number: u64, text: &str) {
    // One line, as the log has it.
    let text = text.replace('\n', "\\x0a");
    let _ = match when {
        When::Boot(micros) if records => {
            let priority = line.split(',').next().and_then(|text| text.parse::<u8>().ok()).unwrap_or(6);
            writeln!(out, "{priority},{number},{micros},-;{text}")
        }
        When::Boot(micros) => writeln!(out, "[{:5}.{:06}] {text}", micros / 1_000_000, micros % 1_000_000),
        When::Wall(_) => writeln!(out, "[{}] {text}", record::wall_stamp(line).unwrap_or_default()),
        When::Unknown => writeln!(out, "{text}"),
    };
}

struct Reducer<'a> {
    reader: Reader,
    functions: BTreeSet<crate::model::ids::PciAddress>,
    names: &'a dyn Names,
}

impl Reducer<'_> {
    /// What of a line is kept.
    fn kept<'a>(&mut self, record: &'a Record<'_>) -> Option<Cow<'a, str>> {
        let before = self.reader.clone();
        let is_used = self.reader.read(record, self.names).is_some() || self.reader != before;
        let function = reader::rdma_function(record);
        let is_first = function.is_some_and(|function| self.functions.insert(function));
        if is_used || record.text.starts_with("random: crng reseeded due to virtual machine fork") {
            return Some(Cow::Borrowed(&record.text));
        }
        let function = function.filter(|_| is_first)?;
        let driver = record.text.split_ascii_whitespace().next()?;
        Some(Cow::Owned(format!("{driver} {function}: -")))
    }
}
