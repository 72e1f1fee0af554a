//! `docs/drivers.md`, compared with the tables of counters and kernel messages that it is made from.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

use lanewatch::host::kmsg::rules;
use lanewatch::model::counter::catalogue;
use lanewatch::model::kmsg::{MessageKind, MessageSource};
use lanewatch::model::policy::Thresholds;

const BEGIN: &str = "<!-- drivers: generated from the program -->\n";
const END: &str = "<!-- end of drivers -->\n";

fn counters(out: &mut String) {
    let limits = Thresholds::default().errors;
    out.push_str("\n## Counters\n\nThe class is the label of `lanewatch_port_events_total`. A counter with a limit makes a finding \
         (`port_errors`); `[policy.threshold.errors]` changes limits and sets new ones.\n");
    for driver in catalogue::DRIVERS {
        let count: usize = driver.classes.iter().map(|(_, names)| names.len()).sum();
        write!(
            out,
            "\n### {}: {count} counters\n\nSource: `{}`.\n\n| class | counters |\n|---|---|\n",
            driver.driver, driver.file
        )
        .unwrap();
        for (class, names) in driver.classes {
            let names: Vec<String> = names
                .iter()
                .map(|name| match limits.iter().find(|limit| limit.counter == *name) {
                    Some(limit) => format!("`{name}` (most: {})", limit.text),
                    None => format!("`{name}`"),
                })
                .collect();
            writeln!(out, "| {} | {} |", class.as_str(), names.join(", ")).unwrap();
        }
    }
}

fn messages(out: &mut String) {
    let mut by_driver: BTreeMap<MessageSource, Vec<(&str, String, MessageKind)>> = BTreeMap::new();
    for source in rules::sources() {
        for driver in source.drivers {
            for line in source.lines {
                let mut text = format!("`{}`", line.format.replace('|', "\\|"));
                if !line.word.is_empty() {
                    write!(text, " with `{}`", line.word).unwrap();
                }
                if line.older {
                    text.push_str(" (other kernels)");
                }
                by_driver.entry(*driver).or_default().push((source.file, text, line.kind));
            }
        }
    }
    let lines: usize = by_driver.values().map(Vec::len).sum();
    write!(
        out,
        "\n## Kernel messages\n\n{lines} lines of {} drivers, each with the file of Linux 6.12 that has it. The kind is the \
         `reason` of `kernel_message` and a label of `lanewatch_kernel_messages_total`. PCIe errors (AER and those that the \
         firmware takes first) and IOMMU faults are read from their own formats.\n",
        by_driver.len()
    )
    .unwrap();
    for (driver, lines) in by_driver {
        write!(
            out,
            "\n### {}: {} lines\n\n| kind | severity | text | source |\n|---|---|---|---|\n",
            driver.as_str(),
            lines.len()
        )
        .unwrap();
        for (file, text, kind) in lines {
            let severity = format!("{:?}", kind.severity()).to_lowercase();
            writeln!(out, "| {} | {severity} | {text} | `{file}` |", kind.as_str()).unwrap();
        }
    }
}

#[test]
fn the_page_lists_every_counter_and_message() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/drivers.md");
    let page = fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    let mut made = String::new();
    counters(&mut made);
    messages(&mut made);
    let expected = format!("{before}{BEGIN}{made}\n{END}{after}");
    if env::var_os("LANEWATCH_UPDATE").is_some() {
        fs::write(&path, &expected).unwrap();
    } else {
        assert!(page == expected, "docs/drivers.md is not what the program knows: LANEWATCH_UPDATE=1 rewrites it");
    }
}
