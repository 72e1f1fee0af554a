//! The PCIe tree above GPUs, network cards and NVMe drives, and how near two of them are to each other.
//!
//! Distances need only where functions are in sysfs, their classes and NUMA nodes; everything else is optional and
//! changes no distance.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use super::ids::PciAddress;
use super::labels::label_enum;
use super::pcie::PciClass;
use super::units::{BytesPerSecond, Lanes, TransfersPerSecond, link_bandwidth};

label_enum! {
    /// How near a GPU and a network card (or two GPUs) are: the `distance` label, nearest first. The words are those of
    /// `nvidia-smi topo`, with c2c for NVIDIA's CPUs that a GPU reaches without PCIe.
    Distance {
        /// Below ports of one PCIe switch.
        Pix = "pix",
        /// Below one root port, with several switches between them.
        Pxb = "pxb",
        /// The GPU has a coherent link to its CPU (Grace), and the card hangs on the same CPU.
        C2c = "c2c",
        /// Below root ports of one host bridge.
        Phb = "phb",
        /// On one NUMA node, below different host bridges.
        Node = "node",
        /// On different NUMA nodes.
        Sys = "sys",
    }
}

impl Distance {
    /// Whether traffic between the two stays below one root port.
    pub const fn is_near(self) -> bool {
        matches!(self, Self::Pix | Self::Pxb)
    }
}

label_enum! {
    /// What an endpoint of the tree is: the `kind` label.
    EndpointKind {
        /// A GPU or another accelerator.
        Gpu = "gpu",
        /// A network or InfiniBand controller.
        Nic = "nic",
        /// An NVMe drive.
        Nvme = "nvme",
        /// The DMA function that a ConnectX-8 has beside a GPU, away from its own place.
        DataDirect = "data_direct",
    }
}

/// Identifiers of a function.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FunctionIds {
    /// Vendor and device.
    pub own: (u16, u16),
    /// Vendor and device of the subsystem, if they could be read.
    pub subsystem: Option<(u16, u16)>,
}

/// What one end of a link can do (`max_link_speed`, `max_link_width`); absent where it does not say, or is asleep.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkCapability {
    /// Speed of a lane.
    pub speed: Option<TransfersPerSecond>,
    /// Lanes.
    pub width: Option<Lanes>,
}

impl LinkCapability {
    /// What both ends support.
    fn with(self, other: Self) -> Option<BytesPerSecond> {
        let speed = self.speed?.min(other.speed?);
        Some(link_bandwidth(speed, self.width?.min(other.width?)))
    }
}

/// A port of a root complex or switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreePort {
    /// Its address.
    pub address: PciAddress,
    /// What it is.
    pub ids: FunctionIds,
    /// What its link can do.
    pub link: LinkCapability,
}

/// A GPU, network card, drive or DMA function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeEndpoint {
    /// Its address.
    pub address: PciAddress,
    /// What it is.
    pub kind: EndpointKind,
    /// Its class.
    pub class: PciClass,
    /// Its identifiers.
    pub ids: FunctionIds,
    /// Its host bridge (`pci0000:15`).
    pub root: Arc<str>,
    /// The ports above it, the nearest first.
    pub ports: Vec<PciAddress>,
    /// Bound driver.
    pub driver: Option<Arc<str>>,
    /// NUMA node; `None` if the firmware does not say.
    pub numa_node: Option<u32>,
    /// What its end of the link can do.
    pub link: LinkCapability,
    /// Type of its IOMMU group (`DMA`, `DMA-FQ`, `identity`), empty if the group does not say; `None` without a group.
    pub iommu_group: Option<Arc<str>>,
}

impl TreeEndpoint {
    /// Its place without bus numbers, which change when a card is added elsewhere: host bridge, then device and function of each
    /// port and of itself.
    pub fn place(&self) -> String {
        let numbers = self.ports.iter().rev().chain([&self.address]);
        let parts: Vec<String> =
            numbers.map(|address| format!("{:02x}.{}", address.device, address.function)).collect();
        format!("{}/{}", self.root, parts.join("/"))
    }

    /// Whether it is given to a guest: a driver for user space or for virtual GPUs has it.
    pub fn is_given_away(&self) -> bool {
        let driver = self.driver.as_deref().unwrap_or_default();
        super::sriov::is_user_space(driver) || driver.contains("vgpu")
    }
}

/// What a host is like as far as distances depend on it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TreeSetting {
    /// Whether this is a guest: its bridges are emulated or missing, and say nothing about the host's.
    pub guest: bool,
    /// Whether there is only one NUMA node, so that functions without a node are on it.
    pub single_node: bool,
}

/// The tree of a host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PciTree {
    /// Endpoints by address, without VFs whose PF is here.
    pub endpoints: BTreeMap<PciAddress, TreeEndpoint>,
    /// The ports above them.
    pub ports: BTreeMap<PciAddress, TreePort>,
}

/// How two endpoints lie to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Relation {
    /// How near; `None` if unknown.
    pub distance: Option<Distance>,
    /// The nearest port above both, if there is one.
    pub common: Option<PciAddress>,
}

impl PciTree {
    /// The endpoints of a kind.
    pub fn of_kind(&self, kind: EndpointKind) -> impl Iterator<Item = &TreeEndpoint> {
        self.endpoints.values().filter(move |endpoint| endpoint.kind == kind)
    }

    /// The ports above an endpoint that are not part of its own card, and without the inner halves of switches that are built
    /// of several: the nearest first.
    fn way(&self, endpoint: &TreeEndpoint) -> Vec<PciAddress> {
        let dropped = self.dropped(endpoint);
        endpoint.ports.iter().copied().filter(|port| !dropped.contains(port)).collect()
    }

    /// Ports above an endpoint that are no step on its way.
    fn dropped(&self, endpoint: &TreeEndpoint) -> BTreeSet<PciAddress> {
        let ids = |address: &PciAddress| self.ports.get(address).map(|port| port.ids);
        let on_card = |address: &&PciAddress| {
            endpoint.kind == EndpointKind::Gpu
                && endpoint.ids.own.0 == AMD_GPU
                && ids(address).is_some_and(|ids| AMD_ON_CARD.contains(&ids.own))
        };
        // The root port is nobody's card.
        let above_card = endpoint.ports.split_last().map_or(&[][..], |(_, ports)| ports);
        let mut dropped: BTreeSet<PciAddress> = above_card.iter().take_while(on_card).copied().collect();
        // Going up, downstream and upstream ports of switches take turns; the upstream ones say what a switch is.
        for window in endpoint.ports.windows(3).skip(1).step_by(2) {
            let [lower, between, upper] = window else { continue };
            if let (Some(inner), Some(outer)) = (ids(lower), ids(upper))
                && is_half(inner, outer)
                && !dropped.contains(upper)
            {
                dropped.extend([*lower, *between]);
            }
        }
        dropped
    }

    /// How two endpoints lie to each other. Symmetric.
    pub fn relation(&self, one: &TreeEndpoint, other: &TreeEndpoint, setting: TreeSetting) -> Relation {
        let (ways, mut common) = ([self.way(one), self.way(other)], None);
        let [first, second] = &ways;
        let by_tree = first.iter().enumerate().find_map(|(steps, port)| {
            let others = second.iter().position(|other| other == port)?;
            common = Some(*port);
            // Endpoint, port of the switch, upstream port of the switch.
            Some(if steps <= 1 && others <= 1 { Distance::Pix } else { Distance::Pxb })
        });
        let by_tree = by_tree.or_else(|| (one.root == other.root).then_some(Distance::Phb));
        let distance = match by_tree {
            Some(_) if setting.guest => None,
            Some(distance) => Some(distance),
            None => self.by_node(one, other, setting),
        };
        Relation { distance, common: common.filter(|_| !setting.guest) }
    }

    fn by_node(&self, one: &TreeEndpoint, other: &TreeEndpoint, setting: TreeSetting) -> Option<Distance> {
        let node = |endpoint: &TreeEndpoint| endpoint.numa_node.or(setting.single_node.then_some(0));
        if node(one)? != node(other)? {
            return Some(Distance::Sys);
        }
        let coherent = |endpoint: &TreeEndpoint| endpoint.kind == EndpointKind::Gpu && self.is_below_grace(endpoint);
        Some(if coherent(one) == coherent(other) { Distance::Node } else { Distance::C2c })
    }

    /// Whether an endpoint's root port is one of NVIDIA's CPUs.
    pub fn is_below_grace(&self, endpoint: &TreeEndpoint) -> bool {
        let root = endpoint.ports.last().and_then(|port| self.ports.get(port));
        root.is_some_and(|port| port.ids.own.0 == NVIDIA && is_grace(port.ids.own.1))
    }

    /// The least that the links between two endpoints below one root port can carry each way; `None` if one of them does not
    /// say.
    pub fn bandwidth(&self, one: &TreeEndpoint, other: &TreeEndpoint, common: PciAddress) -> Option<BytesPerSecond> {
        let [first, second] = [self.least_below(one, common)?, self.least_below(other, common)?];
        Some(first.min(second))
    }

    /// The least of an endpoint's links below a port.
    fn least_below(&self, endpoint: &TreeEndpoint, port: PciAddress) -> Option<BytesPerSecond> {
        let steps = |port: PciAddress| endpoint.ports.iter().position(|above| *above == port);
        // The functions of one card have their own link, and nothing else, in common.
        let is_below = |link: &TreeLink| steps(link.upper) < steps(port) || link.lower == endpoint.address;
        let mut least: Option<BytesPerSecond> = None;
        for link in self.links(endpoint).into_iter().take_while(is_below) {
            let carries = self.capable(endpoint, link)?;
            least = Some(least.map_or(carries, |least| least.min(carries)));
        }
        least
    }

    /// The links above an endpoint that are no part of a card or switch, the nearest first. Going up, functions pair off: the
    /// lower of a pair is the downstream end of a link, the upper is the port that it hangs on.
    pub fn links(&self, endpoint: &TreeEndpoint) -> Vec<TreeLink> {
        let dropped = self.dropped(endpoint);
        let nodes: Vec<PciAddress> = [endpoint.address].into_iter().chain(endpoint.ports.iter().copied()).collect();
        let links = nodes.chunks_exact(2).filter_map(|pair| match pair {
            [lower, upper] => Some(TreeLink { lower: *lower, upper: *upper }),
            _ => None,
        });
        links.filter(|link| !dropped.contains(&link.upper)).collect()
    }

    /// What both ends of a link above an endpoint can do.
    pub fn capable(&self, endpoint: &TreeEndpoint, link: TreeLink) -> Option<BytesPerSecond> {
        let lower = if link.lower == endpoint.address { endpoint.link } else { self.ports.get(&link.lower)?.link };
        lower.with(self.ports.get(&link.upper)?.link)
    }

    /// Every uplink of a switch with what it can carry and what the endpoints below could ask of it. `rate` is the rate of a
    /// network card's ports, by function. Functions of one device share its link.
    pub fn uplinks(&self, rate: impl Fn(PciAddress) -> Option<BytesPerSecond>) -> BTreeMap<PciAddress, Uplink> {
        let mut uplinks: BTreeMap<PciAddress, Uplink> = BTreeMap::new();
        let mut devices: BTreeMap<PciAddress, Vec<&TreeEndpoint>> = BTreeMap::new();
        for endpoint in self.endpoints.values().filter(|endpoint| endpoint.kind != EndpointKind::DataDirect) {
            devices.entry(PciAddress { function: 0, ..endpoint.address }).or_default().push(endpoint);
        }
        for functions in devices.values() {
            let Some(first) = functions.first() else { continue };
            let links = self.links(first);
            let Some(own) = links.first().and_then(|link| self.capable(first, *link)) else { continue };
            let rates: Option<BytesPerSecond> = functions.iter().map(|function| rate(function.address)).sum();
            let demand = rates.filter(|_| first.kind == EndpointKind::Nic).map_or(own, |rates| rates.min(own));
            for link in links.iter().skip(1).filter(|link| !self.is_on_card(link.lower)) {
                let uplink = uplinks
                    .entry(link.lower)
                    .or_insert_with(|| Uplink { capable: self.capable(first, *link), demand: BTreeMap::new() });
                *uplink.demand.entry(first.kind).or_default() += demand;
            }
        }
        uplinks
    }

    fn is_on_card(&self, port: PciAddress) -> bool {
        self.ports.get(&port).is_some_and(|port| AMD_ON_CARD.contains(&port.ids.own))
    }
}

/// A link between a function and the port above it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TreeLink {
    /// The function at its lower end: an endpoint, or the upstream port of a switch.
    pub lower: PciAddress,
    /// The port at its upper end.
    pub upper: PciAddress,
}

/// The link above a switch.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Uplink {
    /// What both ends support, each way.
    pub capable: Option<BytesPerSecond>,
    /// What the endpoints below could ask of it, by their kind.
    pub demand: BTreeMap<EndpointKind, BytesPerSecond>,
}

impl Uplink {
    /// What all endpoints below could ask of it.
    pub fn whole_demand(&self) -> BytesPerSecond {
        self.demand.values().copied().sum()
    }
}

const NVIDIA: u16 = 0x10de;
const AMD_GPU: u16 = 0x1002;
const INTEL: u16 = 0x8086;
const HABANA: u16 = 0x1da3;

/// Bridges on the card of an AMD Instinct.
const AMD_ON_CARD: [(u16, u16); 2] = [(0x1022, 0x1500), (0x1022, 0x1501)];

/// Root ports of NVIDIA's CPUs: Grace, Vera.
const fn is_grace(device: u16) -> bool {
    matches!(device, 0x22b0..=0x22bf | 0x2f95 | 0x2f96)
}

/// Whether a switch is an inner half of the one above it: Broadcom's PEX88000 and PEX89000 show two levels, and carry the full
/// bandwidth between all their ports.
fn is_half(inner: FunctionIds, outer: FunctionIds) -> bool {
    let (Some((0x1000, inner_part)), Some((0x1000, outer_part))) = (inner.subsystem, outer.subsystem) else {
        return false;
    };
    match (inner.own, outer.own) {
        ((0x1000, 0xc010), (0x1000, 0xc010)) => inner_part >> 12 == 0xa && outer_part >> 12 == 0xa,
        ((0x1000, 0xc030), (0x1000, 0xc030)) => inner_part >> 12 == 1 && outer_part >> 12 == 0,
        _ => false,
    }
}

/// What a function is, by its class and identifiers; `None` if it is nothing that matters here. `has_port`: whether a port is
/// above it, which a processor's own graphics do not have.
pub fn kind_of(class: PciClass, ids: (u16, u16), has_port: bool) -> Option<EndpointKind> {
    let (vendor, device) = ids;
    let (base, sub) = (class.0 >> 16, class.0 >> 8);
    match vendor {
        0x15b3 if device == 0x2100 => Some(EndpointKind::DataDirect),
        _ if base == 0x02 => Some(EndpointKind::Nic),
        _ if sub == 0x0108 => Some(EndpointKind::Nvme),
        NVIDIA | AMD_GPU if base == 0x03 || sub == 0x1200 => Some(EndpointKind::Gpu),
        INTEL if base == 0x03 && has_port => Some(EndpointKind::Gpu),
        HABANA if sub == 0x1200 => Some(EndpointKind::Gpu),
        _ if sub == 0x0302 => Some(EndpointKind::Gpu),
        _ => None,
    }
}

/// The maker of a GPU: the `vendor` label.
pub const fn vendor_name(vendor: u16) -> &'static str {
    match vendor {
        NVIDIA => "nvidia",
        AMD_GPU => "amd",
        INTEL => "intel",
        HABANA => "habana",
        _ => "other",
    }
}

impl fmt::Display for Distance {
    /// In capitals, as tools print it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.as_str().to_ascii_uppercase())
    }
}
