//! The house: floors import only from floors below them, files stay small, and the project speaks of itself alone.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "common/imports.rs"]
mod imports;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use imports::ImportGraph;

/// From the ground up.
const FLOORS: [&str; 8] = ["model", "host", "assess", "watch", "bench", "fleet", "export", "cli"];

/// Longest source file, in lines of code: neither tests, which stand beside it, nor comments and blank lines count.
const LONGEST: usize = 400;

/// Names a source file may have nowhere: a drawer for everything is no place for anything.
const DRAWERS: [&str; 5] = ["utils", "util", "helpers", "common", "misc"];

/// Places on somebody's machine, and work that was put off.
const FOREIGN: [&str; 6] = [concat!("/", "work/"), "/home/", "/root/", "wt-", "TODO", "FIXME"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Files below a folder with one of these endings, with their texts. Paths are from the project's root.
fn files(folder: &str, endings: &[&str]) -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| endings.iter().any(|wanted| ending == *wanted)) {
                let text = fs::read_to_string(&path).unwrap();
                files.push((path.strip_prefix(root()).unwrap().to_owned(), text));
            }
        }
    }
    files.sort();
    files
}

/// The floor that a source file is on; none for the entrance (`lib.rs`, `main.rs`).
fn floor_of(path: &Path) -> Option<usize> {
    let name = path.components().nth(1)?.as_os_str().to_str()?.trim_end_matches(".rs");
    FLOORS.iter().position(|floor| *floor == name)
}

/// Lines that reach for a floor above: `crate::FLOOR`, `super` paths aside, which stay within a floor.
fn reaches_up(floor: usize, text: &str) -> Vec<String> {
    let code = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    let above = |line: &str| {
        let names = |name: &&str| {
            let path = format!("crate::{name}");
            line.match_indices(&path).any(|(at, _)| !line[at + path.len()..].starts_with(is_of_a_name))
        };
        FLOORS.iter().skip(floor + 1).any(names)
    };
    code.filter(|line| above(line)).map(str::to_owned).collect()
}

/// Lines outside of test modules. A file that is a test module has none.
fn code_lines(path: &Path, text: &str) -> usize {
    let is_tests = |part: &str| part == "tests" || part == "testing";
    if path.with_extension("").iter().filter_map(|part| part.to_str()).any(is_tests) {
        return 0;
    }
    let (mut count, mut after_attribute, mut inside) = (0, false, false);
    for line in text.lines() {
        // rustfmt puts the brace that ends a module at the beginning of its line.
        if inside {
            inside = line != "}";
            continue;
        }
        // A file may have several: `mod key_tests`. Other attributes may stand before the module.
        let opens = line.contains("mod ") && line.ends_with("tests {") && !line.starts_with(' ');
        inside = after_attribute && opens;
        after_attribute = line == "#[cfg(test)]" || (after_attribute && line.starts_with("#["));
        let is_code = !line.trim().is_empty() && !line.trim_start().starts_with("//");
        count += usize::from(!inside && is_code);
    }
    count
}

fn is_of_a_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[test]
fn a_floor_imports_only_from_floors_below() {
    for (path, text) in files("src", &["rs"]) {
        if let Some(floor) = floor_of(&path) {
            let wrong = reaches_up(floor, &text);
            assert!(wrong.is_empty(), "{} ({}) reaches up: {wrong:#?}", path.display(), FLOORS[floor]);
            // A braced import could hide a floor: `use crate::{cli, …}`.
            assert!(!text.contains("crate::{"), "{}: name each floor in a `use` of its own", path.display());
        }
    }
}

#[test]
fn every_source_file_is_on_a_floor() {
    for (path, _) in files("src", &["rs"]) {
        let entrance = path == Path::new("src/lib.rs") || path == Path::new("src/main.rs");
        assert!(entrance || floor_of(&path).is_some(), "{} is on no floor", path.display());
    }
}

#[test]
fn no_source_file_is_too_long_or_a_drawer() {
    for (path, text) in files("src", &["rs"]) {
        let lines = code_lines(&path, &text);
        assert!(lines <= LONGEST, "{}: {lines} lines of code, at most {LONGEST}", path.display());
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap();
        assert!(!DRAWERS.contains(&name), "{}: a name that says nothing", path.display());
    }
}

#[test]
fn the_project_speaks_of_itself_alone() {
    for folder in ["src", "benches", "tests", "fuzz/targets", ".ci"] {
        for (path, text) in files(folder, &["rs", "sh", "md", "toml", "txt", "py"]) {
            for word in FOREIGN {
                let here = path == Path::new("tests/floors.rs");
                assert!(here || !text.contains(word), "{} says {word}", path.display());
            }
        }
    }
}

#[test]
fn tests_are_not_counted_as_code() {
    let path = Path::new("src/host/text.rs");
    let code = "fn a() {\n}\n\n#[cfg(test)]\n";
    let tests = "pub(crate) mod tests {\n    fn b() {\n    }\n}\n";
    assert_eq!(code_lines(path, &format!("{code}{tests}fn c() {{}}\n")), 4);
    assert_eq!(code_lines(path, tests), 4, "not a test module without its attribute");
    let named = "#[allow(clippy::float_cmp, reason = \"exact\")]\nmod key_tests {\n    fn b() {\n    }\n}\n";
    assert_eq!(code_lines(path, &format!("{code}{named}fn c() {{}}\n")), 5);
    assert_eq!(code_lines(Path::new("src/host/rdma/tests.rs"), code), 0);
    assert_eq!(code_lines(Path::new("src/export/testing/mod.rs"), code), 0);
}

#[test]
fn reaching_up_is_seen() {
    let host = 1;
    assert!(reaches_up(host, "use crate::model::ids::DeviceName;\n// crate::cli\nuse crate::hostess;").is_empty());
    assert_eq!(reaches_up(host, "use crate::assess::capacity;").len(), 1);
    assert_eq!(reaches_up(host, "    crate::cli::run()").len(), 1);
    assert!(reaches_up(7, "use crate::export::metrics;").is_empty());
    assert!(reaches_up(0, "//! [`crate::host`] fills these types").is_empty());
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    let circles = ImportGraph::new(&files("src", &["rs"])).circles();
    assert!(circles.is_empty(), "{circles:#?}");
}

#[test]
fn circles_of_imports_are_found() {
    let circles = |files: &[(&str, &str)]| -> Vec<String> {
        let files: Vec<_> =
            files.iter().map(|(path, text)| (PathBuf::from(format!("src/{path}")), (*text).to_owned())).collect();
        let circles = ImportGraph::new(&files).circles();
        let names =
            |circle: &BTreeSet<PathBuf>| circle.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(" ");
        circles.iter().map(names).collect()
    };
    let (a, b) = ("use crate::b::{self, B};\n", "use super::a::{\n    x::Y,\n    A as C,\n};\n");
    assert_eq!(circles(&[("a.rs", a), ("b.rs", b)]), ["src/a.rs src/b.rs"]);
    assert_eq!(circles(&[("a.rs", a), ("b.rs", "// use crate::a::A;\nuse std::fmt;\n")]), [""; 0]);
    assert_eq!(circles(&[("a.rs", a), ("b.rs", "fn f() { crate::a::g(); }\n")]), ["src/a.rs src/b.rs"]);
    // A face that hands on names of its parts ties none of them; a part that uses what the face defines is tied.
    let face = "pub mod one;\npub mod two;\npub use one::One;\n";
    let parts = |two| [("m/mod.rs", face), ("m/one.rs", "pub struct One;\n"), ("m/two.rs", two)];
    assert_eq!(circles(&parts("use super::One;\n")), [""; 0]);
    assert_eq!(circles(&[("m/mod.rs", face), ("m/one.rs", "use super::f;\n")]), ["src/m/mod.rs src/m/one.rs"]);
    let inline = "mod inner {\n    use super::*;\n    use super::super::b::B;\n}\n";
    assert_eq!(circles(&[("a.rs", inline), ("b.rs", "use crate::a::A;\n")]), ["src/a.rs src/b.rs"]);
}
