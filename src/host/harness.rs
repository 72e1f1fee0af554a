//! Runs one collector in a test: a host in memory, the readers, and a record of what was opened.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::collector::{Collector, Depth, DeviceReader, Filter, ReadContext, Setup, Spec};
use super::io::{DirStamp, Host, HostIo, OpenFile};
use super::memory::MemoryHost;
use super::netlink::socket::NetlinkConnector;
use crate::model::reading::ReadError;
use crate::model::snapshot::Fact;
use crate::model::time::BootTime;

pub(crate) struct CollectorHarness {
    pub(crate) memory: Arc<MemoryHost>,
    /// Paths opened as files or listed as directories, oldest first.
    pub(crate) opened: Arc<Mutex<Vec<PathBuf>>>,
    /// What failed in the last pass.
    pub(crate) faults: Vec<(String, ReadError)>,
    host: Host,
    spec: Spec,
    filter: Filter,
    collector: Box<dyn Collector>,
    readers: BTreeMap<Arc<str>, Box<dyn DeviceReader>>,
    now: BootTime,
}

/// The card of [`CollectorHarness::with_card`].
pub(crate) const CARD: &str = "/sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0";

impl CollectorHarness {
    pub(crate) fn new(spec: &Spec, filter: Filter) -> Self {
        let (memory, opened) = (Arc::new(MemoryHost::new()), Arc::default());
        let recorder = Recorder { memory: Arc::clone(&memory), opened: Arc::clone(&opened) };
        let host = Host { io: Arc::new(recorder), ..memory.host() };
        let collector = (spec.make)(&Setup { host: host.clone(), filter: filter.clone() });
        let (spec, readers) = (*spec, BTreeMap::new());
        Self { memory, opened, faults: Vec::new(), host, spec, filter, collector, readers, now: BootTime(0) }
    }

    /// With the RDMA device `mlx5_0` of a card at [`CARD`].
    pub(crate) fn with_card(spec: &Spec) -> Self {
        let harness = Self::new(spec, Filter::default());
        harness.memory.symlink(format!("{CARD}/infiniband/mlx5_0/device"), "../..");
        let target = "../../devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0/infiniband/mlx5_0";
        harness.memory.symlink("/sys/class/infiniband/mlx5_0", target);
        harness
    }

    /// Puts the socket of the module reader there.
    pub(crate) fn set_module_reader(&mut self, socket: PathBuf) {
        self.host.roots.module_reader = socket;
    }

    /// Gives the host a route netlink connection; readers are opened again.
    pub(crate) fn set_route(&mut self, route: NetlinkConnector) {
        self.host.route = Some(route);
        self.collector = (self.spec.make)(&Setup { host: self.host.clone(), filter: self.filter.clone() });
        self.readers.clear();
    }

    /// Makes it the running kernel's own view; readers are opened again.
    pub(crate) fn set_live(&mut self) {
        self.host.live = true;
        self.collector = (self.spec.make)(&Setup { host: self.host.clone(), filter: self.filter.clone() });
        self.readers.clear();
    }

    /// Lists the devices, opens and closes readers to match, and returns the keys.
    pub(crate) fn discover(&mut self) -> Result<Vec<String>, ReadError> {
        let mut cx = ReadContext::new(&self.host, self.now, Depth::Full);
        let found = self.collector.discover(&mut cx);
        self.faults = cx.faults.iter().map(|fault| (fault.source.to_string(), fault.reason)).collect();
        let found = found?;
        self.readers.retain(|key, _| found.iter().any(|found| found.key == *key));
        for found in &found {
            self.readers.entry(Arc::clone(&found.key)).or_insert_with(|| self.collector.open(found));
        }
        Ok(found.iter().map(|found| found.key.to_string()).collect())
    }

    /// Reads all readers, five seconds later.
    pub(crate) fn read(&mut self) -> Vec<Fact> {
        self.now = self.now.after(Duration::from_secs(5));
        let mut cx = ReadContext::new(&self.host, self.now, Depth::Full);
        let facts = self.readers.values_mut().flat_map(|reader| reader.read(&mut cx)).collect();
        self.faults = cx.faults.iter().map(|fault| (fault.source.to_string(), fault.reason)).collect();
        facts
    }

    /// How many files are quarantined.
    pub(crate) fn quarantined(&self) -> usize {
        self.readers.values().map(|reader| reader.quarantined()).sum()
    }

    /// Whether anything below this path was opened or listed.
    pub(crate) fn touched(&self, below: &str) -> bool {
        self.opened.lock().unwrap().iter().any(|path| path.starts_with(below))
    }
}

/// Facts of one type.
pub(crate) fn facts<T: Clone + 'static>(facts: &[Fact]) -> Vec<T> {
    facts.iter().filter_map(|fact| fact.downcast_ref::<T>().cloned()).collect()
}

struct Recorder {
    memory: Arc<MemoryHost>,
    opened: Arc<Mutex<Vec<PathBuf>>>,
}

impl HostIo for Recorder {
    fn open(&self, path: &Path) -> io::Result<Box<dyn OpenFile>> {
        self.opened.lock().unwrap().push(path.to_owned());
        self.memory.open(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        self.opened.lock().unwrap().push(path.to_owned());
        self.memory.list(path)
    }

    fn link(&self, path: &Path) -> io::Result<PathBuf> {
        HostIo::link(&*self.memory, path)
    }

    fn stamp(&self, path: &Path) -> io::Result<DirStamp> {
        self.memory.stamp(path)
    }
}
