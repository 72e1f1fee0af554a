//! Probes with programs that misbehave, and the command that runs them.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "../common/mod.rs"]
mod common;

mod between;
mod command;
mod guarded;
mod peers;

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use common::host::{GEN3, GEN4, HostTree, LinkEnd};
use lanewatch::bench::probe::{BenchmarkParameters, BenchmarkRunner};
use lanewatch::bench::process::Toolbox;
use lanewatch::bench::rdma::Timeouts;
use lanewatch::host::COLLECTORS;
use lanewatch::host::Host;
use lanewatch::host::collector::{Filter, Setup};
use lanewatch::host::fs::Fs;
use lanewatch::host::io::Roots;
use lanewatch::model::benchmark::{Benchmark, BenchmarkKey, BenchmarkRun, Direction, Outcome, Statistic};
use lanewatch::model::ids::{DeviceName, PortKey};
use lanewatch::model::policy::Policy;
use lanewatch::watch::clock::{Clock, SystemClock};
use lanewatch::watch::{Engine, HostReport, Poller};
use tempfile::TempDir;

/// A host, fakes of perftest, and what they wrote of themselves.
pub(crate) struct Scene {
    pub(crate) directory: TempDir,
}

impl Scene {
    pub(crate) fn new(mode: &str, host: &HostTree) -> Self {
        let scene = Self { directory: TempDir::new().unwrap() };
        host.write(&scene.path("host")).unwrap();
        fs::create_dir(scene.path("bin")).unwrap();
        let fake = include_str!("fake.py").replace("@MODE@", mode);
        let fake = fake.replace("@LOG@", scene.path("log").to_str().unwrap());
        for name in ["ib_write_bw", "ib_write_lat", "ib_read_lat"] {
            let path = scene.path("bin").join(name);
            fs::write(&path, &fake).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        scene
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// What the fakes noted: process, TCP port, folder, role, command line.
    pub(crate) fn notes(&self) -> Vec<Vec<String>> {
        let text = fs::read_to_string(self.path("log")).unwrap_or_default();
        text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
    }

    /// Nothing that was started still runs, listens or lies about.
    pub(crate) fn is_clean(&self) {
        for note in self.notes() {
            let is_free = || TcpListener::bind(("0.0.0.0", note[1].parse().unwrap())).is_ok();
            let until = Instant::now() + Duration::from_secs(10);
            // Who started it, another process perhaps, tidies up once it is dead.
            while (is_alive(&note[0]) || Path::new(&note[2]).exists() || !is_free()) && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(5));
            }
            assert!(!is_alive(&note[0]), "still running: {note:?}");
            assert!(!Path::new(&note[2]).exists(), "left behind: {note:?}");
            assert!(is_free(), "still taken: {note:?}");
        }
    }

    pub(crate) fn report(&self) -> Arc<HostReport> {
        self.poller(Arc::new(SystemClock), Arc::new(Policy::default())).pass(Duration::from_secs(20))
    }

    /// The host of the scene.
    pub(crate) fn host(&self) -> Host {
        let root = self.path("host");
        Host {
            io: Arc::new(Fs::recorded()),
            sysfs: root.join("sys"),
            procfs: root.join("proc"),
            roots: Roots::below(&root),
            route: None,
            ethtool: None,
            live: false,
        }
    }

    /// A poller over the host, without hold times.
    pub(crate) fn poller(&self, clock: Arc<dyn Clock>, policy: Arc<Policy>) -> Poller {
        let setup = Setup { host: self.host(), filter: Filter::default() };
        Poller::new(&setup, COLLECTORS.iter().copied(), clock, Engine::new(policy, true), None).unwrap()
    }

    /// Runs the loop on `mlx5_0/1`. `overrun`: how long a program may take beyond the second that it measures.
    fn run(&self, overrun: Duration) -> BenchmarkRun {
        self.run_with(&Toolbox::in_folders(self.path("bin").into()), overrun)
    }

    /// The same with other programs.
    pub(crate) fn run_with(&self, tools: &Toolbox, overrun: Duration) -> BenchmarkRun {
        let report = self.report();
        let timeouts = Timeouts { listen: Duration::from_secs(120), overrun, ..Timeouts::default() };
        let parameters =
            BenchmarkParameters { duration: Duration::from_secs(1), timeouts, ..BenchmarkParameters::default() };
        let bench = BenchmarkRunner {
            report: &report,
            host: &self.host(),
            tools,
            parameters: &parameters,
            route: None,
            progress: &|_| {},
            now: &SystemTime::now,
        };
        let port = PortKey { device: DeviceName::new("mlx5_0"), port: 1 };
        bench.run(&BenchmarkKey { probe: Benchmark::RdmaLoopback, port: Some(port) }, None)
    }
}

fn is_alive(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.trim_start().starts_with('Z'))
}

/// The outcome and reason of a fake's run; nothing is left of it.
fn outcome_of(mode: &str, overrun: Duration) -> (BenchmarkRun, Scene) {
    let scene = Scene::new(mode, &HostTree::new(1));
    let run = scene.run(overrun);
    scene.is_clean();
    (run, scene)
}

const LONG: Duration = Duration::from_secs(120);

fn expect(mode: &str, overrun: Duration, outcome: Outcome, reason: &str) {
    let (run, _scene) = outcome_of(mode, overrun);
    assert_eq!((run.result.outcome(), run.result.reason()), (outcome, reason), "{mode}: {}", run.text);
    let measured = matches!(outcome, Outcome::Ok | Outcome::Slow);
    assert_eq!(run.measured.is_empty(), !measured, "{mode}: a value only where one was measured");
}

#[test]
fn a_sound_program_is_measured() {
    let (run, scene) = outcome_of("ok", LONG);
    assert_eq!((run.result.outcome(), run.result.reason()), (Outcome::Ok, "near_ceiling"), "{}", run.text);
    assert!((run.measured.bandwidth(Direction::OneWay).unwrap().gbits() - 190.25).abs() < 1e-9, "the file comes first");
    let read = run.measured.latency(Direction::Read, Statistic::Typical).unwrap();
    assert!((read - 1.21e-6).abs() < 1e-12);
    assert!(run.text.contains("95 % of the port's rate (200 Gb/s)"), "{}", run.text);
    assert!(run.text.contains("counters did not rise"), "{}", run.text);
    let notes = scene.notes();
    assert_eq!(notes.len(), 6, "three programs, two ends each: {notes:?}");
    let folders: std::collections::BTreeSet<&String> = notes.iter().map(|note| &note[2]).collect();
    assert_eq!(folders.len(), 6, "each in a folder of its own");
    let line = &notes.iter().find(|note| note[3] == "client").unwrap()[4];
    for part in ["-d mlx5_0", "-i 1", "-s 1048576", "-q 4", "-D 1", "--report_gbits", "-F"] {
        assert!(line.contains(part), "{part} in {line}");
    }
}

#[test]
fn programs_that_hang_are_killed() {
    expect("hang", Duration::from_millis(1_500), Outcome::Inconclusive, "timeout");
}

#[test]
fn programs_that_ignore_sigterm_are_killed_with_their_children() {
    // On a busy host the program may be killed before it has a child: it gets more time then.
    let has_child = |scene: &Scene| scene.notes().iter().any(|note| note[3] == "child");
    let mut tries = [3, 10, 30, 90].into_iter().map(|seconds| outcome_of("stubborn", Duration::from_secs(seconds)));
    let (run, _) = tries.find(|(_, scene)| has_child(scene)).unwrap();
    assert_eq!(run.result.reason(), "timeout");
}

#[test]
fn tool_trouble_is_inconclusive() {
    for (mode, reason) in [
        ("garbage", "no_result"),
        ("negative", "impossible_value"),
        ("late", "exit_status"),
        ("crash", "crashed"),
        ("wild", "impossible_value"),
    ] {
        expect(mode, LONG, Outcome::Inconclusive, reason);
    }
}

#[test]
fn results_are_found_in_whatever_form_they_are() {
    expect("unquoted", LONG, Outcome::Ok, "near_ceiling");
    let (run, _scene) = outcome_of("overwritten", LONG);
    assert!((run.measured.bandwidth(Direction::OneWay).unwrap().gbits() - 187.5).abs() < 1e-9, "{}", run.text);
}

#[test]
fn a_port_that_somebody_took_is_tried_again() {
    let (run, scene) = outcome_of("taken", LONG);
    assert_eq!(run.result.outcome(), Outcome::Ok, "{}", run.text);
    assert_eq!(scene.notes().iter().filter(|note| note[3] == "server").count(), 4);
}

#[test]
fn failures_are_named() {
    expect("status", LONG, Outcome::Failed, "completion_error");
    expect("down", LONG, Outcome::Failed, "port_down");
    expect("slow", LONG, Outcome::Slow, "below_ceiling");
}

#[test]
fn a_narrow_link_is_said_to_be_the_limit() {
    let mut host = HostTree::new(1);
    host.cards[0].device = LinkEnd::full(GEN4, 16).trained(GEN3, 8);
    host.cards[0].upstream = LinkEnd::full(GEN4, 16).trained(GEN3, 8);
    let scene = Scene::new("wild", &host);
    let run = scene.run(LONG);
    assert_eq!(run.result.reason(), "impossible_value", "{}", run.text);
    assert!(run.ceiling.is_some_and(|ceiling| ceiling.gbits() > 57.0 && ceiling.gbits() < 58.0));
}

#[test]
fn absent_programs_are_unavailable() {
    let scene = Scene::new("ok", &HostTree::new(1));
    fs::remove_file(scene.path("bin/ib_write_bw")).unwrap();
    let run = scene.run(LONG);
    assert_eq!((run.result.outcome(), run.result.reason()), (Outcome::Skipped, "unavailable"));
    assert_eq!(&*run.text, "ib_write_bw is not installed");
}
