//! Certificates, users and files that change under load.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::client::{Connection, trust};
use super::fixture::{Fixture, PASSWORD, tls, users};
use crate::common::certs::write;

/// Scrapes a second, half of them over connections that stay.
const RATE: u32 = 100;
const ROTATIONS: u64 = 8;

/// Failures, and certificates that the server showed.
type Seen = (Vec<String>, BTreeSet<Vec<u8>>);

/// Scrapes until told to stop; what was counted: scrapes, failures, certificates seen.
struct Crowd {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    threads: Vec<thread::JoinHandle<Seen>>,
}

impl Crowd {
    fn start(fixture: &Fixture, user: Option<&'static str>) -> Self {
        const THREADS: u32 = 4;
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (address, trust) = (fixture.address, trust(&fixture.ca));
        let scrape = |stays: bool| {
            let (stop, done, trust) = (Arc::clone(&stop), Arc::clone(&done), Arc::clone(&trust));
            thread::spawn(move || {
                let (mut failures, mut seen) = (Vec::new(), BTreeSet::new());
                let mut kept = stays.then(|| Connection::open(address, &trust).unwrap());
                let mut next = Instant::now();
                while !stop.load(Ordering::Relaxed) {
                    let mut fresh = kept.is_none().then(|| Connection::open(address, &trust).unwrap());
                    let connection = kept.as_mut().or(fresh.as_mut()).unwrap();
                    match connection.get("/metrics", user) {
                        Ok(200) => _ = done.fetch_add(1, Ordering::Relaxed),
                        other => failures.push(format!("{other:?}")),
                    }
                    seen.insert(connection.certificate());
                    next += Duration::from_secs(1) * THREADS / RATE;
                    thread::sleep(next.saturating_duration_since(Instant::now()));
                }
                (failures, seen)
            })
        };
        let threads = [true, true, false, false].map(scrape).into_iter().collect();
        Self { stop, done, threads }
    }

    /// Waits for so many more scrapes.
    fn wait(&self, more: u64) {
        let (from, end) = (self.done.load(Ordering::Relaxed), Instant::now() + Duration::from_secs(60));
        while self.done.load(Ordering::Relaxed) < from + more {
            assert!(Instant::now() < end, "nobody scrapes");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Ends it: number of scrapes, failures, number of certificates.
    fn end(self) -> (u64, Vec<String>, usize) {
        self.stop.store(true, Ordering::Relaxed);
        let (mut failures, mut seen) = (Vec::new(), BTreeSet::new());
        for thread in self.threads {
            let (failed, certificates) = thread.join().unwrap();
            failures.extend(failed);
            seen.extend(certificates);
        }
        (self.done.load(Ordering::Relaxed), failures, seen.len())
    }
}

#[test]
fn no_scrape_fails_while_certificates_change() {
    let fixture = Fixture::new().start(&format!("{}{}", tls(&[]), users()));
    let user: &'static str = Box::leak(format!("alice:{PASSWORD}").into_boxed_str());
    let crowd = Crowd::start(&fixture, Some(user));
    crowd.wait(50);
    let began = Instant::now();
    for rotation in 0..ROTATIONS {
        // One file after the other, with time between them: for a moment the key is not the certificate's.
        write(fixture.directory.path(), "server", &fixture.authority.server(rotation + 2));
        fixture.wait_for_log("web configuration reloaded", usize::try_from(rotation).unwrap() + 1);
        crowd.wait(30);
    }
    let took = began.elapsed();
    let (scrapes, failures, certificates) = crowd.end();
    println!("{scrapes} scrapes, {} failed, {certificates} certificates in {took:.1?}", failures.len());
    assert!(failures.is_empty(), "{failures:?}\n{}", fixture.log());
    assert!(certificates > usize::try_from(ROTATIONS).unwrap(), "{certificates} certificates were seen");
    assert!(!fixture.log().contains("level=error"), "{}", fixture.log());
}

#[test]
fn a_bad_file_keeps_the_old_one_and_says_so() {
    let fixture = Fixture::new().start(&tls(&[]));
    let trust = trust(&fixture.ca);
    let state = |name: &str| {
        let text = String::from_utf8(scrape(&fixture, &trust)).unwrap();
        let line = text.lines().find(|line| line.starts_with(&format!("{name} "))).unwrap().to_owned();
        line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()
    };
    let successful = || state("lanewatch_web_config_last_reload_successful") > 0.5;
    assert!(successful());
    assert!(state("lanewatch_web_certificate_expiry_timestamp_seconds") > 1.7e9);
    let good = fs::read(fixture.path("server.key")).unwrap();

    fs::write(fixture.path("server.key"), "torn").unwrap();
    fixture.wait_for_log("keeping the old web configuration", 1);
    assert!(!successful());
    let log = fixture.log();
    for part in ["web.yml", "tls_server_config.key_file", "server.key"] {
        assert!(log.contains(part), "{part} in {log}");
    }
    fs::write(fixture.path("server.key"), &good).unwrap();
    fixture.wait_for_log("web configuration reloaded", 1);
    assert!(successful());

    // A file that was emptied, or not written yet, does not open what was closed.
    fixture.configure("");
    fixture.wait_for_log("keeping the old web configuration", 2);
    assert!(!successful() && fixture.log().contains("restart the agent"), "{}", fixture.log());
    fixture.configure(&tls(&["min_version: TLS9"]));
    fixture.wait_for_log("keeping the old web configuration", 3);
    assert!(fixture.log().contains("TLS12 or TLS13"), "{}", fixture.log());
    fixture.configure(&format!("{}{}", tls(&[]), users()));
    fixture.wait_for_log("web configuration reloaded", 2);
    assert_eq!(Connection::open(fixture.address, &trust).unwrap().get("/metrics", None).unwrap(), 401);
}

fn scrape(fixture: &Fixture, trust: &Arc<rustls::ClientConfig>) -> Vec<u8> {
    Connection::open(fixture.address, trust).unwrap().body("/metrics").unwrap()
}

#[test]
fn a_secret_that_kubernetes_swaps_is_taken_up() {
    let fixture = Fixture::new();
    let secret = fixture.path("secret");
    let version = |name: &str, number| {
        let folder = secret.join(name);
        fs::create_dir_all(&folder).unwrap();
        write(&folder, "tls", &fixture.authority.server(number));
    };
    version("..1", 11);
    symlink("..1", secret.join("..data")).unwrap();
    for name in ["tls.crt", "tls.key"] {
        symlink(format!("..data/{name}"), secret.join(name)).unwrap();
    }
    let fixture = fixture.start("tls_server_config:\n  cert_file: secret/tls.crt\n  key_file: secret/tls.key\n");
    let trust = trust(&fixture.ca);
    let mut kept = Connection::open(fixture.address, &trust).unwrap();
    assert_eq!(kept.get("/metrics", None).unwrap(), 200);
    let folder = secret.join("..2");
    fs::create_dir_all(&folder).unwrap();
    write(&folder, "tls", &fixture.authority.server(12));
    symlink("..2", secret.join("..new")).unwrap();
    fs::rename(secret.join("..new"), secret.join("..data")).unwrap();
    fs::remove_dir_all(secret.join("..1")).unwrap();
    fixture.wait_for_log("web configuration reloaded", 1);
    let mut fresh = Connection::open(fixture.address, &trust).unwrap();
    assert_eq!(fresh.get("/metrics", None).unwrap(), 200);
    assert_ne!(fresh.certificate(), kept.certificate());
    assert_eq!(kept.get("/metrics", None).unwrap(), 200, "the connection from before stays");
}
