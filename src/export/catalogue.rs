//! Every metric family: name, type, unit, help, labels and the most series it can have. `METRICS.md` is made from it.

use std::fmt::Write as _;

use prometheus_client::metrics::MetricType;

use super::content::Content;
use super::families::{
    addressing, agent, device, findings, health, irq, kmsg, netdev, pcie, port, posture, probe, process, vf,
};
use super::series::Series;

/// The type of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only rises, or starts again.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Labels, and the value 1; a gauge in the text format 0.0.4.
    Info,
}

impl Kind {
    /// The encoder's type.
    pub(super) const fn metric_type(self) -> MetricType {
        match self {
            Self::Counter => MetricType::Counter,
            Self::Gauge => MetricType::Gauge,
            Self::Info => MetricType::Info,
        }
    }

    /// The word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Info => "info",
        }
    }
}

/// One family.
pub struct Family {
    /// Name of its series: with `_total` for a counter and `_info` for an info metric.
    pub name: &'static str,
    /// Type.
    pub kind: Kind,
    /// One sentence that ends in a period and names the kernel file.
    pub help: &'static str,
    /// Label names, in the order of the samples' values.
    pub labels: &'static [&'static str],
    /// The most series it can have on a host.
    pub worst: &'static str,
    /// The first version that has it.
    pub since: &'static str,
    /// Writes its samples.
    pub write: fn(&Content<'_>, &mut Series<'_, '_>),
}

/// Units a name may end in, longer ones first.
const UNITS: &[&str] = &["transfers_per_second", "bytes_per_second", "seconds", "bytes", "lanes", "ticks"];

impl Family {
    /// The name without the suffix of its type.
    pub fn base(&self) -> &'static str {
        let suffix = match self.kind {
            Kind::Counter => "_total",
            Kind::Info => "_info",
            Kind::Gauge => "",
        };
        self.name.strip_suffix(suffix).unwrap_or(self.name)
    }

    /// The unit its name ends in.
    pub fn unit(&self) -> Option<&'static str> {
        let measured = self.kind != Kind::Info;
        UNITS.iter().copied().find(|unit| measured && self.base().strip_suffix(unit).is_some_and(|s| s.ends_with('_')))
    }

    /// The name without type suffix and unit, as the encoder wants it.
    pub(super) fn stem(&self) -> &'static str {
        let base = self.base();
        let stem = self.unit().and_then(|unit| base.strip_suffix(unit)?.strip_suffix('_'));
        stem.unwrap_or(base)
    }
}

/// A part of the catalogue.
pub struct Part {
    /// Its heading in `METRICS.md`.
    pub title: &'static str,
    /// Its families.
    pub families: &'static [Family],
}

/// Every family, part by part, in the order of the exposition.
pub const FAMILIES: &[Part] = &[
    Part { title: "The agent", families: agent::FAMILIES },
    Part { title: "Devices", families: device::FAMILIES },
    Part { title: "Ports", families: port::FAMILIES },
    Part { title: "How ports are addressed", families: addressing::FAMILIES },
    Part { title: "PCIe", families: pcie::FAMILIES },
    Part { title: "SR-IOV", families: vf::FAMILIES },
    Part { title: "Ethernet ports", families: netdev::FAMILIES },
    Part { title: "Interrupts", families: irq::FAMILIES },
    Part { title: "Kernel messages", families: kmsg::FAMILIES },
    Part { title: "Health reporters", families: health::FAMILIES },
    Part { title: "The host", families: posture::FAMILIES },
    Part { title: "Probes", families: probe::FAMILIES },
    Part { title: "Findings", families: findings::FAMILIES },
    Part { title: "The agent's process", families: process::FAMILIES },
];

/// Every family, in the order of the exposition.
pub fn families() -> impl Iterator<Item = &'static Family> {
    FAMILIES.iter().flat_map(|part| part.families)
}

/// The content of `METRICS.md`.
pub fn markdown() -> String {
    let mut out = String::from(
        "# Metrics\n\n\
         <!-- Made from the catalogue in src/export; `LANEWATCH_UPDATE=1 cargo test --lib catalogue` writes it anew. -->\n\n\
         Units are base units. A sample that cannot be known is absent, never 0 or -1; a label value that is unknown is\n\
         empty. `pci_address` is `dddd:bb:dd.f`. Info metrics have the value 1 and are of type gauge in the text format\n\
         0.0.4.\n",
    );
    for part in FAMILIES {
        // Writing to a string cannot fail.
        let _ = write!(out, "\n## {}\n\n", part.title);
        out.push_str("| name | type | unit | labels | what it says | most series | since |\n");
        out.push_str("|---|---|---|---|---|---|---|\n");
        for family in part.families {
            let labels: Vec<String> = family.labels.iter().map(|label| format!("`{label}`")).collect();
            let _ = writeln!(
                out,
                "| `{}` | {} | {} | {} | {} | {} | {} |",
                family.name,
                family.kind.as_str(),
                family.unit().unwrap_or(""),
                labels.join(", "),
                escaped(family.help),
                family.worst,
                family.since,
            );
        }
    }
    out
}

/// Text for a cell of a Markdown table.
fn escaped(text: &str) -> String {
    text.chars().fold(String::new(), |mut out, char| {
        if matches!(char, '|' | '<' | '*') {
            out.push('\\');
        }
        out.push(char);
        out
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::export::testing::committed;

    #[test]
    fn names_follow_the_rules() {
        let mut seen = BTreeSet::new();
        for Family { name, kind, .. } in families() {
            assert!(seen.insert(*name), "{name} stands twice");
            assert!(name.starts_with("lanewatch_") || name.starts_with("process_"), "{name}");
            assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'), "{name}");
            assert_eq!(name.ends_with("_total"), *kind == Kind::Counter, "{name}");
            assert_eq!(name.ends_with("_info"), *kind == Kind::Info, "{name}");
            for part in name.split('_') {
                let odd = ["ms", "us", "ns", "s", "m", "h", "d", "b", "kb", "mb", "gb", "counter", "gauge", ""];
                assert!(!odd.contains(&part), "{name} has {part:?}");
            }
            for suffix in ["_count", "_sum", "_bucket", "_created"] {
                assert!(!name.ends_with(suffix), "{name}");
            }
        }
    }

    #[test]
    fn family_names_do_not_clash_in_openmetrics() {
        let mut seen = BTreeSet::new();
        for family in families() {
            assert!(seen.insert(family.base()), "{}", family.name);
        }
    }

    #[test]
    fn helps_are_sentences() {
        for Family { name, help, worst, since, .. } in families() {
            assert!(help.ends_with('.') && help.starts_with(|c: char| c.is_ascii_uppercase()), "{name}: {help}");
            // The OpenMetrics encoder writes help as it is.
            assert!(!help.contains(['"', '\\', '\n']), "{name}: {help}");
            assert!(help.len() < 240 && help.is_ascii(), "{name}");
            assert!(!worst.is_empty() && !since.is_empty(), "{name}");
        }
    }

    #[test]
    fn labels_are_valid_and_unique() {
        for Family { name, labels, .. } in families() {
            let unique: BTreeSet<_> = labels.iter().collect();
            assert_eq!(unique.len(), labels.len(), "{name}");
            for label in *labels {
                assert!(
                    label.bytes().all(|b| b.is_ascii_lowercase() || b == b'_') && !label.starts_with('_'),
                    "{name}"
                );
                // A queue pair's type goes by that name everywhere.
                let known = (*name, *label) == ("lanewatch_rdma_queue_pairs", "type");
                let reserved = ["le", "quantile", "instance", "job", "type", "cluster", "zone"].contains(label);
                assert!(!reserved || known, "{name}");
            }
        }
    }

    #[test]
    fn a_unit_is_the_end_of_a_name() {
        let unit = |name: &str| families().find(|f| f.name == name).unwrap().unit();
        assert_eq!(unit("lanewatch_port_received_bytes_total"), Some("bytes"));
        assert_eq!(unit("lanewatch_port_rate_bytes_per_second"), Some("bytes_per_second"));
        assert_eq!(unit("lanewatch_pcie_link_width_lanes"), Some("lanes"));
        assert_eq!(unit("lanewatch_finding"), None);
    }

    #[test]
    fn metrics_md_is_current() {
        committed("METRICS.md", &markdown());
    }
}
