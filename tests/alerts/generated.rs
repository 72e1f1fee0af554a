//! What is made from the rule files: the variants for Kubernetes and vmalert, and the tables in the documents.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::common::rules::{Rule, read, text};

const MADE: &str = "# Made by `make alerts` from ";

/// Compares with what is committed, or writes it.
fn committed(path: &str, made: &str) {
    let whole = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    if std::env::var_os("LANEWATCH_UPDATE").is_some() {
        fs::create_dir_all(whole.parent().unwrap()).unwrap();
        fs::write(&whole, made).unwrap();
    }
    let found = fs::read_to_string(&whole).unwrap_or_default();
    assert!(found == made, "{path} is not what `make alerts` writes");
}

/// The part between two comments of a document: what it is, and what it should be.
fn table(path: &str, name: &str, made: &str) {
    let document = text(path);
    let (before, rest) = document.split_once(&format!("<!-- {name}: ")).unwrap();
    let (note, rest) = rest.split_once('\n').unwrap();
    let (_, after) = rest.split_once(&format!("<!-- end of {name} -->")).unwrap();
    committed(path, &format!("{before}<!-- {name}: {note}\n{made}<!-- end of {name} -->{after}"));
}

/// The groups of a rule file as text, without what stands above them.
fn groups(path: &str) -> String {
    text(path).split_once("groups:\n").unwrap().1.to_owned()
}

#[test]
fn kubernetes_reads_the_same_rules() {
    let mut made = format!("{MADE}lanewatch.rules.yml and lanewatch.recording.yml.\n");
    made.push_str("apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata:\n  name: lanewatch\n");
    made.push_str("  labels:\n    app.kubernetes.io/name: lanewatch\nspec:\n  groups:\n");
    for path in ["alerts/lanewatch.recording.yml", "alerts/lanewatch.rules.yml"] {
        for line in groups(path).lines() {
            let indent = if line.is_empty() { "" } else { "  " };
            writeln!(made, "{indent}{line}").unwrap();
        }
        made.push('\n');
    }
    committed("alerts/kubernetes/lanewatch.prometheusrule.yaml", &format!("{}\n", made.trim_end()));
}

#[test]
fn vmalert_reads_the_same_rules_without_what_it_does_not_know() {
    let lines = groups("alerts/lanewatch.rules.yml");
    let lines = lines.lines().filter(|line| !line.trim_start().starts_with("keep_firing_for: "));
    let mut made = format!(
        "{MADE}lanewatch.rules.yml, for versions of vmalert that do not know keep_firing_for (Debian's 1.79):\n\
         # without it, an alert ends as soon as its finding does. lanewatch.recording.yml is read as it is.\ngroups:\n"
    );
    lines.for_each(|line| writeln!(made, "{line}").unwrap());
    committed("alerts/vmalert/lanewatch.rules.yml", &made);
}

/// Rules by alert, in the order of the file.
fn alerts() -> Vec<(String, Vec<Rule>)> {
    let mut alerts: Vec<(String, Vec<Rule>)> = Vec::new();
    for rule in read("alerts/lanewatch.rules.yml").groups.into_iter().flat_map(|group| group.rules) {
        let name = rule.alert.clone().unwrap();
        match alerts.iter_mut().find(|(known, _)| *known == name) {
            Some((_, rules)) => rules.push(rule),
            None => alerts.push((name, vec![rule])),
        }
    }
    alerts
}

fn minutes(time: &str) -> u32 {
    let number = |end| time.strip_suffix(end).and_then(|number: &str| number.parse::<u32>().ok());
    number('m').or_else(|| number('h').map(|hours| hours * 60)).unwrap_or(0)
}

#[test]
fn every_alert_is_in_one_table() {
    let mut made = String::from(
        "| alert | severity | meaning | agent waits | fires after (`for`) | agent clears | resolves after \
         (`keep_firing_for`) | RESOLVED within |\n|---|---|---|---|---|---|---|---|\n",
    );
    for (name, rules) in alerts() {
        for rule in rules {
            let (hold, keep) = (rule.hold.as_deref().unwrap_or(""), rule.keep_firing_for.as_deref().unwrap_or(""));
            let (severity, summary) = (&rule.labels["severity"], &rule.annotations["summary"]);
            let check = rule.expr.split_once("check=\"").and_then(|(_, rest)| rest.split('"').next()?.parse().ok());
            let details = check.map(lanewatch::assess::limits::details);
            let (waits, clears) = details.map_or_else(Default::default, |details| (details.hold, details.clear_after));
            // One message more of the group, as alertmanager.example.yml has it.
            let message = if severity == "critical" { 1 } else { 5 };
            let resolved = format!("{}m", minutes(keep) + message);
            let resolved =
                if ["", "at once"].contains(&&*clears) { resolved } else { format!("{resolved} after that") };
            writeln!(
                made,
                "| [{name}](runbooks/{name}.md) | {severity} | {summary} | {waits} | {hold} | {clears} | {keep} | {resolved} |"
            )
            .unwrap();
        }
    }
    table("alerts/README.md", "alerts", &made);
}

#[test]
fn the_example_of_limits_has_those_of_the_rules() {
    let example = read("alerts/thresholds.example.yml");
    let mut recorded: BTreeMap<&str, &str> = BTreeMap::new();
    for rule in example.rules() {
        let limit = rule.expr.strip_prefix("vector(").and_then(|rest| rest.strip_suffix(')')).unwrap();
        recorded.insert(rule.record.as_deref().unwrap(), limit);
    }
    let mut used: BTreeMap<String, String> = BTreeMap::new();
    for (_, rules) in alerts() {
        for part in rules.iter().flat_map(|rule| rule.expr.split("scalar(max(").skip(1)) {
            let (name, rest) = part.split_once(") or vector(").unwrap();
            used.insert(name.to_owned(), rest.split_once("))").unwrap().0.to_owned());
        }
    }
    let used: BTreeMap<&str, &str> = used.iter().map(|(name, limit)| (name.as_str(), limit.as_str())).collect();
    assert_eq!(recorded, used);
    assert!(!used.is_empty());
    for (name, limit) in used {
        assert!(
            text("alerts/README.md").contains(&format!("| `{name}` | {limit} |")),
            "{name} is not in alerts/README.md"
        );
    }
}
