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
    Some(to_its_end(command, Duration::from_secs(600)))
}

/// Files of `alerts/tests`.
fn rule_tests() -> Vec<String> {
    let files = std::fs::read_dir(alerts().join("tests")).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut files: Vec<_> =
        names.filter(|name| name.ends_with(".test.yml")).map(|name| format!("tests/{name}")).collect();
    files.sort();
    files
}

fn accepted(tool: Tool, arguments: &[&str]) {
    let Some(output) = run(tool, arguments) else { return };
    assert_eq!(output.code, Some(0), "{}{}", output.stdout, output.stderr);
}

#[test]
fn promtool_accepts_the_rules() {
    let files =
        ["lanewatch.rules.yml", "lanewatch.recording.yml", "thresholds.example.yml", "vmalert/lanewatch.rules.yml"];
    accepted(Tool::Promtool, &[&["check", "rules", "--lint=all", "--lint-fatal"][..], &files[..]].concat());
}

#[test]
fn vmalert_accepts_its_variant() {
    for file in ["vmalert/lanewatch.rules.yml", "lanewatch.recording.yml", "thresholds.example.yml"] {
        accepted(Tool::Vmalert, &["-dryRun", &format!("-rule={file}")]);
    }
}

#[test]
fn amtool_accepts_the_example() {
    accepted(Tool::Amtool, &["check-config", "alertmanager.example.yml"]);
    for (labels, receiver) in [
        (["alertname=PortDown", "severity=critical", "component=port"], "pager"),
        (["alertname=VfMapStale", "severity=critical", "component=vf"], "pager"),
        (["alertname=VfOrphan", "severity=warning", "component=vf"], "tickets"),
        (["alertname=IrqRemote", "severity=warning", "component=irq"], "tickets"),
    ] {
        let test = ["config", "routes", "test", "--config.file=alertmanager.example.yml"];
        let Some(output) = run(Tool::Amtool, &[&test[..], &labels[..]].concat()) else { return };
        assert_eq!(output.stdout.trim(), receiver, "{labels:?}: {}", output.stderr);
    }
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

/// The rule tests can fail: with rules whose alerts never fire, and with some that always do.
#[test]
fn promtool_finds_rules_that_are_wrong() {
    for (from, to) in
        [(" > 0\n", " > 1\n"), (", severity!=\"info\"}", "}"), ("keep_firing_for: 5m", "keep_firing_for: 3m")]
    {
        let copy = tempfile::TempDir::new().unwrap();
        let tests = copy.path().join("tests");
        std::fs::create_dir(&tests).unwrap();
        let rules = std::fs::read_to_string(alerts().join("lanewatch.rules.yml")).unwrap();
        assert!(rules.contains(from), "{from:?}");
        std::fs::write(copy.path().join("lanewatch.rules.yml"), rules.replace(from, to)).unwrap();
        let file = "tests/ports.test.yml";
        std::fs::copy(alerts().join(file), copy.path().join(file)).unwrap();
        let path = copy.path().join(file).display().to_string();
        let Some(output) = run(Tool::Promtool, &["test", "rules", &path]) else { return };
        assert_ne!(output.code, Some(0), "{file} does not notice {from:?} become {to:?}");
    }
}
