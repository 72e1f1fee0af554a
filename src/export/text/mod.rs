//! Text for people and for other monitors.

pub mod check;
pub mod explain;
pub mod style;
pub mod topo;
mod verbose;
pub mod vf;

use std::fmt::Write as _;

use style::Style;

use super::view::{FindingGroup, effect};
use crate::model::benchmark::{BenchmarkRun, Direction, Outcome, Statistic};
use crate::model::time::BootTime;
use crate::model::units::BytesPerSecond;
use crate::watch::HostReport;

/// Writes a cause with what to do, then what follows from it. `began`: when this run began, if a finding that is no
/// older is to be called new.
pub(super) fn write_group(
    out: &mut String,
    report: &HostReport,
    group: &FindingGroup<'_>,
    style: &Style,
    began: Option<BootTime>,
    indent: &str,
) {
    let condition = &group.cause.condition;
    let below = format!("{indent}         ");
    let _ = writeln!(
        out,
        "\n{indent}{} {} {} ({}), {}",
        style.severity(condition.severity),
        style.bold(condition.check.as_str()),
        condition.subject,
        condition.reason,
        style.since(report.snapshot.taken, group.cause.since, began)
    );
    out.push_str(&style.wrap(&condition.summary, &below));
    for consequence in &group.consequences {
        let condition = &consequence.condition;
        let severity = condition.severity.as_str();
        let text = format!(
            "causes {severity} {} {} ({}): {}",
            condition.check.as_str(),
            condition.subject,
            condition.reason,
            effect(condition)
        );
        let colored = style.of_severity(condition.severity, severity).to_string();
        out.push_str(&style.wrap(&text, &below).replacen(severity, &colored, 1));
    }
}

/// The results of some runs.
pub fn runs(report: &HostReport, runs: &[BenchmarkRun], style: &Style) -> String {
    let mut out = String::new();
    for run in runs {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{}: {}{}", run.key, run.result.outcome().as_str(), reason(run));
        out.push_str(&style.wrap(&run.text, "  "));
        if run.result.outcome() == Outcome::Skipped {
            continue;
        }
        let _ = writeln!(out, "  profile  {}", run.profile);
        for (direction, value) in &run.measured.bandwidth {
            let past = report.probes.get(&run.key);
            let usual = past.and_then(|past| past.usual(&run.profile, |m| m.bandwidth(*direction).map(|rate| rate.0)));
            let usual = usual.map(|usual| format!(", usually {}", BytesPerSecond(usual))).unwrap_or_default();
            let ceiling = run.ceiling.filter(|_| *direction == Direction::OneWay);
            let ceiling =
                ceiling.map(|ceiling| format!(", the path carries at most {ceiling} of payload")).unwrap_or_default();
            let _ = writeln!(out, "  {:<8} {}{ceiling}{usual}", direction.as_str(), BytesPerSecond(*value));
        }
        for direction in [Direction::Write, Direction::Read] {
            let one = |statistic, name: &str| {
                let value = run.measured.latency(direction, statistic)?;
                Some(format!("{name} {:.2} µs", value * 1e6))
            };
            let parts =
                [one(Statistic::Typical, "typical"), one(Statistic::P99, "p99"), one(Statistic::Maximum, "maximum")];
            let parts: Vec<String> = parts.into_iter().flatten().collect();
            if !parts.is_empty() {
                let _ = writeln!(out, "  {:<8} {}", direction.as_str(), parts.join(", "));
            }
        }
    }
    if out.is_empty() {
        out.push_str("no port to measure on this host\n");
    }
    out
}

fn reason(run: &BenchmarkRun) -> String {
    if run.result.outcome() == Outcome::Ok { String::new() } else { format!(" ({})", run.result.reason()) }
}
