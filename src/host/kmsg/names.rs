//! What the host knows of the names in a line: which function an RDMA device, an interface or an auxiliary device
//! hangs on, and whose driver has it.

use std::path::Path;

use crate::host::function::{address_of, function_of};
use crate::host::io::Host;
use crate::model::ids::PciAddress;
use crate::model::kmsg::MessageSource;

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// The PCI function; `None` for a device in software.
    pub address: Option<PciAddress>,
    /// The driver that has the function; `None` if its lines are not known.
    pub driver: Option<MessageSource>,
    /// Whether the name is one of an RDMA device.
    pub is_rdma: bool,
}

/// Answers what a name stands for.
pub trait Names {
    /// The owner of an RDMA device, an interface or an auxiliary device of this name.
    fn owner(&self, name: &str) -> Option<Owner>;

    /// The driver that has a function.
    fn driver(&self, address: PciAddress) -> Option<MessageSource>;

    /// Whether a driver of RDMA hardware has a function, or the PF that it is a VF of.
    fn is_of_rdma(&self, address: PciAddress) -> bool;

    /// The function that an address without a domain (`41:00.2`) names. Domain 0 is taken where more than one host
    /// bridge has such a function, or none.
    fn in_some_domain(&self, bus_address: &str) -> Option<PciAddress>;
}

/// Of a log whose host is not known.
#[derive(Debug, Clone, Copy)]
pub struct NoNames;

impl Names for NoNames {
    fn owner(&self, _: &str) -> Option<Owner> {
        None
    }

    fn driver(&self, _: PciAddress) -> Option<MessageSource> {
        None
    }

    fn is_of_rdma(&self, _: PciAddress) -> bool {
        false
    }

    fn in_some_domain(&self, bus_address: &str) -> Option<PciAddress> {
        format!("0000:{bus_address}").parse().ok()
    }
}

impl Names for Host {
    fn owner(&self, name: &str) -> Option<Owner> {
        // A name with a separator would lead elsewhere.
        if name.is_empty() || name.starts_with('.') || name.contains('/') {
            return None;
        }
        ["class/infiniband", "class/net", "bus/auxiliary/devices"].into_iter().find_map(|class| {
            let target = self.io.link(&self.sysfs.join(class).join(name)).ok()?;
            let address = function_of(&target).map(|(_, address)| address);
            let driver = address.and_then(|address| self.driver(address));
            Some(Owner { address, driver, is_rdma: class == "class/infiniband" })
        })
    }

    fn driver(&self, address: PciAddress) -> Option<MessageSource> {
        let function = self.resolve(&self.sysfs.join(format!("bus/pci/devices/{address}"))).ok()?;
        let driver = self.io.link(&function.join("driver")).ok()?;
        MessageSource::by_name(driver.file_name()?.to_str()?)
    }

    fn is_of_rdma(&self, address: PciAddress) -> bool {
        let is_of_rdma = |address| self.driver(address).is_some_and(MessageSource::is_of_rdma);
        let physical = || {
            let function = self.resolve(&self.sysfs.join(format!("bus/pci/devices/{address}"))).ok()?;
            address_of(&self.io.link(&function.join("physfn")).ok()?)
        };
        is_of_rdma(address) || physical().is_some_and(is_of_rdma)
    }

    fn in_some_domain(&self, bus_address: &str) -> Option<PciAddress> {
        let plain: Option<PciAddress> = NoNames.in_some_domain(bus_address);
        let devices = self.sysfs.join("bus/pci/devices");
        let listed = self.io.list(&devices).unwrap_or_default();
        let mut known = listed.iter().filter_map(|name| address_of(Path::new(name)));
        let same = |other: &PciAddress| {
            plain.is_some_and(|plain| {
                (other.bus, other.device, other.function) == (plain.bus, plain.device, plain.function)
            })
        };
        let Some(first) = known.find(same) else { return plain };
        if Some(first) == plain || known.any(|other| same(&other)) { plain } else { Some(first) }
    }
}
