//! Kernel messages of the last hour about watched hardware.

use std::collections::BTreeMap;
use std::time::Duration;

use super::limits::REPORTER_HOLD;
use super::verdicts::Verdicts;
use super::{View, module_messages};
use crate::model::check::{Check, Severity};
use crate::model::finding::{Condition, Subject};
use crate::model::health::{FunctionHealth, Reporter};
use crate::model::host::NumaNode;
use crate::model::ids::{DeviceName, PciAddress};
use crate::model::kmsg::{KernelLog, MessageGroup, MessageKind};
use crate::model::pcie::{PciFunction, RdmaCard};
use crate::model::snapshot::Snapshot;
use crate::model::sriov::{Pf, Vf};
use crate::model::time::BootTime;
use crate::model::units::{counted, counted_as, times};

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
        if group.kind == MessageKind::LinkUp || !is_ours(view.snapshot, log, group) {
            continue;
        }
        if !module_messages::join(view, verdicts, group, advice_for(group)) {
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
                format!("{} (no device named)", worst.driver.as_str())
            }
            subject => name(view.snapshot, subject),
        };
        let summary = format!(
            "{who}: kernel logged {} in the last hour{others}: \"{}\". {}",
            seen(worst),
            worst.text,
            advice_for(worst)
        );
        let device = worst.device.clone().or_else(|| worst.address.and_then(|at| device_at(view.snapshot, at)));
        verdicts.found(
            Condition::new(Check::KernelMessage, subject, severity, worst.kind.into(), summary)
                .device(device)
                .address(worst.address)
                .with_evidence("driver", Some(worst.driver.as_str()))
                .with_evidence("count", Some(worst.count))
                .with_evidence("last_seconds_ago", worst.last().map(|last| now.since(last).as_secs()))
                .with_evidence("text", Some(&*worst.text)),
        );
    }
}

/// Whether a message is about hardware that is watched: a watched function, a port above one, a VF of one, an RDMA
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
        Some(address) => {
            functions.any(|other| beside(other, address))
                || vf_at(snapshot, address).is_some()
                || snapshot.all::<Pf>().any(|pf| pf.address == address)
                || snapshot.all::<RdmaCard>().any(|card| card.address == address)
        }
        None => group.of_rdma && snapshot.devices().next().is_some(),
    }
}

/// The VF that has an address.
fn vf_at(snapshot: &Snapshot, address: PciAddress) -> Option<(&Pf, &Vf)> {
    snapshot.all::<Pf>().find_map(|pf| Some((pf, pf.vfs.iter().find(|vf| vf.address == Some(address))?)))
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
    let Subject::Pci(address) = subject else { return subject.to_string() };
    if let Some(device) = device_at(snapshot, *address) {
        return format!("{device} ({subject})");
    }
    match vf_at(snapshot, *address) {
        Some((pf, vf)) => {
            let of = pf.devices.first().map_or_else(|| pf.address.to_string(), ToString::to_string);
            format!("VF {} of {of} ({subject})", vf.number)
        }
        None => subject.to_string(),
    }
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
    format!("{} {}", title(group.kind), times(group.count))
}

/// A kind of message in words.
const fn title(kind: MessageKind) -> &'static str {
    match kind {
        MessageKind::DeviceHealth => "a failed device",
        MessageKind::FirmwareFatal => "a fatal firmware error",
        MessageKind::CommandTimeout => "a command timeout",
        MessageKind::AerFatal => "a fatal PCIe error",
        MessageKind::Dpc => "a PCIe link cut off (DPC)",
        MessageKind::AerNonfatal => "a non-fatal PCIe error",
        MessageKind::IommuFault => "an IOMMU fault",
        MessageKind::CommandFailed => "a refused command",
        MessageKind::ProbeFailed => "a failed driver probe",
        MessageKind::PcieBandwidthLimited => "limited PCIe bandwidth",
        MessageKind::CardRemoved => "a card that left its slot",
        MessageKind::SlotPower => "too little slot power",
        MessageKind::ModuleError => "a module error",
        MessageKind::ModuleHot => "a hot module",
        MessageKind::ModuleFault => "a module that does not respond",
        MessageKind::ModulePower => "a module over its power budget",
        MessageKind::ModuleUnsupported => "an unsupported module",
        MessageKind::CableFault => "a cable fault",
        MessageKind::HighTemperature => "a high temperature",
        MessageKind::TxTimeout => "a transmit timeout",
        MessageKind::MediaMisconfigured => "a misconfigured port",
        MessageKind::VfioError => "a pass-through error",
        MessageKind::VfResetFailed => "a failed function reset",
        MessageKind::SriovFailed => "VFs that could not be created",
        MessageKind::RemovalBlocked => "a blocked removal",
        MessageKind::QpError => "a queue pair error",
        MessageKind::PcieSlotPower => "low slot power",
        MessageKind::ModulePlugged => "a module change",
        MessageKind::RegisterDenied => "a denied register access",
        MessageKind::FirmwareReset => "a firmware reset",
        MessageKind::VfReset => "a VF reset",
        MessageKind::VfDenied => "a denied VF request",
        MessageKind::LinkUp => "link up",
        MessageKind::LinkDown => "link down",
        MessageKind::AerCorrectable => "a corrected PCIe error",
    }
}

/// What to do about a message: as for its kind, where its words say no more.
fn advice_for(group: &MessageGroup) -> &'static str {
    match group.kind {
        MessageKind::ModulePlugged if group.text.contains("nplugged") || group.text.contains("removed") => {
            "If nobody unplugged it, reseat the cable or the module."
        }
        MessageKind::ModulePlugged if group.text.contains("disabled") => {
            "The port's module is switched off: by software, or by the firmware after an error logged before this line."
        }
        kind => advice(kind),
    }
}

/// What to do about a kind of message.
pub(super) fn advice(kind: MessageKind) -> &'static str {
    match kind {
        MessageKind::DeviceHealth | MessageKind::FirmwareFatal => {
            "The card's firmware failed: drain the host, update the firmware, and replace the card if it happens again."
        }
        MessageKind::CommandTimeout => {
            "The firmware does not respond to the driver: drain the host and reset the card."
        }
        MessageKind::AerFatal | MessageKind::Dpc => "The PCIe link failed: reseat the card, then check riser and slot.",
        MessageKind::AerNonfatal => "PCIe transactions were lost: check riser, slot and card.",
        MessageKind::AerCorrectable => {
            "The link corrected the error; frequent errors mean a bad contact, so reseat the card."
        }
        MessageKind::IommuFault => {
            "The device accessed memory it has no access to: check its driver, or the guest that uses it."
        }
        MessageKind::PcieBandwidthLimited => {
            "The link it names carries less than the card supports: see the pcie_* findings of this device."
        }
        MessageKind::CommandFailed => {
            "The firmware rejects commands that connections need: update the firmware, then reset the card or reload its driver."
        }
        MessageKind::ProbeFailed => {
            "The driver could not initialise the card: read the log lines before this one, power-cycle the host, then update \
             the firmware."
        }
        MessageKind::CardRemoved => {
            "The card left its slot or lost its link: check its seating, the riser and the slot's power."
        }
        MessageKind::SlotPower => {
            "The slot does not give enough power: use a slot or riser with more power, connect the card's power cable, \
             check the BIOS power settings, or use a module that draws less."
        }
        MessageKind::ModuleError | MessageKind::MediaMisconfigured => "Check cable and module of this port.",
        MessageKind::ModuleHot => "The module is too hot: check airflow and fans; the firmware may switch it off.",
        MessageKind::ModuleFault => "The module does not respond: reseat it, then replace it.",
        MessageKind::ModulePower => {
            "The module draws more power than its cage may give: use one of a lower power class, or a card that allows it."
        }
        MessageKind::ModuleUnsupported => {
            "The card does not accept this module: use one from the vendor's list, or update the firmware."
        }
        MessageKind::CableFault => "The cable is bad or shorted: replace it.",
        MessageKind::HighTemperature => "Check the airflow at this slot.",
        MessageKind::TxTimeout => "A queue has stopped: check interrupts, firmware and pause frames of this port.",
        MessageKind::VfResetFailed => {
            "The function did not come back from its reset: stop the guest that uses it and reset the function again; if \
             that fails, restart the host."
        }
        MessageKind::SriovFailed => {
            "The VFs could not be created: check SR-IOV, MMIO above 4 GB and bus numbers in the BIOS, or create fewer."
        }
        MessageKind::RemovalBlocked => "A process still uses the function: stop the guest or process, then remove it.",
        MessageKind::VfioError => "The function could not be restored: restart the guest that uses it, or the host.",
        MessageKind::QpError => {
            "A connection failed. If the other end is healthy, the two ends disagree about addresses or keys."
        }
        MessageKind::PcieSlotPower => "Healthy cards log this, too; it matters only together with other faults.",
        MessageKind::ModulePlugged | MessageKind::LinkUp | MessageKind::LinkDown => {
            "If nobody was working on the link, check cable, module and switch port."
        }
        MessageKind::RegisterDenied => {
            "A tool read a register that this function may not access: exclude the function in that tool."
        }
        MessageKind::FirmwareReset => "The firmware was reset: by an operator, a tool or the driver.",
        MessageKind::VfReset => {
            "A VF was reset. If this happens often, the guest and the PF usually disagree about its settings."
        }
        MessageKind::VfDenied => {
            "A guest requested something that its VF is not allowed to do: check the VF's trust setting and MAC address."
        }
    }
}

/// `kernel_message`: a reporter whose error is not fixed is a message that still holds. Where the log has a finding on
/// the function already, it is one with that, as bad as the worse of the two.
pub fn reporters(view: &View<'_>, verdicts: &mut Verdicts) {
    for health in view.snapshot.all::<FunctionHealth>() {
        let mut broken: Vec<(Severity, MessageKind, &Reporter)> = health
            .reporters
            .iter()
            .filter(|reporter| reporter.in_error)
            .map(|reporter| {
                let (kind, severity) = kind(&reporter.name);
                (severity, kind, reporter)
            })
            .collect();
        broken.sort_by_key(|(severity, kind, _)| (std::cmp::Reverse(*severity), *kind));
        let Some((severity, kind, worst)) = broken.first().copied() else {
            verdicts.ok(Check::KernelMessage);
            continue;
        };
        let condition = condition(health, &broken, severity, kind, worst);
        let said = verdicts
            .conditions
            .iter_mut()
            .find(|known| known.check == condition.check && known.subject == condition.subject);
        match said {
            Some(known) => join(known, condition),
            None => verdicts.found(condition),
        }
    }
}

fn condition(
    health: &FunctionHealth,
    broken: &[(Severity, MessageKind, &Reporter)],
    severity: Severity,
    kind: MessageKind,
    worst: &Reporter,
) -> Condition {
    let FunctionHealth { pci_address, device, .. } = health;
    let names: Vec<&str> = broken.iter().map(|(_, _, reporter)| &*reporter.name).collect();
    let summary = format!(
        "{device} ({pci_address}): the driver's health reporter {} is in error ({}, {}). {} Details: `devlink \
         health show pci/{pci_address} reporter {}`.",
        names.join(", "),
        counted(worst.errors, "error"),
        counted_as(worst.recoveries, "recovery", "recoveries"),
        advice(kind),
        worst.name,
    );
    Condition::new(Check::KernelMessage, Subject::Pci(*pci_address), severity, kind.into(), summary)
        .device(Some(device.clone()))
        .with_evidence("reporter", Some(&*worst.name))
        .with_evidence("reporter_errors", Some(worst.errors))
        .with_evidence("reporter_recoveries", Some(worst.recoveries))
        .hold(REPORTER_HOLD)
}

/// Adds what a reporter says to what the log says.
fn join(known: &mut Condition, more: Condition) {
    if more.severity > known.severity {
        (known.severity, known.reason) = (more.severity, more.reason);
    }
    known.summary.push(' ');
    known.summary.push_str(&more.summary);
    known.evidence.extend(more.evidence);
    known.device = known.device.take().or(more.device);
}

/// What an error of a reporter of this name means. Those of a firmware are its end; of queues, that one stood still;
/// what others mean is their driver's to know, and no more than a warning.
fn kind(name: &str) -> (MessageKind, Severity) {
    match name {
        "fw_fatal" => (MessageKind::FirmwareFatal, Severity::Critical),
        "fw" => (MessageKind::DeviceHealth, Severity::Critical),
        "tx" | "tx_hang" => (MessageKind::TxTimeout, Severity::Warning),
        _ => (MessageKind::DeviceHealth, Severity::Warning),
    }
}

#[cfg(test)]
mod kmsg_tests {
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

#[cfg(test)]
mod health_tests {
    use std::sync::Arc;

    use super::*;
    use crate::assess::testing::seen;
    use crate::model::finding::Hold;
    use crate::model::ids::DeviceName;
    use crate::model::reason::FindingReason;

    fn reporter(name: &str, in_error: bool) -> Reporter {
        Reporter { name: Arc::from(name), in_error, errors: 3, recoveries: 2, auto_recover: Some(true) }
    }

    fn judged(reporters: Vec<Reporter>, before: Vec<Condition>) -> Verdicts {
        let address = "0000:81:00.0".parse().unwrap();
        let health = FunctionHealth { pci_address: address, device: DeviceName::new("mlx5_0"), reporters };
        seen(vec![Arc::new(health)], |view| {
            let mut verdicts = Verdicts { conditions: before, ..Verdicts::default() };
            reporters_of(view, &mut verdicts);
            verdicts
        })
    }

    use super::reporters as reporters_of;

    #[test]
    fn reporters_that_are_well_are_no_finding_however_often_they_recovered() {
        let verdicts = judged(vec![reporter("fw", false), reporter("tx", false)], Vec::new());
        assert_eq!((verdicts.conditions.len(), verdicts.settled[&Check::KernelMessage]), (0, (1, 0)));
    }

    #[test]
    fn a_reporter_in_error_is_a_finding_by_what_it_reports() {
        for (name, reason, severity) in [
            ("fw_fatal", "firmware_fatal", Severity::Critical),
            ("fw", "device_health", Severity::Critical),
            ("tx", "tx_timeout", Severity::Warning),
            ("vnic", "device_health", Severity::Warning),
        ] {
            let verdicts = judged(vec![reporter("rx", false), reporter(name, true)], Vec::new());
            let [condition] = &verdicts.conditions[..] else { panic!("{name}") };
            assert_eq!((condition.reason.as_str(), condition.severity), (reason, severity), "{name}");
            assert_eq!(condition.subject.to_string(), "0000:81:00.0");
            assert_eq!(condition.device, Some(DeviceName::new("mlx5_0")));
            assert!(condition.summary.contains(&format!("reporter {name} is in error (3 errors, 2 recoveries)")));
        }
        let verdicts = judged(vec![reporter("tx", true), reporter("fw_fatal", true)], Vec::new());
        let [condition] = &verdicts.conditions[..] else { panic!() };
        assert_eq!(condition.reason, FindingReason::FirmwareFatal);
        assert!(condition.summary.contains("reporter fw_fatal, tx is in error"), "{}", condition.summary);
    }

    #[test]
    fn what_the_log_says_of_the_function_is_the_same_finding() {
        let subject = Subject::Pci("0000:81:00.0".parse().unwrap());
        let said = |severity| {
            Condition::new(
                Check::KernelMessage,
                subject.clone(),
                severity,
                FindingReason::LinkDown,
                "The log said it.".to_owned(),
            )
        };
        let verdicts = judged(vec![reporter("fw", true)], vec![said(Severity::Info)]);
        let [condition] = &verdicts.conditions[..] else { panic!() };
        assert_eq!((condition.reason.as_str(), condition.severity), ("device_health", Severity::Critical));
        assert!(condition.summary.starts_with("The log said it. mlx5_0 (0000:81:00.0): "), "{}", condition.summary);
        assert_eq!(condition.hold, Hold::None, "what the log says is not made to wait");
        let verdicts = judged(vec![reporter("tx", true)], vec![said(Severity::Critical)]);
        assert_eq!((verdicts.conditions[0].reason.as_str(), verdicts.conditions.len()), ("link_down", 1));
    }
}
