//! A kernel that answers over netlink, and one that does not.

use super::*;
use crate::host::netlink::nldev::tests::{counters_reply, handle, port_reply, resources_reply, system_reply};
use crate::host::netlink::socket::NetlinkConnection;
use crate::host::rdma::netlink_collector::NetlinkCollector;
use crate::host::rdma::resources;
use crate::model::rdma::{PhysicalState, PortState, RdmaResources};
use crate::model::reading::Reading;

/// What a kernel answers, by operation; an operation without an answer is EINVAL.
#[derive(Clone)]
struct Kernel(Arc<Mutex<Answers>>);

struct Answers {
    index: u32,
    copy_on_fork: bool,
    port: Result<(u8, u8, u32), Errno>,
    counters: Result<Vec<(&'static str, u64)>, Errno>,
    resources: Result<Vec<(&'static str, u64)>, Errno>,
    asked: Vec<(u16, Option<u32>)>,
}

impl Kernel {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(Answers {
            index: 4,
            copy_on_fork: true,
            port: Ok((4, 5, 0x10)),
            counters: Ok(vec![
                ("rx_write_requests", 50),
                ("optional", 1),
                ("out_of_buffer", 30),
                ("duplicate_request", 40),
            ]),
            resources: Ok(vec![("pd", 2), ("qp", 17)]),
            asked: Vec::new(),
        })))
    }

    fn connect(&self) -> NetlinkConnector {
        let kernel = self.clone();
        Arc::new(move || Ok(Box::new(kernel.clone())))
    }

    fn set(&self, change: impl FnOnce(&mut Answers)) {
        change(&mut self.0.lock().unwrap());
    }

    fn asked(&self, op: u16) -> usize {
        self.0.lock().unwrap().asked.iter().filter(|(asked, _)| *asked == op).count()
    }
}

impl NetlinkConnection for Kernel {
    fn ask(&mut self, request: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        let mut answers = self.0.lock().unwrap();
        let op = u16::from_ne_bytes([request[4], request[5]]) & 0x3ff;
        let index = request.get(20..24).map(|bytes| u32::from_ne_bytes(bytes.try_into().unwrap()));
        answers.asked.push((op, index));
        let (name, at) = ("mlx5_0", answers.index);
        if index.is_some_and(|index| index != at) {
            return Err(errno(Errno::INVAL));
        }
        let reply = match op {
            1 if index.is_none() => return Ok(vec![handle(0, "mlx5_7"), handle(at, name)]),
            1 => handle(at, name),
            5 => {
                answers.port.map(|(state, physical, lid)| port_reply(at, name, state, physical, lid)).map_err(errno)?
            }
            6 => system_reply(answers.copy_on_fork),
            9 => answers.resources.as_ref().map(|list| resources_reply(at, name, list)).map_err(|e| errno(*e))?,
            17 => answers.counters.as_ref().map(|list| counters_reply(at, name, list)).map_err(|e| errno(*e))?,
            _ => return Err(errno(Errno::INVAL)),
        };
        Ok(vec![reply])
    }
}

#[test]
fn two_messages_stand_for_many_files() {
    let (tree, kernel) = (infiniband(), Kernel::new());
    let mut bench = Bench::on_netlink(&tree, kernel.connect());
    for (at, depth) in [(0, Depth::Full), (5, Depth::Full), (10, Depth::State)] {
        let device = Arc::clone(&bench.devices(at, depth)[0]);
        let port = &device.ports[0];
        assert_eq!(port.state, Reading::Value(PortState::Active));
        assert_eq!(port.physical_state, Reading::Value(PhysicalState::LinkUp));
        assert_eq!((port.lid, port.sm_lid), (Some(0x10), Some(1)));
        assert_eq!(port.rate.value().map(|rate| rate.bandwidth.gbits()), Some(200.0));
        assert_eq!(port.hardware.values, [Some(50), Some(40), Some(30)]);
        assert_eq!(port.counter("port_rcv_data"), Some(1000));
    }
    for file in ["/state", "/phys_state", "lid", "hw_counters"] {
        assert_eq!(tree.opened(file), 0, "{file}");
    }
    assert_eq!((kernel.asked(1), kernel.asked(6), kernel.asked(5), kernel.asked(17)), (1, 1, 3, 2));
    assert!(bench.faults.is_empty(), "{:?}", bench.faults);
}

#[test]
fn counters_that_netlink_lacks_are_read_from_files() {
    let (tree, kernel) = (infiniband(), Kernel::new());
    kernel.set(|answers| answers.counters = Ok(vec![("out_of_buffer", 30)]));
    let mut bench = Bench::on_netlink(&tree, kernel.connect());
    assert_eq!(bench.device(0).ports[0].hardware.values, [Some(5), Some(4), Some(30)]);
}

#[test]
fn an_operation_that_is_not_offered_is_asked_for_rarely_and_counted_once() {
    let (tree, kernel) = (infiniband(), Kernel::new());
    kernel.set(|answers| answers.counters = Err(Errno::INVAL));
    let mut bench = Bench::on_netlink(&tree, kernel.connect());
    let device = bench.device(0);
    assert_eq!(device.ports[0].hardware.values, [Some(5), Some(4), Some(3)]);
    assert_eq!(bench.faults, [("STAT_GET mlx5_0/1".to_owned(), ReadError::NotSupported)]);
    assert_eq!(bench.quarantined(), 1);
    for minute in 1..25 {
        bench.device(minute * 60);
        assert!(bench.faults.is_empty());
    }
    assert_eq!((kernel.asked(17), tree.opened("/state")), (3, 0));
    kernel.set(|answers| answers.counters = Ok(vec![("out_of_buffer", 99)]));
    assert_eq!(bench.device(60 * 60).ports[0].counter("out_of_buffer"), Some(99));
    assert_eq!(bench.quarantined(), 0);
}

#[test]
fn a_driver_that_failed_is_not_asked_again_through_files() {
    let (tree, kernel) = (infiniband(), Kernel::new());
    kernel.set(|answers| (answers.port, answers.counters) = (Err(Errno::IO), Err(Errno::TIMEDOUT)));
    let mut bench = Bench::on_netlink(&tree, kernel.connect());
    let device = bench.device(0);
    assert_eq!(device.ports[0].state, Reading::Unreadable(ReadError::Io));
    assert_eq!(device.ports[0].hardware.values, [None; 3]);
    assert_eq!(device.ports[0].counter("port_rcv_data"), Some(1000));
    let expected = [("PORT_GET mlx5_0/1", ReadError::Io), ("STAT_GET mlx5_0/1", ReadError::Timeout)];
    assert_eq!(bench.faults, expected.map(|(source, reason)| (source.to_owned(), reason)));
    kernel.set(|answers| answers.port = Ok((1, 2, 0)));
    assert_eq!(bench.device(5).ports[0].state, Reading::Value(PortState::Down));
}

#[test]
fn an_old_kernel_is_asked_through_files_only() {
    let (tree, kernel) = (infiniband(), Kernel::new());
    kernel.set(|answers| answers.copy_on_fork = false);
    let mut bench = Bench::on_netlink(&tree, kernel.connect());
    let device = bench.device(0);
    assert_eq!(device.ports[0].lid, Some(0x364));
    bench.device(5);
    assert_eq!((kernel.asked(6), kernel.asked(5)), (1, 0));
    assert!(bench.faults.is_empty());
}

#[test]
fn no_netlink_is_no_fault() {
    let tree = infiniband();
    let mut bench = Bench::on_netlink(&tree, Arc::new(|| Err(errno(Errno::PROTONOSUPPORT))));
    assert_eq!(bench.device(0).ports[0].lid, Some(0x364));
    assert!(bench.faults.is_empty(), "{:?}", bench.faults);
}

#[test]
fn a_device_with_a_new_index_is_found_again() {
    let (tree, kernel) = (infiniband(), Kernel::new());
    let mut bench = Bench::on_netlink(&tree, kernel.connect());
    bench.device(0);
    kernel.set(|answers| (answers.index, answers.port) = (9, Ok((4, 5, 0x20))));
    assert_eq!(bench.device(5).ports[0].lid, Some(0x20));
    assert!(bench.faults.is_empty(), "{:?}", bench.faults);
}

#[test]
fn resources_are_counted_by_kind() {
    let (tree, kernel) = (infiniband(), Kernel::new());
    let make = |connect| {
        move |setup: &Setup| {
            Box::new(NetlinkCollector::new(setup, connect, resources::open_reader)) as Box<dyn Collector>
        }
    };
    let mut bench = Bench::with(&tree, Filter::default(), make(Some(kernel.connect())));
    for at in [0, 5] {
        let facts = bench.facts(at, Depth::State);
        let resources: &RdmaResources = facts[0].downcast_ref().unwrap();
        assert_eq!(resources.device.as_str(), "mlx5_0");
        assert_eq!(resources.counts, [("pd".into(), 2), ("qp".into(), 17)]);
    }
    kernel.set(|answers| answers.resources = Err(Errno::PERM));
    assert!(bench.facts(10, Depth::Full).is_empty());
    assert_eq!(bench.faults, [("RES_GET mlx5_0".to_owned(), ReadError::Permission)]);
    assert_eq!(tree.opened(""), 0);
    // A recorded host has no netlink.
    assert!(Bench::with(&tree, Filter::default(), make(None)).readers.is_empty());
}
