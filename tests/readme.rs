//! What the README says, held against the program: checks, commands and their output, configuration, metrics, links.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "common/mod.rs"]
mod common;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::host::{GEN3, GEN4, HostTree, LinkEnd};
use common::run::{lanewatch, lanewatch_in, to_its_end};
use common::tools::{Tool, require};
use lanewatch::cli::config;
use lanewatch::model::check::Check;
use tempfile::TempDir;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn readme() -> String {
    fs::read_to_string(root().join("README.md")).unwrap()
}

/// The fenced blocks of a language.
fn blocks(language: &str) -> Vec<String> {
    let (text, fence) = (readme(), format!("```{language}\n"));
    let parts = text.split(&fence).skip(1);
    let blocks: Vec<_> = parts.map(|part| part.split("```").next().unwrap().to_owned()).collect();
    assert!(!blocks.is_empty(), "no {language} in the README");
    blocks
}

#[test]
fn every_check_is_in_the_table_with_its_meaning() {
    let text = readme();
    let (before, rest) = text.split_once("<!-- checks").unwrap();
    let (table, after) = rest.split_once("<!-- end of checks -->").unwrap();
    let (note, table) = table.split_once('\n').unwrap();
    let cells = |line: &str| line.split(" | ").map(|cell| cell.trim_matches([' ', '|', '`']).to_owned()).collect();
    let rows = table.lines().skip(2).map(cells);
    let severities: BTreeMap<String, String> = rows.map(|row: Vec<String>| (row[0].clone(), row[2].clone())).collect();
    let mut made = String::from("| check | what it finds | severity by default |\n|---|---|---|\n");
    for check in Check::ALL {
        let severity = severities.get(check.as_str()).map_or("unknown", String::as_str);
        writeln!(made, "| `{}` | {} | {severity} |", check.as_str(), check.about()).unwrap();
    }
    if std::env::var_os("LANEWATCH_UPDATE").is_some() {
        let text = format!("{before}<!-- checks{note}\n{made}<!-- end of checks -->{after}");
        fs::write(root().join("README.md"), text).unwrap();
    } else {
        assert_eq!(table, made, "LANEWATCH_UPDATE=1 cargo test --test readme writes the table anew");
    }
    let known = |severity: &str| ["critical", "warning", "info"].iter().any(|word| severity.starts_with(word));
    let unknown: Vec<_> = made.lines().skip(2).map(cells).filter(|row: &Vec<String>| !known(&row[2])).collect();
    assert!(unknown.is_empty(), "say how severe by default: {unknown:?}");
}

#[test]
fn commands_print_what_the_readme_shows() {
    let directory = TempDir::new().unwrap();
    let mut host = HostTree::new(2);
    host.cards[1].device = LinkEnd::full(GEN4, 16).trained(GEN3, 8);
    host.cards[1].upstream = LinkEnd::full(GEN4, 16).trained(GEN3, 8);
    host.write(directory.path()).unwrap();
    let outputs = [("one-way.txt", "RDMA_Write BW", 7050), ("both.txt", "RDMA_Write Bidirectional BW", 13_800)];
    for (name, test, average) in outputs {
        let table = format!(
            "                    {test} Test\n #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   \
             MsgRate[Mpps]\n 1048576    5000             {average}.00            {average}.00\t\t     0.007\n"
        );
        fs::write(directory.path().join(name), table).unwrap();
    }
    let shown = blocks("console");
    assert_eq!(shown.len(), 3);
    for block in shown {
        let (command, shown) = block.split_once('\n').unwrap();
        let mut arguments: Vec<&str> = command.strip_prefix("$ lanewatch ").unwrap().split(' ').collect();
        arguments.extend(["--path.rootfs", directory.path().to_str().unwrap(), "--storage.path", "none"]);
        let printed = without_times(&lanewatch_in(directory.path(), &arguments).stdout);
        for part in without_times(shown).split("...\n") {
            assert!(printed.contains(part), "{command}: not printed:\n{part}\nbut:\n{printed}");
        }
    }
}

/// Times differ from run to run.
fn without_times(text: &str) -> String {
    let parts = text.split("since 2").enumerate();
    parts.map(|(i, part)| if i == 0 { part.to_owned() } else { format!("since {}", &part[19..]) }).collect()
}

#[test]
fn every_command_is_named() {
    let text = readme();
    for command in lanewatch::cli::args::command().get_subcommands() {
        let name = command.get_name();
        let named = text.contains(&format!("| `{name}` | ")) || text.contains(&format!("**`lanewatch {name}"));
        assert!(named, "{name} is not in the README");
    }
}

#[test]
fn the_configuration_is_accepted_and_complete() {
    let example = blocks("toml").concat();
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("lanewatch.toml");
    fs::write(&file, &example).unwrap();
    let output = lanewatch(&["config", "check", "--no-files", file.to_str().unwrap()]);
    assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""));
    for (table, needed) in [
        ("", ""),
        ("[path]", ""),
        ("[log]", ""),
        ("[web]", ""),
        ("[collector]", ""),
        ("[collector.qid-map]", "path = \"/x\"\ncolumns = []\n"),
        ("[storage]", ""),
        ("[policy]", ""),
        ("[probe]", ""),
        ("[probe.peers]", ""),
        ("[probe.peers.tls]", ""),
        ("[[policy.port]]", "match = \"x\"\n"),
        ("[[policy.link]]", "match = \"x\"\n"),
        ("[[policy.exception]]", "match = \"x\"\nreason = \"x\"\n"),
        ("[policy.threshold]", ""),
        ("[policy.maintenance]", ""),
    ] {
        // The error on a key that nobody knows lists those that are known.
        let error = config::parse(&PathBuf::from("x"), &format!("{table}\n{needed}nobody-knows = 1\n")).unwrap_err();
        let error = error.to_string();
        let known: Vec<&str> = error.split_once("expected ").unwrap().1.split('`').skip(1).step_by(2).collect();
        assert!(!known.is_empty(), "{error}");
        let name = table.trim_matches(['[', ']']);
        for key in known {
            let whole = if name.is_empty() { key.to_owned() } else { format!("{name}.{key}") };
            let there = example.contains(&format!("\n{key} = "))
                || example.contains(&format!("[{whole}]"))
                || example.contains(&format!("[{whole}."));
            assert!(there, "{whole} is not in the README's example");
        }
    }
}

#[test]
fn metrics_are_those_of_the_catalogue_and_queries_are_sound() {
    let catalogue = fs::read_to_string(root().join("METRICS.md")).unwrap();
    let text = readme();
    for (at, _) in text.match_indices("lanewatch_") {
        let name: String = text[at..].chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect();
        assert!(catalogue.contains(&format!("`{name}`")), "{name} is not in METRICS.md");
    }
    let Some(promtool) = require(Tool::Promtool) else { return };
    let directory = TempDir::new().unwrap();
    let mut rules = String::from("groups:\n  - name: readme\n    rules:\n");
    let queries = blocks("promql").concat();
    for (index, line) in queries.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).enumerate() {
        write!(rules, "      - record: query:{index}\n        expr: >-\n          {line}\n").unwrap();
    }
    let file = directory.path().join("rules.yml");
    fs::write(&file, rules).unwrap();
    let mut command = Command::new(promtool);
    command.args(["check", "rules"]).arg(&file);
    let output = to_its_end(command, std::time::Duration::from_secs(30));
    assert_eq!(output.code, Some(0), "{output:?}");
}

#[test]
fn links_lead_somewhere() {
    for name in ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"] {
        let text = fs::read_to_string(root().join(name)).unwrap();
        for part in text.split("](").skip(1) {
            let target = part.split(')').next().unwrap();
            let leads = match target.strip_prefix('#') {
                Some(heading) => headings(&text).any(|known| known == heading),
                None => target.starts_with("https://") || root().join(target).exists(),
            };
            assert!(leads, "{name}: {target}");
        }
    }
}

/// The names by which headings can be linked to.
fn headings(text: &str) -> impl Iterator<Item = String> {
    let lines = text.lines().filter(|line| line.starts_with('#'));
    lines.map(|line| line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-"))
}
