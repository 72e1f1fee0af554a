//! The lane of a device, drawn hop by hop, with the limit, its reason and what to do.

use std::fmt::Write as _;

use super::check::wrapped;
use super::paint::Paint;
use crate::export::lane::{Hop, HopState, Lane, PortEnd, setup};
use crate::model::ids::PciAddress;
use crate::model::pcie::{FunctionKind, PciFunction};
use crate::model::snapshot::Snapshot;
use crate::model::time::rfc3339;
use crate::watch::HostReport;

/// Width of the column of names.
const NAMES: usize = 16;

/// Draws a lane; with a port number, that port alone.
pub fn lane(report: &HostReport, lane: &Lane<'_>, only: Option<u32>, paint: Paint) -> String {
    let mut out = String::new();
    let ports: Vec<&PortEnd<'_>> = lane.ports.iter().filter(|end| only.is_none_or(|n| end.port.number == n)).collect();
    let _ = writeln!(out, "{}\n", paint.bold(lane.device.name.as_str()));
    node(&mut out, lane, paint);
    for (index, hop) in lane.hops.iter().enumerate() {
        link(&mut out, &report.snapshot, hop, paint);
        if index + 1 < lane.hops.len() {
            row(&mut out, &hop.link.name.to_string(), "upper port of a switch", paint);
            bar(&mut out);
        }
    }
    function(&mut out, lane, paint);
    device(&mut out, lane, paint);
    for (index, end) in ports.iter().enumerate() {
        if index > 0 {
            out.push('\n');
        }
        port(&mut out, report, end, paint);
    }
    findings(&mut out, report, lane, only, paint);
    out.push('\n');
    for end in &ports {
        let verdict = if ports.len() > 1 { format!("{}: {}", end.key, end.verdict) } else { end.verdict.clone() };
        let text = wrapped(&verdict, "  ");
        let text = text.trim_end_matches('\n');
        let _ = match (end.held_back, end.ceiling) {
            (true, _) => writeln!(out, "{}", paint.bad(text)),
            (false, Some(_)) => writeln!(out, "{}", paint.good(text)),
            (false, None) => writeln!(out, "{}", paint.bold(text)),
        };
    }
    if ports.is_empty() {
        out.push_str("  it has no ports\n");
    }
    out
}

/// The same drawing for those who have nothing but ASCII; only the drawing changes.
pub fn ascii(drawn: &str) -> String {
    drawn.replace('│', "|").replace('┃', "#").replace('◀', "<")
}

fn row(out: &mut String, name: &str, text: &str, paint: Paint) {
    let padding = NAMES.saturating_sub(name.chars().count());
    let line = format!("  {}{:padding$} {text}", paint.bold(name), "");
    let _ = writeln!(out, "{}", line.trim_end());
}

fn bar(out: &mut String) {
    out.push_str("    │\n");
}

fn node(out: &mut String, lane: &Lane<'_>, paint: Paint) {
    if lane.function.is_none() && lane.hops.is_empty() {
        let _ = writeln!(out, "  {}", paint.dim("no PCI function behind it: a software device, or the host hides it"));
        return bar(out);
    }
    match &lane.node {
        Some((id, node)) => {
            let cpus = node.and_then(|node| node.cpus.as_deref());
            let cpus = cpus.map_or_else(|| "CPUs unknown".to_owned(), |cpus| format!("CPUs {cpus}"));
            row(out, &format!("NUMA node {id}"), &cpus, paint);
        }
        None => row(out, "memory", "NUMA node unknown: the firmware does not say", paint),
    }
    bar(out);
}

fn link(out: &mut String, snapshot: &Snapshot, hop: &Hop<'_>, paint: Paint) {
    match hop.link.upstream {
        Some((address, _)) => row(out, &address.to_string(), &above(snapshot, address), paint),
        None => row(out, "(no port)", "the host shows no port above", paint),
    }
    let (stroke, current) = (if hop.limits { "┃" } else { "│" }, hop.current());
    let words = hop.words();
    let words = match hop.state {
        HopState::Degraded | HopState::OffBus => paint.bad(&words).to_string(),
        HopState::LimitedBySlot | HopState::Unknown | HopState::Nominal => paint.fair(&words).to_string(),
        HopState::Full => paint.good(&words).to_string(),
    };
    if hop.limits {
        let _ = writeln!(out, "    {}  {}  {}", paint.bad(stroke), paint.bold(&current), paint.bad("◀ the limit"));
        let _ = writeln!(out, "    {}  {words}", paint.bad(stroke));
    } else {
        if hop.link.bandwidth().is_some() {
            let _ = writeln!(out, "    {stroke}  {}", paint.bold(&current));
        }
        let _ = writeln!(out, "    {stroke}  {words}");
    }
}

/// What the port above a link is.
fn above(snapshot: &Snapshot, address: PciAddress) -> String {
    let function = snapshot.function(address);
    let what = match function.map(|function| function.upstream) {
        Some(None) => "root port",
        Some(Some(_)) => "switch port",
        None => "port above",
    };
    driven(what, function)
}

fn driven(what: &str, function: Option<&PciFunction>) -> String {
    match function.and_then(|function| function.driver.as_deref()) {
        Some(driver) => format!("{what}, driver {driver}"),
        None => what.to_owned(),
    }
}

fn function(out: &mut String, lane: &Lane<'_>, paint: Paint) {
    let Some(address) = lane.device.identity.pci_address else { return };
    let text = match lane.function.map(|function| (function.kind, function)) {
        None => "function".to_owned(),
        Some((FunctionKind::Plain, function)) => driven("function", Some(function)),
        Some((FunctionKind::Virtual { pf: Some(pf) }, function)) => {
            format!("{}; its links are those of {pf}", driven("VF", Some(function)))
        }
        Some((FunctionKind::Virtual { pf: None }, function)) => driven("VF", Some(function)),
        Some((FunctionKind::Physical, function)) => {
            let count = |count: Option<u32>| count.map_or_else(|| "?".to_owned(), |count| count.to_string());
            let vfs = format!("{} of {} VFs", count(function.vfs_present), count(function.vfs_limit));
            format!("{}, {vfs}", driven("PF", Some(function)))
        }
    };
    row(out, &address.to_string(), &text, paint);
    bar(out);
}

fn device(out: &mut String, lane: &Lane<'_>, paint: Paint) {
    let identity = &lane.device.identity;
    let facts = [
        ("", identity.hca_type.as_deref()),
        ("firmware ", identity.firmware_version.as_deref()),
        ("board ", identity.board_id.as_deref()),
    ];
    let facts: Vec<String> = facts
        .iter()
        .filter_map(|(word, fact)| fact.map(|fact| format!("{word}{}", fact.replace(char::is_control, " "))))
        .collect();
    row(out, lane.device.name.as_str(), &facts.join(", "), paint);
    bar(out);
}

fn port(out: &mut String, report: &HostReport, end: &PortEnd<'_>, paint: Paint) {
    let port = end.port;
    let mut facts = Vec::new();
    facts.extend(port.link_layer.as_ref().map(|layer| layer.as_str().to_owned()));
    facts.push(end.states());
    facts.extend(end.rate_text());
    facts.extend(port.lid.filter(|lid| *lid != 0).map(|lid| format!("LID {lid}")));
    facts.extend(port.netdev.as_deref().map(|netdev| format!("interface {netdev}")));
    row(out, &format!("port {}", port.number), &facts.join(", "), paint);
    if let Some(ceiling) = end.ceiling {
        let share = end.share.map(|share| format!(", share {share}")).unwrap_or_default();
        let line = format!("ceiling {ceiling}{share}");
        row(out, "", &line, paint);
    }
    for line in setup::lines(report, end) {
        let lines = wrapped(&line, &" ".repeat(NAMES + 3));
        let _ = writeln!(out, "{}", lines.trim_end_matches('\n'));
    }
    for line in end.remarks() {
        let lines = wrapped(&line, &" ".repeat(NAMES + 3));
        let _ = writeln!(out, "{}", paint.fair(lines.trim_end_matches('\n')));
    }
}

fn findings(out: &mut String, report: &HostReport, lane: &Lane<'_>, only: Option<u32>, paint: Paint) {
    let shown = lane.findings.iter().map(|finding| (&finding.condition, finding.since));
    let shown = shown.filter(|(condition, _)| only.is_none_or(|n| condition.port.is_none_or(|port| port == n)));
    for (condition, since) in shown {
        let since = rfc3339(report.snapshot.taken.wall_time(since));
        let _ = writeln!(
            out,
            "\n  {} {} {} ({}, since {since})",
            paint.severity(condition.severity),
            paint.bold(condition.check.as_str()),
            condition.subject,
            condition.reason,
        );
        out.push_str(&wrapped(&condition.summary, "           "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::lane::lanes;
    use crate::export::testing;

    fn drawn(device: &str, only: Option<u32>, paint: bool) -> String {
        let mut report = testing::report();
        report.lanes = crate::assess::capacity::HostCapacity::new(&report.snapshot, &report.topology);
        let lanes = lanes(&report);
        let found = lanes.iter().find(|lane| lane.device.name.as_str() == device).unwrap();
        lane(&report, found, only, Paint(paint))
    }

    #[test]
    fn a_degraded_lane() {
        let text = drawn("mlx5_3", None, false);
        for part in [
            "  NUMA node 1      CPUs unknown\n",
            "  0000:97:02.0     root port, driver pcieport\n",
            "    ┃  8 GT/s x8 = 63.0 Gb/s  ◀ the limit\n",
            "    ┃  degraded in speed and width: both ends can do 16 GT/s x16 = 252.1 Gb/s\n",
            "  0000:98:00.0     PF, driver mlx5_core, 1 of 8 VFs\n",
            "  mlx5_3           MT4123, firmware 20.31.1014, board TST0000000001\n",
            "  port 1           InfiniBand, ACTIVE, LinkUp, 200 Gb/s (4X HDR), LID 5, interface ib0\n",
            "ceiling 63.0 Gb/s, share 63.0 Gb/s\n",
            "                   IPoIB in connected mode\n",
            "at their maximum, no longer counting: link_downed\n",
            "ok): 60.3 Gb/s is 96 % of the PCIe\n",
            "  critical pcie_below_port_rate mlx5_3/1 (link_degraded, since ",
            "\n  63.0 Gb/s of 200 Gb/s: the link above 0000:98:00.0 is the limit (trained at 8 GT/s x8",
        ] {
            assert!(text.contains(part), "{part:?} in\n{text}");
        }
        assert!(!text.contains('\x1b'));
        assert!(drawn("mlx5_3", None, true).contains("\x1b[1;31m"));
    }

    #[test]
    fn other_lanes() {
        assert!(drawn("rxe0", None, false).contains("a software device"));
        let vf = drawn("mlx5_10", Some(1), false);
        assert!(vf.contains("VF, driver mlx5_core; its links are those of 0000:98:00.0"), "{vf}");
        let odd = drawn("bnxt_re0", None, false);
        assert!(odd.contains("board a \"quoted\" board\\ second line"), "{odd}");
        assert!(odd.contains("    │  the host does not say how it runs\n"), "{odd}");
        for part in [
            "GIDs: 2 IB/RoCE v1, 1 RoCE v2; RoCE v2 of IPv4 at GID index 3 (192.0.2.17); RoCE\n",
            "PFC on priority 3; priority by dscp; RoCE given priority 3; DCBX by the host;\n",
            "FEC rs; pauses of the whole link off\n",
            "offloads on: rx-checksum (fixed), hw-tc-offload\n",
            "offloads off: rx-gro\n",
            "offloads it does not have: rx-lro\n",
        ] {
            assert!(odd.contains(part), "{part:?} in\n{odd}");
        }
    }
}
