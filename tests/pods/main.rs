//! Pods, VMs and jobs that use VFs, by name: from files alone, as a user sees them.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

#[path = "../common/mod.rs"]
mod common;

mod hosts;
mod kubelet;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::time::Duration;

use common::run::{Output, PROGRAM, as_nobody, to_its_end};
use hosts::PodHost;
use lanewatch::host::COLLECTORS;
use lanewatch::host::collector::{Depth, Filter, ReadContext, Setup};
use lanewatch::model::time::BootTime;
use tempfile::TempDir;

fn run(host: &TempDir, command: &[&str]) -> Output {
    let mut run = Command::new(PROGRAM);
    run.args(command).arg("--path.rootfs").arg(host.path()).args(["--storage.path", "/nonexistent"]);
    to_its_end(run, Duration::from_secs(30))
}

fn said(host: &TempDir, command: &[&str]) -> String {
    run(host, command).stdout
}

fn said_of(host: &TempDir, command: &[&str], more: &[&str]) -> String {
    said(host, &[command, more].concat())
}

fn metrics_of(host: &TempDir, family: &str, more: &[&str]) -> Vec<String> {
    let text = said_of(host, &["metrics"], more);
    text.lines().filter(|line| line.starts_with(&format!("{family}{{"))).map(str::to_owned).collect()
}

fn metrics(host: &TempDir, family: &str) -> Vec<String> {
    metrics_of(host, family, &[])
}

#[test]
fn each_vf_has_the_name_of_its_pod() {
    let host = TempDir::new().unwrap();
    PodHost { vfs: 4, pods: 10 }.write(host.path()).unwrap();
    let series = metrics(&host, "lanewatch_vf_pod_info");
    assert_eq!(series.len(), 4, "{series:#?}");
    let first = format!(
        "lanewatch_vf_pod_info{{pf=\"0000:01:00.0\",vf=\"0\",pci_address=\"0000:01:00.1\",namespace=\"ml\",pod=\"train-0\",\
         container=\"worker\",uid=\"{}\",resource=\"\",source=\"process\"}} 1",
        PodHost::uid(0)
    );
    assert_eq!(series[0], first);
    let table = said(&host, &["vf"]);
    assert!(table.contains("pod ml/train-0 (worker)") && table.contains("pod ml/train-3 (worker)"), "{table}");
    let document: serde_json::Value = serde_json::from_str(&said(&host, &["vf", "--format", "json"])).unwrap();
    let holder = &document["pfs"][0]["vfs"][2]["holder"];
    assert_eq!((&holder["kind"], &holder["name"]), (&"pod".into(), &PodHost::uid(2).into()));
    let pod = serde_json::json!({"namespace": "ml", "pod": "train-2", "container": "worker", "uid": PodHost::uid(2)});
    assert_eq!(holder["pod"], pod);
    assert_eq!(holder["vm"], serde_json::Value::Null);
}

#[test]
fn without_the_names_the_uid_is_shown_and_nothing_else_changes() {
    let host = TempDir::new().unwrap();
    PodHost { vfs: 2, pods: 2 }.write(host.path()).unwrap();
    let with_names = metrics(&host, "lanewatch_vf_holder_info");
    fs::remove_dir_all(host.path().join("var/log")).unwrap();
    assert_eq!(metrics(&host, "lanewatch_vf_pod_info"), [""; 0]);
    assert_eq!(metrics(&host, "lanewatch_vf_holder_info"), with_names);
    assert!(said(&host, &["vf"]).contains(&format!("pod {}", PodHost::uid(1))));
    // The switch for those who must not show names.
    let host = TempDir::new().unwrap();
    PodHost { vfs: 2, pods: 2 }.write(host.path()).unwrap();
    assert!(!said(&host, &["metrics", "--no-collector.pods"]).contains("train-0"));
}

#[test]
fn without_permission_for_the_names_that_is_said() {
    let host = TempDir::new().unwrap();
    PodHost { vfs: 2, pods: 2 }.write(host.path()).unwrap();
    fs::set_permissions(host.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let logs = host.path().join("var/log/pods");
    fs::set_permissions(&logs, fs::Permissions::from_mode(0o000)).unwrap();
    let out = as_nobody(host.path(), &["vf"]);
    fs::set_permissions(&logs, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!((out.code, out.stderr.as_str()), (Some(0), ""));
    assert!(out.stdout.contains("CAP_DAC_READ_SEARCH would show: pod names (1 file)"), "{}", out.stdout);
    assert!(out.stdout.contains(&format!("pod {}", PodHost::uid(0))), "{}", out.stdout);
}

#[test]
fn a_job_and_machines_of_openstack_and_proxmox_have_their_names() {
    let host = TempDir::new().unwrap();
    PodHost { vfs: 3, pods: 0 }.write(host.path()).unwrap();
    let at = |path: &str, text: &str| {
        let path = host.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    at("proc/2000/cgroup", "0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0\n");
    at("proc/2001/comm", "qemu-system-x86\n");
    at("proc/2001/cmdline", "/usr/bin/qemu-system-x86_64\0-name\0guest=instance-0000001a,debug-threads=on\0");
    at("proc/2001/cgroup", "0::/machine.slice/machine-qemu\\x2d2\\x2dinstance\\x2d0000001a.scope/libvirt/emulator\n");
    let metadata = "<metadata><n:instance xmlns:n=\"http://openstack.org/xmlns/libvirt/nova/1.1\"><n:name>db &amp; web</n:name>\
                    <n:flavor name=\"x\"><n:name>no</n:name></n:flavor><n:owner><n:user uuid=\"u\">a</n:user>\
                    <n:project uuid=\"0123456789abcdef\">p</n:project></n:owner></n:instance></metadata>";
    at(
        "run/libvirt/qemu/instance-0000001a.xml",
        &format!(
            "<domstatus state='running' reason='booted' pid='2001'><domain type='kvm' id='2'><name>instance-0000001a</name>\
             <uuid>11111111-2222-4333-8444-555555555555</uuid>{metadata}</domain></domstatus>"
        ),
    );
    at("proc/2002/comm", "kvm\n");
    at("proc/2002/cmdline", "/usr/bin/kvm\0-id\x00104\0-name\0web1,debug-threads=on\0");
    at("proc/2002/cgroup", "0::/qemu.slice/104.scope\n");
    at("etc/pve/qemu-server/104.conf", "name: web1\nhostpci0: 0000:01:00.3,pcie=1\n[old]\nname: x\n");
    at("etc/pve/qemu-server/105.conf", "name: web1\n");
    let table = said(&host, &["vf"]);
    for part in ["job 4711", "vm instance-0000001a (db & web)", "vm web1 (104)"] {
        assert!(table.contains(part), "{part}: {table}");
    }
    let series = metrics(&host, "lanewatch_vf_vm_info");
    let of = |vf: u32, rest: &str| {
        format!(
            "lanewatch_vf_vm_info{{pf=\"0000:01:00.0\",vf=\"{vf}\",pci_address=\"0000:01:00.{}\",{rest}}} 1",
            vf + 1
        )
    };
    assert_eq!(
        series,
        [
            of(
                1,
                "domain=\"instance-0000001a\",manager=\"openstack\",name=\"db & web\",\
                 uuid=\"11111111-2222-4333-8444-555555555555\",project=\"0123456789abcdef\""
            ),
            of(2, "domain=\"web1\",manager=\"proxmox\",name=\"104\",uuid=\"\",project=\"\""),
        ]
    );
    assert!(metrics(&host, "lanewatch_vf_holder_info")[0].contains("holder_kind=\"job\",holder=\"4711\""));
}

/// What names cost: a pass over the files of 250 pods after the first one, and series.
#[test]
fn names_of_64_vfs_on_a_host_of_250_pods_cost_little() {
    let host = TempDir::new().unwrap();
    PodHost { vfs: 64, pods: 250 }.write(host.path()).unwrap();
    let count =
        |arguments: &[&str]| said(&host, arguments).lines().filter(|line| line.starts_with("lanewatch_vf_")).count();
    let (with, without) = (count(&["metrics"]), count(&["metrics", "--no-collector.pods"]));
    println!("{without} series of VFs, {} more with names", with - without);
    assert!(with - without <= 64, "{with} {without}");
    let setup = Setup { host: PodHost::host(host.path()), filter: Filter::default() };
    let spec = COLLECTORS.iter().find(|spec| spec.name == "pods").unwrap();
    let mut cx = ReadContext::new(&setup.host, BootTime(0), Depth::Full);
    let mut collector = (spec.make)(&setup);
    let found = collector.discover(&mut cx).unwrap();
    let mut readers: Vec<_> = found.iter().map(|found| collector.open(found)).collect();
    let mut pass = || {
        let before = common::cost::cpu_time(std::process::id());
        for _ in 0..20 {
            for reader in &mut readers {
                drop(reader.read(&mut cx));
            }
        }
        common::cost::cpu_time(std::process::id()).saturating_sub(before) / 20
    };
    pass();
    let cost = pass();
    println!("{cost:?} of CPU a pass");
    // The limit is 5 ms on an idle machine and in release mode; this is neither, and others use the CPU, too.
    assert!(cost < Duration::from_millis(25), "{cost:?}");
}
