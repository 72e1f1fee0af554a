//! The state directory beside a running agent: commands that change it, and agents that are killed.
//!
//! `LANEWATCH_STATE_ROUNDS` says how often (5 times, unless `make state` says 100), `LANEWATCH_STATE_PLACES` in which
//! folders, so that file systems can be compared, separated by colons.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "common/mod.rs"]
mod common;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::cost::peak_memory;
use common::host::HostTree;
use common::run::{PROGRAM, Server, for_anybody, free_address, to_its_end};
use lanewatch::model::finding::EventKind;
use lanewatch::watch::store::Store;
use serde_json::{Value, json};
use tempfile::TempDir;

const NOBODY: u32 = 65_534;

fn rounds() -> usize {
    std::env::var("LANEWATCH_STATE_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(5)
}

fn places() -> Vec<PathBuf> {
    let places = std::env::var_os("LANEWATCH_STATE_PLACES").unwrap_or_else(|| std::env::temp_dir().into());
    std::env::split_paths(&places).collect()
}

/// A host whose second card goes and comes, and an agent's state directory.
struct Scene {
    directory: TempDir,
    link: PathBuf,
    program: PathBuf,
    user: Option<u32>,
}

impl Scene {
    fn new(place: &Path, user: Option<u32>) -> Self {
        let directory = tempfile::tempdir_in(place).unwrap();
        let tree = HostTree::new(2);
        tree.write(&directory.path().join("host")).unwrap();
        let link = directory.path().join("host/sys/class/infiniband").join(&tree.devices()[1].name);
        let state = directory.path().join("state");
        fs::create_dir(&state).unwrap();
        let program = user.map_or_else(|| PathBuf::from(PROGRAM), |_| for_anybody(directory.path()));
        if let Some(user) = user {
            std::os::unix::fs::chown(&state, Some(user), Some(user)).unwrap();
        }
        Self { directory, link, program, user }
    }

    fn state(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        // Nothing that root makes may depend on its umask.
        let mut command = Command::new("sh");
        command.args(["-c", "umask 077; exec \"$@\"", "sh"]).arg(&self.program).args(arguments);
        command.arg("--path.rootfs").arg(self.directory.path().join("host"));
        command.arg("--storage.path").arg(self.state());
        command
    }

    fn serve(&self) -> Server {
        let (address, directory) = (free_address(), TempDir::new().unwrap());
        let mut command = self.command(&["serve", "--web.listen-address", &address.to_string()]);
        if let Some(user) = self.user {
            command.uid(user).gid(user);
            fs::set_permissions(directory.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        }
        Server::spawn(command, address, directory, "/-/ready")
    }

    /// Takes the second card away or brings it back.
    fn toggle(&self) -> usize {
        let away = self.link.with_file_name(".away");
        let is_here = fs::symlink_metadata(&self.link).is_ok();
        let (from, to) = if is_here { (&self.link, &away) } else { (&away, &self.link) };
        fs::rename(from, to).unwrap();
        if is_here { 1 } else { 2 }
    }

    fn accept(&self) -> String {
        let output = to_its_end(self.command(&["baseline", "accept"]), Duration::from_secs(90));
        assert_eq!(output.code, Some(0), "{output:?}");
        output.stdout
    }

    fn saved(&self) -> usize {
        let mut store = Store::new(self.state());
        let (saved, troubles) = store.load();
        assert!(troubles.is_empty(), "{troubles:?}");
        saved.baseline.devices.len()
    }
}

fn accept_beside_an_agent(user: Option<u32>) {
    for place in places() {
        let scene = Scene::new(&place, user);
        let server = scene.serve();
        for round in 0..rounds() {
            let devices = scene.toggle();
            let shown = scene.accept();
            assert_eq!(shown.contains("mlx5_1"), devices == 2, "round {round} in {}: {shown}", place.display());
            assert_eq!(scene.saved(), devices, "round {round} in {}\n{}", place.display(), server.log());
            assert!(!server.get("/metrics").text().contains("check=\"device_missing\",severity"), "round {round}");
        }
        let left = fs::read_dir(scene.state().join("requests")).unwrap().count();
        assert_eq!(left, 0, "requests and answers are left");
        for entry in fs::read_dir(scene.state()).unwrap() {
            let entry = entry.unwrap();
            assert_eq!(entry.metadata().unwrap().uid(), user.unwrap_or(0), "{}", entry.path().display());
        }
        drop(server);
        let devices = scene.saved();
        let server = scene.serve();
        server.get("/metrics");
        assert_eq!(scene.saved(), devices);
    }
}

/// A link that is only slow may be idle, so the agent waits ten minutes: everything says so, and the status is ok.
#[test]
fn what_the_agent_waits_for_is_pending_everywhere() {
    let scene = Scene::new(&std::env::temp_dir(), None);
    let server = scene.serve();
    let device = &HostTree::new(2).devices()[1];
    for end in [&device.function, &device.above] {
        fs::write(scene.directory.path().join("host").join(end).join("current_link_speed"), "8.0 GT/s PCIe\n").unwrap();
    }
    let findings = || serde_json::from_slice::<Value>(&server.get("/api/v1/findings").body).unwrap();
    let is_pending = |document: &Value, check: &str| {
        let all = document["pending"].as_array().unwrap().iter();
        all.filter(|one| one["check"] == check).any(|one| one["hold"] == "10m" && one["finding_at"].is_string())
    };
    let end = Instant::now() + Duration::from_secs(60);
    while !is_pending(&findings(), "pcie_degraded") {
        assert!(Instant::now() < end, "{:#}", findings());
        server.get("/metrics");
        std::thread::sleep(Duration::from_millis(200));
    }
    let now = findings();
    assert_eq!((&now["status"], now["findings"].as_array().unwrap().len()), (&json!("ok"), 0), "{now:#}");
    let metrics = server.get("/metrics").text();
    assert!(metrics.contains("lanewatch_pending_finding{check=\"pcie_degraded\",severity=\"warning\""), "{metrics}");
    assert!(!metrics.contains("lanewatch_finding{"), "{metrics}");
    let page = server.get("/").text();
    assert!(page.contains("<h2>Pending ") && page.contains("a finding if it holds for 10m."), "{page}");

    let check = |format: &str| {
        let output = to_its_end(scene.command(&["check", "--format", format]), Duration::from_secs(60));
        assert_eq!(output.code, Some(0), "{format}: {output:?}");
        output.stdout
    };
    let document: Value = serde_json::from_str(&check("json")).unwrap();
    assert_eq!(document["status"], "ok", "{document:#}");
    assert!(is_pending(&document, "pcie_degraded"), "{document:#}");
    let text = check("text");
    assert!(text.starts_with("OK: 2 devices, 2 of 2 ports active, 3 pending"), "{text}");
    assert!(
        text.contains("\npending  warning pcie_degraded ") && text.contains("a finding if it holds for 10m"),
        "{text}"
    );
    assert!(check("nagios").starts_with("OK: "));

    // Without an agent nothing is known of the past, and a command does not wait.
    let state = tempfile::tempdir().unwrap();
    let mut alone = Command::new(&scene.program);
    alone.args(["check", "--format", "json", "--path.rootfs"]).arg(scene.directory.path().join("host"));
    alone.arg("--storage.path").arg(state.path());
    let alone = to_its_end(alone, Duration::from_secs(60));
    assert_ne!(alone.code, Some(0), "{alone:?}");
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn a_baseline_accepted_beside_an_agent_is_kept_every_time() {
    accept_beside_an_agent(None);
}

#[test]
fn root_can_accept_a_baseline_beside_an_agent_of_another_user() {
    if is_root() {
        accept_beside_an_agent(Some(NOBODY));
    }
}

#[test]
fn without_an_agent_the_command_does_it_and_leaves_the_state_to_its_owner() {
    let user = is_root().then_some(NOBODY);
    let scene = Scene::new(&std::env::temp_dir(), user);
    drop(scene.serve());
    assert_eq!(scene.saved(), 2);
    scene.toggle();
    scene.accept();
    assert_eq!(scene.saved(), 1);
    // The agent can read and write all of it.
    let server = scene.serve();
    server.get("/metrics");
    assert!(!server.log().contains("cannot"), "{}", server.log());
    assert_eq!(scene.saved(), 1);
}

#[test]
fn an_agent_that_is_killed_keeps_what_it_has_answered() {
    for place in places() {
        let scene = Scene::new(&place, None);
        let mut events = 0;
        for round in 0..rounds() {
            let server = scene.serve();
            let devices = scene.toggle();
            scene.accept();
            // At another moment after the answer each time.
            std::thread::sleep(Duration::from_millis(round as u64 * 37 % 100));
            server.group.signal(rustix::process::Signal::KILL);
            drop(server);
            assert_eq!(scene.saved(), devices, "round {round} in {}", place.display());
            let now = Store::new(scene.state()).events().len();
            assert!(now > events, "round {round} in {}: {now} events after {events}", place.display());
            events = now;
        }
        let names = fs::read_dir(scene.state()).unwrap().map(|entry| entry.unwrap().file_name());
        assert!(names.into_iter().all(|name| name != OsStr::new("state.json.broken")));
    }
}

/// How many losses of a link the journal tells of.
fn losses(state: &Path) -> u64 {
    let events = Store::new(state.to_owned()).events();
    let counted = |text: &str| {
        let rest = text.split_once("lost its link ")?.1.trim_start_matches("and got it back ");
        Some(match rest.split(' ').next()? {
            "once" => 1,
            "twice" => 2,
            number => number.parse().unwrap_or_else(|_| panic!("{text}")),
        })
    };
    let flaps = events.iter().filter(|event| event.kind == EventKind::PortFlap);
    flaps.map(|event| counted(&event.text).unwrap_or_else(|| panic!("{event:?}"))).sum()
}

/// Counters that rise while the agent runs, while it is killed and while it is away.
#[test]
fn every_loss_of_a_link_is_recorded_once_by_agents_that_are_killed_at_any_moment() {
    let place = places().remove(0);
    let scene = Scene::new(&place, None);
    let port = scene.directory.path().join("host").join(&HostTree::new(2).devices()[0].port);
    let (downed, ended) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    fs::write(port.join("counters/link_downed"), "0\n").unwrap();
    // The first agent learns where the counter stands.
    drop(scene.serve());
    let cable = {
        let (downed, ended) = (Arc::clone(&downed), Arc::clone(&ended));
        std::thread::spawn(move || {
            let mut random = 0x9e37_79b9_7f4a_7c15_u64;
            while !ended.load(Ordering::Relaxed) {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                std::thread::sleep(Duration::from_millis(random >> 55));
                let new = port.join("counters/.new");
                let value = downed.load(Ordering::Relaxed) + 1;
                fs::write(&new, format!("{value}\n")).unwrap();
                fs::rename(&new, port.join("counters/link_downed")).unwrap();
                downed.store(value, Ordering::Relaxed);
            }
        })
    };
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    for _ in 0..rounds() {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let server = scene.serve();
        let until = Instant::now() + Duration::from_millis(random >> 54);
        while Instant::now() < until {
            let _ = server.try_get("/metrics");
            std::thread::sleep(Duration::from_millis(20));
        }
        server.group.signal(rustix::process::Signal::KILL);
    }
    ended.store(true, Ordering::Relaxed);
    cable.join().unwrap();
    let server = scene.serve();
    let total = downed.load(Ordering::Relaxed);
    let began = Instant::now();
    while losses(&scene.state()) < total {
        assert!(began.elapsed() < Duration::from_secs(30), "{} of {total}\n{}", losses(&scene.state()), server.log());
        let _ = server.try_get("/metrics");
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(losses(&scene.state()), total);
    println!("{} agents killed, {total} losses, each recorded once", rounds());
}

/// A directory that anybody may write to is not the agent's if somebody else owns it.
#[test]
fn nothing_is_written_to_the_directory_of_another_user() {
    if !is_root() {
        return;
    }
    let scene = Scene::new(&std::env::temp_dir(), Some(NOBODY));
    std::os::unix::fs::chown(scene.state(), Some(4711), Some(4711)).unwrap();
    fs::set_permissions(scene.state(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let server = scene.serve();
    server.get("/metrics");
    assert!(server.log().contains("the directory belongs to another user"), "{}", server.log());
    assert_eq!(fs::read_dir(scene.state()).unwrap().count(), 0);
}

/// Whoever owns the state directory may not use root's command to write elsewhere.
#[test]
fn a_link_in_the_state_directory_does_not_lead_root_elsewhere() {
    let scene = Scene::new(&std::env::temp_dir(), is_root().then_some(NOBODY));
    drop(scene.serve());
    let elsewhere = TempDir::new().unwrap();
    fs::write(elsewhere.path().join("precious"), "kept").unwrap();
    let state = scene.state();
    fs::remove_dir_all(state.join("requests")).unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), state.join("requests")).unwrap();
    for name in ["state.json.new", "state.previous.json.new", "events.jsonl", "lock"] {
        let _ = fs::remove_file(state.join(name));
        std::os::unix::fs::symlink(elsewhere.path().join("precious"), state.join(name)).unwrap();
    }
    let _ = to_its_end(scene.command(&["baseline", "accept"]), Duration::from_secs(90));
    let server = scene.serve();
    server.get("/metrics");
    let _ = to_its_end(scene.command(&["baseline", "accept"]), Duration::from_secs(90));
    let names: Vec<_> = fs::read_dir(elsewhere.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["precious"], "{}", server.log());
    assert_eq!(fs::read_to_string(elsewhere.path().join("precious")).unwrap(), "kept");
}

/// Only the end of a journal is read, however long somebody else made it.
#[test]
fn a_journal_of_55_mb_costs_no_memory_at_the_start() {
    let scene = Scene::new(&std::env::temp_dir(), None);
    let usual = peak_memory(scene.serve().group.pid());
    let line = json!({
        "time": "2026-11-01T10:00:00Z", "kind": "port_flap", "subject": "mlx5_0/1",
        "text": "lost its link and got it back twice",
    });
    let lines = format!("{line}\n").repeat(1024);
    let mut journal = fs::OpenOptions::new().append(true).open(scene.state().join("events.jsonl")).unwrap();
    for _ in 0..55_000_000 / lines.len() {
        std::io::Write::write_all(&mut journal, lines.as_bytes()).unwrap();
    }
    let long = peak_memory(scene.serve().group.pid());
    println!("{} MiB, {} MiB with the journal", usual >> 20, long >> 20);
    // What is read of it, and the events in it.
    assert!(long < usual + (24 << 20), "{} MiB instead of {} MiB", long >> 20, usual >> 20);
}
