//! A device's path as a picture: memory, PCIe link by link, card, ports, fabric. Boxes are things, bars are links;
//! the thicker a bar, the more it carries.

use maud::{Markup, html};

use crate::export::path::{HopState, PathDiagram, PathEnd, PathHop};
use crate::model::check::Severity;
use crate::model::pcie::FunctionKind;
use crate::model::rdma::LinkLayer;
use crate::model::units::BytesPerSecond;
use crate::watch::HostReport;

/// One device: a line that says all, and the picture behind it.
pub(super) fn device(report: &HostReport, diagram: &PathDiagram<'_>, draw: bool) -> Markup {
    let worst = diagram.findings.iter().map(|finding| finding.condition.severity).max();
    let serious = worst.filter(|severity| *severity > Severity::Info);
    let held_back = diagram.ports.iter().any(|end| end.held_back);
    let class = match (serious, held_back) {
        (Some(severity), _) => severity.as_str(),
        (None, true) => "info",
        (None, false) if diagram.ports.iter().any(|end| end.port.is_active()) => "ok",
        (None, false) => "quiet",
    };
    html! {
        details.path.(class) id=(diagram.device.name) open[draw || serious.is_some() || held_back] {
            summary {
                b.name { (diagram.device.name) }
                span.ports {
                    @for end in &diagram.ports { (meter(end)) }
                    @if diagram.ports.is_empty() { span.dim { "no ports" } }
                }
                @if let Some(path) = report.lanes.paths.get(&diagram.device.name) {
                    span.dim.wide { "PCIe path " (path.bandwidth) " · " code { (path.function) } }
                }
            }
            (picture(report, diagram))
            @for end in &diagram.ports {
                p.verdict.(if end.held_back { "bad" } else { "well" }) {
                    @if diagram.ports.len() > 1 { b { (end.key) ": " } }
                    (end.verdict)
                }
                @for remark in end.remarks() { p.remark { (remark) } }
            }
        }
    }
}

/// What a port gets of its rate, as a small bar with numbers.
fn meter(end: &PathEnd<'_>) -> Markup {
    let carries = end.share.or(end.ceiling);
    html! {
        span.meter {
            @match (end.rate, carries) {
                (Some(rate), Some(carries)) => {
                    span.tube title=(end.key) { span.fill style=(format!("width:{:.0}%", part(carries, rate) * 100.0)) {} }
                    span { b { (carries) } @if end.held_back { " of " (rate) } }
                }
                (Some(rate), None) => { span { b { (rate) } " at the port" } }
                (None, _) => { span.dim { (end.states()) } }
            }
        }
    }
}

fn part(of: BytesPerSecond, whole: BytesPerSecond) -> f64 {
    if whole.0 > 0.0 { (of.0 / whole.0).clamp(0.0, 1.0) } else { 0.0 }
}

/// Thickness of a bar in pixels: 3 for what carries next to nothing, 22 from 256 Gb/s on, by the square root.
fn thickness(bandwidth: Option<BytesPerSecond>) -> String {
    let gbits = bandwidth.map_or(0.0, BytesPerSecond::gbits);
    format!("--w:{:.0}px", 3.0 + 19.0 * (gbits / 256.0).clamp(0.0, 1.0).sqrt())
}

fn picture(report: &HostReport, diagram: &PathDiagram<'_>) -> Markup {
    html! {
        div.picture {
            (memory(diagram))
            @if !diagram.hops.is_empty() { (plain()) }
            @for (index, hop) in diagram.hops.iter().enumerate() {
                (above(report, diagram, index, hop))
                (link(hop))
            }
            @if diagram.hops.is_empty() { (plain()) }
            (card(diagram))
            @if !diagram.ports.is_empty() {
                div.ends { @for end in &diagram.ports { (port(end)) } }
            }
        }
    }
}

/// A connection of which nothing is known or said.
fn plain() -> Markup {
    html! { div.bar.plain { span.pipe style="--w:3px" {} } }
}

fn memory(diagram: &PathDiagram<'_>) -> Markup {
    html! {
        div.box {
            @match &diagram.node {
                Some((id, node)) => {
                    b { "NUMA node " (id) }
                    @if let Some(cpus) = node.and_then(|node| node.cpus.as_deref()) { small { "CPUs " (cpus) } }
                }
                None => {
                    b { "Memory" }
                    small { @if diagram.function.is_some() { "NUMA node unknown" } @else { "no PCI function" } }
                }
            }
        }
    }
}

/// The port above a link; below the first link, it is one of a switch.
fn above(report: &HostReport, diagram: &PathDiagram<'_>, index: usize, hop: &PathHop<'_>) -> Markup {
    let before = index.checked_sub(1).and_then(|before| diagram.hops.get(before));
    html! {
        div.box {
            @match (hop.link.upstream, before) {
                (Some((address, _)), Some(before)) => {
                    b { "PCIe switch" } small { code { (before.link.name) } } small { code { (address) } }
                }
                (Some((address, _)), None) => {
                    @let root = report.snapshot.function(address).is_none_or(|function| function.upstream.is_none());
                    b { @if root { "Root port" } @else { "PCIe port" } }
                    small { code { (address) } }
                }
                (None, _) => { b { "?" } small { "no port visible" } }
            }
        }
    }
}

fn link(hop: &PathHop<'_>) -> Markup {
    let class = match hop.state {
        HopState::Full => "full",
        HopState::Degraded | HopState::OffBus => "degraded",
        HopState::LimitedBySlot => "slot",
        HopState::Unknown | HopState::Nominal => "unknown",
    };
    let bandwidth = hop.link.bandwidth();
    html! {
        div.bar.(class) {
            span.text {
                @if let Some(bandwidth) = bandwidth { b { (bandwidth) } small { (hop.link) } } @else { small { "unknown" } }
            }
            span.pipe style=(thickness(bandwidth)) {}
            span.text {
                @if hop.limits { strong.limit { "the limit" } }
                small { (hop.words()) }
            }
        }
    }
}

fn card(diagram: &PathDiagram<'_>) -> Markup {
    let identity = &diagram.device.identity;
    let driver = diagram.function.and_then(|function| function.driver.as_deref());
    let vfs = diagram.function.and_then(|function| function.vfs_present.zip(function.vfs_limit));
    html! {
        div.box.card {
            b { (diagram.device.name) }
            @if let Some(address) = identity.pci_address { small { code { (address) } } }
            @if let Some(FunctionKind::Virtual { pf: Some(pf) }) = diagram.function.map(|function| function.kind) {
                small { "VF of " code { (pf) } }
            }
            @if let Some(model) = &identity.hca_type { small { (model) } }
            @if let Some(firmware) = &identity.firmware_version { small { "firmware " (firmware) } }
            @if let Some(driver) = driver { small { (driver) } }
            @if let Some((present, limit)) = vfs { small { (present) " of " (limit) " VFs" } }
        }
    }
}

/// A port, its link to the fabric, and the fabric.
fn port(end: &PathEnd<'_>) -> Markup {
    let port = end.port;
    let active = port.is_active();
    let fabric = match &port.link_layer {
        Some(LinkLayer::Ethernet) => "Ethernet",
        Some(LinkLayer::InfiniBand) => "InfiniBand",
        Some(LinkLayer::Other(_)) | None => "fabric",
    };
    html! {
        div.end {
            div.bar.plain { span.pipe style="--w:3px" {} }
            div.box {
                b { "Port " (port.number) }
                small { (end.states()) }
                @if let Some(netdev) = &port.netdev { small { code { (netdev) } } }
                @if let Some(lid) = port.lid.filter(|lid| *lid != 0) { small { "LID " (lid) } }
                @for line in &end.line { small { (line) } }
            }
            div.bar.(if active { "full" } else { "down" }) {
                span.text { @match end.rate { Some(rate) => b { (rate) }, None => b { @if active { "?" } @else { "no link" } } } }
                span.pipe style=(thickness(end.rate)) {}
                span.text { @if let Some(words) = words(end) { small { (words) } } }
            }
            div.box.fabric { b { (fabric) } }
        }
    }
}

/// Width and speed of the port's link: `4X HDR`.
fn words(end: &PathEnd<'_>) -> Option<String> {
    let rate = end.port.rate.value()?;
    let width = rate.width.map(|width| format!("{width}X "));
    Some(format!("{}{}", width.unwrap_or_default(), rate.speed.as_str()))
}
