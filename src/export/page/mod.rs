//! The status page at `/`: the host at a glance, without scripts and without anything from elsewhere.

mod agent;
mod findings;
mod lane;

use std::time::Duration;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::export::lane::{Lane, lanes};
use crate::model::check::Status;
use crate::model::time::rfc3339;
use crate::watch::HostReport;

const STYLE: &str = include_str!("style.css");

/// What the page may load: its own style, nothing else.
pub const CONTENT_SECURITY_POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// With so many devices or fewer, the lanes of those that are well are drawn too; otherwise they are folded.
const DRAWN: usize = 4;

/// The page. No report means that the first pass is not complete.
pub fn page(report: Option<&HostReport>, telemetry_path: &str) -> String {
    let title = report.map_or_else(
        || "lanewatch: STARTING".to_owned(),
        |report| format!("lanewatch: {} on {}", word(report.status), host(report)),
    );
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta http-equiv="refresh" content=(if report.is_some() { "15" } else { "2" });
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                @match report {
                    Some(report) => (whole(report)),
                    None => header class="unknown" {
                        p.brand { "lanewatch" }
                        h1 { span.status { "STARTING" } " no complete reading yet" }
                    },
                }
                (footer(telemetry_path))
            }
        }
    }
    .into_string()
}

fn whole(report: &HostReport) -> Markup {
    let lanes = lanes(report);
    html! {
        (header(report, &lanes))
        main {
            (findings::section(report))
            section {
                h2 { "Lanes" }
                @if lanes.is_empty() { p.none { "No RDMA device here." } }
                @for lane in &lanes { (lane::device(report, lane, lanes.len() <= DRAWN)) }
            }
            (findings::accepted(report))
            (agent::unknown(report))
            (agent::limits(report))
            (agent::visibility_table(report))
            (agent::events(report))
            (agent::checks(report))
            (agent::collectors(report))
        }
    }
}

fn header(report: &HostReport, lanes: &[Lane<'_>]) -> Markup {
    let ports = || lanes.iter().flat_map(|lane| &lane.ports);
    let active = ports().filter(|end| end.port.is_active()).count();
    let unread = ports().filter(|end| end.port.state.value().is_none()).count();
    let system = report.snapshot.system();
    let uptime = system.and_then(|system| system.uptime);
    html! {
        header class=(report.status.as_str()) {
            p.brand { "lanewatch" }
            h1 { span.status { (word(report.status)) } " " (host(report)) }
            p.facts {
                span { b { (lanes.len()) } @if lanes.len() == 1 { " device" } @else { " devices" } }
                span { b { (active) } " of " b { (ports().count()) } " ports active" @if unread > 0 { ", " b { (unread) } " not known" } }
                @if let Some(kernel) = system.and_then(|system| system.kernel.as_deref()) { span { "Linux " (kernel) } }
                @if let Some(uptime) = uptime { span { "up " (span(uptime)) } }
                span { "as of " time { (rfc3339(report.evaluated)) } }
            }
        }
    }
}

fn footer(telemetry_path: &str) -> Markup {
    let links = [
        (telemetry_path, "Metrics"),
        ("/api/v1/findings", "Findings (JSON)"),
        ("/api/v1/events", "Events (JSON)"),
        ("/api/v1/snapshot", "Facts (JSON)"),
        ("/-/ready", "Ready"),
        ("/-/healthy", "Healthy"),
    ];
    html! {
        footer {
            nav { @for (target, name) in links { a href=(target) { (name) } " " } }
            p { "lanewatch " (env!("CARGO_PKG_VERSION")) }
        }
    }
}

/// The host's name, as far as it has one.
fn host(report: &HostReport) -> &str {
    report.snapshot.system().and_then(|system| system.hostname.as_deref()).unwrap_or("this host")
}

const fn word(status: Status) -> &'static str {
    match status {
        Status::Ok => "OK",
        Status::Unknown => "UNKNOWN",
        Status::Warning => "WARNING",
        Status::Critical => "CRITICAL",
    }
}

/// A length of time in its largest unit: `40 s`, `3 min`, `5 h`, `12 d`.
fn span(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7_200 => format!("{} min", seconds / 60),
        seconds @ 7_200..172_800 => format!("{} h", seconds / 3_600),
        seconds => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests;
