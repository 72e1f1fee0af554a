//! Reads a host: one collector per kernel source, bytes in, facts out, no opinions.
//!
//! A collector is one module here and one line in [`COLLECTORS`]. It lists its devices without touching hardware
//! ([`Collector::discover`]) and opens a [`DeviceReader`] for each; the poller gives every reader a worker thread of
//! its own, so that a device that does not respond blocks no other. Paths, clock and input/output are injected: any
//! folder with `sys/` and `proc/` is a host.

pub mod benchmark_port;
pub mod cards;
pub mod collector;
mod datapath;
pub mod devlink;
pub mod environment;
pub mod ethtool;
pub mod example;
pub mod file;
pub mod firmware;
pub mod fs;
pub mod function;
pub mod gids;
#[cfg(test)]
pub(crate) mod harness;
pub mod holders;
pub mod io;
pub mod irq;
pub mod kmsg;
pub mod machine;
pub mod memory;
pub mod module;
pub mod mstlink;
pub mod net;
pub mod netlink;
pub mod netsetup;
pub mod numa;
pub mod pasted;
pub mod pci;
pub mod pci_tree;
pub mod pods;
pub mod posture;
pub mod qid_map;
pub mod rdma;
pub mod rdma_cgroup;
pub mod recording;
pub mod sriov;
pub mod system;
pub mod temperature;
pub mod text;

use std::path::PathBuf;

pub use collector::{Collector, Depth, DeviceReader, Discovered, ReadContext, Spec};
pub use io::{Host, HostIo};

/// Collectors that are off by default: their reads cost hardware time, or need configuration first.
pub const ON_DEMAND: &[&str] = &[rdma::QUEUE_PAIRS.name, qid_map::SPEC.name, module::SPEC.name, firmware::SPEC.name];

/// Finds directories below a host root.
pub type Directories = fn(&io::Roots) -> Vec<PathBuf>;

/// Directories whose changes wake a collector before its interval ends.
pub const WATCHED: &[(&str, Directories)] = &[(holders::SPEC.name, holders::libvirt::directories)];

/// Every collector, in the order of the metrics.
pub const COLLECTORS: &[Spec] = &[
    rdma::SPEC,
    rdma::RESOURCES,
    rdma::QUEUE_PAIRS,
    pci::SPEC,
    cards::SPEC,
    pci_tree::SPEC,
    net::SPEC,
    sriov::SPEC,
    holders::SPEC,
    pods::SPEC,
    rdma_cgroup::SPEC,
    qid_map::SPEC,
    machine::SPEC,
    ethtool::SPEC,
    netsetup::SPEC,
    devlink::SPEC,
    temperature::SPEC,
    module::SPEC,
    firmware::SPEC,
    gids::SPEC,
    irq::SPEC,
    kmsg::SPEC,
    numa::SPEC,
    posture::SPEC,
    environment::SPEC,
    system::SPEC,
];
