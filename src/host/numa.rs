//! NUMA nodes and their CPUs (`/sys/devices/system/node/node*`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::collector::{Collector, DeviceReader, Discovered, ReadContext, Setup, Spec};
use super::file::PolledFile;
use super::text;
use crate::model::host::NumaNode;
use crate::model::reading::{ReadError, Reading};
use crate::model::snapshot::Fact;

/// The collector of NUMA nodes.
pub const SPEC: Spec = Spec {
    name: "numa",
    about: "NUMA nodes and their CPUs",
    interval: Duration::from_secs(60),
    deadline: Duration::from_secs(2),
    fresh: false,
    make,
};

fn make(_: &Setup) -> Box<dyn Collector> {
    Box::new(NumaCollector)
}

struct NumaCollector;

impl Collector for NumaCollector {
    fn discover(&mut self, cx: &mut ReadContext<'_>) -> Result<Vec<Discovered>, ReadError> {
        let some = !nodes(&cx.list(&directory(cx))?, &directory(cx)).is_empty();
        Ok(some.then(|| Discovered { key: Arc::from("nodes"), device: None }).into_iter().collect())
    }

    fn open(&mut self, _: &Discovered) -> Box<dyn DeviceReader> {
        Box::new(NumaReader { cpulists: BTreeMap::new() })
    }
}

/// Reads all nodes: their files cost no hardware access.
struct NumaReader {
    cpulists: BTreeMap<u32, PolledFile>,
}

impl DeviceReader for NumaReader {
    fn read(&mut self, cx: &mut ReadContext<'_>) -> Vec<Fact> {
        let directory = directory(cx);
        // The collector has just listed the same directory and records its faults.
        let Ok(names) = cx.host.io.list(&directory) else { return Vec::new() };
        let nodes = nodes(&names, &directory);
        self.cpulists.retain(|id, _| nodes.contains_key(id));
        let mut facts: Vec<Fact> = Vec::with_capacity(nodes.len());
        for (id, path) in nodes {
            let file = self.cpulists.entry(id).or_insert_with(|| PolledFile::new(path));
            facts.push(Arc::new(NumaNode { id, cpus: file.read(cx, cpulist).value() }));
            // Read once a minute: not worth a descriptor.
            file.close();
        }
        facts
    }

    fn quarantined(&self) -> usize {
        self.cpulists.values().filter(|file| file.is_quarantined()).count()
    }
}

/// Where the nodes are; a kernel without NUMA has none.
fn directory(cx: &ReadContext<'_>) -> PathBuf {
    cx.host.sysfs.join("devices/system/node")
}

/// The nodes by number, with the files that list their CPUs.
fn nodes(names: &[String], directory: &Path) -> BTreeMap<u32, PathBuf> {
    let node = |name: &String| {
        let id = text::parse_decimal(name.strip_prefix("node")?.as_bytes())?;
        Some((u32::try_from(id).ok()?, directory.join(name).join("cpulist")))
    };
    names.iter().filter_map(node).collect()
}

/// `0-15,64-79`; empty for a node that has memory only.
fn cpulist(bytes: &[u8]) -> Reading<Arc<str>> {
    if bytes.iter().all(|byte| byte.is_ascii_digit() || b",-".contains(byte)) {
        text::label(bytes)
    } else {
        Reading::Unreadable(ReadError::Malformed)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::host::collector::{Depth, Filter};
    use crate::host::memory::MemoryHost;
    use crate::model::time::BootTime;

    fn read(host: &Arc<MemoryHost>) -> (Vec<(u32, Option<String>)>, usize) {
        let host = host.host();
        let mut collector = make(&Setup { host: host.clone(), filter: Filter::default() });
        let mut cx = ReadContext::new(&host, BootTime(0), Depth::Full);
        let found = collector.discover(&mut cx).unwrap();
        let facts = found.iter().flat_map(|found| collector.open(found).read(&mut cx));
        let nodes = facts.map(|fact| {
            let node = fact.downcast_ref::<NumaNode>().unwrap();
            (node.id, node.cpus.as_deref().map(str::to_owned))
        });
        (nodes.collect(), cx.faults.len())
    }

    #[test]
    fn nodes_with_and_without_cpus() {
        let host = Arc::new(MemoryHost::new());
        assert_eq!(read(&host), (vec![], 0));
        host.set("/sys/devices/system/node/online", "0-1\n");
        host.set("/sys/devices/system/node/node0/cpulist", "0-15,64-79\n");
        host.set("/sys/devices/system/node/node10/cpulist", "all\n");
        host.set("/sys/devices/system/node/node2/cpulist", "\n");
        host.directory("/sys/devices/system/node/node3");
        let expected = vec![(0, Some("0-15,64-79".to_owned())), (2, None), (3, None), (10, None)];
        assert_eq!(read(&host), (expected, 1));
    }

    proptest! {
        #[test]
        fn any_bytes_parse_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..16)) {
            let _ = cpulist(&bytes);
        }
    }
}
