//! What is unknown, put together for people: one line a subject and reason.

use crate::model::check::Check;
use crate::model::finding::Subject;
use crate::model::reading::ReadError;
use crate::watch::HostReport;

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
            Some(ReadError::Gone) => "it disappeared".to_owned(),
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
