//! What was found, and what policy accepts.

use maud::{Markup, html};

use super::span;
use crate::model::finding::Finding;
use crate::model::time::rfc3339;
use crate::watch::HostReport;

/// The findings, worst first.
pub(super) fn section(report: &HostReport) -> Markup {
    html! {
        section {
            h2 { "Findings" @if !report.findings.is_empty() { " " span.count { (report.findings.len()) } } }
            @if report.findings.is_empty() { p.none { "Nothing found." } }
            @for finding in &report.findings { (one(report, finding)) }
        }
    }
}

/// Findings that policy accepts, with the reason it gives.
pub(super) fn accepted(report: &HostReport) -> Markup {
    html! {
        @if !report.excepted.is_empty() {
            section {
                h2 { "Accepted" }
                ul.plain {
                    @for (finding, reason) in &report.excepted {
                        li {
                            code { (finding.condition.check.as_str()) } " " code { (finding.condition.subject) }
                            ": " (reason)
                        }
                    }
                }
            }
        }
    }
}

/// One finding.
pub(super) fn one(report: &HostReport, finding: &Finding) -> Markup {
    let condition = &finding.condition;
    let taken = report.snapshot.taken;
    html! {
        article.finding.(condition.severity.as_str()) {
            p.head {
                span.badge { (condition.severity.as_str()) }
                @match &condition.device {
                    Some(device) => a.subject href={ "#" (device) } { code { (condition.subject) } },
                    None => code.subject { (condition.subject) },
                }
                span.check { (condition.check.as_str()) " · " (condition.reason) }
                time title=(rfc3339(taken.wall_time(finding.since))) {
                    "for " (span(taken.tick.since(finding.since)))
                    span.wide { ", since " (rfc3339(taken.wall_time(finding.since))) }
                }
            }
            p.summary { (prose(&capital(&condition.summary))) }
        }
    }
}

/// A text with its `commands` set apart.
pub(super) fn prose(text: &str) -> Markup {
    html! {
        @for (index, part) in text.split('`').enumerate() {
            @if index % 2 == 1 { code { (part) } } @else { (part) }
        }
    }
}

/// A sentence as it begins a paragraph; names of devices stay as they are.
fn capital(sentence: &str) -> String {
    match sentence.strip_prefix("the ") {
        Some(rest) => format!("The {rest}"),
        None => sentence.to_owned(),
    }
}
