//! `audit --since` against a real Prometheus that has ten days of five hosts: what got worse, what got better, and what it
//! cost.

#![allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "small numbers")]

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::common::run::{Output, Server, lanewatch};
use crate::common::stores::prometheus_of;

const DAY: u64 = 86_400;

/// An audit every two days, the last one at [`now`].
const MOMENTS: u64 = 6;

/// A port's rate, and 16 GT/s x16 and x4, in bytes per second.
const RATE: f64 = 25e9;
const WHOLE: f64 = 16e9 * 16.0 / 8.0 * 128.0 / 130.0;
const QUARTER: f64 = WHOLE / 4.0;

fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() / 3600 * 3600
}

#[derive(Clone, Copy, PartialEq)]
enum Is {
    Well,
    Degraded,
    Down,
    Dead,
    NotThere,
}

use Is::{Dead, Degraded, Down, NotThere, Well};

/// What each host is at each moment.
const HOSTS: [(&str, [Is; MOMENTS as usize]); 6] = [
    ("degrades", [Well, Well, Well, Degraded, Degraded, Degraded]),
    ("is-fixed", [Down, Down, Down, Well, Well, Well]),
    ("is-bad-once", [Well, Well, Degraded, Well, Well, Well]),
    ("was-always-bad", [Degraded, Degraded, Degraded, Degraded, Degraded, Degraded]),
    ("dies", [Well, Well, Well, Well, Well, Dead]),
    ("is-new", [NotThere, NotThere, NotThere, NotThere, Well, Well]),
];

fn series(host: &str, is: Is, at: u64) -> String {
    let mut out = String::new();
    let target = format!("job=\"lanewatch\",instance=\"{host}\",rack=\"r1\"");
    let up = u8::from(is != Dead);
    writeln!(out, "up{{{target}}} {up} {at}").unwrap();
    if is == Dead {
        return out;
    }
    let (device, address) = ("device=\"mlx5_0\"", "pci_address=\"0000:c1:00.0\"");
    let mut line = |name: &str, labels: &str, value: f64| {
        writeln!(out, "lanewatch_{name}{{{target}{labels}}} {value} {at}").unwrap();
    };
    let current = if is == Degraded { QUARTER } else { WHOLE };
    line("build_info", ",version=\"0.1.0\"", 1.0);
    line("evaluation_timestamp_seconds", "", at as f64);
    line(
        "device_info",
        &format!(",{device},{address},function=\"pf\",hca_type=\"MT4123\",node_guid=\"{host}\",firmware_version=\"1\""),
        1.0,
    );
    line("port_info", &format!(",{device},port=\"1\",link_layer=\"InfiniBand\",uplink=\"function\""), 1.0);
    line("pcie_path_info", &format!(",{device},{address},limiting_pci_address=\"0000:c1:00.0\""), 1.0);
    line("pcie_path_bandwidth_bytes_per_second", &format!(",{device},{address}"), current);
    line("pcie_link_current_bandwidth_bytes_per_second", &format!(",{address}"), current);
    line("pcie_link_capable_bandwidth_bytes_per_second", &format!(",{address}"), WHOLE);
    line("pcie_link_max_speed_transfers_per_second", &format!(",{address}"), 16e9);
    line("pcie_link_max_width_lanes", &format!(",{address}"), 16.0);
    let port = format!(",{device},port=\"1\"");
    if is == Down {
        line("finding", &format!("{port},check=\"port_down\",severity=\"critical\",reason=\"polling\""), 1.0);
    } else {
        line("port_rate_bytes_per_second", &port, RATE);
        line("port_share_bytes_per_second", &port, RATE.min(current));
        line("wire_rate_bytes_per_second", &format!("{port},{address}"), RATE);
    }
    out
}

fn prometheus(end: u64) -> Option<Server> {
    let mut text = String::new();
    // The rate of the port that is down at the beginning is known from before.
    let before = end - (MOMENTS - 1) * 2 * DAY - DAY;
    text.push_str(&series("is-fixed", Well, before));
    for (host, states) in HOSTS {
        for (moment, is) in (0..).zip(states).filter(|(_, is)| *is != NotThere) {
            text.push_str(&series(host, is, end - (MOMENTS - 1 - moment) * 2 * DAY - 15));
        }
    }
    text.push_str("# EOF\n");
    let write = move |out: &mut std::io::BufWriter<std::fs::File>| out.write_all(text.as_bytes()).unwrap();
    prometheus_of(write, Duration::from_secs(120), &["--storage.tsdb.retention.time=100y"])
}

fn audit(server: &Server, end: u64, more: &[&str]) -> Output {
    let url = format!("http://{}", server.address);
    let time = lanewatch::model::time::rfc3339(SystemTime::UNIX_EPOCH + Duration::from_secs(end));
    lanewatch(&[&["audit", "--prometheus", &url, "--time", &time], more].concat())
}

fn close(value: &Value, expected: f64) {
    let value = value.as_f64().unwrap();
    assert!((value - expected).abs() <= expected.abs() * 1e-6, "{value} is not {expected}");
}

#[test]
fn what_got_worse_and_better_and_what_it_cost() {
    let end = now();
    let Some(server) = prometheus(end) else { return };
    let since = ["--since", "10d", "--steps", "5"];
    let json = audit(&server, end, &[&since[..], &["--format", "json", "--by", "rack"]].concat());
    assert_eq!((json.code, json.stderr.as_str()), (Some(0), ""));
    let document: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(document["moments"].as_array().unwrap().len(), 6);
    let lost = RATE - QUARTER;
    let days = |days: u64| (days * DAY) as f64;
    let of = |change: &str| {
        let problems = &document["problems"][change];
        assert_eq!(problems["count"].as_u64().unwrap() as usize, problems["first"].as_array().unwrap().len());
        let first = problems["first"].as_array().unwrap();
        first.iter().map(|problem| problem["host"]["instance"].as_str().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(of("worse"), ["degrades"]);
    assert_eq!(of("better"), ["is-fixed"]);
    assert_eq!(of("passed"), ["is-bad-once"]);
    assert_eq!(of("same"), ["was-always-bad"]);
    assert_eq!(of("unknown"), Vec::<&str>::new());
    // From the fourth audit of six to the last: two whole steps and half a one.
    let worse = &document["problems"]["worse"]["first"][0];
    assert_eq!((&worse["action"], &worse["subject"]), (&Value::from("mend_link"), &Value::from("0000:c1:00.0")));
    close(&worse["now_bytes_per_second"], lost);
    close(&worse["cost_bytes"], lost * days(5));
    let time =
        |ago: u64| lanewatch::model::time::rfc3339(SystemTime::UNIX_EPOCH + Duration::from_secs(end - ago * DAY));
    assert_eq!((worse["first_seen"].as_str(), worse["last_seen"].as_str()), (Some(&*time(4)), Some(&*time(0))));
    let better = &document["problems"]["better"]["first"][0];
    assert_eq!(better["action"], "bring_up_port");
    close(&better["before_bytes_per_second"], RATE);
    close(&better["cost_bytes"], RATE * days(5));
    close(&document["problems"]["passed"]["cost_bytes"], lost * days(2));
    close(&document["problems"]["same"]["cost_bytes"], lost * days(10));
    close(&document["cost"]["stranded_bytes"], lost * days(17) + RATE * days(5));
    close(&document["cost"]["down_bytes"], RATE * days(5));
    let names = |list: &str| {
        let hosts = document["left_out"][list]["first"].as_array().unwrap();
        hosts.iter().map(|host| host["instance"].as_str().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!((names("new"), names("gone"), names("dead")), (vec!["is-new"], vec!["dies"], vec!["dies"]));
    // Every sum adds up, at both ends and in each group.
    for sums in [&document["before"], &document["now"], &document["groups"][0]["before"], &document["groups"][0]["now"]]
    {
        let rate = |name: &str| sums[&format!("{name}_bytes_per_second")].as_f64().unwrap_or_default();
        let stranded = ["degraded", "slot", "design", "down", "missing"].iter().map(|name| rate(name)).sum::<f64>();
        close(&sums["stranded_bytes_per_second"], stranded);
        close(&sums["installed_bytes_per_second"], rate("usable") + stranded + rate("unknown"));
    }
    close(&document["before"]["installed_bytes_per_second"], 5.0 * RATE);

    tables(&server, end, &since);
}

fn tables(server: &Server, end: u64, since: &[&str]) {
    let text = audit(server, end, since).stdout;
    for part in [": 6 audits\n", "\nworse: 1; usable -", "\nbetter: 1; usable +200", "came and went: 1", "unchanged: 1"]
    {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    let worse = text.lines().find(|line| line.starts_with("degrades ") && line.contains("degraded link")).unwrap();
    assert!(worse.contains("0000:c1:00.0  mlx5_0  "), "{worse}");
    let csv = |table: &str| {
        let output = audit(server, end, &[since, &["--format", "csv", "--by", "rack", "--table", table]].concat());
        assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""));
        output.stdout.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let fixes = csv("fixes");
    assert!(fixes[0].starts_with("job,instance,change,problem,subject,devices,before_bytes_per_second,"), "{fixes:?}");
    let columns = |row: &String| row.split(',').nth(2).unwrap().to_owned();
    let changes: Vec<String> = fixes[1..].iter().map(columns).collect();
    assert_eq!(changes, ["worse", "better", "came and went", "unchanged"]);
    let width = |rows: &[String]| rows.iter().map(|row| row.split(',').count()).collect::<Vec<_>>();
    let groups = csv("groups");
    assert_eq!(width(&groups), [1 + 2 * 23; 2]);
    assert!(groups[0].starts_with("rack,before_hosts,") && groups[0].contains(",now_hosts,"), "{groups:?}");
    assert_eq!(width(&csv("hosts")), [3 + 2 * 23; 3]);
    let excluded = csv("excluded");
    assert_eq!(excluded[1..], ["lanewatch,is-new,new", "lanewatch,dies,gone", "lanewatch,dies,dead"]);
    let firmware = audit(server, end, &[since, &["--format", "csv", "--table", "firmware"]].concat());
    assert_eq!(firmware.code, Some(2), "{firmware:?}");
}

#[test]
fn a_server_that_has_less_says_from_when() {
    let end = now();
    let Some(server) = prometheus(end) else { return };
    let longer = audit(&server, end, &["--since", "20d", "--steps", "10"]);
    assert_eq!(longer.code, Some(0), "{longer:?}");
    let lines: Vec<&str> = longer.stdout.lines().take(2).collect();
    let time =
        |ago: u64| lanewatch::model::time::rfc3339(SystemTime::UNIX_EPOCH + Duration::from_secs(end - ago * DAY));
    assert_eq!(lines[0], format!("{} to {}: 6 audits", time(10), time(0)));
    assert_eq!(lines[1], format!("no data from {} on: the server has none before", time(20)));
    let nothing = audit(&server, end, &["--since", "1h", "--steps", "1"]);
    assert!(nothing.code == Some(1) && nothing.stderr.contains("knows no host at any earlier moment"), "{nothing:?}");
    let limit = audit(&server, end, &["--since", "10d", "--steps", "1", "--fail-on", "dead"]);
    assert_eq!(limit.code, Some(3), "{limit:?}");
}

#[test]
fn a_beginning_that_is_none_is_a_wrong_command_line() {
    for (since, why) in [
        ("0s", "not before the time of the audit"),
        ("soon", "is not a time"),
        ("2030-01-01T00:00:00Z", "not before the time of the audit"),
    ] {
        let output = lanewatch(&[
            "audit",
            "--prometheus",
            "http://127.0.0.1:1",
            "--time",
            "2026-01-01T00:00:00Z",
            "--since",
            since,
        ]);
        assert!(output.code == Some(2) && output.stderr.contains(why), "{since}: {output:?}");
    }
    let steps = lanewatch(&["audit", "--prometheus", "http://127.0.0.1:1", "--steps", "3"]);
    assert_eq!(steps.code, Some(2), "{steps:?}");
}
