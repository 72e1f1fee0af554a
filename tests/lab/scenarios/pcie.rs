//! PCIe links that train down, live, and recover.

use serde_json::json;

use crate::guest::{Guest, Kernel};

const CARD: &str = "0000:81:00.0";

/// No hold times: what is there is found in the next pass.
const AT_ONCE: &str = "[policy.hold]\npcie_degraded = \"0s\"\npcie_below_port_rate = \"0s\"\n";

#[test]
fn a_link_trains_down_and_recovers() {
    let Some(mut guest) = Guest::boot(Kernel::V6_12) else { return };
    guest.call("fake_link", &json!({"bdf": "81:00.0", "speed": 4, "width": 16}));
    guest.stand_in();
    guest.serve(AT_ONCE);
    let link = [("pci_address", CARD)];
    guest.wait_for(
        "lanewatch_pcie_link_current_bandwidth_bytes_per_second",
        &link,
        Some(16e9 * 16.0 * 128.0 / 130.0 / 8.0),
    );
    assert!(guest.findings().iter().all(|finding| finding[0] != "pcie_degraded"), "{:?}", guest.findings());

    guest.call("poke_link", &json!({"bdf": "81:00.0", "speed": 3, "width": 8}));
    guest.wait_for("lanewatch_pcie_link_width_lanes", &link, Some(8.0));
    assert_eq!(guest.wait_for_finding("pcie_degraded", CARD, true).as_deref(), Some("speed_and_width"));

    guest.call("poke_link", &json!({"bdf": "81:00.0", "speed": 4, "width": 16}));
    guest.wait_for_finding("pcie_degraded", CARD, false);
}

#[test]
fn a_card_that_answers_with_ones_is_off_the_bus() {
    let Some(mut guest) = Guest::boot(Kernel::V6_12) else { return };
    guest.call("fake_link", &json!({"bdf": "81:00.0", "speed": 4, "width": 16}));
    guest.stand_in();
    guest.serve("[policy.hold]\npcie_off_bus = \"0s\"\n");
    guest.wait_for("lanewatch_pcie_link_width_lanes", &[("pci_address", CARD)], Some(16.0));
    guest.call("poke_config", &json!({"bdf": "81:00.0", "off": 0x12, "value": 0x3ff, "mask": 0x3ff}));
    guest.wait_for("lanewatch_pcie_link_width_lanes", &[("pci_address", CARD)], None);
    guest.wait_for_finding("pcie_off_bus", CARD, true);
}

#[test]
fn a_link_slower_than_before_the_restart_has_drifted() {
    let Some(mut guest) = Guest::boot(Kernel::V6_12) else { return };
    guest.call("fake_link", &json!({"bdf": "81:00.0", "speed": 4, "width": 16}));
    guest.stand_in();
    guest.serve("[policy.hold]\npcie_drifted = \"0s\"\n");
    guest.wait_for("lanewatch_pcie_link_width_lanes", &[("pci_address", CARD)], Some(16.0));
    guest.wait_until("a baseline", |guest| guest.event_kinds().iter().any(|kind| kind == "baseline_learned"));
    guest.stop("TERM");
    // Another card's capability too: nothing is degraded, and still it is not what it was.
    guest.call("fake_link", &json!({"bdf": "81:00.0", "speed": 3, "width": 8}));
    guest.sh("modprobe -r labib");
    guest.stand_in();
    guest.serve("[policy.hold]\npcie_drifted = \"0s\"\n");
    guest.wait_for_finding("pcie_drifted", CARD, true);
}
