//! The status page at `/`: the host at a glance, with nothing from elsewhere.

mod agent;
mod findings;
mod gpus;
mod path;
mod vfs;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::export::path::{PathDiagram, diagrams};
use crate::export::text::style::span;
use crate::model::check::Status;
use crate::model::time::rfc3339;
use crate::watch::HostReport;

const STYLE: &str = include_str!("style.css");

/// Keeps what the reader opened or closed across refreshes; the page is complete without it.
const SCRIPT: &str = include_str!("script.js");

/// What the page may load: its own style and its own script, nothing else.
pub const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; \
    script-src 'sha256-C0smYBJY7ohm7de5tJHfaqLiDmqqu/bpDsLvHw21zxI='; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'";

/// With so many devices or fewer, the paths of healthy ones are drawn too; otherwise they are folded.
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
                        h1 { span.status { "STARTING" } " first pass not complete" }
                    },
                }
                (footer(telemetry_path))
                script { (PreEscaped(SCRIPT)) }
            }
        }
    }
    .into_string()
}

fn whole(report: &HostReport) -> Markup {
    let diagrams = diagrams(report);
    html! {
        (header(report, &diagrams))
        main {
            (findings::section(report))
            (findings::pending(report))
            section {
                h2 { "PCIe paths" }
                @if diagrams.is_empty() { p.none { "No RDMA devices found." } }
                @for diagram in &diagrams { (path::device(report, diagram, diagrams.len() <= DRAWN)) }
            }
            (gpus::section(report))
            (vfs::section(report))
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

fn header(report: &HostReport, diagrams: &[PathDiagram<'_>]) -> Markup {
    let ports = || diagrams.iter().flat_map(|diagram| &diagram.ports);
    let active = ports().filter(|end| end.port.is_active()).count();
    let unread = ports().filter(|end| end.port.state.value().is_none()).count();
    let system = report.snapshot.system();
    let uptime = system.and_then(|system| system.uptime);
    html! {
        header class=(report.status.as_str()) {
            p.brand { "lanewatch" }
            h1 { span.status { (word(report.status)) } " " (host(report)) }
            p.facts {
                span { b { (diagrams.len()) } @if diagrams.len() == 1 { " device" } @else { " devices" } }
                span { b { (active) } " of " b { (ports().count()) } " ports active" @if unread > 0 { ", " b { (unread) } " unknown" } }
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

fn word(status: Status) -> String {
    status.as_str().to_ascii_uppercase()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use base64::Engine as _;

    use super::*;
    use crate::assess::capacity::HostCapacity;
    use crate::export::testing;
    use crate::model::finding::{Event, EventKind};

    fn report() -> HostReport {
        let mut report = testing::report();
        report.lanes = HostCapacity::new(&report.snapshot, &report.topology);
        report
    }

    #[test]
    fn it_says_what_the_report_says() {
        let page = page(Some(&report()), "/metrics");
        for part in [
            "<title>lanewatch: CRITICAL on node7</title>",
            "<meta http-equiv=\"refresh\" content=\"15\">",
            "<b>4</b> devices",
            "The PCIe path of mlx5_3/1 carries 63.0 Gb/s of 200 Gb/s.",
            "pcie_below_port_rate · link_degraded",
            "<b>63.0 Gb/s</b><small>8 GT/s x8</small>",
            "<strong class=\"limit\">the limit</strong>",
            "degraded in speed and width: both ends support 16 GT/s x16 = 252.1 Gb/s",
            "the link above 0000:98:00.0 is the limit (trained at 8 GT/s x8",
            "at their maximum, no longer counting: link_downed",
            "old board, known",
            "a finding if it holds for 10m.",
            "Holders of VFs are hidden.",
            "16 GT/s x16 became 8 GT/s x8.",
            "not responding: 0000:3b:00.0",
            "sys/class/infiniband/mlx5_10/ports/1/state",
            "href=\"/metrics\"",
            "href=\"/api/v1/findings\"",
            "<a class=\"subject\" href=\"#mlx5_3\"><code>mlx5_3/1</code></a>",
            "<details class=\"path critical\" id=\"mlx5_3\" open>",
            "VF of <code>0000:98:00.0</code>",
        ] {
            assert!(page.contains(part), "{part:?} is not in the page");
        }
        let order = ["bnxt_re0", "mlx5_3", "mlx5_10", "rxe0"].map(|name| page.find(&format!("class=\"name\">{name}<")));
        assert!(order.iter().all(Option::is_some) && order.is_sorted(), "{order:?}");
    }

    #[test]
    fn the_policy_allows_the_script_of_the_page_and_no_other() {
        let hash = ring::digest::digest(&ring::digest::SHA256, SCRIPT.as_bytes());
        let hash = base64::engine::general_purpose::STANDARD.encode(hash);
        assert!(CONTENT_SECURITY_POLICY.contains(&format!("script-src 'sha256-{hash}'")), "{hash}");
    }

    #[test]
    fn vfs_are_listed_with_their_holders() {
        let page = page(Some(&report()), "/metrics");
        for part in ["<h2>Virtual functions</h2>", "id=\"vfs-0000:98:00.0\"", "1 of 8 VFs", "<th>holder</th>"] {
            assert!(page.contains(part), "{part:?} in {page}");
        }
    }

    #[test]
    fn nothing_comes_from_elsewhere() {
        let page = page(Some(&report()), "/metrics");
        let foreign = ["http://", "https://", "src=", "<img", "<link", "@import", "url(", " onclick", " onload"];
        for part in foreign {
            assert!(!page.contains(part), "{part:?} is in the page");
        }
    }

    #[test]
    fn texts_of_the_host_stay_texts() {
        let mut report = report();
        let bad = "<script>alert(1)</script>\"'&";
        report.events = Arc::from([Event {
            time: bad.to_owned(),
            kind: EventKind::Started,
            subject: bad.to_owned(),
            text: bad.to_owned(),
            link_downed: None,
        }]);
        report.limited = vec![Arc::from(bad)];
        report.findings[0].condition.summary = bad.to_owned();
        report.excepted[0].1 = Arc::from(bad);
        let mut devices: Vec<_> = report.snapshot.devices().cloned().collect();
        let mut identity = (*devices[0].identity).clone();
        identity.hca_type = Some(Arc::from(bad));
        identity.firmware_version = Some(Arc::from(bad));
        devices[0].identity = Arc::new(identity);
        devices[0].ports[0].netdev = Some(Arc::from(bad));
        devices[0].name = crate::model::ids::DeviceName::new(bad);
        for page in [page(Some(&report), bad), page(Some(&testing::report_of(devices)), bad)] {
            assert_eq!(page.matches("<script").count(), 1, "its own alone");
            assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;&quot;"));
        }
    }

    #[test]
    fn a_quiet_host_and_one_that_is_not_read_yet() {
        let mut report = testing::report_of(Vec::new());
        report.findings.clear();
        report.excepted.clear();
        report.pending.clear();
        report.limited.clear();
        report.events = Arc::from([]);
        report.status = Status::Ok;
        let quiet = page(Some(&report), "/metrics");
        for part in ["lanewatch: OK on this host", "No findings.", "No RDMA devices found.", "No events yet."] {
            assert!(quiet.contains(part), "{part:?}");
        }
        assert!(!quiet.contains("Pending") && !quiet.contains("Accepted") && !quiet.contains("Hidden from"));
        let none = page(None, "/m");
        assert!(none.contains("first pass not complete") && none.contains("href=\"/m\""));
    }

    #[test]
    fn many_devices_that_are_well_are_folded() {
        let one = testing::report().snapshot.devices().find(|device| device.name.as_str() == "mlx5_3").unwrap().clone();
        let devices = (0..64).map(|n| {
            let name = crate::model::ids::DeviceName::new(&format!("mlx5_{n}"));
            crate::model::rdma::RdmaDevice { name, ..one.clone() }
        });
        let mut report = testing::report_of(devices.collect());
        report.findings.clear();
        report.lanes = HostCapacity::default();
        let page = page(Some(&report), "/metrics");
        assert_eq!(page.matches("<details class=\"path").count(), 64);
        assert_eq!(page.matches("\" open>").count(), 0);
        assert!(page.len() < 400_000, "{}", page.len());
    }
}
