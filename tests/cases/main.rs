//! Recorded hosts and what must be said of them; `README.md` beside this file describes their form.

#![allow(unreachable_pub, reason = "modules of one program, which is no library")]
#![allow(clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "../common/mod.rs"]
mod common;

mod archive;
mod case;
mod expect;
mod judge;
mod output;
mod replay;
mod snapshot;
mod wires;

use std::path::{Path, PathBuf};

use case::{Case, Stage};
use expect::Output;
use judge::{Outcome, Reading, Replay};
use serde_json::Value;

/// The project's own cases, and those of the folder that `LANEWATCH_CASES` names.
fn folders() -> Vec<PathBuf> {
    [Some(own_folder()), std::env::var_os("LANEWATCH_CASES").map(PathBuf::from)].into_iter().flatten().collect()
}

fn own_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/hosts")
}

/// Every case, or those whose names start like a word of `LANEWATCH_CASES_ONLY`.
fn cases() -> Vec<Case> {
    let only = std::env::var("LANEWATCH_CASES_ONLY").unwrap_or_default();
    let only: Vec<_> = only.split([',', ' ']).filter(|start| !start.is_empty()).collect();
    let wanted = |case: &Case| only.is_empty() || only.iter().any(|start| case.name.starts_with(start));
    let all = folders().into_iter().flat_map(|folder| Case::all(&folder).unwrap_or_else(|error| panic!("{error}")));
    all.filter(wanted).collect()
}

/// Replays cases and fails with the table where anything is wrong; else the table.
fn replay_all(cases: &[Case], replay: &impl Replay) -> String {
    let outcomes: Vec<_> = cases.iter().map(|case| Outcome::of(case, replay)).collect();
    let table = judge::table(&outcomes);
    assert!(outcomes.iter().all(Outcome::is_right), "\n{table}");
    table
}

/// A product that says nothing at all.
struct Silent;

impl Replay for Silent {
    fn run(&self, stage: &Stage) -> Result<Vec<Reading>, String> {
        let say_nothing = |reading| stage.show(reading).map(|()| Reading::default()).map_err(|error| error.to_string());
        (0..stage.moments.len()).map(say_nothing).collect()
    }

    fn read(&self, _: &Output, _: &Stage) -> Result<Value, String> {
        Ok(Value::Null)
    }
}

#[test]
#[should_panic(expected = "pcie_degraded 0000:b2:00.0; got none")]
fn silence_is_wrong() {
    replay_all(&Case::all(&own_folder()).unwrap(), &Silent);
}

#[test]
fn what_is_said_is_what_is_right() {
    let table = replay_all(&cases(), &replay::Agent);
    println!("{table}");
    // For `make test` to show.
    let _ = std::fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join("target/cases.txt"), table);
}

#[test]
fn every_case_can_be_staged() {
    let mut readings = 0;
    for case in &cases() {
        let stage = case.stage().unwrap_or_else(|error| panic!("{}: {error}", case.name));
        for reading in 0..stage.moments.len() {
            stage.show(reading).unwrap();
            readings += 1;
        }
    }
    assert!(readings > 0);
}

/// But for those that `make capture` records: of them there is only what the agent read.
#[test]
fn every_link_of_the_own_hosts_leads_somewhere() {
    for case in Case::all(&own_folder()).unwrap().into_iter().filter(|case| !case.name.starts_with("lab-")) {
        let stage = case.stage().unwrap();
        for reading in 0..stage.moments.len() {
            stage.show(reading).unwrap();
            // Links of processes are names, of devices and namespaces, and lead nowhere by themselves.
            let mut folders = vec![stage.host().join("sys")];
            while let Some(folder) = folders.pop() {
                for entry in std::fs::read_dir(folder).into_iter().flatten() {
                    let path = entry.unwrap().path();
                    assert!(path.exists(), "{}: {} leads nowhere", case.name, path.display());
                    if path.is_dir() && (!path.is_symlink() || path.parent() == Some(&stage.host().join("sys"))) {
                        folders.push(path);
                    }
                }
            }
        }
    }
}
