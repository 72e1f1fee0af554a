//! Hosts with many VFs: trees as the kernel shows them, and what route netlink says of them.

use std::path::Path;

use super::iplink;
use super::tree::Tree;

/// A host of so many PFs with so many VFs each.
pub struct VfHost {
    pub pfs: u32,
    pub vfs: u32,
    /// Whether the VFs' RDMA devices and interfaces are on this host; else a process has them open.
    pub here: bool,
}

impl VfHost {
    fn root(pf: u32) -> String {
        format!("devices/pci0000:{:02x}/0000:{:02x}:00.0", pf * 8, pf * 8)
    }

    fn bus(pf: u32) -> u32 {
        pf * 8 + 1
    }

    /// The PCI address of a VF; `None` is the PF.
    pub fn address(pf: u32, vf: Option<u32>) -> String {
        let function = vf.map_or(0, |vf| vf + 1);
        let bus = Self::bus(pf) + function / 256;
        format!("0000:{bus:02x}:{:02x}.{:x}", function % 256 / 8, function % 8)
    }

    /// The trees.
    pub fn write(&self, root: &Path) -> std::io::Result<()> {
        let mut sys = Tree::default();
        let mut proc = Tree::default();
        proc.line("1/comm", "systemd");
        proc.link("1/ns/net", "net:[1]");
        proc.link("self/ns/net", "net:[1]");
        proc.directory("1/fd");
        for pf in 0..self.pfs {
            self.pf(&mut sys, &mut proc, pf);
        }
        sys.write(&root.join("sys"))?;
        proc.write(&root.join("proc"))
    }

    fn pf(&self, sys: &mut Tree, proc: &mut Tree, pf: u32) {
        let (bridge, address) = (Self::root(pf), Self::address(pf, None));
        let at = format!("{bridge}/{address}");
        function(sys, &bridge, &format!("0000:{:02x}:00.0", pf * 8), "pcieport", "0x060400");
        function(sys, &at, &address, "mlx5_core", "0x020700");
        rdma(sys, &at, &format!("mlx5_{pf}"));
        sys.line(format!("{at}/sriov_totalvfs"), self.vfs);
        sys.line(format!("{at}/sriov_numvfs"), self.vfs);
        sys.line(format!("{at}/net/ib{pf}/type"), 32);
        sys.line(format!("{at}/net/ib{pf}/operstate"), "up");
        let pid = 1000 + pf;
        if !self.here {
            proc.line(format!("{pid}/comm"), "qemu-system-x86");
            proc.file(format!("{pid}/cmdline"), format!("/usr/bin/qemu-system-x86_64\0-name\0guest=vm{pf}\0"));
            proc.link(format!("{pid}/ns/net"), "net:[1]");
        }
        for vf in 0..self.vfs {
            let (name, group) = (Self::address(pf, Some(vf)), pf * 1000 + vf);
            let at_vf = format!("{bridge}/{name}");
            let driver = if self.here { "mlx5_core" } else { "vfio-pci" };
            function(sys, &at_vf, &name, driver, "0x020700");
            sys.link_to(format!("{at}/virtfn{vf}"), &at_vf);
            sys.link_to(format!("{at_vf}/physfn"), &at);
            sys.line(format!("{at_vf}/driver_override"), "(null)");
            let group_at = format!("kernel/iommu_groups/{group}");
            sys.link_to(format!("{group_at}/devices/{name}"), &at_vf);
            sys.link_to(format!("{at_vf}/iommu_group"), &group_at);
            sys.line(format!("{at_vf}/msi_irqs/{}", 100 + vf), "msix");
            if self.here {
                rdma(sys, &at_vf, &format!("mlx5_{}", self.pfs + pf * self.vfs + vf));
                sys.line(format!("{at_vf}/net/ib{pf}v{vf}/type"), 32);
            } else {
                proc.link(format!("{pid}/fd/{}", vf + 10), format!("/dev/vfio/{group}"));
            }
        }
    }

    /// What route netlink says of the PFs.
    pub fn interfaces(&self) -> Vec<iplink::Interface> {
        let vf = |pf: u32, number: u32| iplink::Vf {
            number,
            address: vec![0; 20],
            broadcast: Some(vec![0xff; 20]),
            spoof_check: Some(0),
            link: Some(0),
            query_rss: Some(0),
            trust: Some(0),
            guids: Some(((1 << 40) + u64::from(pf * 1000 + number), (2 << 40) + u64::from(pf * 1000 + number))),
            statistics: Some([1, 2, 3, 4, 5, 6, 7, 8]),
            ..iplink::Vf::default()
        };
        let interface = |pf: u32| iplink::Interface {
            index: pf + 2,
            name: format!("ib{pf}"),
            hardware: 32,
            announced: self.vfs,
            vfs: (0..self.vfs).map(|number| vf(pf, number)).collect(),
        };
        (0..self.pfs).map(interface).collect()
    }
}

fn function(sys: &mut Tree, at: &str, address: &str, driver: &str, class: &str) {
    sys.link_to(format!("bus/pci/devices/{address}"), at);
    sys.link_to(format!("bus/pci/drivers/{driver}/{address}"), at);
    sys.link_to(format!("{at}/driver"), format!("bus/pci/drivers/{driver}"));
    for (name, value) in [
        ("class", class),
        ("vendor", "0x15b3"),
        ("device", "0x101b"),
        ("numa_node", "0"),
        ("current_link_speed", "16.0 GT/s PCIe"),
        ("current_link_width", "16"),
        ("max_link_speed", "16.0 GT/s PCIe"),
        ("max_link_width", "16"),
    ] {
        sys.line(format!("{at}/{name}"), value);
    }
}

fn rdma(sys: &mut Tree, at: &str, name: &str) {
    let device = format!("{at}/infiniband/{name}");
    sys.link_to(format!("class/infiniband/{name}"), &device);
    sys.link_to(format!("{device}/device"), at);
    sys.line(format!("{device}/node_guid"), "0c42:a103:0011:0000");
    for (name, value) in [
        ("state", "4: ACTIVE"),
        ("phys_state", "5: LinkUp"),
        ("rate", "200 Gb/sec (4X HDR)"),
        ("link_layer", "InfiniBand"),
        ("counters/port_rcv_data", "1"),
        ("counters/port_xmit_data", "2"),
        ("counters/link_downed", "0"),
        ("counters/symbol_error", "0"),
    ] {
        sys.line(format!("{device}/ports/1/{name}"), value);
    }
}
