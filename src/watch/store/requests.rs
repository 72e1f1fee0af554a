//! Requests of commands to the agent that owns a state directory.
//!
//! A command writes a file beside its final name and renames it into the folder `requests`, so the agent sees it whole.
//! The agent applies it, saves the state with the request's name, writes the answer and removes the request. A request
//! that was saved but not answered when the agent ended is answered at its next start and not applied again.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::io;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};

use super::benchmarks::RunRecord;
use super::files::{DiskFiles, REQUESTS, StateFiles};
use crate::model::benchmark::BenchmarkRun;
use crate::model::history::Baseline;
use crate::model::time::unix_millis;

/// Ending of a request.
const REQUEST: &str = ".json";
/// Ending of an answer.
const ANSWER: &str = ".answer";
/// Answers that nobody fetched are removed after this time.
const ANSWER_AGE: Duration = Duration::from_secs(10 * 60);
/// How often a command looks for its answer.
const POLL: Duration = Duration::from_millis(20);

/// What a command wants.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// What is there now is what is expected.
    AcceptBaseline,
    /// Runs of benchmarks.
    RecordRuns(Vec<RunRecord>),
}

impl Request {
    /// A request to record runs.
    pub fn record<'a>(runs: impl IntoIterator<Item = &'a BenchmarkRun>) -> Self {
        Self::RecordRuns(runs.into_iter().map(RunRecord::from).collect())
    }
}

/// What came of a request.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Answer {
    /// Why it was not applied, or not saved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The baseline now.
    pub baseline: Baseline,
}

/// Hands a request to the agent of a state directory and waits for the answer; `None` if there is none in time. The
/// request stays then and is applied as soon as the agent can.
///
/// # Errors
/// The request cannot be written or the answer not be read.
pub fn send(directory: &Path, request: &Request, patience: Duration) -> io::Result<Option<Answer>> {
    let files = DiskFiles::new(directory.to_owned());
    let random = RandomState::new().build_hasher().finish();
    let id = format!("{:014}-{}-{random:016x}", unix_millis::of(SystemTime::now()), std::process::id());
    let (new, name) = (format!("{REQUESTS}/.{id}.new"), format!("{REQUESTS}/{id}{REQUEST}"));
    files.create(&new, &serde_json::to_vec(request)?)?;
    files.rename(&new, &name)?;
    let (answer, end) = (format!("{REQUESTS}/{id}{ANSWER}"), Instant::now() + patience);
    loop {
        match files.read(&answer) {
            Ok(bytes) => {
                // One that stays is removed by the agent.
                let _ = files.remove(&answer);
                return Ok(Some(serde_json::from_slice(&bytes)?));
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Err(_) if Instant::now() >= end => return Ok(None),
            Err(_) => sleep(POLL),
        }
    }
}

/// A request that waits, by its name without the ending.
pub(super) type Waiting = (String, Result<Request, String>);

/// Requests that wait, oldest first. One that cannot be read now stays.
pub(super) fn waiting(files: &dyn StateFiles) -> Vec<Waiting> {
    let mut names = files.requests().unwrap_or_default();
    names.sort();
    let mut waiting = Vec::new();
    for name in names {
        let Some(id) = name.strip_suffix(REQUEST).filter(|id| !id.starts_with('.')) else { continue };
        match files.read(&format!("{REQUESTS}/{name}")) {
            Ok(bytes) => waiting.push((id.to_owned(), serde_json::from_slice(&bytes).map_err(|e| e.to_string()))),
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                waiting.push((id.to_owned(), Err("not a regular file".to_owned())));
            }
            Err(error) => tracing::warn!("cannot read request {name}, leaving it in place: {error}"),
        }
    }
    waiting
}

/// Removes answers that nobody fetched, and what commands that were killed left.
pub(super) fn remove_old_answers(files: &dyn StateFiles, now: SystemTime) {
    let oldest = unix_millis::of(now.checked_sub(ANSWER_AGE).unwrap_or(SystemTime::UNIX_EPOCH));
    for name in files.requests().unwrap_or_default() {
        let is_request = name.ends_with(REQUEST) && !name.starts_with('.');
        let time = name.trim_start_matches('.').split('-').next().and_then(|millis| millis.parse::<u64>().ok());
        if !is_request && time.is_none_or(|time| time < oldest) {
            let _ = files.remove(&format!("{REQUESTS}/{name}"));
        }
    }
}

/// Writes the answer, then removes the request.
pub(super) fn answer(files: &dyn StateFiles, id: &str, answer: &Answer) -> io::Result<()> {
    let new = format!("{REQUESTS}/.{id}{ANSWER}");
    files.create(&new, &serde_json::to_vec(answer)?)?;
    files.rename(&new, &format!("{REQUESTS}/{id}{ANSWER}"))?;
    files.remove(&format!("{REQUESTS}/{id}{REQUEST}"))
}
