//! What passes say to the journal.

use crate::model::benchmark::{BenchmarkRun, Outcome};
use crate::model::finding::EventKind;

/// Something that happened: what, to whom, and a sentence.
pub type HistoryEvent = (EventKind, String, String);

/// The event of a run; `None` if it was skipped.
pub(super) fn run_event(run: &BenchmarkRun) -> Option<HistoryEvent> {
    let subject = run.key.port.as_ref().map(ToString::to_string).unwrap_or_default();
    let text = format!("{} {}: {}", run.key.probe.as_str(), run.result.outcome().as_str(), run.text);
    (run.result.outcome() != Outcome::Skipped).then_some((EventKind::Probe, subject, text))
}
