//! The kernel's log, read without loss and never counted twice.

use crate::guest::{Guest, on_each_kernel};

const ERRORS: [(&str, &str); 2] = [("driver", "mlx5_core"), ("kind", "module_fault")];

fn say(guest: &mut Guest, line: &str) {
    guest.sh(&format!("echo '{line}' > /sys/kernel/debug/labib/say"));
}

#[test]
fn lines_count_once_over_a_restart_and_a_burst_is_bounded() {
    on_each_kernel(|kernel| {
        let Some(mut guest) = Guest::boot(kernel) else { return };
        guest.stand_in();
        let error =
            "mlx5_core 0000:41:00.0: Port module event[error]: module 0, Cable error, Bus stuck (I2C or data shorted)";
        // From before the start: history, not new.
        say(&mut guest, error);
        guest.serve("");
        guest.wait_for("lanewatch_kernel_messages_lost_total", &[], Some(0.0));
        guest.wait_for_finding("kernel_message", "0000:41:00.0", true);

        say(&mut guest, error);
        guest.wait_for("lanewatch_kernel_messages_total", &ERRORS, Some(1.0));
        // Another program's words (facility 1) are not the kernel's.
        guest.sh(&format!("echo '{error}' > /dev/kmsg"));
        say(
            &mut guest,
            "mlx5_core 0000:41:00.0: mlx5_pcie_event:299:(pid 0): Detected insufficient power on the PCIe slot (27W).",
        );
        let power = [("driver", "mlx5_core"), ("kind", "pcie_slot_power")];
        guest.wait_for("lanewatch_kernel_messages_total", &power, Some(1.0));
        assert_eq!(guest.value("lanewatch_kernel_messages_total", &ERRORS), Some(1.0));

        say(&mut guest, "vfio-pci 0000:41:10.2: vfio_bar_restore: reset recovery - restoring BARs");
        let vfio = [("driver", "vfio-pci"), ("kind", "vfio_error")];
        guest.wait_for("lanewatch_kernel_messages_total", &vfio, Some(1.0));

        guest.stop("TERM");
        say(&mut guest, error);
        guest.serve("");
        // What was logged before the start is history, and nothing is counted again.
        guest.wait_for("lanewatch_kernel_messages_lost_total", &[], Some(0.0));
        say(&mut guest, error);
        guest.wait_until("the new line", |guest| guest.value("lanewatch_kernel_messages_total", &ERRORS) >= Some(1.0));
        assert_eq!(guest.value("lanewatch_kernel_messages_total", &ERRORS), Some(1.0));

        // Far more than the kernel's buffer holds. Not to the console, too: that takes an emulated serial line minutes.
        guest.sh("dmesg -n 1; echo 20000 > /sys/kernel/debug/labib/burst");
        let burst = [("driver", "mlx5_core"), ("kind", "module_error")];
        guest.wait_until("the burst", |guest| guest.value("lanewatch_kernel_messages_total", &burst) > Some(1.0));
        guest.wait_until("the loss", |guest| guest.event_kinds().iter().any(|kind| kind == "kernel_log_lost"));
        let memory = guest.value("process_resident_memory_bytes", &[]).unwrap();
        assert!(memory < 64.0 * 1024.0 * 1024.0, "{memory}");
    });
}
