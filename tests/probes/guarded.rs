//! The guard and the scheduler.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use lanewatch::bench::context::BenchmarkContext;
use lanewatch::bench::guard::HostLock;
use lanewatch::bench::guard::{IdleRules, facts};
use lanewatch::bench::probe::BenchmarkParameters;
use lanewatch::bench::process::Toolbox;
use lanewatch::bench::schedule::BenchmarkSchedule;
use lanewatch::bench::scheduler::{BenchmarkScheduler, ScheduledBenchmarks};
use lanewatch::model::benchmark::{Benchmark, BenchmarkKey, Direction, SkipReason};
use lanewatch::model::ids::{DeviceName, PortKey};
use lanewatch::model::pcie::PciFunction;
use lanewatch::model::policy::Policy;
use lanewatch::model::policy::{Maintenance, MaintenanceWindow};
use lanewatch::model::rdma::RdmaResources;
use lanewatch::model::snapshot::{Fact, Snapshot};
use lanewatch::model::units::BytesPerSecond;
use lanewatch::watch::clock::{Clock as _, ManualClock};
use lanewatch::watch::{HostReport, PollerHandle};

use super::Scene;
use super::common::host::HostTree;

pub(crate) fn key() -> BenchmarkKey {
    BenchmarkKey { probe: Benchmark::RdmaLoopback, port: Some(PortKey { device: DeviceName::new("mlx5_0"), port: 1 }) }
}

/// A host whose port is up, silent and nobody's; `contexts` are open on the device.
fn idle(host: &HostTree, contexts: u64) -> HostReport {
    let report = Scene::new("ok", host).report();
    let counts = vec![(Arc::from("qp"), 3), (Arc::from("ctx"), contexts)];
    let mut facts: Vec<Fact> = vec![Arc::new(RdmaResources { device: DeviceName::new("mlx5_0"), counts })];
    facts.extend(report.snapshot.devices().map(|device| Arc::new(device.clone()) as Fact));
    facts.extend(report.snapshot.all::<PciFunction>().map(|function| Arc::new(function.clone()) as Fact));
    let snapshot = Snapshot::new(report.snapshot.taken, facts, Vec::new());
    let traffic = [(key().port.unwrap(), BytesPerSecond(1e3))].into();
    HostReport { snapshot, traffic, ..(*report).clone() }
}

fn refused(report: &HostReport, rules: &IdleRules, load: Option<f64>) -> Option<SkipReason> {
    facts(report, &key(), rules, load).err().map(|(reason, _)| reason)
}

#[test]
fn whatever_it_would_disturb_comes_first() {
    let host = HostTree::new(1);
    let (report, rules) = (idle(&host, 0), IdleRules::default());
    assert_eq!(refused(&report, &rules, Some(0.1)), None);
    assert_eq!(refused(&report, &rules, Some(0.9)), Some(SkipReason::CpuBusy));
    assert_eq!(refused(&idle(&host, 2), &rules, None), Some(SkipReason::DeviceHeld));
    let traffic = |rate: f64| [(key().port.unwrap(), BytesPerSecond(rate))].into();
    let busy = HostReport { traffic: traffic(5e8), ..report.clone() };
    assert_eq!(refused(&busy, &rules, None), Some(SkipReason::PortBusy), "2 % of 25 GB/s");
    let unknown = HostReport { traffic: std::collections::BTreeMap::new(), ..report.clone() };
    assert_eq!(refused(&unknown, &rules, None), Some(SkipReason::Unknown));
    let maintained = HostReport { maintenance: Some(Arc::from("in maintenance")), ..report.clone() };
    assert_eq!(refused(&maintained, &rules, None), Some(SkipReason::Maintenance));
    let mut down = HostTree::new(1);
    (down.cards[0].state, down.cards[0].phys_state) = ("1: DOWN", "2: Polling");
    assert_eq!(refused(&idle(&down, 0), &rules, None), Some(SkipReason::PortDown));
    let marker = tempfile::NamedTempFile::new().unwrap();
    let rules = IdleRules { busy_files: vec![marker.path().to_owned()], ..IdleRules::default() };
    assert_eq!(refused(&report, &rules, None), Some(SkipReason::JobRunning));
    marker.close().unwrap();
    assert_eq!(refused(&report, &rules, None), None);
}

/// A scheduler whose clock is moved by hand, over a running poller.
struct Agent {
    clock: Arc<ManualClock>,
    scheduler: BenchmarkScheduler,
    handle: PollerHandle,
    lock: std::path::PathBuf,
    _scene: Scene,
}

impl Agent {
    fn new(probes: &[Benchmark], policy: Policy) -> Self {
        let scene = Scene::new("ok", &HostTree::new(1));
        let wall = humantime::parse_rfc3339("2026-11-28T02:30:00Z").unwrap();
        let clock = Arc::new(ManualClock::new(wall, Duration::from_secs(90_000)));
        let poller = scene.poller(Arc::clone(&clock) as _, Arc::new(policy));
        let handle = poller.handle();
        std::thread::spawn(move || poller.run());
        let lock = scene.path("lock");
        let context = BenchmarkContext {
            devices: None,
            parameters: BenchmarkParameters::default(),
            rules: IdleRules { most_load: 1e9, ..IdleRules::default() },
            lock: lock.clone(),
            host: scene.host(),
        };
        let program = ScheduledBenchmarks { probes: probes.to_vec(), context };
        let schedule = BenchmarkSchedule::new(Duration::from_secs(3_600), 0.01, "node17");
        let tools = Toolbox::in_folders(scene.path("bin").into());
        let scheduler = BenchmarkScheduler::new(handle.clone(), Arc::clone(&clock) as _, program, schedule, tools);
        Self { clock, scheduler, handle, lock, _scene: scene }
    }

    fn report(&self) -> Arc<HostReport> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(self.handle.report(Duration::ZERO, Duration::from_secs(60))).unwrap()
    }

    /// Lets an hour pass, a minute at a time.
    fn an_hour(&mut self) {
        self.report();
        for _ in 0..60 {
            self.clock.advance(Duration::from_secs(60));
            self.scheduler.step();
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.handle.stop();
    }
}

#[test]
fn a_due_probe_runs_and_is_published() {
    let mut agent = Agent::new(&[Benchmark::Memory], Policy::default());
    let began = agent.clock.now().wall;
    agent.an_hour();
    let report = agent.report();
    let past = report.probes.get(&BenchmarkKey { probe: Benchmark::Memory, port: None }).unwrap();
    assert_eq!((past.counts[0], past.runs.len()), (1, 1), "{past:?}");
    let run = past.measured.as_ref().unwrap();
    assert!(run.at > began && run.at <= began + Duration::from_secs(3_600), "by the clock that it was given");
    assert!(run.measured.bandwidth(Direction::Local).unwrap().0 > 1e6);
}

#[test]
fn what_is_left_out_is_counted_with_its_reason() {
    let window = MaintenanceWindow::parse("Sat 02:00-04:00").unwrap();
    let maintenance = Maintenance { file: None, windows: vec![window] };
    let mut agent = Agent::new(&[Benchmark::Memory], Policy { maintenance, ..Policy::default() });
    agent.an_hour();
    let report = agent.report();
    let memory = BenchmarkKey { probe: Benchmark::Memory, port: None };
    let skips = |report: &HostReport| report.probes.get(&memory).map(|past| past.skips.clone()).unwrap_or_default();
    assert!(skips(&report).get(&SkipReason::Maintenance).is_some_and(|count| *count >= 2), "{:?}", skips(&report));
    assert_eq!(report.probes[&memory].last, None, "nothing ran");
    let mut other = Agent::new(&[Benchmark::Memory], Policy::default());
    let held = HostLock::take(&other.lock).unwrap();
    other.an_hour();
    assert!(skips(&other.report()).contains_key(&SkipReason::Locked));
    drop(held);
    other.an_hour();
    assert!(other.report().probes[&memory].last.is_some());
}

#[test]
fn a_port_of_which_too_little_is_known_is_left_alone() {
    let mut agent = Agent::new(&[Benchmark::RdmaLoopback], Policy::default());
    agent.an_hour();
    let report = agent.report();
    let past = &report.probes[&key()];
    assert!(past.counts[4] >= 1 && past.skips.contains_key(&SkipReason::Unknown), "{past:?}");
    assert_eq!(past.counts[..4], [0; 4]);
}

#[test]
fn in_maintenance_findings_are_acknowledged_only() {
    let mut host = HostTree::new(1);
    (host.cards[0].state, host.cards[0].phys_state) = ("1: DOWN", "3: Disabled");
    let scene = Scene::new("ok", &host);
    let everything = || Policy { devices: vec![DeviceName::new("mlx5_77")], ..Policy::default() };
    let clock = || Arc::new(ManualClock::new(SystemTime::UNIX_EPOCH, Duration::from_secs(90_000)));
    let found = scene.poller(clock(), Arc::new(everything())).pass(Duration::from_secs(20));
    assert!(!found.findings.is_empty());
    let maintenance = Maintenance { file: Some(scene.path("host")), windows: Vec::new() };
    let policy = Policy { maintenance, ..everything() };
    let quiet = scene.poller(clock(), Arc::new(policy)).pass(Duration::from_secs(20));
    assert_eq!((quiet.findings.len(), quiet.excepted.len()), (0, found.findings.len()));
    assert!(quiet.excepted.iter().all(|(_, why)| why.starts_with("acknowledged: in maintenance while ")));
    assert!(quiet.maintenance.is_some() && found.maintenance.is_none());
}
