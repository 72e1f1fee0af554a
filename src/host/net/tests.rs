use rustix::io::Errno;

use super::*;
use crate::host::harness::{CollectorHarness, facts};
use crate::model::net::Netdev;
use crate::model::reading::Reading;
use crate::model::units::BytesPerSecond;

const CARD: &str = "/sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0";

fn rdma(harness: &CollectorHarness, directory: &str, device: &str) {
    harness.memory.symlink(format!("{directory}/infiniband/{device}/device"), "../..");
    let below_sys = directory.strip_prefix("/sys").unwrap();
    harness.memory.symlink(format!("/sys/class/infiniband/{device}"), format!("../..{below_sys}/infiniband/{device}"));
}

fn interface(harness: &CollectorHarness, directory: &str, name: &str) {
    let file =
        |file: &str, text: &str| harness.memory.set(format!("{directory}/net/{name}/{file}"), format!("{text}\n"));
    file("dev_port", "1");
    file("type", "32");
    file("carrier", "1");
    file("speed", "200000");
    file("operstate", "up");
    file("carrier_changes", "7");
}

fn read(harness: &mut CollectorHarness) -> Vec<Netdev> {
    harness.discover().unwrap();
    facts(&harness.read())
}

#[test]
fn the_interfaces_of_a_function() {
    let mut harness = CollectorHarness::new(&SPEC, Filter::default());
    rdma(&harness, CARD, "mlx5_0");
    interface(&harness, CARD, "ib1");
    interface(&harness, CARD, "ib0");
    assert_eq!(harness.discover().unwrap(), ["ib0", "ib1"]);
    let netdevs = read(&mut harness);
    let expected = Netdev {
        name: Arc::from("ib0"),
        pci_address: "0000:3b:00.0".parse().unwrap(),
        port_index: Some(1),
        hardware_type: Some(32),
        carrier: Reading::Value(true),
        speed: Reading::Value(BytesPerSecond(25e9)),
        operstate: Some(Arc::from("up")),
        carrier_changes: Some(7),
    };
    assert_eq!((netdevs.len(), &netdevs[0]), (2, &expected));
    harness.opened.lock().unwrap().clear();
    harness.memory.set(format!("{CARD}/net/ib0/carrier"), "0\n");
    assert_eq!(read(&mut harness)[0].carrier, Reading::Value(false));
    assert!(!harness.touched(&format!("{CARD}/net/ib0")));
}

#[test]
fn an_interface_that_is_down_says_nothing_and_fails_nothing() {
    let mut harness = CollectorHarness::new(&SPEC, Filter::default());
    rdma(&harness, CARD, "mlx5_0");
    interface(&harness, CARD, "ib0");
    for file in ["carrier", "speed"] {
        harness.memory.fail(format!("{CARD}/net/ib0/{file}"), Errno::INVAL);
    }
    harness.memory.set(format!("{CARD}/net/ib0/operstate"), "down\n");
    let netdev = &read(&mut harness)[0];
    assert_eq!((netdev.carrier, netdev.speed), (Reading::Absent, Reading::Absent));
    assert_eq!((&harness.faults[..], harness.quarantined()), (&[][..], 0));
    harness.memory.set(format!("{CARD}/net/ib0/carrier"), "1\n");
    harness.memory.set(format!("{CARD}/net/ib0/speed"), "-1\n");
    let netdev = &read(&mut harness)[0];
    assert_eq!((netdev.carrier, netdev.speed), (Reading::Value(true), Reading::Absent));
    assert_eq!(harness.faults, []);
}

#[test]
fn a_sub_function_has_its_own_interfaces() {
    let mut harness = CollectorHarness::new(&SPEC, Filter::default());
    let sub = format!("{CARD}/mlx5_core.sf.4");
    rdma(&harness, &sub, "mlx5_4");
    interface(&harness, CARD, "pf0");
    assert_eq!(harness.discover().unwrap(), ["pf0"]);
    interface(&harness, &sub, "sf4");
    assert_eq!(harness.discover().unwrap(), ["sf4"]);
}

#[test]
fn interfaces_come_and_go() {
    let mut harness = CollectorHarness::new(&SPEC, Filter::default());
    let other = "/sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.1";
    assert_eq!(harness.discover(), Ok(vec![]));
    rdma(&harness, CARD, "mlx5_0");
    rdma(&harness, other, "mlx5_1");
    assert_eq!(harness.discover(), Ok(vec![]));
    interface(&harness, CARD, "ib0");
    harness.discover().unwrap();
    harness.memory.remove(format!("{CARD}/net/ib0"));
    assert_eq!((harness.read().len(), &harness.faults[..]), (0, &[][..]));
    interface(&harness, CARD, "ib0");
    assert_eq!(read(&mut harness).len(), 1);
    // The name goes to the other function's interface.
    harness.memory.remove(format!("{CARD}/net"));
    interface(&harness, other, "ib0");
    assert_eq!(harness.discover(), Ok(vec![]));
    assert_eq!(read(&mut harness)[0].pci_address, "0000:3b:00.1".parse().unwrap());
}

#[test]
fn an_excluded_device_is_left_alone() {
    let filter = Filter { include: Some(Filter::pattern("mlx5_1").unwrap()), exclude: None };
    let mut harness = CollectorHarness::new(&SPEC, filter);
    rdma(&harness, CARD, "mlx5_0");
    interface(&harness, CARD, "ib0");
    assert_eq!(harness.discover(), Ok(vec![]));
    assert!(!harness.touched(CARD));
}
