//! What the kernel said within the last hour.

use std::collections::BTreeMap;
use std::time::Duration;

use super::View;
use super::verdicts::Verdicts;
use crate::model::check::{Check, Severity};
use crate::model::count::times;
use crate::model::finding::{Condition, Subject};
use crate::model::ids::{DeviceName, PciAddress};
use crate::model::kmsg::{KernelLog, MessageGroup, MessageKind};
use crate::model::numa::NumaNode;
use crate::model::pcie::PciFunction;
use crate::model::snapshot::Snapshot;
use crate::model::time::BootTime;

const MINUTE: Duration = Duration::from_secs(60);

/// How often in how long makes a harmless message a warning.
const STORMS: [(MessageKind, usize, Duration); 2] =
    [(MessageKind::LinkDown, 3, Duration::from_secs(600)), (MessageKind::VfReset, 5, MINUTE)];

/// `kernel_message`: messages under an hour old, one finding for each thing that they are about.
pub fn messages(view: &View<'_>, verdicts: &mut Verdicts) {
    let Some(log) = view.snapshot.all::<KernelLog>().next() else { return };
    let now = view.snapshot.taken.tick;
    let mut subjects: BTreeMap<Subject, Vec<(Severity, &MessageGroup)>> = BTreeMap::new();
    for group in &log.groups {
        // That a link is up is no trouble.
        if group.kind != MessageKind::LinkUp && is_ours(view.snapshot, log, group) {
            subjects.entry(subject(group)).or_default().push((severity(group, now), group));
        }
    }
    for (subject, mut said) in subjects {
        said.sort_by_key(|(severity, group)| (std::cmp::Reverse(*severity), group.kind));
        let Some((severity, worst)) = said.first().copied() else { continue };
        let others: Vec<String> = said.iter().skip(1).map(|(_, group)| seen(group)).collect();
        let others = if others.is_empty() { String::new() } else { format!(" (and {})", others.join(", ")) };
        let who = match &subject {
            _ if worst.address.is_none() && worst.device.is_none() => {
                format!("{} names no device", worst.driver.as_str())
            }
            subject => name(view.snapshot, subject),
        };
        let summary = format!(
            "{who}: the kernel said {} within the last hour{others}: \"{}\". {}",
            seen(worst),
            worst.text,
            advice(worst.kind)
        );
        let device = worst.device.clone().or_else(|| worst.address.and_then(|at| device_at(view.snapshot, at)));
        verdicts.found(
            Condition::new(Check::KernelMessage, subject, severity, worst.kind.as_str(), summary)
                .device(device)
                .address(worst.address)
                .with_evidence("driver", Some(worst.driver.as_str()))
                .with_evidence("count", Some(worst.count))
                .with_evidence("last_seconds_ago", worst.last().map(|last| now.since(last).as_secs()))
                .with_evidence("text", Some(&*worst.text)),
        );
    }
}

/// Whether a message is about hardware that is watched: a watched function, a port above one, a VF beside one, an RDMA
/// device. What an RDMA driver says that is critical counts wherever it is: a card that failed may no longer be there
/// to be watched. A log without a host (a text from somewhere) is taken at its word if an RDMA driver speaks in it.
fn is_ours(snapshot: &Snapshot, log: &KernelLog, group: &MessageGroup) -> bool {
    let mut functions = snapshot.all::<PciFunction>().map(|function| function.address).peekable();
    let has_host = functions.peek().is_some()
        || snapshot.system().is_some()
        || snapshot.all::<NumaNode>().next().is_some()
        || snapshot.devices().next().is_some();
    if !has_host {
        return log.groups.iter().any(|other| other.of_rdma);
    }
    if group.of_rdma && group.kind.severity() == Severity::Critical {
        return true;
    }
    let beside = |other: PciAddress, address: PciAddress| {
        other == address || (group.of_rdma && (other.domain, other.bus) == (address.domain, address.bus))
    };
    match group.address {
        Some(address) => functions.any(|other| beside(other, address)),
        None => group.of_rdma && snapshot.devices().next().is_some(),
    }
}

/// The address that the message names, else the device, else whoever spoke.
fn subject(group: &MessageGroup) -> Subject {
    let device = || group.device.clone().unwrap_or_else(|| DeviceName::new(group.driver.as_str()));
    group.address.map_or_else(|| Subject::Device(device()), Subject::Pci)
}

fn device_at(snapshot: &Snapshot, address: PciAddress) -> Option<DeviceName> {
    snapshot.devices().find(|device| device.identity.pci_address == Some(address)).map(|device| device.name.clone())
}

fn name(snapshot: &Snapshot, subject: &Subject) -> String {
    let device = if let Subject::Pci(address) = subject { device_at(snapshot, *address) } else { None };
    device.map_or_else(|| subject.to_string(), |device| format!("{device} ({subject})"))
}

fn severity(group: &MessageGroup, now: BootTime) -> Severity {
    let storms = STORMS.iter().any(|(kind, times, span)| {
        // The last so many lie within the span, and not long ago.
        let first = group.moments.len().checked_sub(*times).and_then(|at| group.moments.get(at));
        let last = group.last().unwrap_or(now);
        *kind == group.kind && first.is_some_and(|first| last.since(*first) <= *span)
    });
    if storms { Severity::Warning } else { group.kind.severity() }
}

fn seen(group: &MessageGroup) -> String {
    let kind = group.kind.as_str();
    format!("{kind} {}", times(group.count))
}

/// What to do about a kind of message.
pub(super) fn advice(kind: MessageKind) -> &'static str {
    match kind {
        MessageKind::DeviceHealth | MessageKind::FirmwareFatal => {
            "The card's firmware failed: drain the host, update the firmware, and replace the card if it comes again."
        }
        MessageKind::CommandTimeout => "The firmware no longer answers its driver: drain the host and reset the card.",
        MessageKind::AerFatal | MessageKind::Dpc => {
            "The PCIe link failed: reseat the card, then suspect riser and slot."
        }
        MessageKind::AerNonfatal => "PCIe transactions were lost: suspect riser, slot or card.",
        MessageKind::AerCorrectable => "The link repaired it; many mean a bad contact.",
        MessageKind::IommuFault => {
            "The device reached for memory that is not its own: look at its driver, or at the guest that holds it."
        }
        MessageKind::PcieBandwidthLimited => {
            "The link that it names carries less than the card could: look at pcie_* of this device."
        }
        MessageKind::ModuleError | MessageKind::MediaMisconfigured => "Look at cable and module of this port.",
        MessageKind::HighTemperature => "Look at the airflow of this slot.",
        MessageKind::TxTimeout => "A queue stands still: look at interrupts, firmware and pause frames of this port.",
        MessageKind::VfioError => {
            "The function could not be reset or restored: restart the guest that holds it, or the host."
        }
        MessageKind::QpError => {
            "A connection ended with an error: where the other end did not fail, the two disagree on identity or keys."
        }
        MessageKind::PcieSlotPower => "Cards that work say this too; of matter only with other trouble.",
        MessageKind::ModulePlugged | MessageKind::LinkUp | MessageKind::LinkDown => {
            "Look at cable, module and switch port if nobody was at work there."
        }
        MessageKind::RegisterDenied => "A tool asked a restricted function: leave that one out.",
        MessageKind::FirmwareReset => "Somebody or something reset the firmware.",
        MessageKind::VfReset => "A VF is being reset: often is a quarrel between guest and PF.",
        MessageKind::VfDenied => "A guest asked for what its VF may not: look at trust and MAC of the VF.",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::kmsg::MessageSource;

    fn group(kind: MessageKind, seconds: &[i64]) -> MessageGroup {
        MessageGroup {
            driver: MessageSource::Mlx5Core,
            kind,
            address: None,
            device: None,
            of_rdma: true,
            moments: seconds.iter().map(|second| BootTime(second * 1000)).collect(),
            count: seconds.len() as u64,
            text: Arc::from(""),
            sequence: None,
        }
    }

    #[test]
    fn often_is_worse_than_once() {
        let now = BootTime(2_000_000);
        assert_eq!(severity(&group(MessageKind::LinkDown, &[1, 2]), now), Severity::Info);
        assert_eq!(severity(&group(MessageKind::LinkDown, &[16, 1030, 1050, 1059]), now), Severity::Warning);
        assert_eq!(severity(&group(MessageKind::LinkDown, &[16, 1030, 1900]), now), Severity::Info);
        assert_eq!(severity(&group(MessageKind::VfReset, &[7, 8, 8, 9, 9]), now), Severity::Warning);
        assert_eq!(severity(&group(MessageKind::ModulePlugged, &[7, 8, 8, 9, 9]), now), Severity::Info);
        assert_eq!(severity(&group(MessageKind::AerFatal, &[7]), now), Severity::Critical);
    }
}
