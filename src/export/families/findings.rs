//! What the checks found.

use std::collections::{BTreeMap, BTreeSet};

use crate::export::family::{FIRST_RELEASE, Family, Label, MetricKind, Series};
use crate::export::view::ReportView;
use crate::model::check::{Check, CheckResult};
use crate::model::finding::Finding;
use crate::model::ids::DeviceName;
use crate::model::time::unix_seconds;

/// The families, in the order of the exposition.
pub const FAMILIES: &[Family] = &[
    Family {
        name: "lanewatch_finding",
        kind: MetricKind::Gauge,
        help: "Is 1 while a finding holds; findings that the policy accepts are left out.",
        labels: FINDING,
        worst: "1 per check and subject; none on a healthy host",
        since: FIRST_RELEASE,
        write: |view, out| each(view.report.findings.iter(), out),
    },
    Family {
        name: "lanewatch_pending_finding",
        kind: MetricKind::Gauge,
        help: "Is 1 while a condition holds that is not yet a finding, because it has not held for long enough.",
        labels: FINDING,
        worst: "1 per check and subject; none on a healthy host",
        since: FIRST_RELEASE,
        write: |view, out| each(view.report.pending.iter().map(|pending| &pending.0), out),
    },
    Family {
        name: "lanewatch_check_subjects",
        kind: MetricKind::Gauge,
        help: "Subjects of a check by result: ok, degraded (warning), failed (critical), unknown or skipped; absent if there are none.",
        labels: &["check", "result"],
        worst: "5 per check, about 15 on a healthy host",
        since: FIRST_RELEASE,
        write: subjects,
    },
    Family {
        name: "lanewatch_unread_subjects",
        kind: MetricKind::Gauge,
        help: "Subjects that a check could not judge because something could not be read for another reason than a missing permission; absent if there are none.",
        labels: &["check"],
        worst: "1 per check; none on a healthy host",
        since: FIRST_RELEASE,
        write: unread,
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

const FINDING: &[&str] = &["check", "severity", "subject", "reason", "device", "port", "pci_address"];

fn each<'a>(findings: impl Iterator<Item = &'a Finding>, out: &mut Series<'_, '_>) {
    let mut written = BTreeSet::new();
    for finding in findings {
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

fn unread(view: &ReportView<'_>, out: &mut Series<'_, '_>) {
    let mut counts: BTreeMap<Check, u32> = BTreeMap::new();
    for undecided in view.report.undecided.iter().filter(|undecided| undecided.is_unread()) {
        *counts.entry(undecided.check).or_default() += 1;
    }
    for (check, count) in counts {
        out.gauge(&[check.as_str().into()], count);
    }
}

fn subjects(view: &ReportView<'_>, out: &mut Series<'_, '_>) {
    for check in Check::ALL {
        let counts = view.report.standings.get(check).copied().unwrap_or_default();
        for (standing, count) in CheckResult::ALL.iter().zip(counts).filter(|(_, count)| *count > 0) {
            out.gauge(&[check.as_str().into(), standing.as_str().into()], count);
        }
    }
}
