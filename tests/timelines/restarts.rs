//! Losses of links while the agent is stopped or killed: each is recorded once.

use std::fs;
use std::path::Path;
use std::time::Duration;

use super::common::hand::{Hand, of};
use super::common::host::HostTree;
use super::{HOUR, MINUTE};
use tempfile::TempDir;

/// Losses in the journal: of each event of a port, how many it tells of.
fn losses(state: &Path) -> u64 {
    let journal: String = fs::read_dir(state)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().contains("events"))
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    let events = journal.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let count = |event: serde_json::Value| {
        let text = event["text"].as_str()?.to_owned();
        let rest = text.split_once("lost its link ")?.1.trim_start_matches("and got it back ").to_owned();
        Some(match rest.split(' ').next()? {
            "once" => 1,
            "twice" => 2,
            number => number.parse().unwrap_or_else(|_| panic!("{text}")),
        })
    };
    events.filter(|event| event["kind"] == "port_flap").filter_map(count).sum()
}

#[test]
fn losses_while_the_agent_is_stopped_are_recorded() {
    let (io, devices) = of(&HostTree::new(1));
    io.memory.set("/proc/uptime", "99999.00 1.00\n");
    io.memory.set("/proc/sys/kernel/random/boot_id", "11111111-2222-3333-4444-555555555555\n");
    let state = TempDir::new().unwrap();
    let downed = |value: u64| io.memory.set(devices[0].port.join("counters/link_downed"), format!("{value}\n"));
    downed(3);
    let mut hand = Hand::new(&io, Some(state.path()), 2 * HOUR);
    hand.pass();
    drop(hand);
    downed(10);
    let mut hand = Hand::new(&io, Some(state.path()), 2 * HOUR + 10 * MINUTE);
    hand.pass();
    assert_eq!(losses(state.path()), 7);
    drop(hand);
    // Once is enough, and another boot begins at zero.
    let mut hand = Hand::new(&io, Some(state.path()), 2 * HOUR + 20 * MINUTE);
    hand.pass();
    drop(hand);
    io.memory.set("/proc/sys/kernel/random/boot_id", "66666666-2222-3333-4444-555555555555\n");
    downed(30);
    let mut hand = Hand::new(&io, Some(state.path()), 3 * HOUR);
    hand.pass();
    assert_eq!(losses(state.path()), 7);
}

#[test]
fn every_loss_is_recorded_once_over_500_kills() {
    let (io, devices) = of(&HostTree::new(1));
    io.memory.set("/proc/uptime", "99999.00 1.00\n");
    io.memory.set("/proc/sys/kernel/random/boot_id", "11111111-2222-3333-4444-555555555555\n");
    let state = TempDir::new().unwrap();
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    let (mut downed, mut since) = (0, 2 * HOUR);
    let names = ["state.json", "state.previous.json"];
    for kill in 0..500 {
        let mut hand = Hand::new(&io, Some(state.path()), since);
        for pass in 0..=next(4) {
            if kill + pass > 0 && next(3) == 0 {
                downed += 1 + next(3);
            }
            io.memory.set(devices[0].port.join("counters/link_downed"), format!("{downed}\n"));
            let down = next(6) == 0;
            let text = if down { "1: DOWN\n" } else { "4: ACTIVE\n" };
            if down && kill + pass > 0 {
                downed += 1;
                io.memory.set(devices[0].port.join("counters/link_downed"), format!("{downed}\n"));
            }
            io.memory.set(devices[0].port.join("state"), text);
            // Killed after the journal was written and before the state was.
            let before: Vec<_> = names.map(|name| fs::read(state.path().join(name)).ok()).into();
            hand.pass();
            if next(5) == 0 {
                for (name, bytes) in names.iter().zip(before) {
                    if let Some(bytes) = bytes {
                        fs::write(state.path().join(name), bytes).unwrap();
                    }
                }
                break;
            }
        }
        since += Duration::from_secs(60);
    }
    io.memory.set(devices[0].port.join("state"), "4: ACTIVE\n");
    let mut hand = Hand::new(&io, Some(state.path()), since);
    for _ in 0..3 {
        hand.pass();
    }
    assert_eq!(losses(state.path()), downed);
}
