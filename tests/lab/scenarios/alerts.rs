//! The shipped rules in a real Prometheus on the host, which scrapes the machine.

use serde_json::json;

use crate::guest::{Guest, on_each_kernel};
use crate::prometheus::Prometheus;

const CARD: &str = "0000:81:00.0";

#[test]
fn alerts_fire_for_a_link_and_a_port_and_end() {
    on_each_kernel(|kernel| {
        let Some(mut guest) = Guest::boot(kernel) else { return };
        guest.call("fake_link", &json!({"bdf": "81:00.0", "speed": 4, "width": 16}));
        guest.stand_in();
        guest.set("mlx5_0", &[("rcv_packets", 4711)]);
        guest.serve("[policy.hold]\npcie_degraded = \"0s\"\npcie_below_port_rate = \"0s\"\nport_down = \"0s\"\n");
        let Some(prometheus) = Prometheus::watching(&guest) else { return };
        guest.call("poke_link", &json!({"bdf": "81:00.0", "speed": 3, "width": 8}));
        guest.set("mlx5_0", &[("state", 1), ("phys_state", 2), ("event", 10)]);
        prometheus.wait_for("PcieLinkDegraded", CARD, true);
        prometheus.wait_for("PortDown", "mlx5_0/1", true);
        guest.call("poke_link", &json!({"bdf": "81:00.0", "speed": 4, "width": 16}));
        guest.set("mlx5_0", &[("state", 4), ("phys_state", 5), ("event", 9)]);
        prometheus.wait_for("PcieLinkDegraded", CARD, false);
        prometheus.wait_for("PortDown", "mlx5_0/1", false);
        assert!(prometheus.is_up());
    });
}
