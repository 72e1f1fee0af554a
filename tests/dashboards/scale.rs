//! What a fleet of 10,000 hosts makes of the queries: a fiftieth of it in a real Prometheus that refuses what needs more
//! than a fiftieth of the samples that Prometheus allows a query.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufWriter;
use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::common::fleet::{Fleet, Form};
use crate::common::http;
use crate::common::stores::prometheus_of;
use crate::lint::{OF_ONE_HOST, panels, text};
use crate::queries::{escaped, interpolated};
use crate::shipped;

const HOSTS: usize = 200;

/// Prometheus' own limit, `--query.max-samples`.
const SAMPLES: usize = 50_000_000;

/// Longest time that a dashboard opens with, in seconds.
const LONGEST: u64 = 7 * 86_400;

/// Most lines or rows: 100, but for tables by site and rack, of which these few hosts have 111.
const MOST: usize = 111;

/// The query as it would be if each series had its one sample at all points: what Prometheus holds is the same.
fn at_all_points(expression: &str) -> String {
    let mut out = expression.to_owned();
    for function in ["rate", "increase", "changes", "max_over_time", "last_over_time"] {
        out = out.replace(&format!("{function}("), "(");
    }
    for range in ["[$__rate_interval]", "[$__range]", "[1h]", " offset $__rate_interval"] {
        out = out.replace(range, "");
    }
    out
}

/// How long a dashboard's time is, in seconds.
fn opened(dashboard: &Value) -> u64 {
    match text(&dashboard["time"], "from") {
        "now-6h" => 6 * 3600,
        "now-24h" => 86_400,
        "now-7d" => LONGEST,
        other => panic!("{other}"),
    }
}

#[test]
fn queries_of_a_large_fleet_stay_within_limits() {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let fleet = Fleet::new(HOSTS, (now - LONGEST) / 60 * 60 - 600);
    let samples = format!("--query.max-samples={}", SAMPLES * HOSTS / 10_000);
    let lookback = format!("--query.lookback-delta={}s", LONGEST + 600);
    let write = |out: &mut BufWriter<File>| {
        fleet.write(out, Form::OpenMetrics, None).unwrap();
    };
    let more = [&*samples, &*lookback, "--storage.tsdb.retention.time=1y"];
    let Some(server) = prometheus_of(write, Duration::from_secs(240), &more) else { return };
    let (mut asked, mut wrong) = (0, Vec::new());
    for (name, dashboard) in shipped().iter().filter(|(name, _)| !OF_ONE_HOST.contains(&name.as_str())) {
        for panel in panels(dashboard) {
            let points = panel["maxDataPoints"].as_u64().unwrap_or(1500);
            for target in panel["targets"].as_array().unwrap() {
                let query = interpolated(dashboard, &at_all_points(text(target, "expr")), &BTreeMap::new());
                let query = escaped(&query);
                let (start, end) = (fleet.time, fleet.time + opened(dashboard));
                let path = if target["instant"] == true {
                    format!("/api/v1/query?query={query}&time={start}")
                } else {
                    let step = (end - start) / points;
                    format!("/api/v1/query_range?query={query}&start={start}&end={end}&step={step}")
                };
                let answer: Value = serde_json::from_slice(&http::get(server.address, &path).unwrap().body).unwrap();
                let place = format!("{name} / {} / {}", text(panel, "title"), text(target, "refId"));
                asked += 1;
                if answer["status"] == "success" {
                    let lines = answer["data"]["result"].as_array().unwrap().len();
                    if lines > MOST {
                        wrong.push(format!("{place}: {lines} lines"));
                    }
                } else {
                    wrong.push(format!("{place}: {}", text(&answer, "error")));
                }
            }
        }
    }
    assert!(wrong.is_empty() && asked > 80, "{} of {asked}:\n{}", wrong.len(), wrong.join("\n"));
}
