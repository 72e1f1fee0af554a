//! `lanewatch bench`.

use std::fs;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::Scene;
use super::common::host::{GEN3, GEN4, HostTree, LinkEnd};
use super::common::run::{Output, program, to_its_end};

fn bench(scene: &Scene, arguments: &[&str]) -> Output {
    let config = scene.path("lanewatch.toml");
    fs::write(&config, format!("[probe]\nlock = '{}'\n", scene.path("lock").display())).unwrap();
    fs::create_dir_all(scene.path("state")).unwrap();
    let mut command: Command = program();
    command
        .arg("bench")
        .args(arguments)
        .arg("--path.rootfs")
        .arg(scene.path("host"))
        .arg("--storage.path")
        .arg(scene.path("state"))
        .arg("--config.file")
        .arg(&config)
        .env("PATH", format!("{}:/usr/bin:/bin", scene.path("bin").display()));
    to_its_end(command, Duration::from_secs(120))
}

fn narrow() -> HostTree {
    let mut host = HostTree::new(2);
    host.cards[1].device = LinkEnd::full(GEN4, 16).trained(GEN3, 8);
    host.cards[1].upstream = LinkEnd::full(GEN4, 16).trained(GEN3, 8);
    host
}

#[test]
fn a_run_is_shown_kept_and_explained() {
    let scene = Scene::new("ok", &HostTree::new(1));
    let shown = bench(&scene, &["mlx5_0", "--force", "--duration", "1s"]);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    for part in [
        "rdma_loopback mlx5_0/1: ok\n",
        "190.2 Gb/s is 95 % of the port's rate (200 Gb/s)",
        "  one_way  190.2 Gb/s, the path carries at most 200 Gb/s of payload\n",
        "  write    typical 1.21 µs, p99 1.55 µs, maximum 7.50 µs\n",
    ] {
        assert!(shown.stdout.contains(part), "{part:?} in {}", shown.stdout);
    }
    scene.is_clean();
    let mut explain = program();
    explain.args(["explain", "mlx5_0", "--path.rootfs"]).arg(scene.path("host"));
    explain.arg("--storage.path").arg(scene.path("state"));
    let explained = to_its_end(explain, Duration::from_secs(60));
    assert!(explained.stdout.contains("rdma_loopback measured ("), "{}", explained.stdout);
}

#[test]
fn json_has_base_units() {
    let scene = Scene::new("status", &HostTree::new(1));
    let output = bench(&scene, &["mlx5_0/1", "--force", "--duration", "1s", "--format", "json"]);
    assert_eq!(output.code, Some(1), "{output:?}");
    let document: Value = serde_json::from_str(&output.stdout).unwrap();
    let run = &document["runs"][0];
    assert_eq!((run["probe"].as_str(), run["device"].as_str()), (Some("rdma_loopback"), Some("mlx5_0")));
    assert_eq!((run["result"].as_str(), run["reason"].as_str()), (Some("failed"), Some("completion_error")));
    assert!(run["summary"].as_str().unwrap().contains("status 12 (transport retry exceeded), syndrome 0x81"));
    assert_eq!(run["bandwidth_bytes_per_second"], serde_json::json!({}));
    assert!(run["ceiling_bytes_per_second"].as_f64().is_some_and(|ceiling| (ceiling - 25e9).abs() < 1.0));
}

#[test]
fn another_host_is_not_measured_by_mistake() {
    let scene = Scene::new("ok", &HostTree::new(1));
    let refused = bench(&scene, &["mlx5_0"]);
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.contains("a benchmark measures this machine"), "{}", refused.stderr);
    let unknown = bench(&scene, &["mlx5_9", "--force"]);
    assert!(
        unknown.stderr.contains("no RDMA device or port \"mlx5_9\" on this host; it has mlx5_0/1"),
        "{}",
        unknown.stderr
    );
    assert!(scene.notes().is_empty(), "nothing was started");
}

#[test]
fn two_probes_do_not_meet() {
    let scene = Scene::new("ok", &HostTree::new(1));
    let _lock = lanewatch::bench::guard::HostLock::take(&scene.path("lock")).unwrap().unwrap();
    let refused = bench(&scene, &["mlx5_0", "--force"]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("another benchmark is running on this host"), "{}", refused.stderr);
    assert!(scene.notes().is_empty());
}

#[test]
fn outputs_are_read_together() {
    let scene = Scene::new("ok", &narrow());
    let table = |test: &str, manager: &str, average: &str| {
        format!(
            "                    {test} Test\n Dual-port       : OFF\t\tDevice         : mlx5_1\n rdma_cm QPs\t : \
             {manager}\n #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]\n 1048576    \
             5000             {average}            {average}\t\t     0.007\n"
        )
    };
    let files = [
        ("plain.txt", table("RDMA_Write BW", "OFF", "7050.00")),
        ("cm.txt", table("RDMA_Write BW", "ON", "7020.00")),
        ("both.txt", table("RDMA_Write Bidirectional BW", "OFF", "13800.00")),
        ("tcp.json", "{\"end\":{\"sum_received\":{\"bits_per_second\":5.8e10}}}".to_owned()),
    ];
    let mut arguments = vec!["mlx5_1".to_owned()];
    for (name, text) in &files {
        fs::write(scene.path(name), text).unwrap();
        arguments.extend(["--read".to_owned(), scene.path(name).to_str().unwrap().to_owned()]);
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let output = bench(&scene, &arguments);
    assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""));
    for part in [
        "plain.txt: RDMA, one direction: 59.1 Gb/s, 30 % of the port's 200 Gb/s, 94 % of the PCIe path's 63.0 Gb/s (1048576 B), mlx5_1",
        "both.txt: RDMA, both directions: 115.8 Gb/s, 57.9 Gb/s per direction",
        "All 4 results share one limit: 57.9 Gb/s to 59.1 Gb/s per direction.",
        "The limit is the PCIe path (63.0 Gb/s), not SR-IOV, the connection manager, TCP or the cable.",
    ] {
        assert!(output.stdout.contains(part), "{part:?} in {}", output.stdout);
    }
    fs::write(scene.path("plain.txt"), "Couldn't connect to 198.51.100.7:18599\n").unwrap();
    let failed = bench(&scene, &["--read", scene.path("plain.txt").to_str().unwrap()]);
    assert_eq!(failed.code, Some(1));
    assert!(failed.stdout.contains("FAILED (tcp_setup): TCP set-up failed"), "{}", failed.stdout);
}

/// perftest's table of one size, and everything before it that tells of the run.
fn table(device: &str, size: u64, average: &str) -> String {
    format!(
        "                    RDMA_Read BW Test\n Dual-port       : OFF\t\tDevice         : {device}\n Number of qps   : \
         1\t\tTransport type : IB\n Link type       : Ethernet\n rdma_cm QPs\t : OFF\n #bytes     #iterations    \
         BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]    CPU_Util[%]\n {size}       211733           0.00      \
         {average}\t\t   0.423466\t    3.50\n"
    )
}

#[test]
fn one_output_is_held_against_the_device_that_it_names() {
    let scene = Scene::new("ok", &narrow());
    let read = |text: &str, arguments: &[&str]| {
        fs::write(scene.path("said.txt"), text).unwrap();
        let path = scene.path("said.txt");
        bench(&scene, &[&["--read", path.to_str().unwrap()], arguments].concat())
    };
    let shown = read(&table("mlx5_1", 131_072, "55.60"), &[]);
    for part in [
        "28 % of the port's 200 Gb/s, 88 % of the PCIe path's 63.0 Gb/s (131072 B), mlx5_1 (compared with this host's)\n",
        "\nThe limit is the PCIe path (63.0 Gb/s), not SR-IOV",
    ] {
        assert!(shown.stdout.contains(part), "{part:?} in {}", shown.stdout);
    }
    // The same value with a lane that could carry it three times over.
    let shown = read(&table("mlx5_0", 131_072, "55.60"), &[]);
    assert!(shown.stdout.contains("Below what the port and its PCIe path carry"), "{}", shown.stdout);
    let shown = read(&table("mlx5_0", 131_072, "192.20"), &[]);
    assert!(shown.stdout.contains("\nThe limit is the port's rate, 200 Gb/s."), "{}", shown.stdout);
    let shown = read(&table("mlx5_0", 512, "1.73"), &[]);
    assert!(shown.stdout.contains("Messages this small cannot fill the path"), "{}", shown.stdout);
    let shown = read(&table("mlx5_7", 131_072, "55.60"), &[]);
    assert!(
        shown.stdout.ends_with("said.txt: RDMA, one direction: 55.6 Gb/s (131072 B), mlx5_7\n"),
        "{}",
        shown.stdout
    );

    let json = read(&table("mlx5_1", 131_072, "55.60"), &["--format", "json"]);
    assert_eq!(json.code, Some(0), "{json:?}");
    let document: Value = serde_json::from_str(&json.stdout).unwrap();
    let output = &document["outputs"][0];
    for (key, value) in [
        ("result", "measured"),
        ("test", "RDMA_Read BW"),
        ("device", "mlx5_1"),
        ("link_type", "Ethernet"),
        ("transport", "IB"),
        ("way", "rdma"),
        ("port", "mlx5_1/1"),
        ("limit", "pcie_path"),
    ] {
        assert_eq!(output[key].as_str(), Some(value), "{key} in {output}");
    }
    for (key, value) in [
        ("size_bytes", 131_072.0),
        ("bandwidth_bytes_per_second", 6.95e9),
        ("messages_per_second", 423_466.0),
        ("cpu_ratio", 0.035),
        ("port_rate_bytes_per_second", 25e9),
    ] {
        assert!(output[key].as_f64().is_some_and(|at| (at / value - 1.0).abs() < 1e-9), "{key} in {output}");
    }
    assert!(output["peak_bandwidth_bytes_per_second"].is_null(), "a timed run has no peak: {output}");
    let failed = read("Couldn't connect to 198.51.100.7:18599\n", &["--format", "json"]);
    assert_eq!(failed.code, Some(1));
    let document: Value = serde_json::from_str(&failed.stdout).unwrap();
    let output = &document["outputs"][0];
    assert_eq!((output["result"].as_str(), output["reason"].as_str()), (Some("failed"), Some("tcp_setup")));
    assert!(output["bandwidth_bytes_per_second"].is_null() && document["summary"].is_null(), "{document}");
}

#[test]
fn a_port_that_was_down_is_looked_at() {
    let mut host = HostTree::new(2);
    (host.cards[1].state, host.cards[1].phys_state) = ("1: DOWN", "2: Polling");
    let scene = Scene::new("ok", &host);
    fs::write(scene.path("said.txt"), " Port number 1 state is Down\n Couldn't set the link layer\n").unwrap();
    let path = scene.path("said.txt");
    let up = bench(&scene, &["--read", path.to_str().unwrap(), "mlx5_0"]);
    assert!(up.stdout.contains("FAILED (port_down): port 1 is down"), "{}", up.stdout);
    assert!(up.stdout.contains("; mlx5_0/1 of this host is ACTIVE now\n"), "{}", up.stdout);
    let down = bench(&scene, &["--read", path.to_str().unwrap(), "mlx5_1"]);
    assert!(down.stdout.contains("; this host reports it, too: port_down mlx5_1/1 (polling)\n"), "{}", down.stdout);
}
