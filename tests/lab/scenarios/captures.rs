//! Hosts of the lab, as the agent records them: not a test but a tool, `make capture`.

use std::fs;
use std::path::Path;

use serde_json::json;

use crate::guest::{Guest, Kernel};

/// Writes a recorded host of the guest as it is now, under this name.
fn record(guest: &mut Guest, name: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(".cache/captures");
    fs::create_dir_all(&folder).unwrap();
    guest.sh("rm -f /run/host.tar.gz; lanewatch snapshot -o /run/host.tar.gz");
    let bytes = guest.file("/run/host.tar.gz");
    fs::write(folder.join(format!("{name}.tar.gz")), bytes).unwrap();
}

#[test]
#[ignore = "writes files, shows nothing"]
fn captures() {
    for (kernel, suffix) in [(Kernel::V6_12, "6.12"), (Kernel::V6_1, "6.1")] {
        let Some(mut guest) = Guest::boot(kernel) else { return };
        guest.soft_roce();
        record(&mut guest, &format!("soft-roce-{suffix}"));
        guest.sh("rdma link delete rxe0; rdma link delete rxe1");
        guest.call("fake_link", &json!({"bdf": "81:00.0", "speed": 4, "width": 16}));
        guest.stand_in();
        record(&mut guest, &format!("infiniband-and-roce-{suffix}"));
        guest.call("poke_link", &json!({"bdf": "81:00.0", "speed": 3, "width": 8}));
        record(&mut guest, &format!("link-degraded-{suffix}"));
        guest.sh("modprobe igbvf; echo 4 > /sys/bus/pci/devices/0000:41:00.0/sriov_numvfs");
        guest.until("[ -e /sys/bus/pci/devices/0000:41:10.6/driver ]");
        record(&mut guest, &format!("vfs-{suffix}"));
    }
}
