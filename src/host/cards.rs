//! Cards that can do RDMA and for which no RDMA device stands (`/sys/bus/pci/devices`): without a driver, or with one that
//! has made no RDMA device of them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::collector::{Collector, DeviceReader, Discovered, Filter, GoneReader, ReadContext, Setup, Spec};
use super::file::read_once;
use super::function::DeviceInventory;
use super::text::parse_hex;
use crate::model::ids::PciAddress;
use crate::model::pcie::{PciClass, RdmaCard};
use crate::model::reading::{ReadError, Reading};
use crate::model::snapshot::Fact;

/// The collector of cards without an RDMA device.
pub const SPEC: Spec = Spec {
    name: "cards",
    about: "RDMA cards without a driver, or without an RDMA device (/sys/bus/pci/devices)",
    interval: Duration::from_secs(60),
    deadline: Duration::from_secs(2),
    fresh: false,
    make,
};

fn make(setup: &Setup) -> Box<dyn Collector> {
    Box::new(CardCollector { filter: setup.filter.clone(), known: BTreeMap::new() })
}

/// Vendor and device identifiers.
type Ids = (u16, u16);

/// What a function is, as far as it never changes.
#[derive(Debug, Clone)]
struct NetworkFunction {
    directory: PathBuf,
    class: PciClass,
    ids: Ids,
}

struct CardCollector {
    filter: Filter,
    /// Every function that was there, and what it is; `None` for what is no network or InfiniBand controller, or a VF.
    known: BTreeMap<PciAddress, Option<NetworkFunction>>,
}

impl Collector for CardCollector {
    fn discover(&mut self, cx: &mut ReadContext<'_>) -> Result<Vec<Discovered>, ReadError> {
        let DeviceInventory { allowed, excluded } = DeviceInventory::read(cx, &self.filter)?;
        let bus = cx.host.sysfs.join("bus/pci/devices");
        let addresses: BTreeSet<PciAddress> = cx.list(&bus)?.iter().filter_map(|name| name.parse().ok()).collect();
        self.known.retain(|address, _| addresses.contains(address));
        for address in addresses.into_iter().filter(|address| !excluded.contains(address)) {
            let entry = || bus.join(address.to_string());
            self.known.entry(address).or_insert_with(|| identify(cx, &entry()));
        }
        let with_device: BTreeSet<PciAddress> = allowed.iter().map(|device| device.address).collect();
        let identified = || self.known.iter().filter_map(|(address, function)| Some((address, function.as_ref()?)));
        let models: BTreeSet<Ids> = identified()
            .filter(|(address, _)| with_device.contains(address))
            .map(|(_, function)| function.ids)
            .collect();
        let does_rdma =
            |function: &NetworkFunction| models.contains(&function.ids) || is_rdma(function.class, function.ids);
        let cards = identified().filter(|(address, function)| !with_device.contains(address) && does_rdma(function));
        Ok(cards.map(|(address, _)| Discovered { key: Arc::from(address.to_string()), device: None }).collect())
    }

    fn open(&mut self, found: &Discovered) -> Box<dyn DeviceReader> {
        let address = found.key.parse::<PciAddress>().ok();
        match address.and_then(|address| Some((address, self.known.get(&address)?.clone()?))) {
            Some((address, function)) => Box::new(CardReader { address, function }),
            None => Box::new(GoneReader),
        }
    }
}

/// Reads what a function is. All of it comes from the kernel's memory.
fn identify(cx: &mut ReadContext<'_>, entry: &Path) -> Option<NetworkFunction> {
    let directory = cx.host.resolve(entry).ok()?;
    let mut file = |name: &str| read_once(cx, &directory.join(name), number);
    let class = PciClass(file("class")?);
    if !class.is_network() {
        return None;
    }
    let id = |value: Option<u32>| value.and_then(|value| u16::try_from(value).ok());
    let ids = (id(file("vendor"))?, id(file("device"))?);
    let is_vf = cx.host.io.link(&directory.join("physfn")).is_ok();
    (!is_vf).then_some(NetworkFunction { directory, class, ids })
}

fn number(bytes: &[u8]) -> Reading<u32> {
    match parse_hex(bytes).and_then(|value| u32::try_from(value).ok()) {
        Some(value) => Reading::Value(value),
        None => Reading::Unreadable(ReadError::Malformed),
    }
}

/// Whether every card of this kind does RDMA: InfiniBand and Omni-Path controllers, and those of vendors whose network
/// cards all do, by the tables of their drivers (`mlx4_core`, `mlx5_core`, `efa`, `erdma`).
fn is_rdma(class: PciClass, ids: Ids) -> bool {
    class.is_fabric() || matches!(ids, (0x15b3, _) | (0x1d0f, 0xefa0..=0xefaf) | (0x1ded, 0x107f | 0x5007))
}

struct CardReader {
    address: PciAddress,
    function: NetworkFunction,
}

impl DeviceReader for CardReader {
    fn read(&mut self, cx: &mut ReadContext<'_>) -> Vec<Fact> {
        let NetworkFunction { directory, class, ids } = &self.function;
        let Ok(names) = cx.host.io.list(directory) else { return Vec::new() };
        if names.iter().any(|name| name == "infiniband") {
            return Vec::new();
        }
        let driver = cx.host.io.link(&directory.join("driver")).ok();
        let driver = driver.and_then(|driver| Some(Arc::from(driver.file_name()?.to_str()?)));
        // mlx5's part for RDMA is a device of its own, which mlx5_ib drives.
        let is_part = |name: &&String| name.contains(".rdma.");
        let unused_part =
            names.iter().filter(is_part).any(|part| cx.host.io.link(&directory.join(part).join("driver")).is_err());
        vec![Arc::new(RdmaCard {
            address: self.address,
            class: *class,
            ids: *ids,
            driver,
            is_idle: super::pci::is_idle(&names),
            lacks_rdma_driver: unused_part,
        })]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::harness::{CollectorHarness, facts};

    /// A function with an entry on the bus.
    fn function(harness: &CollectorHarness, address: &str, class: &str, ids: (&str, &str), driver: Option<&str>) {
        let directory = format!("/sys/devices/pci0000:3a/{address}");
        for (name, text) in [("class", class), ("vendor", ids.0), ("device", ids.1)] {
            harness.memory.set(format!("{directory}/{name}"), format!("{text}\n"));
        }
        if let Some(driver) = driver {
            harness.memory.symlink(format!("{directory}/driver"), format!("../../../bus/pci/drivers/{driver}"));
        }
        harness
            .memory
            .symlink(format!("/sys/bus/pci/devices/{address}"), format!("../../../devices/pci0000:3a/{address}"));
    }

    fn cards(harness: &mut CollectorHarness) -> Vec<(String, Option<String>)> {
        harness.discover().unwrap();
        let cards: Vec<RdmaCard> = facts(&harness.read());
        assert_eq!(harness.faults, []);
        cards.into_iter().map(|card| (card.address.to_string(), card.driver.map(|driver| driver.to_string()))).collect()
    }

    #[test]
    fn only_cards_that_do_rdma_are_listed() {
        let mut harness = CollectorHarness::new(&SPEC, Filter::default());
        function(&harness, "0000:3b:00.0", "0x020700", ("0x15b3", "0x1021"), None);
        function(&harness, "0000:3c:00.0", "0x020000", ("0x15b3", "0x1017"), None);
        function(&harness, "0000:3d:00.0", "0x020000", ("0x8086", "0x1592"), None);
        function(&harness, "0000:3e:00.0", "0x020000", ("0x1d0f", "0xefa1"), None);
        function(&harness, "0000:3f:00.0", "0x010802", ("0x144d", "0xa80a"), Some("nvme"));
        let listed = cards(&mut harness);
        let expected = ["0000:3b:00.0", "0000:3c:00.0", "0000:3e:00.0"];
        assert_eq!(listed, expected.map(|address| (address.to_owned(), None)));
        // What a function is never changes: it is read once.
        harness.opened.lock().unwrap().clear();
        cards(&mut harness);
        assert!(!harness.touched("/sys/devices/pci0000:3a/0000:3f:00.0"));
        assert!(!harness.opened.lock().unwrap().iter().any(|path| path.ends_with("class")));
    }

    #[test]
    fn a_card_of_a_model_that_does_rdma_here_is_one_and_a_vf_is_none() {
        let mut harness = CollectorHarness::new(&SPEC, Filter::default());
        for address in ["0000:3d:00.0", "0000:3d:00.1"] {
            function(&harness, address, "0x020000", ("0x8086", "0x1592"), Some("ice"));
        }
        function(&harness, "0000:3d:01.0", "0x020000", ("0x15b3", "0x101e"), None);
        harness.memory.symlink("/sys/devices/pci0000:3a/0000:3d:01.0/physfn", "../0000:3d:00.0");
        let device = "/sys/devices/pci0000:3a/0000:3d:00.0/infiniband/irdma0";
        harness.memory.symlink(format!("{device}/device"), "../../../0000:3d:00.0");
        harness
            .memory
            .symlink("/sys/class/infiniband/irdma0", "../../devices/pci0000:3a/0000:3d:00.0/infiniband/irdma0");
        assert_eq!(cards(&mut harness), [("0000:3d:00.1".to_owned(), Some("ice".to_owned()))]);
    }

    #[test]
    fn a_card_that_gets_its_rdma_device_is_no_longer_one() {
        let mut harness = CollectorHarness::new(&SPEC, Filter::default());
        function(&harness, "0000:3b:00.0", "0x020700", ("0x15b3", "0x1021"), Some("mlx5_core"));
        harness.memory.set("/sys/devices/pci0000:3a/0000:3b:00.0/mlx5_core.rdma.0/uevent", "");
        harness.discover().unwrap();
        let [card] = &facts::<RdmaCard>(&harness.read())[..] else { panic!("one card") };
        assert!(card.lacks_rdma_driver && !card.is_idle);
        harness.memory.set("/sys/devices/pci0000:3a/0000:3b:00.0/infiniband/mlx5_0/node_type", "1: CA\n");
        assert_eq!(facts::<RdmaCard>(&harness.read()), []);
    }
}
