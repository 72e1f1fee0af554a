//! RDMA devices and their ports: `/sys/class/infiniband`, and rdma netlink where the running kernel offers it.

mod counters;
mod netlink;
mod port;
mod reader;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::collector::{Collector, DeviceReader, Discovered, Filter, ReadContext, Setup, Spec};
use super::netlink::socket::{self, NetlinkConnector};
use crate::model::ids::{DeviceName, natural};
use crate::model::reading::ReadError;
pub use netlink::{QUEUE_PAIRS, RESOURCES};
use reader::RdmaDeviceReader;

/// RDMA devices and ports.
pub const SPEC: Spec = Spec {
    name: "rdma",
    about: "RDMA devices and ports, their states, rates and counters (/sys/class/infiniband, rdma netlink)",
    interval: Duration::from_secs(5),
    deadline: Duration::from_secs(2),
    fresh: true,
    make: |setup| Box::new(RdmaCollector::new(setup, setup.host.live.then(socket::kernel))),
};

/// Where RDMA devices are listed.
fn class(sysfs: &Path) -> PathBuf {
    sysfs.join("class/infiniband")
}

/// The devices in the class that the filter allows. No class is no devices.
fn devices(cx: &mut ReadContext<'_>, class: &Path, filter: &Filter) -> Result<Vec<Discovered>, ReadError> {
    let mut names = cx.list(class)?;
    names.retain(|name| !name.starts_with('.') && filter.allows(name));
    names.sort_unstable_by(|a, b| natural(a, b));
    Ok(names
        .iter()
        .map(|name| Discovered { key: Arc::from(name.as_str()), device: Some(DeviceName::new(name)) })
        .collect())
}

/// The device a reader is for.
fn device_of(found: &Discovered) -> DeviceName {
    found.device.clone().unwrap_or_else(|| DeviceName::new(&found.key))
}

struct RdmaCollector {
    class: PathBuf,
    filter: Filter,
    connect: Option<NetlinkConnector>,
}

impl RdmaCollector {
    fn new(setup: &Setup, connect: Option<NetlinkConnector>) -> Self {
        Self { class: class(&setup.host.sysfs), filter: setup.filter.clone(), connect }
    }
}

impl Collector for RdmaCollector {
    fn discover(&mut self, cx: &mut ReadContext<'_>) -> Result<Vec<Discovered>, ReadError> {
        devices(cx, &self.class, &self.filter)
    }

    fn open(&mut self, found: &Discovered) -> Box<dyn DeviceReader> {
        Box::new(RdmaDeviceReader::new(device_of(found), self.class.join(&*found.key), self.connect.clone()))
    }
}
