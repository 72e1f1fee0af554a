//! What a fleet costs: an audit of 10,000 simulated hosts in a real Prometheus and a real VictoriaMetrics, with exactly
//! what was planted found; and the shipped rules over 1,000 hosts that a real Prometheus scrapes.
//!
//! `make fleet`, or `cargo bench --bench fleet`; `LANEWATCH_FLEET_HOSTS` and `LANEWATCH_RULE_HOSTS` say how many hosts
//! (0 leaves a part out), `LANEWATCH_RULE_SECONDS` for how long the rules are watched.

#![allow(missing_docs, reason = "a program, not a library")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::cast_precision_loss, reason = "a benchmark")]

#[path = "../tests/common/mod.rs"]
mod common;
mod limits;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use common::cost::cpu_time;
use common::fleet::{AUDITED, CheckResult, Fleet, Form, agree, instance, own, site};
use common::run::{Group, Server, program};
use common::stores::{self, prometheus_of, victoria_of};
use limits::{Limits, mib, setting};
use serde_json::Value;
use tempfile::TempDir;

/// The most an audit of 10,000 hosts may take.
const SECONDS: f64 = 30.0;
/// The most memory it may have, in MiB.
const MEMORY: f64 = 300.0;
/// The part of its interval that a group of rules may take.
const PART: f64 = 0.1;

fn main() {
    let mut limits = Limits::default();
    let hosts = setting("LANEWATCH_FLEET_HOSTS", 10_000);
    if hosts > 0 {
        audits(&mut limits, hosts);
    }
    let hosts = setting("LANEWATCH_RULE_HOSTS", 1_000);
    if hosts > 0 {
        rules(&mut limits, hosts);
    }
    limits.conclude();
}

fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs()
}

fn audits(limits: &mut Limits, hosts: usize) {
    let fleet = Fleet::new(hosts, (now() - 600) / 60 * 60);
    println!("{hosts} hosts, {} kinds", fleet.kinds.len());
    for (kind, pages) in &fleet.kinds {
        println!("  {:>5} series: {}", pages.now.len(), kind.name);
    }
    if let Some(server) = prometheus(&fleet) {
        audit(limits, "Prometheus", &fleet, &server);
    }
    if let Some(server) = victoria(&fleet) {
        audit(limits, "VictoriaMetrics", &fleet, &server);
    }
}

fn prometheus(fleet: &Fleet) -> Option<Server> {
    let (start, mut samples) = (Instant::now(), 0);
    let write = |out: &mut BufWriter<File>| samples = fleet.write(out, Form::OpenMetrics, Some(AUDITED)).unwrap();
    let server = prometheus_of(write, Duration::from_secs(900), &[])?;
    println!("Prometheus: {samples} samples in blocks after {:.0} s", start.elapsed().as_secs_f64());
    Some(server)
}

fn victoria(fleet: &Fleet) -> Option<Server> {
    let start = Instant::now();
    let mut lines = Vec::new();
    let samples = fleet.write(&mut lines, Form::Text, Some(AUDITED)).unwrap();
    let server = victoria_of(&String::from_utf8(lines).unwrap())?;
    println!("VictoriaMetrics: {samples} samples taken in after {:.0} s", start.elapsed().as_secs_f64());
    Some(server)
}

fn audit(limits: &mut Limits, name: &str, fleet: &Fleet, server: &Server) {
    let time = lanewatch::model::time::rfc3339(SystemTime::UNIX_EPOCH + Duration::from_secs(fleet.time));
    let directory = TempDir::new().unwrap();
    let answer = directory.path().join("audit.json");
    let mut command = program();
    command.args(["audit", "--by", "site", "--format", "json", "--top", "100000", "--time", &time]);
    command.arg("--prometheus").arg(format!("http://{}", server.address));
    command.stdin(Stdio::null()).stdout(File::create(&answer).unwrap());
    let before = cpu_time(server.group.pid());
    let start = Instant::now();
    let mut group = Group::spawn(&mut command);
    let mut memory = 0;
    let status = loop {
        memory = memory.max(peak(group.pid()).unwrap_or(0));
        if let Some(status) = group.wait(Duration::from_millis(20)) {
            break status;
        }
    };
    let took = start.elapsed().as_secs_f64();
    assert!(status.success(), "{status}");
    let document: Value = serde_json::from_slice(&std::fs::read(&answer).unwrap()).unwrap();
    agree(fleet, &document);
    let fixes = fleet.fixes().len();
    println!("{name}: all sums and {fixes} planted faults found, none besides");
    let server = cpu_time(server.group.pid()).saturating_sub(before).as_secs_f64();
    println!("{name}: the server's CPU {server:.1} s");
    limits.at_most(&format!("{name}: audit, seconds"), took, SECONDS);
    limits.at_most(&format!("{name}: audit, peak memory in MiB"), mib(memory), MEMORY);
}

/// The most memory that a process has had, in bytes; none when it has ended.
fn peak(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

/// Pages of a fleet's hosts at `/N`.
fn pages(fleet: Fleet) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let fleet = Arc::new(fleet);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let fleet = Arc::clone(&fleet);
            // A client that goes away early is its own business.
            thread::spawn(move || stream.and_then(|stream| page(stream, &fleet)));
        }
    });
    address
}

fn page(mut stream: TcpStream, fleet: &Fleet) -> std::io::Result<()> {
    let mut request = [0; 4096];
    let length = stream.read(&mut request)?;
    let text = String::from_utf8_lossy(&request[..length]).into_owned();
    let index: usize = text.split(['/', ' ']).nth(2).and_then(|index| index.parse().ok()).unwrap_or(0);
    let host = &fleet.hosts[index];
    if fleet.kind(host).standing == CheckResult::Dead {
        return Ok(());
    }
    let mut body = String::new();
    for line in &fleet.kinds[host.kind].1.now {
        let _ = if line.starts_with("lanewatch_evaluation_timestamp_seconds") {
            writeln!(body, "lanewatch_evaluation_timestamp_seconds {}", now())
        } else {
            writeln!(body, "{}", own(line, "", host.number))
        };
    }
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {length}\r\nConnection: \
         close\r\n\r\n{body}"
    )
}

fn rules(limits: &mut Limits, hosts: usize) {
    let fleet = Fleet::new(hosts, now());
    let mut config = "global:\n  scrape_interval: 30s\nrule_files:\n".to_owned();
    let alerts = Path::new(env!("CARGO_MANIFEST_DIR")).join("alerts");
    for name in ["lanewatch.recording.yml", "lanewatch.rules.yml"] {
        let file = alerts.join(name);
        if file.is_file() {
            let _ = writeln!(config, "  - {}", file.display());
        }
    }
    config.push_str("scrape_configs:\n  - job_name: lanewatch\n    static_configs:\n");
    let targets: Vec<_> = fleet.hosts.iter().enumerate().map(|(index, host)| (index, host.number)).collect();
    let alive = fleet.hosts.len() as u64 - fleet.count(CheckResult::Dead);
    let address = pages(fleet);
    for (index, number) in targets {
        let (name, site, rack) = (instance(number), site(number), number / 32);
        let _ = writeln!(
            config,
            "      - targets: ['{address}']\n        labels: {{__metrics_path__: /{index}, instance: '{name}', site: \
             {site}, rack: r{rack:03}}}"
        );
    }
    let Some(server) = stores::prometheus(TempDir::new().unwrap(), &config, &[]) else { return };
    let seconds = setting("LANEWATCH_RULE_SECONDS", 240);
    let end = Instant::now() + Duration::from_secs(seconds);
    let warm = Instant::now() + Duration::from_secs(seconds / 3);
    let mut groups: BTreeMap<String, (f64, f64, usize)> = BTreeMap::new();
    while Instant::now() < end {
        thread::sleep(Duration::from_secs(5));
        let answer: Value = serde_json::from_slice(&server.get("/api/v1/rules").body).unwrap();
        for group in answer["data"]["groups"].as_array().unwrap() {
            let number = |name: &str| group[name].as_f64().unwrap();
            let rules = group["rules"].as_array().unwrap();
            for rule in rules {
                assert_ne!(rule["health"], "err", "{rule}");
            }
            // The first evaluations see a part of the hosts.
            if Instant::now() > warm {
                let entry = groups.entry(group["name"].as_str().unwrap().to_owned()).or_default();
                *entry = (entry.0.max(number("evaluationTime")), number("interval"), rules.len());
            }
        }
    }
    let metrics = server.get("/metrics").text();
    let value = |name: &str| -> f64 {
        let line = metrics.lines().find(|line| line.split(' ').next() == Some(name)).unwrap();
        line.split(' ').nth(1).unwrap().parse().unwrap()
    };
    println!(
        "{alive} hosts scraped every 30 s: {} series, the server's memory {:.0} MiB, its CPU {:.0} % of one core",
        value("prometheus_tsdb_head_series"),
        value("process_resident_memory_bytes") / f64::from(1 << 20),
        value("process_cpu_seconds_total") / seconds as f64 * 100.0,
    );
    assert!(!groups.is_empty(), "no rules were evaluated");
    for (name, (took, interval, rules)) in groups {
        println!("{name}: {rules} rules every {interval} s, the longest evaluation took {took:.2} s");
        limits.at_most(&format!("{name}: part of its interval"), took / interval, PART);
    }
}
