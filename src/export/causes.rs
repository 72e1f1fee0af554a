//! Which findings follow from another: a link that trained down holds every port back that sits behind it.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::model::check::Check;
use crate::model::finding::{Condition, Finding, Subject};
use crate::model::ids::PciAddress;
use crate::model::units::BytesPerSecond;
use crate::watch::HostReport;

/// A finding and those that follow from it: fixing the cause fixes them all.
#[derive(Debug)]
pub(super) struct FindingGroup<'a> {
    pub(super) cause: &'a Finding,
    pub(super) consequences: Vec<&'a Finding>,
}

/// Every finding once, under its cause. The groups are in the order of their worst members.
pub(super) fn groups(report: &HostReport) -> Vec<FindingGroup<'_>> {
    let findings = &report.findings;
    let mut order: Vec<usize> = Vec::new();
    let mut members: BTreeMap<usize, Vec<&Finding>> = BTreeMap::new();
    for (index, finding) in findings.iter().enumerate() {
        let cause = cause_of(report, index).unwrap_or(index);
        if !order.contains(&cause) {
            order.push(cause);
        }
        let members = members.entry(cause).or_default();
        if cause != index {
            members.push(finding);
        }
    }
    let group = |cause: usize| {
        let consequences = members.remove(&cause).unwrap_or_default();
        Some(FindingGroup { cause: findings.get(cause)?, consequences })
    };
    order.into_iter().filter_map(group).collect()
}

/// The index of the finding that a finding follows from; `None` if it is a cause itself.
fn cause_of(report: &HostReport, index: usize) -> Option<usize> {
    let of_link = |link: PciAddress, checks: &[Check]| {
        let find = |check: &Check| {
            let is_cause = |f: &Finding| f.condition.check == *check && f.condition.subject == Subject::Pci(link);
            report.findings.iter().position(is_cause)
        };
        checks.iter().find_map(find)
    };
    let condition = &report.findings.get(index)?.condition;
    match (condition.check, &condition.subject) {
        (Check::PcieBelowPortRate, _) => {
            let link = condition.evidence.get("limiting_pci_address").and_then(Value::as_str)?.parse().ok()?;
            of_link(link, &[Check::PcieOffBus, Check::PcieDegraded, Check::PcieLimitedBySlot, Check::PcieDrifted])
        }
        (Check::PcieDrifted, Subject::Pci(link)) => of_link(*link, &[Check::PcieOffBus, Check::PcieDegraded]),
        (Check::DeviceMissing, _) => of_link(condition.pci_address?, &[Check::PcieOffBus]),
        _ => None,
    }
}

/// What a consequence means for its subject, in a few words and without advice: that is the cause's to give.
pub(super) fn effect(condition: &Condition) -> String {
    let rate = |key: &str| condition.evidence.get(key).and_then(Value::as_f64).map(BytesPerSecond);
    match (condition.check, rate("path_bandwidth_bytes_per_second"), rate("port_rate_bytes_per_second")) {
        (Check::PcieBelowPortRate, Some(path), Some(port)) if path.0 < port.0 => format!("limited to {path} of {port}"),
        (Check::PcieBelowPortRate, Some(path), _) => format!("shares {path} with other active ports"),
        (Check::PcieDrifted, ..) => format!("below the {}", condition.reason),
        _ => {
            let end = condition.summary.find([';', ':']).unwrap_or(condition.summary.len());
            condition.summary.get(..end).unwrap_or_default().to_owned()
        }
    }
}
