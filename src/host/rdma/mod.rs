//! RDMA devices and their ports: `/sys/class/infiniband`, and rdma netlink if the running kernel supports it.

mod counters;
pub(super) mod interface;
mod netlink;
mod port;
mod reader;

use std::path::PathBuf;
use std::time::Duration;

use super::collector::{Collector, DeviceReader, Discovered, Filter, ReadContext, Setup, Spec};
use super::netlink::socket::{NetlinkConnector, Protocol};
use crate::model::reading::ReadError;
pub use netlink::{QUEUE_PAIRS, RESOURCES};
use reader::{RdmaDeviceReader, class, device_of, devices};

/// RDMA devices and ports.
pub const SPEC: Spec = Spec {
    name: "rdma",
    about: "RDMA devices and ports: state, rate, counters (/sys/class/infiniband, rdma netlink)",
    interval: Duration::from_secs(5),
    deadline: Duration::from_secs(2),
    fresh: true,
    // A recording has the files in place of netlink's replies.
    make: |setup| {
        let connect = setup.host.netlink(Protocol::Rdma).filter(|_| setup.host.live && setup.host.io.is_system());
        Box::new(RdmaCollector::new(setup, connect))
    },
};

struct RdmaCollector {
    class: PathBuf,
    filter: Filter,
    connect: Option<NetlinkConnector>,
}

impl RdmaCollector {
    fn new(setup: &Setup, connect: Option<NetlinkConnector>) -> Self {
        Self { class: class(&setup.host.sysfs), filter: setup.filter.clone(), connect }
    }
}

impl Collector for RdmaCollector {
    fn discover(&mut self, cx: &mut ReadContext<'_>) -> Result<Vec<Discovered>, ReadError> {
        devices(cx, &self.class, &self.filter)
    }

    fn open(&mut self, found: &Discovered) -> Box<dyn DeviceReader> {
        Box::new(RdmaDeviceReader::new(device_of(found), self.class.join(&*found.key), self.connect.clone()))
    }
}

#[cfg(test)]
mod tests {
    //! Hosts in memory and whole passes over them: each driver's tree, what changes between passes, a kernel that answers over
    //! netlink and one that does not.

    use std::collections::BTreeMap;
    use std::io;
    use std::path::{Path, PathBuf};
    use std::sync::{Arc, Mutex};

    use rustix::io::Errno;

    use super::RdmaCollector;
    use super::netlink::NetlinkCollector;
    use crate::host::collector::{Collector, Depth, DeviceReader, Filter, ReadContext, Setup};
    use crate::host::io::{DirStamp, Host, HostIo, OpenFile, Roots};
    use crate::host::netlink::nldev::tests::{counters_reply, handle, port_reply, resources_reply, system_reply};
    use crate::host::netlink::socket::{NetlinkConnection, NetlinkConnector};
    use crate::model::counter::{CounterClass, CounterKind, Counters};
    use crate::model::ids::Guid;
    use crate::model::rdma::{LinkLayer, PhysicalState, PortState, RdmaDevice, RdmaResources, Speed};
    use crate::model::reading::{ReadError, Reading};
    use crate::model::snapshot::Fact;
    use crate::model::time::BootTime;

    #[derive(Clone)]
    enum Node {
        Text(Vec<u8>),
        Errno(Errno),
        Link(PathBuf),
    }

    #[derive(Default)]
    struct State {
        nodes: BTreeMap<PathBuf, Node>,
        /// Raised when everything comes anew; open files of before are dead.
        generation: u64,
        opened: Vec<PathBuf>,
        reads: BTreeMap<PathBuf, usize>,
    }

    /// A tree of files below `/sys`.
    #[derive(Clone, Default)]
    struct Tree(Arc<Mutex<State>>);

    fn errno(code: Errno) -> io::Error {
        io::Error::from_raw_os_error(code.raw_os_error())
    }

    impl Tree {
        fn put(&self, path: &str, node: Node) -> &Self {
            self.0.lock().unwrap().nodes.insert(Path::new("/sys").join(path), node);
            self
        }

        fn text(&self, path: &str, text: &str) -> &Self {
            self.put(path, Node::Text(format!("{text}\n").into_bytes()))
        }

        fn refuses(&self, path: &str, code: Errno) -> &Self {
            self.put(path, Node::Errno(code))
        }

        fn link(&self, path: &str, target: &str) -> &Self {
            self.put(path, Node::Link(target.into()))
        }

        fn texts(&self, dir: &str, files: &[(&str, &str)]) -> &Self {
            for (name, text) in files {
                self.text(&format!("{dir}/{name}"), text);
            }
            self
        }

        fn remove(&self, dir: &str) {
            let dir = Path::new("/sys").join(dir);
            self.0.lock().unwrap().nodes.retain(|path, _| !path.starts_with(&dir));
        }

        /// Everything was taken away and came back under the same names.
        fn recreate(&self) {
            self.0.lock().unwrap().generation += 1;
        }

        fn opened(&self, part: &str) -> usize {
            self.0.lock().unwrap().opened.iter().filter(|path| path.to_string_lossy().contains(part)).count()
        }

        fn reads(&self, part: &str) -> usize {
            let state = self.0.lock().unwrap();
            state.reads.iter().filter(|(path, _)| path.to_string_lossy().contains(part)).map(|(_, count)| count).sum()
        }

        /// The path with links on the way replaced.
        fn real(state: &State, path: &Path) -> PathBuf {
            let mut out = PathBuf::new();
            for part in path.components() {
                out.push(part);
                if let Some(Node::Link(target)) = state.nodes.get(&out) {
                    let mut base: Vec<_> = out.parent().unwrap().components().collect();
                    for step in target.components() {
                        if step.as_os_str() == ".." {
                            base.truncate(base.len() - 1);
                        } else {
                            base.push(step);
                        }
                    }
                    out = base.iter().collect();
                }
            }
            out
        }
    }

    struct Open {
        tree: Tree,
        path: PathBuf,
        generation: u64,
    }

    impl OpenFile for Open {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let mut state = self.tree.0.lock().unwrap();
            *state.reads.entry(self.path.clone()).or_default() += 1;
            match state.nodes.get(&self.path) {
                Some(Node::Text(bytes)) if state.generation == self.generation => {
                    buffer[..bytes.len()].copy_from_slice(bytes);
                    Ok(bytes.len())
                }
                Some(Node::Errno(code)) => Err(errno(*code)),
                _ => Err(errno(Errno::NODEV)),
            }
        }
    }

    impl HostIo for Tree {
        fn open(&self, path: &Path) -> io::Result<Box<dyn OpenFile>> {
            let mut state = self.0.lock().unwrap();
            let path = Self::real(&state, path);
            if !state.nodes.contains_key(&path) {
                return Err(errno(Errno::NOENT));
            }
            state.opened.push(path.clone());
            Ok(Box::new(Open { tree: self.clone(), path, generation: state.generation }))
        }

        fn list(&self, path: &Path) -> io::Result<Vec<String>> {
            let state = self.0.lock().unwrap();
            let path = Self::real(&state, path);
            let child = |node: &PathBuf| Some(node.strip_prefix(&path).ok()?.iter().next()?.to_str()?.to_owned());
            let mut names: Vec<String> = state.nodes.keys().filter_map(child).collect();
            names.dedup();
            names.reverse();
            if names.is_empty() { Err(errno(Errno::NOENT)) } else { Ok(names) }
        }

        fn link(&self, path: &Path) -> io::Result<PathBuf> {
            let state = self.0.lock().unwrap();
            match state.nodes.get(path) {
                Some(Node::Link(target)) => Ok(target.clone()),
                _ if state.nodes.keys().any(|node| node.starts_with(path)) => Err(errno(Errno::INVAL)),
                _ => Err(errno(Errno::NOENT)),
            }
        }

        fn stamp(&self, path: &Path) -> io::Result<DirStamp> {
            let state = self.0.lock().unwrap();
            let path = Self::real(&state, path);
            if !state.nodes.keys().any(|node| node.starts_with(&path)) {
                return Err(errno(Errno::NOENT));
            }
            Ok(DirStamp { identity: (0, state.generation), modified: (0, 0) })
        }
    }

    /// A collector over a tree, with its readers.
    struct CollectorFixture {
        host: Host,
        collector: Box<dyn Collector>,
        readers: Vec<Box<dyn DeviceReader>>,
        faults: Vec<(String, ReadError)>,
    }

    impl CollectorFixture {
        fn new(tree: &Tree) -> Self {
            Self::with(tree, Filter::default(), |setup| Box::new(RdmaCollector::new(setup, None)))
        }

        fn on_netlink(tree: &Tree, connect: NetlinkConnector) -> Self {
            Self::with(tree, Filter::default(), |setup| Box::new(RdmaCollector::new(setup, Some(connect))))
        }

        fn with(tree: &Tree, filter: Filter, make: impl FnOnce(&Setup) -> Box<dyn Collector>) -> Self {
            let host = Host {
                io: Arc::new(tree.clone()),
                sysfs: "/sys".into(),
                procfs: "/proc".into(),
                roots: Roots::below(Path::new("/")),
                route: None,
                ethtool: None,
                live: false,
            };
            let mut collector = make(&Setup { host: host.clone(), filter });
            let found = collector.discover(&mut ReadContext::new(&host, BootTime(0), Depth::Full)).unwrap();
            let readers = found.iter().map(|found| collector.open(found)).collect();
            Self { host, collector, readers, faults: Vec::new() }
        }

        /// The facts of every reader at a second of the clock.
        fn facts(&mut self, seconds: i64, depth: Depth) -> Vec<Fact> {
            let mut cx = ReadContext::new(&self.host, BootTime(seconds * 1000), depth);
            let facts = self.readers.iter_mut().flat_map(|reader| reader.read(&mut cx)).collect();
            self.faults = cx.faults.iter().map(|fault| (fault.source.to_string(), fault.reason)).collect();
            facts
        }

        fn devices(&mut self, seconds: i64, depth: Depth) -> Vec<Arc<RdmaDevice>> {
            self.facts(seconds, depth).into_iter().map(|fact| fact.downcast().unwrap()).collect()
        }

        /// The only device, read in full.
        fn device(&mut self, seconds: i64) -> Arc<RdmaDevice> {
            let devices = self.devices(seconds, Depth::Full);
            assert_eq!(devices.len(), 1);
            Arc::clone(&devices[0])
        }

        fn quarantined(&self) -> usize {
            self.readers.iter().map(|reader| reader.quarantined()).sum()
        }
    }

    fn names(counters: &Counters) -> Vec<String> {
        counters.layout.iter().map(|counter| counter.name.to_string()).collect()
    }

    const PORT: &str = "class/infiniband/mlx5_0/ports/1";

    /// A ConnectX-6 on InfiniBand, as the kernel lays it out.
    fn infiniband() -> Tree {
        let tree = Tree::default();
        let real = "devices/pci0000:40/0000:40:00.0/0000:41:00.0/infiniband/mlx5_0";
        tree.link("class/infiniband/mlx5_0", "../../devices/pci0000:40/0000:40:00.0/0000:41:00.0/infiniband/mlx5_0")
            .link(&format!("{real}/device"), "../../../0000:41:00.0")
            .texts(
                real,
                &[
                    ("fw_ver", "20.35.1012"),
                    ("board_id", "MT_0000000223"),
                    ("hca_type", "MT4123"),
                    ("node_guid", "0c42:a103:0065:2ee2"),
                    ("sys_image_guid", "0c42:a103:0065:2ee2"),
                ],
            )
            .texts(
                &format!("{real}/ports/1"),
                &[
                    ("state", "4: ACTIVE"),
                    ("phys_state", "5: LinkUp"),
                    ("rate", "200 Gb/sec (4X HDR)"),
                    ("lid", "0x364"),
                    ("sm_lid", "0x1"),
                    ("link_layer", "InfiniBand"),
                    ("gids/0", "fe80:0000:0000:0000:0c42:a103:0065:2ee2"),
                    ("counters/port_rcv_data", "1000"),
                    ("counters/port_xmit_data", "2000"),
                    ("counters/link_downed", "1"),
                    ("counters/unicast_rcv_packets", "7"),
                    ("hw_counters/lifespan", "10"),
                    ("hw_counters/out_of_buffer", "3"),
                    ("hw_counters/duplicate_request", "4"),
                    ("hw_counters/rx_write_requests", "5"),
                ],
            )
            .refuses(&format!("{real}/ports/1/gid_attrs/ndevs/0"), Errno::INVAL);
        tree
    }

    /// Where the device of [`infiniband`] really is.
    const REAL: &str = "devices/pci0000:40/0000:40:00.0/0000:41:00.0/infiniband/mlx5_0";

    #[test]
    fn no_class_is_no_device() {
        let tree = Tree::default();
        tree.text("kernel/notes", "x");
        assert!(CollectorFixture::new(&tree).readers.is_empty());
    }

    #[test]
    fn mlx5_on_infiniband() {
        let mut fixture = CollectorFixture::new(&infiniband());
        let device = fixture.device(0);
        let port = &device.ports[0];
        assert_eq!(device.identity.pci_address.map(|a| a.to_string()).as_deref(), Some("0000:41:00.0"));
        assert_eq!(device.identity.firmware_version.as_deref(), Some("20.35.1012"));
        assert_eq!(device.identity.board_id.as_deref(), Some("MT_0000000223"));
        assert_eq!(device.identity.hca_type.as_deref(), Some("MT4123"));
        assert_eq!(device.identity.node_guid, Some(Guid(0x0c42_a103_0065_2ee2)));
        assert_eq!((port.number, port.state), (1, Reading::Value(PortState::Active)));
        assert_eq!(port.physical_state, Reading::Value(PhysicalState::LinkUp));
        assert_eq!(port.rate.value().map(|rate| (rate.width, rate.speed)), Some((Some(4), Speed::Hdr)));
        assert_eq!((port.lid, port.sm_lid, port.netdev.as_deref()), (Some(0x364), Some(1), None));
        assert_eq!(port.guid, Some(Guid(0x0c42_a103_0065_2ee2)));
        assert_eq!(port.link_layer, Some(LinkLayer::InfiniBand));
        assert_eq!(names(&port.pma), ["link_downed", "port_rcv_data", "port_xmit_data", "unicast_rcv_packets"]);
        // The counter whose reading refreshes mlx5's whole set comes first.
        assert_eq!(names(&port.hardware), ["rx_write_requests", "duplicate_request", "out_of_buffer"]);
        assert_eq!((port.counter("port_xmit_data"), port.counter("out_of_buffer")), (Some(2000), Some(3)));
        assert!(fixture.faults.is_empty(), "{:?}", fixture.faults);
    }

    #[test]
    fn mlx5_on_ethernet_names_its_interface() {
        let tree = infiniband();
        tree.text(&format!("{REAL}/ports/1/link_layer"), "Ethernet")
            .text(&format!("{REAL}/ports/1/gid_attrs/ndevs/0"), "enp65s0f0np0")
            .texts(&format!("{REAL}/ports/1"), &[("lid", "0x0"), ("sm_lid", "0x0"), ("rate", "100 Gb/sec (2X HDR)")])
            .text(&format!("{REAL}/ports/1/hw_counters/np_cnp_sent"), "9");
        let device = CollectorFixture::new(&tree).device(0);
        let port = &device.ports[0];
        assert_eq!(port.link_layer, Some(LinkLayer::Ethernet));
        assert_eq!((port.netdev.as_deref(), port.lid), (Some("enp65s0f0np0"), None));
        assert_eq!(port.rate.value().and_then(|rate| rate.width), Some(2));
        assert_eq!(port.counter("np_cnp_sent"), Some(9));
    }

    #[test]
    fn a_sub_function_belongs_to_the_pci_function_above_it() {
        let tree = infiniband();
        tree.link("class/infiniband/mlx5_9", "../../devices/pci0000:40/0000:41:00.1/mlx5_core.sf.2/infiniband/mlx5_9")
            .link("devices/pci0000:40/0000:41:00.1/mlx5_core.sf.2/infiniband/mlx5_9/device", "../../../mlx5_core.sf.2")
            .text("devices/pci0000:40/0000:41:00.1/mlx5_core.sf.2/infiniband/mlx5_9/fw_ver", "");
        let devices = CollectorFixture::new(&tree).devices(0, Depth::Full);
        assert_eq!(devices[1].identity.pci_address.map(|a| a.to_string()).as_deref(), Some("0000:41:00.1"));
        assert_eq!(devices[1].identity.firmware_version, None);
    }

    #[test]
    fn a_software_device_has_no_pci_function() {
        let tree = Tree::default();
        tree.texts("class/infiniband/rxe0", &[("parent", "eth0"), ("node_guid", "5054:00ff:fe12:3456")])
            .texts("class/infiniband/rxe0/ports/1", &[("state", "1: DOWN"), ("phys_state", "2: Polling")]);
        let device = CollectorFixture::new(&tree).device(0);
        assert_eq!(device.identity.pci_address, None);
        assert_eq!(device.ports[0].physical_state, Reading::Value(PhysicalState::Polling));
    }

    #[test]
    fn mlx4_has_two_ports_and_a_directory_that_is_none_of_ours() {
        let tree = Tree::default();
        for (port, data) in [("1", "11"), ("2", "22")] {
            let dir = format!("class/infiniband/mlx4_0/ports/{port}");
            tree.texts(
                &dir,
                &[
                    ("state", "4: ACTIVE"),
                    ("rate", "10 Gb/sec (4X)"),
                    ("link_layer", "InfiniBand\n"),
                    ("counters/port_rcv_data", data),
                    ("counters_ext/port_rcv_data_64", "999"),
                ],
            );
        }
        tree.text("class/infiniband/mlx4_0/ports/.hidden", "")
            .text("class/infiniband/mlx4_0/ports/01/state", "1: DOWN");
        let device = CollectorFixture::new(&tree).device(0);
        assert_eq!(device.ports.iter().map(|port| port.number).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(device.ports[1].counter("port_rcv_data"), Some(22));
        assert_eq!(device.ports[1].rate.value().map(|rate| rate.speed), Some(Speed::Sdr));
        assert_eq!(device.ports[1].link_layer, Some(LinkLayer::InfiniBand));
        assert_eq!(tree.opened("counters_ext"), 0);
    }

    #[test]
    fn hfi1_has_a_sentence_for_a_board_and_commas_in_names() {
        let tree = Tree::default();
        tree.text("class/infiniband/hfi1_0/board_id", "ACME 100Gb 1-port Omni-Path Adapter x16")
            .text("class/infiniband/hfi1_0/hw_counters/RxTIDFullEr,32", "4")
            .text("class/infiniband/hfi1_0/ports/1/state", "4: ACTIVE");
        let device = CollectorFixture::new(&tree).device(0);
        assert_eq!(device.identity.board_id.as_deref(), Some("ACME 100Gb 1-port Omni-Path Adapter x16"));
        assert_eq!(device.identity.hca_type, None);
        assert_eq!(device.counters.get("RxTIDFullEr,32"), Some(4));
    }

    #[test]
    fn of_hundreds_of_counters_those_with_a_meaning_are_read() {
        let tree = Tree::default();
        for context in 0..200 {
            tree.text(&format!("class/infiniband/hfi1_0/ports/1/hw_counters/Ctx{context},32"), "1");
        }
        tree.text("class/infiniband/hfi1_0/ports/1/hw_counters/local_ack_timeout_err", "6");
        let device = CollectorFixture::new(&tree).device(0);
        assert_eq!(names(&device.ports[0].hardware), ["local_ack_timeout_err"]);
        assert_eq!(tree.opened("Ctx"), 0);
    }

    #[test]
    fn irdma_has_no_performance_counters() {
        let tree = Tree::default();
        tree.texts(
            "class/infiniband/irdma0/ports/1",
            &[("state", "1: DOWN"), ("phys_state", "3: Disabled"), ("hw_counters/ip4InOctets", "77")],
        );
        let mut fixture = CollectorFixture::new(&tree);
        let device = fixture.device(0);
        assert!(device.ports[0].pma.layout.is_empty());
        assert_eq!(device.ports[0].counter("ip4InOctets"), Some(77));
        assert!(fixture.faults.is_empty(), "{:?}", fixture.faults);
    }

    #[test]
    fn bnxt_levels_are_no_events() {
        let tree = Tree::default();
        tree.texts("class/infiniband/bnxt_re0/ports/1/hw_counters", &[("active_qps", "12"), ("rx_bytes", "5")]);
        let device = CollectorFixture::new(&tree).device(0);
        let hardware = &device.ports[0].hardware;
        let meanings: Vec<CounterKind> = hardware.iter().map(|(counter, _)| counter.meaning).collect();
        assert_eq!(meanings, [CounterKind::Level, CounterKind::ReceivedBytes { unit: 1 }]);
    }

    #[test]
    fn efa_counts_at_the_device_and_has_a_layer_of_its_own() {
        let tree = Tree::default();
        tree.text("class/infiniband/rdmap0s6/hw_counters/submitted_cmds", "40").texts(
            "class/infiniband/rdmap0s6/ports/1",
            &[("link_layer", "Unspecified"), ("hw_counters/rx_drops", "2")],
        );
        let device = CollectorFixture::new(&tree).device(0);
        assert_eq!(device.ports[0].link_layer, Some(LinkLayer::Other("Unspecified".into())));
        assert_eq!(device.counters.get("submitted_cmds"), Some(40));
        assert_eq!(device.ports[0].counter("rx_drops"), Some(2));
    }

    #[test]
    fn qib_counters_stand_at_32_bits() {
        let tree = Tree::default();
        tree.texts("class/infiniband/qib0/ports/1/counters", &[("port_rcv_data", "4294967295"), ("symbol_error", "0")]);
        let device = CollectorFixture::new(&tree).device(0);
        let port = &device.ports[0];
        assert_eq!(port.pma.saturated().map(|counter| counter.name.to_string()).collect::<Vec<_>>(), ["port_rcv_data"]);
        let symbol = port.pma.layout.iter().find(|counter| &*counter.name == "symbol_error").unwrap();
        assert_eq!(symbol.meaning, CounterKind::Event(CounterClass::Error));
    }

    #[test]
    fn old_kernels_write_that_there_is_no_counter() {
        let tree = Tree::default();
        tree.texts("class/infiniband/i40iw0/ports/1/counters", &[("symbol_error", "N/A (no PMA)")]);
        let mut fixture = CollectorFixture::new(&tree);
        assert_eq!(fixture.device(0).ports[0].counter("symbol_error"), None);
        assert_eq!(fixture.faults.len(), 1);
        assert_eq!(fixture.faults[0].1, ReadError::NotSupported);
        assert_eq!(fixture.quarantined(), 1);
    }

    #[test]
    fn a_malformed_guid_affects_only_itself() {
        let tree = infiniband();
        tree.text(&format!("{REAL}/node_guid"), "not a guid");
        let mut fixture = CollectorFixture::new(&tree);
        let device = fixture.device(0);
        assert_eq!(device.identity.node_guid, None);
        assert!(device.identity.sys_image_guid.is_some());
        assert_eq!(fixture.faults, [(format!("/sys/{REAL}/node_guid"), ReadError::Malformed)]);
    }

    #[test]
    fn devices_are_listed_as_people_count() {
        let tree = Tree::default();
        for name in ["mlx5_10", "mlx5_2", ".placeholder"] {
            tree.text(&format!("class/infiniband/{name}/fw_ver"), "1");
        }
        let mut fixture = CollectorFixture::new(&tree);
        let mut cx = ReadContext::new(&fixture.host, BootTime(0), Depth::Full);
        let keys: Vec<_> =
            fixture.collector.discover(&mut cx).unwrap().iter().map(|found| found.key.to_string()).collect();
        assert_eq!(keys, ["mlx5_2", "mlx5_10"]);
    }

    const MINUTE: i64 = 60;

    #[test]
    fn an_excluded_device_is_never_opened() {
        let tree = infiniband();
        tree.text("class/infiniband/mlx5_1/ports/1/state", "4: ACTIVE");
        let filter = Filter { include: None, exclude: Some(Filter::pattern("mlx5_0").unwrap()) };
        let mut fixture = CollectorFixture::with(&tree, filter, |setup| Box::new(RdmaCollector::new(setup, None)));
        let devices = fixture.devices(0, Depth::Full);
        assert_eq!(devices.iter().map(|device| device.name.to_string()).collect::<Vec<_>>(), ["mlx5_1"]);
        assert_eq!((tree.opened("mlx5_0"), tree.opened("mlx5_1") > 0), (0, true));
    }

    #[test]
    fn a_pass_over_states_keeps_the_counters() {
        let tree = infiniband();
        let mut fixture = CollectorFixture::new(&tree);
        // The first pass reads everything, whatever it was asked for.
        let first = Arc::clone(&fixture.devices(10, Depth::State)[0]);
        assert_eq!(first.counters_at, BootTime(10_000));
        tree.text(&format!("{REAL}/ports/1/counters/port_rcv_data"), "5000")
            .text(&format!("{REAL}/ports/1/state"), "1: DOWN");
        let (rates, counters) = (tree.reads("/rate"), tree.reads("counters/"));
        let second = Arc::clone(&fixture.devices(15, Depth::State)[0]);
        assert_eq!(second.counters_at, BootTime(10_000));
        assert_eq!(second.ports[0].counter("port_rcv_data"), Some(1000));
        assert_eq!(second.ports[0].state, Reading::Value(PortState::Down));
        assert_eq!(second.ports[0].rate, Reading::Absent);
        assert_eq!((tree.reads("/rate"), tree.reads("counters/")), (rates, counters));
        assert!(Arc::ptr_eq(&first.identity, &second.identity));
        let third = fixture.device(20);
        assert_eq!((third.counters_at, third.ports[0].counter("port_rcv_data")), (BootTime(20_000), Some(5000)));
    }

    #[test]
    fn a_quiet_pass_over_states_reads_two_files() {
        let tree = infiniband();
        let mut fixture = CollectorFixture::new(&tree);
        fixture.device(0);
        let (reads, opened) = (tree.reads(""), tree.opened(""));
        fixture.devices(5, Depth::State);
        assert_eq!((tree.reads("") - reads, tree.opened("") - opened), (2, 0));
    }

    #[test]
    fn a_refused_counter_is_left_alone_and_the_others_are_not() {
        let tree = infiniband();
        let file = format!("{REAL}/ports/1/counters/link_downed");
        tree.refuses(&file, Errno::INVAL);
        let mut fixture = CollectorFixture::new(&tree);
        let mut probes = Vec::new();
        for minute in 0..=100 {
            let before = tree.reads("link_downed");
            let device = fixture.device(minute * MINUTE);
            assert_eq!(device.ports[0].counter("port_rcv_data"), Some(1000));
            assert_eq!((device.ports[0].counter("link_downed"), fixture.quarantined()), (None, 1));
            if tree.reads("link_downed") > before {
                probes.push((minute, fixture.faults[0].1));
            }
        }
        // After 10 minutes, then 20, then 40.
        let again = ReadError::Quarantined;
        assert_eq!(probes, [(0, ReadError::NotSupported), (10, again), (30, again), (70, again)]);
        tree.text(&file, "2");
        let device = fixture.device(200 * MINUTE);
        assert_eq!((device.ports[0].counter("link_downed"), fixture.quarantined()), (Some(2), 0));
    }

    #[test]
    fn the_rate_of_a_port_that_is_down_is_not_read() {
        let tree = infiniband();
        let rate = format!("{REAL}/ports/1/rate");
        tree.text(&format!("{REAL}/ports/1/state"), "1: DOWN").refuses(&rate, Errno::INVAL);
        let mut fixture = CollectorFixture::new(&tree);
        assert_eq!(
            (fixture.device(0).ports[0].rate, tree.opened("/rate"), fixture.quarantined()),
            (Reading::Absent, 0, 0)
        );
        // A kernel that still refuses when the link has just come up: quarantined, until the state changes again.
        tree.text(&format!("{REAL}/ports/1/state"), "4: ACTIVE");
        assert_eq!(fixture.device(5).ports[0].rate, Reading::Unreadable(ReadError::NotSupported));
        tree.text(&format!("{REAL}/ports/1/phys_state"), "6: LinkErrorRecovery").text(&rate, "100 Gb/sec (4X EDR)");
        let device = Arc::clone(&fixture.devices(10, Depth::State)[0]);
        assert_eq!(device.ports[0].rate.value().map(|rate| rate.bandwidth.gbits()), Some(100.0));
        assert_eq!(fixture.quarantined(), 0);
    }

    #[test]
    fn an_unresponsive_card_is_not_read_counter_by_counter() {
        let tree = infiniband();
        for counter in ["link_downed", "port_rcv_data", "port_xmit_data"] {
            tree.refuses(&format!("{REAL}/ports/1/counters/{counter}"), Errno::TIMEDOUT);
        }
        let mut fixture = CollectorFixture::new(&tree);
        let port = &fixture.device(0).ports[0];
        assert_eq!((port.pma.values.as_slice(), port.state), ([None; 4].as_slice(), Reading::Value(PortState::Active)));
        // One odd file would be no reason to give up; two in a row are.
        assert_eq!((fixture.faults.len(), fixture.faults[0].1, fixture.quarantined()), (2, ReadError::Timeout, 0));
        assert_eq!(tree.reads("/counters/"), 2);
    }

    #[test]
    fn counters_that_appear_later_are_read() {
        let tree = Tree::default();
        tree.text("class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE");
        let mut fixture = CollectorFixture::new(&tree);
        assert!(fixture.device(0).ports[0].pma.layout.is_empty());
        tree.text(&format!("{PORT}/counters/link_downed"), "3");
        let device = Arc::clone(&fixture.devices(5, Depth::State)[0]);
        assert_eq!((device.ports[0].counter("link_downed"), device.counters_at), (Some(3), BootTime(5_000)));
        tree.remove(&format!("{PORT}/counters"));
        assert!(fixture.device(10).ports[0].pma.layout.is_empty());
        assert!(fixture.faults.is_empty());
    }

    #[test]
    fn a_device_that_came_back_under_its_name_is_read_anew() {
        let tree = infiniband();
        let mut fixture = CollectorFixture::new(&tree);
        fixture.device(0);
        tree.recreate();
        tree.text(&format!("{REAL}/fw_ver"), "20.40.0000")
            .text(&format!("{REAL}/ports/1/counters/port_rcv_data"), "1")
            .text(&format!("{REAL}/ports/1/hw_counters/np_cnp_sent"), "8");
        let device = Arc::clone(&fixture.devices(5, Depth::State)[0]);
        assert_eq!(device.identity.firmware_version.as_deref(), Some("20.40.0000"));
        assert_eq!(device.ports[0].counter("port_rcv_data"), Some(1));
        assert_eq!(device.ports[0].counter("np_cnp_sent"), Some(8));
        assert!(fixture.faults.is_empty(), "{:?}", fixture.faults);
    }

    #[test]
    fn a_device_that_went_away_has_no_facts() {
        let tree = infiniband();
        let mut fixture = CollectorFixture::new(&tree);
        fixture.device(0);
        tree.remove("devices");
        assert!(fixture.devices(5, Depth::Full).is_empty());
        assert!(fixture.faults.is_empty());
        assert_eq!(tree.0.lock().unwrap().nodes.len(), 1);
    }

    #[test]
    fn new_firmware_is_seen_within_a_minute() {
        let tree = infiniband();
        let mut fixture = CollectorFixture::new(&tree);
        fixture.device(0);
        tree.text(&format!("{REAL}/fw_ver"), "20.40.0000");
        assert_eq!(fixture.device(30).identity.firmware_version.as_deref(), Some("20.35.1012"));
        assert_eq!(fixture.device(60).identity.firmware_version.as_deref(), Some("20.40.0000"));
    }

    #[test]
    fn a_directory_instead_of_a_file_affects_only_itself() {
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
            ethtool: None,
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

    /// What a kernel answers, by operation; an unknown operation is EINVAL.
    #[derive(Clone)]
    struct Kernel(Arc<Mutex<Answers>>);

    struct Answers {
        index: u32,
        copy_on_fork: bool,
        port: Result<(u8, u8, u32), Errno>,
        counters: Result<Vec<(&'static str, u64)>, Errno>,
        resources: Result<Vec<(&'static str, u64)>, Errno>,
        asked: Vec<(u16, Option<u32>)>,
    }

    impl Kernel {
        fn new() -> Self {
            Self(Arc::new(Mutex::new(Answers {
                index: 4,
                copy_on_fork: true,
                port: Ok((4, 5, 0x10)),
                counters: Ok(vec![
                    ("rx_write_requests", 50),
                    ("optional", 1),
                    ("out_of_buffer", 30),
                    ("duplicate_request", 40),
                ]),
                resources: Ok(vec![("pd", 2), ("qp", 17)]),
                asked: Vec::new(),
            })))
        }

        fn connect(&self) -> NetlinkConnector {
            let kernel = self.clone();
            Arc::new(move || Ok(Box::new(kernel.clone())))
        }

        fn set(&self, change: impl FnOnce(&mut Answers)) {
            change(&mut self.0.lock().unwrap());
        }

        fn asked(&self, op: u16) -> usize {
            self.0.lock().unwrap().asked.iter().filter(|(asked, _)| *asked == op).count()
        }
    }

    impl NetlinkConnection for Kernel {
        fn ask(&mut self, request: &[u8]) -> io::Result<Vec<Vec<u8>>> {
            let mut answers = self.0.lock().unwrap();
            let op = u16::from_ne_bytes([request[4], request[5]]) & 0x3ff;
            let index = request.get(20..24).map(|bytes| u32::from_ne_bytes(bytes.try_into().unwrap()));
            answers.asked.push((op, index));
            let (name, at) = ("mlx5_0", answers.index);
            if index.is_some_and(|index| index != at) {
                return Err(errno(Errno::INVAL));
            }
            let reply = match op {
                1 if index.is_none() => return Ok(vec![handle(0, "mlx5_7"), handle(at, name)]),
                1 => handle(at, name),
                5 => answers
                    .port
                    .map(|(state, physical, lid)| port_reply(at, name, state, physical, lid))
                    .map_err(errno)?,
                6 => system_reply(answers.copy_on_fork),
                9 => answers.resources.as_ref().map(|list| resources_reply(at, name, list)).map_err(|e| errno(*e))?,
                17 => answers.counters.as_ref().map(|list| counters_reply(at, name, list)).map_err(|e| errno(*e))?,
                _ => return Err(errno(Errno::INVAL)),
            };
            Ok(vec![reply])
        }
    }

    #[test]
    fn two_messages_replace_many_files() {
        let (tree, kernel) = (infiniband(), Kernel::new());
        let mut fixture = CollectorFixture::on_netlink(&tree, kernel.connect());
        for (at, depth) in [(0, Depth::Full), (5, Depth::Full), (10, Depth::State)] {
            let device = Arc::clone(&fixture.devices(at, depth)[0]);
            let port = &device.ports[0];
            assert_eq!(port.state, Reading::Value(PortState::Active));
            assert_eq!(port.physical_state, Reading::Value(PhysicalState::LinkUp));
            assert_eq!((port.lid, port.sm_lid), (Some(0x10), Some(1)));
            assert_eq!(port.rate.value().map(|rate| rate.bandwidth.gbits()), Some(200.0));
            assert_eq!(port.hardware.values, [Some(50), Some(40), Some(30)]);
            assert_eq!(port.counter("port_rcv_data"), Some(1000));
        }
        for file in ["/state", "/phys_state", "lid", "hw_counters"] {
            assert_eq!(tree.opened(file), 0, "{file}");
        }
        assert_eq!((kernel.asked(1), kernel.asked(6), kernel.asked(5), kernel.asked(17)), (1, 1, 3, 2));
        assert!(fixture.faults.is_empty(), "{:?}", fixture.faults);
    }

    #[test]
    fn counters_that_netlink_lacks_are_read_from_files() {
        let (tree, kernel) = (infiniband(), Kernel::new());
        kernel.set(|answers| answers.counters = Ok(vec![("out_of_buffer", 30)]));
        let mut fixture = CollectorFixture::on_netlink(&tree, kernel.connect());
        assert_eq!(fixture.device(0).ports[0].hardware.values, [Some(5), Some(4), Some(30)]);
    }

    #[test]
    fn an_unsupported_command_is_paused_and_counted_once() {
        let (tree, kernel) = (infiniband(), Kernel::new());
        kernel.set(|answers| answers.counters = Err(Errno::INVAL));
        let mut fixture = CollectorFixture::on_netlink(&tree, kernel.connect());
        let device = fixture.device(0);
        assert_eq!(device.ports[0].hardware.values, [Some(5), Some(4), Some(3)]);
        assert_eq!(fixture.faults, [("STAT_GET mlx5_0/1".to_owned(), ReadError::NotSupported)]);
        assert_eq!(fixture.quarantined(), 1);
        for minute in 1..25 {
            fixture.device(minute * 60);
            assert!(fixture.faults.is_empty());
        }
        assert_eq!((kernel.asked(17), tree.opened("/state")), (3, 0));
        kernel.set(|answers| answers.counters = Ok(vec![("out_of_buffer", 99)]));
        assert_eq!(fixture.device(60 * 60).ports[0].counter("out_of_buffer"), Some(99));
        assert_eq!(fixture.quarantined(), 0);
    }

    #[test]
    fn files_are_not_read_after_the_driver_failed() {
        let (tree, kernel) = (infiniband(), Kernel::new());
        kernel.set(|answers| (answers.port, answers.counters) = (Err(Errno::IO), Err(Errno::TIMEDOUT)));
        let mut fixture = CollectorFixture::on_netlink(&tree, kernel.connect());
        let device = fixture.device(0);
        assert_eq!(device.ports[0].state, Reading::Unreadable(ReadError::Io));
        assert_eq!(device.ports[0].hardware.values, [None; 3]);
        assert_eq!(device.ports[0].counter("port_rcv_data"), Some(1000));
        let expected = [("PORT_GET mlx5_0/1", ReadError::Io), ("STAT_GET mlx5_0/1", ReadError::Timeout)];
        assert_eq!(fixture.faults, expected.map(|(source, reason)| (source.to_owned(), reason)));
        kernel.set(|answers| answers.port = Ok((1, 2, 0)));
        assert_eq!(fixture.device(5).ports[0].state, Reading::Value(PortState::Down));
    }

    #[test]
    fn an_old_kernel_is_asked_through_files_only() {
        let (tree, kernel) = (infiniband(), Kernel::new());
        kernel.set(|answers| answers.copy_on_fork = false);
        let mut fixture = CollectorFixture::on_netlink(&tree, kernel.connect());
        let device = fixture.device(0);
        assert_eq!(device.ports[0].lid, Some(0x364));
        fixture.device(5);
        assert_eq!((kernel.asked(6), kernel.asked(5)), (1, 0));
        assert!(fixture.faults.is_empty());
    }

    #[test]
    fn a_missing_netlink_is_no_fault() {
        let tree = infiniband();
        let mut fixture = CollectorFixture::on_netlink(&tree, Arc::new(|| Err(errno(Errno::PROTONOSUPPORT))));
        assert_eq!(fixture.device(0).ports[0].lid, Some(0x364));
        assert!(fixture.faults.is_empty(), "{:?}", fixture.faults);
    }

    #[test]
    fn a_device_with_a_new_index_is_found_again() {
        let (tree, kernel) = (infiniband(), Kernel::new());
        let mut fixture = CollectorFixture::on_netlink(&tree, kernel.connect());
        fixture.device(0);
        kernel.set(|answers| (answers.index, answers.port) = (9, Ok((4, 5, 0x20))));
        assert_eq!(fixture.device(5).ports[0].lid, Some(0x20));
        assert!(fixture.faults.is_empty(), "{:?}", fixture.faults);
    }

    #[test]
    fn resources_are_counted_by_kind() {
        let (tree, kernel) = (infiniband(), Kernel::new());
        let make = |connect| {
            move |setup: &Setup| {
                Box::new(NetlinkCollector::new(setup, connect, super::netlink::open_resources)) as Box<dyn Collector>
            }
        };
        let mut fixture = CollectorFixture::with(&tree, Filter::default(), make(Some(kernel.connect())));
        for at in [0, 5] {
            let facts = fixture.facts(at, Depth::State);
            let resources: &RdmaResources = facts[0].downcast_ref().unwrap();
            assert_eq!(resources.device.as_str(), "mlx5_0");
            assert_eq!(resources.counts, [("pd".into(), 2), ("qp".into(), 17)]);
        }
        kernel.set(|answers| answers.resources = Err(Errno::PERM));
        assert!(fixture.facts(10, Depth::Full).is_empty());
        assert_eq!(fixture.faults, [("RES_GET mlx5_0".to_owned(), ReadError::Permission)]);
        assert_eq!(tree.opened(""), 0);
        // A recorded host has no netlink.
        assert!(CollectorFixture::with(&tree, Filter::default(), make(None)).readers.is_empty());
    }
}
