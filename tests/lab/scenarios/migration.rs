//! The whole machine moves to another process: what a guest sees of a live migration.

use serde_json::json;

use crate::guest::{Guest, on_each_kernel};
use crate::prometheus::Prometheus;

/// A function without VFs, as a guest has it: plugged into the empty slot.
fn plug(guest: &mut Guest) {
    let card = json!({
        "cmd": "device_add", "driver": "e1000e", "id": "own0", "bus": "rp2", "mac": "52:54:00:cc:00:00",
        "romfile": "",
    });
    guest.call("qmp", &card);
    guest.until(&format!("[ -d /sys/bus/pci/devices/{OWN}/net ]"));
}

const OWN: &str = "0000:42:00.0";
const SIGNALS: &str = "lanewatch_migrations_total";

#[test]
fn a_function_that_moves_with_its_machine_is_not_trusted_until_data_flows() {
    on_each_kernel(|kernel| {
        let Some(mut guest) = Guest::boot(kernel) else { return };
        guest.sh("modprobe e1000e");
        plug(&mut guest);
        guest.sh(&format!("modprobe labib pci={OWN} roce=0"));
        guest.until("[ -d /sys/class/infiniband/mlx5_0/ports/1/counters ]");
        guest.serve("[policy.hold]\nvf_map_stale = \"0s\"\n");
        guest.wait_for("lanewatch_port_state", &[("device", "mlx5_0"), ("state", "ACTIVE")], Some(1.0));
        guest.wait_for(SIGNALS, &[("signal", "function_removed")], Some(0.0));

        // As a scheduler does it: out, over, in.
        guest.call("qmp", &json!({"cmd": "device_del", "id": "own0"}));
        guest.call("wait_event", &json!({"name": "DEVICE_DELETED"}));
        guest.wait_for(SIGNALS, &[("signal", "function_removed")], Some(1.0));
        guest.wait_for(SIGNALS, &[("signal", "machine_forked")], Some(0.0));
        guest.migrate(&[]);
        guest.wait_until("the fork", |guest| guest.value(SIGNALS, &[("signal", "machine_forked")]) >= Some(1.0));
        plug(&mut guest);
        guest.wait_for(SIGNALS, &[("signal", "function_added")], Some(1.0));
        // It was probed after the move: verified.
        guest.wait_for_finding("vf_map_stale", OWN, false);

        // A function that stays in its machine through a move is not.
        let Some(prometheus) = Prometheus::watching(&guest) else { return };
        guest.migrate(&["-device", "e1000e,id=own0,bus=rp2,mac=52:54:00:cc:00:00,romfile="]);
        guest.wait_for_finding("vf_map_stale", OWN, true);
        guest.wait_for_event("finding_began", OWN);
        prometheus.wait_for("VfMapStale", OWN, true);
        // Data that goes in and out is what shows that it works.
        guest.set("mlx5_0", &[("rcv_data", 1 << 30), ("xmit_data", 1 << 30)]);
        guest.wait_for_finding("vf_map_stale", OWN, false);
        prometheus.wait_for("VfMapStale", OWN, false);
        assert!(guest.event_kinds().iter().filter(|kind| *kind == "migration").count() > 2, "{:?}", guest.events());
    });
}

#[test]
fn a_step_of_the_wall_clock_is_a_signal() {
    on_each_kernel(|kernel| {
        let Some(mut guest) = Guest::boot(kernel) else { return };
        guest.stand_in();
        // Soon after boot a clock is being set: the agent sees a machine that booted an hour ago. 6.1 changes the time
        // namespace of a child alone, never that of the program itself.
        guest.serve_under("unshare --fork --time --boottime 3600", "");
        let stepped = [("signal", "clock_stepped")];
        guest.wait_for(SIGNALS, &stepped, Some(0.0));
        guest.sh("date -s @$(( $(date +%s) + 600 ))");
        guest.wait_for(SIGNALS, &stepped, Some(1.0));
    });
}
