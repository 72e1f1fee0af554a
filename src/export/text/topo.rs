//! GPUs and network cards: who is near whom, and the PCIe tree of a NUMA node.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::style::Style;
use crate::assess::gpu::GpuTopology;
use crate::model::host::Posture;
use crate::model::ids::PciAddress;
use crate::model::pci_tree::{Distance, EndpointKind, TreeEndpoint, TreeLink, Uplink, vendor_name};
use crate::model::units::BytesPerSecond;
use crate::watch::HostReport;

/// What the words mean, for those that are used.
const LEGEND: [(Distance, &str); 6] = [
    (Distance::Pix, "below one PCIe switch"),
    (Distance::Pxb, "below one root port, several switches between them"),
    (Distance::C2c, "the GPU is coherent with the CPU that the card is attached to"),
    (Distance::Phb, "below one host bridge, through the CPU"),
    (Distance::Node, "on one NUMA node, through the CPU"),
    (Distance::Sys, "on different NUMA nodes"),
];

/// The matrix, then each GPU with its nearest devices.
pub fn matrix(report: &HostReport, style: &Style) -> String {
    let Some(topology) = GpuTopology::new(&report.snapshot) else {
        return "the PCIe tree of this host is unknown\n".to_owned();
    };
    if topology.gpus.is_empty() {
        return "no GPUs found\n".to_owned();
    }
    let mut out = String::new();
    let mut used = BTreeSet::new();
    let names: Vec<String> = (0..topology.gpus.len()).map(|number| format!("GPU{number}")).collect();
    let others: Vec<(String, &TreeEndpoint)> = names
        .iter()
        .cloned()
        .zip(topology.gpus.iter().copied())
        .chain(topology.nics.iter().map(|nic| (nic.device.to_string(), nic.endpoint)))
        .collect();
    let first = names.iter().map(String::len).max().unwrap_or(0);
    let heading: Vec<String> = others.iter().map(|(name, _)| format!("{name:<7}")).collect();
    let _ = writeln!(out, "{}", style.bold(format!("{:first$}  {}", "", heading.join("  ")).trim_end()));
    for (name, gpu) in names.iter().zip(&topology.gpus) {
        let cells = others.iter().map(|(other, endpoint)| {
            let cell = if gpu.address == endpoint.address {
                "X".to_owned()
            } else {
                let distance = topology.relation(gpu, endpoint).distance;
                used.extend(distance);
                distance.map_or_else(|| "?".to_owned(), |distance| distance.to_string())
            };
            format!("{cell:<width$}", width = other.len().max(7))
        });
        let cells: Vec<String> = cells.collect();
        let _ = writeln!(out, "{name:first$}  {}", cells.join("  ").trim_end());
    }
    out.push('\n');
    for (name, gpu) in names.iter().zip(&topology.gpus) {
        let _ = writeln!(out, "{name:first$}  {}  {}; {}", gpu.address, facts(gpu), nearest(&topology, gpu));
    }
    if topology.nics.is_empty() {
        out.push_str("\nno RDMA devices found\n");
    }
    out.push('\n');
    for (distance, about) in LEGEND.iter().filter(|(distance, _)| used.contains(distance)) {
        let _ = writeln!(out, "{distance:<5} {about}");
    }
    out.push_str(&gpudirect(report, &topology));
    if topology.setting.guest {
        let text = "?     unknown: in a guest the bridges are emulated and say nothing about the host's";
        let _ = writeln!(out, "{text}");
    }
    out
}

/// What GPUDirect RDMA goes by, as far as files say.
fn gpudirect(report: &HostReport, topology: &GpuTopology<'_>) -> String {
    let modules = report.snapshot.all::<Posture>().flat_map(|posture| &posture.peer_memory);
    let modules: Vec<String> =
        modules.map(|(name, version)| format!("{name} {version}").trim_end().to_owned()).collect();
    let modules = if modules.is_empty() { "no peer-memory module loaded".to_owned() } else { modules.join(", ") };
    let kinds: BTreeSet<&str> = topology.gpus.iter().map(|gpu| gpu.iommu_group.as_deref().unwrap_or("off")).collect();
    let kinds: Vec<&str> = kinds.into_iter().map(|kind| if kind.is_empty() { "on" } else { kind }).collect();
    format!(
        "\nGPUDirect: {modules}; dma-buf: unknown, the kernel does not show it; IOMMU of GPUs: {}\n",
        kinds.join(", ")
    )
}

fn facts(gpu: &TreeEndpoint) -> String {
    let (vendor, device) = gpu.ids.own;
    let node = gpu.numa_node.map_or_else(|| "NUMA node unknown".to_owned(), |node| format!("NUMA node {node}"));
    let driver = gpu.driver.as_deref().unwrap_or("no driver");
    format!("{} {device:04x}, {node}, {driver}", vendor_name(vendor))
}

fn nearest(topology: &GpuTopology<'_>, gpu: &TreeEndpoint) -> String {
    let distances: Vec<_> =
        topology.nics.iter().map(|nic| (nic, topology.relation(gpu, nic.endpoint).distance)).collect();
    let Some(best) = distances.iter().filter_map(|(_, distance)| *distance).min() else {
        return "nearest device unknown".to_owned();
    };
    let devices = distances.iter().filter(|(_, distance)| *distance == Some(best)).map(|(nic, _)| {
        let bandwidth = topology.bandwidth(gpu, nic.endpoint);
        bandwidth.map_or_else(|| nic.device.to_string(), |bandwidth| format!("{} {bandwidth}", nic.device))
    });
    format!("nearest {best}: {}", devices.collect::<Vec<_>>().join(", "))
}

/// The trees of a NUMA node, or of all: root ports, switches with their uplinks, and what is below. `None` if there is nothing
/// on that node.
pub fn tree(report: &HostReport, node: Option<u32>, style: &Style) -> Option<String> {
    let topology = GpuTopology::new(&report.snapshot)?;
    let mut nodes: BTreeMap<Option<u32>, Vec<&TreeEndpoint>> = BTreeMap::new();
    for endpoint in topology.tree.endpoints.values() {
        if node.is_none()
            || endpoint.numa_node == node
            || (topology.setting.single_node && endpoint.numa_node.is_none())
        {
            nodes.entry(endpoint.numa_node).or_default().push(endpoint);
        }
    }
    let names = names(&topology);
    let uplinks = topology.uplinks();
    let mut out = String::new();
    for (node, endpoints) in nodes {
        let title = node.map_or_else(|| "NUMA node unknown".to_owned(), |node| format!("NUMA node {node}"));
        let _ = writeln!(out, "{}", style.bold(&title));
        let mut drawing =
            Drawing { topology: &topology, names: &names, uplinks: &uplinks, shown: BTreeSet::new(), out: &mut out };
        for endpoint in endpoints {
            drawing.endpoint(endpoint);
        }
        out.push('\n');
    }
    (!out.is_empty()).then_some(out)
}

/// What people call endpoints: GPUs by their number, network cards by their devices.
fn names(topology: &GpuTopology<'_>) -> BTreeMap<PciAddress, String> {
    let gpus = topology.gpus.iter().enumerate().map(|(number, gpu)| (gpu.address, format!("GPU{number}")));
    let mut names: BTreeMap<PciAddress, String> = gpus.collect();
    for nic in &topology.nics {
        let name = names.entry(nic.endpoint.address).or_default();
        let _ = write!(name, "{}{}", if name.is_empty() { "" } else { ", " }, nic.device);
    }
    names
}

struct Drawing<'a> {
    topology: &'a GpuTopology<'a>,
    names: &'a BTreeMap<PciAddress, String>,
    uplinks: &'a BTreeMap<PciAddress, Uplink>,
    /// Root ports and switches that are drawn already.
    shown: BTreeSet<PciAddress>,
    out: &'a mut String,
}

impl Drawing<'_> {
    /// An endpoint under its switches. Endpoints come in order of their addresses, so that those of one switch follow each other.
    fn endpoint(&mut self, endpoint: &TreeEndpoint) {
        let links = self.topology.tree.links(endpoint);
        let depth = links.len();
        if let Some(root) = endpoint.ports.last().filter(|root| self.shown.insert(**root)) {
            let _ = writeln!(self.out, "  {root}  root port, {}", endpoint.root);
        }
        for (above, link) in links.iter().skip(1).rev().enumerate() {
            if self.shown.insert(link.lower) {
                self.switch(endpoint, *link, above + 1);
            }
        }
        let own = links.first().map(|link| carries(self.topology.tree.capable(endpoint, *link)));
        let (vendor, device) = endpoint.ids.own;
        let name = self.names.get(&endpoint.address).map_or("", String::as_str);
        let what = match endpoint.kind {
            EndpointKind::Gpu => format!("{name} {} {device:04x}", vendor_name(vendor)),
            EndpointKind::Nic if name.is_empty() => "network card".to_owned(),
            EndpointKind::Nic => name.to_owned(),
            EndpointKind::Nvme => "NVMe".to_owned(),
            EndpointKind::DataDirect => "data-direct DMA function".to_owned(),
        };
        let link = own.unwrap_or_else(|| "integrated".to_owned());
        let _ = writeln!(self.out, "{:indent$}{}  {what}, {link}", "", endpoint.address, indent = 2 + 2 * depth.max(1));
    }

    fn switch(&mut self, endpoint: &TreeEndpoint, link: TreeLink, depth: usize) {
        let uplink = carries(self.topology.tree.capable(endpoint, link));
        let demand = self.uplinks.get(&link.lower).map(|uplink| {
            let parts = uplink.demand.iter().map(|(kind, demand)| format!("{} {demand}", kind_name(*kind)));
            format!("; below it {}", parts.collect::<Vec<_>>().join(", "))
        });
        let demand = demand.unwrap_or_default();
        let _ =
            writeln!(self.out, "{:indent$}{}  switch, uplink {uplink}{demand}", "", link.lower, indent = 2 + 2 * depth);
    }
}

const fn kind_name(kind: EndpointKind) -> &'static str {
    match kind {
        EndpointKind::Gpu => "GPUs",
        EndpointKind::Nic => "network",
        EndpointKind::Nvme => "NVMe",
        EndpointKind::DataDirect => "DMA",
    }
}

/// What a link supports; it may run slower now.
fn carries(bandwidth: Option<BytesPerSecond>) -> String {
    bandwidth.map_or_else(|| "of unknown bandwidth".to_owned(), |bandwidth| format!("up to {bandwidth}"))
}
