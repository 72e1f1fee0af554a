//! Network interfaces of the functions behind RDMA devices (`<function>/net/*`).

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::collector::{Collector, DeviceReader, Discovered, Filter, GoneReader, ReadContext, Setup, Spec};
use super::file::{Attribute, AttributeFile, CachedAttribute, read_once};
use super::function::{DeviceFunction, DeviceInventory, address_of};
use super::io::{DirStamp, reason_of};
use super::rdma::interface;
use super::text;
use crate::model::ids::{DeviceName, PciAddress};
use crate::model::net::Netdev;
use crate::model::reading::{ReadError, Reading};
use crate::model::snapshot::Fact;
use crate::model::units::BytesPerSecond;

/// The collector of network interfaces.
pub const SPEC: Spec = Spec {
    name: "net",
    about: "Carrier, speed and state of network interfaces that share a port with an RDMA device",
    interval: Duration::from_secs(5),
    deadline: Duration::from_secs(2),
    fresh: true,
    make,
};

fn make(setup: &Setup) -> Box<dyn Collector> {
    let filter = setup.filter.clone();
    Box::new(NetdevCollector { filter, locations: BTreeMap::new(), shared: BTreeMap::new() })
}

struct NetdevCollector {
    filter: Filter,
    locations: BTreeMap<Arc<str>, NetdevLocation>,
    /// The interface that an EFA device shares with another function, by device; `None` if it has none.
    shared: BTreeMap<DeviceName, Option<(Arc<str>, NetdevLocation)>>,
}

/// Where an interface is.
#[derive(Debug, Clone, PartialEq, Eq)]
struct NetdevLocation {
    directory: PathBuf,
    pci_address: PciAddress,
    device: DeviceName,
}

impl Collector for NetdevCollector {
    fn discover(&mut self, cx: &mut ReadContext<'_>) -> Result<Vec<Discovered>, ReadError> {
        let inventory = DeviceInventory::read(cx, &self.filter)?;
        let before = std::mem::take(&mut self.locations);
        let mut without: Vec<&DeviceFunction> = Vec::new();
        for device in &inventory.allowed {
            let interfaces = interfaces(cx, device);
            if interfaces.is_empty() {
                without.push(device);
            }
            for (directory, name) in interfaces {
                let location = NetdevLocation {
                    directory: directory.join(&name),
                    pci_address: device.address,
                    device: device.name.clone(),
                };
                let key = before.get_key_value(&*name).map_or_else(|| Arc::from(name), |(key, _)| Arc::clone(key));
                self.locations.entry(key).or_insert(location);
            }
        }
        self.members_of_bonds(cx);
        self.shared.retain(|name, _| without.iter().any(|device| device.name == *name));
        for device in without {
            let shared = self.shared.entry(device.name.clone()).or_insert_with(|| shared_interface(cx, device));
            if let Some((name, location)) = shared {
                self.locations.entry(Arc::clone(name)).or_insert_with(|| location.clone());
            }
        }
        // A name that went to another interface is left out once, so that its reader is opened anew.
        let stayed = |name: &str, location: &NetdevLocation| before.get(name).is_none_or(|old| old == location);
        let found = self.locations.iter().filter(|(name, location)| stayed(name, location));
        Ok(found
            .map(|(name, location)| Discovered { key: Arc::clone(name), device: Some(location.device.clone()) })
            .collect())
    }

    fn open(&mut self, found: &Discovered) -> Box<dyn DeviceReader> {
        match self.locations.get(&found.key) {
            Some(location) => Box::new(NetdevReader::new(Arc::clone(&found.key), location.clone())),
            None => Box::new(GoneReader),
        }
    }
}

impl NetdevCollector {
    /// Adds the other members of bonds: an RDMA device over a bond leaves the host by all of them, and is on one of their
    /// functions only.
    fn members_of_bonds(&mut self, cx: &mut ReadContext<'_>) {
        let known: Vec<NetdevLocation> = self.locations.values().cloned().collect();
        for location in known {
            for (directory, name, pci_address) in bond_members(cx, &location.directory) {
                let location = NetdevLocation { directory, pci_address, device: location.device.clone() };
                self.locations.entry(Arc::from(name)).or_insert(location);
            }
        }
    }
}

/// The interface of an EFA device: `ena` has it, on a function of its own, with the same address.
fn shared_interface(cx: &mut ReadContext<'_>, device: &DeviceFunction) -> Option<(Arc<str>, NetdevLocation)> {
    // A dangling link still names the driver; one that leads to itself does not.
    let driver = interface::found(cx, &device.function.join("driver"), |cx, link| match cx.host.io.link(link)? {
        target if target.file_name() == link.file_name() => cx.host.resolve(link),
        target => Ok(target),
    })?;
    if driver.file_name()? != "efa" {
        return None;
    }
    let port = device.function.join("infiniband").join(device.name.as_str()).join("ports/1");
    let guid = interface::first_gid(cx, &port)?;
    let name = interface::by_address(cx, guid)?;
    let entry = cx.host.sysfs.join("class/net").join(&*name);
    let directory = interface::found(cx, &entry, |cx, link| cx.host.resolve(link))?;
    let pci_address = directory.ancestors().skip(1).find_map(address_of)?;
    Some((name, NetdevLocation { directory, pci_address, device: device.name.clone() }))
}

/// The members of the bond that an interface is in, itself included, with their directories and functions; none if it is
/// in no bond. What fails here, the interface's own reader counts.
fn bond_members(cx: &mut ReadContext<'_>, interface: &Path) -> Vec<(PathBuf, String, PciAddress)> {
    let class = cx.host.sysfs.join("class/net");
    let Ok(Some(bond)) = bond_of(cx, interface) else { return Vec::new() };
    let Ok(bond) = cx.host.resolve(&class.join(&*bond)) else { return Vec::new() };
    let listed = read_once(cx, &bond.join("bonding/slaves"), text::label).unwrap_or_default();
    let names = listed.split_ascii_whitespace().filter(|name| !name.contains('/'));
    let member = |name: &str| {
        let directory = cx.host.resolve(&class.join(name)).ok()?;
        let function = directory.ancestors().skip(1).find_map(address_of)?;
        Some((directory, name.to_owned(), function))
    };
    names.filter_map(member).collect()
}

/// The bond that an interface is a member of. Any other kind of master (a bridge, a team) is none. Members have
/// `bonding_slave` and the bond has `bonding`; recordings may hold only one of the two.
fn bond_of(cx: &ReadContext<'_>, directory: &Path) -> Result<Option<Arc<str>>, (PathBuf, ReadError)> {
    let failed = |path: PathBuf, error: &io::Error| reason_of(error).map_or(Ok(None), |reason| Err((path, reason)));
    let (member, master) = (directory.join("bonding_slave"), directory.join("master"));
    let mark = cx.host.io.stamp(&member).err();
    if let Some(error) = mark.as_ref().filter(|error| reason_of(error).is_some()) {
        return failed(member, error);
    }
    let bond = match cx.host.resolve(&master) {
        Ok(bond) => bond,
        Err(error) => return failed(master, &error),
    };
    if mark.is_some() {
        let bonding = bond.join("bonding");
        if let Err(error) = cx.host.io.stamp(&bonding) {
            return failed(bonding, &error);
        }
    }
    Ok(bond.file_name().and_then(|name| name.to_str()).map(Arc::from))
}

/// The interfaces of a device. A sub-function has its own beside it; those of the function below which it hangs
/// are another device's.
pub(super) fn interfaces(cx: &mut ReadContext<'_>, device: &DeviceFunction) -> Vec<(PathBuf, String)> {
    let list = |cx: &mut ReadContext<'_>, parent: &Path| -> Vec<(PathBuf, String)> {
        let directory = parent.join("net");
        let names = cx.list(&directory).unwrap_or_default();
        names.into_iter().map(|name| (directory.clone(), name)).collect()
    };
    let own = list(cx, &device.parent);
    if own.is_empty() && device.parent != device.function { list(cx, &device.function) } else { own }
}

/// The reader of one interface.
struct NetdevReader {
    name: Arc<str>,
    location: NetdevLocation,
    stamp: Option<DirStamp>,
    bond: Option<Arc<str>>,
    port_index: CachedAttribute<u32>,
    hardware_type: CachedAttribute<u32>,
    carrier: Attribute,
    speed: Attribute,
    operstate: Attribute,
    carrier_changes: Attribute,
    carrier_downs: Attribute,
}

impl NetdevReader {
    fn new(name: Arc<str>, location: NetdevLocation) -> Self {
        let directory = &*location.directory;
        Self {
            name,
            stamp: None,
            bond: None,
            port_index: CachedAttribute::new(directory, "dev_port"),
            hardware_type: CachedAttribute::new(directory, "type"),
            carrier: Attribute::new(directory, "carrier"),
            speed: Attribute::new(directory, "speed"),
            operstate: Attribute::new(directory, "operstate"),
            carrier_changes: Attribute::new(directory, "carrier_changes"),
            carrier_downs: Attribute::new(directory, "carrier_down_count"),
            location,
        }
    }

    /// Follows changes of the directory. `None` if the interface is gone or its directory can't be read.
    fn refresh(&mut self, cx: &mut ReadContext<'_>) -> Option<()> {
        let directory = &*self.location.directory;
        let outcome = cx.host.io.stamp(directory).and_then(|stamp| {
            let names = if self.stamp == Some(stamp) { None } else { Some(cx.host.io.list(directory)?) };
            Ok((stamp, names))
        });
        match outcome {
            Ok((stamp, names)) => {
                if let Some(names) = names {
                    let bond = bond_of(cx, directory);
                    // A bond that could not be read is asked for again.
                    self.stamp = bond.is_ok().then_some(stamp);
                    self.bond = bond.unwrap_or_else(|(path, reason)| {
                        cx.fault(&path, reason);
                        None
                    });
                    self.files().into_iter().for_each(|file| file.relist(&names));
                }
                Some(())
            }
            Err(error) => {
                if let Some(reason) = reason_of(&error) {
                    cx.fault(directory, reason);
                }
                self.stamp = None;
                None
            }
        }
    }

    fn bond_active(&self, cx: &mut ReadContext<'_>) -> Option<bool> {
        let state = read_once(cx, &self.location.directory.join("bonding_slave/state"), text::label);
        state.map(|state| &*state == "active")
    }

    fn files(&mut self) -> [&mut dyn AttributeFile; 7] {
        [
            &mut self.port_index,
            &mut self.hardware_type,
            &mut self.carrier,
            &mut self.speed,
            &mut self.operstate,
            &mut self.carrier_changes,
            &mut self.carrier_downs,
        ]
    }
}

impl DeviceReader for NetdevReader {
    fn read(&mut self, cx: &mut ReadContext<'_>) -> Vec<Fact> {
        if self.refresh(cx).is_none() {
            return Vec::new();
        }
        let netdev = Netdev {
            name: Arc::clone(&self.name),
            pci_address: self.location.pci_address,
            port_index: self.port_index.read(cx, parse_u32).value(),
            hardware_type: self.hardware_type.read(cx, parse_u32).value(),
            carrier: self.carrier.read_unless_down(cx, parse_carrier),
            speed: self.speed.read_unless_down(cx, parse_speed),
            operstate: self.operstate.read(cx, text::label).value(),
            carrier_changes: self.carrier_changes.read(cx, text::counter).value(),
            carrier_downs: self.carrier_downs.read(cx, text::counter).value(),
            bond_active: self.bond.as_ref().and_then(|_| self.bond_active(cx)),
            bond: self.bond.clone(),
        };
        vec![Arc::new(netdev)]
    }

    fn quarantined(&self) -> usize {
        let settled = [self.port_index.is_quarantined(), self.hardware_type.is_quarantined()];
        let read = [&self.carrier, &self.speed, &self.operstate, &self.carrier_changes, &self.carrier_downs];
        let read = read.map(AttributeFile::is_quarantined);
        settled.into_iter().chain(read).filter(|quarantined| *quarantined).count()
    }
}

fn parse_u32(bytes: &[u8]) -> Reading<u32> {
    let number = text::parse_decimal(bytes).and_then(|number| u32::try_from(number).ok());
    number.map_or(Reading::Unreadable(ReadError::Malformed), Reading::Value)
}

/// Whether there is a carrier.
pub(super) fn parse_carrier(bytes: &[u8]) -> Reading<bool> {
    match bytes {
        b"0" => Reading::Value(false),
        b"1" => Reading::Value(true),
        _ => Reading::Unreadable(ReadError::Malformed),
    }
}

/// Megabits per second. An unknown speed is -1, on some kernels printed as unsigned; some drivers write 0.
fn parse_speed(bytes: &[u8]) -> Reading<BytesPerSecond> {
    if matches!(bytes, b"-1" | b"4294967295" | b"0") {
        return Reading::Absent;
    }
    parse_u32(bytes).map(|megabits| BytesPerSecond::from_gbits(f64::from(megabits) / 1e3))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
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
        harness
            .memory
            .symlink(format!("/sys/class/infiniband/{device}"), format!("../..{below_sys}/infiniband/{device}"));
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
        file("carrier_down_count", "3");
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
            carrier_downs: Some(3),
            bond: None,
            bond_active: None,
        };
        assert_eq!((netdevs.len(), &netdevs[0]), (2, &expected));
        harness.opened.lock().unwrap().clear();
        harness.memory.set(format!("{CARD}/net/ib0/carrier"), "0\n");
        assert_eq!(read(&mut harness)[0].carrier, Reading::Value(false));
        assert!(!harness.touched(&format!("{CARD}/net/ib0")));
    }

    #[test]
    fn an_interface_that_is_down_is_absent_without_a_fault() {
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

    #[test]
    fn speeds() {
        assert_eq!(parse_speed(b"200000"), Reading::Value(BytesPerSecond(25e9)));
        assert_eq!(parse_speed(b"100"), Reading::Value(BytesPerSecond(12.5e6)));
        for unknown in [&b"-1"[..], b"4294967295", b"0"] {
            assert_eq!(parse_speed(unknown), Reading::Absent);
        }
        for wrong in [&b""[..], b"-2", b"fast", b"4294967296"] {
            assert_eq!(parse_speed(wrong).reason(), Some(ReadError::Malformed));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_parse_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..16)) {
            let _ = (parse_u32(&bytes), parse_carrier(&bytes), parse_speed(&bytes));
        }
    }
}
