//! What the PCIe paths leave of the ports' rates: ceilings and shares.
//!
//! What asks for bandwidth is a wire, not an RDMA device or port. A VF, a sub-function and the port of a representor
//! leave the host by their PF's uplink, and add nothing to it; a RoCE bond leaves it by each of its members.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::ids::{DeviceName, PciAddress, PortKey};
use crate::model::net::Netdev;
use crate::model::pcie::FunctionKind;
use crate::model::rdma::{LinkLayer, Port, RdmaDevice};
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
    /// Its rate, when it means something: the port is active. Of a bond that of all members in use.
    pub rate: Option<BytesPerSecond>,
    /// The least of rate and path.
    pub ceiling: Option<BytesPerSecond>,
    /// What it gets when all active ports of its path run at once, in proportion to their rates; `None` for a port
    /// without a wire of its own.
    pub share: Option<BytesPerSecond>,
    /// The wires that only this port's traffic, and that of what is below it, leaves the host on.
    pub wires: Vec<Wire>,
}

/// A wire by which a port's traffic leaves the host.
#[derive(Debug, Clone, PartialEq)]
pub struct Wire {
    /// The function whose uplink it is.
    pub function: PciAddress,
    /// What it carries.
    pub rate: BytesPerSecond,
}

/// What a host's ports can move.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HostCapacity {
    /// Paths by device; a device whose path is unknown has none.
    pub paths: BTreeMap<DeviceName, DevicePath>,
    /// Every port.
    pub ports: BTreeMap<PortKey, PortCapacity>,
    /// The rates of the wires that share a link, added up.
    pub demand: BTreeMap<PciAddress, BytesPerSecond>,
    /// The devices whose path has a link, those without a wire of their own left out.
    pub below: BTreeMap<PciAddress, Vec<DeviceName>>,
}

impl HostCapacity {
    /// The devices whose path has a link, those without a wire of their own left out.
    pub fn devices_on(&self, link: PciAddress) -> &[DeviceName] {
        self.below.get(&link).map_or(&[], Vec::as_slice)
    }

    /// The ports of a device.
    pub fn of_device(&self, device: &DeviceName) -> impl Iterator<Item = (&PortKey, &PortCapacity)> {
        let first = PortKey { device: device.clone(), port: 0 };
        self.ports.range(first..).take_while(move |(key, _)| key.device == *device)
    }

    /// Computes paths, ceilings and shares.
    pub fn new(snapshot: &Snapshot, topology: &Topology) -> Self {
        let mut capacity = Self::default();
        let netdevs: BTreeMap<&str, &Netdev> = snapshot.all::<Netdev>().map(|n| (&*n.name, n)).collect();
        let stands_for_function = devices_of_functions(snapshot);
        for device in snapshot.devices() {
            let mut fastest = BytesPerSecond(0.0);
            let has_wires = stands_for_function.contains(&device.name);
            for port in &device.ports {
                let wires = if has_wires { wires(snapshot, device, port, &netdevs) } else { Vec::new() };
                let own_rate = active_rate(port, &netdevs);
                let of_wires = wires.iter().map(|wire| wire.rate.0).sum::<f64>();
                let rate = if wires.is_empty() { own_rate } else { Some(BytesPerSecond(of_wires)) };
                fastest = BytesPerSecond(fastest.0.max(own_rate.map_or(0.0, |rate| rate.0)));
                let key = PortKey { device: device.name.clone(), port: port.number };
                capacity.ports.insert(key, PortCapacity { rate, wires, ..PortCapacity::default() });
            }
            let Some(function) = device.identity.pci_address else { continue };
            if has_wires {
                for link in topology.path(function) {
                    capacity.below.entry(link.name).or_default().push(device.name.clone());
                }
            }
            if topology.path(function).any(|link| link.is_placeholder(fastest)) {
                continue;
            }
            if let Some((link, bandwidth)) = topology.narrowest(function) {
                capacity.paths.insert(device.name.clone(), DevicePath { function, bandwidth, limiting: link.name });
            }
        }
        capacity.add_up_demand(topology);
        capacity.share_out(topology);
        capacity
    }

    /// Adds up what the wires above each link carry.
    fn add_up_demand(&mut self, topology: &Topology) {
        for (key, port) in &self.ports {
            if !self.paths.contains_key(&key.device) {
                continue;
            }
            for wire in &port.wires {
                for link in topology.path(wire.function) {
                    self.demand.entry(link.name).or_insert(BytesPerSecond(0.0)).0 += wire.rate.0;
                }
            }
        }
    }

    fn share_out(&mut self, topology: &Topology) {
        for (key, port) in &mut self.ports {
            let Some((path, rate)) = self.paths.get(&key.device).zip(port.rate) else { continue };
            port.ceiling = Some(rate.min(path.bandwidth));
            if port.wires.is_empty() {
                continue;
            }
            // Wires below one narrowest link are limited together, those of two slots each by its own.
            let mut by_link: BTreeMap<Option<PciAddress>, (f64, f64)> = BTreeMap::new();
            let mut share = 0.0;
            for wire in &port.wires {
                let narrowest = topology.narrowest(wire.function);
                let bandwidth = narrowest.as_ref().map_or(f64::INFINITY, |(_, bandwidth)| bandwidth.0);
                let entry = by_link.entry(narrowest.map(|(link, _)| link.name)).or_insert((0.0, bandwidth));
                entry.0 += wire.rate.0;
                let parts = topology.path(wire.function).filter_map(|link| {
                    let demand = self.demand.get(&link.name)?;
                    Some(BytesPerSecond(link.bandwidth()?.0 * wire.rate.0 / demand.0))
                });
                share += parts.fold(wire.rate, BytesPerSecond::min).0;
            }
            port.ceiling = Some(BytesPerSecond(by_link.values().map(|(rate, most)| rate.min(*most)).sum()));
            port.share = Some(BytesPerSecond(share));
        }
    }
}

/// The RDMA devices that stand for the wires of their functions: one for each function that is no VF. A sub-function
/// hangs below its PF's device; of several devices of one function (a card whose planes show as one port, and a device
/// for their management packets with a port each) the one with the fewest ports has what leaves the host.
fn devices_of_functions(snapshot: &Snapshot) -> BTreeSet<DeviceName> {
    let mut chosen: BTreeMap<PciAddress, &RdmaDevice> = BTreeMap::new();
    for device in snapshot.devices().filter(|device| device.identity.sub_function.is_none()) {
        let Some(function) = device.identity.pci_address.filter(|function| !is_virtual(snapshot, *function)) else {
            continue;
        };
        let rank = |device: &RdmaDevice| (device.ports.len(), device.name.clone());
        let known = chosen.entry(function).or_insert(device);
        if !device.ports.is_empty() && (known.ports.is_empty() || rank(device) < rank(known)) {
            *known = device;
        }
    }
    chosen.into_values().map(|device| device.name.clone()).collect()
}

/// The wires of an active port.
fn wires(snapshot: &Snapshot, device: &RdmaDevice, port: &Port, netdevs: &BTreeMap<&str, &Netdev>) -> Vec<Wire> {
    let Some((function, rate)) = device.identity.pci_address.zip(active_rate(port, netdevs)) else { return Vec::new() };
    if is_representor(snapshot, function, port, netdevs) {
        return Vec::new();
    }
    // Of a bond those members that are on this card: each card of a bond over two has a device of its own.
    let card = |address: PciAddress| (address.domain, address.bus, address.device);
    let bond = port.netdev.as_deref();
    let members = netdevs.values().filter(|netdev| bond.is_some() && netdev.bond.as_deref() == bond);
    let used = members.filter(|netdev| card(netdev.pci_address) == card(function) && netdev.bond_active != Some(false));
    let used = used.filter(|netdev| netdev.carrier.value() != Some(false));
    let wires: Vec<Wire> =
        used.filter_map(|netdev| Some(Wire { function: netdev.pci_address, rate: netdev.speed.value()? })).collect();
    if wires.is_empty() { vec![Wire { function, rate }] } else { wires }
}

/// Whether a port stands for another function's or sub-function's end inside of the card: mlx5 in switchdev mode gives
/// its device a port for each representor, and has one uplink a function. A port with an interface of its own that is
/// not this function's is the second port of a card with two (multi-port RoCE).
fn is_representor(snapshot: &Snapshot, function: PciAddress, port: &Port, netdevs: &BTreeMap<&str, &Netdev>) -> bool {
    let driver = snapshot.function(function).and_then(|function| function.driver.as_deref());
    let has_uplink =
        port.netdev.as_deref().and_then(|name| netdevs.get(name)).is_some_and(|netdev| netdev.pci_address != function);
    driver == Some("mlx5_core") && port.link_layer == Some(LinkLayer::Ethernet) && port.number > 1 && !has_uplink
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::SystemTime;

    use proptest::prelude::*;

    use super::*;
    use crate::model::counter::Counters;
    use crate::model::pcie::{LinkEnd, PciFunction};
    use crate::model::rdma::{DeviceIdentity, PhysicalState, PortRate, PortState, Speed};
    use crate::model::reading::Reading;
    use crate::model::snapshot::Fact;
    use crate::model::time::{BootTime, Timestamp};
    use crate::model::units::{Lanes, TransfersPerSecond};

    const GIGABIT: f64 = 1e9 / 8.0;

    fn address(text: &str) -> PciAddress {
        text.parse().unwrap()
    }

    /// A card with two functions in a slot of 16 GT/s x16 (252.1 Gb/s).
    fn card(kind: FunctionKind) -> Vec<PciFunction> {
        let end = LinkEnd {
            speed: Reading::Value(TransfersPerSecond(16_000_000_000)),
            width: Reading::Value(Lanes(16)),
            max_speed: Reading::Value(TransfersPerSecond(16_000_000_000)),
            max_width: Reading::Value(Lanes(16)),
            off_bus: false,
        };
        let root = PciFunction { link: end, ..PciFunction::at(address("0000:40:01.0")) };
        let function = |number: u8| PciFunction {
            upstream: Some(root.address),
            link_name: address("0000:41:00.0"),
            driver: Some(Arc::from("mlx5_core")),
            kind,
            link: end,
            ..PciFunction::at(PciAddress { function: number, ..address("0000:41:00.0") })
        };
        vec![function(0), function(1), root]
    }

    fn port(number: u32, netdev: Option<&str>) -> Port {
        Port {
            number,
            link_layer: Some(LinkLayer::Ethernet),
            state: Reading::Value(PortState::Active),
            physical_state: Reading::Value(PhysicalState::LinkUp),
            rate: Reading::Value(PortRate {
                bandwidth: BytesPerSecond(100.0 * GIGABIT),
                width: Some(4),
                speed: Speed::Edr,
            }),
            lid: None,
            sm_lid: None,
            netdev: netdev.map(Arc::from),
            guid: None,
            pma: Counters::default(),
            hardware: Counters::default(),
        }
    }

    fn device(name: &str, function: u8, sub_function: Option<&str>, ports: Vec<Port>) -> RdmaDevice {
        let identity = DeviceIdentity {
            pci_address: Some(PciAddress { function, ..address("0000:41:00.0") }),
            sub_function: sub_function.map(Arc::from),
            ..DeviceIdentity::default()
        };
        RdmaDevice {
            name: DeviceName::new(name),
            identity: Arc::new(identity),
            ports,
            counters: Counters::default(),
            counters_at: BootTime(0),
        }
    }

    fn netdev(name: &str, function: u8, gigabits: f64, bond: Option<(&str, bool)>) -> Netdev {
        Netdev {
            name: Arc::from(name),
            pci_address: PciAddress { function, ..address("0000:41:00.0") },
            port_index: Some(0),
            hardware_type: Some(1),
            carrier: Reading::Value(true),
            speed: Reading::Value(BytesPerSecond(gigabits * GIGABIT)),
            operstate: Some(Arc::from("up")),
            carrier_changes: Some(1),
            bond: bond.map(|(name, _)| Arc::from(name)),
            bond_active: bond.map(|(_, active)| active),
        }
    }

    fn capacity(devices: &[RdmaDevice], netdevs: &[Netdev]) -> HostCapacity {
        let functions = card(FunctionKind::Physical);
        let mut facts: Vec<Fact> = functions.iter().map(|function| Arc::new(function.clone()) as Fact).collect();
        facts.extend(devices.iter().map(|device| Arc::new(device.clone()) as Fact));
        facts.extend(netdevs.iter().map(|netdev| Arc::new(netdev.clone()) as Fact));
        let stamp = Timestamp { tick: BootTime(0), wall: SystemTime::UNIX_EPOCH };
        let snapshot = Snapshot::new(stamp, facts, Vec::new());
        HostCapacity::new(&snapshot, &Topology::new(functions.iter()))
    }

    fn gigabits(rate: Option<BytesPerSecond>) -> Option<f64> {
        rate.map(|rate| rate.0 / GIGABIT)
    }

    fn demand(capacity: &HostCapacity) -> Option<f64> {
        gigabits(capacity.demand.get(&address("0000:41:00.0")).copied())
    }

    fn shares(capacity: &HostCapacity) -> Vec<Option<f64>> {
        capacity.ports.values().map(|port| gigabits(port.share)).collect()
    }

    #[test]
    fn a_pf_with_64_sub_functions_asks_for_its_own_wire_alone() {
        let mut devices = vec![device("mlx5_0", 0, None, vec![port(1, Some("p0"))])];
        devices.extend((1..=64).map(|n| device(&format!("mlx5_{n}"), 0, Some("mlx5_core.sf.2"), vec![port(1, None)])));
        let capacity = capacity(&devices, &[netdev("p0", 0, 100.0, None)]);
        assert_eq!(demand(&capacity), Some(100.0));
        assert_eq!(shares(&capacity).into_iter().flatten().collect::<Vec<_>>(), [100.0]);
        assert_eq!(capacity.devices_on(address("0000:41:00.0")), [DeviceName::new("mlx5_0")]);
    }

    #[test]
    fn ports_of_128_representors_are_no_wires() {
        let ports = (1..=129).map(|n| port(n, (n == 1).then_some("p0"))).collect();
        let capacity = capacity(&[device("mlx5_0", 0, None, ports)], &[netdev("p0", 0, 100.0, None)]);
        assert_eq!(demand(&capacity), Some(100.0));
        assert_eq!(shares(&capacity).into_iter().flatten().collect::<Vec<_>>(), [100.0]);
    }

    #[test]
    fn a_bond_asks_for_every_member_in_use() {
        let bonded = |second| {
            let devices = [device("mlx5_bond_0", 0, None, vec![port(1, Some("bond0"))])];
            let netdevs =
                [netdev("p0", 0, 100.0, Some(("bond0", true))), netdev("p1", 1, 100.0, Some(("bond0", second)))];
            capacity(&devices, &netdevs)
        };
        let both = bonded(true);
        assert_eq!((demand(&both), shares(&both)), (Some(200.0), vec![Some(200.0)]));
        assert_eq!(both.ports.values().map(|port| gigabits(port.ceiling)).collect::<Vec<_>>(), [Some(200.0)]);
        let backup = bonded(false);
        assert_eq!((demand(&backup), shares(&backup)), (Some(100.0), vec![Some(100.0)]));
    }

    #[test]
    fn two_functions_share_the_slot_in_proportion() {
        let devices = [
            device("mlx5_0", 0, None, vec![port(1, Some("p0"))]),
            device("mlx5_1", 1, None, vec![port(1, Some("p1"))]),
        ];
        let capacity = capacity(&devices, &[netdev("p0", 0, 200.0, None), netdev("p1", 1, 200.0, None)]);
        assert_eq!(demand(&capacity), Some(400.0));
        let half = 16.0 * 16.0 * 128.0 / 130.0 / 2.0;
        assert!(shares(&capacity).iter().all(|share| (share.unwrap() - half).abs() < 1e-9), "{capacity:?}");
    }

    #[test]
    fn a_device_for_the_planes_of_a_card_adds_nothing() {
        let devices = [
            device("mlx5_0", 0, None, vec![port(1, Some("p0"))]),
            device("smi_0", 0, None, (1..=4).map(|n| port(n, None)).collect()),
        ];
        let capacity = capacity(&devices, &[netdev("p0", 0, 100.0, None)]);
        assert_eq!(demand(&capacity), Some(100.0));
    }

    proptest! {
        #[test]
        fn devices_without_a_wire_never_change_what_a_path_is_asked_for(
            sub_functions in 0usize..8,
            representors in 0u32..8,
            function in 0u8..2,
        ) {
            let wires = |extra: bool| {
                let last = if extra { 1 + representors } else { 1 };
                let ports = (1..=last).map(|n| port(n, (n == 1).then_some("p0"))).collect();
                let mut devices = vec![
                    device("mlx5_0", 0, None, ports),
                    device("mlx5_1", 1, None, vec![port(1, Some("p1"))]),
                ];
                if extra {
                    let sub = |n: usize| device(&format!("sf_{n}"), function, Some("mlx5_core.sf.3"), vec![port(1, None)]);
                    devices.extend((0..sub_functions).map(sub));
                }
                capacity(&devices, &[netdev("p0", 0, 100.0, None), netdev("p1", 1, 25.0, None)])
            };
            let (without, with) = (wires(false), wires(true));
            prop_assert_eq!(&without.demand, &with.demand);
            for (key, port) in &without.ports {
                prop_assert_eq!(port.share, with.ports[key].share);
            }
        }
    }
}
