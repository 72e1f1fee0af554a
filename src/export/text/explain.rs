//! The path of a device, drawn hop by hop, with the limit, its reason and what to do.

use std::fmt::Write as _;

use super::style::Style;
use super::write_group;
use crate::export::path::{HopState, PathDiagram, PathEnd, PathHop, setup_lines};
use crate::export::view::groups;
use crate::model::finding::Finding;
use crate::model::ids::PciAddress;
use crate::model::pcie::{FunctionKind, PciFunction};
use crate::model::snapshot::Snapshot;
use crate::model::time::BootTime;
use crate::watch::HostReport;

/// Width of the column of names.
const NAMES: usize = 16;

/// Draws a path; with a port number, that port alone.
pub fn path(
    report: &HostReport,
    diagram: &PathDiagram<'_>,
    only: Option<u32>,
    style: &Style,
    began: Option<BootTime>,
) -> String {
    let mut out = String::new();
    let ports: Vec<&PathEnd<'_>> =
        diagram.ports.iter().filter(|end| only.is_none_or(|n| end.port.number == n)).collect();
    let _ = writeln!(out, "{}\n", style.bold(diagram.device.name.as_str()));
    node(&mut out, diagram, style);
    for (index, hop) in diagram.hops.iter().enumerate() {
        link(&mut out, &report.snapshot, hop, style);
        if index + 1 < diagram.hops.len() {
            row(&mut out, &hop.link.name.to_string(), "upstream port of a switch", style);
            bar(&mut out);
        }
    }
    function(&mut out, diagram, style);
    device(&mut out, diagram, style);
    for (index, end) in ports.iter().enumerate() {
        if index > 0 {
            out.push('\n');
        }
        port(&mut out, report, end, style);
    }
    findings(&mut out, report, diagram, only, style, began);
    out.push('\n');
    for end in &ports {
        let verdict = if ports.len() > 1 { format!("{}: {}", end.key, end.verdict) } else { end.verdict.clone() };
        let text = style.wrap(&verdict, "  ");
        let text = text.trim_end_matches('\n');
        let _ = match (end.held_back, end.ceiling) {
            (true, _) => writeln!(out, "{}", style.bad(text)),
            (false, Some(_)) => writeln!(out, "{}", style.good(text)),
            (false, None) => writeln!(out, "{}", style.bold(text)),
        };
    }
    if ports.is_empty() {
        out.push_str("  no ports\n");
    }
    out
}

/// The same drawing for those who have nothing but ASCII; only the drawing changes.
pub fn ascii(drawn: &str) -> String {
    drawn.replace('│', "|").replace('┃', "#").replace('◀', "<")
}

fn row(out: &mut String, name: &str, text: &str, style: &Style) {
    let padding = NAMES.saturating_sub(name.chars().count());
    let line = format!("  {}{:padding$} {text}", style.bold(name), "");
    let _ = writeln!(out, "{}", line.trim_end());
}

fn bar(out: &mut String) {
    out.push_str("    │\n");
}

fn node(out: &mut String, diagram: &PathDiagram<'_>, style: &Style) {
    if diagram.function.is_none() && diagram.hops.is_empty() {
        let _ = writeln!(out, "  {}", style.dim("no PCI function: a software device, or hidden from this host"));
        return bar(out);
    }
    match &diagram.node {
        Some((id, node)) => {
            let cpus = node.and_then(|node| node.cpus.as_deref());
            let cpus = cpus.map_or_else(|| "CPUs unknown".to_owned(), |cpus| format!("CPUs {cpus}"));
            row(out, &format!("NUMA node {id}"), &cpus, style);
        }
        None => row(out, "memory", "NUMA node unknown: not reported by the firmware", style),
    }
    bar(out);
}

fn link(out: &mut String, snapshot: &Snapshot, hop: &PathHop<'_>, style: &Style) {
    match hop.link.upstream {
        Some((address, _)) => row(out, &address.to_string(), &above(snapshot, address), style),
        None => row(out, "(no port)", "no port above is visible", style),
    }
    let (stroke, current) = (if hop.limits { "┃" } else { "│" }, hop.current());
    let words = hop.words();
    let words = match hop.state {
        HopState::Degraded | HopState::OffBus => style.bad(&words).to_string(),
        HopState::LimitedBySlot | HopState::Unknown | HopState::Nominal => style.caution(&words).to_string(),
        HopState::Full => style.good(&words).to_string(),
    };
    if hop.limits {
        let _ = writeln!(out, "    {}  {}  {}", style.bad(stroke), style.bold(&current), style.bad("◀ the limit"));
        let _ = writeln!(out, "    {}  {words}", style.bad(stroke));
    } else {
        if hop.link.bandwidth().is_some() {
            let _ = writeln!(out, "    {stroke}  {}", style.bold(&current));
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

fn function(out: &mut String, diagram: &PathDiagram<'_>, style: &Style) {
    let Some(address) = diagram.device.identity.pci_address else { return };
    let text = match diagram.function.map(|function| (function.kind, function)) {
        None => "function".to_owned(),
        Some((FunctionKind::Plain, function)) => driven("function", Some(function)),
        Some((FunctionKind::Virtual { pf: Some(pf) }, function)) => {
            format!("{}; shares the links of {pf}", driven("VF", Some(function)))
        }
        Some((FunctionKind::Virtual { pf: None }, function)) => driven("VF", Some(function)),
        Some((FunctionKind::Physical, function)) => {
            let count = |count: Option<u32>| count.map_or_else(|| "?".to_owned(), |count| count.to_string());
            let vfs = format!("{} of {} VFs", count(function.vfs_present), count(function.vfs_limit));
            format!("{}, {vfs}", driven("PF", Some(function)))
        }
    };
    row(out, &address.to_string(), &text, style);
    bar(out);
}

fn device(out: &mut String, diagram: &PathDiagram<'_>, style: &Style) {
    let identity = &diagram.device.identity;
    let facts = [
        ("", identity.hca_type.as_deref()),
        ("firmware ", identity.firmware_version.as_deref()),
        ("board ", identity.board_id.as_deref()),
    ];
    let facts: Vec<String> = facts
        .iter()
        .filter_map(|(word, fact)| fact.map(|fact| format!("{word}{}", fact.replace(char::is_control, " "))))
        .collect();
    row(out, diagram.device.name.as_str(), &facts.join(", "), style);
    bar(out);
}

fn port(out: &mut String, report: &HostReport, end: &PathEnd<'_>, style: &Style) {
    let port = end.port;
    let mut facts = Vec::new();
    facts.extend(port.link_layer.as_ref().map(|layer| layer.as_str().to_owned()));
    facts.push(end.states());
    facts.extend(end.rate_text());
    facts.extend(port.lid.filter(|lid| *lid != 0).map(|lid| format!("LID {lid}")));
    facts.extend(port.netdev.as_deref().map(|netdev| format!("interface {netdev}")));
    row(out, &format!("port {}", port.number), &facts.join(", "), style);
    if let Some(ceiling) = end.ceiling {
        let share = end.share.map(|share| format!(", {share} when all ports on the path are busy")).unwrap_or_default();
        let line = format!("at most {ceiling}{share}");
        row(out, "", &line, style);
    }
    for line in end.line.iter().cloned().chain(setup_lines(report, end)) {
        let lines = style.wrap(&line, &" ".repeat(NAMES + 3));
        let _ = writeln!(out, "{}", lines.trim_end_matches('\n'));
    }
    for line in end.remarks() {
        let lines = style.wrap(&line, &" ".repeat(NAMES + 3));
        let _ = writeln!(out, "{}", style.caution(lines.trim_end_matches('\n')));
    }
}

fn findings(
    out: &mut String,
    report: &HostReport,
    diagram: &PathDiagram<'_>,
    only: Option<u32>,
    style: &Style,
    began: Option<BootTime>,
) {
    let shown = |finding: &Finding| {
        diagram.concerns(finding) && only.is_none_or(|n| finding.condition.port.is_none_or(|port| port == n))
    };
    for mut group in groups(report) {
        group.consequences.retain(|finding| shown(finding));
        if shown(group.cause) || !group.consequences.is_empty() {
            write_group(out, report, &group, style, began, "  ");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::path::diagrams;
    use crate::export::testing;

    fn drawn(device: &str, only: Option<u32>, color: bool) -> String {
        let mut report = testing::report();
        report.lanes = crate::assess::capacity::HostCapacity::new(&report.snapshot, &report.topology);
        let diagrams = diagrams(&report);
        let found = diagrams.iter().find(|diagram| diagram.device.name.as_str() == device).unwrap();
        path(&report, found, only, &Style { color, ..Style::default() }, None)
    }

    #[test]
    fn a_degraded_path() {
        let text = drawn("mlx5_3", None, false);
        for part in [
            "  NUMA node 1      CPUs unknown\n",
            "  0000:97:02.0     root port, driver pcieport\n",
            "    ┃  8 GT/s x8 = 63.0 Gb/s  ◀ the limit\n",
            "    ┃  degraded in speed and width: both ends support 16 GT/s x16 = 252.1 Gb/s\n",
            "  0000:98:00.0     PF, driver mlx5_core, 1 of 8 VFs\n",
            "  mlx5_3           MT4123, firmware 20.31.1014, board TST0000000001\n",
            "  port 1           InfiniBand, ACTIVE, LinkUp, 200 Gb/s (4X HDR), LID 5, interface ib0\n",
            "at most 63.0 Gb/s, 63.0 Gb/s when all ports on the path are busy\n",
            "                   temperature: asic 61 °C (limit 105 °C)\n",
            "                   lost its link and got it back 2x in 24 h\n",
            "                   IPoIB in connected mode\n",
            "at their maximum, no longer counting: link_downed\n",
            "ok): 60.3 Gb/s is 96 % of the PCIe\n",
            "  critical pcie_below_port_rate mlx5_3/1 (link_degraded), since 13:13 (60 min)\n",
            "\n  63.0 Gb/s of 200 Gb/s: the link above 0000:98:00.0 is the limit (trained at 8 GT/s x8",
        ] {
            assert!(text.contains(part), "{part:?} in\n{text}");
        }
        assert!(!text.contains('\x1b'));
        assert!(drawn("mlx5_3", None, true).contains("\x1b[1;31m"));
    }

    #[test]
    fn other_paths() {
        assert!(drawn("rxe0", None, false).contains("a software device"));
        let vf = drawn("mlx5_10", Some(1), false);
        assert!(vf.contains("VF, driver mlx5_core; shares the links of 0000:98:00.0"), "{vf}");
        let odd = drawn("bnxt_re0", None, false);
        assert!(odd.contains("board a \"quoted\" board\\ second line"), "{odd}");
        assert!(odd.contains("    │  current speed and width not reported\n"), "{odd}");
        for part in [
            "GIDs: 2 IB/RoCE v1, 1 RoCE v2; RoCE v2 of IPv4 at GID index 3 (192.0.2.17); RoCE\n",
            "no link: Bad signal integrity, Large number of physical errors\n",
            "module: OSFP, optical, ACME \"OPTICS\" AO-400DR4, serial number SN0003, 500 m, 52\n",
            "lane 0 receives [======....] -1.5 dBm, sends [========..] 0.0 dBm\n",
            "lane 1 receives [!.........] no light, sends [========..] 0.0 dBm\n",
            "errors before correction 5e-10, 1/1890 of what FEC copes with; worst lane 3\n",
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
