//! What a scrape costs, side by side with node_exporter on the same host.
//!
//! Both read a written host with eight cards, 21 counters and 29 hw_counters a port; node_exporter, with its InfiniBand
//! collector alone, reads fewer files. They are scraped in turn at three paces:
//!
//! - ten times a second: ours shares one reading among the scrapes of a second, as it does among several scrapers;
//! - more than a second apart: every scrape of ours is a reading of its own. Costs are those of the whole time, so what
//!   ours reads by itself every 5 s is in them;
//! - once in 15 s, as Prometheus is mostly configured: CPU caches are swept before each scrape, since a host has had 15 s
//!   of other work to do. The cost is that of the scrape alone, from just before the request until nothing runs any
//!   more; what each process does between scrapes is printed beside it, and `cargo bench --bench idle` limits it.
//!
//! Beside them stands what the bare `pread` of the counters costs at the same pace. `SCRAPES`, `CARDS`, `SPARSE` (how
//! many scrapes 15 s apart) and `INTERVAL` (seconds, in place of 15) in the environment change the numbers.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a bench")]

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

/// After so long nothing runs any more that a scrape has set off.
const SETTLED: Duration = Duration::from_millis(50);

/// More than the caches of a core and its neighbours hold.
const SWEPT: usize = 64 << 20;

fn main() {
    let (scrapes, cards) = (limits::setting("SCRAPES", 30), limits::setting("CARDS", 8));
    let (sparse, interval) = (limits::setting("SPARSE", 8), Duration::from_secs(limits::setting("INTERVAL", 15)));
    let host = limits::scratch();
    HostTree::new(cards).write(host.path()).unwrap();
    let sysfs = host.path().join("sys");
    let Some(theirs) = require(Tool::NodeExporter).map(|program| node_exporter(&program, &sysfs)) else { return };
    let ours = start(&sysfs, &host.path().join("proc"));
    let counters = counters(&sysfs);
    let often = measure([&ours, &theirs], scrapes * 10, OFTEN, &counters);
    let apart = measure([&ours, &theirs], scrapes, APART, &counters);
    let (alone, between) = measure_sparse([&ours, &theirs], sparse, interval, &counters);
    println!("{cards} cards, CPU a scrape:");
    println!("                ten a second, {APART:?} apart, {interval:?} apart (and in between)");
    let line = |often, apart, alone| format!("{}, {}, {}", millis(often), millis(apart), millis(alone));
    let costs = line(often.ours, apart.ours, alone.ours);
    println!("lanewatch:      {costs} ({}); {}", millis(between.ours), describe(&ours));
    let costs = line(often.theirs, apart.theirs, alone.theirs);
    println!("node_exporter:  {costs} ({}); {}", millis(between.theirs), describe(&theirs));
    println!("bare pread:     {}; {} counters", line(often.bare, apart.bare, alone.bare), counters.len());
    let (our_memory, their_memory) = (peak_memory(ours.group.pid()), peak_memory(theirs.group.pid()));
    let mut limits = Limits::default();
    limits.at_most("CPU a scrape at ten a second, of node_exporter's", often.of_theirs(), 0.25);
    limits.at_most("CPU a scrape over a second apart, of node_exporter's", apart.of_theirs(), 1.0);
    limits.at_most("CPU a scrape, one in 15 s, of node_exporter's", alone.of_theirs(), 0.5);
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

/// Costs of single scrapes this far apart with cold CPU caches, and of the time between them.
fn measure_sparse(servers: [&Server; 2], scrapes: u32, interval: Duration, counters: &[File]) -> (Pace, Pace) {
    let spent = |server: &Server| cpu_time(server.group.pid());
    let mut swept = vec![1_u8; SWEPT];
    let (mut alone, mut whole, mut bare) = ([Duration::ZERO; 2], [Duration::ZERO; 2], Duration::ZERO);
    let mut buffer = [0; 64];
    for round in 0..scrapes {
        let next = Instant::now() + interval;
        let before = servers.map(spent);
        // Whoever comes second finds the kernel's code warmer: they take turns.
        let order = if round.is_multiple_of(2) { [0, 1] } else { [1, 0] };
        for which in order {
            sweep(&mut swept);
            let began = spent(servers[which]);
            assert_eq!(servers[which].get("/metrics").status, 200);
            thread::sleep(SETTLED);
            alone[which] += spent(servers[which]).saturating_sub(began);
        }
        sweep(&mut swept);
        let began = limits::own_cpu();
        for file in counters {
            std::hint::black_box(file.read_at(&mut buffer, 0).unwrap());
        }
        bare += limits::own_cpu().saturating_sub(began);
        thread::sleep(next.saturating_duration_since(Instant::now()));
        for ((whole, server), before) in whole.iter_mut().zip(servers).zip(before) {
            *whole += spent(server).saturating_sub(before);
        }
    }
    let pace = |[ours, theirs]: [Duration; 2], bare| Pace {
        ours: ours / scrapes,
        theirs: theirs / scrapes,
        bare: bare / scrapes,
    };
    let between = [0, 1].map(|which| whole[which].saturating_sub(alone[which]));
    (pace(alone, bare), pace(between, Duration::ZERO))
}

/// Writes to every cache line of a buffer, so that nothing else is left in the CPU's caches.
fn sweep(buffer: &mut [u8]) {
    for line in buffer.iter_mut().step_by(64) {
        *line = line.wrapping_add(1);
    }
    std::hint::black_box(buffer);
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
