//! A crowd at the door: 200 scrapers at once, 50 that read slowly, 1,000 that connect and say half a request.
//!
//! Peak memory stays bounded, everyone who asks properly is answered, and the host is read about once a second however
//! many ask. `SECONDS` in the environment changes how long it takes. All of it is on loopback.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a bench")]

#[path = "../tests/common/mod.rs"]
mod common;
mod limits;

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use common::host::HostTree;
use common::http;
use common::run::Server;
use limits::{Limits, mib};
use tempfile::TempDir;

const SCRAPERS: usize = 200;
const SLOW: usize = 50;
const HALF_OPEN: usize = 1000;

/// The series that says when the host was last read: as many values as it has shown, so many readings there were.
const LAST_READING: &str = "lanewatch_collector_last_success_timestamp_seconds{collector=\"rdma\"} ";

#[derive(Default)]
struct Tally {
    answers: AtomicU64,
    refusals: AtomicU64,
    errors: AtomicU64,
    slow: AtomicU64,
    slowest_milliseconds: AtomicU64,
    readings: Mutex<BTreeSet<String>>,
}

fn main() {
    if !common::run::lanewatch(&["serve", "--help"]).stdout.contains("--web.listen-address") {
        println!("lanewatch does not serve yet");
        return;
    }
    let seconds = limits::setting("SECONDS", 20);
    // Descriptors for both sides of every connection.
    raise_limit();
    let host = TempDir::new().unwrap();
    HostTree::new(8).write(host.path()).unwrap();
    let path = |part: &str| host.path().join(part).into_os_string();
    let server = Server::start("serve", &["--path.sysfs".into(), path("sys"), "--path.procfs".into(), path("proc")]);
    let tally = Arc::new(Tally::default());
    let took = crowd(server.address, Duration::from_secs(seconds), &tally);
    // The crowd is gone: an ordinary scrape must be answered at once.
    let asked = Instant::now();
    assert_eq!(server.get("/metrics").status, 200);
    println!("an ordinary scrape afterwards: {:?}", asked.elapsed());
    report(&tally, took);
    let mut limits = Limits::default();
    limits.at_most("peak memory, MiB", mib(common::cost::peak_memory(server.group.pid())), 32.0);
    #[allow(clippy::cast_precision_loss, reason = "a few")]
    let readings = tally.readings.lock().unwrap().len() as f64;
    assert!(readings > 0.0, "{LAST_READING}is not exposed");
    limits.at_most("readings a second", readings / took.as_secs_f64(), 1.2);
    let errors = tally.errors.load(Ordering::Relaxed);
    limits.at_most("scrapes that failed", f64::from(u32::try_from(errors).unwrap()), 0.0);
    limits.conclude();
}

fn raise_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }).unwrap();
}

/// Lets the crowd in for so long; how long the scrapers were there.
fn crowd(address: SocketAddr, time: Duration, tally: &Arc<Tally>) -> Duration {
    let stop = Arc::new(AtomicBool::new(false));
    let half_open = half_open(address);
    let began = Instant::now();
    let mut threads = Vec::new();
    for _ in 0..SCRAPERS {
        let (stop, tally) = (Arc::clone(&stop), Arc::clone(tally));
        threads.push(small_thread(move || scrape_until(&stop, address, &tally)));
    }
    for _ in 0..SLOW {
        let (stop, tally) = (Arc::clone(&stop), Arc::clone(tally));
        threads.push(small_thread(move || read_slowly(&stop, address, &tally)));
    }
    thread::sleep(time);
    stop.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().unwrap();
    }
    println!("{} half-open connections stood", half_open.len());
    began.elapsed()
}

fn small_thread(work: impl FnOnce() + Send + 'static) -> thread::JoinHandle<()> {
    thread::Builder::new().stack_size(128 << 10).spawn(work).unwrap()
}

/// Connections that have said half a request; those that are refused are simply not there.
fn half_open(address: SocketAddr) -> Vec<TcpStream> {
    let connect = |_| {
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1)).ok()?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nX-").ok()?;
        Some(stream)
    };
    (0..HALF_OPEN).filter_map(connect).collect()
}

fn scrape_until(stop: &AtomicBool, address: SocketAddr, tally: &Tally) {
    while !stop.load(Ordering::Relaxed) {
        let asked = Instant::now();
        let counter = match http::get(address, "/metrics") {
            Ok(answer) if answer.status == 200 => {
                note_reading(&answer.text(), tally);
                &tally.answers
            }
            // Told to come back later, in good form.
            Ok(answer) if answer.status == 503 || answer.status == 429 => &tally.refusals,
            _ => &tally.errors,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        let took = u64::try_from(asked.elapsed().as_millis()).unwrap();
        tally.slowest_milliseconds.fetch_max(took, Ordering::Relaxed);
        thread::sleep(Duration::from_millis(100));
    }
}

fn note_reading(text: &str, tally: &Tally) {
    let value = text.lines().find_map(|line| line.strip_prefix(LAST_READING));
    let mut readings = tally.readings.lock().unwrap();
    if let Some(value) = value.filter(|value| !readings.contains(*value)) {
        readings.insert(value.to_owned());
    }
}

/// Asks, and takes the answer a few bytes at a time.
fn read_slowly(stop: &AtomicBool, address: SocketAddr, tally: &Tally) {
    let once = || -> io::Result<()> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")?;
        let mut few = [0; 64];
        while !stop.load(Ordering::Relaxed) && stream.read(&mut few)? > 0 {
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    };
    while !stop.load(Ordering::Relaxed) {
        // Being cut off for slowness is a fair answer.
        let _ = once();
        tally.slow.fetch_add(1, Ordering::Relaxed);
        thread::sleep(Duration::from_millis(100));
    }
}

fn report(tally: &Tally, took: Duration) {
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    println!("{SCRAPERS} scrapers, {SLOW} slow readers, {HALF_OPEN} half-open connections for {took:.1?}");
    println!(
        "{} answers, {} told to come later, {} errors, slowest {} ms; {} slow reads",
        count(&tally.answers),
        count(&tally.refusals),
        count(&tally.errors),
        count(&tally.slowest_milliseconds),
        count(&tally.slow),
    );
}
