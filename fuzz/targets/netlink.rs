//! Replies of netlink: messages and their attributes, RDMA's and those about interfaces, up to what is said of VFs, of
//! priorities, of what every Ethernet driver counts and of health reporters (devlink).

#![no_main]

#[path = "../harness.rs"]
mod harness;

use std::io;
use std::sync::{Arc, LazyLock};

use harness::FuzzHarness;
use harness::host::{Card, HostTree, Layer};
use lanewatch::host::ethtool::standard::StandardStatisticsReader;
use lanewatch::host::memory::MemoryHost;
use lanewatch::host::netlink::socket::{NetlinkConnection, NetlinkConnector};
use lanewatch::host::netlink::{attributes, message, nldev};
use lanewatch::host::sriov::{self, vf_list};
use lanewatch::host::{Depth, ReadContext, devlink, net, netsetup, pci, rdma};
use lanewatch::model::time::BootTime;
use libfuzzer_sys::fuzz_target;

struct Kernel(Vec<Vec<u8>>);

impl NetlinkConnection for Kernel {
    fn ask(&mut self, _: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        Ok(self.0.clone())
    }
}

/// Knows every family of generic netlink, and answers all else with this.
struct Generic(Vec<Vec<u8>>);

impl NetlinkConnection for Generic {
    fn ask(&mut self, request: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        let of_families = request.get(4..6) == Some(&16u16.to_ne_bytes());
        Ok(if of_families { vec![vec![1, 2, 0, 0, 6, 0, 1, 0, 21, 0, 0, 0]] } else { self.0.clone() })
    }
}

fn nested(bytes: &[u8], depth: usize) {
    for (_, value) in attributes::Attributes::new(bytes) {
        let _ = (attributes::number8(value), attributes::number32(value), attributes::number64(value));
        let _ = attributes::text(value);
        if depth < 4 {
            nested(value, depth + 1);
        }
    }
}

/// A function that replies of devlink are about.
const FUNCTION: &str = "0000:01:00.0";

/// A reply about a health reporter of the function, which is made of these attributes.
fn health(reporter: &[u8]) -> Vec<u8> {
    let mut reply = vec![52, 1, 0, 0];
    for (kind, value) in [(1, &b"pci\0"[..]), (2, b"0000:01:00.0\0"), (114, reporter)] {
        let length = u16::try_from(value.len() + 4).unwrap_or(u16::MAX);
        reply.extend(length.to_ne_bytes());
        reply.extend(u16::to_ne_bytes(kind));
        reply.extend(value);
        reply.resize(reply.len().next_multiple_of(4), 0);
    }
    reply
}

fn host() -> Arc<MemoryHost> {
    let mut host = HostTree::new(1);
    host.cards[0] = Card { layer: Layer::Ethernet, vfs: 2, ..Card::default() };
    harness::memory(&host.tree())
}

fuzz_target!(|data: &[u8]| {
    let mut replies = Vec::new();
    let _ = message::collect(data, 1, &mut replies);
    // Most bytes are no messages: what stands in one is tried on its own, too.
    replies.push(data.to_vec());
    for reply in &replies {
        nested(reply, 0);
        let _ = (nldev::device(reply), nldev::port(reply), nldev::system(reply));
        let _ = (nldev::counters(reply).count(), nldev::resources(reply).count(), nldev::queue_pairs(reply).count());
        let _ = vf_list::list(reply);
    }
    let reporters = devlink::reporters(&replies, FUNCTION);
    assert!(reporters.iter().all(|reporter| !reporter.name.is_empty()));
    // Any attributes in a reply that is about the function.
    let _ = devlink::reporters(&[health(data)], FUNCTION);
    static HOST: LazyLock<Arc<MemoryHost>> = LazyLock::new(host);
    let answers = replies.clone();
    let generic: NetlinkConnector = Arc::new(move || Ok(Box::new(Generic(answers.clone()))));
    StandardStatisticsReader::new(generic).read(&mut ReadContext::new(&HOST.host(), BootTime(0), Depth::Full), "eth0");
    let answers = replies.clone();
    let connect: NetlinkConnector = Arc::new(move || Ok(Box::new(Kernel(answers.clone()))));
    let mut harness =
        FuzzHarness::new([&sriov::SPEC, &pci::SPEC, &rdma::SPEC, &net::SPEC, &netsetup::SPEC], &HOST, Some(connect));
    harness.cx();
});
