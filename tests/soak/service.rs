//! The program itself, over a host that changes: drops, reloads, rotations, a full disk, kill -9.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::client::{Connection, trust};
use super::common::certs::write;
use super::fixture::{Fixture, tls};
use super::journal::{count, events};
use crate::common::cost::open_files;
use crate::common::host::{Device, HostTree};
use crate::common::tools::skip;

const ROUNDS: usize = 24;

/// A file system in memory of little size, where one may be mounted.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: &Path) -> Option<Self> {
        fs::create_dir_all(at).unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=512k", "tmpfs"]).arg(at).output();
        if mounted.is_ok_and(|output| output.status.success()) {
            return Some(Self(at.to_owned()));
        }
        skip("no small disk may be mounted: the rounds with a full one are left out");
        None
    }

    /// Leaves no room.
    fn fill(&self) {
        let mut file = fs::File::create(self.0.join("filler")).unwrap();
        while file.write_all(&[0; 512]).is_ok() {}
    }

    fn empty(&self) {
        fs::remove_file(self.0.join("filler")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).output();
    }
}

/// The program, and what it should know.
struct Soak {
    fixture: Fixture,
    devices: Vec<Device>,
    trust: Arc<rustls::ClientConfig>,
    drops: usize,
}

impl Soak {
    fn get(&self, path: &str) -> String {
        let mut connection = Connection::open(self.fixture.address, &self.trust).unwrap();
        String::from_utf8(connection.body(path).unwrap()).unwrap()
    }

    /// Scrapes until the newest event of a port's state says this.
    fn until_port_is(&self, name: &str, state: &str) {
        let (subject, text) = (format!("{name}/1"), format!("to {state}"));
        let began = Instant::now();
        loop {
            let document: serde_json::Value = serde_json::from_str(&self.get("/api/v1/events")).unwrap();
            let mut newest = document["events"].as_array().unwrap().iter();
            let newest = newest.find(|event| event["kind"] == "port_state" && event["subject"] == subject.as_str());
            if newest.is_some_and(|event| event["text"].as_str().unwrap().ends_with(&text)) {
                return;
            }
            assert!(began.elapsed() < Duration::from_secs(30), "{subject} {text}: {newest:?}\n{}", self.fixture.log());
            thread::sleep(Duration::from_millis(100));
        }
    }

    fn set(&self, device: &Device, up: bool) {
        let port = self.fixture.path("host").join(&device.port);
        let (state, physical) = if up { ("4: ACTIVE\n", "5: LinkUp\n") } else { ("1: DOWN\n", "3: Disabled\n") };
        fs::write(port.join("phys_state"), physical).unwrap();
        fs::write(port.join("state"), state).unwrap();
    }

    /// A port loses its link and gets it back, and both are seen.
    fn drop_link(&mut self, round: usize) {
        let device = self.devices[round % self.devices.len()].clone();
        self.set(&device, false);
        self.until_port_is(&device.name, "DOWN");
        self.set(&device, true);
        self.until_port_is(&device.name, "ACTIVE");
        self.drops += 1;
    }

    fn resident_kib(&self) -> u64 {
        let pid = self.fixture.group.as_ref().unwrap().pid();
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    }

    fn descriptors(&self) -> usize {
        open_files(self.fixture.group.as_ref().unwrap().pid())
    }
}

#[test]
#[ignore = "takes minutes; make soak runs it"]
fn a_badly_treated_agent_loses_no_event_and_grows_nothing() {
    let fixture = Fixture::new();
    let state = fixture.path("state");
    let disk = SmallDisk::mount(&state);
    let config = fixture.path("lanewatch.toml");
    fs::write(&config, "").unwrap();
    let arguments = ["--config.file", config.to_str().unwrap()];
    let fixture = fixture.start_with(&tls(&[]), &arguments);
    let trust = trust(&fixture.ca);
    let devices = HostTree::new(2).devices();
    let mut soak = Soak { fixture, devices, trust, drops: 0 };
    let (mut reloads, mut rotations, mut kills, mut fills, mut restarted) = (0, 0, 0, 0, 0);
    let mut held: Vec<(u64, usize)> = Vec::new();
    let began = Instant::now();
    for round in 0..ROUNDS {
        soak.drop_link(round);
        let log = |text: &str| soak.fixture.log().matches(text).count();
        let (configured, rotated) = (log("message=\"configuration reloaded"), log("web configuration reloaded"));
        let severity = ["warning", "critical"][round % 2];
        fs::write(&config, format!("[policy.severity]\nport_flapping = \"{severity}\"\n")).unwrap();
        soak.fixture.wait_for_log("message=\"configuration reloaded", configured + 1);
        reloads += 1;
        let number = u64::try_from(round).unwrap() + 2;
        write(soak.fixture.directory.path(), "server", &soak.fixture.authority.server(number));
        soak.fixture.wait_for_log("web configuration reloaded", rotated + 1);
        rotations += 1;
        if let Some(disk) = disk.as_ref().filter(|_| round % 6 == 2) {
            disk.fill();
            let complaints = soak.fixture.log().matches("cannot save the state").count();
            soak.drop_link(round + 1);
            soak.fixture.wait_for_log("cannot save the state", complaints + 1);
            disk.empty();
            fills += 1;
            // What waited is written with what comes next.
            soak.drop_link(round);
        }
        held.push((soak.resident_kib(), soak.descriptors()));
        if round % 8 == 7 && round + 1 < ROUNDS {
            let group = soak.fixture.group.take().unwrap();
            group.signal(Signal::KILL);
            drop(group);
            soak.fixture = soak.fixture.start_with(&tls(&[]), &arguments);
            (kills, restarted) = (kills + 1, round + 1);
        }
    }
    let took = began.elapsed();
    let (first, last) = (held[restarted + 1], held[ROUNDS - 1]);
    println!(
        "{} drops, {reloads} reloads, {rotations} rotations, {fills} full disks, {kills} times kill -9 in {took:.0?}; since \
         the last start {} KiB, then {} KiB, {} descriptors, then {}",
        soak.drops, first.0, last.0, first.1, last.1
    );
    let events = events(&state);
    assert_eq!(count(&events, "port_state", "to DOWN"), soak.drops, "{}", soak.fixture.log());
    assert_eq!(count(&events, "port_state", "to ACTIVE"), soak.drops);
    assert_eq!(count(&events, "started", ""), kills + 1);
    assert!(last.0 < first.0 + 3 * 1024, "{held:?}");
    assert!(last.1 <= first.1 + 2, "{held:?}");
}
