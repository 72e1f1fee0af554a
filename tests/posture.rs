//! What is said of how a host is set up, each time with why it matters, and a host that has nothing to say.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "common/mod.rs"]
mod common;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use common::exposition::parse;
use common::faulty::Faulty;
use common::hand::{Hand, found, of};
use common::host::{Device, HostTree};
use common::run::{Server, lanewatch_in};
use lanewatch::model::check::{Check, Severity};
use lanewatch::model::host::Posture;
use lanewatch::model::snapshot::{Fact, Snapshot};
use lanewatch::watch::{Engine, HostReport};
use tempfile::TempDir;

const BOOTED: Duration = Duration::from_secs(7200);

/// A host of two nodes and two cards that is set up as it should be.
fn host() -> (Arc<Faulty>, Vec<Device>) {
    let (io, devices) = of(&HostTree::new(2));
    let set = |path: &str, text: &str| io.memory.set(path, format!("{text}\n"));
    set("/proc/uptime", "7205.00 1.00");
    set("/proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu vme sse2");
    set("/proc/cmdline", "root=/dev/sda1 intel_iommu=on iommu=pt quiet");
    set("/proc/sys/kernel/numa_balancing", "0");
    set("/sys/devices/system/cpu/cpufreq/policy0/scaling_governor", "performance");
    set("/sys/devices/system/cpu/cpufreq/policy1/scaling_governor", "performance");
    set("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "1024");
    set("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "1000");
    for module in ["mlx5_core", "mlx5_ib", "ib_core"] {
        set(&format!("/sys/module/{module}/version"), "24.10-1.1.4");
    }
    for device in &devices {
        group(&io, device, "identity");
        io.memory.set(device.function.join("ari_enabled"), "1\n");
    }
    (io, devices)
}

fn group(io: &Faulty, device: &Device, kind: &str) {
    let group = PathBuf::from("/sys/kernel/iommu_groups").join(&device.address);
    io.memory.set(group.join("type"), format!("{kind}\n"));
    io.memory.symlink(device.function.join("iommu_group"), group);
}

fn look(io: &Arc<Faulty>) -> Arc<HostReport> {
    Hand::new(io, None, BOOTED).pass()
}

/// Aspect and sentence of each finding; all are informative.
fn said(report: &HostReport) -> Vec<(&'static str, String)> {
    let findings = found(report, Check::HostPosture).into_iter().map(|finding| &finding.condition);
    findings
        .map(|found| {
            assert_eq!((found.severity, found.subject.to_string()), (Severity::Info, format!("host/{}", found.reason)));
            (found.reason.as_str(), found.summary.clone())
        })
        .collect()
}

/// The one finding is about this, and its sentence has these parts: what is so, why it matters, what ends it.
fn says(report: &HostReport, aspect: &str, parts: &[&str]) {
    let said = said(report);
    let [(reason, summary)] = &*said else { panic!("{aspect}: {said:?}") };
    assert_eq!(*reason, aspect);
    for part in parts {
        assert!(summary.contains(part), "{aspect}: {part}: {summary}");
    }
}

/// What is said when a file of the well host holds something else.
fn with(path: &str, text: &str) -> Arc<HostReport> {
    let (io, _) = host();
    io.memory.set(path, format!("{text}\n"));
    look(&io)
}

#[test]
fn a_host_that_is_set_up_well_is_told_nothing() {
    assert_eq!(said(&look(&host().0)), vec![]);
}

#[test]
fn each_aspect_is_said_with_why_it_matters() {
    let governor = with("/sys/devices/system/cpu/cpufreq/policy1/scaling_governor", "powersave");
    says(&governor, "governor", &["powersave on 1 CPU", "respond late to interrupts and small messages", "cpupower"]);

    let (io, devices) = host();
    for device in &devices {
        group(&io, device, "DMA-FQ");
    }
    let translated = look(&io);
    says(&translated, "iommu", &["(DMA-FQ)", "slows memory registration and transfers", "iommu=pt"]);
    // In a guest it is the hypervisor's business.
    io.memory.set("/proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu hypervisor\n");
    assert_eq!(said(&look(&io)), vec![]);

    let (io, devices) = host();
    for device in &devices {
        io.memory.remove(device.function.join("iommu_group"));
    }
    io.memory.remove("/sys/kernel/iommu_groups");
    io.memory.directory("/sys/kernel/iommu_groups");
    assert_eq!(said(&look(&io)), vec![], "nobody could have VFs here");
    io.memory.set(devices[0].function.join("sriov_totalvfs"), "8\n");
    says(
        &look(&io),
        "iommu",
        &["is off", "VFs cannot be passed through to guests", "intel_iommu=on (or amd_iommu=on)"],
    );

    let balancing = with("/proc/sys/kernel/numa_balancing", "1");
    says(
        &balancing,
        "numa_balancing",
        &["NUMA balancing is on", "stalls accesses to the pages", "sysctl kernel.numa_balancing=0"],
    );

    let drivers = with("/sys/module/ib_core/version", "23.04-0.5.3");
    says(&drivers, "drivers", &["ib_core 23.04-0.5.3", "mlx5_core 24.10-1.1.4", "an untested combination"]);

    let aspm = with("/proc/cmdline", "quiet pcie_aspm=force");
    says(&aspm, "aspm", &["pcie_aspm=force", "the first transfer after a pause waits"]);

    let (io, devices) = host();
    io.memory.set(devices[1].function.join("infiniband/mlx5_1/fw_ver"), "20.43.1014\n");
    let firmware = look(&io);
    says(
        &firmware,
        "firmware",
        &["20.39.3004 on mlx5_0", "20.43.1014 on mlx5_1", "may behave differently under the same load"],
    );

    let (io, devices) = host();
    io.memory.set(devices[1].function.join("numa_node"), "-1\n");
    says(&look(&io), "numa", &["mlx5_1", "cannot be placed near it", "BIOS"]);
}

#[test]
fn namespaces_that_hide_counters_or_devices_are_said() {
    // Of a recorded host the kernel cannot be asked: the fact is put beside those of its devices.
    let report = look(&host().0);
    let said_of = |rdma_netns_mode: &'static str, foreign: bool| {
        let posture =
            Posture { rdma_netns_mode: Some(rdma_netns_mode), foreign_netns: Some(foreign), ..Posture::default() };
        let devices = report.snapshot.devices().map(|device| Arc::new(device.clone()) as Fact);
        let facts: Vec<Fact> = devices.chain([Arc::new(posture) as Fact]).collect();
        Engine::new(Arc::default(), true).observe(Snapshot::new(report.snapshot.taken, facts, Vec::new()))
    };
    assert_eq!(said(&said_of("exclusive", false)), vec![]);
    says(
        &said_of("shared", true),
        "network_namespace",
        &["runs in its own network namespace", "shows port counters only in the host's. Run"],
    );
    says(&said_of("exclusive", true), "network_namespace", &["RDMA devices of other namespaces are hidden"]);
}

#[test]
fn without_rdma_devices_nothing_matters() {
    let (io, _) = host();
    io.memory.remove("/sys/class/infiniband");
    io.memory.set("/proc/sys/kernel/numa_balancing", "1\n");
    io.memory.set("/sys/devices/system/cpu/cpufreq/policy1/scaling_governor", "powersave\n");
    let report = look(&io);
    assert_eq!(said(&report), vec![]);
    assert!(report.snapshot.all::<Posture>().next().is_some(), "a fact all the same");
}

#[test]
fn verbose_tells_the_facts() {
    let place = TempDir::new().unwrap();
    let mut tree = HostTree::new(2).tree();
    tree.line("proc/cmdline", "quiet intel_iommu=on iommu=pt isolcpus=2-3");
    tree.line("proc/sys/kernel/numa_balancing", 1);
    tree.line("proc/cpuinfo", "flags\t\t: fpu vme");
    tree.line("sys/devices/system/cpu/cpufreq/policy0/scaling_governor", "powersave");
    tree.line("sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages", 16);
    tree.line("sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages", 4);
    tree.line("sys/module/mlx5_core/version", "24.10-1.1.4");
    let function = HostTree::new(2).devices()[0].function.clone();
    tree.line(function.join("ari_enabled"), 1);
    tree.line("sys/kernel/iommu_groups/17/type", "identity");
    tree.link_to(function.join("iommu_group"), "sys/kernel/iommu_groups/17");
    tree.write(&place.path().join("host")).unwrap();
    let check = |more: &[&str]| {
        let arguments =
            [&["check", "--path.rootfs", "host", "--storage.path", "state", "--sample", "0"], more].concat();
        lanewatch_in(place.path(), &arguments)
    };
    let address = function.file_name().unwrap().to_str().unwrap();
    let told = check(&["--verbose"]).stdout;
    for line in [
        "virtualization   none",
        "IOMMU            identity",
        &format!("IOMMU groups     {address} identity"),
        "kernel arguments intel_iommu=on iommu=pt isolcpus=2-3",
        "CPU governor     powersave on 1 CPU",
        "NUMA balancing   on",
        "huge pages       16 of 1048576 kB, 4 free",
        "drivers          mlx5_core 24.10-1.1.4",
        "mlx5_0           mlx5_core    20.39.3004     0          -",
        "mlx5_1           mlx5_core    20.39.3004     1          -",
    ] {
        assert!(told.lines().any(|told| told == line), "{line:?} in\n{told}");
    }
    assert!(!check(&[]).stdout.contains("huge pages"));
}

#[test]
fn a_host_with_none_of_the_hardware_is_quiet_and_well() {
    let place = TempDir::new().unwrap();
    let host = place.path().join("host");
    let mut tree = HostTree::new(0).tree();
    // Other interrupts, other cards' messages, no interface but the loop.
    tree.file(
        "proc/interrupts",
        " CPU0 CPU1\n  9: 5 0 IO-APIC 9-fasteoi acpi\n 30: 7 9 PCI-MSI 1-edge eno1-TxRx-0\nERR: 0\n",
    );
    tree.file("kmsg", "4,1,1000000,-;igb 0000:02:00.0 eno1: igb: eno1 NIC Link is Down\n4,2,2000000,-;pcieport 0000:00:1c.4: AER: Corrected error received: 0000:02:00.0\n");
    tree.line("proc/cmdline", "quiet");
    tree.write(&host).unwrap();
    for quiet in [host.clone(), place.path().join("empty")] {
        std::fs::create_dir_all(quiet.join("sys/class/net")).unwrap();
        let root = quiet.to_str().unwrap();
        let common = ["--path.rootfs", root, "--storage.path", "state"];
        let check = lanewatch_in(place.path(), &[&["check", "--sample", "0"], &common[..]].concat());
        assert_eq!(
            (check.code, &*check.stdout, &*check.stderr),
            (Some(0), "OK: no RDMA devices found\n", ""),
            "{root}"
        );
        let metrics = lanewatch_in(place.path(), &[&["metrics"], &common[..]].concat());
        assert_eq!((metrics.code, &*metrics.stderr), (Some(0), ""), "{root}");
        let samples = parse(&metrics.stdout).unwrap();
        for collector in ["irq", "kmsg", "ethtool", "posture"] {
            let success = samples.iter().find(|sample| {
                sample.name == "lanewatch_collector_success"
                    && sample.labels.get("collector").is_some_and(|c| c == collector)
            });
            assert_eq!(success.map(|sample| &*sample.text), Some("1"), "{collector}");
        }
        let quiet = |sample: &&common::exposition::Sample| {
            let counts = ["lanewatch_read_errors_total", "lanewatch_kernel_messages_total", "lanewatch_finding"];
            counts.contains(&&*sample.name) && sample.text != "0"
        };
        assert_eq!(samples.iter().filter(quiet).count(), 0, "{root}");
        for check in ["irq_remote", "irq_piled_up", "kernel_message", "roce_lossy", "host_posture"] {
            let subjects = samples.iter().filter(|sample| {
                sample.name == "lanewatch_check_subjects" && sample.labels.get("check").is_some_and(|c| c == check)
            });
            assert_eq!(subjects.count(), 0, "{check}");
        }
    }
}

#[test]
fn serving_a_host_with_none_of_the_hardware_logs_no_error() {
    let place = TempDir::new().unwrap();
    HostTree::new(0).write(place.path()).unwrap();
    let server = Server::start("serve", &["--path.rootfs", place.path().to_str().unwrap(), "--log.level", "info"]);
    for path in ["/metrics", "/", "/api/v1/findings"] {
        assert_eq!(server.get(path).status, 200, "{path}");
    }
    let log = server.log();
    assert!(log.contains("level=info"), "{log}");
    // Whoever runs the tests may be root.
    let troubles =
        |line: &&str| (line.contains("level=error") || line.contains("level=warn")) && !line.contains("as root");
    assert_eq!(log.lines().find(troubles), None);
}
