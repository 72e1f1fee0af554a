//! Reading, parsing and judging a host against the bare `pread` of the same files through descriptors that are kept
//! open, and how that grows with the number of cards. Encoding stands apart.
//!
//! `cargo bench --bench pass`

#![allow(missing_docs, unreachable_pub, reason = "a program, not a library")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::cast_precision_loss, reason = "a benchmark")]

#[path = "../tests/common/host.rs"]
#[allow(dead_code, reason = "shared with the tests")]
mod host;
mod limits;
#[path = "../tests/common/tree.rs"]
#[allow(dead_code, reason = "shared with the tests")]
mod tree;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lanewatch::export::{AgentState, Format, Process, encode};
use lanewatch::host::collector::{Filter, Setup};
use lanewatch::host::fs::Fs;
use lanewatch::host::io::{DirStamp, OpenFile, Roots};
use lanewatch::host::{COLLECTORS, Collector, Depth, DeviceReader, Host, HostIo, ReadContext, Spec};
use lanewatch::model::policy::Policy;
use lanewatch::model::snapshot::{CollectorState, Fact, Snapshot};
use lanewatch::model::time::BootTime;
use lanewatch::watch::Engine;
use lanewatch::watch::clock::{Clock as _, SystemClock};
use limits::{Limits, median, micros, own_cpu, scratch};
use rustix::fs::{Mode, OFlags};

const ROUNDS: u32 = 100;

/// The most that reading, parsing and judging may cost, as a multiple of the bare reads.
const LIMIT: f64 = 3.0;

fn main() {
    println!(
        "{:>5} {:>6} {:>11} {:>11} {:>7} {:>11} {:>11}",
        "cards", "files", "floor us", "pass us", "ratio", "judge us", "encode us"
    );
    let mut ratios = Vec::new();
    for cards in [8, 16, 32, 64] {
        let dir = scratch();
        host::HostTree::new(cards).write(dir.path()).unwrap();
        let measured = measure(dir.path());
        let ratio = measured.cx.as_secs_f64() / measured.floor.as_secs_f64();
        println!(
            "{cards:>5} {:>6} {:>11.1} {:>11.1} {ratio:>7.2} {:>11.1} {:>11.1}",
            measured.files,
            micros(measured.floor),
            micros(measured.cx),
            micros(measured.judge),
            micros(measured.encode)
        );
        ratios.push((cards, ratio));
    }
    let mut limits = Limits::default();
    let (first, last) = (&ratios[0], &ratios[ratios.len() - 1]);
    limits.at_most(&format!("reading, parsing and judging {} cards / bare reads", first.0), first.1, LIMIT);
    // The bare reads of many files cost more each, too: what counts is how the pass grows beside them.
    limits.at_most("growth of the pass from 8 to 64 cards / growth of the bare reads", last.1 / first.1, 1.25);
    limits.conclude();
}

struct Measured {
    files: usize,
    floor: Duration,
    cx: Duration,
    judge: Duration,
    encode: Duration,
}

/// The mean cost of a run of `work`, of five runs each so that listings count with their share; the median of those.
fn cost(mut run: impl FnMut()) -> Duration {
    let mut work = || (0..5).for_each(|_| run());
    let costs = (0..ROUNDS).map(|_| {
        let before = own_cpu();
        work();
        own_cpu().saturating_sub(before)
    });
    median(costs.collect()) / 5
}

fn measure(root: &Path) -> Measured {
    let read = files_of_a_pass(root);
    let mut collectors = Collectors::new(root, Arc::new(Fs::new()));
    let mut engine = Engine::new(Arc::new(Policy::default()), false);
    let mut now = 0;
    // The first pass opens files and the second settles what is read seldom.
    for _ in 0..2 {
        now += 1;
        let facts = collectors.read(BootTime(now));
        engine.observe(collectors.snapshot(facts));
    }
    let cx = cost(|| {
        now += 1;
        let facts = collectors.read(BootTime(now));
        engine.observe(collectors.snapshot(facts));
    });
    now += 1;
    let facts = collectors.read(BootTime(now));
    let judge = cost(|| {
        engine.observe(collectors.snapshot(facts.clone()));
    });
    let report = Arc::new(engine.observe(collectors.snapshot(facts.clone())));
    let agent = Arc::new(AgentState::default());
    let mut text = String::new();
    let encode = cost(|| {
        text.clear();
        encode(Format::Text, &report, &agent, Process::default(), &mut text).unwrap();
    });
    let open = |path: &PathBuf| rustix::fs::open(path, OFlags::RDONLY, Mode::empty()).unwrap();
    let kept: Vec<OwnedFd> = read.iter().map(open).collect();
    let mut buffer = [0; 4097];
    let floor = cost(|| {
        for fd in &kept {
            std::hint::black_box(rustix::io::pread(fd, &mut buffer, 0).unwrap());
        }
    });
    Measured { files: kept.len(), floor, cx, judge, encode }
}

struct Running {
    spec: &'static Spec,
    collector: Box<dyn Collector>,
    readers: Vec<Box<dyn DeviceReader>>,
    keys: Vec<Arc<str>>,
}

/// The collectors and their readers, read one after the other without threads.
struct Collectors {
    host: Host,
    running: Vec<Running>,
    seldom: Option<Vec<Fact>>,
    passes: u32,
}

impl Collectors {
    fn new(root: &Path, io: Arc<dyn HostIo>) -> Self {
        let (sysfs, procfs, roots) = (root.join("sys"), root.join("proc"), Roots::below(root));
        let host = Host { io, sysfs, procfs, roots, route: None, ethtool: None, live: false };
        let setup = Setup { host: host.clone(), filter: Filter::default() };
        let start = |spec: &'static Spec| Running {
            spec,
            collector: (spec.make)(&setup),
            readers: Vec::new(),
            keys: Vec::new(),
        };
        let running = COLLECTORS.iter().map(start).collect();
        Self { host, running, seldom: None, passes: 0 }
    }

    /// A pass as a scrape asks for it: what is to be fresh. The others are read at the first pass and keep their facts.
    fn read(&mut self, now: BootTime) -> Vec<Fact> {
        let first = self.seldom.is_none();
        let mut facts = self.seldom.clone().unwrap_or_default();
        let mut seldom = Vec::new();
        let mut cx =
            ReadContext { listed: self.passes.is_multiple_of(5), ..ReadContext::new(&self.host, now, Depth::Full) };
        for Running { spec, collector, readers, keys } in &mut self.running {
            if !spec.fresh && !first {
                continue;
            }
            // The poller lists anew every five seconds; with a scrape a second, at every fifth.
            let found = if cx.listed { collector.discover(&mut cx).unwrap() } else { Vec::new() };
            if first {
                readers.extend(found.iter().map(|found| collector.open(found)));
                keys.extend(found.iter().map(|found| Arc::clone(&found.key)));
            }
            let read: Vec<Fact> = readers.iter_mut().flat_map(|reader| reader.read(&mut cx)).collect();
            if !spec.fresh {
                seldom.extend(read.iter().cloned());
            }
            facts.extend(read);
        }
        self.seldom.get_or_insert(seldom);
        self.passes += 1;
        facts
    }

    fn snapshot(&self, facts: Vec<Fact>) -> Snapshot {
        let state = |running: &Running| CollectorState {
            name: running.spec.name,
            success: true,
            listed: Some(running.keys.as_slice().into()),
            ..CollectorState::default()
        };
        Snapshot::new(SystemClock.now(), facts, self.running.iter().map(state).collect())
    }
}

/// The files that a pass reads when nothing changes, each as often as it is read.
fn files_of_a_pass(root: &Path) -> Vec<PathBuf> {
    let reads: Reads = Arc::default();
    let recorder = Recorder { inner: Fs::new(), reads: Arc::clone(&reads) };
    let mut collectors = Collectors::new(root, Arc::new(recorder));
    for now in 0..3 {
        reads.lock().unwrap().clear();
        collectors.read(BootTime(now));
    }
    reads.lock().unwrap().clone()
}

type Reads = Arc<Mutex<Vec<PathBuf>>>;

/// Notes which files are read.
struct Recorder {
    inner: Fs,
    reads: Reads,
}

struct Recorded {
    inner: Box<dyn OpenFile>,
    path: PathBuf,
    reads: Reads,
}

impl OpenFile for Recorded {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.reads.lock().unwrap().push(self.path.clone());
        self.inner.read(buffer)
    }
}

impl HostIo for Recorder {
    fn open(&self, path: &Path) -> std::io::Result<Box<dyn OpenFile>> {
        let inner = self.inner.open(path)?;
        Ok(Box::new(Recorded { inner, path: path.to_owned(), reads: Arc::clone(&self.reads) }))
    }

    fn list(&self, path: &Path) -> std::io::Result<Vec<String>> {
        self.inner.list(path)
    }

    fn link(&self, path: &Path) -> std::io::Result<PathBuf> {
        self.inner.link(path)
    }

    fn stamp(&self, path: &Path) -> std::io::Result<DirStamp> {
        self.inner.stamp(path)
    }
}
