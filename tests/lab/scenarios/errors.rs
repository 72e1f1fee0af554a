//! PCIe errors that the kernel reports: at the function, and at the port above when the function says nothing.

use serde_json::json;

use crate::guest::{Guest, on_each_kernel};
use crate::prometheus::Prometheus;

const CARD: &str = "0000:41:00.0";
const ROOT_PORT: &str = "0000:40:00.0";
const EVENTS: &str = "lanewatch_pcie_aer_events_total";

fn inject(guest: &mut Guest, what: &str) {
    guest.call("hmp", &json!({"line": format!("pcie_aer_inject_error {what}")}));
}

#[test]
fn errors_count_where_they_are_seen() {
    on_each_kernel(|kernel| {
        let Some(mut guest) = Guest::boot(kernel) else { return };
        guest.stand_in();
        guest.call("enable_error_reports", &json!({"bdf": "41:00.0"}));
        guest.serve("");
        let of = |pci_address, class| [("pci_address", pci_address), ("class", class)];
        guest.wait_for(EVENTS, &of(CARD, "correctable"), Some(0.0));

        inject(&mut guest, "-c igb0 0x40");
        guest.wait_for(EVENTS, &of(CARD, "correctable"), Some(1.0));
        let name = [("pci_address", CARD), ("class", "correctable"), ("error", "BadTLP")];
        assert_eq!(guest.value("lanewatch_pcie_aer_errors_total", &name), Some(1.0));

        // The endpoint says nothing; the port above it counts.
        let before = guest.value(EVENTS, &of(ROOT_PORT, "correctable")).unwrap();
        inject(&mut guest, "-c rp0 0x1");
        guest.wait_for(EVENTS, &of(ROOT_PORT, "correctable"), Some(before + 1.0));
        assert_eq!(guest.value(EVENTS, &of(CARD, "correctable")), Some(1.0));

        inject(&mut guest, "igb0 COMP_TIME 1 2 3 4");
        guest.wait_for(EVENTS, &of(CARD, "nonfatal"), Some(1.0));
        guest.wait_for_finding("pcie_aer", CARD, true);
        guest.wait_for_event("finding_began", CARD);
        // The kernel's words for it, once.
        let words = [("driver", "pcieport"), ("kind", "aer_nonfatal")];
        let drivers = [("driver", "igb"), ("kind", "aer_nonfatal")];
        guest.wait_until("the kernel's words", |guest| {
            let said = |labels| guest.value("lanewatch_kernel_messages_total", labels).unwrap_or_default();
            said(&words) + said(&drivers) >= 1.0
        });
    });
}

#[test]
fn a_fatal_error_is_critical() {
    on_each_kernel(|kernel| {
        let Some(mut guest) = Guest::boot(kernel) else { return };
        guest.stand_in();
        guest.call("enable_error_reports", &json!({"bdf": "41:00.0"}));
        guest.serve("");
        let Some(prometheus) = Prometheus::watching(&guest) else { return };
        let received = [("pci_address", ROOT_PORT), ("class", "fatal")];
        guest.wait_for("lanewatch_pcie_aer_root_port_messages_total", &received, Some(0.0));
        inject(&mut guest, "igb0 DLP 0 0 0 0");
        // The card cannot be asked any more; the port above it received the message.
        guest.wait_for("lanewatch_pcie_aer_root_port_messages_total", &received, Some(1.0));
        guest.wait_for_finding("pcie_aer", ROOT_PORT, true);
        prometheus.wait_for("PcieAer", ROOT_PORT, true);
        assert_eq!(guest.value(EVENTS, &[("pci_address", CARD), ("class", "fatal")]), Some(0.0));
        guest.wait_until("the kernel's words", |guest| {
            let fatal = [("driver", "pcieport"), ("kind", "aer_fatal")];
            guest.value("lanewatch_kernel_messages_total", &fatal) >= Some(1.0)
        });
    });
}
