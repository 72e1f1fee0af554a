//! VFs that get lost on the host itself: interfaces, numbers, PFs, drivers.

use super::*;
use crate::model::benchmark::{Benchmark, BenchmarkKey, BenchmarkRun, RunResult, Shortfall, SkipReason};
use crate::model::ids::{DeviceName, PortKey};

#[test]
fn an_interface_that_vanished_from_every_namespace() {
    let mut world = world(1);
    let elsewhere = NamespaceInterface {
        address: address(1),
        netdev: Arc::from("net1"),
        namespace: Arc::from("blue"),
        owner: None,
    };
    world.vf(0).netdevs.clear();
    world.namespaces.interfaces.push(elsewhere.clone());
    world.pass(600).is_quiet();
    assert_eq!(world.last.as_ref().unwrap().vf_map.vfs.values().next().unwrap().holder.kind(), "netns");
    world.namespaces.interfaces.clear();
    world.pass(60).is_quiet();
    world.pass(90).says("vf_orphan", &format!("{PF}/vf0"), "no_interface");
    world.namespaces.interfaces.push(elsewhere);
    world.pass(15).is_quiet();
    // Where a namespace is hidden, nothing can be said.
    world.namespaces = Namespaces { missing: Some(MissingAccess::Namespace), ..Namespaces::default() };
    world.pass(600).is_quiet();
    let row = world.last.as_ref().unwrap().vf_map.vfs.values().next().unwrap();
    assert!(matches!(row.holder, Holder::Unknown(_)), "{row:?}");
}

#[test]
fn an_interface_in_the_only_namespace_without_a_process() {
    let mut world = world(1);
    world.vf(0).netdevs.clear();
    let empty = |names: &[&str]| Namespaces {
        missing: Some(MissingAccess::Namespace),
        empty: names.iter().map(|name| Arc::from(*name)).collect(),
        ..Namespaces::default()
    };
    let holder = |world: &World| world.last.as_ref().unwrap().vf_map.vfs.values().next().unwrap().holder.clone();
    world.namespaces = empty(&["blue"]);
    world.pass(600).is_quiet();
    assert_eq!(holder(&world), Holder::Netns(Arc::from("blue")));
    // In which of two it is, nothing tells.
    world.namespaces = empty(&["blue", "red"]);
    world.pass(600).is_quiet();
    assert!(matches!(holder(&world), Holder::Unknown(_)), "{:?}", holder(&world));
}

#[test]
fn renumbered_after_a_card_was_added() {
    let mut world = world(1);
    world.bind(0, "vfio-pci").start("vm1", 20, &[0], "booted").pass(300).is_quiet();
    // After the next boot the card has another bus number; the definition names the old one.
    let map: VfMap = serde_json::from_str(&serde_json::to_string(&world.engine.history().vf_map).unwrap()).unwrap();
    let mut after = super::tests::world(1);
    after.engine = Engine::new(Arc::new(Policy::default()), false);
    let saved = crate::watch::store::SavedState { vf_map: map, ..Default::default() };
    after.engine.restore(saved, Vec::new(), after.now);
    after.pf.address = "0000:99:00.0".parse().unwrap();
    after.pf.vfs[0].address = "0000:99:00.1".parse().ok();
    after.define("vm1", None, &[0], "");
    after.libvirt.domains[0].claims[0].present = Some(false);
    after.pass(60).is_quiet();
    after.pass(90).says("vf_dangling", "0000:98:00.1", "gone");
    assert!(after.last.as_ref().unwrap().events.iter().any(|event| event.text.contains("PF 0000:98:00.0 is gone")));
    after.libvirt.domains[0].claims[0].address = "0000:99:00.1".parse().unwrap();
    after.libvirt.domains[0].claims[0].present = Some(true);
    after.pass(15).is_quiet();
}

#[test]
fn a_pf_that_is_reset_under_its_vfs() {
    let mut world = world(2);
    world.bind(0, "vfio-pci").start("vm1", 20, &[0], "booted").pass(300).is_quiet();
    world.pf.probe = None;
    world.pass(15);
    world.pf.probe = Some(2);
    world.pass(60).is_quiet();
    world.pass(90).says("vf_map_stale", &format!("{PF}/vf0"), "pf_reprobed");
    assert_eq!(world.count(Signal::PfReprobed), 1);
    let since = world.last.as_ref().unwrap().vf_map.verified(world.pf.address);
    assert_eq!(since, None);
    // Some broadcasts prove nothing; data in both directions does.
    world.vf(0).traffic.as_mut().unwrap().received_bytes = Some(100 << 20);
    world.pass(60).says("vf_map_stale", &format!("{PF}/vf0"), "pf_reprobed");
    world.vf(0).traffic.as_mut().unwrap().transmitted_bytes = Some(2 << 20);
    world.pass(15).is_quiet();
    assert!(world.last.as_ref().unwrap().vf_map.verified(world.pf.address).is_some());
}

#[test]
fn vfs_made_anew_under_a_holder_until_it_opens_them_again() {
    let mut world = world(1);
    world.bind(0, "vfio-pci").start("vm1", 20, &[0], "booted").pass(300).is_quiet();
    world.vf(0).instance += 1;
    world.pass(150).says("vf_map_stale", &format!("{PF}/vf0"), "vf_recreated");
    world.stop("vm1").start("vm1", 31, &[0], "booted").pass(15).is_quiet();
    assert_eq!(world.count(Signal::VfRecreated), 1);
}

#[test]
fn a_domain_that_was_moved_here_with_its_vf() {
    let mut world = world(1);
    world.bind(0, "vfio-pci").pass(15);
    world.start("vm1", 20, &[0], "migrated").pass(60).is_quiet();
    world.pass(90).says("vf_map_stale", &format!("{PF}/vf0"), "domain_appeared");
    // Bound anew: detached and attached.
    world.openers.openers.clear();
    world.stop("vm1").define("vm1", Some(20), &[], "migrated").bind(0, "mlx5_core").pass(15);
    world.stop("vm1").bind(0, "vfio-pci").start("vm1", 20, &[0], "migrated").pass(15).is_quiet();
    world.pass(600).is_quiet();
}

#[test]
fn a_probe_proves_a_vf() {
    let mut world = world(1);
    world.bind(0, "vfio-pci").start("vm1", 20, &[0], "booted").pass(300);
    world.vf(0).instance += 1;
    world.pass(150);
    assert_eq!(world.findings().len(), 1);
    // What a probe that began before it found says nothing.
    let at = world.now.wall;
    world.engine.prove(address(1), at - Duration::from_secs(3600));
    world.pass(15);
    assert_eq!(world.findings().len(), 1);
    let function = world.vf(0).address;
    let port = PortKey { device: DeviceName::new("mlx5_9"), port: 1 };
    let key = BenchmarkKey { probe: Benchmark::RdmaLoopback, port: Some(port) };
    let skipped = BenchmarkRun { function, ..BenchmarkRun::skipped(&key, at, SkipReason::PortBusy, "") };
    world.engine.record(skipped.clone(), world.now);
    world.pass(15);
    assert_eq!(world.findings().len(), 1, "nothing was moved");
    world.engine.record(BenchmarkRun { result: RunResult::Slow(Shortfall::BelowCeiling), ..skipped }, world.now);
    world.pass(15).is_quiet();
}

#[test]
fn sixty_one_of_sixty_four() {
    let mut world = world(64);
    world.pass(300).is_quiet();
    world.pf.reported = Some(61);
    world.pf.vfs.iter_mut().skip(61).for_each(|vf| vf.config = None);
    world.pass(60).is_quiet();
    world.pass(90).says("vf_count_mismatch", PF, "netlink_list");
    world.pf.reported = Some(64);
    world.pass(15).is_quiet();
    // Details that are not to be had are no lack of VFs.
    (world.pf.reported, world.pf.detail) =
        (None, VfDetail::Unavailable(crate::model::reading::ReadError::NotSupported));
    world.pass(600).is_quiet();
    world.pf.vfs.truncate(61);
    world.pass(150).says("vf_count_mismatch", PF, "links");
}

#[test]
fn orphans_and_leftovers() {
    let mut world = world(1);
    world.pf.fabric = Some(Fabric::Ethernet);
    let mac = Mac([2, 0, 0, 0, 0, 7]);
    world.vf(0).config = Some(VfConfig { mac: Some(mac), trust: Some(true), ..VfConfig::default() });
    world.bind(0, "vfio-pci").pass(60).is_quiet();
    world.pass(90);
    let found: BTreeMap<_, _> = world.findings().into_iter().map(|(check, _, reason)| (check, reason)).collect();
    assert_eq!(found, [("vf_orphan", "not_held"), ("vf_leftover_config", "trust")].into());
    world.bind(0, "mlx5_core").pass(15).is_quiet();
    // A process that can't be looked into may hold it.
    world.openers.missing = Some(MissingAccess::Ptrace);
    world.bind(0, "vfio-pci").pass(600).is_quiet();
    let report = world.last.as_ref().unwrap();
    let row = report.vf_map.vfs.values().next().unwrap();
    assert_eq!(row.holder, Holder::Unknown(MissingAccess::Ptrace));
    let sentence = "CAP_SYS_PTRACE would show: holders of 1 VF";
    assert_eq!(report.limited, [Arc::from(sentence)]);
    assert_eq!(report.status, crate::model::check::Status::Ok);
}

#[test]
fn configuration_groups_drivers_and_a_pf_that_is_down() {
    let mut world = world(1);
    world.pf.fabric = Some(Fabric::Ethernet);
    world.vf(0).config = Some(VfConfig { trust: Some(true), spoof_check: Some(true), ..VfConfig::default() });
    world.bind(0, "vfio-pci").start("vm1", 20, &[0], "booted").pass(30);
    // Still being set up.
    world.vf(0).config.as_mut().unwrap().spoof_check = Some(false);
    world.pass(600).is_quiet();
    world.vf(0).config.as_mut().unwrap().trust = Some(false);
    world.pass(150).says("vf_config_drifted", &format!("{PF}/vf0"), "under_holder");
    world.vf(0).config.as_mut().unwrap().trust = Some(true);
    world.pass(15).is_quiet();
    world.vf(0).group_shared_with = Arc::from([address(5)]);
    world.pass(150).says("vf_group_shared", &format!("{PF}/vf0"), "not_isolated");
    world.vf(0).group_shared_with = Arc::default();
    world.vf(0).driver_override = Some(Arc::from("mlx5_vfio_pci"));
    world.pass(150).says("vf_driver_changed", &format!("{PF}/vf0"), "override_ignored");
    world.vf(0).driver_override = None;
    world.pf.up = Reading::Value(false);
    world.pass(150).says("vf_pf_down", PF, "interface_down");
    world.pf.up = Reading::Value(true);
    world.pass(15).is_quiet();
}

#[test]
fn the_map_survives_a_restart() {
    let mut world = world(2);
    world.bind(0, "vfio-pci").start("vm1", 20, &[0], "booted").pass(300);
    world.vf(0).instance += 1;
    world.pass(150).says("vf_map_stale", &format!("{PF}/vf0"), "vf_recreated");
    let before = &world.engine.history().vf_map;
    let map: VfMap = serde_json::from_str(&serde_json::to_string(before).unwrap()).unwrap();
    assert_eq!((&map.signals, &map.machines), (&before.signals, &before.machines));
    let generation = before.pfs[&world.pf.address].generation;
    world.engine = Engine::new(Arc::new(Policy::default()), false);
    let saved = crate::watch::store::SavedState { vf_map: map, ..Default::default() };
    world.engine.restore(saved, Vec::new(), world.now);
    world.pass(135).says("vf_map_stale", &format!("{PF}/vf0"), "vf_recreated");
    assert_eq!(world.engine.history().vf_map.pfs[&world.pf.address].generation, generation);
}
