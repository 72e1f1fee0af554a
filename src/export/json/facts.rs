//! The facts of a report as JSON. Names are those of the metrics where there is one.

use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::findings::{SCHEMA, host};
use crate::export::agent::{AgentState, Process};
use crate::export::view::{PortView, ReportView};
use crate::model::counter::Counters;
use crate::model::host::NumaNode;
use crate::model::irq::CpuSet;
use crate::model::irq::{IrqFunction, IrqVector};
use crate::model::net::Netdev;
use crate::model::pcie::{Aer, AerSeverity, FunctionKind, PciFunction};
use crate::model::rdma::{LinkLayer, PhysicalState, PortState, RdmaDevice, RdmaResources};
use crate::model::reading::{ReadError, Reading};
use crate::model::snapshot::CollectorState;
use crate::model::time::rfc3339;
use crate::model::topology::Link;
use crate::watch::HostReport;

/// Everything that was read.
pub fn snapshot(report: &HostReport) -> Value {
    let agent = AgentState::default();
    let view = ReportView::new(report, &agent, Process::default());
    let system = report.snapshot.system();
    json!({
        "schema": SCHEMA,
        "host": host(report),
        "taken": rfc3339(report.snapshot.taken.wall),
        "kernel": system.and_then(|system| system.kernel.as_ref()),
        "boot_id": system.and_then(|system| system.boot_id.as_ref()),
        "uptime_seconds": system.and_then(|system| system.uptime).map(|uptime| uptime.as_secs()),
        "devices": view.devices.iter().map(|device| device_value(&view, device)).collect::<Vec<_>>(),
        "functions": view.functions.iter().map(|function| function_value(function)).collect::<Vec<_>>(),
        "links": report.topology.links.values().map(link_value).collect::<Vec<_>>(),
        "pfs": view.pfs.iter().map(|pf| super::vf::pf_value(report, pf)).collect::<Vec<_>>(),
        "netdevs": report.snapshot.all().map(netdev_value).collect::<Vec<_>>(),
        "numa_nodes": report.snapshot.all().map(numa_value).collect::<Vec<_>>(),
        "resources": report.snapshot.all().map(resources_value).collect::<Vec<_>>(),
        "interrupts": report.snapshot.all().map(|function| interrupts_value(report, function)).collect::<Vec<_>>(),
        "collectors": report.snapshot.collectors.iter().map(collector_value).collect::<Vec<_>>(),
    })
}

/// What could not be read of an object, by key, with the reason.
#[derive(Default)]
struct Unreadable(Map<String, Value>);

impl Unreadable {
    /// The value of a reading; why there is none is noted under its key.
    fn take<T>(&mut self, key: &str, reading: Reading<T>) -> Option<T> {
        if let Some(reason) = reading.reason() {
            self.0.insert(key.to_owned(), json!(ReadError::as_str(reason)));
        }
        reading.value()
    }
}

fn device_value(view: &ReportView<'_>, device: &RdmaDevice) -> Value {
    let identity = &device.identity;
    let path = view.report.lanes.paths.get(&device.name);
    let ports = view.ports.iter().filter(|row| row.device.name == device.name);
    json!({
        "device": device.name,
        "pci_address": identity.pci_address,
        "firmware_version": identity.firmware_version,
        "board_id": identity.board_id,
        "hca_type": identity.hca_type,
        "node_guid": text(identity.node_guid),
        "sys_image_guid": text(identity.sys_image_guid),
        "path_bandwidth_bytes_per_second": path.map(|path| path.bandwidth),
        "limiting_pci_address": path.map(|path| path.limiting),
        "counters": counters(&device.counters),
        "ports": ports.map(port_value).collect::<Vec<_>>(),
    })
}

fn port_value(row: &PortView<'_>) -> Value {
    let (port, lane) = (row.port, row.lane);
    let mut unreadable = Unreadable::default();
    let rate = unreadable.take("rate", port.rate);
    json!({
        "port": port.number,
        "link_layer": port.link_layer.as_ref().map(LinkLayer::as_str),
        "state": unreadable.take("state", port.state).map(PortState::as_str),
        "physical_state": unreadable.take("physical_state", port.physical_state).map(PhysicalState::as_str),
        "stated_rate_bytes_per_second": rate.map(|rate| rate.bandwidth),
        "speed": rate.map(|rate| rate.speed.as_str()),
        "width": rate.and_then(|rate| rate.width).map(|width| format!("{width}X")),
        "rate_bytes_per_second": lane.and_then(|lane| lane.rate),
        "ceiling_bytes_per_second": lane.and_then(|lane| lane.ceiling),
        "share_bytes_per_second": lane.and_then(|lane| lane.share),
        "lid": port.lid,
        "sm_lid": port.sm_lid,
        "netdev": port.netdev,
        "port_guid": text(port.guid),
        "counters": counters(&port.pma),
        "hw_counters": counters(&port.hardware),
        "unreadable": unreadable.0,
    })
}

/// Raw values by the kernel's names; `null` where the file could not be read.
fn counters(counters: &Counters) -> Map<String, Value> {
    let values = counters.layout.iter().zip(&counters.values);
    values.map(|(counter, value)| (counter.name.to_string(), json!(value))).collect()
}

fn function_value(function: &PciFunction) -> Value {
    let (kind, pf) = match function.kind {
        FunctionKind::Physical => ("pf", None),
        FunctionKind::Virtual { pf } => ("vf", pf),
        FunctionKind::Plain => ("none", None),
    };
    json!({
        "pci_address": function.address,
        "upstream": function.upstream,
        "link": function.link_name,
        "class": function.class.map(|class| format!("{:06x}", class.0)),
        "vendor": function.ids.map(|(vendor, _)| format!("{vendor:04x}")),
        "device": function.ids.map(|(_, device)| format!("{device:04x}")),
        "driver": function.driver,
        "numa_node": function.numa_node,
        "function": kind,
        "pf": pf,
        "sriov_vfs_limit": function.vfs_limit,
        "sriov_vfs_present": function.vfs_present,
        "off_bus": function.link.off_bus,
        "aer": aer_value(&function.aer),
    })
}

fn aer_value(aer: &Aer) -> Value {
    let totals = |of: &dyn Fn(usize) -> Option<u64>| -> Map<String, Value> {
        let values = AerSeverity::ALL.iter().enumerate();
        values.map(|(index, severity)| (severity.as_str().to_owned(), json!(of(index)))).collect()
    };
    let errors = aer.classes.iter().flatten().flat_map(|class| &class.errors).filter(|(_, count)| *count > 0);
    json!({
        "events": totals(&|index| aer.classes.get(index)?.as_ref().map(|class| class.total)),
        "errors": errors.map(|(name, count)| (name.to_string(), json!(count))).collect::<Map<_, _>>(),
        "root_port_messages": totals(&|index| aer.root_totals.get(index).copied().flatten()),
    })
}

fn link_value(link: &Link) -> Value {
    let (speed, width) = (link.speed(), link.width());
    json!({
        "pci_address": link.name,
        "upstream": link.upstream.as_ref().map(|(port, _)| port),
        "speed_transfers_per_second": speed.current,
        "max_speed_transfers_per_second": speed.device,
        "capable_speed_transfers_per_second": speed.capable(),
        "width_lanes": width.current,
        "max_width_lanes": width.device,
        "capable_width_lanes": width.capable(),
        "current_bandwidth_bytes_per_second": link.bandwidth(),
        "capable_bandwidth_bytes_per_second": link.capable_bandwidth(),
    })
}

fn netdev_value(netdev: &Netdev) -> Value {
    let mut unreadable = Unreadable::default();
    json!({
        "netdev": netdev.name,
        "pci_address": netdev.pci_address,
        "port_index": netdev.port_index,
        "hardware_type": netdev.hardware_type,
        "carrier": unreadable.take("carrier", netdev.carrier),
        "speed_bytes_per_second": unreadable.take("speed", netdev.speed),
        "operstate": netdev.operstate,
        "carrier_changes": netdev.carrier_changes,
        "carrier_downs": netdev.carrier_downs,
        "unreadable": unreadable.0,
    })
}

fn interrupts_value(report: &HostReport, function: &IrqFunction) -> Value {
    let cpus = |set: &Option<Arc<CpuSet>>| set.as_ref().map(ToString::to_string);
    let vector = |vector: &IrqVector| {
        json!({
            "irq": vector.irq,
            "action": vector.action,
            "effective_cpus": cpus(&vector.effective),
            "allowed_cpus": cpus(&vector.allowed),
            "hinted_cpus": cpus(&vector.hint),
            "managed": vector.managed,
            "interrupts": vector.counts.as_ref().map(|counts| counts.iter().map(|(_, count)| u64::from(*count)).sum::<u64>()),
        })
    };
    let summary = report.irqs.get(&function.address);
    let busiest = summary.and_then(|summary| summary.busiest);
    json!({
        "pci_address": function.address,
        "numa_node": function.numa_node,
        "busiest_cpu": busiest.map(|(cpu, _)| cpu),
        "busiest_cpu_ratio": busiest.map(|(_, share)| share),
        "affinity_changes": summary.map(|summary| summary.affinity_changes),
        "vectors": function.vectors.iter().map(vector).collect::<Vec<_>>(),
    })
}

fn numa_value(node: &NumaNode) -> Value {
    json!({ "node": node.id, "cpus": node.cpus })
}

fn resources_value(resources: &RdmaResources) -> Value {
    let counts = resources.counts.iter().map(|(name, count)| (name.to_string(), json!(count)));
    json!({ "device": resources.device, "resources": counts.collect::<Map<_, _>>() })
}

fn collector_value(collector: &CollectorState) -> Value {
    let fault = |source: &str, reason: ReadError| json!({ "source": source, "reason": reason });
    json!({
        "collector": collector.name,
        "success": collector.success,
        "listed": collector.listed,
        "duration_seconds": collector.duration.as_secs_f64(),
        "wait_seconds": collector.waited.as_secs_f64(),
        "last_success": collector.last_success.map(|stamp| rfc3339(stamp.wall)),
        "stuck": collector.stuck,
        "faults": collector.faults.iter().map(|found| fault(&found.source, found.reason)).collect::<Vec<_>>(),
        "quarantined": collector.quarantined,
    })
}

fn text(value: Option<impl ToString>) -> impl Serialize {
    value.map(|value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::testing;

    #[test]
    fn snapshot_document() {
        testing::committed("tests/golden/snapshot.json", &format!("{:#}\n", snapshot(&testing::report())));
    }
}
