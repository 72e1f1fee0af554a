//! Statistics of the network interfaces that share a port with an RDMA device (ethtool).

pub mod kernel;
pub mod table;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::collector::{Collector, Filter, Found, Lane, NoLane, Pass, Setup, Spec};
use super::function::Census;
use super::io::reason_of;
use super::net::interfaces;
use crate::model::ethtool::{NetdevStatistics, Statistic};
use crate::model::ids::{DeviceName, PciAddress};
use crate::model::reading::Reason;
use crate::model::snapshot::Fact;
use crate::model::time::Tick;

/// The collector of Ethernet statistics.
pub const SPEC: Spec = Spec {
    name: "ethtool",
    about: "Pauses, discards and line errors of Ethernet ports that carry RDMA (ethtool statistics)",
    interval: Duration::from_secs(15),
    deadline: Duration::from_secs(5),
    fresh: false,
    make: |setup| {
        let connect: Connect = Arc::new(|| Ok(Box::new(kernel::Kernel::new()?)));
        Box::new(Ethtool::new(setup, setup.host.live.then_some(connect)))
    },
};

/// How long an interface without statistics is left alone.
const NOT_OFFERED: Duration = Duration::from_secs(10 * 60);

/// Someone who knows the statistics of interfaces.
pub trait Statistics: Send {
    /// How many there are now; it changes with queues and with PFC.
    fn count(&self, netdev: &str) -> io::Result<usize>;
    /// Their names.
    fn names(&self, netdev: &str, count: usize) -> io::Result<Vec<String>>;
    /// Their values, in the same order.
    fn values(&self, netdev: &str, count: usize) -> io::Result<Vec<u64>>;
}

/// Makes a connection; a recorded host has none.
pub type Connect = Arc<dyn Fn() -> io::Result<Box<dyn Statistics>> + Send + Sync>;

struct Ethtool {
    filter: Filter,
    connect: Option<Connect>,
    owners: BTreeMap<Arc<str>, (PciAddress, DeviceName)>,
}

impl Ethtool {
    fn new(setup: &Setup, connect: Option<Connect>) -> Self {
        Self { filter: setup.filter.clone(), connect, owners: BTreeMap::new() }
    }
}

impl Collector for Ethtool {
    fn discover(&mut self, pass: &mut Pass<'_>) -> Result<Vec<Found>, Reason> {
        if self.connect.is_none() {
            return Ok(Vec::new());
        }
        self.owners.clear();
        for device in &Census::take(pass, &self.filter)?.allowed {
            for (_, name) in interfaces(pass, device) {
                self.owners.entry(Arc::from(name)).or_insert((device.address, device.name.clone()));
            }
        }
        let found = |(name, (_, device)): (&Arc<str>, &(PciAddress, DeviceName))| Found {
            key: Arc::clone(name),
            device: Some(device.clone()),
        };
        Ok(self.owners.iter().map(found).collect())
    }

    fn open(&mut self, found: &Found) -> Box<dyn Lane> {
        match (self.owners.get(&found.key), &self.connect) {
            (Some((pci_address, device)), Some(connect)) => Box::new(Interface {
                netdev: Arc::clone(&found.key),
                pci_address: *pci_address,
                device: device.clone(),
                connect: Arc::clone(connect),
                connection: None,
                count: 0,
                layout: Arc::from([]),
                places: Vec::new(),
                not_before: None,
            }),
            _ => Box::new(NoLane),
        }
    }
}

struct Interface {
    netdev: Arc<str>,
    pci_address: PciAddress,
    device: DeviceName,
    connect: Connect,
    connection: Option<Box<dyn Statistics>>,
    /// How many statistics the driver has; the known ones, and where they stand among all.
    count: usize,
    layout: Arc<[Statistic]>,
    places: Vec<usize>,
    not_before: Option<Tick>,
}

impl Interface {
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
                    Some((place, Statistic { name: Arc::from(name.as_str()), meaning }))
                });
                let (places, layout): (Vec<usize>, Vec<Statistic>) = known.unzip();
                (self.count, self.places, self.layout) = (names.len(), places, layout.into());
            }
            let values = connection.values(&self.netdev, self.count)?;
            if values.len() == self.count {
                return Ok(self.places.iter().filter_map(|place| values.get(*place).copied()).collect());
            }
            self.places.clear();
        }
        Err(io::ErrorKind::InvalidData.into())
    }
}

impl Lane for Interface {
    fn read(&mut self, pass: &mut Pass<'_>) -> Vec<Fact> {
        if self.not_before.is_some_and(|until| pass.now < until) {
            return Vec::new();
        }
        self.not_before = None;
        match self.ask() {
            Ok(values) if values.is_empty() => Vec::new(),
            Ok(values) => vec![Arc::new(NetdevStatistics {
                netdev: Arc::clone(&self.netdev),
                pci_address: self.pci_address,
                device: self.device.clone(),
                layout: Arc::clone(&self.layout),
                values,
                at: pass.now,
            })],
            Err(error) => {
                let reason = reason_of(&error);
                if reason == Some(Reason::NotSupported) {
                    self.not_before = Some(pass.now.after(NOT_OFFERED));
                }
                if let Some(reason) = reason {
                    pass.fault(Path::new(&format!("ethtool statistics of {}", self.netdev)), reason);
                }
                Vec::new()
            }
        }
    }

    fn quarantined(&self) -> usize {
        usize::from(self.not_before.is_some())
    }
}
