//! PCIe links and what they leave of the ports' rates.

use std::collections::BTreeSet;

use super::View;
use super::capacity::{PortCapacity, Wire};
use super::limits::{DEVICE_HOLD, SPEED_HOLD, WIDTH_HOLD};
use super::ports::baseline;
use super::verdicts::Verdicts;
use crate::model::check::{Check, Severity};
use crate::model::finding::{Condition, Hold, Subject};
use crate::model::host::Posture;
use crate::model::ids::{DeviceName, PciAddress, PortKey};
use crate::model::pcie::PciClass;
use crate::model::reading::Reading;
use crate::model::reason::FindingReason;
use crate::model::topology::{Dimension, Link, LinkVerdict, PortNature};
use crate::model::units::{BytesPerSecond, Lanes, TransfersPerSecond, link_bandwidth};

/// A link is under load when a port above it moves at least this part of its rate.
const LOAD: f64 = 0.05;

/// The fastest active port of the devices on a link; what a real link is measured against.
fn fastest_port(view: &View<'_>, link: PciAddress) -> BytesPerSecond {
    let ports = view.lanes.devices_on(link).iter().flat_map(|device| view.lanes.of_device(device));
    BytesPerSecond(ports.filter_map(|(_, lane)| lane.rate).fold(0.0, |most, rate| most.max(rate.0)))
}

/// Whether a degraded speed may be a device that saves power while nothing moves.
fn may_be_idle(view: &View<'_>, link: &Link) -> bool {
    let saves = view.snapshot.function(link.name).and_then(|f| f.class).is_some_and(PciClass::saves_link_power);
    let mut ports = view.lanes.devices_on(link.name).iter().flat_map(|device| view.lanes.of_device(device));
    let busy = |(key, lane): (&PortKey, &PortCapacity)| {
        let moved = view.history.ports.get(key).and_then(|past| past.traffic);
        moved.zip(lane.rate).is_some_and(|(moved, rate)| moved.0 >= rate.0 * LOAD)
    };
    saves && !ports.any(busy)
}

/// Names a link by the device at its lower end: `the PCIe link of mlx5_3 (0000:b2:00.0)`.
fn name(view: &View<'_>, link: &Link) -> String {
    let own = |device: &&DeviceName| {
        let function = view.lanes.paths.get(*device).map(|path| path.function);
        function.and_then(|function| view.topology.path(function).next()).is_some_and(|hop| hop.name == link.name)
    };
    let names: Vec<&str> = view.lanes.devices_on(link.name).iter().filter(own).map(DeviceName::as_str).collect();
    if names.is_empty() {
        format!("the PCIe link above {}", link.name)
    } else {
        format!("the PCIe link of {} ({})", names.join(" and "), link.name)
    }
}

/// Speed and width as a text with what they carry: `16 GT/s x16 (252.1 Gb/s)`.
fn rate_text(speed: Option<TransfersPerSecond>, width: Option<Lanes>) -> String {
    match (speed, width) {
        (Some(speed), Some(width)) => format!("{speed} {width} ({})", link_bandwidth(speed, width)),
        (Some(speed), None) => speed.to_string(),
        (None, Some(width)) => width.to_string(),
        (None, None) => "unknown".to_owned(),
    }
}

fn evidence(link: &Link, condition: Condition) -> Condition {
    let (speed, width) = (link.speed(), link.width());
    condition
        .with_evidence("current_speed_transfers_per_second", speed.current.map(|s| s.0))
        .with_evidence("capable_speed_transfers_per_second", speed.capable().map(|s| s.0))
        .with_evidence("max_speed_transfers_per_second", speed.device.map(|s| s.0))
        .with_evidence("current_width_lanes", width.current.map(|w| w.0))
        .with_evidence("capable_width_lanes", width.capable().map(|w| w.0))
        .with_evidence("max_width_lanes", width.device.map(|w| w.0))
        .with_evidence("current_bandwidth_bytes_per_second", link.bandwidth().map(|b| b.0))
        .with_evidence("capable_bandwidth_bytes_per_second", link.capable_bandwidth().map(|b| b.0))
        .with_evidence("upstream_pci_address", link.upstream.map(|(address, _)| address.to_string()))
}

/// `pcie_off_bus`, `pcie_degraded` and `pcie_limited_by_slot`: one of them a link.
pub fn links(view: &View<'_>, verdicts: &mut Verdicts) {
    for link in view.topology.links.values() {
        let subject = Subject::Pci(link.name);
        let device = view.lanes.devices_on(link.name).first().cloned();
        if link.device.off_bus {
            let summary = format!(
                "{} is not responding: its configuration space reads all ones, so it fell off the bus. Check the kernel log for AER and DPC. It usually takes a power cycle or a reseat.",
                link.name
            );
            let condition =
                Condition::new(Check::PcieOffBus, subject, Severity::Critical, FindingReason::AllOnes, summary);
            verdicts.found(condition.device(device).hold(DEVICE_HOLD));
            verdicts.skipped(Check::PcieDegraded);
            verdicts.skipped(Check::PcieLimitedBySlot);
            continue;
        }
        match link.device.width.reason() {
            reason @ Some(_) => verdicts.unknown(Check::PcieOffBus, subject.clone(), reason),
            None => verdicts.ok(Check::PcieOffBus),
        }
        let (speed, width) = (link.speed().verdict(), link.width().verdict());
        let slow = speed == LinkVerdict::Degraded && !may_be_idle(view, link);
        let narrow = width == LinkVerdict::Degraded;
        if link.is_placeholder(fastest_port(view, link.name)) {
            verdicts.unknown(Check::PcieDegraded, subject.clone(), link.unread());
            verdicts.unknown(Check::PcieLimitedBySlot, subject, link.unread());
            continue;
        }
        // What is known to be less is less, whatever else is not known.
        if slow || narrow {
            verdicts.skipped(Check::PcieLimitedBySlot);
            verdicts.found(evidence(link, degraded(view, link, slow, narrow)).device(device));
            continue;
        }
        let known = speed != LinkVerdict::Unknown && width != LinkVerdict::Unknown;
        let by_slot = speed == LinkVerdict::LimitedBySlot || width == LinkVerdict::LimitedBySlot;
        if known {
            verdicts.ok(Check::PcieDegraded);
        } else {
            not_told(view, link, Check::PcieDegraded, verdicts);
        }
        match (by_slot, known) {
            (true, _) => verdicts.found(evidence(link, limited_by_slot(view, link)).device(device)),
            (false, true) => verdicts.ok(Check::PcieLimitedBySlot),
            (false, false) => not_told(view, link, Check::PcieLimitedBySlot, verdicts),
        }
    }
}

/// A link of which speed or width is not known. A guest's links, and those of integrated functions, say nothing by
/// nature; others should.
fn not_told(view: &View<'_>, link: &Link, check: Check, verdicts: &mut Verdicts) {
    let subject = Subject::Pci(link.name);
    let guest = view.snapshot.all::<Posture>().any(|posture| posture.virtualization.is_some_and(|kind| kind != "none"));
    match link.unread() {
        reason @ Some(_) => verdicts.unknown(check, subject, reason),
        None if link.upstream.is_some() && link.is_there() && !guest => verdicts.unreported(check, subject),
        None => verdicts.unknown(check, subject, None),
    }
}

fn degraded(view: &View<'_>, link: &Link, slow: bool, narrow: bool) -> Condition {
    let (speed, width) = (link.speed(), link.width());
    let reason = match (slow, narrow) {
        (true, true) => FindingReason::SpeedAndWidth,
        (true, false) => FindingReason::Speed,
        _ => FindingReason::Width,
    };
    let port = link.upstream.map(|(address, _)| format!(" ({address})")).unwrap_or_default();
    let allows = |slot: String, card: String| format!(", and its slot{port} supports only {slot} of the card's {card}");
    let limited = match (speed.verdict(), width.verdict(), speed, width) {
        (LinkVerdict::LimitedBySlot, _, Dimension { upstream: Some(upper), device: Some(card), .. }, _) => {
            allows(upper.to_string(), card.to_string())
        }
        (_, LinkVerdict::LimitedBySlot, _, Dimension { upstream: Some(upper), device: Some(card), .. }) => {
            allows(upper.to_string(), card.to_string())
        }
        _ => String::new(),
    };
    let advice = if narrow {
        "reseat the card, then check for a bad riser, dirty contacts or bent pins"
    } else {
        "check the target link speed (LnkCtl2 in `lspci -vv`) and the slot's speed setting in the BIOS, then the riser; \
         reseat the card"
    };
    let summary = format!(
        "{} runs at {}, {} {}{limited}: {advice}.{}",
        name(view, link),
        rate_text(speed.current, width.current),
        who_can(link),
        rate_text(speed.capable(), width.capable()),
        still_short(view, link).map(|text| format!(" {text}.")).unwrap_or_default(),
    );
    let (severity, hold) = if narrow { (Severity::Critical, WIDTH_HOLD) } else { (Severity::Warning, SPEED_HOLD) };
    Condition::new(Check::PcieDegraded, Subject::Pci(link.name), severity, reason, summary).hold(hold)
}

/// Whose capability is known.
fn who_can(link: &Link) -> &'static str {
    if link.upstream.is_some() {
        "both ends support"
    } else {
        "the slot's capability is unknown, but the card supports"
    }
}

/// Says that a link is too slow for its ports even at all that its ends support.
fn still_short(view: &View<'_>, link: &Link) -> Option<String> {
    let (capable, demand) = (link.capable_bandwidth()?, view.lanes.demand.get(&link.name)?);
    let short = capable.0 < demand.0 * (1.0 - 1e-9);
    short.then(|| {
        format!("Even at {capable} it stays below the {demand} of its active ports: it also needs a better slot")
    })
}

fn limited_by_slot(view: &View<'_>, link: &Link) -> Condition {
    let port = link.upstream.map(|(address, _)| format!(" ({address})")).unwrap_or_default();
    if link.port == PortNature::Emulated {
        let summary = format!(
            "{} runs at {}; the card supports {}. A guest sees an emulated port{port} and not the slot: check the link on \
             the host that runs this guest.",
            name(view, link),
            rate_text(link.speed().current, link.width().current),
            rate_text(link.speed().device, link.width().device),
        );
        let subject = Subject::Pci(link.name);
        let reason = FindingReason::Slot;
        return Condition::new(Check::PcieLimitedBySlot, subject, Severity::Info, reason, summary).hold(WIDTH_HOLD);
    }
    let summary = format!(
        "{} runs at {}, the maximum of its slot{port}; the card supports {} in a better slot.",
        name(view, link),
        rate_text(link.speed().current, link.width().current),
        rate_text(link.speed().device, link.width().device),
    );
    Condition::new(Check::PcieLimitedBySlot, Subject::Pci(link.name), Severity::Info, FindingReason::Slot, summary)
        .hold(WIDTH_HOLD)
}

/// `pcie_below_port_rate`: a link of the path carries less than the active ports that share it ask for.
pub fn below_port_rate(view: &View<'_>, verdicts: &mut Verdicts) {
    for (key, lane) in &view.lanes.ports {
        let subject = Subject::Port(key.clone());
        let Some(rate) = lane.rate else {
            let port = view.snapshot.device(&key.device).and_then(|d| d.ports.iter().find(|p| p.number == key.port));
            match port.map(|port| (port.state, port.state.reason().or(port.rate.reason()))) {
                Some((_, reason @ Some(_))) => verdicts.unknown(Check::PcieBelowPortRate, subject, reason),
                Some((Reading::Absent, None)) => verdicts.unreported(Check::PcieBelowPortRate, subject),
                _ => verdicts.skipped(Check::PcieBelowPortRate),
            }
            continue;
        };
        let Some(path) = view.lanes.paths.get(&key.device) else {
            let function = view.snapshot.device(&key.device).and_then(|device| device.identity.pci_address);
            let unread = function.and_then(|function| view.topology.path(function).find_map(Link::unread));
            verdicts.unknown(Check::PcieBelowPortRate, subject, unread);
            continue;
        };
        if lane.wires.is_empty() {
            verdicts.skipped(Check::PcieBelowPortRate);
            continue;
        }
        let ratio = |link: &Link| {
            let demand = view.lanes.demand.get(&link.name)?;
            Some(link.bandwidth()?.0 / demand.0)
        };
        let links = lane.wires.iter().flat_map(|wire| view.topology.path(wire.path));
        let tightest = links.filter_map(|link| Some((link, ratio(link)?)));
        let tightest = tightest.min_by(|(_, a), (_, b)| a.total_cmp(b)).filter(|(_, ratio)| *ratio < 1.0 - 1e-9);
        let Some((link, _)) = tightest else {
            verdicts.ok(Check::PcieBelowPortRate);
            continue;
        };
        let (Some(bandwidth), Some(demand)) = (link.bandwidth(), view.lanes.demand.get(&link.name)) else { continue };
        // Of a bond over two slots some wires alone are below the link.
        let below = |wire: &&Wire| view.topology.path(wire.path).any(|other| other.name == link.name);
        let rate_below: f64 = lane.wires.iter().filter(below).map(|wire| wire.rate.0).sum();
        let alone = rate_below > bandwidth.0 * (1.0 + 1e-9);
        let Some((reason, severity, hold, cause)) = cause(view, link, alone) else {
            verdicts.unknown(Check::PcieBelowPortRate, subject, None);
            continue;
        };
        let shared = if demand.0 > rate_below * (1.0 + 1e-9) {
            format!(" and is shared by active ports with {demand} together")
        } else {
            String::new()
        };
        let summary = format!(
            "{key} is ACTIVE at {rate}, but its PCIe path is limited to {bandwidth}{shared}. The limit is {} at {link}: {cause}",
            name(view, link)
        );
        let condition = Condition::new(Check::PcieBelowPortRate, subject, severity, reason, summary)
            .address(Some(path.function))
            .with_evidence("port_rate_bytes_per_second", Some(rate.0))
            .with_evidence("path_bandwidth_bytes_per_second", Some(path.bandwidth.0))
            .with_evidence("shared_demand_bytes_per_second", Some(demand.0))
            .with_evidence("share_bytes_per_second", lane.share.map(|share| share.0))
            .with_evidence("limiting_pci_address", Some(link.name.to_string()))
            .hold(hold);
        verdicts.found(evidence(link, condition));
    }
}

/// Why a link carries less than is asked of it; `None` if its capability is unknown. `alone`: one port asks for more.
fn cause(view: &View<'_>, link: &Link, alone: bool) -> Option<(FindingReason, Severity, Hold, String)> {
    let (speed, width) = (link.speed(), link.width());
    let (by_speed, by_width) = (speed.verdict(), width.verdict());
    let narrow = by_width == LinkVerdict::Degraded;
    if narrow || by_speed == LinkVerdict::Degraded {
        if !narrow && may_be_idle(view, link) {
            return None;
        }
        let capable = rate_text(speed.capable(), width.capable());
        let who = if link.upstream.is_some() { "both ends support" } else { "the card supports" };
        let short = still_short(view, link).map(|text| format!(" {text}.")).unwrap_or_default();
        let text = format!("{who} {capable}, so reseat the card and check slot, riser and BIOS link settings.{short}");
        return Some((
            FindingReason::LinkDegraded,
            Severity::Critical,
            if narrow { WIDTH_HOLD } else { SPEED_HOLD },
            text,
        ));
    }
    if by_speed == LinkVerdict::LimitedBySlot || by_width == LinkVerdict::LimitedBySlot {
        let port = link.upstream.map(|(address, _)| format!(" ({address})")).unwrap_or_default();
        let device = rate_text(speed.device, width.device);
        let text = match link.port {
            PortNature::Emulated => format!(
                "the card supports {device}; a guest sees an emulated port{port} and not the slot, so check the link on the \
                 host that runs this guest."
            ),
            _ => format!(
                "that is the maximum of its slot{port}; the card supports {device}, so move it to a better slot."
            ),
        };
        return Some((FindingReason::SlotLimited, Severity::Warning, WIDTH_HOLD, text));
    }
    if by_speed == LinkVerdict::Unknown || by_width == LinkVerdict::Unknown {
        return None;
    }
    // Cards whose port is faster than their link may be halves of one: the other half has no RDMA device, no interface.
    let unless = if alone { ", unless the card has a second link (Socket Direct) for the rest" } else { "" };
    let text =
        format!("that is the maximum of the card, so it is a design limit{unless}: plan with the share, not the rate.");
    Some((FindingReason::ByDesign, Severity::Info, WIDTH_HOLD, text))
}

/// `pcie_drifted`: a link below this host's own baseline or below the policy, whatever its capability says.
pub fn drifted(view: &View<'_>, verdicts: &mut Verdicts) {
    let mut judged = BTreeSet::new();
    for device in view.snapshot.devices() {
        let Some(function) = device.identity.pci_address else { continue };
        let known = baseline(view.history, device).map(|known| &*known.path).unwrap_or_default();
        let policy = view.policy.link(&device.name);
        for (hop, link) in view.topology.path(function).enumerate() {
            // The first hop is the device's own, whichever slot it sits in; those above belong to the host.
            let before =
                if hop == 0 { known.first() } else { known.iter().find(|b| b.pci_address == link.name.to_string()) };
            let mut expected = before.map(|link| (link.rate(), FindingReason::Baseline));
            if let (0, (speed @ Some(_), width) | (speed, width @ Some(_))) = (hop, policy) {
                let least = (speed.unwrap_or(TransfersPerSecond(0)), width.unwrap_or(Lanes(0)));
                expected = Some((least, FindingReason::Policy));
            }
            let Some(((speed, width), reason)) = expected else { continue };
            if !judged.insert(link.name) {
                continue;
            }
            let (Some(now_speed), Some(now_width)) = (link.speed().current, link.width().current) else {
                verdicts.unknown(Check::PcieDrifted, Subject::Pci(link.name), link.device.width.reason());
                continue;
            };
            let narrow = now_width < width;
            let slow = now_speed < speed && !may_be_idle(view, link);
            if !narrow && !slow {
                verdicts.ok(Check::PcieDrifted);
                continue;
            }
            let was = if reason == FindingReason::Policy { "the policy expects" } else { "the baseline has" };
            let summary = format!(
                "{} runs at {}, {was} {}: changed since the baseline. Check slot, riser, BIOS and power saving settings; if \
                 the change is intended, run `lanewatch baseline accept`.",
                name(view, link),
                rate_text(Some(now_speed), Some(now_width)),
                rate_text(Some(speed).filter(|s| s.0 > 0), Some(width).filter(|w| w.0 > 0)),
            );
            let hold = if narrow { WIDTH_HOLD } else { SPEED_HOLD };
            let condition =
                Condition::new(Check::PcieDrifted, Subject::Pci(link.name), Severity::Warning, reason, summary);
            let condition = condition
                .device(Some(device.name.clone()))
                .with_evidence("expected_speed_transfers_per_second", Some(speed.0))
                .with_evidence("expected_width_lanes", Some(width.0))
                .hold(hold);
            verdicts.found(evidence(link, condition));
        }
    }
}

#[cfg(test)]
mod tests {
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
        vec![
            function(ROOT, None, 0x06_0400, root),
            function(CARD, Some(ROOT), 0x02_0700, card),
            Arc::new(device) as Fact,
        ]
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
        let end = "a design limit, unless the card has a second link (Socket Direct) for the rest: plan with the share, not the rate.";
        assert!(text.contains("ACTIVE at 200 Gb/s") && text.ends_with(end), "{text}");
        // Two ports that the link carries one at a time are no such card.
        let (reason, text) = said(host(full(8, 16), full(8, 16), 2, 100.0));
        assert_eq!(reason, "by_design");
        assert!(
            text.contains("is shared by active ports with 200 Gb/s together") && !text.contains("Socket Direct"),
            "{text}"
        );
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
}
