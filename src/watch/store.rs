//! The state directory: baseline, findings and flaps in one file, events in a journal.
//!
//! Files are replaced whole (written beside, synced, renamed), so a crash leaves the old or the new one. The
//! journal is appended to, one JSON line an event, and a torn last line is left out. A file that cannot be read is
//! set aside under another name and said so; a full disk costs the newest state and never the agent.

mod error;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

pub use error::StoreError;

use super::files;
use super::written::{millis_of, wall};
use crate::host::fs::read_regular;
use crate::model::benchmark::BenchmarkHistories;
use crate::model::finding::Event;
use crate::model::finding::Finding;
use crate::model::history::{Baseline, History};
use crate::model::ids::{DeviceName, PortKey};
use crate::model::time::Timestamp;
use crate::model::vfmap::VfMap;

const VERSION: u32 = 1;
/// Longest state file, in bytes; that of thousands of VFs is far below it.
const LONGEST: u64 = 64 << 20;
const STATE: &str = "state.json";
const LOCK: &str = "lock";
const JOURNAL: &str = "events.jsonl";
const OLD_JOURNAL: &str = "events.1.jsonl";
/// The journal starts anew at this size; the one before is kept.
const JOURNAL_SIZE: u64 = 1 << 20;
/// Events that wait for a state directory that can be written; older ones are lost.
const MOST_WAITING: usize = 1000;

/// What an earlier run remembered.
#[derive(Debug, Clone, Default)]
pub struct SavedState {
    /// The boot that it was written in.
    pub boot_id: Option<String>,
    /// The baseline.
    pub baseline: Baseline,
    /// When ports flapped.
    pub flaps: BTreeMap<PortKey, Vec<SystemTime>>,
    /// Findings by check and subject, and when they began.
    pub findings: BTreeMap<(String, String), SystemTime>,
    /// Who held which VF.
    pub vf_map: VfMap,
    /// Number of the last kernel log record that was read in that boot.
    pub kernel_log: Option<u64>,
    /// What probes measured.
    pub probes: BenchmarkHistories,
    /// Events, oldest first.
    pub events: Vec<Event>,
}

/// A state directory.
#[derive(Debug)]
pub struct Store {
    directory: PathBuf,
    journal: Option<File>,
    /// Whether the journal may end in half a line.
    unfinished: bool,
    /// Held while an agent keeps its state here.
    lock: Option<File>,
    /// Events that could not be written yet.
    waiting: Vec<Event>,
    frozen: bool,
    /// The file that the state was last read from or written to, to notice when another program replaces it.
    known: Option<u64>,
}

#[derive(Serialize, Deserialize)]
struct State {
    version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    boot_id: Option<String>,
    #[serde(default)]
    baseline: Baseline,
    #[serde(default)]
    flaps: BTreeMap<String, Vec<u64>>,
    #[serde(default)]
    findings: Vec<Held>,
    #[serde(default)]
    vf_map: super::vfmap::stored::Map,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kernel_log: Option<u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    probes: Vec<super::probes::Stored>,
}

/// The part of a state that every version has.
#[derive(Deserialize)]
struct Header {
    version: u32,
}

#[derive(Serialize, Deserialize)]
struct Held {
    check: String,
    subject: String,
    since: u64,
}

impl Store {
    /// A state directory; nothing is touched yet.
    pub fn new(directory: PathBuf) -> Self {
        Self {
            directory,
            journal: None,
            unfinished: false,
            lock: None,
            waiting: Vec::new(),
            frozen: false,
            known: None,
        }
    }

    fn path(&self) -> PathBuf {
        self.directory.join(STATE)
    }

    /// Where it is.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Reads what is there. What cannot be read is set aside, and each such trouble comes back as a sentence.
    pub fn load(&mut self) -> (SavedState, Vec<String>) {
        let mut troubles = Vec::new();
        let mut remembered = match self.read_state() {
            Ok(state) => state.map(remember).unwrap_or_default(),
            Err(LoadError::Newer(error)) => {
                self.frozen = true;
                troubles.push(format!("{error}: it is left as it is and nothing is kept"));
                SavedState::default()
            }
            Err(LoadError::Broken(why)) => {
                troubles.push(self.set_aside(&why));
                SavedState::default()
            }
        };
        remembered.events = self.read_journal();
        self.known = self.inode();
        (remembered, troubles)
    }

    /// Takes the directory for this agent alone, until it ends. False when another has it; a directory that cannot be
    /// written is nobody's.
    pub fn take(&mut self) -> bool {
        let open = || {
            std::fs::create_dir_all(&self.directory)?;
            files::writable(&self.directory.join(LOCK))
        };
        let Ok(file) = open() else { return true };
        let free = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
        self.lock = free.then_some(file);
        free
    }

    /// Whether there is a state that can be used: why not, if there is none.
    ///
    /// # Errors
    /// A sentence: nothing is there, or it cannot be read.
    pub fn usable(&self) -> Result<(), String> {
        match self.read_state() {
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err(format!("nothing is known: there is no {}", self.path().display())),
            Err(unusable) => Err(self.told(&unusable)),
        }
    }

    /// Why what is there cannot be used; none when it can, and when nothing is there.
    pub fn trouble(&self) -> Option<String> {
        let lost = "since when things hold and what was there before are not known";
        self.read_state().err().map(|unusable| format!("{}: {lost}", self.told(&unusable)))
    }

    fn told(&self, unusable: &LoadError) -> String {
        match unusable {
            LoadError::Broken(why) => format!("{} cannot be read ({why})", self.path().display()),
            LoadError::Newer(error) => error.to_string(),
        }
    }

    /// Reads what is there and changes nothing; what cannot be read is as if it were not there.
    pub fn peek(&self) -> SavedState {
        let state = self.read_state().ok().flatten();
        SavedState { events: self.read_journal(), ..state.map(remember).unwrap_or_default() }
    }

    /// The baseline that another program (`baseline accept`) has put in the place of what was last read or written.
    pub fn replaced(&mut self) -> Option<Baseline> {
        let inode = self.inode();
        if inode == self.known || inode.is_none() {
            return None;
        }
        self.known = inode;
        Some(self.read_state().ok()??.baseline)
    }

    fn inode(&self) -> Option<u64> {
        use std::os::unix::fs::MetadataExt as _;
        std::fs::metadata(self.path()).ok().map(|meta| meta.ino())
    }

    fn read_journal(&self) -> Vec<Event> {
        let mut events = Vec::new();
        for name in [OLD_JOURNAL, JOURNAL] {
            if let Ok(bytes) = read_regular(&self.directory.join(name), LONGEST) {
                let lines = bytes.split(|byte| *byte == b'\n');
                events.extend(lines.filter_map(|line| serde_json::from_slice::<Event>(line).ok()));
            }
        }
        events
    }

    fn read_state(&self) -> Result<Option<State>, LoadError> {
        let path = self.path();
        let bytes = match read_regular(&path, LONGEST) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(LoadError::Broken(error.to_string())),
        };
        let header: Header = serde_json::from_slice(&bytes).map_err(|error| LoadError::Broken(error.to_string()))?;
        if header.version > VERSION {
            return Err(LoadError::Newer(StoreError::Newer { path, found: header.version }));
        }
        serde_json::from_slice(&bytes).map(Some).map_err(|error| LoadError::Broken(error.to_string()))
    }

    fn set_aside(&self, why: &str) -> String {
        let (path, aside) = (self.path(), self.directory.join(format!("{STATE}.broken")));
        let moved = std::fs::rename(&path, &aside).map_err(|error| format!("it cannot be set aside ({error})"));
        let outcome = moved.map_or_else(|why| why, |()| format!("it is now {}", aside.display()));
        format!("{} cannot be read ({why}); {outcome} and learning starts anew", path.display())
    }

    /// Writes the state.
    ///
    /// # Errors
    /// The file operation that failed; the old file is whole then.
    pub fn save(
        &mut self,
        boot_id: Option<&str>,
        history: &History,
        findings: &[Finding],
        now: Timestamp,
    ) -> Result<(), StoreError> {
        if self.frozen {
            return Ok(());
        }
        let state = State {
            version: VERSION,
            boot_id: boot_id.map(str::to_owned),
            baseline: history.baseline.clone(),
            flaps: history
                .ports
                .iter()
                .filter(|(_, past)| !past.flaps.is_empty())
                .map(|(key, past)| {
                    (key.to_string(), past.flaps.iter().map(|at| millis_of(now.wall_time(*at))).collect())
                })
                .collect(),
            findings: findings
                .iter()
                .map(|finding| Held {
                    check: finding.condition.check.as_str().to_owned(),
                    subject: finding.condition.subject.to_string(),
                    since: millis_of(now.wall_time(finding.since)),
                })
                .collect(),
            vf_map: super::vfmap::stored::Map::from(&history.vf_map),
            kernel_log: history.kernel_log,
            probes: super::probes::store(&history.probes),
        };
        let Ok(bytes) = serde_json::to_vec_pretty(&state) else { return Ok(()) };
        self.replace(STATE, &bytes)?;
        self.known = self.inode();
        Ok(())
    }

    /// Appends events to the journal. Those that cannot be written wait for the next call.
    ///
    /// # Errors
    /// The file operation that failed; nothing is appended then. A line torn by a crash is skipped at the next load.
    pub fn append(&mut self, events: Vec<Event>) -> Result<(), StoreError> {
        if self.frozen {
            return Ok(());
        }
        self.waiting.extend(events);
        if self.waiting.is_empty() {
            return Ok(());
        }
        let written = self.append_waiting();
        let most = if written.is_ok() { 0 } else { MOST_WAITING };
        self.waiting.drain(..self.waiting.len().saturating_sub(most));
        written?;
        self.turn_over()
    }

    fn append_waiting(&mut self) -> Result<(), StoreError> {
        let path = self.directory.join(JOURNAL);
        let fail = |action, source| StoreError::Io { action, path: path.clone(), source };
        if self.journal.is_none() {
            std::fs::create_dir_all(&self.directory).map_err(|error| fail("cannot make the directory of", error))?;
            let file = files::writable(&path).map_err(|error| fail("cannot open", error))?;
            // A newline ends whatever a crash left unfinished.
            self.unfinished = file.metadata().is_ok_and(|meta| meta.len() > 0);
            self.journal = Some(file);
        }
        let mut lines = if self.unfinished { vec![b'\n'] } else { Vec::new() };
        for event in &self.waiting {
            if serde_json::to_writer(&mut lines, event).is_ok() {
                lines.push(b'\n');
            }
        }
        if let Some(journal) = &mut self.journal {
            let before = journal.metadata().map(|meta| meta.len());
            if let Err(error) = journal.write_all(&lines) {
                // What was written of them is written again with the rest.
                let _ = before.and_then(|length| journal.set_len(length));
                self.journal = None;
                return Err(fail("cannot append to", error));
            }
            self.unfinished = false;
        }
        Ok(())
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        let (path, new) = (self.directory.join(name), self.directory.join(format!("{name}.new")));
        let fail = |action, path: &Path, source| StoreError::Io { action, path: path.to_owned(), source };
        std::fs::create_dir_all(&self.directory).map_err(|error| fail("cannot make", &self.directory, error))?;
        files::write_new(&new, bytes).map_err(|error| fail("cannot write", &new, error))?;
        std::fs::rename(&new, &path).map_err(|error| fail("cannot rename to", &path, error))
    }

    /// Starts the journal anew when it has grown to its size.
    fn turn_over(&mut self) -> Result<(), StoreError> {
        let full = |journal: &mut File| journal.metadata().is_ok_and(|meta| meta.len() > JOURNAL_SIZE);
        if self.journal.take_if(full).is_none() {
            return Ok(());
        }
        let path = self.directory.join(JOURNAL);
        std::fs::rename(&path, self.directory.join(OLD_JOURNAL)).map_err(|source| StoreError::Io {
            action: "cannot rename",
            path,
            source,
        })
    }
}

enum LoadError {
    Broken(String),
    Newer(StoreError),
}

fn remember(state: State) -> SavedState {
    let port = |text: &str| {
        let (device, port) = text.rsplit_once('/')?;
        Some(PortKey { device: DeviceName::new(device), port: port.parse().ok()? })
    };
    SavedState {
        boot_id: state.boot_id,
        baseline: state.baseline,
        flaps: state
            .flaps
            .into_iter()
            .filter_map(|(key, times)| Some((port(&key)?, times.into_iter().map(wall).collect())))
            .collect(),
        findings: state.findings.into_iter().map(|held| ((held.check, held.subject), wall(held.since))).collect(),
        vf_map: state.vf_map.into(),
        kernel_log: state.kernel_log,
        probes: super::probes::restore(state.probes),
        events: Vec::new(),
    }
}
