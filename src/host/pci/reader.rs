//! Reader of one PCI function.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

use super::files::FunctionFiles;
use crate::host::collector::{DeviceReader, ReadContext};
use crate::host::function::address_of;
use crate::host::io::{DirStamp, reason_of};
use crate::host::text;
use crate::model::ids::PciAddress;
use crate::model::pcie::{FunctionKind, PciFunction};
use crate::model::reading::ReadError;
use crate::model::snapshot::Fact;

/// Where a function is.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FunctionLocation {
    /// Its address as text: the key of its reader.
    pub(super) key: Arc<str>,
    pub(super) address: PciAddress,
    pub(super) directory: PathBuf,
    /// The function whose directory holds its own.
    pub(super) upstream: Option<PciAddress>,
}

/// Reads one PCI function.
pub(super) struct PciFunctionReader {
    location: Arc<FunctionLocation>,
    stamp: Option<DirStamp>,
    /// Whether a link or listing could not be read, so that the directory is checked again on the next pass.
    unsure: bool,
    is_idle: bool,
    kind: FunctionKind,
    link_name: PciAddress,
    vfs_present: Option<u32>,
    driver_link: PathBuf,
    driver: Option<Arc<str>>,
    files: FunctionFiles,
    quarantined: usize,
}

impl PciFunctionReader {
    pub(super) fn new(location: Arc<FunctionLocation>) -> Self {
        Self {
            stamp: None,
            unsure: false,
            is_idle: false,
            kind: FunctionKind::Plain,
            link_name: location.address,
            vfs_present: None,
            driver_link: location.directory.join("driver"),
            driver: None,
            files: FunctionFiles::new(&location.directory),
            quarantined: 0,
            location,
        }
    }

    /// Follows changes of the directory. `None` if the function is gone or its directory can't be read.
    fn refresh(&mut self, cx: &mut ReadContext<'_>) -> Option<()> {
        let directory = &*self.location.directory;
        let io = &cx.host.io;
        let outcome = io.stamp(directory).and_then(|stamp| {
            // A directory's modification time does not change when VF links come and go, so that of a PF is listed each
            // time.
            let known = self.stamp == Some(stamp) && !self.unsure && self.kind != FunctionKind::Physical;
            Ok((stamp, if known { None } else { Some(io.list(directory)?) }))
        });
        match outcome {
            Ok((_, None)) => {}
            Ok((stamp, Some(names))) if self.stamp == Some(stamp) && !self.unsure => {
                self.vfs_present = Some(vfs(&names));
            }
            Ok((stamp, Some(names))) => self.relist(cx, stamp, &names),
            Err(error) => {
                if let Some(reason) = reason_of(&error) {
                    cx.fault(directory, reason);
                }
                *self = Self::new(Arc::clone(&self.location));
                return None;
            }
        }
        Some(())
    }

    fn relist(&mut self, cx: &mut ReadContext<'_>, stamp: DirStamp, names: &[String]) {
        if self.stamp.is_some_and(|old| old.identity != stamp.identity) {
            // Another function has the address now: quarantines of the old one are void.
            *self = Self::new(Arc::clone(&self.location));
        }
        self.stamp = Some(stamp);
        self.is_idle = is_idle(names);
        self.unsure = false;
        self.kind = if has(names, "physfn") {
            // The listing follows the same link and records its faults.
            let target = cx.host.io.link(&self.location.directory.join("physfn")).inspect_err(|_| self.unsure = true);
            FunctionKind::Virtual { pf: target.ok().and_then(|target| address_of(&target)) }
        } else if has(names, "sriov_totalvfs") {
            FunctionKind::Physical
        } else {
            FunctionKind::Plain
        };
        self.vfs_present = (self.kind == FunctionKind::Physical).then(|| vfs(names));
        self.files.relist(names);
        self.link_name = self.link_name(cx);
    }

    /// The lowest function at this end of the link. Functions of one card share bus and device number, or the bus
    /// alone where functions are numbered through (ARI); VFs, which may be on further buses, share their PF's link.
    fn link_name(&mut self, cx: &mut ReadContext<'_>) -> PciAddress {
        let card = match self.kind {
            FunctionKind::Virtual { pf: Some(pf) } => pf,
            _ => self.location.address,
        };
        if (card.device, card.function) == (0, 0) {
            return card;
        }
        let whole_bus = card.device != 0 && self.files.numbered_through(cx);
        if card.function == 0 && !whole_bus {
            return card;
        }
        let Some(parent) = self.location.directory.parent() else { return card };
        let beside = match cx.host.io.list(parent) {
            Ok(names) => names,
            Err(error) => {
                // Listed again on the next pass. If there is a function above, its reader records the fault.
                self.unsure = true;
                if let Some(reason) = reason_of(&error).filter(|_| self.location.upstream.is_none()) {
                    cx.fault(parent, reason);
                }
                // Every device has a function 0.
                return PciAddress { function: 0, ..card };
            }
        };
        let mut lower: Vec<(PciAddress, &String)> = beside
            .iter()
            .filter_map(|name| Some((name.parse::<PciAddress>().ok()?, name)))
            .filter(|(other, _)| *other < card && (other.domain, other.bus) == (card.domain, card.bus))
            .filter(|(other, _)| whole_bus || other.device == card.device)
            .collect();
        lower.sort_unstable();
        let is_vf = |name: &str| cx.host.io.link(&parent.join(name).join("physfn")).is_ok();
        lower.into_iter().find(|(_, name)| !is_vf(name)).map_or(card, |(address, _)| address)
    }

    /// Reads the bound driver. A dangling link still names it.
    fn refresh_driver(&mut self, cx: &mut ReadContext<'_>) {
        let driver = match cx.host.io.link(&self.driver_link) {
            Ok(target) if target.file_name() == self.driver_link.file_name() => {
                // The link may lead to itself.
                let led = cx.host.resolve(&self.driver_link);
                led.or_else(|error| if reason_of(&error).is_none() { Ok(target) } else { Err(error) })
            }
            outcome => outcome,
        };
        let driver = match driver {
            Ok(target) => target.file_name().map(|name| name.to_string_lossy().into_owned()),
            Err(error) => {
                match reason_of(&error) {
                    // Not a link.
                    Some(_) if error.kind() == ErrorKind::InvalidInput => {
                        cx.fault(&self.driver_link, ReadError::Malformed);
                    }
                    Some(reason) => cx.fault(&self.driver_link, reason),
                    None => {}
                }
                None
            }
        };
        if self.driver.as_deref() != driver.as_deref() {
            self.driver = driver.map(Arc::from);
            // A driver may lower the number of VFs.
            self.files.forget_vfs_limit();
        }
    }

    /// Whether the directory that was read is still the one at the path.
    fn stayed(&self, cx: &ReadContext<'_>) -> bool {
        let now = cx.host.io.stamp(&self.location.directory).ok();
        now.map(|stamp| stamp.identity) == self.stamp.map(|stamp| stamp.identity)
    }
}

impl DeviceReader for PciFunctionReader {
    fn read(&mut self, cx: &mut ReadContext<'_>) -> Vec<Fact> {
        if cx.listed || self.unsure || self.stamp.is_none() {
            if self.refresh(cx).is_none() {
                return Vec::new();
            }
            self.refresh_driver(cx);
        }
        let class = self.files.class(cx);
        // The driver of a network card that still starts makes its devices later.
        self.unsure |= self.is_idle && class.is_some_and(|class| class.0 >> 16 == 0x02);
        let function = PciFunction {
            address: self.location.address,
            upstream: self.location.upstream,
            link_name: self.link_name,
            class,
            ids: self.files.ids(cx),
            driver: self.driver.clone(),
            numa_node: self.files.numa_node(cx),
            is_idle: self.is_idle,
            kind: self.kind,
            vfs_limit: self.files.vfs_limit(cx),
            vfs_present: self.vfs_present,
            link: self.files.link(cx),
            aer: self.files.aer(cx, self.kind),
        };
        self.quarantined = self.files.quarantined();
        // Half a reading of a function that has gone is no fact.
        if self.stayed(cx) { vec![Arc::new(function)] } else { Vec::new() }
    }

    fn quarantined(&self) -> usize {
        self.quarantined
    }
}

fn has(names: &[String], name: &str) -> bool {
    names.iter().any(|other| other == name)
}

/// Whether a directory has nothing that a driver makes of a function: no RDMA device, no interface, no interrupts, no
/// device for the driver's other parts (`mlx5_core.eth.0`). VFs are their holders' matter.
pub(in crate::host) fn is_idle(names: &[String]) -> bool {
    let made = |name: &String| {
        matches!(&**name, "infiniband" | "net" | "physfn" | "msi_irqs")
            || name.split('.').nth(2).is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    !names.iter().any(made)
}

/// Number of VFs by their links: reading `sriov_numvfs` waits for a lock that is held while VFs are created.
fn vfs(names: &[String]) -> u32 {
    let indices = names.iter().filter_map(|name| name.strip_prefix("virtfn"));
    let count = indices.filter(|index| text::parse_decimal(index.as_bytes()).is_some()).count();
    u32::try_from(count).unwrap_or(u32::MAX)
}
