//! Timelines: what is said while VFs are made, given away, moved, lost and repaired.

mod guest;
mod libvirt;
mod lost;
mod order;
mod pods;
mod queues;

use super::*;
use crate::model::finding::EventKind;
use crate::model::holder::{
    Claim, DeviceFile, Domain, FunctionNetwork, FunctionPools, Libvirt, MissingAccess, NamespaceInterface, Namespaces,
    Opener, Openers,
};
use crate::model::ids::Guid;
use crate::model::pods::PodNames;
use crate::model::policy::Policy;
use crate::model::reading::Reading;
use crate::model::snapshot::{CollectorState, Fact};
use crate::model::sriov::QidMap;
use crate::model::sriov::{Fabric, Mac, Vf, VfConfig, VfDetail, VfLink, VfTraffic};
use crate::model::time::{BootTime, Timestamp};
use crate::watch::{Engine, HostReport};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

#[test]
fn machines_are_forgotten_oldest_first_and_never_while_they_have_vfs() {
    let mut map = VfMap::default();
    let day = 24 * 3_600_000;
    let now = 400 * day;
    let mut add = |name: String, seen: u64| {
        map.machines.insert(Arc::from(name.as_str()), Vec::new());
        map.machines_seen.insert(Arc::from(name.as_str()), seen);
    };
    add("a-live".to_owned(), now);
    add("m-half-a-year-ago".to_owned(), now - 181 * day);
    for number in 0..MAX_GONE_MACHINES as u64 + 2 {
        // The later in the alphabet, the longer ago.
        add(format!("b{number:05}"), now - 1000 - number);
    }
    forget_machines(&mut map, now);
    let has = |name: &str| map.machines.contains_key(name) && map.machines_seen.contains_key(name);
    assert!(has("a-live") && has("b00000") && has("b04095"));
    assert!(!has("b04096") && !has("b04097") && !has("m-half-a-year-ago"));
}

const PF: &str = "0000:98:00.0";

/// A host that a test changes, watched every 15 s.
struct World {
    engine: Engine,
    now: Timestamp,
    pf: Pf,
    openers: Openers,
    libvirt: Libvirt,
    namespaces: Namespaces,
    pods: PodNames,
    pools: FunctionPools,
    qid_map: Option<QidMap>,
    last: Option<HostReport>,
}

fn address(function: u8) -> PciAddress {
    format!("0000:98:{:02x}.{:x}", function / 8, function % 8).parse().unwrap()
}

/// A VF on the host's own driver, with its interface there and its GUIDs set.
fn vf(number: u8) -> Vf {
    let guid = Guid(0x0200_0000_0000_0100 + u64::from(number));
    Vf {
        number: u32::from(number),
        address: Some(address(number + 1)),
        instance: u64::from(number) + 1000,
        driver: Some(Arc::from("mlx5_core")),
        iommu_group: Some(u32::from(number) + 40),
        config: Some(VfConfig { node_guid: Some(guid), port_guid: Some(guid), ..VfConfig::default() }),
        traffic: Some(VfTraffic { received_bytes: Some(0), transmitted_bytes: Some(0), ..VfTraffic::default() }),
        netdevs: vec![Arc::from(format!("ib1v{number}"))],
        ..Vf::default()
    }
}

fn world(vfs: u8) -> World {
    let pf = Pf {
        address: PF.parse().unwrap(),
        driver: Some(Arc::from("mlx5_core")),
        iommu_group: None,
        node: None,
        fabric: Some(Fabric::InfiniBand),
        limit: Some(127),
        configured: Some(u32::from(vfs)),
        reported: Some(u32::from(vfs)),
        announced: Some(u32::from(vfs)),
        netdevs: vec![Arc::from("ib1")],
        devices: Vec::new(),
        up: Reading::Value(true),
        switchdev: false,
        probe: Some(1),
        detail: VfDetail::Full,
        vfs: (0..vfs).map(vf).collect(),
    };
    let mut world = World {
        engine: Engine::new(Arc::new(Policy::default()), false),
        now: Timestamp {
            tick: BootTime(86_400_000),
            wall: SystemTime::UNIX_EPOCH + Duration::from_secs(1_790_000_000),
        },
        pf,
        openers: Openers { visible: true, ..Openers::default() },
        libvirt: Libvirt { domains: Vec::new(), readable: true, has_live: true },
        namespaces: Namespaces::default(),
        pods: PodNames::default(),
        pools: FunctionPools::default(),
        qid_map: None,
        last: None,
    };
    world.look();
    world
}

impl World {
    fn look(&mut self) -> &HostReport {
        let keys: Vec<Arc<str>> = vec![Arc::from(self.pf.address.to_string())];
        let sriov =
            CollectorState { name: "sriov", success: true, listed: Some(keys.into()), ..CollectorState::default() };
        let mut facts: Vec<Fact> = vec![
            Arc::new(self.pf.clone()),
            Arc::new(self.openers.clone()),
            Arc::new(self.libvirt.clone()),
            Arc::new(self.namespaces.clone()),
            Arc::new(self.pods.clone()),
            Arc::new(self.pools.clone()),
        ];
        facts.extend(self.qid_map.clone().map(|map| Arc::new(map) as Fact));
        let report = self.engine.observe(Snapshot::new(self.now, facts, vec![sriov]));
        self.last.insert(report)
    }

    /// Lets so much time pass, with a reading every 15 s.
    fn pass(&mut self, seconds: u64) -> &mut Self {
        for _ in 0..seconds.div_ceil(15) {
            let step = Duration::from_secs(15);
            self.now = Timestamp { tick: self.now.tick.after(step), wall: self.now.wall + step };
            self.look();
        }
        self
    }

    /// Lets more time pass than any check waits for, with a reading now and then.
    fn settle(&mut self) -> &mut Self {
        for _ in 0..4 {
            let step = Duration::from_secs(75);
            self.now = Timestamp { tick: self.now.tick.after(step), wall: self.now.wall + step };
            self.look();
        }
        self
    }

    /// Findings about VFs: check, subject, reason.
    fn findings(&self) -> Vec<(&'static str, String, &'static str)> {
        let report = self.last.as_ref().unwrap();
        let found = report.findings.iter().map(|finding| &finding.condition);
        found.map(|found| (found.check.as_str(), found.subject.to_string(), found.reason.as_str())).collect()
    }

    fn is_quiet(&self) {
        assert_eq!(self.findings(), []);
    }

    fn says(&self, check: &str, subject: &str, reason: &str) {
        assert_eq!(self.findings(), [(check, subject.to_owned(), reason)].map(|(a, b, c)| (leak(a), b, leak(c))));
    }

    fn vf(&mut self, number: usize) -> &mut Vf {
        &mut self.pf.vfs[number]
    }

    fn bind(&mut self, number: usize, driver: &str) -> &mut Self {
        let vf = self.vf(number);
        vf.driver = Some(Arc::from(driver));
        vf.netdevs = if driver == "vfio-pci" { Vec::new() } else { vec![Arc::from(format!("ib1v{number}"))] };
        self
    }

    /// A machine that has these VFs open and is a domain of libvirt.
    fn start(&mut self, name: &str, pid: u32, vfs: &[usize], reason: &str) -> &mut Self {
        let groups = vfs.iter().map(|number| DeviceFile::Group(40 + u32::try_from(*number).unwrap())).collect();
        let name: Arc<str> = Arc::from(name);
        self.openers.openers.push(Opener {
            pid,
            name: Arc::from("qemu-system-x86"),
            domain: Some(Arc::clone(&name)),
            handles: groups,
            ..Opener::default()
        });
        self.define(&name, Some(pid), vfs, reason)
    }

    fn define(&mut self, name: &str, pid: Option<u32>, vfs: &[usize], reason: &str) -> &mut Self {
        let claim = |number: &usize| Claim {
            address: address(u8::try_from(*number).unwrap() + 1),
            mac: None,
            vlan: None,
            present: Some(true),
        };
        self.libvirt.domains.push(Domain {
            name: Arc::from(name),
            live: pid.is_some(),
            state: pid.map(|_| Arc::from("running")),
            reason: pid.map(|_| Arc::from(reason)),
            pid,
            id: pid,
            claims: vfs.iter().map(claim).collect(),
            ..Domain::default()
        });
        self
    }

    /// Its process and its live status go.
    fn stop(&mut self, name: &str) -> &mut Self {
        self.openers.openers.retain(|opener| opener.domain.as_deref() != Some(name));
        self.libvirt.domains.retain(|domain| *domain.name != *name);
        self
    }

    fn count(&self, signal: Signal) -> u64 {
        let map = &self.last.as_ref().unwrap().vf_map;
        map.signal(signal).count
    }

    fn guids(&mut self, number: usize, guid: u64) -> &mut Self {
        let config = self.vf(number).config.as_mut().unwrap();
        (config.node_guid, config.port_guid) = (Some(Guid(guid)), Some(Guid(guid)));
        self
    }
}

fn leak(text: &str) -> &'static str {
    Box::leak(text.to_owned().into_boxed_str())
}

#[test]
fn made_given_away_and_moved_away_cleanly() {
    let mut world = world(0);
    world.pass(60).is_quiet();
    // Being made: the count is held back, GUIDs are not set yet, no driver is bound.
    (world.pf.configured, world.pf.reported) = (None, Some(0));
    world.pf.vfs = vec![Vf { driver: None, config: None, ..vf(0) }];
    world.pass(60).is_quiet();
    (world.pf.configured, world.pf.reported) = (Some(1), Some(1));
    world.pf.vfs = vec![vf(0)];
    world.guids(0, 0).pass(60).is_quiet();
    world.guids(0, 7).pass(600).is_quiet();
    // Given to a machine: bound, then a while until its process has it open.
    world.bind(0, "vfio-pci").define("vm1", Some(20), &[0], "booted").pass(60).is_quiet();
    world.stop("vm1").start("vm1", 20, &[0], "booted").pass(3600).is_quiet();
    let report = world.last.as_ref().unwrap();
    let row = report.vf_map.vfs.values().next().unwrap();
    assert_eq!((row.holder.kind(), row.holder.name()), ("vm", "vm1"));
    assert!(report.vf_map.pfs.values().next().unwrap().generation >= 3);
    // Moved away: process and status go, the VF goes back to the host.
    world.stop("vm1").pass(15).is_quiet();
    world.bind(0, "mlx5_core").pass(3600).is_quiet();
    assert_eq!((world.count(Signal::DomainAppeared), world.count(Signal::DomainGone)), (1, 1));
    let events = &world.last.as_ref().unwrap().events;
    assert!(events.iter().any(|event| event.kind == EventKind::Migration && event.text.contains("vm1")));
    assert!(events.iter().any(|event| event.kind == EventKind::VfChanged && event.text.contains("holder VM vm1")));
}

#[test]
fn a_detach_that_failed_dangles_and_then_is_stale() {
    let mut world = world(2);
    world.bind(0, "vfio-pci").start("vm1", 20, &[0], "booted").pass(300).is_quiet();
    // The machine lives on and still claims the VF; its process has let go of it.
    world.openers.openers.clear();
    world.pass(60).is_quiet();
    world.pass(90);
    assert!(world.findings().contains(&("vf_dangling", format!("{PF}/vf0"), "not_held")), "{:?}", world.findings());
    assert!(!world.findings().iter().any(|(check, _, _)| *check == "vf_map_stale"));
    world.pass(600);
    assert!(
        world.findings().contains(&("vf_map_stale", format!("{PF}/vf0"), "detach_failed")),
        "{:?}",
        world.findings()
    );
    // Repaired: detached in the domain too, and given back.
    world.stop("vm1").define("vm1", Some(20), &[], "booted").bind(0, "mlx5_core").pass(15).is_quiet();
}

#[test]
fn a_machine_that_comes_back_with_another_vf() {
    let mut world = world(3);
    world.bind(0, "vfio-pci").start("vm1", 20, &[0], "booted").pass(300).is_quiet();
    world.stop("vm1").bind(0, "mlx5_core").pass(600).is_quiet();
    world.bind(2, "vfio-pci").start("vm1", 30, &[2], "booted").pass(60).is_quiet();
    world.pass(90).says("vf_identity_changed", &format!("{PF}/vf2"), "other_vf");
    // Repaired: the VF has the identity that the machine had.
    world.guids(0, 9).guids(2, 0x0200_0000_0000_0100).pass(15).is_quiet();
    world.pass(600).is_quiet();
}

#[test]
fn an_identity_that_changes_under_its_holder() {
    let mut world = world(1);
    world.bind(0, "vfio-pci").start("vm1", 20, &[0], "booted").pass(600).is_quiet();
    world.guids(0, 5).pass(150).says("vf_identity_changed", &format!("{PF}/vf0"), "under_holder");
    world.guids(0, 0x0200_0000_0000_0100).pass(15).is_quiet();
    world.guids(0, 5).pass(150);
    assert_eq!(world.findings().len(), 1);
    // Accepted by the operator.
    world.engine.forget_baseline();
    world.pass(15).is_quiet();
    world.pass(600).is_quiet();
}

#[test]
fn two_machines_claim_one_vf() {
    let mut world = world(1);
    world.bind(0, "vfio-pci").start("vm1", 20, &[0], "booted").define("vm2", Some(30), &[0], "booted");
    world.pass(60).is_quiet();
    world.pass(90).says("vf_dangling", &format!("{PF}/vf0"), "claimed_twice");
    world.stop("vm2").pass(15).is_quiet();
    // One that is off cannot start while the other runs; where both are off, it is worth knowing and no more.
    world.define("vm2", None, &[0], "").pass(150).says("vf_dangling", &format!("{PF}/vf0"), "claimed_twice");
    assert_eq!(world.last.as_ref().unwrap().status, crate::model::check::Status::Warning);
    world.stop("vm1").bind(0, "mlx5_core").define("vm1", None, &[0], "").pass(150);
    assert_eq!(world.last.as_ref().unwrap().status, crate::model::check::Status::Ok);
}

#[test]
fn the_removal_of_a_vf_waits_for_its_machine() {
    let mut world = world(2);
    world.bind(0, "vfio-pci").start("vm1", 20, &[0], "booted").pass(300).is_quiet();
    // The kernel has taken the driver off, and waits for QEMU to close the group.
    world.vf(0).driver = None;
    world.pass(150).says("vf_map_stale", &format!("{PF}/vf0"), "removal_blocked");
    let report = world.last.as_ref().unwrap();
    let summary = &report.findings[0].condition.summary;
    assert!(summary.contains("waits for VM vm1 (pid 20)"), "{summary}");
    assert_eq!(report.vf_map.vfs.values().next().unwrap().holder.name(), "vm1");
    // Functions that went before it are no other fault.
    world.vf(0).leaving = true;
    world.vf(1).address = None;
    world.pass(150).says("vf_map_stale", &format!("{PF}/vf0"), "removal_blocked");
    world.vf(0).leaving = false;
    world.vf(1).address = Some(address(2));
    world.bind(0, "vfio-pci").pass(15).is_quiet();
}

#[test]
fn a_running_machine_that_lost_its_function_is_worse_off_than_one_that_is_off() {
    let mut world = world(1);
    world.define("vm1", Some(20), &[0], "booted");
    let claim = &mut world.libvirt.domains[0].claims[0];
    (claim.address, claim.present) = ("0000:0a:00.0".parse().unwrap(), Some(false));
    world.pass(150).says("vf_dangling", "0000:0a:00.0", "gone");
    let found = |world: &World| world.last.as_ref().unwrap().findings[0].condition.clone();
    assert_eq!(found(&world).severity, crate::model::check::Severity::Critical);
    let running = found(&world).summary;
    assert!(running.contains("the guest has lost the device") && !running.contains("VF"), "{running}");
    world.libvirt.domains[0].live = false;
    world.pass(150);
    assert_eq!(found(&world).severity, crate::model::check::Severity::Warning);
    assert!(found(&world).summary.contains("will not start"));
}

/// The summary of the only finding.
fn summary(world: &World) -> &str {
    let findings = &world.last.as_ref().unwrap().findings;
    assert_eq!(findings.len(), 1, "{:?}", world.findings());
    &findings[0].condition.summary
}

#[test]
fn idle_vfs_of_a_kubernetes_node_are_one_finding_and_no_fault() {
    let mut world = world(8);
    for number in 0..8 {
        world.bind(number, "vfio-pci");
    }
    world.start("vm1", 20, &[3], "booted").pools.kubernetes = true;
    world.pass(150).says("vf_orphan", PF, "idle_pool");
    assert_eq!(world.last.as_ref().unwrap().status, crate::model::check::Status::Ok);
    let text = summary(&world);
    assert!(text.starts_with("7 of the 8 VFs of 0000:98:00.0 are idle in a pool: 0-2, 4-7 (this Kube"), "{text}");
    // A VF that a domain claims is that domain's, and no pool's.
    world.define("vm2", None, &[6], "").pass(150);
    let found = [("vf_orphan", format!("{PF}/vf6"), "not_held"), ("vf_orphan", PF.to_owned(), "idle_pool")];
    assert_eq!(world.findings(), found);
}

#[test]
fn a_network_of_libvirt_is_a_pool_of_its_pf_alone() {
    let mut world = world(2);
    world.bind(0, "vfio-pci").bind(1, "vfio-pci");
    let network = FunctionNetwork { name: Arc::from("fast"), pfs: vec![Arc::from("ib1")], functions: Vec::new() };
    world.pools.networks = vec![network];
    world.pass(150).says("vf_orphan", PF, "idle_pool");
    assert!(summary(&world).contains("the libvirt network fast"), "{}", summary(&world));
    world.pools.networks[0].pfs = vec![Arc::from("ib7")];
    world.pools.networks[0].functions = vec![address(2)];
    world.pass(150);
    let found = [("vf_orphan", format!("{PF}/vf0"), "not_held"), ("vf_orphan", PF.to_owned(), "idle_pool")];
    assert_eq!(world.findings(), found);
}

#[test]
fn many_orphans_of_one_pf_are_one_finding() {
    let mut world = world(6);
    for number in 0..3 {
        world.bind(number, "vfio-pci");
    }
    world.pass(150);
    let each = [0, 1, 2].map(|number| ("vf_orphan", format!("{PF}/vf{number}"), "not_held"));
    assert_eq!(world.findings(), each);
    world.bind(5, "vfio-pci").pass(150).says("vf_orphan", PF, "not_held");
    assert_eq!(world.last.as_ref().unwrap().status, crate::model::check::Status::Warning);
    assert!(summary(&world).starts_with("4 of the 6 VFs of 0000:98:00.0 are bound to vfio-pci"), "{}", summary(&world));
    assert!(summary(&world).contains("0-2, 5"), "{}", summary(&world));
}

/// A policy that expects so many VFs of the PFs that match.
fn expecting(pattern: &str, count: u32) -> Engine {
    let pfs = crate::host::collector::Filter::pattern(pattern).unwrap();
    let vfs = vec![crate::model::policy::VfPolicy { pfs, count }];
    Engine::new(Arc::new(Policy { vfs, ..Policy::default() }), false)
}

#[test]
fn vfs_that_the_policy_expects() {
    for pattern in ["0000:98:00\\.0", "ib1"] {
        let mut world = world(32);
        world.engine = expecting(pattern, 32);
        world.pass(150).is_quiet();
        world.pf.vfs.truncate(31);
        (world.pf.configured, world.pf.reported) = (Some(31), Some(31));
        world.pass(60).is_quiet();
        world.pass(90).says("vf_count_mismatch", PF, "policy");
        assert!(summary(&world).contains("1 of 32 VFs are missing, 31 are there"), "{}", summary(&world));
        assert_eq!(world.last.as_ref().unwrap().status, crate::model::check::Status::Warning);
        world.pf.vfs.clear();
        (world.pf.configured, world.pf.reported) = (Some(0), Some(0));
        world.pass(150).says("vf_count_mismatch", PF, "policy");
        assert!(summary(&world).contains("32 VFs are missing, 0 are there"), "{}", summary(&world));
        assert_eq!(world.last.as_ref().unwrap().status, crate::model::check::Status::Critical);
    }
    // More than expected is no fault, and without the policy none of them is.
    let mut more = world(32);
    more.engine = expecting("ib1", 8);
    more.pass(150).is_quiet();
    world(0).pass(150).is_quiet();
    let mut gone = world(0);
    gone.engine = expecting("ib2", 8);
    gone.pass(150).says("vf_count_mismatch", "host/vfs", "policy");
    assert!(summary(&gone).contains("does not have: 8 of \"ib2\""), "{}", summary(&gone));
}

#[test]
fn a_vf_in_use_without_a_link() {
    let mut world = world(1);
    world.vf(0).config.as_mut().unwrap().link = Some(VfLink::Disable);
    // The host's own driver has it: an orchestrator sets the link when it gives the VF away.
    world.pass(600).is_quiet();
    world.bind(0, "vfio-pci").start("vm1", 20, &[0], "booted").pass(60).is_quiet();
    world.pass(90).says("vf_link_disabled", &format!("{PF}/vf0"), "link_disabled");
    assert!(summary(&world).contains("`ip link set ib1 vf 0 state auto`"), "{}", summary(&world));
    world.vf(0).config.as_mut().unwrap().link = Some(VfLink::Auto);
    world.pass(600).is_quiet();
    // Taken down under its user: one finding, not two.
    world.vf(0).config.as_mut().unwrap().link = Some(VfLink::Disable);
    world.pass(150).says("vf_link_disabled", &format!("{PF}/vf0"), "link_disabled");
}

#[test]
fn guids_that_are_zero_or_used_twice() {
    let mut world = world(2);
    world.guids(1, 0).pass(60).is_quiet();
    world.pass(90).says("vf_identity_zero", &format!("{PF}/vf1"), "guid_zero");
    world.guids(1, 0x0200_0000_0000_0100).pass(150);
    let both = [0, 1].map(|number| ("vf_identity_duplicate", format!("{PF}/vf{number}"), "guid"));
    assert_eq!(world.findings(), both);
    world.guids(1, 8).pass(15).is_quiet();
}
