//! GPUs and network cards on generated trees of real machines: who is near whom, as a user sees it.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

#[path = "../common/mod.rs"]
mod common;

mod machines;
mod properties;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use common::run::{PROGRAM, to_its_end};
use machines::Machine;
use serde_json::Value;
use tempfile::TempDir;

fn run(host: &Path, command: &[&str]) -> String {
    let mut run = Command::new(PROGRAM);
    run.args(command).arg("--path.rootfs").arg(host).args(["--storage.path", "/nonexistent"]);
    let out = to_its_end(run, Duration::from_secs(30));
    assert!(out.stderr.is_empty(), "{}", out.stderr);
    out.stdout
}

struct Seen {
    host: TempDir,
    document: Value,
}

impl Seen {
    fn of(machine: &Machine) -> Self {
        let host = TempDir::new().unwrap();
        machine.write(host.path());
        let document = serde_json::from_str(&run(host.path(), &["topo", "--format", "json"])).unwrap();
        Self { host, document }
    }

    /// For each GPU, a word for each device, by the devices' names.
    fn matrix(&self) -> Vec<String> {
        let row = |gpu: &Value| {
            let cells = gpu["nics"].as_array().unwrap().iter();
            let cells: Vec<&str> = cells.map(|nic| nic["distance"].as_str().unwrap()).collect();
            format!("{} {}", gpu["pci_address"].as_str().unwrap(), cells.join(" "))
        };
        self.document["gpus"].as_array().unwrap().iter().map(row).collect()
    }

    fn nic(&self, gpu: usize, nic: usize) -> &Value {
        &self.document["gpus"][gpu]["nics"][nic]
    }

    fn findings(&self) -> Vec<String> {
        let report: Value =
            serde_json::from_str(&run(self.host.path(), &["check", "--sample", "0", "--format", "json"])).unwrap();
        let found = report["findings"].as_array().unwrap().iter();
        let ours = found.filter(|finding| finding["check"] == "gpu_nic_far" || finding["reason"] == "acs");
        ours.map(|finding| format!("{} {}", finding["subject"].as_str().unwrap(), finding["reason"].as_str().unwrap()))
            .collect()
    }

    fn metrics(&self, family: &str) -> Vec<String> {
        let text = run(self.host.path(), &["metrics"]);
        text.lines().filter(|line| line.starts_with(&format!("{family}{{"))).map(str::to_owned).collect()
    }
}

/// The row of a GPU whose own device is this one, among so many in two halves.
fn diagonal(own: usize, near: &str, nodes: [usize; 2]) -> String {
    let half = nodes[0];
    let word = |nic: usize| match (nic == own, (nic < half) == (own < half)) {
        (true, _) => near,
        (false, true) => "node",
        (false, false) => "sys",
    };
    (0..nodes[0] + nodes[1]).map(word).collect::<Vec<_>>().join(" ")
}

#[test]
fn an_hgx_h100_has_a_card_below_the_switch_of_each_gpu() {
    let seen = Seen::of(&machines::hgx_h100());
    let gpus = ["19", "3b", "4c", "5d", "9b", "bb", "cb", "db"];
    let expected: Vec<String> =
        gpus.iter().enumerate().map(|(own, bus)| format!("0000:{bus}:00.0 {}", diagonal(own, "pix", [4, 4]))).collect();
    assert_eq!(seen.matrix(), expected);
    // The least of GPU, card and their ports: all 32 GT/s x16.
    let bandwidth = seen.nic(0, 0)["path_bandwidth_bytes_per_second"].as_f64().unwrap();
    assert!((bandwidth - 63.015_384e9).abs() < 1e5, "{bandwidth}");
    assert_eq!(seen.nic(0, 0)["common_pci_address"], "0000:16:00.0");
    assert_eq!(seen.nic(0, 1)["path_bandwidth_bytes_per_second"], Value::Null);
    // GPU 63.0, card 50 at 400 Gb/s, NVMe 7.9 GB/s on an uplink of 63.0: shown, and no finding.
    let uplink = &seen.document["uplinks"][0];
    assert_eq!(uplink["pci_address"], "0000:16:00.0");
    let demand = |kind: &str| (uplink["demand_bytes_per_second"][kind].as_f64().unwrap() / 1e8).round() / 10.0;
    assert_eq!((demand("gpu"), demand("nic"), demand("nvme")), (63.0, 50.0, 7.9));
    assert_eq!(seen.findings(), [""; 0]);
    assert_eq!(seen.metrics("lanewatch_gpu_nic_distance_info").len(), 64);
    assert_eq!(seen.metrics("lanewatch_gpu_nic_path_bandwidth_bytes_per_second").len(), 8);
    assert_eq!(
        seen.metrics("lanewatch_gpu_info")[0],
        "lanewatch_gpu_info{pci_address=\"0000:19:00.0\",vendor=\"nvidia\",device_id=\"2330\",driver=\"nvidia\",\
         numa_node=\"0\",iommu_group_type=\"\"} 1"
    );
}

#[test]
fn the_matrix_and_the_tree_are_readable() {
    let seen = Seen::of(&machines::hgx_h100());
    let text = run(seen.host.path(), &["topo"]);
    assert!(
        text.contains("GPU0  X        NODE     NODE     NODE     SYS      SYS      SYS      SYS      PIX      NODE"),
        "{text}"
    );
    assert!(
        text.contains("GPU0  0000:19:00.0  nvidia 2330, NUMA node 0, nvidia; nearest PIX: mlx5_0 504.1 Gb/s\n"),
        "{text}"
    );
    assert!(text.contains("PIX   below one PCIe switch\n") && !text.contains("C2C"), "{text}");
    let tree = run(seen.host.path(), &["explain", "node0"]);
    let expected = "NUMA node 0\n  0000:15:01.0  root port, pci0000:15\n    0000:16:00.0  switch, uplink up to 504.1 Gb/s; below it GPUs \
                    504.1 Gb/s, network 400 Gb/s, NVMe 63.0 Gb/s\n      0000:18:00.0  NVMe, up to 63.0 Gb/s\n      0000:19:00.0  GPU0 \
                    nvidia 2330, up to 504.1 Gb/s\n      0000:1a:00.0  mlx5_0, up to 504.1 Gb/s\n  0000:37:01.0  root port, pci0000:37\n";
    assert!(tree.starts_with(expected), "{tree}");
    assert!(!tree.contains("0000:97:01.0"), "{tree}");
    assert!(run(seen.host.path(), &["explain", "node1"]).contains("  0000:97:01.0  root port"));
}

#[test]
fn broadcoms_two_levels_are_one_switch() {
    let seen = Seen::of(&machines::oci_h100());
    // Two functions of each card.
    assert_eq!(seen.matrix(), ["0000:0f:00.0 pix pix sys sys", "0000:89:00.0 sys sys pix pix"]);
    // The virtual link inside of the switch is no link: 5 GT/s would be 64 Gb/s.
    let bandwidth = seen.nic(0, 0)["path_bandwidth_bytes_per_second"].as_f64().unwrap();
    assert!((bandwidth - 63.015_384e9).abs() < 1e5, "{bandwidth}");
    assert_eq!(seen.findings(), [""; 0]);
}

#[test]
fn a_dgx_a100_pairs_two_gpus_with_two_cards() {
    let seen = Seen::of(&machines::dgx_a100());
    // The storage card is far by design.
    assert_eq!(
        seen.matrix(),
        ["0000:07:00.0 pix pix node sys", "0000:0f:00.0 pix pix node sys", "0000:47:00.0 sys sys sys pix",]
    );
    assert_eq!(seen.findings(), [""; 0]);
}

#[test]
fn bridges_on_the_card_of_an_mi300x_do_not_count() {
    let seen = Seen::of(&machines::mi300x());
    let gpus = ["0c", "15", "1e", "69", "9f", "af", "bf", "df"];
    let expected: Vec<String> =
        gpus.iter().enumerate().map(|(own, bus)| format!("0000:{bus}:00.0 {}", diagonal(own, "pxb", [4, 4]))).collect();
    assert_eq!(seen.matrix(), expected);
    assert_eq!(seen.nic(0, 0)["common_pci_address"], "0000:05:00.0");
    assert_eq!(seen.document["gpus"][0]["vendor"], "amd");
    assert_eq!(seen.findings(), [""; 0]);
}

#[test]
fn an_azure_guest_shows_nodes_and_no_more() {
    let seen = Seen::of(&machines::azure_nd());
    let expected = ["0001", "0002", "0009"].map(|segment| {
        let words = if segment < "0009" { "node node sys" } else { "sys sys node" };
        format!("{segment}:00:00.0 {words}")
    });
    assert_eq!(seen.matrix(), expected);
    assert_eq!((seen.document["guest"].clone(), seen.findings()), (Value::Bool(true), vec![]));
}

#[test]
fn emulated_bridges_of_a_guest_say_nothing() {
    let seen = Seen::of(&machines::kvm_guest());
    assert_eq!(seen.matrix(), ["0000:06:00.0 unknown"]);
    assert_eq!(seen.nic(0, 0)["common_pci_address"], Value::Null);
    assert_eq!(seen.findings(), [""; 0]);
    assert!(run(seen.host.path(), &["topo"]).contains("unknown: in a guest the bridges are emulated"));
}

#[test]
fn coherent_gpus_of_gb200_and_gh200() {
    let seen = Seen::of(&machines::gb200());
    assert_eq!(
        seen.matrix(),
        [
            "0008:01:00.0 c2c c2c sys sys",
            "0009:01:00.0 c2c c2c sys sys",
            "0018:01:00.0 sys sys c2c c2c",
            "0019:01:00.0 sys sys c2c c2c",
        ]
    );
    assert_eq!(seen.findings(), [""; 0]);
    let seen = Seen::of(&machines::gh200());
    assert_eq!((seen.matrix(), seen.findings()), (vec!["0009:01:00.0 c2c".to_owned()], vec![]));
}

#[test]
fn a_card_with_its_dma_function_beside_the_gpu_is_far_by_design() {
    let seen = Seen::of(&machines::data_direct());
    assert_eq!(seen.matrix(), ["0009:06:00.0 c2c"]);
    assert_eq!(seen.findings(), [""; 0]);
    assert!(run(seen.host.path(), &["explain", "node0"]).contains("data-direct DMA function"));
}

#[test]
fn gpus_without_a_card_by_design_are_no_finding() {
    let seen = Seen::of(&machines::h20());
    let far = seen.matrix().iter().filter(|row| !row.contains("pix")).count();
    assert_eq!((far, seen.findings()), (4, vec![]));
}

#[test]
fn a_workstation_has_one_host_bridge() {
    let seen = Seen::of(&machines::workstation());
    assert_eq!(seen.matrix(), ["0000:01:00.0 phb"]);
    assert_eq!(seen.metrics("lanewatch_gpu_nic_path_bandwidth_bytes_per_second"), [""; 0]);
    assert_eq!(seen.findings(), [""; 0]);
}

#[test]
fn the_one_gpu_without_its_card_is_found() {
    let mut machine = machines::hgx_h100();
    machine.remove("0000:4d:00.0", "mlx5_2");
    let seen = Seen::of(&machine);
    assert_eq!(seen.findings(), ["0000:4c:00.0 peers"]);
    let report = run(seen.host.path(), &["check", "--sample", "0"]);
    assert!(report.contains("7 of 8 GPUs of its model"), "{report}");
    // The card is there for a guest.
    let mut machine = machines::hgx_h100();
    machine.give_away("0000:4d:00.0", "mlx5_2");
    assert_eq!(Seen::of(&machine).findings(), [""; 0]);
}

#[test]
fn a_host_without_gpus_says_so() {
    let mut machine = machines::workstation();
    machine.remove("0000:01:00.0", "");
    let seen = Seen::of(&machine);
    assert_eq!(run(seen.host.path(), &["topo"]), "no GPUs found\n");
    assert_eq!(seen.document["gpus"], serde_json::json!([]));
}

#[test]
fn the_example_host_has_gpus() {
    let mut run = Command::new(PROGRAM);
    run.args(["topo", "--demo"]);
    let out = to_its_end(run, Duration::from_secs(30));
    assert!(out.stdout.contains("GPU0") && out.stdout.contains("mlx5_0"), "{}", out.stdout);
}

/// The ports of complex 1: above its card and above its GPU.
const ABOVE_NIC: &str = "0000:17:02.0";
const ABOVE_GPU: &str = "0000:17:01.0";

/// What `check` says of ACS; empty if nothing.
fn acs(machine: &Machine) -> String {
    let host = TempDir::new().unwrap();
    machine.write(host.path());
    let report: Value =
        serde_json::from_str(&run(host.path(), &["check", "--sample", "0", "--format", "json"])).unwrap();
    let found = report["findings"].as_array().unwrap().iter().find(|finding| finding["subject"] == "host/acs");
    found.map_or_else(String::new, |finding| finding["summary"].as_str().unwrap().to_owned())
}

#[test]
fn acs_is_judged_by_pair_and_direction() {
    let mut machine = machines::hgx_h100();
    machine.acs(ABOVE_NIC, 0x1d);
    let text = acs(&machine);
    assert!(text.contains("mlx5_0 to GPU 0000:19:00.0 (request redirect on 0000:17:02.0)."), "{text}");
    assert!(text.contains("pci=disable_acs_redir=0000:17:02.0.") && !text.contains("completion"), "{text}");
    let mut machine = machines::hgx_h100();
    machine.acs(ABOVE_GPU, 0x08);
    let text = acs(&machine);
    assert!(text.contains("reads by mlx5_0 from GPU 0000:19:00.0 (completion redirect on 0000:17:01.0)"), "{text}");
    // Request redirect above a GPU concerns what the GPU asks for, and source validation redirects nothing.
    for (port, control) in [(ABOVE_GPU, 0x05), (ABOVE_NIC, 0x09), (ABOVE_NIC, 0x01)] {
        let mut machine = machines::hgx_h100();
        machine.acs(port, control);
        assert_eq!(acs(&machine), "", "{port} {control:#x}");
    }
}

#[test]
fn acs_elsewhere_is_no_finding() {
    // Ports above NVSwitches and root ports, as on a healthy host.
    let mut machine = machines::hgx_h100();
    for port in ["0000:82:00.0", "0000:82:01.0", "0000:80:01.0", "0000:15:01.0"] {
        machine.acs(port, 0x1d);
    }
    assert_eq!(acs(&machine), "");
    // A card alone on its switch, on a host without GPUs.
    let mut machine = machines::hgx_h100();
    for gpu in ["19", "3b", "4c", "5d", "9b", "bb", "cb", "db"] {
        machine.remove(&format!("0000:{gpu}:00.0"), "");
    }
    machine.acs(ABOVE_NIC, 0x1d);
    assert_eq!(acs(&machine), "");
}

#[test]
fn acs_is_required_on_some_platforms_and_by_guests() {
    // Grace: the kernel's default, and redirection required above the card.
    let mut machine = machines::gb200();
    for port in ["0000:00:00.0", "0008:00:00.0"] {
        machine.acs(port, 0x1d);
    }
    assert_eq!(acs(&machine), "");
    let mut machine = machines::data_direct();
    for port in ["0009:02:00.0", "0009:02:01.0", "0009:00:00.0"] {
        machine.acs(port, 0x1d);
    }
    assert_eq!(acs(&machine), "");
    // A card with address translation services.
    let mut machine = machines::hgx_h100();
    machine.acs(ABOVE_NIC, 0x5d);
    machine.ats("0000:1a:00.0");
    assert_eq!(acs(&machine), "");
    // Another card was given to a guest.
    let mut machine = machines::hgx_h100();
    machine.acs(ABOVE_NIC, 0x1d);
    machine.give_away("0000:3c:00.0", "mlx5_1");
    assert_eq!(acs(&machine), "");
}

#[test]
fn acs_across_the_halves_of_a_switch() {
    let mut machine = machines::oci_h100();
    // Inner ports only lead up; the paths part at the ports of the outer half.
    machine.acs("0000:0c:01.0", 0x1d);
    assert_eq!(acs(&machine), "");
    machine.acs("0000:0a:00.0", 0x08);
    assert!(acs(&machine).contains("completion redirect on 0000:0a:00.0"), "{}", acs(&machine));
}

#[test]
fn what_gpudirect_goes_by_is_shown() {
    let mut machine = machines::hgx_h100();
    machine.line("sys/module/nvidia_peermem/version", "550.54.15");
    machine.group("0000:19:00.0", "identity");
    let seen = Seen::of(&machine);
    assert_eq!(
        seen.metrics("lanewatch_gpudirect_info"),
        ["lanewatch_gpudirect_info{module=\"nvidia_peermem\",version=\"550.54.15\"} 1"]
    );
    assert!(seen.metrics("lanewatch_gpu_info")[0].contains("iommu_group_type=\"identity\""));
    let text = run(seen.host.path(), &["topo"]);
    assert!(
        text.contains(
            "GPUDirect: nvidia_peermem 550.54.15; dma-buf: unknown, the kernel does not show it; IOMMU of GPUs: identity, off\n"
        ),
        "{text}"
    );
}
