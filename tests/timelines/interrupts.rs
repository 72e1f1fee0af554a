//! Vectors that are moved, a CPU that goes and comes back, a driver that is loaded anew.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use lanewatch::model::check::{Check, Severity};
use lanewatch::model::irq::IrqSummary;

use super::common::hand::{Hand, found, of};
use super::common::host::HostTree;
use super::{HOUR, MINUTE, Play, one};

/// How often interrupts are read.
const STEP: Duration = Duration::from_secs(15);

/// Interrupts that a vector serves in a step.
const A_STEP: u64 = 1000;

const CHECKS: [Check; 3] = [Check::IrqRemote, Check::IrqPiledUp, Check::IrqDrifted];

/// A host of two nodes with four CPUs each, and eight busy vectors of its first card, which is on node 0.
struct Vectors {
    play: Play,
    /// Number of the first vector.
    first: usize,
    /// The CPU that each is served by.
    cpus: [usize; 8],
    /// What each CPU has counted of each vector.
    counts: [[u64; 8]; 8],
    /// CPUs that run.
    online: Vec<usize>,
}

impl Vectors {
    fn new() -> Self {
        let (io, devices) = of(&HostTree::new(2));
        for device in &devices {
            io.memory.remove(device.function.join("msi_irqs"));
        }
        io.memory.set("/proc/uptime", format!("{}.00 1.00\n", (2 * HOUR).as_secs()));
        let mut hand = Hand::new(&io, None, 2 * HOUR);
        let report = hand.pass();
        let play = Play { io, devices, hand, report };
        let mut vectors =
            Self { play, first: 40, cpus: [0, 1, 2, 3, 0, 1, 2, 3], counts: [[0; 8]; 8], online: (0..8).collect() };
        vectors.run(5 * MINUTE);
        vectors.is_well();
        vectors
    }

    /// Writes what the kernel would show now.
    fn show(&self) {
        let set = |path: String, text: &str| self.play.io.memory.set(path, format!("{text}\n"));
        let mut table = String::from("     ");
        for cpu in &self.online {
            let _ = write!(table, " CPU{cpu}");
        }
        for (vector, (cpu, counts)) in self.cpus.iter().zip(&self.counts).enumerate() {
            let irq = self.first + vector;
            let _ = write!(table, "\n{irq:>4}:");
            for cpu in &self.online {
                let _ = write!(table, " {}", counts[*cpu]);
            }
            let address = &self.play.devices[0].address;
            let _ = write!(table, " IR-PCI-MSIX-{address} {vector}-edge mlx5_comp{vector}@pci:{address}");
            set(format!("{}/msi_irqs/{irq}", self.play.devices[0].function.display()), "msix");
            set(format!("/proc/irq/{irq}/effective_affinity_list"), &cpu.to_string());
            set(format!("/proc/irq/{irq}/smp_affinity_list"), &cpu.to_string());
        }
        set("/proc/interrupts".to_owned(), &table);
    }

    fn step(&mut self) {
        for (cpu, counts) in self.cpus.iter().zip(&mut self.counts) {
            counts[*cpu] += A_STEP;
        }
        self.show();
        self.play.report = self.play.hand.after(STEP);
    }

    fn run(&mut self, time: Duration) {
        for _ in 0..time.as_secs() / STEP.as_secs() {
            self.step();
        }
    }

    fn found(&self, check: Check) -> Vec<(String, Severity, &'static str)> {
        self.play.found(check)
    }

    fn is_well(&self) {
        for check in CHECKS {
            assert_eq!(self.found(check), vec![], "{check:?}");
        }
    }

    fn summary(&self) -> &IrqSummary {
        &self.play.report.irqs[&self.play.devices[0].address.parse().unwrap()]
    }

    /// Interrupts on the own node and on the other.
    fn served(&self) -> [u64; 2] {
        let [local, remote, unknown] = self.summary().interrupts.unwrap();
        assert_eq!(unknown, 0);
        [local, remote]
    }

    fn set_online(&mut self, cpus: &[usize], online: &str, offline: &str, own_node: &str) {
        self.online = cpus.to_vec();
        let set = |file: &str, text: &str| {
            self.play.io.memory.set(Path::new("/sys/devices/system").join(file), format!("{text}\n"));
        };
        set("cpu/online", online);
        set("cpu/offline", offline);
        set("node/node0/cpulist", own_node);
    }
}

#[test]
fn irqbalance_moves_half_of_the_vectors_to_the_other_node() {
    let mut host = Vectors::new();
    let before = host.served();
    host.play.io.memory.set("/proc/77/comm", "irqbalance\n");
    host.cpus[..4].copy_from_slice(&[4, 5, 6, 7]);
    let mut steps = 0;
    while host.found(Check::IrqRemote).is_empty() && steps < 100 {
        host.step();
        steps += 1;
    }
    // Seen at the first step, and found when it has held for a quarter of an hour.
    assert_eq!(STEP * (steps - 1), 15 * MINUTE);
    assert_eq!(host.found(Check::IrqRemote), one("mlx5_0", Severity::Warning, "other_node"));
    assert_eq!(host.found(Check::IrqDrifted), one("mlx5_0", Severity::Warning, "off_node"));
    assert_eq!(host.found(Check::IrqPiledUp), vec![]);
    let finding = found(&host.play.report, Check::IrqRemote)[0];
    let said = |key: &str| finding.condition.evidence.get(key).map(ToString::to_string);
    assert_eq!(said("policy_owner").as_deref(), Some("\"irqbalance\""));
    assert_eq!((said("remote_vectors").as_deref(), said("vectors").as_deref()), (Some("4"), Some("8")));
    assert_eq!(said("remote_ratio").as_deref(), Some("0.5"));
    for part in [
        "50.0 % of its interrupts",
        "4 of 8 completion vectors, on CPU 4, 5, 6, 7",
        "`for i in $(seq 40 43); do grep . /proc/irq/$i/effective_affinity_list; done` shows where",
        "`systemctl restart irqbalance`",
        "echo 0-3 > /proc/irq/$i/smp_affinity_list",
    ] {
        assert!(finding.condition.summary.contains(part), "{part}: {}", finding.condition.summary);
    }
    let moved = u64::from(steps) * 4 * A_STEP;
    assert_eq!(host.served(), [before[0] + moved, before[1] + moved]);
    assert_eq!((host.summary().affinity_changes, host.summary().vectors), (4, [4, 4, 0]));
    host.cpus[..4].copy_from_slice(&[0, 1, 2, 3]);
    host.step();
    host.is_well();
    assert_eq!((host.summary().affinity_changes, host.summary().vectors), (8, [8, 0, 0]));
}

#[test]
fn a_move_that_is_taken_back_within_the_quarter_of_an_hour_is_none() {
    let mut host = Vectors::new();
    for _ in 0..4 {
        host.cpus[..4].copy_from_slice(&[4, 5, 6, 7]);
        host.run(14 * MINUTE);
        host.is_well();
        host.cpus[..4].copy_from_slice(&[0, 1, 2, 3]);
        host.run(MINUTE);
        host.is_well();
    }
}

#[test]
fn a_cpu_goes_offline_and_comes_back() {
    let mut host = Vectors::new();
    let before = host.served();
    // Its vectors go to another of the node; its column is no longer there.
    host.set_online(&[0, 1, 2, 4, 5, 6, 7], "0-2,4-7", "3", "0-2");
    (host.cpus[3], host.cpus[7]) = (0, 1);
    host.run(20 * MINUTE);
    host.is_well();
    assert_eq!(host.served(), [before[0] + 80 * 8 * A_STEP, before[1]], "its counts are not lost");
    host.set_online(&[0, 1, 2, 3, 4, 5, 6, 7], "0-7", "", "0-3");
    (host.cpus[3], host.cpus[7]) = (3, 3);
    host.run(20 * MINUTE);
    host.is_well();
    assert_eq!(host.served(), [before[0] + 160 * 8 * A_STEP, before[1]], "nor counted twice");
}

#[test]
fn the_last_cpu_of_a_node_goes_offline() {
    let mut host = Vectors::new();
    host.set_online(&[3, 4, 5, 6, 7], "3-7", "0-2", "3");
    host.cpus = [3, 3, 3, 3, 3, 3, 3, 3];
    host.run(20 * MINUTE);
    host.is_well();
    host.set_online(&[4, 5, 6, 7], "4-7", "0-3", "");
    host.cpus = [4, 5, 6, 7, 4, 5, 6, 7];
    host.run(20 * MINUTE);
    // There is nowhere else to serve them: who has no CPU of their own is not judged.
    assert_eq!((host.found(Check::IrqRemote), host.found(Check::IrqPiledUp)), (vec![], vec![]));
}

#[test]
fn a_driver_is_loaded_anew() {
    let mut host = Vectors::new();
    let before = host.served();
    let class = Path::new("/sys/class/infiniband/mlx5_0");
    host.play.io.memory.remove(class);
    host.play.io.memory.remove(host.play.devices[0].function.join("msi_irqs"));
    for irq in 40..48 {
        host.play.io.memory.remove(format!("/proc/irq/{irq}"));
    }
    host.play.io.memory.set("/proc/interrupts", "CPU0 CPU1\nERR: 0\n");
    host.play.report = host.play.hand.after(STEP);
    host.is_well();
    host.play.io.mend(class);
    (host.first, host.counts) = (140, [[0; 8]; 8]);
    host.run(20 * MINUTE);
    host.is_well();
    assert_eq!(host.served(), [before[0] + 80 * 8 * A_STEP, before[1]], "they go on from where they were");
    assert_eq!((host.summary().affinity_changes, host.summary().vectors), (0, [8, 0, 0]), "new vectors were not moved");
}
