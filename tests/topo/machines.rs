//! Trees of real machines, as their owners have shown them.

use std::path::Path;

use super::common::tree::Tree;

/// What a link end can do.
type Link = (&'static str, u8);

const GEN5: Link = ("32.0 GT/s PCIe", 16);
const GEN4: Link = ("16.0 GT/s PCIe", 16);

/// A machine that is being put together.
pub(crate) struct Machine {
    tree: Tree,
    nodes: u32,
}

type Ids = (u16, u16);

const INTEL_PORT: Ids = (0x8086, 0x352a);
const PEX5: Ids = (0x1000, 0xc030);
const PEX4: Ids = (0x1000, 0xc010);
const H100: Ids = (0x10de, 0x2330);
const CX7: Ids = (0x15b3, 0x1021);

impl Machine {
    fn new(nodes: u32) -> Self {
        let mut machine = Self { tree: Tree::default(), nodes };
        for node in 0..nodes {
            machine
                .tree
                .line(format!("sys/devices/system/node/node{node}/cpulist"), format!("{}-{}", node * 8, node * 8 + 7));
        }
        machine.tree.line("proc/cpuinfo", "flags\t\t: fpu vme");
        machine
    }

    fn guest(mut self) -> Self {
        self.tree.line("proc/cpuinfo", "flags\t\t: fpu vme hypervisor");
        self
    }

    pub(crate) fn write(&self, root: &Path) {
        assert!(self.nodes > 0);
        self.tree.write(root).unwrap();
    }

    /// A function at a path below `/sys/devices`; the last name is its address.
    fn function(&mut self, path: &str, ids: Ids, class: &str, node: i32, link: Link) -> String {
        let at = format!("sys/devices/{path}");
        let address = path.rsplit('/').next().unwrap();
        for (name, value) in [
            ("vendor", format!("0x{:04x}", ids.0)),
            ("device", format!("0x{:04x}", ids.1)),
            ("class", class.to_owned()),
            ("numa_node", node.to_string()),
            ("max_link_speed", link.0.to_owned()),
            ("max_link_width", link.1.to_string()),
            ("current_link_speed", link.0.to_owned()),
            ("current_link_width", link.1.to_string()),
        ] {
            self.tree.line(format!("{at}/{name}"), value);
        }
        self.tree.link_to(format!("sys/bus/pci/devices/{address}"), &at);
        at
    }

    fn port(&mut self, path: &str, ids: Ids, node: i32, link: Link) -> &mut Self {
        self.function(path, ids, "0x060400", node, link);
        self
    }

    /// A port of a switch with a subsystem of its own.
    fn part(&mut self, path: &str, ids: Ids, subsystem: Ids, node: i32, link: Link) -> &mut Self {
        let at = self.function(path, ids, "0x060400", node, link);
        self.tree.line(format!("{at}/subsystem_vendor"), format!("0x{:04x}", subsystem.0));
        self.tree.line(format!("{at}/subsystem_device"), format!("0x{:04x}", subsystem.1));
        self
    }

    fn gpu(&mut self, path: &str, ids: Ids, class: &str, driver: &str, node: i32, link: Link) -> &mut Self {
        let at = self.function(path, ids, class, node, link);
        self.tree.link(format!("{at}/driver"), format!("/sys/bus/pci/drivers/{driver}"));
        self
    }

    fn nic(&mut self, path: &str, ids: Ids, name: &str, rate: u32, node: i32, link: Link) -> &mut Self {
        let at = self.function(path, ids, "0x020000", node, link);
        self.tree.link(format!("{at}/driver"), "/sys/bus/pci/drivers/mlx5_core");
        let device = format!("{at}/infiniband/{name}");
        self.tree.link_to(format!("sys/class/infiniband/{name}"), &device);
        self.tree.link_to(format!("{device}/device"), &at);
        for (file, value) in [
            ("state", "4: ACTIVE".to_owned()),
            ("phys_state", "5: LinkUp".to_owned()),
            ("rate", format!("{rate} Gb/sec (4X NDR)")),
            ("link_layer", "InfiniBand".to_owned()),
        ] {
            self.tree.line(format!("{device}/ports/1/{file}"), value);
        }
        self
    }

    fn nvme(&mut self, path: &str, node: i32) -> &mut Self {
        self.function(path, (0x144d, 0xa824), "0x010802", node, ("16.0 GT/s PCIe", 4));
        self
    }

    fn path_of(&self, address: &str) -> String {
        let mut paths = self.tree.entries().map(|(path, _)| path.to_string_lossy().into_owned());
        let ends = paths.find(|path| path.starts_with("sys/devices/") && path.ends_with(&format!("{address}/class")));
        ends.unwrap().strip_suffix("/class").unwrap().to_owned()
    }

    /// Takes a function out, with its RDMA device.
    pub(crate) fn remove(&mut self, address: &str, device: &str) {
        let at = self.path_of(address);
        self.tree.remove(at);
        self.tree.remove(format!("sys/bus/pci/devices/{address}"));
        if !device.is_empty() {
            self.tree.remove(format!("sys/class/infiniband/{device}"));
        }
    }

    /// Binds a function to vfio, so that its RDMA device goes.
    pub(crate) fn give_away(&mut self, address: &str, device: &str) {
        let at = self.path_of(address);
        self.tree.remove(format!("{at}/infiniband"));
        self.tree.remove(format!("sys/class/infiniband/{device}"));
        self.tree.link(format!("{at}/driver"), "/sys/bus/pci/drivers/vfio-pci");
    }

    /// Writes the ACS control word of a port, behind an extended capability of another kind.
    pub(crate) fn acs(&mut self, address: &str, control: u16) {
        let mut config = vec![0u8; 4096];
        config[0] = 0xb3;
        config[0x100..0x104].copy_from_slice(&(1u32 | 1 << 16 | 0x148 << 20).to_le_bytes());
        config[0x148..0x14c].copy_from_slice(&(0x0du32 | 1 << 16).to_le_bytes());
        config[0x14c..0x14e].copy_from_slice(&0x5fu16.to_le_bytes());
        config[0x14e..0x150].copy_from_slice(&control.to_le_bytes());
        let at = self.path_of(address);
        self.tree.file(format!("{at}/config"), config);
    }

    /// Gives a function the address translation service.
    pub(crate) fn ats(&mut self, address: &str) {
        let mut config = vec![0u8; 4096];
        config[0] = 0xb3;
        config[0x100..0x104].copy_from_slice(&(0x0fu32 | 1 << 16).to_le_bytes());
        let at = self.path_of(address);
        self.tree.file(format!("{at}/config"), config);
    }

    /// Sets the type of a function's IOMMU group.
    pub(crate) fn group(&mut self, address: &str, kind: &str) {
        let at = self.path_of(address);
        self.tree.line(format!("{at}/iommu_group/type"), kind);
    }

    /// A file of the host.
    pub(crate) fn line(&mut self, path: &str, text: &str) {
        self.tree.line(path, text);
    }
}

/// A Dell XE9680 with HGX H100: eight complexes of a root port and a switch with an NVMe drive, a GPU, a ConnectX-7 and the
/// switch's management function, and NVSwitches behind another switch.
pub(crate) fn hgx_h100() -> Machine {
    let mut machine = Machine::new(2);
    let complexes = [
        (0x15, 0x16, 0x18),
        (0x37, 0x38, 0x3a),
        (0x48, 0x49, 0x4b),
        (0x59, 0x5a, 0x5c),
        (0x97, 0x98, 0x9a),
        (0xb7, 0xb8, 0xba),
        (0xc7, 0xc8, 0xca),
        (0xd7, 0xd8, 0xda),
    ];
    for (number, (root, switch, first)) in complexes.into_iter().enumerate() {
        let node = i32::from(number >= 4);
        let top = format!("pci0000:{root:02x}/0000:{root:02x}:01.0");
        let inner = format!("{top}/0000:{switch:02x}:00.0");
        let below = |slot: &str| format!("{inner}/0000:{:02x}:{slot}", switch + 1);
        machine.port(&top, INTEL_PORT, node, GEN5).port(&inner, PEX5, node, GEN5);
        for slot in ["00.0", "01.0", "02.0", "1f.0"] {
            // The drive's port can do more than the drive.
            machine.port(&below(slot), PEX5, node, if slot == "00.0" { ("32.0 GT/s PCIe", 4) } else { GEN5 });
        }
        machine.nvme(&format!("{}/0000:{first:02x}:00.0", below("00.0")), node);
        machine.gpu(&format!("{}/0000:{:02x}:00.0", below("01.0"), first + 1), H100, "0x030200", "nvidia", node, GEN5);
        let name = format!("mlx5_{number}");
        machine.nic(&format!("{}/0000:{:02x}:00.0", below("02.0"), first + 2), CX7, &name, 400, node, GEN5);
        machine.function(
            &format!("{}/0000:{:02x}:00.0", below("1f.0"), first + 4),
            (0x1000, 0x02b2),
            "0x010700",
            node,
            GEN5,
        );
    }
    let top = "pci0000:80/0000:80:01.0/0000:81:00.0";
    machine.port("pci0000:80/0000:80:01.0", INTEL_PORT, 1, GEN5).port(top, (0x11f8, 0x4128), 1, GEN4);
    for number in 0..4 {
        let port = format!("{top}/0000:82:{number:02x}.0");
        machine.port(&port, (0x11f8, 0x4128), 1, GEN4);
        machine.function(&format!("{port}/0000:{:02x}:00.0", 0x83 + number), (0x10de, 0x22a3), "0x068000", 1, GEN4);
    }
    machine
}

/// Two complexes of an OCI BM.GPU.H100.8: a Broadcom switch in two levels, whose upper uplink says 5 GT/s, and cards with two
/// functions.
pub(crate) fn oci_h100() -> Machine {
    let mut machine = Machine::new(2);
    for (number, (root, gpu, nic)) in [(0x08, 0x0f, 0x0c), (0x80, 0x89, 0x86)].into_iter().enumerate() {
        let node = i32::try_from(number).unwrap();
        let top = format!("pci0000:{root:02x}/0000:{root:02x}:01.0");
        let upper = format!("{top}/0000:{:02x}:00.0", root + 1);
        let between = format!("{upper}/0000:{:02x}:00.0", root + 2);
        let lower = format!("{between}/0000:{:02x}:00.0", root + 3);
        let beside = format!("{upper}/0000:{:02x}:04.0", root + 2);
        let below = format!("{lower}/0000:{:02x}:01.0", root + 3 + 1);
        let virtual_link = ("5.0 GT/s PCIe", 16);
        machine.port(&top, INTEL_PORT, node, GEN5);
        machine.part(&upper, PEX5, (0x1000, 0x0072), node, virtual_link);
        machine.part(&between, PEX5, (0x1000, 0x0072), node, virtual_link);
        machine.part(&beside, PEX5, (0x1000, 0x0072), node, GEN5);
        machine.part(&lower, PEX5, (0x1000, 0x1003), node, virtual_link);
        machine.part(&below, PEX5, (0x1000, 0x1003), node, GEN5);
        machine.gpu(&format!("{below}/0000:{gpu:02x}:00.0"), H100, "0x030200", "nvidia", node, GEN5);
        for function in 0..2 {
            let path = format!("{beside}/0000:{nic:02x}:00.{function}");
            machine.nic(&path, CX7, &format!("mlx5_{}", number * 2 + function), 200, node, GEN5);
        }
    }
    machine
}

/// Complexes of a DGX A100: Broadcom's fourth generation in two levels with two GPUs and two cards below, GPUs on nodes 3 and 1 of
/// four, a storage card by itself.
pub(crate) fn dgx_a100() -> Machine {
    let mut machine = Machine::new(4);
    let a100 = (0x10de, 0x20b0);
    let cx6 = (0x15b3, 0x101b);
    let half = (0x1000, 0xa096);
    for (root, node, pairs) in [(0x00u32, 3, 2u32), (0x40, 1, 1)] {
        let top = format!("pci0000:{root:02x}/0000:{root:02x}:01.1");
        let upper = format!("{top}/0000:{:02x}:00.0", root + 1);
        machine.port(&top, (0x1022, 0x1483), node, GEN4).part(&upper, PEX4, half, node, GEN4);
        for pair in 0..pairs {
            let between = format!("{upper}/0000:{:02x}:{:02x}.0", root + 2, pair);
            let lower = format!("{between}/0000:{:02x}:00.0", root + 3 + 8 * pair);
            machine.part(&between, PEX4, half, node, GEN4).part(&lower, PEX4, half, node, GEN4);
            let port = |slot: u32| format!("{lower}/0000:{:02x}:{slot:02x}.0", root + 4 + 8 * pair);
            machine.part(&port(0), PEX4, half, node, GEN4).part(&port(1), PEX4, half, node, GEN4);
            let gpu = format!("{}/0000:{:02x}:00.0", port(0), root + 7 + 8 * pair);
            machine.gpu(&gpu, a100, "0x030200", "nvidia", node, GEN4);
            let nic = format!("{}/0000:{:02x}:00.0", port(1), root + 0x0c - 4 + 8 * pair);
            let name = if root == 0 { format!("mlx5_{pair}") } else { "mlx5_9".to_owned() };
            machine.nic(&nic, cx6, &name, 200, node, GEN4);
        }
    }
    let storage = "pci0000:20/0000:20:01.1";
    machine.port(storage, (0x1022, 0x1483), 3, GEN4);
    machine.nic(&format!("{storage}/0000:21:00.0"), cx6, "mlx5_4", 200, 3, GEN4);
    machine
}

/// MI300X: a ConnectX switch, below it a card, and a second switch with the GPU behind two bridges of its own.
pub(crate) fn mi300x() -> Machine {
    let mut machine = Machine::new(2);
    let switch = (0x15b3, 0x1979);
    for (number, bus) in [0x05, 0x0e, 0x17, 0x62, 0x98, 0xa8, 0xb8, 0xd8].into_iter().enumerate() {
        let node = i32::from(number >= 4);
        let top = format!("pci0000:{:02x}/0000:{:02x}:01.1", bus - 1, bus - 1);
        let outer = format!("{top}/0000:{bus:02x}:00.0");
        let slot = |slot: u32| format!("{outer}/0000:{:02x}:{slot:02x}.0", bus + 1);
        machine.port(&top, (0x1022, 0x14ab), node, GEN5).port(&outer, switch, node, GEN5);
        machine.port(&slot(0), switch, node, GEN5).port(&slot(1), switch, node, GEN5);
        machine.nic(&format!("{}/0000:{:02x}:00.0", slot(0), bus + 2), CX7, &format!("mlx5_{number}"), 400, node, GEN5);
        let inner = format!("{}/0000:{:02x}:00.0", slot(1), bus + 3);
        let down = format!("{inner}/0000:{:02x}:00.0", bus + 4);
        let first = format!("{down}/0000:{:02x}:00.0", bus + 5);
        let second = format!("{first}/0000:{:02x}:00.0", bus + 6);
        machine.port(&inner, switch, node, GEN5).port(&down, switch, node, GEN5);
        machine.port(&first, (0x1022, 0x1500), node, GEN5).port(&second, (0x1022, 0x1501), node, GEN5);
        machine.gpu(&format!("{second}/0000:{:02x}:00.0", bus + 7), (0x1002, 0x74a1), "0x120000", "amdgpu", node, GEN5);
    }
    machine
}

/// An Azure ND H100 v5: no bridges, network functions without a PF.
pub(crate) fn azure_nd() -> Machine {
    let mut machine = Machine::new(2).guest();
    for (segment, node) in [("0001", 0), ("0002", 0), ("0009", 1)] {
        machine.gpu(&format!("pci{segment}:00/{segment}:00:00.0"), H100, "0x030200", "nvidia", node, GEN5);
    }
    for (number, (segment, node)) in [("0101", 0), ("0102", 0), ("0105", 1)].into_iter().enumerate() {
        let name = format!("mlx5_{number}");
        machine.nic(&format!("pci{segment}:00/{segment}:00:00.0"), (0x15b3, 0x101e), &name, 400, node, GEN5);
    }
    machine
}

/// A guest of QEMU whose root ports are on one emulated bus.
pub(crate) fn kvm_guest() -> Machine {
    let mut machine = Machine::new(1).guest();
    let emulated = (0x1b36, 0x000c);
    machine.port("pci0000:00/0000:00:02.0", emulated, -1, GEN4).port("pci0000:00/0000:00:02.1", emulated, -1, GEN4);
    machine.gpu("pci0000:00/0000:00:02.0/0000:06:00.0", H100, "0x030200", "nvidia", -1, GEN5);
    machine.nic("pci0000:00/0000:00:02.1/0000:07:00.0", (0x15b3, 0x101e), "mlx5_0", 400, -1, GEN5);
    machine
}

/// GB200: GPUs right below Grace's ports, network cards in other segments.
pub(crate) fn gb200() -> Machine {
    let mut machine = Machine::new(2);
    for (segment, node) in [("0008", 0), ("0009", 0), ("0018", 1), ("0019", 1)] {
        let port = format!("pci{segment}:00/{segment}:00:00.0");
        machine.port(&port, (0x10de, 0x22b1), node, GEN5);
        machine.gpu(&format!("{port}/{segment}:01:00.0"), (0x10de, 0x2941), "0x030200", "nvidia", node, GEN5);
    }
    for (number, (segment, node)) in [("0000", 0), ("0002", 0), ("0010", 1), ("0012", 1)].into_iter().enumerate() {
        let port = format!("pci{segment}:00/{segment}:00:00.0");
        machine.port(&port, (0x10de, 0x22b8), node, GEN5);
        machine.nic(&format!("{port}/{segment}:03:00.0"), CX7, &format!("mlx5_{number}"), 400, node, GEN5);
    }
    machine
}

/// GH200: one GPU below a port of Grace, the card in another segment.
pub(crate) fn gh200() -> Machine {
    let mut machine = Machine::new(1);
    machine.port("pci0009:00/0009:00:00.0", (0x10de, 0x22b2), 0, GEN5);
    machine.gpu("pci0009:00/0009:00:00.0/0009:01:00.0", (0x10de, 0x2342), "0x030200", "nvidia", 0, GEN5);
    machine.port("pci0000:00/0000:00:00.0", (0x10de, 0x22b8), 0, GEN5);
    machine.nic("pci0000:00/0000:00:00.0/0000:01:00.0", CX7, "mlx5_0", 400, 0, GEN5);
    machine
}

/// GB300 with ConnectX-8: the GPU and a DMA function below the card's switch, the card's own function elsewhere.
pub(crate) fn data_direct() -> Machine {
    let mut machine = Machine::new(1);
    let switch = (0x15b3, 0x197c);
    let gen6 = ("64.0 GT/s PCIe", 16);
    let top = "pci0009:00/0009:00:00.0";
    let outer = format!("{top}/0009:01:00.0");
    machine.port(top, (0x10de, 0x22b1), 0, gen6).port(&outer, switch, 0, gen6);
    machine.port(&format!("{outer}/0009:02:00.0"), switch, 0, gen6).port(
        &format!("{outer}/0009:02:01.0"),
        switch,
        0,
        gen6,
    );
    machine.function(&format!("{outer}/0009:02:00.0/0009:03:00.0"), (0x15b3, 0x2100), "0x080100", 0, gen6);
    let inner = format!("{outer}/0009:02:01.0/0009:04:00.0");
    machine.port(&inner, switch, 0, gen6).port(&format!("{inner}/0009:05:00.0"), switch, 0, gen6);
    machine.gpu(&format!("{inner}/0009:05:00.0/0009:06:00.0"), (0x10de, 0x31c2), "0x030200", "nvidia", 0, gen6);
    machine.port("pci0000:00/0000:00:00.0", (0x10de, 0x22b8), 0, GEN5);
    machine.nic("pci0000:00/0000:00:00.0/0000:01:00.0", (0x15b3, 0x1023), "mlx5_0", 800, 0, GEN5);
    machine
}

/// H20: eight GPUs, four network cards.
pub(crate) fn h20() -> Machine {
    let mut machine = Machine::new(2);
    for number in 0..8u32 {
        let (node, bus) = (i32::from(number >= 4), 0x05 + 0x18 * number);
        let top = format!("pci0000:{bus:02x}/0000:{bus:02x}:01.0");
        let inner = format!("{top}/0000:{:02x}:00.0", bus + 1);
        let slot = |slot: u32| format!("{inner}/0000:{:02x}:{slot:02x}.0", bus + 2);
        machine.port(&top, INTEL_PORT, node, GEN5).port(&inner, PEX5, node, GEN5);
        machine.port(&slot(0), PEX5, node, GEN5).port(&slot(1), PEX5, node, GEN5);
        machine.gpu(
            &format!("{}/0000:{:02x}:00.0", slot(0), bus + 3),
            (0x10de, 0x2329),
            "0x030200",
            "nvidia",
            node,
            GEN5,
        );
        if number.is_multiple_of(2) {
            let name = format!("mlx5_{}", number / 2);
            machine.nic(&format!("{}/0000:{:02x}:00.0", slot(1), bus + 4), (0x15b3, 0xa2dc), &name, 400, node, GEN5);
        }
    }
    machine
}

/// A workstation: one host bridge, no NUMA node told, graphics of the processor and of the board besides.
pub(crate) fn workstation() -> Machine {
    let mut machine = Machine::new(1);
    let top = "pci0000:00";
    machine.function(&format!("{top}/0000:00:02.0"), (0x8086, 0x4680), "0x030000", -1, GEN4);
    machine.port(&format!("{top}/0000:00:01.0"), (0x8086, 0x460d), -1, GEN4);
    machine.gpu(&format!("{top}/0000:00:01.0/0000:01:00.0"), (0x10de, 0x26b1), "0x030000", "nvidia", -1, GEN4);
    machine.function(&format!("{top}/0000:00:01.0/0000:01:00.1"), (0x10de, 0x22ba), "0x040300", -1, GEN4);
    machine.port(&format!("{top}/0000:00:06.0"), (0x8086, 0x464d), -1, ("16.0 GT/s PCIe", 4));
    machine.nic(&format!("{top}/0000:00:06.0/0000:02:00.0"), (0x15b3, 0x1017), "mlx5_0", 100, -1, GEN4);
    machine.port(&format!("{top}/0000:00:1c.0"), (0x8086, 0x7ab8), -1, ("8.0 GT/s PCIe", 1));
    machine.function(
        &format!("{top}/0000:00:1c.0/0000:03:00.0"),
        (0x1a03, 0x2000),
        "0x030000",
        -1,
        ("5.0 GT/s PCIe", 1),
    );
    machine
}
