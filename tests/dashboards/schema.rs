//! The dashboards, loaded through the classes that Grafana generates of its own schema; `schema.py` says how.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::common::run::{Output, to_its_end};
use crate::common::tools::{Tool, require, skip};
use crate::lint::place_of;
use crate::shipped;

/// Versions of Grafana: the oldest that the dashboards are for, and the newest.
const SCHEMAS: [&str; 2] = ["10.4", "next"];

/// Loads these dashboards by the schema of one version of Grafana; none where it is not installed.
fn loaded(schema: &str, dashboards: &[Value]) -> Option<Output> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = require(Tool::Python)?;
    let classes = root.join(".cache/grafana").join(schema);
    if !classes.join("installed").exists() {
        skip(&format!("Grafana's schema {schema} is not installed (tests/setup.sh installs it)"));
        return None;
    }
    let directory = TempDir::new().unwrap();
    let paths = dashboards.iter().enumerate().map(|(number, dashboard)| {
        let path = directory.path().join(format!("{number}.json"));
        fs::write(&path, dashboard.to_string()).unwrap();
        path
    });
    let paths: Vec<PathBuf> = paths.collect();
    let mut command = Command::new(python);
    command.arg("-B").arg(root.join("tests/dashboards/schema.py")).args(paths).env("PYTHONPATH", classes);
    Some(to_its_end(command, Duration::from_secs(60)))
}

#[test]
fn grafanas_own_schema_has_nothing_to_say() {
    let all: Vec<Value> = shipped().into_values().collect();
    for schema in SCHEMAS {
        let Some(said) = loaded(schema, &all) else { return };
        assert_eq!(said.code, Some(0), "{schema}: {}{}", said.stdout, said.stderr);
        for class in
            ["dashboard.Panel", "dashboard.RowPanel", "prometheus.Dataquery", "timeseries.Options", "stat.Options"]
        {
            assert!(said.stdout.contains(class), "{schema}: no {class} was loaded: {}", said.stdout);
        }
    }
}

#[test]
fn grafanas_own_schema_sees_what_is_wrong() {
    let good = shipped()["lanewatch-exporter"].clone();
    let first = place_of(&good, |panel| panel["type"] == "timeseries");
    let panel = |at: &str| format!("{first}{at}");
    let spoiled = [
        ("/graphTooltip".to_owned(), Value::from("shared")),
        ("/templating/list/1/multi".to_owned(), Value::from("yes")),
        ("/annotations/list/0/target/expr".to_owned(), Value::from(1)),
        (panel("/gridPos/w"), Value::from("wide")),
        (panel("/targets/0/instant"), Value::from("no")),
        (panel("/options/legend/placement"), Value::from("left")),
        (panel("/fieldConfig/defaults/custom/stacking/mode"), Value::from("heap")),
        (panel("/fieldConfig/defaults/thresholds/mode"), Value::from("some")),
    ];
    for (at, value) in spoiled {
        let mut bad = good.clone();
        *bad.pointer_mut(&at).unwrap_or_else(|| panic!("{at}")) = value;
        let Some(said) = loaded("next", &[bad]) else { return };
        assert_eq!(said.code, Some(1), "{at}: {}{}", said.stdout, said.stderr);
    }
    let mut strange = good;
    strange.pointer_mut(&panel("/options/legend")).unwrap()["colour"] = Value::from("red");
    let Some(said) = loaded("next", &[strange]) else { return };
    assert!(said.code == Some(1) && said.stdout.contains("legend.colour: the schema does not know it"), "{said:?}");
}
