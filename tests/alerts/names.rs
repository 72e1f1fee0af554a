//! Metrics and labels that the rules use are in the catalogue.

use std::collections::BTreeSet;

use crate::common::rules::{read, unknown};

#[test]
fn rules_ask_for_what_there_is() {
    for rule in read("alerts/lanewatch.recording.yml").rules() {
        let complaints = unknown(&rule.expr);
        assert!(complaints.is_empty(), "{:?}: {complaints:?}", rule.record);
    }
}

#[test]
fn what_is_recorded_is_named_by_level_metric_and_operation() {
    let file = read("alerts/lanewatch.recording.yml");
    let mut seen = BTreeSet::new();
    for record in file.rules().filter_map(|rule| rule.record.as_deref()) {
        assert!(seen.insert(record), "{record} stands twice");
        let [level, metric, operation] = record.split(':').collect::<Vec<_>>()[..] else { panic!("{record}") };
        assert!(["instance_device_port", "instance", "rack", "site"].contains(&level), "{record}");
        assert!(metric.starts_with("lanewatch_") && !metric.ends_with("_total"), "{record}");
        assert!(["last", "diff", "sum", "count", "rate5m"].contains(&operation), "{record}");
    }
}
