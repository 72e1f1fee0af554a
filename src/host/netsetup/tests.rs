//! The collector on hosts in memory, with netlink that a test makes up.

use std::io;
use std::sync::Mutex;

use rustix::io::Errno;

use super::dcb::tests::dcb_reply;
use super::features::tests::features_reply;
use super::*;
use crate::host::collector::Depth;
use crate::host::harness::{CollectorHarness, facts};
use crate::host::netlink::generic::tests::FakeFamily;
use crate::host::netlink::socket::NetlinkConnection;
use crate::model::netsetup::{Ecn, Ipoib, NetdevSetup, Offload, Priorities, PriorityTrust};
use crate::model::time::BootTime;

const CARD: &str = "/sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0";

/// Route netlink that answers all with one thing.
#[derive(Default)]
struct Route {
    reply: Mutex<Option<Vec<u8>>>,
    refuses: Mutex<Option<Errno>>,
    asked: Mutex<usize>,
}

struct Connection(Arc<Route>);

impl NetlinkConnection for Connection {
    fn ask(&mut self, request: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        assert_eq!(request[4..6], 78u16.to_ne_bytes());
        *self.0.asked.lock().unwrap() += 1;
        match *self.0.refuses.lock().unwrap() {
            Some(errno) => Err(errno.into()),
            None => Ok(self.0.reply.lock().unwrap().iter().cloned().collect()),
        }
    }
}

fn connect(route: &Arc<Route>) -> NetlinkConnector {
    let route = Arc::clone(route);
    Arc::new(move || Ok(Box::new(Connection(Arc::clone(&route)))))
}

fn harness() -> CollectorHarness {
    let harness = CollectorHarness::new(&SPEC, Filter::default());
    harness.memory.symlink(format!("{CARD}/infiniband/mlx5_0/device"), "../..");
    let target = "../../devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0/infiniband/mlx5_0";
    harness.memory.symlink("/sys/class/infiniband/mlx5_0", target);
    harness.memory.symlink(format!("{CARD}/driver"), "../../../../bus/pci/drivers/mlx5_core");
    harness.memory.set(format!("{CARD}/net/eth2/type"), "1\n");
    harness
}

fn read(harness: &mut CollectorHarness) -> Vec<NetdevSetup> {
    harness.discover().unwrap();
    facts(&harness.read())
}

#[test]
fn a_recorded_host_says_what_its_files_say() {
    let mut harness = harness();
    assert_eq!((read(&mut harness), &harness.faults[..]), (Vec::new(), &[][..]));
    harness.memory.set(format!("{CARD}/net/eth2/qos/trust"), "dscp\n");
    for priority in 0..8 {
        for point in ["roce_np", "roce_rp"] {
            let on = if priority == 3 || point == "roce_np" { "1\n" } else { "0\n" };
            harness.memory.set(format!("{CARD}/net/eth2/ecn/{point}/enable/{priority}"), on);
        }
    }
    harness.memory.set(format!("{CARD}/net/ib0/mode"), "connected\n");
    harness.memory.set(format!("{CARD}/net/ib0/umcast"), "0\n");
    let setups = read(&mut harness);
    assert_eq!(harness.faults, []);
    let [eth, ib] = &setups[..] else { panic!("{setups:?}") };
    assert_eq!(eth.dcb.trust, Some(PriorityTrust::Dscp));
    assert_eq!(eth.ecn, Some(Ecn { notifies: Priorities(255), reacts: Priorities(8) }));
    assert_eq!((&eth.ipoib, &eth.dcb.pfc, eth.offloads.len()), (&None, &None, 0));
    assert_eq!(ib.ipoib, Some(Ipoib { mode: Arc::from("connected"), user_multicast: Some(false) }));
}

#[test]
fn what_netlink_says_of_priorities() {
    let (mut harness, route) = (harness(), Arc::new(Route::default()));
    harness.set_route(connect(&route));
    let mut sent = [0; 8];
    sent[3] = 7;
    *route.reply.lock().unwrap() = Some(dcb_reply(8, sent, [0; 8], &[(5, 3, 26)], None));
    let setups = read(&mut harness);
    let dcb = setups[0].dcb;
    assert_eq!((dcb.trust, dcb.dcbx), (Some(PriorityTrust::Dscp), Some("host")));
    let pfc = dcb.pfc.unwrap();
    assert_eq!((pfc.enabled, pfc.frames), (Priorities(8), Some((sent, [0; 8]))));
    // The table has no entry for DSCP: this driver goes by the VLAN tag then, of others it is not known.
    *route.reply.lock().unwrap() = Some(dcb_reply(8, sent, [0; 8], &[], None));
    assert_eq!(read(&mut harness)[0].dcb.trust, Some(PriorityTrust::Pcp));
    harness.memory.symlink(format!("{CARD}/driver"), "../../../../bus/pci/drivers/bnxt_en");
    assert_eq!(read(&mut harness)[0].dcb.trust, None);
}

#[test]
fn what_is_not_offered_is_quiet() {
    let (mut harness, route) = (harness(), Arc::new(Route::default()));
    harness.set_route(connect(&route));
    *route.refuses.lock().unwrap() = Some(Errno::OPNOTSUPP);
    assert_eq!((read(&mut harness).len(), harness.faults.len(), harness.quarantined()), (0, 0, 1));
    read(&mut harness);
    assert_eq!(*route.asked.lock().unwrap(), 1, "not asked for a while");
    for (errno, faults) in [(Errno::NODEV, 0), (Errno::IO, 1)] {
        harness.set_route(connect(&route));
        *route.refuses.lock().unwrap() = Some(errno);
        assert_eq!((read(&mut harness).len(), harness.faults.len(), harness.quarantined()), (0, faults, 0), "{errno}");
    }
}

#[test]
fn offloads_and_kernels_that_do_not_tell_them() {
    let (harness, made) = (harness(), Arc::new(FakeFamily::default()));
    let host = harness.memory.host();
    let setup = Setup { host: host.clone(), filter: Filter::default() };
    let mut collector = NetdevSetupCollector::new(&setup, Some(FakeFamily::connect(&made)), None);
    let found = collector.discover(&mut ReadContext::new(&host, BootTime(0), Depth::Full)).unwrap();
    let mut reader = collector.open(&found[0]);
    let mut read = |second: i64| {
        let mut cx = ReadContext::new(&host, BootTime(second * 1000), Depth::Full);
        let facts = facts::<NetdevSetup>(&reader.read(&mut cx));
        (facts.first().map(|setup| setup.offloads.len()), cx.faults.len(), reader.quarantined())
    };
    assert_eq!(read(0), (None, 0, 1));
    made.set(features::GET, &[features_reply(&[("hw-tc-offload", true, true)])]);
    assert_eq!(read(60), (None, 0, 1), "not asked for a while");
    assert_eq!(read(600), (Some(16), 0, 0));
    *made.refuses.lock().unwrap() = Some(Errno::IO);
    assert_eq!(read(660), (None, 1, 0));
}

#[test]
fn older_kernels_tell_offloads_by_the_ioctl() {
    let (harness, made) = (harness(), Arc::new(FakeFamily::default()));
    let host = harness.memory.host();
    let setup = Setup { host: host.clone(), filter: Filter::default() };
    let ioctl: ReadFeatures = Arc::new(|netdev| {
        assert_eq!(netdev, "eth2");
        let feature = |name: &str, on, fixed| (name.to_owned(), on, fixed);
        Ok(vec![feature("rx-lro", false, true), feature("of-no-interest", true, true), feature("rx-gro", true, false)])
    });
    let mut collector = NetdevSetupCollector::new(&setup, Some(FakeFamily::connect(&made)), Some(ioctl));
    let mut cx = ReadContext::new(&host, BootTime(0), Depth::Full);
    let found = collector.discover(&mut cx).unwrap();
    let setups = facts::<NetdevSetup>(&collector.open(&found[0]).read(&mut cx));
    let offload = |name, on, fixed| Offload { name, on, fixed };
    assert_eq!(setups[0].offloads, [offload("rx-gro", true, false), offload("rx-lro", false, true)]);
}

#[test]
fn vfs_beside_their_pf_are_left_out() {
    let mut harness = harness();
    assert_eq!(harness.discover().unwrap(), ["eth2"]);
    harness.memory.symlink(format!("{CARD}/physfn"), "../0000:3b:00.1");
    assert!(harness.discover().unwrap().is_empty());
}

/// Interfaces of the machine that runs the tests: whatever they offer, nothing of it is an error.
#[test]
fn the_running_kernel_answers() {
    let harness = harness();
    let host = harness.memory.host();
    for entry in std::fs::read_dir("/sys/class/net").into_iter().flatten() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let location = NetdevLocation {
            directory: PathBuf::from("/sys/class/net").join(&name),
            function: PathBuf::from(CARD),
            pci_address: "0000:3b:00.0".parse().unwrap(),
            device: DeviceName::new("mlx5_0"),
        };
        let reader = NetdevSetupReader::new(Arc::from(name), location);
        let mut reader = reader.asking(Some(socket::route()), Some(socket::generic()), None);
        let mut cx = ReadContext::new(&host, BootTime(0), Depth::Full);
        let setups = facts::<NetdevSetup>(&reader.read(&mut cx));
        assert_eq!(cx.faults, []);
        // What netlink says, the ioctl says too.
        let listed = EthtoolSocket::new().unwrap().features(&setups[0].netdev).unwrap();
        let by_ioctl = features::listed(&listed);
        assert!(!by_ioctl.is_empty());
        for offload in &setups[0].offloads {
            assert!(by_ioctl.contains(offload) || (!offload.on && offload.fixed), "{offload:?} {listed:?}");
        }
    }
}
