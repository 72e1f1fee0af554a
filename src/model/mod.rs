//! The facts, by their names: devices, ports, PCIe functions and links, findings and events.
//!
//! Everything here is plain data with units in the types. Nothing here reads a file, asks a clock or has an
//! opinion: [`crate::host`] fills these types, [`crate::assess`] judges them.

pub mod benchmark;
pub mod check;
pub mod count;
pub mod counter;
pub mod cpus;
pub mod environment;
pub mod ethtool;
pub mod event;
pub mod finding;
pub mod health;
pub mod history;
pub mod holder;
pub mod ids;
pub mod irq;
pub mod kmsg;
mod labels;
pub mod machine;
pub mod maintenance;
pub mod net;
pub mod netsetup;
pub mod numa;
pub mod pcie;
pub mod policy;
pub mod posture;
pub mod qid;
pub mod rdma;
pub mod reading;
pub mod reason;
pub mod roce;
pub mod snapshot;
pub mod sriov;
pub mod system;
pub mod time;
pub mod topology;
pub mod units;
pub mod vfmap;
