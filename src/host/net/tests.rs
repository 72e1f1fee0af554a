use rustix::io::Errno;

use super::*;
use crate::host::rig::{Rig, facts};
use crate::model::net::Netdev;
use crate::model::reading::Reading;
use crate::model::units::BytesPerSecond;

const CARD: &str = "/sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0";

fn rdma(rig: &Rig, directory: &str, device: &str) {
    rig.memory.symlink(format!("{directory}/infiniband/{device}/device"), "../..");
    let below_sys = directory.strip_prefix("/sys").unwrap();
    rig.memory.symlink(format!("/sys/class/infiniband/{device}"), format!("../..{below_sys}/infiniband/{device}"));
}

fn interface(rig: &Rig, directory: &str, name: &str) {
    let file = |file: &str, text: &str| rig.memory.set(format!("{directory}/net/{name}/{file}"), format!("{text}\n"));
    file("dev_port", "1");
    file("type", "32");
    file("carrier", "1");
    file("speed", "200000");
    file("operstate", "up");
    file("carrier_changes", "7");
}

fn read(rig: &mut Rig) -> Vec<Netdev> {
    rig.discover().unwrap();
    facts(&rig.read())
}

#[test]
fn the_interfaces_of_a_function() {
    let mut rig = Rig::new(&SPEC, Filter::default());
    rdma(&rig, CARD, "mlx5_0");
    interface(&rig, CARD, "ib1");
    interface(&rig, CARD, "ib0");
    assert_eq!(rig.discover().unwrap(), ["ib0", "ib1"]);
    let netdevs = read(&mut rig);
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
    rig.opened.lock().unwrap().clear();
    rig.memory.set(format!("{CARD}/net/ib0/carrier"), "0\n");
    assert_eq!(read(&mut rig)[0].carrier, Reading::Value(false));
    assert!(!rig.touched(&format!("{CARD}/net/ib0")));
}

#[test]
fn an_interface_that_is_down_says_nothing_and_fails_nothing() {
    let mut rig = Rig::new(&SPEC, Filter::default());
    rdma(&rig, CARD, "mlx5_0");
    interface(&rig, CARD, "ib0");
    for file in ["carrier", "speed"] {
        rig.memory.fail(format!("{CARD}/net/ib0/{file}"), Errno::INVAL);
    }
    rig.memory.set(format!("{CARD}/net/ib0/operstate"), "down\n");
    let netdev = &read(&mut rig)[0];
    assert_eq!((netdev.carrier, netdev.speed), (Reading::Absent, Reading::Absent));
    assert_eq!((&rig.faults[..], rig.quarantined()), (&[][..], 0));
    rig.memory.set(format!("{CARD}/net/ib0/carrier"), "1\n");
    rig.memory.set(format!("{CARD}/net/ib0/speed"), "-1\n");
    let netdev = &read(&mut rig)[0];
    assert_eq!((netdev.carrier, netdev.speed), (Reading::Value(true), Reading::Absent));
    assert_eq!(rig.faults, []);
}

#[test]
fn a_sub_function_has_its_own_interfaces() {
    let mut rig = Rig::new(&SPEC, Filter::default());
    let sub = format!("{CARD}/mlx5_core.sf.4");
    rdma(&rig, &sub, "mlx5_4");
    interface(&rig, CARD, "pf0");
    assert_eq!(rig.discover().unwrap(), ["pf0"]);
    interface(&rig, &sub, "sf4");
    assert_eq!(rig.discover().unwrap(), ["sf4"]);
}

#[test]
fn interfaces_come_and_go() {
    let mut rig = Rig::new(&SPEC, Filter::default());
    let other = "/sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.1";
    assert_eq!(rig.discover(), Ok(vec![]));
    rdma(&rig, CARD, "mlx5_0");
    rdma(&rig, other, "mlx5_1");
    assert_eq!(rig.discover(), Ok(vec![]));
    interface(&rig, CARD, "ib0");
    rig.discover().unwrap();
    rig.memory.remove(format!("{CARD}/net/ib0"));
    assert_eq!((rig.read().len(), &rig.faults[..]), (0, &[][..]));
    interface(&rig, CARD, "ib0");
    assert_eq!(read(&mut rig).len(), 1);
    // The name goes to the other function's interface.
    rig.memory.remove(format!("{CARD}/net"));
    interface(&rig, other, "ib0");
    assert_eq!(rig.discover(), Ok(vec![]));
    assert_eq!(read(&mut rig)[0].pci_address, "0000:3b:00.1".parse().unwrap());
}

#[test]
fn an_excluded_device_is_left_alone() {
    let filter = Filter { include: Some(Filter::pattern("mlx5_1").unwrap()), exclude: None };
    let mut rig = Rig::new(&SPEC, filter);
    rdma(&rig, CARD, "mlx5_0");
    interface(&rig, CARD, "ib0");
    assert_eq!(rig.discover(), Ok(vec![]));
    assert!(!rig.touched(CARD));
}
