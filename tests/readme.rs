//! README and `docs/`, compared with the program: checks, commands and their output, configuration, metrics, links.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "common/mod.rs"]
mod common;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::run::{lanewatch, lanewatch_in, to_its_end};
use common::tools::{Tool, require};
use lanewatch::assess::limits::{CheckDetails, details};
use lanewatch::cli::config::{self, error::ErrorList};
use lanewatch::model::check::Check;
use tempfile::TempDir;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A document, by its path from the project's root.
fn document(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// README and the pages of `docs/`, by their paths.
fn pages() -> Vec<String> {
    let paths = fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let pages = paths.filter(|path| path.extension().is_some_and(|ending| ending == "md"));
    let mut pages: Vec<String> =
        pages.map(|path| path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned()).collect();
    pages.push("README.md".to_owned());
    pages.sort();
    pages
}

/// The fenced blocks of a language in README and `docs/`.
fn blocks(language: &str) -> Vec<String> {
    let fence = format!("```{language}\n");
    let texts = pages().into_iter().map(|page| document(&page)).collect::<Vec<_>>();
    let parts = texts.iter().flat_map(|text| text.split(&fence).skip(1));
    let blocks: Vec<_> = parts.map(|part| part.split("```").next().unwrap().to_owned()).collect();
    assert!(!blocks.is_empty(), "no {language} in README and docs");
    blocks
}

/// Longest README, in lines: what does not fit is a page of `docs/`.
const LONGEST_README: usize = 200;

#[test]
fn the_readme_is_short_and_names_every_page() {
    let readme = document("README.md");
    assert!(readme.lines().count() <= LONGEST_README, "{} lines", readme.lines().count());
    let all = readme.clone() + &document("CONTRIBUTING.md");
    for page in pages().iter().filter(|page| *page != "README.md") {
        assert!(all.contains(&format!("]({page}")), "neither README nor CONTRIBUTING links {page}");
    }
}

#[test]
fn files_that_contributors_are_sent_to_are_there() {
    let text = document("CONTRIBUTING.md");
    let paths: Vec<&str> =
        text.split('`').filter(|part| part.starts_with("src/") || part.starts_with("tests/")).collect();
    assert!(paths.len() > 20, "{paths:?}");
    for path in paths {
        assert!(root().join(path).exists(), "{path}");
    }
}

#[test]
fn every_check_is_in_the_table_with_its_limits() {
    let text = document("docs/checks.md");
    let (before, rest) = text.split_once("<!-- checks").unwrap();
    let (table, after) = rest.split_once("<!-- end of checks -->").unwrap();
    let (note, table) = table.split_once('\n').unwrap();
    let cells = |line: &str| line.split(" | ").map(|cell| cell.trim_matches([' ', '|', '`']).to_owned()).collect();
    let rows = table.lines().skip(2).map(cells);
    let severities: BTreeMap<String, String> = rows.map(|row: Vec<String>| (row[0].clone(), row[2].clone())).collect();
    let mut made = String::from(
        "| check | what it finds | severity by default | hold | clears | threshold | keys |\n|---|---|---|---|---|---|---|\n",
    );
    for check in Check::ALL {
        let severity = severities.get(check.as_str()).map_or("unknown", String::as_str);
        let CheckDetails { hold, clear_after, threshold, keys } = details(*check);
        let keys = keys.iter().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ");
        let (name, about) = (check.as_str(), check.about());
        writeln!(made, "| `{name}` | {about} | {severity} | {hold} | {clear_after} | {threshold} | {keys} |").unwrap();
    }
    assert!(made.contains("10m if only the speed is low"), "{made}");
    if std::env::var_os("LANEWATCH_UPDATE").is_some() {
        let text = format!("{before}<!-- checks{note}\n{made}<!-- end of checks -->{after}");
        fs::write(root().join("docs/checks.md"), text).unwrap();
    } else {
        assert_eq!(table, made, "LANEWATCH_UPDATE=1 cargo test --test readme writes the table anew");
    }
    let known = |severity: &str| ["critical", "warning", "info"].iter().any(|word| severity.starts_with(word));
    let unknown: Vec<_> = made.lines().skip(2).map(cells).filter(|row: &Vec<String>| !known(&row[2])).collect();
    assert!(unknown.is_empty(), "say how severe by default: {unknown:?}");
}

#[test]
fn commands_print_what_the_documents_show() {
    let directory = TempDir::new().unwrap();
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
        let arguments: Vec<&str> = command.strip_prefix("$ lanewatch ").unwrap().split(' ').collect();
        assert!(arguments.contains(&"--demo"), "{command}: nobody else can repeat it");
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
    let text = document("docs/commands.md");
    let headings: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    for command in lanewatch::cli::args::command().get_subcommands() {
        let name = command.get_name();
        assert!(text.contains(&format!("| `{name}` | ")), "{name} is not in the table of docs/commands.md");
        let described = headings.iter().any(|heading| heading.split(", ").any(|named| named == name));
        assert!(described, "{name} has no section in docs/commands.md");
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
        let errors = ErrorList::default();
        config::parse(&PathBuf::from("x"), &format!("{table}\n{needed}nobody-knows = 1\n"), &errors);
        let error = errors.into_result(()).unwrap_err().to_string();
        let known: Vec<&str> = error.split_once("expected ").unwrap().1.split('`').skip(1).step_by(2).collect();
        assert!(!known.is_empty(), "{error}");
        let name = table.trim_matches(['[', ']']);
        for key in known {
            let whole = if name.is_empty() { key.to_owned() } else { format!("{name}.{key}") };
            let there = example.contains(&format!("\n{key} = "))
                || example.contains(&format!("[{whole}]"))
                || example.contains(&format!("[{whole}."));
            assert!(there, "{whole} is not in docs/configuration.md");
        }
    }
}

#[test]
fn metrics_are_those_of_the_catalogue_and_queries_are_sound() {
    let catalogue = document("METRICS.md");
    let mut named = 0;
    for page in pages() {
        let text = document(&page);
        for (at, _) in text.match_indices("lanewatch_") {
            let name: String = text[at..].chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect();
            let family = name.ends_with('_') && catalogue.contains(&format!("`{name}"));
            assert!(family || catalogue.contains(&format!("`{name}`")), "{page}: {name} is not in METRICS.md");
            named += 1;
        }
    }
    assert!(named > 20);
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
    let more = ["CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "METRICS.md", "alerts/README.md"];
    let more = more.into_iter().chain(["dashboards/README.md", "packaging/kubernetes.md", "tests/cases/README.md"]);
    let more = more.chain(["packaging/systemd/README.md", "packaging/snippets/README.md"]).map(str::to_owned);
    for name in pages().into_iter().chain(more) {
        let text = document(&name);
        let folder = root().join(&name).parent().unwrap().to_owned();
        for part in text.split("](").skip(1) {
            let target = part.split(')').next().unwrap();
            if target.starts_with("https://") {
                continue;
            }
            let (path, heading) =
                target.split_once('#').map_or((target, None), |(path, heading)| (path, Some(heading)));
            assert!(folder.join(path).exists(), "{name}: {target}");
            let Some(heading) = heading else { continue };
            let text = if path.is_empty() { text.clone() } else { fs::read_to_string(folder.join(path)).unwrap() };
            assert!(headings(&text).any(|known| known == heading), "{name}: {target}");
        }
    }
}

/// The names by which headings can be linked to.
fn headings(text: &str) -> impl Iterator<Item = String> {
    let lines = text.lines().filter(|line| line.starts_with('#'));
    let kept = |c: &char| c.is_alphanumeric() || [' ', '-', '_'].contains(c);
    lines.map(move |line| {
        let title: String = line.trim_start_matches('#').trim().to_lowercase().chars().filter(kept).collect();
        title.replace(' ', "-")
    })
}
