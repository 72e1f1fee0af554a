//! The agent, its collectors and what they could not read.

use super::FIRST;
use crate::assess::visibility::visibility;
use crate::export::catalogue::{Family, Kind};
use crate::export::content::Content;
use crate::export::series::{Label, Series};
use crate::export::web::Refused;
use crate::model::posture::Posture;
use crate::model::reading::ReadError;
use crate::model::snapshot::CollectorState;
use crate::model::time::unix_seconds;

/// The rows.
pub const FAMILIES: &[Family] = &[
    Family {
        name: "lanewatch_build_info",
        kind: Kind::Info,
        help: "Version of the agent and the revision it was built from.",
        labels: &["version", "revision"],
        worst: "1",
        since: FIRST,
        write: |content, out| out.info(&[content.agent.version.into(), content.agent.revision.into()]),
    },
    Family {
        name: "lanewatch_host_info",
        kind: Kind::Info,
        help: "What the host says of itself: kernel release (/proc/sys/kernel/osrelease) and modes.",
        labels: &["kernel", "virtualization", "iommu", "rdma_netns_mode"],
        worst: "1",
        since: FIRST,
        write: host_info,
    },
    Family {
        name: "lanewatch_visibility_info",
        kind: Kind::Info,
        help: "How much of the host can be seen from where the agent stands (seen, nothing_there, partly, hidden), by area, \
               and the reason why not all of it.",
        labels: &["area", "visibility", "reason"],
        worst: "13",
        since: FIRST,
        write: |content, out| {
            for sight in visibility(&content.report.snapshot, &content.report.vf_map) {
                out.info(&[sight.area.into(), sight.seen.as_str().into(), sight.reason.into()]);
            }
        },
    },
    Family {
        name: "lanewatch_collector_success",
        kind: Kind::Gauge,
        help: "Whether the collector's last pass was complete; hardware that is not there is success with nothing found.",
        labels: COLLECTOR,
        worst: "1 a collector",
        since: FIRST,
        write: |content, out| each(content, |labels, collector| out.gauge(labels, collector.success)),
    },
    Family {
        name: "lanewatch_collector_duration_seconds",
        kind: Kind::Gauge,
        help: "How long the collector's last pass took.",
        labels: COLLECTOR,
        worst: "1 a collector",
        since: FIRST,
        write: |content, out| each(content, |labels, collector| out.gauge(labels, collector.duration.as_secs_f64())),
    },
    Family {
        name: "lanewatch_collector_last_success_timestamp_seconds",
        kind: Kind::Gauge,
        help: "When the collector's last complete pass ended, in seconds since 1970.",
        labels: COLLECTOR,
        worst: "1 a collector",
        since: FIRST,
        write: |content, out| {
            each(content, |labels, collector| {
                out.known(labels, collector.last_success.map(|stamp| unix_seconds(stamp.wall)));
            });
        },
    },
    Family {
        name: "lanewatch_collector_stuck",
        kind: Kind::Gauge,
        help: "How many devices do not answer the collector within its deadline; they are left alone until they do.",
        labels: COLLECTOR,
        worst: "1 a collector",
        since: FIRST,
        write: |content, out| each(content, |labels, collector| out.gauge(labels, collector.stuck.len())),
    },
    Family {
        name: "lanewatch_read_errors_total",
        kind: Kind::Counter,
        help: "Files and messages that could not be read, by errno class; an optional file that is missing is no error.",
        labels: &["collector", "reason"],
        worst: "7 a collector",
        since: FIRST,
        write: read_errors,
    },
    Family {
        name: "lanewatch_quarantined_files",
        kind: Kind::Gauge,
        help: "Files that are left alone for a while because the driver refused them (EINVAL, EOPNOTSUPP).",
        labels: COLLECTOR,
        worst: "1 a collector",
        since: FIRST,
        write: |content, out| each(content, |labels, collector| out.gauge(labels, collector.quarantined)),
    },
    Family {
        name: "lanewatch_config_last_reload_successful",
        kind: Kind::Gauge,
        help: "Whether the last reading of the configuration succeeded; after a failure the old one stays in force.",
        labels: &[],
        worst: "1",
        since: FIRST,
        write: |content, out| out.gauge(&[], content.agent.reload_successful),
    },
    Family {
        name: "lanewatch_config_last_reload_success_timestamp_seconds",
        kind: Kind::Gauge,
        help: "When the configuration in force was read, in seconds since 1970.",
        labels: &[],
        worst: "1",
        since: FIRST,
        write: |content, out| out.known(&[], content.agent.reloaded.map(unix_seconds)),
    },
    Family {
        name: "lanewatch_web_config_last_reload_successful",
        kind: Kind::Gauge,
        help: "Whether the last reading of the web configuration and of its certificates succeeded.",
        labels: &[],
        worst: "1",
        since: FIRST,
        write: |content, out| out.known(&[], content.agent.web.map(|web| f64::from(u8::from(web.reload_successful)))),
    },
    Family {
        name: "lanewatch_web_config_last_reload_success_timestamp_seconds",
        kind: Kind::Gauge,
        help: "When the web configuration in force was read, in seconds since 1970.",
        labels: &[],
        worst: "1",
        since: FIRST,
        write: |content, out| out.known(&[], content.agent.web.map(|web| unix_seconds(web.reloaded))),
    },
    Family {
        name: "lanewatch_web_certificate_expiry_timestamp_seconds",
        kind: Kind::Gauge,
        help: "When the certificate that the server shows ends, in seconds since 1970.",
        labels: &[],
        worst: "1",
        since: FIRST,
        write: |content, out| {
            out.known(&[], content.agent.web.and_then(|web| web.certificate_ends).map(unix_seconds));
        },
    },
    Family {
        name: "lanewatch_web_refused_clients_total",
        kind: Kind::Counter,
        help: "Clients that got no encrypted connection since the agent's start, by why: most are certificates that the web \
               configuration does not accept. Absent where connections are not encrypted.",
        labels: &["reason"],
        worst: "8",
        since: FIRST,
        write: |content, out| {
            let encrypted = content.agent.web.is_some_and(|web| web.certificate_ends.is_some());
            for (why, count) in Refused::ALL.iter().zip(content.agent.refused).filter(|_| encrypted) {
                out.counter(&[why.as_str().into()], count);
            }
        },
    },
];

const COLLECTOR: &[&str] = &["collector"];

fn each(content: &Content<'_>, mut write: impl FnMut(&[Label<'_>], &CollectorState)) {
    for collector in &content.report.snapshot.collectors {
        write(&[collector.name.into()], collector);
    }
}

fn host_info(content: &Content<'_>, out: &mut Series<'_, '_>) {
    let kernel = content.report.snapshot.system().and_then(|system| system.kernel.as_ref());
    let posture = content.report.snapshot.all::<Posture>().next();
    out.info(&[
        kernel.into(),
        posture.and_then(|posture| posture.virtualization).into(),
        posture.and_then(|posture| posture.iommu.as_ref()).into(),
        posture.and_then(|posture| posture.rdma_netns_mode).into(),
    ]);
}

fn read_errors(content: &Content<'_>, out: &mut Series<'_, '_>) {
    for collector in &content.report.snapshot.collectors {
        for (reason, count) in ReadError::ALL.iter().zip(collector.errors) {
            out.counter(&[collector.name.into(), reason.as_str().into()], count);
        }
    }
}
