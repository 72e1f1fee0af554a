//! How the network interfaces beside RDMA devices are set up: priorities and pauses (DCB over route netlink), offloads
//! (ethtool over generic netlink), IPoIB and out-of-tree drivers' files (`/sys/class/net`).

mod dcb;
mod features;
mod lane;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::collector::{Collector, Filter, Found, Lane, NoLane, Pass, Setup, Spec};
use super::ethtool::kernel::Kernel;
use super::function::Census;
use super::net::interfaces;
use super::netlink::socket::{self, Connect};
use crate::model::ids::{DeviceName, PciAddress};
use crate::model::reading::ReadError;
use lane::SetupLane;

/// The collector of interfaces' settings.
pub const SPEC: Spec = Spec {
    name: "netdev_setup",
    about: "How network interfaces beside RDMA devices are set up: priorities and PFC (DCB), offloads, IPoIB mode",
    interval: Duration::from_secs(60),
    deadline: Duration::from_secs(5),
    fresh: false,
    make: |setup| {
        let ioctl: Ioctl = Arc::new(|netdev| Kernel::new()?.features(netdev));
        Box::new(Setups::new(setup, setup.host.live.then(socket::generic), setup.host.live.then_some(ioctl)))
    },
};

/// Tells the offloads of an interface where ethtool over netlink is not offered: name, on, fixed.
type Ioctl = Arc<dyn Fn(&str) -> io::Result<Vec<(String, bool, bool)>> + Send + Sync>;

struct Setups {
    filter: Filter,
    route: Option<Connect>,
    generic: Option<Connect>,
    ioctl: Option<Ioctl>,
    places: BTreeMap<Arc<str>, Place>,
}

/// Where an interface is.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    directory: PathBuf,
    function: PathBuf,
    pci_address: PciAddress,
    device: DeviceName,
}

impl Setups {
    fn new(setup: &Setup, generic: Option<Connect>, ioctl: Option<Ioctl>) -> Self {
        let (filter, route) = (setup.filter.clone(), setup.host.route.clone());
        Self { filter, route, generic, ioctl, places: BTreeMap::new() }
    }
}

impl Collector for Setups {
    /// VFs beside their PF are left out: there may be hundreds, and their settings are the PF's to make.
    fn discover(&mut self, pass: &mut Pass<'_>) -> Result<Vec<Found>, ReadError> {
        let census = Census::take(pass, &self.filter)?;
        let before = std::mem::take(&mut self.places);
        for device in census.allowed.iter().filter(|device| pass.host.io.link(&device.function.join("physfn")).is_err())
        {
            for (directory, name) in interfaces(pass, device) {
                let place = Place {
                    directory: directory.join(&name),
                    function: device.function.clone(),
                    pci_address: device.address,
                    device: device.name.clone(),
                };
                self.places.entry(Arc::from(name)).or_insert(place);
            }
        }
        // A name that went to another interface is left out once, so that its lane is opened anew.
        let stayed = |name: &Arc<str>, place: &Place| before.get(name).is_none_or(|old| old == place);
        let found = self.places.iter().filter(|(name, place)| stayed(name, place));
        Ok(found.map(|(name, place)| Found { key: Arc::clone(name), device: Some(place.device.clone()) }).collect())
    }

    fn open(&mut self, found: &Found) -> Box<dyn Lane> {
        match self.places.get(&found.key) {
            Some(place) => {
                let lane = SetupLane::new(Arc::clone(&found.key), place.clone());
                Box::new(lane.asking(self.route.clone(), self.generic.clone(), self.ioctl.clone()))
            }
            None => Box::new(NoLane),
        }
    }
}
