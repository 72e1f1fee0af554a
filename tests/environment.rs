//! The same host from elsewhere: through a mount, from other namespaces, without a sysfs. What is said of it is said the
//! same way by `check --verbose`, the metrics, the page and the log.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "common/mod.rs"]
mod common;

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::thread;
use std::time::Duration;

use common::host::HostTree;
use common::run::{PROGRAM, Server, for_anybody, free_address, lanewatch, to_its_end};
use common::tools::skip;
use tempfile::TempDir;

/// The row of an area in `check --verbose`.
fn row(stdout: &str, area: &str) -> String {
    let rows = stdout.split("\narea ").nth(1).unwrap_or_else(|| panic!("no areas in {stdout}"));
    let row = rows.lines().find(|line| line.starts_with(&format!("{area} ")));
    row.unwrap_or_else(|| panic!("no {area} in {stdout}")).to_owned()
}

#[test]
fn a_mounted_host_is_seen_by_every_voice_alike() {
    let host = TempDir::new().unwrap();
    HostTree::new(2).write(host.path()).unwrap();
    let root = host.path().to_str().unwrap();
    let check = lanewatch(&["check", "--verbose", "--sample", "0", "--path.rootfs", root]);
    assert!(row(&check.stdout, "host").contains("seen"), "{}", check.stdout);
    assert!(row(&check.stdout, "rdma").contains("RDMA devices: 2 read"), "{}", check.stdout);
    let server = Server::start("serve", &["--path.rootfs", root]);
    let metrics = server.get("/metrics").text();
    assert!(
        metrics.contains("lanewatch_visibility_info{area=\"rdma\",visibility=\"seen\",reason=\"\"} 1\n"),
        "{metrics}"
    );
    assert!(server.get("/").text().contains("RDMA devices: 2 read"));
    let log = server.log();
    assert!(log.contains("seen: host, rdma"), "{log}");
}

#[test]
fn a_folder_that_is_no_host_is_said_to_be_none() {
    let nothing = TempDir::new().unwrap();
    let root = nothing.path().to_str().unwrap();
    let check = lanewatch(&["check", "--verbose", "--sample", "0", "--path.rootfs", root]);
    let host = row(&check.stdout, "host");
    assert!(host.contains("hidden") && host.contains("--path.sysfs"), "{host}");
    assert!(row(&check.stdout, "rdma").contains("hidden"), "{}", check.stdout);
    let server = Server::start("serve", &["--path.rootfs", root]);
    let hidden = "lanewatch_visibility_info{area=\"host\",visibility=\"hidden\",reason=\"no_sysfs\"} 1\n";
    assert!(server.get("/metrics").text().contains(hidden));
    assert!(server.log().contains("no sysfs at"), "{}", server.log());
}

/// A user who may have only so many threads, as a unit's `TasksMax` allows: the agent works without some, or says which
/// it cannot do without.
#[test]
fn too_few_threads_are_told_of_and_no_panic() {
    if !rustix::process::geteuid().is_root() {
        return skip("only root may run as a user of its own");
    }
    let host = TempDir::new().unwrap();
    HostTree::new(1).write(host.path()).unwrap();
    let place = host.path();
    for_anybody(place);
    fs::write(place.join("lanewatch.toml"), "").unwrap();
    let outcomes = thread::scope(|scope| {
        let run = |most: u32| {
            let command = format!(
                "ulimit -u {most}; exec ./lanewatch serve --path.rootfs . --config.file lanewatch.toml --storage.path none \
                 --web.listen-address {}",
                free_address()
            );
            let mut limited = Command::new("timeout");
            limited.args(["5", "bash", "-c", &command]).current_dir(place);
            // A user of its own each: what one has does not count for another. `timeout` is its first process.
            let user = 60_100 + most;
            limited.uid(user).gid(user);
            to_its_end(limited, Duration::from_secs(60))
        };
        let runs = [2, 3, 4, 5, 6, 9].map(|most| scope.spawn(move || run(most)));
        runs.map(|run| run.join().unwrap())
    });
    for outcome in &outcomes {
        assert!(!outcome.stderr.contains("panicked"), "{}", outcome.stderr);
        let says = match outcome.code {
            Some(1) => "lanewatch: ",
            Some(124) => "message=ready",
            _ => panic!("{outcome:?}"),
        };
        assert!(outcome.stderr.contains(says), "{}", outcome.stderr);
    }
    assert_eq!([&outcomes[0], &outcomes[5]].map(|outcome| outcome.code), [Some(1), Some(124)]);
    assert!(outcomes.iter().any(|outcome| outcome.stderr.contains("files are not watched")), "{outcomes:?}");
}

/// `check --verbose` of the running host behind these arguments of unshare; none where that is not allowed.
fn unshared(arguments: &[&str]) -> Option<String> {
    let mut trial = Command::new("unshare");
    trial.args(arguments).arg("true");
    if !trial.output().is_ok_and(|output| output.status.success()) {
        skip("no namespaces may be made here");
        return None;
    }
    let mut command = Command::new("unshare");
    command.args(arguments).args([PROGRAM, "check", "--verbose", "--sample", "0"]);
    let directory = TempDir::new().unwrap();
    command.current_dir(directory.path());
    Some(to_its_end(command, Duration::from_secs(60)).stdout)
}

#[test]
fn another_network_namespace_is_noticed() {
    // Processes of their own, so that the first one of them, which stands for the host's, may be looked at.
    let apart = "unshare --net \"$@\"; true";
    let Some(stdout) = unshared(&["--pid", "--fork", "--mount-proc", "sh", "-c", apart, "sh"]) else { return };
    let row = row(&stdout, "namespace");
    assert!(row.contains("partly") && row.contains("hostNetwork"), "{row}");
    let Some(same) = unshared(&["--pid", "--fork", "--mount-proc"]) else { return };
    assert!(!same.contains("\nnamespace "), "{same}");
}

#[test]
fn in_a_user_namespace_capabilities_are_not_what_is_missing() {
    let Some(stdout) = unshared(&["--user", "--map-root-user"]) else { return };
    // The kernel log is open to everyone on some hosts.
    let row = row(&stdout, "kmsg");
    assert!(row.contains("seen") || row.contains("outside a user namespace") || row.contains("no /dev/kmsg"), "{row}");
}
