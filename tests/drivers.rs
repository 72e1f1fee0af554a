//! `docs/drivers.md`, compared with the tables of counters and kernel messages that it is made from; and the tables,
//! compared with the source of Linux 6.12 where Debian's package `linux-source-6.12` is installed, or `LANEWATCH_KERNEL`
//! names an unpacked one.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "common/mod.rs"]
mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use common::tools::skip;
use lanewatch::model::counter::{CounterClass, class};
use regex_lite::Regex;

use lanewatch::host::kmsg::rules;
use lanewatch::model::counter::catalogue;
use lanewatch::model::kmsg::{MessageKind, MessageSource};
use lanewatch::model::policy::Thresholds;

const BEGIN: &str = "<!-- drivers: generated from the program -->\n";
const END: &str = "<!-- end of drivers -->\n";

/// A driver's directory in the kernel's source, with what there is to look at: calls that log at warning or worse with a
/// text of their own, and counters by name.
struct LookedAt {
    driver: &'static str,
    directory: &'static str,
    log_calls: usize,
    counters: usize,
}

const fn looked_at(driver: &'static str, directory: &'static str, log_calls: usize, counters: usize) -> LookedAt {
    LookedAt { driver, directory, log_calls, counters }
}

/// Every RDMA driver of Linux 6.12, and the drivers of the same cards' functions. Held against the source by
/// `what_was_looked_at_is_counted`.
const LOOKED_AT: &[LookedAt] = &[
    looked_at("InfiniBand", "drivers/infiniband/core", 119, 21),
    looked_at("mlx5_ib", "drivers/infiniband/hw/mlx5", 126, 60),
    looked_at("mlx5_core", "drivers/net/ethernet/mellanox/mlx5/core", 1482, 0),
    looked_at("mlx4_ib", "drivers/infiniband/hw/mlx4", 111, 25),
    looked_at("mlx4_core", "drivers/net/ethernet/mellanox/mlx4", 609, 0),
    looked_at("irdma", "drivers/infiniband/hw/irdma", 28, 46),
    looked_at("ice", "drivers/net/ethernet/intel/ice", 640, 0),
    looked_at("i40e", "drivers/net/ethernet/intel/i40e", 238, 0),
    looked_at("iavf", "drivers/net/ethernet/intel/iavf", 112, 0),
    looked_at("bnxt_re", "drivers/infiniband/hw/bnxt_re", 162, 92),
    looked_at("bnxt_en", "drivers/net/ethernet/broadcom/bnxt", 284, 0),
    looked_at("efa", "drivers/infiniband/hw/efa", 67, 29),
    looked_at("erdma", "drivers/infiniband/hw/erdma", 14, 11),
    looked_at("hns_roce", "drivers/infiniband/hw/hns", 298, 22),
    looked_at("hns3", "drivers/net/ethernet/hisilicon/hns3", 698, 0),
    looked_at("mana_ib", "drivers/infiniband/hw/mana", 25, 0),
    looked_at("mana", "drivers/net/ethernet/microsoft/mana", 117, 0),
    looked_at("qedr", "drivers/infiniband/hw/qedr", 124, 0),
    looked_at("qed", "drivers/net/ethernet/qlogic/qed", 647, 0),
    looked_at("iw_cxgb4", "drivers/infiniband/hw/cxgb4", 102, 8),
    looked_at("cxgb4", "drivers/net/ethernet/chelsio/cxgb4", 269, 0),
    looked_at("ionic", "drivers/net/ethernet/pensando/ionic", 97, 0),
    looked_at("hfi1", "drivers/infiniband/hw/hfi1", 388, 545),
    looked_at("ib_qib", "drivers/infiniband/hw/qib", 300, 0),
    looked_at("ib_mthca", "drivers/infiniband/hw/mthca", 153, 0),
    looked_at("ocrdma", "drivers/infiniband/hw/ocrdma", 59, 0),
    looked_at("usnic_verbs", "drivers/infiniband/hw/usnic", 70, 0),
    looked_at("vmw_pvrdma", "drivers/infiniband/hw/vmw_pvrdma", 91, 0),
    looked_at("rdma_rxe", "drivers/infiniband/sw/rxe", 80, 15),
    looked_at("siw", "drivers/infiniband/sw/siw", 40, 0),
    looked_at("rdmavt", "drivers/infiniband/sw/rdmavt", 15, 0),
    looked_at("ib_ipoib", "drivers/infiniband/ulp/ipoib", 123, 0),
    looked_at("qede", "drivers/net/ethernet/qlogic/qede", 107, 0),
    looked_at("be2net", "drivers/net/ethernet/emulex/benet", 105, 0),
];

fn figures(out: &mut String) {
    out.push_str("\n## What was looked at\n\nEvery RDMA driver of Linux 6.12, and the drivers of their cards' functions. Log calls \
         are those at warning or worse; most of them tell of a caller's mistake and have no rule. Several calls may share a \
         rule. Counters without a class are those that the hardware corrected.\n\n| driver | directory | log calls | rules | \
         counters | with a class |\n|---|---|---|---|---|---|\n");
    let mut totals = [0; 4];
    for LookedAt { driver, directory, log_calls, counters } in LOOKED_AT {
        let (rules, classified) = (rules_of(directory), classified(driver));
        writeln!(out, "| {driver} | `{directory}` | {log_calls} | {rules} | {counters} | {classified} |").unwrap();
        for (total, value) in totals.iter_mut().zip([*log_calls, rules, *counters, classified]) {
            *total += value;
        }
    }
    let [log_calls, rules, counters, classified] = totals;
    writeln!(out, "| all | | {log_calls} | {rules} | {counters} | {classified} |").unwrap();
}

/// Lines of a directory's files that have a rule. A directory's own directories that are listed by themselves count there.
fn rules_of(directory: &str) -> usize {
    let is_below = |file: &str| owner(file) == Some(directory);
    let sources = rules::sources().filter(|source| is_below(source.file));
    sources.map(|source| source.lines.iter().filter(|line| !line.older).count()).sum()
}

/// The listed directory that a file is in: the longest.
fn owner(file: &str) -> Option<&'static str> {
    let holds = |directory: &&&str| file.strip_prefix(**directory).is_some_and(|rest| rest.starts_with('/'));
    let directories: Vec<&str> = LOOKED_AT.iter().map(|it| it.directory).collect();
    directories.iter().filter(holds).max_by_key(|directory| directory.len()).copied()
}

/// Counters of a driver that have a class or are levels, by the catalogue and by the rule for hfi1's names.
fn classified(driver: &str) -> usize {
    let known = catalogue::DRIVERS.iter().find(|known| known.driver == driver);
    let other = |names: &[(CounterClass, &[&str])]| -> usize {
        names.iter().filter(|(class, _)| *class == CounterClass::Other).map(|(_, names)| names.len()).sum()
    };
    // RcvHdrOvr stands in the catalogue for all contexts.
    let by_rule = if driver == "hfi1" { HFI1_BY_RULE - 1 } else { 0 };
    // Of drivers that later kernels let count there is nothing in 6.12.
    let in_source = LOOKED_AT.iter().any(|it| it.driver == driver && it.counters > 0);
    let known = known.filter(|_| in_source);
    known.map_or(0, |known| known.count() - other(known.classes) - newer(driver).len() + by_rule)
}

/// Counters of hfi1 that end in `Err` and were not corrected, and the 160 header queues that can overflow.
const HFI1_BY_RULE: usize = 355;

/// Counters that kernels after 6.12 have.
fn newer(driver: &str) -> &'static [&'static str] {
    match driver {
        "efa" => &[
            "retrans_pkts",
            "retrans_bytes",
            "retrans_timeout_events",
            "impaired_remote_conn_events",
            "unresponsive_remote_events",
        ],
        _ => &[],
    }
}

/// Where the source of Linux 6.12 is; `None` if it is not at hand.
fn kernel() -> Option<PathBuf> {
    if let Some(path) = env::var_os("LANEWATCH_KERNEL") {
        return Some(PathBuf::from(path));
    }
    let packed = Path::new("/usr/src/linux-source-6.12.tar.xz");
    let unpacked = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/linux-6.12");
    if !unpacked.join("drivers/infiniband").exists() && packed.exists() {
        fs::create_dir_all(&unpacked).unwrap();
        let mut tar = Command::new("tar");
        tar.arg("-xJf").arg(packed).args(["--strip-components=1", "--wildcards"]).current_dir(&unpacked);
        let wanted = ["infiniband", "net/ethernet", "vfio", "pci", "base"].map(|part| format!("*/drivers/{part}/*"));
        let status = tar.args(wanted).arg("*/net/sched/sch_generic.c").status().unwrap();
        assert!(status.success(), "tar: {status}");
    }
    let there = unpacked.join("drivers/infiniband").exists();
    if !there {
        skip("the source of Linux 6.12 is not here (Debian's linux-source-6.12)");
    }
    there.then_some(unpacked)
}

/// A file of the kernel without comments, with texts that go over several lines joined.
fn source(kernel: &Path, file: &str) -> String {
    let text = String::from_utf8_lossy(&fs::read(kernel.join(file)).unwrap_or_else(|error| panic!("{file}: {error}")))
        .into_owned();
    joined(&without_comments(&text))
}

fn without_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("/*") {
        out.push_str(before);
        rest = after.split_once("*/").map_or("", |(_, after)| after);
    }
    out + rest
}

fn joined(text: &str) -> String {
    Regex::new(r#""\s*\\?\s*\n\s*""#).unwrap().replace_all(text, "").into_owned()
}

/// Every rule's format string stands in the file that the rule names.
#[test]
fn every_rule_is_a_line_of_the_kernel() {
    let Some(kernel) = kernel() else { return };
    let mut lines = 0;
    for source_file in rules::sources() {
        let text = source(&kernel, source_file.file);
        for line in source_file.lines.iter().filter(|line| !line.older) {
            let quoted = line.format.replace('"', "\\\"");
            assert!(text.contains(line.format) || text.contains(&quoted), "{}: {:?}", source_file.file, line.format);
            lines += 1;
        }
    }
    assert!(lines > 350, "{lines}");
}

/// The counters that a driver's source names.
fn counters_in_source(kernel: &Path, driver: &str, file: &str) -> BTreeSet<String> {
    let text = source(kernel, file);
    let all = |text: &str, pattern: &str| -> Vec<String> {
        let found = Regex::new(pattern).unwrap();
        found.captures_iter(text).filter_map(|found| Some(found.get(1)?.as_str().to_owned())).collect()
    };
    let named = |pattern: &str| -> BTreeSet<String> {
        all(&text, pattern).into_iter().filter(|name| name != "_name").collect()
    };
    match driver {
        "InfiniBand" => named(r"static PORT_PMA_ATTR(?:_EXT)?\((\w+)"),
        "mlx5_ib" => {
            let vports = named(r"INIT_VPORT_Q_COUNTER\((\w+)").into_iter().map(|name| format!("vport_{name}"));
            let own = named(r"INIT_(?:Q|CONG|EXT_PPCNT|OP)_COUNTER\((\w+)");
            own.into_iter().chain(vports).collect()
        }
        "mlx4_ib" => named(r"DIAG_COUNTER\((\w+)"),
        "efa" => named(r#"op\(EFA_\w+,\s*"(\w+)"\)"#),
        "hns_roce" => named(r#"HNS_ROCE_HW_CNT\(\w+,\s*"(\w+)"\)"#),
        "hfi1" => {
            let between = |start: &str| {
                let (_, rest) = text.split_once(start).unwrap();
                rest.split_once("\n};").unwrap().0.to_owned()
            };
            let tables =
                between("cntr_entry dev_cntrs[DEV_CNTR_LAST]") + &between("cntr_entry port_cntrs[PORT_CNTR_LAST]");
            let literal = all(&tables, r#"CNTR_ELEM\(\s*"([^"]+)""#);
            let bare = all(&tables, r"\b\w*CNTR(?:_ELEM|_LCB)?\(\s*([A-Za-z]\w*)\s*,");
            let contexts = all(&tables, r"OVR_ELM\((\d+)\)").into_iter().map(|context| format!("RcvHdrOvr{context}"));
            let own = all(&source(kernel, "drivers/infiniband/hw/hfi1/verbs.c"), r#""(DRIVER_\w+)""#);
            literal.into_iter().chain(bare).chain(contexts).chain(own).collect()
        }
        _ => named(r#"\]\.name\s*=\s*"(\w+)""#),
    }
}

/// Whether a name of hfi1 says by itself what it is: `Err` at its end, a context's number, or nothing at all.
fn follows_the_rule(name: &str) -> bool {
    name.ends_with("Err") || name.contains(" Reserved ") || name == "Cce LATriggered" || name.starts_with("RcvHdrOvr")
}

#[test]
fn every_counter_of_the_kernel_is_in_the_catalogue() {
    let Some(kernel) = kernel() else { return };
    for known in catalogue::DRIVERS.iter().filter(|known| kernel.join(known.file).exists()) {
        let there = counters_in_source(&kernel, known.driver, known.file);
        let names = known.classes.iter().flat_map(|(_, names)| *names).chain(known.levels);
        let listed: BTreeSet<String> = names.map(|name| (*name).to_owned()).collect();
        let by_rule = |name: &&String| known.driver == "hfi1" && follows_the_rule(name);
        let missing: Vec<&String> = there.difference(&listed).filter(|name| !by_rule(name)).collect();
        assert!(missing.is_empty(), "{}: not in the catalogue: {missing:?}", known.driver);
        let gone = listed.difference(&there).filter(|name| !newer(known.driver).contains(&name.as_str()));
        // RcvHdrOvr stands for all contexts.
        let gone: Vec<&String> = gone.filter(|name| *name != "RcvHdrOvr").collect();
        assert!(gone.is_empty(), "{}: not in the kernel: {gone:?}", known.driver);
    }
}

fn is_c(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "c" || extension == "h")
}

/// The figures of the page are those of the source.
#[test]
fn what_was_looked_at_is_counted() {
    let Some(kernel) = kernel() else { return };
    let call =
        Regex::new(r#"\b(\w*(?:err|warn|crit|alert|emerg|ERR|WARN|NOTICE)\w*)\s*\([^;{}"]*"(?:[^"\\]|\\.)*""#).unwrap();
    let mut wrong = String::new();
    for LookedAt { driver, directory, log_calls, counters } in LOOKED_AT {
        let mut calls = 0;
        let mut folders = vec![kernel.join(directory)];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
                let path = entry.unwrap().path();
                let file = path.strip_prefix(&kernel).unwrap().to_str().unwrap().to_owned();
                if path.is_dir() {
                    folders.push(path);
                } else if owner(&file) == Some(directory) && is_c(Path::new(&file)) {
                    // What goes to a caller by netlink is no line of the log, and a WARN is the driver's own mistake.
                    let is_log =
                        |name: &str| !["NL_SET", "WARN", "netif_msg"].iter().any(|start| name.starts_with(start));
                    let text = source(&kernel, &file);
                    let found = call.captures_iter(&text).filter_map(|found| Some(found.get(1)?.as_str().to_owned()));
                    calls += found.filter(|name| is_log(name)).count();
                }
            }
        }
        let known = catalogue::DRIVERS.iter().find(|known| known.driver == *driver && kernel.join(known.file).exists());
        let there = known.map(|known| counters_in_source(&kernel, driver, known.file)).unwrap_or_default();
        if (calls, there.len()) != (*log_calls, *counters) {
            writeln!(wrong, "    looked_at({driver:?}, {directory:?}, {calls}, {}),", there.len()).unwrap();
        }
        if *driver == "hfi1" {
            let classified = |name: &&String| follows_the_rule(name) && class(name) != CounterClass::Other;
            assert_eq!(there.iter().filter(classified).count(), HFI1_BY_RULE);
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

fn counters(out: &mut String) {
    let limits = Thresholds::default().errors;
    out.push_str("\n## Counters\n\nThe class is the label of `lanewatch_port_events_total`. A counter with a limit makes a finding \
         (`port_errors`); `[policy.threshold.errors]` changes limits and sets new ones.\n");
    for driver in catalogue::DRIVERS {
        write!(
            out,
            "\n### {}: {} counters\n\nSource: `{}`.\n\n| class | counters |\n|---|---|\n",
            driver.driver,
            driver.count(),
            driver.file
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
        if !driver.levels.is_empty() {
            let names: Vec<String> = driver.levels.iter().map(|name| format!("`{name}`")).collect();
            writeln!(out, "| level | {} |", names.join(", ")).unwrap();
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
    figures(&mut made);
    counters(&mut made);
    messages(&mut made);
    let expected = format!("{before}{BEGIN}{made}\n{END}{after}");
    if env::var_os("LANEWATCH_UPDATE").is_some() {
        fs::write(&path, &expected).unwrap();
    } else {
        assert!(page == expected, "docs/drivers.md is not what the program knows: LANEWATCH_UPDATE=1 rewrites it");
    }
}
