//! A snapshot of every recorded host, replayed: the same is found, and nothing is known that was not known before.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use lanewatch::host::collector::{Filter, Setup};
use lanewatch::host::fs::Fs;
use lanewatch::host::io::Roots;
use lanewatch::host::netlink::socket::Protocol;
use lanewatch::host::recording::{
    FILE, KEPT, Manifest, Recorded, RecordedEntry, Recording, ReplayedHost, Scrubber, allowed,
};
use lanewatch::host::{COLLECTORS, Host, HostIo};
use lanewatch::model::policy::Policy;
use lanewatch::watch::clock::ManualClock;
use lanewatch::watch::{Engine, Poller};
use tempfile::TempDir;

use crate::case::Stage;
use crate::common::ethtool::{Drivers, Fec, Interface};
use crate::common::host::{HostTree, Layer};
use crate::judge::Reading;
use crate::replay::{IP_LINK, reading, route};

/// The host of a case.
fn recorded_host(stage: &Stage) -> Host {
    let host = stage.host();
    let roots = Roots {
        libvirt: host.join("libvirt"),
        run_libvirt: host.join("run-libvirt"),
        netns: host.join("netns"),
        ..Roots::below(&host)
    };
    let route = host.join(IP_LINK).exists().then(|| route(host.join(IP_LINK)));
    let (sysfs, procfs) = (host.join("sys"), host.join("proc"));
    Host { io: Arc::new(Fs::recorded()), sysfs, procfs, roots, route, ethtool: None, live: false }
}

/// What one pass over a host finds.
fn judge(host: &Host) -> Reading {
    let setup = Setup { host: host.clone(), filter: Filter::default() };
    let start = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    let clock = Arc::new(ManualClock::new(start, Duration::from_secs(86_400)));
    let engine = Engine::new(Arc::new(Policy::default()), true);
    let mut poller = Poller::new(&setup, COLLECTORS.iter().copied(), clock, engine, None).unwrap();
    reading(&poller.pass(Duration::from_secs(20))).unwrap()
}

/// Unpacks a recording as the archive does.
fn unpack(recorded: &Recorded, directory: &Path) -> Host {
    for (path, entry) in &recorded.entries {
        let path = directory.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        match entry {
            RecordedEntry::Directory => fs::create_dir_all(path).unwrap(),
            RecordedEntry::File(content) => fs::write(path, content).unwrap(),
            RecordedEntry::Link(target) => symlink(target, path).unwrap(),
            RecordedEntry::Unreadable(_) => {
                fs::create_dir_all(&path).unwrap();
                fs::write(path.join(KEPT), "").unwrap();
            }
        }
    }
    for root in ["sys", "proc"] {
        fs::create_dir_all(directory.join(root)).unwrap();
    }
    fs::write(directory.join(FILE), Manifest::of(recorded).encode().unwrap()).unwrap();
    let io: Arc<dyn HostIo> = Arc::new(ReplayedHost::open(directory).unwrap());
    let (route, ethtool) = (io.netlink(Protocol::Route), io.ethtool());
    let (sysfs, procfs) = (directory.join("sys"), directory.join("proc"));
    Host { io, sysfs, procfs, roots: Roots::below(directory), route, ethtool, live: false }
}

/// Series that are the program's own, or of the time that reading took.
fn is_own(name: &str) -> bool {
    name.starts_with("process_")
        || ["_seconds", "_timestamp", "build_info"].iter().any(|part| name.contains(part))
            && !name.contains("_per_second")
}

fn samples(reading: &Reading) -> Vec<String> {
    let mut lines: Vec<String> =
        reading.samples.iter().filter(|sample| !is_own(&sample.name)).map(|sample| format!("{sample:?}")).collect();
    lines.sort();
    lines
}

fn findings(reading: &Reading, scrub: &mut Scrubber) -> Vec<String> {
    let mut lines: Vec<String> = reading
        .findings
        .iter()
        .map(|finding| {
            let subject = scrub.text(&finding.subject);
            format!("{} {subject} {} {}", finding.check, finding.reason, finding.severity)
        })
        .collect();
    lines.sort();
    lines
}

fn difference(before: &[String], after: &[String]) -> Vec<String> {
    let lost = before.iter().filter(|line| !after.contains(line)).map(|line| format!("lost  {line}"));
    let new = after.iter().filter(|line| !before.contains(line)).map(|line| format!("new   {line}"));
    lost.chain(new).collect()
}

#[test]
fn a_snapshot_of_every_recorded_host_says_the_same() {
    let (mut wrong, mut hosts, mut found) = (Vec::new(), 0, 0);
    for case in crate::cases() {
        let stage = case.stage().unwrap_or_else(|error| panic!("{}: {error}", case.name));
        for moment in 0..stage.moments.len() {
            stage.show(moment).unwrap();
            let host = recorded_host(&stage);
            let before = judge(&host);
            let (recording, recorded) = Recording::of(&host);
            judge(&recorded);
            let everything = recording.recorded();
            let of_files = |scrubber: &mut Scrubber| {
                let directory = TempDir::new().unwrap();
                let host = unpack(&allowed(&everything, scrubber, &host), directory.path());
                judge(&host)
            };
            let (mut keeping, mut replacing) = (Scrubber::keeping(), Scrubber::default());
            let (kept, replaced) = (of_files(&mut keeping), of_files(&mut replacing));
            let name = format!("{} at {moment}", case.name);
            let mut report = |what: &str, lines: Vec<String>| {
                if !lines.is_empty() {
                    wrong.push(format!("{name}, {what}:\n  {}", lines.join("\n  ")));
                }
            };
            report("findings", difference(&findings(&before, &mut keeping), &findings(&kept, &mut keeping)));
            report("series", difference(&samples(&before), &samples(&kept)));
            let expected = findings(&before, &mut replacing);
            report("findings, identifiers replaced", difference(&expected, &findings(&replaced, &mut keeping)));
            (hosts, found) = (hosts + 1, found + before.findings.len());
        }
    }
    assert!(wrong.is_empty(), "{} of {hosts} hosts differ\n{}", wrong.len(), wrong.join("\n"));
    assert!(hosts > 50 && found > 50, "{hosts} hosts, {found} findings");
    println!("{hosts} hosts, {found} findings");
}

/// Series of interfaces.
fn statistics(reading: &Reading) -> Vec<String> {
    samples(reading).into_iter().filter(|line| line.contains("lanewatch_netdev")).collect()
}

#[test]
fn what_drivers_answered_over_ethtool_is_in_a_snapshot() {
    let root = TempDir::new().unwrap();
    let mut tree = HostTree::new(3);
    for card in &mut tree.cards {
        (card.layer, card.rate) = (Layer::Ethernet, "100 Gb/sec (4X EDR)");
    }
    tree.write(root.path()).unwrap();
    let netdevs: Vec<String> = tree
        .devices()
        .iter()
        .map(|device| fs::read_dir(root.path().join(&device.function).join("net")).unwrap().next().unwrap().unwrap())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    let drivers = Drivers::default();
    let own = [("rx_prio3_pause", 11), ("rx_discards_phy", 22), ("rx_crc_errors_phy", 33), ("canary_of_a_driver", 44)];
    drivers.set(&netdevs[0], |interface| {
        interface.statistics = own.map(|(name, value)| (name.to_owned(), value)).into();
        interface.fec = Some(Fec { active: 50, lost: vec![55], ..Fec::default() });
    });
    // One without statistics, and one that the driver does not know.
    drivers.set(&netdevs[1], |interface| *interface = Interface { downs: Some(66), ..Interface::default() });
    let (sysfs, procfs, roots) = (root.path().join("sys"), root.path().join("proc"), Roots::below(root.path()));
    let ethtool = Some(drivers.access());
    let host = Host { io: Arc::new(Fs::recorded()), sysfs, procfs, roots, route: None, ethtool, live: false };
    let before = judge(&host);
    for value in [11, 22, 33, 55, 66] {
        let text = format!("text: \"{value}\"");
        assert!(statistics(&before).iter().any(|line| line.contains(&text)), "{value}: {:#?}", statistics(&before));
    }
    let (recording, recorded) = Recording::of(&host);
    judge(&recorded);
    let everything = recording.recorded();
    for mut scrubber in [Scrubber::keeping(), Scrubber::default()] {
        let directory = TempDir::new().unwrap();
        let replayed = judge(&unpack(&allowed(&everything, &mut scrubber, &host), directory.path()));
        // Identifiers of devices are others; names of interfaces are not.
        let all: fn(&Reading) -> Vec<String> = if scrubber.keeps() { samples } else { statistics };
        assert_eq!(difference(&all(&before), &all(&replayed)), [""; 0]);
        let manifest = fs::read_to_string(directory.path().join(FILE)).unwrap();
        assert!(manifest.contains("rx_discards_phy") && !manifest.contains("canary"), "{manifest}");
    }
}
