//! What could not be judged, put together for people: one line a subject and reason.

use crate::model::check::Check;
use crate::model::finding::Subject;
use crate::model::reading::ReadError;
use crate::watch::HostReport;

/// A subject of which something is not known.
#[derive(Debug, PartialEq, Eq)]
pub struct Gap<'a> {
    /// Who.
    pub subject: &'a Subject,
    /// The checks that could not judge it.
    pub checks: Vec<Check>,
    /// Why it could not be read; none where the host says nothing.
    pub reason: Option<ReadError>,
}

impl Gap<'_> {
    /// Why, in words.
    pub fn why(&self) -> String {
        match self.reason {
            None => "the host does not say".to_owned(),
            Some(ReadError::NotSupported) => "the driver refuses to say".to_owned(),
            Some(ReadError::Permission) => "no permission to read it".to_owned(),
            Some(ReadError::Io) => "an input/output error".to_owned(),
            Some(ReadError::Gone) => "it went away".to_owned(),
            Some(ReadError::Timeout) => "it did not answer in time".to_owned(),
            Some(ReadError::Malformed) => "the file does not say what its format says".to_owned(),
            Some(ReadError::Quarantined) => "the driver refused it again and again".to_owned(),
        }
    }

    /// The names of the checks.
    pub fn checks(&self) -> String {
        self.checks.iter().map(|check| check.as_str()).collect::<Vec<_>>().join(", ")
    }
}

/// Every subject of which something is not known that a host says as a rule, in the order of the checks.
pub fn gaps(report: &HostReport) -> Vec<Gap<'_>> {
    let mut gaps: Vec<Gap<'_>> = Vec::new();
    for undecided in report.undecided.iter().filter(|undecided| undecided.due) {
        let same = |gap: &&mut Gap<'_>| *gap.subject == undecided.subject && gap.reason == undecided.reason;
        match gaps.iter_mut().find(same) {
            Some(gap) if gap.checks.contains(&undecided.check) => {}
            Some(gap) => gap.checks.push(undecided.check),
            None => {
                gaps.push(Gap { subject: &undecided.subject, checks: vec![undecided.check], reason: undecided.reason });
            }
        }
    }
    gaps
}

/// The first of them in one line: `mlx5_0/1 and mlx5_1/1 (an input/output error), 0000:b2:00.0 (…) and 3 more`.
pub fn first(gaps: &[&Gap<'_>]) -> Option<String> {
    const SHOWN: usize = 3;
    let mut by_reason: Vec<(String, Vec<String>)> = Vec::new();
    for gap in gaps.iter().take(SHOWN) {
        let (why, name) = (gap.why(), gap.subject.to_string());
        match by_reason.iter_mut().find(|(known, _)| *known == why) {
            Some((_, names)) => names.push(name),
            None => by_reason.push((why, vec![name])),
        }
    }
    let parts: Vec<String> = by_reason.iter().map(|(why, names)| format!("{} ({why})", names.join(", "))).collect();
    let more = gaps.len().saturating_sub(SHOWN);
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
        let found = gaps(&report);
        let subjects: Vec<String> = found.iter().map(|gap| gap.subject.to_string()).collect();
        assert_eq!(subjects, ["a", "b", "d", "e"]);
        assert_eq!(found[0].checks(), "port_down, port_rate_low");
        let all: Vec<&Gap<'_>> = found.iter().collect();
        let line = "a, b (an input/output error), d (the host does not say) and 1 more";
        assert_eq!(first(&all).as_deref(), Some(line));
        assert_eq!(first(&[]), None);
    }
}
