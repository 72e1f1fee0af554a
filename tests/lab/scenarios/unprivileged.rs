//! As an ordinary user: everything that is readable, and a word on what is not.

use crate::guest::{Guest, Kernel};

#[test]
fn an_ordinary_user_sees_the_lane_and_is_told_what_is_hidden() {
    let Some(mut guest) = Guest::boot(Kernel::V6_12) else { return };
    guest.stand_in();
    guest.sh("echo 2 > /sys/bus/pci/devices/0000:41:00.0/sriov_numvfs; modprobe vfio-pci; echo 1 > /proc/sys/kernel/dmesg_restrict; \
        cd /sys/bus/pci/devices/0000:41:10.0; echo vfio-pci > driver_override; echo 0000:41:10.0 > /sys/bus/pci/drivers_probe; \
        g=$(basename $(readlink iommu_group)); (setsid bash -c \"exec 7<>/dev/vfio/$g; sleep 600\" >/dev/null 2>&1 &)");
    let user = "setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all --bounding-set=-all";
    let families = "lanewatch_port_\\|lanewatch_pcie_\\|lanewatch_device_info\\|lanewatch_irq";
    let metrics = |guest: &mut Guest, as_user: &str| {
        guest.sh(&format!(
            "{as_user} lanewatch metrics 2>/dev/null | grep '^\\({families}\\)' | grep -v 'interrupts_total\\|busiest' | sort"
        ))
    };
    let (root, ordinary) = (metrics(&mut guest, ""), metrics(&mut guest, user));
    assert_eq!(ordinary, root);
    let (_, text) = guest.run(&format!("{user} lanewatch check --verbose 2>&1"));
    assert!(text.contains("CAP_SYSLOG") && text.contains("CAP_SYS_PTRACE"), "{text}");
    let (_, vfs) = guest.run(&format!("{user} lanewatch vf 2>&1"));
    assert!(vfs.contains("unknown") && vfs.contains("CAP_SYS_PTRACE"), "{vfs}");
}
