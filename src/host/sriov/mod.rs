//! PFs of network cards and their VFs (`/sys/bus/pci/devices`, route netlink), whether or not they do RDMA.

#[cfg(test)]
#[path = "../../../tests/common/iplink.rs"]
#[allow(unreachable_pub, missing_docs, reason = "shared with test programs")]
mod iplink;
mod netdev;
mod reader;
mod vendor_files;
mod vf;
pub mod vf_list;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::collector::{Collector, DeviceReader, Discovered, Filter, GoneReader, ReadContext, Setup, Spec};
use super::file::read_once;
use super::function::DeviceInventory;
use super::io::{Host, reason_of};
use super::text;
use crate::model::ids::PciAddress;
use crate::model::reading::{ReadError, Reading};
use reader::{PfLocation, PfReader};

/// The collector of PFs.
pub const SPEC: Spec = Spec {
    name: "sriov",
    about: "PFs and VFs of network cards: counts, drivers, IOMMU groups, MAC addresses, GUIDs, VLANs, traffic",
    interval: Duration::from_secs(15),
    deadline: Duration::from_secs(2),
    fresh: false,
    make,
};

fn make(setup: &Setup) -> Box<dyn Collector> {
    Box::new(SriovCollector { host: setup.host.clone(), filter: setup.filter.clone(), known: BTreeMap::new() })
}

struct SriovCollector {
    host: Host,
    filter: Filter,
    /// Every function on the bus; `None` if it is not a PF of a network card.
    known: BTreeMap<PciAddress, Option<PfLocation>>,
}

impl Collector for SriovCollector {
    fn discover(&mut self, cx: &mut ReadContext<'_>) -> Result<Vec<Discovered>, ReadError> {
        let bus = cx.host.sysfs.join("bus/pci/devices");
        let names = match cx.host.io.list(&bus) {
            Ok(names) => names,
            Err(error) => return reason_of(&error).map_or_else(|| Ok(Vec::new()), Err),
        };
        let inventory = DeviceInventory::read(cx, &self.filter)?;
        let allowed = |address: &PciAddress| {
            !inventory.excluded.contains(address) || inventory.allowed.iter().any(|device| device.address == *address)
        };
        let mut found = Vec::new();
        let before = std::mem::take(&mut self.known);
        let addresses = names.iter().filter_map(|name| Some((name.parse::<PciAddress>().ok()?, name)));
        for (address, name) in addresses.filter(|(address, _)| allowed(address)) {
            let location = match before.get(&address) {
                Some(known) => known.clone(),
                None => match locate(cx, &bus.join(name), address) {
                    Ok(location) => location,
                    // It is tried again next time.
                    Err(_) => continue,
                },
            };
            if let Some(location) = &location {
                let device = inventory.allowed.iter().find(|device| device.address == address);
                let key = Arc::from(location.address.to_string());
                found.push(Discovered { key, device: device.map(|device| device.name.clone()) });
            }
            self.known.insert(address, location);
        }
        found.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(found)
    }

    fn open(&mut self, found: &Discovered) -> Box<dyn DeviceReader> {
        let location = found.key.parse().ok().and_then(|address: PciAddress| self.known.get(&address)?.clone());
        match location {
            Some(location) => Box::new(PfReader::new(location, &self.host)),
            None => Box::new(GoneReader),
        }
    }
}

/// Location of a function if it is a network card's PF; an error if that is unknown.
fn locate(cx: &mut ReadContext<'_>, entry: &Path, address: PciAddress) -> io::Result<Option<PfLocation>> {
    let directory = cx.host.resolve(entry).inspect_err(|error| {
        if let Some(reason) = reason_of(error) {
            cx.fault(entry, reason);
        }
    })?;
    // Whether a function can have VFs does not change during its life.
    let opened = cx.host.io.open(&directory.join("sriov_totalvfs"));
    if opened.is_err_and(|error| reason_of(&error).is_none()) {
        return Ok(None);
    }
    let code = |bytes: &[u8]| match text::parse_hex(bytes).and_then(|code| u32::try_from(code).ok()) {
        Some(code) => Reading::Value(code),
        None => Reading::Unreadable(ReadError::Malformed),
    };
    let class = read_once(cx, &directory.join("class"), code);
    let network = class.is_none_or(|class| class >> 16 == 0x02);
    Ok(network.then_some(PfLocation { address, directory, class }))
}

#[cfg(test)]
mod tests {
    //! PFs of many shapes, and replies of every length.

    use std::io;
    use std::sync::{Arc, Mutex};

    use proptest::prelude::*;
    use rustix::io::Errno;

    use super::*;
    use crate::host::harness::{CollectorHarness, facts};
    use crate::host::netlink::socket::{NetlinkConnection, NetlinkConnector};
    use crate::host::sriov::iplink::{self, Interface};
    use crate::model::ids::Guid;
    use crate::model::sriov::{Fabric, Mac, Pf, VfDetail, VfLink, VfTraffic, Vlan};

    const BUS: &str = "/sys/bus/pci/devices";
    const CARD: &str = "/sys/devices/pci0000:97/0000:97:02.0/0000:98:00.0";

    /// A card with a PF of so many VFs.
    fn card(harness: &CollectorHarness, class: &str, vfs: u32) {
        let set = |path: String, text: &str| harness.memory.set(path, format!("{text}\n"));
        harness.memory.symlink(format!("{BUS}/0000:98:00.0"), "../../../devices/pci0000:97/0000:97:02.0/0000:98:00.0");
        set(format!("{CARD}/class"), class);
        set(format!("{CARD}/sriov_totalvfs"), "127");
        set(format!("{CARD}/sriov_numvfs"), &vfs.to_string());
        set(format!("{CARD}/net/ens1/operstate"), "up");
        set(format!("{CARD}/net/ens1/type"), if class == "0x020700" { "32" } else { "1" });
        harness.memory.symlink(format!("{CARD}/driver"), "../../../../bus/pci/drivers/mlx5_core");
        (0..vfs).for_each(|number| vf(harness, number, "mlx5_core"));
    }

    fn address(number: u32) -> String {
        let function = number + 1;
        format!("0000:98:{:02x}.{:x}", function / 8, function % 8)
    }

    fn directory(number: u32) -> String {
        format!("/sys/devices/pci0000:97/0000:97:02.0/{}", address(number))
    }

    fn vf(harness: &CollectorHarness, number: u32, driver: &str) {
        let (name, directory) = (address(number), directory(number));
        harness.memory.symlink(format!("{BUS}/{name}"), format!("../../../devices/pci0000:97/0000:97:02.0/{name}"));
        harness.memory.symlink(format!("{CARD}/virtfn{number}"), format!("../{name}"));
        harness.memory.set(format!("{directory}/class"), "0x020000\n");
        harness.memory.symlink(format!("{directory}/physfn"), "../0000:98:00.0");
        harness.memory.symlink(format!("{directory}/driver"), format!("../../../../bus/pci/drivers/{driver}"));
        harness.memory.set(format!("{directory}/driver_override"), "(null)\n");
        let group = 40 + number;
        harness.memory.symlink(format!("{directory}/iommu_group"), format!("../../../../kernel/iommu_groups/{group}"));
        harness.memory.symlink(format!("/sys/kernel/iommu_groups/{group}/devices/{name}"), "../../../../devices");
    }

    fn read(harness: &mut CollectorHarness) -> Pf {
        harness.discover().unwrap();
        assert_eq!(harness.faults, []);
        facts::<Pf>(&harness.read()).pop().expect("a PF")
    }

    /// Answers as the kernel would for these interfaces, or with an error where there are statistics.
    struct Fake {
        interfaces: Arc<Mutex<Vec<Interface>>>,
        too_long: Option<Errno>,
        asked: Arc<Mutex<Vec<bool>>>,
    }

    impl NetlinkConnection for Fake {
        fn ask(&mut self, request: &[u8]) -> io::Result<Vec<Vec<u8>>> {
            let (name, statistics) = iplink::asked(request);
            self.asked.lock().unwrap().push(statistics);
            if let Some(errno) = self.too_long.filter(|_| statistics) {
                return Err(errno.into());
            }
            let interfaces = self.interfaces.lock().unwrap();
            let found = interfaces.iter().find(|interface| interface.name == name);
            found.map(|found| vec![found.reply(statistics)]).ok_or_else(|| Errno::NODEV.into())
        }
    }

    type Asked = Arc<Mutex<Vec<bool>>>;

    fn connect(interfaces: Vec<Interface>, too_long: Option<Errno>) -> (NetlinkConnector, Asked) {
        let (interfaces, asked) = (Arc::new(Mutex::new(interfaces)), Asked::default());
        let log = Arc::clone(&asked);
        let connect: NetlinkConnector = Arc::new(move || {
            let (interfaces, asked) = (Arc::clone(&interfaces), Arc::clone(&log));
            Ok(Box::new(Fake { interfaces, too_long, asked }))
        });
        (connect, asked)
    }

    fn ethernet(vfs: u32, announced: u32) -> Interface {
        let one = |number: u32| iplink::Vf {
            number,
            address: vec![2, 0, 0, 0, 1, u8::try_from(number).unwrap()],
            broadcast: Some(vec![0xff; 6]),
            vlan: (number % 3, 0, if number.is_multiple_of(3) { 0 } else { 0x8100 }),
            spoof_check: Some(1),
            link: Some(0),
            query_rss: Some(0),
            trust: Some(u32::MAX),
            statistics: Some([u64::from(number) + 1, 2, 3, 4, 5, 6, 7, 8]),
            ..iplink::Vf::default()
        };
        Interface { index: 7, name: "ens1".to_owned(), hardware: 1, announced, vfs: (0..vfs).map(one).collect() }
    }

    #[test]
    fn counts_come_from_links_and_files() {
        let mut harness = CollectorHarness::new(&SPEC, Filter::default());
        card(&harness, "0x020000", 3);
        let pf = read(&mut harness);
        assert_eq!((pf.limit, pf.configured, pf.present(), pf.reported), (Some(127), Some(3), 3, None));
        assert_eq!((pf.fabric, pf.detail, pf.up), (Some(Fabric::Ethernet), VfDetail::NotAsked, Reading::Value(true)));
        assert_eq!(pf.vfs[2].address, Some(address(2).parse().unwrap()));
        assert_eq!((pf.vfs[2].iommu_group, pf.vfs[2].config), (Some(42), None));
        assert_eq!(harness.faults, []);
    }

    #[test]
    fn other_functions_and_excluded_ones_are_none() {
        let exclude = Filter { include: None, exclude: Some(Filter::pattern("mlx5_0").unwrap()) };
        let mut harness = CollectorHarness::new(&SPEC, exclude);
        assert_eq!(harness.discover().unwrap(), [""; 0]);
        card(&harness, "0x010802", 1);
        assert_eq!(harness.discover().unwrap(), [""; 0]);
        harness.memory.set(format!("{CARD}/class"), "0x020700\n");
        let mut harness =
            CollectorHarness::new(&SPEC, Filter { include: None, exclude: Some(Filter::pattern("mlx5_0").unwrap()) });
        card(&harness, "0x020700", 1);
        harness.memory.directory(format!("{CARD}/infiniband/mlx5_0"));
        harness.memory.symlink(format!("{CARD}/infiniband/mlx5_0/device"), "../../../0000:98:00.0");
        let class = "../../devices/pci0000:97/0000:97:02.0/0000:98:00.0/infiniband/mlx5_0";
        harness.memory.symlink("/sys/class/infiniband/mlx5_0", class);
        assert_eq!(harness.discover().unwrap(), [""; 0]);
        assert!(!harness.touched(CARD));
    }

    #[test]
    fn vfs_are_followed_as_they_come_and_go() {
        let mut harness = CollectorHarness::new(&SPEC, Filter::default());
        card(&harness, "0x020000", 2);
        harness.memory.set(format!("{}/net/ens1v1/type", directory(1)), "1\n");
        let pf = read(&mut harness);
        assert_eq!((pf.vfs[1].netdevs.len(), pf.vfs[0].netdevs.len()), (1, 0));
        let before = pf.vfs[1].instance;
        harness.memory.remove(format!("{}/net/ens1v1", directory(1)));
        harness.memory.symlink(format!("{}/driver", directory(1)), "../../../../bus/pci/drivers/vfio-pci");
        harness.memory.directory(format!("{}/vfio-dev/vfio3", directory(1)));
        harness.memory.set(format!("{}/driver_override", directory(1)), "vfio-pci\n");
        let pf = read(&mut harness);
        let vf = &pf.vfs[1];
        assert_eq!((vf.driver.as_deref(), vf.node.as_deref()), (Some("vfio-pci"), Some("vfio/devices/vfio3")));
        assert_eq!((vf.driver_override.as_deref(), vf.instance), (Some("vfio-pci"), before));
        harness.memory.remove(directory(1));
        super::tests::vf(&harness, 1, "mlx5_core");
        assert_ne!(read(&mut harness).vfs[1].instance, before);
        harness.memory.remove(format!("{CARD}/virtfn1"));
        assert_eq!(read(&mut harness).vfs.len(), 1);
        harness.memory.remove(CARD);
        harness.memory.remove(format!("{BUS}/0000:98:00.0"));
        harness.discover().unwrap();
        assert_eq!(facts::<Pf>(&harness.read()), []);
    }

    /// `echo 0 > sriov_numvfs` takes the PF's lock and, once it has taken the VF's driver away, waits with the VF's lock
    /// until its user is gone. Whoever reads these files then waits in the kernel, and no signal ends that.
    #[test]
    fn what_a_removal_locks_is_not_read_of_a_running_host() {
        let mut harness = CollectorHarness::new(&SPEC, Filter::default());
        harness.set_live();
        card(&harness, "0x020000", 2);
        harness.memory.remove(format!("{}/driver", directory(1)));
        for _ in 0..20 {
            let pf = read(&mut harness);
            assert_eq!((pf.configured, pf.vfs[1].driver_override.clone()), (Some(2), None));
        }
        let opened = harness.opened.lock().unwrap();
        let locked =
            |path: &Path| path.ends_with("sriov_numvfs") || *path == *format!("{}/driver_override", directory(1));
        assert_eq!(opened.iter().find(|path| locked(path)), None);
        assert!(opened.iter().any(|path| *path == *format!("{}/driver_override", directory(0))));
    }

    /// As Linux 6.12 leaves them while `echo 0 > sriov_numvfs` waits: the first is gone, the second is in use.
    #[test]
    fn a_vf_whose_removal_waits_is_still_one() {
        let mut harness = CollectorHarness::new(&SPEC, Filter::default());
        harness.set_live();
        harness.set_route(connect(vec![ethernet(4, 4)], None).0);
        card(&harness, "0x020000", 4);
        harness.memory.set(format!("{CARD}/sriov_offset"), "1\n");
        harness.memory.set(format!("{CARD}/sriov_stride"), "1\n");
        let before = read(&mut harness).vfs[1].clone();
        for path in [format!("{CARD}/virtfn0"), format!("{BUS}/{}", address(0)), directory(0)] {
            harness.memory.remove(path);
        }
        for path in [format!("{CARD}/virtfn1"), format!("{}/physfn", directory(1)), format!("{}/driver", directory(1))]
        {
            harness.memory.remove(path);
        }
        harness.opened.lock().unwrap().clear();
        let pf = read(&mut harness);
        let seen: Vec<_> = pf.vfs.iter().map(|vf| (vf.number, vf.address.is_some(), vf.leaving)).collect();
        assert_eq!(seen, [(0, false, false), (1, true, true), (2, true, false), (3, true, false)]);
        let vf = &pf.vfs[1];
        assert_eq!((vf.address, vf.instance, vf.iommu_group), (before.address, before.instance, before.iommu_group));
        assert_eq!((vf.driver.as_deref(), vf.config), (None, before.config));
        let own = format!("{}/driver_override", directory(1));
        assert!(!harness.opened.lock().unwrap().iter().any(|path| *path == *own));
    }

    #[test]
    fn a_group_shared_only_with_bridges_is_isolated() {
        let mut harness = CollectorHarness::new(&SPEC, Filter::default());
        card(&harness, "0x020000", 2);
        harness.memory.symlink(format!("{BUS}/0000:97:02.0"), "../../../devices/pci0000:97/0000:97:02.0");
        harness.memory.set("/sys/devices/pci0000:97/0000:97:02.0/class", "0x060400\n");
        harness.memory.symlink("/sys/kernel/iommu_groups/40/devices/0000:97:02.0", "../../../../devices");
        assert_eq!(*read(&mut harness).vfs[0].group_shared_with, []);
        harness.memory.symlink(format!("{}/iommu_group", directory(1)), "../../../../kernel/iommu_groups/40");
        harness.memory.symlink(format!("/sys/kernel/iommu_groups/40/devices/{}", address(1)), "../../../../devices");
        for _ in 0..4 {
            read(&mut harness);
        }
        assert_eq!(*read(&mut harness).vfs[0].group_shared_with, [address(1).parse().unwrap()]);
    }

    #[test]
    fn representors_are_the_vfs_and_not_the_pfs() {
        let mut harness = CollectorHarness::new(&SPEC, Filter::default());
        card(&harness, "0x020000", 2);
        harness.memory.set(format!("{CARD}/net/ens1/phys_port_name"), "p0\n");
        harness.memory.set(format!("{CARD}/net/ens1_0/phys_port_name"), "pf0vf1\n");
        let pf = read(&mut harness);
        assert_eq!(pf.netdevs, [Arc::from("ens1")]);
        assert!(pf.switchdev);
        assert_eq!((pf.vfs[1].representor.as_deref(), pf.vfs[0].representor.as_deref()), (Some("ens1_0"), None));
    }

    #[test]
    fn vendor_files_complete_what_netlink_lacks() {
        let mut harness = CollectorHarness::new(&SPEC, Filter::default());
        card(&harness, "0x020700", 1);
        harness.memory.set(format!("{CARD}/sriov/0/node"), "02:00:00:00:00:aa:00:01\n");
        harness.memory.set(format!("{CARD}/sriov/0/port"), "02:00:00:00:00:aa:00:02\n");
        harness.memory.set(format!("{CARD}/sriov/0/policy"), "Follow");
        let config = read(&mut harness).vfs[0].config.unwrap();
        assert_eq!(
            (config.node_guid, config.port_guid),
            (Some(Guid(0x0200_0000_00aa_0001)), Some(Guid(0x0200_0000_00aa_0002)))
        );
        assert_eq!((config.link, config.mac), (Some(VfLink::Auto), None));
        harness.memory.fail(format!("{CARD}/sriov/0/policy"), Errno::INVAL);
        read(&mut harness);
        assert_eq!(harness.quarantined(), 1);
    }

    /// 256 VFs with statistics: the list attribute's length wraps, and nothing is lost.
    #[test]
    fn a_list_of_any_length_is_read_completely() {
        for vfs in [1, 64, 127, 221, 222, 256] {
            let list = vf_list::list(&ethernet(vfs, vfs).reply(true));
            assert_eq!((list.announced, list.entries.len(), list.cut), (Some(vfs), vfs as usize, false));
            for (number, entry) in (0..).zip(&list.entries) {
                assert_eq!(entry.number, number);
                assert_eq!(entry.config.mac, Some(Mac([2, 0, 0, 0, 1, u8::try_from(number).unwrap()])));
                let vlan = Vlan { id: u16::try_from(number % 3).unwrap(), qos: 0, protocol: Some(0x8100) };
                assert_eq!(entry.config.vlan, Some(if number % 3 > 0 { vlan } else { Vlan::NONE }));
                assert_eq!((entry.config.trust, entry.config.spoof_check), (None, Some(true)));
                let traffic = VfTraffic {
                    received_packets: Some(u64::from(number) + 1),
                    transmitted_packets: Some(2),
                    received_bytes: Some(3),
                    transmitted_bytes: Some(4),
                    received_dropped: Some(7),
                    transmitted_dropped: Some(8),
                };
                assert_eq!(entry.traffic, Some(traffic));
            }
        }
        assert_eq!(ethernet(256, 256).reply(true).len(), 256 * 296 + 16 + 12 + 8 + 12 + 8 + 4 + 4 + 12);
    }

    #[test]
    fn a_list_that_does_not_fit_is_requested_without_statistics() {
        let mut harness = CollectorHarness::new(&SPEC, Filter::default());
        let (connect, asked) = connect(vec![ethernet(3, 3)], Some(Errno::MSGSIZE));
        harness.set_route(connect);
        card(&harness, "0x020000", 4);
        let pf = read(&mut harness);
        assert_eq!((pf.detail, pf.reported, pf.announced), (VfDetail::WithoutStatistics, Some(3), Some(3)));
        assert_eq!((pf.vfs[2].traffic, pf.vfs[3].config), (None, None));
        assert!(pf.vfs[2].config.is_some());
        read(&mut harness);
        // Statistics are not asked for again at once.
        assert_eq!(*asked.lock().unwrap(), [true, false, false]);
        assert_eq!(harness.faults, []);
    }

    /// The kernel sends zeros for drivers that do not count (`ndo_get_vf_stats`).
    #[test]
    fn zeros_of_a_driver_that_does_not_count_are_no_values() {
        for (driver, counts, bytes) in [
            ("igb", 0, None),
            ("bnxt_en", 0, None),
            ("mlx5_core", 0, Some(0)),
            ("ice", 0, Some(0)),
            // One that counts after all.
            ("igb", 9, Some(9)),
        ] {
            let mut harness = CollectorHarness::new(&SPEC, Filter::default());
            let mut interface = ethernet(2, 2);
            interface.vfs.iter_mut().for_each(|vf| vf.statistics = Some([counts; 8]));
            harness.set_route(connect(vec![interface], None).0);
            card(&harness, "0x020000", 2);
            harness.memory.symlink(format!("{CARD}/driver"), format!("../../../../bus/pci/drivers/{driver}"));
            let pf = read(&mut harness);
            let received: Vec<_> =
                pf.vfs.iter().map(|vf| vf.traffic.and_then(|traffic| traffic.received_bytes)).collect();
            assert_eq!(received, [bytes; 2], "{driver}");
        }
    }

    #[test]
    fn unavailable_detail_does_not_hide_vfs() {
        let mut harness = CollectorHarness::new(&SPEC, Filter::default());
        let connect: NetlinkConnector = Arc::new(|| Err(Errno::PERM.into()));
        harness.set_route(connect);
        card(&harness, "0x020000", 4);
        let pf = read(&mut harness);
        assert_eq!((pf.detail, pf.reported, pf.present()), (VfDetail::Unavailable(ReadError::Permission), None, 4));
        assert_eq!(harness.faults, [("RTM_GETLINK ens1".to_owned(), ReadError::Permission)]);
        read(&mut harness);
        assert_eq!(harness.faults, []);
    }

    #[test]
    fn infiniband_has_guids_and_no_mac() {
        let text = "7: ens1: <BROADCAST, MULTICAST, UP> mtu 4092\n    link/infiniband 00:00:00:08:fe:80 brd 00:ff\n    vf 0     \
                    link/infiniband 00:00:00:08:fe:80:00:00:00:00:00:00:02:00:00:c0:fe:12:34:55 brd 00:ff, spoof checking \
                    off, NODE_GUID 02:00:af:21:00:05:11:00, PORT_GUID 02:11:af:21:00:05:11:01, link-state disable, trust \
                    off, query_rss off\n";
        let mut harness = CollectorHarness::new(&SPEC, Filter::default());
        harness.set_route(connect(iplink::parse(text), None).0);
        card(&harness, "0x020700", 1);
        let pf = read(&mut harness);
        let config = pf.vfs[0].config.unwrap();
        assert_eq!((pf.fabric, config.mac, config.vlan), (Some(Fabric::InfiniBand), None, None));
        assert_eq!(config.node_guid, Guid::parse("0200:af21:0005:1100"));
        assert_eq!(config.port_guid, Guid::parse("0211:af21:0005:1101"));
        assert_eq!((config.link, config.trust), (Some(VfLink::Disable), Some(false)));
    }

    proptest! {
        #[test]
        fn any_reply_parses_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = vf_list::list(&bytes);
        }

        #[test]
        fn a_reply_that_is_cut_short(vfs in 1u32..20, cut in 0usize..6000) {
            let reply = ethernet(vfs, vfs).reply(true);
            let list = vf_list::list(&reply[..cut.min(reply.len())]);
            prop_assert!(list.entries.len() <= vfs as usize);
        }
    }
}
