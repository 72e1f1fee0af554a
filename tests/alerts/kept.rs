//! Alerts, checks, runbooks and rule tests belong together one to one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use lanewatch::model::check::Check;
use lanewatch::model::reason::FindingReason;
use serde::Deserialize;

use crate::common::promql;
use crate::common::rules::{Rule, read, text};

/// Checks that tell and call nobody: their findings are info by default.
const SILENT: [&str; 4] = ["port_counter_saturated", "pcie_limited_by_slot", "vf_leftover_config", "host_posture"];

/// Where runbooks are, until someone says where theirs are.
const RUNBOOKS: &str = "https://lanewatch.example/runbooks";

/// What an alert on a finding is about, whatever other labels the targets have.
const IDENTITY: &str = "cluster, site, rack, job, instance, check, subject, device, port, pci_address";

fn rules() -> Vec<Rule> {
    read("alerts/lanewatch.rules.yml").groups.into_iter().flat_map(|group| group.rules).collect()
}

fn names() -> BTreeSet<String> {
    rules().into_iter().map(|rule| rule.alert.unwrap()).collect()
}

/// Names of files of a folder of `alerts/`, without this ending.
fn files(folder: &str, ending: &str) -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("alerts").join(folder);
    let names = fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    names.filter_map(|name| name.strip_suffix(ending).map(str::to_owned)).collect()
}

#[test]
fn every_alert_has_a_runbook_and_every_runbook_an_alert() {
    assert_eq!(files("runbooks", ".md"), names());
    for rule in rules() {
        let name = rule.alert.unwrap();
        assert_eq!(rule.annotations["runbook_url"], format!("{RUNBOOKS}/{name}.md"));
        let dashboard = rule.annotations["dashboard_url"].strip_prefix("https://grafana.example/d/").unwrap();
        let uid = dashboard.split('?').next().unwrap();
        assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("dashboards/{uid}.json")).exists(), "{name}: {uid}");
    }
}

#[test]
fn runbooks_say_what_on_call_asks() {
    let sections = ["## Meaning\n", "## Impact\n", "## Diagnosis\n", "## Mitigation\n", "## When to ignore it\n"];
    for name in names() {
        let runbook = text(&format!("alerts/runbooks/{name}.md"));
        assert!(runbook.starts_with(&format!("# {name}\n")), "{name}");
        let found: Vec<&str> = runbook.split_inclusive('\n').filter(|line| line.starts_with("## ")).collect();
        assert_eq!(found, sections, "{name}");
        assert!(runbook.matches("```").count() >= 2, "{name} has no command");
        assert!(!runbook.contains("\n## Meaning\n\n## "), "{name}");
    }
}

/// What runbooks print and ask for is served; commands of lanewatch that they name are there.
#[test]
fn runbooks_name_what_there_is() {
    let metrics = text("METRICS.md");
    let commands = lanewatch::cli::args::command();
    let commands: BTreeSet<&str> = commands.get_subcommands().map(clap::Command::get_name).collect();
    for name in names() {
        let runbook = text(&format!("alerts/runbooks/{name}.md"));
        for (at, _) in runbook.match_indices("lanewatch_") {
            let metric: String = runbook[at..].chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect();
            assert!(metrics.contains(&format!("`{metric}`")), "{name}: {metric}");
        }
        for part in runbook.split("$ lanewatch ").skip(1) {
            let command = part.split([' ', '\n']).next().unwrap();
            assert!(commands.contains(command), "{name}: lanewatch {command}");
        }
        for part in runbook.split("](").skip(1) {
            let link = part.split([')', '#']).next().unwrap();
            let there = Path::new(env!("CARGO_MANIFEST_DIR")).join("alerts/runbooks").join(link).exists();
            assert!(there, "{name}: {link}");
        }
    }
}

/// Runbooks show findings as `lanewatch check` prints them: severity, check, subject, reason, since when.
#[test]
fn runbooks_show_findings_as_check_prints_them() {
    let mut shown = 0;
    for name in names() {
        let runbook = text(&format!("alerts/runbooks/{name}.md"));
        for part in runbook.split("$ lanewatch check\n").skip(1) {
            let Some(output) = part.split("\n$ ").next().and_then(|part| part.strip_prefix("...\n")) else {
                assert!(part.starts_with("$ ") || part.starts_with("```"), "{name}: not as `check` prints it: {part}");
                continue;
            };
            let output = output.split("```").next().unwrap();
            assert!(output.lines().all(|line| line.chars().count() <= 100), "{name}: wider than `check` prints");
            let (head, since) = output.lines().next().unwrap().split_once("), ").unwrap();
            let (finding, reason) = head.split_once(" (").unwrap();
            let words: Vec<&str> = finding.split(' ').collect();
            assert!(["critical", "warning"].contains(&words[0]) && words.len() == 3, "{name}: {head}");
            assert!(Check::ALL.iter().any(|check| check.as_str() == words[1]), "{name}: {head}");
            assert!(FindingReason::parse(reason).is_some(), "{name}: {head}");
            assert_eq!(since, "since 15:07 (2 h)", "{name}");
            shown += 1;
        }
    }
    assert!(shown > 15, "{shown}");
}

#[test]
fn every_check_that_calls_for_someone_has_an_alert() {
    let known: BTreeSet<&str> = Check::ALL.iter().map(|check| check.as_str()).collect();
    let mut alerted = BTreeSet::new();
    for rule in rules() {
        for selector in promql::parse(&rule.expr).unwrap().selectors.iter().filter(|s| s.name == "lanewatch_finding") {
            let check = selector.matchers.iter().find(|matcher| matcher.label == "check").unwrap();
            assert!(known.contains(check.value.as_str()), "{:?}: {}", rule.alert, check.value);
            alerted.insert(check.value.clone());
        }
    }
    let silent: BTreeSet<&str> = known.iter().copied().filter(|check| !alerted.contains(*check)).collect();
    assert_eq!(silent, BTreeSet::from(SILENT));
}

#[test]
fn alerts_on_findings_outlive_a_change_of_reason() {
    for rule in rules().iter().filter(|rule| rule.expr.contains("lanewatch_finding")) {
        let counts = rule.expr.starts_with("count by (cluster, job, site, rack)");
        assert!(counts || rule.expr.starts_with(&format!("max by ({IDENTITY}")), "{}", rule.expr);
        // The last known state holds while the agent is down.
        let (name, severity) = (rule.alert.as_deref().unwrap(), &rule.labels["severity"]);
        let goes_on = format!("(ALERTS{{alertname=\"{name}\", alertstate=\"firing\", severity=\"{severity}\"}})");
        assert!(counts || rule.expr.contains(&goes_on), "{}", rule.expr);
    }
}

/// Labels of targets that a rule does not name, such as a pod's, make no alert of their own.
#[test]
fn every_alert_has_an_identity_of_its_own() {
    for rule in rules() {
        let aggregated = ["max by (", "count by (", "absent(", "time() - max by ("];
        assert!(aggregated.iter().any(|start| rule.expr.starts_with(start)), "{}", rule.expr);
    }
}

/// Who is woken reads where, since when and what to do first, and finds the runbook and the dashboard.
#[test]
fn every_text_says_where_what_to_do_first_and_where_to_look() {
    const FIRST: [&str; 23] = [
        "Move ",
        "Create ",
        "Check ",
        "Suspect ",
        "Replace ",
        "Reseat ",
        "Drain ",
        "Clean ",
        "Take it ",
        "Set ",
        "Give ",
        "Start ",
        "Restart ",
        "Enable ",
        "Spread ",
        "Bind ",
        "Compare ",
        "Renew ",
        "Finish ",
        "Run ",
        "Clear it ",
        "Find out ",
        "Raise ",
    ];
    for rule in rules() {
        let (name, texts) = (rule.alert.as_deref().unwrap(), &rule.annotations);
        let text = texts["description"].split_whitespace().collect::<Vec<_>>().join(" ");
        // A sentence that begins with what to do, or with the command that says more.
        let acts = |first: &str| text.contains(&format!(". {first}")) || text.contains(&format!("}} {first}"));
        let command = text.contains(". `lanewatch ");
        assert!(command || FIRST.iter().any(|first| acts(first)), "{name}: nothing to do first: {text}");
        let of_finding = rule.expr.contains("lanewatch_finding{");
        let of_host = of_finding && !rule.expr.starts_with("count by");
        let since = format!("alertname='{name}'");
        assert!(!of_finding || text.contains(&since), "{name}: since when");
        assert!(!of_host || text.contains("{{ $labels.instance }}"), "{name}: where");
        assert_eq!(texts["runbook_url"], format!("https://lanewatch.example/runbooks/{name}.md"));
        let dashboard = &texts["dashboard_url"];
        assert!(dashboard.starts_with("https://grafana.example/d/lanewatch-"), "{name}: {dashboard}");
        assert!(!of_host || dashboard.contains("var-instance={{ $labels.instance }}"), "{name}: {dashboard}");
    }
}

/// Series come in any order from Prometheus: a list in a text that is not sorted changes from evaluation to evaluation.
#[test]
fn lists_in_texts_are_in_order() {
    let mut lists = 0;
    for rule in rules() {
        for text in rule.annotations.values() {
            for action in text.split("{{").skip(1).filter_map(|rest| rest.split("}}").next()) {
                if action.trim_start().starts_with("range ") && action.contains("| query") {
                    lists += 1;
                    assert!(action.contains("| query | sortByLabel "), "{:?}: {action}", rule.alert);
                }
            }
        }
    }
    assert!(lists > 0, "no rule lists anything");
}

#[test]
fn alerts_wait_and_go_on() {
    for rule in rules() {
        let name = rule.alert.as_deref().unwrap();
        let minutes = |text: &str| text.strip_suffix('m').or(text.strip_suffix('h')).unwrap().parse::<u32>().unwrap();
        assert!(minutes(rule.hold.as_deref().unwrap()) >= 1, "{name}");
        assert!(rule.keep_firing_for.is_some() || name == "LanewatchAbsent", "{name}");
        assert!(["critical", "warning"].contains(&rule.labels["severity"].as_str()), "{name}");
        let summary = &rule.annotations["summary"];
        assert!(summary.ends_with('.') && !summary.contains("{{"), "{name}: {summary}");
        assert!(rule.labels.values().all(|value| !value.contains("{{")), "{name}");
    }
}

#[derive(Deserialize)]
struct RuleTests {
    tests: Vec<RuleTest>,
}

#[derive(Deserialize)]
struct RuleTest {
    name: String,
    input_series: Vec<serde::de::IgnoredAny>,
    #[serde(default, rename = "alert_rule_test")]
    looks: Vec<Look>,
}

#[derive(Deserialize)]
struct Look {
    alertname: String,
    exp_alerts: Vec<Expected>,
}

#[derive(Deserialize)]
struct Expected {
    exp_labels: BTreeMap<String, String>,
    exp_annotations: BTreeMap<String, String>,
}

/// For each severity of each alert a test where it fires, texts and all, and for each alert one where it never does
/// although there is something to look at.
#[test]
fn every_alert_is_seen_to_fire_and_not_to_fire() {
    let (mut fires, mut silent) = (BTreeSet::new(), BTreeSet::new());
    for file in files("tests", ".test.yml") {
        let tests: RuleTests = serde_saphyr::from_str(&text(&format!("alerts/tests/{file}.test.yml"))).unwrap();
        for test in tests.tests {
            let by_name = test.looks.iter().map(|case| case.alertname.as_str());
            for name in by_name.collect::<BTreeSet<_>>() {
                let cases = || test.looks.iter().filter(|case| case.alertname == name);
                let expected: Vec<&Expected> = cases().flat_map(|case| &case.exp_alerts).collect();
                for alert in &expected {
                    assert_eq!(alert.exp_annotations.len(), 4, "{file}: {}", test.name);
                    fires.insert((name.to_owned(), alert.exp_labels["severity"].clone()));
                }
                if expected.is_empty() && !test.input_series.is_empty() {
                    silent.insert(name.to_owned());
                }
            }
        }
    }
    let all: BTreeSet<_> = rules().iter().map(|r| (r.alert.clone().unwrap(), r.labels["severity"].clone())).collect();
    assert_eq!(fires, all);
    assert_eq!(silent, names());
}
