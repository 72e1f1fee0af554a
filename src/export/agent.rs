//! The agent's own state, as far as its metrics tell it.

use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use procfs::WithCurrentSystemInfo as _;

use crate::bench::peers::request::RequestResult;
use crate::export::clients::{ClosedConnection, ClosedCounts, TlsRejectionCounts};
use crate::export::web::TlsRejection;

/// What the agent is and how its configuration fared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentState {
    /// Version of the program.
    pub version: &'static str,
    /// Revision it was built from; empty when the build did not say.
    pub revision: &'static str,
    /// Whether the last reading of the configuration succeeded.
    pub reload_successful: bool,
    /// When the configuration in force was read.
    pub reloaded: Option<SystemTime>,
    /// How the web configuration fared, where there is one.
    pub web: Option<WebState>,
    /// Clients that got no encrypted connection; of interest where connections are encrypted.
    pub tls_rejections: TlsRejectionCounts,
    /// Connections that the server closed.
    pub closed_connections: ClosedCounts,
    /// Requests of peers by how they ended, in the order of [`RequestResult::ALL`]; `None` if no servers are started
    /// for them.
    pub probe_requests: Option<[u64; RequestResult::ALL.len()]>,
    /// Whether ports of VFs beside their PF have every metric of a port, not just states and rate.
    pub vf_ports: bool,
}

/// How the web configuration fared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WebState {
    /// Whether its last reading succeeded.
    pub reload_successful: bool,
    /// When the one in force was read.
    pub reloaded: SystemTime,
    /// When the server's certificate ends, where it has one.
    pub certificate_expires: Option<SystemTime>,
}

impl Default for AgentState {
    fn default() -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION"),
            revision: option_env!("LANEWATCH_REVISION").unwrap_or(""),
            reload_successful: true,
            reloaded: None,
            web: None,
            tls_rejections: [0; TlsRejection::ALL.len()],
            closed_connections: [0; ClosedConnection::ALL.len()],
            probe_requests: None,
            vf_ports: false,
        }
    }
}

/// What the kernel says of the agent's own process; each value is none when it could not be read.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Process {
    /// User and system CPU time (`/proc/self/stat`).
    pub cpu: Option<Duration>,
    /// Resident memory in bytes (`/proc/self/stat`).
    pub resident_bytes: Option<u64>,
    /// Open file descriptors (`/proc/self/fd`).
    pub open_fds: Option<u64>,
    /// Most file descriptors it may open (`RLIMIT_NOFILE`); `None` if there is no limit.
    pub max_fds: Option<u64>,
    /// Start, in seconds since 1970 (`/proc/self/stat`, `/proc/stat`).
    pub started: Option<f64>,
}

/// Boot in seconds since 1970; `/proc/stat` is long on a large host and is read once.
static BOOT: OnceLock<Option<u64>> = OnceLock::new();

impl Process {
    /// Reads `/proc/self`, the real one: the agent's process is on this kernel, whatever host it watches.
    pub fn read() -> Self {
        let Ok(me) = procfs::process::Process::myself() else { return Self::default() };
        // Since Linux 6.2 the size of the directory is the count; counting entries costs more than a scrape.
        let counted = || me.fd_count().ok().and_then(|count| u64::try_from(count).ok());
        let size = std::fs::metadata("/proc/self/fd").ok().map(|meta| meta.len()).filter(|size| *size > 0);
        let open_fds = size.or_else(counted);
        let max_fds = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let Ok(stat) = me.stat() else { return Self { open_fds, max_fds, ..Self::default() } };
        let ticks = procfs::ticks_per_second();
        let boot = *BOOT.get_or_init(|| procfs::boot_time_secs().ok());
        Self {
            cpu: Some(of_ticks(stat.utime.saturating_add(stat.stime), ticks)),
            resident_bytes: Some(stat.rss_bytes().get()),
            open_fds,
            max_fds,
            started: boot.map(|boot| (Duration::from_secs(boot) + of_ticks(stat.starttime, ticks)).as_secs_f64()),
        }
    }
}

fn of_ticks(ticks: u64, per_second: u64) -> Duration {
    let per_second = per_second.max(1);
    let nanos = (ticks % per_second).saturating_mul(1_000_000_000) / per_second;
    Duration::from_secs(ticks / per_second) + Duration::from_nanos(nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_readable() {
        let process = Process::read();
        assert!(process.cpu.is_some() && process.started.is_some_and(|start| start > 1e9));
        assert!(process.resident_bytes.is_some_and(|bytes| bytes > 1 << 20));
        assert!(process.open_fds.is_some_and(|count| count >= 3));
        assert!(process.max_fds.is_none_or(|most| process.open_fds.is_some_and(|open| open <= most)));
    }

    #[test]
    fn ticks_to_time() {
        assert_eq!(of_ticks(250, 100), Duration::from_millis(2_500));
        assert_eq!(of_ticks(250, 0), Duration::from_secs(250));
    }
}
