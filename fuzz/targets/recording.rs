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
use lanewatch::host::kmsg::speaker::NoNames;
use lanewatch::host::recording::{Entries, Recorded, RecordedEntry, Scrubber, allowed};
use lanewatch::watch::store::Store;
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

fn entries(name: &str, tree: &tree::Tree) -> Entries {
    let entry = |entry: &tree::Entry| match entry {
        tree::Entry::File(content) => RecordedEntry::File(content.clone()),
        tree::Entry::Link(target) => RecordedEntry::Link(target.clone()),
        tree::Entry::Directory => RecordedEntry::Directory,
    };
    tree.entries().map(|(path, at)| (Path::new(name).join(path), entry(at))).collect()
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
            for (name, tree) in archive::parse(&text).iter().flatten() {
                let recorded = Recorded { entries: entries(name, tree), ..Recorded::default() };
                let _ = allowed(&recorded, &mut Scrubber::default(), &NoNames);
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
