//! `explain` and `demo`, as a person meets them.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "common/mod.rs"]
mod common;

use std::process::Command;
use std::time::Duration;

use common::host::{GEN3, GEN4, HostTree, LinkEnd};
use common::run::{Output, PROGRAM, Server, lanewatch, program, to_its_end};
use tempfile::TempDir;

/// Two cards with a 200 Gb/s port each; the second one's link has trained to 8 GT/s x8.
fn host() -> TempDir {
    let directory = TempDir::new().unwrap();
    let mut host = HostTree::new(2);
    host.cards[1].device = LinkEnd::full(GEN4, 16).trained(GEN3, 8);
    host.cards[1].upstream = LinkEnd::full(GEN4, 16).trained(GEN3, 8);
    host.write(directory.path()).unwrap();
    directory
}

fn explain(root: &TempDir, more: &[&str]) -> Output {
    let mut arguments = vec!["explain", "--path.rootfs", root.path().to_str().unwrap()];
    arguments.extend(more);
    lanewatch(&arguments)
}

#[test]
fn the_limiting_hop_is_named_with_its_reason() {
    let root = host();
    let all = explain(&root, &[]);
    assert_eq!(all.code, Some(0), "{all:?}");
    for part in [
        "\n  200 Gb/s of 200 Gb/s: nothing on the PCIe path holds it back (the PCIe path carries 252.1 Gb/s)\n",
        "\n    ┃  8 GT/s x8 = 63.0 Gb/s  ◀ the limit\n",
        "\n    ┃  degraded in speed and width: both ends can do 16 GT/s x16 = 252.1 Gb/s\n",
        "  critical pcie_degraded 0000:0c:00.0 (speed_and_width, since ",
        "\n  63.0 Gb/s of 200 Gb/s: the link above 0000:0c:00.0 is the limit (trained at 8 GT/s x8, both ends",
        "NUMA node 1      CPUs 4-7\n",
        "MT4123, firmware 20.39.3004, board MT_0000000223\n",
    ] {
        assert!(all.stdout.contains(part), "{part:?} in\n{}", all.stdout);
    }
    assert!(!all.stdout.contains('\x1b'), "a pipe is no terminal");
    let one = explain(&root, &["mlx5_0/1"]);
    assert!(one.stdout.starts_with("mlx5_0\n") && !one.stdout.contains("mlx5_1"), "{}", one.stdout);
}

#[test]
fn a_locale_without_unicode_gets_ascii() {
    let root = host();
    let drawn = |locale: &[(&str, &str)]| {
        let mut command = program();
        for name in ["LC_ALL", "LC_CTYPE", "LANG"] {
            command.env_remove(name);
        }
        command.envs(locale.iter().copied()).args(["explain", "mlx5_1", "--path.rootfs"]).arg(root.path());
        to_its_end(command, Duration::from_secs(60)).stdout
    };
    for locale in [&[("LANG", "C")][..], &[("LC_ALL", "POSIX"), ("LANG", "de_DE.UTF-8")], &[("LC_ALL", "")], &[]] {
        let text = drawn(locale);
        assert!(text.is_ascii(), "{locale:?}: {text}");
        assert!(text.contains("\n    #  8 GT/s x8 = 63.0 Gb/s  < the limit\n"), "{text}");
        assert!(text.contains("\n    |\n"), "{text}");
    }
    for locale in [&[("LANG", "de_DE.UTF-8")][..], &[("LC_CTYPE", "C.utf8"), ("LANG", "C")]] {
        assert!(drawn(locale).contains("◀ the limit"), "{locale:?}");
    }
}

#[test]
fn colours_are_for_those_who_ask() {
    let root = host();
    assert!(explain(&root, &["--color", "always"]).stdout.contains("\x1b[1;31m"));
    assert!(!explain(&root, &["--color", "never"]).stdout.contains('\x1b'));
    let on_a_terminal = |no_colour: bool| {
        let mut command = Command::new("script");
        command.env_remove("NO_COLOR").args(["-qec"]);
        command.arg(format!("{PROGRAM} explain --path.rootfs {}", root.path().display())).arg("/dev/null");
        if no_colour {
            command.env("NO_COLOR", "1");
        }
        to_its_end(command, Duration::from_secs(30)).stdout
    };
    // Without script(1), which opens a terminal, there is nothing to see.
    if Command::new("script").arg("--version").output().is_ok() {
        assert!(on_a_terminal(false).contains("\x1b[1;31m"));
        assert!(!on_a_terminal(true).contains("\x1b["));
    }
}

#[test]
fn what_is_not_here_is_said_in_one_line() {
    let root = host();
    for (wanted, line) in [
        ("mlx5_9", "lanewatch: no RDMA device \"mlx5_9\" here; there is mlx5_0, mlx5_1\n"),
        ("mlx5_1/2", "lanewatch: mlx5_1 has no port \"2\"; its ports are 1\n"),
        ("mlx5_1/x", "lanewatch: mlx5_1 has no port \"x\"; its ports are 1\n"),
        ("", "lanewatch: no RDMA device \"\" here; there is mlx5_0, mlx5_1\n"),
    ] {
        let output = explain(&root, &[wanted]);
        assert_eq!((output.code, output.stderr.as_str()), (Some(2), line));
        assert_eq!(output.stdout, "");
    }
    let empty = TempDir::new().unwrap();
    let none = explain(&empty, &[]);
    assert_eq!((none.code, none.stdout.as_str()), (Some(0), "no RDMA device here\n"));
    assert_eq!(explain(&empty, &["mlx5_0"]).stderr, "lanewatch: no RDMA device \"mlx5_0\" here; there is none\n");
}

#[test]
fn the_demonstration_begins_well_and_degrades() {
    let demo = Server::start::<&str>("demo", &[]);
    assert!(demo.log().contains(&format!("page     http://{}/\n", demo.address)), "{}", demo.log());
    assert!(demo.get("/").text().contains("<title>lanewatch: OK on example-host</title>"));
    let metrics = || demo.get("/metrics").text();
    let degraded = "lanewatch_pcie_link_current_bandwidth_bytes_per_second{pci_address=\"0000:b2:00.0\"} 7876923076.92";
    assert!(metrics().contains("port=\"1\"") && !metrics().contains(degraded));
    let began = std::time::Instant::now();
    while !metrics().contains("check=\"pcie_degraded\",severity=\"critical\"") {
        assert!(began.elapsed() < Duration::from_secs(20), "{}", demo.log());
        std::thread::sleep(Duration::from_millis(500));
    }
    assert!(metrics().contains(degraded), "{}", metrics());
    assert!(demo.get("/").text().contains("<title>lanewatch: CRITICAL on example-host</title>"));
    assert!(std::fs::read_dir(demo.directory.path()).unwrap().count() == 1, "only the log is there");
}
