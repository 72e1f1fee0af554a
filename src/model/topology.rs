//! PCI functions joined into links, and links into the path from a function to the root.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::ids::PciAddress;
use super::pcie::{FunctionKind, LinkEnd, PciFunction};
use super::reading::{ReadError, Reading};
use super::units::{BytesPerSecond, Lanes, TransfersPerSecond, link_bandwidth};

/// The link between a function and the port above it. Functions of one card share it; the lowest names it.
#[derive(Debug, Clone, PartialEq)]
pub struct Link {
    /// The lowest function at its downstream end.
    pub name: PciAddress,
    /// What the downstream end sees and can do.
    pub device: LinkEnd,
    /// The port at its upper end, and what that sees and can do; `None` if the host shows none.
    pub upstream: Option<(PciAddress, LinkEnd)>,
    /// What the port at its upper end is.
    pub port: PortNature,
}

/// What the values of a port say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PortNature {
    /// What the hardware runs at and can do.
    #[default]
    Physical,
    /// Nothing: a tunnel through USB4 or Thunderbolt has the least values of the specification, whatever it carries.
    Tunnel,
    /// A hypervisor's port in a guest: it follows the device, and can do whatever was made up.
    Emulated,
}

impl PortNature {
    /// Of the port above a function, on the way to an endpoint. A tunnel shows by a port that could never do more than
    /// 2.5 GT/s above a bridge, where that bridge or the endpoint can.
    fn of(port: &PciFunction, below: &PciFunction, endpoint: &PciFunction) -> Self {
        // pcie-root-port and ioh3420 of QEMU, the switch that goes with them, and VMware's port.
        const EMULATED: [(u16, u16); 5] =
            [(0x1b36, 0x000c), (0x8086, 0x3420), (0x104c, 0x8232), (0x104c, 0x8233), (0x15ad, 0x07a0)];
        let least = TransfersPerSecond::from_mega(2_500);
        let can_more = |function: &PciFunction| function.link.max_speed.value().is_some_and(|speed| speed > least);
        let below_can_more = can_more(below) || can_more(endpoint);
        let below_is_bridge = below.class.is_some_and(super::pcie::PciClass::is_bridge);
        // What QEMU and VMware say if nobody set it: wider than any slot, or the least that there is. A port that was
        // given values of its own follows the host's.
        let width = port.link.max_width.value();
        let is_default =
            width == Some(Lanes(32)) || (width == Some(Lanes(1)) && port.link.max_speed.value() == Some(least));
        if is_default && port.ids.is_some_and(|ids| EMULATED.contains(&ids)) {
            Self::Emulated
        } else if port.link.max_speed.value() == Some(least) && below_is_bridge && below_can_more {
            Self::Tunnel
        } else {
            Self::Physical
        }
    }
}

/// A speed or width of a link: what it is, what each end can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dimension<T> {
    /// What the link runs at.
    pub current: Option<T>,
    /// What the downstream end can do.
    pub device: Option<T>,
    /// What the upper end can do.
    pub upstream: Option<T>,
    /// Why any of them could not be read.
    pub unread: Option<ReadError>,
}

/// How a speed or width stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkVerdict {
    /// All that both ends support.
    Full,
    /// Less than both ends support.
    Degraded,
    /// All that the upper end can do, and the device could do more.
    LimitedBySlot,
    /// Not known.
    Unknown,
}

impl<T: Copy + Ord> Dimension<T> {
    fn new(current: Reading<T>, device: Reading<T>, upstream: Reading<T>) -> Self {
        let unread = current.reason().or(device.reason()).or(upstream.reason());
        Self { current: current.value(), device: device.value(), upstream: upstream.value(), unread }
    }

    /// What both ends support; with no upper end in sight, what the device can. A link that does not say what it runs
    /// at may be none (a VF in a guest), and its maximum then means nothing.
    pub fn capable(&self) -> Option<T> {
        self.current?;
        match (self.device, self.upstream) {
            // The upper end is there, and what it can do could not be read.
            (_, None) if self.unread.is_some() => None,
            (Some(device), Some(upstream)) => Some(device.min(upstream)),
            (device, None) => device,
            (None, Some(_)) => None,
        }
    }

    /// How it stands.
    pub fn verdict(&self) -> LinkVerdict {
        let (Some(current), Some(capable)) = (self.current, self.capable()) else { return LinkVerdict::Unknown };
        if current < capable {
            return LinkVerdict::Degraded;
        }
        match (self.device, self.upstream) {
            (Some(device), Some(upstream)) if device > upstream && current == upstream => LinkVerdict::LimitedBySlot,
            _ => LinkVerdict::Full,
        }
    }
}

impl Link {
    /// Why its speed or width, or what its ends can do, could not be read.
    pub fn unread(&self) -> Option<ReadError> {
        self.speed().unread.or(self.width().unread)
    }

    /// Whether something shows that there is a link: the device has a maximum, or the port above runs one. Integrated
    /// and conventional functions have neither.
    pub fn is_there(&self) -> bool {
        let own = self.device.max_speed.value().is_some() || self.device.max_width.value().is_some();
        let runs = |(_, end): &(PciAddress, LinkEnd)| end.speed.value().is_some() || end.width.value().is_some();
        own || self.upstream.as_ref().is_some_and(runs)
    }

    /// Its speed.
    pub fn speed(&self) -> Dimension<TransfersPerSecond> {
        let upstream = self.upstream.map_or(Reading::Absent, |(_, end)| end.max_speed);
        Dimension::new(self.device.speed, self.device.max_speed, upstream)
    }

    /// Its width.
    pub fn width(&self) -> Dimension<Lanes> {
        let upstream = self.upstream.map_or(Reading::Absent, |(_, end)| end.max_width);
        Dimension::new(self.device.width, self.device.max_width, upstream)
    }

    /// What it carries now.
    pub fn bandwidth(&self) -> Option<BytesPerSecond> {
        Some(link_bandwidth(self.speed().current?, self.width().current?))
    }

    /// Whether it runs faster or wider than its device says it can: one of the two is wrong, and nothing is broken.
    pub fn is_beyond_its_maximum(&self) -> bool {
        let (speed, width) = (self.speed(), self.width());
        let beyond = speed.current.zip(speed.device).is_some_and(|(current, most)| current > most);
        beyond || width.current.zip(width.device).is_some_and(|(current, most)| current > most)
    }

    /// What it could carry: the most that both ends support.
    pub fn capable_bandwidth(&self) -> Option<BytesPerSecond> {
        Some(link_bandwidth(self.speed().capable()?, self.width().capable()?))
    }

    /// What the device could carry in a better slot.
    pub fn device_bandwidth(&self) -> Option<BytesPerSecond> {
        Some(link_bandwidth(self.speed().device?, self.width().device?))
    }

    /// Whether the device's own maximum is one that a real link would never have for a port of this rate: below a
    /// tenth of it, or the 2.5 GT/s x1 that integrated and emulated functions show in place of a link. A tunnel's values
    /// are no link's either.
    pub fn is_placeholder(&self, port_rate: BytesPerSecond) -> bool {
        let (speed, width) = (self.speed().device, self.width().device);
        let nominal = speed == Some(TransfersPerSecond::from_mega(2_500)) && width == Some(Lanes(1));
        self.port == PortNature::Tunnel
            || nominal
            || self.device_bandwidth().is_some_and(|most| most.0 < port_rate.0 / 10.0)
    }
}

/// The end of a link at a port that could not be read at all.
const UNREAD: LinkEnd = LinkEnd {
    speed: Reading::Unreadable(ReadError::Gone),
    width: Reading::Unreadable(ReadError::Gone),
    max_speed: Reading::Unreadable(ReadError::Gone),
    max_width: Reading::Unreadable(ReadError::Gone),
    off_bus: false,
};

/// Every link of a host, and the way up from each function.
#[derive(Debug, Clone, Default)]
pub struct Topology {
    /// Links by the function that names them.
    pub links: BTreeMap<PciAddress, Link>,
    paths: BTreeMap<PciAddress, Vec<PciAddress>>,
    /// Functions whose way up is known in part only.
    cut: BTreeSet<PciAddress>,
}

impl Topology {
    /// Joins the functions that a snapshot has.
    ///
    /// Going up from an endpoint, functions pair off: the lower of a pair is the downstream end of a link, the
    /// upper is the port it hangs on; between the pairs lies the inside of a switch.
    pub fn new<'a>(functions: impl Iterator<Item = &'a PciFunction>) -> Self {
        let functions: BTreeMap<PciAddress, &PciFunction> = functions.map(|f| (f.address, f)).collect();
        let mut topology = Self::default();
        let above: BTreeSet<PciAddress> = functions.values().filter_map(|function| function.upstream).collect();
        for function in functions.values() {
            // Who has others below is a bridge, even if its class could not be read.
            if function.class.map_or_else(|| above.contains(&function.address), super::pcie::PciClass::is_bridge) {
                continue;
            }
            let start = match function.kind {
                FunctionKind::Virtual { pf } => pf.and_then(|pf| functions.get(&pf)).copied(),
                FunctionKind::Physical | FunctionKind::Plain => Some(*function),
            };
            let mut path = Vec::new();
            let mut lower = start;
            let mut missing = false;
            let mut find = |address: Option<PciAddress>| {
                let found = address.and_then(|address| functions.get(&address)).copied();
                missing |= address.is_some() && found.is_none();
                found
            };
            // A path has a handful of hops; the bound keeps a damaged tree from looping.
            for _ in 0..32 {
                let Some(device) = lower else { break };
                let upper = find(device.upstream);
                let endpoint = start.unwrap_or(device);
                let port = upper.map_or(PortNature::Physical, |port| PortNature::of(port, device, endpoint));
                let end = device.upstream.map(|address| {
                    let end = upper.map_or(UNREAD, |port| port.link);
                    // What an emulated port says of itself is made up: no more than what the device runs at is known.
                    let known = LinkEnd { max_speed: device.link.speed, max_width: device.link.width, ..end };
                    (address, if port == PortNature::Emulated { known } else { end })
                });
                let link = topology.links.entry(device.link_name).or_insert_with(|| Link {
                    name: device.link_name,
                    device: device.link,
                    upstream: end,
                    port,
                });
                // One endpoint of several may be slow enough to run over what a tunnel says.
                if port == PortNature::Tunnel {
                    link.port = port;
                }
                path.push(device.link_name);
                lower = find(upper.and_then(|port| port.upstream));
            }
            if missing {
                topology.cut.insert(function.address);
            }
            topology.paths.insert(function.address, path);
        }
        topology
    }

    /// The links from a function up to the root; a VF has its PF's. Empty when nothing is known.
    pub fn path(&self, function: PciAddress) -> impl Iterator<Item = &Link> {
        self.paths.get(&function).into_iter().flatten().filter_map(|name| self.links.get(name))
    }

    /// Whether the path of a function is known up to the root, as far as the host shows it.
    pub fn is_whole(&self, function: PciAddress) -> bool {
        !self.cut.contains(&function)
    }

    /// The link of a path that carries least, and how much. None when the function's own link is unknown; links
    /// further up that do not say do not count, as in the kernel's own reckoning. None too when one of them could not
    /// be read: it may be the narrowest.
    pub fn narrowest(&self, function: PciAddress) -> Option<(&Link, BytesPerSecond)> {
        self.path(function).next()?.bandwidth()?;
        let unread = |link: &Link| link.device.speed.reason().is_some() || link.device.width.reason().is_some();
        if !self.is_whole(function) || self.path(function).any(unread) {
            return None;
        }
        let known = self.path(function).filter_map(|link| link.bandwidth().map(|bandwidth| (link, bandwidth)));
        known.min_by(|(_, a), (_, b)| a.0.total_cmp(&b.0))
    }
}

impl fmt::Display for Link {
    /// What the link runs at: `8 GT/s x8`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |speed: Option<TransfersPerSecond>| speed.map_or("unknown speed".to_owned(), |s| s.to_string());
        let (speed, width) = (self.speed().current, self.width().current);
        write!(f, "{} {}", text(speed), width.map_or("unknown width".to_owned(), |w| w.to_string()))
    }
}
