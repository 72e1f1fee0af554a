//! What only netlink reports about RDMA devices: objects that programs hold on them (`RDMA_NLDEV_CMD_RES_GET`, the
//! kernel's own counts), and queue pairs by type and state (`RDMA_NLDEV_CMD_RES_QP_GET`). The kernel queries the device
//! for each queue pair, so those are off by default.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::reader::{class, device_of, devices};
use crate::host::collector::{Collector, DeviceReader, Discovered, Filter, ReadContext, Setup, Spec};
use crate::host::netlink::client::{QueryOutcome, RdmaNetlinkClient};
use crate::host::netlink::nldev::{self, NldevCommand};
use crate::host::netlink::socket::{NetlinkConnector, Protocol};
use crate::model::ids::DeviceName;
use crate::model::rdma::{QueuePairs, RdmaResources};
use crate::model::reading::ReadError;
use crate::model::snapshot::Fact;

/// Creates the reader of one device; without a client on a recorded host.
type ReaderFactory = fn(DeviceName, Option<RdmaNetlinkClient>) -> Box<dyn DeviceReader>;

/// Collector with one reader per device of the class; none on a recorded host, which has no netlink.
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
    /// Lists the class as the `rdma` collector does: netlink itself may block on a card that does not respond.
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

/// Counts of RDMA objects.
pub const RESOURCES: Spec = Spec {
    name: "rdma_netlink",
    about: "RDMA objects in use by programs: queue pairs, memory regions and others (rdma netlink)",
    interval: Duration::from_secs(5),
    deadline: Duration::from_secs(2),
    fresh: true,
    make: |setup| Box::new(NetlinkCollector::new(setup, setup.host.netlink(Protocol::Rdma), open_resources)),
};

pub(super) fn open_resources(device: DeviceName, client: Option<RdmaNetlinkClient>) -> Box<dyn DeviceReader> {
    Box::new(ResourceReader { device, client, names: Vec::new() })
}

struct ResourceReader {
    device: DeviceName,
    client: Option<RdmaNetlinkClient>,
    /// The kernel's names in the last reply, in its order.
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

/// Counts of queue pairs.
pub const QUEUE_PAIRS: Spec = Spec {
    name: "rdma_qp",
    about: "Queue pairs by type and state (rdma netlink); costs one firmware command per queue pair",
    interval: Duration::from_secs(60),
    deadline: Duration::from_secs(10),
    fresh: false,
    make: |setup| Box::new(NetlinkCollector::new(setup, setup.host.netlink(Protocol::Rdma), open_queues)),
};

fn open_queues(device: DeviceName, client: Option<RdmaNetlinkClient>) -> Box<dyn DeviceReader> {
    Box::new(QueueReader { device, client })
}

struct QueueReader {
    device: DeviceName,
    client: Option<RdmaNetlinkClient>,
}

impl DeviceReader for QueueReader {
    fn read(&mut self, cx: &mut ReadContext<'_>) -> Vec<Fact> {
        let Some(replies) = self.client.as_mut().and_then(|client| client.list(cx, NldevCommand::ResQpGet)) else {
            return Vec::new();
        };
        let mut counts = BTreeMap::new();
        for (kind, state) in replies.iter().flat_map(|reply| nldev::queue_pairs(reply)) {
            *counts.entry((type_name(kind), state_name(state))).or_insert(0) += 1;
        }
        vec![Arc::new(QueuePairs { device: self.device.clone(), counts })]
    }

    fn quarantined(&self) -> usize {
        self.client.as_ref().map_or(0, RdmaNetlinkClient::not_offered)
    }
}

/// The name of a type (`enum ib_qp_type`), as rdma tools print it.
fn type_name(code: u8) -> &'static str {
    match code {
        0 => "SMI",
        1 => "GSI",
        2 => "RC",
        3 => "UC",
        4 => "UD",
        8 => "RAW_PACKET",
        9 => "XRC_INI",
        10 => "XRC_TGT",
        0xff => "DRIVER",
        _ => "OTHER",
    }
}

/// The name of a state (`enum ib_qp_state`).
fn state_name(code: u8) -> &'static str {
    match code {
        0 => "RESET",
        1 => "INIT",
        2 => "RTR",
        3 => "RTS",
        4 => "SQD",
        5 => "SQE",
        6 => "ERR",
        _ => "OTHER",
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::host::collector::Depth;
    use crate::host::memory::MemoryHost;
    use crate::host::netlink::nldev::tests::{handle, queue_pairs_reply};
    use crate::host::netlink::socket::{NetlinkConnection, NetlinkConnector};
    use crate::model::time::BootTime;

    /// What `rdma resource show qp` prints.
    const PRINTED: &str = "link mlx5_bond_0/1 lqpn 301 rqpn 392 type RC state RTS rq-psn 1 sq-psn 6 path-mig-state \
                           MIGRATED pdn 12 pid 6165 comm poll-event \nlink mlx5_bond_0/1 lqpn 1 type GSI state RTS \
                           sq-psn 0 comm [ib_core] \nlink mlx5_bond_0/1 lqpn 300 type UD state RTS sq-psn 0 pdn 5 comm \
                           [ib_ipoib] \nlink mlx5_bond_0/1 lqpn 304 rqpn 7 type RC state ERR rq-psn 0 sq-psn 0 pid 77 \
                           comm ib write bw \nlink mlx5_bond_0/- lqpn 412 rqpn 413 type RC state RTS pid 77 comm x \n";

    /// Types and states of a print; a program's name may have blanks in it, and words of any kind.
    fn codes(printed: &str) -> Vec<(u8, u8)> {
        let code = |name: &str, names: fn(u8) -> &'static str| (0..=255).find(|code| names(*code) == name).unwrap();
        let pair = |line: &str| {
            let words: Vec<&str> = line.split(" comm ").next().unwrap().split_whitespace().collect();
            let after = |key: &str| words[words.iter().position(|word| *word == key).unwrap() + 1];
            (code(after("type"), type_name), code(after("state"), state_name))
        };
        printed.lines().map(pair).collect()
    }

    struct Kernel;

    impl NetlinkConnection for Kernel {
        fn ask(&mut self, request: &[u8]) -> io::Result<Vec<Vec<u8>>> {
            match u16::from_ne_bytes([request[4], request[5]]) & 0x3ff {
                1 => Ok(vec![handle(3, "mlx5_bond_0")]),
                // In parts, as for a long list.
                10 => Ok(codes(PRINTED).chunks(2).map(|part| queue_pairs_reply(3, "mlx5_bond_0", part)).collect()),
                _ => Err(rustix::io::Errno::INVAL.into()),
            }
        }
    }

    #[test]
    fn queue_pairs_are_counted_by_type_and_state() {
        let host = Arc::new(MemoryHost::new()).host();
        let connect: NetlinkConnector = Arc::new(|| Ok(Box::new(Kernel)));
        let device = DeviceName::new("mlx5_bond_0");
        let mut reader = QueueReader { device: device.clone(), client: Some(RdmaNetlinkClient::new(device, connect)) };
        let mut cx = ReadContext::new(&host, BootTime(0), Depth::Full);
        let facts = reader.read(&mut cx);
        let found: &QueuePairs = facts[0].downcast_ref().unwrap();
        let expected = [(("GSI", "RTS"), 1), (("RC", "ERR"), 1), (("RC", "RTS"), 2), (("UD", "RTS"), 1)];
        assert_eq!(found.counts, expected.into());
        assert_eq!(cx.faults, []);
    }
}
