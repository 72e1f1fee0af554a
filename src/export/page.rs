//! The status page at `/`.

use maud::{DOCTYPE, html};

use crate::watch::Report;

/// The page: name, version, status, and where the rest is. No report means that the first pass is not complete.
pub fn page(report: Option<&Report>, telemetry_path: &str) -> String {
    let status = report.map_or("no complete reading yet", |report| report.status.as_str());
    let links = [telemetry_path, "/api/v1/findings", "/api/v1/events", "/api/v1/snapshot", "/-/healthy", "/-/ready"];
    html! {
        (DOCTYPE)
        html lang="en" {
            head { meta charset="utf-8"; title { "lanewatch" } }
            body {
                h1 { "lanewatch " (env!("CARGO_PKG_VERSION")) }
                p { "Status: " (status) }
                ul { @for link in links { li { a href=(link) { (link) } } } }
            }
        }
    }
    .into_string()
}
