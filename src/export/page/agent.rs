//! The agent: what it cannot see, recent events, and the state of its checks and collectors.

use maud::{Markup, html};

use super::findings::prose;
use crate::assess::visibility::{VisibilityLevel, visibility};
use crate::export::view::unknowns;
use crate::model::check::{Check, CheckResult};
use crate::model::snapshot::CollectorState;
use crate::watch::HostReport;

/// Events shown; all that are kept are in the JSON.
const EVENTS: usize = 15;

/// Lines shown of what is not known.
const UNKNOWNS: usize = 15;

/// Faults shown of one collector.
const FAULTS: usize = 12;

/// What could not be judged, and why.
pub(super) fn unknown(report: &HostReport) -> Markup {
    let groups = unknowns(report);
    html! {
        @if !groups.is_empty() {
            section {
                h2 { "Unknown" }
                ul.plain {
                    @for group in groups.iter().take(UNKNOWNS) {
                        li { code { (group.subject) } " " (group.why()) " " span.dim { "(" (group.checks()) ")" } }
                    }
                    @if groups.len() > UNKNOWNS { li { "and " (groups.len() - UNKNOWNS) " more (in the JSON of findings)" } }
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
    let areas = visibility(&report.snapshot, &report.vf_map);
    let blind = areas.iter().filter(|area| area.seen >= VisibilityLevel::Partly).count();
    html! {
        section {
            details id="visibility" open[blind > 0] {
                summary { h2 { "Visibility" } @if blind > 0 { span.remark { (blind) " of " (areas.len()) " areas not fully visible" } } }
                div.scroll {
                    table {
                        thead { tr { th { "area" } th { "visible" } th { "reason and fix" } } }
                        tbody {
                            @for area in &areas {
                                @let tone = if area.seen >= VisibilityLevel::Partly { "fair" } else { "" };
                                tr {
                                    td { code { (area.area) } }
                                    td { b.(tone) { (area.seen.as_str().replace('_', " ")) } }
                                    td { (area.text) @if let Some(remedy) = &area.remedy { "; " (remedy) } }
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
            h2 { "Recent events" }
            @if report.events.is_empty() { p.none { "No events yet." } }
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
                    p.more { (report.events.len() - EVENTS) " older events in " a href="/api/v1/events" { "the JSON" } "." }
                }
            }
        }
    }
}

/// How many subjects stand where with each check.
pub(super) fn checks(report: &HostReport) -> Markup {
    html! {
        section {
            details id="checks" {
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
            details id="collectors" open[any] {
                summary { h2 { "Collectors" } @if any { span.remark { "some files are not readable" } } }
                div.scroll {
                    table {
                        thead { tr { th { "collector" } th { "state" } th.number { "duration" } th.number { "quarantined" } } }
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
            (_, stuck @ [_, ..]) => { b.bad { "not responding: " (stuck.join(", ")) } }
            (None, _) => { b.bad { "cannot list devices" } }
            (Some(listed), []) => {
                "ok, " (listed.len()) " read"
                @if !collector.faults.is_empty() { ", " b.fair { (collector.faults.len()) " not readable" } }
            }
        }
    }
}
