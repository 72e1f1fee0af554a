//! How the host is set up. Nothing here is a fault; each finding says why it matters.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::View;
use super::verdicts::Verdicts;
use crate::model::check::{Check, Severity};
use crate::model::finding::{Condition, Subject};
use crate::model::host::{Acs, PciIsolation, Posture};
use crate::model::irq::NodeCpus;
use crate::model::pcie::{PciClass, PciFunction};
use crate::model::reason::FindingReason;
use crate::model::units::counted;

/// One aspect of the host: its word, and what there is to say of it.
type Aspect = (FindingReason, Option<String>);

/// `host_posture`: on hosts with RDMA devices, what costs speed or stands in the way of pass-through.
pub fn posture(view: &View<'_>, verdicts: &mut Verdicts) {
    if view.snapshot.devices().next().is_none() {
        return;
    }
    let mut aspects = vec![
        (FindingReason::Firmware, firmware(view)),
        (FindingReason::Numa, numa(view)),
        (FindingReason::Acs, acs(view)),
    ];
    if let Some(posture) = view.snapshot.all::<Posture>().next() {
        aspects.extend(of_posture(view, posture));
    }
    for (aspect, said) in aspects {
        match said {
            Some(summary) => verdicts.found(Condition::new(
                Check::HostPosture,
                Subject::Host(aspect.as_str()),
                Severity::Info,
                aspect,
                summary,
            )),
            None => verdicts.ok(Check::HostPosture),
        }
    }
}

fn of_posture(view: &View<'_>, posture: &Posture) -> [Aspect; 6] {
    let bare = posture.virtualization == Some("none");
    let slow: Vec<String> = posture
        .governors
        .iter()
        .filter(|(governor, _)| &***governor != "performance")
        .map(|(governor, cpus)| format!("{governor} on {}", counted(*cpus, "CPU")))
        .collect();
    let governor = (!slow.is_empty()).then(|| {
        format!(
            "The CPU frequency governor is {}: CPUs that clock down handle interrupts and small messages late. \
             `cpupower frequency-set -g performance` (or a tuned profile) fixes that.",
            slow.join(", ")
        )
    });
    let vfs = view.snapshot.all::<PciFunction>().any(|function| function.vfs_limit.is_some_and(|limit| limit > 0));
    let iommu = match posture.iommu.as_deref() {
        Some(kind @ ("DMA" | "DMA-FQ")) if bare => Some(format!(
            "The IOMMU translates DMA of this host's own RDMA devices ({kind}), which slows memory registration and transfers. \
             The kernel argument iommu=pt bypasses it for the host and still isolates guests."
        )),
        Some("off") if vfs && bare => Some(
            "The IOMMU is off: VFs cannot be passed through to guests. Enable it in the firmware, and boot with \
             intel_iommu=on (or amd_iommu=on) and iommu=pt."
                .to_owned(),
        ),
        _ => None,
    };
    let balancing = posture.numa_balancing == Some(true) && NodeCpus::of(view.snapshot).are_several();
    let balancing = balancing.then(|| {
        "Automatic NUMA balancing is on: it stalls accesses to the pages that it samples or moves. \
         `sysctl kernel.numa_balancing=0` turns it off."
            .to_owned()
    });
    let exclusive = posture.rdma_netns_mode == Some("exclusive");
    let netns = (posture.foreign_netns == Some(true)).then(|| {
        let mode = if exclusive { ", and in exclusive mode RDMA devices of other namespaces are hidden" } else { "" };
        format!(
            "The agent runs in its own network namespace: the kernel shows port counters only in the host's{mode}. Run \
             it with the host's network."
        )
    });
    let versions: BTreeSet<&Arc<str>> =
        ["mlx5_core", "mlx5_ib", "ib_core"].iter().filter_map(|name| posture.driver_versions.get(*name)).collect();
    let drivers = (versions.len() > 1).then(|| {
        let list: Vec<String> =
            posture.driver_versions.iter().map(|(name, version)| format!("{name} {version}")).collect();
        format!(
            "Drivers of one stack have different versions ({}), a combination that is not tested: install one release.",
            list.join(", ")
        )
    });
    let aspm = posture.arguments.iter().any(|argument| &**argument == "pcie_aspm=force");
    let aspm = aspm.then(|| {
        "The kernel argument pcie_aspm=force enables link power saving on devices that do not support it: the first transfer after \
         a pause waits for the link. Remove the argument."
            .to_owned()
    });
    [
        (FindingReason::Governor, governor),
        (FindingReason::Iommu, iommu),
        (FindingReason::NumaBalancing, balancing),
        (FindingReason::NetworkNamespace, netns),
        (FindingReason::Drivers, drivers),
        (FindingReason::Aspm, aspm),
    ]
}

/// Devices of one board with different firmware.
fn firmware(view: &View<'_>) -> Option<String> {
    let mut boards: BTreeMap<&Arc<str>, BTreeMap<&Arc<str>, Vec<&str>>> = BTreeMap::new();
    for device in view.snapshot.devices() {
        let identity = &device.identity;
        if let (Some(board), Some(version)) = (&identity.board_id, &identity.firmware_version) {
            boards.entry(board).or_default().entry(version).or_default().push(device.name.as_str());
        }
    }
    let skew = |(board, versions): (&Arc<str>, BTreeMap<&Arc<str>, Vec<&str>>)| {
        let list: Vec<String> =
            versions.iter().map(|(version, names)| format!("{version} on {}", names.join(", "))).collect();
        (versions.len() > 1).then(|| format!("{board}: {}", list.join("; ")))
    };
    let skews: Vec<String> = boards.into_iter().filter_map(skew).collect();
    (!skews.is_empty()).then(|| {
        format!(
            "Cards of one model have different firmware ({}) and may behave differently under the same load: update to one version.",
            skews.join(" / ")
        )
    })
}

/// Devices whose NUMA node the firmware does not tell, where there is more than one.
fn numa(view: &View<'_>) -> Option<String> {
    if !NodeCpus::of(view.snapshot).are_several() {
        return None;
    }
    let devices = view.snapshot.devices().filter(|device| {
        let function = device.identity.pci_address.and_then(|address| view.snapshot.function(address));
        function.is_some_and(|function| function.numa_node.is_none())
    });
    let names: Vec<&str> = devices.map(|device| device.name.as_str()).collect();
    (!names.is_empty()).then(|| {
        format!(
            "The NUMA node of {} is unknown: programs and interrupts cannot be placed next to it. Update the BIOS, or set the \
             guest's NUMA topology.",
            names.join(", ")
        )
    })
}

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
    use crate::model::host::AcsSwitches;
    use crate::model::pcie::PciFunction;
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
        assert!(text.starts_with("ACS on PCIe switch ports (0000:3c:04.0) redirects"), "{text}");
        assert_eq!(said("kvm", 0x1d, on), None, "a guest's ports are emulated");
        assert_eq!(said("none", 0x1d, Acs::Switches(AcsSwitches(0x01))), None, "nothing is redirected");
        assert_eq!(said("none", 0x1d, Acs::None), None);
        assert_eq!(said("none", 0x1d, Acs::Hidden), None, "not readable is not known");
    }
}
