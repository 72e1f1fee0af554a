//! What a snapshot has besides files: refusals, numbers of namespaces, replies of netlink and of drivers. A host with any
//! of it is read and judged.

#![no_main]

#[path = "../harness.rs"]
mod harness;

use std::fs;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use harness::FuzzHarness;
use harness::host::{HostTree, Layer};
use lanewatch::host::io::Roots;
use lanewatch::host::netlink::socket::Protocol;
use lanewatch::host::recording::{FILE, ReplayedHost};
use lanewatch::host::{COLLECTORS, Host, HostIo};
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

/// An unpacked snapshot of a host with two Ethernet cards.
fn directory() -> &'static Path {
    static DIRECTORY: OnceLock<TempDir> = OnceLock::new();
    DIRECTORY
        .get_or_init(|| {
            let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory");
            let mut tree = HostTree::new(2);
            for card in &mut tree.cards {
                (card.layer, card.rate) = (Layer::Ethernet, "100 Gb/sec (4X EDR)");
            }
            tree.write(directory.path()).expect("room");
            directory
        })
        .path()
}

fuzz_target!(|data: &[u8]| {
    let root = directory();
    fs::write(root.join(FILE), data).expect("room");
    let Some(replayed) = ReplayedHost::open(root) else { return };
    let io: Arc<dyn HostIo> = Arc::new(replayed);
    let (route, ethtool) = (io.netlink(Protocol::Route), io.ethtool());
    let (sysfs, procfs, roots) = (root.join("sys"), root.join("proc"), Roots::below(root));
    let host = Host { io, sysfs, procfs, roots, route, ethtool, live: false };
    FuzzHarness::over(COLLECTORS.iter(), host).cx();
});
