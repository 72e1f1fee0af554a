//! What `check --verbose` adds: how the host is set up, what is visible, how every check and collector stands, and how
//! well functions are isolated on PCIe.

use std::fmt::Write as _;

use super::style::Style;
use crate::assess::visibility::visibility;
use crate::model::check::{Check, CheckResult};
use crate::model::host::{Acs, PciIsolation, Posture};
use crate::model::snapshot::Snapshot;
use crate::model::units::counted;
use crate::watch::HostReport;

/// Every section.
pub(super) fn sections(report: &HostReport, style: &Style) -> String {
    [facts(report), visible_areas(report), details(report), isolation(&report.snapshot, style)].concat()
}

/// A paragraph about the host and a line for each RDMA device; nothing of what the host does not say.
fn facts(report: &HostReport) -> String {
    let mut out = String::new();
    if let Some(posture) = report.snapshot.all::<Posture>().next() {
        let rows = host(posture);
        if !rows.is_empty() {
            out.push_str("\nhost\n");
        }
        for (what, text) in rows {
            let _ = writeln!(out, "{what:<17}{text}");
        }
    }
    let mut devices = report.snapshot.devices().peekable();
    if devices.peek().is_some() {
        out.push_str("\ndevice           driver       firmware       NUMA node  VFs\n");
    }
    for device in devices {
        let function = device.identity.pci_address.and_then(|address| report.snapshot.function(address));
        let driver = function.and_then(|function| function.driver.as_deref()).unwrap_or("-");
        let firmware = device.identity.firmware_version.as_deref().unwrap_or("-");
        let number = |number: Option<u32>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
        let node = number(function.and_then(|function| function.numa_node));
        let vfs = function.and_then(|function| Some((function.vfs_present?, function.vfs_limit?)));
        let vfs = vfs.map_or_else(|| "-".to_owned(), |(present, limit)| format!("{present} of {limit}"));
        let _ = writeln!(out, "{:<17}{driver:<13}{firmware:<15}{node:<11}{vfs}", device.name.as_str());
    }
    out
}

fn host(posture: &Posture) -> Vec<(&'static str, String)> {
    let mut rows: Vec<(&'static str, String)> = Vec::new();
    let mut say =
        |what, text: Option<String>| rows.extend(text.filter(|text| !text.is_empty()).map(|text| (what, text)));
    let switch = |on: bool| if on { "on" } else { "off" }.to_owned();
    let list = |parts: Vec<String>| Some(parts.join(", "));
    say("virtualization", posture.virtualization.map(str::to_owned));
    say("IOMMU", posture.iommu.as_deref().map(str::to_owned));
    let of_group = |kind: &str| if kind.is_empty() { "unknown".to_owned() } else { kind.to_owned() };
    let groups = posture.iommu_groups.iter().map(|(address, kind)| format!("{address} {}", of_group(kind)));
    say("IOMMU groups", list(groups.collect()));
    say("kernel arguments", Some(posture.arguments.join(" ")));
    say("RDMA namespaces", posture.rdma_netns_mode.map(str::to_owned));
    let own = |foreign| if foreign { "the agent's own" } else { "the host's" }.to_owned();
    say("network", posture.foreign_netns.map(own));
    say(
        "CPU governor",
        list(posture.governors.iter().map(|(name, cpus)| format!("{name} on {}", counted(*cpus, "CPU"))).collect()),
    );
    say("NUMA balancing", posture.numa_balancing.map(switch));
    let pages = posture.hugepages.iter().map(|(size, (all, free))| format!("{all} of {size} kB, {free} free"));
    say("huge pages", list(pages.collect()));
    say("drivers", list(posture.driver_versions.iter().map(|(name, version)| format!("{name} {version}")).collect()));
    rows
}

/// What is seen of the host, and what would show more.
fn visible_areas(report: &HostReport) -> String {
    let mut out = String::from("\narea             visible\n");
    for area in visibility(&report.snapshot, &report.vf_map) {
        let remedy = area.remedy.map_or_else(String::new, |remedy| format!("; fix: {remedy}"));
        let _ = writeln!(out, "{:<17}{:<14} {}{remedy}", area.area, area.seen.as_str().replace('_', " "), area.text);
    }
    out
}

fn details(report: &HostReport) -> String {
    let mut out = String::from("\ncheck                    ok  degraded  failed  unknown  skipped\n");
    for check in Check::ALL {
        let [ok, degraded, failed, unknown, skipped] =
            report.standings.get(check).copied().unwrap_or([0; CheckResult::ALL.len()]);
        let _ = writeln!(out, "{:<23}{ok:>4}{degraded:>10}{failed:>8}{unknown:>9}{skipped:>9}", check.as_str());
    }
    out.push_str("\ncollector        state\n");
    for collector in &report.snapshot.collectors {
        let state = match (&collector.listed, collector.stuck.as_slice()) {
            (_, stuck @ [_, ..]) => format!("not responding: {}", stuck.join(", ")),
            (None, _) => "cannot list devices".to_owned(),
            (Some(listed), []) => format!("{} read in {:.1?}", listed.len(), collector.duration),
        };
        let _ = writeln!(out, "{:<17}{state}", collector.name);
        for fault in &collector.faults {
            let _ = writeln!(out, "                 {}: {}", fault.source, fault.reason.as_str());
        }
    }
    out
}

/// Width of the column of names.
const NAMES: usize = 17;

/// A line for each function and port above, and one for those that hide it; nothing of a host that says nothing.
fn isolation(snapshot: &Snapshot, style: &Style) -> String {
    let mut out = String::new();
    let mut row = |name: &str, text: &str| {
        let text = style.wrap(text, &" ".repeat(NAMES));
        let _ = write!(out, "{name:<NAMES$}{}", text.get(NAMES..).unwrap_or_default());
    };
    let mut functions: Vec<&PciIsolation> = snapshot.all().collect();
    functions.sort_by_key(|function| function.address);
    functions.dedup_by_key(|function| function.address);
    let (hidden, shown): (Vec<&PciIsolation>, Vec<&PciIsolation>) =
        functions.into_iter().partition(|function| function.acs == Some(Acs::Hidden));
    for function in &shown {
        let acs = function.acs.map(|acs| format!("ACS {acs}"));
        let ari = function.ari.map(|on| format!("ARI {}", if on { "on" } else { "off" }));
        let parts: Vec<String> = acs.into_iter().chain(ari).collect();
        row(&function.address.to_string(), &parts.join(", "));
    }
    if !hidden.is_empty() {
        let on = |on: bool| -> Vec<String> {
            let those = hidden.iter().filter(|function| function.ari == Some(on));
            those.map(|function| function.address.to_string()).collect()
        };
        let list = |word: &str, addresses: Vec<String>| {
            if addresses.is_empty() { String::new() } else { format!("; ARI {word}: {}", addresses.join(", ")) }
        };
        let text = format!(
            "ACS of {} is not readable without CAP_SYS_ADMIN{}{}",
            counted(hidden.len(), "function"),
            list("on", on(true)),
            list("off", on(false))
        );
        row("not readable", &text);
    }
    if out.is_empty() { out } else { format!("\nfunction         isolation\n{out}") }
}

#[cfg(test)]
mod tests {
    use crate::export::testing;
    use crate::export::text::style::Style;
    use crate::model::snapshot::Snapshot;

    #[test]
    fn what_can_be_read_and_what_cannot() {
        let text = super::isolation(&testing::report().snapshot, &Style::default());
        for line in [
            "\nfunction         isolation\n",
            "\n0000:97:02.0     ACS source_validation,request_redirect,completion_redirect,upstream_forwarding\n",
            "\n0000:98:00.0     ACS none, ARI on\n",
            "\nnot readable     ACS of 2 functions is not readable without CAP_SYS_ADMIN; ARI on: 0000:3b:00.0\n",
        ] {
            assert!(text.contains(line), "{line:?} in\n{text}");
        }
    }

    #[test]
    fn nothing_of_a_host_that_says_nothing() {
        assert_eq!(super::isolation(&Snapshot::new(testing::now(), [], Vec::new()), &Style::default()), "");
    }
}
