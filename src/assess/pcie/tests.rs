//! Links by hand: what is said where a design is the limit, and where not everything is known.

use std::sync::Arc;

use super::*;
use crate::assess::testing::seen;
use crate::model::counter::Counters;
use crate::model::pcie::{LinkEnd, PciFunction};
use crate::model::rdma::{DeviceIdentity, Port, PortRate, PortState, RdmaDevice, Speed};
use crate::model::snapshot::Fact;
use crate::model::time::BootTime;

const ROOT: &str = "0000:3a:00.0";
const CARD: &str = "0000:3b:00.0";

/// An end that runs at its maximum.
fn full(gigatransfers: u64, lanes: u8) -> LinkEnd {
    let (speed, width) = (TransfersPerSecond::from_mega(gigatransfers * 1000), Lanes(lanes));
    LinkEnd {
        speed: Reading::Value(speed),
        width: Reading::Value(width),
        max_speed: Reading::Value(speed),
        max_width: Reading::Value(width),
        off_bus: false,
    }
}

fn function(address: &str, upstream: Option<&str>, class: u32, link: LinkEnd) -> Fact {
    Arc::new(PciFunction {
        upstream: upstream.map(|above| above.parse().unwrap()),
        class: Some(PciClass(class)),
        link,
        ..PciFunction::at(address.parse().unwrap())
    })
}

/// A card below a root port, with so many active ports of a rate in Gb/s.
fn host(root: LinkEnd, card: LinkEnd, ports: u32, rate: f64) -> Vec<Fact> {
    let port = |number| Port {
        number,
        link_layer: None,
        state: Reading::Value(PortState::Active),
        physical_state: Reading::Absent,
        rate: Reading::Value(PortRate {
            bandwidth: BytesPerSecond::from_gbits(rate),
            width: Some(4),
            speed: Speed::Hdr,
        }),
        lid: None,
        sm_lid: None,
        netdev: None,
        guid: None,
        pma: Counters::default(),
        hardware: Counters::default(),
    };
    let identity = DeviceIdentity { pci_address: CARD.parse().ok(), ..DeviceIdentity::default() };
    let device = RdmaDevice {
        name: DeviceName::new("mlx5_0"),
        identity: Arc::new(identity),
        ports: (1..=ports).map(port).collect(),
        counters: Counters::default(),
        counters_at: BootTime(0),
    };
    vec![function(ROOT, None, 0x06_0400, root), function(CARD, Some(ROOT), 0x02_0700, card), Arc::new(device) as Fact]
}

/// The reason and the sentence that is said of the first port.
fn said(facts: Vec<Fact>) -> (&'static str, String) {
    let condition = seen(facts, |view| {
        let mut verdicts = Verdicts::default();
        below_port_rate(view, &mut verdicts);
        verdicts.conditions.into_iter().next().unwrap()
    });
    (condition.reason.as_str(), condition.summary)
}

/// Checks that could not judge the card's link, and whether a host as a rule says what is missing.
fn unknown(facts: Vec<Fact>) -> (Vec<(Check, bool)>, Vec<Check>) {
    seen(facts, |view| {
        let mut verdicts = Verdicts::default();
        links(view, &mut verdicts);
        let undecided = verdicts.undecided.iter().map(|undecided| (undecided.check, undecided.due)).collect();
        (undecided, verdicts.conditions.iter().map(|condition| condition.check).collect())
    })
}

#[test]
fn a_port_that_one_link_cannot_carry_may_be_half_of_a_card_on_two_sockets() {
    // ConnectX-6 Socket Direct: 200 Gb/s over two links of 8 GT/s x16, of which one is seen here.
    let (reason, text) = said(host(full(8, 16), full(8, 16), 1, 200.0));
    assert_eq!(reason, "by_design");
    let end = "a design limit, unless the card has a second link (Socket Direct) for the rest: plan with the share, not \
               with the rate.";
    assert!(text.contains("ACTIVE at 200 Gb/s") && text.ends_with(end), "{text}");
    // Two ports that the link carries one at a time are no such card.
    let (reason, text) = said(host(full(8, 16), full(8, 16), 2, 100.0));
    assert_eq!(reason, "by_design");
    assert!(text.contains("ask for 200 Gb/s") && !text.contains("Socket Direct"), "{text}");
    // Nor is one whose link has trained to less.
    let trained = LinkEnd { width: Reading::Value(Lanes(8)), ..full(8, 16) };
    let (reason, text) = said(host(trained, trained, 1, 200.0));
    assert!(reason == "link_degraded" && !text.contains("Socket Direct"), "{text}");
}

#[test]
fn what_is_known_to_be_less_is_less_and_what_is_not_known_is_not_well() {
    let (degraded, slot) = (Check::PcieDegraded, Check::PcieLimitedBySlot);
    let judged = |card| unknown(host(full(16, 16), card, 1, 100.0));
    let no_speed = LinkEnd { speed: Reading::Absent, ..full(16, 16) };
    assert_eq!(judged(full(16, 16)), (vec![], vec![]));
    assert_eq!(judged(no_speed), (vec![(degraded, true), (slot, true)], vec![]));
    let narrow = LinkEnd { width: Reading::Value(Lanes(8)), ..no_speed };
    assert_eq!(judged(narrow), (vec![], vec![degraded]), "the width is less, whatever the speed is");
    let wide = LinkEnd { max_width: Reading::Value(Lanes(32)), ..no_speed };
    assert_eq!(judged(wide), (vec![(degraded, true)], vec![slot]), "the slot is narrower, whatever the speed is");
}
