//! GPUs and how near network cards are to them.

use maud::{Markup, html};

use crate::assess::gpu::GpuTopology;
use crate::watch::HostReport;

/// The matrix of GPUs and RDMA devices, folded; nothing without GPUs.
pub(super) fn section(report: &HostReport) -> Markup {
    let Some(topology) = GpuTopology::new(&report.snapshot).filter(|topology| !topology.gpus.is_empty()) else {
        return html! {};
    };
    html! {
        section {
            h2 { "GPUs" }
            details.vfs id="gpus" {
                summary {
                    b { (topology.gpus.len()) } @if topology.gpus.len() == 1 { " GPU" } @else { " GPUs" }
                    " and " (topology.nics.len()) " RDMA devices"
                }
                div.scroll {
                    table {
                        thead { tr { th { "GPU" } th { "NUMA" } th { "driver" } @for nic in &topology.nics { th { (nic.device) } } } }
                        tbody {
                            @for gpu in &topology.gpus {
                                tr {
                                    td { code { (gpu.address) } }
                                    td { @if let Some(node) = gpu.numa_node { (node) } }
                                    td { @if let Some(driver) = &gpu.driver { (driver) } }
                                    @for nic in &topology.nics {
                                        td { (distance(&topology, gpu, nic.endpoint)) }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn distance(
    topology: &GpuTopology<'_>,
    gpu: &crate::model::pci_tree::TreeEndpoint,
    nic: &crate::model::pci_tree::TreeEndpoint,
) -> String {
    let distance = topology.relation(gpu, nic).distance;
    let word = distance.map_or_else(|| "unknown".to_owned(), |distance| distance.to_string());
    topology.bandwidth(gpu, nic).map_or_else(|| word.clone(), |bandwidth| format!("{word} {bandwidth}"))
}
