//! The metric families by what they describe. A module holds a table of families and the functions that write them.

pub mod agent;
pub mod device;
pub mod findings;
pub mod function;
pub mod gpu;
pub mod host;
pub mod module;
pub mod netdev;
pub mod pcie;
pub mod port;
pub mod probe;
pub mod rdma_cgroup;
pub mod vf;
