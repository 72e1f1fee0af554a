//! A web configuration that changes while someone without a certificate tries to get in.

use std::fs;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::client::{Connection, trust};
use super::curl::{Outcome, curl};
use super::fixture::{Fixture, PASSWORD, tls, users};
use crate::common::http;

/// What the configuration asks for.
const STRICT: [&str; 4] = [
    "client_auth_type: RequireAndVerifyClientCert",
    "client_ca_file: ca.crt",
    "client_allowed_sans: [prometheus.example.org]",
    "min_version: TLS13",
];

/// Tries to get an answer without a certificate, encrypted and not, every 10 ms until dropped.
struct Intruder {
    stop: Arc<AtomicBool>,
    tries: Arc<AtomicU64>,
    thread: Option<thread::JoinHandle<Vec<String>>>,
}

impl Intruder {
    fn start(fixture: &Fixture) -> Self {
        let (stop, tries) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (address, trust) = (fixture.address, trust(&fixture.ca));
        let (stopped, counted) = (Arc::clone(&stop), Arc::clone(&tries));
        let thread = thread::spawn(move || {
            let (mut answers, began) = (Vec::new(), Instant::now());
            while !stopped.load(Ordering::Relaxed) {
                let encrypted = Connection::open(address, &trust).and_then(|mut open| open.get("/metrics", None));
                let plain =
                    http::get(address, "/metrics").ok().map(|answer| answer.status).filter(|status| *status != 400);
                for status in encrypted.ok().into_iter().chain(plain) {
                    answers.push(format!("{status} after {:.1?}", began.elapsed()));
                }
                counted.fetch_add(1, Ordering::Relaxed);
                thread::sleep(Duration::from_millis(10));
            }
            answers
        });
        Self { stop, tries, thread: Some(thread) }
    }

    /// How often it tried, and what answers it got.
    fn end(mut self) -> (u64, Vec<String>) {
        self.stop.store(true, Ordering::Relaxed);
        let answers = self.thread.take().unwrap().join().unwrap();
        (self.tries.load(Ordering::Relaxed), answers)
    }
}

#[test]
fn a_file_that_is_half_written_opens_nothing() {
    let config = tls(&STRICT);
    let fixture = Fixture::new().start(&config);
    let intruder = Intruder::start(&fixture);
    for head in [3, 4, 5, 6] {
        let lines: Vec<String> = config.lines().map(|line| format!("{line}\n")).collect();
        let mut file = fs::File::create(fixture.path("web.yml")).unwrap();
        file.write_all(lines[..head].concat().as_bytes()).unwrap();
        drop(file);
        fixture.wait_for_log("keeping the old web configuration", head - 2);
        let mut file = fs::OpenOptions::new().append(true).open(fixture.path("web.yml")).unwrap();
        file.write_all(lines[head..].concat().as_bytes()).unwrap();
        drop(file);
        fixture.wait_for_log("web configuration reloaded", head - 2);
    }
    let (tries, answers) = intruder.end();
    assert!(answers.is_empty(), "{answers:?} of {tries} tries\n{}", fixture.log());
    assert!(tries > 20, "{tries}");
}

#[test]
fn a_file_that_is_written_bit_by_bit_is_waited_for() {
    let config = tls(&STRICT);
    let fixture = Fixture::new().start(&config);
    let intruder = Intruder::start(&fixture);
    let mut file = fs::File::create(fixture.path("web.yml")).unwrap();
    for line in config.lines() {
        writeln!(file, "{line}").unwrap();
        file.flush().unwrap();
        // Each writer opens it anew, as a shell does with >>.
        drop(file);
        thread::sleep(Duration::from_millis(400));
        file = fs::OpenOptions::new().append(true).open(fixture.path("web.yml")).unwrap();
    }
    drop(file);
    fixture.wait_for_log("web configuration reloaded", 1);
    let (tries, answers) = intruder.end();
    assert!(answers.is_empty(), "{answers:?} of {tries} tries");
    assert!(!fixture.log().contains("keeping the old web configuration"), "{}", fixture.log());
}

#[test]
fn every_weakening_takes_a_restart_or_the_flag() {
    let config = format!("{}{}", tls(&STRICT), users());
    let without = |index: usize| {
        let lines: Vec<&str> = (0..4).filter(|n| *n != index).map(|n| STRICT[n]).collect();
        format!("{}{}", tls(&lines), users())
    };
    let with = |index: usize, line: &'static str| {
        let mut lines = STRICT;
        lines[index] = line;
        format!("{}{}", tls(&lines), users())
    };
    let table = [
        (with(0, "client_auth_type: RequireAnyClientCert"), "client_auth_type"),
        (without(1), "client_ca_file"),
        (with(1, "client_ca_file: both.crt"), "client_ca_file"),
        (without(2), "client_allowed_sans"),
        (with(2, "client_allowed_sans: [prometheus.example.org, anyone.example.org]"), "client_allowed_sans"),
        (without(3), "min_version"),
        (tls(&STRICT), "basic_auth_users"),
        (users(), "tls_server_config"),
        (String::new(), "tls_server_config"),
    ];
    let fixture = Fixture::new();
    let both = [fs::read_to_string(&fixture.ca).unwrap(), fs::read_to_string(fixture.path("foreign.crt")).unwrap()];
    fs::write(fixture.path("both.crt"), both.concat()).unwrap();
    let fixture = fixture.start(&config);
    let mut refused = 0;
    for (weaker, key) in &table {
        fixture.configure(weaker);
        refused += 1;
        fixture.wait_for_log("keeping the old web configuration", refused);
        let log = fixture.log();
        let line = log.lines().rfind(|line| line.contains("keeping the old web configuration")).unwrap();
        assert!(line.contains(key) && line.contains("restart"), "{key}: {line}");
        let Some(outcome) = curl(&fixture, "/metrics", None, &["--user", &format!("alice:{PASSWORD}")]) else { return };
        assert_eq!(outcome, Outcome::NoConnection, "{weaker}");
    }
    let fixture = Fixture::new().start_with(&config, &["--web.allow-weaker-reload"]);
    fixture.configure(&users());
    fixture.wait_for_log("web configuration reloaded", 1);
    assert_eq!(http::get(fixture.address, "/metrics").unwrap().status, 401);
}

#[test]
fn connections_from_before_are_closed_when_access_tightens() {
    let fixture = Fixture::new().start(&tls(&[]));
    let trust = trust(&fixture.ca);
    let mut open = Connection::open(fixture.address, &trust).unwrap();
    assert_eq!(open.get("/metrics", None).unwrap(), 200);
    fixture.configure(&tls(&STRICT));
    fixture.wait_for_log("open connections are closed", 1);
    assert!(open.get("/metrics", None).is_err(), "the connection from before still answers");
    let Some(outcome) = curl(&fixture, "/metrics", Some(&fixture.good), &[]) else { return };
    assert_eq!(outcome, Outcome::Status(200));
    // A certificate that is renewed closes nothing.
    assert_eq!(fixture.log().matches("connections closed by the server").count(), 1, "{}", fixture.log());
}

/// Edits of a text: cut, torn, lines in another order, twice or changed.
fn edited(text: &str, random: &mut u64) -> String {
    let mut next = |below: usize| {
        // xorshift64
        *random ^= *random << 13;
        *random ^= *random >> 7;
        *random ^= *random << 17;
        usize::try_from(*random % u64::try_from(below.max(1)).unwrap()).unwrap()
    };
    let mut lines: Vec<&str> = text.lines().collect();
    match next(7) {
        0 => return text.chars().take(next(text.len() + 1)).collect(),
        1 => return text.chars().skip(next(text.len() + 1)).collect(),
        2 => {
            let (from, length) = (next(text.len()), next(60));
            return text.chars().take(from).chain(text.chars().skip(from + length)).collect();
        }
        3 => _ = lines.remove(next(lines.len())),
        4 => {
            let (one, other) = (next(lines.len()), next(lines.len()));
            lines.swap(one, other);
        }
        5 => lines.insert(next(lines.len()), lines[next(lines.len())]),
        _ => {
            let (from, to) = (next(lines.len()), next(lines.len()));
            lines.drain(from.min(to)..from.max(to));
        }
    }
    lines.join("\n")
}

/// A short form; all of it with `LANEWATCH_WEB_EDITS=10000`.
#[test]
fn no_edit_lets_anyone_in_without_a_certificate() {
    let edits: u32 = std::env::var("LANEWATCH_WEB_EDITS").ok().and_then(|text| text.parse().ok()).unwrap_or(150);
    let config = format!(
        "{}http_server_config:\n  headers:\n    X-Frame-Options: deny\nrate_limit:\n  interval: 1ms\n  burst: 1000\n",
        tls(&STRICT)
    );
    let fixture = Fixture::new().start(&config);
    let intruder = Intruder::start(&fixture);
    let mut random = 0x9e37_79b9_7f4a_7c15;
    for edit in 0..edits {
        fixture.configure(&edited(&config, &mut random));
        if edit % 3 == 0 {
            // As if it had been written long ago: it is read at once.
            fixture.backdate("web.yml");
        }
        thread::sleep(Duration::from_millis(if edit % 5 == 0 { 300 } else { 10 }));
    }
    fixture.configure(&config);
    thread::sleep(Duration::from_secs(2));
    let (tries, answers) = intruder.end();
    println!("{edits} edits, {tries} tries, {} answered", answers.len());
    assert!(answers.is_empty(), "{answers:?} of {tries} tries\n{}", fixture.log());
    let Some(outcome) = curl(&fixture, "/metrics", Some(&fixture.good), &[]) else { return };
    assert_eq!(outcome, Outcome::Status(200), "{}", fixture.log());
}
