//! `packaging/versions.py`: that every place that states the version agrees, and that one that does not is reported.

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::common::run::Output;
use crate::{root, run, succeed};

/// Every file that states the version.
const STATES: [&str; 8] = [
    "Cargo.toml",
    "Cargo.lock",
    "CHANGELOG.md",
    "packaging/container/Dockerfile",
    "packaging/debian/changelog",
    "packaging/helm/lanewatch/Chart.yaml",
    "packaging/kubernetes/daemonset.yaml",
    "packaging/kubernetes/podmonitor.yaml",
];

fn copy(to: &Path) {
    for path in STATES.iter().chain(&["packaging/kubernetes.md", "packaging/versions.py"]) {
        let target = to.join(path);
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::copy(root().join(path), target).unwrap();
    }
}

/// What the check says in this folder.
fn check(folder: &Path, arguments: &[&str]) -> Output {
    let script = "cd \"$0\" && exec python3 packaging/versions.py \"$@\"";
    run(Command::new("sh").args(["-c", script]).arg(folder).args(arguments))
}

#[test]
fn the_version_is_the_same_everywhere() {
    let said = succeed(Command::new("python3").arg("packaging/versions.py"));
    assert_eq!(said, format!("versions: {} everywhere\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn each_place_that_was_forgotten_is_reported() {
    let version = env!("CARGO_PKG_VERSION");
    for path in STATES {
        let folder = TempDir::new().unwrap();
        copy(folder.path());
        let file = folder.path().join(path);
        let text = fs::read_to_string(&file).unwrap().replace(version, "9.8.7");
        fs::write(&file, text).unwrap();
        let output = check(folder.path(), &[]);
        assert_eq!(output.code, Some(1), "{path}: {}", output.stdout);
        let named = if path == "Cargo.toml" { "Cargo.lock: " } else { path };
        assert!(output.stdout.contains(named), "{path}: {}", output.stdout);
    }
}

#[test]
fn a_tag_is_of_this_version_of_this_commit_and_in_the_changelog() {
    let (folder, version) = (TempDir::new().unwrap(), env!("CARGO_PKG_VERSION"));
    copy(folder.path());
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command.arg("-C").arg(folder.path()).args(["-c", "user.name=x", "-c", "user.email=x@localhost"]);
        succeed(command.args(arguments));
    };
    let tag = format!("v{version}");
    let changelog = folder.path().join("CHANGELOG.md");
    let text = fs::read_to_string(&changelog).unwrap();
    let released = text.replacen(&format!("## [Unreleased]: {version}"), &format!("## [{version}] - 2026-12-01"), 1);
    git(&["init", "--quiet"]);
    fs::write(&changelog, &text).unwrap();
    git(&["add", "."]);
    git(&["commit", "--quiet", "-m", "before"]);
    git(&["tag", &tag]);
    assert!(check(folder.path(), &["--tag", &tag]).stdout.contains("no heading"), "not released yet");

    fs::write(&changelog, &released).unwrap();
    assert!(check(folder.path(), &["--tag", &tag]).stdout.contains("files are changed"));
    git(&["commit", "--quiet", "-am", "release"]);
    assert!(check(folder.path(), &["--tag", &tag]).stdout.contains("is not the commit that is checked out"));
    git(&["tag", "--force", &tag]);
    let output = check(folder.path(), &["--tag", &tag]);
    assert_eq!(output.code, Some(0), "{}", output.stdout);
    assert_eq!(check(folder.path(), &["--tag", "v9.8.7"]).code, Some(1));
}
