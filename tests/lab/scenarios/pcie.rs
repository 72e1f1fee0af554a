//! PCIe links that train down, live, and recover; cards that fall off the bus, and that come back in another slot.

use serde_json::json;

use crate::guest::{Guest, Kernel, on_each_kernel};
use crate::prometheus::Prometheus;

const CARD: &str = "0000:81:00.0";
const WIDTH: &str = "lanewatch_pcie_link_width_lanes";
const SPEED: &str = "lanewatch_pcie_link_speed_transfers_per_second";

/// A card of 16 GT/s x16 at full speed, its stand-in, and the agent without hold times.
fn healthy(kernel: Kernel, holds: &str) -> Option<Guest> {
    let mut guest = Guest::boot(kernel)?;
    guest.call("fake_link", &json!({"bdf": "81:00.0", "speed": 4, "width": 16}));
    guest.stand_in();
    guest.serve(holds);
    guest.wait_for(WIDTH, &[("pci_address", CARD)], Some(16.0));
    Some(guest)
}

/// Trains the link to this speed (3 is 8 GT/s, 4 is 16) and width. The first pass that begins after that must say so.
fn train(guest: &mut Guest, speed: u8, width: u8) {
    guest.call("poke_link", &json!({"bdf": "81:00.0", "speed": speed, "width": width}));
    let trained: f64 = guest.sh("date +%s.%N").trim().parse().unwrap();
    let link = [("pci_address", CARD)];
    guest.wait_until("a pass since", |guest| {
        let (of_pci, scrape) = ([("collector", "pci")], guest.scrape());
        let value = |name: &str, labels: [(&str, &str); 1]| {
            let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
            scrape.iter().find(|sample| sample.is(name, &labels)).map(|sample| sample.value)
        };
        let ended = value("lanewatch_collector_last_success_timestamp_seconds", of_pci).unwrap();
        let since = ended - value("lanewatch_collector_duration_seconds", of_pci).unwrap() > trained;
        let said = (value(SPEED, link), value(WIDTH, link));
        let speed = Some(if speed == 3 { 8e9 } else { 16e9 });
        assert!(!since || said == (speed, Some(f64::from(width))), "{said:?} after a pass");
        since
    });
}

#[test]
fn a_link_trains_down_and_recovers() {
    on_each_kernel(|kernel| {
        let at_once = "[policy.hold]\npcie_degraded = \"0s\"\npcie_below_port_rate = \"0s\"\n";
        let Some(mut guest) = healthy(kernel, at_once) else { return };
        let carries = "lanewatch_pcie_link_current_bandwidth_bytes_per_second";
        let bandwidth = 16e9 * 16.0 * 128.0 / 130.0 / 8.0;
        assert_eq!(guest.value(carries, &[("pci_address", CARD)]), Some(bandwidth));
        guest.check_finds("pcie_degraded", CARD, false);
        guest.wait_for_finding("pcie_degraded", CARD, false);

        for (speed, width, reason) in [(3, 16, "speed"), (4, 8, "width"), (3, 8, "speed_and_width")] {
            train(&mut guest, speed, width);
            guest.wait_until(reason, |guest| {
                guest.findings().contains(&["pcie_degraded", CARD, reason].map(str::to_owned))
            });
            assert_eq!(guest.check_finds("pcie_degraded", CARD, true).as_deref(), Some(reason));
        }
        guest.wait_for_event("link_changed", CARD);
        guest.wait_for_event("finding_began", CARD);

        train(&mut guest, 4, 16);
        guest.wait_for_finding("pcie_degraded", CARD, false);
        guest.check_finds("pcie_degraded", CARD, false);
        guest.wait_for_event("finding_ended", CARD);
    });
}

#[test]
fn a_card_that_answers_with_ones_is_off_the_bus() {
    on_each_kernel(|kernel| {
        let Some(mut guest) = healthy(kernel, "[policy.hold]\npcie_off_bus = \"0s\"\n") else { return };
        guest.check_finds("pcie_off_bus", CARD, false);
        let Some(prometheus) = Prometheus::watching(&guest) else { return };
        guest.call("poke_config", &json!({"bdf": "81:00.0", "off": 0x12, "value": 0x3ff, "mask": 0x3ff}));
        // Its speed and width are not known any more: no value stands for that.
        guest.wait_for(WIDTH, &[("pci_address", CARD)], None);
        assert_eq!(guest.value(SPEED, &[("pci_address", CARD)]), None);
        guest.wait_for_finding("pcie_off_bus", CARD, true);
        guest.check_finds("pcie_off_bus", CARD, true);
        prometheus.wait_for("PcieOffBus", CARD, true);
        guest.wait_for_event("finding_began", CARD);
    });
}

/// The card of `pf1`, put into the empty slot: 8 GT/s x8 there.
const MOVED: &str = "0000:42:00.0";

#[test]
fn a_card_that_is_slower_in_another_slot_after_a_reboot_has_drifted() {
    on_each_kernel(|kernel| {
        let at_once = "[policy.hold]\npcie_drifted = \"0s\"\n";
        let Some(mut guest) = healthy(kernel, at_once) else { return };
        guest.wait_for_event("baseline_learned", "mlx5_1");
        guest.check_finds("pcie_drifted", CARD, false);
        guest.stop("TERM");
        let state = guest.sh("tar -C /var/lib -cz lanewatch | base64");
        drop(guest);

        let card = "igb,id=igb1,bus=rp2,netdev=h1,mac=52:54:00:bb:00:00,romfile=";
        let moved = json!({"igb1": false, "extra": ["-netdev", "hubport,id=h1,hubid=1", "-device", card]});
        let Some(mut guest) = Guest::boot_with(kernel, &moved) else { return };
        guest.sh(&format!("mkdir -p /var/lib; base64 -d <<'END' | tar -C /var/lib -xz\n{state}END"));
        // All that the slot can do and maximum of both ends: nothing is degraded, and still it is not what it was.
        guest.call("fake_link", &json!({"bdf": "42:00.0", "speed": 3, "width": 8, "cap_speed": 4, "cap_width": 16}));
        guest.sh("modprobe labib pci=0000:41:00.0,0000:42:00.0 roce=0,1");
        guest.serve(at_once);
        guest.wait_for(WIDTH, &[("pci_address", MOVED)], Some(8.0));
        guest.wait_for_finding("pcie_drifted", MOVED, true);
        assert_eq!(guest.check_finds("pcie_drifted", MOVED, true).as_deref(), Some("baseline"));
        guest.check_finds("pcie_degraded", MOVED, false);
        guest.wait_for_event("booted", "");
        // It is the same card: none is missing.
        guest.wait_for_finding("device_missing", "mlx5_1", false);
    });
}
