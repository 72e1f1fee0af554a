//! What a guest sees of its own migration.

use super::*;
use crate::model::benchmark::{
    Benchmark, BenchmarkKey, BenchmarkRun, Doubt, Failure, Measurements, RunResult, Shortfall,
};
use crate::model::counter::Counters;
use crate::model::datapath::{DataPath, DataPathLog, Failover, PathInUse};
use crate::model::host::Machine;
use crate::model::ids::{DeviceName, PortKey};
use crate::model::kmsg::KernelLog;
use crate::model::pcie::{PciClass, PciFunction};
use crate::model::rdma::{DeviceIdentity, RdmaDevice};

struct GuestTracker {
    engine: Engine,
    now: Timestamp,
    functions: Vec<PciFunction>,
    machine: Machine,
    log: KernelLog,
    /// Whether the kernel log can be read.
    has_log: bool,
    paths: Vec<DataPath>,
    device: RdmaDevice,
    last: Option<HostReport>,
}

fn function() -> PciFunction {
    PciFunction {
        class: Some(PciClass(0x02_0700)),
        ids: Some((0x15b3, 0x101c)),
        driver: Some(Arc::from("mlx5_core")),
        ..PciFunction::at(address(8))
    }
}

fn device() -> RdmaDevice {
    let identity = DeviceIdentity { pci_address: Some(address(8)), ..DeviceIdentity::default() };
    let (name, counters) = (DeviceName::new("mlx5_0"), Counters::default());
    RdmaDevice { name, identity: Arc::new(identity), ports: Vec::new(), counters, counters_at: BootTime(0) }
}

/// A loop-back probe over the function that ended so, at this time.
fn run(result: RunResult, at: SystemTime) -> BenchmarkRun {
    let port = Some(PortKey { device: DeviceName::new("mlx5_0"), port: 1 });
    BenchmarkRun {
        key: BenchmarkKey { probe: Benchmark::RdmaLoopback, port },
        at,
        took: Duration::from_secs(5),
        result,
        text: Arc::from(""),
        measured: Measurements::default(),
        ceiling: None,
        profile: Arc::from(""),
        peer: None,
        function: Some(address(8)),
    }
}

fn guest(hypervisor: bool) -> GuestTracker {
    let mut guest = GuestTracker {
        engine: Engine::new(Arc::new(Policy::default()), false),
        now: Timestamp {
            tick: BootTime(86_400_000),
            wall: SystemTime::UNIX_EPOCH + Duration::from_secs(1_790_000_000),
        },
        functions: vec![function()],
        machine: Machine { hypervisor: Some(hypervisor), identity: Some(Arc::from("a")) },
        log: KernelLog::default(),
        has_log: true,
        paths: Vec::new(),
        device: device(),
        last: None,
    };
    guest.pass(15);
    guest
}

impl GuestTracker {
    fn pass(&mut self, seconds: u64) -> &mut Self {
        for _ in 0..seconds.div_ceil(15) {
            let step = Duration::from_secs(15);
            self.now = Timestamp { tick: self.now.tick.after(step), wall: self.now.wall + step };
            let pci = CollectorState { name: "pci", listed: Some(Arc::from([])), ..CollectorState::default() };
            let facts = self.functions.iter().map(|function| Arc::new(function.clone()) as Fact);
            let facts = facts.chain([Arc::new(self.machine.clone()) as Fact]);
            let facts = facts.chain(self.has_log.then(|| Arc::new(self.log.clone()) as Fact));
            let facts = facts.chain(self.paths.iter().map(|path| Arc::new(path.clone()) as Fact));
            let facts = facts.chain([Arc::new(self.device.clone()) as Fact]);
            self.last = Some(self.engine.observe(Snapshot::new(self.now, facts, vec![pci])));
        }
        self
    }

    fn findings(&self) -> Vec<(&'static str, String, &'static str)> {
        let found = self.last.as_ref().unwrap().findings.iter().map(|finding| &finding.condition);
        found.map(|found| (found.check.as_str(), found.subject.to_string(), found.reason.as_str())).collect()
    }

    fn count(&self, signal: Signal) -> u64 {
        let map = &self.last.as_ref().unwrap().vf_map;
        map.signal(signal).count
    }
}

#[test]
fn a_function_is_taken_and_given_back() {
    let mut guest = guest(true);
    guest.functions.clear();
    guest.pass(30);
    guest.functions.push(function());
    guest.pass(600);
    assert_eq!(guest.findings(), []);
    assert_eq!((guest.count(Signal::FunctionRemoved), guest.count(Signal::FunctionAdded)), (1, 1));
}

#[test]
fn the_wall_clock_steps() {
    let mut guest = guest(true);
    guest.now.wall += Duration::from_secs(3);
    guest.pass(60);
    assert_eq!((guest.findings().len(), guest.count(Signal::ClockStepped)), (0, 1));
    guest.pass(90);
    assert_eq!(guest.findings(), [("vf_map_stale", "0000:98:01.0".to_owned(), "clock_stepped")]);
    // A probe that moves data proves it, one that fails does not.
    let results = [
        (RunResult::Failed(Failure::Completion), 1),
        (RunResult::Inconclusive(Doubt::Timeout), 1),
        (RunResult::Slow(Shortfall::BelowCeiling), 0),
    ];
    for (result, left) in results {
        let now = guest.now;
        guest.engine.record(run(result, now.wall), now);
        guest.pass(15);
        assert_eq!(guest.findings().iter().filter(|found| found.0 == "vf_map_stale").count(), left, "{result:?}");
    }
    // On a host of metal a step is somebody's business and not a migration's.
    let mut metal = super::guest::guest(false);
    metal.now.wall += Duration::from_secs(3);
    metal.pass(600);
    assert_eq!((metal.findings().len(), metal.count(Signal::ClockStepped)), (0, 0));
}

fn path(in_use: PathInUse) -> DataPath {
    let vf = (in_use == PathInUse::Vf).then(|| Arc::from("enP40338s1"));
    DataPath { netdev: Arc::from("eth0"), failover: Failover::HvNetvsc, vf, in_use }
}

#[test]
fn a_host_that_is_serviced_takes_the_vf_for_a_moment() {
    let mut guest = guest(true);
    guest.paths = vec![path(PathInUse::Vf)];
    guest.pass(300);
    let left = guest.now.tick;
    let said = |switched, returned| DataPathLog {
        netdev: Arc::from("eth0"),
        switched,
        revoked: 1,
        returned,
        left: vec![left],
    };
    (guest.paths, guest.log.data_paths) = (vec![path(PathInUse::Synthetic)], vec![said(1, 0)]);
    guest.pass(240);
    (guest.paths, guest.log.data_paths) = (vec![path(PathInUse::Vf)], vec![said(2, 1)]);
    guest.pass(600);
    assert_eq!(guest.findings(), []);
    let signals = [Signal::VfRevoked, Signal::VfReturned, Signal::DataPathSwitched];
    assert_eq!(signals.map(|signal| guest.count(signal)), [1, 1, 2]);
    let events = &guest.last.as_ref().unwrap().events;
    assert!(events.iter().any(|event| event.text == "the host took the VF of eth0 away once"), "{events:?}");
}

#[test]
fn an_interface_that_keeps_losing_its_vf() {
    let mut guest = guest(true);
    guest.paths = vec![path(PathInUse::Vf)];
    let start = guest.now.tick;
    let lose = |guest: &mut GuestTracker, times: u64| {
        let left = (0..times).map(|n| start.after(Duration::from_secs(n))).collect();
        let log = DataPathLog { netdev: Arc::from("eth0"), switched: 2 * times, left, ..DataPathLog::default() };
        guest.log.data_paths = vec![log];
        guest.pass(15);
        guest.last.as_ref().unwrap().findings.iter().map(|found| found.condition.severity).collect::<Vec<_>>()
    };
    assert_eq!(lose(&mut guest, 3), []);
    assert_eq!(lose(&mut guest, 4), [crate::model::check::Severity::Warning]);
    assert_eq!(lose(&mut guest, 900), [crate::model::check::Severity::Critical]);
    assert_eq!(guest.findings(), [("vf_failover", "eth0".to_owned(), "data_path_switched")]);
    assert_eq!(guest.count(Signal::DataPathSwitched), 1800);
}

#[test]
fn an_interface_that_stays_without_its_vf() {
    let mut guest = guest(true);
    // One that never had a VF lacks none.
    guest.paths = vec![path(PathInUse::Synthetic)];
    guest.pass(3600);
    assert_eq!(guest.findings(), []);
    guest.paths = vec![path(PathInUse::Vf)];
    guest.pass(60);
    guest.paths = vec![path(PathInUse::Synthetic)];
    guest.pass(585);
    assert_eq!(guest.findings(), []);
    guest.pass(60);
    assert_eq!(guest.findings(), [("vf_failover", "eth0".to_owned(), "synthetic_path")]);
    guest.paths = vec![path(PathInUse::Vf)];
    guest.pass(15);
    assert_eq!(guest.findings(), []);
}

#[test]
fn without_the_log_a_change_that_is_seen_counts() {
    let mut guest = guest(true);
    guest.has_log = false;
    for _ in 0..4 {
        for in_use in [PathInUse::Vf, PathInUse::Synthetic] {
            guest.paths = vec![path(in_use)];
            guest.pass(30);
        }
    }
    assert_eq!(guest.findings(), [("vf_failover", "eth0".to_owned(), "data_path_switched")]);
    assert_eq!(guest.count(Signal::DataPathSwitched), 7);
    guest.paths = vec![path(PathInUse::Vf)];
    guest.pass(3660);
    assert_eq!(guest.findings(), []);
}

#[test]
fn the_machine_is_restored_or_another() {
    let mut guest = guest(true);
    guest.log.forks = 1;
    guest.pass(150);
    assert_eq!(guest.findings(), [("vf_map_stale", "0000:98:01.0".to_owned(), "machine_forked")]);
    // The function is taken away and comes back: its driver has probed it.
    guest.functions.clear();
    guest.pass(15);
    guest.functions.push(function());
    guest.pass(15);
    assert_eq!(guest.findings(), []);
    guest.machine.identity = Some(Arc::from("b"));
    guest.pass(15);
    assert_eq!(guest.count(Signal::MachineChanged), 1);
}
