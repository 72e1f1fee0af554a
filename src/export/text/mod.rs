//! Text for people and for other monitors.

use std::fmt::Write as _;

use self::style::Style;
use crate::export::view::{FindingGroup, effect};
use crate::model::time::BootTime;
use crate::watch::HostReport;

pub mod bench;
pub mod check;
pub mod explain;
pub mod style;
mod verbose;
pub mod vf;

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
