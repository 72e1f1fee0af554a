//! PCI functions of the RDMA devices, their PFs and every bridge above them, with their links and error counters
//! (`/sys/devices/pci*`).

mod files;
mod reader;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::collector::{Collector, DeviceReader, Discovered, Filter, GoneReader, ReadContext, Setup, Spec};
use super::function::{DeviceInventory, address_of};
use super::io::reason_of;
use crate::model::ids::{DeviceName, PciAddress};
use crate::model::reading::ReadError;
use reader::PciFunctionReader;

/// The collector of PCI functions.
pub const SPEC: Spec = Spec {
    name: "pci",
    about: "PCIe link speed and width, AER error counters and SR-IOV limits of RDMA devices and the ports above them",
    interval: Duration::from_secs(5),
    deadline: Duration::from_secs(2),
    fresh: true,
    make,
};

fn make(setup: &Setup) -> Box<dyn Collector> {
    Box::new(PciCollector { filter: setup.filter.clone(), locations: BTreeMap::new() })
}

struct PciCollector {
    filter: Filter,
    locations: BTreeMap<PciAddress, Arc<FunctionLocation>>,
}

/// Where a function is.
#[derive(Debug, PartialEq, Eq)]
struct FunctionLocation {
    /// Its address as text: the key of its reader.
    key: Arc<str>,
    address: PciAddress,
    directory: PathBuf,
    /// The function whose directory holds its own.
    upstream: Option<PciAddress>,
}

/// Functions that were found, and the RDMA device of each that has one.
type Listing = BTreeMap<PciAddress, (PathBuf, Option<DeviceName>)>;

impl PciCollector {
    fn list(&self, cx: &mut ReadContext<'_>) -> Result<Listing, ReadError> {
        let DeviceInventory { allowed, excluded } = DeviceInventory::read(cx, &self.filter)?;
        let mut listing = Listing::new();
        for device in &allowed {
            let entry = listing.entry(device.address).or_insert_with(|| (device.function.clone(), None));
            entry.1.get_or_insert_with(|| device.name.clone());
            list_above(&mut listing, &device.function);
        }
        for device in &allowed {
            // A PF that belongs to an excluded device alone stays unread.
            let pf = pf_of(cx, &device.function).filter(|(_, address)| !excluded.contains(address));
            if let Some((directory, address)) = pf {
                list_above(&mut listing, &directory);
                listing.entry(address).or_insert((directory, None));
            }
        }
        Ok(listing)
    }
}

/// Adds every function above one: the directories that hold its own, up to the host bridge.
fn list_above(listing: &mut Listing, function: &Path) {
    for directory in function.ancestors().skip(1) {
        let Some(address) = address_of(directory) else { break };
        listing.entry(address).or_insert_with(|| (directory.to_owned(), None));
    }
}

/// The PF of a VF.
fn pf_of(cx: &mut ReadContext<'_>, function: &Path) -> Option<(PathBuf, PciAddress)> {
    let link = function.join("physfn");
    match cx.host.resolve(&link) {
        Ok(directory) if directory != link => address_of(&directory).map(|address| (directory, address)),
        Ok(_) => None,
        Err(error) => {
            if let Some(reason) = reason_of(&error) {
                cx.fault(&link, reason);
            }
            None
        }
    }
}

impl Collector for PciCollector {
    fn discover(&mut self, cx: &mut ReadContext<'_>) -> Result<Vec<Discovered>, ReadError> {
        let listing = self.list(cx)?;
        let before = std::mem::take(&mut self.locations);
        let mut found = Vec::with_capacity(listing.len());
        for (address, (directory, device)) in listing {
            let location = match before.get(&address) {
                Some(location) if location.directory == directory => Arc::clone(location),
                _ => Arc::new(FunctionLocation {
                    key: Arc::from(address.to_string()),
                    address,
                    upstream: directory.parent().and_then(address_of),
                    directory,
                }),
            };
            // One that moved within the tree is left out once, so that its reader is opened anew.
            if before.get(&address).is_none_or(|old| *old == location) {
                found.push(Discovered { key: Arc::clone(&location.key), device });
            }
            self.locations.insert(address, location);
        }
        Ok(found)
    }

    fn open(&mut self, found: &Discovered) -> Box<dyn DeviceReader> {
        let location = found.key.parse().ok().and_then(|address: PciAddress| self.locations.get(&address));
        match location {
            Some(location) => Box::new(PciFunctionReader::new(Arc::clone(location))),
            None => Box::new(GoneReader),
        }
    }
}

#[cfg(test)]
mod tests;
