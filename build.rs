//! Gives release builds the revision that they are built from: `LANEWATCH_REVISION`, else what git says of the checkout.
//! Other builds have none, so that a commit does not rebuild them.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=LANEWATCH_REVISION");
    println!("cargo::rerun-if-changed=build.rs");
    let given = std::env::var("LANEWATCH_REVISION").ok().filter(|revision| !revision.is_empty());
    let is_release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let revision = given.or_else(|| if is_release { from_git() } else { None });
    if let Some(revision) = revision {
        println!("cargo::rustc-env=LANEWATCH_REVISION={revision}");
    }
}

/// The commit of a checkout of this project, if this is one; a source package inside another repository is none.
fn from_git() -> Option<String> {
    let root = std::env::var_os("CARGO_MANIFEST_DIR")?;
    if !Path::new(&root).join(".git").exists() {
        return None;
    }
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).current_dir(&root).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    for file in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", file]) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    git(&["rev-parse", "--short=12", "HEAD"]).filter(|revision| !revision.is_empty())
}
