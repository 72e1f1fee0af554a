//! What a pass over `/proc/interrupts` costs on the largest host, against `node_exporter`'s collector on the same file.
//!
//! 512 CPUs, 4,096 rows, eight cards of 64 vectors: CPU time a pass and a scrape, how many series each has, and the
//! most memory that a pass needs, of this file and of one eight times as long.
//!
//! `cargo bench --bench interrupts`

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    clippy::cast_precision_loss,
    clippy::indexing_slicing,
    reason = "a bench"
)]

#[path = "../tests/common/mod.rs"]
mod common;
mod limits;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufWriter, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use common::cost::{cpu_time, peak_memory};
use common::exposition::parse;
use common::run::{Server, free_address};
use common::tools::{Tool, require};
use lanewatch::export::{Format, Process, encode};
use lanewatch::host::collector::{Filter, Setup};
use lanewatch::host::fs::Fs;
use lanewatch::host::io::Roots;
use lanewatch::host::{Depth, DeviceReader, Host, ReadContext, irq};
use lanewatch::model::irq::IrqFunction;
use lanewatch::model::snapshot::{CollectorState, Fact, Snapshot};
use lanewatch::model::time::BootTime;
use lanewatch::watch::Engine;
use lanewatch::watch::clock::{Clock as _, SystemClock};
use limits::{Limits, mib, own_cpu, scratch};
use tempfile::TempDir;

const CPUS: u32 = 512;
const ROWS: u32 = 4096;
const CARDS: u32 = 8;
const VECTORS: u32 = 64;

/// The most that a pass may cost, as a share of the other's.
const LIMIT: f64 = 0.1;

/// The most series of a function and locality.
const SERIES: f64 = 4.0;

/// The most memory in MiB by which a pass over a file eight times as long may need more.
const GROWTH: f64 = 1.0;

fn address(card: u32) -> String {
    format!("0000:{:02x}:00.0", 0x10 + card * 8)
}

/// Row by row, so that the making of it needs no memory that would be measured.
fn write_table(path: &Path, rows: u32) -> std::io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    write!(file, "     ")?;
    for cpu in 0..CPUS {
        write!(file, "{:>11}", format!("CPU{cpu}"))?;
    }
    for irq in 0..rows {
        write!(file, "\n{irq:>4}:")?;
        for cpu in 0..CPUS {
            write!(file, "{:>11}", if cpu == irq % CPUS { 1_000_000 + irq } else { (cpu * irq) % 3 })?;
        }
        let (card, queue) = (irq / VECTORS % CARDS, irq % VECTORS);
        let address = address(card);
        write!(file, "  IR-PCI-MSIX-{address}  {queue}-edge      mlx5_comp{queue}@pci:{address}")?;
    }
    writeln!(file)?;
    file.flush()
}

fn write_host(root: &Path) {
    fs::create_dir_all(root.join("proc")).unwrap();
    write_table(&root.join("proc/interrupts"), ROWS).unwrap();
    fs::create_dir_all(root.join("sys/class/infiniband")).unwrap();
    for card in 0..CARDS {
        let name = format!("mlx5_{card}");
        let below = format!("devices/pci0000:10/{}", address(card));
        let device = root.join("sys").join(&below).join("infiniband").join(&name);
        fs::create_dir_all(&device).unwrap();
        symlink(format!("../../../{}", address(card)), device.join("device")).unwrap();
        symlink(format!("../../{below}/infiniband/{name}"), root.join("sys/class/infiniband").join(&name)).unwrap();
        fs::write(root.join("sys").join(&below).join("numa_node"), "0\n").unwrap();
        fs::create_dir_all(root.join("sys").join(&below).join("msi_irqs")).unwrap();
        for queue in 0..VECTORS {
            let irq = card * VECTORS + queue;
            fs::write(root.join("sys").join(&below).join(format!("msi_irqs/{irq}")), "msix\n").unwrap();
            let affinity = root.join(format!("proc/irq/{irq}"));
            fs::create_dir_all(&affinity).unwrap();
            fs::write(affinity.join("effective_affinity_list"), format!("{}\n", irq % CPUS)).unwrap();
            fs::write(affinity.join("smp_affinity_list"), format!("0-{}\n", CPUS - 1)).unwrap();
        }
    }
}

/// Asks for metrics and lets them go by; how many lines are samples.
fn scrape(address: SocketAddr) -> usize {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: bench\r\n\r\n").unwrap();
    let (mut buffer, mut samples, mut start) = (vec![0; 1 << 20], 0, true);
    loop {
        let length = stream.read(&mut buffer).unwrap();
        if length == 0 {
            return samples;
        }
        for byte in &buffer[..length] {
            samples += usize::from(start && *byte == b'n');
            start = *byte == b'\n';
        }
    }
}

/// The collector on this host.
struct Own {
    host: Host,
    reader: Box<dyn DeviceReader>,
}

impl Own {
    fn new(root: &Path) -> Self {
        let (sysfs, procfs, roots) = (root.join("sys"), root.join("proc"), Roots::below(root));
        let host = Host { io: Arc::new(Fs::new()), sysfs, procfs, roots, route: None, ethtool: None, live: false };
        let mut collector = (irq::SPEC.make)(&Setup { host: host.clone(), filter: Filter::default() });
        let found = collector.discover(&mut ReadContext::new(&host, BootTime(0), Depth::Full)).unwrap();
        let reader = collector.open(&found[0]);
        Self { host, reader }
    }

    fn cx(&mut self) -> Vec<Fact> {
        let mut cx = ReadContext::new(&self.host, BootTime(0), Depth::Full);
        let facts = self.reader.read(&mut cx);
        assert!(cx.faults.is_empty(), "{:?}", cx.faults);
        let functions = facts.iter().filter_map(|fact| fact.downcast_ref::<IrqFunction>());
        let counted = functions.filter(|function| function.vectors.iter().all(|vector| vector.counts.is_some()));
        assert_eq!(counted.count(), CARDS as usize);
        facts
    }

    /// CPU seconds a pass.
    fn cost(&mut self, passes: u32) -> f64 {
        self.cx();
        let before = own_cpu();
        for _ in 0..passes {
            self.cx();
        }
        own_cpu().saturating_sub(before).as_secs_f64() / f64::from(passes)
    }

    /// The most memory of this process during some passes, in bytes.
    fn peak(&mut self) -> u64 {
        // The peak so far is forgotten (proc(5)).
        fs::write("/proc/self/clear_refs", "5").unwrap();
        (0..3).for_each(|_| drop(self.cx()));
        peak_memory(std::process::id())
    }

    /// Series about interrupts: all, and the most of a function and locality.
    fn series(&mut self) -> (usize, usize) {
        let mut engine = Engine::new(Arc::default(), false);
        let state = CollectorState { name: irq::SPEC.name, success: true, ..CollectorState::default() };
        let report = engine.observe(Snapshot::new(SystemClock.now(), self.cx(), vec![state]));
        let mut text = String::new();
        encode(Format::Text, &Arc::new(report), &Arc::default(), Process::default(), &mut text).unwrap();
        let samples = parse(&text).unwrap();
        let own: Vec<_> = samples.iter().filter(|sample| sample.name.starts_with("lanewatch_irq_")).collect();
        let mut places: BTreeMap<_, usize> = BTreeMap::new();
        for sample in &own {
            *places.entry((sample.labels.get("pci_address"), sample.labels.get("locality"))).or_default() += 1;
        }
        assert!(places.keys().filter(|(function, _)| function.is_some()).count() >= CARDS as usize);
        (own.len(), places.values().copied().max().unwrap())
    }
}

/// CPU seconds a scrape, and series.
fn node_exporter(program: &Path, root: &Path, scrapes: u32) -> (f64, usize) {
    let (address, directory) = (free_address(), TempDir::new().unwrap());
    let mut command = Command::new(program);
    command.args(["--collector.disable-defaults", "--collector.interrupts", "--web.disable-exporter-metrics"]);
    command.arg(format!("--path.procfs={}", root.join("proc").display()));
    command.arg(format!("--web.listen-address={address}"));
    let server = Server::spawn(command, address, directory, "/");
    let before = cpu_time(server.group.pid());
    let mut samples = 0;
    for _ in 0..scrapes {
        samples = scrape(address);
    }
    (cpu_time(server.group.pid()).saturating_sub(before).as_secs_f64() / f64::from(scrapes), samples)
}

fn main() {
    let directory = scratch();
    write_host(directory.path());
    let mut limits = Limits::default();
    println!("interrupts: {CPUS} CPUs x {ROWS} rows, {CARDS} cards of {VECTORS} vectors");
    let mut lanewatch = Own::new(directory.path());
    let own = lanewatch.cost(20);
    let (own_series, most) = lanewatch.series();
    println!("  lanewatch      {:8.1} ms CPU a pass    {own_series} series", own * 1e3);
    limits.at_most("series of a function and locality", most as f64, SERIES);
    let peak = lanewatch.peak();
    write_table(&directory.path().join("proc/interrupts"), 8 * ROWS).unwrap();
    let length = fs::metadata(directory.path().join("proc/interrupts")).unwrap().len();
    let longer = lanewatch.peak();
    println!("  peak memory {:.1} MiB, with a file of {:.0} MiB {:.1} MiB", mib(peak), mib(length), mib(longer));
    limits.at_most("growth of the peak in MiB", mib(longer) - mib(peak), GROWTH);
    write_table(&directory.path().join("proc/interrupts"), ROWS).unwrap();
    if let Some(program) = require(Tool::NodeExporter) {
        let (other, other_series) = node_exporter(&program, directory.path(), 2);
        println!("  node_exporter  {:8.1} ms CPU a scrape  {other_series} series", other * 1e3);
        limits.at_most("CPU a pass / node_exporter's a scrape", own / other, LIMIT);
    }
    limits.conclude();
}
