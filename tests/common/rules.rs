//! The rule files that are shipped.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use lanewatch::export::catalogue;
use serde::Deserialize;

use super::promql::{self, Selector};

/// A rule file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleFile {
    /// Its groups.
    pub groups: Vec<Group>,
}

/// A group of rules, which are evaluated one after the other.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// Name.
    pub name: String,
    /// How often it is evaluated; Prometheus' own where it does not say.
    pub interval: Option<String>,
    /// Its rules.
    pub rules: Vec<Rule>,
}

/// A rule: it has one of `record` and `alert`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The series it records.
    pub record: Option<String>,
    /// The alert it gives.
    pub alert: Option<String>,
    /// PromQL.
    pub expr: String,
    /// How long it must hold.
    #[serde(rename = "for")]
    pub hold: Option<String>,
    /// How long it goes on after that.
    pub keep_firing_for: Option<String>,
    /// Labels of the alert.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Its texts.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
}

/// A file below the project's directory.
pub fn text(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A rule file as it is shipped, but that it waits seconds where it waits minutes and goes on for seconds, too.
pub fn hastened(path: &str) -> String {
    let lines = text(path);
    let lines = lines.lines().map(|line| match line.trim_start().split_once(": ") {
        Some((key @ ("for" | "keep_firing_for" | "interval"), _)) => {
            let indent = line.len() - line.trim_start().len();
            format!("{}{key}: {}s\n", " ".repeat(indent), if key == "interval" { 1 } else { 3 })
        }
        _ => format!("{line}\n"),
    });
    lines.collect()
}

/// A rule file below the project's directory.
pub fn read(path: &str) -> RuleFile {
    serde_saphyr::from_str(&text(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

impl RuleFile {
    /// All rules.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.groups.iter().flat_map(|group| &group.rules)
    }
}

/// Labels of a series that lanewatch does not serve and the shipped rules know: those that they record, with the labels
/// of all metrics that the expression uses, which may be more than it has; limits, which have none; and the one of
/// node_exporter.
pub fn recorded(name: &str) -> Option<Vec<String>> {
    static RECORDED: LazyLock<BTreeMap<String, Vec<String>>> = LazyLock::new(|| {
        let mut recorded = BTreeMap::new();
        for rule in read("alerts/lanewatch.recording.yml").rules() {
            let Some(record) = &rule.record else { continue };
            let labels = labels(&rule.expr, &recorded);
            recorded.insert(record.clone(), labels);
        }
        recorded
    });
    if name.starts_with("lanewatch:") && name.ends_with(":threshold") {
        return Some(Vec::new());
    }
    if name == "node_textfile_mtime_seconds" {
        return Some(vec!["file".to_owned()]);
    }
    // What Prometheus keeps of alerts has the labels of what they are about.
    if name.starts_with("ALERTS") {
        let labels = ["alertname", "alertstate", "severity", "component", "check", "subject", "device", "port", "link"];
        return Some(labels.iter().chain(&["pci_address"]).map(|label| (*label).to_owned()).collect());
    }
    RECORDED.get(name).cloned()
}

fn labels(expression: &str, recorded: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    let found = promql::parse(expression).unwrap();
    let mut labels = found.made;
    for Selector { name, .. } in &found.selectors {
        let served = catalogue::families().find(|family| family.name == name);
        labels.extend(served.into_iter().flat_map(|family| family.labels).map(|&label| label.to_owned()));
        labels.extend(recorded.get(name).into_iter().flatten().cloned());
    }
    labels.into_iter().collect()
}

/// What in an expression nobody serves and no shipped rule records.
pub fn unknown(expression: &str) -> Vec<String> {
    let mut found = promql::parse(expression).unwrap();
    // `label_replace` from no label sets a constant.
    found.labels.remove("");
    promql::unknown(&found, recorded)
}
