//! What drivers' health reporters say: the state behind what the kernel log says once.

use super::View;
use super::kmsg::advice;
use super::limits::REPORTER_HOLD;
use super::verdicts::Verdicts;
use crate::model::check::{Check, Severity};
use crate::model::finding::{Condition, Subject};
use crate::model::health::{FunctionHealth, Reporter};
use crate::model::kmsg::MessageKind;
use crate::model::units::{counted, counted_as};

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
mod tests {
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
