//! Hosts of the lab, as the agent records them, for `tests/cases`: not a test but a tool, `make capture`.

use std::fs;
use std::path::Path;

use serde_json::json;

use crate::common::archive::{of_snapshot, write};
use crate::guest::{Guest, Kernel};

/// Writes the guest as it is now as the host of the case of this name. What is expected of it stays as it is.
fn record(guest: &mut Guest, name: &str) {
    guest.sh("rm -f /run/host.tar.gz; lanewatch snapshot -o /run/host.tar.gz");
    let mut trees = of_snapshot(&guest.file("/run/host.tar.gz")).unwrap();
    trees.retain(|name, _| matches!(name.as_str(), "sys" | "proc"));
    let text = write(&trees).unwrap_or_else(|error| panic!("{error}"));
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/hosts").join(name);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("host.txt"), format!("# Recorded by `make capture`.\n\n{text}")).unwrap();
}

#[test]
#[ignore = "writes files, shows nothing"]
fn captures() {
    for (kernel, suffix) in [(Kernel::V6_12, "6.12"), (Kernel::V6_1, "6.1")] {
        let Some(mut guest) = Guest::boot(kernel) else { return };
        guest.soft_roce();
        record(&mut guest, &format!("lab-soft-roce-{suffix}"));
        guest.sh("rdma link delete rxe0; rdma link delete rxe1");
        guest.call("fake_link", &json!({"bdf": "81:00.0", "speed": 4, "width": 16}));
        guest.stand_in();
        guest.call("poke_link", &json!({"bdf": "81:00.0", "speed": 3, "width": 8}));
        record(&mut guest, &format!("lab-link-degraded-{suffix}"));
        guest.sh("modprobe igbvf; echo 4 > /sys/bus/pci/devices/0000:41:00.0/sriov_numvfs");
        guest.until("[ -e /sys/bus/pci/devices/0000:41:10.6/driver ]");
        record(&mut guest, &format!("lab-vfs-{suffix}"));
    }
}
