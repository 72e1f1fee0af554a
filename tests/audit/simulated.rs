//! A simulated fleet in a real Prometheus and in a real VictoriaMetrics: the audit finds exactly what was planted.

use std::fs::File;
use std::io::BufWriter;
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use serde_json::Value;
use tempfile::TempDir;

use crate::common::fleet::{Fleet, Form, agree};
use crate::common::http;
use crate::common::run::{Output, Server, free_address, lanewatch, to_its_end};
use crate::common::tools::{Tool, require};

const SIZE: usize = 200;

pub(crate) fn fleet() -> &'static Fleet {
    static FLEET: OnceLock<Fleet> = OnceLock::new();
    FLEET.get_or_init(|| {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        Fleet::new(SIZE, (now - 600) / 60 * 60)
    })
}

/// A Prometheus that has the fleet in blocks and scrapes nothing.
fn prometheus() -> Option<Server> {
    let (program, promtool) = (require(Tool::Prometheus)?, require(Tool::Promtool)?);
    let (directory, address) = (TempDir::new().unwrap(), free_address());
    let (input, data) = (directory.path().join("fleet.om"), directory.path().join("data"));
    let mut out = BufWriter::new(File::create(&input).unwrap());
    fleet().write(&mut out, Form::OpenMetrics, None).unwrap();
    drop(out);
    let mut command = Command::new(promtool);
    command.args(["tsdb", "create-blocks-from", "openmetrics"]).arg(&input).arg(&data);
    let output = to_its_end(command, Duration::from_secs(120));
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let config = directory.path().join("prometheus.yml");
    std::fs::write(&config, "scrape_configs: []\n").unwrap();
    let mut command = Command::new(program);
    command.arg(format!("--config.file={}", config.display()));
    command.arg(format!("--storage.tsdb.path={}", data.display()));
    command.arg(format!("--web.listen-address={address}"));
    Some(Server::spawn(command, address, directory, "/-/ready"))
}

/// A VictoriaMetrics that was given the fleet.
fn victoria() -> Option<Server> {
    let program = require(Tool::VictoriaMetrics)?;
    let (directory, address) = (TempDir::new().unwrap(), free_address());
    let mut command = Command::new(program);
    command.arg(format!("-storageDataPath={}", directory.path().join("data").display()));
    command.arg(format!("-httpListenAddr={address}")).arg("-retentionPeriod=1");
    let server = Server::spawn(command, address, directory, "/health");
    let mut lines = Vec::new();
    fleet().write(&mut lines, Form::Text, None).unwrap();
    let lines = String::from_utf8(lines).unwrap();
    let answer = http::post(address, "/api/v1/import/prometheus", &lines).unwrap();
    assert_eq!(answer.status, 204, "{}", answer.text());
    // What was taken in is not to be searched at once; this makes it so.
    assert_eq!(server.get("/internal/force_flush").status, 200);
    Some(server)
}

fn audit(server: &Server, more: &[&str]) -> Output {
    let (url, time) = (format!("http://{}", server.address), time());
    let mut arguments = vec!["audit", "--prometheus", &url, "--time", &time];
    arguments.extend(more);
    lanewatch(&arguments)
}

fn time() -> String {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(fleet().time);
    lanewatch::model::time::rfc3339(time)
}

fn agrees(server: &Server, more: &[&str]) {
    let output = audit(server, &[&["--by", "site", "--format", "json", "--top", "100000"], more].concat());
    assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""));
    agree(fleet(), &serde_json::from_str::<Value>(&output.stdout).unwrap());
}

#[test]
fn prometheus_has_the_fleet_and_the_audit_finds_what_was_planted() {
    let Some(server) = prometheus() else { return };
    agrees(&server, &[]);
    agrees(&server, &["--shard", "7"]);
    agrees(&server, &["--identity", "instance"]);
    limits(&server);
    tables(&server);
}

#[test]
fn victoria_metrics_has_the_fleet_and_the_audit_finds_what_was_planted() {
    let Some(server) = victoria() else { return };
    agrees(&server, &[]);
    agrees(&server, &["--shard", "150"]);
}

fn limits(server: &Server) {
    let output = audit(server, &["--fail-on", "degraded>90%,dead>50%", "--fail-on", "design>99%"]);
    assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""));
    let output = audit(server, &["--fail-on", "dead", "--fail-on", "stranded>0.1%,vf-less>90%"]);
    assert_eq!(output.code, Some(3));
    let lines: Vec<&str> = output.stderr.lines().collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].starts_with("lanewatch: dead>0%: ") && lines[1].starts_with("lanewatch: stranded>0.1%: "));
}

fn tables(server: &Server) {
    let planted = fleet().planted(|_| true);
    let text = audit(server, &["--by", "site,rack"]).stdout;
    assert!(text.contains(&format!(" on {} hosts with {} devices", planted.hosts, planted.truth.devices)), "{text}");
    let fixes = fleet().fixes().len();
    assert!(text.contains(&format!("\nwhat to do first: {} of {fixes}, ", fixes.min(20))), "{text}");
    let groups = audit(server, &["--by", "hca_type,site", "--format", "csv"]).stdout;
    let mut lines = groups.lines();
    assert!(lines.next().unwrap().starts_with("hca_type,site,hosts,devices,"), "{groups}");
    let devices: u64 = lines.map(|line| line.split(',').nth(3).unwrap().parse::<u64>().unwrap()).sum();
    assert_eq!(devices, planted.truth.devices);
    let fixes = audit(server, &["--format", "csv", "--table", "fixes", "--top", "3"]).stdout;
    assert_eq!(fixes.lines().count(), 4, "{fixes}");
    let one = audit(server, &["--match", "site=\"ams\"", "--format", "json"]).stdout;
    let one: Value = serde_json::from_str(&one).unwrap();
    assert_eq!(one["fleet"]["hosts"], fleet().planted(|host| crate::common::fleet::site(host.number) == "ams").hosts);
    let none = audit(server, &["--match", "site=\"nowhere\""]);
    assert_eq!(none.code, Some(1));
    assert!(none.stderr.contains("knows no lanewatch_build_info with these labels"), "{none:?}");
    let wrong = audit(server, &["--match", "site="]);
    assert!(wrong.code == Some(1) && wrong.stderr.contains("400 Bad Request: bad_data: "), "{wrong:?}");
}
