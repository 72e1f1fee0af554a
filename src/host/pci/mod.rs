//! PCI functions of the RDMA devices, their PFs and every bridge above them, with their links and error counters
//! (`/sys/devices/pci*`).

mod files;
mod reader;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::collector::{Collector, DeviceReader, Discovered, Filter, GoneReader, ReadContext, Setup, Spec};
use super::function::{DeviceInventory, address_of};
use super::io::reason_of;
use crate::model::ids::{DeviceName, PciAddress};
use crate::model::reading::ReadError;
pub(super) use files::{parse_lanes, parse_speed};
pub(super) use reader::is_idle;
use reader::{FunctionLocation, PciFunctionReader};

/// The collector of PCI functions.
pub const SPEC: Spec = Spec {
    name: "pci",
    about: "PCIe link speed and width, AER error counters and SR-IOV limits of RDMA devices and the ports above them",
    interval: Duration::from_secs(5),
    deadline: Duration::from_secs(2),
    fresh: true,
    make,
};

fn make(setup: &Setup) -> Box<dyn Collector> {
    let filter = setup.filter.clone();
    Box::new(PciCollector { filter, locations: BTreeMap::new(), bound: BTreeMap::new() })
}

/// Functions without anything that their driver would make, with their directories.
type IdleFunctions = Vec<(PciAddress, PathBuf)>;

struct PciCollector {
    filter: Filter,
    locations: BTreeMap<PciAddress, Arc<FunctionLocation>>,
    /// What each driver had bound when its idle functions were last looked for, and which those were.
    bound: BTreeMap<PathBuf, (Vec<String>, IdleFunctions)>,
}

/// Functions that were found, and the RDMA device of each that has one.
type Listing = BTreeMap<PciAddress, (PathBuf, Option<DeviceName>)>;

impl PciCollector {
    fn list(&mut self, cx: &mut ReadContext<'_>) -> Result<Listing, ReadError> {
        let DeviceInventory { allowed, excluded } = DeviceInventory::read(cx, &self.filter)?;
        let mut listing = Listing::new();
        for device in &allowed {
            let entry = listing.entry(device.address).or_insert_with(|| (device.function.clone(), None));
            entry.1.get_or_insert_with(|| device.name.clone());
            list_above(&mut listing, &device.function);
        }
        for device in &allowed {
            // A PF that belongs only to an excluded device stays unread.
            let pf = pf_of(cx, &device.function).filter(|(_, address)| !excluded.contains(address));
            if let Some((directory, address)) = pf {
                list_above(&mut listing, &directory);
                listing.entry(address).or_insert((directory, None));
            }
        }
        let drivers: BTreeSet<PathBuf> =
            allowed.iter().filter_map(|device| cx.host.resolve(&device.function.join("driver")).ok()).collect();
        // What has an RDMA device is not idle, and nothing of an excluded one is touched.
        let known: BTreeSet<PciAddress> = allowed.iter().map(|device| device.address).chain(excluded).collect();
        for driver in drivers {
            for (address, directory) in self.idle(cx, &driver, &known) {
                list_above(&mut listing, &directory);
                listing.entry(address).or_insert((directory, None));
            }
        }
        Ok(listing)
    }

    /// Functions that a driver has bound and made nothing of: a card that died before anybody looked is one.
    fn idle(&mut self, cx: &mut ReadContext<'_>, driver: &Path, known: &BTreeSet<PciAddress>) -> IdleFunctions {
        let Ok(mut names) = cx.list(driver) else { return IdleFunctions::new() };
        names.retain(|name| name.parse().is_ok_and(|address| !known.contains(&address)));
        names.sort_unstable();
        if let Some((before, idle)) = self.bound.get(driver)
            && *before == names
        {
            return idle.clone();
        }
        let mut idle = Vec::new();
        for name in &names {
            let Ok(address) = name.parse::<PciAddress>() else { continue };
            let link = driver.join(name);
            let directory = match cx.host.resolve(&link) {
                Ok(directory) => directory,
                Err(error) => {
                    if let Some(reason) = reason_of(&error) {
                        cx.fault(&link, reason);
                    }
                    continue;
                }
            };
            let is_function = address_of(&directory) == Some(address);
            if is_function && cx.list(&directory).is_ok_and(|entries| reader::is_idle(&entries)) {
                idle.push((address, directory));
            }
        }
        self.bound.insert(driver.to_owned(), (names, idle.clone()));
        idle
    }
}

/// Adds every function above one: the directories that hold its own, up to the host bridge.
fn list_above(listing: &mut Listing, function: &Path) {
    for directory in function.ancestors().skip(1) {
        let Some(address) = address_of(directory) else { break };
        listing.entry(address).or_insert_with(|| (directory.to_owned(), None));
    }
}

/// The PF of a VF.
fn pf_of(cx: &mut ReadContext<'_>, function: &Path) -> Option<(PathBuf, PciAddress)> {
    let link = function.join("physfn");
    match cx.host.resolve(&link) {
        Ok(directory) if directory != link => address_of(&directory).map(|address| (directory, address)),
        Ok(_) => None,
        Err(error) => {
            if let Some(reason) = reason_of(&error) {
                cx.fault(&link, reason);
            }
            None
        }
    }
}

impl Collector for PciCollector {
    fn discover(&mut self, cx: &mut ReadContext<'_>) -> Result<Vec<Discovered>, ReadError> {
        let listing = self.list(cx)?;
        let before = std::mem::take(&mut self.locations);
        let mut found = Vec::with_capacity(listing.len());
        for (address, (directory, device)) in listing {
            let location = match before.get(&address) {
                Some(location) if location.directory == directory => Arc::clone(location),
                _ => Arc::new(FunctionLocation {
                    key: Arc::from(address.to_string()),
                    address,
                    upstream: directory.parent().and_then(address_of),
                    directory,
                }),
            };
            // A function that moved within the tree is left out once, so that its reader is opened again.
            if before.get(&address).is_none_or(|old| *old == location) {
                found.push(Discovered { key: Arc::clone(&location.key), device });
            }
            self.locations.insert(address, location);
        }
        Ok(found)
    }

    fn open(&mut self, found: &Discovered) -> Box<dyn DeviceReader> {
        let location = found.key.parse().ok().and_then(|address: PciAddress| self.locations.get(&address));
        match location {
            Some(location) => Box::new(PciFunctionReader::new(Arc::clone(location))),
            None => Box::new(GoneReader),
        }
    }
}

#[cfg(test)]
mod tests {
    //! Hosts of many shapes, and hosts whose functions change, fail, leave and return.

    use rustix::io::Errno;

    use super::*;
    use crate::host::collector::Depth;
    use crate::host::harness::{CollectorHarness, facts};
    use crate::host::io::Host;
    use crate::model::pcie::{FunctionKind, PciClass, PciFunction};
    use crate::model::reading::Reading;
    use crate::model::time::BootTime;
    use crate::model::topology::Topology;
    use crate::model::units::{Lanes, TransfersPerSecond};

    const ROOT: &str = "/sys/devices/pci0000:3a/0000:3a:00.0";
    const CARD: &str = "/sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0";
    const SECOND: &str = "/sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.1";

    fn harness(filter: Filter) -> CollectorHarness {
        CollectorHarness::new(&SPEC, filter)
    }

    fn excluding(pattern: &str) -> Filter {
        Filter { include: None, exclude: Some(Filter::pattern(pattern).unwrap()) }
    }

    /// A function with a link, in the words of a kernel of today.
    fn function(harness: &CollectorHarness, directory: &str, class: &str, link: (&str, &str), most: (&str, &str)) {
        let file = |name: &str, text: &str| harness.memory.set(format!("{directory}/{name}"), format!("{text}\n"));
        file("class", class);
        file("vendor", "0x15b3");
        file("device", "0x101b");
        file("numa_node", "0");
        file("current_link_speed", link.0);
        file("current_link_width", link.1);
        file("max_link_speed", most.0);
        file("max_link_width", most.1);
        harness.memory.symlink(format!("{directory}/driver"), "../../../../bus/pci/drivers/mlx5_core");
    }

    fn bridge(harness: &CollectorHarness, directory: &str) {
        function(harness, directory, "0x060400", ("8.0 GT/s PCIe", "8"), ("16.0 GT/s PCIe", "16"));
    }

    fn card(harness: &CollectorHarness, directory: &str, device: &str) {
        function(harness, directory, "0x020700", ("8.0 GT/s PCIe", "8"), ("16.0 GT/s PCIe", "16"));
        rdma(harness, directory, device);
    }

    fn rdma(harness: &CollectorHarness, directory: &str, device: &str) {
        harness.memory.symlink(format!("{directory}/infiniband/{device}/device"), "../..");
        let below_sys = directory.strip_prefix("/sys").unwrap();
        harness
            .memory
            .symlink(format!("/sys/class/infiniband/{device}"), format!("../..{below_sys}/infiniband/{device}"));
    }

    fn vf(harness: &CollectorHarness, directory: &str, device: &str, pf: &str) {
        function(harness, directory, "0x020700", ("Unknown", "0"), ("16.0 GT/s PCIe", "16"));
        harness.memory.symlink(format!("{directory}/physfn"), format!("../{pf}"));
        rdma(harness, directory, device);
    }

    fn read(harness: &mut CollectorHarness) -> Vec<PciFunction> {
        harness.discover().unwrap();
        assert_eq!(harness.faults, []);
        facts(&harness.read())
    }

    fn address(text: &str) -> PciAddress {
        text.parse().unwrap()
    }

    #[test]
    fn no_rdma_is_no_function() {
        assert_eq!(harness(Filter::default()).discover(), Ok(vec![]));
        let mut refused = harness(Filter::default());
        refused.memory.symlink("/sys/class/infiniband", "infiniband");
        assert_eq!(refused.discover(), Err(ReadError::Io));
    }

    #[test]
    fn a_card_of_two_functions_and_its_root_port() {
        let mut harness = harness(Filter::default());
        bridge(&harness, ROOT);
        card(&harness, CARD, "mlx5_0");
        card(&harness, SECOND, "mlx5_1");
        assert_eq!(harness.discover().unwrap(), ["0000:3a:00.0", "0000:3b:00.0", "0000:3b:00.1"]);
        let functions = read(&mut harness);
        assert_eq!(harness.faults, []);
        let [root, first, second] = &functions[..] else { panic!("{functions:?}") };
        assert_eq!((root.upstream, root.link_name), (None, address("0000:3a:00.0")));
        assert_eq!(root.class, Some(PciClass(0x06_0400)));
        assert_eq!(first.upstream, Some(address("0000:3a:00.0")));
        assert_eq!(first.ids, Some((0x15b3, 0x101b)));
        assert_eq!(first.driver.as_deref(), Some("mlx5_core"));
        assert_eq!(first.numa_node, Some(0));
        assert_eq!(first.kind, FunctionKind::Plain);
        assert_eq!((first.vfs_limit, first.vfs_present), (None, None));
        assert_eq!(first.link.speed, Reading::Value(TransfersPerSecond::from_mega(8_000)));
        assert_eq!(first.link.width, Reading::Value(Lanes(8)));
        assert_eq!(first.link.max_width, Reading::Value(Lanes(16)));
        assert_eq!((first.link_name, second.link_name), (address("0000:3b:00.0"), address("0000:3b:00.0")));
        let topology = Topology::new(functions.iter());
        assert_eq!(topology.links.len(), 1);
    }

    #[test]
    fn a_switch_between_card_and_root_port() {
        let upper = format!("{ROOT}/0000:3b:00.0");
        let lower = format!("{upper}/0000:3c:08.0");
        let beside = format!("{upper}/0000:3c:00.0");
        let end = format!("{lower}/0000:3d:00.0");
        let mut harness = harness(Filter::default());
        for directory in [ROOT, &upper, &lower, &beside] {
            bridge(&harness, directory);
        }
        card(&harness, &end, "mlx5_0");
        let functions = read(&mut harness);
        let chain: Vec<String> = functions.iter().map(|function| function.address.to_string()).collect();
        assert_eq!(chain, ["0000:3a:00.0", "0000:3b:00.0", "0000:3c:08.0", "0000:3d:00.0"]);
        assert!(functions.iter().all(|function| function.link_name == function.address));
        let topology = Topology::new(functions.iter());
        let path: Vec<PciAddress> = topology.path(address("0000:3d:00.0")).map(|link| link.name).collect();
        assert_eq!(path, [address("0000:3d:00.0"), address("0000:3b:00.0")]);
        assert!(!harness.touched(&beside));
    }

    #[test]
    fn a_vf_and_its_pf_which_has_no_rdma_device_itself() {
        let mut harness = harness(Filter::default());
        bridge(&harness, ROOT);
        function(&harness, CARD, "0x020000", ("8.0 GT/s PCIe", "8"), ("8.0 GT/s PCIe", "8"));
        harness.memory.set(format!("{CARD}/sriov_totalvfs"), "16\n");
        harness.memory.symlink(format!("{CARD}/virtfn0"), "../0000:3b:00.2");
        let directory = format!("{ROOT}/0000:3b:00.2");
        vf(&harness, &directory, "mlx5_2", "0000:3b:00.0");
        harness.memory.set(format!("{directory}/aer_dev_fatal"), "TOTAL_ERR_FATAL 0\n");
        let functions = read(&mut harness);
        let [_, pf, vf] = &functions[..] else { panic!("{functions:?}") };
        assert_eq!((pf.kind, pf.vfs_limit, pf.vfs_present), (FunctionKind::Physical, Some(16), Some(1)));
        assert_eq!(vf.kind, FunctionKind::Virtual { pf: Some(pf.address) });
        assert_eq!((vf.link_name, vf.vfs_present), (pf.address, None));
        assert_eq!((vf.link.speed, vf.link.width), (Reading::Absent, Reading::Absent));
        assert_eq!(vf.aer, crate::model::pcie::Aer::default());
        assert_eq!(Topology::new(functions.iter()).path(vf.address).count(), 1);
        harness.memory.symlink(format!("{CARD}/virtfn1"), "../0000:3b:00.3");
        harness.memory.symlink(format!("{CARD}/virtfnX"), "nowhere");
        assert_eq!(read(&mut harness)[1].vfs_present, Some(2));
        assert!(!harness.opened.lock().unwrap().iter().any(|path| path.ends_with("sriov_numvfs")));
    }

    #[test]
    fn vfs_do_not_name_the_link() {
        let mut harness = harness(Filter::default());
        bridge(&harness, ROOT);
        // A VF below the PF in number, as after a change of the first function's personality.
        vf(&harness, CARD, "mlx5_1", "0000:3b:00.1");
        card(&harness, SECOND, "mlx5_0");
        let functions = read(&mut harness);
        assert!(functions[1..].iter().all(|function| function.link_name == address("0000:3b:00.1")));
    }

    #[test]
    fn functions_numbered_through_share_a_link_and_others_do_not() {
        let mut harness = harness(Filter::default());
        let ninth = format!("{ROOT}/0000:3b:01.0");
        bridge(&harness, ROOT);
        card(&harness, CARD, "mlx5_0");
        card(&harness, &ninth, "mlx5_8");
        assert_eq!(read(&mut harness)[2].link_name, address("0000:3b:01.0"));
        harness.memory.set(format!("{ninth}/ari_enabled"), "1\n");
        assert_eq!(read(&mut harness)[2].link_name, address("0000:3b:00.0"));
    }

    #[test]
    fn a_guests_vf_is_a_plain_function_without_a_link() {
        let mut harness = harness(Filter::default());
        let directory = "/sys/devices/LNXSYSTM:00/VMBUS:01/47505500-0001/pci0001:00/0001:00:02.0";
        function(&harness, directory, "0x020700", ("Unknown speed", "0"), ("Unknown speed", "255"));
        harness.memory.set(format!("{directory}/numa_node"), "-1\n");
        harness.memory.remove(format!("{directory}/driver"));
        rdma(&harness, directory, "mlx5_0");
        let functions = read(&mut harness);
        assert_eq!(harness.faults, []);
        let [vf] = &functions[..] else { panic!("{functions:?}") };
        assert_eq!((vf.address, vf.upstream, vf.link_name), (address("0001:00:02.0"), None, address("0001:00:02.0")));
        assert_eq!((vf.kind, vf.numa_node, vf.driver.as_deref()), (FunctionKind::Plain, None, None));
        assert_eq!(vf.link, crate::model::pcie::LinkEnd::default());
    }

    #[test]
    fn a_domain_of_more_than_four_digits() {
        let mut harness = harness(Filter::default());
        let root = "/sys/devices/pci0000:00/0000:00:0e.0/pci10000:00/10000:00:00.0";
        bridge(&harness, root);
        card(&harness, &format!("{root}/10000:01:00.0"), "mlx5_0");
        let found: Vec<PciAddress> = read(&mut harness).iter().map(|function| function.address).collect();
        assert_eq!(found, [address("10000:00:00.0"), address("10000:01:00.0")]);
    }

    #[test]
    fn a_sub_function_and_devices_without_a_function() {
        let mut harness = harness(Filter::default());
        bridge(&harness, ROOT);
        function(&harness, CARD, "0x020000", ("8.0 GT/s PCIe", "8"), ("8.0 GT/s PCIe", "8"));
        rdma(&harness, &format!("{CARD}/mlx5_core.sf.4"), "mlx5_4");
        harness.memory.directory("/sys/devices/virtual/infiniband/rxe0");
        harness.memory.symlink("/sys/class/infiniband/rxe0", "../../devices/virtual/infiniband/rxe0");
        harness.memory.symlink("/sys/class/infiniband/odd0", "../../devices/virtual/infiniband/gone");
        assert_eq!(harness.discover().unwrap(), ["0000:3a:00.0", "0000:3b:00.0"]);
        assert_eq!(harness.faults, []);
        harness.memory.symlink("/sys/class/infiniband/loop0", "loop0");
        assert_eq!(harness.discover().unwrap().len(), 2);
        assert_eq!(harness.faults, [("/sys/class/infiniband/loop0/device".to_owned(), ReadError::Io)]);
    }

    #[test]
    fn nothing_of_an_excluded_device_is_opened() {
        let mut harness = harness(excluding("mlx5_[013]"));
        let other = "/sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0";
        let virtual_function = format!("{ROOT}/0000:3b:00.2");
        bridge(&harness, ROOT);
        bridge(&harness, "/sys/devices/pci0000:80/0000:80:01.0");
        card(&harness, CARD, "mlx5_0");
        card(&harness, SECOND, "mlx5_1");
        card(&harness, other, "mlx5_3");
        vf(&harness, &virtual_function, "mlx5_2", "0000:3b:00.0");
        let functions = read(&mut harness);
        let found: Vec<String> = functions.iter().map(|function| function.address.to_string()).collect();
        assert_eq!(found, ["0000:3a:00.0", "0000:3b:00.2"]);
        assert_eq!(functions[1].link_name, address("0000:3b:00.0"));
        for untouched in [CARD, SECOND, "/sys/devices/pci0000:80"] {
            assert!(!harness.touched(untouched), "{untouched}");
        }
    }

    #[test]
    fn a_pf_that_is_shared_with_an_excluded_device_is_read() {
        let mut harness = harness(excluding("mlx5_4"));
        bridge(&harness, ROOT);
        card(&harness, CARD, "mlx5_0");
        rdma(&harness, &format!("{CARD}/mlx5_core.sf.4"), "mlx5_4");
        vf(&harness, &format!("{ROOT}/0000:3b:00.2"), "mlx5_2", "0000:3b:00.0");
        assert_eq!(read(&mut harness).len(), 3);
    }

    #[test]
    fn unchanged_files_stay_open() {
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
    fn a_broken_driver_or_file_affects_only_itself() {
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
        let host = Host { io, procfs: root.path().join("proc"), sysfs, roots, route: None, ethtool: None, live: false };
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
}
