//! GPUs and network cards as JSON. Names are those of the metrics where there is one.

use serde_json::{Map, Value, json};

use super::findings::{SCHEMA, host};
use crate::assess::gpu::GpuTopology;
use crate::model::host::Posture;
use crate::model::pci_tree::{Distance, TreeEndpoint, vendor_name};
use crate::model::time::rfc3339;
use crate::watch::HostReport;

/// Every GPU with its distances, and the uplinks of switches.
pub fn topo(report: &HostReport) -> Value {
    let topology = GpuTopology::new(&report.snapshot);
    let gpus = topology.iter().flat_map(|topology| topology.gpus.iter().map(|gpu| gpu_value(topology, gpu)));
    let uplinks = topology.iter().flat_map(GpuTopology::uplinks).map(|(address, uplink)| {
        let demand: Map<String, Value> =
            uplink.demand.iter().map(|(kind, demand)| (kind.as_str().to_owned(), json!(demand.0))).collect();
        json!({
            "pci_address": address,
            "capable_bandwidth_bytes_per_second": uplink.capable.map(|capable| capable.0),
            "demand_bytes_per_second": demand,
        })
    });
    let modules: Map<String, Value> = report
        .snapshot
        .all::<Posture>()
        .flat_map(|posture| &posture.peer_memory)
        .map(|(name, version)| (name.to_string(), json!(version)))
        .collect();
    json!({
        "schema": SCHEMA,
        "host": host(report),
        "taken": rfc3339(report.snapshot.taken.wall),
        "guest": topology.as_ref().map(|topology| topology.setting.guest),
        "peer_memory_modules": modules,
        "gpus": gpus.collect::<Vec<_>>(),
        "uplinks": uplinks.collect::<Vec<_>>(),
    })
}

fn gpu_value(topology: &GpuTopology<'_>, gpu: &TreeEndpoint) -> Value {
    let (vendor, device) = gpu.ids.own;
    let others = topology.gpus.iter().filter(|other| other.address != gpu.address).map(|other| {
        let relation = topology.relation(gpu, other);
        json!({ "pci_address": other.address, "distance": word(relation.distance), "common_pci_address": relation.common })
    });
    let nics = topology.nics.iter().map(|nic| {
        let relation = topology.relation(gpu, nic.endpoint);
        json!({
            "device": nic.device.as_str(),
            "pci_address": nic.endpoint.address,
            "distance": word(relation.distance),
            "common_pci_address": relation.common,
            "path_bandwidth_bytes_per_second": topology.bandwidth(gpu, nic.endpoint).map(|bandwidth| bandwidth.0),
        })
    });
    json!({
        "pci_address": gpu.address,
        "vendor": vendor_name(vendor),
        "device_id": format!("{device:04x}"),
        "driver": gpu.driver,
        "numa_node": gpu.numa_node,
        "iommu_group_type": gpu.iommu_group,
        "gpus": others.collect::<Vec<_>>(),
        "nics": nics.collect::<Vec<_>>(),
    })
}

fn word(distance: Option<Distance>) -> &'static str {
    distance.map_or("unknown", Distance::as_str)
}
