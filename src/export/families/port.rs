//! Ports: state, rate, traffic, every other counter, and how they are addressed.

use crate::assess::capacity::{PortCapacity, Wire};
use crate::export::family::{FIRST_RELEASE, Family, Label, MetricKind, Series};
use crate::export::view::{PortView, ReportView};
use crate::model::counter::CounterKind;
use crate::model::ids::PortKey;
use crate::model::net::PortAddressing;
use crate::model::rdma::{LinkLayer, PhysicalState, PortState};
use crate::model::reading::Reading;
use crate::model::snapshot::Snapshot;
use crate::model::units::BytesPerSecond;

/// State, rate and counters.
pub const FAMILIES: &[Family] = &[
    Family {
        name: "lanewatch_port_info",
        kind: MetricKind::Info,
        help: "Identity of a port (/sys/class/infiniband/<device>/ports/<port>/{link_layer,rate,gids}); speed \
               and width are the fastest since the agent started; uplink: function, bond, or none without a wire of its own.",
        labels: &["device", "port", "link_layer", "netdev", "port_guid", "speed", "width", "uplink"],
        worst: WHOLE,
        since: FIRST_RELEASE,
        write: port_info,
    },
    Family {
        name: "lanewatch_port_state",
        kind: MetricKind::Gauge,
        help: "Logical state of the port, 1 for the one it is in (/sys/class/infiniband/<device>/ports/<port>/state); of a \
               VF's port ACTIVE and the one it is in.",
        labels: &["device", "port", "state"],
        worst: "6 per port, 2 per VF's port",
        since: FIRST_RELEASE,
        write: port_state,
    },
    Family {
        name: "lanewatch_port_physical_state",
        kind: MetricKind::Gauge,
        help: "Physical state of the port, 1 for the one it is in \
               (/sys/class/infiniband/<device>/ports/<port>/phys_state); of a VF's port the one it is in, unless it is ACTIVE.",
        labels: &["device", "port", "state"],
        worst: "7 per port, 1 per VF's port",
        since: FIRST_RELEASE,
        write: port_physical_state,
    },
    Family {
        name: "lanewatch_port_rate_bytes_per_second",
        kind: MetricKind::Gauge,
        help: "Data rate of an active port each way (/sys/class/infiniband/<device>/ports/<port>/rate).",
        labels: PORT,
        worst: "1 per port",
        since: FIRST_RELEASE,
        write: |view, out| {
            for row in &view.ports {
                out.known(&labels(row), row.lane.and_then(|lane| lane.rate).map(|rate| rate.0));
            }
        },
    },
    Family {
        name: "lanewatch_port_link_width",
        kind: MetricKind::Gauge,
        help: "Width of an active port: 4 for 4X (/sys/class/infiniband/<device>/ports/<port>/rate).",
        labels: PORT,
        worst: "1 per port",
        since: FIRST_RELEASE,
        write: |view, out| {
            for row in whole(view).filter(|row| row.port.is_active()) {
                out.known(&labels(row), row.port.rate.value().and_then(|rate| rate.width).map(u32::from));
            }
        },
    },
    Family {
        name: "lanewatch_port_ceiling_bytes_per_second",
        kind: MetricKind::Gauge,
        help: "The smaller of the port's rate and its PCIe path: the most that this port can move each way.",
        labels: PORT,
        worst: WHOLE,
        since: FIRST_RELEASE,
        write: |view, out| lane(view, out, |lane| lane.ceiling),
    },
    Family {
        name: "lanewatch_port_share_bytes_per_second",
        kind: MetricKind::Gauge,
        help: "Bandwidth of the port each way when all active ports on its PCIe path are busy.",
        labels: PORT,
        worst: WHOLE,
        since: FIRST_RELEASE,
        write: |view, out| lane(view, out, |lane| lane.share),
    },
    Family {
        name: "lanewatch_wire_rate_bytes_per_second",
        kind: MetricKind::Gauge,
        help: "Data rate each way of a wire that the port's traffic leaves the host on: its function's uplink, or each \
               member of its bond in use (ports/<port>/rate, /sys/class/net/<netdev>/speed). Sum these, not ports.",
        labels: WIRE,
        worst: "1 per physical port; none for VFs, sub-functions and representors",
        since: FIRST_RELEASE,
        write: |view, out| wires(view, out, |wire| Some(wire.rate)),
    },
    Family {
        name: "lanewatch_wire_share_bytes_per_second",
        kind: MetricKind::Gauge,
        help: "Bandwidth of the wire each way when all wires on its PCIe path are busy; absent if the path is unknown.",
        labels: WIRE,
        worst: "1 per physical port; none for VFs, sub-functions and representors",
        since: FIRST_RELEASE,
        write: |view, out| wires(view, out, |wire| wire.share),
    },
    Family {
        name: "lanewatch_port_received_bytes_total",
        kind: MetricKind::Counter,
        help: "Bytes received (counters/port_rcv_data in words of 4 bytes, or hw_counters/rx_bytes).",
        labels: PORT,
        worst: WHOLE,
        since: FIRST_RELEASE,
        write: |view, out| {
            total(view, out, |meaning| match meaning {
                CounterKind::ReceivedBytes { unit } => Some(unit),
                _ => None,
            });
        },
    },
    Family {
        name: "lanewatch_port_transmitted_bytes_total",
        kind: MetricKind::Counter,
        help: "Bytes transmitted (counters/port_xmit_data in words of 4 bytes, or hw_counters/tx_bytes).",
        labels: PORT,
        worst: WHOLE,
        since: FIRST_RELEASE,
        write: |view, out| {
            total(view, out, |meaning| match meaning {
                CounterKind::TransmittedBytes { unit } => Some(unit),
                _ => None,
            });
        },
    },
    Family {
        name: "lanewatch_port_received_packets_total",
        kind: MetricKind::Counter,
        help: "Packets received (counters/port_rcv_packets, or hw_counters/rx_pkts).",
        labels: PORT,
        worst: WHOLE,
        since: FIRST_RELEASE,
        write: |view, out| total(view, out, |meaning| (meaning == CounterKind::ReceivedPackets).then_some(1)),
    },
    Family {
        name: "lanewatch_port_transmitted_packets_total",
        kind: MetricKind::Counter,
        help: "Packets transmitted (counters/port_xmit_packets, or hw_counters/tx_pkts).",
        labels: PORT,
        worst: WHOLE,
        since: FIRST_RELEASE,
        write: |view, out| total(view, out, |meaning| (meaning == CounterKind::TransmittedPackets).then_some(1)),
    },
    Family {
        name: "lanewatch_port_transmit_wait_ticks_total",
        kind: MetricKind::Counter,
        help: "Ticks with data to send but no flow-control credits (counters/port_xmit_wait); the length of a \
               tick depends on the device.",
        labels: PORT,
        worst: WHOLE,
        since: FIRST_RELEASE,
        write: |view, out| total(view, out, |meaning| (meaning == CounterKind::TransmitWait).then_some(1)),
    },
    Family {
        name: "lanewatch_port_events_total",
        kind: MetricKind::Counter,
        help: "Every other counter of the port by the kernel's own name \
               (/sys/class/infiniband/<device>/ports/<port>/{counters,hw_counters}/<counter>).",
        labels: &["device", "port", "counter", "class"],
        worst: "1 per port and counter file, about 50 per port; of VFs beside their PF only with collector.vf-ports",
        since: FIRST_RELEASE,
        write: port_events,
    },
    Family {
        name: "lanewatch_port_level",
        kind: MetricKind::Gauge,
        help: "Gauges among the counter files of the port, such as active queue pairs \
               (/sys/class/infiniband/<device>/ports/<port>/hw_counters/<counter>).",
        labels: &["device", "port", "counter"],
        worst: "about 30 per port with bnxt_re, 1 with mana, none with others; of VFs beside their PF only with collector.vf-ports",
        since: FIRST_RELEASE,
        write: port_level,
    },
    Family {
        name: "lanewatch_port_saturated_counters",
        kind: MetricKind::Gauge,
        help: "Counters of the port that have reached their maximum and no longer count (counters/*).",
        labels: PORT,
        worst: WHOLE,
        since: FIRST_RELEASE,
        write: saturated,
    },
];

/// What there is of a VF's port only if asked for: there may be hundreds, and their PF counts their traffic.
const WHOLE: &str = "1 per port; of VFs beside their PF only with collector.vf-ports";

const PORT: &[&str] = &["device", "port"];
const WIRE: &[&str] = &["device", "port", "pci_address", "netdev"];

/// The `device` and `port` labels.
fn labels<'a>(row: &PortView<'a>) -> [Label<'a>; 2] {
    [row.device.name.as_str().into(), row.port.number.into()]
}

/// Ports of which everything is shown.
fn whole<'a>(view: &'a ReportView<'_>) -> impl Iterator<Item = &'a PortView<'a>> {
    view.ports.iter().filter(|row| !row.brief)
}

fn port_info(view: &ReportView<'_>, out: &mut Series<'_, '_>) {
    for row in whole(view) {
        let ([device, number], port) = (labels(row), row.port);
        // What it runs at now is a value of other families: as a label it would make a new series at each retrain.
        let key = PortKey { device: row.device.name.clone(), port: port.number };
        let rate = view.report.fastest_rates.get(&key);
        out.info(&[
            device,
            number,
            port.link_layer.as_ref().map(LinkLayer::as_str).into(),
            port.netdev.as_ref().into(),
            port.guid.into(),
            rate.map(|rate| rate.speed.as_str()).into(),
            rate.and_then(|rate| rate.width).map_or(Label::Text(""), Label::Width),
            row.lane.map(|lane| lane.uplink.as_str()).into(),
        ]);
    }
}

fn port_state(view: &ReportView<'_>, out: &mut Series<'_, '_>) {
    for row in &view.ports {
        let (Reading::Value(now), [device, number]) = (row.port.state, labels(row)) else { continue };
        let shown = |state: &PortState| !row.brief || *state == PortState::Active || *state == now;
        for state in PortState::ALL.into_iter().filter(shown) {
            out.gauge(&[device, number, state.as_str().into()], state == now);
        }
    }
}

fn port_physical_state(view: &ReportView<'_>, out: &mut Series<'_, '_>) {
    for row in &view.ports {
        let (Reading::Value(now), [device, number]) = (row.port.physical_state, labels(row)) else { continue };
        // Of a port that is ACTIVE it says nothing more, and one whose state is unknown may be.
        let is_down = row.port.state.value().is_some() && !row.port.is_active();
        let shown = |state: &PhysicalState| !row.brief || (*state == now && is_down);
        for state in PhysicalState::ALL.into_iter().filter(shown) {
            out.gauge(&[device, number, state.as_str().into()], state == now);
        }
    }
}

fn lane(view: &ReportView<'_>, out: &mut Series<'_, '_>, of: impl Fn(&PortCapacity) -> Option<BytesPerSecond>) {
    for row in whole(view) {
        out.known(&labels(row), row.lane.and_then(&of).map(|rate| rate.0));
    }
}

fn wires(view: &ReportView<'_>, out: &mut Series<'_, '_>, of: impl Fn(&Wire) -> Option<BytesPerSecond>) {
    for row in whole(view) {
        let [device, number] = labels(row);
        for wire in row.lane.map_or(&[][..], |lane| &lane.wires) {
            out.known(
                &[device, number, wire.function.into(), wire.netdev.as_ref().into()],
                of(wire).map(|rate| rate.0),
            );
        }
    }
}

fn total(view: &ReportView<'_>, out: &mut Series<'_, '_>, wanted: impl Fn(CounterKind) -> Option<u64>) {
    for row in whole(view) {
        if let Some(value) = row.port.total(&wanted) {
            out.counter(&labels(row), value);
        }
    }
}

fn port_events(view: &ReportView<'_>, out: &mut Series<'_, '_>) {
    for row in whole(view) {
        let [device, number] = labels(row);
        for (counter, value) in row.port.counters() {
            if let CounterKind::Event(class) = counter.meaning {
                out.counter(&[device, number, (&counter.name).into(), class.as_str().into()], value);
            }
        }
    }
}

fn port_level(view: &ReportView<'_>, out: &mut Series<'_, '_>) {
    for row in whole(view) {
        let [device, number] = labels(row);
        for (counter, value) in row.port.counters().filter(|(counter, _)| counter.meaning == CounterKind::Level) {
            out.gauge(&[device, number, (&counter.name).into()], value);
        }
    }
}

fn saturated(view: &ReportView<'_>, out: &mut Series<'_, '_>) {
    for row in whole(view) {
        if row.port.counters().next().is_some() {
            out.gauge(&labels(row), row.port.pma.saturated().chain(row.port.hardware.saturated()).count());
        }
    }
}

/// GIDs and the defaults of RoCE connections.
pub const ADDRESSING: &[Family] = &[
    Family {
        name: "lanewatch_port_gids",
        kind: MetricKind::Gauge,
        help: "GIDs of a port by type, as the kernel names them \
               (/sys/class/infiniband/<device>/ports/<port>/gid_attrs/types).",
        labels: &["device", "port", "gid_type"],
        worst: "2 per port; absent for VFs beside their PF",
        since: FIRST_RELEASE,
        write: |view, out| {
            for addressing in port_addresses(&view.report.snapshot) {
                for (kind, count) in &addressing.gids {
                    let port = &addressing.port;
                    out.gauge(&[port.device.as_str().into(), port.port.into(), kind.into()], *count);
                }
            }
        },
    },
    Family {
        name: "lanewatch_port_roce_info",
        kind: MetricKind::Info,
        help: "Defaults of RoCE connections of a port, if set \
               (/sys/kernel/config/rdma_cm/<device>/ports/<port>, /sys/class/infiniband/<device>/tc/<port>).",
        labels: &["device", "port", "default_mode", "default_tos", "traffic_class"],
        worst: "1 per port; absent for VFs beside their PF",
        since: FIRST_RELEASE,
        write: |view, out| {
            for addressing in port_addresses(&view.report.snapshot) {
                let PortAddressing { port, default_mode, default_tos, traffic_class, .. } = addressing;
                let number = |value: &Option<u64>| value.map(|value| value.to_string());
                let (tos, class) = (number(default_tos), number(traffic_class));
                if default_mode.is_some() || tos.is_some() || class.is_some() {
                    out.info(&[
                        port.device.as_str().into(),
                        port.port.into(),
                        default_mode.as_ref().into(),
                        tos.as_deref().into(),
                        class.as_deref().into(),
                    ]);
                }
            }
        },
    },
];

/// Tables are read seldom: a device that is gone since then is left out.
fn port_addresses(snapshot: &Snapshot) -> Vec<&PortAddressing> {
    let listed = snapshot.collector("rdma").and_then(|rdma| rdma.listed.as_ref());
    let is_gone = |name: &str| listed.is_some_and(|listed| !listed.iter().any(|there| **there == *name));
    let mut all: Vec<&PortAddressing> =
        snapshot.all().filter(|one: &&PortAddressing| !is_gone(one.port.device.as_str())).collect();
    all.sort_by(|a, b| a.port.cmp(&b.port));
    all.dedup_by(|a, b| a.port == b.port);
    all
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::SystemTime;

    use super::*;
    use crate::model::ids::DeviceName;
    use crate::model::snapshot::{CollectorState, Fact};
    use crate::model::time::{BootTime, Timestamp};

    #[test]
    fn a_device_that_is_gone_has_no_gids() {
        let addressing = |name| PortAddressing {
            port: PortKey { device: DeviceName::new(name), port: 1 },
            gids: vec![(Arc::from("RoCE v2"), 1)],
            roce_v2: Vec::new(),
            default_mode: None,
            default_tos: None,
            traffic_class: None,
        };
        let told = |listed: Option<&[&str]>| -> Vec<String> {
            let listed = listed.map(|names| names.iter().map(|name| Arc::from(*name)).collect());
            let rdma = CollectorState { name: "rdma", listed, ..CollectorState::default() };
            let facts = ["mlx5_0", "mlx5_1"].map(|name| Arc::new(addressing(name)) as Fact);
            let snapshot =
                Snapshot::new(Timestamp { tick: BootTime(0), wall: SystemTime::UNIX_EPOCH }, facts, vec![rdma]);
            port_addresses(&snapshot).iter().map(|one| one.port.device.to_string()).collect()
        };
        assert_eq!(told(Some(&["mlx5_0"])), ["mlx5_0"]);
        assert_eq!(told(None), ["mlx5_0", "mlx5_1"], "without a listing nobody is known to be gone");
    }
}
