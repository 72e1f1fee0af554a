//! The host itself: kernel, boot, name.

use std::sync::Arc;
use std::time::Duration;

/// What the host says of itself under its `/proc`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct System {
    /// Host name (`sys/kernel/hostname`).
    pub hostname: Option<Arc<str>>,
    /// Kernel release (`sys/kernel/osrelease`).
    pub kernel: Option<Arc<str>>,
    /// Random identifier of this boot (`sys/kernel/random/boot_id`).
    pub boot_id: Option<Arc<str>>,
    /// Time since boot (`uptime`).
    pub uptime: Option<Duration>,
}
