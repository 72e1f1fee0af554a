//! PCIe links and paths, and error reporting.

use crate::assess::capacity::DevicePath;
use crate::export::family::{FIRST_RELEASE, Family, MetricKind, Series};
use crate::export::view::ReportView;
use crate::model::ids::DeviceName;
use crate::model::pcie::{AerSeverity, FunctionKind, PciFunction};
use crate::model::topology::Link;
use crate::model::units::{BytesPerSecond, Lanes, TransfersPerSecond};

/// The families, in the order of the exposition.
pub const FAMILIES: &[Family] = &[
    link(
        "lanewatch_pcie_link_speed_transfers_per_second",
        "Current speed of the link per lane (/sys/bus/pci/devices/<address>/current_link_speed).",
        |view, out| speed(view, out, |link| link.speed().current),
    ),
    link(
        "lanewatch_pcie_link_max_speed_transfers_per_second",
        "Maximum speed per lane of the device (/sys/bus/pci/devices/<address>/max_link_speed).",
        |view, out| speed(view, out, |link| link.speed().device),
    ),
    link(
        "lanewatch_pcie_link_capable_speed_transfers_per_second",
        "Maximum speed per lane that both ends of the link support (max_link_speed of the device and the \
               port above).",
        |view, out| speed(view, out, |link| link.speed().capable()),
    ),
    link(
        "lanewatch_pcie_link_width_lanes",
        "Current width of the link (/sys/bus/pci/devices/<address>/current_link_width).",
        |view, out| width(view, out, |link| link.width().current),
    ),
    link(
        "lanewatch_pcie_link_max_width_lanes",
        "Maximum width of the device (/sys/bus/pci/devices/<address>/max_link_width).",
        |view, out| width(view, out, |link| link.width().device),
    ),
    link(
        "lanewatch_pcie_link_capable_width_lanes",
        "Maximum width that both ends of the link support (max_link_width of the device and the port \
               above).",
        |view, out| width(view, out, |link| link.width().capable()),
    ),
    link(
        "lanewatch_pcie_link_current_bandwidth_bytes_per_second",
        "Current bandwidth of the link each way (current_link_speed times current_link_width).",
        |view, out| bandwidth(view, out, Link::bandwidth),
    ),
    link(
        "lanewatch_pcie_link_capable_bandwidth_bytes_per_second",
        "Bandwidth each way that both ends of the link support (max_link_speed times max_link_width).",
        |view, out| bandwidth(view, out, Link::capable_bandwidth),
    ),
    Family {
        name: "lanewatch_pcie_link_changes_total",
        kind: MetricKind::Counter,
        help: "Changes of speed or width that the agent saw since its start (current_link_speed, current_link_width).",
        labels: ADDRESS,
        worst: "1 per link",
        since: FIRST_RELEASE,
        write: link_changes,
    },
    Family {
        name: "lanewatch_pcie_path_bandwidth_bytes_per_second",
        kind: MetricKind::Gauge,
        help: "Bandwidth of the device's PCIe path each way: that of its slowest link (current_link_*).",
        labels: &["device", "pci_address"],
        worst: "1 per device",
        since: FIRST_RELEASE,
        write: path_bandwidth,
    },
    Family {
        name: "lanewatch_pcie_path_info",
        kind: MetricKind::Info,
        help: "The link that limits the device's PCIe path (current_link_*). Deprecated: use lanewatch_pcie_path_link, \
               which makes no new series when another link becomes the limit.",
        labels: &["device", "pci_address", "limiting_pci_address"],
        worst: "1 per device, without VFs",
        since: FIRST_RELEASE,
        write: path_info,
    },
    Family {
        name: "lanewatch_pcie_path_link",
        kind: MetricKind::Gauge,
        help: "Links of a device's PCIe path by their address, from the device (hop 1) up: 1 for the one that limits the \
               path, 0 for others (current_link_*).",
        labels: &["device", "pci_address", "hop"],
        worst: "1 per device and link of its path, usually 1 to 3; none for VFs",
        since: FIRST_RELEASE,
        write: path_links,
    },
    Family {
        name: "lanewatch_pcie_aer_events_total",
        kind: MetricKind::Counter,
        help: "AER errors that a function or port detected (/sys/bus/pci/devices/<address>/aer_dev_<class>, the \
               total).",
        labels: AER,
        worst: "3 per PF and 3 per port above",
        since: FIRST_RELEASE,
        write: aer_events,
    },
    Family {
        name: "lanewatch_pcie_aer_errors_total",
        kind: MetricKind::Counter,
        help: "AER errors by name, without zeros (/sys/bus/pci/devices/<address>/aer_dev_<class>).",
        labels: &["pci_address", "class", "error"],
        worst: "about 50 per PF and port above; none on a healthy host",
        since: FIRST_RELEASE,
        write: aer_errors,
    },
    Family {
        name: "lanewatch_pcie_aer_root_port_messages_total",
        kind: MetricKind::Counter,
        help: "Error messages that a root port received from below \
               (/sys/bus/pci/devices/<address>/aer_rootport_total_err_<class>).",
        labels: AER,
        worst: "3 per root port",
        since: FIRST_RELEASE,
        write: root_messages,
    },
];

const ADDRESS: &[&str] = &["pci_address"];
const AER: &[&str] = &["pci_address", "class"];

/// A gauge of every link.
const fn link(name: &'static str, help: &'static str, write: fn(&ReportView<'_>, &mut Series<'_, '_>)) -> Family {
    Family { name, kind: MetricKind::Gauge, help, labels: ADDRESS, worst: "1 per link", since: FIRST_RELEASE, write }
}

fn speed(view: &ReportView<'_>, out: &mut Series<'_, '_>, of: impl Fn(&Link) -> Option<TransfersPerSecond>) {
    for link in view.report.topology.links.values() {
        out.known(&[link.name.into()], of(link).map(|speed| speed.0));
    }
}

fn width(view: &ReportView<'_>, out: &mut Series<'_, '_>, of: impl Fn(&Link) -> Option<Lanes>) {
    for link in view.report.topology.links.values() {
        out.known(&[link.name.into()], of(link).map(|width| u32::from(width.0)));
    }
}

fn bandwidth(view: &ReportView<'_>, out: &mut Series<'_, '_>, of: impl Fn(&Link) -> Option<BytesPerSecond>) {
    for link in view.report.topology.links.values() {
        out.known(&[link.name.into()], of(link).map(|bandwidth| bandwidth.0));
    }
}

fn link_changes(view: &ReportView<'_>, out: &mut Series<'_, '_>) {
    for name in view.report.topology.links.keys() {
        out.counter(&[(*name).into()], view.report.link_changes.get(name).copied().unwrap_or(0));
    }
}

fn path_bandwidth(view: &ReportView<'_>, out: &mut Series<'_, '_>) {
    for (device, path) in &view.report.lanes.paths {
        out.gauge(&[device.as_str().into(), path.function.into()], path.bandwidth.0);
    }
}

fn path_info(view: &ReportView<'_>, out: &mut Series<'_, '_>) {
    for (device, path) in whole_paths(view) {
        out.info(&[device.as_str().into(), path.function.into(), path.limiting.into()]);
    }
}

fn path_links(view: &ReportView<'_>, out: &mut Series<'_, '_>) {
    for (device, path) in whole_paths(view) {
        for (hop, link) in (1_u32..).zip(view.report.topology.path(path.function)) {
            out.gauge(&[device.as_str().into(), link.name.into(), hop.into()], link.name == path.limiting);
        }
    }
}

/// The paths of devices that are no VF's: that of a VF is its PF's.
fn whole_paths<'a>(view: &'a ReportView<'_>) -> impl Iterator<Item = (&'a DeviceName, &'a DevicePath)> {
    let of_vf = |address| view.function(address).is_some_and(|f| matches!(f.kind, FunctionKind::Virtual { .. }));
    view.report.lanes.paths.iter().filter(move |(_, path)| !of_vf(path.function))
}

/// Functions that report errors of their own: VFs only repeat their PF's.
fn reporting<'a>(view: &ReportView<'a>) -> impl Iterator<Item = &'a PciFunction> {
    view.functions.iter().copied().filter(|function| !matches!(function.kind, FunctionKind::Virtual { .. }))
}

fn aer_events(view: &ReportView<'_>, out: &mut Series<'_, '_>) {
    for function in reporting(view) {
        for (severity, class) in AerSeverity::ALL.iter().zip(&function.aer.classes) {
            if let Some(class) = class {
                out.counter(&[function.address.into(), severity.as_str().into()], class.total);
            }
        }
    }
}

fn aer_errors(view: &ReportView<'_>, out: &mut Series<'_, '_>) {
    for function in reporting(view) {
        for (severity, class) in AerSeverity::ALL.iter().zip(&function.aer.classes) {
            let errors = class.iter().flat_map(|class| &class.errors).filter(|(_, count)| *count > 0);
            let mut written: Vec<&str> = Vec::new();
            for (error, count) in errors {
                // Names are unique in the kernel's file; should one come twice, the first stands.
                if !written.contains(&&**error) {
                    written.push(error);
                    out.counter(&[function.address.into(), severity.as_str().into(), error.into()], *count);
                }
            }
        }
    }
}

fn root_messages(view: &ReportView<'_>, out: &mut Series<'_, '_>) {
    for function in reporting(view) {
        for (severity, total) in AerSeverity::ALL.iter().zip(function.aer.root_totals) {
            if let Some(total) = total {
                out.counter(&[function.address.into(), severity.as_str().into()], total);
            }
        }
    }
}
