//! The network interface of a port whose GID table names none: iWARP ports have no interface there, and EFA's interface is
//! another function.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::host::collector::ReadContext;
use crate::host::file::read_once;
use crate::host::io::reason_of;
use crate::host::text;
use crate::model::ids::Guid;
use crate::model::reading::{ReadError, Reading};

/// The interface of a port by its number on the device's function (`net/<name>/dev_port` counts from 0).
pub(super) fn by_number(cx: &mut ReadContext<'_>, device: &Path, port: u32) -> Option<Arc<str>> {
    // What fails here, the listings of functions and interfaces count.
    let directory = cx.host.resolve(&device.join("device")).ok()?.join("net");
    // A function without interfaces has no such directory.
    let names = cx.list(&directory).ok()?;
    let number = |name: &&String| {
        let number = read_once(cx, &directory.join(name).join("dev_port"), text::counter);
        number.and_then(|number| number.checked_add(1)) == Some(u64::from(port))
    };
    let of_port: Vec<&String> = names.iter().filter(number).collect();
    match of_port.as_slice() {
        [only] => Some(Arc::from(only.as_str())),
        _ => None,
    }
}

/// The interface whose MAC address is in a GUID (EUI-64: `ff:fe` in the middle, one bit of the first byte inverted). EFA's
/// GID is made of the address of the network interface that it shares with `ena`
/// (`drivers/infiniband/hw/efa/efa_verbs.c`).
pub(in crate::host) fn by_address(cx: &mut ReadContext<'_>, guid: Guid) -> Option<Arc<str>> {
    let [a, b, c, 0xff, 0xfe, d, e, f] = guid.0.to_be_bytes() else { return None };
    let mac = [a ^ 0x02, b, c, d, e, f].map(|byte| format!("{byte:02x}")).join(":");
    let class = cx.host.sysfs.join("class/net");
    let mut names = cx.list(&class).ok()?;
    names.sort_unstable();
    let name = names.into_iter().find(|name| {
        let Some(directory) = found(cx, &class.join(name), |cx, link| cx.host.resolve(link)) else { return false };
        // Bridges and VLANs above it have the same address, and no device of their own.
        found(cx, &directory.join("device"), |cx, link| cx.host.io.link(link)).is_some()
            && read_once(cx, &directory.join("address"), text::label).is_some_and(|address| *address == *mac)
    })?;
    Some(Arc::from(name))
}

/// What a link leads to; `None` if it does not exist, and if it could not be read, which is recorded as a fault.
pub(in crate::host) fn found(
    cx: &mut ReadContext<'_>,
    link: &Path,
    follow: impl FnOnce(&ReadContext<'_>, &Path) -> io::Result<PathBuf>,
) -> Option<PathBuf> {
    match follow(cx, link) {
        Ok(target) => Some(target),
        Err(error) => {
            match reason_of(&error) {
                // Not a link.
                Some(_) if error.kind() == io::ErrorKind::InvalidInput => cx.fault(link, ReadError::Malformed),
                Some(reason) => cx.fault(link, reason),
                None => {}
            }
            None
        }
    }
}

/// The GUID in a port's first GID.
pub(in crate::host) fn first_gid(cx: &mut ReadContext<'_>, port: &Path) -> Option<Guid> {
    read_once(cx, &port.join("gids/0"), parse_gid)
}

/// The port's GUID in a GID: eight groups of four digits. Entries that are zero, or hold an IPv4 address, have none.
pub(super) fn parse_gid(bytes: &[u8]) -> Reading<Guid> {
    let Ok(text) = std::str::from_utf8(bytes) else { return Reading::Unreadable(ReadError::Malformed) };
    let is_group = |group: &str| group.len() == 4 && group.bytes().all(|byte| byte.is_ascii_hexdigit());
    if text.split(':').count() != 8 || !text.split(':').all(is_group) {
        return Reading::Unreadable(ReadError::Malformed);
    }
    Guid::from_gid(text).into()
}
