//! How the agent fares: what it could not see, what happened, how its checks and collectors stand.

use maud::{Markup, html};

use super::findings::prose;
use crate::assess::visibility::{VisibilityLevel, visibility};
use crate::export::gaps::gaps;
use crate::model::check::{Check, CheckResult};
use crate::model::snapshot::CollectorState;
use crate::watch::HostReport;

/// Events shown; all that are kept are in the JSON.
const EVENTS: usize = 15;

/// Lines shown of what is not known.
const GAPS: usize = 15;

/// Faults shown of one collector.
const FAULTS: usize = 12;

/// What could not be judged, and why.
pub(super) fn unknown(report: &HostReport) -> Markup {
    let gaps = gaps(report);
    html! {
        @if !gaps.is_empty() {
            section {
                h2 { "Not known" }
                ul.plain {
                    @for gap in gaps.iter().take(GAPS) {
                        li { code { (gap.subject) } " " (gap.why()) " " span.dim { "(" (gap.checks()) ")" } }
                    }
                    @if gaps.len() > GAPS { li { "and " (gaps.len() - GAPS) " more (in the JSON of findings)" } }
                }
            }
        }
    }
}

/// What a missing permission hides.
pub(super) fn limits(report: &HostReport) -> Markup {
    html! {
        @if !report.limited.is_empty() {
            section {
                h2 { "Hidden from the agent" }
                ul.plain { @for sentence in &report.limited { li { (sentence) } } }
            }
        }
    }
}

/// How much of the host is seen, and what would show more.
pub(super) fn visibility_table(report: &HostReport) -> Markup {
    let sights = visibility(&report.snapshot, &report.vf_map);
    let blind = sights.iter().filter(|sight| sight.seen >= VisibilityLevel::Partly).count();
    html! {
        section {
            details open[blind > 0] {
                summary { h2 { "Visibility" } @if blind > 0 { span.remark { (blind) " of " (sights.len()) " areas not whole" } } }
                div.scroll {
                    table {
                        thead { tr { th { "area" } th { "visible" } th { "why, and what would change it" } } }
                        tbody {
                            @for sight in &sights {
                                @let tone = if sight.seen >= VisibilityLevel::Partly { "fair" } else { "" };
                                tr {
                                    td { code { (sight.area) } }
                                    td { b.(tone) { (sight.seen.as_str().replace('_', " ")) } }
                                    td { (sight.text) @if let Some(remedy) = &sight.remedy { "; " (remedy) } }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The last events, newest first.
pub(super) fn events(report: &HostReport) -> Markup {
    html! {
        section {
            h2 { "Last events" }
            @if report.events.is_empty() { p.none { "None yet." } }
            @else {
                ol.events {
                    @for event in report.events.iter().take(EVENTS) {
                        li {
                            time { (event.time) }
                            span.what { (event.kind.as_str().replace('_', " ")) }
                            p { @if !event.subject.is_empty() { code { (event.subject) } " " } (prose(&event.text)) }
                        }
                    }
                }
                @if report.events.len() > EVENTS {
                    p.more { (report.events.len() - EVENTS) " older ones in " a href="/api/v1/events" { "the JSON" } "." }
                }
            }
        }
    }
}

/// How many subjects stand where with each check.
pub(super) fn checks(report: &HostReport) -> Markup {
    html! {
        section {
            details {
                summary { h2 { "Checks" } }
                div.scroll {
                    table {
                        thead { tr { th { "check" } @for standing in CheckResult::ALL { th.number { (standing.as_str()) } } } }
                        tbody {
                            @for (check, counts) in &report.standings {
                                tr {
                                    td { code title=(Check::about(*check)) { (check.as_str()) } }
                                    @for (standing, count) in CheckResult::ALL.iter().zip(counts) {
                                        @let tone = if *count > 0 { standing.as_str() } else { "zero" };
                                        td.number.(tone) { (count) }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// How each collector fared, and what it could not read.
pub(super) fn collectors(report: &HostReport) -> Markup {
    let collectors = &report.snapshot.collectors;
    let troubled = |collector: &CollectorState| !collector.success || !collector.faults.is_empty();
    let any = collectors.iter().any(troubled);
    html! {
        section {
            details open[any] {
                summary { h2 { "Collectors" } @if any { span.remark { "not all is readable" } } }
                div.scroll {
                    table {
                        thead { tr { th { "collector" } th { "state" } th.number { "took" } th.number { "left alone" } } }
                        tbody {
                            @for collector in collectors {
                                tr {
                                    td { code { (collector.name) } }
                                    td { (state(collector)) }
                                    td.number { (format!("{:.1} ms", collector.duration.as_secs_f64() * 1e3)) }
                                    td.number { (collector.quarantined) }
                                }
                                @for fault in collector.faults.iter().take(FAULTS) {
                                    tr.fault { td {} td colspan="3" { code { (fault.source) } " " (fault.reason.as_str()) } }
                                }
                                @if collector.faults.len() > FAULTS {
                                    tr.fault { td {} td colspan="3" { "and " (collector.faults.len() - FAULTS) " more" } }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn state(collector: &CollectorState) -> Markup {
    html! {
        @match (&collector.listed, collector.stuck.as_slice()) {
            (_, stuck @ [_, ..]) => { b.bad { "does not answer: " (stuck.join(", ")) } }
            (None, _) => { b.bad { "could not list what is there" } }
            (Some(listed), []) => {
                "ok, " (listed.len()) " read"
                @if !collector.faults.is_empty() { ", " b.fair { (collector.faults.len()) " not readable" } }
            }
        }
    }
}
