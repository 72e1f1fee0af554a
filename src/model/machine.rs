//! The machine that the host runs on, as far as a guest can tell.

use std::sync::Arc;

/// What is known of the machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Machine {
    /// Whether a hypervisor is below (`/proc/cpuinfo`, `/sys/hypervisor/type`, DMI).
    pub hypervisor: Option<bool>,
    /// Its identity (`/sys/class/dmi/id/product_uuid`), readable by root only.
    pub identity: Option<Arc<str>>,
}
