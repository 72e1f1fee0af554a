//! PCI functions of the RDMA devices, their PFs and every bridge above them, with their links and error counters
//! (`/sys/devices/pci*`).

mod aer;
mod files;
mod lane;
mod link;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::collector::{Collector, Filter, Found, Lane, NoLane, Pass, Setup, Spec};
use super::function::{Census, address_of};
use super::io::reason_of;
use crate::model::ids::{DeviceName, PciAddress};
use crate::model::reading::ReadError;
use lane::FunctionLane;

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
    Box::new(Pci { filter: setup.filter.clone(), places: BTreeMap::new() })
}

struct Pci {
    filter: Filter,
    places: BTreeMap<PciAddress, Arc<Place>>,
}

/// Where a function is.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    /// Its address as text: the key of its lane.
    key: Arc<str>,
    address: PciAddress,
    directory: PathBuf,
    /// The function whose directory holds its own.
    upstream: Option<PciAddress>,
}

/// Functions that were found, and the RDMA device of each that has one.
type Listing = BTreeMap<PciAddress, (PathBuf, Option<DeviceName>)>;

impl Pci {
    fn list(&self, pass: &mut Pass<'_>) -> Result<Listing, ReadError> {
        let Census { allowed, excluded } = Census::take(pass, &self.filter)?;
        let mut listing = Listing::new();
        for device in &allowed {
            let entry = listing.entry(device.address).or_insert_with(|| (device.function.clone(), None));
            entry.1.get_or_insert_with(|| device.name.clone());
            list_above(&mut listing, &device.function);
        }
        for device in &allowed {
            // A PF that belongs to an excluded device alone stays unread.
            let pf = pf_of(pass, &device.function).filter(|(_, address)| !excluded.contains(address));
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
fn pf_of(pass: &mut Pass<'_>, function: &Path) -> Option<(PathBuf, PciAddress)> {
    let link = function.join("physfn");
    match pass.host.resolve(&link) {
        Ok(directory) if directory != link => address_of(&directory).map(|address| (directory, address)),
        Ok(_) => None,
        Err(error) => {
            if let Some(reason) = reason_of(&error) {
                pass.fault(&link, reason);
            }
            None
        }
    }
}

impl Collector for Pci {
    fn discover(&mut self, pass: &mut Pass<'_>) -> Result<Vec<Found>, ReadError> {
        let listing = self.list(pass)?;
        let before = std::mem::take(&mut self.places);
        let mut found = Vec::with_capacity(listing.len());
        for (address, (directory, device)) in listing {
            let place = match before.get(&address) {
                Some(place) if place.directory == directory => Arc::clone(place),
                _ => Arc::new(Place {
                    key: Arc::from(address.to_string()),
                    address,
                    upstream: directory.parent().and_then(address_of),
                    directory,
                }),
            };
            // One that moved within the tree is left out once, so that its lane is opened anew.
            if before.get(&address).is_none_or(|old| *old == place) {
                found.push(Found { key: Arc::clone(&place.key), device });
            }
            self.places.insert(address, place);
        }
        Ok(found)
    }

    fn open(&mut self, found: &Found) -> Box<dyn Lane> {
        let place = found.key.parse().ok().and_then(|address: PciAddress| self.places.get(&address));
        match place {
            Some(place) => Box::new(FunctionLane::new(Arc::clone(place))),
            None => Box::new(NoLane),
        }
    }
}

#[cfg(test)]
mod tests;
