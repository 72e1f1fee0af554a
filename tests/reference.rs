//! The references in `docs/` that are made of the program: configuration keys and commands.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::fs;
use std::path::Path;

/// The part between two markers of a page is this text; with LANEWATCH_UPDATE set it is written anew.
fn holds(name: &str, [begin, end]: [&str; 2], made: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(name);
    let text = fs::read_to_string(&file).unwrap();
    let (before, rest) = text.split_once(begin).unwrap_or_else(|| panic!("{name}: no {begin}"));
    let (part, after) = rest.split_once(end).unwrap_or_else(|| panic!("{name}: no {end}"));
    let made = format!("\n{made}");
    if std::env::var_os("LANEWATCH_UPDATE").is_some() {
        fs::write(&file, format!("{before}{begin}{made}{end}{after}")).unwrap();
    } else {
        assert_eq!(part, made, "LANEWATCH_UPDATE=1 cargo test --test reference writes docs/{name} anew");
    }
}

#[test]
fn the_reference_of_configuration_keys_is_the_programs() {
    let markers = ["<!-- configuration: generated from the program -->", "<!-- end of configuration -->"];
    holds("configuration.md", markers, &lanewatch::cli::config::reference::markdown());
}

#[test]
fn the_reference_of_commands_is_the_programs() {
    let markers = ["<!-- flags: generated from the command line -->", "<!-- end of flags -->"];
    holds("commands.md", markers, &lanewatch::cli::args::help::markdown(lanewatch::cli::args::command()));
}
