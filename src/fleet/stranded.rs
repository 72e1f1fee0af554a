//! Why a port cannot move what its rate says: the part that a fixed link gives back, the part that a better slot
//! gives, and the part that is the card's own limit.

use super::facts::{HostFacts, LinkFacts, PortName};
use crate::model::reason::FindingReason;
use crate::model::units::BytesPerSecond;

/// Less than this part of a rate is no difference.
const SAME: f64 = 1e-6;

/// What of an active port's rate is stranded, by cause. The parts add up to rate less share.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StrandedByCause {
    /// A link below what both of its ends can do.
    pub degraded: BytesPerSecond,
    /// The slot gives less than the card could use.
    pub slot: BytesPerSecond,
    /// The card itself, or ports that share one link by design.
    pub design: BytesPerSecond,
    /// Held back, and the metrics do not tell why.
    pub unknown: BytesPerSecond,
}

/// Divides what a link keeps from a port. A link that is shared gives each port its part in proportion, so what the
/// port gets grows as the link does.
pub fn split(rate: BytesPerSecond, share: BytesPerSecond, link: &LinkFacts) -> Option<StrandedByCause> {
    let (current, capable) = (link.current.filter(|current| current.0 > 0.0)?, link.capable?);
    let grown =
        |link: BytesPerSecond| BytesPerSecond((share.0 * link.0 / current.0).clamp(share.0, rate.0.max(share.0)));
    let fixed = grown(capable);
    // A device that says it can do less than the link does is wrong about itself.
    let moved = grown(BytesPerSecond(link.device().map_or(capable.0, |device| device.0.max(capable.0))));
    let part = |more: BytesPerSecond, less: BytesPerSecond| BytesPerSecond((more.0 - less.0).max(0.0));
    Some(StrandedByCause {
        degraded: part(fixed, share),
        slot: part(moved, fixed),
        design: part(rate, moved),
        unknown: BytesPerSecond(0.0),
    })
}

/// Puts all of it under the cause that the host's own finding names.
pub fn by_reason(rate: BytesPerSecond, share: BytesPerSecond, reason: Option<FindingReason>) -> StrandedByCause {
    let all = BytesPerSecond((rate.0 - share.0).max(0.0));
    match reason {
        Some(FindingReason::LinkDegraded) => StrandedByCause { degraded: all, ..StrandedByCause::default() },
        Some(FindingReason::SlotLimited) => StrandedByCause { slot: all, ..StrandedByCause::default() },
        Some(FindingReason::ByDesign) => StrandedByCause { design: all, ..StrandedByCause::default() },
        _ => StrandedByCause { unknown: all, ..StrandedByCause::default() },
    }
}

/// The card that a function is on: its address without the function's number.
pub fn card(address: &str) -> &str {
    address.rsplit_once('.').map_or(address, |(card, _)| card)
}

/// The link that keeps an active port below its rate, by name, as far as the metrics show it: the port's own link,
/// where that explains the share; else the narrowest link of the path, where it is another one.
pub fn limiting<'a>(host: &'a HostFacts, port: &PortName) -> Option<(&'a str, &'a LinkFacts)> {
    let (device, facts) = (host.devices.get(&port.0)?, host.ports.get(port)?);
    let (rate, share) = (facts.rate?, facts.share?);
    let own = host.links.iter().find(|(name, _)| card(name) == card(&device.pci_address));
    let demand = demand(host, card(&device.pci_address));
    if let Some((name, link)) = own {
        let gives = link.current.map(|current| current.0 * rate.0 / demand.0);
        if gives.is_some_and(|gives| (gives - share.0).abs() <= share.0 * SAME) {
            return Some((name, link));
        }
    }
    let other = host.links.get_key_value(&device.limiting)?;
    (own.map(|(name, _)| name) != Some(other.0)).then_some((&**other.0, other.1))
}

/// What the active ports of a card ask for.
fn demand(host: &HostFacts, of: &str) -> BytesPerSecond {
    let on_card = |name: &str| host.devices.get(name).is_some_and(|device| card(&device.pci_address) == of);
    let wired = host.ports.iter().filter(|((device, _), port)| on_card(device) && port.has_wire());
    wired.filter_map(|(_, port)| port.rate).sum()
}

#[cfg(test)]
#[allow(clippy::float_cmp, reason = "numbers that are exact")]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::units::{Lanes, TransfersPerSecond, link_bandwidth};

    fn gbits(gbits: f64) -> BytesPerSecond {
        BytesPerSecond::from_gbits(gbits)
    }

    /// A link of these generations and widths: as it runs, as both ends can, as the device can.
    fn link(current: (u64, u8), capable: (u64, u8), device: (u64, u8)) -> LinkFacts {
        let carries = |(giga, lanes)| link_bandwidth(TransfersPerSecond::from_mega(giga * 1_000), Lanes(lanes));
        LinkFacts {
            current: Some(carries(current)),
            capable: Some(carries(capable)),
            max_speed: Some(TransfersPerSecond::from_mega(device.0 * 1_000)),
            max_width: Some(Lanes(device.1)),
        }
    }

    fn parts(split: StrandedByCause) -> [f64; 4] {
        [split.degraded, split.slot, split.design, split.unknown].map(|part| (part.gbits() * 10.0).round() / 10.0)
    }

    #[test]
    fn a_degraded_link_gives_back_what_it_lost() {
        let link = link((8, 8), (16, 16), (16, 16));
        assert_eq!(parts(split(gbits(200.0), link.current.unwrap(), &link).unwrap()), [137.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn a_degraded_link_in_a_slow_slot_gives_back_a_part() {
        let link = link((8, 8), (8, 16), (16, 16));
        assert_eq!(parts(split(gbits(200.0), link.current.unwrap(), &link).unwrap()), [63.0, 74.0, 0.0, 0.0]);
    }

    #[test]
    fn two_ports_on_one_full_link_are_a_design() {
        let link = link((16, 16), (16, 16), (16, 16));
        let share = BytesPerSecond(link.current.unwrap().0 / 2.0);
        assert_eq!(parts(split(gbits(200.0), share, &link).unwrap()), [0.0, 0.0, 74.0, 0.0]);
    }

    #[test]
    fn what_is_not_known_is_not_guessed() {
        let unknown = LinkFacts { capable: None, ..link((8, 8), (8, 8), (8, 8)) };
        assert_eq!(split(gbits(200.0), gbits(63.0), &unknown), None);
        assert_eq!(parts(by_reason(gbits(200.0), gbits(150.0), None)), [0.0, 0.0, 0.0, 50.0]);
        assert_eq!(
            parts(by_reason(gbits(200.0), gbits(150.0), Some(FindingReason::SlotLimited))),
            [0.0, 50.0, 0.0, 0.0]
        );
    }

    #[test]
    fn cards() {
        assert_eq!((card("0000:98:00.1"), card("")), ("0000:98:00", ""));
    }

    proptest! {
        #[test]
        fn the_parts_are_the_whole(
            rate in 1.0f64..1e11,
            held in 0.0f64..1.0,
            current in 1e8f64..1e11,
            capable in 1e8f64..1e11,
            speed in 1u64..64,
            width in 1u8..32,
        ) {
            let share = BytesPerSecond(rate * held);
            let link = LinkFacts {
                current: Some(BytesPerSecond(current)),
                capable: Some(BytesPerSecond(capable)),
                max_speed: Some(TransfersPerSecond(speed * 1_000_000_000)),
                max_width: Some(Lanes(width)),
            };
            let StrandedByCause { degraded, slot, design, unknown } = split(BytesPerSecond(rate), share, &link).unwrap();
            for part in [degraded, slot, design, unknown] {
                prop_assert!(part.0 >= 0.0);
            }
            prop_assert!((degraded.0 + slot.0 + design.0 + unknown.0 - (rate - share.0)).abs() <= rate * 1e-9);
        }
    }
}
