//! The state directory: what outlives the agent.
//!
//! The process that has the directory's lock is the only one that writes the state and the journal; commands beside it
//! hand it [requests](Request). `state.json` is replaced whole (written beside it, synced, renamed, the directory synced)
//! and the one before is kept as `state.previous.json`. Events are appended to the journal and synced, one JSON line
//! each; a torn last line is skipped. A malformed entry of a state is left out and logged. Each trouble has its own answer: a broken state is set aside and the previous one
//! is used; one that cannot be read now is left alone; a full disk costs nothing but the time until there is space.

mod benchmarks;
pub mod files;
mod format;
mod journal;
mod requests;
mod salvage;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

pub use benchmarks::RunRecord;
pub use format::StoreError;
pub use format::{SavedFinding, SavedState};
pub use requests::{Answer, Request, send};

use self::files::{DiskFiles, REQUESTS, StateFiles};
use self::format::FormatError;
use self::journal::Journal;
use super::history_event::{HistoryEvent, run_event};
use crate::model::benchmark::BenchmarkRun;
use crate::model::finding::Event;
use crate::model::time::rfc3339;

const STATE: &str = "state.json";
const STATE_NEW: &str = "state.json.new";
const STATE_BROKEN: &str = "state.json.broken";
const PREVIOUS: &str = "state.previous.json";
const PREVIOUS_NEW: &str = "state.previous.json.new";
/// Runs that waited for the agent of an earlier release, one JSON line each.
const OLD_RUNS: &str = "probe-runs.jsonl";
/// Names of applied requests that are remembered.
const MAX_APPLIED: usize = 256;

/// A state directory.
#[derive(Debug)]
pub struct Store {
    directory: PathBuf,
    files: Arc<dyn StateFiles>,
    /// Held while this process owns the state.
    lock: Option<File>,
    /// Whether nothing may be written without the lock.
    needs_lock: bool,
    journal: Journal,
    /// Whether the state on disk must stay as it is: a newer program wrote it, or it could not be read.
    is_frozen: bool,
    /// Whether `state.json` is known to be good, so that it may become the previous one.
    is_good: bool,
    /// Since when nothing could be saved.
    failing: Option<SystemTime>,
    applied: VecDeque<String>,
}

/// Why a state cannot be used.
enum LoadError {
    /// Its content is no state: the reason.
    Broken(String),
    /// It cannot be read now; it may be good.
    Unreadable(io::Error),
    /// A newer program wrote it.
    Newer(u32),
}

impl Store {
    /// A state directory; nothing is touched yet.
    pub fn new(directory: PathBuf) -> Self {
        let files = Arc::new(DiskFiles::new(directory.clone()));
        Self::with_files(directory, files)
    }

    /// A state directory with its files behind this layer.
    pub fn with_files(directory: PathBuf, files: Arc<dyn StateFiles>) -> Self {
        Self {
            directory,
            files,
            lock: None,
            needs_lock: false,
            journal: Journal::default(),
            is_frozen: false,
            is_good: false,
            failing: None,
            applied: VecDeque::new(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Where it is.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The folder of requests.
    pub fn requests_folder(&self) -> PathBuf {
        self.path(REQUESTS)
    }

    /// Takes the directory for this process alone, until it ends; false if another process has it. Nothing is written
    /// without the lock from now on: each save tries to take it again.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn take(&mut self) -> Result<bool, StoreError> {
        self.needs_lock = true;
        if self.lock.is_some() {
            return Ok(true);
        }
        let fail = |error| StoreError::of("cannot lock", self.directory.clone(), error);
        self.lock = self.files.create_directory().and_then(|()| self.files.lock()).map_err(fail)?;
        if self.lock.is_some()
            && let Err(error) = self.files.create_requests()
        {
            let path = self.requests_folder();
            tracing::error!("commands cannot hand over requests: {}: {error}", path.display());
        }
        Ok(self.lock.is_some())
    }

    /// Whether this process may write.
    fn own(&mut self) -> Result<(), StoreError> {
        if self.is_frozen {
            return Err(StoreError::Frozen { path: self.path(STATE) });
        }
        if self.needs_lock && !self.take()? {
            return Err(StoreError::Owned { path: self.directory.clone() });
        }
        Ok(())
    }

    /// Reads what is there. A broken state is set aside; each trouble comes back as a sentence.
    pub fn load(&mut self) -> (SavedState, Vec<String>) {
        let mut troubles = Vec::new();
        let state = match self.decode(STATE) {
            Ok(Some((state, left_out))) => {
                self.is_good = true;
                let path = self.path(STATE);
                troubles.extend(left_out.into_iter().map(|what| format!("{}: {what}", path.display())));
                Some(state)
            }
            // A crash cannot remove it without leaving the previous one.
            Ok(None) => self.read(PREVIOUS).ok().flatten().inspect(|_| {
                troubles.push(format!("{} is missing: the previous state is used", self.path(STATE).display()));
            }),
            Err(LoadError::Broken(why)) => {
                let previous = self.read(PREVIOUS).ok().flatten();
                troubles.push(self.set_aside(&why, previous.is_some()));
                previous
            }
            Err(error @ (LoadError::Newer(_) | LoadError::Unreadable(_))) => {
                self.is_frozen = true;
                let why = self.describe(&error);
                troubles.push(format!("{why}: it is left unchanged, and nothing is saved until the next start"));
                None
            }
        };
        let state = state.unwrap_or_default();
        self.applied = state.applied.iter().cloned().collect();
        (state, troubles)
    }

    /// The events in the journal, oldest first.
    pub fn events(&self) -> Vec<Event> {
        journal::read(&*self.files, &self.directory)
    }

    /// Whether there is a state that can be used: why not, if there is none.
    ///
    /// # Errors
    /// A sentence: nothing is there, or it cannot be read.
    pub fn usable(&self) -> Result<(), String> {
        match self.read(STATE) {
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err(format!(
                "no state yet: {} does not exist; start the agent, or run `lanewatch baseline accept`",
                self.path(STATE).display()
            )),
            Err(error) => Err(self.describe(&error)),
        }
    }

    /// Why what is there cannot be used; `None` if it can, and if nothing is there.
    pub fn trouble(&self) -> Option<String> {
        let lost = "since when things hold and what was there before are not known";
        self.read(STATE).err().map(|error| format!("{}: {lost}", self.describe(&error)))
    }

    /// Reads what is there and changes nothing; what cannot be read is as if it were not there.
    pub fn peek(&self) -> SavedState {
        self.read(STATE).ok().flatten().unwrap_or_default()
    }

    fn describe(&self, error: &LoadError) -> String {
        let path = self.path(STATE);
        match error {
            LoadError::Broken(why) => format!("{} cannot be read ({why})", path.display()),
            LoadError::Unreadable(error) => format!("{} cannot be read ({error})", path.display()),
            LoadError::Newer(found) => StoreError::Newer { path, found: *found }.to_string(),
        }
    }

    fn read(&self, name: &str) -> Result<Option<SavedState>, LoadError> {
        Ok(self.decode(name)?.map(|(state, _)| state))
    }

    /// A state file, and what was left out of it.
    fn decode(&self, name: &str) -> Result<Option<(SavedState, Vec<String>)>, LoadError> {
        let bytes = match self.files.read(name) {
            Ok(bytes) => bytes,
            Err(error) => {
                return match error.kind() {
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Ok(None),
                    // A pipe, a directory, or far too long: no state.
                    io::ErrorKind::InvalidInput => Err(LoadError::Broken(error.to_string())),
                    _ => Err(LoadError::Unreadable(error)),
                };
            }
        };
        match SavedState::decode(&bytes) {
            Ok(state) => Ok(Some(state)),
            Err(FormatError::Broken(why)) => Err(LoadError::Broken(why)),
            Err(FormatError::Newer(version)) => Err(LoadError::Newer(version)),
        }
    }

    fn set_aside(&self, why: &str, has_previous: bool) -> String {
        let (path, aside) = (self.path(STATE), self.path(STATE_BROKEN));
        let moved = self.files.rename(STATE, STATE_BROKEN);
        let outcome = moved.map_or_else(
            |error| format!("it cannot be set aside ({error})"),
            |()| format!("it is now {}", aside.display()),
        );
        let next = if has_previous { "the previous state is used" } else { "learning starts anew" };
        format!("{} cannot be read ({why}); {outcome} and {next}", path.display())
    }

    /// Saves the state.
    ///
    /// # Errors
    /// The file operation that failed; the state on disk is whole, and the next call tries again.
    pub fn save(&mut self, mut state: SavedState) -> Result<(), StoreError> {
        self.own()?;
        state.applied = self.applied.iter().cloned().collect();
        let bytes = state.encode().map_err(|error| StoreError::of("cannot write", self.path(STATE), error.into()))?;
        self.replace(&bytes)
    }

    /// Records runs of benchmarks where no agent does.
    ///
    /// # Errors
    /// The state cannot be saved.
    pub fn record_runs(&mut self, runs: &[BenchmarkRun], now: SystemTime) -> Result<(), StoreError> {
        let (mut state, troubles) = self.load();
        for trouble in troubles {
            tracing::error!("{trouble}");
        }
        for run in runs {
            if let Some(function) = run.function.filter(|_| run.moved_data()) {
                state.vf_map.prove(function, run.began());
            }
            state.benchmarks.entry(run.key.clone()).or_default().record(run.clone());
        }
        let event =
            |(kind, subject, text): HistoryEvent| Event { time: rfc3339(now), kind, subject, text, link_downed: None };
        self.append(runs.iter().filter_map(run_event).map(event).collect())?;
        self.save(state)
    }

    fn replace(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        let fail = |action, name: &str, error| StoreError::of(action, self.directory.join(name), error);
        self.files.create_directory().map_err(|error| fail("cannot create", "", error))?;
        self.files.create(STATE_NEW, bytes).map_err(|error| fail("cannot write", STATE_NEW, error))?;
        if self.is_good {
            // Without a previous one the state itself is as safe; a file system may have no links.
            let kept = self.files.link(STATE, PREVIOUS_NEW).and_then(|()| self.files.rename(PREVIOUS_NEW, PREVIOUS));
            if let Err(error) = kept {
                tracing::debug!("no previous state is kept: {error}");
            }
        }
        self.files.rename(STATE_NEW, STATE).map_err(|error| fail("cannot rename to", STATE, error))?;
        self.is_good = true;
        self.files.sync_directory().map_err(|error| fail("cannot sync", "", error))
    }

    /// Logs when saving begins to fail and when it works again.
    pub fn log_outcome(&mut self, error: Option<&StoreError>, now: SystemTime) {
        match (error, self.failing) {
            (Some(error), None) => {
                self.failing = Some(now);
                tracing::error!("cannot save the state: {error}; it is kept in memory and tried again at each pass");
            }
            (None, Some(since)) => {
                let seconds = now.duration_since(since).unwrap_or_default().as_secs();
                tracing::info!("the state is saved again, after {seconds} s");
                self.failing = None;
            }
            _ => {}
        }
    }

    /// Appends events to the journal. Those that cannot be written wait for the next call.
    ///
    /// # Errors
    /// The file operation that failed; no event of this call counts as written then.
    pub fn append(&mut self, events: Vec<Event>) -> Result<(), StoreError> {
        self.journal.add(events);
        self.own()?;
        self.journal.write(&*self.files, &self.directory)
    }

    /// Requests that wait, oldest first, by their names; and what is wrong with one that makes no sense.
    pub fn requests(&self, now: SystemTime) -> Vec<(String, Result<Request, String>)> {
        requests::remove_old_answers(&*self.files, now);
        requests::waiting(&*self.files)
    }

    /// Whether a request was applied by an agent that ended before it answered.
    pub fn was_applied(&self, id: &str) -> bool {
        self.applied.iter().any(|applied| applied == id)
    }

    /// Remembers a request as applied; the next save keeps it with what it changed.
    pub fn mark_applied(&mut self, id: &str) {
        self.applied.push_back(id.to_owned());
        if self.applied.len() > MAX_APPLIED {
            self.applied.pop_front();
        }
    }

    /// Answers a request, which ends it.
    pub fn answer(&self, id: &str, answer: &Answer) {
        if let Err(error) = requests::answer(&*self.files, id, answer) {
            tracing::error!("request {id} cannot be answered: {error}");
        }
    }

    /// Runs of benchmarks that wait for an agent: in requests, and as an earlier release left them.
    pub fn waiting_runs(&self) -> Vec<RunRecord> {
        let mut runs = self.old_runs();
        for (_, request) in requests::waiting(&*self.files) {
            if let Ok(Request::RecordRuns(more)) = request {
                runs.extend(more);
            }
        }
        runs
    }

    /// Runs that an earlier release left for its agent. They stay until [`Store::remove_old_runs`].
    pub fn old_runs(&self) -> Vec<RunRecord> {
        match self.files.read(OLD_RUNS) {
            Ok(bytes) => {
                bytes.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => {
                tracing::warn!("{} stays: it cannot be read: {error}", self.path(OLD_RUNS).display());
                Vec::new()
            }
        }
    }

    /// Removes the runs of an earlier release, once the state has them.
    pub fn remove_old_runs(&self) {
        let _ = self.files.remove(OLD_RUNS);
    }
}
