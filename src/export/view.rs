//! A report as it is shown: its devices in natural order, findings under their causes, and what is unknown.

use std::collections::BTreeMap;

use serde_json::Value;

use super::agent::{AgentState, Process};
use crate::assess::capacity::PortCapacity;
use crate::model::check::Check;
use crate::model::finding::{Condition, Finding, Subject};
use crate::model::ids::{PciAddress, PortKey};
use crate::model::pcie::{FunctionKind, PciFunction};
use crate::model::rdma::{Port, RdmaDevice};
use crate::model::reading::ReadError;
use crate::model::sriov::Pf;
use crate::model::units::BytesPerSecond;
use crate::watch::HostReport;

/// A report, its devices and functions in natural order, and the agent's own state.
pub struct ReportView<'a> {
    /// The report.
    pub report: &'a HostReport,
    /// The agent.
    pub agent: &'a AgentState,
    /// The agent's process.
    pub process: Process,
    /// RDMA devices in natural order of their names.
    pub devices: Vec<&'a RdmaDevice>,
    /// Their ports.
    pub ports: Vec<PortView<'a>>,
    /// PCI functions in order of their addresses.
    pub functions: Vec<&'a PciFunction>,
    /// PFs in order of their addresses.
    pub pfs: Vec<&'a Pf>,
}

/// One port with its device and what its path leaves of its rate.
pub struct PortView<'a> {
    /// The device.
    pub device: &'a RdmaDevice,
    /// The port.
    pub port: &'a Port,
    /// Rate, ceiling and share.
    pub lane: Option<&'a PortCapacity>,
    /// Whether it is a VF's, of which there may be hundreds: states and rate are shown, the PF counts the traffic.
    pub brief: bool,
}

impl<'a> ReportView<'a> {
    /// Sorts what a report has. Of things that claim the same name the first stands: a series must be unique.
    pub fn new(report: &'a HostReport, agent: &'a AgentState, process: Process) -> Self {
        let mut devices: Vec<&RdmaDevice> = report.snapshot.devices().collect();
        devices.sort_by(|a, b| a.name.cmp(&b.name));
        devices.dedup_by(|a, b| a.name == b.name);
        let mut functions: Vec<&PciFunction> = report.snapshot.all().collect();
        functions.sort_by_key(|function| function.address);
        functions.dedup_by_key(|function| function.address);
        let mut ports = Vec::with_capacity(devices.len());
        for device in &devices {
            let first = ports.len();
            let at = device.identity.pci_address.and_then(|address| {
                let index = functions.binary_search_by_key(&address, |function| function.address).ok()?;
                functions.get(index)
            });
            let is_vf = at.is_some_and(|function| matches!(function.kind, FunctionKind::Virtual { pf: Some(_) }));
            let brief = is_vf && !agent.vf_ports;
            for port in &device.ports {
                let key = PortKey { device: device.name.clone(), port: port.number };
                ports.push(PortView { device, port, lane: report.lanes.ports.get(&key), brief });
            }
            if let Some(of_device) = ports.get_mut(first..) {
                of_device.sort_by_key(|row| row.port.number);
            }
        }
        ports.dedup_by(|a, b| a.port.number == b.port.number && a.device.name == b.device.name);
        let mut pfs: Vec<&Pf> = report.snapshot.all().collect();
        pfs.sort_by_key(|pf| pf.address);
        pfs.dedup_by_key(|pf| pf.address);
        Self { report, agent, process, devices, ports, functions, pfs }
    }

    /// The PCI function at an address, if it is watched.
    pub fn function(&self, address: PciAddress) -> Option<&'a PciFunction> {
        let index = self.functions.binary_search_by_key(&address, |function| function.address).ok()?;
        self.functions.get(index).copied()
    }
}

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
        (check @ (Check::PortFlapping | Check::PortErrors | Check::LinkQuality), port @ Subject::Port(_)) => {
            let causes = [Check::PortDown, Check::LinkQuality];
            let is_cause = |f: &Finding, cause: Check| f.condition.check == cause && f.condition.subject == *port;
            let position = |cause: Check| report.findings.iter().position(|finding| is_cause(finding, cause));
            causes.into_iter().take_while(|cause| *cause != check).find_map(position)
        }
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
        (Check::PortFlapping, ..) => "it lost its link and got it back, too".to_owned(),
        (Check::PortErrors, ..) => "its error counters rise, too".to_owned(),
        (Check::LinkQuality, ..) => "it had too many errors before".to_owned(),
        (Check::PcieDrifted, ..) => format!("below the {}", condition.reason),
        _ => {
            let end = condition.summary.find([';', ':']).unwrap_or(condition.summary.len());
            condition.summary.get(..end).unwrap_or_default().to_owned()
        }
    }
}

/// A subject about which something is unknown.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct UnknownGroup<'a> {
    /// The subject.
    pub(super) subject: &'a Subject,
    /// The checks without a verdict.
    pub(super) checks: Vec<Check>,
    /// Why it could not be read; `None` if the host does not report it.
    pub(super) reason: Option<ReadError>,
}

impl UnknownGroup<'_> {
    /// Why, in words.
    pub(super) fn why(&self) -> String {
        match self.reason {
            None => "not reported by the host".to_owned(),
            Some(ReadError::NotSupported) => "not supported by the driver".to_owned(),
            Some(ReadError::Permission) => "permission denied".to_owned(),
            Some(ReadError::Io) => "I/O error".to_owned(),
            Some(ReadError::Gone) => "disappeared while being read".to_owned(),
            Some(ReadError::Timeout) => "not responding".to_owned(),
            Some(ReadError::Malformed) => "unexpected file format".to_owned(),
            Some(ReadError::Quarantined) => "repeatedly rejected by the driver".to_owned(),
        }
    }

    /// The names of the checks.
    pub(super) fn checks(&self) -> String {
        self.checks.iter().map(|check| check.as_str()).collect::<Vec<_>>().join(", ")
    }
}

/// Every subject about which something is unknown that hosts usually report, in the order of the checks.
pub(super) fn unknowns(report: &HostReport) -> Vec<UnknownGroup<'_>> {
    let mut unknowns: Vec<UnknownGroup<'_>> = Vec::new();
    for undecided in report.undecided.iter().filter(|undecided| undecided.due) {
        let same =
            |group: &&mut UnknownGroup<'_>| *group.subject == undecided.subject && group.reason == undecided.reason;
        match unknowns.iter_mut().find(same) {
            Some(group) if group.checks.contains(&undecided.check) => {}
            Some(group) => group.checks.push(undecided.check),
            None => {
                unknowns.push(UnknownGroup {
                    subject: &undecided.subject,
                    checks: vec![undecided.check],
                    reason: undecided.reason,
                });
            }
        }
    }
    unknowns
}

/// The first of them in one line: `mlx5_0/1 and mlx5_1/1 (I/O error), 0000:b2:00.0 (…) and 3 more`.
pub(super) fn summarize(unknowns: &[&UnknownGroup<'_>]) -> Option<String> {
    const SHOWN: usize = 3;
    let mut by_reason: Vec<(String, Vec<String>)> = Vec::new();
    for group in unknowns.iter().take(SHOWN) {
        let (why, name) = (group.why(), group.subject.to_string());
        match by_reason.iter_mut().find(|(known, _)| *known == why) {
            Some((_, names)) => names.push(name),
            None => by_reason.push((why, vec![name])),
        }
    }
    let parts: Vec<String> = by_reason.iter().map(|(why, names)| format!("{} ({why})", names.join(", "))).collect();
    let more = unknowns.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!parts.is_empty()).then(|| format!("{}{more}", parts.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::testing;
    use crate::model::finding::UnknownSubject;
    use crate::model::ids::DeviceName;

    fn undecided(check: Check, device: &str, reason: Option<ReadError>, due: bool) -> UnknownSubject {
        UnknownSubject { check, subject: Subject::Device(DeviceName::new(device)), reason, due }
    }

    #[test]
    fn one_line_a_subject_and_reason() {
        let mut report = testing::report();
        report.undecided = vec![
            undecided(Check::PortDown, "a", Some(ReadError::Io), true),
            undecided(Check::PortRateLow, "a", Some(ReadError::Io), true),
            undecided(Check::PortRateLow, "a", Some(ReadError::Io), true),
            undecided(Check::PortDown, "b", Some(ReadError::Io), true),
            undecided(Check::PcieDegraded, "c", None, false),
            undecided(Check::PcieDegraded, "d", None, true),
            undecided(Check::PortDown, "e", Some(ReadError::Timeout), true),
        ];
        let found = unknowns(&report);
        let subjects: Vec<String> = found.iter().map(|group| group.subject.to_string()).collect();
        assert_eq!(subjects, ["a", "b", "d", "e"]);
        assert_eq!(found[0].checks(), "port_down, port_rate_low");
        let all: Vec<&UnknownGroup<'_>> = found.iter().collect();
        let line = "a, b (I/O error), d (not reported by the host) and 1 more";
        assert_eq!(summarize(&all).as_deref(), Some(line));
        assert_eq!(summarize(&[]), None);
    }
}
