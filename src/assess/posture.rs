//! How the host is set up. Nothing here is a fault; each finding says why it matters.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::View;
use super::acs::acs;
use super::verdicts::Verdicts;
use crate::model::check::{Check, Severity};
use crate::model::finding::{Condition, Subject};
use crate::model::host::Posture;
use crate::model::irq::NodeCpus;
use crate::model::pcie::PciFunction;
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
            "The CPU frequency governor is {}: CPUs that lower their clock respond late to interrupts and small messages. \
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
            "Drivers of one stack have different versions ({}), an untested combination: install them all from one release.",
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
            "The NUMA node of {} is unknown: programs and interrupts cannot be placed near it. Update the BIOS, or set the \
             guest's NUMA topology.",
            names.join(", ")
        )
    })
}
