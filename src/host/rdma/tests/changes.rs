//! What happens between passes.

use super::*;
use crate::model::rdma::PortState;
use crate::model::reading::Reading;

const MINUTE: i64 = 60;

#[test]
fn an_excluded_device_is_never_opened() {
    let tree = infiniband();
    tree.text("class/infiniband/mlx5_1/ports/1/state", "4: ACTIVE");
    let filter = Filter { include: None, exclude: Some(Filter::pattern("mlx5_0").unwrap()) };
    let mut bench = Bench::with(&tree, filter, |setup| Box::new(RdmaCollector::new(setup, None)));
    let devices = bench.devices(0, Depth::Full);
    assert_eq!(devices.iter().map(|device| device.name.to_string()).collect::<Vec<_>>(), ["mlx5_1"]);
    assert_eq!((tree.opened("mlx5_0"), tree.opened("mlx5_1") > 0), (0, true));
}

#[test]
fn a_pass_over_states_keeps_the_counters() {
    let tree = infiniband();
    let mut bench = Bench::new(&tree);
    // The first pass reads everything, whatever it was asked for.
    let first = Arc::clone(&bench.devices(10, Depth::State)[0]);
    assert_eq!(first.counters_at, BootTime(10_000));
    tree.text(&format!("{REAL}/ports/1/counters/port_rcv_data"), "5000")
        .text(&format!("{REAL}/ports/1/state"), "1: DOWN");
    let (rates, counters) = (tree.reads("/rate"), tree.reads("counters/"));
    let second = Arc::clone(&bench.devices(15, Depth::State)[0]);
    assert_eq!(second.counters_at, BootTime(10_000));
    assert_eq!(second.ports[0].counter("port_rcv_data"), Some(1000));
    assert_eq!(second.ports[0].state, Reading::Value(PortState::Down));
    assert_eq!(second.ports[0].rate, Reading::Absent);
    assert_eq!((tree.reads("/rate"), tree.reads("counters/")), (rates, counters));
    assert!(Arc::ptr_eq(&first.identity, &second.identity));
    let third = bench.device(20);
    assert_eq!((third.counters_at, third.ports[0].counter("port_rcv_data")), (BootTime(20_000), Some(5000)));
}

#[test]
fn a_quiet_pass_over_states_reads_two_files() {
    let tree = infiniband();
    let mut bench = Bench::new(&tree);
    bench.device(0);
    let (reads, opened) = (tree.reads(""), tree.opened(""));
    bench.devices(5, Depth::State);
    assert_eq!((tree.reads("") - reads, tree.opened("") - opened), (2, 0));
}

#[test]
fn a_refused_counter_is_left_alone_and_the_others_are_not() {
    let tree = infiniband();
    let file = format!("{REAL}/ports/1/counters/link_downed");
    tree.refuses(&file, Errno::INVAL);
    let mut bench = Bench::new(&tree);
    let mut probes = Vec::new();
    for minute in 0..=100 {
        let before = tree.reads("link_downed");
        let device = bench.device(minute * MINUTE);
        assert_eq!(device.ports[0].counter("port_rcv_data"), Some(1000));
        assert_eq!((device.ports[0].counter("link_downed"), bench.quarantined()), (None, 1));
        if tree.reads("link_downed") > before {
            probes.push((minute, bench.faults[0].1));
        }
    }
    // After 10 minutes, then 20, then 40.
    let again = ReadError::Quarantined;
    assert_eq!(probes, [(0, ReadError::NotSupported), (10, again), (30, again), (70, again)]);
    tree.text(&file, "2");
    let device = bench.device(200 * MINUTE);
    assert_eq!((device.ports[0].counter("link_downed"), bench.quarantined()), (Some(2), 0));
}

#[test]
fn the_rate_of_a_port_that_is_down_is_not_asked_for() {
    let tree = infiniband();
    let rate = format!("{REAL}/ports/1/rate");
    tree.text(&format!("{REAL}/ports/1/state"), "1: DOWN").refuses(&rate, Errno::INVAL);
    let mut bench = Bench::new(&tree);
    assert_eq!((bench.device(0).ports[0].rate, tree.opened("/rate"), bench.quarantined()), (Reading::Absent, 0, 0));
    // A kernel that still refuses when the link has just come up: quarantined, until the state changes again.
    tree.text(&format!("{REAL}/ports/1/state"), "4: ACTIVE");
    assert_eq!(bench.device(5).ports[0].rate, Reading::Unreadable(ReadError::NotSupported));
    tree.text(&format!("{REAL}/ports/1/phys_state"), "6: LinkErrorRecovery").text(&rate, "100 Gb/sec (4X EDR)");
    let device = Arc::clone(&bench.devices(10, Depth::State)[0]);
    assert_eq!(device.ports[0].rate.value().map(|rate| rate.bandwidth.gbits()), Some(100.0));
    assert_eq!(bench.quarantined(), 0);
}

#[test]
fn a_card_that_does_not_answer_is_not_asked_for_every_counter() {
    let tree = infiniband();
    for counter in ["link_downed", "port_rcv_data", "port_xmit_data"] {
        tree.refuses(&format!("{REAL}/ports/1/counters/{counter}"), Errno::TIMEDOUT);
    }
    let mut bench = Bench::new(&tree);
    let port = &bench.device(0).ports[0];
    assert_eq!((port.pma.values.as_slice(), port.state), ([None; 4].as_slice(), Reading::Value(PortState::Active)));
    // One odd file would be no reason to give up; two in a row are.
    assert_eq!((bench.faults.len(), bench.faults[0].1, bench.quarantined()), (2, ReadError::Timeout, 0));
    assert_eq!(tree.reads("/counters/"), 2);
}

#[test]
fn counters_that_appear_later_are_read() {
    let tree = Tree::default();
    tree.text("class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE");
    let mut bench = Bench::new(&tree);
    assert!(bench.device(0).ports[0].pma.layout.is_empty());
    tree.text(&format!("{PORT}/counters/link_downed"), "3");
    let device = Arc::clone(&bench.devices(5, Depth::State)[0]);
    assert_eq!((device.ports[0].counter("link_downed"), device.counters_at), (Some(3), BootTime(5_000)));
    tree.remove(&format!("{PORT}/counters"));
    assert!(bench.device(10).ports[0].pma.layout.is_empty());
    assert!(bench.faults.is_empty());
}

#[test]
fn a_device_that_came_back_under_its_name_is_read_anew() {
    let tree = infiniband();
    let mut bench = Bench::new(&tree);
    bench.device(0);
    tree.recreate();
    tree.text(&format!("{REAL}/fw_ver"), "20.40.0000")
        .text(&format!("{REAL}/ports/1/counters/port_rcv_data"), "1")
        .text(&format!("{REAL}/ports/1/hw_counters/np_cnp_sent"), "8");
    let device = Arc::clone(&bench.devices(5, Depth::State)[0]);
    assert_eq!(device.identity.firmware_version.as_deref(), Some("20.40.0000"));
    assert_eq!(device.ports[0].counter("port_rcv_data"), Some(1));
    assert_eq!(device.ports[0].counter("np_cnp_sent"), Some(8));
    assert!(bench.faults.is_empty(), "{:?}", bench.faults);
}

#[test]
fn a_device_that_went_away_has_no_facts() {
    let tree = infiniband();
    let mut bench = Bench::new(&tree);
    bench.device(0);
    tree.remove("devices");
    assert!(bench.devices(5, Depth::Full).is_empty());
    assert!(bench.faults.is_empty());
    assert_eq!(tree.0.lock().unwrap().nodes.len(), 1);
}

#[test]
fn new_firmware_is_seen_within_a_minute() {
    let tree = infiniband();
    let mut bench = Bench::new(&tree);
    bench.device(0);
    tree.text(&format!("{REAL}/fw_ver"), "20.40.0000");
    assert_eq!(bench.device(30).identity.firmware_version.as_deref(), Some("20.35.1012"));
    assert_eq!(bench.device(60).identity.firmware_version.as_deref(), Some("20.40.0000"));
}

#[test]
fn a_directory_in_a_files_place_costs_only_itself() {
    let folder = tempfile::tempdir().unwrap();
    let port = folder.path().join("class/infiniband/mlx5_0/ports/1");
    std::fs::create_dir_all(port.join("counters/VL15_dropped")).unwrap();
    std::fs::write(port.join("counters/symbol_error"), "5\n").unwrap();
    std::fs::write(port.join("state"), "4: ACTIVE\n\n").unwrap();
    let io = Arc::new(crate::host::fs::Fs::new());
    let host = Host {
        io,
        sysfs: folder.path().into(),
        procfs: folder.path().into(),
        roots: crate::host::io::Roots::below(folder.path()),
        route: None,
        live: false,
    };
    let mut collector = RdmaCollector::new(&Setup { host: host.clone(), filter: Filter::default() }, None);
    let mut cx = ReadContext::new(&host, BootTime(0), Depth::Full);
    let found = collector.discover(&mut cx).unwrap();
    let facts = collector.open(&found[0]).read(&mut cx);
    let device: &RdmaDevice = facts[0].downcast_ref().unwrap();
    assert_eq!(device.ports[0].state, Reading::Value(PortState::Active));
    assert_eq!((device.ports[0].counter("symbol_error"), device.ports[0].counter("VL15_dropped")), (Some(5), None));
    assert_eq!(cx.faults.iter().map(|fault| fault.reason).collect::<Vec<_>>(), [ReadError::Io]);
}
