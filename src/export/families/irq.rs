//! Interrupts of the watched functions.

use super::FIRST;
use crate::export::catalogue::{Family, Kind};
use crate::export::content::Content;
use crate::model::ids::PciAddress;
use crate::model::irq::{IrqSummary, Locality};
use crate::model::pcie::FunctionKind;

/// The rows.
pub const FAMILIES: &[Family] = &[
    Family {
        name: "lanewatch_irq_vectors",
        kind: Kind::Gauge,
        help: "Interrupt vectors of a function by where they are served, as seen from its NUMA node \
               (msi_irqs, /proc/irq/<n>/effective_affinity_list).",
        labels: LOCALITY,
        worst: "3 a function, VFs left out",
        since: FIRST,
        write: |content, out| {
            each(content, |address, summary| {
                for (locality, count) in of(summary, summary.vectors) {
                    out.gauge(&[address.into(), locality.as_str().into()], count);
                }
            });
        },
    },
    Family {
        name: "lanewatch_irq_interrupts_total",
        kind: Kind::Counter,
        help: "Interrupts of a function by where the CPU is that served them; rises on over 32-bit wraps, CPU hotplug and \
               driver reloads (/proc/interrupts).",
        labels: LOCALITY,
        worst: "3 a function, VFs left out",
        since: FIRST,
        write: |content, out| {
            each(content, |address, summary| {
                for (locality, count) in summary.interrupts.into_iter().flat_map(|counts| of(summary, counts)) {
                    out.counter(&[address.into(), locality.as_str().into()], count);
                }
            });
        },
    },
    Family {
        name: "lanewatch_irq_busiest_cpu_ratio",
        kind: Kind::Gauge,
        help: "Share of a function's interrupts that its busiest CPU served, in the last interval that had any \
               (/proc/interrupts).",
        labels: &["pci_address"],
        worst: "1 a function, VFs left out",
        since: FIRST,
        write: |content, out| {
            each(content, |address, summary| out.known(&[address.into()], summary.busiest.map(|(_, share)| share)));
        },
    },
    Family {
        name: "lanewatch_irq_affinity_changes_total",
        kind: Kind::Counter,
        help: "Changes of the CPUs that serve a function's vectors, as the agent saw them since its start \
               (/proc/irq/<n>/effective_affinity_list).",
        labels: &["pci_address"],
        worst: "1 a function, VFs left out",
        since: FIRST,
        write: |content, out| {
            each(content, |address, summary| out.counter(&[address.into()], summary.affinity_changes));
        },
    },
];

const LOCALITY: &[&str] = &["pci_address", "locality"];

/// VFs by the hundred stay within the budget of series: findings speak for their interrupts.
fn each(content: &Content<'_>, mut write: impl FnMut(PciAddress, &IrqSummary)) {
    for (address, summary) in &content.report.irqs {
        let vf = content.function(*address).is_some_and(|f| matches!(f.kind, FunctionKind::Virtual { .. }));
        // A function without vectors (no driver) has nothing to say.
        if summary.vectors != [0; 3] && !vf {
            write(*address, summary);
        }
    }
}

/// Where the function's place is known, local and remote, and unknown if there is any; else unknown alone.
fn of(summary: &IrqSummary, counts: [u64; 3]) -> impl Iterator<Item = (Locality, u64)> {
    let placed = summary.placed;
    let shown = move |(locality, count): &(Locality, u64)| (*locality != Locality::Unknown) == placed || *count > 0;
    Locality::ALL.into_iter().zip(counts).filter(shown)
}
