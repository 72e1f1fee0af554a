//! What the host says of itself: its machine, kernel, NUMA nodes, and what surrounds the agent.

use std::sync::Arc;
use std::time::Duration;

/// What is known of the machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Machine {
    /// Whether a hypervisor is below (`/proc/cpuinfo`, `/sys/hypervisor/type`, DMI).
    pub hypervisor: Option<bool>,
    /// Its identity (`/sys/class/dmi/id/product_uuid`), readable by root only.
    pub identity: Option<Arc<str>>,
}

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

/// One NUMA node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NumaNode {
    /// Node number.
    pub id: u32,
    /// Its CPUs, as the kernel lists them (`0-15,64-79`).
    pub cpus: Option<Arc<str>>,
}

/// The agent's surroundings. What they do not say is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Environment {
    /// Whether the host is the one that the agent runs on, not a recorded one.
    pub live: bool,
    /// Where the host's sysfs should be.
    pub sysfs: Arc<str>,
    /// Whether something is there.
    pub has_sysfs: bool,
    /// Whether there is a procfs.
    pub has_procfs: bool,
    /// What kind of container the agent is in, if it is in one.
    pub container: Option<&'static str>,
    /// Whether the agent is in a user namespace of its own (`/proc/self/uid_map`).
    pub user_namespace: Option<bool>,
    /// Effective capabilities, a bit each (`/proc/self/status`).
    pub capabilities: Option<u64>,
    /// The profile (AppArmor) or context (SELinux) that confines the agent (`/proc/self/attr/current`); `None` if
    /// nothing does.
    pub confinement: Option<Arc<str>>,
    /// The least memory limit of its control groups, in bytes.
    pub memory_limit_bytes: Option<u64>,
}

/// A capability that shows something (`include/uapi/linux/capability.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capability {
    /// Files that their owner hides.
    DacReadSearch,
    /// Other users' processes.
    SysPtrace,
    /// The kernel log.
    Syslog,
}

impl Capability {
    /// The kernel's word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::DacReadSearch => "CAP_DAC_READ_SEARCH",
            Self::SysPtrace => "CAP_SYS_PTRACE",
            Self::Syslog => "CAP_SYSLOG",
        }
    }

    const fn bit(self) -> u64 {
        match self {
            Self::DacReadSearch => 1 << 2,
            Self::SysPtrace => 1 << 19,
            Self::Syslog => 1 << 34,
        }
    }
}

impl Environment {
    /// Whether the agent has a capability; `None` if that is not known.
    pub fn has(&self, capability: Capability) -> Option<bool> {
        self.capabilities.map(|held| held & capability.bit() != 0)
    }
}
