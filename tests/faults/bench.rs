//! Reads a host without threads, one trial for each fault, and says what its exposition is.
//!
//! A reader's facts follow from what was found and from what the host answers. So a trial lists with every collector
//! anew, but of the readers it reads only those that ask for the spoilt path or for something below it; the others'
//! facts are those of the clean pass. For the same cause, faults that leave the same facts are judged and encoded
//! once.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use lanewatch::export::{Format, Process, encode};
use lanewatch::host::collector::{Filter, Setup};
use lanewatch::host::{self, Collector, Depth, DeviceReader, Discovered, Host, ReadContext, Spec};
use lanewatch::model::holder::{Libvirt, Namespaces, Openers};
use lanewatch::model::host::NumaNode;
use lanewatch::model::host::System;
use lanewatch::model::net::Netdev;
use lanewatch::model::pcie::PciFunction;
use lanewatch::model::rdma::RdmaDevice;
use lanewatch::model::reading::ReadError;
use lanewatch::model::snapshot::{CollectorState, Fact, Fault, Snapshot};
use lanewatch::model::sriov::Pf;
use lanewatch::model::time::{BootTime, Timestamp};
use lanewatch::watch::Engine;

use super::common::faulty::{Faulty, Op};

/// The collectors of ports and the links above them, and of the host itself; those of VFs are tried on a host with VFs.
const COLLECTORS: [&str; 6] = ["rdma", "rdma_netlink", "pci", "net", "numa", "system"];

/// What is tried.
pub fn specs() -> impl Iterator<Item = &'static Spec> {
    host::COLLECTORS.iter().filter(|spec| COLLECTORS.contains(&spec.name))
}

/// Who asked for what in a clean pass.
type Asked = BTreeSet<(Op, PathBuf)>;

/// A reader of the clean pass.
struct CleanReader {
    found: Discovered,
    facts: Vec<Fact>,
    asked: Asked,
}

/// A collector in the clean pass.
pub struct Clean {
    spec: Spec,
    listing: Asked,
    readers: Vec<CleanReader>,
}

/// A host and what a clean reading of it says.
pub struct Bench {
    /// Its files.
    pub io: Arc<Faulty>,
    host: Host,
    clean: Vec<Clean>,
}

/// What a pass read: all that is judged and said.
pub struct Seen {
    now: Timestamp,
    facts: Vec<Fact>,
    listed: Vec<(&'static str, Option<Keys>)>,
    faults: Vec<(&'static str, Fault)>,
    /// Read errors of this pass.
    pub errors: BTreeMap<(&'static str, ReadError), u64>,
}

impl PartialEq for Seen {
    fn eq(&self, other: &Self) -> bool {
        self.now == other.now
            && self.listed == other.listed
            && self.facts.len() == other.facts.len()
            && self.facts.iter().zip(&other.facts).all(|(a, b)| same(a, b))
    }
}

fn same(a: &Fact, b: &Fact) -> bool {
    fn equal<T: PartialEq + 'static>(a: &Fact, b: &Fact) -> bool {
        a.downcast_ref::<T>().zip(b.downcast_ref::<T>()).is_some_and(|(a, b)| a == b)
    }
    let kinds = [
        equal::<RdmaDevice>,
        equal::<PciFunction>,
        equal::<Netdev>,
        equal::<NumaNode>,
        equal::<System>,
        equal::<Pf>,
        equal::<Openers>,
        equal::<Libvirt>,
        equal::<Namespaces>,
    ];
    Arc::ptr_eq(a, b) || kinds.iter().any(|equal| equal(a, b))
}

impl Bench {
    /// Reads the host as it is, with the collectors of ports and links.
    pub fn new(io: Arc<Faulty>) -> Self {
        Self::of(io, &COLLECTORS)
    }

    /// Reads the host as it is, with these collectors.
    pub fn of(io: Arc<Faulty>, collectors: &[&str]) -> Self {
        let host = io.host();
        let setup = Setup { host: host.clone(), filter: Filter::default() };
        let asked = || io.asked().into_iter().collect::<Asked>();
        let mut clean = Vec::new();
        asked();
        for spec in host::COLLECTORS.iter().filter(|spec| collectors.contains(&spec.name)) {
            let mut collector = (spec.make)(&setup);
            let mut cx = ReadContext::new(&host, BootTime(0), Depth::Full);
            let found = collector.discover(&mut cx).unwrap();
            let listing = asked();
            let mut readers = Vec::new();
            for found in found {
                let facts = collector.open(&found).read(&mut cx);
                readers.push(CleanReader { found, facts, asked: asked() });
            }
            assert_eq!(cx.faults, [], "{}", spec.name);
            clean.push(Clean { spec: *spec, listing, readers });
        }
        Self { io, host, clean }
    }

    /// Every path that the collectors ask for, and how.
    pub fn paths(&self) -> BTreeMap<PathBuf, BTreeSet<Op>> {
        let mut paths: BTreeMap<PathBuf, BTreeSet<Op>> = BTreeMap::new();
        let readers = |clean: &Clean| clean.readers.iter().flat_map(|reader| reader.asked.clone()).collect::<Asked>();
        for (op, path) in self.clean.iter().flat_map(|clean| clean.listing.clone().into_iter().chain(readers(clean))) {
            paths.entry(path).or_default().insert(op);
        }
        paths
    }

    /// The collectors that ask for a path, and for each whether its listing does and which of its readers do.
    pub fn who_asks(&self, path: &Path, ops: &[Op]) -> BTreeMap<&'static str, (bool, Vec<Arc<str>>)> {
        let asks = |asked: &Asked| ops.iter().any(|op| asked.contains(&(*op, path.to_owned())));
        let of = |clean: &Clean| {
            let readers =
                clean.readers.iter().filter(|reader| asks(&reader.asked)).map(|reader| Arc::clone(&reader.found.key));
            (clean.spec.name, (asks(&clean.listing), readers.collect::<Vec<_>>()))
        };
        self.clean.iter().map(of).filter(|(_, (listing, readers))| *listing || !readers.is_empty()).collect()
    }

    /// A trial of the host with a path about to be spoilt; none for the clean host.
    pub fn trial(&self, spoilt: Option<&Path>) -> Trial<'_> {
        let setup = Setup { host: self.host.clone(), filter: Filter::default() };
        // What is below a path follows it.
        let begins = spoilt.map(|path| Op::ALL.map(|op| (op, path.to_owned())));
        let affects = |asked: &Asked| {
            let below = |(op, path): &(Op, PathBuf)| {
                let next = asked.range((*op, path.clone())..).next();
                next.is_some_and(|(other, at)| other == op && at.starts_with(path))
            };
            begins.as_ref().is_none_or(|begins| begins.iter().any(below))
        };
        let parts = self.clean.iter().map(|clean| Part {
            collector: (clean.spec.make)(&setup),
            all: affects(&clean.listing),
            clean,
            affected: clean
                .readers
                .iter()
                .filter(|reader| affects(&reader.asked))
                .map(|reader| Arc::clone(&reader.found.key))
                .collect(),
            readers: BTreeMap::new(),
        });
        Trial { host: &self.host, parts: parts.collect(), engine: Engine::new(Arc::default(), true) }
    }
}

/// A collector in a trial.
struct Part<'a> {
    collector: Box<dyn Collector>,
    clean: &'a Clean,
    /// Whether the listing is concerned, and with it all readers.
    all: bool,
    affected: BTreeSet<Arc<str>>,
    readers: BTreeMap<Arc<str>, Box<dyn DeviceReader>>,
}

/// A host read with something spoilt, and read again.
pub struct Trial<'a> {
    host: &'a Host,
    parts: Vec<Part<'a>>,
    engine: Engine,
}

impl Trial<'_> {
    /// Reads the host so long after its boot.
    pub fn read(&mut self, since: Duration) -> Seen {
        let now = Timestamp { tick: BootTime(0).after(since), wall: SystemTime::UNIX_EPOCH + since };
        let mut seen = Seen { now, facts: Vec::new(), listed: Vec::new(), faults: Vec::new(), errors: BTreeMap::new() };
        for part in &mut self.parts {
            let (facts, listed, faults) = part.cx(self.host, now.tick);
            seen.facts.extend(facts);
            seen.listed.push((part.clean.spec.name, listed));
            for fault in faults {
                *seen.errors.entry((part.clean.spec.name, fault.reason)).or_default() += 1;
                seen.faults.push((part.clean.spec.name, fault));
            }
        }
        seen
    }

    /// What is said of what was read: samples, a line each.
    pub fn say(&mut self, seen: &Seen) -> Vec<String> {
        let state = |(name, listed): &(&'static str, Option<Keys>)| CollectorState {
            name,
            success: listed.is_some(),
            listed: listed.clone(),
            faults: seen.faults.iter().filter(|(of, _)| of == name).map(|(_, fault)| fault.clone()).collect(),
            ..CollectorState::default()
        };
        let states = seen.listed.iter().map(state).collect();
        let report = Arc::new(self.engine.observe(Snapshot::new(seen.now, seen.facts.iter().cloned(), states)));
        let mut text = String::with_capacity(1 << 18);
        encode(Format::Text, &report, &Arc::default(), Process::default(), &mut text).unwrap();
        text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    }
}

type Keys = Arc<[Arc<str>]>;

impl Part<'_> {
    fn cx(&mut self, host: &Host, now: BootTime) -> (Vec<Fact>, Option<Keys>, Vec<Fault>) {
        if !self.all && self.affected.is_empty() {
            let readers = &self.clean.readers;
            let facts = readers.iter().flat_map(|reader| reader.facts.iter().cloned()).collect();
            return (facts, Some(readers.iter().map(|reader| Arc::clone(&reader.found.key)).collect()), Vec::new());
        }
        let mut cx = ReadContext::new(host, now, Depth::Full);
        let listed = self.collector.discover(&mut cx);
        if let Ok(found) = &listed {
            self.readers.retain(|key, _| found.iter().any(|found| found.key == *key));
        }
        let mut facts = Vec::new();
        for found in listed.iter().flatten() {
            let clean = self.clean.readers.iter().find(|reader| reader.found == *found);
            match clean {
                Some(clean) if !self.all && !self.affected.contains(&found.key) => facts.extend(clean.facts.clone()),
                _ => {
                    let reader =
                        self.readers.entry(Arc::clone(&found.key)).or_insert_with(|| self.collector.open(found));
                    facts.extend(reader.read(&mut cx));
                }
            }
        }
        let keys = listed.ok().map(|found| found.into_iter().map(|found| found.key).collect());
        (facts, keys, cx.faults)
    }
}
