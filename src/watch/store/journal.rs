//! The journal of events: one JSON line each, appended and synced; a torn line is skipped.

use std::io;
use std::path::Path;

use super::files::StateFiles;
use super::format::StoreError;
use crate::model::finding::Event;

const JOURNAL: &str = "events.jsonl";
const OLD_JOURNAL: &str = "events.1.jsonl";
/// The journal starts anew at this size; the one before is kept.
const JOURNAL_SIZE: u64 = 1 << 20;
/// Events that wait for a state directory that can be written; older ones are lost.
const MAX_WAITING: usize = 1000;

/// What is to be written.
#[derive(Debug, Default)]
pub(super) struct Journal {
    /// Whether this process left the file's last line whole.
    is_whole: bool,
    /// Events that could not be written yet.
    waiting: Vec<Event>,
}

impl Journal {
    /// Adds events to those that wait; the oldest go when they are too many.
    pub(super) fn add(&mut self, events: Vec<Event>) {
        self.waiting.extend(events);
        self.waiting.drain(..self.waiting.len().saturating_sub(MAX_WAITING));
    }

    /// Writes the events that wait.
    ///
    /// # Errors
    /// The file operation that failed; all of them still wait then.
    pub(super) fn write(&mut self, files: &dyn StateFiles, directory: &Path) -> Result<(), StoreError> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let fail = |action, error| StoreError::of(action, directory.join(JOURNAL), error);
        files.create_directory().map_err(|error| fail("cannot create the directory of", error))?;
        // A newline ends what a crash left unfinished.
        let is_torn = !self.is_whole && files.length(JOURNAL).is_ok_and(|length| length > 0);
        let mut lines = if is_torn { vec![b'\n'] } else { Vec::new() };
        for event in &self.waiting {
            if serde_json::to_writer(&mut lines, event).is_ok() {
                lines.push(b'\n');
            }
        }
        let appended = files.append(JOURNAL, &lines);
        self.is_whole = appended.is_ok();
        appended.map_err(|error| fail("cannot append to", error))?;
        self.waiting.clear();
        if files.length(JOURNAL).is_ok_and(|length| length > JOURNAL_SIZE) {
            files.rename(JOURNAL, OLD_JOURNAL).map_err(|error| fail("cannot rename", error))?;
        }
        Ok(())
    }
}

/// The events in the journal of a directory, oldest first.
pub(super) fn read(files: &dyn StateFiles, directory: &Path) -> Vec<Event> {
    let mut events = Vec::new();
    for name in [OLD_JOURNAL, JOURNAL] {
        // One that grew beyond its size, by another hand say, costs no more than one that did not.
        match files.read_end(name, 2 * JOURNAL_SIZE) {
            Ok(bytes) => {
                let lines = bytes.split(|byte| *byte == b'\n');
                events.extend(lines.filter_map(|line| serde_json::from_slice::<Event>(line).ok()));
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
            Err(error) => tracing::warn!("{}: earlier events are not shown: {error}", directory.join(name).display()),
        }
    }
    events
}
