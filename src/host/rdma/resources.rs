//! Objects that programs hold on RDMA devices (`RDMA_NLDEV_CMD_RES_GET`): the kernel's own counts, no hardware asked.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::{class, device_of, devices};
use crate::host::collector::{Collector, Filter, Found, Lane, Pass, Setup, Spec};
use crate::host::netlink::client::{Answer, Client};
use crate::host::netlink::nldev::{self, Op};
use crate::host::netlink::socket::{self, Connect};
use crate::model::ids::DeviceName;
use crate::model::rdma::RdmaResources;
use crate::model::reading::Reason;
use crate::model::snapshot::Fact;

/// Counts of RDMA objects.
pub const SPEC: Spec = Spec {
    name: "rdma_netlink",
    about: "Objects that programs hold on RDMA devices: queue pairs, memory regions and others (rdma netlink)",
    interval: Duration::from_secs(5),
    deadline: Duration::from_secs(2),
    fresh: true,
    make: |setup| Box::new(Resources::new(setup, setup.host.live.then(socket::kernel))),
};

pub(super) struct Resources {
    class: PathBuf,
    filter: Filter,
    connect: Option<Connect>,
}

impl Resources {
    pub(super) fn new(setup: &Setup, connect: Option<Connect>) -> Self {
        Self { class: class(&setup.host.sysfs), filter: setup.filter.clone(), connect }
    }
}

impl Collector for Resources {
    /// Lists the class as the `rdma` collector does: netlink itself could be held up by a card that does not answer.
    fn discover(&mut self, pass: &mut Pass<'_>) -> Result<Vec<Found>, Reason> {
        if self.connect.is_none() {
            return Ok(Vec::new());
        }
        devices(pass, &self.class, &self.filter)
    }

    fn open(&mut self, found: &Found) -> Box<dyn Lane> {
        let device = device_of(found);
        let client = self.connect.clone().map(|connect| Client::new(device.clone(), connect));
        Box::new(ResourceLane { device, client, names: Vec::new() })
    }
}

struct ResourceLane {
    device: DeviceName,
    client: Option<Client>,
    /// The kernel's words as they were last seen, by their place in the reply.
    names: Vec<Arc<str>>,
}

impl Lane for ResourceLane {
    fn read(&mut self, pass: &mut Pass<'_>) -> Vec<Fact> {
        let Some(client) = &mut self.client else { return Vec::new() };
        let Answer::Reply(reply) = client.ask(pass, Op::ResGet, None) else { return Vec::new() };
        let before = std::mem::take(&mut self.names);
        let mut counts = Vec::with_capacity(before.len());
        for (at, (name, count)) in nldev::resources(&reply).enumerate() {
            let known = before.get(at).filter(|known| ***known == *name);
            let name: Arc<str> = known.map_or_else(|| Arc::from(name), Arc::clone);
            self.names.push(Arc::clone(&name));
            counts.push((name, count));
        }
        vec![Arc::new(RdmaResources { device: self.device.clone(), counts })]
    }

    fn quarantined(&self) -> usize {
        self.client.as_ref().map_or(0, Client::not_offered)
    }
}
