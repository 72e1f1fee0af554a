//! Kernel messages.

use super::FIRST;
use crate::export::catalogue::{Family, Kind};
use crate::export::content::Content;
use crate::model::kmsg::KernelLog;

/// The rows.
pub const FAMILIES: &[Family] = &[
    Family {
        name: "lanewatch_kernel_messages_total",
        kind: Kind::Counter,
        help: "Kernel messages about watched hardware since the agent's start, by who said what (/dev/kmsg).",
        labels: &["driver", "kind"],
        worst: "about 65; none where the log cannot be read",
        since: FIRST,
        write: |content, out| {
            for ((driver, kind), count) in log(content).into_iter().flat_map(|log| &log.counts) {
                out.counter(&[driver.as_str().into(), kind.as_str().into()], *count);
            }
        },
    },
    Family {
        name: "lanewatch_kernel_messages_lost_total",
        kind: Kind::Counter,
        help: "Kernel log records that were dropped before the agent could read them (/dev/kmsg).",
        labels: &[],
        worst: "1",
        since: FIRST,
        write: |content, out| {
            if let Some(log) = log(content) {
                out.counter(&[], log.lost);
            }
        },
    },
];

fn log<'a>(content: &Content<'a>) -> Option<&'a KernelLog> {
    content.report.snapshot.all::<KernelLog>().next()
}
