//! The path of a device from memory to the wire, put together for people: `explain` and the status page draw it.

use std::fmt;

use crate::model::finding::{Finding, Subject};
use crate::model::host::NumaNode;
use crate::model::ids::PciAddress;
use crate::model::pcie::{FunctionKind, PciFunction};
use crate::model::rdma::RdmaDevice;
use crate::model::topology::{Link, LinkVerdict};
use crate::model::units::{BytesPerSecond, Lanes, TransfersPerSecond, link_bandwidth};
use crate::watch::HostReport;

mod port;
pub use port::{PathEnd, setup_lines};

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
            let state = if link.is_placeholder(fastest) { HopState::Nominal } else { state(link) };
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

/// One link of a path.
#[derive(Debug)]
pub struct PathHop<'a> {
    /// The link.
    pub link: &'a Link,
    /// How it runs.
    pub state: HopState,
    /// Whether the active ports ask for more than it carries, and for more in proportion than of any other hop.
    pub limits: bool,
}

/// How a link runs, speed and width taken together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HopState {
    /// All that both ends can do.
    Full,
    /// Below what both ends can do.
    Degraded,
    /// The device could do more in another slot.
    LimitedBySlot,
    /// Speed or width are not known.
    Unknown,
    /// Not the real path: no real link would run so (integrated and emulated functions).
    Nominal,
    /// The device no longer answers.
    OffBus,
}

impl HopState {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Full => "ok",
            Self::Degraded => "degraded",
            Self::LimitedBySlot => "limited by slot",
            Self::Unknown => "unknown",
            Self::Nominal => "not a real link",
            Self::OffBus => "off the bus",
        }
    }
}

pub(super) fn state(link: &Link) -> HopState {
    let verdicts = [link.speed().verdict(), link.width().verdict()];
    if link.device.off_bus {
        HopState::OffBus
    } else if verdicts.contains(&LinkVerdict::Degraded) {
        HopState::Degraded
    } else if verdicts.contains(&LinkVerdict::LimitedBySlot) {
        HopState::LimitedBySlot
    } else if verdicts.contains(&LinkVerdict::Unknown) {
        HopState::Unknown
    } else {
        HopState::Full
    }
}

impl PathHop<'_> {
    /// What it runs at and carries: `8 GT/s x8 = 63.0 Gb/s`.
    pub fn current(&self) -> String {
        let (speed, width) = (self.link.speed(), self.link.width());
        LinkRate(speed.current, width.current).to_string()
    }

    /// What both ends can do: `16 GT/s x16 = 252.1 Gb/s`.
    pub fn capable(&self) -> String {
        LinkRate(self.link.speed().capable(), self.link.width().capable()).to_string()
    }

    /// Its state in words, with what it could be: `degraded in speed and width: both ends can do …`.
    pub fn words(&self) -> String {
        let (speed, width) = (self.link.speed(), self.link.width());
        match self.state {
            HopState::Full if self.link.is_beyond_its_maximum() => {
                format!("more than the device says it can do ({})", LinkRate(speed.device, width.device))
            }
            HopState::Full if self.link.upstream.is_none() => "all that the device can do".to_owned(),
            HopState::Full => "all that both ends can do".to_owned(),
            HopState::Degraded => {
                let what = match (speed.verdict(), width.verdict()) {
                    (LinkVerdict::Degraded, LinkVerdict::Degraded) => "speed and width",
                    (LinkVerdict::Degraded, _) => "speed",
                    _ => "width",
                };
                let who = if self.link.upstream.is_some() { "both ends" } else { "the device" };
                format!("degraded in {what}: {who} can do {}", self.capable())
            }
            HopState::LimitedBySlot => {
                format!("limited by its slot: the device could do {}", LinkRate(speed.device, width.device))
            }
            HopState::Unknown if self.link.bandwidth().is_some() => "what both ends can do is not known".to_owned(),
            HopState::Unknown => "the host does not say how it runs".to_owned(),
            HopState::Nominal => {
                "not a real link: integrated and emulated functions show this in place of one".to_owned()
            }
            HopState::OffBus => "the device no longer answers on the bus".to_owned(),
        }
    }
}

/// Speed, width and the bandwidth that follows from them.
struct LinkRate(Option<TransfersPerSecond>, Option<Lanes>);

impl fmt::Display for LinkRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0, self.1) {
            (Some(speed), Some(width)) => write!(f, "{speed} {width} = {}", link_bandwidth(speed, width)),
            (Some(speed), None) => write!(f, "{speed}, unknown width"),
            (None, Some(width)) => write!(f, "{width}, unknown speed"),
            (None, None) => f.write_str("unknown"),
        }
    }
}

/// Why a link is the limit.
pub(super) fn why(link: &Link) -> String {
    let what = |speed: Option<TransfersPerSecond>, width: Option<Lanes>| match (speed, width) {
        (Some(speed), Some(width)) => format!("{speed} {width}"),
        _ => "an unknown rate".to_owned(),
    };
    let (speed, width) = (link.speed(), link.width());
    let reason = match state(link) {
        HopState::Degraded => {
            let who = if link.upstream.is_some() { "both ends" } else { "the device" };
            format!("trained at {link}, {who} can do {}", what(speed.capable(), width.capable()))
        }
        HopState::LimitedBySlot => {
            format!("{link} is all its slot can do, the card could do {}", what(speed.device, width.device))
        }
        HopState::Full => format!("{link} is all that the card can do"),
        HopState::Unknown | HopState::Nominal => {
            return format!("perhaps the link above {} ({link}; what it could do is not known)", link.name);
        }
        HopState::OffBus => "the device no longer answers".to_owned(),
    };
    format!("the link above {} is the limit ({reason})", link.name)
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
        assert_eq!(diagram.hops[0].words(), "degraded in speed and width: both ends can do 16 GT/s x16 = 252.1 Gb/s");
        assert_eq!(
            diagram.ports[0].verdict,
            "63.0 Gb/s of 200 Gb/s: the link above 0000:98:00.0 is the limit (trained at 8 GT/s x8, both ends can do \
             16 GT/s x16)"
        );
        assert!(diagram.ports[0].held_back);
        assert_eq!(diagram.findings.len(), 1);
        assert_eq!(diagram.node.map(|(id, _)| id), Some(1));
    }

    #[test]
    fn ports_that_are_down_or_unread_are_said_so() {
        let report = testing::report();
        let diagrams = diagrams(&report);
        assert_eq!(diagrams[0].ports[0].verdict, "no traffic: the port is DOWN, Disabled");
        assert_eq!(diagrams[2].hops[0].state, HopState::Degraded, "a VF has its PF's links");
        assert_eq!(diagrams[2].ports[0].verdict, "not known: the port is in a state that cannot be read");
        assert!(diagrams[3].hops.is_empty() && diagrams[3].ports.is_empty() && diagrams[3].node.is_none());
    }
}
