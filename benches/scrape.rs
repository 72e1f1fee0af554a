//! What a scrape costs, side by side with node_exporter on the same host.
//!
//! Both read a written host with eight cards, 21 counters and 29 hw_counters a port; node_exporter, with its InfiniBand
//! collector alone, reads fewer files. They are scraped in turn at two paces. Ten times a second, ours shares one reading
//! among the scrapes of a second, as it does among several scrapers. More than a second apart, every scrape of ours is a
//! reading of its own; beside that stands what the bare `pread` of the counters costs at the same pace, with caches as
//! cold. `SCRAPES` and `CARDS` in the environment change the numbers.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a bench")]

#[path = "../tests/common/mod.rs"]
mod common;
mod limits;

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use common::cost::{cpu_time, open_files, peak_memory, threads};
use common::exposition::parse;
use common::host::HostTree;
use common::run::Server;
use common::tools::{Tool, node_exporter, require};
use limits::{Limits, mib};

/// Apart enough that no scrape is answered with the last one's facts, which may be a second old.
const APART: Duration = Duration::from_millis(1100);

/// Ten scrapes a second.
const OFTEN: Duration = Duration::from_millis(100);

fn main() {
    let (scrapes, cards) = (limits::setting("SCRAPES", 30), limits::setting("CARDS", 8));
    let host = limits::scratch();
    HostTree::new(cards).write(host.path()).unwrap();
    let sysfs = host.path().join("sys");
    let Some(theirs) = require(Tool::NodeExporter).map(|program| node_exporter(&program, &sysfs)) else { return };
    let ours = start(&sysfs, &host.path().join("proc"));
    let counters = counters(&sysfs);
    let often = measure([&ours, &theirs], scrapes * 10, OFTEN, &counters);
    let apart = measure([&ours, &theirs], scrapes, APART, &counters);
    println!("{cards} cards, CPU a scrape: ten scrapes a second, and scrapes {APART:?} apart");
    println!("lanewatch:     {}, {}; {}", millis(often.ours), millis(apart.ours), describe(&ours));
    println!("node_exporter: {}, {}; {}", millis(often.theirs), millis(apart.theirs), describe(&theirs));
    println!("bare pread:    {}, {}; {} counters", millis(often.bare), millis(apart.bare), counters.len());
    let (our_memory, their_memory) = (peak_memory(ours.group.pid()), peak_memory(theirs.group.pid()));
    let mut limits = Limits::default();
    limits.at_most("CPU a scrape at ten a second, of node_exporter's", often.of_theirs(), 0.25);
    limits.at_most("CPU a scrape over a second apart, of node_exporter's", apart.of_theirs(), 1.0);
    limits.at_most("peak memory, MiB", mib(our_memory), 12.0);
    limits.at_most("peak memory, of node_exporter's", mib(our_memory) / mib(their_memory), 0.6);
    limits.conclude();
}

/// Mean CPU times at one pace: a scrape of ours, of theirs, and the bare reads.
struct Pace {
    ours: Duration,
    theirs: Duration,
    bare: Duration,
}

impl Pace {
    fn of_theirs(&self) -> f64 {
        self.ours.as_secs_f64() / self.theirs.as_secs_f64()
    }
}

/// Every counter file of the host, kept open.
fn counters(sysfs: &Path) -> Vec<File> {
    let below = |path: PathBuf| fs::read_dir(path).into_iter().flatten().map(|entry| entry.unwrap().path());
    let ports = below(sysfs.join("class/infiniband")).flat_map(|device| below(device.join("ports")));
    let folders = ports.flat_map(|port| ["counters", "hw_counters"].map(|folder| port.join(folder)));
    folders.flat_map(below).map(|path| File::open(path).unwrap()).collect()
}

/// Ours on the same host.
fn start(sysfs: &Path, procfs: &Path) -> Server {
    let arguments: [PathBuf; 4] = ["--path.sysfs".into(), sysfs.into(), "--path.procfs".into(), procfs.into()];
    Server::start("serve", &arguments)
}

/// Costs of both, scraped in turn, and of the bare reads in the same breath. What a process does between scrapes is its
/// cost too.
fn measure(servers: [&Server; 2], scrapes: u32, apart: Duration, counters: &[File]) -> Pace {
    for server in servers {
        // The first scrape finds nothing prepared.
        assert_eq!(server.get("/metrics").status, 200);
    }
    let spent = || servers.map(|server| cpu_time(server.group.pid()));
    let ([ours, theirs], mut bare) = (spent(), Duration::ZERO);
    let mut buffer = [0; 64];
    for _ in 0..scrapes {
        let next = Instant::now() + apart;
        for server in servers {
            assert_eq!(server.get("/metrics").status, 200);
        }
        let began = limits::own_cpu();
        for file in counters {
            std::hint::black_box(file.read_at(&mut buffer, 0).unwrap());
        }
        bare += limits::own_cpu().saturating_sub(began);
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    let [ours_after, theirs_after] = spent();
    let mean = |cost: Duration| cost / scrapes;
    Pace {
        ours: mean(ours_after.saturating_sub(ours)),
        theirs: mean(theirs_after.saturating_sub(theirs)),
        bare: mean(bare),
    }
}

fn millis(cost: Duration) -> String {
    format!("{:.2} ms", cost.as_secs_f64() * 1e3)
}

fn describe(server: &Server) -> String {
    let (pid, answer) = (server.group.pid(), server.get("/metrics"));
    let samples = parse(&answer.text()).unwrap().len();
    let (memory, files, threads) = (mib(peak_memory(pid)), open_files(pid), threads(pid));
    format!(
        "peak {memory:.1} MiB, {samples} samples, {} KiB, {files} files, {threads} threads",
        answer.body.len() / 1024
    )
}
