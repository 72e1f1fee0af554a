//! What must be said of recorded outputs of benchmarks.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::common::run::{program, to_its_end};
use crate::expect::{Output, value};

/// What `bench --read` says of it, before this host.
pub fn read(output: &Output, host: &Path) -> Result<Value, String> {
    let mut command = program();
    command.arg("bench").args(&output.device).args(["--format", "json", "--storage.path", "none"]);
    for file in std::iter::once(&output.file).chain(&output.beside) {
        command.arg("--read").arg(file);
    }
    command.arg("--path.rootfs").arg(host).current_dir(host);
    let printed = to_its_end(command, Duration::from_secs(60));
    serde_json::from_str(&printed.stdout).map_err(|_| format!("{}: {}", output.file, printed.stderr.trim()))
}

/// Each thing that is expected, with what was there instead.
pub fn compare(output: &Output, said: &Value) -> Vec<(String, Option<String>)> {
    let item = &said["outputs"][0];
    let at = |name: &str| name.split('/').fold(item, |value, key| &value[key]);
    let mut rows = Vec::new();
    for (name, expected) in &output.fields {
        let found = at(name);
        let met = match (value(expected), found.as_f64()) {
            (Some(expected), Some(found)) => (found - expected).abs() <= expected.abs() * 1e-9,
            _ => expected.as_str().is_some_and(|expected| found.as_str() == Some(expected)),
        };
        rows.push((format!("{}: {name} = {expected}", output.file), (!met).then(|| found.to_string())));
    }
    for name in &output.absent {
        let found = at(name);
        rows.push((format!("{}: no {name}", output.file), (!found.is_null()).then(|| found.to_string())));
    }
    let text = format!("{} {}", item["summary"], said["summary"]);
    for part in &output.says {
        rows.push((format!("{}: {part:?}", output.file), (!text.contains(part)).then(|| text.clone())));
    }
    rows
}

#[test]
fn what_is_said_of_an_output_is_compared() {
    let expected = "file = \"a\"\nabsent = [\"peak\", \"value\"]\nsays = [\"one limit\", \"two\"]\n[fields]\nresult = \
                    \"measured\"\nvalue = 5\n\"times/typical\" = 1.5\nreason = \"x\"\n";
    let output: Output = toml::from_str(expected).unwrap();
    let said = serde_json::json!({
        "outputs": [{"result": "measured", "value": 5.000_000_001, "times": {"typical": 2e-6}, "summary": "two"}],
        "summary": null,
    });
    let rows = compare(&output, &said);
    let wrong: Vec<_> = rows.iter().filter(|(_, wrong)| wrong.is_some()).map(|(what, _)| what.as_str()).collect();
    let expected = ["a: reason = \"x\"", "a: times/typical = 1.5", "a: no value", "a: \"one limit\""];
    assert_eq!((wrong, rows.len()), (expected.to_vec(), 8));
}
