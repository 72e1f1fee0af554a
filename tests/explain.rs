//! `explain` and `demo`, as a person meets them.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "common/mod.rs"]
mod common;

use std::process::Command;
use std::time::Duration;

use common::host::{GEN3, GEN4, HostTree, LinkEnd};
use common::run::{Group, Output, PROGRAM, Server, lanewatch, program, to_its_end};
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
        "\n    ┃  degraded in speed and width: both ends support 16 GT/s x16 = 252.1 Gb/s\n",
        "  critical pcie_degraded 0000:0c:00.0 (speed_and_width), first seen now\n",
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
    let on_a_terminal = |kind: &str, no_colour: bool| {
        let mut command = Command::new("script");
        command.env_remove("NO_COLOR").env("TERM", kind).args(["-qec"]);
        command.arg(format!("{PROGRAM} explain --path.rootfs {}", root.path().display())).arg("/dev/null");
        if no_colour {
            command.env("NO_COLOR", "1");
        }
        to_its_end(command, Duration::from_secs(30)).stdout
    };
    // Without script(1), which opens a terminal, there is nothing to see.
    if Command::new("script").arg("--version").output().is_ok() {
        assert!(on_a_terminal("xterm", false).contains("\x1b[1;31m"));
        assert!(!on_a_terminal("xterm", true).contains("\x1b["));
        assert!(!on_a_terminal("dumb", false).contains("\x1b["));
    }
}

#[test]
fn what_is_not_here_is_said_in_one_line() {
    let root = host();
    let nobody = |name: &str| {
        let there = "mlx5_0 (0000:05:00.0, ib0), mlx5_1 (0000:0c:00.0, ib2)";
        format!("lanewatch: no device, port, PCI address or interface {name:?} on this host; it has {there}\n")
    };
    for (wanted, line) in [
        ("mlx5_9", nobody("mlx5_9")),
        ("0000:99:00.0", nobody("0000:99:00.0")),
        ("eth9", nobody("eth9")),
        ("mlx5_1/2", "lanewatch: mlx5_1 has no port \"2\"; its ports are 1\n".to_owned()),
        ("mlx5_1/x", "lanewatch: mlx5_1 has no port \"x\"; its ports are 1\n".to_owned()),
        ("", nobody("")),
    ] {
        let output = explain(&root, &[wanted]);
        assert_eq!((output.code, output.stderr.as_str()), (Some(2), line.as_str()));
        assert_eq!(output.stdout, "");
    }
    let empty = TempDir::new().unwrap();
    let none = explain(&empty, &[]);
    assert_eq!((none.code, none.stdout.as_str()), (Some(0), "no RDMA devices found\n"));
    let line = "lanewatch: no device, port, PCI address or interface \"mlx5_0\" on this host; it has none\n";
    assert_eq!(explain(&empty, &["mlx5_0"]).stderr, line);
}

#[test]
fn a_lane_goes_by_the_names_of_its_function_and_its_interface() {
    let root = host();
    let card = "0000:0c:00.0";
    for name in ["mlx5_1", "mlx5_1/1", card, "0c:00.0", "0C:00.0", "0000:0b:01.0", "ib2"] {
        let output = explain(&root, &[name]);
        assert_eq!(output.code, Some(0), "{name}: {output:?}");
        let drawn = output.stdout.starts_with("mlx5_1\n") && output.stdout.contains(card);
        assert!(drawn && !output.stdout.contains("mlx5_0"), "{name}: {}", output.stdout);
    }
}

#[test]
fn a_card_that_was_given_away_whole_is_not_nowhere() {
    let root = TempDir::new().unwrap();
    let mut host = HostTree::new(2);
    host.cards[1].vfs_limit = Some(8);
    host.write(root.path()).unwrap();
    let device = &host.devices()[1];
    let function = root.path().join(&device.function);
    // What is left of a card in sysfs when vfio-pci has it.
    for directory in ["infiniband", "net"] {
        std::fs::remove_dir_all(function.join(directory)).unwrap();
    }
    std::fs::remove_file(root.path().join("sys/class/infiniband").join(&device.name)).unwrap();
    for (link, target) in
        [("driver", "../../../../bus/pci/drivers/vfio-pci"), ("iommu_group", "../../../kernel/iommu_groups/44")]
    {
        let _ = std::fs::remove_file(function.join(link));
        std::os::unix::fs::symlink(target, function.join(link)).unwrap();
    }
    let drivers = root.path().join("sys/bus/pci/drivers");
    std::fs::remove_file(drivers.join("mlx5_core").join(&device.address)).unwrap();
    std::fs::create_dir_all(drivers.join("vfio-pci")).unwrap();
    std::os::unix::fs::symlink(&function, drivers.join("vfio-pci").join(&device.address)).unwrap();
    let held = |pid: &str, name: &str| {
        let process = root.path().join("proc").join(pid);
        std::fs::create_dir_all(process.join("fd")).unwrap();
        std::fs::write(process.join("comm"), format!("{name}\n")).unwrap();
        std::os::unix::fs::symlink("/dev/vfio/44", process.join("fd/31")).unwrap();
    };
    let given = |holder: &str| format!("passed through whole (driver vfio-pci), used by {holder}");
    let alone = explain(&root, &[]).stdout;
    let whole = given("unknown (the host's /proc would show it)");
    assert!(alone.ends_with(&format!("{}\n\n  {whole}\n", device.address)), "{alone}");
    held("4711", "dpdk-testpmd");
    let whole = given("process dpdk-testpmd");
    for name in [&[][..], &[device.address.as_str()]] {
        let text = explain(&root, name).stdout;
        let line = format!("{}\n\n  {whole}\n", device.address);
        assert!(text.contains(&line), "{text}");
    }
    let vf = |format: &str| {
        let root = root.path().to_str().unwrap();
        lanewatch(&["vf", &device.address, "--format", format, "--path.rootfs", root]).stdout
    };
    assert!(vf("text").contains(&format!("\n{whole}\n")), "{}", vf("text"));
    let document: serde_json::Value = serde_json::from_str(&vf("json")).unwrap();
    let holder = &document["pfs"][0]["holder"];
    assert_eq!(
        (&holder["kind"], &holder["name"], &holder["pid"]),
        (&"process".into(), &"dpdk-testpmd".into(), &4711.into())
    );
}

#[test]
fn the_demonstration_names_the_address_that_it_listens_on() {
    let directory = TempDir::new().unwrap();
    let log = directory.path().join("log");
    let mut command = program();
    command.args(["demo", "--web.listen-address", "127.0.0.1:0"]).stderr(std::fs::File::create(&log).unwrap());
    let _demo = Group::spawn(&mut command);
    let began = std::time::Instant::now();
    let said = || std::fs::read_to_string(&log).unwrap();
    while !said().contains("Press Ctrl-C to stop") {
        assert!(began.elapsed() < Duration::from_secs(20), "{}", said());
        std::thread::sleep(Duration::from_millis(50));
    }
    let text = said();
    let url = text.split("page     http://").nth(1).unwrap().split('/').next().unwrap().to_owned();
    assert!(!url.ends_with(":0"), "{text}");
    // It listens already when it says so.
    std::net::TcpStream::connect(&url).unwrap();
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
    while !demo.get("/").text().contains("<title>lanewatch: CRITICAL on example-host</title>") {
        assert!(began.elapsed() < Duration::from_secs(20), "{}", demo.log());
        std::thread::sleep(Duration::from_millis(500));
    }
    let text = metrics();
    assert!(text.contains(degraded), "{text}");
    assert!(text.contains("check=\"pcie_degraded\",severity=\"critical\""), "{text}");
    assert!(std::fs::read_dir(demo.directory.path()).unwrap().count() == 1, "only the log is there");
}
