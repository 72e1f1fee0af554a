//! `docs/migration.md`: names that exist, and values that a real node_exporter confirms.

use std::collections::BTreeMap;
use std::fs;

use tempfile::TempDir;

use crate::common::host::HostTree;
use crate::common::run::Server;
use crate::common::tools::{Tool, node_exporter, require};
use crate::root;

fn document() -> String {
    fs::read_to_string(root().join("docs/migration.md")).unwrap()
}

/// Words in backquotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[test]
fn every_metric_and_flag_of_lanewatch_that_it_names_exists() {
    let document = document();
    let metrics = fs::read_to_string(root().join("METRICS.md")).unwrap();
    let program = crate::common::run::lanewatch(&["serve", "--help"]).stdout;
    let mut named = 0;
    for line in document.lines() {
        for word in quoted(line) {
            for part in word
                .split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
                .filter(|part| part.starts_with("lanewatch_"))
            {
                named += 1;
                assert!(metrics.contains(&format!("\n| `{part}` |")), "{part}");
            }
        }
        let flag = line.split('|').nth(2).filter(|_| line.starts_with("| `--"));
        for word in flag.into_iter().flat_map(quoted).filter(|word| word.starts_with("--")) {
            assert!(program.contains(&format!("{word} ")) || program.contains(&format!("{word}\n")), "{word}");
        }
    }
    assert!(named > 60, "{named}");
}

/// Samples by name and labels, the labels sorted and without those that only one of the two has.
fn samples(exposition: &str) -> BTreeMap<(String, String), f64> {
    let sample = |line: &str| {
        let (series, value) = line.rsplit_once(' ')?;
        let (name, labels) = series.strip_suffix('}')?.split_once('{')?;
        let mut labels: Vec<&str> = labels.split(',').filter(|label| !label.starts_with("class=")).collect();
        labels.sort_unstable();
        Some(((name.to_owned(), labels.join(",")), value.parse().ok()?))
    };
    exposition.lines().filter(|line| !line.starts_with('#')).filter_map(sample).collect()
}

#[test]
fn a_real_node_exporter_serves_the_same_values_under_the_names_that_are_told() {
    let Some(program) = require(Tool::NodeExporter) else { return };
    let host = TempDir::new().unwrap();
    HostTree::new(2).write(host.path()).unwrap();
    let theirs = samples(&node_exporter(&program, &host.path().join("sys")).get("/metrics").text());
    let ours =
        samples(&Server::start("serve", &["--path.rootfs", host.path().to_str().unwrap()]).get("/metrics").text());
    // Name to what the second column says.
    let document = document();
    let rows: BTreeMap<&str, &str> = document
        .lines()
        .filter(|line| line.starts_with("| `node_infiniband_"))
        .filter_map(|line| Some((quoted(line.split('|').nth(1)?).next()?, quoted(line.split('|').nth(2)?).next()?)))
        .collect();
    let mut compared = 0;
    for ((name, labels), value) in theirs.iter().filter(|((name, _), _)| name.starts_with("node_infiniband_")) {
        let ours_is = rows.get(name.as_str()).unwrap_or_else(|| panic!("{name} is not in docs/migration.md"));
        if name.ends_with("_info") || name.ends_with("state_id") {
            continue;
        }
        let (family, selector) =
            ours_is.split_once('{').map_or((*ours_is, ""), |(family, rest)| (family, rest.trim_end_matches('}')));
        let mut labels: Vec<&str> = labels.split(',').chain((!selector.is_empty()).then_some(selector)).collect();
        labels.sort_unstable();
        let key = (family.to_owned(), labels.join(","));
        assert_eq!(ours.get(&key), Some(value), "{name} as {key:?}");
        compared += 1;
    }
    assert!(compared >= 2 * 20, "{compared}");
}
