//! The same changes in any order, seen at any moments: the verdict is the same in the end.
//!
//! Libvirt, QEMU, the kernel and a container's runtime write on their own. Each keeps its own order; how they interleave
//! and what falls between two passes is chance. A timeline is what each of them does; it is run with many
//! interleavings, and what is found in the end must be what is expected, every time.
//!
//! `LANEWATCH_SHUFFLES` says how many interleavings are tried.

use super::*;
use crate::model::holder::{CgroupOwner, NetworkNamespace};

type Change = fn(&mut World);

/// What one writer does, in its order.
type Writer = &'static [Change];

/// What is found in the end: check, subject without the PF, reason.
type Expected = &'static [(&'static str, &'static str, &'static str)];

struct Timeline {
    name: &'static str,
    /// What was there before, seen by several passes.
    before: Writer,
    writers: &'static [Writer],
    found: Expected,
    /// Who has VF 0 in the end.
    holder: &'static str,
}

const PID: u32 = 17_170;

fn status(world: &mut World, state: &str, reason: &str, pid: Option<u32>, incoming: bool) {
    let claim = Claim { address: address(1), mac: None, vlan: None, present: Some(true) };
    world.libvirt.domains.retain(|domain| &*domain.name != "vm1");
    world.libvirt.domains.push(Domain {
        name: Arc::from("vm1"),
        live: true,
        state: Some(Arc::from(state)),
        reason: Some(Arc::from(reason)),
        pid,
        id: Some(3),
        incoming,
        incoming_job: incoming,
        claims: vec![claim],
        ..Domain::default()
    });
}

fn qemu(world: &mut World, incoming: bool) {
    world.openers.machines.push(Domain {
        name: Arc::from("vm1"),
        live: true,
        pid: Some(PID),
        incoming,
        ..Domain::default()
    });
}

fn opens(world: &mut World, pid: u32, name: &str, domain: Option<&str>) {
    world.openers.openers.push(Opener {
        pid,
        name: Arc::from(name),
        domain: domain.map(Arc::from),
        handles: vec![DeviceFile::Group(40)],
        started: Some(u64::from(pid)),
        ..Opener::default()
    });
    world.openers.openers.sort_by_key(|opener| opener.pid);
}

fn exits(world: &mut World, pid: u32) {
    world.openers.openers.retain(|opener| opener.pid != pid);
    world.openers.machines.retain(|machine| machine.pid != Some(pid));
}

const BOUND: Change = |world| _ = world.bind(0, "vfio-pci");
const GIVEN_BACK: Change = |world| _ = world.bind(0, "mlx5_core");
const QEMU_STARTS: Change = |world| qemu(world, false);
const QEMU_WAITS_FOR_A_STATE: Change = |world| qemu(world, true);
const QEMU_OPENS: Change = |world| opens(world, PID, "qemu-system-x86", Some("vm1"));
const QEMU_EXITS: Change = |world| exits(world, PID);
const STARTING: Change = |world| status(world, "paused", "starting up", None, false);
const STARTING_WITH_PID: Change = |world| status(world, "paused", "starting up", Some(PID), false);
const BOOTED: Change = |world| status(world, "running", "booted", Some(PID), false);
const MOVING_IN: Change = |world| status(world, "paused", "starting up", None, true);
const MOVING_IN_WITH_PID: Change = |world| status(world, "paused", "starting up", Some(PID), true);
const INCOMING: Change = |world| status(world, "paused", "migration", Some(PID), true);
const MIGRATED: Change = |world| status(world, "running", "migrated", Some(PID), false);
const POST_COPY: Change = |world| status(world, "running", "post-copy", Some(PID), true);
const RESTORING: Change = |world| status(world, "paused", "migration", Some(PID), false);
const RESTORED: Change = |world| status(world, "running", "restored", Some(PID), false);
const UNPAUSED: Change = |world| status(world, "running", "unpaused", Some(PID), false);
const OUTGOING: Change = |world| status(world, "paused", "migration", Some(PID), false);
const CANCELED: Change = |world| status(world, "running", "migration canceled", Some(PID), false);
const STATUS_REMOVED: Change = |world| world.libvirt.domains.retain(|domain| &*domain.name != "vm1");
const A_HELPER_OPENS: Change = |world| opens(world, PID + 1, "dpdk-dumpcap", None);
const POD: &str = "3b1f0a52-1111-4222-8333-944444444444";

fn pod() -> CgroupOwner {
    CgroupOwner::Pod { uid: Arc::from(POD), container: None }
}

const POD_STARTS: Change = |world| {
    world.namespaces.seen.push(NetworkNamespace { name: Arc::from("4026532200"), owner: Some(pod()) });
};
const POD_GETS_THE_VF: Change = |world| {
    world.vf(0).netdevs.clear();
    world.namespaces.interfaces.push(NamespaceInterface {
        address: address(1),
        netdev: Arc::from("net1"),
        namespace: Arc::from("4026532200"),
        owner: Some(pod()),
    });
};
const POD_GIVES_IT_BACK: Change = |world| {
    world.namespaces.interfaces.clear();
    world.vf(0).netdevs = vec![Arc::from("ib1v0")];
};
const POD_ENDS: Change = |world| {
    world.namespaces.seen.clear();
    world.namespaces.interfaces.clear();
};
const VFS_REMOVED: Change = |world| {
    world.namespaces.interfaces.clear();
    world.pf.vfs.clear();
    (world.pf.configured, world.pf.reported, world.pf.announced) = (Some(0), Some(0), Some(0));
};
const VFS_MADE_AGAIN: Change = |world| {
    world.pf.vfs = vec![Vf { instance: 2000, ..vf(0) }, Vf { instance: 2001, ..vf(1) }];
    (world.pf.configured, world.pf.reported, world.pf.announced) = (Some(2), Some(2), Some(2));
};

const TIMELINES: &[Timeline] = &[
    Timeline {
        name: "a machine that boots",
        before: &[],
        writers: &[&[BOUND], &[STARTING, STARTING_WITH_PID, BOOTED], &[QEMU_STARTS, QEMU_OPENS]],
        found: &[],
        holder: "vm1",
    },
    Timeline {
        name: "a machine that is moved here",
        before: &[],
        writers: &[
            &[BOUND],
            &[MOVING_IN, MOVING_IN_WITH_PID, INCOMING, MIGRATED],
            &[QEMU_WAITS_FOR_A_STATE, QEMU_OPENS],
        ],
        found: &[("vf_map_stale", "/vf0", "domain_appeared")],
        holder: "vm1",
    },
    Timeline {
        name: "one that is moved here and paused and resumed after",
        before: &[],
        writers: &[
            &[BOUND],
            &[MOVING_IN, MOVING_IN_WITH_PID, INCOMING, MIGRATED, UNPAUSED],
            &[QEMU_WAITS_FOR_A_STATE, QEMU_OPENS],
        ],
        found: &[("vf_map_stale", "/vf0", "domain_appeared")],
        holder: "vm1",
    },
    Timeline {
        name: "a move whose memory comes after the guest runs",
        before: &[],
        writers: &[
            &[BOUND],
            &[MOVING_IN_WITH_PID, INCOMING, POST_COPY, MIGRATED],
            &[QEMU_WAITS_FOR_A_STATE, QEMU_OPENS],
        ],
        found: &[("vf_map_stale", "/vf0", "domain_appeared")],
        holder: "vm1",
    },
    Timeline {
        name: "a machine that is restored from a saved image",
        before: &[],
        writers: &[
            &[BOUND],
            &[STARTING, STARTING_WITH_PID, RESTORING, RESTORED],
            &[QEMU_WAITS_FOR_A_STATE, QEMU_OPENS],
        ],
        found: &[("vf_map_stale", "/vf0", "domain_appeared")],
        holder: "vm1",
    },
    Timeline {
        name: "a machine that is moved away",
        before: &[BOUND, QEMU_STARTS, QEMU_OPENS, BOOTED],
        writers: &[&[OUTGOING, STATUS_REMOVED], &[QEMU_EXITS, GIVEN_BACK]],
        found: &[],
        holder: "ib1v0",
    },
    Timeline {
        name: "a move that is cancelled, on the host that keeps the machine",
        before: &[BOUND, QEMU_STARTS, QEMU_OPENS, BOOTED],
        writers: &[&[OUTGOING, CANCELED]],
        found: &[],
        holder: "vm1",
    },
    Timeline {
        name: "a move that is cancelled, on the other host",
        before: &[],
        writers: &[&[
            BOUND,
            QEMU_WAITS_FOR_A_STATE,
            MOVING_IN_WITH_PID,
            INCOMING,
            QEMU_EXITS,
            STATUS_REMOVED,
            GIVEN_BACK,
        ]],
        found: &[],
        holder: "ib1v0",
    },
    Timeline {
        name: "a helper that opens the group of a machine's VF",
        before: &[],
        writers: &[&[BOUND, QEMU_STARTS, QEMU_OPENS], &[A_HELPER_OPENS], &[BOOTED]],
        found: &[],
        holder: "vm1",
    },
    Timeline {
        name: "VFs that are made again under a pod that lives on",
        before: &[POD_STARTS, POD_GETS_THE_VF],
        writers: &[&[VFS_REMOVED, VFS_MADE_AGAIN]],
        found: &[("vf_map_stale", "/vf0", "vf_recreated")],
        holder: "ib1v0",
    },
    Timeline {
        name: "VFs that are removed under a pod that lives on",
        before: &[POD_STARTS, POD_GETS_THE_VF],
        writers: &[&[VFS_REMOVED]],
        found: &[("vf_dangling", "/vf0", "gone")],
        holder: "",
    },
    Timeline {
        name: "a pod that gives its VF back and ends",
        before: &[POD_STARTS, POD_GETS_THE_VF],
        writers: &[&[POD_GIVES_IT_BACK, POD_ENDS]],
        found: &[],
        holder: "ib1v0",
    },
    Timeline {
        name: "VFs that are made again while their pod ends",
        before: &[POD_STARTS, POD_GETS_THE_VF],
        writers: &[&[VFS_REMOVED, VFS_MADE_AGAIN], &[POD_ENDS]],
        found: &[],
        holder: "ib1v0",
    },
];

/// How many interleavings are tried: `LANEWATCH_SHUFFLES`.
pub(super) fn shuffles() -> u64 {
    std::env::var("LANEWATCH_SHUFFLES").ok().and_then(|text| text.parse().ok()).unwrap_or(100)
}

/// Numbers without a pattern, the same in every run (xorshift).
pub(super) struct Numbers(u64);

impl Numbers {
    /// Those of the interleaving of this number.
    pub(super) fn new(number: u64) -> Self {
        let mut numbers = Self(0x9e37_79b9_7f4a_7c15 ^ (number + 1).wrapping_mul(0xd134_2543_de82_ef95));
        (0..4).for_each(|_| _ = numbers.below(2));
        numbers
    }

    pub(super) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(limit).unwrap()).unwrap()
    }
}

/// One interleaving: the changes in their order, and after each how many passes see it.
fn interleaving(timeline: &Timeline, numbers: &mut Numbers) -> Vec<(Change, u64)> {
    let mut left: Vec<Writer> = timeline.writers.to_vec();
    let mut changes = Vec::new();
    while !left.is_empty() {
        let at = numbers.below(left.len());
        let (next, rest) = left[at].split_first().unwrap();
        // Often none: several changes fall between two passes.
        let passes = [0, 0, 1, 3][numbers.below(4)];
        changes.push((*next, passes));
        left[at] = rest;
        left.retain(|writer| !writer.is_empty());
    }
    changes
}

fn in_the_end(timeline: &Timeline, changes: &[(Change, u64)]) -> (Vec<(String, String, String)>, String) {
    let mut world = world(2);
    for change in timeline.before {
        change(&mut world);
    }
    if !timeline.before.is_empty() {
        world.settle();
    }
    for (change, passes) in changes {
        change(&mut world);
        world.pass(passes * 15);
    }
    world.settle();
    let text =
        |(check, subject, reason): (&str, String, &str)| (check.to_owned(), subject.replace(PF, ""), reason.to_owned());
    let found = world.findings().into_iter().map(text).collect();
    let holder = world.last.as_ref().unwrap().vf_map.vfs.values().next().map(|vf| vf.holder.name().to_owned());
    (found, holder.unwrap_or_default())
}

#[test]
fn every_interleaving_ends_in_the_same_verdict() {
    for timeline in TIMELINES {
        let expected: Vec<(String, String, String)> = timeline
            .found
            .iter()
            .map(|(check, subject, reason)| ((*check).to_owned(), (*subject).to_owned(), (*reason).to_owned()))
            .collect();
        for number in 0..shuffles() {
            let changes = interleaving(timeline, &mut Numbers::new(number));
            let passes: Vec<u64> = changes.iter().map(|(_, passes)| *passes).collect();
            let (found, holder) = in_the_end(timeline, &changes);
            let case = format!("{}, interleaving {number}, passes {passes:?}", timeline.name);
            assert_eq!(found, expected, "{case}");
            assert_eq!(holder, timeline.holder, "{case}");
        }
    }
}

#[test]
fn data_in_both_directions_proves_a_machine_that_was_moved_here() {
    let mut world = world(2);
    for change in [BOUND, MOVING_IN_WITH_PID, QEMU_WAITS_FOR_A_STATE, INCOMING, QEMU_OPENS, MIGRATED] {
        change(&mut world);
        world.pass(15);
    }
    world.pass(150).says("vf_map_stale", &format!("{PF}/vf0"), "domain_appeared");
    let traffic = world.vf(0).traffic.as_mut().unwrap();
    (traffic.received_bytes, traffic.transmitted_bytes) = (Some(5 << 20), Some(5 << 20));
    world.pass(15).is_quiet();
    // Once is enough: nothing new is held against it later.
    UNPAUSED(&mut world);
    world.pass(600).is_quiet();
}

#[test]
fn a_vf_that_is_attached_while_the_guest_runs_was_probed_by_it() {
    let mut world = world(2);
    for change in [QEMU_WAITS_FOR_A_STATE, INCOMING] {
        change(&mut world);
    }
    world.libvirt.domains[0].claims.clear();
    MIGRATED(&mut world);
    world.libvirt.domains[0].claims.clear();
    world.pass(300).is_quiet();
    BOUND(&mut world);
    MIGRATED(&mut world);
    QEMU_OPENS(&mut world);
    world.pass(600).is_quiet();
}

#[test]
fn a_move_while_nobody_watched_is_seen_at_the_next_start() {
    let mut world = world(2);
    world.pass(60);
    let remembered = world.engine.history().vf_map.clone();
    for change in [BOUND, QEMU_WAITS_FOR_A_STATE, QEMU_OPENS, MIGRATED, UNPAUSED] {
        change(&mut world);
    }
    let text = serde_json::to_string(&remembered).unwrap();
    world.engine = Engine::new(Arc::new(Policy::default()), false);
    let vf_map = serde_json::from_str(&text).unwrap();
    world.engine.restore(crate::watch::store::SavedState { vf_map, ..Default::default() }, Vec::new(), world.now);
    world.pass(150).says("vf_map_stale", &format!("{PF}/vf0"), "domain_appeared");
}

#[test]
fn a_machine_that_came_before_anybody_watched_is_not_suspected() {
    let mut world = world(2);
    for change in [BOUND, QEMU_WAITS_FOR_A_STATE, QEMU_OPENS, MIGRATED] {
        change(&mut world);
    }
    world.engine = Engine::new(Arc::new(Policy::default()), false);
    world.pass(600).is_quiet();
}

#[test]
fn a_change_that_was_hidden_is_still_an_event() {
    let mut world = world(2);
    POD_STARTS(&mut world);
    POD_GETS_THE_VF(&mut world);
    world.pass(60);
    let generation = |world: &World| world.last.as_ref().unwrap().vf_map.pfs.values().next().unwrap().generation;
    let before = generation(&world);
    let missing = Some(MissingAccess::Namespace);
    world.namespaces = Namespaces { missing, ..Namespaces::default() };
    world.pass(60);
    assert_eq!(generation(&world), before);
    world.namespaces.missing = None;
    world.pass(60);
    assert_eq!(generation(&world), before + 1);
    let events = &world.last.as_ref().unwrap().events;
    assert!(events.iter().any(|event| event.text.contains(&format!("holder pod {POD} became"))), "{events:?}");
}

#[test]
fn the_process_that_was_there_first_stays_the_holder() {
    let mut world = world(2);
    BOUND(&mut world);
    opens(&mut world, 50, "primary", None);
    world.pass(60);
    // A number above, and, after the numbers began anew, one below.
    opens(&mut world, 60, "secondary", None);
    opens(&mut world, 40, "later", None);
    world.openers.openers[0].started = Some(99);
    world.pass(60);
    let holder = |world: &World| world.last.as_ref().unwrap().vf_map.vfs.values().next().unwrap().holder.clone();
    assert_eq!(holder(&world), Holder::Process(Arc::from("primary")));
    let since = world.last.as_ref().unwrap().vf_map.vfs.values().next().unwrap().tenure.clone().unwrap().since;
    assert!(world.now.wall.duration_since(since).unwrap() >= Duration::from_secs(100));
    exits(&mut world, 50);
    world.pass(15);
    assert_eq!(holder(&world), Holder::Process(Arc::from("secondary")));
}
