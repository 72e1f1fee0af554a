//! The packages and what else is shipped to run the agent with: made, checked, installed, tried and taken away.

#![allow(clippy::panic, clippy::indexing_slicing, clippy::unwrap_used, reason = "tests")]

#[path = "../common/mod.rs"]
mod common;

mod chart;
mod image;
mod install;
mod made;
mod migration;
mod snippets;
mod units;
mod userlands;
mod versions;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use common::run::{Output, to_its_end};

/// The top of the repository.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Runs a command at the top of the repository, for at most ten minutes: what packs is not optimized.
fn run(command: &mut Command) -> Output {
    let mut whole = Command::new(command.get_program());
    whole.args(command.get_args()).current_dir(root());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => whole.env(name, value),
            None => whole.env_remove(name),
        };
    }
    to_its_end(whole, Duration::from_secs(600))
}

/// The same for one that must succeed; gives what it printed.
fn succeed(command: &mut Command) -> String {
    let output = run(command);
    assert_eq!(output.code, Some(0), "{command:?}\n{}\n{}", output.stdout, output.stderr);
    output.stdout
}
