//! One network interface, read again and again.

use std::sync::Arc;

use super::NetdevLocation;
use crate::host::attribute::{Attribute, AttributeFile, CachedAttribute};
use crate::host::collector::{DeviceReader, ReadContext};
use crate::host::io::{DirStamp, reason_of};
use crate::host::text;
use crate::model::net::Netdev;
use crate::model::reading::{ReadError, Reading};
use crate::model::snapshot::Fact;
use crate::model::units::BytesPerSecond;

/// The reader of one interface.
pub(super) struct NetdevReader {
    name: Arc<str>,
    location: NetdevLocation,
    stamp: Option<DirStamp>,
    port_index: CachedAttribute<u32>,
    hardware_type: CachedAttribute<u32>,
    carrier: Attribute,
    speed: Attribute,
    operstate: Attribute,
    carrier_changes: Attribute,
}

impl NetdevReader {
    pub(super) fn new(name: Arc<str>, location: NetdevLocation) -> Self {
        let directory = &*location.directory;
        Self {
            name,
            stamp: None,
            port_index: CachedAttribute::new(directory, "dev_port"),
            hardware_type: CachedAttribute::new(directory, "type"),
            carrier: Attribute::new(directory, "carrier"),
            speed: Attribute::new(directory, "speed"),
            operstate: Attribute::new(directory, "operstate"),
            carrier_changes: Attribute::new(directory, "carrier_changes"),
            location,
        }
    }

    /// Follows changes of the directory. None when the interface is not there, or its directory can't be read.
    fn look(&mut self, cx: &mut ReadContext<'_>) -> Option<()> {
        let directory = &*self.location.directory;
        let looked = cx.host.io.stamp(directory).and_then(|stamp| {
            let names = if self.stamp == Some(stamp) { None } else { Some(cx.host.io.list(directory)?) };
            Ok((stamp, names))
        });
        match looked {
            Ok((stamp, names)) => {
                if let Some(names) = names {
                    self.files().into_iter().for_each(|file| file.relist(&names));
                }
                self.stamp = Some(stamp);
                Some(())
            }
            Err(error) => {
                if let Some(reason) = reason_of(&error) {
                    cx.fault(directory, reason);
                }
                self.stamp = None;
                None
            }
        }
    }

    fn files(&mut self) -> [&mut dyn AttributeFile; 6] {
        [
            &mut self.port_index,
            &mut self.hardware_type,
            &mut self.carrier,
            &mut self.speed,
            &mut self.operstate,
            &mut self.carrier_changes,
        ]
    }
}

impl DeviceReader for NetdevReader {
    fn read(&mut self, cx: &mut ReadContext<'_>) -> Vec<Fact> {
        if self.look(cx).is_none() {
            return Vec::new();
        }
        let netdev = Netdev {
            name: Arc::clone(&self.name),
            pci_address: self.location.pci_address,
            port_index: self.port_index.read(cx, small).value(),
            hardware_type: self.hardware_type.read(cx, small).value(),
            carrier: self.carrier.read_unless_down(cx, carrier),
            speed: self.speed.read_unless_down(cx, speed),
            operstate: self.operstate.read(cx, text::label).value(),
            carrier_changes: self.carrier_changes.read(cx, text::counter).value(),
        };
        vec![Arc::new(netdev)]
    }

    fn quarantined(&self) -> usize {
        let settled = [self.port_index.is_quarantined(), self.hardware_type.is_quarantined()];
        let read =
            [&self.carrier, &self.speed, &self.operstate, &self.carrier_changes].map(AttributeFile::is_quarantined);
        settled.into_iter().chain(read).filter(|quarantined| *quarantined).count()
    }
}

fn small(bytes: &[u8]) -> Reading<u32> {
    let number = text::parse_decimal(bytes).and_then(|number| u32::try_from(number).ok());
    number.map_or(Reading::Unreadable(ReadError::Malformed), Reading::Value)
}

fn carrier(bytes: &[u8]) -> Reading<bool> {
    match bytes {
        b"0" => Reading::Value(false),
        b"1" => Reading::Value(true),
        _ => Reading::Unreadable(ReadError::Malformed),
    }
}

/// Megabits per second. The kernel's word for an unknown speed is -1, on some kernels printed without its sign;
/// some drivers say 0.
fn speed(bytes: &[u8]) -> Reading<BytesPerSecond> {
    if matches!(bytes, b"-1" | b"4294967295" | b"0") {
        return Reading::Absent;
    }
    small(bytes).map(|megabits| BytesPerSecond::from_gbits(f64::from(megabits) / 1e3))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn speeds() {
        assert_eq!(speed(b"200000"), Reading::Value(BytesPerSecond(25e9)));
        assert_eq!(speed(b"100"), Reading::Value(BytesPerSecond(12.5e6)));
        for unknown in [&b"-1"[..], b"4294967295", b"0"] {
            assert_eq!(speed(unknown), Reading::Absent);
        }
        for wrong in [&b""[..], b"-2", b"fast", b"4294967296"] {
            assert_eq!(speed(wrong).reason(), Some(ReadError::Malformed));
        }
    }

    proptest! {
        #[test]
        fn no_bytes_break_the_parsers(bytes in proptest::collection::vec(any::<u8>(), 0..16)) {
            let _ = (small(&bytes), carrier(&bytes), speed(&bytes));
        }
    }
}
