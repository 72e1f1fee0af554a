//! What a scrape costs, side by side with node_exporter on the same host.
//!
//! Both read a written host with eight cards, 21 counters and 29 hw_counters a port; node_exporter, with its InfiniBand
//! collector alone, reads fewer files. They are scraped in turn, more than a second apart, so that every scrape of ours
//! is a reading of its own. `SCRAPES` and `CARDS` in the environment change the numbers.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a bench")]

#[path = "../tests/common/mod.rs"]
mod common;
mod limits;

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use common::cost::{cpu_time, open_files, peak_memory, threads};
use common::exposition::parse;
use common::host::HostTree;
use common::run::Server;
use common::tools::{Tool, node_exporter, require};
use limits::{Limits, mib};
use tempfile::TempDir;

/// Apart enough that no scrape is answered with the last one's facts, which may be a second old.
const APART: Duration = Duration::from_millis(1100);

fn main() {
    let (scrapes, cards) = (limits::setting("SCRAPES", 30), limits::setting("CARDS", 8));
    let host = on_memory();
    HostTree::new(cards).write(host.path()).unwrap();
    let sysfs = host.path().join("sys");
    let Some(theirs) = require(Tool::NodeExporter).map(|program| node_exporter(&program, &sysfs)) else { return };
    let Some(ours) = start(&sysfs, &host.path().join("proc")) else {
        // Theirs alone, so that there is a number to aim at.
        let [cost] = measure([&theirs], scrapes);
        println!("node_exporter: {} of CPU a scrape of {cards} cards, {}", millis(cost), describe(&theirs));
        return;
    };
    let [our_cost, their_cost] = measure([&ours, &theirs], scrapes);
    println!("{cards} cards, {scrapes} scrapes each, {APART:?} apart, in turn");
    println!("lanewatch:     {} of CPU a scrape, {}", millis(our_cost), describe(&ours));
    println!("node_exporter: {} of CPU a scrape, {}", millis(their_cost), describe(&theirs));
    let (our_memory, their_memory) = (peak_memory(ours.group.pid()), peak_memory(theirs.group.pid()));
    let mut limits = Limits::default();
    limits.at_most("CPU per scrape, of node_exporter's", our_cost.as_secs_f64() / their_cost.as_secs_f64(), 0.25);
    limits.at_most("peak memory, MiB", mib(our_memory), 12.0);
    limits.at_most("peak memory, of node_exporter's", mib(our_memory) / mib(their_memory), 0.6);
    limits.conclude();
}

/// A directory in memory where there is one.
fn on_memory() -> TempDir {
    let shared = Path::new("/dev/shm");
    if shared.is_dir() { TempDir::new_in(shared).unwrap() } else { TempDir::new().unwrap() }
}

/// Ours on the same host, when the program can serve.
fn start(sysfs: &Path, procfs: &Path) -> Option<Server> {
    if !common::run::lanewatch(&["serve", "--help"]).stdout.contains("--web.listen-address") {
        println!("lanewatch does not serve yet");
        return None;
    }
    let arguments: [PathBuf; 4] = ["--path.sysfs".into(), sysfs.into(), "--path.procfs".into(), procfs.into()];
    Some(Server::start("serve", &arguments))
}

/// CPU time a scrape, of each, scraped in turn. What a process does between scrapes is its cost too.
fn measure<const N: usize>(servers: [&Server; N], scrapes: u32) -> [Duration; N] {
    for server in servers {
        // The first scrape finds nothing prepared.
        assert_eq!(server.get("/metrics").status, 200);
    }
    let spent = || servers.map(|server| cpu_time(server.group.pid()));
    let mut costs = spent();
    for _ in 0..scrapes {
        let next = Instant::now() + APART;
        for server in servers {
            assert_eq!(server.get("/metrics").status, 200);
        }
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    for (cost, spent) in costs.iter_mut().zip(spent()) {
        *cost = spent.saturating_sub(*cost) / scrapes;
    }
    costs
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
