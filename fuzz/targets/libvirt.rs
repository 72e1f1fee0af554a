//! Domains of libvirt, and what is said of the VFs that they claim.

#![no_main]

#[path = "../rig.rs"]
mod rig;

use std::sync::{Arc, LazyLock};

use lanewatch::host::holders::{self, libvirt};
use lanewatch::host::memory::MemoryHost;
use lanewatch::host::sriov;
use libfuzzer_sys::fuzz_target;
use rig::Rig;
use rig::host::{Card, HostTree};

fn host() -> Arc<MemoryHost> {
    let mut host = HostTree::new(1);
    host.cards[0] = Card { vfs: 2, ..Card::default() };
    rig::memory(&host.tree())
}

fuzz_target!(|data: &[u8]| {
    let _ = libvirt::domain(data);
    static HOST: LazyLock<Arc<MemoryHost>> = LazyLock::new(host);
    HOST.set("/etc/libvirt/qemu/one.xml", data);
    HOST.set("/run/libvirt/qemu/one.xml", data);
    Rig::new([&holders::SPEC, &sriov::SPEC], &HOST, None).pass();
});
