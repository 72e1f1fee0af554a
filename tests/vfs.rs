//! Hosts with hundreds of VFs: how many series they make, what is said without permissions, and that nothing is
//! written.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

#[path = "common/mod.rs"]
mod common;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use common::cost::peak_of;
use common::iplink;
use common::run::{PROGRAM, as_nobody, to_its_end};
use common::vfs::VfHost;
use lanewatch::export::{AgentState, Format, Process, encode};
use lanewatch::host::collector::{Filter, Setup};
use lanewatch::host::fs::Fs;
use lanewatch::host::io::Roots;
use lanewatch::host::netlink::socket::{NetlinkConnection, NetlinkConnector};
use lanewatch::host::{COLLECTORS, Host};
use lanewatch::model::policy::Policy;
use lanewatch::model::sriov::Pf;
use lanewatch::watch::clock::SystemClock;
use lanewatch::watch::store::Store;
use lanewatch::watch::{Engine, HostReport, Poller};
use tempfile::TempDir;

struct Kernel(Arc<Vec<iplink::Interface>>);

impl NetlinkConnection for Kernel {
    fn ask(&mut self, request: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        let (name, statistics) = iplink::asked(request);
        let found = self.0.iter().find(|interface| interface.name == name);
        Ok(found.map(|interface| interface.reply(statistics)).into_iter().collect())
    }
}

fn report(root: &Path, shape: &VfHost) -> Arc<HostReport> {
    let mut poller = poller(root, shape, None);
    poller.pass(Duration::from_secs(30));
    poller.pass(Duration::from_secs(30))
}

fn poller(root: &Path, shape: &VfHost, store: Option<Store>) -> Poller {
    let interfaces = Arc::new(shape.interfaces());
    let route: NetlinkConnector = Arc::new(move || Ok(Box::new(Kernel(Arc::clone(&interfaces)))));
    let host = Host {
        io: Arc::new(Fs::new()),
        sysfs: root.join("sys"),
        procfs: root.join("proc"),
        roots: Roots::below(root),
        route: Some(route),
        ethtool: None,
        live: false,
    };
    let setup = Setup { host, filter: Filter::default() };
    let engine = Engine::new(Arc::new(Policy::default()), false);
    Poller::new(&setup, COLLECTORS.iter().copied(), Arc::new(SystemClock), engine, store).unwrap()
}

fn series(report: &Arc<HostReport>) -> BTreeMap<String, usize> {
    series_of(report, AgentState::default())
}

fn series_of(report: &Arc<HostReport>, agent: AgentState) -> BTreeMap<String, usize> {
    let mut text = String::new();
    encode(Format::Text, report, &Arc::new(agent), Process::default(), &mut text).unwrap();
    let mut families = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap_or_default();
        *families.entry(name.to_owned()).or_insert(0) += 1;
    }
    families
}

#[test]
fn two_pfs_with_128_vfs_each_stay_under_4000_series() {
    for here in [false, true] {
        let shape = VfHost { pfs: 2, vfs: 128, here };
        let root = TempDir::new().unwrap();
        shape.write(root.path()).unwrap();
        let report = report(root.path(), &shape);
        let series = series(&report);
        let all: usize = series.values().sum();
        println!("VFs here: {here}: {all} series");
        assert_eq!((series["lanewatch_vf_info"], series["lanewatch_vf_received_bytes_total"]), (256, 256));
        assert_eq!(series["lanewatch_vf_holder_info"], 256);
        assert!(all < 4000, "{all}: {series:?}");
        assert_eq!(report.findings.len(), 0, "{:?}", report.findings);
    }
}

#[test]
fn ports_of_vfs_have_states_and_rate_and_all_else_where_asked() {
    let shape = VfHost { pfs: 1, vfs: 3, here: true };
    let root = TempDir::new().unwrap();
    shape.write(root.path()).unwrap();
    let vf_port = |report: &HostReport| {
        let vf = report.snapshot.all::<Pf>().flat_map(|pf| &pf.vfs).find_map(|vf| vf.devices.first()).unwrap();
        root.path().join(format!("sys/class/infiniband/{vf}/ports/1"))
    };
    let down = vf_port(&report(root.path(), &shape));
    fs::write(down.join("state"), "1: DOWN\n").unwrap();
    fs::write(down.join("phys_state"), "3: Disabled\n").unwrap();
    let report = report(root.path(), &shape);
    let usual = series(&report);
    let count = |series: &BTreeMap<String, usize>, name: &str| series.get(name).copied().unwrap_or_default();
    // The PF's port has all seven states, and the VF's that is down the one that it is in.
    assert_eq!(count(&usual, "lanewatch_port_physical_state"), 7 + 1, "{usual:?}");
    assert_eq!(count(&usual, "lanewatch_port_state"), 6 + 1 + 1 + 2, "{usual:?}");
    let whole = series_of(&report, AgentState { vf_ports: true, ..AgentState::default() });
    for name in ["lanewatch_port_info", "lanewatch_port_received_bytes_total", "lanewatch_port_transmitted_bytes_total"]
    {
        assert_eq!((count(&usual, name), count(&whole, name)), (1, 4), "{name}");
    }
    assert!(count(&whole, "lanewatch_port_events_total") > count(&usual, "lanewatch_port_events_total"));
}

#[test]
fn a_queue_pair_map_is_read_where_the_configuration_says_so() {
    let root = TempDir::new().unwrap();
    VfHost { pfs: 1, vfs: 2, here: false }.write(root.path()).unwrap();
    let pf = root.path().join("sys/class/infiniband/mlx5_0/device");
    for (vf, rows) in [(0, "# vf local global state\n0 1 0x11 RTS\n0 2 0x12 RTS\n"), (1, "1 1 0x12 INIT\n")] {
        let directory = pf.join(format!("sriov/{vf}"));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("qid_map"), rows).unwrap();
    }
    let file = root.path().join("lanewatch.toml");
    let table = "[collector.qid-map]\npath = \"/sys/class/infiniband/*/device/sriov/*/qid_map\"\n\
                 columns = [\"vf\", \"local\", \"global\", \"state\"]\n";
    let run = |command: &[&str], text: &str| {
        fs::write(&file, text).unwrap();
        let mut run = Command::new(PROGRAM);
        run.args(command).arg("--path.rootfs").arg(root.path()).args(["--storage.path", "/nonexistent"]);
        run.arg("--config.file").arg(&file);
        to_its_end(run, Duration::from_secs(30))
    };
    let on = format!("[collector]\nenabled = [\"qid_map\"]\n{table}");
    let said = run(&["metrics"], &on).stdout;
    let pf = "pf=\"0000:01:00.0\"";
    for line in [
        format!("lanewatch_qid_map_entries{{{pf},state=\"RTS\"}} 2"),
        format!("lanewatch_qid_map_entries{{{pf},state=\"INIT\"}} 1"),
        format!("lanewatch_qid_map_claimed_twice{{{pf}}} 1"),
    ] {
        assert!(said.lines().any(|other| other == line), "{line}: {said}");
    }
    let document: serde_json::Value = serde_json::from_str(&run(&["check", "--format", "json"], &on).stdout).unwrap();
    let findings = document["findings"].as_array().unwrap().iter().filter(|found| found["check"] == "vf_map_stale");
    let found: Vec<String> = findings.map(|found| format!("{} {}", found["subject"], found["reason"])).collect();
    assert_eq!(found, [0, 1].map(|vf| format!("\"0000:01:00.0/vf{vf}\" \"qid_claimed_twice\"")));
    // Off by default, and not without the table.
    assert!(!run(&["metrics"], table).stdout.contains("qid_map"));
    let refused = run(&["metrics"], "[collector]\nenabled = [\"qid_map\"]\n");
    assert!(refused.code != Some(0) && refused.stderr.contains("collector.qid-map: "), "{}", refused.stderr);
}

#[test]
fn what_changed_since_a_time_is_said_with_the_map() {
    let root = TempDir::new().unwrap();
    let shape = VfHost { pfs: 2, vfs: 2, here: false };
    shape.write(root.path()).unwrap();
    let storage = TempDir::new().unwrap();
    let mut poller = poller(root.path(), &shape, Some(Store::new(storage.path().to_owned())));
    poller.pass(Duration::from_secs(30));
    // The second VF of each PF goes back to this host.
    for pf in 0..2 {
        let vf = root.path().join("sys/bus/pci/devices").join(VfHost::address(pf, Some(1)));
        fs::remove_file(vf.join("driver")).unwrap();
        std::os::unix::fs::symlink("../../../bus/pci/drivers/mlx5_core", vf.join("driver")).unwrap();
    }
    poller.pass(Duration::from_secs(30));
    let changes = |more: &[&str]| -> Vec<(String, String)> {
        let mut run = Command::new(PROGRAM);
        run.args(["vf", "--format", "json"]).args(more).arg("--path.rootfs").arg(root.path());
        let out = to_its_end(
            {
                run.arg("--storage.path").arg(storage.path());
                run
            },
            Duration::from_secs(30),
        );
        let document: serde_json::Value = serde_json::from_str(&out.stdout).unwrap();
        assert_eq!(document["pfs"][0]["vfs"].as_array().unwrap().len(), 2);
        let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
        let changes = document["changes"].as_array().unwrap().iter();
        changes.map(|change| (text(&change["subject"]), text(&change["text"]))).collect()
    };
    let both = changes(&["--since", "1h"]);
    for pf in 0..2 {
        let key = format!("{}/vf1", VfHost::address(pf, None));
        let said = both.iter().find(|(subject, _)| *subject == key).map(|(_, text)| text.as_str()).unwrap_or_default();
        assert!(said.contains("driver vfio-pci became mlx5_core"), "{both:?}");
    }
    let second = VfHost::address(1, None);
    let of_one = changes(&[second.as_str(), "--since", "1h"]);
    assert_eq!(of_one.iter().filter(|(subject, _)| subject.ends_with("/vf1")).count(), 1, "{of_one:?}");
    assert_eq!(changes(&["--since", "2126-01-01T00:00:00Z"]), []);
    assert_eq!(changes(&[]), []);
}

/// Every file below a folder with its content's age and its metadata's.
fn state(folder: &Path) -> BTreeMap<PathBuf, (i64, i64, i64, u64)> {
    let mut all = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let meta = path.symlink_metadata().unwrap();
            if meta.is_dir() {
                folders.push(path.clone());
            }
            all.insert(path, (meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec(), meta.ino()));
        }
    }
    all
}

#[test]
fn nothing_on_the_host_is_written() {
    let root = TempDir::new().unwrap();
    VfHost { pfs: 2, vfs: 8, here: false }.write(root.path()).unwrap();
    let storage = TempDir::new().unwrap();
    let before = state(root.path());
    for command in [&["vf"][..], &["vf", "--format", "json"], &["check"], &["metrics"]] {
        let mut run = Command::new(PROGRAM);
        run.args(command).arg("--path.rootfs").arg(root.path()).arg("--storage.path").arg(storage.path());
        to_its_end(run, Duration::from_secs(30));
    }
    assert!(before.len() > 300);
    assert_eq!(state(root.path()), before);
    assert_eq!(fs::read_dir(storage.path()).unwrap().count(), 0);
    // And where the file system itself refuses, nothing is different.
    let script = "mount --bind \"$1\" \"$1\" && mount -o remount,bind,ro \"$1\" && ! touch \"$1/sys/x\" 2>/dev/null && \
                  exec \"$2\" vf --path.rootfs \"$1\" --storage.path \"$3\"";
    let mut run = Command::new("unshare");
    run.args(["-m", "sh", "-c", script, "sh"]).arg(root.path()).arg(PROGRAM).arg(storage.path());
    let out = to_its_end(run, Duration::from_secs(30));
    if out.stderr.contains("unshare") || out.stderr.contains("mount") {
        println!("no mounts here: {}", out.stderr);
        return;
    }
    assert_eq!((out.code, out.stderr.as_str()), (Some(0), ""));
    assert_eq!(out.stdout.matches(" vm vm").count(), 16, "{}", out.stdout);
}

/// What only root may look into.
const CLOSED: [&str; 4] = ["proc/1/fd", "proc/1000/fd", "run/libvirt/qemu", "etc/libvirt/qemu"];

#[test]
fn without_permissions_all_else_is_said_and_no_noise_is_made() {
    let root = TempDir::new().unwrap();
    VfHost { pfs: 1, vfs: 2, here: false }.write(root.path()).unwrap();
    fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let closed = |path: &str| {
        let path = root.path().join(path);
        fs::create_dir_all(&path).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o000)).unwrap();
    };
    for path in CLOSED {
        closed(path);
    }
    let out = as_nobody(root.path(), &["vf", "--format", "json"]);
    assert_eq!((out.code, out.stderr.as_str()), (Some(0), ""), "{}", out.stdout);
    let document: serde_json::Value = serde_json::from_str(&out.stdout).unwrap();
    let pf = &document["pfs"][0];
    assert_eq!((&pf["present"], &pf["configured"]), (&2.into(), &2.into()));
    assert_eq!(pf["vfs"][1]["driver"], "vfio-pci");
    assert_eq!(pf["vfs"][1]["holder"]["kind"], "unknown");
    assert_eq!(pf["vfs"][1]["holder"]["missing"], "CAP_SYS_PTRACE with CAP_DAC_READ_SEARCH");
    assert_eq!(document["limited"].as_array().unwrap().len(), 1, "{}", document["limited"]);
    for path in CLOSED {
        fs::set_permissions(root.path().join(path), fs::Permissions::from_mode(0o755)).unwrap();
    }
}

/// Memory of `check` on a host with 4,000 VFs, in bytes: where others use them, and where their devices are on this host.
const LARGE_HOSTS: [u64; 2] = [80 << 20, 160 << 20];

#[test]
fn check_on_a_host_with_4000_vfs_takes_bounded_memory() {
    for (here, bound) in [false, true].into_iter().zip(LARGE_HOSTS) {
        let root = TempDir::new().unwrap();
        VfHost { pfs: 16, vfs: 250, here }.write(root.path()).unwrap();
        for (verb, more) in [
            ("check", &["--timeout", "60s"][..]),
            ("check", &["--format", "json", "--timeout", "60s"]),
            ("metrics", &[][..]),
        ] {
            let mut command = Command::new(PROGRAM);
            command.arg(verb).args(more).arg("--path.rootfs").arg(root.path()).args(["--storage.path", "/nonexistent"]);
            let (most, code) = peak_of(command);
            println!("{verb} {more:?}, VFs used here: {here}: {} MiB, exit code {code:?}", most >> 20);
            assert!(code.is_some_and(|code| code <= 3), "{code:?}");
            assert!(most < bound, "{verb} {more:?}, VFs used here: {here}: {} MiB", most >> 20);
        }
    }
}
