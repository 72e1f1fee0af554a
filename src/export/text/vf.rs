//! The VF map as a table, and cards that were passed through whole: a user-space driver has their PF, so that
//! this host sees no RDMA device.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::style::Style;
use super::write_group;
use crate::assess::vf::holders::HolderSources;
use crate::assess::visibility::missing_of;
use crate::export::view::groups;
use crate::model::finding::{Condition, Event, Subject};
use crate::model::holder::{Holder, Pod};
use crate::model::ids::DeviceName;
use crate::model::sriov::{Pf, Vf, VfKey};
use crate::model::units::counted;
use crate::model::vfmap::{MappedVf, Verification};
use crate::watch::HostReport;

/// The column of what domains claim, left out if none claims anything.
const CLAIMED: usize = 6;

/// The map of these PFs, then the findings about VFs, then the changes.
pub fn map(report: &HostReport, pfs: &[&Pf], changes: Option<&[Event]>, style: &Style) -> String {
    let mut out = String::new();
    if pfs.is_empty() {
        out.push_str("no SR-IOV cards found\n");
    }
    for (index, pf) in pfs.iter().enumerate() {
        if index > 0 {
            out.push('\n');
        }
        head(&mut out, report, pf, style);
        let rows = rows(report, pf, style);
        if !rows.is_empty() {
            table(&mut out, &rows);
        }
    }
    for group in groups(report) {
        if group.cause.condition.check.as_str().starts_with("vf_") {
            write_group(&mut out, report, &group, style, None, "");
        }
    }
    let limited = missing_of(&report.snapshot, &report.vf_map, |name| matches!(name, "holders" | "pods" | "sriov"));
    out.push_str(&style.limits(&limited, true));
    if let Some(changes) = changes {
        out.push_str(if changes.is_empty() { "\nno changes\n" } else { "\nchanges (UTC)\n" });
        for change in changes {
            let _ = writeln!(out, "  {}  {}", change.time, change.text);
        }
    }
    out
}

/// What the columns of [`rows`] are.
pub(in crate::export) const HEADINGS: [&str; 11] =
    ["VF", "address", "driver", "group", "identity", "VLAN", "claimed", "link", "holder", "since", "state"];

/// A PF's VFs as a table.
pub(in crate::export) fn rows(report: &HostReport, pf: &Pf, style: &Style) -> Vec<[String; 11]> {
    let sources = HolderSources::new(&report.snapshot);
    pf.vfs.iter().map(|vf| cells(report, &sources, pf, vf, style)).collect()
}

fn head(out: &mut String, report: &HostReport, pf: &Pf, style: &Style) {
    let mut names: Vec<&str> = pf.netdevs.iter().map(|name| &**name).collect();
    names.extend(pf.devices.iter().map(DeviceName::as_str));
    names.extend(pf.driver.as_deref());
    if pf.switchdev {
        names.push("switchdev");
    }
    let count = |count: Option<u32>| count.map_or("unknown".to_owned(), |count| count.to_string());
    let _ = writeln!(
        out,
        "{} ({}): {} of {} possible; configured {}, listed {}",
        pf.address,
        names.join(", "),
        counted(pf.present(), "VF"),
        count(pf.limit),
        count(pf.configured),
        count(pf.reported)
    );
    if let Some(text) = given_away(report, pf) {
        let _ = writeln!(out, "{text}");
    }
    if let Some(row) = report.vf_map.pfs.get(&pf.address) {
        let at = |at| format!("changed {}", style.time(at, report.snapshot.taken.wall));
        let changed = row.changed.map_or_else(|| "no change seen".to_owned(), at);
        let _ = writeln!(out, "map generation {}, {changed}", row.generation);
    }
    let mut unknown: BTreeMap<String, usize> = BTreeMap::new();
    for why in pf.vfs.iter().filter_map(|vf| pf.unconfigured(vf)) {
        *unknown.entry(why).or_default() += 1;
    }
    for (why, count) in unknown {
        let _ = writeln!(out, "identity, VLAN and link of {} unknown: {why}", counted(count, "VF"));
    }
}

fn cells(report: &HostReport, sources: &HolderSources<'_>, pf: &Pf, vf: &Vf, style: &Style) -> [String; 11] {
    let row = report.vf_map.vfs.get(&VfKey { pf: pf.address, vf: vf.number });
    let dash = || "-".to_owned();
    let text = |value: Option<String>| value.unwrap_or_else(dash);
    let config = vf.config;
    let configured = |value: Option<String>| match config {
        Some(_) => value.unwrap_or_else(dash),
        None => "unknown".to_owned(),
    };
    let identity = config.and_then(|config| {
        let guid = config.port_guid.map(|guid| guid.to_string());
        guid.or_else(|| config.mac.map(|mac| mac.to_string()))
    });
    [
        vf.number.to_string(),
        text(vf.address.map(|address| address.to_string())),
        text(vf.driver.as_deref().map(str::to_owned)),
        text(vf.iommu_group.map(|group| group.to_string())),
        configured(identity),
        configured(config.and_then(|config| config.vlan).filter(|vlan| vlan.id != 0).map(|vlan| vlan.id.to_string())),
        claimed(sources, vf),
        configured(config.and_then(|config| config.link).map(|link| link.as_str().to_owned())),
        row.map_or_else(dash, |row| {
            let given = sources.allocation(vf.address, &row.holder).filter(|_| !matches!(row.holder, Holder::Pod(_)));
            let given = given.map(|given| format!(" (given to pod {}/{})", given.namespace, given.pod));
            holder(&row.holder) + given.as_deref().unwrap_or_default()
        }),
        text(row.and_then(|row| since(report, row, style))),
        row.map_or_else(dash, |row| state(row.verification).to_owned()),
    ]
}

/// What a domain's definition sets for a VF, and whether the VF differs from it.
fn claimed(sources: &HolderSources<'_>, vf: &Vf) -> String {
    let Some((_, claim)) = vf.address.and_then(|address| sources.claim(address)) else { return "-".to_owned() };
    let parts = [claim.mac.map(|mac| mac.to_string()), claim.vlan.map(|vlan| format!("VLAN {vlan}"))];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    match (parts.is_empty(), vf.config.is_some_and(|config| claim.differs(&config))) {
        (true, _) => "-".to_owned(),
        (false, true) => format!("{} (DIFFERS)", parts.join(" ")),
        (false, false) => parts.join(" "),
    }
}

fn holder(holder: &Holder) -> String {
    match holder {
        Holder::None => "unused".to_owned(),
        Holder::Unknown(_) => "unknown".to_owned(),
        Holder::Pod(Pod { name: Some(name), .. }) => {
            let container = name.container.as_ref().map(|container| format!(" ({container})")).unwrap_or_default();
            format!("pod {}/{}{container}", name.namespace, name.pod)
        }
        Holder::Vm(vm) => format!("vm {vm}"),
        known => format!("{} {}", known.kind(), known.name()),
    }
}

fn since(report: &HostReport, row: &MappedVf, style: &Style) -> Option<String> {
    let tenure = row.tenure.as_ref().filter(|tenure| tenure.holder == row.holder)?;
    Some(style.time(tenure.since, report.snapshot.taken.wall))
}

fn state(trust: Verification) -> &'static str {
    match trust {
        Verification::Undisturbed => "-",
        Verification::Verified(_) => "verified",
        Verification::Unverified { .. } => "NOT VERIFIED",
    }
}

fn table(out: &mut String, rows: &[[String; 11]]) {
    let wanted = rows.iter().any(|row| row.get(CLAIMED).is_some_and(|cell| cell != "-"));
    let mut widths = HEADINGS.map(str::len);
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut line = |cells: &mut dyn Iterator<Item = &str>| {
        let shown = cells.zip(widths).enumerate().filter(|(column, _)| wanted || *column != CLAIMED);
        let padded: Vec<String> = shown.map(|(_, (cell, width))| format!("{cell:<width$}")).collect();
        let _ = writeln!(out, "  {}", padded.join("  ").trim_end());
    };
    line(&mut HEADINGS.into_iter());
    for row in rows {
        line(&mut row.iter().map(String::as_str));
    }
}

/// Who uses a PF that was passed through whole; `None` for a PF that this host drives itself.
pub fn given_away(report: &HostReport, pf: &Pf) -> Option<String> {
    let holder = HolderSources::new(&report.snapshot).holder_of_pf(pf)?.holder;
    Some(format!("passed through whole (driver {}), used by {holder}", pf.driver.as_deref().unwrap_or("unknown")))
}

/// What `explain` says of a PF without an RDMA device.
pub fn explain_pf(report: &HostReport, pf: &Pf) -> String {
    match given_away(report, pf) {
        Some(text) => format!("{}\n\n  {text}\n", pf.address),
        None => format!(
            "{0}\n\n  driver {1}, no RDMA device on this host; `lanewatch vf {0}` shows its VFs\n",
            pf.address,
            pf.driver.as_deref().unwrap_or("none")
        ),
    }
}

/// What `explain` says of a VF without an RDMA device on this host: who uses it, its settings, what is found about it, and
/// that its path is its PF's.
pub fn explain_vf(report: &HostReport, pf: &Pf, vf: &Vf, style: &Style) -> String {
    let key = VfKey { pf: pf.address, vf: vf.number };
    let cells = cells(report, &HolderSources::new(&report.snapshot), pf, vf, style);
    let address = vf.address.map_or_else(|| key.to_string(), |address| address.to_string());
    let mut out = format!("{}\n\n", style.bold(&address));
    let _ = writeln!(out, "  VF {} of {}", vf.number, pf.address);
    for (heading, cell) in HEADINGS.iter().zip(&cells).skip(2).filter(|(_, cell)| *cell != "-") {
        let _ = writeln!(out, "  {heading:<9} {cell}");
    }
    let is_its_own = |condition: &Condition| condition.subject == Subject::Vf(key);
    for finding in report.findings.iter().filter(|finding| is_its_own(&finding.condition)) {
        let _ = write!(out, "{}", style.wrap(&finding.condition.summary, "  "));
    }
    let path = match pf.devices.first() {
        Some(device) => format!("its PCIe path is that of its PF ({device}):"),
        None => "its PCIe path is that of its PF, of which this host sees no RDMA device".to_owned(),
    };
    let _ = writeln!(out, "\n  {path}\n");
    out
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::export::testing;
    use crate::model::holder::{Claim, Domain, Libvirt};
    use crate::model::snapshot::{Fact, Snapshot};
    use crate::model::sriov::Mac;

    #[test]
    fn a_vf_without_a_device_is_explained_by_its_user_and_settings() {
        let report = testing::report();
        let pf = report.snapshot.all::<Pf>().next().unwrap().clone();
        let text = explain_vf(&report, &pf, &pf.vfs[0], &Style::default());
        let address = pf.vfs[0].address.unwrap();
        assert!(text.starts_with(&format!("{address}\n\n  VF {} of {}\n", pf.vfs[0].number, pf.address)), "{text}");
        assert!(text.contains("  driver ") && text.contains("  holder ") && text.contains("its PF"), "{text}");
    }

    #[test]
    fn what_a_domain_wants_stands_beside_what_the_vf_has() {
        let mut report = testing::report();
        let pf = report.snapshot.all::<Pf>().next().unwrap().clone();
        assert!(!map(&report, &[&pf], None, &Style::default()).contains("claimed"), "no domain wants anything");
        let mut shown = |mac: u8, vlan: Option<u16>| {
            let address = pf.vfs[0].address.unwrap();
            let claim = Claim { address, mac: Some(Mac([2, 0, 0, 0, 0, mac])), vlan, present: Some(true) };
            let domain = Domain { name: Arc::from("vm1"), live: true, claims: vec![claim], ..Domain::default() };
            let libvirt = Libvirt { domains: vec![domain], readable: true, has_live: true };
            let facts = [Arc::new(pf.clone()) as Fact, Arc::new(libvirt)];
            report.snapshot = Snapshot::new(testing::now(), facts, Vec::new());
            let document = crate::export::json::vf::map(&report, &[&pf], &[]);
            (map(&report, &[&pf], None, &Style::default()), document["pfs"][0]["vfs"][0]["claimed"].clone())
        };
        let (text, claimed) = shown(7, Some(42));
        assert!(text.contains("  02:00:00:00:00:07  42    02:00:00:00:00:07 VLAN 42  auto"), "{text}");
        assert_eq!((&claimed["domain"], &claimed["differs"]), (&"vm1".into(), &false.into()));
        for (mac, vlan, cell) in [
            (8, Some(42), "02:00:00:00:00:08 VLAN 42 (DIFFERS)  auto"),
            (7, Some(43), "02:00:00:00:00:07 VLAN 43 (DIFFERS)  auto"),
            (9, None, "02:00:00:00:00:09 (DIFFERS)  auto"),
        ] {
            let (text, claimed) = shown(mac, vlan);
            assert!(text.contains(cell), "{cell}: {text}");
            assert_eq!((&claimed["vlan"], &claimed["differs"]), (&vlan.into(), &true.into()));
        }
    }
}
