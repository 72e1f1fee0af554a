//! Objects that programs hold on RDMA devices (`RDMA_NLDEV_CMD_RES_GET`): the kernel's own counts, no hardware asked.

use std::sync::Arc;
use std::time::Duration;

use super::asked::Asked;
use crate::host::collector::{Lane, Pass, Spec};
use crate::host::netlink::client::{Answer, Client};
use crate::host::netlink::nldev::{self, Op};
use crate::host::netlink::socket;
use crate::model::ids::DeviceName;
use crate::model::rdma::RdmaResources;
use crate::model::snapshot::Fact;

/// Counts of RDMA objects.
pub const SPEC: Spec = Spec {
    name: "rdma_netlink",
    about: "Objects that programs hold on RDMA devices: queue pairs, memory regions and others (rdma netlink)",
    interval: Duration::from_secs(5),
    deadline: Duration::from_secs(2),
    fresh: true,
    make: |setup| Box::new(Asked::new(setup, setup.host.live.then(socket::kernel), lane)),
};

pub(super) fn lane(device: DeviceName, client: Option<Client>) -> Box<dyn Lane> {
    Box::new(ResourceLane { device, client, names: Vec::new() })
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
