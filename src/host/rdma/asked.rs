//! The collector of what is asked of RDMA devices over netlink, whatever is asked.

use std::path::PathBuf;

use super::{class, device_of, devices};
use crate::host::collector::{Collector, Filter, Found, Lane, Pass, Setup};
use crate::host::netlink::client::Client;
use crate::host::netlink::socket::Connect;
use crate::model::ids::DeviceName;
use crate::model::reading::ReadError;

/// Makes the lane of one device; no client where there is no kernel to ask.
type Open = fn(DeviceName, Option<Client>) -> Box<dyn Lane>;

/// One lane for each device of the class; none on a recorded host, whose kernel can't be asked.
pub(super) struct Asked {
    class: PathBuf,
    filter: Filter,
    connect: Option<Connect>,
    lane: Open,
}

impl Asked {
    pub(super) fn new(setup: &Setup, connect: Option<Connect>, lane: Open) -> Self {
        Self { class: class(&setup.host.sysfs), filter: setup.filter.clone(), connect, lane }
    }
}

impl Collector for Asked {
    /// Lists the class as the `rdma` collector does: netlink itself could be held up by a card that does not answer.
    fn discover(&mut self, pass: &mut Pass<'_>) -> Result<Vec<Found>, ReadError> {
        if self.connect.is_none() {
            return Ok(Vec::new());
        }
        devices(pass, &self.class, &self.filter)
    }

    fn open(&mut self, found: &Found) -> Box<dyn Lane> {
        let device = device_of(found);
        let client = self.connect.clone().map(|connect| Client::new(device.clone(), connect));
        (self.lane)(device, client)
    }
}
