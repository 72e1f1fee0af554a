//! Queue pair maps of stacks that have them.

use super::*;
use crate::model::reading::ReadError;

/// A map in which these VFs have an entry.
fn map(vfs: &[u32]) -> QidMap {
    let states = || BTreeMap::from([(Arc::from("RTS"), 3)]);
    let vfs = vfs.iter().map(|vf| (*vf, states())).collect();
    QidMap { pf: PF.parse().unwrap(), vfs, twice: Vec::new(), trouble: None }
}

#[test]
fn a_vf_in_use_without_an_entry() {
    let mut world = world(3);
    world.bind(0, "vfio-pci").start("vm1", 20, &[0], "booted");
    // Nobody uses the last one.
    (world.vf(2).driver, world.vf(2).netdevs) = (None, Vec::new());
    world.qid_map = Some(map(&[0, 1]));
    world.pass(600).is_quiet();
    world.qid_map = Some(map(&[1]));
    world.pass(60).is_quiet();
    world.pass(90).says("vf_map_stale", &format!("{PF}/vf0"), "qid_map");
    // Repaired: the VF is attached anew, and its entries come.
    world.qid_map = Some(map(&[0, 1]));
    world.pass(15).is_quiet();
    // A map that cannot be read speaks against nobody.
    world.qid_map = Some(QidMap { trouble: Some(ReadError::Io), ..map(&[]) });
    world.pass(600).is_quiet();
    let undecided = &world.last.as_ref().unwrap().undecided;
    assert_eq!(undecided.iter().filter(|u| u.check.as_str() == "vf_map_stale").count(), 2);
    // Nor does a host without any.
    world.qid_map = None;
    world.pass(600).is_quiet();
}

#[test]
fn a_vf_in_use_whose_entries_are_all_invalid() {
    let mut world = world(2);
    world.bind(0, "vfio-pci").start("vm1", 20, &[0], "booted");
    let entries = |states: &[&str]| states.iter().map(|state| (Arc::from(*state), 2)).collect();
    let of_first = |states: &[&str]| {
        let mut map = map(&[0, 1]);
        map.vfs.insert(0, entries(states));
        Some(map)
    };
    world.qid_map = of_first(&["INVALID", "RTS"]);
    world.pass(600).is_quiet();
    world.qid_map = of_first(&["invalid"]);
    world.pass(60).is_quiet();
    world.pass(90).says("vf_map_stale", &format!("{PF}/vf0"), "qid_invalid");
    // Of one that nobody uses it is as it should be.
    world.stop("vm1").pass(600);
    assert!(!world.findings().iter().any(|found| found.0 == "vf_map_stale"), "{:?}", world.findings());
}

#[test]
fn a_number_that_two_entries_claim() {
    let mut world = world(3);
    world.bind(0, "vfio-pci").start("vm1", 20, &[0], "booted");
    world.qid_map = Some(QidMap { twice: vec![(4711, vec![0, 1])], ..map(&[0, 1, 2]) });
    world.pass(60).is_quiet();
    world.pass(90);
    let both = [0, 1].map(|number| ("vf_map_stale", format!("{PF}/vf{number}"), "qid_claimed_twice"));
    assert_eq!(world.findings(), both);
    world.qid_map = Some(map(&[0, 1, 2]));
    world.pass(15).is_quiet();
}
