//! Devices that should be there.

use std::collections::BTreeSet;

use super::View;
use super::limits::DEVICE_HOLD;
use super::verdicts::Verdicts;
use crate::model::check::{Check, Severity};
use crate::model::finding::{Condition, Subject};
use crate::model::ids::{DeviceName, Guid, PciAddress};
use crate::model::pcie::PciFunction;
use crate::model::reason::FindingReason;
use crate::model::units::counted;

/// `device_missing`: in the baseline or the policy, and not listed. A listing that failed says nothing.
pub fn missing(view: &View<'_>, verdicts: &mut Verdicts) {
    let Some(listed) = view.snapshot.collector("rdma").map(|collector| &collector.listed) else { return };
    let here: Option<BTreeSet<&str>> = listed.as_ref().map(|listed| listed.iter().map(|key| &**key).collect());
    for (key, known) in &view.history.baseline.devices {
        // Software devices come and go as people make them.
        if known.pci_address.is_none() {
            continue;
        }
        let name = DeviceName::new(&known.name);
        // A device keeps its GUID when it is renamed or moved to another slot.
        let renamed =
            || Guid::parse(key).is_some_and(|guid| view.snapshot.devices().any(|d| d.identity.node_guid == Some(guid)));
        let Some(here) = &here else {
            verdicts.unknown(Check::DeviceMissing, Subject::Device(name), None);
            continue;
        };
        if here.contains(name.as_str()) || renamed() {
            verdicts.ok(Check::DeviceMissing);
            continue;
        }
        let at = known.pci_address.as_deref().map(|address| format!(" (last at {address})")).unwrap_or_default();
        let summary = format!(
            "{name}{at} is missing: it is in the baseline and the kernel no longer lists it. Check the kernel log for \
             its driver and PCI address. If it was removed on purpose, run `lanewatch baseline accept`."
        );
        let address = known.pci_address.as_deref().and_then(|address| address.parse().ok());
        verdicts.found(gone(name, FindingReason::Baseline, summary).address(address));
    }
    let policy = view.policy.devices.iter();
    for name in policy.filter(|name| !view.history.baseline.devices.values().any(|known| known.name == name.as_str())) {
        match &here {
            None => verdicts.unknown(Check::DeviceMissing, Subject::Device(name.clone()), None),
            Some(here) if here.contains(name.as_str()) => verdicts.ok(Check::DeviceMissing),
            Some(_) => {
                let summary = format!("{name} is missing: the policy expects it (policy.devices).");
                verdicts.found(gone(name.clone(), FindingReason::Policy, summary));
            }
        }
    }
}

/// `device_missing`: a card that has a driver and nothing that the driver makes of it, beside others of its model that
/// have RDMA devices. Needs neither baseline nor policy.
pub fn dead(view: &View<'_>, verdicts: &mut Verdicts) {
    let with_device: BTreeSet<PciAddress> =
        view.snapshot.devices().filter_map(|device| device.identity.pci_address).collect();
    let functions = || view.snapshot.all::<PciFunction>();
    for function in functions().filter(|function| function.is_idle && !with_device.contains(&function.address)) {
        let same = |other: &&PciFunction| {
            with_device.contains(&other.address) && other.ids == function.ids && other.driver == function.driver
        };
        let siblings = functions().filter(same).count();
        let (Some(driver), Some(_), true) = (&function.driver, function.ids, siblings > 0) else { continue };
        let address = function.address;
        let summary = format!(
            "{address} has its driver ({driver}) and neither an RDMA device nor an interface, while {} of its model on \
             this host work: its firmware or driver failed. Read the kernel log for {address}, then unbind and bind its \
             driver or power-cycle the host.",
            counted(siblings, "function"),
        );
        let (subject, reason) = (Subject::Pci(address), FindingReason::NoRdmaDevice);
        let condition = Condition::new(Check::DeviceMissing, subject, Severity::Critical, reason, summary);
        verdicts.found(condition.address(Some(address)).hold(DEVICE_HOLD));
    }
}

fn gone(name: DeviceName, reason: FindingReason, summary: String) -> Condition {
    Condition::new(Check::DeviceMissing, Subject::Device(name), Severity::Critical, reason, summary).hold(DEVICE_HOLD)
}
