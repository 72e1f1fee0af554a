//! A full pass over PFs with many VFs, read, joined and judged: what it costs, and how that grows.
//!
//! `cargo bench --bench vfs`

#![allow(missing_docs, unreachable_pub, reason = "a program, not a library")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::cast_precision_loss, reason = "a benchmark")]

#[path = "../tests/common/mod.rs"]
mod common;
mod limits;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use common::iplink::{self, Interface};
use common::vfs::VfHost;
use lanewatch::host::collector::{Filter, Setup};
use lanewatch::host::fs::Fs;
use lanewatch::host::io::Roots;
use lanewatch::host::netlink::socket::{NetlinkConnection, NetlinkConnector};
use lanewatch::host::{Collector, Depth, DeviceReader, Host, ReadContext, holders, sriov};
use lanewatch::model::policy::Policy;
use lanewatch::model::snapshot::{CollectorState, Fact, Snapshot};
use lanewatch::model::sriov::Pf;
use lanewatch::model::time::BootTime;
use lanewatch::watch::Engine;
use lanewatch::watch::clock::{Clock as _, SystemClock};
use limits::{Limits, median, micros, own_cpu, scratch};

const ROUNDS: usize = 60;

/// The most that a pass over 2 PFs with 128 VFs each may cost.
const LIMIT: Duration = Duration::from_millis(20);

fn main() {
    println!("{:>4} {:>5} {:>6} {:>11} {:>11} {:>8}", "PFs", "VFs", "all", "read us", "judge us", "us a VF");
    let mut costs = Vec::new();
    for (pfs, vfs) in [(2, 128), (4, 128), (4, 256), (8, 256)] {
        let host = VfHost { pfs, vfs, here: false };
        let directory = scratch();
        host.write(directory.path()).unwrap();
        let (read, judge) = measure(directory.path(), &host);
        let all = pfs * vfs;
        let each = (read + judge).as_secs_f64() * 1e6 / f64::from(all);
        println!("{pfs:>4} {vfs:>5} {all:>6} {:>11.1} {:>11.1} {each:>8.2}", micros(read), micros(judge));
        costs.push((all, read + judge));
    }
    let mut limits = Limits::default();
    limits.at_most("a pass over 2 PFs with 128 VFs / 20 ms", costs[0].1.as_secs_f64() / LIMIT.as_secs_f64(), 1.0);
    let (first, last) = (costs[0], costs[costs.len() - 1]);
    let growth = last.1.as_secs_f64() / first.1.as_secs_f64() / f64::from(last.0 / first.0);
    limits.at_most("growth of the cost from 256 to 2048 VFs / growth of their number", growth, 1.5);
    limits.conclude();
}

/// Replies that were made beforehand: the kernel's own part is not measured.
struct Kernel(Arc<Vec<(String, Vec<u8>)>>);

impl NetlinkConnection for Kernel {
    fn ask(&mut self, request: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        let (name, _) = iplink::asked(request);
        Ok(self.0.iter().filter(|(known, _)| *known == name).map(|(_, reply)| reply.clone()).collect())
    }
}

fn route(interfaces: &[Interface]) -> NetlinkConnector {
    let replies = interfaces.iter().map(|interface| (interface.name.clone(), interface.reply(true))).collect();
    let replies: Arc<Vec<(String, Vec<u8>)>> = Arc::new(replies);
    Arc::new(move || Ok(Box::new(Kernel(Arc::clone(&replies)))))
}

fn measure(root: &Path, shape: &VfHost) -> (Duration, Duration) {
    let host = Host {
        io: Arc::new(Fs::new()),
        sysfs: root.join("sys"),
        procfs: root.join("proc"),
        roots: Roots::below(root),
        route: Some(route(&shape.interfaces())),
        ethtool: None,
        live: false,
    };
    let setup = Setup { host: host.clone(), filter: Filter::default() };
    let mut collectors: Vec<Box<dyn Collector>> = vec![(sriov::SPEC.make)(&setup), (holders::SPEC.make)(&setup)];
    let mut readers: Vec<Box<dyn DeviceReader>> = Vec::new();
    let mut keys = Vec::new();
    let mut cx = ReadContext::new(&host, BootTime(0), Depth::Full);
    for collector in &mut collectors {
        for found in collector.discover(&mut cx).unwrap() {
            readers.push(collector.open(&found));
            keys.push(found.key);
        }
    }
    let mut engine = Engine::new(Arc::new(Policy::default()), false);
    let (mut reads, mut judgements) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let before = own_cpu();
        let mut cx = ReadContext::new(&host, BootTime(15_000 * i64::try_from(round).unwrap()), Depth::Full);
        for collector in &mut collectors {
            collector.discover(&mut cx).unwrap();
        }
        let facts: Vec<Fact> = readers.iter_mut().flat_map(|reader| reader.read(&mut cx)).collect();
        let read = own_cpu();
        let listed = Some(Arc::from(keys.clone()));
        let state = CollectorState { name: "sriov", listed, ..CollectorState::default() };
        let report = engine.observe(Snapshot::new(SystemClock.now(), facts, vec![state]));
        reads.push(read.saturating_sub(before));
        judgements.push(own_cpu().saturating_sub(read));
        let seen: usize =
            report.snapshot.all::<Pf>().map(|pf| pf.vfs.iter().filter(|vf| vf.traffic.is_some()).count()).sum();
        assert_eq!(seen, usize::try_from(shape.pfs * shape.vfs).unwrap());
        let held = report.vf_map.vfs.values().filter(|row| row.holder.kind() == "vm").count();
        assert_eq!(held, seen);
    }
    (median(reads), median(judgements))
}
