//! `check`, as a person meets it: what is not known is said so, with its subject and the reason.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "common/mod.rs"]
mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use common::host::{Device, GEN4, HostTree, LinkEnd};
use common::run::{Output, as_nobody, lanewatch};
use serde_json::Value;
use tempfile::TempDir;

/// A host with two cards, and their devices.
fn host(change: impl FnOnce(&mut HostTree)) -> (TempDir, Vec<Device>) {
    let directory = TempDir::new().unwrap();
    let mut host = HostTree::new(2);
    change(&mut host);
    host.write(directory.path()).unwrap();
    (directory, host.devices())
}

fn check(root: &Path, more: &[&str]) -> Output {
    let mut arguments = vec!["check", "--path.rootfs", root.to_str().unwrap(), "--storage.path", "/nonexistent"];
    arguments.extend(more);
    lanewatch(&arguments)
}

fn first_line(output: &Output) -> &str {
    output.stdout.lines().next().unwrap_or_default()
}

fn undecided(root: &Path) -> Vec<String> {
    let document: Value = serde_json::from_str(&check(root, &["--format", "json"]).stdout).unwrap();
    let text = |undecided: &Value| {
        format!("{} {} {}", undecided["check"], undecided["subject"], undecided["reason"]).replace('"', "")
    };
    document["undecided"].as_array().unwrap().iter().map(text).collect()
}

/// Puts a directory in a file's place: its read fails.
fn break_file(path: &Path) {
    fs::remove_file(path).unwrap();
    fs::create_dir(path).unwrap();
}

#[test]
fn a_host_that_says_everything_has_nothing_unknown() {
    let (root, _) = host(|_| {});
    let output = check(root.path(), &[]);
    assert_eq!((output.code, output.stdout.as_str()), (Some(0), "OK: 2 devices, 2 of 2 ports active\n"));
}

#[test]
fn a_link_that_does_not_say_how_it_runs_is_unknown() {
    let end = |speed, width| LinkEnd { speed, width, ..LinkEnd::full(GEN4, 16) };
    // Speed alone, width alone, both, as the kernel writes them.
    for device in [end("Unknown", 16), end(GEN4, 0), end("Unknown speed", 0)] {
        let (root, devices) = host(|host| host.cards[1].device = device);
        let output = check(root.path(), &[]);
        let address = &devices[1].address;
        assert_eq!(output.code, Some(0), "nothing was there that could be read: {output:?}");
        let line = format!("OK: 2 devices, 2 of 2 ports active; unknown: {address} (not reported by the host)");
        assert_eq!(first_line(&output), line);
        let said = format!("\nunknown  {address}: not reported by the host (pcie_degraded, pcie_limited_by_slot)\n");
        assert!(output.stdout.contains(&said), "{}", output.stdout);
        let undecided = undecided(root.path());
        for check in ["pcie_degraded", "pcie_limited_by_slot"] {
            assert!(undecided.contains(&format!("{check} {address} null")), "{undecided:?}");
        }
    }
}

#[test]
fn a_link_without_its_files_is_unknown_and_one_that_cannot_be_read_makes_the_host_so() {
    let files = ["current_link_speed", "current_link_width"];
    let (root, devices) = host(|_| {});
    let at = |file: &str| root.path().join(&devices[0].function).join(file);
    for file in files {
        fs::remove_file(at(file)).unwrap();
        let output = check(root.path(), &[]);
        let part = format!("\nunknown  {}: not reported by the host (pcie_degraded", devices[0].address);
        assert!(output.code == Some(0) && output.stdout.contains(&part), "{output:?}");
    }
    let (root, devices) = host(|_| {});
    break_file(&root.path().join(&devices[0].function).join(files[0]));
    let output = check(root.path(), &[]);
    assert_eq!(output.code, Some(3));
    let line = format!("UNKNOWN: {}, mlx5_0/1 (I/O error) unknown: cannot read ", devices[0].address);
    let line = first_line(&output).strip_prefix(&line).unwrap_or_else(|| panic!("{}", output.stdout));
    assert!(line.contains("/current_link_speed: io; 2 devices, 2 of 2 ports active"), "{line}");
}

#[test]
fn functions_without_a_link_by_nature_are_passed_over() {
    // Integrated and conventional functions: no files, or the values of one without link registers.
    for files in [&[][..], &[("current_link_speed", "Unknown"), ("current_link_width", "0"), ("max_link_width", "255")]]
    {
        let (root, devices) = host(|host| host.cards[1].vfs = 2);
        for directory in [&devices[0].function, &devices[0].above] {
            for file in ["current_link_speed", "current_link_width", "max_link_speed", "max_link_width"] {
                fs::remove_file(root.path().join(directory).join(file)).unwrap();
            }
        }
        for (file, text) in files {
            fs::write(root.path().join(&devices[0].function).join(file), text).unwrap();
        }
        let output = check(root.path(), &[]);
        assert_eq!((output.code, output.stdout.contains("unknown ")), (Some(0), false), "{}", output.stdout);
    }
}

#[test]
fn a_guest_says_nothing_of_links_and_that_is_no_news() {
    let (root, _) =
        host(|host| host.cards[0].device = LinkEnd { speed: "Unknown", width: 0, ..LinkEnd::full(GEN4, 16) });
    let cpus = "processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: fpu hypervisor\n";
    fs::write(root.path().join("proc/cpuinfo"), cpus).unwrap();
    let output = check(root.path(), &[]);
    assert_eq!((output.code, output.stdout.contains("unknown ")), (Some(0), false), "{}", output.stdout);
}

#[test]
fn a_device_without_ports_is_unknown() {
    let (root, devices) = host(|_| {});
    fs::remove_dir_all(root.path().join(devices[1].port.parent().unwrap())).unwrap();
    let output = check(root.path(), &[]);
    assert_eq!(output.code, Some(0), "nothing was there that could be read: {output:?}");
    assert_eq!(first_line(&output), "OK: 2 devices, 1 of 1 port active; unknown: mlx5_1 (not reported by the host)");
    assert!(output.stdout.contains("\nunknown  mlx5_1: not reported by the host (port_down)\n"), "{}", output.stdout);
}

#[test]
fn a_state_that_cannot_be_read_is_unknown_and_not_down() {
    let (root, devices) = host(|_| {});
    break_file(&root.path().join(&devices[0].port).join("state"));
    let output = check(root.path(), &[]);
    assert_eq!(output.code, Some(3), "{output:?}");
    let line = first_line(&output);
    assert!(line.starts_with("UNKNOWN: mlx5_0/1 (I/O error) unknown: cannot read "), "{line}");
    assert!(line.ends_with("/state: io; 2 devices, 1 of 2 ports active, 1 unknown"), "{line}");
    let nagios = check(root.path(), &["--format", "nagios"]);
    assert!(nagios.stdout.contains("ports_active=1 ports=2 ports_unknown=1\n"), "{}", nagios.stdout);
    fs::remove_dir(root.path().join(&devices[0].port).join("state")).unwrap();
    let output = check(root.path(), &[]);
    assert_eq!(
        first_line(&output),
        "OK: 2 devices, 1 of 2 ports active, 1 unknown; unknown: mlx5_0/1 (not reported by the host)"
    );
}

#[test]
fn a_state_that_may_not_be_read_is_limited_and_not_counted_as_down() {
    let (root, devices) = host(|_| {});
    let state = root.path().join(&devices[0].port).join("state");
    fs::set_permissions(&state, fs::Permissions::from_mode(0o000)).unwrap();
    let output = as_nobody(root.path(), &["check"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(first_line(&output), "OK: 2 devices, 1 of 2 ports active, 1 unknown");
    assert!(output.stdout.contains("\nlimited  CAP_DAC_READ_SEARCH would show: "), "{}", output.stdout);
}

#[test]
fn what_is_not_known_of_many_is_counted() {
    let (root, devices) = host(|host| *host = HostTree::new(12));
    for device in &devices {
        break_file(&root.path().join(&device.port).join("state"));
    }
    let output = check(root.path(), &[]);
    let line = first_line(&output);
    let begin = "UNKNOWN: mlx5_0/1, mlx5_1/1, mlx5_2/1 (I/O error) and 9 more unknown: cannot read ";
    assert!(line.starts_with(begin), "{line}");
    assert_eq!(output.stdout.matches("\nunknown  mlx5_").count(), 8);
    assert!(output.stdout.contains("\nunknown  4 more (--verbose lists all)\n"), "{}", output.stdout);
    assert_eq!(check(root.path(), &["--verbose"]).stdout.matches("\nunknown  mlx5_").count(), 12);
}

#[test]
fn a_state_file_that_is_broken_is_mentioned_and_changes_no_exit_code() {
    let (root, _) = host(|_| {});
    let storage = TempDir::new().unwrap();
    let file = storage.path().join("state.json");
    let run = |format: &str| {
        let paths = [root.path(), storage.path()].map(|path| path.to_str().unwrap().to_owned());
        lanewatch(&["check", "--format", format, "--path.rootfs", &paths[0], "--storage.path", &paths[1]])
    };
    assert!(!run("text").stdout.contains("note"), "nothing kept is nothing wrong");
    for (text, part) in
        [("{ half", " cannot be read ("), ("{\"version\": 99}", " has version 99, this program supports ")]
    {
        fs::write(&file, text).unwrap();
        let output = run("text");
        assert_eq!((output.code, first_line(&output)), (Some(0), "OK: 2 devices, 2 of 2 ports active"));
        let begin = format!("\nnote     {}{part}", file.display());
        assert!(output.stdout.contains(&begin) && output.stdout.ends_with("are not known\n"), "{}", output.stdout);
        let nagios = run("nagios");
        assert!(nagios.code == Some(0) && nagios.stdout.contains("\nnote: "), "{nagios:?}");
        let document: Value = serde_json::from_str(&run("json").stdout).unwrap();
        assert!(document["notes"][0].as_str().unwrap().contains(part), "{document}");
        assert_eq!(fs::read_to_string(&file).unwrap(), text, "it is left as it is");
    }
}
