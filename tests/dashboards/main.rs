//! The dashboards: made of their source, held against the rules, and asked of a real Prometheus.

#![allow(unreachable_pub, reason = "modules of one program, which is no library")]
#![allow(clippy::panic, clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, reason = "tests")]

#[path = "../common/mod.rs"]
mod common;

// The recorded hosts, and how they are replayed.
#[path = "../cases/archive.rs"]
mod archive;
#[path = "../cases/case.rs"]
mod case;
#[path = "../cases/expect.rs"]
mod expect;
#[path = "../cases/judge.rs"]
#[allow(dead_code, reason = "of the cases' own tests")]
mod judge;
#[path = "../cases/output.rs"]
#[allow(dead_code, reason = "of the cases' own tests")]
mod output;
#[path = "../cases/replay.rs"]
#[allow(dead_code, reason = "of the cases' own tests")]
mod replay;

#[path = "../page/browser.rs"]
mod browser;

mod fill;
mod generate;
mod lint;
mod pictures;
mod queries;
mod scale;
mod schema;
mod source;

use std::collections::BTreeMap;
use std::fs;

use serde_json::Value;

/// Every dashboard as it ships, by the name of its file.
fn shipped() -> BTreeMap<String, Value> {
    let mut shipped = BTreeMap::new();
    for entry in fs::read_dir(source::folder()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "json") {
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            let text = fs::read_to_string(&path).unwrap();
            let value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
            shipped.insert(name, value);
        }
    }
    assert!(shipped.len() >= 5, "{:?}", shipped.keys());
    shipped
}

#[test]
fn what_ships_is_what_the_source_says() {
    let (shared, dashboards) = source::read();
    let made: BTreeMap<String, String> = dashboards
        .iter()
        .map(|(name, dashboard)| {
            let text = serde_json::to_string_pretty(&generate::dashboard(&shared, dashboard)).unwrap();
            (format!("lanewatch-{name}"), format!("{text}\n"))
        })
        .collect();
    if std::env::var_os("LANEWATCH_UPDATE").is_some() {
        for (name, text) in &made {
            fs::write(source::folder().join(format!("{name}.json")), text).unwrap();
        }
    }
    assert_eq!(shipped().keys().collect::<Vec<_>>(), made.keys().collect::<Vec<_>>());
    for (name, text) in made {
        let path = source::folder().join(format!("{name}.json"));
        let same = fs::read_to_string(path).unwrap() == text;
        assert!(same, "LANEWATCH_UPDATE=1 cargo test --test dashboards ships writes {name}.json anew");
    }
}
