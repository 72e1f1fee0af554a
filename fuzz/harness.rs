//! A host in memory that is read, judged and spoken of as the agent does, without threads and clocks.
//!
//! Parsers are reached through the collectors that use them: nothing of the library is public for the sake of this.

#![allow(dead_code, reason = "each target uses a part of this")]

#[path = "../tests/common/host.rs"]
pub mod host;
#[path = "../tests/common/tree.rs"]
pub mod tree;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use lanewatch::export::{AgentState, Format, Process, encode};
use lanewatch::host::collector::{Filter, Setup};
use lanewatch::host::memory::MemoryHost;
use lanewatch::host::netlink::socket::NetlinkConnector;
use lanewatch::host::{Collector, Depth, DeviceReader, Host, ReadContext, Spec};
use lanewatch::model::snapshot::{CollectorState, Fact, Snapshot};
use lanewatch::model::time::{BootTime, Timestamp};
use lanewatch::watch::Engine;

use tree::{Entry, Tree};

/// A host in memory with these files.
pub fn memory(tree: &Tree) -> Arc<MemoryHost> {
    let memory = Arc::new(MemoryHost::new());
    for (path, entry) in tree.entries() {
        put(&memory, &Path::new("/").join(path), entry);
    }
    memory
}

/// A host and who reads it. Making a host costs more than reading it: one serves all runs, and each makes the files
/// that it needs anew.
pub struct FuzzHarness {
    host: Host,
    collectors: Vec<(&'static Spec, Box<dyn Collector>, Vec<Box<dyn DeviceReader>>)>,
    engine: Engine,
    since: Duration,
}

impl FuzzHarness {
    pub fn new(
        specs: impl IntoIterator<Item = &'static Spec>,
        memory: &Arc<MemoryHost>,
        route: Option<NetlinkConnector>,
    ) -> Self {
        Self::over(specs, Host { route, ..memory.host() })
    }

    /// The same over any host.
    pub fn over(specs: impl IntoIterator<Item = &'static Spec>, host: Host) -> Self {
        let setup = Setup { host: host.clone(), filter: Filter::default() };
        let collectors = specs.into_iter().map(|spec| (spec, (spec.make)(&setup), Vec::new())).collect();
        let engine = Engine::new(Arc::default(), false);
        Self { host, collectors, engine, since: Duration::from_secs(3600) }
    }

    /// A pass, half an hour after the last one: what is left alone for a while is read again.
    pub fn cx(&mut self) {
        self.since += Duration::from_secs(1800);
        let now = Timestamp { tick: BootTime(0).after(self.since), wall: SystemTime::UNIX_EPOCH + self.since };
        let (mut facts, mut states): (Vec<Fact>, Vec<CollectorState>) = (Vec::new(), Vec::new());
        for (spec, collector, readers) in &mut self.collectors {
            let mut cx = ReadContext::new(&self.host, now.tick, Depth::Full);
            let found = collector.discover(&mut cx).unwrap_or_default();
            if readers.len() != found.len() {
                *readers = found.iter().map(|found| collector.open(found)).collect();
            }
            facts.extend(readers.iter_mut().flat_map(|reader| reader.read(&mut cx)));
            let listed = Some(found.into_iter().map(|found| found.key).collect());
            states.push(CollectorState { name: spec.name, success: true, listed, ..CollectorState::default() });
        }
        let report = Arc::new(self.engine.observe(Snapshot::new(now, facts, states)));
        let mut text = String::new();
        encode(Format::Text, &report, &Arc::new(AgentState::default()), Process::default(), &mut text)
            .expect("a string takes everything");
    }
}

/// Makes an entry.
pub fn put(memory: &MemoryHost, path: &Path, entry: &Entry) {
    match entry {
        Entry::File(content) => memory.set(path, content.clone()),
        Entry::Link(target) => memory.symlink(path, target.clone()),
        Entry::Directory => memory.directory(path),
    }
}

/// The files of a tree, as the host in memory names them.
pub fn files(tree: &Tree) -> Vec<PathBuf> {
    let files = tree.entries().filter(|(_, entry)| matches!(entry, Entry::File(_)));
    files.map(|(path, _)| Path::new("/").join(path)).collect()
}

/// The first bytes as a number, and what follows them.
pub fn number(data: &[u8]) -> Option<(usize, &[u8])> {
    let (bytes, rest) = data.split_first_chunk()?;
    Some((usize::from(u16::from_le_bytes(*bytes)), rest))
}
