//! The collector of what is asked of RDMA devices over netlink, whatever is asked.

use std::path::PathBuf;

use super::{class, device_of, devices};
use crate::host::collector::{Collector, DeviceReader, Discovered, Filter, ReadContext, Setup};
use crate::host::netlink::client::RdmaNetlinkClient;
use crate::host::netlink::socket::NetlinkConnector;
use crate::model::ids::DeviceName;
use crate::model::reading::ReadError;

/// Makes the reader of one device; no client where there is no kernel to ask.
type ReaderFactory = fn(DeviceName, Option<RdmaNetlinkClient>) -> Box<dyn DeviceReader>;

/// One reader for each device of the class; none on a recorded host, whose kernel can't be asked.
pub(super) struct NetlinkCollector {
    class: PathBuf,
    filter: Filter,
    connect: Option<NetlinkConnector>,
    open: ReaderFactory,
}

impl NetlinkCollector {
    pub(super) fn new(setup: &Setup, connect: Option<NetlinkConnector>, open: ReaderFactory) -> Self {
        Self { class: class(&setup.host.sysfs), filter: setup.filter.clone(), connect, open }
    }
}

impl Collector for NetlinkCollector {
    /// Lists the class as the `rdma` collector does: netlink itself could be held up by a card that does not answer.
    fn discover(&mut self, cx: &mut ReadContext<'_>) -> Result<Vec<Discovered>, ReadError> {
        if self.connect.is_none() {
            return Ok(Vec::new());
        }
        devices(cx, &self.class, &self.filter)
    }

    fn open(&mut self, found: &Discovered) -> Box<dyn DeviceReader> {
        let device = device_of(found);
        let client = self.connect.clone().map(|connect| RdmaNetlinkClient::new(device.clone(), connect));
        (self.open)(device, client)
    }
}
