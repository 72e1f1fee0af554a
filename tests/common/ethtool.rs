//! Drivers that are asked over ethtool, as a test makes them up: statistics by name, and replies of generic netlink byte
//! for byte as the kernel lays them out.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use lanewatch::host::ethtool::access::{EthtoolAccess, EthtoolConnection};
use lanewatch::host::netlink::socket::NetlinkConnection;
use rustix::io::Errno;

/// Flag of an attribute that has attributes in it.
const NESTED: u16 = 0x8000;
const CONTROL: u16 = 16;
const FAMILY: u16 = 0x15;

const LINKSTATE_GET: u8 = 6;
const PAUSE_GET: u8 = 21;
const FEC_GET: u8 = 29;
const MODULE_EEPROM_GET: u8 = 31;

/// One interface's driver.
#[derive(Debug, Clone, Default)]
pub struct Interface {
    /// Its own statistics, by name (`ethtool -S`).
    pub statistics: BTreeMap<String, u64>,
    /// Extended state and substate while the link is down.
    pub cause: Option<(u8, Option<u8>)>,
    /// How often the firmware lost the link; a driver that does not count has none.
    pub downs: Option<u32>,
    /// Error correction; a driver that does not say has none.
    pub fec: Option<Fec>,
}

/// Error correction of an interface.
#[derive(Debug, Clone, Default)]
pub struct Fec {
    /// Bit number of the link mode: 49 none, 50 RS.
    pub active: u32,
    /// Corrected codewords: all, then by lane.
    pub corrected: Vec<u64>,
    /// Codewords that could not be corrected.
    pub lost: Vec<u64>,
    /// Corrected bits.
    pub bits: Vec<u64>,
    /// Codewords by the number of symbols that were corrected: lowest, highest, count.
    pub bins: Vec<(u32, u32, u64)>,
}

/// The drivers of a host, by interface.
#[derive(Debug, Clone, Default)]
pub struct Drivers {
    interfaces: Arc<Mutex<BTreeMap<String, Interface>>>,
    asked: Arc<Mutex<BTreeMap<u8, usize>>>,
}

impl Drivers {
    /// Changes an interface; one that is not there is added.
    pub fn set(&self, netdev: &str, change: impl FnOnce(&mut Interface)) {
        change(self.lock().entry(netdev.to_owned()).or_default());
    }

    /// How often a command of the family was asked for.
    pub fn asked(&self, command: u8) -> usize {
        self.asked.lock().unwrap().get(&command).copied().unwrap_or(0)
    }

    /// How collectors ask them.
    pub fn access(&self) -> EthtoolAccess {
        let (statistics, netlink) = (self.clone(), self.clone());
        EthtoolAccess {
            statistics: Arc::new(move || Ok(Box::new(statistics.clone()))),
            netlink: Some(Arc::new(move || Ok(Box::new(netlink.clone())))),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Interface>> {
        self.interfaces.lock().unwrap()
    }

    fn of<T>(&self, netdev: &str, get: impl FnOnce(&Interface) -> T) -> io::Result<T> {
        self.lock().get(netdev).map(get).ok_or_else(|| Errno::NODEV.into())
    }
}

impl EthtoolConnection for Drivers {
    fn count(&self, netdev: &str) -> io::Result<usize> {
        self.of(netdev, |interface| interface.statistics.len())
    }

    fn names(&self, netdev: &str, _: usize) -> io::Result<Vec<String>> {
        self.of(netdev, |interface| interface.statistics.keys().cloned().collect())
    }

    fn values(&self, netdev: &str, _: usize) -> io::Result<Vec<u64>> {
        self.of(netdev, |interface| interface.statistics.values().copied().collect())
    }
}

impl NetlinkConnection for Drivers {
    fn ask(&mut self, request: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        let kind = u16::from_ne_bytes([request[4], request[5]]);
        if kind == CONTROL {
            return Ok(vec![[&[1, 2, 0, 0][..], &attribute(1, &FAMILY.to_ne_bytes())].concat()]);
        }
        assert_eq!(kind, FAMILY);
        let command = request[16];
        *self.asked.lock().unwrap().entry(command).or_default() += 1;
        let (netdev, with_statistics) = header(&request[20..]);
        let interface = self.of(&netdev, Clone::clone)?;
        let reply = match command {
            LINKSTATE_GET => link_state(&netdev, &interface, with_statistics),
            FEC_GET => fec(&netdev, interface.fec.as_ref().ok_or(Errno::OPNOTSUPP)?),
            _ => return Err(Errno::OPNOTSUPP.into()),
        };
        Ok(vec![[&[command, 1, 0, 0][..], &reply].concat()])
    }
}

/// An attribute as the kernel lays it out.
pub fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(value.len() + 4).unwrap();
    let mut out = [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
    out.resize(out.len().next_multiple_of(4), 0);
    out
}

/// The attributes of a message, without their flags.
pub fn attributes(mut bytes: &[u8]) -> Vec<(u16, &[u8])> {
    let mut out = Vec::new();
    while bytes.len() >= 4 {
        let length = usize::from(u16::from_ne_bytes([bytes[0], bytes[1]]));
        out.push((u16::from_ne_bytes([bytes[2], bytes[3]]) & !NESTED, &bytes[4..length]));
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    out
}

/// The interface that a request names, and whether it asks for statistics.
fn header(request: &[u8]) -> (String, bool) {
    let all = attributes(request);
    let nest = attributes(all.first().unwrap().1);
    let value = |wanted| nest.iter().find(|(kind, _)| *kind == wanted).map(|(_, value)| *value);
    let name = value(2).unwrap().split(|byte| *byte == 0).next().unwrap();
    let flags = value(3).map_or(0, |flags| u32::from_ne_bytes(flags.try_into().unwrap()));
    (String::from_utf8(name.to_vec()).unwrap(), flags & 4 != 0)
}

fn reply_header(netdev: &str) -> Vec<u8> {
    let name = [netdev.as_bytes(), &[0]].concat();
    attribute(1 | NESTED, &[attribute(1, &7u32.to_ne_bytes()), attribute(2, &name)].concat())
}

fn link_state(netdev: &str, interface: &Interface, with_statistics: bool) -> Vec<u8> {
    let mut out = [reply_header(netdev), attribute(2, &[u8::from(interface.cause.is_none())])].concat();
    if let Some((state, substate)) = interface.cause {
        out.extend(attribute(5, &[state]));
        out.extend(substate.map(|substate| attribute(6, &[substate])).unwrap_or_default());
    }
    if let Some(downs) = interface.downs.filter(|_| with_statistics) {
        out.extend(attribute(7, &downs.to_ne_bytes()));
    }
    out
}

fn fec(netdev: &str, fec: &Fec) -> Vec<u8> {
    let list = |kind, counts: &[u64]| {
        let counts: Vec<u8> = counts.iter().flat_map(|count| count.to_ne_bytes()).collect();
        [attribute(1, &[]), attribute(kind, &counts)].concat()
    };
    let mut statistics = [list(2, &fec.corrected), list(3, &fec.lost), list(4, &fec.bits)].concat();
    for (low, high, count) in &fec.bins {
        let low = attribute(2, &low.to_ne_bytes());
        let bin = [low, attribute(3, &high.to_ne_bytes()), attribute(4, &count.to_ne_bytes())].concat();
        statistics.extend(attribute(5 | NESTED, &bin));
    }
    let modes = attribute(2 | NESTED, &[attribute(2, &121u32.to_ne_bytes()), attribute(4, &[0; 16])].concat());
    let active = attribute(4, &fec.active.to_ne_bytes());
    [reply_header(netdev), modes, attribute(3, &[1]), active, attribute(5 | NESTED, &statistics)].concat()
}
