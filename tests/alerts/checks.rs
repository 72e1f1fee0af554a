//! What the programs that read the rules say of them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::common::run::{Output, to_its_end};
use crate::common::tools::{Tool, require};

fn alerts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("alerts")
}

/// Runs a tool in `alerts/`; none when it is not there.
fn run(tool: Tool, arguments: &[&str]) -> Option<Output> {
    let mut command = Command::new(require(tool)?);
    command.args(arguments).current_dir(alerts());
    Some(to_its_end(command, Duration::from_secs(120)))
}

/// Files of `alerts/tests`.
fn rule_tests() -> Vec<String> {
    let files = std::fs::read_dir(alerts().join("tests")).unwrap();
    let mut files: Vec<_> = files.map(|file| format!("tests/{}", file.unwrap().file_name().display())).collect();
    files.sort();
    files
}

#[test]
fn promtool_accepts_the_rules() {
    let arguments = ["check", "rules", "--lint=all", "--lint-fatal", "lanewatch.recording.yml"];
    let Some(output) = run(Tool::Promtool, &arguments) else { return };
    assert_eq!(output.code, Some(0), "{}{}", output.stdout, output.stderr);
}

#[test]
fn promtool_finds_that_the_rules_do_what_their_tests_say() {
    let files = rule_tests();
    assert!(!files.is_empty());
    let arguments: Vec<_> = ["test", "rules"].into_iter().chain(files.iter().map(String::as_str)).collect();
    let Some(output) = run(Tool::Promtool, &arguments) else { return };
    assert_eq!(output.code, Some(0), "{}{}", output.stdout, output.stderr);
    assert_eq!(output.stdout.matches("SUCCESS").count(), files.len(), "{}", output.stdout);
}
