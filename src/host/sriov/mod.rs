//! PFs of network cards and their VFs (`/sys/bus/pci/devices`, route netlink), whether or not they do RDMA.

mod background_number;
#[cfg(test)]
#[path = "../../../tests/common/iplink.rs"]
#[allow(unreachable_pub, missing_docs, reason = "shared with test programs")]
mod iplink;
mod netdev;
mod reader;
pub mod rtnl;
#[cfg(test)]
mod tests;
mod vendor_files;
mod vf;
mod vf_list_client;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::collector::{Collector, DeviceReader, Discovered, Filter, GoneReader, ReadContext, Setup, Spec};
use super::file::PolledFile;
use super::function::DeviceInventory;
use super::io::{Host, reason_of};
use super::text;
use crate::model::ids::PciAddress;
use crate::model::reading::{ReadError, Reading};
use reader::{PfLocation, PfReader};

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
    Box::new(SriovCollector { host: setup.host.clone(), filter: setup.filter.clone(), known: BTreeMap::new() })
}

struct SriovCollector {
    host: Host,
    filter: Filter,
    /// Every function on the bus: where it is if it is a PF of a network card, none for others.
    known: BTreeMap<PciAddress, Option<PfLocation>>,
}

impl Collector for SriovCollector {
    fn discover(&mut self, cx: &mut ReadContext<'_>) -> Result<Vec<Discovered>, ReadError> {
        let bus = cx.host.sysfs.join("bus/pci/devices");
        let names = match cx.host.io.list(&bus) {
            Ok(names) => names,
            Err(error) => return reason_of(&error).map_or_else(|| Ok(Vec::new()), Err),
        };
        let inventory = DeviceInventory::read(cx, &self.filter)?;
        let allowed = |address: &PciAddress| {
            !inventory.excluded.contains(address) || inventory.allowed.iter().any(|device| device.address == *address)
        };
        let mut found = Vec::new();
        let before = std::mem::take(&mut self.known);
        let addresses = names.iter().filter_map(|name| Some((name.parse::<PciAddress>().ok()?, name)));
        for (address, name) in addresses.filter(|(address, _)| allowed(address)) {
            let location = match before.get(&address) {
                Some(known) => known.clone(),
                None => match look(cx, &bus.join(name), address) {
                    Ok(location) => location,
                    // It is looked at again next time.
                    Err(_) => continue,
                },
            };
            if let Some(location) = &location {
                let device = inventory.allowed.iter().find(|device| device.address == address);
                let key = Arc::from(location.address.to_string());
                found.push(Discovered { key, device: device.map(|device| device.name.clone()) });
            }
            self.known.insert(address, location);
        }
        found.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(found)
    }

    fn open(&mut self, found: &Discovered) -> Box<dyn DeviceReader> {
        let location = found.key.parse().ok().and_then(|address: PciAddress| self.known.get(&address)?.clone());
        match location {
            Some(location) => Box::new(PfReader::new(location, &self.host)),
            None => Box::new(GoneReader),
        }
    }
}

/// Where a function is, if it is a network card's PF; an error where that cannot be told.
fn look(cx: &mut ReadContext<'_>, entry: &Path, address: PciAddress) -> io::Result<Option<PfLocation>> {
    let directory = cx.host.resolve(entry).inspect_err(|error| {
        if let Some(reason) = reason_of(error) {
            cx.fault(entry, reason);
        }
    })?;
    // Whether a function can have VFs does not change while it is there.
    let opened = cx.host.io.open(&directory.join("sriov_totalvfs"));
    if opened.is_err_and(|error| reason_of(&error).is_none()) {
        return Ok(None);
    }
    let code = |bytes: &[u8]| match text::parse_hex(bytes).and_then(|code| u32::try_from(code).ok()) {
        Some(code) => Reading::Value(code),
        None => Reading::Unreadable(ReadError::Malformed),
    };
    let class = PolledFile::new(directory.join("class")).read(cx, code).value();
    let network = class.is_none_or(|class| class >> 16 == 0x02);
    Ok(network.then_some(PfLocation { address, directory, class }))
}
