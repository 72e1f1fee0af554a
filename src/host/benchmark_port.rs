//! What benchmarks read of a port beyond the collectors' facts: the GID to name, the rate of its bond, the payload of its
//! PCIe packets, the bytes that it has moved.

use std::path::{Path, PathBuf};

use super::io::{Host, LONGEST};
use super::text::parse_decimal;
use crate::model::ids::{PciAddress, PortKey};
use crate::model::units::BytesPerSecond;

/// Entries of a GID table that are read.
const MOST_GIDS: u32 = 256;

/// Length of a function's configuration space without its extended capabilities.
const CONFIG_SPACE: usize = 256;

/// One port of the host that is to be measured.
#[derive(Debug, Clone)]
pub struct BenchmarkPort {
    host: Host,
    /// `/sys/class/infiniband/<device>/ports/<port>`.
    directory: PathBuf,
}

impl BenchmarkPort {
    /// The port of this name; nothing is read yet.
    pub fn new(host: &Host, port: &PortKey) -> Self {
        let class = host.sysfs.join("class/infiniband");
        let directory = class.join(port.device.as_str()).join("ports").join(port.port.to_string());
        Self { host: host.clone(), directory }
    }

    /// Index of the first RoCE v2 GID that is not empty; one of an IP address comes before a link-local one.
    pub fn roce_v2_gid(&self) -> Option<u32> {
        let mut link_local = None;
        for index in 0..MOST_GIDS {
            let kind = read_text(&self.host, &self.directory.join(format!("gid_attrs/types/{index}")));
            if kind.as_deref() != Some("RoCE v2") {
                continue;
            }
            let Some(gid) = read_text(&self.host, &self.directory.join(format!("gids/{index}"))) else { continue };
            if gid.bytes().all(|byte| matches!(byte, b'0' | b':')) {
                continue;
            }
            if !gid.starts_with("fe80") {
                return Some(index);
            }
            link_local = link_local.or(Some(index));
        }
        link_local
    }

    /// Bytes that the port has received and transmitted; `None` if it does not count them.
    pub fn moved_bytes(&self) -> Option<(u64, u64)> {
        let read = |name: &str| read_number(&self.host, &self.directory.join(name));
        // Counted in words of four bytes.
        let words = |name| read(name).map(|words| words.saturating_mul(4));
        words("counters/port_rcv_data")
            .zip(words("counters/port_xmit_data"))
            .or_else(|| read("hw_counters/rx_bytes").zip(read("hw_counters/tx_bytes")))
    }
}

/// Rate of the bond that an interface is, or is a member of; `None` if it is neither.
pub fn bond_rate(host: &Host, netdev: &str) -> Option<BytesPerSecond> {
    let netdev = host.sysfs.join("class/net").join(netdev);
    let is_bond = |directory: &PathBuf| host.io.list(&directory.join("bonding")).is_ok();
    let bond = [netdev.clone(), netdev.join("master")].into_iter().find(is_bond)?;
    #[expect(clippy::cast_precision_loss, reason = "link speeds are far below 2^53")]
    read_number(host, &bond.join("speed")).map(|megabits| BytesPerSecond(megabits as f64 * 1e6 / 8.0))
}

/// Largest payload of a function's PCIe packets in bytes: `MaxPayload` of its Device Control register. `None` if the
/// capability is hidden, as it is from ordinary users.
pub fn max_payload(host: &Host, function: PciAddress) -> Option<u32> {
    let path = host.sysfs.join("bus/pci/devices").join(function.to_string()).join("config");
    let mut config = vec![0; CONFIG_SPACE];
    let length = host.io.open(&path).and_then(|mut file| file.read(&mut config)).ok()?;
    payload_of(config.get(..length)?)
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

fn read_text(host: &Host, path: &Path) -> Option<String> {
    let mut buffer = [0; LONGEST];
    let length = host.io.open(path).and_then(|mut file| file.read(&mut buffer)).ok()?;
    Some(String::from_utf8_lossy(buffer.get(..length)?).trim().to_owned())
}

fn read_number(host: &Host, path: &Path) -> Option<u64> {
    parse_decimal(read_text(host, path)?.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::host::memory::MemoryHost;
    use crate::model::ids::DeviceName;

    const PORT: &str = "/sys/class/infiniband/mlx5_0/ports/1";

    fn port(memory: &Arc<MemoryHost>) -> BenchmarkPort {
        BenchmarkPort::new(&memory.host(), &PortKey { device: DeviceName::new("mlx5_0"), port: 1 })
    }

    #[test]
    fn an_ip_address_comes_before_link_local_and_version_two_before_one() {
        let memory = Arc::new(MemoryHost::new());
        let set = |index: u32, kind: &str, gid: &str| {
            memory.set(format!("{PORT}/gid_attrs/types/{index}"), format!("{kind}\n"));
            memory.set(format!("{PORT}/gids/{index}"), format!("{gid}\n"));
        };
        assert_eq!(port(&memory).roce_v2_gid(), None);
        set(0, "IB/RoCE v1", "fe80:0000:0000:0000:0200:00ff:fe00:0001");
        set(1, "RoCE v2", "0000:0000:0000:0000:0000:0000:0000:0000");
        assert_eq!(port(&memory).roce_v2_gid(), None);
        set(2, "RoCE v2", "fe80:0000:0000:0000:0200:00ff:fe00:0001");
        assert_eq!(port(&memory).roce_v2_gid(), Some(2));
        set(3, "IB/RoCE v1", "0000:0000:0000:0000:0000:ffff:c633:6407");
        set(5, "RoCE v2", "0000:0000:0000:0000:0000:ffff:c633:6407");
        assert_eq!(port(&memory).roce_v2_gid(), Some(5));
    }

    #[test]
    fn moved_bytes_are_words_of_four_or_the_drivers_own_count() {
        let memory = Arc::new(MemoryHost::new());
        assert_eq!(port(&memory).moved_bytes(), None);
        memory.set(format!("{PORT}/hw_counters/rx_bytes"), "70\n");
        memory.set(format!("{PORT}/hw_counters/tx_bytes"), "30\n");
        assert_eq!(port(&memory).moved_bytes(), Some((70, 30)));
        memory.set(format!("{PORT}/counters/port_rcv_data"), "100\n");
        memory.set(format!("{PORT}/counters/port_xmit_data"), "25\n");
        assert_eq!(port(&memory).moved_bytes(), Some((400, 100)));
    }

    #[test]
    fn a_bond_and_its_members_have_the_bonds_rate() {
        let memory = Arc::new(MemoryHost::new());
        memory.set("/sys/class/net/bond0/bonding/mode", "802.3ad 4\n");
        memory.set("/sys/class/net/bond0/speed", "400000\n");
        memory.symlink("/sys/class/net/ens1/master", "../bond0");
        memory.set("/sys/class/net/ens2/speed", "200000\n");
        let host = memory.host();
        for (netdev, rate) in [("bond0", Some(50e9)), ("ens1", Some(50e9)), ("ens2", None)] {
            assert_eq!(bond_rate(&host, netdev), rate.map(BytesPerSecond), "{netdev}");
        }
    }

    #[test]
    fn payload_from_configuration_space() {
        let memory = Arc::new(MemoryHost::new());
        let address: PciAddress = "0000:3b:00.0".parse().unwrap();
        let mut config = vec![0; 256];
        config[0x34] = 0x60;
        config[0x60] = 0x05;
        config[0x61] = 0x70;
        config[0x70] = 0x10;
        config[0x78] = 0b0100_0000;
        assert_eq!(payload_of(&config), Some(512));
        assert_eq!(max_payload(&memory.host(), address), None);
        memory.set("/sys/bus/pci/devices/0000:3b:00.0/config", config.clone());
        assert_eq!(max_payload(&memory.host(), address), Some(512));
        config[0x78] = 0b1110_0000;
        assert_eq!(payload_of(&config), None, "a reserved value");
        assert_eq!(payload_of(&config[..64]), None, "what ordinary users see");
        config[0x61] = 0x60;
        assert_eq!(payload_of(&config), None, "a chain that leads to itself");
    }

    proptest! {
        #[test]
        fn any_bytes_are_followed_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..256)) {
            let _ = payload_of(&bytes);
        }
    }
}
