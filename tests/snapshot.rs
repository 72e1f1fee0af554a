//! A host is recorded, and the record is asked what the host was asked.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "common/mod.rs"]
mod common;

use std::fs;
use std::io::Read as _;
use std::path::Path;

use common::host::{Card, GEN3, GEN4, HostTree, Layer, LinkEnd};
use common::run::{Output, lanewatch, lanewatch_in};
use flate2::read::GzDecoder;
use serde_json::Value;
use tempfile::TempDir;

/// Four cards: well, degraded, dual RoCE behind a switch with VFs, and down.
fn host(directory: &Path) {
    let mut host = HostTree::new(4);
    host.cards[1].device = LinkEnd::full(GEN4, 16).trained(GEN3, 8);
    host.cards[1].upstream = LinkEnd::full(GEN4, 16).trained(GEN3, 8);
    let rate = "100 Gb/sec (4X EDR)";
    host.cards[2] = Card { functions: 2, switch: true, layer: Layer::Ethernet, rate, vfs: 3, ..Card::default() };
    (host.cards[3].state, host.cards[3].phys_state) = ("1: DOWN", "2: Polling");
    let devices = host.devices();
    let mut tree = host.tree();
    tree.unreadable(devices[0].port.join("counters/symbol_error"));
    tree.unreadable(devices[1].port.join("phys_state"));
    tree.line(devices[0].function.join("vpd"), "serial MT2039X00001");
    tree.write(directory).unwrap();
}

/// What `check` finds, without what is not the host's.
fn findings(root: &Path) -> Value {
    let output = lanewatch(&["check", "--format", "json", "--path.rootfs", root.to_str().unwrap()]);
    let mut document: Value = serde_json::from_str(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    let map = document.as_object_mut().unwrap();
    map.remove("host").unwrap();
    map.remove("evaluated").unwrap();
    for finding in map["findings"].as_array_mut().unwrap() {
        finding.as_object_mut().unwrap().remove("since").unwrap();
    }
    document
}

fn record(root: &Path, directory: &Path, more: &[&str]) -> Output {
    let mut arguments = vec!["snapshot", "-o", "host.tar.gz", "--path.rootfs", root.to_str().unwrap()];
    arguments.extend(more);
    lanewatch_in(directory, &arguments)
}

fn unpacked(archive: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    GzDecoder::new(fs::File::open(archive).unwrap()).read_to_end(&mut bytes).unwrap();
    bytes
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

#[test]
fn a_record_gives_the_same_findings_and_no_identifier() {
    let (root, out) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    host(root.path());
    let output = record(root.path(), out.path(), &[]);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(output.stdout.starts_with("wrote host.tar.gz: "), "{}", output.stdout);
    assert!(output.stdout.contains("2 files that could not be read\nidentifiers were replaced"), "{}", output.stdout);
    let archive = out.path().join("host.tar.gz");
    let bytes = unpacked(&archive);
    for identifier in ["b83f:d203", "b8:3f:d2", "node17", "MT2039X00001", "6f1c2a54"] {
        assert!(!contains(&bytes, identifier), "{identifier} is in the archive");
    }
    for kept in ["MT_0000000223", "20.39.3004", "0000:0c:00.0", "mlx5_3", "host-1"] {
        assert!(contains(&bytes, kept), "{kept} is not in the archive");
    }
    let replayed = TempDir::new().unwrap();
    tar::Archive::new(&bytes[..]).unpack(replayed.path()).unwrap();
    assert!(replayed.path().join("README.txt").is_file());
    let link = fs::read_link(replayed.path().join("sys/class/infiniband/mlx5_0")).unwrap();
    assert!(link.is_relative() && replayed.path().join("sys/class/infiniband").join(link).is_dir());
    let (before, after) = (findings(root.path()), findings(replayed.path()));
    assert_eq!(before, after);
    let found = before["findings"].as_array().unwrap();
    let has = |check: &str| found.iter().any(|finding| finding["check"] == check);
    assert!(has("pcie_degraded") && has("pcie_below_port_rate") && has("port_down"), "{found:#?}");
}

#[test]
fn identifiers_are_kept_on_request_and_files_are_never_overwritten() {
    let (root, out) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    host(root.path());
    let output = record(root.path(), out.path(), &["--keep-identifiers"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    let archive = out.path().join("host.tar.gz");
    let bytes = unpacked(&archive);
    assert!(contains(&bytes, "b83f:d203:0000:0000") && contains(&bytes, "node17"));
    assert!(!contains(&bytes, "MT2039X00001"));
    let before = fs::read(&archive).unwrap();
    let again = record(root.path(), out.path(), &[]);
    assert_eq!(again.code, Some(2));
    assert_eq!(again.stderr, "lanewatch: host.tar.gz exists already and is not overwritten\n");
    assert_eq!(fs::read(&archive).unwrap(), before);
    let rootfs = root.path().to_str().unwrap();
    let nowhere = lanewatch(&["snapshot", "-o", "none/x.tar.gz", "--path.rootfs", rootfs]);
    assert_eq!(nowhere.code, Some(1));
    assert!(nowhere.stderr.starts_with("lanewatch: cannot write none/x.tar.gz: "), "{}", nowhere.stderr);
}

/// What `metrics` says of a host, without what is the program's own: times, and how long a reading took.
fn series(root: &Path) -> Vec<String> {
    let output = lanewatch(&["metrics", "--path.rootfs", root.to_str().unwrap()]);
    assert_eq!(output.code, Some(0), "{output:?}");
    let own = |line: &&str| {
        line.starts_with('#') || line.starts_with("process_") || line.contains("_seconds") || line.contains("timestamp")
    };
    output.stdout.lines().filter(|line| !own(line)).map(str::to_owned).collect()
}

/// Turns every link below a directory into a file with its target.
fn forget_links(directory: &Path) -> usize {
    let mut links = 0;
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_symlink() {
            let target = fs::read_link(&path).unwrap();
            fs::remove_file(&path).unwrap();
            fs::write(&path, target.to_str().unwrap()).unwrap();
            links += 1;
        } else if path.is_dir() {
            links += forget_links(&path);
        }
    }
    links
}

#[test]
fn an_archive_that_knows_no_links_loses_nothing() {
    let root = TempDir::new().unwrap();
    host(root.path());
    let whole = series(root.path());
    for name in ["lanewatch_port_gids{", "lanewatch_vf_info{", "lanewatch_irq_vectors{", "lanewatch_pcie_path_info{"] {
        assert!(whole.iter().any(|line| line.starts_with(name)), "{name} in {whole:#?}");
    }
    assert!(forget_links(&root.path().join("sys")) > 20);
    let without = series(root.path());
    let lost: Vec<&String> = whole.iter().filter(|line| !without.contains(line)).collect();
    let new: Vec<&String> = without.iter().filter(|line| !whole.contains(line)).collect();
    assert!(lost.is_empty() && new.is_empty(), "lost {lost:#?}, new {new:#?}");
}
