//! What the PCIe paths leave of the ports' rates: ceilings and shares.

use std::collections::BTreeMap;

use crate::model::ids::{DeviceName, PciAddress, PortKey};
use crate::model::net::Netdev;
use crate::model::pcie::FunctionKind;
use crate::model::rdma::{LinkLayer, Port};
use crate::model::snapshot::Snapshot;
use crate::model::topology::Topology;
use crate::model::units::BytesPerSecond;

/// The path of one device, as far as its links are known.
#[derive(Debug, Clone, PartialEq)]
pub struct DevicePath {
    /// The PCI function the path starts at (a VF's own address; its links are its PF's).
    pub function: PciAddress,
    /// The least bandwidth over the hops.
    pub bandwidth: BytesPerSecond,
    /// The link that limits it, by name.
    pub limiting: PciAddress,
}

/// One port's rate and what is left of it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PortCapacity {
    /// Its rate, when it means something: the port is active.
    pub rate: Option<BytesPerSecond>,
    /// The least of rate and path.
    pub ceiling: Option<BytesPerSecond>,
    /// What it gets when all active ports of its path run at once, in proportion to their rates.
    pub share: Option<BytesPerSecond>,
}

/// The lanes of a host.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HostCapacity {
    /// Paths by device; a device whose path is unknown has none.
    pub paths: BTreeMap<DeviceName, DevicePath>,
    /// Every port.
    pub ports: BTreeMap<PortKey, PortCapacity>,
    /// The rates of the active ports that share a link, added up.
    pub demand: BTreeMap<PciAddress, BytesPerSecond>,
    /// The devices whose path has a link, VFs left out.
    pub below: BTreeMap<PciAddress, Vec<DeviceName>>,
}

impl HostCapacity {
    /// The devices whose path has a link, VFs left out.
    pub fn devices_on(&self, link: PciAddress) -> &[DeviceName] {
        self.below.get(&link).map_or(&[], Vec::as_slice)
    }

    /// The ports of a device.
    pub fn of_device(&self, device: &DeviceName) -> impl Iterator<Item = (&PortKey, &PortCapacity)> {
        let first = PortKey { device: device.clone(), port: 0 };
        self.ports.range(first..).take_while(move |(key, _)| key.device == *device)
    }

    /// Reckons paths, ceilings and shares.
    pub fn new(snapshot: &Snapshot, topology: &Topology) -> Self {
        let mut lanes = Self::default();
        let netdevs: BTreeMap<&str, &Netdev> = snapshot.all::<Netdev>().map(|n| (&*n.name, n)).collect();
        for device in snapshot.devices() {
            let rates = device.ports.iter().map(|port| (port, active_rate(port, &netdevs)));
            let mut fastest = BytesPerSecond(0.0);
            for (port, rate) in rates {
                fastest = BytesPerSecond(fastest.0.max(rate.map_or(0.0, |rate| rate.0)));
                let key = PortKey { device: device.name.clone(), port: port.number };
                lanes.ports.insert(key, PortCapacity { rate, ..PortCapacity::default() });
            }
            let Some(function) = device.identity.pci_address else { continue };
            if !is_virtual(snapshot, function) {
                for link in topology.path(function) {
                    lanes.below.entry(link.name).or_default().push(device.name.clone());
                }
            }
            if topology.path(function).any(|link| link.is_placeholder(fastest)) {
                continue;
            }
            if let Some((link, bandwidth)) = topology.narrowest(function) {
                lanes.paths.insert(device.name.clone(), DevicePath { function, bandwidth, limiting: link.name });
            }
        }
        lanes.add_up_demand(snapshot, topology);
        lanes.share_out(snapshot, topology);
        lanes
    }

    /// Adds up what the active ports of each link ask for. VFs ask for nothing of their own: their rate is their
    /// PF's.
    fn add_up_demand(&mut self, snapshot: &Snapshot, topology: &Topology) {
        for (key, lane) in &self.ports {
            let Some((path, rate)) = self.paths.get(&key.device).zip(lane.rate) else { continue };
            if is_virtual(snapshot, path.function) {
                continue;
            }
            for link in topology.path(path.function) {
                self.demand.entry(link.name).or_insert(BytesPerSecond(0.0)).0 += rate.0;
            }
        }
    }

    fn share_out(&mut self, snapshot: &Snapshot, topology: &Topology) {
        for (key, lane) in &mut self.ports {
            let Some((path, rate)) = self.paths.get(&key.device).zip(lane.rate) else { continue };
            lane.ceiling = Some(rate.min(path.bandwidth));
            if is_virtual(snapshot, path.function) {
                continue;
            }
            let parts = topology.path(path.function).filter_map(|link| {
                let demand = self.demand.get(&link.name)?;
                Some(BytesPerSecond(link.bandwidth()?.0 * rate.0 / demand.0))
            });
            lane.share = Some(parts.fold(rate, BytesPerSecond::min));
        }
    }
}

/// Whether a function is a VF.
pub fn is_virtual(snapshot: &Snapshot, function: PciAddress) -> bool {
    snapshot.function(function).is_some_and(|f| matches!(f.kind, FunctionKind::Virtual { .. }))
}

/// The rate of an active port. On Ethernet the network interface knows it better than the InfiniBand names for it.
fn active_rate(port: &Port, netdevs: &BTreeMap<&str, &Netdev>) -> Option<BytesPerSecond> {
    if !port.is_active() {
        return None;
    }
    let ethernet = port.link_layer == Some(LinkLayer::Ethernet);
    let netdev = port.netdev.as_deref().filter(|_| ethernet).and_then(|name| netdevs.get(name));
    netdev.and_then(|netdev| netdev.speed.value()).or(port.rate.value().map(|rate| rate.bandwidth))
}
