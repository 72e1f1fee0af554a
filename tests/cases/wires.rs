//! What hosts can move, added up: the metrics, the recording rules and `audit` count every wire once. The hosts are the
//! recorded ones that are named `wires-`.

#![allow(clippy::unwrap_used, clippy::float_cmp, reason = "tests; sums of rates are exact")]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use lanewatch::fleet::client::{Series, parse_series};
use lanewatch::fleet::facts::{HostFacts, HostId};
use lanewatch::fleet::host::{Sums, compute_capacity};
use serde_json::json;

use crate::case::{Case, Stage};
use crate::common::exposition::Sample;
use crate::common::run::to_its_end;
use crate::common::tools::{Tool, require};
use crate::judge::{Outcome, Reading, Replay as _};
use crate::{own_folder, replay};

const GIGABIT: f64 = 1e9 / 8.0;

/// What a host has, in Gb/s, and the cause of what it does not get.
struct Expected {
    host: &'static str,
    installed: f64,
    share: f64,
    cause: &'static str,
}

const fn whole(host: &'static str, gigabits: f64) -> Expected {
    Expected { host, installed: gigabits, share: gigabits, cause: "" }
}

fn expected() -> Vec<Expected> {
    let (gen3, gen4) = (8.0 * 128.0 / 130.0, 16.0 * 128.0 / 130.0);
    vec![
        Expected { host: "wires-of-a-bond-over-one-card", installed: 400.0, share: gen4 * 16.0, cause: "by_design" },
        Expected {
            host: "wires-of-a-bond-over-two-cards",
            installed: 200.0,
            share: 100.0 + gen3 * 8.0,
            cause: "link_degraded",
        },
        Expected {
            host: "wires-of-a-bond-without-marks-at-its-members",
            installed: 200.0,
            share: gen4 * 8.0,
            cause: "link_degraded",
        },
        Expected {
            host: "wires-of-a-card-shared-by-four-hosts",
            installed: 100.0,
            share: gen4 * 4.0,
            cause: "by_design",
        },
        whole("wires-of-a-dpu", 200.0),
        whole("wires-of-a-pf-with-128-representors", 100.0),
        whole("wires-of-a-pf-with-64-sub-functions", 100.0),
        whole("wires-of-a-port-of-four-planes", 800.0),
    ]
}

/// The hosts with what they are expected to have, and what was read of each.
fn hosts() -> Vec<(Expected, Reading)> {
    let cases: Vec<Case> = Case::all(&own_folder()).unwrap();
    let cases: Vec<&Case> = cases.iter().filter(|case| case.name.starts_with("wires-")).collect();
    let expected = expected();
    assert_eq!(cases.len(), expected.len(), "every recorded host has its sums");
    let read = |(case, expected): (&Case, Expected)| {
        assert_eq!(case.name, expected.host);
        (expected, replay::Agent.run(&case.stage().unwrap()).unwrap().remove(0))
    };
    cases.into_iter().zip(expected).map(read).collect()
}

fn sum(samples: &[Sample], name: &str) -> f64 {
    samples.iter().filter(|sample| sample.name == name).map(|sample| sample.value).sum()
}

/// To the rounding of a sum.
fn assert_is(value: f64, gigabits: f64, what: &str) {
    assert!((value - gigabits * GIGABIT).abs() < 1.0, "{what}: {} Gb/s, not {gigabits}", value / GIGABIT);
}

#[test]
fn metrics_and_audit_count_every_wire_once() {
    for (Expected { host, installed, share, cause }, reading) in hosts() {
        let samples = &reading.samples;
        let rates = sum(samples, "lanewatch_wire_rate_bytes_per_second");
        assert!(rates == installed * GIGABIT, "{host}: {rates}");
        assert_is(sum(samples, "lanewatch_wire_share_bytes_per_second"), share, host);
        let sums = audited(samples);
        let Sums { installed: all, usable, degraded, design, .. } = sums;
        assert!(all.0 == installed * GIGABIT, "{host}: {all:?}");
        assert_is(usable.0, share, host);
        assert_is(usable.0 + sums.stranded().0 + sums.unknown.0, installed, host);
        let by_cause = match cause {
            "link_degraded" => degraded.0,
            "by_design" => design.0,
            _ => 0.0,
        };
        assert_is(by_cause, installed - share, host);
        assert!(sums.ports == sums.active_ports && sums.rateless_ports == 0, "{host}: {sums:?}");
        assert_eq!(sums.ports, samples.iter().filter(|it| is_wired(it)).count() as u64, "{host}");
    }
}

fn is_wired(sample: &Sample) -> bool {
    sample.name == "lanewatch_port_info" && sample.labels.get("uplink").is_some_and(|uplink| uplink != "none")
}

/// What `audit` makes of a host's series.
fn audited(samples: &[Sample]) -> Sums {
    let row = |sample: &Sample| {
        let mut labels = sample.labels.clone();
        labels.insert("__name__".to_owned(), sample.name.clone());
        json!({ "metric": labels, "value": [0, sample.text] })
    };
    let rows: Vec<_> = samples.iter().map(row).collect();
    let answer = json!({ "status": "success", "data": { "resultType": "vector", "result": rows } });
    let rows = parse_series(answer.to_string().as_bytes()).unwrap();
    let mut host = HostFacts::new(HostId([].into()), Vec::new(), String::new());
    let (infos, others): (Vec<&Series>, Vec<&Series>) =
        rows.iter().partition(|row| row.labels.get("__name__").ends_with("_info"));
    infos.iter().filter(|row| !matches!(row.labels.get("function"), "vf" | "sf")).for_each(|row| host.info(row));
    for row in others {
        host.value(row);
        if row.labels.get("__name__") == "lanewatch_finding" {
            host.finding(row);
        }
    }
    compute_capacity(&host, &[]).total
}

/// `installed = share + stranded`, as Prometheus records it.
#[test]
fn recording_rules_count_every_wire_once() {
    let Some(promtool) = require(Tool::Promtool) else { return };
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("alerts/lanewatch.recording.yml");
    let mut series = String::new();
    let (mut installed, mut share, mut stranded) = (String::new(), String::new(), String::new());
    for (expected, reading) in hosts() {
        for sample in reading.samples.iter().filter(|it| is_recorded(&it.name)) {
            let labels: Vec<_> = sample.labels.iter().map(|(name, value)| format!(", {name}={value:?}")).collect();
            let labels = labels.concat();
            let name = format!("{}{{job=\"l\", instance=\"{}\"{labels}}}", sample.name, expected.host);
            writeln!(series, "      - {{series: '{name}', values: '{}x10'}}", sample.text).unwrap();
        }
        let line = |out: &mut String, name: &str, cause: &str, gigabits: f64| {
            let labels = format!("{{job=\"l\", instance=\"{}\"{cause}}}", expected.host);
            // Rounded to bytes: the sums of shares are no whole numbers.
            let value = (gigabits * GIGABIT).round();
            writeln!(out, "          - {{labels: '{name}{labels}', value: {value}}}").unwrap();
        };
        line(&mut installed, "instance:lanewatch_port_installed_bytes_per_second:sum", "", expected.installed);
        line(&mut share, "", "", expected.share);
        if expected.share < expected.installed {
            let cause = format!(", cause=\"{}\"", expected.cause);
            line(&mut stranded, "", &cause, expected.installed - expected.share);
        }
    }
    let query = |expression: &str, samples: &str| {
        format!("      - expr: {expression}\n        eval_time: 9m\n        exp_samples:\n{samples}")
    };
    let text = format!(
        "rule_files: [{}]\nevaluation_interval: 1m\ntests:\n  - interval: 1m\n    input_series:\n{series}    \
         promql_expr_test:\n{}{}{}",
        rules.display(),
        query("instance:lanewatch_port_installed_bytes_per_second:sum", &installed),
        query("round(instance:lanewatch_port_share_bytes_per_second:sum)", &share),
        query("round(instance:lanewatch_port_stranded_bytes_per_second:sum)", &stranded),
    );
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("wires.test.yml");
    fs::write(&file, text).unwrap();
    let mut command = Command::new(promtool);
    command.args(["test", "rules"]).arg(&file);
    let output = to_its_end(command, Duration::from_secs(120));
    assert_eq!(output.code, Some(0), "{}{}", output.stdout, output.stderr);
}

fn is_recorded(name: &str) -> bool {
    ["lanewatch_port_", "lanewatch_wire_", "lanewatch_finding", "lanewatch_device_info"]
        .iter()
        .any(|start| name.starts_with(start))
}

/// Archives and checkouts without symbolic links have files in their place, each with the link's target.
#[test]
fn links_may_be_files() {
    let cases = Case::all(&own_folder()).unwrap();
    for case in cases.iter().filter(|case| case.name.starts_with("wires-of-a-bond")) {
        let outcome = Outcome::of_stage(case, &without_links(case.stage().unwrap()), &replay::Agent);
        assert!(outcome.is_right(), "{}", crate::judge::table(&[outcome]));
    }
}

/// The same host, every link below `sys` written as a file.
fn without_links(stage: Stage) -> Stage {
    let mut folders = vec![fs::canonicalize(stage.host().join("sys")).unwrap()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if let Ok(target) = fs::read_link(&path) {
                fs::remove_file(&path).unwrap();
                fs::write(&path, format!("{}\n", target.display())).unwrap();
            } else if path.is_dir() {
                folders.push(path);
            }
        }
    }
    stage
}
