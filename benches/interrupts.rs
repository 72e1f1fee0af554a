//! What a pass over `/proc/interrupts` costs on the largest host, against `node_exporter`'s collector on the same file.
//!
//! 512 CPUs, 4,096 rows, eight cards of 64 vectors. Prints CPU time a pass, their ratio, and how many series each has.

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

use std::fmt::Write as _;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use common::run::{Server, free_address};
use common::tools::{Tool, require};
use lanewatch::host::collector::{Filter, Setup};
use lanewatch::host::fs::Fs;
use lanewatch::host::io::Roots;
use lanewatch::host::{Depth, Host, Pass, irq};
use lanewatch::model::irq::IrqFunction;
use lanewatch::model::time::Tick;
use rustix::time::{ClockId, clock_gettime};
use tempfile::TempDir;

const CPUS: u32 = 512;
const ROWS: u32 = 4096;
const CARDS: u32 = 8;
const VECTORS: u32 = 64;

/// The most that a pass may cost, as a share of the other's.
const LIMIT: f64 = 0.1;

fn address(card: u32) -> String {
    format!("0000:{:02x}:00.0", 0x10 + card * 8)
}

fn table() -> String {
    let mut text = String::from("     ");
    for cpu in 0..CPUS {
        let _ = write!(text, "{:>11}", format!("CPU{cpu}"));
    }
    for irq in 0..ROWS {
        let _ = write!(text, "\n{irq:>4}:");
        for cpu in 0..CPUS {
            let _ = write!(text, "{:>11}", if cpu == irq % CPUS { 1_000_000 + irq } else { (cpu * irq) % 3 });
        }
        let (card, queue) = (irq / VECTORS % CARDS, irq % VECTORS);
        let address = address(card);
        let _ = write!(text, "  IR-PCI-MSIX-{address}  {queue}-edge      mlx5_comp{queue}@pci:{address}");
    }
    text.push('\n');
    text
}

fn write_host(root: &Path) {
    fs::create_dir_all(root.join("proc")).unwrap();
    fs::write(root.join("proc/interrupts"), table()).unwrap();
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

/// CPU time of this process.
fn own_cpu() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap()).as_secs_f64()
}

/// CPU time of another process, to a hundredth of a second.
fn cpu_of(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks: u32 = [11, 12].iter().map(|at| fields[*at].parse::<u32>().unwrap()).sum();
    f64::from(ticks) / rustix::param::clock_ticks_per_second() as f64
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

/// CPU seconds a pass, and series.
fn lanewatch(root: &Path, passes: u32) -> (f64, usize) {
    let roots = Roots::below(root);
    let (sysfs, procfs) = (root.join("sys"), root.join("proc"));
    let host = Host { io: Arc::new(Fs::new()), sysfs, procfs, roots, route: None, live: false };
    let mut collector = (irq::SPEC.make)(&Setup { host: host.clone(), filter: Filter::default() });
    let mut pass = Pass::new(&host, Tick(0), Depth::Full);
    let found = collector.discover(&mut pass).unwrap();
    let mut lane = collector.open(&found[0]);
    lane.read(&mut pass);
    let before = own_cpu();
    let mut functions = 0;
    for _ in 0..passes {
        let facts = lane.read(&mut pass);
        let vectors = facts.iter().filter_map(|fact| fact.downcast_ref::<IrqFunction>());
        functions = vectors.filter(|function| function.vectors.iter().all(|vector| vector.counts.is_some())).count();
    }
    assert_eq!(functions, CARDS as usize);
    assert!(pass.faults.is_empty(), "{:?}", pass.faults);
    ((own_cpu() - before) / f64::from(passes), functions * 8)
}

/// CPU seconds a scrape, and series.
fn node_exporter(program: &Path, root: &Path, scrapes: u32) -> (f64, usize) {
    let (address, directory) = (free_address(), TempDir::new().unwrap());
    let mut command = Command::new(program);
    command.args(["--collector.disable-defaults", "--collector.interrupts", "--web.disable-exporter-metrics"]);
    command.arg(format!("--path.procfs={}", root.join("proc").display()));
    command.arg(format!("--web.listen-address={address}"));
    let server = Server::spawn(command, address, directory, "/");
    let before = cpu_of(server.group.pid());
    let mut samples = 0;
    for _ in 0..scrapes {
        samples = scrape(address);
    }
    ((cpu_of(server.group.pid()) - before) / f64::from(scrapes), samples)
}

fn main() -> ExitCode {
    let directory = TempDir::new().unwrap();
    write_host(directory.path());
    let (own, own_series) = lanewatch(directory.path(), 20);
    println!("interrupts: {CPUS} CPUs x {ROWS} rows, {CARDS} cards of {VECTORS} vectors");
    println!("  lanewatch      {:8.1} ms CPU a pass    {own_series} series", own * 1e3);
    let Some(program) = require(Tool::NodeExporter) else { return ExitCode::SUCCESS };
    let (other, other_series) = node_exporter(&program, directory.path(), 2);
    println!("  node_exporter  {:8.1} ms CPU a scrape  {other_series} series", other * 1e3);
    let ratio = own / other;
    let within = ratio <= LIMIT;
    println!("  ratio          {ratio:8.4}  (limit {LIMIT}) {}", if within { "ok" } else { "TOO MUCH" });
    if within { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
