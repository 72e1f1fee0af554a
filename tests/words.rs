//! Words and turns of phrase that text for users avoids, since nobody would say them to a colleague.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::fs;
use std::path::{Path, PathBuf};

/// What is not written, and what is in its place. Lower case; whole words.
const AVOIDED: [(&str, &str); 29] = [
    ("mend", "fix"),
    ("mends", "fixes"),
    ("mended", "fixed"),
    ("to be told", "unknown"),
    ("not told", "unknown"),
    ("is told", "is notified, reads"),
    ("without an answer", "not responding"),
    ("gives no answer", "is not responding"),
    ("does not answer", "does not respond"),
    ("of matter", "matters"),
    ("of interest", "matters"),
    ("none where", "absent if"),
    ("none when", "absent if"),
    ("none while", "absent while"),
    ("to be won", "recoverable"),
    ("won by repair", "recoverable"),
    ("by why", "by reason"),
    ("the kernel said", "the kernel logged"),
    ("nobody holds", "unused"),
    ("who holds", "what uses"),
    ("anew", "again, re-"),
    ("to be had", "available"),
    ("something changed", "changed since the baseline"),
    ("stands still", "has stopped"),
    ("is not asked", "is not queried"),
    ("does not tell", "does not report"),
    ("stays as it was", "is kept, keeping the old one"),
    ("at the next chance", "at the next opportunity"),
    ("no longer answers", "is not responding"),
];

/// Folders and files for users, from the project's root.
const PLACES: [&str; 9] = [
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "METRICS.md",
    "docs",
    "alerts",
    "dashboards",
    "packaging",
    "tests/cases/README.md",
];

/// Endings of files that hold text for users.
const ENDINGS: [&str; 8] = ["md", "yml", "yaml", "toml", "json", "conf", "service", "socket"];

/// The files of a place.
fn files(place: PathBuf, found: &mut Vec<PathBuf>) {
    if place.is_dir() {
        for entry in fs::read_dir(&place).unwrap() {
            files(entry.unwrap().path(), found);
        }
    } else if place.extension().is_some_and(|ending| ENDINGS.iter().any(|wanted| ending == *wanted)) {
        found.push(place);
    }
}

/// Lines with what they should not say. Fenced blocks show what programs print, and are theirs.
fn complaints(text: &str) -> Vec<(usize, &'static str, &'static str)> {
    let (mut found, mut fenced) = (Vec::new(), false);
    for (number, line) in text.lines().enumerate() {
        fenced ^= line.starts_with("```");
        if fenced {
            continue;
        }
        let words: String = line
            .to_lowercase()
            .chars()
            .map(|c| if c.is_alphanumeric() || ['_', '-', '\''].contains(&c) { c } else { ' ' })
            .collect();
        let words = format!(" {} ", words.split_whitespace().collect::<Vec<_>>().join(" "));
        for (avoided, better) in AVOIDED {
            if words.contains(&format!(" {avoided} ")) {
                found.push((number + 1, avoided, better));
            }
        }
    }
    found
}

/// The lines of a source file that hold strings, without its tests; the other lines are empty.
fn strings(source: &str) -> String {
    let code = source.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let quoted = |line: &str| {
        let inside = line.contains('"') || line.ends_with('\\');
        if inside && !line.trim_start().starts_with("//") { line.to_owned() } else { String::new() }
    };
    code.lines().map(quoted).collect::<Vec<_>>().join("\n")
}

#[test]
fn strings_of_the_program_are_plain() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pending = vec![root.join("src")];
    let (mut read, mut wrong) = (0, Vec::new());
    while let Some(place) = pending.pop() {
        if place.is_dir() {
            pending.extend(fs::read_dir(place).unwrap().map(|entry| entry.unwrap().path()));
        } else if place.extension().is_some_and(|ending| ending == "rs") && !place.ends_with("tests.rs") {
            read += 1;
            for (line, avoided, better) in complaints(&strings(&fs::read_to_string(&place).unwrap())) {
                wrong.push(format!("{}:{line}: {avoided:?}: {better}", place.display()));
            }
        }
    }
    assert!(read > 200, "{read} files");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn only_strings_of_a_source_are_looked_at() {
    let source = "// Then mend it.\nlet mend = \"mend it\"; // mend\n#[cfg(test)]\nmod tests { \"mend\" }";
    assert_eq!(complaints(&strings(source)), [(2, "mend", "fix")]);
}

#[test]
fn text_for_users_is_plain() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut all = Vec::new();
    for place in PLACES {
        files(root.join(place), &mut all);
    }
    assert!(all.len() > 80, "{} files", all.len());
    let mut wrong = Vec::new();
    for file in all {
        let name = file.strip_prefix(root).unwrap().display();
        for (line, avoided, better) in complaints(&fs::read_to_string(&file).unwrap()) {
            wrong.push(format!("{name}:{line}: {avoided:?}: {better}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn an_avoided_word_is_seen_in_text_and_not_in_output() {
    assert_eq!(complaints("Then mend it.\n"), [(1, "mend", "fix")]);
    assert_eq!(complaints("```\nthe kernel said\n```\nrecommended amendment"), []);
}
