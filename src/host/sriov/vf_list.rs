//! A PF's VF list over route netlink (`RTM_GETLINK`): requested without statistics if the full list does not fit.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;

use crate::host::collector::ReadContext;
use crate::host::io::reason_of;
use crate::host::netlink::message;
use crate::host::netlink::message::{Attributes, number32, number64};
use crate::host::netlink::socket::{LazyConnection, NetlinkConnection, NetlinkConnector};
use crate::model::ids::Guid;
use crate::model::reading::ReadError;
use crate::model::sriov::{Fabric, Mac, VfConfig, VfDetail, VfLink, VfTraffic, Vlan};
use crate::model::time::BootTime;

/// How long a rejected request is not sent again.
const PAUSE: Duration = Duration::from_secs(10 * 60);

/// Requests the VF list of one PF.
pub(super) struct VfListClient {
    connection: Option<LazyConnection>,
    /// Until when statistics are not requested.
    too_long: Option<BootTime>,
    /// Until when nothing is requested, and why.
    refused: Option<(BootTime, ReadError)>,
}

impl VfListClient {
    pub(super) fn new(connect: Option<NetlinkConnector>) -> Self {
        Self { connection: connect.map(LazyConnection::new), too_long: None, refused: None }
    }

    /// The VF list of the first of these interfaces that has one.
    pub(super) fn read(&mut self, cx: &mut ReadContext<'_>, interfaces: &[Arc<str>]) -> (Option<VfList>, VfDetail) {
        if self.connection.is_none() || interfaces.is_empty() {
            return (None, VfDetail::NotAsked);
        }
        if let Some((_, reason)) = self.refused.filter(|(until, _)| cx.now < *until) {
            return (None, VfDetail::Unavailable(reason));
        }
        let mut detail = VfDetail::NotAsked;
        for interface in interfaces {
            let statistics = self.too_long.is_none_or(|until| cx.now >= until);
            match self.request_list(cx.now, interface, statistics) {
                Ok((list, statistics)) => {
                    (self.refused, detail) = (None, VfDetail::Full);
                    if list.announced.is_some() || !list.entries.is_empty() {
                        let detail = if statistics { VfDetail::Full } else { VfDetail::WithoutStatistics };
                        return (Some(list), detail);
                    }
                }
                Err(error) => {
                    let Some(reason) = reason(&error) else { continue };
                    if self.refused.is_none() {
                        cx.fault(Path::new(&format!("RTM_GETLINK {interface}")), reason);
                    }
                    self.refused = Some((cx.now.after(PAUSE), reason));
                    detail = VfDetail::Unavailable(reason);
                }
            }
        }
        (None, detail)
    }

    /// The list, and whether it has statistics. A list that does not fit into a message is requested without them.
    fn request_list(&mut self, now: BootTime, interface: &str, statistics: bool) -> io::Result<(VfList, bool)> {
        if statistics {
            match self.exchange(&request(interface, true)) {
                Ok(reply) => {
                    let list = list(&reply);
                    if !list.cut {
                        return Ok((list, true));
                    }
                }
                Err(error) if error.raw_os_error() != Some(Errno::MSGSIZE.raw_os_error()) => return Err(error),
                Err(_) => {}
            }
            self.too_long = Some(now.after(PAUSE));
        }
        Ok((list(&self.exchange(&request(interface, false))?), false))
    }

    fn exchange(&mut self, request: &[u8]) -> io::Result<Vec<u8>> {
        let connection = self.connection.as_mut().ok_or(io::ErrorKind::NotFound)?;
        connection.ask(request)?.into_iter().next().ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

/// Why there is no list; `None` if the interface has gone.
fn reason(error: &io::Error) -> Option<ReadError> {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NODEV) => None,
        Some(Errno::MSGSIZE) => Some(ReadError::NotSupported),
        _ => reason_of(error),
    }
}

const RTM_GETLINK: u16 = 18;
const IFLA_IFNAME: u16 = 3;
const IFLA_NUM_VF: u16 = 21;
const IFLA_VFINFO_LIST: u16 = 22;
const IFLA_EXT_MASK: u16 = 29;
const FILTER_VF: u32 = 1;
const FILTER_SKIP_STATS: u32 = 8;

const VF_INFO: u16 = 1;
const VF_MAC: u16 = 1;
const VF_VLAN: u16 = 2;
const VF_TX_RATE: u16 = 3;
const VF_SPOOFCHK: u16 = 4;
const VF_LINK_STATE: u16 = 5;
const VF_RATE: u16 = 6;
const VF_STATS: u16 = 8;
const VF_TRUST: u16 = 9;
const VF_IB_NODE_GUID: u16 = 10;
const VF_IB_PORT_GUID: u16 = 11;
const VF_VLAN_LIST: u16 = 12;
const VF_BROADCAST: u16 = 13;
const VF_VLAN_INFO: u16 = 1;

/// `struct ifinfomsg`.
const IFINFOMSG: usize = 16;

/// Encodes a request for an interface with its VFs.
pub fn request(interface: &str, statistics: bool) -> Vec<u8> {
    let mask = FILTER_VF | if statistics { 0 } else { FILTER_SKIP_STATS };
    let mut payload = vec![0; IFINFOMSG];
    payload.extend_from_slice(&8u16.to_ne_bytes());
    payload.extend_from_slice(&IFLA_EXT_MASK.to_ne_bytes());
    payload.extend_from_slice(&mask.to_ne_bytes());
    let length = 4 + interface.len() + 1;
    payload.extend_from_slice(&u16::try_from(length).unwrap_or(u16::MAX).to_ne_bytes());
    payload.extend_from_slice(&IFLA_IFNAME.to_ne_bytes());
    payload.extend_from_slice(interface.as_bytes());
    payload.resize(IFINFOMSG + 8 + length.next_multiple_of(4), 0);
    message::request_of(RTM_GETLINK, false, &payload)
}

/// One VF of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VfListEntry {
    /// Its number. Drivers may leave VFs out of the list, so the position in it means nothing.
    pub number: u32,
    /// Its configuration.
    pub config: VfConfig,
    /// Its traffic, if it was requested.
    pub traffic: Option<VfTraffic>,
}

/// The VFs in a reply.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VfList {
    /// Fabric of the interface.
    pub fabric: Option<Fabric>,
    /// Number of VFs that the kernel announces; `None` if the interface cannot have any.
    pub announced: Option<u32>,
    /// Those it lists.
    pub entries: Vec<VfListEntry>,
    /// Whether the reply ends before its list does.
    pub cut: bool,
}

/// Reads a reply (the message without its header).
pub fn list(reply: &[u8]) -> VfList {
    let hardware = reply.get(2..4).and_then(|bytes| bytes.first_chunk()).map(|bytes| u16::from_ne_bytes(*bytes));
    let fabric = match hardware {
        Some(1) => Some(Fabric::Ethernet),
        Some(32) => Some(Fabric::InfiniBand),
        _ => None,
    };
    let mut list = VfList { fabric, ..VfList::default() };
    let mut attributes = Attributes::new(reply.get(IFINFOMSG..).unwrap_or_default());
    loop {
        let from = attributes.rest();
        let next = attributes.next();
        // The last attribute needed; after one whose length wrapped, attributes are misaligned.
        if from.get(2..4) == Some(&IFLA_VFINFO_LIST.to_ne_bytes()) {
            list.take(next.map_or(&[], |(_, value)| value), from.get(4..).unwrap_or_default());
            break;
        }
        match next {
            Some((IFLA_NUM_VF, value)) => list.announced = number32(value),
            Some(_) => {}
            None => break,
        }
    }
    list
}

impl VfList {
    /// Parses the entries of the list attribute. Its length has 16 bits and wraps silently from about 222 VFs on. The
    /// entries continue, so a list that seems to end early is read to the end of the message.
    fn take(&mut self, value: &[u8], to_the_end: &[u8]) {
        const WRAPS: usize = 1 << 16;
        let announced = usize::try_from(self.announced.unwrap_or(0)).unwrap_or(0);
        self.entries = entries(value, announced);
        if self.entries.len() < announced && to_the_end.len() + 4 >= WRAPS {
            self.entries = entries(to_the_end, announced);
            self.cut = self.entries.len() < announced;
        }
    }
}

fn entries(bytes: &[u8], most: usize) -> Vec<VfListEntry> {
    let infos = Attributes::new(bytes).take_while(|(kind, _)| *kind == VF_INFO);
    let mut entries: Vec<VfListEntry> = infos.filter_map(|(_, value)| entry(value)).collect();
    // Without a number of VFs the list is taken as it is.
    if most > 0 {
        entries.truncate(most);
    }
    entries
}

fn entry(info: &[u8]) -> Option<VfListEntry> {
    let mut number = None;
    let mut config = VfConfig::default();
    let mut traffic = None;
    for (kind, value) in Attributes::new(info) {
        let word = |index: usize| value.get(index * 4..).and_then(number32);
        let yes = |word: Option<u32>| word.filter(|word| *word != u32::MAX).map(|word| word != 0);
        if !matches!(kind, VF_STATS | VF_VLAN_LIST | VF_BROADCAST) {
            number = number.or(word(0));
        }
        match kind {
            VF_MAC => config.mac = value.get(4..).and_then(|mac| mac.first_chunk()).map(|mac| Mac(*mac)),
            VF_VLAN => config.vlan = config.vlan.or(vlan(word(1), word(2), None)),
            VF_VLAN_LIST => config.vlan = first_vlan(value).or(config.vlan),
            VF_TX_RATE => config.max_rate = config.max_rate.or(word(1)),
            VF_RATE => (config.min_rate, config.max_rate) = (word(1), word(2)),
            VF_SPOOFCHK => config.spoof_check = yes(word(1)),
            VF_TRUST => config.trust = yes(word(1)),
            VF_LINK_STATE => config.link = word(1).and_then(link),
            VF_IB_NODE_GUID => config.node_guid = value.get(8..).and_then(number64).map(Guid),
            VF_IB_PORT_GUID => config.port_guid = value.get(8..).and_then(number64).map(Guid),
            VF_STATS => traffic = Some(statistics(value)),
            _ => {}
        }
    }
    if config.node_guid.is_some() || config.port_guid.is_some() {
        // On InfiniBand the MAC attribute holds the PF's own address, the same for every VF.
        (config.mac, config.vlan) = (None, None);
    }
    Some(VfListEntry { number: number?, config, traffic })
}

fn link(code: u32) -> Option<VfLink> {
    match code {
        0 => Some(VfLink::Auto),
        1 => Some(VfLink::Enable),
        2 => Some(VfLink::Disable),
        _ => None,
    }
}

fn vlan(id: Option<u32>, qos: Option<u32>, protocol: Option<u16>) -> Option<Vlan> {
    Some(Vlan { id: u16::try_from(id?).ok()?, qos: u8::try_from(qos?).ok()?, protocol })
}

/// The first of a VF's VLANs, with its protocol.
fn first_vlan(list: &[u8]) -> Option<Vlan> {
    let (_, value) = Attributes::new(list).find(|(kind, _)| *kind == VF_VLAN_INFO)?;
    let word = |index: usize| value.get(index * 4..).and_then(number32);
    let protocol = value.get(12..14).and_then(|bytes| bytes.first_chunk()).map(|bytes| u16::from_be_bytes(*bytes));
    vlan(word(1), word(2), protocol.filter(|protocol| *protocol != 0))
}

/// The types of this nest count from 0.
fn statistics(nest: &[u8]) -> VfTraffic {
    let mut traffic = VfTraffic::default();
    for (kind, value) in Attributes::from_zero(nest) {
        let location = match kind {
            0 => &mut traffic.received_packets,
            1 => &mut traffic.transmitted_packets,
            2 => &mut traffic.received_bytes,
            3 => &mut traffic.transmitted_bytes,
            7 => &mut traffic.received_dropped,
            8 => &mut traffic.transmitted_dropped,
            _ => continue,
        };
        *location = number64(value);
    }
    traffic
}
