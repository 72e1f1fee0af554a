//! EthtoolConnection of the network interfaces that share a port with an RDMA device (ethtool).

pub mod block;
pub mod ioctl;
pub mod standard;
pub mod table;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::collector::{Collector, DeviceReader, Discovered, Filter, GoneReader, ReadContext, Setup, Spec};
use super::function::DeviceInventory;
use super::io::reason_of;
use super::net::interfaces;
use super::netlink::socket::{self, NetlinkConnector};
use crate::model::ethtool::{NetdevLine, NetdevStatistic, NetdevStatistics, StatisticKind};
use crate::model::ids::{DeviceName, PciAddress};
use crate::model::reading::ReadError;
use crate::model::snapshot::Fact;
use crate::model::time::BootTime;
use standard::{StandardStatisticsReader, is_counted};

/// The collector of Ethernet statistics.
pub const SPEC: Spec = Spec {
    name: "ethtool",
    about: "Pauses, discards and line errors of Ethernet ports that carry RDMA (ethtool: drivers' and standard statistics)",
    interval: Duration::from_secs(15),
    deadline: Duration::from_secs(5),
    fresh: false,
    make: |setup| {
        let connect: EthtoolConnector = Arc::new(|| Ok(Box::new(ioctl::EthtoolSocket::new()?)));
        let netlink = setup.host.live.then(socket::generic);
        Box::new(EthtoolCollector::new(setup, setup.host.live.then_some(connect), netlink))
    },
};

/// How long an interface without statistics is left alone.
const NOT_OFFERED: Duration = Duration::from_secs(10 * 60);

/// Someone who knows the statistics of interfaces.
pub trait EthtoolConnection: Send {
    /// How many there are now; it changes with queues and with PFC.
    fn count(&self, netdev: &str) -> io::Result<usize>;
    /// Their names.
    fn names(&self, netdev: &str, count: usize) -> io::Result<Vec<String>>;
    /// Their values, in the same order.
    fn values(&self, netdev: &str, count: usize) -> io::Result<Vec<u64>>;
}

/// Makes a connection; a recorded host has none.
pub type EthtoolConnector = Arc<dyn Fn() -> io::Result<Box<dyn EthtoolConnection>> + Send + Sync>;

struct EthtoolCollector {
    filter: Filter,
    connect: Option<EthtoolConnector>,
    netlink: Option<NetlinkConnector>,
    owners: BTreeMap<Arc<str>, (PciAddress, DeviceName)>,
}

impl EthtoolCollector {
    fn new(setup: &Setup, connect: Option<EthtoolConnector>, netlink: Option<NetlinkConnector>) -> Self {
        Self { filter: setup.filter.clone(), connect, netlink, owners: BTreeMap::new() }
    }
}

impl Collector for EthtoolCollector {
    fn discover(&mut self, cx: &mut ReadContext<'_>) -> Result<Vec<Discovered>, ReadError> {
        if self.connect.is_none() {
            return Ok(Vec::new());
        }
        self.owners.clear();
        for device in &DeviceInventory::read(cx, &self.filter)?.allowed {
            for (_, name) in interfaces(cx, device) {
                self.owners.entry(Arc::from(name)).or_insert((device.address, device.name.clone()));
            }
        }
        let found = |(name, (_, device)): (&Arc<str>, &(PciAddress, DeviceName))| Discovered {
            key: Arc::clone(name),
            device: Some(device.clone()),
        };
        Ok(self.owners.iter().map(found).collect())
    }

    fn open(&mut self, found: &Discovered) -> Box<dyn DeviceReader> {
        match (self.owners.get(&found.key), &self.connect) {
            (Some((pci_address, device)), Some(connect)) => Box::new(EthtoolReader {
                netdev: Arc::clone(&found.key),
                pci_address: *pci_address,
                device: device.clone(),
                connect: Arc::clone(connect),
                connection: None,
                count: 0,
                own: Vec::new(),
                places: Vec::new(),
                not_before: None,
                standard_reader: self.netlink.clone().map(StandardStatisticsReader::new),
                standard: Vec::new(),
                layout: None,
            }),
            _ => Box::new(GoneReader),
        }
    }
}

struct EthtoolReader {
    netdev: Arc<str>,
    pci_address: PciAddress,
    device: DeviceName,
    connect: EthtoolConnector,
    connection: Option<Box<dyn EthtoolConnection>>,
    /// How many statistics the driver has; the known ones, and where they stand among all.
    count: usize,
    own: Vec<NetdevStatistic>,
    places: Vec<usize>,
    not_before: Option<BootTime>,
    /// Asks for the standard ones.
    standard_reader: Option<StandardStatisticsReader>,
    /// The standard ones that the driver does not count itself.
    standard: Vec<&'static str>,
    /// The driver's and the standard ones, as long as they stay the same.
    layout: Option<Arc<[NetdevStatistic]>>,
}

impl EthtoolReader {
    fn ask(&mut self) -> io::Result<Vec<u64>> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            empty => empty.insert((self.connect)()?),
        };
        // The set may change between two questions: then once more.
        for _ in 0..2 {
            let count = connection.count(&self.netdev)?;
            if count != self.count || self.places.is_empty() {
                let names = connection.names(&self.netdev, count)?;
                let known = names.iter().enumerate().filter_map(|(place, name)| {
                    let meaning = table::meaning(name)?;
                    Some((place, NetdevStatistic { name: Arc::from(name.as_str()), meaning }))
                });
                (self.places, self.own) = known.unzip();
                (self.count, self.layout) = (names.len(), None);
            }
            let values = connection.values(&self.netdev, self.count)?;
            if values.len() == self.count {
                return Ok(self.places.iter().filter_map(|place| values.get(*place).copied()).collect());
            }
            self.places.clear();
        }
        Err(io::ErrorKind::InvalidData.into())
    }

    /// The values of the driver's own statistics; none of them where it has none.
    fn own(&mut self, cx: &mut ReadContext<'_>) -> Vec<u64> {
        if self.not_before.is_some_and(|until| cx.now < until) {
            return Vec::new();
        }
        self.not_before = None;
        self.ask().unwrap_or_else(|error| {
            let reason = reason_of(&error);
            if reason == Some(ReadError::NotSupported) {
                self.not_before = Some(cx.now.after(NOT_OFFERED));
            }
            if let Some(reason) = reason {
                cx.fault(Path::new(&format!("ethtool statistics of {}", self.netdev)), reason);
            }
            (self.places, self.own, self.layout) = (Vec::new(), Vec::new(), None);
            Vec::new()
        })
    }
}

impl DeviceReader for EthtoolReader {
    fn read(&mut self, cx: &mut ReadContext<'_>) -> Vec<Fact> {
        let mut values = self.own(cx);
        let netdev = Arc::clone(&self.netdev);
        let mut said =
            self.standard_reader.as_mut().map(|standard_reader| standard_reader.read(cx, &netdev)).unwrap_or_default();
        said.statistics.retain(|(name, _, _)| !is_counted(name, self.own.iter().map(|own| &*own.name)));
        if !self.standard.iter().eq(said.statistics.iter().map(|(name, _, _)| name)) {
            self.standard = said.statistics.iter().map(|(name, _, _)| *name).collect();
            self.layout = None;
        }
        values.extend(said.statistics.iter().map(|(_, _, value)| *value));
        let layout = self.layout.get_or_insert_with(|| {
            let standard = said.statistics.iter();
            let standard = standard.map(|(name, class, _)| NetdevStatistic {
                name: Arc::from(*name),
                meaning: StatisticKind::Event(*class),
            });
            self.own.iter().cloned().chain(standard).collect()
        });
        let mut facts: Vec<Fact> = Vec::new();
        if !values.is_empty() {
            facts.push(Arc::new(NetdevStatistics {
                netdev: Arc::clone(&netdev),
                pci_address: self.pci_address,
                device: self.device.clone(),
                layout: Arc::clone(layout),
                values,
                at: cx.now,
            }));
        }
        if said.fec.is_some() || said.pause.is_some() {
            facts.push(Arc::new(NetdevLine { netdev, fec: said.fec, pause: said.pause }));
        }
        facts
    }

    fn quarantined(&self) -> usize {
        usize::from(self.not_before.is_some())
            + self.standard_reader.as_ref().map_or(0, StandardStatisticsReader::quarantined)
    }
}
