//! What was found, and what policy accepts.

use maud::{Markup, html};

use crate::export::text::style::span;
use crate::export::view::{FindingGroup, effect, groups};
use crate::model::check::Severity;
use crate::model::finding::{Condition, Finding, PendingFinding};
use crate::model::time::rfc3339;
use crate::watch::HostReport;

/// The findings, worst first.
pub(super) fn section(report: &HostReport) -> Markup {
    html! {
        section {
            h2 { "Findings" @if !report.findings.is_empty() { " " span.count { (report.findings.len()) } } }
            @if report.findings.is_empty() { p.none { "No findings." } }
            @for group in groups(report) { (one(report, &group)) }
        }
    }
}

/// Conditions that are not findings yet, and how long they must hold.
pub(super) fn pending(report: &HostReport) -> Markup {
    html! {
        @if !report.pending.is_empty() {
            section {
                h2 { "Pending" " " span.count { (report.pending.len()) } }
                ul.plain {
                    @for PendingFinding(finding) in &report.pending {
                        @let condition = &finding.condition;
                        li {
                            b { (condition.severity.as_str()) } " " (subject(condition)) " "
                            span.check { (condition.check.as_str()) " · " (condition.reason.as_str()) } ": "
                            (prose(&condition.summary)) " For " (span(report.snapshot.taken.tick.since(finding.since)))
                            "; a finding if it holds for " (condition.hold) "."
                        }
                    }
                }
            }
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

/// A cause and what follows from it, in the colour of the worst of them.
fn one(report: &HostReport, group: &FindingGroup<'_>) -> Markup {
    let condition = &group.cause.condition;
    let all = group.consequences.iter().map(|finding| finding.condition.severity).chain([condition.severity]);
    let worst = all.max().unwrap_or(Severity::Info);
    html! {
        article.finding.(worst.as_str()) {
            (head(report, group.cause))
            p.summary { (prose(&capital(&condition.summary))) }
            @if !group.consequences.is_empty() {
                ul.consequences {
                    @for finding in &group.consequences {
                        @let condition = &finding.condition;
                        li {
                            "causes " b { (condition.severity.as_str()) } " " (subject(condition)) " "
                            span.check { (condition.check.as_str()) " · " (condition.reason.as_str()) } ": " (effect(condition))
                        }
                    }
                }
            }
        }
    }
}

fn head(report: &HostReport, finding: &Finding) -> Markup {
    let (condition, taken) = (&finding.condition, report.snapshot.taken);
    html! {
        p.head {
            span.badge.(condition.severity.as_str()) { (condition.severity.as_str()) }
            (subject(condition))
            span.check { (condition.check.as_str()) " · " (condition.reason.as_str()) }
            time title=(rfc3339(taken.wall_time(finding.since))) {
                "for " (span(taken.tick.since(finding.since)))
                span.wide { ", since " (rfc3339(taken.wall_time(finding.since))) }
            }
        }
    }
}

/// The subject; a link to its device's path, if it has one.
fn subject(condition: &Condition) -> Markup {
    html! {
        @match &condition.device {
            Some(device) => a.subject href={ "#" (device) } { code { (condition.subject) } },
            None => code.subject { (condition.subject) },
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
