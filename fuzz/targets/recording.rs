//! What was written down earlier: recorded hosts with what is expected of them, their scrubbing, and the agent's state.

#![no_main]

#[path = "../../tests/cases/archive.rs"]
#[allow(dead_code, reason = "only its reader is tried")]
mod archive;
#[path = "../../tests/cases/expect.rs"]
#[allow(dead_code, reason = "only its reader is tried")]
mod expect;
#[path = "../harness.rs"]
mod harness;
/// Where the tests' readers look for it.
mod common {
    pub(crate) use crate::harness::tree;
}

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use harness::tree;
use lanewatch::host::recording::{Entries, RecordedEntry, Scrubber};
use lanewatch::watch::store::Store;
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

fn entries(tree: &tree::Tree) -> Entries {
    let entry = |entry: &tree::RecordedEntry| match entry {
        tree::RecordedEntry::File(content) => RecordedEntry::File(content.clone()),
        tree::RecordedEntry::Link(target) => RecordedEntry::Link(target.clone()),
        tree::RecordedEntry::Directory => RecordedEntry::Directory,
    };
    tree.entries().map(|(path, at)| (path.to_owned(), entry(at))).collect()
}

fn directory() -> &'static Path {
    static DIRECTORY: OnceLock<TempDir> = OnceLock::new();
    DIRECTORY
        .get_or_init(|| tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory"))
        .path()
}

fuzz_target!(|data: &[u8]| {
    let Some((kind, data)) = data.split_first() else { return };
    let text = String::from_utf8_lossy(data);
    match kind % 4 {
        0 => {
            for tree in archive::parse(&text).iter().flat_map(|archive| archive.values()) {
                let mut scrubber = Scrubber::default();
                let _ = scrubber.scrub(&entries(tree));
            }
        }
        1 => {
            if let Ok(expect) = expect::Expect::parse(&text) {
                let _ = (expect.times(2), expect.readings().count());
            }
        }
        file => {
            let file = directory().join(if file == 2 { "state.json" } else { "events.jsonl" });
            fs::write(&file, data).expect("room");
            let _ = Store::new(directory().to_owned()).peek();
            let _ = fs::remove_file(&file);
        }
    }
});
