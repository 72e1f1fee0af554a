//! Interfaces of a guest that send through a VF while there is one, and through the hypervisor else.

use std::sync::Arc;
use std::time::Duration;

use super::labels::label_enum;
use super::time::BootTime;

label_enum! {
    /// The path that an interface uses: the `path` label.
    PathInUse {
        /// Through its VF.
        Vf = "vf",
        /// Through the hypervisor.
        Synthetic = "synthetic",
    }
}

label_enum! {
    /// What joins an interface with its VF.
    Failover {
        /// Hyper-V and Azure (`drivers/net/hyperv`).
        HvNetvsc = "hv_netvsc",
        /// virtio (`drivers/net/net_failover.c`).
        NetFailover = "net_failover",
    }
}

/// An interface that sends through a VF while there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataPath {
    /// Its name.
    pub netdev: Arc<str>,
    /// What joins it with its VF.
    pub failover: Failover,
    /// The interface of the VF that it is joined with (`lower_*`).
    pub vf: Option<Arc<str>>,
    /// What it uses: the VF while that is joined and up.
    pub in_use: PathInUse,
}

/// How long it is remembered that an interface left its VF.
pub const LOSSES_REMEMBERED: Duration = Duration::from_secs(3600);

/// Most of these moments: one that leaves its VF every second does so 3600 times an hour.
pub const MOST_LOSSES: usize = 4096;

/// What the kernel log says of such an interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DataPathLog {
    /// Its name.
    pub netdev: Arc<str>,
    /// How often it changed its path since the agent started.
    pub switched: u64,
    /// How often its VF was taken away since the agent started.
    pub revoked: u64,
    /// How often a VF was given to it since the agent started.
    pub returned: u64,
    /// When it left its VF, from before the start too, none longer than an hour ago; oldest first.
    pub left: Vec<BootTime>,
}

/// What is remembered of such an interface from pass to pass.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GuestPath {
    /// Whether it had a VF since the agent started.
    pub had_vf: bool,
    /// Since when it has been without its VF.
    pub synthetic_since: Option<BootTime>,
    /// When it left its VF, none longer than an hour ago, where the kernel log cannot be read.
    pub left: Vec<BootTime>,
}
