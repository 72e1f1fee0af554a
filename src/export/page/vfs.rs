//! The VFs of each PF and who uses them.

use maud::{Markup, html};

use crate::export::text::style::Style;
use crate::export::text::vf::{HEADINGS, rows};
use crate::model::ids::DeviceName;
use crate::model::sriov::Pf;
use crate::watch::HostReport;

/// Cells that say nothing.
const EMPTY: &str = "-";

/// A table for each PF that has VFs, folded.
pub(super) fn section(report: &HostReport) -> Markup {
    let mut pfs: Vec<&Pf> = report.snapshot.all::<Pf>().filter(|pf| !pf.vfs.is_empty()).collect();
    pfs.sort_by_key(|pf| pf.address);
    pfs.dedup_by_key(|pf| pf.address);
    html! {
        @if !pfs.is_empty() {
            section {
                h2 { "Virtual functions" }
                @for pf in pfs { (table(report, pf)) }
            }
        }
    }
}

fn table(report: &HostReport, pf: &Pf) -> Markup {
    let rows = rows(report, pf, &Style::default());
    let is_used = |column: usize| rows.iter().any(|row| row.get(column).is_some_and(|cell| cell != EMPTY));
    let columns: Vec<usize> = (0..HEADINGS.len()).filter(|column| is_used(*column)).collect();
    let names = pf.netdevs.iter().map(|name| &**name).chain(pf.devices.iter().map(DeviceName::as_str));
    let names: Vec<&str> = names.collect();
    html! {
        details.vfs id=(format!("vfs-{}", pf.address)) {
            summary {
                b { code { (pf.address) } } " " span.dim { (names.join(", ")) } " "
                span { (pf.present()) @if let Some(limit) = pf.limit { " of " (limit) } " VFs" }
            }
            div.scroll {
                table {
                    thead { tr { @for column in &columns { th { (heading(*column)) } } } }
                    tbody {
                        @for row in &rows {
                            tr { @for column in &columns { td { @if let Some(cell) = row.get(*column) { (cell) } } } }
                        }
                    }
                }
            }
        }
    }
}

fn heading(column: usize) -> &'static str {
    match HEADINGS.get(column) {
        Some(&"since") => "since (UTC)",
        Some(heading) => heading,
        None => "",
    }
}
