//! How ports are addressed: types of GIDs, default RoCE mode (`/sys/class/infiniband/<device>/ports/<port>/gid_attrs`,
//! `/sys/kernel/config/rdma_cm`). All of it comes from kernel memory, none from hardware.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::collector::{Collector, DeviceReader, Discovered, Filter, ReadContext, Spec};
use super::file::PolledFile;
use super::function::DeviceInventory;
use super::io::reason_of;
use super::text;
use crate::model::ids::{DeviceName, PortKey};
use crate::model::net::PortAddressing;
use crate::model::reading::{ReadError, Reading};
use crate::model::snapshot::Fact;

/// The collector of GIDs.
pub const SPEC: Spec = Spec {
    name: "gids",
    about: "Port addressing: GID types, default RoCE mode, traffic class",
    interval: Duration::from_secs(60),
    deadline: Duration::from_secs(5),
    fresh: false,
    make: |setup| Box::new(GidCollector { filter: setup.filter.clone() }),
};

/// Most entries read of a table; the largest tables have this many.
const MOST: usize = 1024;

/// Entries of RoCE v2 whose address is read: an interface has a handful.
const SHOWN: usize = 8;

const ROCE_V2: &str = "RoCE v2";

struct GidCollector {
    filter: Filter,
}

impl Collector for GidCollector {
    fn discover(&mut self, cx: &mut ReadContext<'_>) -> Result<Vec<Discovered>, ReadError> {
        let inventory = DeviceInventory::read(cx, &self.filter)?;
        let one = Discovered { key: Arc::from("ports"), device: None };
        Ok(if inventory.allowed.is_empty() { Vec::new() } else { vec![one] })
    }

    fn open(&mut self, _: &Discovered) -> Box<dyn DeviceReader> {
        Box::new(GidReader { filter: self.filter.clone() })
    }
}

struct GidReader {
    filter: Filter,
}

impl DeviceReader for GidReader {
    /// Skips VFs whose PF is on this host: there may be hundreds.
    fn read(&mut self, cx: &mut ReadContext<'_>) -> Vec<Fact> {
        let Ok(inventory) = DeviceInventory::read(cx, &self.filter) else { return Vec::new() };
        let mut facts: Vec<Fact> = Vec::new();
        for device in inventory.allowed {
            if cx.host.io.link(&device.function.join("physfn")).is_ok() {
                continue;
            }
            // The class entry is a link, which in a recorded host may be a file with its target.
            let entry = cx.host.sysfs.join("class/infiniband").join(device.name.as_str());
            let Ok(class) = cx.host.resolve(&entry) else { continue };
            let names = cx.host.io.list(&class.join("ports")).unwrap_or_default();
            let mut numbers: Vec<u32> = names.iter().filter_map(|name| name.parse().ok()).collect();
            numbers.sort_unstable();
            for number in numbers {
                facts.extend(port(cx, &class, &device.name, number).map(|port| Arc::new(port) as Fact));
            }
        }
        facts
    }
}

/// `None` if the port has no addressing at all.
fn port(cx: &mut ReadContext<'_>, class: &Path, device: &DeviceName, number: u32) -> Option<PortAddressing> {
    let ports = class.join(format!("ports/{number}"));
    let types = types(cx, &ports.join("gid_attrs/types"));
    let roce_v2 = types.roce_v2.into_iter().take(SHOWN).map(|index| (index, ipv4(cx, &ports, index))).collect();
    let gids: Vec<(Arc<str>, usize)> = types.counts.into_iter().collect();
    let config = cx.host.sysfs.join(format!("kernel/config/rdma_cm/{device}/ports/{number}"));
    // Without a configfs directory the mode is absent, which is no fault.
    let default_mode = once(cx, &config.join("default_roce_mode"), text::label);
    let default_tos = once(cx, &config.join("default_roce_tos"), text::counter);
    let traffic_class = once(cx, &class.join(format!("tc/{number}/traffic_class")), traffic_class);
    let port = PortKey { device: device.clone(), port: number };
    let silent = gids.is_empty() && default_mode.is_none() && traffic_class.is_none();
    (!silent).then_some(PortAddressing { port, gids, roce_v2, default_mode, default_tos, traffic_class })
}

fn once<T>(cx: &mut ReadContext<'_>, path: &Path, parse: impl FnOnce(&[u8]) -> Reading<T>) -> Option<T> {
    PolledFile::new(path.to_owned()).read_unless_down(cx, parse).value()
}

/// The types in a GID table.
#[derive(Default)]
struct GidTypes {
    /// How many entries there are of each.
    counts: BTreeMap<Arc<str>, usize>,
    /// The indices of those of RoCE v2, in order.
    roce_v2: Vec<u32>,
}

/// The IPv4 address of an entry; `None` if it holds none.
fn ipv4(cx: &mut ReadContext<'_>, port: &Path, index: u32) -> Option<Ipv4Addr> {
    let gid = once(cx, &port.join(format!("gids/{index}")), text::label)?;
    gid.parse::<Ipv6Addr>().ok()?.to_ipv4_mapped()
}

/// Counts the entries by type and lists those of RoCE v2. Reading an empty entry fails, on most kernels with EINVAL.
fn types(cx: &mut ReadContext<'_>, directory: &Path) -> GidTypes {
    let names = cx.host.io.list(directory).unwrap_or_default();
    let mut types = GidTypes::default();
    let mut indices: Vec<u32> = names.iter().filter_map(|name| name.parse().ok()).collect();
    indices.sort_unstable();
    for index in indices.into_iter().take(MOST) {
        let path = directory.join(index.to_string());
        let read = cx.host.io.open(&path).and_then(|mut file| file.read(&mut cx.buffer[..]));
        match read {
            Ok(length) => {
                if let Some(kind) = known(cx.buffer.get(..length).unwrap_or_default()) {
                    *types.counts.entry(Arc::from(kind)).or_default() += 1;
                    if kind == ROCE_V2 {
                        types.roce_v2.push(index);
                    }
                }
            }
            Err(error) => {
                if let Some(reason @ (ReadError::Permission | ReadError::Timeout)) = reason_of(&error) {
                    cx.fault(&path, reason);
                    break;
                }
            }
        }
    }
    types
}

/// The types that the kernel knows; a closed set, because they become labels.
fn known(bytes: &[u8]) -> Option<&'static str> {
    ["IB/RoCE v1", ROCE_V2].into_iter().find(|word| word.as_bytes() == bytes.trim_ascii())
}

/// -1 means unset; newer drivers write several lines, of which the first is the global class.
fn traffic_class(bytes: &[u8]) -> Reading<u64> {
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default().trim_ascii();
    match line.strip_prefix(b"Global tclass=").unwrap_or(line) {
        b"-1" | b"" => Reading::Absent,
        class => text::counter(class),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rustix::io::Errno;

    use super::*;
    use crate::host::harness::{CARD, CollectorHarness, facts};

    fn harness() -> CollectorHarness {
        CollectorHarness::with_card(&SPEC)
    }

    fn read(harness: &mut CollectorHarness) -> Vec<PortAddressing> {
        harness.discover().unwrap();
        facts(&harness.read())
    }

    #[test]
    fn types_are_counted_and_empty_entries_are_no_fault() {
        let mut harness = harness();
        let types = format!("{CARD}/infiniband/mlx5_0/ports/1/gid_attrs/types");
        for (index, kind) in ["IB/RoCE v1", "RoCE v2", "IB/RoCE v1", "RoCE v2", "RoCE v3"].iter().enumerate() {
            harness.memory.set(format!("{types}/{index}"), format!("{kind}\n"));
        }
        for index in 5..256 {
            harness.memory.fail(format!("{types}/{index}"), Errno::INVAL);
        }
        let gids = format!("{CARD}/infiniband/mlx5_0/ports/1/gids");
        for (index, gid) in
            [(1, "fe80:0000:0000:0000:0a3d:99ff:fe41:7b02"), (3, "0000:0000:0000:0000:0000:ffff:c000:0211")]
        {
            harness.memory.set(format!("{gids}/{index}"), format!("{gid}\n"));
        }
        harness.memory.set("/sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_mode", "RoCE v2\n");
        harness.memory.set("/sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_tos", "106\n");
        harness.memory.set(format!("{CARD}/infiniband/mlx5_0/tc/1/traffic_class"), "-1\n");
        let ports = read(&mut harness);
        let expected = PortAddressing {
            port: PortKey { device: DeviceName::new("mlx5_0"), port: 1 },
            gids: vec![(Arc::from("IB/RoCE v1"), 2), (Arc::from("RoCE v2"), 2)],
            roce_v2: vec![(1, None), (3, Some(Ipv4Addr::new(192, 0, 2, 17)))],
            default_mode: Some(Arc::from("RoCE v2")),
            default_tos: Some(106),
            traffic_class: None,
        };
        assert_eq!((ports, &harness.faults[..]), (vec![expected], &[][..]));
    }

    #[test]
    fn silent_ports_and_vfs_of_a_local_pf_are_skipped() {
        let mut harness = harness();
        harness.memory.set(format!("{CARD}/infiniband/mlx5_0/ports/1/state"), "4: ACTIVE\n");
        assert_eq!((read(&mut harness).len(), harness.faults.len()), (0, 0));
        harness.memory.set(format!("{CARD}/infiniband/mlx5_0/ports/1/gid_attrs/types/0"), "IB/RoCE v1\n");
        assert_eq!(read(&mut harness).len(), 1);
        harness.memory.symlink(format!("{CARD}/physfn"), "../0000:3b:00.1");
        assert_eq!(read(&mut harness).len(), 0);
    }

    #[test]
    fn classes_that_are_set() {
        assert_eq!(traffic_class(b"106"), Reading::Value(106));
        assert_eq!(traffic_class(b"106\ntclass=160 src ip 1.1.1.1"), Reading::Value(106));
        assert_eq!(traffic_class(b"-1"), Reading::Absent);
        assert_eq!(traffic_class(b"Global tclass=106"), Reading::Value(106));
        assert_eq!(traffic_class(b"many").reason(), Some(ReadError::Malformed));
    }

    proptest! {
        #[test]
        fn any_bytes_parse_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..32)) {
            let _ = (known(&bytes), traffic_class(&bytes));
        }
    }
}
