//! One RDMA device, read pass by pass: its identity, its ports, its own counters.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::counters::{CounterDirs, CounterSource, stamp};
use super::port::{PortFiles, PortScope};
use crate::host::collector::{Depth, DeviceReader, Discovered, Filter, ReadContext};
use crate::host::file::read_once;
use crate::host::io::{DirStamp, reason_of};
use crate::host::netlink::client::RdmaNetlinkClient;
use crate::host::netlink::socket::NetlinkConnector;
use crate::host::text::{self, parse_decimal};
use crate::model::ids::{DeviceName, Guid, PciAddress, natural};
use crate::model::rdma::{DeviceIdentity, RdmaDevice};
use crate::model::reading::{ReadError, Reading};
use crate::model::snapshot::Fact;
use crate::model::time::BootTime;

/// Where RDMA devices are listed.
pub(super) fn class(sysfs: &Path) -> PathBuf {
    sysfs.join("class/infiniband")
}

/// The devices in the class that the filter allows. No class is no devices.
pub(super) fn devices(cx: &mut ReadContext<'_>, class: &Path, filter: &Filter) -> Result<Vec<Discovered>, ReadError> {
    let mut names = cx.list(class)?;
    names.retain(|name| !name.starts_with('.') && filter.allows(name));
    names.sort_unstable_by(|a, b| natural(a, b));
    Ok(names
        .iter()
        .map(|name| Discovered { key: Arc::from(name.as_str()), device: Some(DeviceName::new(name)) })
        .collect())
}

/// The device a reader is for.
pub(super) fn device_of(found: &Discovered) -> DeviceName {
    found.device.clone().unwrap_or_else(|| DeviceName::new(&found.key))
}

/// How long identity, GUIDs and interface names are kept. Firmware can change under a running device.
const SELDOM: Duration = Duration::from_secs(60);

/// The reader of one device.
pub(super) struct RdmaDeviceReader {
    name: DeviceName,
    /// Its entry in the class, usually a link.
    entry: PathBuf,
    /// The directory that the entry leads to.
    dir: PathBuf,
    ports_dir: PathBuf,
    stamps: Option<(DirStamp, Option<DirStamp>)>,
    ports: Vec<PortFiles>,
    counters: CounterDirs,
    counters_at: BootTime,
    identity: Arc<DeviceIdentity>,
    identity_at: BootTime,
    client: Option<RdmaNetlinkClient>,
}

impl RdmaDeviceReader {
    /// The reader of the device with this entry in the class.
    pub(super) fn new(name: DeviceName, entry: PathBuf, connect: Option<NetlinkConnector>) -> Self {
        Self {
            client: connect.map(|connect| RdmaNetlinkClient::new(name.clone(), connect)),
            name,
            ports_dir: entry.join("ports"),
            stamps: None,
            ports: Vec::new(),
            counters: CounterDirs::of_device(&entry),
            counters_at: BootTime::default(),
            identity: Arc::default(),
            identity_at: BootTime::default(),
            dir: PathBuf::new(),
            entry,
        }
    }

    /// Resolves the entry; a device that was removed and added again may have another directory.
    fn locate(&mut self, cx: &ReadContext<'_>) {
        self.dir = cx.host.resolve(&self.entry).unwrap_or_else(|_| self.entry.clone());
        self.ports_dir = self.dir.join("ports");
        self.stamps = None;
    }

    /// Checks for changes; `None` if the device is gone.
    fn refresh(&mut self, cx: &mut ReadContext<'_>) -> Option<bool> {
        if self.stamps.is_none() {
            self.locate(cx);
        }
        let own = match stamp(cx, &self.dir) {
            Ok(None) if self.stamps.is_some() => {
                self.locate(cx);
                stamp(cx, &self.dir)
            }
            own => own,
        };
        if let (false, Ok(Some(own)), Some((known, _))) = (cx.listed, &own, &self.stamps)
            && own == known
        {
            return Some(false);
        }
        let mut changed = false;
        match own {
            Ok(None) => {
                self.stamps = None;
                return None;
            }
            Ok(Some(own)) => {
                // If the stamp of the ports is unknown, they count as unchanged.
                let ports = stamp(cx, &self.ports_dir).unwrap_or_else(|_| self.stamps.and_then(|(_, ports)| ports));
                if self.stamps != Some((own, ports)) {
                    self.stamps = Some((own, ports));
                    self.list_ports(cx);
                    self.counters = CounterDirs::of_device(&self.dir);
                    if let Some(client) = &mut self.client {
                        client.forget();
                    }
                    changed = true;
                }
            }
            // The stamp is unknown: the device keeps its last state, if it had one.
            Err(_) => {
                self.stamps?;
            }
        }
        changed |= self.counters.refresh(cx);
        for port in &mut self.ports {
            changed |= port.refresh(cx);
        }
        Some(changed)
    }

    fn list_ports(&mut self, cx: &mut ReadContext<'_>) {
        let there = self.stamps.is_some_and(|(_, ports)| ports.is_some());
        let listed = if there { cx.host.io.list(&self.ports_dir) } else { Ok(Vec::new()) };
        let names = listed.unwrap_or_else(|error| {
            if let Some(reason) = reason_of(&error) {
                cx.fault(&self.ports_dir, reason);
                self.stamps = self.stamps.map(|(own, _)| (own, None));
            }
            Vec::new()
        });
        let number = |name: &String| {
            let plain = !name.starts_with('0');
            parse_decimal(name.as_bytes()).filter(|_| plain).and_then(|number| u32::try_from(number).ok())
        };
        let mut numbers: Vec<u32> = names.iter().filter_map(number).collect();
        numbers.sort_unstable();
        self.ports = numbers.into_iter().map(|number| PortFiles::new(&self.ports_dir, number)).collect();
    }

    fn read_identity(&mut self, cx: &mut ReadContext<'_>) {
        let identity = read_identity(cx, &self.dir);
        if *self.identity != identity {
            self.identity = Arc::new(identity);
        }
        self.identity_at = cx.now;
    }
}

impl DeviceReader for RdmaDeviceReader {
    fn read(&mut self, cx: &mut ReadContext<'_>) -> Vec<Fact> {
        let Some(changed) = self.refresh(cx) else { return Vec::new() };
        let full = changed || cx.depth == Depth::Full;
        let seldom = changed || (full && cx.now.since(self.identity_at) >= SELDOM);
        if seldom {
            self.read_identity(cx);
        }
        if full {
            self.counters.read(cx, &CounterSource::Files);
            self.counters_at = cx.now;
        }
        let mut client = self.client.as_mut().filter(|_| !self.ports.is_empty());
        if client.as_mut().is_some_and(|client| !client.is_concurrent()) {
            client = None;
        }
        let scope = PortScope { full, seldom };
        let read = |port: &mut PortFiles| port.read(cx, scope, client.as_deref_mut());
        let ports = self.ports.iter_mut().filter_map(read).collect();
        vec![Arc::new(RdmaDevice {
            name: self.name.clone(),
            identity: Arc::clone(&self.identity),
            ports,
            counters: self.counters.hardware(),
            counters_at: self.counters_at,
        })]
    }

    fn quarantined(&self) -> usize {
        let netlink = self.client.as_ref().map_or(0, RdmaNetlinkClient::not_offered);
        self.ports.iter().map(PortFiles::quarantined).sum::<usize>() + self.counters.quarantined() + netlink
    }
}

/// Reads a device's identity files. All of them come from kernel memory.
fn read_identity(cx: &mut ReadContext<'_>, device: &Path) -> DeviceIdentity {
    let (pci_address, sub_function) = function(cx, device);
    DeviceIdentity {
        pci_address,
        sub_function,
        firmware_version: read_once(cx, &device.join("fw_ver"), text::label),
        board_id: read_once(cx, &device.join("board_id"), text::label),
        hca_type: read_once(cx, &device.join("hca_type"), text::label),
        node_guid: read_once(cx, &device.join("node_guid"), guid),
        sys_image_guid: read_once(cx, &device.join("sys_image_guid"), guid),
    }
}

fn guid(bytes: &[u8]) -> Reading<Guid> {
    text::parsed(bytes, Guid::parse)
}

/// The PCI function behind a device. A sub-function's device is an auxiliary device below it. A software device has
/// none, although old kernels put it below the function of the interface it runs on; rxe shows by its `parent` file.
fn function(cx: &mut ReadContext<'_>, device: &Path) -> (Option<PciAddress>, Option<Arc<str>>) {
    if cx.host.io.open(&device.join("parent")).is_ok() {
        return (None, None);
    }
    let Ok(own) = cx.host.resolve(device) else { return (None, None) };
    let behind = cx.host.resolve(&own.join("device")).unwrap_or(own);
    let address = behind.components().rev().find_map(|part| part.as_os_str().to_str()?.parse().ok());
    let last = behind.file_name().and_then(|name| name.to_str());
    (address, last.filter(|name| name.contains(".sf.")).map(Arc::from))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_parse_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..24), like in "[0-9a-f:]{0,20}") {
            let _ = (guid(&bytes), guid(like.as_bytes()));
        }
    }
}
