//! Network interfaces of the functions that RDMA devices hang on (`<function>/net/*`).

mod reader;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::collector::{Collector, DeviceReader, Discovered, Filter, GoneReader, ReadContext, Setup, Spec};
use super::function::{DeviceFunction, DeviceInventory};
use crate::model::ids::{DeviceName, PciAddress};
use crate::model::reading::ReadError;
use reader::NetdevReader;

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
    Box::new(NetdevCollector { filter: setup.filter.clone(), locations: BTreeMap::new() })
}

struct NetdevCollector {
    filter: Filter,
    locations: BTreeMap<Arc<str>, NetdevLocation>,
}

/// Where an interface is.
#[derive(Debug, Clone, PartialEq, Eq)]
struct NetdevLocation {
    directory: PathBuf,
    pci_address: PciAddress,
    device: DeviceName,
}

impl Collector for NetdevCollector {
    fn discover(&mut self, cx: &mut ReadContext<'_>) -> Result<Vec<Discovered>, ReadError> {
        let inventory = DeviceInventory::read(cx, &self.filter)?;
        let before = std::mem::take(&mut self.locations);
        for device in &inventory.allowed {
            for (directory, name) in interfaces(cx, device) {
                let location = NetdevLocation {
                    directory: directory.join(&name),
                    pci_address: device.address,
                    device: device.name.clone(),
                };
                let key = before.get_key_value(&*name).map_or_else(|| Arc::from(name), |(key, _)| Arc::clone(key));
                self.locations.entry(key).or_insert(location);
            }
        }
        // A name that went to another interface is left out once, so that its reader is opened anew.
        let stayed = |name: &str, location: &NetdevLocation| before.get(name).is_none_or(|old| old == location);
        let found = self.locations.iter().filter(|(name, location)| stayed(name, location));
        Ok(found
            .map(|(name, location)| Discovered { key: Arc::clone(name), device: Some(location.device.clone()) })
            .collect())
    }

    fn open(&mut self, found: &Discovered) -> Box<dyn DeviceReader> {
        match self.locations.get(&found.key) {
            Some(location) => Box::new(NetdevReader::new(Arc::clone(&found.key), location.clone())),
            None => Box::new(GoneReader),
        }
    }
}

/// The interfaces of a device. A sub-function has its own beside it; those of the function below which it hangs
/// are another device's.
pub(super) fn interfaces(cx: &mut ReadContext<'_>, device: &DeviceFunction) -> Vec<(PathBuf, String)> {
    let list = |cx: &mut ReadContext<'_>, parent: &Path| -> Vec<(PathBuf, String)> {
        let directory = parent.join("net");
        let names = cx.list(&directory).unwrap_or_default();
        names.into_iter().map(|name| (directory.clone(), name)).collect()
    };
    let own = list(cx, &device.parent);
    if own.is_empty() && device.parent != device.function { list(cx, &device.function) } else { own }
}

#[cfg(test)]
mod tests;
