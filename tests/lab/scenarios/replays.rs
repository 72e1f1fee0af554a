//! A snapshot of a machine, replayed: the same is found.

use serde_json::{Value, json};

use crate::guest::{Guest, Kernel, on_each_kernel};

/// What `check` finds: check, reason, severity and subject of each finding, and the verdict of each check.
fn found(guest: &mut Guest, more: &str) -> (Vec<String>, Value) {
    let command =
        format!("lanewatch check --format json --timeout 60s --storage.path /nonexistent {more} || [ $? -le 3 ]");
    let text = guest.sh(&command);
    let document: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let parts = ["check", "reason", "severity", "subject"];
    let of = |finding: &Value| parts.map(|part| finding[part].to_string()).join(" ");
    (document["findings"].as_array().unwrap().iter().map(of).collect(), document["checks"].clone())
}

/// Compares the machine as it is now with its snapshot; the findings.
fn replays(guest: &mut Guest) -> Vec<String> {
    guest.sh(
        "cd /run; rm -rf tree host.tar.gz; lanewatch snapshot -o host.tar.gz; mkdir tree; tar -xzf host.tar.gz -C tree",
    );
    let live = found(guest, "");
    let replayed = found(guest, "--path.rootfs /run/tree");
    assert_eq!(live, replayed);
    live.0
}

fn same(kernel: Kernel) {
    let Some(mut guest) = Guest::boot(kernel) else { return };
    guest.soft_roce();
    replays(&mut guest);
    guest.sh("rdma link delete rxe0; rdma link delete rxe1");
    guest.call("fake_link", &json!({"bdf": "81:00.0", "speed": 4, "width": 16}));
    guest.stand_in();
    guest.call("poke_link", &json!({"bdf": "81:00.0", "speed": 3, "width": 8}));
    let degraded = replays(&mut guest);
    assert!(degraded.iter().any(|finding| finding.contains("pcie_degraded")), "{degraded:?}");
    guest.sh("modprobe igbvf; modprobe vfio-pci; echo 4 > /sys/bus/pci/devices/0000:41:00.0/sriov_numvfs");
    guest.until("[ -e /sys/bus/pci/devices/0000:41:10.6/driver ]");
    guest.sh(
        "cd /sys/bus/pci/devices/0000:41:10.2; echo vfio-pci > driver_override; echo 0000:41:10.2 > driver/unbind; \
         echo 0000:41:10.2 > /sys/bus/pci/drivers_probe",
    );
    let orphaned = replays(&mut guest);
    assert!(orphaned.iter().any(|finding| finding.contains("vf_orphan")), "{orphaned:?}");
}

#[test]
#[ignore = "needs a machine that is not busy; make lab runs it"]
fn a_snapshot_of_a_machine_says_what_the_machine_says() {
    on_each_kernel(same);
}
