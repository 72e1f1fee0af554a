//! A card that is pulled out while it is watched, and put back.

use serde_json::json;

use crate::guest::{Guest, Kernel};

#[test]
fn a_card_goes_and_comes_back_while_it_is_scraped() {
    let Some(mut guest) = Guest::boot(Kernel::V6_12) else { return };
    guest.stand_in();
    guest.set("mlx5_0", &[("rcv_packets", 4711)]);
    guest.serve("");
    let active = [("device", "mlx5_0"), ("port", "1"), ("state", "ACTIVE")];
    guest.wait_for("lanewatch_port_state", &active, Some(1.0));

    guest.call("qmp", &json!({"cmd": "device_del", "id": "igb0"}));
    guest.call("wait_event", &json!({"name": "DEVICE_DELETED"}));
    guest.wait_for("lanewatch_port_state", &active, None);
    guest.wait_for_finding("device_missing", "mlx5_0", true);
    let left: Vec<_> = guest
        .scrape()
        .into_iter()
        .filter(|sample| {
            sample.name.starts_with("lanewatch_p")
                && sample.labels.get("device").is_some_and(|device| device == "mlx5_0")
        })
        .collect();
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(guest.value("lanewatch_port_state", &[("device", "mlx5_1"), ("state", "ACTIVE")]), Some(1.0));

    let card = json!({
        "cmd": "device_add", "driver": "igb", "id": "igb0", "bus": "rp0", "netdev": "h0", "mac": "52:54:00:aa:00:00",
    });
    guest.call("qmp", &card);
    guest.wait_for("lanewatch_port_state", &active, Some(1.0));
    guest.wait_for_finding("device_missing", "mlx5_0", false);
    let kinds = guest.event_kinds();
    assert!(["device_gone", "device_appeared"].iter().all(|kind| kinds.iter().any(|seen| seen == kind)), "{kinds:?}");
    assert!(!guest.log().contains("panicked"));
}
