//! Domains of libvirt, and what is said of the VFs that they claim.

#![no_main]

#[path = "../harness.rs"]
mod harness;

use std::sync::{Arc, LazyLock};

use harness::FuzzHarness;
use harness::host::{Card, HostTree};
use lanewatch::host::holders::{self, libvirt};
use lanewatch::host::memory::MemoryHost;
use lanewatch::host::sriov;
use libfuzzer_sys::fuzz_target;

fn host() -> Arc<MemoryHost> {
    let mut host = HostTree::new(1);
    host.cards[0] = Card { vfs: 2, ..Card::default() };
    harness::memory(&host.tree())
}

fuzz_target!(|data: &[u8]| {
    let _ = libvirt::domain(data);
    static HOST: LazyLock<Arc<MemoryHost>> = LazyLock::new(host);
    HOST.set("/etc/libvirt/qemu/one.xml", data);
    HOST.set("/run/libvirt/qemu/one.xml", data);
    FuzzHarness::new([&holders::SPEC, &sriov::SPEC], &HOST, None).cx();
});
