//! Metrics and labels that the rules use are in the catalogue.

use std::collections::BTreeSet;

use crate::common::rules::{read, unknown};

#[test]
fn rules_ask_for_what_there_is() {
    for file in ["alerts/lanewatch.recording.yml", "alerts/lanewatch.rules.yml"] {
        for rule in read(file).rules() {
            let complaints = unknown(&rule.expr);
            assert!(complaints.is_empty(), "{:?}{:?}: {complaints:?}", rule.alert, rule.record);
        }
    }
}

/// Queries in the texts of alerts are made with `printf`: what they name is served, too.
#[test]
fn texts_ask_for_what_there_is() {
    let mut asked = 0;
    for rule in read("alerts/lanewatch.rules.yml").rules() {
        for query in rule.annotations["description"].split("printf \"").skip(1) {
            let query = query.split_once('"').unwrap().0;
            // Labels of a host on their own, and formats of numbers.
            if query.starts_with("cluster=") || query.starts_with("%.") || query.starts_with("%g") {
                continue;
            }
            let query = query.replace("{%s", "{job='x'");
            assert_eq!(unknown(&query), Vec::<String>::new(), "{:?}", rule.alert);
            asked += 1;
        }
    }
    assert!(asked > 0);
}

#[test]
fn what_is_not_served_is_complained_of() {
    assert_eq!(unknown("lanewatch_findings"), ["no series \"lanewatch_findings\""]);
    assert_eq!(unknown("sum by (kind) (lanewatch_finding)"), ["no label \"kind\""]);
}

const OPERATIONS: [&str; 13] = [
    "last",
    "diff",
    "sum",
    "count",
    "rate5m",
    "increase5m",
    "sum1h",
    "sum1d",
    "avg1h",
    "avg1d",
    "ratio",
    "median",
    "max",
];

#[test]
fn what_is_recorded_is_named_by_level_metric_and_operation() {
    let file = read("alerts/lanewatch.recording.yml");
    let mut seen = BTreeSet::new();
    for record in file.rules().filter_map(|rule| rule.record.as_deref()) {
        assert!(seen.insert(record), "{record} stands twice");
        let [level, metric, operation] = record.split(':').collect::<Vec<_>>()[..] else { panic!("{record}") };
        let levels = ["instance_device_port", "instance_netdev", "instance", "rack", "site", "board"];
        assert!(levels.contains(&level), "{record}");
        assert!(metric.starts_with("lanewatch_") && !metric.ends_with("_total"), "{record}");
        assert!(OPERATIONS.contains(&operation), "{record}");
    }
}
