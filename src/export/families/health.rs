//! What drivers say of their devices' health.

use super::FIRST;
use crate::export::catalogue::{Family, Kind};
use crate::export::content::Content;
use crate::export::series::Label;
use crate::model::health::{FunctionHealth, Reporter};

const WORST: &str = "1 a reporter, of which mlx5 has 5 a function and no function more than 16; none for VFs beside \
                     their PF";

/// The rows.
pub const FAMILIES: &[Family] = &[
    Family {
        name: "lanewatch_health_reporter_healthy",
        kind: Kind::Gauge,
        help: "Whether what a health reporter of a function's driver last reported is mended \
               (DEVLINK_CMD_HEALTH_REPORTER_GET).",
        labels: &["pci_address", "device", "reporter"],
        worst: WORST,
        since: FIRST,
        write: |content, out| each(content, |labels, reporter| out.gauge(labels, !reporter.in_error)),
    },
    Family {
        name: "lanewatch_health_reporter_errors_total",
        kind: Kind::Counter,
        help: "Errors that a health reporter of a function's driver reported (DEVLINK_CMD_HEALTH_REPORTER_GET).",
        labels: &["pci_address", "device", "reporter"],
        worst: WORST,
        since: FIRST,
        write: |content, out| each(content, |labels, reporter| out.counter(labels, reporter.errors)),
    },
    Family {
        name: "lanewatch_health_reporter_recoveries_total",
        kind: Kind::Counter,
        help: "Recoveries of a health reporter of a function's driver that succeeded (DEVLINK_CMD_HEALTH_REPORTER_GET).",
        labels: &["pci_address", "device", "reporter"],
        worst: WORST,
        since: FIRST,
        write: |content, out| each(content, |labels, reporter| out.counter(labels, reporter.recoveries)),
    },
];

fn each(content: &Content<'_>, mut write: impl FnMut(&[Label<'_>], &Reporter)) {
    let mut all: Vec<&FunctionHealth> = content.report.snapshot.all().collect();
    all.sort_by_key(|health| health.pci_address);
    all.dedup_by_key(|health| health.pci_address);
    for health in all {
        for reporter in &health.reporters {
            let labels = [health.pci_address.into(), health.device.as_str().into(), Label::from(&reporter.name)];
            write(&labels, reporter);
        }
    }
}
