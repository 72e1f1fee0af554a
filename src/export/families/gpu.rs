//! GPUs, how near network cards are to them, and the uplinks they share.

use crate::assess::gpu::GpuTopology;
use crate::export::family::{FIRST_RELEASE, Family, Label, MetricKind, Series};
use crate::export::view::ReportView;
use crate::model::host::Posture;
use crate::model::pci_tree::{Distance, EndpointKind, vendor_name};

/// The families, in the order of the exposition.
pub const FAMILIES: &[Family] = &[
    Family {
        name: "lanewatch_gpu_info",
        kind: MetricKind::Info,
        help: "A GPU: maker, device identifier, driver, NUMA node and type of its IOMMU group \
               (/sys/bus/pci/devices/<address>).",
        labels: &["pci_address", "vendor", "device_id", "driver", "numa_node", "iommu_group_type"],
        worst: "1 per GPU",
        since: FIRST_RELEASE,
        write: gpus,
    },
    Family {
        name: "lanewatch_gpudirect_info",
        kind: MetricKind::Info,
        help: "Modules that let network cards reach the memory of GPUs (/sys/module/nvidia_peermem, \
               /sys/kernel/mm/memory_peers). Having none is not a fault: dma-buf needs none, and is not visible in any file.",
        labels: &["module", "version"],
        worst: "1 per module: 3",
        since: FIRST_RELEASE,
        write: |view, out| {
            for posture in view.report.snapshot.all::<Posture>() {
                for (module, version) in &posture.peer_memory {
                    out.info(&[(&**module).into(), (&**version).into()]);
                }
            }
        },
    },
    Family {
        name: "lanewatch_gpu_nic_distance_info",
        kind: MetricKind::Info,
        help: "How near a GPU and an RDMA device are: pix, pxb, c2c, phb, node, sys, unknown (their paths below \
               /sys/devices), and the nearest port above both.",
        labels: &["gpu_pci_address", "device", "pci_address", "distance", "common_pci_address"],
        worst: "1 per GPU and device, without VFs: 80 with 8 GPUs and 10 devices",
        since: FIRST_RELEASE,
        write: distances,
    },
    Family {
        name: "lanewatch_gpu_nic_path_bandwidth_bytes_per_second",
        kind: MetricKind::Gauge,
        help: "Bandwidth each way of the slowest PCIe link between a GPU and an RDMA device (max_link_speed, \
               max_link_width of both ends); only below one root port.",
        labels: &["gpu_pci_address", "device"],
        worst: "1 per GPU and device below one root port",
        since: FIRST_RELEASE,
        write: bandwidths,
    },
    Family {
        name: "lanewatch_pcie_uplink_demand_bytes_per_second",
        kind: MetricKind::Gauge,
        help: "Bandwidth that the endpoints below a PCIe switch can demand of its uplink, by kind (max_link_*, and the rate of \
               network ports); the address is the switch's upstream port.",
        labels: &["pci_address", "kind"],
        worst: "3 per switch with a GPU, network card or drive below",
        since: FIRST_RELEASE,
        write: demand,
    },
    Family {
        name: "lanewatch_pcie_uplink_capable_bandwidth_bytes_per_second",
        kind: MetricKind::Gauge,
        help: "Bandwidth that both ends of the uplink of a PCIe switch support each way (max_link_speed, max_link_width).",
        labels: &["pci_address"],
        worst: "1 per switch with a GPU, network card or drive below",
        since: FIRST_RELEASE,
        write: capacity,
    },
];

fn gpus(view: &ReportView<'_>, out: &mut Series<'_, '_>) {
    let Some(topology) = GpuTopology::new(&view.report.snapshot) else { return };
    for gpu in &topology.gpus {
        let (vendor, device) = gpu.ids.own;
        let device = format!("{device:04x}");
        out.info(&[
            gpu.address.into(),
            vendor_name(vendor).into(),
            (&*device).into(),
            gpu.driver.as_ref().into(),
            gpu.numa_node.into(),
            gpu.iommu_group.as_ref().into(),
        ]);
    }
}

fn distances(view: &ReportView<'_>, out: &mut Series<'_, '_>) {
    let Some(topology) = GpuTopology::new(&view.report.snapshot) else { return };
    for gpu in &topology.gpus {
        for nic in &topology.nics {
            let relation = topology.relation(gpu, nic.endpoint);
            let distance: Label<'_> = relation.distance.map_or("unknown", Distance::as_str).into();
            let (device, address) = (nic.device.as_str().into(), nic.endpoint.address.into());
            out.info(&[gpu.address.into(), device, address, distance, relation.common.into()]);
        }
    }
}

fn bandwidths(view: &ReportView<'_>, out: &mut Series<'_, '_>) {
    let Some(topology) = GpuTopology::new(&view.report.snapshot) else { return };
    for gpu in &topology.gpus {
        for nic in &topology.nics {
            let bandwidth = topology.bandwidth(gpu, nic.endpoint).map(|bandwidth| bandwidth.0);
            out.known(&[gpu.address.into(), nic.device.as_str().into()], bandwidth);
        }
    }
}

fn demand(view: &ReportView<'_>, out: &mut Series<'_, '_>) {
    let Some(topology) = GpuTopology::new(&view.report.snapshot) else { return };
    for (address, uplink) in topology.uplinks() {
        for kind in EndpointKind::ALL {
            let demand = uplink.demand.get(kind).map(|demand| demand.0);
            out.known(&[address.into(), kind.as_str().into()], demand);
        }
    }
}

fn capacity(view: &ReportView<'_>, out: &mut Series<'_, '_>) {
    let Some(topology) = GpuTopology::new(&view.report.snapshot) else { return };
    for (address, uplink) in topology.uplinks() {
        out.known(&[address.into()], uplink.capable.map(|capable| capable.0));
    }
}
