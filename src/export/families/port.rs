//! Ports: state, rate, traffic and every other counter.

use super::FIRST;
use crate::assess::capacity::PortCapacity;
use crate::export::catalogue::{Family, Kind};
use crate::export::content::{Content, PortRow};
use crate::export::series::{Label, Series};
use crate::model::counter::CounterKind;
use crate::model::rdma::{LinkLayer, PhysicalState, PortState};
use crate::model::reading::Reading;
use crate::model::units::BytesPerSecond;

/// The rows.
pub const FAMILIES: &[Family] = &[
    Family {
        name: "lanewatch_port_info",
        kind: Kind::Info,
        help: "What a port is (/sys/class/infiniband/<device>/ports/<port>/{link_layer,rate,gids}); speed and width \
               while it is active.",
        labels: &["device", "port", "link_layer", "netdev", "port_guid", "speed", "width"],
        worst: "1 a port",
        since: FIRST,
        write: port_info,
    },
    Family {
        name: "lanewatch_port_state",
        kind: Kind::Gauge,
        help: "Logical state of the port, 1 for the one it is in (/sys/class/infiniband/<device>/ports/<port>/state); of a \
               VF's port ACTIVE and the one it is in.",
        labels: &["device", "port", "state"],
        worst: "6 a port",
        since: FIRST,
        write: port_state,
    },
    Family {
        name: "lanewatch_port_physical_state",
        kind: Kind::Gauge,
        help: "Physical state of the port, 1 for the one it is in \
               (/sys/class/infiniband/<device>/ports/<port>/phys_state).",
        labels: &["device", "port", "state"],
        worst: "7 a port",
        since: FIRST,
        write: port_physical_state,
    },
    Family {
        name: "lanewatch_port_rate_bytes_per_second",
        kind: Kind::Gauge,
        help: "Data rate of an active port each way (/sys/class/infiniband/<device>/ports/<port>/rate).",
        labels: PORT,
        worst: "1 a port",
        since: FIRST,
        write: |content, out| {
            for row in &content.ports {
                out.known(&row.labels(), row.lane.and_then(|lane| lane.rate).map(|rate| rate.0));
            }
        },
    },
    Family {
        name: "lanewatch_port_ceiling_bytes_per_second",
        kind: Kind::Gauge,
        help: "The least of the port's rate and its whole PCIe path: the most that this port can move each way.",
        labels: PORT,
        worst: "1 a port",
        since: FIRST,
        write: |content, out| lane(content, out, |lane| lane.ceiling),
    },
    Family {
        name: "lanewatch_port_share_bytes_per_second",
        kind: Kind::Gauge,
        help: "What is left of the port's ceiling when all active ports of its PCIe path run at once.",
        labels: PORT,
        worst: "1 a port",
        since: FIRST,
        write: |content, out| lane(content, out, |lane| lane.share),
    },
    Family {
        name: "lanewatch_port_received_bytes_total",
        kind: Kind::Counter,
        help: "Bytes received (counters/port_rcv_data in words of 4 bytes, or hw_counters/rx_bytes).",
        labels: PORT,
        worst: "1 a port",
        since: FIRST,
        write: |content, out| {
            total(content, out, |meaning| match meaning {
                CounterKind::ReceivedBytes { unit } => Some(unit),
                _ => None,
            });
        },
    },
    Family {
        name: "lanewatch_port_transmitted_bytes_total",
        kind: Kind::Counter,
        help: "Bytes transmitted (counters/port_xmit_data in words of 4 bytes, or hw_counters/tx_bytes).",
        labels: PORT,
        worst: "1 a port",
        since: FIRST,
        write: |content, out| {
            total(content, out, |meaning| match meaning {
                CounterKind::TransmittedBytes { unit } => Some(unit),
                _ => None,
            });
        },
    },
    Family {
        name: "lanewatch_port_received_packets_total",
        kind: Kind::Counter,
        help: "Packets received (counters/port_rcv_packets, or hw_counters/rx_pkts).",
        labels: PORT,
        worst: "1 a port",
        since: FIRST,
        write: |content, out| total(content, out, |meaning| (meaning == CounterKind::ReceivedPackets).then_some(1)),
    },
    Family {
        name: "lanewatch_port_transmitted_packets_total",
        kind: Kind::Counter,
        help: "Packets transmitted (counters/port_xmit_packets, or hw_counters/tx_pkts).",
        labels: PORT,
        worst: "1 a port",
        since: FIRST,
        write: |content, out| total(content, out, |meaning| (meaning == CounterKind::TransmittedPackets).then_some(1)),
    },
    Family {
        name: "lanewatch_port_transmit_wait_ticks_total",
        kind: Kind::Counter,
        help: "Ticks, of a length only the device knows, with data to send and no credit (counters/port_xmit_wait).",
        labels: PORT,
        worst: "1 a port",
        since: FIRST,
        write: |content, out| total(content, out, |meaning| (meaning == CounterKind::TransmitWait).then_some(1)),
    },
    Family {
        name: "lanewatch_port_events_total",
        kind: Kind::Counter,
        help: "Every other counter of the port by the kernel's own name \
               (/sys/class/infiniband/<device>/ports/<port>/{counters,hw_counters}/<counter>).",
        labels: &["device", "port", "counter", "class"],
        worst: "1 a port and counter file, about 50 a port",
        since: FIRST,
        write: port_events,
    },
    Family {
        name: "lanewatch_port_level",
        kind: Kind::Gauge,
        help: "Levels among the port's counter files, such as active queue pairs \
               (/sys/class/infiniband/<device>/ports/<port>/hw_counters/<counter>).",
        labels: &["device", "port", "counter"],
        worst: "about 30 a port with bnxt_re, 1 with mana, none with others",
        since: FIRST,
        write: port_level,
    },
    Family {
        name: "lanewatch_port_saturated_counters",
        kind: Kind::Gauge,
        help: "How many of the port's counters stand at their field's maximum and no longer count (counters/*).",
        labels: PORT,
        worst: "1 a port",
        since: FIRST,
        write: saturated,
    },
];

const PORT: &[&str] = &["device", "port"];

/// Ports of which everything is shown.
fn whole<'a>(content: &'a Content<'_>) -> impl Iterator<Item = &'a PortRow<'a>> {
    content.ports.iter().filter(|row| !row.brief)
}

fn port_info(content: &Content<'_>, out: &mut Series<'_, '_>) {
    for row in whole(content) {
        let ([device, number], port) = (row.labels(), row.port);
        // Down, some drivers (mlx5 with Ethernet) name a rate that means nothing.
        let rate = if port.is_active() { port.rate.value() } else { None };
        out.info(&[
            device,
            number,
            port.link_layer.as_ref().map(LinkLayer::as_str).into(),
            port.netdev.as_ref().into(),
            port.guid.into(),
            rate.map(|rate| rate.speed.as_str()).into(),
            rate.and_then(|rate| rate.width).map_or(Label::Text(""), Label::Width),
        ]);
    }
}

fn port_state(content: &Content<'_>, out: &mut Series<'_, '_>) {
    for row in &content.ports {
        let (Reading::Value(now), [device, number]) = (row.port.state, row.labels()) else { continue };
        let shown = |state: &PortState| !row.brief || *state == PortState::Active || *state == now;
        for state in PortState::ALL.into_iter().filter(shown) {
            out.gauge(&[device, number, state.as_str().into()], state == now);
        }
    }
}

fn port_physical_state(content: &Content<'_>, out: &mut Series<'_, '_>) {
    for row in whole(content) {
        let (Reading::Value(now), [device, number]) = (row.port.physical_state, row.labels()) else { continue };
        for state in PhysicalState::ALL {
            out.gauge(&[device, number, state.as_str().into()], state == now);
        }
    }
}

fn lane(content: &Content<'_>, out: &mut Series<'_, '_>, of: impl Fn(&PortCapacity) -> Option<BytesPerSecond>) {
    for row in whole(content) {
        out.known(&row.labels(), row.lane.and_then(&of).map(|rate| rate.0));
    }
}

fn total(content: &Content<'_>, out: &mut Series<'_, '_>, wanted: impl Fn(CounterKind) -> Option<u64>) {
    for row in whole(content) {
        let port = row.port;
        if let Some(value) = port.pma.total(&wanted).or_else(|| port.hardware.total(&wanted)) {
            out.counter(&row.labels(), value);
        }
    }
}

fn port_events(content: &Content<'_>, out: &mut Series<'_, '_>) {
    for row in whole(content) {
        let [device, number] = row.labels();
        for (counter, value) in row.port.counters() {
            if let CounterKind::Event(class) = counter.meaning {
                out.counter(&[device, number, (&counter.name).into(), class.as_str().into()], value);
            }
        }
    }
}

fn port_level(content: &Content<'_>, out: &mut Series<'_, '_>) {
    for row in whole(content) {
        let [device, number] = row.labels();
        for (counter, value) in row.port.counters().filter(|(counter, _)| counter.meaning == CounterKind::Level) {
            out.gauge(&[device, number, (&counter.name).into()], value);
        }
    }
}

fn saturated(content: &Content<'_>, out: &mut Series<'_, '_>) {
    for row in whole(content) {
        if row.port.counters().next().is_some() {
            out.gauge(&row.labels(), row.port.pma.saturated().chain(row.port.hardware.saturated()).count());
        }
    }
}
