//! The kernel log: what is new and what is history, bursts that drop records, an agent that starts again.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lanewatch::export::{Format, Process, encode};
use lanewatch::model::check::{Check, Severity};
use lanewatch::model::finding::EventKind;
use lanewatch::model::kmsg::{KernelLog, MessageKind, MessageSource};
use lanewatch::watch::HostReport;
use tempfile::TempDir;

use super::common::exposition::parse;
use super::common::faulty::Faulty;
use super::common::hand::{Hand, found, of};
use super::common::host::HostTree;
use super::{HOUR, MINUTE};

/// When the agent starts, after boot.
const START: Duration = Duration::from_secs(2 * 3600);

/// A record: facility and level, number, seconds since boot, text.
fn record(log: &mut String, priority: u8, number: u64, second: u64, text: &str) {
    let _ = writeln!(log, "{priority},{number},{},-;{text}\n SUBSYSTEM=pci", second * 1_000_000);
}

fn lost_link(address: &str) -> String {
    format!("mlx5_core {address} ib0: Link down")
}

fn log(report: &HostReport) -> &KernelLog {
    report.snapshot.all::<KernelLog>().next().unwrap()
}

fn links_down(report: &HostReport) -> u64 {
    let pair = (MessageSource::Mlx5Core, MessageKind::LinkDown);
    log(report).counts.iter().find(|(other, _)| *other == pair).map_or(0, |(_, count)| *count)
}

fn losses(report: &HostReport) -> Vec<String> {
    let lost = report.events.iter().filter(|event| event.kind == EventKind::KernelLogLost);
    lost.map(|event| event.text.clone()).collect()
}

/// Series of kernel messages in the exposition, and the value of the one that counts what was lost.
fn series(report: &Arc<HostReport>) -> (usize, f64) {
    let mut text = String::new();
    encode(Format::Text, report, &Arc::default(), Process::default(), &mut text).unwrap();
    let samples = parse(&text).unwrap();
    let lost = samples.iter().find(|sample| sample.name == "lanewatch_kernel_messages_lost_total").unwrap().value;
    (samples.iter().filter(|sample| sample.name == "lanewatch_kernel_messages_total").count(), lost)
}

fn start(io: &Arc<Faulty>, state: &Path, since: Duration) -> Hand {
    io.memory.set("/proc/uptime", format!("{}.00 1.00\n", since.as_secs() + 5));
    Hand::new(io, Some(state), since)
}

#[test]
fn a_burst_of_a_hundred_thousand_lines_is_counted_bounded_and_its_losses_said() {
    // What a ring of half a megabyte holds.
    const RING: u64 = 4_000;
    let (io, devices) = of(&HostTree::new(2));
    let (state, now) = (TempDir::new().unwrap(), START.as_secs());
    io.memory.set("/kmsg", format!("6,0,1000000,-;{}\n", lost_link(&devices[0].address)));
    let mut hand = start(&io, state.path(), START);
    let first = hand.pass();
    assert_eq!((links_down(&first), losses(&first)), (0, vec![]), "what was there is history");
    let (series_before, lost) = series(&first);
    assert!(lost.abs() < 1e-9);
    // A hundred thousand lines within a second, of which the kernel keeps the last ones.
    let mut ring = String::new();
    for number in 100_001 - RING..=100_000 {
        record(&mut ring, 4, number, now + 8, &lost_link(&format!("0000:05:{:02x}.{}", number / 8 % 5, number % 8)));
    }
    io.memory.set("/kmsg", ring);
    let burst = hand.pass();
    assert_eq!(links_down(&burst), RING);
    assert_eq!(log(&burst).lost, 100_000 - RING);
    assert_eq!(
        losses(&burst),
        [format!("{} kernel log records were dropped before they could be read", 100_000 - RING)]
    );
    assert!(log(&burst).groups.len() <= 256, "{} groups", log(&burst).groups.len());
    assert!(log(&burst).groups.iter().all(|group| group.moments.len() <= 8));
    assert!(found(&burst, Check::KernelMessage).len() <= 256);
    let (series_after, lost) = series(&burst);
    assert_eq!((series_before, series_after), (0, 1), "one kind of message is one series");
    assert!((lost - 96_000.0).abs() < 1e-9, "{lost}");
    let next = hand.pass();
    assert_eq!((links_down(&next), losses(&next).len()), (RING, 1), "once");
}

#[test]
fn an_agent_that_starts_again_counts_nothing_twice() {
    let (io, devices) = of(&HostTree::new(2));
    let (state, now) = (TempDir::new().unwrap(), START.as_secs());
    let bad = format!("mlx5_core {}: device's health compromised - reached miss count", devices[0].address);
    let health = |report: &HostReport| {
        found(report, Check::KernelMessage)
            .into_iter()
            .map(|f| (f.condition.severity, f.condition.reason.as_str()))
            .collect::<Vec<_>>()
    };
    let count = |report: &HostReport| {
        let pair = (MessageSource::Mlx5Core, MessageKind::DeviceHealth);
        log(report).counts.iter().find(|(other, _)| *other == pair).map(|(_, count)| *count)
    };
    let mut ring = String::new();
    record(&mut ring, 6, 0, 10, "Linux version 6.1.0");
    io.memory.set("/kmsg", &*ring);
    let mut hand = start(&io, state.path(), START);
    assert_eq!(health(&hand.pass()), vec![]);
    record(&mut ring, 3, 1, now + 6, &bad);
    // Whoever writes to the log is no kernel: facility 3 is a daemon's.
    record(&mut ring, 27, 2, now + 6, &bad);
    io.memory.set("/kmsg", &*ring);
    let report = hand.pass();
    assert_eq!((health(&report), count(&report)), (vec![(Severity::Critical, "device_health")], Some(1)));
    // How far it was read is kept once a minute.
    hand.after(MINUTE);
    drop(hand);
    let mut hand = start(&io, state.path(), START + 10 * MINUTE);
    let report = hand.pass();
    assert_eq!(
        (health(&report), count(&report)),
        (vec![(Severity::Critical, "device_health")], Some(0)),
        "it still holds"
    );
    assert_eq!(losses(&report), [""; 0]);
    record(&mut ring, 3, 3, now + 606, &bad);
    io.memory.set("/kmsg", &*ring);
    assert_eq!(count(&hand.pass()), Some(1), "what comes now is new");
    // How far it was read is kept once a minute.
    hand.after(MINUTE);
    drop(hand);
    // While it does not run, more is said than the kernel keeps.
    let mut ring = String::new();
    for number in 104..110 {
        record(&mut ring, 6, number, now + 1200, "something else");
    }
    io.memory.set("/kmsg", &*ring);
    let mut hand = start(&io, state.path(), START + 30 * MINUTE);
    let report = hand.pass();
    assert_eq!(count(&report), Some(0));
    assert_eq!(losses(&report), ["up to 100 kernel log records were dropped while the agent was not running"]);
    drop(hand);
    // Numbers begin again with each boot: nothing is lost then.
    io.memory.set("/proc/sys/kernel/random/boot_id", "00000000-7d0e-4c3b-9a57-0d4bb8e1f203\n");
    let mut hand = start(&io, state.path(), HOUR);
    assert_eq!(losses(&hand.pass()).len(), 1, "that of before");
}
