//! Real peers read what is served: Prometheus, vmagent, promtool and Python's OpenMetrics parser.

#![allow(clippy::panic, clippy::indexing_slicing, clippy::unwrap_used, reason = "tests")]

#[path = "common/mod.rs"]
mod common;

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use common::exposition::parse;
use common::host::{Card, HostTree, Layer};
use common::http;
use common::run::{Group, Server};
use common::tools::{Prometheus, Tool, Vmagent, require};
use tempfile::TempDir;

const OPENMETRICS: &str = "application/openmetrics-text;version=1.0.0";

/// One counter that no `f64` can hold.
const EXACT: u64 = (1 << 53) + 1;

/// A served host with InfiniBand and RoCE cards, one of them with two functions; and the host's directory.
fn served() -> (Server, TempDir) {
    let mut host = HostTree::new(4);
    host.cards[1].layer = Layer::Ethernet;
    host.cards[2] = Card { functions: 2, switch: true, ..Card::default() };
    let directory = TempDir::new().unwrap();
    let mut tree = host.tree();
    tree.line(host.devices()[0].port.join("counters/port_rcv_packets"), EXACT);
    tree.write(directory.path()).unwrap();
    let path = |part: &str| directory.path().join(part).into_os_string();
    let server = Server::start("serve", &["--path.sysfs".into(), path("sys"), "--path.procfs".into(), path("proc")]);
    (server, directory)
}

/// The demonstration, which is nobody's host.
fn demonstrated() -> Server {
    Server::start::<&str>("demo", &[])
}

/// Families that every host with cards has.
const FAMILIES: [&str; 13] = [
    "lanewatch_build_info",
    "lanewatch_host_info",
    "lanewatch_collector_success",
    "lanewatch_device_info",
    "lanewatch_port_info",
    "lanewatch_port_state",
    "lanewatch_port_rate_bytes_per_second",
    "lanewatch_port_received_bytes_total",
    "lanewatch_port_events_total",
    "lanewatch_pcie_link_current_bandwidth_bytes_per_second",
    "lanewatch_pcie_path_info",
    "lanewatch_check_subjects",
    "process_resident_memory_bytes",
];

fn prometheus_scrapes(server: &Server, ports: usize) {
    let Some(prometheus) = Prometheus::scraping(server.address) else { return };
    prometheus.wait_for("up", |series| series.len() == 1 && series[0].1 > 0.5);
    let states = prometheus.wait_for("lanewatch_port_state == 1", |series| series.len() == ports);
    assert!(states.iter().all(|(labels, _)| labels["state"] == "ACTIVE"), "{states:?}");
    for family in FAMILIES {
        assert!(!prometheus.query(family).is_empty(), "{family}");
    }
    assert_eq!(prometheus.targets(), [("up".to_owned(), String::new())]);
}

fn vmagent_scrapes(server: &Server) {
    let Some(program) = require(Tool::Vmagent) else { return };
    let agent = Vmagent::scraping(&program, server.address);
    agent.wait_until_up();
    assert_eq!(agent.targets(), [("up".to_owned(), String::new())]);
    assert!(!agent.log().contains("cannot"), "{}", agent.log());
}

fn promtool_reads(server: &Server) {
    let Some(program) = require(Tool::Promtool) else { return };
    let (code, said) = fed(Command::new(program).args(["check", "metrics"]), &server.get("/metrics").body);
    assert_eq!((code, said.as_str()), (Some(0), ""));
}

fn python_reads(server: &Server) {
    let Some(program) = require(Tool::Python) else { return };
    let answer = http::request(server.address, "GET", "/metrics", &[("Accept", OPENMETRICS)]).unwrap();
    assert!(answer.header("content-type").unwrap().starts_with("application/openmetrics-text"));
    let script = "import sys\n\
                  from prometheus_client.openmetrics.parser import text_string_to_metric_families as read\n\
                  print(sum(len(family.samples) for family in read(sys.stdin.read())))";
    let (code, said) = fed(Command::new(program).args(["-c", script]), &answer.body);
    assert_eq!(code, Some(0), "{said}");
    let lines = answer.text().lines().filter(|line| !line.starts_with('#')).count();
    assert_eq!(said.trim(), lines.to_string());
}

#[test]
fn prometheus_scrapes_what_is_served() {
    let (server, _host) = served();
    prometheus_scrapes(&server, 5);
}

#[test]
fn vmagent_scrapes_what_is_served() {
    let (server, _host) = served();
    vmagent_scrapes(&server);
}

#[test]
fn promtool_has_nothing_to_say() {
    let (server, _host) = served();
    promtool_reads(&server);
}

#[test]
fn pythons_parser_reads_all_of_it() {
    let (server, _host) = served();
    python_reads(&server);
}

#[test]
fn the_demonstration_is_scraped_without_an_error() {
    let demo = demonstrated();
    prometheus_scrapes(&demo, 2);
    vmagent_scrapes(&demo);
}

#[test]
fn the_demonstration_is_read_strictly_well_and_degraded() {
    let demo = demonstrated();
    let began = Instant::now();
    promtool_reads(&demo);
    python_reads(&demo);
    while !demo.get("/metrics").text().contains("lanewatch_finding{check=\"pcie_degraded\"") {
        assert!(began.elapsed() < Duration::from_secs(40), "{}", demo.log());
        thread::sleep(Duration::from_millis(500));
    }
    promtool_reads(&demo);
    python_reads(&demo);
}

#[test]
fn counters_are_exact_beyond_what_a_float_holds() {
    let (server, _host) = served();
    let samples = parse(&server.get("/metrics").text()).unwrap();
    let mut packets = samples.iter().filter(|sample| sample.name == "lanewatch_port_received_packets_total");
    assert!(packets.any(|sample| sample.labels["device"] == "mlx5_0" && sample.text == EXACT.to_string()));
}

/// Runs a command with this as its standard input: exit code, and all it printed.
fn fed(command: &mut Command, input: &[u8]) -> (Option<i32>, String) {
    let output = tempfile::NamedTempFile::new().unwrap();
    command.stdin(Stdio::piped()).stdout(output.reopen().unwrap()).stderr(output.reopen().unwrap());
    let mut group = Group::spawn(command);
    group.child.stdin.take().unwrap().write_all(input).unwrap();
    let status = group.wait(Duration::from_secs(30)).unwrap();
    (status.code(), std::fs::read_to_string(output.path()).unwrap())
}
