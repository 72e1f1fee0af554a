//! VFs: made, configured, given away, taken back, and destroyed under their holder.

use crate::guest::{Guest, Kernel, on_each_kernel};
use crate::prometheus::Prometheus;

const PF: &str = "0000:41:00.0";
const VF: &str = "0000:41:10.2";

/// No hold times: what is there is found in the next pass.
const AT_ONCE: &str = "[policy.hold]\nvf_orphan = \"0s\"\nvf_dangling = \"0s\"\nvf_count_mismatch = \"0s\"\n";

/// What libvirt writes of a domain that has the VF.
const STATUS: &str = "<domstatus state='running' reason='booted' pid='PID'><domain type='kvm' id='7'><name>vm7</name>\
    <devices><hostdev mode='subsystem' type='pci' managed='yes'><source><address domain='0x0000' bus='0x41' slot='0x10' \
    function='0x2'/></source></hostdev></devices></domain></domstatus>";

fn vfs(kernel: Kernel) {
    let Some(mut guest) = Guest::boot(kernel) else { return };
    guest.sh("ip link set pf0 up; modprobe igbvf; modprobe vfio-pci");
    guest.serve(AT_ONCE);
    guest.sh(&format!("echo 4 > /sys/bus/pci/devices/{PF}/sriov_numvfs"));
    for kind in ["configured", "present", "reported"] {
        guest.wait_for("lanewatch_sriov_vfs", &[("pf", PF), ("kind", kind)], Some(4.0));
    }
    assert_eq!(guest.value("lanewatch_sriov_vfs_limit", &[("pf", PF)]), Some(7.0));

    guest.sh("ip link set pf0 vf 1 mac 02:00:00:00:00:10 vlan 100; ip link set pf0 vf 1 spoofchk off; ip link set pf0 vf 1 trust on");
    let config = [
        ("pf", PF),
        ("vf", "1"),
        ("mac", "02:00:00:00:00:10"),
        ("vlan", "100"),
        ("spoof_check", "off"),
        ("trust", "on"),
    ];
    guest.wait_for("lanewatch_vf_config_info", &config, Some(1.0));

    let Some(prometheus) = Prometheus::watching(&guest) else { return };
    // Given to vfio-pci, and nobody has it open: an orphan.
    guest.sh(&format!(
        "cd /sys/bus/pci/devices/{VF}; echo vfio-pci > driver_override; echo {VF} > driver/unbind; \
         echo {VF} > /sys/bus/pci/drivers_probe; [ $(basename $(readlink driver)) = vfio-pci ]"
    ));
    guest.wait_for("lanewatch_vf_holder_info", &[("pf", PF), ("vf", "1"), ("holder_kind", "none")], Some(1.0));
    guest.wait_for_finding("vf_orphan", &format!("{PF}/vf1"), true);
    guest.check_finds("vf_orphan", &format!("{PF}/vf1"), true);
    prometheus.wait_for("VfOrphan", &format!("{PF}/vf1"), true);

    // A process that holds the group stands for a virtual machine.
    guest.sh(&format!(
        "g=$(basename $(readlink /sys/bus/pci/devices/{VF}/iommu_group)); \
         (setsid bash -c \"exec 7<>/dev/vfio/$g; exec -a qemu-stand-in sleep 600\" >/dev/null 2>&1 &)"
    ));
    guest.wait_for("lanewatch_vf_holder_info", &[("pf", PF), ("vf", "1"), ("holder_kind", "process")], Some(1.0));
    guest.wait_for_finding("vf_orphan", &format!("{PF}/vf1"), false);
    guest.check_finds("vf_orphan", &format!("{PF}/vf1"), false);
    prometheus.wait_for("VfOrphan", &format!("{PF}/vf1"), false);
    guest.wait_for_event("vf_changed", &format!("{PF}/vf1"));
    // Libvirt's status beside it says whose process that is.
    guest.sh(&format!(
        "mkdir -p /run/libvirt/qemu; cat > /run/libvirt/qemu/vm7.new <<END\n{}\nEND\n\
         mv /run/libvirt/qemu/vm7.new /run/libvirt/qemu/vm7.xml",
        STATUS.replace("PID", "$(pgrep -f qemu-stand-in)")
    ));
    let machine = [("pf", PF), ("vf", "1"), ("holder_kind", "vm"), ("holder", "vm7")];
    guest.wait_for("lanewatch_vf_holder_info", &machine, Some(1.0));
    guest.until("lanewatch vf --timeout 60s 2>/dev/null | grep -q vm7");
    let table = guest.sh("for i in 1 2 3 4 5; do lanewatch vf --timeout 60s && break; done");
    assert!(table.contains("02:00:00:00:00:10") && table.contains("vm7"), "{table}");

    // Another network namespace has an interface of a VF: its name is known, though no process is in it.
    guest.sh(&format!("ip netns add n1; ip link set $(ls /sys/bus/pci/devices/{PF}/virtfn2/net) netns n1"));
    let namespace = [("pf", PF), ("vf", "2"), ("holder_kind", "netns"), ("holder", "n1")];
    guest.wait_for("lanewatch_vf_holder_info", &namespace, Some(1.0));

    // Destroyed under its holder: the series end, and the machine claims what is not there.
    guest.sh(&format!("echo 0 > /sys/bus/pci/devices/{PF}/sriov_numvfs"));
    guest.wait_for("lanewatch_sriov_vfs", &[("pf", PF), ("kind", "present")], Some(0.0));
    guest.wait_for("lanewatch_vf_info", &[("pf", PF), ("vf", "1")], None);
    assert_eq!(guest.wait_for_finding("vf_dangling", VF, true).as_deref(), Some("gone"));
    prometheus.wait_for("VfDangling", VF, true);
    guest.sh("pkill -f qemu-stand-in; rm /run/libvirt/qemu/vm7.xml");
    guest.wait_for_finding("vf_dangling", VF, false);
    assert!(!guest.log().contains("panicked"));
}

#[test]
fn vfs_are_made_given_away_and_destroyed() {
    on_each_kernel(vfs);
}
