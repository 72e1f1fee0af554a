//! The rules that Grafana's dashboard linter has, and the house's own. There is no list of exceptions.

use std::collections::BTreeSet;

use lanewatch::export::catalogue;
use lanewatch::export::family::MetricKind;
use serde_json::Value;

use crate::common::promql;
use crate::shipped;

/// Units of Grafana that the dashboards use; the picture of what is no unit is a wrong number.
const UNITS: [&str; 15] = [
    "none",
    "short",
    "celsius",
    "percentunit",
    "sci",
    "watt",
    "bps",
    "bytes",
    "pps",
    "cps",
    "s",
    "dateTimeFromNow",
    "dateTimeAsIso",
    "ops",
    "string",
];

/// Panels that every Grafana since 10 has.
const PANELS: [&str; 4] = ["stat", "table", "timeseries", "state-timeline"];

/// All that draws something, in folded rows too.
pub fn panels(dashboard: &Value) -> impl Iterator<Item = &Value> {
    let top = dashboard["panels"].as_array().unwrap().iter();
    top.flat_map(|panel| {
        if panel["type"] == "row" {
            panel["panels"].as_array().unwrap().as_slice()
        } else {
            std::slice::from_ref(panel)
        }
    })
}

/// The JSON pointer of the first panel that suits.
pub fn place_of(dashboard: &Value, suits: impl Fn(&Value) -> bool) -> String {
    for (index, panel) in dashboard["panels"].as_array().unwrap().iter().enumerate() {
        if panel["type"] != "row" && suits(panel) {
            return format!("/panels/{index}");
        }
        if let Some(inner) = panel["panels"].as_array().and_then(|panels| panels.iter().position(&suits)) {
            return format!("/panels/{index}/panels/{inner}");
        }
    }
    panic!("no such panel")
}

/// Dashboards that are about one host at a time.
pub const OF_ONE_HOST: [&str; 2] = ["lanewatch-host", "lanewatch-sriov"];

/// Units of Grafana's grid that a screen shows: 38 pixels each, of 1080 less what the browser and Grafana take.
const SCREEN: u64 = 24;

/// Most lines of a panel and rows of a table.
const MOST: [&str; 2] = ["topk(20, ", "bottomk(20, "];

/// Labels of which a host or a fleet has hundreds.
const MANY: [&str; 6] = ["{{instance}}", "{{device}}", "{{vf}}", "{{netdev}}", "{{pci_address}}", "{{pf}}"];

/// What stands where, and its PromQL: panels, annotations and variables.
pub fn expressions(dashboard: &Value) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for panel in panels(dashboard) {
        for target in panel["targets"].as_array().unwrap() {
            let place = format!("{} / {} / {}", text(dashboard, "title"), text(panel, "title"), text(target, "refId"));
            found.push((place, text(target, "expr").to_owned()));
        }
    }
    for annotation in dashboard["annotations"]["list"].as_array().unwrap() {
        let place = format!("{} / annotation {}", text(dashboard, "title"), text(annotation, "name"));
        found.push((place, text(&annotation["target"], "expr").to_owned()));
    }
    found
}

/// The series and the label of `label_values(series, label)`, of every variable that has one.
pub fn variables(dashboard: &Value) -> Vec<(String, String, String)> {
    let list = dashboard["templating"]["list"].as_array().unwrap().iter();
    let queries = list.filter(|variable| variable["type"] == "query");
    queries
        .map(|variable| {
            let query = text(&variable["query"], "query");
            let inner = query.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')'));
            let (series, label) = inner.and_then(|inner| inner.rsplit_once(',')).unwrap_or_else(|| panic!("{query}"));
            (text(variable, "name").to_owned(), series.to_owned(), label.trim().to_owned())
        })
        .collect()
}

pub fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or_default()
}

/// What is wrong with a dashboard; nothing where all is well.
fn complaints(dashboard: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut need = |holds: bool, what: String| {
        if !holds {
            wrong.push(format!("{}: {what}", text(dashboard, "uid")));
        }
    };
    let list = dashboard["templating"]["list"].as_array().unwrap();
    template_rules(dashboard, list, &mut need);
    row_rules(dashboard, &mut need);
    let one_host = OF_ONE_HOST.contains(&text(dashboard, "uid"));
    for panel in panels(dashboard) {
        panel_rules(panel, &mut need);
        size_rules(panel, one_host, &mut need);
        link_rules(panel, text(dashboard, "uid") == "lanewatch-host", &mut need);
    }
    let names: BTreeSet<String> = list.iter().map(|variable| text(variable, "name").to_owned()).collect();
    for (place, expression) in expressions(dashboard) {
        query_rules(&place, &expression, &names, &mut need);
    }
    wrong
}

fn template_rules(dashboard: &Value, list: &[Value], need: &mut impl FnMut(bool, String)) {
    need(dashboard["editable"] == false, "editable".into());
    need(dashboard["id"].is_null() && dashboard.get("__inputs").is_none(), "cannot be provisioned".into());
    need((8..=40).contains(&text(dashboard, "uid").len()), "uid".into());
    need(!text(dashboard, "description").is_empty(), "no description".into());
    need(dashboard["tags"].as_array().is_some_and(|tags| tags.iter().any(|tag| tag == "lanewatch")), "no tag".into());
    need(["30s", "1m", "5m"].contains(&text(dashboard, "refresh")), "refresh".into());
    let links = dashboard["links"].as_array().unwrap();
    let leads =
        |link: &Value| link["includeVars"] == true && link["keepTime"] == true && link["tags"][0] == "lanewatch";
    need(links.iter().any(leads), "no link to the others".into());
    let sources: Vec<_> = list.iter().filter(|variable| variable["type"] == "datasource").collect();
    need(sources.len() == 1, "one data source".into());
    need(text(sources[0], "name") == "datasource" && text(sources[0], "label") == "Data Source", "datasource".into());
    for (name, label) in [("job", "Job"), ("instance", "Instance")] {
        let variable = list.iter().find(|variable| variable["name"] == name);
        let one = name == "instance" && OF_ONE_HOST.contains(&text(dashboard, "uid"));
        let several = |v: &Value| v["allValue"] == ".+" && v["multi"] == true && v["includeAll"] == true;
        let single = |v: &Value| v["multi"] == false && v["includeAll"] == false && v["allValue"].is_null();
        let suits = |v: &Value| v["label"] == label && if one { single(v) } else { several(v) };
        need(variable.is_some_and(suits), format!("variable {name}"));
    }
    need(list.iter().any(|variable| variable["name"] == "cluster"), "no variable cluster".into());
    for variable in list.iter().filter(|variable| variable["type"] == "query") {
        let name = text(variable, "name");
        need(variable["refresh"] == 2, format!("{name} does not follow the time"));
        need(variable["datasource"]["uid"] == "${datasource}", format!("{name}: data source"));
        need(
            !text(variable, "label").is_empty() && !text(variable, "description").is_empty(),
            format!("{name}: label"),
        );
    }
}

/// What shows at once fits a screen; all else is in rows that are folded, and asks nothing until someone looks.
fn row_rules(dashboard: &Value, need: &mut impl FnMut(bool, String)) {
    let top = dashboard["panels"].as_array().unwrap();
    need(top.first().is_some_and(|panel| panel["type"] == "row" && panel["collapsed"] == false), "first row".into());
    let folded = |panel: &&Value| panel["type"] == "row" && panel["collapsed"] == true;
    let first = top.iter().find(folded);
    need(first.is_some(), "no row is folded".into());
    let at = first.and_then(|row| row["gridPos"]["y"].as_u64()).unwrap_or(u64::MAX);
    need(at <= SCREEN, format!("the first folded row is {at} down"));
    let mut rest = top.iter().skip_while(|panel| !folded(panel));
    need(rest.all(|panel| folded(&panel)), "something shows below folded rows".into());
}

/// What can have a line for each VF or host shows the most of them, over a fleet with few points.
fn size_rules(panel: &Value, one_host: bool, need: &mut impl FnMut(bool, String)) {
    let title = text(panel, "title");
    let lines = ["timeseries", "state-timeline"].contains(&text(panel, "type"));
    for target in panel["targets"].as_array().unwrap() {
        let (expr, legend) = (text(target, "expr"), text(target, "legendFormat"));
        let many = MANY.iter().any(|label| legend.contains(label));
        need(!lines || !many || MOST.iter().any(|most| expr.starts_with(most)), format!("{title}: a line for each"));
        let table = text(panel, "type") == "table" && !one_host;
        let rows = panel["transformations"].to_string().contains("\"instance\"");
        let limited = expr.contains("topk(100, ");
        need(!table || !rows || limited, format!("{title}: a row for each"));
    }
    let points = panel["maxDataPoints"].as_u64().unwrap_or(u64::MAX);
    need(!lines || one_host || points <= 120, format!("{title}: points"));
}

/// A host leads to its dashboard, with its cluster; a check to the runbook of its alert.
fn link_rules(panel: &Value, is_host: bool, need: &mut impl FnMut(bool, String)) {
    let title = text(panel, "title");
    if text(panel, "type") != "table" {
        return;
    }
    let kept = panel["transformations"].to_string();
    let link = |column: &str| {
        let overrides = panel["fieldConfig"]["overrides"].as_array().unwrap().iter();
        let of = overrides.filter(|one| one["matcher"]["options"] == column);
        let mut links = of.flat_map(|one| one["properties"].as_array().unwrap()).filter(|one| one["id"] == "links");
        links.next().map(|link| text(&link["value"][0], "url").to_owned()).unwrap_or_default()
    };
    if kept.contains("\"instance\"") && !is_host {
        let url = link("instance");
        let whole =
            ["/d/lanewatch-host?", "var-cluster=${__data.fields.cluster}", "var-instance=${__data.fields.instance}"];
        need(whole.iter().all(|part| url.contains(part)), format!("{title}: no link to the host"));
    }
    if kept.contains("\"subject\"") {
        let runbook = link("runbook");
        need(
            runbook == "https://lanewatch.example/runbooks/${__value.text}.md",
            format!("{title}: no link to the runbook"),
        );
    }
}

fn panel_rules(panel: &Value, need: &mut impl FnMut(bool, String)) {
    let title = text(panel, "title");
    need(!title.is_empty() && text(panel, "description").len() > 10, format!("{title}: title or description"));
    need(PANELS.contains(&text(panel, "type")), format!("{title}: {}", panel["type"]));
    need(panel["datasource"]["uid"] == "${datasource}", format!("{title}: data source"));
    need(UNITS.contains(&text(&panel["fieldConfig"]["defaults"], "unit")), format!("{title}: unit"));
    let overrides = panel["fieldConfig"]["overrides"].as_array().unwrap();
    let properties = overrides.iter().flat_map(|one| one["properties"].as_array().unwrap());
    for unit in properties.filter(|property| property["id"] == "unit") {
        need(UNITS.contains(&text(unit, "value")), format!("{title}: unit {}", unit["value"]));
    }
    let targets = panel["targets"].as_array().unwrap();
    need(!targets.is_empty(), format!("{title}: no query"));
    for target in targets {
        need(target["datasource"]["uid"] == "${datasource}", format!("{title}: data source of a query"));
    }
}

fn query_rules(place: &str, expression: &str, variables: &BTreeSet<String>, need: &mut impl FnMut(bool, String)) {
    let found = promql::parse(expression).unwrap_or_else(|error| panic!("{place}: {error}"));
    need(!found.selectors.is_empty(), format!("{place}: asks for nothing"));
    for selector in &found.selectors {
        let name = &selector.name;
        let function = selector.function.as_deref().unwrap_or_default();
        // Which jobs are lanewatch's is asked of all their hosts, over a time that no scrape interval decides.
        let of_jobs = name == "lanewatch_build_info" && function == "last_over_time";
        for label in if of_jobs { &["job"][..] } else { &["job", "instance"] } {
            let matched = selector.matches(label, "=~", &format!("${label}"));
            need(matched, format!("{place}: {name} without a matcher of {label}"));
        }
        for matcher in selector.matchers.iter().filter(|matcher| matcher.value.starts_with('$')) {
            need(variables.contains(&matcher.value[1..]), format!("{place}: no variable {}", matcher.value));
        }
        let range = selector.range.as_deref();
        if ["rate", "irate"].contains(&function) {
            need(range == Some("$__rate_interval"), format!("{place}: {range:?}"));
        }
        need(
            of_jobs || range.is_none_or(|range| range.starts_with("$__")),
            format!("{place}: a range of its own, {range:?}"),
        );
        let counter = catalogue::families().any(|family| family.name == *name && family.kind == MetricKind::Counter);
        if counter || name.ends_with("_total") {
            let rated = range.is_some() && ["rate", "irate", "increase"].contains(&function);
            // A series that begins with its first event has no increase yet: its value is.
            let begins =
                expression.contains(&format!(" unless {name}{{")) && expression.contains(" offset $__rate_interval");
            need(rated || begins, format!("{place}: {name} is a counter"));
        }
    }
    for unknown in promql::unknown(&found, |_| None) {
        need(false, format!("{place}: {unknown}"));
    }
}

#[test]
fn the_rules_have_nothing_to_say() {
    let wrong: Vec<_> = shipped().values().flat_map(complaints).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn variables_ask_for_what_agents_serve() {
    for (name, dashboard) in shipped() {
        for (variable, series, label) in variables(&dashboard) {
            let mut found = promql::parse(&series).unwrap_or_else(|error| panic!("{name}: {variable}: {error}"));
            found.labels.insert(label);
            assert_eq!(promql::unknown(&found, |_| None), Vec::<String>::new(), "{name}: {variable}");
        }
    }
}

#[test]
fn panels_do_not_lie_on_each_other() {
    for (name, dashboard) in shipped() {
        let top = dashboard["panels"].as_array().unwrap();
        let mut ids = BTreeSet::new();
        for panel in top.iter().chain(panels(&dashboard).filter(|panel| !top.contains(panel))) {
            assert!(ids.insert(panel["id"].as_u64().unwrap()), "{name}: {}", panel["title"]);
        }
        do_not_overlap(&name, top);
        for row in top.iter().filter(|panel| panel["collapsed"] == true) {
            do_not_overlap(&name, row["panels"].as_array().unwrap());
        }
    }
}

fn do_not_overlap(name: &str, panels: &[Value]) {
    let mut taken = BTreeSet::new();
    for panel in panels {
        let at = |key: &str| panel["gridPos"][key].as_u64().unwrap();
        assert!(at("x") + at("w") <= 24, "{name}: {}", panel["title"]);
        for x in at("x")..at("x") + at("w") {
            for y in at("y")..at("y") + at("h") {
                assert!(taken.insert((x, y)), "{name}: {}", panel["title"]);
            }
        }
    }
}

/// Runbooks that findings lead to are there, and every alert on a finding has its check in a table.
#[test]
fn checks_lead_to_runbooks_that_ship() {
    let alerts = crate::generate::alerts_by_check();
    assert_eq!(alerts["port_down"], "PortDown");
    assert_eq!(alerts["pcie_degraded"], "PcieLinkDegraded");
    assert!(alerts.len() > 30, "{alerts:?}");
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("alerts/runbooks");
    for (check, alert) in &alerts {
        assert!(folder.join(format!("{alert}.md")).is_file(), "{check}: {alert}");
    }
}

#[test]
fn links_lead_to_dashboards_that_ship() {
    let all = shipped();
    let uids: BTreeSet<&str> = all.values().map(|dashboard| text(dashboard, "uid")).collect();
    assert_eq!(uids.len(), all.len());
    for (name, dashboard) in &all {
        assert_eq!(name, text(dashboard, "uid"));
        let json = dashboard.to_string();
        for part in json.split("\"/d/").skip(1) {
            let uid = part.split('?').next().unwrap();
            assert!(uids.contains(uid), "{name}: {uid}");
        }
    }
}

/// A rule that lets everything pass is no rule: each of these spoils a good dashboard in one way.
#[test]
fn every_rule_can_fail() {
    let good = shipped()["lanewatch-fleet"].clone();
    assert_eq!(complaints(&good), Vec::<String>::new());
    let first = place_of(&good, |panel| panel["type"] == "timeseries");
    let panel = |at: &str| format!("{first}{at}");
    let table = place_of(&good, |panel| panel["title"] == "Findings");
    let links = |column: &str| {
        let overrides = good.pointer(&format!("{table}/fieldConfig/overrides")).unwrap().as_array().unwrap();
        let of = overrides.iter().position(|one| one["matcher"]["options"] == column).unwrap();
        let properties = overrides[of]["properties"].as_array().unwrap();
        let link = properties.iter().position(|one| one["id"] == "links").unwrap();
        format!("{table}/fieldConfig/overrides/{of}/properties/{link}/value/0/url")
    };
    let expr = |text: &str| (panel("/targets/0/expr"), Value::from(text));
    let spoiled = [
        ("/editable".to_owned(), Value::from(true)),
        ("/refresh".to_owned(), Value::from("")),
        ("/description".to_owned(), Value::from("")),
        ("/templating/list/0/name".to_owned(), Value::from("source")),
        ("/templating/list/2/multi".to_owned(), Value::from(false)),
        ("/templating/list/1/refresh".to_owned(), Value::from(1)),
        ("/templating/list/5/allValue".to_owned(), Value::Null),
        ("/links/0/keepTime".to_owned(), Value::from(false)),
        (panel("/maxDataPoints"), Value::from(1000)),
        (panel("/targets/0/legendFormat"), Value::from("{{device}}")),
        (format!("{table}/targets/0/expr"), Value::from(r#"lanewatch_finding{job=~"$job",instance=~"$instance"}"#)),
        (links("instance"), Value::from("/d/lanewatch-host?${instance:queryparam}")),
        (links("runbook"), Value::from("")),
        (format!("/panels/{}/collapsed", good["panels"].as_array().unwrap().len() - 1), Value::from(false)),
        (panel("/type"), Value::from("graph")),
        (panel("/title"), Value::from("")),
        (panel("/description"), Value::from("")),
        (panel("/fieldConfig/defaults/unit"), Value::from("Gb/s")),
        (panel("/datasource/uid"), Value::from("prometheus")),
        expr(r#"lanewatch_build_info{job=~"$job"}"#),
        expr(r#"lanewatch_build_info{job=~"$job",instance=~"$instance",version="$version"}"#),
        expr(r#"lanewatch_build{job=~"$job",instance=~"$instance"}"#),
        expr(r#"sum by (pf) (lanewatch_build_info{job=~"$job",instance=~"$instance"})"#),
        expr(r#"lanewatch_port_received_bytes_total{job=~"$job",instance=~"$instance"}"#),
        expr(r#"rate(lanewatch_port_received_bytes_total{job=~"$job",instance=~"$instance"}[$__range])"#),
        expr(r#"increase(lanewatch_port_received_bytes_total{job=~"$job",instance=~"$instance"}[5m])"#),
    ];
    for (at, value) in spoiled {
        let mut bad = good.clone();
        *bad.pointer_mut(&at).unwrap_or_else(|| panic!("{at}")) = value.clone();
        assert_eq!(complaints(&bad).len(), 1, "{at} = {value}: {:?}", complaints(&bad));
    }
}
