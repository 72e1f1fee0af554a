//! QidMapCollector on hosts in memory.

use proptest::prelude::*;
use rustix::io::Errno;

use super::layout::QidMapColumn;
use super::*;
use crate::host::collector::{Depth, Filter, Setup};
use crate::host::memory::MemoryHost;
use crate::model::time::BootTime;

const PF: &str = "/sys/devices/pci0000:98/0000:98:00.0";

fn layout() -> Arc<QidMapLayout> {
    Arc::new(QidMapLayout {
        path: PathBuf::from("/sys/class/infiniband/*/device/sriov/*/qid_map"),
        columns: vec![QidMapColumn::Vf, QidMapColumn::Local, QidMapColumn::Global, QidMapColumn::State],
        hexadecimal: false,
    })
}

/// A PF with two RDMA devices and a directory for each of some VFs.
fn host() -> Arc<MemoryHost> {
    let memory = Arc::new(MemoryHost::new());
    for device in ["mlx5_4", "mlx5_5"] {
        memory.set(format!("{PF}/infiniband/{device}/fw_ver"), "1\n");
        memory.symlink(format!("{PF}/infiniband/{device}/device"), "../../../0000:98:00.0");
        memory.symlink(
            format!("/sys/class/infiniband/{device}"),
            format!("../../devices/pci0000:98/0000:98:00.0/infiniband/{device}"),
        );
    }
    memory.directory("/sys/class/infiniband/rxe0");
    memory
}

/// What is found, and what went wrong: sources and reasons.
fn read(memory: &Arc<MemoryHost>, layout: Option<Arc<QidMapLayout>>) -> (Vec<QidMap>, Vec<(String, ReadError)>) {
    let mut host = memory.host();
    host.roots.qid_map = layout;
    let mut collector = (SPEC.make)(&Setup { host: host.clone(), filter: Filter::default() });
    let mut cx = ReadContext::new(&host, BootTime(0), Depth::Full);
    let found = collector.discover(&mut cx).unwrap();
    let facts: Vec<Fact> = found.iter().flat_map(|found| collector.open(found).read(&mut cx)).collect();
    let maps = facts.iter().map(|fact| fact.downcast_ref::<QidMap>().unwrap().clone()).collect();
    (maps, cx.faults.iter().map(|fault| (fault.source.to_string(), fault.reason)).collect())
}

#[test]
fn entries_by_state_and_numbers_claimed_twice() {
    let memory = host();
    memory.set(format!("{PF}/sriov/0/qid_map"), "vf lqpn gqpn state\n0 1 257 RTS\n0 2 258 RTS\n0 3 259 INIT\n");
    // The same entry again is the same claim.
    memory.set(format!("{PF}/sriov/1/qid_map"), "vf lqpn gqpn state\n1 1 513 RTS\n1 2 258 RTS\n1 2 258 RTS\n");
    memory.set(format!("{PF}/sriov/2/qid_map"), "vf lqpn gqpn state\n");
    let (maps, faults) = read(&memory, Some(layout()));
    assert_eq!(faults, []);
    let [map] = maps.as_slice() else { panic!("{maps:?}") };
    assert_eq!(map.pf.to_string(), "0000:98:00.0");
    let states: Vec<(String, u64)> = map.states().into_iter().map(|(state, n)| (state.to_string(), n)).collect();
    assert_eq!(states, [("INIT".to_owned(), 1), ("RTS".to_owned(), 5)]);
    assert_eq!(map.twice, [(258, vec![0, 1])]);
    assert_eq!((map.vfs.keys().copied().collect::<Vec<_>>(), map.trouble), (vec![0, 1], None));
}

#[test]
fn without_a_layout_nothing_is_read() {
    let memory = host();
    memory.set(format!("{PF}/sriov/0/qid_map"), "0 1 257 RTS\n");
    assert_eq!(read(&memory, None), (vec![], vec![]));
}

#[test]
fn without_such_files_there_is_nothing_and_no_fault() {
    assert_eq!(read(&Arc::new(MemoryHost::new()), Some(layout())), (vec![], vec![]));
    let memory = host();
    assert_eq!(read(&memory, Some(layout())), (vec![], vec![]));
    // Another stack's files.
    memory.set(format!("{PF}/sriov/0/policy"), "Follow\n");
    assert_eq!(read(&memory, Some(layout())), (vec![], vec![]));
}

#[test]
fn the_number_of_a_directory_is_that_of_its_vf() {
    let memory = host();
    memory.set(format!("{PF}/sriov/7/qid_map"), "0x101 RTS\n");
    let columns = vec![QidMapColumn::Global, QidMapColumn::State];
    let (maps, faults) = read(&memory, Some(Arc::new(QidMapLayout { columns, ..(*layout()).clone() })));
    assert_eq!((faults.len(), maps[0].vfs.keys().copied().collect::<Vec<_>>()), (0, vec![7]));
}

#[test]
fn odd_files_cost_only_themselves() {
    let memory = host();
    memory.set(format!("{PF}/sriov/0/qid_map"), "0 1 257 RTS\n");
    memory.fail(format!("{PF}/sriov/1/qid_map"), Errno::IO);
    memory.set(format!("{PF}/sriov/2/qid_map"), "2 1 what\n2 2 600 RTS\n");
    let (maps, faults) = read(&memory, Some(layout()));
    let expected = [("1", ReadError::Io), ("2", ReadError::Malformed)];
    let expected = expected.map(|(vf, reason)| (format!("{PF}/sriov/{vf}/qid_map"), reason));
    assert_eq!(faults, expected);
    assert_eq!((maps[0].vfs.len(), maps[0].trouble), (2, Some(ReadError::Malformed)));
}

#[test]
fn more_states_than_can_be_told_apart_are_other() {
    let memory = host();
    let entries: Vec<String> = (0..40).map(|n| format!("0 {n} {n} S{n:02}\n")).collect();
    memory.set(format!("{PF}/sriov/0/qid_map"), entries.concat());
    let (maps, _) = read(&memory, Some(layout()));
    let states = maps[0].states();
    assert_eq!((states.len(), states["other"]), (MOST_STATES + 1, 24));
}

#[test]
fn names_and_patterns() {
    for (pattern, name, expected) in [
        ("*", "", true),
        ("*", "mlx5_0", true),
        ("mlx5_*", "mlx5_0", true),
        ("mlx5_*", "mlx4_0", false),
        ("*_?", "mlx5_0", true),
        ("*_?", "mlx5_10", false),
        ("a*b*c", "a1b2b3c", true),
        ("a*b*c", "a1b2b3", false),
        ("", "a", false),
        ("qid_map", "qid_map", true),
    ] {
        assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
    }
}

proptest! {
    #[test]
    fn patterns_are_as_regular_expressions(pattern in "[ab*?]{0,8}", name in "[ab]{0,8}") {
        let text = pattern.replace('?', ".").replace('*', ".*");
        prop_assert_eq!(matches(&pattern, &name), Filter::pattern(&text).unwrap().is_match(&name));
    }
}
