//! What a real libvirtd and its QEMU did, replayed with any moments of reading: `libvirt.txt`, two hosts between which
//! a machine moves. `make capture-libvirt` records it anew.
//!
//! Each line of the recording keeps its place. What it does not have, as its machine has no VF, comes at any moment that
//! the kernel allows: libvirt binds the VF to vfio-pci before QEMU opens its group, QEMU does that between its start and
//! the end of libvirt's preparations, and the VF is given back after QEMU's end.

use super::order::{Numbers, shuffles};
use super::*;
use crate::host::holders::libvirt;

const RECORDING: &str = include_str!("libvirt.txt");

/// What a host's map says when a step is over: who holds the VF, and whether the VF is to be shown to work again.
type After = (&'static str, bool);

/// Without the machine: the VF is the host's own.
const FREE: After = ("ib1v0", false);
const USED: After = ("vm1", false);
const STALE: After = ("vm1", true);

/// The steps, and what is true of the first and the second host after each.
const STEPS: &[(&str, After, After)] = &[
    ("start", USED, FREE),
    ("managed save", FREE, FREE),
    ("restore", STALE, FREE),
    ("suspend and resume", STALE, FREE),
    ("libvirtd restarts", STALE, FREE),
    ("migrate", FREE, STALE),
    ("cancel a migration", FREE, STALE),
    ("the destination fails", FREE, STALE),
    ("post-copy", STALE, FREE),
    ("kill QEMU", FREE, FREE),
    ("destroy", FREE, FREE),
    ("end", FREE, FREE),
];

#[derive(Debug, Clone)]
enum Change {
    /// A status file was replaced.
    Status(Domain),
    /// It was removed.
    Gone,
    /// QEMU runs, as this process.
    Started(u32),
    Ended,
}

/// What happened on a host (`a`, `b`) in each step.
fn recorded(host: &str) -> Vec<(&'static str, Vec<Change>)> {
    let mut steps: Vec<(&str, Vec<Change>)> = Vec::new();
    let mut lines = RECORDING.lines().filter(|line| !line.starts_with("# "));
    while let Some(line) = lines.next() {
        if let Some(name) = line.strip_prefix("## ") {
            steps.push((name, Vec::new()));
            continue;
        }
        let (at, what) = line.split_once(' ').unwrap();
        if at != host {
            continue;
        }
        let change = match what.split_once(' ') {
            Some(("status", text)) => Change::Status(with_the_vf(libvirt::domain(text.as_bytes()).unwrap())),
            None if what == "gone" => Change::Gone,
            // Libvirt's next status has its number.
            None if what == "started" => {
                let next = lines.clone().find_map(|line| line.strip_prefix(host)?.strip_prefix(" status "));
                Change::Started(libvirt::domain(next.unwrap().as_bytes()).unwrap().pid.unwrap())
            }
            None if what == "ended" => Change::Ended,
            _ => panic!("{line}"),
        };
        steps.last_mut().unwrap().1.push(change);
    }
    steps
}

/// The machine as one that has VF 0.
fn with_the_vf(domain: Domain) -> Domain {
    Domain { claims: vec![Claim { address: address(1), mac: None, vlan: None, present: Some(true) }], ..domain }
}

/// A host in the middle of the recording.
struct Replay {
    world: World,
    /// The QEMU that runs and has not opened the group yet.
    opening: Option<u32>,
    /// QEMU is gone and the VF not yet the host's again.
    is_returning: bool,
}

impl Replay {
    fn apply(&mut self, change: &Change) {
        let world = &mut self.world;
        match change {
            Change::Status(domain) => {
                world.libvirt.domains = vec![domain.clone()];
                // Its preparations are over once it has talked to QEMU.
                if domain.reason.as_deref() != Some("starting up") {
                    self.open();
                }
            }
            Change::Gone => {
                world.libvirt.domains.clear();
                self.give_back();
            }
            Change::Started(pid) => {
                self.give_back();
                let incoming = self.world.libvirt.domains.iter().any(|domain| domain.incoming);
                self.world.bind(0, "vfio-pci");
                self.world.openers.machines.push(Domain {
                    name: Arc::from("vm1"),
                    live: true,
                    pid: Some(*pid),
                    incoming,
                    ..Domain::default()
                });
                self.opening = Some(*pid);
            }
            Change::Ended => {
                self.opening = None;
                self.is_returning = true;
                self.world.openers.openers.clear();
                self.world.openers.machines.clear();
            }
        }
    }

    fn open(&mut self) {
        if let Some(pid) = self.opening.take() {
            self.world.openers.openers.push(Opener {
                pid,
                name: Arc::from("qemu-system-x86"),
                domain: Some(Arc::from("vm1")),
                handles: vec![DeviceFile::Group(40)],
                started: Some(u64::from(pid)),
                ..Opener::default()
            });
        }
    }

    fn give_back(&mut self) {
        if std::mem::take(&mut self.is_returning) {
            self.world.bind(0, "mlx5_core");
        }
    }

    /// Plays a step with any moments of reading, and says what is true after it.
    fn play(
        &mut self,
        changes: &[Change],
        numbers: &mut Numbers,
    ) -> (String, Vec<(&'static str, String, &'static str)>) {
        for change in changes {
            self.apply(change);
            for _ in 0..[0, 0, 1, 2][numbers.below(4)] {
                match numbers.below(4) {
                    0 => self.open(),
                    1 => self.give_back(),
                    _ => {}
                }
                self.world.pass(15);
            }
        }
        self.give_back();
        self.world.settle();
        let holder = self.world.last.as_ref().unwrap().vf_map.vfs.values().next().unwrap().holder.name().to_owned();
        (holder, self.world.findings())
    }
}

fn replay(number: u64, host: usize, prove: bool) {
    let mut numbers = Numbers::new(number);
    let mut replay = Replay { world: world(2), opening: None, is_returning: false };
    replay.world.pass(15);
    let steps = recorded(["a", "b"][host]);
    let names: Vec<&str> = steps.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, STEPS.iter().map(|(name, ..)| *name).collect::<Vec<_>>());
    let mut is_proved = false;
    for ((name, changes), (_, first, second)) in steps.iter().zip(STEPS) {
        let (holder, is_stale) = [first, second][host];
        let found = replay.play(changes, &mut numbers);
        // What was shown to work stays so until the machine has left.
        is_proved &= *holder == "vm1" && changes.iter().all(|change| !matches!(change, Change::Started(_)));
        let stale = ("vf_map_stale", format!("{PF}/vf0"), "domain_appeared");
        let expected = if *is_stale && !is_proved { vec![stale] } else { Vec::new() };
        assert_eq!(found, ((*holder).to_owned(), expected), "host {host}, step {name}, interleaving {number}");
        if prove && *is_stale && !is_proved {
            let traffic = replay.world.vf(0).traffic.as_mut().unwrap();
            for bytes in [&mut traffic.received_bytes, &mut traffic.transmitted_bytes] {
                *bytes = bytes.map(|bytes| bytes + (5 << 20));
            }
            replay.world.pass(15).is_quiet();
            is_proved = true;
        }
    }
}

#[test]
fn a_machine_of_a_real_libvirtd_is_judged_right_whenever_it_is_looked_at() {
    for number in 0..shuffles() {
        for host in [0, 1] {
            replay(number, host, number % 2 == 1);
        }
    }
}
