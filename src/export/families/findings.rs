//! What the checks found.

use std::collections::BTreeSet;

use crate::export::family::{FIRST_RELEASE, Family, Label, MetricKind, Series};
use crate::export::view::ReportView;
use crate::model::check::{Check, CheckResult};
use crate::model::ids::DeviceName;
use crate::model::time::unix_seconds;

/// The families, in the order of the exposition.
pub const FAMILIES: &[Family] = &[
    Family {
        name: "lanewatch_finding",
        kind: MetricKind::Gauge,
        help: "Is 1 while a finding holds; findings that the policy accepts are left out.",
        labels: &["check", "severity", "subject", "reason", "device", "port", "pci_address"],
        worst: "1 a check and subject; none on a healthy host",
        since: FIRST_RELEASE,
        write: findings,
    },
    Family {
        name: "lanewatch_check_subjects",
        kind: MetricKind::Gauge,
        help: "Subjects of a check by result; present for every check and result.",
        labels: &["check", "result"],
        worst: "5 a check",
        since: FIRST_RELEASE,
        write: subjects,
    },
    Family {
        name: "lanewatch_evaluation_timestamp_seconds",
        kind: MetricKind::Gauge,
        help: "Last evaluation of the checks, in seconds since 1970.",
        labels: &[],
        worst: "1",
        since: FIRST_RELEASE,
        write: |view, out| out.gauge(&[], unix_seconds(view.report.evaluated)),
    },
];

fn findings(view: &ReportView<'_>, out: &mut Series<'_, '_>) {
    let mut written = BTreeSet::new();
    for finding in &view.report.findings {
        let found = &finding.condition;
        let (device, port, address) = (found.device.as_ref(), found.port, found.pci_address);
        if written.insert((found.check, found.severity, &found.subject, found.reason, device, port, address)) {
            out.gauge(
                &[
                    found.check.as_str().into(),
                    found.severity.as_str().into(),
                    Label::Subject(&found.subject),
                    found.reason.as_str().into(),
                    device.map(DeviceName::as_str).into(),
                    port.into(),
                    address.into(),
                ],
                true,
            );
        }
    }
}

fn subjects(view: &ReportView<'_>, out: &mut Series<'_, '_>) {
    for check in Check::ALL {
        let counts = view.report.standings.get(check).copied().unwrap_or_default();
        for (standing, count) in CheckResult::ALL.iter().zip(counts) {
            out.gauge(&[check.as_str().into(), standing.as_str().into()], count);
        }
    }
}
