//! PFs of network cards and their VFs (`/sys/bus/pci/devices`, route netlink), whether or not they do RDMA.

#[cfg(test)]
#[path = "../../../tests/common/iplink.rs"]
#[allow(unreachable_pub, missing_docs, reason = "shared with test programs")]
mod iplink;
mod lane;
mod links;
mod netdev;
mod outoftree;
mod patient;
pub mod rtnl;
#[cfg(test)]
mod tests;
mod vf;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::collector::{Collector, Filter, Found, Lane, NoLane, Pass, Setup, Spec};
use super::file::Watched;
use super::function::Census;
use super::io::{Host, reason_of};
use super::text;
use crate::model::ids::PciAddress;
use crate::model::reading::{ReadError, Reading};
use lane::{PfLane, Place};

/// The collector of PFs.
pub const SPEC: Spec = Spec {
    name: "sriov",
    about: "PFs and VFs of network cards: counts, drivers, IOMMU groups, MAC addresses, GUIDs, VLANs, traffic",
    interval: Duration::from_secs(15),
    deadline: Duration::from_secs(2),
    fresh: false,
    make,
};

fn make(setup: &Setup) -> Box<dyn Collector> {
    Box::new(Sriov { host: setup.host.clone(), filter: setup.filter.clone(), known: BTreeMap::new() })
}

struct Sriov {
    host: Host,
    filter: Filter,
    /// Every function on the bus: where it is if it is a PF of a network card, none for others.
    known: BTreeMap<PciAddress, Option<Place>>,
}

impl Collector for Sriov {
    fn discover(&mut self, pass: &mut Pass<'_>) -> Result<Vec<Found>, ReadError> {
        let bus = pass.host.sysfs.join("bus/pci/devices");
        let names = match pass.host.io.list(&bus) {
            Ok(names) => names,
            Err(error) => return reason_of(&error).map_or_else(|| Ok(Vec::new()), Err),
        };
        let census = Census::take(pass, &self.filter)?;
        let allowed = |address: &PciAddress| {
            !census.excluded.contains(address) || census.allowed.iter().any(|device| device.address == *address)
        };
        let mut found = Vec::new();
        let before = std::mem::take(&mut self.known);
        let addresses = names.iter().filter_map(|name| Some((name.parse::<PciAddress>().ok()?, name)));
        for (address, name) in addresses.filter(|(address, _)| allowed(address)) {
            let place = match before.get(&address) {
                Some(known) => known.clone(),
                None => match look(pass, &bus.join(name), address) {
                    Ok(place) => place,
                    // It is looked at again next time.
                    Err(_) => continue,
                },
            };
            if let Some(place) = &place {
                let device = census.allowed.iter().find(|device| device.address == address);
                let key = Arc::from(place.address.to_string());
                found.push(Found { key, device: device.map(|device| device.name.clone()) });
            }
            self.known.insert(address, place);
        }
        found.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(found)
    }

    fn open(&mut self, found: &Found) -> Box<dyn Lane> {
        let place = found.key.parse().ok().and_then(|address: PciAddress| self.known.get(&address)?.clone());
        match place {
            Some(place) => Box::new(PfLane::new(place, &self.host)),
            None => Box::new(NoLane),
        }
    }
}

/// Where a function is, if it is a network card's PF; an error where that cannot be told.
fn look(pass: &mut Pass<'_>, entry: &Path, address: PciAddress) -> io::Result<Option<Place>> {
    let directory = pass.host.resolve(entry).inspect_err(|error| {
        if let Some(reason) = reason_of(error) {
            pass.fault(entry, reason);
        }
    })?;
    // Whether a function can have VFs does not change while it is there.
    let opened = pass.host.io.open(&directory.join("sriov_totalvfs"));
    if opened.is_err_and(|error| reason_of(&error).is_none()) {
        return Ok(None);
    }
    let code = |bytes: &[u8]| match text::parse_hex(bytes).and_then(|code| u32::try_from(code).ok()) {
        Some(code) => Reading::Value(code),
        None => Reading::Unreadable(ReadError::Malformed),
    };
    let class = Watched::new(directory.join("class")).read(pass, code).value();
    let network = class.is_none_or(|class| class >> 16 == 0x02);
    Ok(network.then_some(Place { address, directory, class }))
}
