//! Hosts in memory, and whole passes over them.

mod changes;
mod drivers;
mod netlink;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rustix::io::Errno;

use super::RdmaCollector;
use crate::host::collector::{Collector, Depth, DeviceReader, Filter, ReadContext, Setup};
use crate::host::io::{DirStamp, Host, HostIo, OpenFile, Roots};
use crate::host::netlink::socket::NetlinkConnector;
use crate::model::counter::Counters;
use crate::model::rdma::RdmaDevice;
use crate::model::reading::ReadError;
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
struct Bench {
    host: Host,
    collector: Box<dyn Collector>,
    readers: Vec<Box<dyn DeviceReader>>,
    faults: Vec<(String, ReadError)>,
}

impl Bench {
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
