//! Findings over time: a condition must hold before it is a finding, and be gone before it ends.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::model::check::Check;
use crate::model::finding::{Condition, Finding, Hold, Subject};
use crate::model::time::BootTime;

/// Passes closer together than this count as one: a scrape between two passes does not confirm a condition.
const APART: Duration = Duration::from_secs(4);

/// A finding of an earlier run whose condition is not seen within this time has ended; the next one is another.
const REMEMBERED: Duration = Duration::from_secs(5 * 60);

/// What identifies a condition.
pub type Key = (Check, Subject);

#[derive(Debug, Clone)]
struct Entry {
    condition: Condition,
    since: BootTime,
    seen: BootTime,
    passes: u32,
    counted: BootTime,
    holds: bool,
}

/// Every condition that holds, is waiting to hold, or has not been gone for long enough.
#[derive(Debug, Clone, Default)]
pub struct FindingTracker {
    entries: BTreeMap<Key, Entry>,
    restored: BTreeMap<(String, String), BootTime>,
    /// When the first pass was.
    first: Option<BootTime>,
}

/// What changed in one pass.
#[derive(Debug, Clone, Default)]
pub struct FindingChanges {
    /// Findings that began.
    pub began: Vec<Finding>,
    /// Findings that ended.
    pub ended: Vec<Finding>,
}

impl FindingTracker {
    /// Remembers findings of an earlier run by check and subject: where their condition still holds they go on
    /// without waiting, with their old beginning.
    pub fn restore(&mut self, findings: impl IntoIterator<Item = ((String, String), BootTime)>) {
        self.restored = findings.into_iter().collect();
    }

    /// Takes the conditions of a pass. `unseen` tells of conditions that could not be judged now, which stay as they
    /// were. `instant`: nothing waits.
    pub fn observe(
        &mut self,
        now: BootTime,
        conditions: Vec<Condition>,
        unseen: impl Fn(&Condition) -> bool,
        instant: bool,
    ) -> FindingChanges {
        let mut changes = FindingChanges::default();
        if now.since(*self.first.get_or_insert(now)) > REMEMBERED {
            self.restored.clear();
        }
        for condition in conditions {
            let key = (condition.check, condition.subject.clone());
            let entry = self.entries.entry(key).or_insert_with(|| {
                let name = (condition.check.as_str().to_owned(), condition.subject.to_string());
                let earlier = self.restored.remove(&name);
                Entry {
                    condition: condition.clone(),
                    since: earlier.unwrap_or(now),
                    seen: now,
                    passes: 0,
                    counted: now - APART,
                    holds: earlier.is_some(),
                }
            });
            entry.seen = now;
            if now.since(entry.counted) >= APART {
                entry.passes += 1;
                entry.counted = now;
            }
            entry.condition = condition;
            if !entry.holds && (instant || entry.held_long_enough(now)) {
                entry.holds = true;
                changes.began.push(entry.finding());
            }
        }
        self.entries.retain(|_, entry| {
            let quiet = || entry.holds && now.since(entry.seen) < entry.condition.clear_after;
            let here = entry.seen == now || quiet() || unseen(&entry.condition);
            if !here && entry.holds {
                changes.ended.push(entry.finding());
            }
            here
        });
        changes
    }

    /// Lets findings whose condition is gone end in the next pass: someone said that what is there is meant.
    pub fn clear_at_once(&mut self) {
        for entry in self.entries.values_mut() {
            entry.condition.clear_after = Duration::ZERO;
        }
    }

    /// What holds, worst first.
    pub fn findings(&self) -> Vec<Finding> {
        let mut findings: Vec<Finding> = self.entries.values().filter(|e| e.holds).map(Entry::finding).collect();
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.condition.severity));
        findings
    }

    /// The checks of conditions that wait for their hold time.
    pub fn waiting(&self) -> impl Iterator<Item = Check> {
        self.entries.iter().filter(|(_, entry)| !entry.holds).map(|((check, _), _)| *check)
    }

    /// Whether this finding's condition is gone and only its quiet time keeps it.
    pub fn lingers(&self, finding: &Finding, now: BootTime) -> bool {
        let key = (finding.condition.check, finding.condition.subject.clone());
        self.entries.get(&key).is_some_and(|entry| entry.seen != now)
    }
}

impl Entry {
    fn held_long_enough(&self, now: BootTime) -> bool {
        match self.condition.hold {
            Hold::None => true,
            Hold::For(time) => now.since(self.since) >= time,
            Hold::Passes(passes) => self.passes >= passes,
        }
    }

    fn finding(&self) -> Finding {
        Finding { condition: self.condition.clone(), since: self.since }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::check::Severity;
    use crate::model::ids::DeviceName;
    use crate::model::reason::FindingReason;

    fn subject() -> Subject {
        Subject::Device(DeviceName::new("mlx5_0"))
    }

    fn condition(hold: Hold, quiet: Duration) -> Condition {
        Condition::new(Check::DeviceMissing, subject(), Severity::Critical, FindingReason::Baseline, String::new())
            .hold(hold)
            .clear_after(quiet)
    }

    fn at(seconds: i64) -> BootTime {
        BootTime(seconds * 1000)
    }

    #[test]
    fn a_condition_is_a_finding_when_it_has_held_and_ends_when_it_has_been_gone() {
        let (mut tracker, held) =
            (FindingTracker::default(), || condition(Hold::For(Duration::from_secs(30)), Duration::from_secs(60)));
        assert!(tracker.observe(at(0), vec![held()], |_| false, false).began.is_empty());
        assert!(tracker.observe(at(29), vec![held()], |_| false, false).began.is_empty());
        assert_eq!(tracker.waiting().collect::<Vec<_>>(), [Check::DeviceMissing]);
        let began = tracker.observe(at(30), vec![held()], |_| false, false).began;
        assert_eq!(began.first().map(|f| f.since), Some(at(0)));
        assert!(tracker.observe(at(40), vec![], |_| false, false).ended.is_empty());
        assert!(tracker.lingers(&began[0], at(40)));
        assert_eq!(tracker.observe(at(90), vec![], |_| false, false).ended.len(), 1);
        assert!(tracker.findings().is_empty());
    }

    #[test]
    fn an_interruption_starts_the_hold_time_again() {
        let (mut tracker, held) =
            (FindingTracker::default(), || condition(Hold::For(Duration::from_secs(30)), Duration::ZERO));
        tracker.observe(at(0), vec![held()], |_| false, false);
        tracker.observe(at(20), vec![], |_| false, false);
        tracker.observe(at(25), vec![held()], |_| false, false);
        assert!(tracker.observe(at(50), vec![held()], |_| false, false).began.is_empty());
        assert_eq!(tracker.observe(at(55), vec![held()], |_| false, false).began.len(), 1);
    }

    #[test]
    fn scrapes_between_passes_do_not_count_as_passes() {
        let (mut tracker, held) = (FindingTracker::default(), || condition(Hold::Passes(3), Duration::ZERO));
        for second in 0..10 {
            assert!(
                tracker.observe(at(second), vec![held()], |_| false, false).began.is_empty() || second >= 8,
                "{second}"
            );
        }
        assert_eq!(tracker.findings().len(), 1);
    }

    #[test]
    fn a_subject_that_cannot_be_read_for_a_while_keeps_its_finding() {
        let (mut tracker, held) = (FindingTracker::default(), || condition(Hold::None, Duration::ZERO));
        assert_eq!(tracker.observe(at(0), vec![held()], |_| false, false).began.len(), 1);
        assert!(tracker.observe(at(5), vec![], |_| true, false).ended.is_empty());
        assert_eq!(tracker.observe(at(10), vec![], |_| false, false).ended.len(), 1);
    }

    #[test]
    fn a_restart_keeps_the_beginning_of_a_finding() {
        let mut tracker = FindingTracker::default();
        tracker.restore([(("device_missing".to_owned(), "mlx5_0".to_owned()), at(-100))]);
        let changes = tracker.observe(
            at(0),
            vec![condition(Hold::For(Duration::from_secs(30)), Duration::ZERO)],
            |_| false,
            false,
        );
        assert!(changes.began.is_empty(), "it began before");
        assert_eq!(tracker.findings().first().map(|f| f.since), Some(at(-100)));
    }

    #[test]
    fn a_finding_that_ended_while_the_agent_was_down_begins_anew() {
        let mut tracker = FindingTracker::default();
        tracker.restore([(("device_missing".to_owned(), "mlx5_0".to_owned()), at(-100))]);
        tracker.observe(at(0), vec![], |_| false, false);
        let changes = tracker.observe(at(3600), vec![condition(Hold::None, Duration::ZERO)], |_| false, false);
        assert_eq!(changes.began.first().map(|finding| finding.since), Some(at(3600)));
    }

    #[test]
    fn a_single_run_waits_for_nothing() {
        let mut tracker = FindingTracker::default();
        tracker.observe(at(0), vec![condition(Hold::For(Duration::from_secs(600)), Duration::ZERO)], |_| false, true);
        assert_eq!(tracker.findings().len(), 1);
    }
}
