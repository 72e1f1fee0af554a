//! NUMA nodes (`/sys/devices/system/node`).

use std::sync::Arc;

/// One NUMA node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NumaNode {
    /// Node number.
    pub id: u32,
    /// Its CPUs, as the kernel lists them (`0-15,64-79`).
    pub cpus: Option<Arc<str>>,
}
