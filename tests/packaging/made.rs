//! Both packages, made once of the program that cargo built for the tests, and what their checkers say.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::common::run::PROGRAM;
use crate::common::tools::{Tool, require};
use crate::{root, run, succeed};

/// The packages.
pub(crate) struct Packages {
    pub(crate) deb: PathBuf,
    pub(crate) rpm: PathBuf,
}

/// Makes them once, of a program that is not optimized.
pub(crate) fn packages() -> Option<&'static Packages> {
    static MADE: OnceLock<Option<Packages>> = OnceLock::new();
    require(Tool::CargoDeb)?;
    require(Tool::CargoGenerateRpm)?;
    MADE.get_or_init(|| {
        succeed(Command::new("bash").args(["packaging/stage.sh", PROGRAM]));
        let folder = root().join("target/package");
        let made = Packages { deb: folder.join("lanewatch.deb"), rpm: folder.join("lanewatch-0.1.0-1.x86_64.rpm") };
        pack(&made);
        Some(made)
    })
    .as_ref()
}

/// As `make dist` does, but hardly compressed.
fn pack(to: &Packages) {
    let steps: [(Tool, &[&str], &Path); 2] = [
        (Tool::CargoDeb, &["deb", "--no-build", "--no-strip", "--fast", "-o"], &to.deb),
        (Tool::CargoGenerateRpm, &["generate-rpm", "--payload-compress", "none", "-o"], &to.rpm),
    ];
    for (tool, arguments, path) in steps {
        let mut command = Command::new(require(tool).unwrap());
        succeed(command.args(arguments).arg(path).env("SOURCE_DATE_EPOCH", "1764417600"));
    }
}

#[test]
fn lintian_has_nothing_to_say() {
    let (Some(lintian), Some(made)) = (require(Tool::Lintian), packages()) else { return };
    let said = succeed(
        Command::new(lintian).args(["--allow-root", "--fail-on", "error,warning", "-L", ">=warning"]).arg(&made.deb),
    );
    assert_eq!(said, "");
}

#[test]
fn rpmlint_has_nothing_to_say() {
    let (Some(rpmlint), Some(made)) = (require(Tool::Rpmlint), packages()) else { return };
    let said = succeed(Command::new(rpmlint).args(["--config", "packaging/rpm/rpmlint.toml"]).arg(&made.rpm));
    assert!(said.contains(" 0 errors, 0 warnings"), "{said}");
}

/// Mode and path of every file of a package, as `ls` writes modes.
fn files(listing: &str, path: impl Fn(&str) -> Option<&str>) -> Vec<(String, String)> {
    let line = |line: &str| Some((line.get(..10)?.to_owned(), path(line)?.trim_start_matches(['.', '/']).to_owned()));
    let mut files: Vec<_> = listing.lines().filter_map(line).filter(|(mode, _)| !mode.starts_with('d')).collect();
    files.sort_by(|a, b| a.1.cmp(&b.1));
    files
}

#[test]
fn both_packages_hold_the_same_files_and_nobody_but_root_may_write_them() {
    let (Some(rpm), Some(made)) = (require(Tool::Rpm), packages()) else { return };
    let last = |line: &str| line.rfind(' ').map(|at| at + 1);
    let deb = succeed(Command::new("dpkg-deb").arg("-c").arg(&made.deb));
    let deb = files(&deb, |line| line.get(last(line)?..));
    let listed = succeed(Command::new(rpm).args(["-qplv"]).arg(&made.rpm));
    let rpm = files(&listed, |line| line.get(last(line)?..));
    for (mode, path) in deb.iter().chain(&rpm) {
        let scripts = ["/slurm-health.sh", "/lanewatch-mstlink"];
        let program = path == "usr/bin/lanewatch" || scripts.iter().any(|script| path.ends_with(script));
        assert_eq!(mode, if program { "-rwxr-xr-x" } else { "-rw-r--r--" }, "{path}");
    }
    for line in listed.lines() {
        assert!(line.contains(" root     root "), "{line}");
    }
    // What the two kinds of distribution have in different places, and what only one of them has.
    let same = |files: &[(String, String)]| -> Vec<String> {
        let own = ["/lintian/", "/licenses/", "/copyright", "/changelog.Debian.gz"];
        let paths =
            files.iter().map(|(_, path)| path.as_str()).filter(|path| !own.iter().any(|own| path.contains(own)));
        let place = |path: &str| {
            path.replace("etc/sysconfig/", "etc/default/").replace("/site-functions/", "/vendor-completions/")
        };
        let mut paths: Vec<String> = paths.map(place).collect();
        paths.sort();
        paths
    };
    assert_eq!(same(&deb), same(&rpm));
    for part in [
        "usr/lib/systemd/system/lanewatch.service",
        "usr/lib/systemd/system/lanewatch.socket",
        "usr/lib/sysusers.d/lanewatch.conf",
        "etc/lanewatch/lanewatch.toml",
        "usr/share/man/man1/lanewatch.1.gz",
        "usr/share/man/man1/lanewatch-check.1.gz",
        "usr/share/bash-completion/completions/lanewatch",
        "usr/share/fish/vendor_completions.d/lanewatch.fish",
        "usr/share/lanewatch/systemd/kmsg.conf",
        "usr/share/lanewatch/alerts/lanewatch.rules.yml",
        "usr/share/lanewatch/alerts/runbooks/PortDown.md",
        "usr/share/lanewatch/dashboards/lanewatch-host.json",
        "usr/share/doc/lanewatch/lanewatch.cdx.json",
    ] {
        assert!(deb.iter().any(|(_, path)| path == part), "{part}");
    }
}

#[test]
fn the_same_program_gives_the_same_packages() {
    let Some(made) = packages() else { return };
    let again = Packages { deb: made.deb.with_extension("again.deb"), rpm: made.rpm.with_extension("again.rpm") };
    pack(&again);
    for (one, two) in [(&made.deb, &again.deb), (&made.rpm, &again.rpm)] {
        let (one, two) = (std::fs::read(one).unwrap(), std::fs::read(two).unwrap());
        assert!(one.len() > 1 << 20 && one == two);
    }
}

#[test]
fn the_bill_names_every_crate_that_is_linked_in_with_licence_and_checksum() {
    let bill = succeed(Command::new("python3").arg("packaging/sbom.py"));
    assert_eq!(bill, succeed(Command::new("python3").arg("packaging/sbom.py")), "the same twice");
    let bill: serde_json::Value = serde_json::from_str(&bill).unwrap();
    assert_eq!((&bill["bomFormat"], &bill["specVersion"]), (&"CycloneDX".into(), &"1.5".into()));
    let components = bill["components"].as_array().unwrap();
    let lock = std::fs::read_to_string(root().join("Cargo.lock")).unwrap();
    for component in components {
        let name = component["name"].as_str().unwrap();
        assert!(lock.contains(&format!("name = \"{name}\"\nversion = {}\n", component["version"])), "{name}");
        assert_eq!(component["hashes"][0]["content"].as_str().unwrap().len(), 64, "{name}");
        assert!(component["licenses"][0]["expression"].is_string(), "{name}");
    }
    let named = |name: &str| components.iter().any(|component| component["name"] == name);
    assert!(named("tokio") && named("rustls") && !named("proptest"));
}

#[test]
fn licences_sources_and_versions_are_as_deny_toml_allows() {
    let Some(deny) = require(Tool::CargoDeny) else { return };
    let output = run(Command::new(deny).args([
        "--offline",
        "--locked",
        "check",
        "--hide-inclusion-graph",
        "licenses",
        "bans",
        "sources",
    ]));
    assert_eq!(output.code, Some(0), "{}", output.stderr);
}
