//! As an ordinary user: everything that is readable, and a word on what is not.

use crate::guest::{Guest, on_each_kernel};

#[test]
fn an_ordinary_user_sees_the_lane_and_is_told_what_is_hidden() {
    on_each_kernel(|kernel| {
        let Some(mut guest) = Guest::boot(kernel) else { return };
        guest.stand_in();
        guest.sh("echo 2 > /sys/bus/pci/devices/0000:41:00.0/sriov_numvfs; modprobe vfio-pci; echo 1 > /proc/sys/kernel/dmesg_restrict; \
            cd /sys/bus/pci/devices/0000:41:10.0; echo vfio-pci > driver_override; echo 0000:41:10.0 > /sys/bus/pci/drivers_probe; \
            g=$(basename $(readlink iommu_group)); (setsid bash -c \"exec 7<>/dev/vfio/$g; sleep 600\" >/dev/null 2>&1 &)");
        let user = "setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all --bounding-set=-all";
        let families = "lanewatch_port_\\|lanewatch_pcie_\\|lanewatch_device_info\\|lanewatch_irq";
        let metrics = |guest: &mut Guest, as_user: &str| {
            guest.sh(&format!(
                "{as_user} lanewatch metrics 2>/dev/null | grep '^\\({families}\\)' | grep -v 'interrupts_total\\|busiest\\|isolation' | sort"
            ))
        };
        let (mut root, mut ordinary) = (metrics(&mut guest, ""), metrics(&mut guest, user));
        for _ in 0..10 {
            // On a busy host a device may be late for one of the two looks.
            if ordinary == root && !root.is_empty() {
                break;
            }
            (root, ordinary) = (metrics(&mut guest, ""), metrics(&mut guest, user));
        }
        assert_eq!(ordinary, root);
        // Configuration beyond its first 64 bytes is hidden, and said to be.
        let isolation = "grep ^lanewatch_pcie_isolation_info > /run/isolation";
        guest.until(&format!("{user} lanewatch metrics 2>/dev/null | {isolation}"));
        let isolation = guest.sh("cat /run/isolation");
        assert!(isolation.lines().all(|line| line.contains("acs=\"hidden\"")), "{isolation}");
        let (_, text) = guest.run(&format!("{user} lanewatch check --verbose 2>&1"));
        assert!(text.contains("CAP_SYSLOG") && text.contains("CAP_SYS_PTRACE"), "{text}");
        let (_, vfs) = guest.run(&format!("{user} lanewatch vf 2>&1"));
        assert!(vfs.contains("unknown") && vfs.contains("CAP_SYS_PTRACE"), "{vfs}");
    });
}

/// What a unit of systemd takes away, as far as it can be taken by hand: `/sys` and `/proc/sys` read-only, devices of its
/// own, no capability, none to be had, a user of its own.
const CONFINED: &str = "for d in /sys /proc/sys; do mount --bind $d $d && mount -o remount,bind,ro $d; done
    mkdir -p /run/dev; mount -t tmpfs -o mode=755 dev /run/dev
    for n in null zero random urandom; do touch /run/dev/$n; mount --bind /dev/$n /run/dev/$n; done
    mount --rbind /run/dev /dev; mount -t tmpfs tmp /tmp
    exec setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all --bounding-set=-all --no-new-privs \"$@\"";

#[test]
fn a_confined_agent_serves_and_says_what_is_hidden() {
    on_each_kernel(|kernel| {
        let Some(mut guest) = Guest::boot(kernel) else { return };
        guest.stand_in();
        guest.sh("echo 1 > /sys/bus/pci/devices/0000:41:00.0/sriov_numvfs; modprobe vfio-pci; \
            cd /sys/bus/pci/devices/0000:41:10.0; echo vfio-pci > driver_override; echo 0000:41:10.0 > /sys/bus/pci/drivers_probe; \
            mkdir -p /var/lib/lanewatch; chown 65534:65534 /var/lib/lanewatch; mount --make-rprivate /");
        guest.sh(&format!("cat > /run/confined <<'END'\n{CONFINED}\nEND"));
        guest.serve_under("unshare --mount bash /run/confined", "");
        let status = guest.sh("cat /proc/$(pgrep -x lanewatch)/status");
        for line in ["Uid:\t65534", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1"] {
            assert!(status.contains(line), "{status}");
        }

        guest.wait_for("lanewatch_port_state", &[("device", "mlx5_0"), ("state", "ACTIVE")], Some(1.0));
        guest.wait_for("lanewatch_port_rate_bytes_per_second", &[("device", "mlx5_0")], Some(50e9));
        guest.wait_for("lanewatch_vf_holder_info", &[("vf", "0"), ("holder_kind", "unknown")], Some(1.0));
        for collector in ["rdma", "pci", "irq", "sriov"] {
            guest.wait_for("lanewatch_collector_success", &[("collector", collector)], Some(1.0));
        }
        for (area, there) in [("rdma", "seen"), ("irq", "seen"), ("kmsg", "hidden"), ("holders", "hidden")] {
            guest.wait_for("lanewatch_visibility_info", &[("area", area), ("visibility", there)], Some(1.0));
        }
        guest.wait_until("a baseline", |guest| guest.event_kinds().iter().any(|kind| kind == "baseline_learned"));
        guest.sh("[ -n \"$(ls -A /var/lib/lanewatch)\" ]");
        assert!(!guest.log().contains("panicked"));
    });
}
