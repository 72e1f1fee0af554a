//! Every query of every panel, annotation and variable, asked of a real Prometheus that has the fleet's samples.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::sync::LazyLock;
use std::time::Duration;

use serde_json::Value;

use crate::common::http;
use crate::common::run::Server;
use crate::common::stores::prometheus_of;
use crate::fill::{END, INTERVAL, START, openmetrics};
use crate::lint::{expressions, panels, place_of, text, variables};
use crate::shipped;

/// A Prometheus over samples that promtool has made blocks of.
pub struct Filled {
    server: Server,
}

/// One for all tests of this program; none where a tool is not installed.
pub fn filled() -> Option<&'static Filled> {
    static FILLED: LazyLock<Option<Filled>> = LazyLock::new(Filled::new);
    FILLED.as_ref()
}

impl Filled {
    fn new() -> Option<Self> {
        // A series that ends has no mark of its end in blocks made of text: so it ends where the next scrape is.
        let lookback = format!("--query.lookback-delta={}s", INTERVAL - 1);
        let write = |out: &mut BufWriter<File>| out.write_all(openmetrics().as_bytes()).unwrap();
        let more = [lookback.as_str(), "--storage.tsdb.retention.time=100y"];
        Some(Self { server: prometheus_of(write, Duration::from_secs(120), &more)? })
    }

    /// The answer's data, to a path of the API and its parameters.
    pub fn ask(&self, path: &str, parameters: &[(&str, &str)]) -> Value {
        let pairs = parameters.iter().map(|(name, value)| format!("{}={}", escaped(name), escaped(value)));
        let answer = http::get(self.server.address, &format!("/api/v1/{path}?{}", pairs.collect::<Vec<_>>().join("&")));
        let answer: Value = serde_json::from_slice(&answer.unwrap().body).unwrap();
        assert_eq!(answer["status"], "success", "{parameters:?}: {answer}");
        answer["data"].clone()
    }

    /// Series of an expression: now, or over the time that the fleet was watched.
    pub fn query(&self, expression: &str, now: bool) -> Vec<Value> {
        let (start, end, step) = ((START + 300).to_string(), END.to_string(), INTERVAL.to_string());
        let answer = if now {
            self.ask("query", &[("query", expression), ("time", &end)])
        } else {
            self.ask("query_range", &[("query", expression), ("start", &start), ("end", &end), ("step", &step)])
        };
        answer["result"].as_array().unwrap().clone()
    }

    /// The values of a label.
    fn values(&self, label: &str, series: &str) -> Vec<Value> {
        let (start, end) = (START.to_string(), END.to_string());
        let parameters = [("match[]", series), ("start", &start), ("end", &end)];
        self.ask(&format!("label/{label}/values"), &parameters).as_array().unwrap().clone()
    }
}

/// The expression with values in the place of the variables, as Grafana puts them there: `All` is the variable's
/// `allValue`, unless it is said what is chosen.
pub fn interpolated(dashboard: &Value, expression: &str, chosen: &BTreeMap<&str, &str>) -> String {
    let mut expression = expression.replace("$__rate_interval", &format!("{}s", 4 * INTERVAL));
    expression = expression.replace("$__range", &format!("{}s", END - START));
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        let name = text(variable, "name");
        // Of a variable that offers no `All`, every value is asked for at once.
        let all = Some(text(variable, "allValue")).filter(|all| !all.is_empty()).unwrap_or(".+");
        let value = chosen.get(name).copied().unwrap_or(all);
        expression = expression.replace(&format!("\"${name}\""), &format!("\"{value}\""));
    }
    // `$1` is a group of label_replace, which Grafana leaves as it is.
    assert!(!expression.replace("\"$1\"", "").contains('$'), "{expression}");
    expression
}

/// A text as it may stand in a URL.
pub fn escaped(text: &str) -> String {
    text.bytes().fold(String::new(), |out, byte| out + &format!("%{byte:02X}"))
}

/// Whether a series has a value that is a number.
fn has_a_number(series: &Value) -> bool {
    let one = series["value"].as_array().into_iter();
    let many = series["values"].as_array().into_iter().flatten().filter_map(Value::as_array);
    one.chain(many).any(|value| value[1].as_str().is_some_and(|text| text.parse::<f64>().is_ok_and(f64::is_finite)))
}

/// How many queries a dashboard has, and which of them have no data.
fn without_data(prometheus: &Filled, dashboard: &Value) -> (usize, Vec<String>) {
    let (all, mut asked, mut empty) = (BTreeMap::new(), 0, Vec::new());
    let now: BTreeMap<&str, bool> = panels(dashboard)
        .flat_map(|panel| panel["targets"].as_array().unwrap())
        .map(|target| (text(target, "expr"), target["instant"] == true))
        .collect();
    for (place, expression) in expressions(dashboard) {
        let instant = now.get(expression.as_str()).copied().unwrap_or(false);
        let query = interpolated(dashboard, &expression, &all);
        asked += 1;
        if !prometheus.query(&query, instant).iter().any(has_a_number) {
            empty.push(format!("{place}: {query}"));
        }
    }
    for (name, series, label) in variables(dashboard) {
        asked += 1;
        if prometheus.values(&label, &interpolated(dashboard, &series, &all)).is_empty() {
            empty.push(format!("{} / variable {name}", text(dashboard, "title")));
        }
    }
    (asked, empty)
}

#[test]
fn every_query_has_data() {
    let Some(prometheus) = filled() else { return };
    for (name, dashboard) in shipped() {
        let (asked, empty) = without_data(prometheus, &dashboard);
        println!("{name}: {asked} queries, {} without data", empty.len());
        assert!(empty.is_empty(), "{} of {asked} without data:\n{}", empty.len(), empty.join("\n"));
    }
}

#[test]
fn a_query_without_data_is_seen() {
    let Some(prometheus) = filled() else { return };
    let mut dashboard = shipped()["lanewatch-exporter"].clone();
    let first = place_of(&dashboard, |panel| panel["type"] != "row");
    let spoiled = [
        (format!("{first}/targets/0/expr"), r#"sum(up{job=~"$job",instance="nobody"})"#),
        ("/annotations/list/0/target/expr".to_owned(), "0 / (up * 0)"),
        ("/templating/list/1/query/query".to_owned(), "label_values(lanewatch_build_info, nothing)"),
    ];
    for (at, query) in &spoiled {
        *dashboard.pointer_mut(at).unwrap() = Value::from(*query);
    }
    assert_eq!(without_data(prometheus, &dashboard).1.len(), spoiled.len());
}

#[test]
fn a_host_without_site_and_rack_is_seen_and_a_site_can_be_chosen() {
    let Some(prometheus) = filled() else { return };
    let fleet = &shipped()["lanewatch-fleet"];
    let (_, hosts) = expressions(fleet).into_iter().find(|(place, _)| place.ends_with("/ Hosts / A")).unwrap();
    let count = |chosen: &[(&str, &str)]| {
        let query = interpolated(fleet, &hosts, &chosen.iter().copied().collect());
        let found = prometheus.query(&query, true);
        found.first().map_or(0, |series| series["value"][1].as_str().unwrap().parse().unwrap())
    };
    assert_eq!(count(&[]), 18 + 8);
    assert_eq!(count(&[("instance", "node15:10015")]), 1);
    assert_eq!(count(&[("site", "north")]), 8 + 3);
    assert_eq!(count(&[("site", "(north|south)"), ("rack", "(n1|s1)")]), 9 + 7);
    assert_eq!(count(&[("cluster", "west")]), 8);
    assert_eq!(count(&[("cluster", "west"), ("site", "north")]), 3);
    assert_eq!(count(&[("job", "node")]), 0);
    let sites = prometheus.values("site", r#"lanewatch_build_info{instance="node15:10015"}"#);
    assert_eq!(sites, Vec::<Value>::new());
}

/// `All` jobs has those of other exporters, too.
#[test]
fn foreign_targets_are_not_counted() {
    let Some(prometheus) = filled() else { return };
    let all = shipped();
    let ask = |dashboard: &str, panel: &str, chosen: &[(&str, &str)]| {
        let dashboard = &all[dashboard];
        let (_, query) =
            expressions(dashboard).into_iter().find(|(place, _)| place.ends_with(&format!("/ {panel} / A"))).unwrap();
        prometheus.query(&interpolated(dashboard, &query, &chosen.iter().copied().collect()), true)
    };
    let value = |dashboard: &str, panel: &str, chosen: &[(&str, &str)]| {
        let found = ask(dashboard, panel, chosen);
        found[0]["value"][1].as_str().unwrap().to_owned()
    };
    assert_eq!(value("lanewatch-fleet", "Not responding", &[]), "1");
    assert_eq!(value("lanewatch-fleet", "Not responding", &[("instance", "node19:10015")]), "1");
    assert_eq!(value("lanewatch-exporter", "Not responding", &[]), "1");
    assert_eq!(value("lanewatch-exporter", "Agents up", &[]), (18 + 8).to_string());
    assert_eq!(value("lanewatch-host", "Agent", &[("instance", "node0[12]:.*")]), "1");
    for panel in ["Agent availability", "Memory", "Open files", "Scrape duration"] {
        let found = ask("lanewatch-exporter", panel, &[]);
        assert!(found.len() >= 18, "{panel}");
        for series in found {
            let instance = series["metric"]["instance"].as_str().unwrap();
            assert!(instance.ends_with(":10015"), "{panel}: {instance}");
        }
    }
}

/// Two clusters have hosts of the same names: each is a row of its own.
#[test]
fn tables_keep_hosts_of_one_name_apart() {
    let Some(prometheus) = filled() else { return };
    let all = BTreeMap::new();
    let mut seen = 0;
    for (name, dashboard) in shipped() {
        for panel in panels(&dashboard).filter(|panel| text(panel, "type") == "table") {
            let columns = panel["transformations"].to_string();
            if !columns.contains("\"instance\"") {
                continue;
            }
            let query = interpolated(&dashboard, text(&panel["targets"][0], "expr"), &all);
            let rows = prometheus.query(&query, true);
            let hosts = |cluster: Option<&str>| -> BTreeSet<String> {
                let of = rows.iter().filter(|row| row["metric"]["cluster"].as_str() == cluster);
                of.map(|row| row["metric"]["instance"].as_str().unwrap().to_owned()).collect()
            };
            let (plain, west) = (hosts(None), hosts(Some("west")));
            assert!(!west.is_empty() && west.is_subset(&plain), "{name}: {}: {west:?}", text(panel, "title"));
            seen += 1;
        }
    }
    assert!(seen > 10, "{seen}");
}

/// Labels that a row may go without: where a scrape configuration sets none, a card has no interface, and so on.
fn labels_of(answers: &[Vec<Value>]) -> BTreeSet<String> {
    let series = answers.iter().flatten();
    series.flat_map(|one| one["metric"].as_object().into_iter().flatten().map(|(name, _)| name.clone())).collect()
}

#[test]
fn numbers_are_one_and_columns_have_something_to_show() {
    let Some(prometheus) = filled() else { return };
    let (all, mut tables, mut stats) = (BTreeMap::new(), 0, 0);
    for (name, dashboard) in shipped() {
        for panel in panels(&dashboard) {
            let place = format!("{name}: {}", text(panel, "title"));
            let ask = |target: &Value| prometheus.query(&interpolated(&dashboard, text(target, "expr"), &all), true);
            let answers = || -> Vec<_> { panel["targets"].as_array().unwrap().iter().map(ask).collect() };
            match text(panel, "type") {
                "stat" => {
                    stats += 1;
                    assert_eq!(answers().iter().map(Vec::len).collect::<Vec<_>>(), [1], "{place}");
                }
                "table" => {
                    tables += 1;
                    let (answers, steps) = (answers(), panel["transformations"].as_array().unwrap());
                    let labels = labels_of(&answers);
                    let kept = steps.iter().find(|step| step["id"] == "filterFieldsByName").unwrap();
                    for column in kept["options"]["include"]["names"].as_array().unwrap() {
                        let column = column.as_str().unwrap();
                        let query = column.strip_prefix("Value #").map(|letter| letter.as_bytes()[0] - b'A');
                        match (column, query) {
                            ("Value", _) => assert_eq!(answers.len(), 1, "{place}"),
                            (_, Some(number)) => assert!(usize::from(number) < answers.len(), "{place}: {column}"),
                            _ => assert!(labels.contains(column), "{place}: no answer has a label {column}"),
                        }
                    }
                    // More queries are one row where their labels agree: what has no label in common is a table apart.
                    for answer in &answers {
                        let shared = labels_of(std::slice::from_ref(answer));
                        let first = labels_of(&answers[..1]);
                        assert!(shared.intersection(&first).next().is_some(), "{place}");
                    }
                }
                _ => {}
            }
        }
    }
    assert!(tables > 20 && stats > 25, "{tables} tables, {stats} numbers");
}
