//! A simulated fleet in a real Prometheus and in a real VictoriaMetrics: the audit finds exactly what was planted.

use std::fs::File;
use std::io::BufWriter;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::common::fleet::{Fleet, Form, agree};
use crate::common::run::{Output, Server, lanewatch};
use crate::common::stores::{prometheus_of, victoria_of};

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
    let write = |out: &mut BufWriter<File>| {
        fleet().write(out, Form::OpenMetrics, None).unwrap();
    };
    prometheus_of(write, Duration::from_secs(120), &[])
}

/// A VictoriaMetrics that was given the fleet.
fn victoria() -> Option<Server> {
    let mut lines = Vec::new();
    fleet().write(&mut lines, Form::Text, None).unwrap();
    victoria_of(&String::from_utf8(lines).unwrap())
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
    assert!(text.contains(&format!(": {} hosts, {} devices", planted.hosts, planted.truth.devices)), "{text}");
    let fixes = fleet().fixes().len();
    assert!(text.contains(&format!("\nwhat to fix first: {} of {fixes} (", fixes.min(20))), "{text}");
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
    assert!(none.stderr.contains("has no lanewatch_build_info with these labels"), "{none:?}");
    let wrong = audit(server, &["--match", "site=~\"[\""]);
    assert!(wrong.code == Some(2) && wrong.stderr.contains("the server says bad_data: "), "{wrong:?}");
}
