//! The audit as tables for people.

use std::fmt::Write as _;

use super::moment;
use crate::fleet::cables::{BadDirection, CableEnd};
use crate::fleet::facts::HostId;
use crate::fleet::host::Sums;
use crate::fleet::tally::{ExcludedHosts, Fleet};
use crate::model::time::rfc3339;
use crate::model::units::BytesPerSecond;
use crate::model::units::{counted, counted_as};

/// The whole report.
pub fn report(fleet: &Fleet) -> String {
    let mut out = String::new();
    let sums = &fleet.total;
    // Writing to a string cannot fail, here and below.
    let _ = writeln!(
        out,
        "{} of {} installed is usable ({}): {}, {}, {} at {}",
        fabric(sums.usable),
        fabric(sums.installed),
        percent(sums.usable, sums.installed),
        counted(sums.hosts, "host"),
        counted(sums.devices, "device"),
        counted(sums.ports, "port"),
        rfc3339(moment(fleet.time)),
    );
    left_out(&mut out, fleet);
    stranded(&mut out, sums);
    vfs(&mut out, sums);
    groups(&mut out, fleet);
    firmware(&mut out, fleet);
    worst(&mut out, fleet);
    fixes(&mut out, fleet);
    cables(&mut out, fleet);
    out
}

/// The causes for which bandwidth is stranded, with their words.
fn causes(sums: &Sums) -> [(&'static str, BytesPerSecond); 5] {
    [
        ("degraded links", sums.degraded),
        ("slots", sums.slot),
        ("by design", sums.design),
        ("ports down", sums.down),
        ("devices gone", sums.missing),
    ]
}

/// A host's name for people: its `instance`, after its job where there are several.
pub(super) fn name(fleet: &Fleet, id: &HostId) -> String {
    let values =
        fleet.identity.iter().zip(id.0.iter()).filter(|(label, _)| *label != "job" || fleet.identity.len() == 1);
    let words: Vec<&str> = values.map(|(_, value)| &**value).collect();
    words.join(" ")
}

/// Bandwidth of many ports: `63.0 Gb/s`, `1,234.5 Tb/s`.
pub(super) fn fabric(rate: BytesPerSecond) -> String {
    let gbits = rate.gbits();
    if gbits < 10_000.0 { rate.to_string() } else { format!("{:.1} Tb/s", gbits / 1000.0) }
}

pub(super) fn percent(part: BytesPerSecond, whole: BytesPerSecond) -> String {
    if whole.0 > 0.0 { format!("{:.2} %", part.0 / whole.0 * 100.0) } else { "-".to_owned() }
}

fn left_out(out: &mut String, fleet: &Fleet) {
    let mut line = |hosts: &ExcludedHosts, one: &str, more: &str| {
        if hosts.count > 0 {
            let names: Vec<String> = hosts.first.iter().take(3).map(|id| name(fleet, id)).collect();
            let others = if hosts.count > names.len() as u64 { ", ..." } else { "" };
            let _ =
                writeln!(out, "not included: {} ({}{others})", counted_as(hosts.count, one, more), names.join(", "));
        }
    };
    line(&fleet.unreachable, "host that cannot be scraped", "hosts that cannot be scraped");
    line(&fleet.stale, "host whose agent stopped checking", "hosts whose agent stopped checking");
    line(&fleet.duplicate, "host that is listed under another name", "hosts that are listed under another name");
}

/// What is installed and not usable: usable, stranded and unknown add up to what is installed, and the lines below
/// `stranded` to it.
fn stranded(out: &mut String, sums: &Sums) {
    let _ = writeln!(out, "\nstranded  {} ({})", fabric(sums.stranded()), percent(sums.stranded(), sums.installed));
    let row = |(cause, rate)| vec![format!("  {cause}"), fabric(rate), percent(rate, sums.installed)];
    let rows: Vec<Vec<String>> = causes(sums).map(row).into();
    table(out, &[], &rows);
    if sums.unknown.0 > 0.0 {
        let (unknown, part) = (fabric(sums.unknown), percent(sums.unknown, sums.installed));
        let _ = writeln!(out, "unknown   {unknown} ({part}): PCIe path or cause unknown");
    }
    let words = [
        (sums.down_ports, "ports that should be up and are down"),
        (sums.missing_devices, "devices that are gone"),
        (sums.rateless_ports, "of these, ports of unknown rate, which are in no sum"),
    ];
    for (count, words) in words.into_iter().filter(|(count, _)| *count > 0) {
        let _ = writeln!(out, "{words}: {count}");
    }
}

fn vfs(out: &mut String, sums: &Sums) {
    let vfs = &sums.vfs;
    if vfs.limit > 0 {
        let _ = writeln!(
            out,
            "\nVFs       {} of at most {} configured: {} used, {} on the host itself, {} free, {} unknown",
            vfs.configured, vfs.limit, vfs.held, vfs.on_host, vfs.free, vfs.unknown
        );
    }
    if sums.vf_less.0 > 0.0 {
        let (rate, part) = (fabric(sums.vf_less), percent(sums.vf_less, sums.usable));
        let _ =
            writeln!(out, "no VFs    {rate} ({part}) of the usable bandwidth: PFs without VFs on hosts that use VFs");
    }
}

fn groups(out: &mut String, fleet: &Fleet) {
    if fleet.by.is_empty() {
        return;
    }
    let _ = writeln!(out, "\nby {}", fleet.by.join(", "));
    let mut heading: Vec<&str> = fleet.by.iter().map(String::as_str).collect();
    heading.extend([
        "hosts",
        "ports",
        "installed",
        "usable",
        "",
        "degraded",
        "slots",
        "design",
        "down",
        "gone",
        "VFs",
        "held",
    ]);
    heading.push("free");
    let rows: Vec<Vec<String>> = fleet
        .groups
        .iter()
        .map(|(group, sums)| {
            let mut row = group.clone();
            row.extend([sums.hosts.to_string(), sums.ports.to_string(), fabric(sums.installed), fabric(sums.usable)]);
            row.push(percent(sums.usable, sums.installed));
            row.extend([sums.degraded, sums.slot, sums.design, sums.down, sums.missing].map(dash));
            row.extend([sums.vfs.configured, sums.vfs.held, sums.vfs.free].map(|count| count.to_string()));
            row
        })
        .collect();
    table(out, &heading, &rows);
}

fn dash(rate: BytesPerSecond) -> String {
    if rate.0 < 1.0 { "-".to_owned() } else { fabric(rate) }
}

fn firmware(out: &mut String, fleet: &Fleet) {
    let mut rows = Vec::new();
    for ((kind, board), line) in &fleet.models {
        let usual = line.usual();
        for (version, count) in &line.0 {
            let remark = if usual == Some(version) { "" } else { "not the usual one" };
            let row = [kind, board, version].map(|text| if text.is_empty() { "-".to_owned() } else { text.clone() });
            let mut row = row.to_vec();
            row.extend([count.devices.to_string(), count.hosts.to_string(), remark.to_owned()]);
            rows.push(row);
        }
    }
    if !rows.is_empty() {
        out.push_str("\nmodels and firmware\n");
        table(out, &["model", "board", "firmware", "devices", "hosts", ""], &rows);
    }
}

fn worst(out: &mut String, fleet: &Fleet) {
    if fleet.worst.is_empty() {
        return;
    }
    out.push_str("\nhosts with most to recover\n");
    let mut heading = vec!["host"];
    heading.extend(fleet.by.iter().map(String::as_str));
    heading.extend(["stranded", "of", "degraded", "slots", "design", "down", "gone"]);
    let rows: Vec<Vec<String>> = fleet
        .worst
        .iter()
        .map(|line| {
            let mut row = vec![name(fleet, &line.id)];
            row.extend(line.group.iter().cloned());
            let sums = &line.sums;
            row.extend([fabric(sums.stranded()), fabric(sums.installed)]);
            row.extend([sums.degraded, sums.slot, sums.design, sums.down, sums.missing].map(dash));
            row
        })
        .collect();
    table(out, &heading, &rows);
}

fn fixes(out: &mut String, fleet: &Fleet) {
    let (count, gain) = fleet.all_fixes;
    if count == 0 {
        return;
    }
    let _ =
        writeln!(out, "\nwhat to fix first: {} of {count} (all of them recover {})", fleet.fixes.len(), fabric(gain));
    let rows: Vec<Vec<String>> = fleet
        .fixes
        .iter()
        .map(|fix| {
            let devices: Vec<&str> = fix.devices.iter().map(String::as_str).collect();
            let host = name(fleet, &fix.host);
            vec![fabric(fix.gain), host, fix.action.as_str().to_owned(), fix.subject.clone(), devices.join(" ")]
        })
        .collect();
    table(out, &["gain", "host", "do", "where", "devices"], &rows);
}

fn cables(out: &mut String, fleet: &Fleet) {
    if fleet.cables.is_empty() {
        return;
    }
    out.push_str("\ncables between two hosts, worst first\n");
    let end = |end: &CableEnd| format!("{} {}", name(fleet, &end.host), end.netdev);
    let ratio = |ratio: f64| if ratio > 0.0 { format!("{ratio:.0e}") } else { "none".to_owned() };
    let rows: Vec<Vec<String>> = fleet
        .cables
        .iter()
        .map(|cable| {
            let (worse, better) = (&cable.worse, &cable.better);
            let suspect = match cable.direction() {
                BadDirection::OneWay => "the way into the receiver: the other end's transmitter, cable, this receiver",
                BadDirection::BothWays => "the cable, or the connectors of both ends",
            };
            vec![
                end(worse),
                ratio(worse.raw),
                worse.lost.map_or_else(|| "-".to_owned(), ratio),
                end(better),
                ratio(better.raw),
                cable.serial_number.clone(),
                suspect.to_owned(),
            ]
        })
        .collect();
    table(out, &["receiver", "wrong bits", "lost", "other end", "wrong bits", "serial number", "suspect"], &rows);
}

/// Columns as wide as they must be, two spaces apart.
pub(super) fn table(out: &mut String, heading: &[&str], rows: &[Vec<String>]) {
    let columns = rows.iter().map(Vec::len).chain([heading.len()]).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain(heading.get(column).map(|text| text.chars().count())).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut line = |cells: &mut dyn Iterator<Item = &str>| {
        let padded: Vec<String> = cells.zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        out.push_str(padded.join("  ").trim_end());
        out.push('\n');
    };
    if !heading.is_empty() {
        line(&mut heading.iter().copied());
    }
    for row in rows {
        line(&mut row.iter().map(String::as_str));
    }
}
