//! What a guest sees of its own migration.

use super::*;
use crate::model::benchmark::{Benchmark, BenchmarkKey, BenchmarkRun, Measurements, Outcome};
use crate::model::counter::Counters;
use crate::model::ids::{DeviceName, PortKey};
use crate::model::kmsg::KernelLog;
use crate::model::machine::Machine;
use crate::model::pcie::{PciClass, PciFunction};
use crate::model::rdma::{DeviceIdentity, RdmaDevice};

struct GuestTracker {
    engine: Engine,
    now: Timestamp,
    functions: Vec<PciFunction>,
    machine: Machine,
    log: KernelLog,
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
fn run(outcome: Outcome, at: SystemTime) -> BenchmarkRun {
    let port = Some(PortKey { device: DeviceName::new("mlx5_0"), port: 1 });
    BenchmarkRun {
        key: BenchmarkKey { probe: Benchmark::RdmaLoopback, port },
        at,
        took: Duration::from_secs(5),
        outcome,
        reason: Arc::from(""),
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
            let facts = facts.chain([Arc::new(self.machine.clone()) as Fact, Arc::new(self.log.clone())]);
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
    for (outcome, left) in [(Outcome::Failed, 1), (Outcome::Inconclusive, 1), (Outcome::Slow, 0)] {
        let now = guest.now;
        guest.engine.record(run(outcome, now.wall), now);
        guest.pass(15);
        assert_eq!(guest.findings().iter().filter(|found| found.0 == "vf_map_stale").count(), left, "{outcome:?}");
    }
    // On a host of metal a step is somebody's business and not a migration's.
    let mut metal = super::guest::guest(false);
    metal.now.wall += Duration::from_secs(3);
    metal.pass(600);
    assert_eq!((metal.findings().len(), metal.count(Signal::ClockStepped)), (0, 0));
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
