//! Reader of one VF's function.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::host::collector::ReadContext;
use crate::host::file::read_once;
use crate::host::function::address_of;
use crate::host::io::reason_of;
use crate::host::text;
use crate::model::ids::{DeviceName, PciAddress};
use crate::model::reading::{ReadError, Reading};
use crate::model::sriov::{Vf, is_user_space};

/// What rarely changes is read once in this many passes, and when the driver changes.
const SELDOM: u64 = 4;

/// The function that a `virtfn<n>` leads to.
pub(super) struct VfFiles {
    directory: PathBuf,
    driver_link: PathBuf,
    group_link: PathBuf,
    interfaces: PathBuf,
    rdma: PathBuf,
    known: Vf,
    settled: bool,
}

impl VfFiles {
    pub(super) fn new(directory: PathBuf, number: u32, address: PciAddress) -> Self {
        Self {
            driver_link: directory.join("driver"),
            group_link: directory.join("iommu_group"),
            interfaces: directory.join("net"),
            rdma: directory.join("infiniband"),
            directory,
            known: Vf { number, address: Some(address), ..Vf::default() },
            settled: false,
        }
    }

    pub(super) fn address(&self) -> Option<PciAddress> {
        self.known.address
    }

    /// Reads the VF; `None` if it is gone.
    pub(super) fn read(&mut self, cx: &mut ReadContext<'_>, count: u64) -> Option<Vf> {
        let instance = stamp(cx, &self.directory)?;
        let driver = link_name(cx, &self.driver_link);
        let same = self.settled && instance == self.known.instance && driver.as_deref() == self.known.driver.as_deref();
        if !same {
            self.known.instance = instance;
            self.known.driver = driver.map(Arc::from);
        }
        let turn = count % SELDOM == u64::from(self.known.number) % SELDOM;
        if !same || turn {
            self.read_details(cx);
            // A driver takes a moment to initialise, so the details are read once more.
            self.settled = same || !self.settled;
        }
        let user_space = self.known.is_for_user_space();
        let bound = self.known.driver.is_some() && !user_space;
        update_names(&mut self.known.netdevs, &names(cx, bound, &self.interfaces), |name| Arc::from(name));
        update_names(&mut self.known.devices, &names(cx, bound, &self.rdma), DeviceName::new);
        Some(self.known.clone())
    }

    fn read_details(&mut self, cx: &mut ReadContext<'_>) {
        // Reading it waits for the device's lock, which is held while the removal of a function waits for whoever has it
        // open. Such a function has lost its driver already, so it is read right after the driver was seen.
        if self.known.driver.is_some() || !cx.host.live {
            let file = self.directory.join("driver_override");
            self.known.driver_override = read_once(cx, &file, driver_override);
        }
        let group = link_name(cx, &self.group_link).and_then(|name| name.parse().ok());
        self.known.iommu_group = group;
        self.known.group_shared_with = group.map_or_else(Arc::default, |group| self.others(cx, group));
        self.known.node = node(cx, &self.directory, self.known.driver.as_deref());
        let vectors = list(cx, &self.directory.join("msi_irqs")).len();
        self.known.msix = u32::try_from(vectors).ok().filter(|vectors| *vectors > 0);
    }

    /// Other functions of the IOMMU group. Bridges may be in one without harm.
    fn others(&self, cx: &mut ReadContext<'_>, group: u32) -> Arc<[PciAddress]> {
        let directory = cx.host.sysfs.join(format!("kernel/iommu_groups/{group}/devices"));
        let names = list(cx, &directory);
        let mut others: Vec<PciAddress> = names.iter().filter_map(|name| name.parse().ok()).collect();
        others.retain(|other| Some(*other) != self.known.address);
        others.retain(|other| {
            let file = cx.host.sysfs.join(format!("bus/pci/devices/{other}"));
            let class = cx.host.resolve(&file).map(|directory| directory.join("class"));
            let class = class.ok().and_then(|file| read_once(cx, &file, class_code));
            class.is_none_or(|class| class >> 16 != 0x06)
        });
        others.sort_unstable();
        others.into()
    }
}

/// The character device through which a user-space driver exposes a function.
pub(super) fn node(cx: &ReadContext<'_>, directory: &Path, driver: Option<&str>) -> Option<Arc<str>> {
    // Without a driver it may still be open: its removal waits for that.
    if !driver.is_none_or(is_user_space) {
        return None;
    }
    let first = |name: &str| cx.host.io.list(&directory.join(name)).ok()?.into_iter().min();
    let vfio = first("vfio-dev").map(|name| format!("vfio/devices/{name}"));
    vfio.or_else(|| first("uio")).map(Arc::from)
}

/// The last name of a link's target, even if the link dangles.
pub(super) fn link_name(cx: &mut ReadContext<'_>, link: &Path) -> Option<String> {
    match cx.host.io.link(link) {
        Ok(target) => target.file_name().map(|name| name.to_string_lossy().into_owned()),
        Err(error) => {
            match reason_of(&error) {
                // Not a link.
                Some(ReadError::NotSupported) => cx.fault(link, ReadError::Malformed),
                Some(reason) => cx.fault(link, reason),
                None => {}
            }
            None
        }
    }
}

/// The address that a link leads to.
pub(super) fn link_address(cx: &mut ReadContext<'_>, link: &Path) -> Option<PciAddress> {
    link_name(cx, link).and_then(|name| address_of(Path::new(&name)))
}

/// Names in a directory that may not be there.
fn names(cx: &mut ReadContext<'_>, there: bool, directory: &Path) -> Vec<String> {
    if !there {
        return Vec::new();
    }
    list(cx, directory)
}

/// Identity of a directory: changes when it is created again. `None` if it does not exist.
pub(super) fn stamp(cx: &mut ReadContext<'_>, directory: &Path) -> Option<u64> {
    match cx.host.io.stamp(directory) {
        Ok(stamp) => Some(stamp.identity.1),
        Err(error) => {
            if let Some(reason) = reason_of(&error) {
                cx.fault(directory, reason);
            }
            None
        }
    }
}

/// Sorted names in a directory; empty if it does not exist.
pub(super) fn list(cx: &mut ReadContext<'_>, directory: &Path) -> Vec<String> {
    match cx.host.io.list(directory) {
        Ok(mut names) => {
            names.sort_unstable();
            names
        }
        Err(error) => {
            if let Some(reason) = reason_of(&error) {
                cx.fault(directory, reason);
            }
            Vec::new()
        }
    }
}

/// Replaces the known names only if they differ, so that unchanged ones stay shared.
pub(super) fn update_names<T: HasName>(known: &mut Vec<T>, names: &[String], make: impl Fn(&str) -> T) {
    if !known.iter().map(HasName::name).eq(names.iter().map(String::as_str)) {
        *known = names.iter().map(|name| make(name)).collect();
    }
}

/// Something with a name.
pub(super) trait HasName {
    fn name(&self) -> &str;
}

impl HasName for Arc<str> {
    fn name(&self) -> &str {
        self
    }
}

impl HasName for DeviceName {
    fn name(&self) -> &str {
        self.as_str()
    }
}

fn driver_override(bytes: &[u8]) -> Reading<Arc<str>> {
    if bytes == b"(null)" { Reading::Absent } else { text::label(bytes) }
}

fn class_code(bytes: &[u8]) -> Reading<u64> {
    text::parse_hex(bytes).map_or(Reading::Unreadable(ReadError::Malformed), Reading::Value)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_parse_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..32)) {
            let _ = (driver_override(&bytes), class_code(&bytes));
        }
    }
}
