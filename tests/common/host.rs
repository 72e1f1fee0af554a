//! Hosts with RDMA cards, as the kernel shows them below `/sys` and `/proc`.
//!
//! A [`HostTree`] is a description; [`HostTree::tree`] makes the files. Names, links and formats are the kernel's
//! (mlx5_core on Linux 6.1). One thing differs: files that fail with EINVAL on a real host, `gid_attrs/ndevs/*` of
//! InfiniBand ports, are left out.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use super::tree::Tree;

/// The PMA counters of an mlx5 port with the extended set: 21.
pub const PMA: [&str; 21] = [
    "VL15_dropped",
    "excessive_buffer_overrun_errors",
    "link_downed",
    "link_error_recovery",
    "local_link_integrity_errors",
    "multicast_rcv_packets",
    "multicast_xmit_packets",
    "port_rcv_constraint_errors",
    "port_rcv_data",
    "port_rcv_errors",
    "port_rcv_packets",
    "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors",
    "port_xmit_constraint_errors",
    "port_xmit_data",
    "port_xmit_discards",
    "port_xmit_packets",
    "port_xmit_wait",
    "symbol_error",
    "unicast_rcv_packets",
    "unicast_xmit_packets",
];

/// The hw_counters of an mlx5 port before Linux 6.11: 29, and `lifespan`, which is none.
pub const HW: [&str; 29] = [
    "duplicate_request",
    "implied_nak_seq_err",
    "local_ack_timeout_err",
    "np_cnp_sent",
    "np_ecn_marked_roce_packets",
    "out_of_buffer",
    "out_of_sequence",
    "packet_seq_err",
    "req_cqe_error",
    "req_cqe_flush_error",
    "req_remote_access_errors",
    "req_remote_invalid_request",
    "resp_cqe_error",
    "resp_cqe_flush_error",
    "resp_local_length_error",
    "resp_remote_access_errors",
    "rnr_nak_retry_err",
    "roce_adp_retrans",
    "roce_adp_retrans_to",
    "roce_slow_restart",
    "roce_slow_restart_cnps",
    "roce_slow_restart_trans",
    "rp_cnp_handled",
    "rp_cnp_ignored",
    "rx_atomic_requests",
    "rx_dct_connect",
    "rx_icrc_encapsulated",
    "rx_read_requests",
    "rx_write_requests",
];

const CORRECTABLE: [&str; 8] =
    ["RxErr", "BadTLP", "BadDLLP", "Rollover", "Timeout", "NonFatalErr", "CorrIntErr", "HeaderOF"];

const UNCORRECTABLE: [&str; 18] = [
    "Undefined",
    "DLP",
    "SDES",
    "TLP",
    "FCP",
    "CmpltTO",
    "CmpltAbrt",
    "UnxCmplt",
    "RxOF",
    "MalfTLP",
    "ECRC",
    "UnsupReq",
    "ACSViol",
    "UncorrIntErr",
    "BlockedTLP",
    "AtomicOpBlocked",
    "TLPBlockedErr",
    "PoisonTLPBlocked",
];

/// Speed and width of one end of a PCIe link, in the kernel's words.
#[derive(Debug, Clone, Copy)]
pub struct LinkEnd {
    /// `current_link_speed`, for example `16.0 GT/s PCIe`.
    pub speed: &'static str,
    /// `current_link_width`.
    pub width: u8,
    /// `max_link_speed`.
    pub max_speed: &'static str,
    /// `max_link_width`.
    pub max_width: u8,
}

/// PCIe speeds as Linux 5.7 and later write them.
pub const GEN3: &str = "8.0 GT/s PCIe";
/// The same.
pub const GEN4: &str = "16.0 GT/s PCIe";
/// The same.
pub const GEN5: &str = "32.0 GT/s PCIe";

impl LinkEnd {
    /// An end that runs at its maximum.
    pub fn full(speed: &'static str, width: u8) -> Self {
        Self { speed, width, max_speed: speed, max_width: width }
    }

    /// The same end, trained to less.
    pub fn trained(self, speed: &'static str, width: u8) -> Self {
        Self { speed, width, ..self }
    }
}

/// What a port runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    /// `InfiniBand`, with an IPoIB interface.
    InfiniBand,
    /// `Ethernet`: RoCE, with the interface of the function.
    Ethernet,
}

/// A card and the ports above it.
#[derive(Debug, Clone)]
pub struct Card {
    /// Functions, 1 or 2, each with one RDMA device with one port.
    pub functions: u8,
    /// Whether a PCIe switch stands between root port and card.
    pub switch: bool,
    /// The card's end of its link.
    pub device: LinkEnd,
    /// The end above it, and every link further up.
    pub upstream: LinkEnd,
    /// What the ports run.
    pub layer: Layer,
    /// `rate`, for example `200 Gb/sec (4X HDR)`.
    pub rate: &'static str,
    /// `state`.
    pub state: &'static str,
    /// `phys_state`.
    pub phys_state: &'static str,
    /// `numa_node`; -1 is the kernel's word for unknown.
    pub numa_node: i32,
    /// VFs of each function, 0 to 112, bound to vfio-pci; with a limit of `sriov_totalvfs` (absent when none).
    pub vfs: u16,
    /// `sriov_totalvfs`.
    pub vfs_limit: Option<u16>,
    /// Entries of the GID table that are not zero.
    pub gids: usize,
}

impl Default for Card {
    /// A ConnectX-6 in a slot that suits it, its InfiniBand port up at 200 Gb/s.
    fn default() -> Self {
        Self {
            functions: 1,
            switch: false,
            device: LinkEnd::full(GEN4, 16),
            upstream: LinkEnd::full(GEN4, 16),
            layer: Layer::InfiniBand,
            rate: "200 Gb/sec (4X HDR)",
            state: "4: ACTIVE",
            phys_state: "5: LinkUp",
            numa_node: 0,
            vfs: 0,
            vfs_limit: None,
            gids: 2,
        }
    }
}

/// A host to be written.
#[derive(Debug, Clone)]
pub struct HostTree {
    /// Every value that is not said follows from this.
    pub seed: u64,
    /// Cards, in the order of their addresses, at most 64.
    pub cards: Vec<Card>,
    /// NUMA nodes, with four CPUs each.
    pub nodes: usize,
    /// Name of the host.
    pub hostname: String,
}

/// An RDMA device of a written host, and where its files are, from the top of the host's tree.
#[derive(Debug, Clone)]
pub struct Device {
    /// Name below `class/infiniband`.
    pub name: String,
    /// Address of its function.
    pub address: String,
    /// Address of the port above the function.
    pub upstream: String,
    /// Directory of the function, below `sys`.
    pub function: PathBuf,
    /// Directory of the port above it.
    pub above: PathBuf,
    /// Directory of the device's port 1.
    pub port: PathBuf,
}

impl HostTree {
    /// A host with so many equal cards, spread over two NUMA nodes.
    pub fn new(cards: usize) -> Self {
        let card = |index: usize| Card { numa_node: i32::from(index % 2 == 1), ..Card::default() };
        Self { seed: 1, cards: (0..cards).map(card).collect(), nodes: 2, hostname: "node17".into() }
    }

    /// Its RDMA devices, `mlx5_0` and on.
    pub fn devices(&self) -> Vec<Device> {
        let mut devices = Vec::new();
        for (index, card) in self.cards.iter().enumerate() {
            let place = Place::of(index, card);
            for function in 0..card.functions {
                let name = format!("mlx5_{}", devices.len());
                let address = place.address(function);
                let directory = place.above.join(&address);
                let port = directory.join("infiniband").join(&name).join("ports/1");
                let upstream = place.above.file_name().unwrap().to_string_lossy().into_owned();
                devices.push(Device { name, address, upstream, function: directory, above: place.above.clone(), port });
            }
        }
        devices
    }

    /// The files: `sys/` and `proc/`.
    pub fn tree(&self) -> Tree {
        let mut tree = Tree::default();
        self.system(&mut tree);
        let mut devices = self.devices().into_iter();
        for (index, card) in self.cards.iter().enumerate() {
            let place = Place::of(index, card);
            ports_above(&mut tree, card, &place);
            for (function, device) in (0..card.functions).zip(devices.by_ref()) {
                let mut values = Values(self.seed ^ ((index as u64) << 8 | u64::from(function)).wrapping_mul(GOLDEN));
                pf(&mut tree, card, &device, &mut values);
                rdma(&mut tree, card, &device, index, function, &mut values);
                netdev(&mut tree, card, &device, index, function);
                for vf in 0..card.vfs {
                    vf_function(&mut tree, card, &place, &device, function, vf);
                }
            }
        }
        tree
    }

    /// Writes it into a directory: `sys/`, `proc/`.
    pub fn write(&self, directory: &Path) -> io::Result<()> {
        self.tree().write(directory)
    }

    fn system(&self, tree: &mut Tree) {
        let last = self.nodes * 4 - 1;
        tree.line("sys/devices/system/cpu/online", format!("0-{last}"));
        tree.line("sys/devices/system/cpu/possible", format!("0-{last}"));
        tree.line("sys/devices/system/node/online", format!("0-{}", self.nodes - 1));
        tree.line("sys/devices/system/node/possible", format!("0-{}", self.nodes - 1));
        for node in 0..self.nodes {
            let directory = PathBuf::from(format!("sys/devices/system/node/node{node}"));
            tree.line(directory.join("cpulist"), format!("{}-{}", node * 4, node * 4 + 3));
            let distance = |other| if other == node { "10" } else { "21" };
            tree.line(directory.join("distance"), (0..self.nodes).map(distance).collect::<Vec<_>>().join(" "));
        }
        tree.directory("sys/class/infiniband");
        tree.directory("sys/class/net");
        tree.line("proc/uptime", "1234567.89 9876543.21");
        tree.line("proc/sys/kernel/hostname", &self.hostname);
        tree.line("proc/sys/kernel/osrelease", "6.1.0-18-amd64");
        tree.line("proc/sys/kernel/random/boot_id", "6f1c2a54-7d0e-4c3b-9a57-0d4bb8e1f203");
    }
}

fn ports_above(tree: &mut Tree, card: &Card, place: &Place) {
    let mut directory = PathBuf::from("sys/devices").join(&place.bridge);
    for (hop, address) in place.hops.iter().enumerate() {
        directory.push(address);
        let device = if hop == 0 { ("0x8086", "0x347a") } else { ("0x11f8", "0x4036") };
        function(tree, &directory, address, device, "0x060400", card.numa_node);
        bind(tree, &directory, address, "pcieport");
        link_end(tree, &directory, card.upstream);
        aer(tree, &directory);
        if hop == 0 {
            for kind in ["cor", "nonfatal", "fatal"] {
                tree.line(directory.join(format!("aer_rootport_total_err_{kind}")), 0);
            }
        }
    }
}

/// Where a card stands.
struct Place {
    domain: usize,
    bus: usize,
    bridge: String,
    hops: Vec<String>,
    above: PathBuf,
}

impl Place {
    /// Seven buses a card, 32 cards a domain.
    fn of(index: usize, card: &Card) -> Self {
        assert!(index < 64, "a host has at most 64 cards");
        let (domain, root) = (index / 32, 4 + index % 32 * 7);
        let bridge = format!("pci{domain:04x}:{root:02x}");
        let mut hops = vec![format!("{domain:04x}:{root:02x}:01.0")];
        if card.switch {
            hops.push(format!("{domain:04x}:{:02x}:00.0", root + 1));
            hops.push(format!("{domain:04x}:{:02x}:04.0", root + 2));
        }
        let above = hops.iter().fold(PathBuf::from("sys/devices").join(&bridge), |path, hop| path.join(hop));
        Self { domain, bus: root + hops.len(), bridge, hops, above }
    }

    fn address(&self, function: u8) -> String {
        format!("{:04x}:{:02x}:00.{function}", self.domain, self.bus)
    }

    /// VFs of function 0 from device 1 on, of function 1 from device 15 on, as ARI allows.
    fn vf_address(&self, function: u8, vf: u16) -> String {
        let id = 8 + 112 * u16::from(function) + vf;
        format!("{:04x}:{:02x}:{:02x}.{}", self.domain, self.bus, id / 8, id % 8)
    }
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Numbers that follow from a seed.
struct Values(u64);

impl Values {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }
}

fn function(tree: &mut Tree, directory: &Path, address: &str, device: (&str, &str), class: &str, node: i32) {
    tree.line(directory.join("vendor"), device.0);
    tree.line(directory.join("device"), device.1);
    tree.line(directory.join("class"), class);
    tree.line(directory.join("numa_node"), node);
    tree.link_to(directory.join("subsystem"), "sys/bus/pci");
    tree.link_to(Path::new("sys/bus/pci/devices").join(address), directory);
    let id = |text: &str| text.trim_start_matches("0x").to_uppercase();
    let (vendor, device) = (id(device.0), id(device.1));
    let uevent = format!("PCI_CLASS={}\nPCI_ID={vendor}:{device}\nPCI_SLOT_NAME={address}\n", &class[3..]);
    tree.file(directory.join("uevent"), uevent);
}

fn bind(tree: &mut Tree, directory: &Path, address: &str, driver: &str) {
    let home = Path::new("sys/bus/pci/drivers").join(driver);
    tree.link_to(directory.join("driver"), &home);
    tree.link_to(home.join(address), directory);
}

fn link_end(tree: &mut Tree, directory: &Path, end: LinkEnd) {
    tree.line(directory.join("current_link_speed"), end.speed);
    tree.line(directory.join("current_link_width"), end.width);
    tree.line(directory.join("max_link_speed"), end.max_speed);
    tree.line(directory.join("max_link_width"), end.max_width);
}

fn aer(tree: &mut Tree, directory: &Path) {
    let text = |names: &[&str], total: &str| {
        let mut text = String::new();
        for name in names.iter().chain([&total]) {
            let _ = writeln!(text, "{name} 0");
        }
        text
    };
    tree.file(directory.join("aer_dev_correctable"), text(&CORRECTABLE, "TOTAL_ERR_COR"));
    tree.file(directory.join("aer_dev_nonfatal"), text(&UNCORRECTABLE, "TOTAL_ERR_NONFATAL"));
    tree.file(directory.join("aer_dev_fatal"), text(&UNCORRECTABLE, "TOTAL_ERR_FATAL"));
}

fn pf(tree: &mut Tree, card: &Card, device: &Device, values: &mut Values) {
    let directory = &device.function;
    let class = if card.layer == Layer::InfiniBand { "0x020700" } else { "0x020000" };
    function(tree, directory, &device.address, ("0x15b3", "0x101b"), class, card.numa_node);
    bind(tree, directory, &device.address, "mlx5_core");
    link_end(tree, directory, card.device);
    aer(tree, directory);
    tree.line(directory.join("power_state"), "D0");
    let node = usize::try_from(card.numa_node).unwrap_or(0);
    tree.line(directory.join("local_cpulist"), format!("{}-{}", node * 4, node * 4 + 3));
    for _ in 0..4 {
        tree.line(directory.join(format!("msi_irqs/{}", 40 + values.below(2000))), "msix");
    }
    if let Some(limit) = card.vfs_limit.or((card.vfs > 0).then_some(127)) {
        tree.line(directory.join("sriov_totalvfs"), limit);
        tree.line(directory.join("sriov_numvfs"), card.vfs);
        tree.line(directory.join("sriov_stride"), 1);
        tree.line(directory.join("sriov_drivers_autoprobe"), 1);
        tree.line(directory.join("sriov_vf_device"), "101c");
    }
}

fn vf_function(tree: &mut Tree, card: &Card, place: &Place, pf: &Device, function_number: u8, vf: u16) {
    let address = place.vf_address(function_number, vf);
    let directory = place.above.join(&address);
    let class = if card.layer == Layer::InfiniBand { "0x020700" } else { "0x020000" };
    function(tree, &directory, &address, ("0x15b3", "0x101c"), class, card.numa_node);
    bind(tree, &directory, &address, "vfio-pci");
    let end = LinkEnd { speed: "Unknown", width: 0, ..card.device };
    link_end(tree, &directory, end);
    tree.link_to(directory.join("physfn"), &pf.function);
    tree.link_to(pf.function.join(format!("virtfn{vf}")), &directory);
    let group =
        format!("sys/kernel/iommu_groups/{}", place.bus * 1000 + usize::from(function_number) * 200 + usize::from(vf));
    tree.link_to(directory.join("iommu_group"), &group);
    tree.link_to(Path::new(&group).join("devices").join(&address), &directory);
    tree.line(directory.join("driver_override"), "(null)");
}

fn guid(index: usize, function: u8, port: u8) -> String {
    format!("b83f:d203:00{index:02x}:{function:02x}{port:02x}")
}

fn rdma(tree: &mut Tree, card: &Card, device: &Device, index: usize, function: u8, values: &mut Values) {
    let directory = device.function.join("infiniband").join(&device.name);
    tree.link_to(Path::new("sys/class/infiniband").join(&device.name), &directory);
    tree.link_to(directory.join("device"), &device.function);
    tree.link_to(directory.join("subsystem"), "sys/class/infiniband");
    tree.line(directory.join("board_id"), "MT_0000000223");
    tree.line(directory.join("fw_ver"), "20.39.3004");
    tree.line(directory.join("hca_type"), "MT4123");
    tree.line(directory.join("hw_rev"), "0");
    tree.line(directory.join("node_desc"), format!("node17 {}", device.name));
    tree.line(directory.join("node_guid"), guid(index, function, 0));
    tree.line(directory.join("node_type"), "1: CA");
    tree.line(directory.join("sys_image_guid"), guid(index, 0, 0));
    let port = &device.port;
    let infiniband = card.layer == Layer::InfiniBand;
    let lid = if infiniband { index * 2 + usize::from(function) + 1 } else { 0 };
    tree.line(port.join("state"), card.state);
    tree.line(port.join("phys_state"), card.phys_state);
    tree.line(port.join("rate"), card.rate);
    tree.line(port.join("lid"), format!("{lid:#x}"));
    tree.line(port.join("sm_lid"), if infiniband { "0x1" } else { "0x0" });
    tree.line(port.join("sm_sl"), 0);
    tree.line(port.join("lid_mask_count"), 0);
    tree.line(port.join("cap_mask"), "0xa751e848");
    tree.line(port.join("link_layer"), if infiniband { "InfiniBand" } else { "Ethernet" });
    for gid in 0..card.gids.max(4) {
        let tail = if gid < card.gids { guid(index, function, u8::try_from(gid).unwrap() + 1) } else { NO_GUID.into() };
        let head = if gid < card.gids { "fe80:0000:0000:0000" } else { NO_GUID };
        tree.line(port.join(format!("gids/{gid}")), format!("{head}:{tail}"));
        if gid < card.gids {
            let kind = if infiniband || gid % 2 == 0 { "IB/RoCE v1" } else { "RoCE v2" };
            tree.line(port.join(format!("gid_attrs/types/{gid}")), kind);
            if !infiniband {
                tree.line(port.join(format!("gid_attrs/ndevs/{gid}")), interface(card, index, function));
            }
        }
    }
    for name in PMA {
        tree.line(port.join("counters").join(name), pma_value(name, values));
    }
    for name in HW {
        let traffic = name.starts_with("rx_");
        tree.line(port.join("hw_counters").join(name), values.below(if traffic { 4_000_000_000 } else { 50 }));
    }
    tree.line(port.join("hw_counters/lifespan"), 10);
}

const NO_GUID: &str = "0000:0000:0000:0000";

/// A port that has moved data for weeks without an error.
fn pma_value(name: &str, values: &mut Values) -> u64 {
    match name {
        "port_rcv_data" | "port_xmit_data" => 1 << 52 | values.below(1 << 50),
        "port_rcv_packets" | "port_xmit_packets" => 1 << 40 | values.below(1 << 38),
        "unicast_rcv_packets" | "unicast_xmit_packets" => 1 << 39 | values.below(1 << 37),
        "multicast_rcv_packets" | "multicast_xmit_packets" => values.below(1 << 20),
        "port_xmit_wait" => values.below(1 << 31),
        _ => 0,
    }
}

fn interface(card: &Card, index: usize, function: u8) -> String {
    match card.layer {
        Layer::InfiniBand => format!("ib{}", index * 2 + usize::from(function)),
        Layer::Ethernet => format!("ens{index}f{function}np{function}"),
    }
}

fn netdev(tree: &mut Tree, card: &Card, device: &Device, index: usize, function: u8) {
    let name = interface(card, index, function);
    let directory = device.function.join("net").join(&name);
    let up = card.state.ends_with("ACTIVE");
    tree.link_to(Path::new("sys/class/net").join(&name), &directory);
    tree.link_to(directory.join("device"), &device.function);
    tree.link_to(directory.join("subsystem"), "sys/class/net");
    let infiniband = card.layer == Layer::InfiniBand;
    let tail = format!("{index:02x}:{function:02x}");
    let address = if infiniband {
        format!("00:00:10:29:fe:80:00:00:00:00:00:00:b8:3f:d2:03:00:{index:02x}:{function:02x}:01")
    } else {
        format!("b8:3f:d2:00:{tail}")
    };
    tree.line(directory.join("address"), address);
    tree.line(directory.join("type"), if infiniband { 32 } else { 1 });
    tree.line(directory.join("operstate"), if up { "up" } else { "down" });
    tree.line(directory.join("carrier"), u8::from(up));
    tree.line(directory.join("flags"), "0x1003");
    tree.line(directory.join("mtu"), if infiniband { 2044 } else { 9000 });
    tree.line(directory.join("ifindex"), 4 + index * 2 + usize::from(function));
    tree.line(directory.join("dev_port"), 0);
    tree.line(directory.join("dev_id"), "0x0");
    let rate: i64 = card.rate.split(' ').next().and_then(|text| text.parse().ok()).unwrap_or(0);
    tree.line(directory.join("speed"), if up { rate * 1000 } else { -1 });
}
