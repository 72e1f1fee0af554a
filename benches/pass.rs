//! The floor under a pass: the bare `pread` of every file that a pass reads, on descriptors that are kept open.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a bench")]

#[path = "../tests/common/mod.rs"]
mod common;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use common::host::{HW, HostTree, PMA};
use rustix::fs::{Mode, OFlags};
use rustix::time::{ClockId, clock_gettime};
use tempfile::TempDir;

/// How often every file is read for one number.
const ROUNDS: u32 = 200;

fn main() {
    println!("files read with pread, {ROUNDS} rounds, CPU time of this process");
    for cards in [8, 16, 32, 64] {
        let host = TempDir::new().unwrap();
        let tree = HostTree::new(cards);
        tree.write(host.path()).unwrap();
        let files = open_all(&files(&tree, host.path()));
        let floor = median((0..5).map(|_| floor(&files)).collect());
        let a_card = floor / u32::try_from(cards).unwrap();
        println!("{cards} cards: {} files, {floor:?} a pass, {a_card:?} a card", files.len());
    }
}

/// What a full pass reads of a host: states and counters of each port, both ends of each link, AER.
fn files(tree: &HostTree, root: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for device in tree.devices() {
        let port = root.join(&device.port);
        files.extend(["state", "phys_state", "rate", "lid", "link_layer"].map(|name| port.join(name)));
        files.extend(PMA.map(|name| port.join("counters").join(name)));
        files.extend(HW.map(|name| port.join("hw_counters").join(name)));
        for function in [root.join(&device.function), root.join(&device.above)] {
            let names = ["current_link_speed", "current_link_width", "max_link_speed", "max_link_width"];
            files.extend(names.map(|name| function.join(name)));
            files.extend(["correctable", "nonfatal", "fatal"].map(|kind| function.join(format!("aer_dev_{kind}"))));
        }
    }
    files
}

fn open_all(files: &[PathBuf]) -> Vec<OwnedFd> {
    files.iter().map(|path| rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).unwrap()).collect()
}

/// CPU time of one `pread` of each file.
fn floor(files: &[OwnedFd]) -> Duration {
    let mut buffer = [0; 4097];
    let before = cpu_now();
    for _ in 0..ROUNDS {
        for file in files {
            std::hint::black_box(rustix::io::pread(file, &mut buffer[..], 0).unwrap());
        }
    }
    cpu_now().saturating_sub(before) / ROUNDS
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// CPU time of this process so far.
fn cpu_now() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(now.tv_sec).unwrap(), u32::try_from(now.tv_nsec).unwrap())
}
