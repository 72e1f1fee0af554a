//! Network interfaces of the functions that RDMA devices hang on (`<function>/net/*`).

mod lane;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::collector::{Collector, Filter, Found, Lane, NoLane, Pass, Setup, Spec};
use super::function::{Attached, Census};
use crate::model::ids::{DeviceName, PciAddress};
use crate::model::reading::ReadError;
use lane::NetdevLane;

/// The collector of network interfaces.
pub const SPEC: Spec = Spec {
    name: "net",
    about: "Carrier, speed and state of the network interfaces that share a port with an RDMA device",
    interval: Duration::from_secs(5),
    deadline: Duration::from_secs(2),
    fresh: true,
    make,
};

fn make(setup: &Setup) -> Box<dyn Collector> {
    Box::new(Net { filter: setup.filter.clone(), places: BTreeMap::new() })
}

struct Net {
    filter: Filter,
    places: BTreeMap<Arc<str>, Place>,
}

/// Where an interface is.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    directory: PathBuf,
    pci_address: PciAddress,
    device: DeviceName,
}

impl Collector for Net {
    fn discover(&mut self, pass: &mut Pass<'_>) -> Result<Vec<Found>, ReadError> {
        let census = Census::take(pass, &self.filter)?;
        let before = std::mem::take(&mut self.places);
        for device in &census.allowed {
            for (directory, name) in interfaces(pass, device) {
                let place = Place {
                    directory: directory.join(&name),
                    pci_address: device.address,
                    device: device.name.clone(),
                };
                let key = before.get_key_value(&*name).map_or_else(|| Arc::from(name), |(key, _)| Arc::clone(key));
                self.places.entry(key).or_insert(place);
            }
        }
        // A name that went to another interface is left out once, so that its lane is opened anew.
        let stayed = |name: &str, place: &Place| before.get(name).is_none_or(|old| old == place);
        let found = self.places.iter().filter(|(name, place)| stayed(name, place));
        Ok(found.map(|(name, place)| Found { key: Arc::clone(name), device: Some(place.device.clone()) }).collect())
    }

    fn open(&mut self, found: &Found) -> Box<dyn Lane> {
        match self.places.get(&found.key) {
            Some(place) => Box::new(NetdevLane::new(Arc::clone(&found.key), place.clone())),
            None => Box::new(NoLane),
        }
    }
}

/// The interfaces of a device. A sub-function has its own beside it; those of the function below which it hangs
/// are another device's.
pub(super) fn interfaces(pass: &mut Pass<'_>, device: &Attached) -> Vec<(PathBuf, String)> {
    let list = |pass: &mut Pass<'_>, parent: &Path| -> Vec<(PathBuf, String)> {
        let directory = parent.join("net");
        let names = pass.list(&directory).unwrap_or_default();
        names.into_iter().map(|name| (directory.clone(), name)).collect()
    };
    let own = list(pass, &device.parent);
    if own.is_empty() && device.parent != device.function { list(pass, &device.function) } else { own }
}

#[cfg(test)]
mod tests;
