//! Kernel messages, as records or as text, read as they grow and judged.

#![no_main]

#[path = "../harness.rs"]
mod harness;

use std::sync::{Arc, LazyLock};

use harness::FuzzHarness;
use harness::host::HostTree;
use lanewatch::host::memory::MemoryHost;
use lanewatch::host::{kmsg, rdma};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((form, log)) = data.split_first() else { return };
    static HOST: LazyLock<Arc<MemoryHost>> = LazyLock::new(|| harness::memory(&HostTree::new(1).tree()));
    let path = if form % 2 == 0 { "/kmsg" } else { "/dmesg.txt" };
    let mut harness = FuzzHarness::new([&kmsg::SPEC, &rdma::SPEC], &HOST, None);
    for end in [log.len() / 2, log.len()] {
        HOST.set(path, log.get(..end).unwrap_or_default());
        harness.cx();
    }
    HOST.remove(path);
});
