//! How the network interfaces beside RDMA devices are set up: priorities and pauses (DCB over route netlink), offloads
//! (ethtool over generic netlink), IPoIB and out-of-tree drivers' files (`/sys/class/net`).

mod dcb;
mod features;
mod reader;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::collector::{Collector, DeviceReader, Discovered, Filter, GoneReader, ReadContext, Setup, Spec};
use super::ethtool::ioctl::EthtoolSocket;
use super::function::DeviceInventory;
use super::net::interfaces;
use super::netlink::socket::{self, NetlinkConnector};
use crate::model::ids::{DeviceName, PciAddress};
use crate::model::reading::ReadError;
use reader::NetdevSetupReader;

/// The collector of interfaces' settings.
pub const SPEC: Spec = Spec {
    name: "netdev_setup",
    about: "How network interfaces beside RDMA devices are set up: priorities and PFC (DCB), offloads, IPoIB mode",
    interval: Duration::from_secs(60),
    deadline: Duration::from_secs(5),
    fresh: false,
    make: |setup| {
        let ioctl: ReadFeatures = Arc::new(|netdev| EthtoolSocket::new()?.features(netdev));
        Box::new(NetdevSetupCollector::new(
            setup,
            setup.host.live.then(socket::generic),
            setup.host.live.then_some(ioctl),
        ))
    },
};

/// Tells the offloads of an interface where ethtool over netlink is not offered: name, on, fixed.
type ReadFeatures = Arc<dyn Fn(&str) -> io::Result<Vec<(String, bool, bool)>> + Send + Sync>;

struct NetdevSetupCollector {
    filter: Filter,
    route: Option<NetlinkConnector>,
    generic: Option<NetlinkConnector>,
    ioctl: Option<ReadFeatures>,
    locations: BTreeMap<Arc<str>, NetdevLocation>,
}

/// Where an interface is.
#[derive(Debug, Clone, PartialEq, Eq)]
struct NetdevLocation {
    directory: PathBuf,
    function: PathBuf,
    pci_address: PciAddress,
    device: DeviceName,
}

impl NetdevSetupCollector {
    fn new(setup: &Setup, generic: Option<NetlinkConnector>, ioctl: Option<ReadFeatures>) -> Self {
        let (filter, route) = (setup.filter.clone(), setup.host.route.clone());
        Self { filter, route, generic, ioctl, locations: BTreeMap::new() }
    }
}

impl Collector for NetdevSetupCollector {
    /// VFs beside their PF are left out: there may be hundreds, and their settings are the PF's to make.
    fn discover(&mut self, cx: &mut ReadContext<'_>) -> Result<Vec<Discovered>, ReadError> {
        let inventory = DeviceInventory::read(cx, &self.filter)?;
        let before = std::mem::take(&mut self.locations);
        for device in
            inventory.allowed.iter().filter(|device| cx.host.io.link(&device.function.join("physfn")).is_err())
        {
            for (directory, name) in interfaces(cx, device) {
                let location = NetdevLocation {
                    directory: directory.join(&name),
                    function: device.function.clone(),
                    pci_address: device.address,
                    device: device.name.clone(),
                };
                self.locations.entry(Arc::from(name)).or_insert(location);
            }
        }
        // A name that went to another interface is left out once, so that its reader is opened anew.
        let stayed = |name: &Arc<str>, location: &NetdevLocation| before.get(name).is_none_or(|old| old == location);
        let found = self.locations.iter().filter(|(name, location)| stayed(name, location));
        Ok(found
            .map(|(name, location)| Discovered { key: Arc::clone(name), device: Some(location.device.clone()) })
            .collect())
    }

    fn open(&mut self, found: &Discovered) -> Box<dyn DeviceReader> {
        match self.locations.get(&found.key) {
            Some(location) => {
                let reader = NetdevSetupReader::new(Arc::clone(&found.key), location.clone());
                Box::new(reader.asking(self.route.clone(), self.generic.clone(), self.ioctl.clone()))
            }
            None => Box::new(GoneReader),
        }
    }
}
