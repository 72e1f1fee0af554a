//! Findings over time: a condition must hold before it is a finding, and be gone before it ends.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::model::check::Check;
use crate::model::finding::{Condition, Finding, Hold, PendingFinding, Subject};
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
    /// Whether an agent waits for it already: a single run does not anticipate its verdict.
    awaited: bool,
}

/// What an earlier run, or the agent beside a single run, knew of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// A finding since then.
    Held(BootTime),
    /// Seen since then, and not for long enough.
    Pending(BootTime),
}

/// Every condition that holds, is waiting to hold, or has not been gone for long enough.
#[derive(Debug, Clone, Default)]
pub struct FindingTracker {
    entries: BTreeMap<Key, Entry>,
    restored: BTreeMap<(String, String), Known>,
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
    /// Remembers what an earlier run knew by check and subject: where the condition still holds, findings go on without
    /// waiting, pending ones wait for the rest of their time, both with their old beginning.
    pub fn restore(&mut self, findings: impl IntoIterator<Item = ((String, String), Known)>) {
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
                let (since, holds, awaited) = match earlier {
                    Some(Known::Held(since)) => (since, true, false),
                    Some(Known::Pending(since)) => (since, false, true),
                    None => (now, false, false),
                };
                let (seen, counted) = (now, now - APART);
                Entry { condition: condition.clone(), since, seen, passes: 0, counted, holds, awaited }
            });
            entry.seen = now;
            if now.since(entry.counted) >= APART {
                entry.passes += 1;
                entry.counted = now;
            }
            entry.condition = condition;
            if !entry.holds && ((instant && !entry.awaited) || entry.held_long_enough(now)) {
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

    /// What waits for its hold time, worst first.
    pub fn pending(&self) -> Vec<PendingFinding> {
        let waiting = self.entries.values().filter(|entry| !entry.holds);
        let mut pending: Vec<PendingFinding> = waiting.map(|entry| PendingFinding(entry.finding())).collect();
        pending.sort_by_key(|pending| std::cmp::Reverse(pending.0.condition.severity));
        pending
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
            // The agent's passes are not counted here: it has had time for them.
            Hold::Passes(passes) if self.awaited => now.since(self.since) >= APART * passes,
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
        tracker.restore([(("device_missing".to_owned(), "mlx5_0".to_owned()), Known::Held(at(-100)))]);
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
        tracker.restore([(("device_missing".to_owned(), "mlx5_0".to_owned()), Known::Held(at(-100)))]);
        tracker.observe(at(0), vec![], |_| false, false);
        let changes = tracker.observe(at(3600), vec![condition(Hold::None, Duration::ZERO)], |_| false, false);
        assert_eq!(changes.began.first().map(|finding| finding.since), Some(at(3600)));
    }

    #[test]
    fn a_restart_does_not_start_the_hold_time_again() {
        let mut tracker = FindingTracker::default();
        tracker.restore([(("device_missing".to_owned(), "mlx5_0".to_owned()), Known::Pending(at(-20)))]);
        let held = || condition(Hold::For(Duration::from_secs(30)), Duration::ZERO);
        assert!(tracker.observe(at(5), vec![held()], |_| false, false).began.is_empty());
        let began = tracker.observe(at(10), vec![held()], |_| false, false).began;
        assert_eq!(began.first().map(|finding| finding.since), Some(at(-20)));
    }

    /// The agent waits ten minutes for a link that is slow and perhaps idle: a command beside it says the same.
    #[test]
    fn a_single_run_beside_an_agent_waits_as_the_agent_does() {
        for hold in [Hold::For(Duration::from_secs(600)), Hold::Passes(3)] {
            let single_run = |since| {
                let mut tracker = FindingTracker::default();
                tracker.restore([(("device_missing".to_owned(), "mlx5_0".to_owned()), Known::Pending(since))]);
                tracker.observe(at(0), vec![condition(hold, Duration::ZERO)], |_| false, true);
                (tracker.findings().len(), tracker.pending().len())
            };
            assert_eq!(single_run(at(-5)), (0, 1), "{hold:?}");
            // The agent is gone, or about to say so.
            assert_eq!(single_run(at(-600)), (1, 0), "{hold:?}");
        }
        let pending = PendingFinding(Finding {
            condition: condition(Hold::For(Duration::from_secs(600)), Duration::ZERO),
            since: at(-60),
        });
        assert_eq!(pending.due(), Some(at(540)));
    }

    #[test]
    fn a_single_run_waits_for_nothing() {
        let mut tracker = FindingTracker::default();
        tracker.observe(at(0), vec![condition(Hold::For(Duration::from_secs(600)), Duration::ZERO)], |_| false, true);
        assert_eq!(tracker.findings().len(), 1);
    }
}
