//! Where rules put what they say of each subject.

use std::collections::BTreeMap;

use crate::model::check::{Check, CheckResult};
use crate::model::finding::{Condition, Subject, UnknownSubject};
use crate::model::reading::ReadError;

/// What all rules said.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Verdicts {
    /// Conditions that hold now.
    pub conditions: Vec<Condition>,
    /// Subjects that could not be judged.
    pub undecided: Vec<UnknownSubject>,
    /// How many subjects are well, or were skipped, by check.
    pub settled: BTreeMap<Check, (u64, u64)>,
}

impl Verdicts {
    /// The check looked at a subject and found nothing.
    pub fn ok(&mut self, check: Check) {
        self.settled.entry(check).or_default().0 += 1;
    }

    /// The check does not apply to a subject.
    pub fn skipped(&mut self, check: Check) {
        self.settled.entry(check).or_default().1 += 1;
    }

    /// The check could not judge a subject; `reason` is none when the host has nothing to say on it.
    pub fn unknown(&mut self, check: Check, subject: Subject, reason: Option<ReadError>) {
        self.undecided.push(UnknownSubject { check, subject, reason, due: reason.is_some() });
    }

    /// The check could not judge a subject of which the host says nothing, though it should.
    pub fn unreported(&mut self, check: Check, subject: Subject) {
        self.undecided.push(UnknownSubject { check, subject, reason: None, due: true });
    }

    /// The check found something.
    pub fn found(&mut self, condition: Condition) {
        self.conditions.push(condition);
    }
}

/// How many subjects stand where, by check, in the order of [`CheckResult::ALL`].
pub type ResultCounts = BTreeMap<Check, [u64; CheckResult::ALL.len()]>;
