//! RDMA devices and their ports: `/sys/class/infiniband`, and rdma netlink where the running kernel offers it.

mod asked;
mod counters;
mod identity;
mod lane;
mod parse;
mod port;
pub mod queues;
pub mod resources;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::collector::{Collector, Filter, Found, Lane, Pass, Setup, Spec};
use super::netlink::socket::{self, Connect};
use crate::model::ids::{DeviceName, natural};
use crate::model::reading::ReadError;
use lane::DeviceLane;

/// RDMA devices and ports.
pub const SPEC: Spec = Spec {
    name: "rdma",
    about: "RDMA devices and ports, their states, rates and counters (/sys/class/infiniband, rdma netlink)",
    interval: Duration::from_secs(5),
    deadline: Duration::from_secs(2),
    fresh: true,
    make: |setup| Box::new(Rdma::new(setup, setup.host.live.then(socket::kernel))),
};

/// Where RDMA devices are listed.
fn class(sysfs: &Path) -> PathBuf {
    sysfs.join("class/infiniband")
}

/// The devices in the class that the filter allows. No class is no devices.
fn devices(pass: &mut Pass<'_>, class: &Path, filter: &Filter) -> Result<Vec<Found>, ReadError> {
    let mut names = pass.list(class)?;
    names.retain(|name| !name.starts_with('.') && filter.allows(name));
    names.sort_unstable_by(|a, b| natural(a, b));
    Ok(names.iter().map(|name| Found { key: Arc::from(name.as_str()), device: Some(DeviceName::new(name)) }).collect())
}

/// The device a lane is for.
fn device_of(found: &Found) -> DeviceName {
    found.device.clone().unwrap_or_else(|| DeviceName::new(&found.key))
}

struct Rdma {
    class: PathBuf,
    filter: Filter,
    connect: Option<Connect>,
}

impl Rdma {
    fn new(setup: &Setup, connect: Option<Connect>) -> Self {
        Self { class: class(&setup.host.sysfs), filter: setup.filter.clone(), connect }
    }
}

impl Collector for Rdma {
    fn discover(&mut self, pass: &mut Pass<'_>) -> Result<Vec<Found>, ReadError> {
        devices(pass, &self.class, &self.filter)
    }

    fn open(&mut self, found: &Found) -> Box<dyn Lane> {
        Box::new(DeviceLane::new(device_of(found), self.class.join(&*found.key), self.connect.clone()))
    }
}
