//! The agent, its collectors, what they could not read, and its process.

use std::time::Duration;

use crate::assess::visibility::{VisibilityLimit, visibility};
use crate::export::clients::ClosedConnection;
use crate::export::family::{FIRST_RELEASE, Family, Label, MetricKind, Series};
use crate::export::view::ReportView;
use crate::export::web::TlsRejection;
use crate::model::host::Posture;
use crate::model::reading::ReadError;
use crate::model::snapshot::CollectorState;
use crate::model::time::unix_seconds;

/// The agent and its collectors.
pub const FAMILIES: &[Family] = &[
    Family {
        name: "lanewatch_build_info",
        kind: MetricKind::Info,
        help: "Version of the agent and the revision it was built from.",
        labels: &["version", "revision"],
        worst: "1",
        since: FIRST_RELEASE,
        write: |view, out| out.info(&[view.agent.version.into(), view.agent.revision.into()]),
    },
    Family {
        name: "lanewatch_host_info",
        kind: MetricKind::Info,
        help: "Kernel release of the host (/proc/sys/kernel/osrelease), virtualization, IOMMU and RDMA \
               namespace mode.",
        labels: &["kernel", "virtualization", "iommu", "rdma_netns_mode"],
        worst: "1",
        since: FIRST_RELEASE,
        write: host_info,
    },
    Family {
        name: "lanewatch_visibility_info",
        kind: MetricKind::Info,
        help: "Visibility of the host to the agent by area (seen, nothing_there, partly, hidden), and the \
               reason if not everything is visible.",
        labels: &["area", "visibility", "reason"],
        worst: "13",
        since: FIRST_RELEASE,
        write: |view, out| {
            for area in visibility(&view.report.snapshot, &view.report.vf_map) {
                out.info(&[
                    area.area.into(),
                    area.seen.as_str().into(),
                    area.limit.map(VisibilityLimit::as_str).into(),
                ]);
            }
        },
    },
    Family {
        name: "lanewatch_collector_success",
        kind: MetricKind::Gauge,
        help: "Whether the last pass of the collector was complete; missing hardware counts as success.",
        labels: COLLECTOR,
        worst: "1 per collector",
        since: FIRST_RELEASE,
        write: |view, out| each(view, |labels, collector| out.gauge(labels, collector.success)),
    },
    Family {
        name: "lanewatch_collector_duration_seconds",
        kind: MetricKind::Gauge,
        help: "Time that the collector took to list and read its devices in its last pass, added up over devices that \
               were read in parallel; without the time it waited for others.",
        labels: COLLECTOR,
        worst: "1 per collector",
        since: FIRST_RELEASE,
        write: |view, out| each(view, |labels, collector| out.gauge(labels, collector.duration.as_secs_f64())),
    },
    Family {
        name: "lanewatch_collector_wait_seconds",
        kind: MetricKind::Gauge,
        help: "Longest time that a listing or reading of the collector's last pass waited for a free worker; absent below \
               10 ms.",
        labels: COLLECTOR,
        worst: "1 per collector; none on an idle host",
        since: FIRST_RELEASE,
        write: |view, out| {
            each(view, |labels, collector| {
                let waited = Some(collector.waited).filter(|waited| *waited >= NOTABLE_WAIT);
                out.known(labels, waited.map(|waited| waited.as_secs_f64()));
            });
        },
    },
    Family {
        name: "lanewatch_collector_last_success_timestamp_seconds",
        kind: MetricKind::Gauge,
        help: "End of the last complete pass of the collector, in seconds since 1970.",
        labels: COLLECTOR,
        worst: "1 per collector",
        since: FIRST_RELEASE,
        write: |view, out| {
            each(view, |labels, collector| {
                out.known(labels, collector.last_success.map(|stamp| unix_seconds(stamp.wall)));
            });
        },
    },
    Family {
        name: "lanewatch_collector_stuck",
        kind: MetricKind::Gauge,
        help: "Devices that do not respond within the deadline of the collector; they are skipped until they \
               respond.",
        labels: COLLECTOR,
        worst: "1 per collector",
        since: FIRST_RELEASE,
        write: |view, out| each(view, |labels, collector| out.gauge(labels, collector.stuck.len())),
    },
    Family {
        name: "lanewatch_read_errors_total",
        kind: MetricKind::Counter,
        help: "Files and messages that could not be read, by class of errno; a missing optional file is not an \
               error. Absent without errors.",
        labels: &["collector", "reason"],
        worst: "7 per collector; none on a healthy host",
        since: FIRST_RELEASE,
        write: read_errors,
    },
    Family {
        name: "lanewatch_quarantined_files",
        kind: MetricKind::Gauge,
        help: "Files that are temporarily skipped because the driver rejects reads (EINVAL, EOPNOTSUPP); absent if there are none.",
        labels: COLLECTOR,
        worst: "1 per collector; none on most hosts",
        since: FIRST_RELEASE,
        write: |view, out| {
            each(view, |labels, collector| {
                out.known(labels, Some(collector.quarantined).filter(|count| *count > 0));
            });
        },
    },
    Family {
        name: "lanewatch_config_last_reload_successful",
        kind: MetricKind::Gauge,
        help: "Whether the last reload of the configuration succeeded; after a failure the old one stays in \
               effect.",
        labels: &[],
        worst: "1",
        since: FIRST_RELEASE,
        write: |view, out| out.gauge(&[], view.agent.reload_successful),
    },
    Family {
        name: "lanewatch_config_last_reload_success_timestamp_seconds",
        kind: MetricKind::Gauge,
        help: "Time of the last successful reload of the configuration, in seconds since 1970.",
        labels: &[],
        worst: "1",
        since: FIRST_RELEASE,
        write: |view, out| out.known(&[], view.agent.reloaded.map(unix_seconds)),
    },
    Family {
        name: "lanewatch_web_config_last_reload_successful",
        kind: MetricKind::Gauge,
        help: "Whether the last reload of the web configuration and its certificates succeeded.",
        labels: &[],
        worst: "1",
        since: FIRST_RELEASE,
        write: |view, out| out.known(&[], view.agent.web.map(|web| f64::from(u8::from(web.reload_successful)))),
    },
    Family {
        name: "lanewatch_web_config_last_reload_success_timestamp_seconds",
        kind: MetricKind::Gauge,
        help: "Time of the last successful reload of the web configuration, in seconds since 1970.",
        labels: &[],
        worst: "1",
        since: FIRST_RELEASE,
        write: |view, out| out.known(&[], view.agent.web.map(|web| unix_seconds(web.reloaded))),
    },
    Family {
        name: "lanewatch_web_certificate_expiry_timestamp_seconds",
        kind: MetricKind::Gauge,
        help: "Expiry of the server's certificate, in seconds since 1970.",
        labels: &[],
        worst: "1",
        since: FIRST_RELEASE,
        write: |view, out| {
            out.known(&[], view.agent.web.and_then(|web| web.certificate_expires).map(unix_seconds));
        },
    },
    Family {
        name: "lanewatch_web_refused_clients_total",
        kind: MetricKind::Counter,
        help: "TLS connections that were rejected since the agent started, by reason; most are client \
               certificates that the web configuration does not accept. Absent without TLS.",
        labels: &["reason"],
        worst: "8",
        since: FIRST_RELEASE,
        write: |view, out| {
            let encrypted = view.agent.web.is_some_and(|web| web.certificate_expires.is_some());
            for (why, count) in TlsRejection::ALL.iter().zip(view.agent.tls_rejections).filter(|_| encrypted) {
                out.counter(&[why.as_str().into()], count);
            }
        },
    },
    Family {
        name: "lanewatch_web_closed_connections_total",
        kind: MetricKind::Counter,
        help: "Connections that the server closed, by reason: the client read too slowly, too many responses or connections were open, or the web configuration became stricter; absent if there are none.",
        labels: &["reason"],
        worst: "4",
        since: FIRST_RELEASE,
        write: |view, out| {
            let closed = ClosedConnection::ALL.iter().zip(view.agent.closed_connections);
            for (why, count) in closed.filter(|(_, count)| *count > 0) {
                out.counter(&[why.as_str().into()], count);
            }
        },
    },
];

const COLLECTOR: &[&str] = &["collector"];

/// Shorter waits say nothing: workers are shared.
const NOTABLE_WAIT: Duration = Duration::from_millis(10);

fn each(view: &ReportView<'_>, mut write: impl FnMut(&[Label<'_>], &CollectorState)) {
    for collector in &view.report.snapshot.collectors {
        write(&[collector.name.into()], collector);
    }
}

fn host_info(view: &ReportView<'_>, out: &mut Series<'_, '_>) {
    let kernel = view.report.snapshot.system().and_then(|system| system.kernel.as_ref());
    let posture = view.report.snapshot.all::<Posture>().next();
    out.info(&[
        kernel.into(),
        posture.and_then(|posture| posture.virtualization).into(),
        posture.and_then(|posture| posture.iommu.as_ref()).into(),
        posture.and_then(|posture| posture.rdma_netns_mode).into(),
    ]);
}

fn read_errors(view: &ReportView<'_>, out: &mut Series<'_, '_>) {
    for collector in &view.report.snapshot.collectors {
        for (reason, count) in ReadError::ALL.iter().zip(collector.errors).filter(|(_, count)| *count > 0) {
            out.counter(&[collector.name.into(), reason.as_str().into()], count);
        }
    }
}

/// The process, by the names that every exporter uses.
pub const PROCESS: &[Family] = &[
    Family {
        name: "process_cpu_seconds_total",
        kind: MetricKind::Counter,
        help: "User and system CPU time of the agent (/proc/self/stat).",
        labels: &[],
        worst: "1",
        since: FIRST_RELEASE,
        write: |view, out| {
            if let Some(cpu) = view.process.cpu {
                out.seconds(&[], cpu.as_secs_f64());
            }
        },
    },
    Family {
        name: "process_resident_memory_bytes",
        kind: MetricKind::Gauge,
        help: "Resident memory of the agent (/proc/self/stat).",
        labels: &[],
        worst: "1",
        since: FIRST_RELEASE,
        write: |view, out| out.known(&[], view.process.resident_bytes),
    },
    Family {
        name: "process_open_fds",
        kind: MetricKind::Gauge,
        help: "Open file descriptors of the agent (/proc/self/fd).",
        labels: &[],
        worst: "1",
        since: FIRST_RELEASE,
        write: |view, out| out.known(&[], view.process.open_fds),
    },
    Family {
        name: "process_max_fds",
        kind: MetricKind::Gauge,
        help: "Most file descriptors that the agent may open (RLIMIT_NOFILE); absent without a limit.",
        labels: &[],
        worst: "1",
        since: FIRST_RELEASE,
        write: |view, out| out.known(&[], view.process.max_fds),
    },
    Family {
        name: "process_start_time_seconds",
        kind: MetricKind::Gauge,
        help: "Start of the agent in seconds since 1970 (/proc/self/stat, /proc/stat).",
        labels: &[],
        worst: "1",
        since: FIRST_RELEASE,
        write: |view, out| out.known(&[], view.process.started),
    },
];
