//! The units, by systemd's own checker.

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::common::tools::{Tool, require};
use crate::{root, run, succeed};

/// The drop-ins, and the exposure that each may bring the unit to, in tenths.
const DROP_INS: [(&str, u32); 6] =
    [("socket", 15), ("libvirt", 17), ("probes", 17), ("acs", 18), ("kmsg", 20), ("holders", 20)];

/// The unit with drop-ins, in a folder of its own.
fn unit(drop_ins: &[&str]) -> TempDir {
    let folder = TempDir::new().unwrap();
    let systemd = root().join("packaging/systemd");
    for name in ["lanewatch.service", "lanewatch.socket"] {
        fs::copy(systemd.join(name), folder.path().join(name)).unwrap();
    }
    let own = folder.path().join("lanewatch.service.d");
    fs::create_dir(&own).unwrap();
    for name in drop_ins {
        let file = format!("{name}.conf");
        fs::copy(systemd.join("drop-ins").join(&file), own.join(&file)).unwrap();
    }
    folder
}

/// What `systemd-analyze security` says of it, and whether it stays within this exposure.
fn exposure(analyze: &Path, folder: &TempDir, tenths: u32) -> (String, bool) {
    let mut command = Command::new(analyze);
    command.args(["security", "--offline=true", "--no-pager", "--threshold", &tenths.to_string()]);
    let output = run(command.arg(folder.path().join("lanewatch.service")).env("SYSTEMD_UNIT_PATH", folder.path()));
    (output.stdout, output.code == Some(0))
}

#[test]
fn the_base_unit_has_no_capability_and_is_exposed_by_a_little_only() {
    let Some(analyze) = require(Tool::SystemdAnalyze) else { return };
    let base = unit(&[]);
    let (said, within) = exposure(&analyze, &base, 15);
    assert!(within, "{said}");
    // The checker fails where it should, so the line above says something.
    assert!(!exposure(&analyze, &base, 5).1, "{said}");
    let text = fs::read_to_string(base.path().join("lanewatch.service")).unwrap();
    for line in ["CapabilityBoundingSet=\n", "AmbientCapabilities=\n", "Type=notify\n", "User=lanewatch\n"] {
        assert!(text.contains(line), "{line}");
    }
    for (name, within) in DROP_INS {
        let (said, kept) = exposure(&analyze, &unit(&[name]), within);
        assert!(kept, "{name}: {said}");
    }
}

#[test]
fn systemd_understands_every_line() {
    let Some(analyze) = require(Tool::SystemdAnalyze) else { return };
    let all: Vec<&str> = DROP_INS.iter().map(|(name, _)| *name).collect();
    let shipped = fs::read_dir(root().join("packaging/systemd/drop-ins")).unwrap().count();
    assert_eq!(shipped, all.len(), "every drop-in is tried");
    let folder = unit(&all);
    // The program is not installed here; the manual page is not, either.
    let path = folder.path().join("lanewatch.service");
    let text = fs::read_to_string(&path).unwrap().replace("/usr/bin/lanewatch", crate::common::run::PROGRAM);
    fs::write(&path, text).unwrap();
    let mut command = Command::new(analyze);
    let output = run(command
        .args(["verify", "--man=no", "--recursive-errors=no"])
        .arg(&path)
        .env("SYSTEMD_UNIT_PATH", folder.path()));
    assert!(output.code == Some(0) && !output.stderr.contains("lanewatch."), "{}", output.stderr);
}

#[test]
fn the_module_reader_has_one_capability_and_no_arguments() {
    let text = fs::read_to_string(root().join("packaging/systemd/links/lanewatch-module-reader.service")).unwrap();
    for line in [
        "ExecStart=@/usr/bin/lanewatch lanewatch-module-reader\n",
        "CapabilityBoundingSet=CAP_NET_ADMIN\n",
        "AmbientCapabilities=CAP_NET_ADMIN\n",
        "DynamicUser=yes\n",
        "RestrictAddressFamilies=AF_NETLINK AF_UNIX\n",
    ] {
        assert!(text.contains(line), "{line}");
    }
    assert!(!text.contains("[Install]"), "its socket starts it, and an administrator enables that");
}

#[test]
fn each_drop_in_says_what_it_gains_and_the_readme_names_it() {
    let readme = fs::read_to_string(root().join("packaging/systemd/README.md")).unwrap();
    for (name, _) in DROP_INS {
        let text = fs::read_to_string(root().join(format!("packaging/systemd/drop-ins/{name}.conf"))).unwrap();
        assert!(text.contains("\n# Gains: "), "{name}");
        assert!(readme.contains(&format!("| `{name}.conf` |")), "{name}");
        for capability in
            text.lines().find_map(|line| line.strip_prefix("AmbientCapabilities=")).unwrap_or_default().split(' ')
        {
            assert!(readme.contains(capability), "{name}: {capability}");
        }
    }
}

#[test]
fn the_settings_that_are_shipped_are_taken() {
    let settings = fs::read_to_string(root().join("packaging/etc/default")).unwrap();
    let names: Vec<&str> =
        settings.lines().filter_map(|line| line.strip_prefix("LANEWATCH_")?.split('=').next()).collect();
    let help = succeed(Command::new(crate::common::run::PROGRAM).args(["serve", "--help"]));
    // `--config.file` is `LANEWATCH_CONFIG_FILE`.
    let flags = help.split_whitespace().filter_map(|word| word.strip_prefix("--"));
    let variables: Vec<String> = flags.map(|flag| flag.replace(['.', '-'], "_").to_uppercase()).collect();
    assert!(!names.is_empty());
    for name in names {
        assert!(variables.iter().any(|variable| variable == name), "{name} is none of {variables:?}");
    }
    // Commented out or not, every line of the configuration must be one.
    let example = fs::read_to_string(root().join("packaging/etc/lanewatch.toml")).unwrap();
    let folder = TempDir::new().unwrap();
    let bare: String = example
        .lines()
        .map(|line| line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')).unwrap_or(line))
        .collect::<Vec<_>>()
        .join("\n");
    assert!(bare.contains("\n[web]\n"), "{bare}");
    let web = folder.path().join("web.yml");
    fs::write(&web, "{}").unwrap();
    // Only with the file that it names.
    fs::write(folder.path().join("bare.toml"), &bare).unwrap();
    let output =
        run(Command::new(crate::common::run::PROGRAM).args(["config", "check"]).arg(folder.path().join("bare.toml")));
    assert!(
        output.code == Some(2) && output.stderr.contains(": web.config-file: /etc/lanewatch/web.yml: "),
        "{output:?}"
    );
    for text in [&example, &bare.replace("/etc/lanewatch/web.yml", web.to_str().unwrap())] {
        let file = folder.path().join("lanewatch.toml");
        fs::write(&file, text).unwrap();
        succeed(Command::new(crate::common::run::PROGRAM).args(["config", "check"]).arg(&file));
    }
}
