//! The agent's own process, by the names that every exporter has.

use super::FIRST;
use crate::export::catalogue::{Family, Kind};

/// The rows.
pub const FAMILIES: &[Family] = &[
    Family {
        name: "process_cpu_seconds_total",
        kind: Kind::Counter,
        help: "User and system CPU time of the agent (/proc/self/stat).",
        labels: &[],
        worst: "1",
        since: FIRST,
        write: |content, out| {
            if let Some(cpu) = content.process.cpu {
                out.seconds(&[], cpu.as_secs_f64());
            }
        },
    },
    Family {
        name: "process_resident_memory_bytes",
        kind: Kind::Gauge,
        help: "Resident memory of the agent (/proc/self/stat).",
        labels: &[],
        worst: "1",
        since: FIRST,
        write: |content, out| out.known(&[], content.process.resident_bytes),
    },
    Family {
        name: "process_open_fds",
        kind: Kind::Gauge,
        help: "Open file descriptors of the agent (/proc/self/fd).",
        labels: &[],
        worst: "1",
        since: FIRST,
        write: |content, out| out.known(&[], content.process.open_fds),
    },
    Family {
        name: "process_start_time_seconds",
        kind: Kind::Gauge,
        help: "Start of the agent in seconds since 1970 (/proc/self/stat, /proc/stat).",
        labels: &[],
        worst: "1",
        since: FIRST,
        write: |content, out| out.known(&[], content.process.started),
    },
];
