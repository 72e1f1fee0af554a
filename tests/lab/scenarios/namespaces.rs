//! An agent in a network namespace of its own: what the kernel hides from it is said.

use crate::guest::{Guest, on_each_kernel};

const INSIDE: &str = "ip netns exec n1 lanewatch";

/// What `metrics` prints once this is in it: on a busy host a collector may be late for one reading.
fn metrics(guest: &mut Guest, program: &str, part: &str) -> String {
    let mut text = String::new();
    for _ in 0..10 {
        text = guest.sh(&format!("{program} metrics 2>/dev/null"));
        if text.contains(part) {
            break;
        }
    }
    text
}

#[test]
fn another_network_namespace_hides_counters_and_then_devices() {
    on_each_kernel(|kernel| {
        let Some(mut guest) = Guest::boot(kernel) else { return };
        guest.stand_in();
        guest.sh("ip netns add n1");
        let outside = metrics(&mut guest, "lanewatch", "rdma_netns_mode=\"shared\"");
        assert!(outside.contains("lanewatch_port_events_total{") && outside.contains("rdma_netns_mode=\"shared\""));

        // Shared: the devices are there, without counters.
        let inside = metrics(&mut guest, INSIDE, "reason=\"network_namespace\"");
        assert!(inside.contains("lanewatch_port_state{device=\"mlx5_0\",port=\"1\",state=\"ACTIVE\"} 1"), "{inside}");
        assert!(!inside.contains("lanewatch_port_events_total{"), "{inside}");
        assert!(!inside.contains("lanewatch_port_received_bytes_total{"), "{inside}");
        let partly =
            "lanewatch_visibility_info{area=\"namespace\",visibility=\"partly\",reason=\"network_namespace\"} 1";
        assert!(inside.contains(partly) && !outside.contains(partly), "{inside}");
        let (_, told) = guest.run(&format!("{INSIDE} check --timeout 60s --verbose 2>&1"));
        assert!(told.contains("another network namespace"), "{told}");

        // Exclusive: they are not.
        guest.sh(
            "ip netns del n1; for i in $(seq 400); do rdma system set netns exclusive && exit 0; sleep 0.25; done; exit 1",
        );
        guest.sh("ip netns add n1");
        let outside = metrics(&mut guest, "lanewatch", "rdma_netns_mode=\"exclusive\"");
        assert!(outside.contains("lanewatch_port_events_total{") && outside.contains("rdma_netns_mode=\"exclusive\""));
        let inside = metrics(&mut guest, INSIDE, "reason=\"network_namespace\"");
        assert!(!inside.contains("lanewatch_port_state{") && inside.contains(partly), "{inside}");
        let (_, told) = guest.run(&format!("{INSIDE} check --timeout 60s --verbose 2>&1"));
        assert!(told.contains("RDMA devices belong to another network namespace"), "{told}");
    });
}
