//! Devices that should be there.

use std::collections::BTreeSet;

use super::View;
use super::limits::{DEVICE_HOLD, NO_DRIVER_HOLD};
use super::verdicts::Verdicts;
use crate::model::check::{Check, Severity};
use crate::model::finding::{Condition, Subject};
use crate::model::ids::{DeviceName, Guid, PciAddress};
use crate::model::kmsg::{KernelLog, MessageKind};
use crate::model::pcie::{PciFunction, RdmaCard};
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
            "{address} is bound to {driver} but has neither an RDMA device nor an interface, although {} of its model work on this host: its firmware or driver failed. Check the kernel log for {address}, then unbind and bind its \
             driver or power-cycle the host.",
            counted(siblings, "function"),
        );
        let (subject, reason) = (Subject::Pci(address), FindingReason::NoRdmaDevice);
        let condition = Condition::new(Check::DeviceMissing, subject, Severity::Critical, reason, summary);
        verdicts.found(condition.address(Some(address)).hold(DEVICE_HOLD));
    }
}

/// `device_no_driver`: a card that can do RDMA, without a driver, or with one that has made no RDMA device of it. A card
/// that was given to a guest or a program has a driver for that.
pub fn without_driver(view: &View<'_>, verdicts: &mut Verdicts) {
    let mut cards: Vec<&RdmaCard> = view.snapshot.all().collect();
    cards.sort_by_key(|card| card.address);
    for card in cards {
        let subject = Subject::Pci(card.address);
        match unused(view, card) {
            None => verdicts.skipped(Check::DeviceNoDriver),
            Some((severity, reason, summary)) => {
                let condition = Condition::new(Check::DeviceNoDriver, subject, severity, reason, summary);
                let (vendor, device) = card.ids;
                verdicts.found(
                    condition
                        .address(Some(card.address))
                        .with_evidence("pci_id", Some(format!("{vendor:04x}:{device:04x}")))
                        .with_evidence("driver", card.driver.as_deref())
                        .hold(NO_DRIVER_HOLD),
                );
            }
        }
    }
}

/// Why a card is of no use as it is; `None` if nothing is wrong with it.
fn unused(view: &View<'_>, card: &RdmaCard) -> Option<(Severity, FindingReason, String)> {
    let address = card.address;
    let siblings = siblings(view, card.ids);
    let beside = if siblings > 0 {
        format!(", although {} of its model work on this host", counted(siblings, "function"))
    } else {
        String::new()
    };
    let (vendor, device) = card.ids;
    let kind = if card.class.is_fabric() { "an RDMA card" } else { "an RDMA-capable network card" };
    let name = format!("{address} ({vendor:04x}:{device:04x}), {kind},");
    if let Some(driver) = &card.driver {
        // Cards that run Ethernet need no RDMA device.
        if !card.class.is_fabric() || is_given_away(driver) {
            return None;
        }
        if card.lacks_rdma_driver {
            let module = if **driver == *"mlx5_core" { "mlx5_ib" } else { "its RDMA module" };
            let text = format!("{name} is bound to {driver} but has no RDMA device: load {module}.");
            return Some((Severity::Warning, FindingReason::NoRdmaDevice, text));
        }
        // Beside others that work, device_missing says it.
        if !card.is_idle || siblings > 0 {
            return None;
        }
        let text = format!(
            "{name} is bound to {driver} but has neither an RDMA device nor an interface. Check the kernel log for {address}: the driver or the firmware failed, or the driver's RDMA module is not loaded."
        );
        return Some((Severity::Warning, FindingReason::NoRdmaDevice, text));
    }
    let failed = |log: &KernelLog| {
        let of_card = |group: &&crate::model::kmsg::MessageGroup| {
            group.kind == MessageKind::ProbeFailed && group.address == Some(address)
        };
        log.groups.iter().find(of_card).map(|group| group.text.to_string())
    };
    if let Some(text) = view.snapshot.all::<KernelLog>().find_map(failed) {
        let text = format!(
            "{name} has no driver{beside}: its probe failed (\"{text}\"). Reset the card or power-cycle the host; if it \
             fails again, update firmware and driver."
        );
        return Some((Severity::Warning, FindingReason::ProbeFailed, text));
    }
    let text = format!(
        "{name} has no driver{beside}: check `dmesg` for {address}, then load its driver (`lspci -k -s {address}` names it). \
         If it is unused on purpose, add a policy exception."
    );
    let severity = if siblings > 0 || card.class.is_fabric() { Severity::Warning } else { Severity::Info };
    Some((severity, FindingReason::NoDriver, text))
}

/// Functions with these identifiers that have an RDMA device.
fn siblings(view: &View<'_>, ids: (u16, u16)) -> usize {
    let with_device: BTreeSet<PciAddress> =
        view.snapshot.devices().filter_map(|device| device.identity.pci_address).collect();
    let same = |function: &&PciFunction| function.ids == Some(ids) && with_device.contains(&function.address);
    view.snapshot.all::<PciFunction>().filter(same).count()
}

/// Whether a driver holds a card for a guest or for a program in user space.
fn is_given_away(driver: &str) -> bool {
    driver.contains("vfio") || driver.contains("uio") || matches!(driver, "pci-stub" | "pciback")
}

fn gone(name: DeviceName, reason: FindingReason, summary: String) -> Condition {
    Condition::new(Check::DeviceMissing, Subject::Device(name), Severity::Critical, reason, summary).hold(DEVICE_HOLD)
}
