//! The PCI functions behind the RDMA devices (`/sys/class/infiniband/*/device`). Reads links only, no files.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::collector::{Filter, ReadContext};
use super::io::reason_of;
use crate::model::ids::{DeviceName, PciAddress};
use crate::model::reading::ReadError;

/// An RDMA device and the PCI function behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceFunction {
    /// The device.
    pub name: DeviceName,
    /// Target of its `device` link: the function itself, or an auxiliary device below it (a sub-function).
    pub parent: PathBuf,
    /// The directory of the PCI function.
    pub function: PathBuf,
    /// The function's address.
    pub address: PciAddress,
}

/// The RDMA devices of a host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceInventory {
    /// Devices that the filter allows, sorted; without software devices, which have no function.
    pub allowed: Vec<DeviceFunction>,
    /// Functions of the devices that the filter excludes.
    pub excluded: BTreeSet<PciAddress>,
}

impl DeviceInventory {
    /// Lists the devices. A host without RDMA has none; a device that vanishes during the listing is left out.
    ///
    /// # Errors
    /// Why the class could not be listed, also recorded as a fault.
    pub fn read(cx: &mut ReadContext<'_>, filter: &Filter) -> Result<Self, ReadError> {
        let class = cx.host.sysfs.join("class/infiniband");
        let names = cx.list(&class)?;
        let mut inventory = Self::default();
        for name in names {
            let entry = class.join(&name);
            if filter.allows(&name) {
                inventory.allowed.extend(attached(cx, &entry, &name));
            } else if let Ok(target) = cx.host.io.link(&entry) {
                // The link's text names the function, so that nothing of an excluded device is touched.
                inventory.excluded.extend(function_of(&target).map(|(_, address)| address));
            }
        }
        inventory.allowed.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(inventory)
    }
}

fn attached(cx: &mut ReadContext<'_>, entry: &Path, name: &str) -> Option<DeviceFunction> {
    let parent = cx.host.resolve(entry).and_then(|device| cx.host.resolve(&device.join("device")));
    match parent {
        Ok(parent) => {
            let (function, address) = function_of(&parent)?;
            let function = function.to_owned();
            Some(DeviceFunction { name: DeviceName::new(name), parent, function, address })
        }
        Err(error) => {
            if let Some(reason) = reason_of(&error) {
                cx.fault(&entry.join("device"), reason);
            }
            None
        }
    }
}

/// The directory and address of the PCI function at or above a path below `/sys/devices`.
pub(super) fn function_of(path: &Path) -> Option<(&Path, PciAddress)> {
    let below_devices = |above: &&Path| above.file_name().is_some_and(|name| name != "devices");
    path.ancestors().take_while(below_devices).find_map(|above| Some((above, address_of(above)?)))
}

/// The PCI address that the last name of a path is.
pub fn address_of(path: &Path) -> Option<PciAddress> {
    path.file_name()?.to_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_function_above_a_device() {
        let found = |path| function_of(Path::new(path)).map(|(dir, _)| dir.to_str().unwrap());
        let vmd = "/sys/devices/pci0000:00/0000:00:0e.0/pci10000:00/10000:00:00.0/10000:01:00.0";
        assert_eq!(found(vmd), Some(vmd));
        assert_eq!(
            found("/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/mlx5_core.sf.4"),
            Some("/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0")
        );
        assert_eq!(found("../../devices/virtual/net/eth0"), None);
        assert_eq!(found("/hosts/0000:01:00.0/sys/devices/virtual/rxe0"), None);
        assert_eq!(found("/sys/devices/pci0000:00"), None);
    }
}
