//! The path of a device from memory to the wire, put together for people: `explain` and the status page draw it.

mod hop;
mod line;
mod port;

pub use hop::{HopState, PathHop};
pub use line::module_lines;
pub use port::{PathEnd, setup_lines};

use crate::model::finding::{Finding, Subject};
use crate::model::host::NumaNode;
use crate::model::ids::PciAddress;
use crate::model::pcie::{FunctionKind, PciFunction};
use crate::model::rdma::RdmaDevice;
use crate::model::topology::Link;
use crate::model::units::BytesPerSecond;
use crate::watch::HostReport;

/// The path of a device, from its NUMA node to its ports.
#[derive(Debug)]
pub struct PathDiagram<'a> {
    /// The device.
    pub device: &'a RdmaDevice,
    /// The PCI function behind it.
    pub function: Option<&'a PciFunction>,
    /// The NUMA node of the function; the node itself where the host lists it.
    pub node: Option<(u32, Option<&'a NumaNode>)>,
    /// The links from the root down to the device.
    pub hops: Vec<PathHop<'a>>,
    /// Its ports.
    pub ports: Vec<PathEnd<'a>>,
    /// Findings on the device, its ports and its links, worst first.
    pub findings: Vec<&'a Finding>,
}

/// Every device's path, in the order of their names.
pub fn diagrams(report: &HostReport) -> Vec<PathDiagram<'_>> {
    let mut devices: Vec<&RdmaDevice> = report.snapshot.devices().collect();
    devices.sort_by(|a, b| a.name.cmp(&b.name));
    devices.into_iter().map(|device| PathDiagram::new(report, device)).collect()
}

impl<'a> PathDiagram<'a> {
    /// Puts the path of a device together.
    pub fn new(report: &'a HostReport, device: &'a RdmaDevice) -> Self {
        let function = device.identity.pci_address.and_then(|address| report.snapshot.function(address));
        let node = function.and_then(|function| function.numa_node);
        let limit = limit(report, device);
        let path = device.identity.pci_address.into_iter().flat_map(|function| report.topology.path(function));
        let fastest = fastest(report, device);
        let to_hop = |link: &'a Link| {
            let state = if link.is_placeholder(fastest) { HopState::Nominal } else { hop::state(link) };
            PathHop { link, state, limits: limit.is_some_and(|limit| limit.name == link.name) }
        };
        let mut hops: Vec<PathHop<'_>> = path.map(to_hop).collect();
        hops.reverse();
        let ports = device.ports.iter().map(|port| PathEnd::new(report, device, port, limit)).collect();
        let mut diagram = Self {
            device,
            function,
            node: node.map(|id| (id, report.snapshot.all::<NumaNode>().find(|node| node.id == id))),
            hops,
            ports,
            findings: Vec::new(),
        };
        diagram.findings = report.findings.iter().filter(|finding| diagram.concerns(finding)).collect();
        diagram
    }

    /// Whether a finding is on this path: its device, or a function or port of its path.
    pub fn concerns(&self, finding: &Finding) -> bool {
        let condition = &finding.condition;
        condition.device.as_ref() == Some(&self.device.name)
            || matches!(condition.subject, Subject::Pci(address) if self.passes(address))
    }

    /// Whether a function is on this path: its own, or one at either end of a link of its path.
    pub fn passes(&self, address: PciAddress) -> bool {
        self.device.identity.pci_address == Some(address)
            || self
                .hops
                .iter()
                .any(|hop| hop.link.name == address || hop.link.upstream.is_some_and(|(upper, _)| upper == address))
    }

    /// Whether the function is a VF, whose links are its PF's.
    pub fn is_virtual(&self) -> bool {
        self.function.is_some_and(|function| matches!(function.kind, FunctionKind::Virtual { .. }))
    }
}

/// The link of which the active ports ask for most in proportion to what it carries, if that is too much.
fn limit<'a>(report: &'a HostReport, device: &RdmaDevice) -> Option<&'a Link> {
    let function = report.lanes.paths.get(&device.name)?.function;
    let fastest = fastest(report, device).0;
    let asked = |link: &Link| report.lanes.demand.get(&link.name).map_or(fastest, |demand| demand.0.max(fastest));
    let ratios = report.topology.path(function).filter_map(|link| Some((link, link.bandwidth()?.0 / asked(link))));
    let tightest = ratios.min_by(|(_, a), (_, b)| a.total_cmp(b));
    tightest.filter(|(_, ratio)| *ratio < 1.0 - 1e-9).map(|(link, _)| link)
}

/// The rate of the fastest active port of a device.
fn fastest(report: &HostReport, device: &RdmaDevice) -> BytesPerSecond {
    let ports = report.lanes.ports.iter().filter(|(key, _)| key.device == device.name);
    BytesPerSecond(ports.filter_map(|(_, capacity)| capacity.rate).fold(0.0, |most, rate| most.max(rate.0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::testing;

    #[test]
    fn the_degraded_link_is_the_limit_and_is_said_so() {
        let mut report = testing::report();
        report.lanes = crate::assess::capacity::HostCapacity::new(&report.snapshot, &report.topology);
        let diagrams = diagrams(&report);
        let names: Vec<&str> = diagrams.iter().map(|diagram| diagram.device.name.as_str()).collect();
        assert_eq!(names, ["bnxt_re0", "mlx5_3", "mlx5_10", "rxe0"]);
        let diagram = &diagrams[1];
        assert_eq!(diagram.hops.len(), 1);
        assert!(diagram.hops[0].limits);
        assert_eq!(diagram.hops[0].current(), "8 GT/s x8 = 63.0 Gb/s");
        assert_eq!(diagram.hops[0].words(), "degraded in speed and width: both ends support 16 GT/s x16 = 252.1 Gb/s");
        assert_eq!(
            diagram.ports[0].verdict,
            "63.0 Gb/s of 200 Gb/s: the link above 0000:98:00.0 is the limit (trained at 8 GT/s x8, both ends support \
             16 GT/s x16)"
        );
        assert!(diagram.ports[0].held_back);
        assert_eq!(diagram.findings.len(), 1);
        assert_eq!(diagram.node.map(|(id, _)| id), Some(1));
    }

    #[test]
    fn counters_that_stand_for_others_are_said_so() {
        use crate::model::counter::{Counter, layout, stand_ins};
        let report = testing::report();
        let device = report.snapshot.devices().find(|device| device.name.as_str() == "bnxt_re0").unwrap();
        let mut port = device.ports[0].clone();
        let (pma, hardware) = layout(&["port_rcv_data".into()], &["rx_bytes".into()]);
        let unread: Vec<&Counter> = pma.iter().collect();
        port.hardware.layout = stand_ins(&hardware, &unread).unwrap();
        port.hardware.values = vec![Some(99)];
        let remarks = PathEnd::new(&report, device, &port, None).remarks();
        let said = "counters/ is not readable, so hw_counters/ is used: rx_bytes for port_rcv_data";
        assert!(remarks.iter().any(|remark| remark == said), "{remarks:?}");
    }

    #[test]
    fn ports_that_are_down_or_unread_are_said_so() {
        let report = testing::report();
        let diagrams = diagrams(&report);
        assert_eq!(diagrams[0].ports[0].verdict, "no traffic: the port is DOWN, Disabled");
        assert_eq!(diagrams[2].hops[0].state, HopState::Degraded, "a VF has its PF's links");
        assert_eq!(diagrams[2].ports[0].verdict, "unknown: the port is in a state that cannot be read");
        assert!(diagrams[3].hops.is_empty() && diagrams[3].ports.is_empty() && diagrams[3].node.is_none());
    }
}
