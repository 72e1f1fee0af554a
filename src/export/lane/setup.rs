//! How a port is set up, in plain lines.

use std::net::Ipv4Addr;

use super::PortEnd;
use crate::model::ethtool::NetdevLine;
use crate::model::netsetup::{NetdevSetup, Offload, PortAddressing};
use crate::model::rdma::LinkLayer;
use crate::watch::HostReport;

/// What is known of a port's addressing and of its interface, a line for each side of it.
pub fn lines(report: &HostReport, end: &PortEnd<'_>) -> Vec<String> {
    let snapshot = &report.snapshot;
    let mut lines = Vec::new();
    if let Some(addressing) = snapshot.all::<PortAddressing>().find(|addressing| addressing.port == end.key) {
        lines.extend(self::addressing(addressing, end));
    }
    let Some(netdev) = end.port.netdev.as_deref() else { return lines };
    let setup = snapshot.all::<NetdevSetup>().find(|setup| &*setup.netdev == netdev);
    let line = snapshot.all::<NetdevLine>().find(|line| &*line.netdev == netdev);
    lines.extend(ethernet(setup, line));
    if let Some(setup) = setup {
        lines.extend(setup.ipoib.as_ref().map(|ipoib| format!("IPoIB in {} mode", ipoib.mode)));
        lines.extend(offloads(&setup.offloads));
    }
    lines
}

fn addressing(addressing: &PortAddressing, end: &PortEnd<'_>) -> Option<String> {
    let mut parts: Vec<String> = Vec::new();
    if end.port.link_layer == Some(LinkLayer::Ethernet) {
        let gids: Vec<String> = addressing.gids.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        if !gids.is_empty() {
            parts.push(format!("GIDs: {}", gids.join(", ")));
        }
        parts.extend(roce_v2(&addressing.roce_v2));
        parts.extend(addressing.default_mode.as_deref().map(|mode| format!("{mode} by default")));
        parts.extend(addressing.default_tos.map(|tos| format!("type of service {tos} by default")));
        parts.extend(addressing.traffic_class.map(|class| format!("traffic class {class} for all")));
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// Which GID index a program is given for RoCE v2.
fn roce_v2(entries: &[(u32, Option<Ipv4Addr>)]) -> Option<String> {
    let over_ipv4 = entries.iter().filter_map(|(index, address)| address.map(|address| format!("{index} ({address})")));
    let over_ipv4: Vec<String> = over_ipv4.collect();
    match (over_ipv4.is_empty(), entries.first()) {
        (false, _) => Some(format!("RoCE v2 of IPv4 at GID index {}", over_ipv4.join(", "))),
        (true, Some((index, _))) => Some(format!("RoCE v2 at GID index {index}, none of IPv4")),
        (true, None) => None,
    }
}

fn ethernet(setup: Option<&NetdevSetup>, line: Option<&NetdevLine>) -> Option<String> {
    let mut parts: Vec<String> = Vec::new();
    if let Some(setup) = setup {
        parts.extend(setup.dcb.pfc.map(|pfc| {
            if pfc.enabled.is_empty() {
                "PFC on no priority".to_owned()
            } else {
                format!("PFC on priority {}", pfc.enabled)
            }
        }));
        parts.extend(setup.dcb.trust.map(|trust| format!("priority by {}", trust.as_str())));
        parts.extend(setup.dcb.roce_priority.map(|priority| format!("RoCE given priority {priority}")));
        parts.extend(setup.ecn.map(|ecn| format!("ECN answered on {}, obeyed on {}", ecn.notifies, ecn.reacts)));
        parts.extend(setup.dcb.dcbx.map(|dcbx| format!("DCBX by the {dcbx}")));
    }
    if let Some(line) = line {
        parts.extend(line.fec.map(|fec| format!("FEC {fec}")));
        parts.extend(line.pause.map(|pause| {
            let word = match pause {
                (true, true) => "both ways",
                (true, false) => "obeyed, not sent",
                (false, true) => "sent, not obeyed",
                (false, false) => "off",
            };
            format!("pauses of the whole link {word}")
        }));
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// On, off, and off for good; those that can't be switched off are among those that are on.
fn offloads(offloads: &[Offload]) -> Vec<String> {
    let list = |title: &str, suits: &dyn Fn(&Offload) -> bool| {
        let names: Vec<String> = offloads
            .iter()
            .filter(|offload| suits(offload))
            .map(|offload| format!("{}{}", offload.name, if offload.on && offload.fixed { " (fixed)" } else { "" }))
            .collect();
        (!names.is_empty()).then(|| format!("offloads {title}: {}", names.join(", ")))
    };
    let lists = [
        list("on", &|offload| offload.on),
        list("off", &|offload| !offload.on && !offload.fixed),
        list("it does not have", &|offload| !offload.on && offload.fixed),
    ];
    lists.into_iter().flatten().collect()
}
