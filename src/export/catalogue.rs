//! Every metric family: name, type, unit, help, labels and the most series it can have. `METRICS.md` is made from it.

use std::fmt::Write as _;

use super::families::{
    agent, device, findings, function, gpu, host, module, netdev, pcie, port, probe, rdma_cgroup, vf,
};
use super::family::Family;

/// A section of the catalogue.
pub struct Section {
    /// Its heading in `METRICS.md`.
    pub title: &'static str,
    /// Its families.
    pub families: &'static [Family],
}

/// Every family, section by section, in the order of the exposition.
pub const FAMILIES: &[Section] = &[
    Section { title: "The agent", families: agent::FAMILIES },
    Section { title: "Devices", families: device::FAMILIES },
    Section { title: "Ports", families: port::FAMILIES },
    Section { title: "How ports are addressed", families: port::ADDRESSING },
    Section { title: "PCIe", families: pcie::FAMILIES },
    Section { title: "GPUs", families: gpu::FAMILIES },
    Section { title: "SR-IOV", families: vf::FAMILIES },
    Section { title: "RDMA by pod and job", families: rdma_cgroup::FAMILIES },
    Section { title: "Ethernet ports", families: netdev::FAMILIES },
    Section { title: "Modules", families: module::FAMILIES },
    Section { title: "Interrupts", families: function::INTERRUPTS },
    Section { title: "Kernel messages", families: host::KERNEL_LOG },
    Section { title: "Health of cards", families: function::HEALTH },
    Section { title: "The host", families: host::SETUP },
    Section { title: "Probes", families: probe::FAMILIES },
    Section { title: "Findings", families: findings::FAMILIES },
    Section { title: "The agent's process", families: agent::PROCESS },
];

/// Every family, in the order of the exposition.
pub fn families() -> impl Iterator<Item = &'static Family> {
    FAMILIES.iter().flat_map(|section| section.families)
}

/// The content of `METRICS.md`.
pub fn markdown() -> String {
    let mut out = String::from(
        "# Metrics\n\n\
         <!-- Made from the catalogue in src/export; `LANEWATCH_UPDATE=1 cargo test --lib catalogue` rewrites it. -->\n\n\
         Units are base units. A sample whose value is unknown is absent, never 0 or -1; an unknown label value is\n\
         empty. `pci_address` is `dddd:bb:dd.f`. Info metrics have the value 1 and are of type gauge in the text format\n\
         0.0.4.\n",
    );
    for section in FAMILIES {
        // Writing to a string cannot fail.
        let _ = write!(out, "\n## {}\n\n", section.title);
        out.push_str("| name | type | unit | labels | meaning | most series | since |\n");
        out.push_str("|---|---|---|---|---|---|---|\n");
        for family in section.families {
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
    use crate::export::family::MetricKind;
    use crate::export::testing::committed;

    #[test]
    fn names_follow_the_rules() {
        let mut seen = BTreeSet::new();
        for Family { name, kind, .. } in families() {
            assert!(seen.insert(*name), "{name} stands twice");
            assert!(name.starts_with("lanewatch_") || name.starts_with("process_"), "{name}");
            assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'), "{name}");
            assert_eq!(name.ends_with("_total"), *kind == MetricKind::Counter, "{name}");
            assert_eq!(name.ends_with("_info"), *kind == MetricKind::Info, "{name}");
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
