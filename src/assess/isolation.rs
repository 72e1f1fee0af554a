//! What keeps functions apart, and costs.

use super::View;
use crate::model::pcie::PciClass;
use crate::model::posture::{Acs, PciIsolation, Posture};

/// Ports of switches that send what goes from card to card up to the root. Root ports do so where there is an IOMMU, and
/// nothing is below them to go between.
pub(super) fn acs(view: &View<'_>) -> Option<String> {
    let bare = view.snapshot.all::<Posture>().any(|posture| posture.virtualization == Some("none"));
    let redirects = |isolation: &&PciIsolation| {
        let port = view.snapshot.function(isolation.address);
        let of_a_switch =
            port.is_some_and(|port| port.class.is_some_and(PciClass::is_bridge) && port.upstream.is_some());
        of_a_switch && matches!(isolation.acs, Some(Acs::Switches(switches)) if switches.redirects_requests())
    };
    let mut ports: Vec<String> =
        view.snapshot.all::<PciIsolation>().filter(redirects).map(|port| port.address.to_string()).collect();
    ports.sort_unstable();
    (bare && !ports.is_empty()).then(|| {
        format!(
            "ACS on PCIe switch ports ({}) redirects peer-to-peer traffic to the root complex: a GPU and a network card behind \
             one switch cannot reach each other directly. ACS isolates guests; on a host without pass-through it only costs \
             bandwidth, so disable it there.",
            ports.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::assess::testing::seen;
    use crate::model::pcie::PciFunction;
    use crate::model::posture::AcsSwitches;
    use crate::model::snapshot::Fact;

    /// A root port, a switch's two ports and a card, with the switches of the lower port of the switch.
    fn said(virtualization: &'static str, root: u16, lower: Acs) -> Option<String> {
        let names = ["0000:3a:00.0", "0000:3b:00.0", "0000:3c:04.0", "0000:3d:00.0"];
        let function = |index: usize| PciFunction {
            upstream: index.checked_sub(1).map(|above| names[above].parse().unwrap()),
            class: Some(PciClass(if index < 3 { 0x06_0400 } else { 0x02_0000 })),
            ..PciFunction::at(names[index].parse().unwrap())
        };
        let isolation =
            |index: usize, acs| PciIsolation { address: names[index].parse().unwrap(), acs: Some(acs), ari: None };
        let posture = Posture { virtualization: Some(virtualization), ..Posture::default() };
        let mut facts: Vec<Fact> = vec![Arc::new(posture)];
        facts.extend((0..4).map(|index| Arc::new(function(index)) as Fact));
        facts.push(Arc::new(isolation(0, Acs::Switches(AcsSwitches(root)))));
        facts.push(Arc::new(isolation(2, lower)));
        facts.push(Arc::new(isolation(3, Acs::Switches(AcsSwitches(0x1d)))));
        seen(facts, acs)
    }

    #[test]
    fn a_switch_that_sends_up_what_goes_between_its_cards() {
        let on = Acs::Switches(AcsSwitches(0x1d));
        let text = said("none", 0x1d, on).unwrap();
        assert!(text.contains("(ACS on 0000:3c:04.0)"), "{text}");
        assert_eq!(said("kvm", 0x1d, on), None, "a guest's ports are emulated");
        assert_eq!(said("none", 0x1d, Acs::Switches(AcsSwitches(0x01))), None, "nothing is redirected");
        assert_eq!(said("none", 0x1d, Acs::None), None);
        assert_eq!(said("none", 0x1d, Acs::Hidden), None, "not readable is not known");
    }
}
