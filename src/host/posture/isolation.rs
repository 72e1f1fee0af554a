//! PCI isolation: ACS of the ports and functions of a path (extended capabilities in `config`), ARI (`ari_enabled`).
//!
//! `ari_enabled` of a function speaks of the bus it is on: whether the port above forwards to functions beyond the eighth
//! (`pci_ari_enabled` in `drivers/pci/pci.h`). So a port's own file says nothing of the port; what it forwards is said by
//! the functions below it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::host::collector::ReadContext;
use crate::host::file::read_once;
use crate::host::function::{DeviceFunction, address_of};
use crate::host::io::OpenFile;
use crate::host::text;
use crate::model::host::{Acs, AcsSwitches, PciIsolation};
use crate::model::ids::PciAddress;

/// Where the extended capabilities begin, and the whole ends (`include/uapi/linux/pci_regs.h`).
const EXTENDED: u64 = 0x100;
const END: u64 = 0x1000;
/// As many capabilities as there is room for.
const MOST: usize = 480;
/// Bytes of `config` that everyone may read.
const HEADER: u64 = 64;
const ACS: u16 = 0x0d;
const ATS: u16 = 0x0f;
/// Where the switches stand within the capability.
const ACS_CONTROL: u64 = 6;

/// The functions of devices, but for VFs beside their PF, GPUs, and every port above them.
pub(super) fn read(cx: &mut ReadContext<'_>, devices: &[DeviceFunction], gpus: &[PathBuf]) -> Vec<PciIsolation> {
    let mut functions: BTreeMap<PciAddress, PathBuf> = BTreeMap::new();
    for function in devices.iter().map(|device| &device.function).chain(gpus) {
        if cx.host.io.link(&function.join("physfn")).is_ok() {
            continue;
        }
        for directory in function.ancestors() {
            let Some(address) = address_of(directory) else { break };
            functions.entry(address).or_insert_with(|| directory.to_owned());
        }
    }
    // A port, by the functions just below it on the paths of devices.
    let below: BTreeMap<PciAddress, PathBuf> = functions
        .values()
        .filter_map(|directory| Some((directory.parent().and_then(address_of)?, directory.clone())))
        .collect();
    let isolation = |(address, directory): (PciAddress, PathBuf)| {
        let on_bus = below.get(&address).unwrap_or(&directory);
        let ari = read_once(cx, &on_bus.join("ari_enabled"), text::counter).map(|on| on != 0);
        let capabilities = capabilities(cx, &directory.join("config"));
        let (acs, ats) = (capabilities.map(|found| found.acs), capabilities.and_then(|found| found.ats));
        (acs.is_some() || ari.is_some()).then_some(PciIsolation { address, acs, ari, ats })
    };
    functions.into_iter().filter_map(isolation).collect()
}

/// What the extended capabilities of a function say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Capabilities {
    acs: Acs,
    /// `None` if they are hidden.
    ats: Option<bool>,
}

/// `None` if the file is missing or unreadable. Reads only the capabilities' headers and the ACS control bits: some
/// devices hang on reads elsewhere.
fn capabilities(cx: &mut ReadContext<'_>, path: &Path) -> Option<Capabilities> {
    let mut file = cx.host.io.open(path).ok()?;
    let Some(first) = word(&mut *file, EXTENDED) else {
        // Without the capability only the header is readable; conventional PCI has 256 bytes.
        word(&mut *file, 0)?;
        let hidden = word(&mut *file, HEADER).is_none();
        let (acs, ats) = if hidden { (Acs::Hidden, None) } else { (Acs::None, Some(false)) };
        return Some(Capabilities { acs, ats });
    };
    if first == u32::MAX {
        return None;
    }
    let mut found = Capabilities { acs: Acs::None, ats: Some(false) };
    let mut next = (EXTENDED, first);
    for _ in 0..MOST {
        let (at, header) = next;
        // No capability at all, or a device that no longer responds.
        if header == 0 || header == u32::MAX {
            break;
        }
        if header & 0xffff == u32::from(ATS) {
            found.ats = Some(true);
        } else if header & 0xffff == u32::from(ACS) && found.acs == Acs::None {
            let switches = word(&mut *file, at + ACS_CONTROL - 2)? >> 16;
            found.acs = Acs::Switches(AcsSwitches(u16::try_from(switches).unwrap_or(0)));
        }
        let following = u64::from(header >> 20) & !3;
        if !(EXTENDED + 4..END).contains(&following) {
            break;
        }
        next = (following, word(&mut *file, following)?);
    }
    Some(found)
}

/// Four little-endian bytes; `None` if the file ends before them.
fn word(file: &mut dyn OpenFile, at: u64) -> Option<u32> {
    let mut bytes = [0; 4];
    let length = file.read_at(at, &mut bytes).ok()?;
    (length == bytes.len()).then(|| u32::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::host::collector::Depth;
    use crate::host::memory::MemoryHost;
    use crate::model::ids::DeviceName;
    use crate::model::time::BootTime;

    /// A configuration space of this length with these extended capabilities: place, identity, next, then bytes.
    fn config(length: usize, capabilities: &[(usize, u16, usize, &[u8])]) -> Vec<u8> {
        let mut config = vec![0; length];
        config[0] = 0xb3;
        for (at, id, next, bytes) in capabilities {
            let header = u32::from(*id) | 1 << 16 | u32::try_from(*next).unwrap() << 20;
            config[*at..*at + 4].copy_from_slice(&header.to_le_bytes());
            config[*at + 4..*at + 4 + bytes.len()].copy_from_slice(bytes);
        }
        config
    }

    fn acs_of(config: Vec<u8>) -> Option<Acs> {
        let memory = Arc::new(MemoryHost::new());
        memory.set("/sys/config", config);
        let host = memory.host();
        let mut cx = ReadContext::new(&host, BootTime(0), Depth::Full);
        capabilities(&mut cx, Path::new("/sys/config")).map(|found| found.acs)
    }

    #[test]
    fn switches_behind_other_capabilities() {
        let aer = (0x100, 1, 0x148, &[0u8; 4][..]);
        let ours = (0x148, ACS, 0x160, &[0x5f, 0, 0x1d, 0][..]);
        let seen = acs_of(config(4096, &[aer, ours]));
        let Some(Acs::Switches(switches)) = seen else { panic!("{seen:?}") };
        assert_eq!(switches.to_string(), "source_validation,request_redirect,completion_redirect,upstream_forwarding");
        assert!(switches.redirects_requests());
        let off = acs_of(config(4096, &[(0x100, ACS, 0, &[0x5f, 0, 0, 0])]));
        assert_eq!(off, Some(Acs::Switches(AcsSwitches(0))));
    }

    #[test]
    fn acs_absent_hidden_and_unreadable() {
        assert_eq!(acs_of(config(4096, &[(0x100, 1, 0, &[])])), Some(Acs::None));
        assert_eq!(acs_of(config(4096, &[])), Some(Acs::None));
        assert_eq!(acs_of(config(256, &[])), Some(Acs::None), "an old bus");
        assert_eq!(acs_of(config(64, &[])), Some(Acs::Hidden));
        assert_eq!(acs_of(vec![0xff; 4096]), None, "fell off the bus");
        assert_eq!(acs_of(Vec::new()), None);
        assert_eq!(acs_of(config(4096, &[(0x100, 1, 0x100, &[])])), Some(Acs::None), "a chain that bites its tail");
        assert_eq!(
            acs_of(config(4096, &[(0x100, 1, 0x104, &[]), (0x104, 2, 0x108, &[]), (0x108, 3, 0x104, &[])])),
            Some(Acs::None)
        );
    }

    #[test]
    fn every_port_above_once_and_no_vf() {
        let memory = Arc::new(MemoryHost::new());
        let root = "/sys/devices/pci0000:3a/0000:3a:00.0";
        let card = format!("{root}/0000:3b:00.0");
        memory.set(format!("{root}/config"), config(4096, &[(0x100, ACS, 0, &[0x5f, 0, 0x05, 0])]));
        memory.set(format!("{card}/config"), config(64, &[]));
        memory.set(format!("{card}/ari_enabled"), "1\n");
        // The bus of a root port has no port above: 0, whatever the root port forwards.
        memory.set(format!("{root}/ari_enabled"), "0\n");
        memory.set(format!("{root}/0000:3b:00.2/ari_enabled"), "0\n");
        memory.symlink(format!("{root}/0000:3b:00.2/physfn"), "../0000:3b:00.0");
        let device = |name: &str, function: String| DeviceFunction {
            name: DeviceName::new(name),
            parent: PathBuf::from(&function),
            address: address_of(Path::new(&function)).unwrap(),
            function: PathBuf::from(function),
        };
        let devices = [device("mlx5_0", card), device("mlx5_2", format!("{root}/0000:3b:00.2"))];
        let host = memory.host();
        let mut cx = ReadContext::new(&host, BootTime(0), Depth::Full);
        let seen = read(&mut cx, &devices, &[]);
        let expected = [
            PciIsolation {
                address: "0000:3a:00.0".parse().unwrap(),
                acs: Some(Acs::Switches(AcsSwitches(5))),
                ari: Some(true),
                ats: Some(false),
            },
            PciIsolation {
                address: "0000:3b:00.0".parse().unwrap(),
                acs: Some(Acs::Hidden),
                ari: Some(true),
                ats: None,
            },
        ];
        assert_eq!((seen, cx.faults.len()), (expected.to_vec(), 0));
    }

    proptest! {
        #[test]
        fn any_bytes_are_walked_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..4200)) {
            let _ = acs_of(bytes);
        }

        #[test]
        fn any_chain_of_capabilities_ends(capabilities in proptest::collection::vec((64usize..1000, any::<u16>(), 0usize..4096), 0..50)) {
            let capabilities: Vec<_> =
                capabilities.iter().map(|(at, id, next)| (at * 4, *id, *next, &[][..])).collect();
            let _ = acs_of(config(4096, &capabilities));
        }
    }
}
