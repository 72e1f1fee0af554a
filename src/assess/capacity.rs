//! What the PCIe paths leave of the ports' rates: ceilings and shares.
//!
//! What asks for bandwidth is a wire, not an RDMA device or port. A VF, a sub-function and the port of a representor
//! leave the host by their PF's uplink, and add nothing to it; a RoCE bond leaves it by each of its members.

use std::collections::BTreeMap;
use std::sync::Arc;

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
    /// What its traffic leaves the host by, whether it is up or not.
    pub uplink: Uplink,
    /// The wires in use that only this port's traffic, and that of what is below it, leaves the host on.
    pub wires: Vec<Wire>,
}

/// What a port's traffic leaves the host by: the `uplink` label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Uplink {
    /// Another device's wire: the port of a VF, of a sub-function, of a representor, of a device for a card's planes, or
    /// of a software device.
    #[default]
    None,
    /// The wire of its function.
    Function,
    /// The wires of a bond's members.
    Bond,
}

impl Uplink {
    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Function => "function",
            Self::Bond => "bond",
        }
    }
}

/// A wire by which a port's traffic leaves the host.
#[derive(Debug, Clone, PartialEq)]
pub struct Wire {
    /// The function whose uplink it is.
    pub function: PciAddress,
    /// The function whose PCIe path it takes: its own, or one of the same card if that alone is watched.
    pub path: PciAddress,
    /// The interface on it; `None` with InfiniBand, and if the interface is unknown.
    pub netdev: Option<Arc<str>>,
    /// What it carries.
    pub rate: BytesPerSecond,
    /// What its PCIe path leaves of that when all wires of the path are busy, in proportion to their rates; `None` if the
    /// path is unknown.
    pub share: Option<BytesPerSecond>,
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
        let wiring = Wiring::new(snapshot);
        for device in snapshot.devices() {
            let mut fastest = BytesPerSecond(0.0);
            let has_wires = wiring.stands_for_function(device);
            for port in &device.ports {
                let own_rate = active_rate(port, &wiring.netdevs);
                let (uplink, wires) = wiring.of_port(device, port, own_rate);
                let of_wires = wires.iter().map(|wire| wire.rate.0).sum::<f64>();
                let rate = if wires.is_empty() { own_rate } else { Some(BytesPerSecond(of_wires)) };
                fastest = BytesPerSecond(fastest.0.max(own_rate.map_or(0.0, |rate| rate.0)));
                let key = PortKey { device: device.name.clone(), port: port.number };
                capacity.ports.insert(key, PortCapacity { rate, uplink, wires, ..PortCapacity::default() });
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
                for link in topology.path(wire.path) {
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
            for wire in &mut port.wires {
                let narrowest = topology.narrowest(wire.path);
                let bandwidth = narrowest.as_ref().map_or(f64::INFINITY, |(_, bandwidth)| bandwidth.0);
                let is_known = narrowest.is_some();
                let entry = by_link.entry(narrowest.map(|(link, _)| link.name)).or_insert((0.0, bandwidth));
                entry.0 += wire.rate.0;
                let parts = topology.path(wire.path).filter_map(|link| {
                    let demand = self.demand.get(&link.name)?;
                    Some(BytesPerSecond(link.bandwidth()?.0 * wire.rate.0 / demand.0))
                });
                let left = parts.fold(wire.rate, BytesPerSecond::min);
                wire.share = is_known.then_some(left);
                // Nothing is known to limit a wire whose path is unknown.
                share += left.0;
            }
            port.ceiling = Some(BytesPerSecond(by_link.values().map(|(rate, most)| rate.min(*most)).sum()));
            port.share = Some(BytesPerSecond(share));
        }
    }
}

/// Which device has which wire: no two have the same.
struct Wiring<'a> {
    snapshot: &'a Snapshot,
    netdevs: BTreeMap<&'a str, &'a Netdev>,
    /// The RDMA device that stands for the wires of a function: one for each function that is no VF.
    by_function: BTreeMap<PciAddress, &'a RdmaDevice>,
    /// Of those, the ones with a port over a bond, by the bond's name.
    by_bond: BTreeMap<&'a str, Vec<&'a RdmaDevice>>,
}

impl<'a> Wiring<'a> {
    /// A sub-function hangs below its PF's device; of several devices of one function (a card whose planes show as one
    /// port, and a device for their management packets with a port each) the one with the fewest ports has what leaves
    /// the host.
    fn new(snapshot: &'a Snapshot) -> Self {
        let mut by_function: BTreeMap<PciAddress, &RdmaDevice> = BTreeMap::new();
        let pci_is_off = snapshot.collector("pci").is_none();
        for device in snapshot.devices().filter(|device| device.identity.sub_function.is_none()) {
            // Of a function that is not known it is not known either whether it is a VF.
            let is_known = |function: &PciAddress| pci_is_off || snapshot.function(*function).is_some();
            let function = device.identity.pci_address.filter(is_known);
            let Some(function) = function.filter(|function| !is_virtual(snapshot, *function)) else { continue };
            let rank = |device: &RdmaDevice| (device.ports.len(), device.name.clone());
            let known = by_function.entry(function).or_insert(device);
            if !device.ports.is_empty() && (known.ports.is_empty() || rank(device) < rank(known)) {
                *known = device;
            }
        }
        let mut by_bond: BTreeMap<&str, Vec<&RdmaDevice>> = BTreeMap::new();
        for device in by_function.values() {
            for bond in device.ports.iter().filter_map(|port| port.netdev.as_deref()) {
                by_bond.entry(bond).or_default().push(device);
            }
        }
        let netdevs = snapshot.all::<Netdev>().map(|netdev| (&*netdev.name, netdev)).collect();
        Self { snapshot, netdevs, by_function, by_bond }
    }

    fn stands_for_function(&self, device: &RdmaDevice) -> bool {
        let function = device.identity.pci_address.and_then(|function| self.by_function.get(&function));
        function.is_some_and(|chosen| chosen.name == device.name)
    }

    /// What a port leaves the host by, and its wires if it is active at `rate`.
    fn of_port(&self, device: &RdmaDevice, port: &Port, rate: Option<BytesPerSecond>) -> (Uplink, Vec<Wire>) {
        let function = device.identity.pci_address.filter(|_| self.stands_for_function(device));
        let Some(function) = function.filter(|function| !self.is_representor(*function, port)) else {
            return (Uplink::None, Vec::new());
        };
        let bond = port.netdev.as_deref();
        let members = self.netdevs.values().filter(|netdev| bond.is_some() && netdev.bond.as_deref() == bond);
        let members: Vec<&&Netdev> = members.filter(|netdev| self.has_member(device, netdev)).collect();
        let uplink = if members.is_empty() { Uplink::Function } else { Uplink::Bond };
        let Some(rate) = rate else { return (uplink, Vec::new()) };
        let is_used = |netdev: &&&&Netdev| netdev.bond_active != Some(false) && netdev.carrier.value() != Some(false);
        let wire = |netdev: &&&Netdev| Wire {
            function: netdev.pci_address,
            path: self.path_of(netdev.pci_address, function),
            netdev: Some(Arc::clone(&netdev.name)),
            // A bond's port has the rate of one member.
            rate: netdev.speed.value().unwrap_or(rate),
            share: None,
        };
        let wires: Vec<Wire> = members.iter().filter(is_used).map(wire).collect();
        if !wires.is_empty() {
            return (uplink, wires);
        }
        let netdev = port.netdev.clone().filter(|_| members.is_empty());
        (uplink, vec![Wire { function, path: function, netdev, rate, share: None }])
    }

    /// Whether a member of a bond is a wire of this device over the bond. One with an RDMA device on its own function is
    /// that one's; the others are of the device on their card, or of the bond's only one.
    fn has_member(&self, device: &RdmaDevice, member: &Netdev) -> bool {
        if let Some(owner) = self.by_function.get(&member.pci_address) {
            return owner.name == device.name;
        }
        let driver = |address| self.snapshot.function(address).and_then(|function| function.driver.as_deref());
        let own = device.identity.pci_address.and_then(driver);
        if driver(member.pci_address).zip(own).is_some_and(|(driver, own)| driver != own) {
            return false;
        }
        let over = member.bond.as_deref().and_then(|bond| self.by_bond.get(bond)).map_or(&[][..], Vec::as_slice);
        let same_card = |other: &&&RdmaDevice| other.identity.pci_address.map(card) == Some(card(member.pci_address));
        let owner = over.iter().find(same_card).or_else(|| over.first());
        owner.is_some_and(|owner| owner.name == device.name)
    }

    /// The function whose links are those of a bond's member.
    fn path_of(&self, member: PciAddress, device: PciAddress) -> PciAddress {
        let is_watched = self.snapshot.function(member).is_some();
        if !is_watched && card(member) == card(device) { device } else { member }
    }

    /// Whether a port stands for another function's or sub-function's end inside of the card: mlx5 in switchdev mode gives
    /// its device a port for each representor, and has one uplink a function. A port with an interface of its own that is
    /// not this function's is the second port of a card with two (multi-port RoCE).
    fn is_representor(&self, function: PciAddress, port: &Port) -> bool {
        let driver = self.snapshot.function(function).and_then(|function| function.driver.as_deref());
        let netdev = port.netdev.as_deref().and_then(|name| self.netdevs.get(name));
        let has_uplink = netdev.is_some_and(|netdev| netdev.pci_address != function);
        driver == Some("mlx5_core") && port.link_layer == Some(LinkLayer::Ethernet) && port.number > 1 && !has_uplink
    }
}

/// The card that a function is on.
fn card(address: PciAddress) -> (u32, u8, u8) {
    (address.domain, address.bus, address.device)
}

/// Whether a function is a VF.
pub fn is_virtual(snapshot: &Snapshot, function: PciAddress) -> bool {
    snapshot.function(function).is_some_and(|f| matches!(f.kind, FunctionKind::Virtual { .. }))
}

/// The rate of an active port. On Ethernet the network interface knows it better than the InfiniBand names for it.
fn active_rate(port: &Port, netdevs: &BTreeMap<&str, &Netdev>) -> Option<BytesPerSecond> {
    let netdev = port.netdev.as_deref().and_then(|name| netdevs.get(name));
    if !port.is_active() || netdev.is_some_and(|netdev| port.lacks_carrier(netdev)) {
        return None;
    }
    let ethernet = port.link_layer == Some(LinkLayer::Ethernet);
    netdev.filter(|_| ethernet).and_then(|netdev| netdev.speed.value()).or(port.rate.value().map(|rate| rate.bandwidth))
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use proptest::prelude::*;

    use super::*;
    use crate::model::counter::Counters;
    use crate::model::pcie::{LinkEnd, PciFunction};
    use crate::model::rdma::{DeviceIdentity, PhysicalState, PortRate, PortState, Speed};
    use crate::model::reading::Reading;
    use crate::model::snapshot::{CollectorState, Fact};
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
        let vf = |number: u8| PciFunction {
            kind: FunctionKind::Virtual { pf: Some(address("0000:41:00.0")) },
            ..function(number)
        };
        vec![function(0), function(1), vf(2), vf(3), root]
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
            carrier_downs: None,
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

    fn wires_of(capacity: &HostCapacity) -> Vec<&Wire> {
        capacity.ports.values().flat_map(|port| &port.wires).collect()
    }

    /// What each wire carries and gets, by device and interface.
    fn wires(capacity: &HostCapacity) -> Vec<(String, &str, Option<f64>, Option<f64>)> {
        let of_port = |(key, port): (&'_ PortKey, &'_ PortCapacity)| {
            let name = key.device.to_string();
            port.wires.iter().map(|w| (name.clone(), w.netdev.clone(), w.rate, w.share)).collect::<Vec<_>>()
        };
        let all = capacity.ports.iter().flat_map(of_port);
        let name = |netdev: Option<Arc<str>>| match netdev.as_deref() {
            Some("p0") => "p0",
            Some("p1") => "p1",
            _ => "",
        };
        all.map(|(device, netdev, rate, share)| (device, name(netdev), gigabits(Some(rate)), gigabits(share))).collect()
    }

    #[test]
    fn two_devices_over_one_bond_have_a_wire_each() {
        let devices = [
            device("bnxt_re0", 0, None, vec![port(1, Some("bond0"))]),
            device("bnxt_re1", 1, None, vec![port(1, Some("bond0"))]),
        ];
        let netdevs = [netdev("p0", 0, 100.0, Some(("bond0", true))), netdev("p1", 1, 100.0, Some(("bond0", true)))];
        let capacity = capacity(&devices, &netdevs);
        assert_eq!(demand(&capacity), Some(200.0));
        let each = Some(100.0);
        let expected = [("bnxt_re0".to_owned(), "p0", each, each), ("bnxt_re1".to_owned(), "p1", each, each)];
        assert_eq!(wires(&capacity), expected);
    }

    #[test]
    fn a_device_whose_function_is_unknown_has_no_wire() {
        let facts = || {
            let device = device("mlx5_0", 0, None, vec![port(1, None)]);
            vec![Arc::new(device) as Fact]
        };
        let pci = CollectorState { name: "pci", ..CollectorState::default() };
        let stamp = Timestamp { tick: BootTime(0), wall: SystemTime::UNIX_EPOCH };
        let of = |collectors| HostCapacity::new(&Snapshot::new(stamp, facts(), collectors), &Topology::default());
        assert_eq!(wires_of(&of(vec![pci])), [] as [&Wire; 0]);
        assert_eq!(wires_of(&of(Vec::new())).len(), 1, "nobody looks at functions");
    }

    #[test]
    fn a_member_of_a_bond_without_a_known_speed_has_the_ports_rate() {
        let devices = [device("mlx5_bond_0", 0, None, vec![port(1, Some("bond0"))])];
        let silent = Netdev { speed: Reading::Absent, ..netdev("p1", 1, 0.0, Some(("bond0", true))) };
        let capacity = capacity(&devices, &[netdev("p0", 0, 100.0, Some(("bond0", true))), silent]);
        assert_eq!(demand(&capacity), Some(200.0));
    }

    #[test]
    fn a_port_that_is_down_still_has_its_uplink() {
        let down = Port { state: Reading::Value(PortState::Down), ..port(1, Some("p0")) };
        let devices = [
            device("mlx5_0", 0, None, vec![down.clone(), Port { number: 2, netdev: None, ..down.clone() }]),
            device("mlx5_2", 0, Some("mlx5_core.sf.2"), vec![Port { netdev: None, ..down }]),
        ];
        let capacity = capacity(&devices, &[netdev("p0", 0, 100.0, None)]);
        let uplinks: Vec<Uplink> = capacity.ports.values().map(|port| port.uplink).collect();
        assert_eq!(uplinks, [Uplink::Function, Uplink::None, Uplink::None]);
        assert!(capacity.ports.values().all(|port| port.wires.is_empty()));
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
            virtual_functions in 0u8..=2,
            planes in 2u32..8,
            software in any::<bool>(),
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
                    devices.extend((0..virtual_functions).map(|n| device(&format!("vf_{n}"), 2 + n, None, vec![port(1, None)])));
                    // The second function's card has planes.
                    devices.push(device("smi_1", 1, None, (1..=planes).map(|n| port(n, None)).collect()));
                    if software {
                        let rxe = device("rxe0", 0, None, vec![port(1, Some("p0"))]);
                        let identity = Arc::new(DeviceIdentity::default());
                        devices.push(RdmaDevice { identity, ..rxe });
                    }
                }
                capacity(&devices, &[netdev("p0", 0, 100.0, None), netdev("p1", 1, 25.0, None)])
            };
            let (without, with) = (wires(false), wires(true));
            prop_assert_eq!(&without.demand, &with.demand);
            prop_assert_eq!(wires_of(&without), wires_of(&with));
            for (key, port) in &without.ports {
                prop_assert_eq!(port.share, with.ports[key].share);
            }
        }
    }
}
