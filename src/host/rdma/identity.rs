//! What seldom changes of a device: who made it, its firmware, its GUIDs, the PCI function behind it.

use std::path::Path;

use crate::host::collector::ReadContext;
use crate::host::file::PolledFile;
use crate::host::text;
use crate::model::ids::{Guid, PciAddress};
use crate::model::rdma::DeviceIdentity;
use crate::model::reading::Reading;

/// Reads a file once, through a descriptor that is not kept.
pub(super) fn once<T>(cx: &mut ReadContext<'_>, path: &Path, parse: impl FnOnce(&[u8]) -> Reading<T>) -> Option<T> {
    PolledFile::new(path.to_owned()).read(cx, parse).value()
}

/// Reads a device's identity files. All of them are answered from the kernel's memory.
pub(super) fn read(cx: &mut ReadContext<'_>, device: &Path) -> DeviceIdentity {
    DeviceIdentity {
        pci_address: pci_address(cx, device),
        firmware_version: once(cx, &device.join("fw_ver"), text::label),
        board_id: once(cx, &device.join("board_id"), text::label),
        hca_type: once(cx, &device.join("hca_type"), text::label),
        node_guid: once(cx, &device.join("node_guid"), guid),
        sys_image_guid: once(cx, &device.join("sys_image_guid"), guid),
    }
}

fn guid(bytes: &[u8]) -> Reading<Guid> {
    text::parsed(bytes, Guid::parse)
}

/// The PCI function behind a device. A sub-function's device is an auxiliary device below it. A software device has
/// none, although old kernels put it below the function of the interface it runs on; rxe shows by its `parent` file.
fn pci_address(cx: &mut ReadContext<'_>, device: &Path) -> Option<PciAddress> {
    if cx.host.io.open(&device.join("parent")).is_ok() {
        return None;
    }
    let own = cx.host.resolve(device).ok()?;
    let behind = cx.host.resolve(&own.join("device")).unwrap_or(own);
    behind.components().rev().find_map(|part| part.as_os_str().to_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_bytes_break_the_parser(bytes in proptest::collection::vec(any::<u8>(), 0..24), like in "[0-9a-f:]{0,20}") {
            let _ = (guid(&bytes), guid(like.as_bytes()));
        }
    }
}
