//! RDMA devices.

use crate::export::family::{FIRST_RELEASE, Family, Label, MetricKind, Series};
use crate::export::view::ReportView;
use crate::model::counter::{CounterClass, CounterKind};
use crate::model::pcie::{FunctionKind, PciFunction};
use crate::model::rdma::{QueuePairs, RdmaDevice, RdmaResources};

/// The families, in the order of the exposition.
pub const FAMILIES: &[Family] = &[
    Family {
        name: "lanewatch_device_info",
        kind: MetricKind::Info,
        help: "Identity of an RDMA device (/sys/class/infiniband/<device>/{fw_ver,board_id,hca_type,node_guid}) \
               and its PCI function, which is a pf, a vf, an sf (sub-function) or none of them.",
        labels: &[
            "device",
            "pci_address",
            "driver",
            "firmware_version",
            "board_id",
            "hca_type",
            "node_guid",
            "sys_image_guid",
            "numa_node",
            "function",
        ],
        worst: "1 per device",
        since: FIRST_RELEASE,
        write: device_info,
    },
    Family {
        name: "lanewatch_device_events_total",
        kind: MetricKind::Counter,
        help: "Counters of the device by the driver's names \
               (/sys/class/infiniband/<device>/hw_counters/<counter>).",
        labels: &["device", "counter", "class"],
        worst: "1 per device and counter file; absent with most drivers",
        since: FIRST_RELEASE,
        write: device_events,
    },
    Family {
        name: "lanewatch_device_level",
        kind: MetricKind::Gauge,
        help: "Gauges among the counter files of the device, such as active queue pairs \
               (/sys/class/infiniband/<device>/hw_counters/<counter>).",
        labels: &["device", "counter"],
        worst: "1 per device and level file; absent with most drivers",
        since: FIRST_RELEASE,
        write: device_level,
    },
    Family {
        name: "lanewatch_rdma_resources",
        kind: MetricKind::Gauge,
        help: "RDMA objects in use on a device (RDMA_NLDEV_CMD_RES_GET).",
        labels: &["device", "resource"],
        worst: "7 per device",
        since: FIRST_RELEASE,
        write: resources,
    },
    Family {
        name: "lanewatch_rdma_queue_pairs",
        kind: MetricKind::Gauge,
        help: "Queue pairs of a device by type and state (RDMA_NLDEV_CMD_RES_QP_GET); only with --collector.rdma_qp, as \
               each costs a firmware command.",
        labels: &["device", "type", "state"],
        worst: "about 10 per device; none by default",
        since: FIRST_RELEASE,
        write: queue_pairs,
    },
];

fn device_info(view: &ReportView<'_>, out: &mut Series<'_, '_>) {
    for device in &view.devices {
        let identity = &device.identity;
        let function = identity.pci_address.and_then(|address| view.function(address));
        out.info(&[
            device.name.as_str().into(),
            identity.pci_address.into(),
            function.and_then(|function| function.driver.as_ref()).into(),
            identity.firmware_version.as_ref().into(),
            identity.board_id.as_ref().into(),
            identity.hca_type.as_ref().into(),
            identity.node_guid.into(),
            identity.sys_image_guid.into(),
            function.and_then(|function| function.numa_node).into(),
            kind(device, function).into(),
        ]);
    }
}

fn kind(device: &RdmaDevice, function: Option<&PciFunction>) -> &'static str {
    if device.identity.sub_function.is_some() {
        return "sf";
    }
    match function.map(|function| function.kind) {
        Some(FunctionKind::Physical) => "pf",
        Some(FunctionKind::Virtual { .. }) => "vf",
        Some(FunctionKind::Plain) | None => "none",
    }
}

/// Devices of which everything is shown: not those of VFs, of which there may be hundreds.
fn whole<'a>(view: &'a ReportView<'_>) -> impl Iterator<Item = &'a RdmaDevice> {
    view.devices.iter().copied().filter(|device| {
        let function = device.identity.pci_address.and_then(|address| view.function(address));
        !function.is_some_and(|function| matches!(function.kind, FunctionKind::Virtual { pf: Some(_) }))
    })
}

fn device_events(view: &ReportView<'_>, out: &mut Series<'_, '_>) {
    for device in whole(view) {
        for (counter, value) in device.counters.iter() {
            let class = match counter.meaning {
                CounterKind::Level => continue,
                CounterKind::Event(class) => class,
                CounterKind::TransmitWait => CounterClass::Congestion,
                CounterKind::ReceivedBytes { .. }
                | CounterKind::TransmittedBytes { .. }
                | CounterKind::ReceivedPackets
                | CounterKind::TransmittedPackets => CounterClass::Traffic,
            };
            out.counter(&[device.name.as_str().into(), (&counter.name).into(), class.as_str().into()], value);
        }
    }
}

fn device_level(view: &ReportView<'_>, out: &mut Series<'_, '_>) {
    for device in whole(view) {
        for (counter, value) in device.counters.iter().filter(|(counter, _)| counter.meaning == CounterKind::Level) {
            out.gauge(&[device.name.as_str().into(), (&counter.name).into()], value);
        }
    }
}

fn queue_pairs(view: &ReportView<'_>, out: &mut Series<'_, '_>) {
    let mut all: Vec<&QueuePairs> = view.report.snapshot.all().collect();
    all.sort_by(|a, b| a.device.cmp(&b.device));
    all.dedup_by(|a, b| a.device == b.device);
    for QueuePairs { device, counts } in all {
        for ((kind, state), count) in counts {
            out.gauge(&[device.as_str().into(), (*kind).into(), (*state).into()], *count);
        }
    }
}

fn resources(view: &ReportView<'_>, out: &mut Series<'_, '_>) {
    let mut all: Vec<&RdmaResources> = view.report.snapshot.all().collect();
    all.sort_by(|a, b| a.device.cmp(&b.device));
    all.dedup_by(|a, b| a.device == b.device);
    for RdmaResources { device, counts } in all {
        for (index, (resource, count)) in counts.iter().enumerate() {
            // The kernel's list is by name; should a name come twice, the first stands.
            if counts.iter().take(index).all(|(earlier, _)| earlier != resource) {
                let labels: [Label<'_>; 2] = [device.as_str().into(), resource.into()];
                out.gauge(&labels, *count);
            }
        }
    }
}
