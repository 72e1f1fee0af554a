//! What holds for distances in any tree.

use std::collections::BTreeMap;
use std::sync::Arc;

use lanewatch::model::ids::PciAddress;
use lanewatch::model::pci_tree::{
    Distance, EndpointKind, FunctionIds, LinkCapability, PciTree, TreeEndpoint, TreePort, TreeSetting,
};
use lanewatch::model::pcie::PciClass;
use proptest::prelude::*;

/// Identifiers of a port, and those of its subsystem.
type PortIds = ((u16, u16), Option<(u16, u16)>);

/// Identifiers of ports that rules look at, and of others.
const PORTS: [PortIds; 7] = [
    ((0x8086, 0x352a), None),
    ((0x1000, 0xc030), Some((0x1000, 0x0072))),
    ((0x1000, 0xc030), Some((0x1000, 0x1003))),
    ((0x1000, 0xc010), Some((0x1000, 0xa096))),
    ((0x1022, 0x1500), None),
    ((0x1022, 0x1501), None),
    ((0x10de, 0x22b1), None),
];

fn address(bus: u8) -> PciAddress {
    PciAddress { domain: 0, bus, device: 0, function: 0 }
}

/// A tree by the parent of each port (an earlier one, or none), what each port is, and where endpoints hang: their ports, kinds,
/// nodes.
type Shape = (Vec<(Option<usize>, usize)>, Vec<(usize, bool, Option<u32>)>);

fn tree((ports, endpoints): &Shape) -> PciTree {
    let bus = |port: usize| u8::try_from(port + 1).unwrap();
    let above = |port: usize| -> Vec<usize> { std::iter::successors(Some(port), |port| ports[*port].0).collect() };
    let mut tree = PciTree::default();
    for (number, (_, kind)) in ports.iter().enumerate() {
        let (own, subsystem) = PORTS[*kind];
        let port = TreePort {
            address: address(bus(number)),
            ids: FunctionIds { own, subsystem },
            link: LinkCapability::default(),
        };
        tree.ports.insert(port.address, port);
    }
    for (number, (port, gpu, numa_node)) in endpoints.iter().enumerate() {
        let chain = above(*port);
        let root = chain.last().map_or(0, |root| root % 3);
        let endpoint = TreeEndpoint {
            address: address(bus(ports.len() + number)),
            kind: if *gpu { EndpointKind::Gpu } else { EndpointKind::Nic },
            class: PciClass(0x03_0200),
            ids: FunctionIds { own: (if *gpu { 0x1002 } else { 0x15b3 }, 1), subsystem: None },
            root: Arc::from(format!("pci0000:{root:02x}")),
            ports: chain.into_iter().map(|port| address(bus(port))).collect(),
            driver: None,
            numa_node: *numa_node,
            link: LinkCapability::default(),
            iommu_group: None,
        };
        tree.endpoints.insert(endpoint.address, endpoint);
    }
    tree
}

fn shape() -> impl Strategy<Value = Shape> {
    let port = (any::<prop::sample::Index>(), any::<bool>(), 0..PORTS.len());
    let ports = prop::collection::vec(port, 1..12).prop_map(|ports| {
        let parent = |(number, (index, top, kind)): (usize, (prop::sample::Index, bool, usize))| {
            ((number > 0 && !top).then(|| index.index(number)), kind)
        };
        ports.into_iter().enumerate().map(parent).collect::<Vec<_>>()
    });
    let endpoint = (any::<prop::sample::Index>(), any::<bool>(), prop::option::of(0u32..2));
    (ports, prop::collection::vec(endpoint, 2..8)).prop_map(|(ports, endpoints)| {
        let place =
            |(index, gpu, node): (prop::sample::Index, bool, Option<u32>)| (index.index(ports.len()), gpu, node);
        let endpoints = endpoints.into_iter().map(place).collect();
        (ports, endpoints)
    })
}

fn all(tree: &PciTree, setting: TreeSetting) -> BTreeMap<(PciAddress, PciAddress), Option<Distance>> {
    let endpoints = || tree.endpoints.values();
    let pairs = endpoints().flat_map(|one| endpoints().map(move |other| (one, other)));
    pairs
        .filter(|(one, other)| one.address != other.address)
        .map(|(one, other)| ((one.address, other.address), tree.relation(one, other, setting).distance))
        .collect()
}

/// The tree with a switch above a port or endpoint: an upstream and a downstream port that nothing knows.
fn with_a_bridge(tree: &PciTree, below: PciAddress) -> PciTree {
    let mut tree = tree.clone();
    let added = [address(250), address(251)];
    for address in added {
        let ids = FunctionIds { own: (0x1111, 0x2222), subsystem: None };
        tree.ports.insert(address, TreePort { address, ids, link: LinkCapability::default() });
    }
    for endpoint in tree.endpoints.values_mut() {
        let place = if endpoint.address == below {
            Some(0)
        } else {
            endpoint.ports.iter().position(|port| *port == below).map(|position| position + 1)
        };
        // A bridge hangs on a port: not above the root.
        if let Some(place) = place.filter(|place| *place < endpoint.ports.len()) {
            endpoint.ports.splice(place..place, added);
        }
    }
    tree
}

proptest! {
    #[test]
    fn distances_are_symmetric(shape in shape(), guest in any::<bool>(), single_node in any::<bool>()) {
        let tree = tree(&shape);
        let setting = TreeSetting { guest, single_node };
        for one in tree.endpoints.values() {
            for other in tree.endpoints.values() {
                prop_assert_eq!(tree.relation(one, other, setting), tree.relation(other, one, setting));
            }
        }
    }

    #[test]
    fn a_bridge_brings_nothing_nearer(shape in shape(), place in any::<prop::sample::Index>(), single_node in any::<bool>()) {
        let before = tree(&shape);
        let places: Vec<PciAddress> = before.ports.keys().chain(before.endpoints.keys()).copied().collect();
        let after = with_a_bridge(&before, places[place.index(places.len())]);
        let setting = TreeSetting { guest: false, single_node };
        let (before, after) = (all(&before, setting), all(&after, setting));
        for (pair, distance) in &before {
            prop_assert!(after[pair] >= *distance, "{pair:?}: {distance:?} became {:?}", after[pair]);
        }
    }

    #[test]
    fn other_bus_numbers_change_nothing(shape in shape(), factor in any::<u8>(), offset in any::<u8>()) {
        let tree = tree(&shape);
        // A permutation of 256 numbers.
        let renumber = |address: PciAddress| PciAddress { bus: address.bus.wrapping_mul(factor | 1).wrapping_add(offset), ..address };
        let mut other = PciTree::default();
        for port in tree.ports.values() {
            let port = TreePort { address: renumber(port.address), ..port.clone() };
            other.ports.insert(port.address, port);
        }
        for endpoint in tree.endpoints.values() {
            let ports = endpoint.ports.iter().map(|port| renumber(*port)).collect();
            let endpoint = TreeEndpoint { address: renumber(endpoint.address), ports, ..endpoint.clone() };
            other.endpoints.insert(endpoint.address, endpoint);
        }
        let setting = TreeSetting::default();
        let renamed: BTreeMap<_, _> =
            all(&tree, setting).into_iter().map(|((one, two), distance)| ((renumber(one), renumber(two)), distance)).collect();
        prop_assert_eq!(renamed, all(&other, setting));
        for (one, two) in tree.endpoints.values().map(|endpoint| (endpoint, &other.endpoints[&renumber(endpoint.address)])) {
            prop_assert_eq!(one.place(), two.place());
        }
    }
}
