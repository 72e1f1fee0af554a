//! Hosts whose functions change, fail, leave and return.

use rustix::io::Errno;

use super::*;
use crate::host::collector::Depth;
use crate::host::io::Host;
use crate::model::time::BootTime;

#[test]
fn what_is_known_is_not_opened_again() {
    let mut harness = harness(Filter::default());
    bridge(&harness, ROOT);
    card(&harness, CARD, "mlx5_0");
    let first = read(&mut harness);
    harness.opened.lock().unwrap().clear();
    harness.memory.set(format!("{CARD}/current_link_width"), "4\n");
    let second = read(&mut harness);
    assert_eq!(second[1].link.width, Reading::Value(Lanes(4)));
    assert_eq!(second[0], first[0]);
    assert_eq!(*harness.opened.lock().unwrap(), [PathBuf::from("/sys/class/infiniband")]);
}

#[test]
fn off_the_bus() {
    let mut harness = harness(Filter::default());
    bridge(&harness, ROOT);
    card(&harness, CARD, "mlx5_0");
    assert!(!read(&mut harness)[1].link.off_bus);
    harness.memory.set(format!("{CARD}/current_link_speed"), "Unknown\n");
    harness.memory.set(format!("{CARD}/current_link_width"), "63\n");
    let link = read(&mut harness)[1].link;
    assert!(link.off_bus);
    assert_eq!((link.speed, link.width), (Reading::Absent, Reading::Absent));
    assert_eq!(link.max_width, Reading::Value(Lanes(16)));
    assert_eq!(harness.faults, []);
}

#[test]
fn error_counters() {
    let mut harness = harness(Filter::default());
    bridge(&harness, ROOT);
    card(&harness, CARD, "mlx5_0");
    harness.memory.set(format!("{ROOT}/aer_rootport_total_err_cor"), "3\n");
    harness.memory.set(format!("{CARD}/aer_dev_correctable"), "RxErr 2\nBadTLP 0\nTOTAL_ERR_COR 2\n");
    harness.memory.set(format!("{CARD}/aer_dev_nonfatal"), "what is this\n");
    let functions = read(&mut harness);
    assert_eq!(harness.faults, [(format!("{CARD}/aer_dev_nonfatal"), ReadError::Malformed)]);
    assert_eq!(functions[0].aer.root_totals, [Some(3), None, None]);
    let [Some(correctable), None, None] = &functions[1].aer.classes else { panic!("{functions:?}") };
    assert_eq!(correctable.total, 2);
    assert_eq!(correctable.errors, [(Arc::from("RxErr"), 2), (Arc::from("BadTLP"), 0)]);
}

#[test]
fn odd_drivers_and_odd_files_cost_only_themselves() {
    let mut harness = harness(Filter::default());
    bridge(&harness, ROOT);
    card(&harness, CARD, "mlx5_0");
    // A link that leads nowhere still has a name.
    harness.memory.symlink(format!("{ROOT}/driver"), "../drivers/pcieport");
    assert_eq!((read(&mut harness)[0].driver.as_deref(), &*harness.faults), (Some("pcieport"), [].as_slice()));
    harness.memory.symlink(format!("{ROOT}/driver"), "driver");
    assert_eq!(read(&mut harness)[0].driver, None);
    assert_eq!(harness.faults, [(format!("{ROOT}/driver"), ReadError::Io)]);
    harness.memory.symlink(format!("{ROOT}/driver"), "../drivers/driver");
    assert_eq!((read(&mut harness)[0].driver.as_deref(), &*harness.faults), (Some("driver"), [].as_slice()));
    harness.memory.set(format!("{CARD}/class"), "network\n");
    harness.memory.set(format!("{CARD}/current_link_speed"), "fast\n");
    harness.memory.remove(format!("{CARD}/driver"));
    harness.memory.set(format!("{CARD}/driver"), "mlx5_core");
    harness.memory.directory(format!("{CARD}/current_link_width"));
    harness.memory.fail(format!("{CARD}/max_link_width"), Errno::INVAL);
    let card = &read(&mut harness)[1];
    assert_eq!(
        harness.faults,
        [
            (format!("{CARD}/driver"), ReadError::Malformed),
            (format!("{CARD}/class"), ReadError::Malformed),
            (format!("{CARD}/current_link_width"), ReadError::Io),
            (format!("{CARD}/current_link_speed"), ReadError::Malformed),
            (format!("{CARD}/max_link_width"), ReadError::NotSupported),
        ]
    );
    assert_eq!((card.class, card.driver.as_deref(), card.numa_node), (None, None, Some(0)));
    assert_eq!(card.link.speed, Reading::Unreadable(ReadError::Malformed));
    assert_eq!(card.link.width, Reading::Unreadable(ReadError::Io));
    assert_eq!(card.link.max_speed, Reading::Value(TransfersPerSecond::from_mega(16_000)));
    assert_eq!(harness.quarantined(), 1);
}

#[test]
fn a_function_that_goes_away_and_comes_back() {
    let mut harness = harness(Filter::default());
    bridge(&harness, ROOT);
    card(&harness, CARD, "mlx5_0");
    harness.discover().unwrap();
    harness.memory.remove(CARD);
    assert_eq!(facts::<PciFunction>(&harness.read()).len(), 1);
    assert_eq!(harness.faults, []);
    card(&harness, CARD, "mlx5_0");
    harness.memory.fail(format!("{CARD}/current_link_width"), Errno::INVAL);
    assert_eq!(facts::<PciFunction>(&harness.read()).len(), 2);
    assert_eq!(harness.quarantined(), 1);
    harness.memory.remove(CARD);
    harness.read();
    assert_eq!(harness.quarantined(), 0);
    card(&harness, CARD, "mlx5_0");
    harness.memory.fail(format!("{CARD}/current_link_width"), Errno::INVAL);
    harness.read();
    assert_eq!(harness.quarantined(), 1);
    harness.memory.remove(CARD);
    card(&harness, CARD, "mlx5_0");
    let functions = read(&mut harness);
    assert_eq!(functions[1].link.width, Reading::Value(Lanes(8)));
    assert_eq!(harness.quarantined(), 0);
}

#[test]
fn a_function_that_moves_is_read_at_its_new_place() {
    let mut harness = harness(Filter::default());
    let elsewhere = "/sys/devices/pci0000:3a/0000:3a:01.0/0000:3b:00.0";
    bridge(&harness, ROOT);
    card(&harness, CARD, "mlx5_0");
    assert_eq!(read(&mut harness).len(), 2);
    harness.memory.remove(CARD);
    bridge(&harness, "/sys/devices/pci0000:3a/0000:3a:01.0");
    card(&harness, elsewhere, "mlx5_0");
    assert_eq!(harness.discover().unwrap(), ["0000:3a:01.0"]);
    assert_eq!(read(&mut harness)[1].upstream, Some(address("0000:3a:01.0")));
}

#[test]
fn a_driver_may_change_what_the_function_can_do() {
    let mut harness = harness(Filter::default());
    bridge(&harness, ROOT);
    card(&harness, CARD, "mlx5_0");
    harness.memory.set(format!("{CARD}/sriov_totalvfs"), "0\n");
    let function = &read(&mut harness)[1];
    assert_eq!((function.kind, function.vfs_limit), (FunctionKind::Physical, Some(0)));
    harness.memory.set(format!("{CARD}/sriov_totalvfs"), "8\n");
    harness.memory.remove(format!("{CARD}/driver"));
    harness.memory.symlink(format!("{CARD}/driver"), "../../../../bus/pci/drivers/vfio-pci");
    let function = &read(&mut harness)[1];
    assert_eq!((function.driver.as_deref(), function.vfs_limit), (Some("vfio-pci"), Some(8)));
}

/// On disk, a descriptor goes on showing a file that was replaced.
#[test]
fn a_recorded_host_whose_files_are_replaced() {
    let root = tempfile::tempdir().unwrap();
    let sysfs = root.path().join("sys");
    let directory = sysfs.join("devices/pci0000:3a/0000:3b:00.0");
    std::fs::create_dir_all(directory.join("infiniband/mlx5_0")).unwrap();
    std::fs::create_dir_all(sysfs.join("class/infiniband")).unwrap();
    std::os::unix::fs::symlink("../..", directory.join("infiniband/mlx5_0/device")).unwrap();
    let target = "../../devices/pci0000:3a/0000:3b:00.0/infiniband/mlx5_0";
    std::os::unix::fs::symlink(target, sysfs.join("class/infiniband/mlx5_0")).unwrap();
    std::fs::write(directory.join("current_link_width"), "16\n").unwrap();

    let io = Arc::new(crate::host::fs::Fs::new());
    let roots = crate::host::io::Roots::below(root.path());
    let host = Host { io, procfs: root.path().join("proc"), sysfs, roots, route: None, live: false };
    let mut cx = ReadContext::new(&host, BootTime(0), Depth::Full);
    let mut collector = make(&Setup { host: host.clone(), filter: Filter::default() });
    let found = collector.discover(&mut cx).unwrap();
    let mut reader = collector.open(&found[0]);
    let mut width = || facts::<PciFunction>(&reader.read(&mut cx))[0].link.width;
    assert_eq!(width(), Reading::Value(Lanes(16)));
    // Longer than a tick of the clock that stamps directories.
    std::thread::sleep(Duration::from_millis(20));
    std::fs::write(directory.join("new"), "8\n").unwrap();
    std::fs::rename(directory.join("new"), directory.join("current_link_width")).unwrap();
    assert_eq!(width(), Reading::Value(Lanes(8)));
}
