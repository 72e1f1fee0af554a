//! The agent's state directory: whatever its files become, the agent starts, and what it saves then is read again.

#![no_main]

use std::fs;
use std::path::Path;
use std::sync::OnceLock;
use std::time::SystemTime;

use lanewatch::watch::store::Store;
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

const FILES: [&str; 5] = [
    "state.json",
    "state.previous.json",
    "events.jsonl",
    "probe-runs.jsonl",
    "requests/00000000000001-1-0000000000000001.json",
];

fn directory() -> &'static Path {
    static DIRECTORY: OnceLock<TempDir> = OnceLock::new();
    DIRECTORY
        .get_or_init(|| tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory"))
        .path()
}

/// A store as the agent opens it.
fn open() -> Store {
    let mut store = Store::new(directory().to_owned());
    assert!(store.take().expect("a directory of its own"));
    store
}

fuzz_target!(|data: &[u8]| {
    let Some((file, data)) = data.split_first() else { return };
    let name = FILES[usize::from(*file) % FILES.len()];
    fs::create_dir_all(directory().join("requests")).expect("room");
    fs::write(directory().join(name), data).expect("room");
    let mut store = open();
    let _ = (store.usable(), store.trouble(), store.peek());
    let (state, _) = store.load();
    let _ = (store.events(), store.waiting_runs(), store.requests(SystemTime::now()));
    // A state of a newer program stays as it is.
    if store.save(state).is_ok() {
        drop(store);
        let (_, troubles) = open().load();
        assert!(troubles.is_empty(), "{troubles:?}");
    }
    for name in FILES.into_iter().chain(["state.json.broken", "state.json.new", "state.previous.json.new"]) {
        let _ = fs::remove_file(directory().join(name));
    }
});
