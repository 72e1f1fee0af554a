//! What an audit asks for, and what a simulated fleet is written with, is what the catalogue says that agents serve.

use std::collections::{BTreeMap, BTreeSet};

use lanewatch::export::catalogue::families;
use lanewatch::fleet::query::{LINE_RATIOS, Scope};

use crate::common::exposition::parse;
use crate::common::fleet::{AUDITED, name};
use crate::common::promql;
use crate::simulated::fleet;

fn scope() -> Scope {
    let labels = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    Scope { matchers: String::new(), identity: labels(&["job", "instance"]), by: labels(&["site", "rack"]) }
}

#[test]
fn every_query_asks_for_series_and_labels_that_agents_serve() {
    let scope = scope();
    let instances = ["a.example:10015", "b"];
    let queries = [
        scope.jobs(),
        scope.hosts(),
        scope.values(&instances),
        scope.infos(&instances),
        scope.findings(&instances),
        scope.holders(&instances),
        scope.past_rates(&instances, "7d"),
    ];
    let expected: BTreeSet<String> = AUDITED.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(asked(&queries), expected, "what a large fleet is written with");
    // Modules are read on few hosts.
    let names = LINE_RATIOS.into_iter().chain(["lanewatch_module_info"]);
    assert_eq!(asked(&LINE_RATIOS.map(|ratio| scope.cables(ratio))), names.map(str::to_owned).collect());
}

/// The families that are asked for, with labels that they have.
fn asked(queries: &[String]) -> BTreeSet<String> {
    let catalogue: BTreeMap<&str, &[&str]> = families().map(|family| (family.name, family.labels)).collect();
    let mut asked = BTreeSet::new();
    for query in queries {
        let found = promql::parse(query).unwrap_or_else(|error| panic!("{query}: {error}"));
        let mut labels: BTreeSet<&str> = promql::TARGET_LABELS.into_iter().chain(["__name__"]).collect();
        for selector in &found.selectors {
            let of_names = selector.matchers.iter().filter(|matcher| matcher.label == "__name__");
            let names = of_names.flat_map(|matcher| matcher.value.split('|')).chain([&*selector.name]);
            for name in names.filter(|name| !name.is_empty()) {
                labels
                    .extend(*catalogue.get(name).unwrap_or_else(|| panic!("{name} is not in the catalogue: {query}")));
                asked.insert(name.to_owned());
            }
        }
        let matched = found.selectors.iter().flat_map(|selector| &selector.matchers).map(|matcher| &matcher.label);
        for label in found.labels.iter().chain(matched) {
            assert!(labels.contains(&**label), "none of its series has {label}: {query}");
        }
    }
    asked
}

#[test]
fn a_simulated_host_has_the_series_that_agents_serve() {
    let catalogue: BTreeMap<&str, BTreeSet<&str>> =
        families().map(|family| (family.name, family.labels.iter().copied().collect())).collect();
    let mut seen = BTreeSet::new();
    for (kind, pages) in &fleet().kinds {
        for line in pages.now.iter().chain(&pages.past) {
            let sample = &parse(&format!("{line}\n")).unwrap()[0];
            let labels: BTreeSet<&str> = sample.labels.keys().map(String::as_str).collect();
            assert_eq!(Some(&labels), catalogue.get(&*sample.name), "{}: {line}", kind.name);
            seen.insert(name(line));
        }
    }
    let missing: Vec<_> = AUDITED.iter().filter(|name| !seen.contains(**name)).collect();
    assert!(missing.is_empty(), "no simulated host has {missing:?}");
}
