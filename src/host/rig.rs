//! A collector driven by hand, for tests: a host in memory, the lanes, and a record of what was opened.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::collector::{Collector, Depth, Filter, Lane, Pass, Setup, Spec};
use super::io::{DirStamp, Host, HostIo, OpenFile};
use super::memory::MemoryHost;
use super::netlink::socket::Connect;
use crate::model::reading::ReadError;
use crate::model::snapshot::Fact;
use crate::model::time::BootTime;

pub(crate) struct Rig {
    pub(crate) memory: Arc<MemoryHost>,
    /// Paths opened as files or listed as directories, in the order of time.
    pub(crate) opened: Arc<Mutex<Vec<PathBuf>>>,
    /// What failed in the last pass.
    pub(crate) faults: Vec<(String, ReadError)>,
    host: Host,
    spec: Spec,
    filter: Filter,
    collector: Box<dyn Collector>,
    lanes: BTreeMap<Arc<str>, Box<dyn Lane>>,
    now: BootTime,
}

impl Rig {
    pub(crate) fn new(spec: &Spec, filter: Filter) -> Self {
        let (memory, opened) = (Arc::new(MemoryHost::new()), Arc::default());
        let recorder = Recorder { memory: Arc::clone(&memory), opened: Arc::clone(&opened) };
        let host = Host { io: Arc::new(recorder), ..memory.host() };
        let collector = (spec.make)(&Setup { host: host.clone(), filter: filter.clone() });
        let (spec, lanes) = (*spec, BTreeMap::new());
        Self { memory, opened, faults: Vec::new(), host, spec, filter, collector, lanes, now: BootTime(0) }
    }

    /// Gives the host a route netlink to ask; lanes are opened anew.
    pub(crate) fn set_route(&mut self, route: Connect) {
        self.host.route = Some(route);
        self.collector = (self.spec.make)(&Setup { host: self.host.clone(), filter: self.filter.clone() });
        self.lanes.clear();
    }

    /// Lists what there is and opens and closes lanes accordingly; says the keys.
    pub(crate) fn discover(&mut self) -> Result<Vec<String>, ReadError> {
        let mut pass = Pass::new(&self.host, self.now, Depth::Full);
        let found = self.collector.discover(&mut pass);
        self.faults = pass.faults.iter().map(|fault| (fault.source.to_string(), fault.reason)).collect();
        let found = found?;
        self.lanes.retain(|key, _| found.iter().any(|found| found.key == *key));
        for found in &found {
            self.lanes.entry(Arc::clone(&found.key)).or_insert_with(|| self.collector.open(found));
        }
        Ok(found.iter().map(|found| found.key.to_string()).collect())
    }

    /// Reads all lanes, five seconds later.
    pub(crate) fn read(&mut self) -> Vec<Fact> {
        self.now = self.now.after(Duration::from_secs(5));
        let mut pass = Pass::new(&self.host, self.now, Depth::Full);
        let facts = self.lanes.values_mut().flat_map(|lane| lane.read(&mut pass)).collect();
        self.faults = pass.faults.iter().map(|fault| (fault.source.to_string(), fault.reason)).collect();
        facts
    }

    /// How many files are left alone.
    pub(crate) fn quarantined(&self) -> usize {
        self.lanes.values().map(|lane| lane.quarantined()).sum()
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
