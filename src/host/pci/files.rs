//! The files of one PCI function's directory.

use std::path::Path;

use super::aer::AerFiles;
use super::link::{self, LinkWidth};
use crate::host::attribute::{Attribute, AttributeFile, CachedAttribute};
use crate::host::collector::ReadContext;
use crate::host::text;
use crate::model::pcie::{Aer, FunctionKind, LinkEnd, PciClass};
use crate::model::reading::{ReadError, Reading};
use crate::model::units::{Lanes, TransfersPerSecond};

/// Every file that is read of a function. What the function is and can do is read once; how its link runs and what
/// went wrong, at each pass.
pub(super) struct FunctionFiles {
    class: CachedAttribute<PciClass>,
    vendor: CachedAttribute<u16>,
    device: CachedAttribute<u16>,
    numa_node: CachedAttribute<u32>,
    total_vfs: CachedAttribute<u16>,
    ari_enabled: CachedAttribute<bool>,
    max_speed: CachedAttribute<TransfersPerSecond>,
    max_width: CachedAttribute<LinkWidth>,
    speed: Attribute,
    width: Attribute,
    aer: AerFiles,
}

impl FunctionFiles {
    pub(super) fn new(directory: &Path) -> Self {
        Self {
            class: CachedAttribute::new(directory, "class"),
            vendor: CachedAttribute::new(directory, "vendor"),
            device: CachedAttribute::new(directory, "device"),
            numa_node: CachedAttribute::new(directory, "numa_node"),
            total_vfs: CachedAttribute::new(directory, "sriov_totalvfs"),
            ari_enabled: CachedAttribute::new(directory, "ari_enabled"),
            max_speed: CachedAttribute::new(directory, "max_link_speed"),
            max_width: CachedAttribute::new(directory, "max_link_width"),
            speed: Attribute::new(directory, "current_link_speed"),
            width: Attribute::new(directory, "current_link_width"),
            aer: AerFiles::new(directory),
        }
    }

    /// Takes note of what the directory has now.
    pub(super) fn relist(&mut self, names: &[String]) {
        self.all().for_each(|file| file.relist(names));
    }

    /// How many are being left alone.
    pub(super) fn quarantined(&mut self) -> usize {
        self.all().filter(|file| file.is_quarantined()).count()
    }

    fn all(&mut self) -> impl Iterator<Item = &mut dyn AttributeFile> {
        let own: [&mut dyn AttributeFile; 10] = [
            &mut self.class,
            &mut self.vendor,
            &mut self.device,
            &mut self.numa_node,
            &mut self.total_vfs,
            &mut self.ari_enabled,
            &mut self.max_speed,
            &mut self.max_width,
            &mut self.speed,
            &mut self.width,
        ];
        own.into_iter().chain(self.aer.all().map(|file| -> &mut dyn AttributeFile { file }))
    }

    pub(super) fn class(&mut self, cx: &mut ReadContext<'_>) -> Option<PciClass> {
        self.class.read(cx, |bytes| hex(bytes).map(PciClass)).value()
    }

    /// Vendor and device identifiers.
    pub(super) fn ids(&mut self, cx: &mut ReadContext<'_>) -> Option<(u16, u16)> {
        let vendor = self.vendor.read(cx, hex).value();
        let device = self.device.read(cx, hex).value();
        vendor.zip(device)
    }

    pub(super) fn numa_node(&mut self, cx: &mut ReadContext<'_>) -> Option<u32> {
        let node = |bytes: &[u8]| if bytes == b"-1" { Reading::Absent } else { decimal(bytes) };
        self.numa_node.read(cx, node).value()
    }

    pub(super) fn vfs_limit(&mut self, cx: &mut ReadContext<'_>) -> Option<u32> {
        self.total_vfs.read(cx, decimal).value().map(u32::from)
    }

    /// Lets the limit be read again.
    pub(super) fn forget_vfs_limit(&mut self) {
        self.total_vfs.forget();
    }

    /// Whether functions on this bus are numbered through, beyond the eight of a device (ARI).
    pub(super) fn numbered_through(&mut self, cx: &mut ReadContext<'_>) -> bool {
        self.ari_enabled.read(cx, |bytes| text::counter(bytes).map(|flag| flag == 1)).value() == Some(true)
    }

    pub(super) fn link(&mut self, cx: &mut ReadContext<'_>) -> LinkEnd {
        let width = self.width.read(cx, link::width);
        LinkEnd {
            speed: self.speed.read(cx, link::speed),
            width: lanes(width),
            max_speed: self.max_speed.read(cx, link::speed),
            max_width: lanes(self.max_width.read(cx, link::width)),
            off_bus: width == Reading::Value(LinkWidth::AllOnes),
        }
    }

    /// The error counters; those of VFs, which have no link of their own and may be hundreds, are left alone.
    pub(super) fn aer(&mut self, cx: &mut ReadContext<'_>, kind: FunctionKind) -> Aer {
        if matches!(kind, FunctionKind::Virtual { .. }) { Aer::default() } else { self.aer.read(cx) }
    }
}

fn lanes(width: Reading<LinkWidth>) -> Reading<Lanes> {
    match width.map(LinkWidth::lanes) {
        Reading::Value(lanes) => lanes.into(),
        Reading::Absent => Reading::Absent,
        Reading::Unreadable(reason) => Reading::Unreadable(reason),
    }
}

/// A hexadecimal number that fits.
fn hex<T: TryFrom<u64>>(bytes: &[u8]) -> Reading<T> {
    fitting(text::parse_hex(bytes))
}

/// A decimal number that fits.
fn decimal<T: TryFrom<u64>>(bytes: &[u8]) -> Reading<T> {
    fitting(text::parse_decimal(bytes))
}

fn fitting<T: TryFrom<u64>>(number: Option<u64>) -> Reading<T> {
    number.and_then(|number| T::try_from(number).ok()).map_or(Reading::Unreadable(ReadError::Malformed), Reading::Value)
}
