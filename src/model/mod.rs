//! The facts, by their names: devices, ports, PCIe functions and links, findings and events.
//!
//! Everything here is plain data with units in the types. Nothing here reads a file, asks a clock or has an
//! opinion: [`crate::host`] fills these types, [`crate::assess`] judges them.

pub mod benchmark;
pub mod check;
pub mod counter;
pub mod datapath;
pub mod finding;
pub mod firmware_link;
pub mod health;
pub mod history;
pub mod holder;
pub mod host;
pub mod ids;
pub mod irq;
pub mod kmsg;
mod labels;
pub mod line;
pub mod link;
pub mod module;
pub mod net;
pub mod pci_tree;
pub mod pcie;
pub mod pods;
pub mod policy;
pub mod rdma;
pub mod rdma_cgroup;
pub mod reading;
pub mod reason;
pub mod snapshot;
pub mod sriov;
pub mod text;
pub mod time;
pub mod topology;
pub mod units;
pub mod vfmap;
