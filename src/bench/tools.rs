//! The programs that probes need: found at run time, and asked once what they can do.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::child::{Child, Invocation, find_in};
use super::folder::RunDirectory;

/// How long a program may take to say what it can do.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Where programs are, and which of them write JSON.
#[derive(Debug, Default)]
pub struct Toolbox {
    folders: OsString,
    json: Mutex<BTreeMap<PathBuf, bool>>,
}

impl Toolbox {
    /// Looks in the folders of `PATH`.
    pub fn new() -> Self {
        Self::in_folders(std::env::var_os("PATH").unwrap_or_default())
    }

    /// Looks in these folders, between colons.
    pub fn in_folders(folders: OsString) -> Self {
        Self { folders, json: Mutex::default() }
    }

    /// Where a program is.
    pub fn find(&self, name: &str) -> Option<PathBuf> {
        find_in(name, &self.folders)
    }

    /// Whether a perftest program can write its result as JSON (`--out_json_file`).
    pub fn writes_json(&self, program: &Path) -> bool {
        let mut known = self.json.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(known) = known.get(program) {
            return *known;
        }
        // One that does not answer, on a busy host say, is asked again the next time.
        let Some(help) = ask(program) else { return false };
        let answer = help.contains("out_json_file");
        known.insert(program.to_owned(), answer);
        answer
    }
}

fn ask(program: &Path) -> Option<String> {
    let directory = RunDirectory::new().ok()?;
    let invocation = Invocation { program: program.to_owned(), arguments: vec!["--help".to_owned()] };
    let mut child = Child::start(&invocation, directory.path(), None).ok()?;
    Some(child.wait(Instant::now() + TIMEOUT)).filter(|ended| !ended.timed_out).map(|ended| ended.output)
}
