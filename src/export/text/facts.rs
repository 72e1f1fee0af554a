//! How the host is set up, as `check --verbose` tells it: facts, whatever is made of them.

use std::fmt::Write as _;

use crate::model::count::counted;
use crate::model::posture::Posture;
use crate::watch::HostReport;

/// A paragraph about the host and a line for each RDMA device; nothing of what the host does not say.
pub fn facts(report: &HostReport) -> String {
    let mut out = String::new();
    if let Some(posture) = report.snapshot.all::<Posture>().next() {
        out.push_str("\nhost\n");
        for (what, text) in host(posture) {
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
