//! Objects that programs hold on RDMA devices (`RDMA_NLDEV_CMD_RES_GET`): the kernel's own counts, no hardware asked.

use std::sync::Arc;
use std::time::Duration;

use super::netlink_collector::NetlinkCollector;
use crate::host::collector::{DeviceReader, ReadContext, Spec};
use crate::host::netlink::client::{QueryOutcome, RdmaNetlinkClient};
use crate::host::netlink::nldev::{self, NldevCommand};
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
    make: |setup| Box::new(NetlinkCollector::new(setup, setup.host.live.then(socket::kernel), open_reader)),
};

pub(super) fn open_reader(device: DeviceName, client: Option<RdmaNetlinkClient>) -> Box<dyn DeviceReader> {
    Box::new(ResourceReader { device, client, names: Vec::new() })
}

struct ResourceReader {
    device: DeviceName,
    client: Option<RdmaNetlinkClient>,
    /// The kernel's words as they were last seen, by their place in the reply.
    names: Vec<Arc<str>>,
}

impl DeviceReader for ResourceReader {
    fn read(&mut self, cx: &mut ReadContext<'_>) -> Vec<Fact> {
        let Some(client) = &mut self.client else { return Vec::new() };
        let QueryOutcome::Reply(reply) = client.ask(cx, NldevCommand::ResGet, None) else { return Vec::new() };
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
        self.client.as_ref().map_or(0, RdmaNetlinkClient::not_offered)
    }
}
