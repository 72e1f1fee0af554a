//! The functions whose vectors are read: those of RDMA devices, and sibling functions that serve the same card.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::host::collector::{Filter, ReadContext};
use crate::host::file::PolledFile;
use crate::host::function::{DeviceInventory, address_of};
use crate::host::io::reason_of;
use crate::host::text;
use crate::model::ids::PciAddress;
use crate::model::reading::{ReadError, Reading};

/// One function.
pub(super) struct IrqFunctionFiles {
    /// Its directory.
    pub(super) directory: PathBuf,
    node_file: PolledFile,
    numa_node: Option<u32>,
}

/// All functions.
#[derive(Default)]
pub(super) struct IrqFunctions {
    functions: BTreeMap<PciAddress, IrqFunctionFiles>,
    /// The functions that each driver had bound at the last search for siblings, and the siblings found.
    bound: BTreeMap<PathBuf, (Vec<String>, BTreeMap<PciAddress, PathBuf>)>,
}

impl IrqFunctions {
    /// Updates the set of functions.
    ///
    /// # Errors
    /// Why the RDMA devices could not be listed.
    pub(super) fn refresh(&mut self, cx: &mut ReadContext<'_>, filter: &Filter) -> Result<(), ReadError> {
        let DeviceInventory { allowed, excluded } = DeviceInventory::read(cx, filter)?;
        let mut now: BTreeMap<PciAddress, PathBuf> =
            allowed.iter().map(|device| (device.address, device.function.clone())).collect();
        let own: Vec<PathBuf> = now.values().cloned().collect();
        for directory in own {
            for (address, sibling) in self.siblings(cx, &directory, &excluded) {
                now.entry(address).or_insert(sibling);
            }
        }
        self.functions.retain(|address, function| now.get(address) == Some(&function.directory));
        for (address, directory) in now {
            let node_file = PolledFile::new(directory.join("numa_node"));
            let new = || IrqFunctionFiles { directory, node_file, numa_node: None };
            self.functions.entry(address).or_insert_with(new);
        }
        Ok(())
    }

    /// Every function, by address.
    pub(super) fn all(&self) -> impl Iterator<Item = (&PciAddress, &IrqFunctionFiles)> {
        self.functions.iter()
    }

    /// A function's NUMA node; -1 means none. Read until it has one, because a function cannot move.
    pub(super) fn numa_node(&mut self, cx: &mut ReadContext<'_>, address: PciAddress) -> Option<u32> {
        let function = self.functions.get_mut(&address)?;
        if function.numa_node.is_none() {
            function.numa_node = function.node_file.read(cx, numa_node).value();
            function.node_file.close();
        }
        function.numa_node
    }

    /// Functions of the same driver and model that have neither an RDMA device nor a network interface: the second half
    /// of a card that spans two sockets serves the first half's queues.
    fn siblings(
        &mut self,
        cx: &mut ReadContext<'_>,
        function: &Path,
        excluded: &BTreeSet<PciAddress>,
    ) -> BTreeMap<PciAddress, PathBuf> {
        let Ok(driver) = cx.host.resolve(&function.join("driver")) else { return BTreeMap::new() };
        let Ok(mut names) = cx.host.io.list(&driver) else { return BTreeMap::new() };
        names.sort_unstable();
        if let Some((before, silent)) = self.bound.get(&driver)
            && *before == names
        {
            return silent.clone();
        }
        let model = model(cx, function);
        let mut silent = BTreeMap::new();
        for name in &names {
            let Ok(address) = name.parse::<PciAddress>() else { continue };
            let Ok(directory) = cx.host.resolve(&driver.join(name)) else { continue };
            if excluded.contains(&address) || address_of(&directory) != Some(address) {
                continue;
            }
            let Ok(entries) = cx.host.io.list(&directory) else { continue };
            let heard = entries.iter().any(|entry| matches!(&**entry, "infiniband" | "net" | "physfn"));
            if !heard && model.is_some() && self::model(cx, &directory) == model {
                silent.insert(address, directory);
            }
        }
        self.bound.insert(driver, (names, silent.clone()));
        silent
    }
}

/// Vendor and device.
fn model(cx: &mut ReadContext<'_>, function: &Path) -> Option<(u64, u64)> {
    let mut number = |name: &str| {
        let number = |bytes: &[u8]| text::parse_hex(bytes).map_or(Reading::Absent, Reading::Value);
        PolledFile::new(function.join(name)).read(cx, number).value()
    };
    number("vendor").zip(number("device"))
}

fn numa_node(bytes: &[u8]) -> Reading<u32> {
    match bytes {
        b"-1" => Reading::Absent,
        _ => text::parsed(bytes, |text| u32::try_from(text::parse_decimal(text.as_bytes())?).ok()),
    }
}

/// The numbers of a function's vectors; `None` if the host does not list them (a recorded host may have only the
/// directory).
pub(super) fn vectors(cx: &mut ReadContext<'_>, function: &Path) -> Option<BTreeSet<u32>> {
    let directory = function.join("msi_irqs");
    match cx.host.io.list(&directory) {
        Ok(names) => {
            let irq = |name: &String| u32::try_from(text::parse_decimal(name.as_bytes())?).ok();
            Some(names.iter().filter_map(irq).collect()).filter(|irqs: &BTreeSet<u32>| !irqs.is_empty())
        }
        Err(error) => {
            if let Some(reason) = reason_of(&error) {
                cx.fault(&directory, reason);
            }
            None
        }
    }
}

/// The names of a function's network interfaces.
pub(super) fn interfaces(cx: &mut ReadContext<'_>, function: &Path) -> Vec<String> {
    cx.host.io.list(&function.join("net")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_parse_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..16)) {
            let _ = numa_node(&bytes);
        }

        #[test]
        fn a_node_below_zero_is_none(node in any::<i32>()) {
            let known = u32::try_from(node).ok();
            prop_assert_eq!(numa_node(node.to_string().as_bytes()).value(), known);
        }
    }
}
