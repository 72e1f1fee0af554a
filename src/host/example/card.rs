//! One card with the root port above it: its fixed files and its moving counters (mlx5_core on Linux 5.15).

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;

use crate::host::memory::MemoryHost;

/// The state of the second card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Its link is at 16 GT/s x16.
    Healthy,
    /// Its link has trained to 8 GT/s x8.
    Degraded,
    /// Its port has lost its link.
    LinkLost,
}

/// Counters of a port that stay at zero here.
const QUIET: [&str; 12] = [
    "VL15_dropped",
    "excessive_buffer_overrun_errors",
    "link_error_recovery",
    "local_link_integrity_errors",
    "multicast_rcv_packets",
    "multicast_xmit_packets",
    "port_rcv_constraint_errors",
    "port_rcv_errors",
    "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors",
    "port_xmit_constraint_errors",
    "port_xmit_discards",
];

/// The driver's counters that stay at zero here.
const QUIET_HARDWARE: [&str; 28] = [
    "duplicate_request",
    "implied_nak_seq_err",
    "local_ack_timeout_err",
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
    "rx_atomic_requests",
    "rx_dct_connect",
    "rx_icrc_encapsulated",
    "rx_read_requests",
    "np_cnp_sent",
    "np_ecn_marked_roce_packets",
    "rp_cnp_handled",
    "rp_cnp_ignored",
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

/// What RDMA moves over a link that is all right, and over 8 GT/s x8, in bytes a second.
const FULL: u64 = 180_000_000_000 / 8;
const HALVED: u64 = 57_100_000_000 / 8;

/// Bytes of a packet at the largest MTU of InfiniBand.
const PACKET: u64 = 4096;

/// A card, its PCI address and its counters.
#[derive(Debug)]
pub(super) struct Card {
    index: u8,
    bus: u8,
    node: u8,
    phase: Phase,
    received: u64,
    transmitted: u64,
    waited: u64,
    writes: u64,
    link_downed: u64,
    symbol_errors: u64,
    carrier_changes: u64,
    correctable: u64,
}

impl Card {
    /// The card below the root port `BUS:02.0`, on this NUMA node.
    pub(super) fn new(index: u8, bus: u8, node: u8) -> Self {
        let moved = 3_680_457_608_844 + 1_000_003 * u64::from(index);
        Self {
            index,
            bus,
            node,
            phase: Phase::Healthy,
            received: moved * 4,
            transmitted: moved * 3,
            waited: 17_201,
            writes: 88_120,
            link_downed: 0,
            symbol_errors: 0,
            carrier_changes: 2,
            correctable: 0,
        }
    }

    fn root(&self) -> PathBuf {
        PathBuf::from(format!("/sys/devices/pci0000:{bus:02x}/0000:{bus:02x}:02.0", bus = self.bus))
    }

    fn address(&self) -> String {
        format!("0000:{:02x}:00.0", self.bus + 1)
    }

    fn function(&self) -> PathBuf {
        self.root().join(self.address())
    }

    fn device(&self) -> PathBuf {
        self.function().join(format!("infiniband/mlx5_{}", self.index))
    }

    fn port(&self) -> PathBuf {
        self.device().join("ports/1")
    }

    fn netdev(&self) -> PathBuf {
        self.function().join(format!("net/ib{}", self.index))
    }

    fn guid(&self, part: u8) -> String {
        format!("b83f:d203:00{:02x}:{part:04x}", 0xaa + self.index)
    }

    /// A GPU below a root port of its own, on the same host bridge.
    fn make_gpu(&self, memory: &MemoryHost) {
        let root = format!("0000:{:02x}:03.0", self.bus);
        let port = PathBuf::from(format!("/sys/devices/pci0000:{:02x}", self.bus)).join(&root);
        let address = format!("0000:{:02x}:00.0", self.bus + 3);
        pci(memory, &port, &root, ["0x8086", "0x347b", "0x060400"], self.node, "pcieport");
        pci(memory, &port.join(&address), &address, ["0x10de", "0x20b5", "0x030200"], self.node, "nvidia");
    }

    /// Creates the files that do not change.
    pub(super) fn make(&self, memory: &MemoryHost) {
        let line = |path: PathBuf, text: &str| memory.set(path, format!("{text}\n"));
        let root = format!("0000:{:02x}:02.0", self.bus);
        pci(memory, &self.root(), &root, ["0x8086", "0x347a", "0x060400"], self.node, "pcieport");
        let (function, address) = (self.function(), self.address());
        pci(memory, &function, &address, ["0x15b3", "0x101b", "0x020700"], self.node, "mlx5_core");
        for (name, text) in [
            ("sriov_totalvfs", "8"),
            ("sriov_numvfs", "0"),
            ("sriov_offset", "1"),
            ("sriov_stride", "1"),
            ("sriov_vf_device", "101c"),
            ("sriov_drivers_autoprobe", "1"),
            ("ari_enabled", "0"),
            ("power_state", "D0"),
        ] {
            line(function.join(name), text);
        }
        self.make_gpu(memory);
        let device = self.device();
        let name = format!("mlx5_{}", self.index);
        memory.symlink(format!("/sys/class/infiniband/{name}"), &device);
        memory.symlink(device.join("device"), &function);
        for (file, text) in [
            ("board_id", "MT_0000000223"),
            ("fw_ver", "20.39.3004"),
            ("hca_type", "MT4123"),
            ("hw_rev", "0"),
            ("node_type", "1: CA"),
            ("node_desc", &format!("example-host {name}")),
            ("node_guid", &self.guid(0)),
            ("sys_image_guid", &self.guid(0)),
        ] {
            line(device.join(file), text);
        }
        let port = self.port();
        for (file, text) in [
            ("sm_lid", "0x1"),
            ("sm_sl", "0"),
            ("lid_mask_count", "0"),
            ("cap_mask", "0xa751e848"),
            ("link_layer", "InfiniBand"),
            ("lid", &format!("{:#x}", 3 + self.index)),
            ("gids/0", &format!("fe80:0000:0000:0000:{}", self.guid(0))),
            ("gids/1", "0000:0000:0000:0000:0000:0000:0000:0000"),
            ("gid_attrs/types/0", "IB/RoCE v1"),
            ("hw_counters/lifespan", "10"),
        ] {
            line(port.join(file), text);
        }
        memory.fail(port.join("gid_attrs/ndevs/0"), Errno::INVAL);
        for name in QUIET {
            line(port.join("counters").join(name), "0");
        }
        for name in QUIET_HARDWARE {
            line(port.join("hw_counters").join(name), "0");
        }
        let netdev = self.netdev();
        memory.symlink(format!("/sys/class/net/ib{}", self.index), &netdev);
        memory.symlink(netdev.join("device"), &function);
        for (file, text) in [("type", "32"), ("dev_port", "0"), ("dev_id", "0x0"), ("mtu", "2044")] {
            line(netdev.join(file), text);
        }
    }

    /// Enters a phase in this round of the scenario.
    pub(super) fn enter(&mut self, phase: Phase, round: u64) {
        if std::mem::replace(&mut self.phase, phase) == Phase::LinkLost {
            self.carrier_changes += 1;
        }
        match phase {
            Phase::Degraded if round.is_multiple_of(2) => self.correctable += 1,
            Phase::LinkLost => {
                self.link_downed += 1;
                self.carrier_changes += 1;
            }
            Phase::Degraded | Phase::Healthy => {}
        }
    }

    /// Advances the counters by the traffic of this time.
    pub(super) fn count(&mut self, passed: Duration, second: u64) {
        let millis = u64::try_from(passed.as_millis()).unwrap_or(u64::MAX);
        let rate = match self.phase {
            Phase::Healthy => FULL,
            Phase::Degraded => HALVED,
            Phase::LinkLost => 0,
        };
        // Real traffic is never quite even.
        let (there, back) = (uneven(second, self.index), uneven(second, self.index + 7));
        let moved = |part: u64| rate / 1000 * millis / 1000 * part;
        self.received = self.received.wrapping_add(moved(there));
        self.transmitted = self.transmitted.wrapping_add(moved(back));
        self.writes = self.writes.wrapping_add(moved(there) >> 20) % (1 << 32);
        self.waited = (self.waited + millis * if self.phase == Phase::Degraded { 3 } else { 0 }) % (1 << 32);
        if self.index == 1 && second % 97 < passed.as_secs().min(96) {
            self.symbol_errors = (self.symbol_errors + 1).min(65_534);
        }
    }

    /// Writes the counters and states into the files.
    pub(super) fn show(&self, memory: &MemoryHost, phase: Phase) {
        let (speed, width) = if phase == Phase::Degraded { ("8.0 GT/s PCIe", 8) } else { ("16.0 GT/s PCIe", 16) };
        for end in [self.root(), self.function()] {
            memory.set(end.join("current_link_speed"), format!("{speed}\n"));
            memory.set(end.join("current_link_width"), format!("{width}\n"));
        }
        let correctable = counts(&CORRECTABLE, "TOTAL_ERR_COR", self.correctable);
        memory.set(self.function().join("aer_dev_correctable"), correctable);
        memory.set(self.root().join("aer_rootport_total_err_cor"), format!("{}\n", self.correctable));
        let lost = phase == Phase::LinkLost;
        let port = self.port();
        memory.set(port.join("phys_state"), if lost { "2: Polling\n" } else { "5: LinkUp\n" });
        memory.set(port.join("state"), if lost { "1: DOWN\n" } else { "4: ACTIVE\n" });
        memory.set(port.join("rate"), if lost { "10 Gb/sec (4X SDR)\n" } else { "200 Gb/sec (4X HDR)\n" });
        let netdev = self.netdev();
        memory.set(netdev.join("operstate"), if lost { "down\n" } else { "up\n" });
        memory.set(netdev.join("carrier"), if lost { "0\n" } else { "1\n" });
        memory.set(netdev.join("speed"), if lost { "-1\n" } else { "200000\n" });
        let number = |file: &str, value: u64| memory.set(port.join(file), format!("{value}\n"));
        memory.set(netdev.join("carrier_changes"), format!("{}\n", self.carrier_changes));
        // Data is counted in words of four bytes.
        number("counters/port_rcv_data", self.received / 4);
        number("counters/port_xmit_data", self.transmitted / 4);
        for (name, bytes) in [("rcv", self.received), ("xmit", self.transmitted)] {
            number(&format!("counters/port_{name}_packets"), bytes / PACKET);
            number(&format!("counters/unicast_{name}_packets"), bytes / PACKET);
        }
        number("counters/port_xmit_wait", self.waited);
        number("counters/link_downed", self.link_downed);
        number("counters/symbol_error", self.symbol_errors);
        number("hw_counters/rx_write_requests", self.writes);
    }
}

/// Per mille, 970 to 1010, that follow from a second and a card.
fn uneven(second: u64, card: u8) -> u64 {
    let mixed = (second + u64::from(card) * 1_000).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    970 + mixed % 41
}

fn pci(memory: &MemoryHost, directory: &Path, address: &str, ids: [&str; 3], node: u8, driver: &str) {
    let [vendor, device, class] = ids;
    memory.symlink(format!("/sys/bus/pci/devices/{address}"), directory);
    memory.symlink(format!("/sys/bus/pci/drivers/{driver}/{address}"), directory);
    memory.symlink(directory.join("driver"), format!("/sys/bus/pci/drivers/{driver}"));
    memory.symlink(directory.join("subsystem"), "/sys/bus/pci");
    for (name, text) in [
        ("vendor", vendor),
        ("device", device),
        ("class", class),
        ("numa_node", &node.to_string()),
        ("max_link_speed", "16.0 GT/s PCIe"),
        ("max_link_width", "16"),
    ] {
        memory.set(directory.join(name), format!("{text}\n"));
    }
    memory.set(directory.join("aer_dev_correctable"), counts(&CORRECTABLE, "TOTAL_ERR_COR", 0));
    memory.set(directory.join("aer_dev_nonfatal"), counts(&UNCORRECTABLE, "TOTAL_ERR_NONFATAL", 0));
    memory.set(directory.join("aer_dev_fatal"), counts(&UNCORRECTABLE, "TOTAL_ERR_FATAL", 0));
    if driver == "pcieport" {
        for class in ["cor", "nonfatal", "fatal"] {
            memory.set(directory.join(format!("aer_rootport_total_err_{class}")), "0\n");
        }
    }
}

/// An AER file whose first error has this count.
fn counts(names: &[&str], total: &str, first: u64) -> String {
    let mut text = String::new();
    for (index, name) in names.iter().enumerate() {
        let _ = writeln!(text, "{name} {}", if index == 0 { first } else { 0 });
    }
    let _ = writeln!(text, "{total} {first}");
    text
}
