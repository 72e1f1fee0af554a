//! What a probe must know of the port that it runs on.

use std::path::{Path, PathBuf};

use crate::assess::benchmark::Ceiling;
use crate::model::cpus::CpuSet;
use crate::model::ids::{PciAddress, PortKey};
use crate::model::numa::NumaNode;
use crate::model::rdma::{LinkLayer, Port};
use crate::model::units::BytesPerSecond;
use crate::watch::HostReport;

/// Most GIDs of a port that are looked at.
const MOST_GIDS: u32 = 256;

/// A port to measure.
#[derive(Debug, Clone)]
pub struct BenchmarkTarget {
    /// The port.
    pub port: PortKey,
    /// Its function; none for a software device.
    pub function: Option<PciAddress>,
    /// The CPUs of its NUMA node; none where that is not known.
    pub cpus: Option<CpuSet>,
    /// The GID index to name, on Ethernet: one of RoCE v2.
    pub gid_index: Option<u32>,
    /// What its lane could carry.
    pub ceiling: Option<Ceiling>,
    /// Where its files are (`/sys/class/infiniband/<device>/ports/<port>`).
    directory: PathBuf,
}

impl BenchmarkTarget {
    /// Looks at a port; none when it is not there.
    pub fn new(report: &HostReport, sysfs: &Path, key: &PortKey) -> Option<Self> {
        let device = report.snapshot.device(&key.device)?;
        let port = device.ports.iter().find(|port| port.number == key.port)?;
        let directory =
            sysfs.join("class/infiniband").join(key.device.as_str()).join("ports").join(key.port.to_string());
        let function = device.identity.pci_address;
        let node = function.and_then(|address| report.snapshot.function(address)).and_then(|f| f.numa_node);
        let nodes = report.snapshot.all::<NumaNode>();
        let cpus = node.and_then(|id| nodes.filter(|node| node.id == id).find_map(|node| node.cpus.clone()));
        let payload = function.and_then(|function| max_payload(sysfs, function));
        Some(Self {
            port: key.clone(),
            function,
            cpus: cpus.and_then(|list| CpuSet::from_list(&list)),
            gid_index: (port.link_layer == Some(LinkLayer::Ethernet)).then(|| gid_index(&directory)).flatten(),
            ceiling: Ceiling::of_port(&report.lanes, &report.topology, key, bond(sysfs, port), payload),
            directory,
        })
    }

    /// Whether there is hardware behind it: software RDMA is as fast as the CPU, and has no ceiling.
    pub fn is_hardware(&self) -> bool {
        self.function.is_some()
    }

    /// Bytes that the port has received and transmitted, where it counts them.
    pub fn moved(&self) -> Option<(u64, u64)> {
        let read = |name: &str| number(&self.directory.join(name));
        let words = |name| read(name).map(|words| words.saturating_mul(4));
        words("counters/port_rcv_data")
            .zip(words("counters/port_xmit_data"))
            .or_else(|| read("hw_counters/rx_bytes").zip(read("hw_counters/tx_bytes")))
    }
}

/// The first GID of RoCE v2; those of an address come before link-local ones.
fn gid_index(port: &Path) -> Option<u32> {
    let text = |path: PathBuf| std::fs::read_to_string(path).ok();
    let mut fallback = None;
    for index in 0..MOST_GIDS {
        let kind = text(port.join("gid_attrs/types").join(index.to_string()));
        if kind.is_none_or(|kind| kind.trim() != "RoCE v2") {
            continue;
        }
        let Some(gid) = text(port.join("gids").join(index.to_string())) else { continue };
        let gid = gid.trim();
        if gid.bytes().all(|byte| matches!(byte, b'0' | b':')) {
            continue;
        }
        if !gid.starts_with("fe80") {
            return Some(index);
        }
        fallback = fallback.or(Some(index));
    }
    fallback
}

/// The rate of the bond that a port's interface is, or on a bond's device belongs to.
fn bond(sysfs: &Path, port: &Port) -> Option<BytesPerSecond> {
    let netdev = sysfs.join("class/net").join(&**port.netdev.as_ref()?);
    let own = netdev.join("bonding").is_dir().then(|| netdev.clone());
    let master = || Some(netdev.join("master")).filter(|master| master.join("bonding").is_dir());
    #[expect(clippy::cast_precision_loss, reason = "link speeds are far below 2^53")]
    number(&own.or_else(master)?.join("speed")).map(|mega| BytesPerSecond(mega as f64 * 1e6 / 8.0))
}

/// The largest payload of a function's PCIe packets, in bytes: `MaxPayload` of its Device Control register. The
/// capability is hidden from ordinary users.
fn max_payload(sysfs: &Path, function: PciAddress) -> Option<u32> {
    let config = std::fs::read(sysfs.join("bus/pci/devices").join(function.to_string()).join("config")).ok()?;
    payload_of(&config)
}

fn payload_of(config: &[u8]) -> Option<u32> {
    const PCI_EXPRESS: u8 = 0x10;
    let byte = |at: usize| config.get(at).copied();
    let mut at = usize::from(byte(0x34)?);
    // There is room for 48 capabilities; the bound keeps a damaged chain from looping.
    for _ in 0..48 {
        if at < 0x40 {
            return None;
        }
        if byte(at)? == PCI_EXPRESS {
            let control = u16::from_le_bytes([byte(at + 8)?, byte(at + 9)?]);
            let exponent = control >> 5 & 7;
            return (exponent < 6).then_some(128 << exponent);
        }
        at = usize::from(byte(at + 1)?);
    }
    None
}

fn number(path: &Path) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_address_comes_before_link_local_and_version_two_before_one() {
        let port = tempfile::tempdir().unwrap();
        let set = |index: u32, kind: &str, gid: &str| {
            for (folder, text) in [("gid_attrs/types", kind), ("gids", gid)] {
                fs::create_dir_all(port.path().join(folder)).unwrap();
                fs::write(port.path().join(folder).join(index.to_string()), format!("{text}\n")).unwrap();
            }
        };
        assert_eq!(gid_index(port.path()), None);
        set(0, "IB/RoCE v1", "fe80:0000:0000:0000:0200:00ff:fe00:0001");
        set(1, "RoCE v2", "0000:0000:0000:0000:0000:0000:0000:0000");
        assert_eq!(gid_index(port.path()), None);
        set(2, "RoCE v2", "fe80:0000:0000:0000:0200:00ff:fe00:0001");
        assert_eq!(gid_index(port.path()), Some(2));
        set(3, "IB/RoCE v1", "0000:0000:0000:0000:0000:ffff:c633:6407");
        set(5, "RoCE v2", "0000:0000:0000:0000:0000:ffff:c633:6407");
        assert_eq!(gid_index(port.path()), Some(5));
    }

    #[test]
    fn payload_from_configuration_space() {
        let mut config = vec![0; 256];
        config[0x34] = 0x60;
        config[0x60] = 0x05;
        config[0x61] = 0x70;
        config[0x70] = 0x10;
        config[0x78] = 0b0100_0000;
        assert_eq!(payload_of(&config), Some(512));
        config[0x78] = 0b1110_0000;
        assert_eq!(payload_of(&config), None, "a value that is none");
        assert_eq!(payload_of(&config[..64]), None, "what ordinary users see");
        config[0x61] = 0x60;
        assert_eq!(payload_of(&config), None, "a chain that leads to itself");
    }

    proptest! {
        #[test]
        fn no_bytes_break_the_chain(bytes in proptest::collection::vec(any::<u8>(), 0..256)) {
            let _ = payload_of(&bytes);
        }
    }
}
