//! How the network interfaces beside RDMA devices are set up: priorities and pauses (DCB over route netlink), offloads
//! (ethtool over generic netlink), IPoIB and out-of-tree drivers' files (`/sys/class/net`).

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;

use super::collector::{Collector, DeviceReader, Discovered, Filter, GoneReader, ReadContext, Setup, Spec};
use super::ethtool::access::Feature;
use super::ethtool::standard::{FAMILY, refused};
use super::file::PolledFile;
use super::function::DeviceInventory;
use super::io::reason_of;
use super::net::interfaces;
use super::netlink::generic::{self, GenericFamily, is};
use super::netlink::socket::{LazyConnection, NetlinkConnection, NetlinkConnector, Protocol};
use super::text;
use crate::model::ids::{DeviceName, PciAddress};
use crate::model::net::{Dcb, Ecn, Ipoib, NetdevSetup, Offload, Priorities, PriorityTrust};
use crate::model::reading::{ReadError, Reading};
use crate::model::snapshot::Fact;
use crate::model::time::BootTime;

mod dcb;
mod features;

pub use features::is_known_offload;

/// The collector of interfaces' settings.
pub const SPEC: Spec = Spec {
    name: "netdev_setup",
    about: "Settings of network interfaces next to RDMA devices: priorities and PFC (DCB), offloads, IPoIB mode",
    interval: Duration::from_secs(60),
    deadline: Duration::from_secs(5),
    fresh: false,
    make: |setup| {
        let connect = setup.host.ethtool.as_ref().map(|access| Arc::clone(&access.statistics));
        let ioctl = connect.map(|connect| -> ReadFeatures { Arc::new(move |netdev| connect()?.features(netdev)) });
        Box::new(NetdevSetupCollector::new(setup, setup.host.netlink(Protocol::Generic), ioctl))
    },
};

/// Reads the offloads of an interface by ioctl, if ethtool netlink is not supported.
type ReadFeatures = Arc<dyn Fn(&str) -> io::Result<Vec<Feature>> + Send + Sync>;

struct NetdevSetupCollector {
    filter: Filter,
    route: Option<NetlinkConnector>,
    generic: Option<NetlinkConnector>,
    ioctl: Option<ReadFeatures>,
    locations: BTreeMap<Arc<str>, NetdevLocation>,
}

/// Where an interface is.
#[derive(Debug, Clone, PartialEq, Eq)]
struct NetdevLocation {
    directory: PathBuf,
    function: PathBuf,
    pci_address: PciAddress,
    device: DeviceName,
}

impl NetdevSetupCollector {
    fn new(setup: &Setup, generic: Option<NetlinkConnector>, ioctl: Option<ReadFeatures>) -> Self {
        let (filter, route) = (setup.filter.clone(), setup.host.route.clone());
        Self { filter, route, generic, ioctl, locations: BTreeMap::new() }
    }
}

impl Collector for NetdevSetupCollector {
    /// Skips VFs whose PF is on this host: there may be hundreds, and the PF makes their settings.
    fn discover(&mut self, cx: &mut ReadContext<'_>) -> Result<Vec<Discovered>, ReadError> {
        let inventory = DeviceInventory::read(cx, &self.filter)?;
        let before = std::mem::take(&mut self.locations);
        for device in
            inventory.allowed.iter().filter(|device| cx.host.io.link(&device.function.join("physfn")).is_err())
        {
            for (directory, name) in interfaces(cx, device) {
                let location = NetdevLocation {
                    directory: directory.join(&name),
                    function: device.function.clone(),
                    pci_address: device.address,
                    device: device.name.clone(),
                };
                self.locations.entry(Arc::from(name)).or_insert(location);
            }
        }
        // A name that moved to another interface is left out once, so that its reader is opened again.
        let stayed = |name: &Arc<str>, location: &NetdevLocation| before.get(name).is_none_or(|old| old == location);
        let found = self.locations.iter().filter(|(name, location)| stayed(name, location));
        Ok(found
            .map(|(name, location)| Discovered { key: Arc::clone(name), device: Some(location.device.clone()) })
            .collect())
    }

    fn open(&mut self, found: &Discovered) -> Box<dyn DeviceReader> {
        match self.locations.get(&found.key) {
            Some(location) => {
                let reader = NetdevSetupReader::new(Arc::clone(&found.key), location.clone());
                Box::new(reader.asking(self.route.clone(), self.generic.clone(), self.ioctl.clone()))
            }
            None => Box::new(GoneReader),
        }
    }
}

/// How long an unsupported query is not sent again.
const NOT_OFFERED: Duration = Duration::from_secs(10 * 60);

struct NetdevSetupReader {
    netdev: Arc<str>,
    location: NetdevLocation,
    route: Option<LazyConnection>,
    no_dcb_until: Option<BootTime>,
    family: Option<GenericFamily>,
    ioctl: Option<ReadFeatures>,
    no_features_until: Option<BootTime>,
}

impl NetdevSetupReader {
    fn new(netdev: Arc<str>, location: NetdevLocation) -> Self {
        Self { netdev, location, route: None, no_dcb_until: None, family: None, ioctl: None, no_features_until: None }
    }

    /// Adds the connections to query; a recorded host has files only.
    fn asking(
        self,
        route: Option<NetlinkConnector>,
        generic: Option<NetlinkConnector>,
        ioctl: Option<ReadFeatures>,
    ) -> Self {
        Self {
            route: route.map(LazyConnection::new),
            family: generic.map(|connect| GenericFamily::new(FAMILY, connect)),
            ioctl,
            ..self
        }
    }

    fn dcb(&mut self, cx: &mut ReadContext<'_>) -> Dcb {
        if self.no_dcb_until.is_some_and(|until| cx.now < until) {
            return Dcb::default();
        }
        self.no_dcb_until = None;
        let driver = cx.host.io.link(&self.location.function.join("driver")).ok();
        // This driver trusts DSCP as long as its table has a DSCP entry.
        let by_dscp_alone = driver.is_some_and(|driver| driver.ends_with("mlx5_core"));
        match self.ask_route() {
            Ok(replies) => replies.first().map(|reply| dcb::reply(reply, by_dscp_alone)).unwrap_or_default(),
            Err(error) => {
                if self.failed(cx, "RTM_GETDCB", &error) {
                    self.no_dcb_until = Some(cx.now.after(NOT_OFFERED));
                }
                Dcb::default()
            }
        }
    }

    fn ask_route(&mut self) -> io::Result<Vec<Vec<u8>>> {
        self.route.as_mut().map_or_else(|| Ok(Vec::new()), |route| route.ask(&dcb::request(&self.netdev)))
    }

    /// Offloads over netlink, or by ioctl if netlink does not support them.
    fn offloads(&mut self, cx: &mut ReadContext<'_>) -> Vec<Offload> {
        if self.no_features_until.is_some_and(|until| cx.now < until) {
            return Vec::new();
        }
        self.no_features_until = None;
        let said = match &mut self.family {
            Some(family) => family.ask(cx.now, features::GET, false, &features::request(&self.netdev)),
            None => Ok(None),
        };
        let listed = match said {
            Ok(Some(replies)) => {
                let reply = replies.first();
                return reply.map(|reply| features::offloads(generic::attributes(reply))).unwrap_or_default();
            }
            Err(error) if !refused(&error) => Err(error),
            Ok(None) | Err(_) => match &self.ioctl {
                Some(ioctl) => ioctl(&self.netdev),
                None => Ok(Vec::new()),
            },
        };
        match listed {
            Ok(listed) => {
                if listed.is_empty() {
                    self.no_features_until = Some(cx.now.after(NOT_OFFERED));
                }
                features::listed(&listed)
            }
            Err(error) => {
                if self.failed(cx, "ETHTOOL_MSG_FEATURES_GET", &error) {
                    self.no_features_until = Some(cx.now.after(NOT_OFFERED));
                }
                Vec::new()
            }
        }
    }

    /// Records a failure, unless the query is unsupported or the interface is gone; true if it is unsupported.
    fn failed(&self, cx: &mut ReadContext<'_>, what: &str, error: &io::Error) -> bool {
        let refused = refused(error);
        if !refused && !is(error, &[Errno::NODEV]) {
            let reason = reason_of(error).unwrap_or(ReadError::Io);
            cx.fault(Path::new(&format!("{what} {}", self.netdev)), reason);
        }
        refused
    }

    fn file<T>(&self, cx: &mut ReadContext<'_>, name: &str, parse: impl FnOnce(&[u8]) -> Reading<T>) -> Option<T> {
        PolledFile::new(self.location.directory.join(name)).read_unless_down(cx, parse).value()
    }

    fn ipoib(&self, cx: &mut ReadContext<'_>) -> Option<Ipoib> {
        let mode = self.file(cx, "mode", text::label)?;
        let user_multicast = self.file(cx, "umcast", text::counter).map(|on| on != 0);
        Some(Ipoib { mode, user_multicast })
    }

    /// `qos/trust` of out-of-tree drivers.
    fn trust(&self, cx: &mut ReadContext<'_>) -> Option<PriorityTrust> {
        match &*self.file(cx, "qos/trust", text::label)? {
            "dscp" => Some(PriorityTrust::Dscp),
            "pcp" => Some(PriorityTrust::Pcp),
            _ => None,
        }
    }

    /// `ecn/roce_{np,rp}/enable/<priority>` of out-of-tree drivers.
    fn ecn(&self, cx: &mut ReadContext<'_>) -> Option<Ecn> {
        let mut point = |name: &str| {
            let directory = format!("ecn/{name}/enable");
            let names = cx.host.io.list(&self.location.directory.join(&directory)).ok()?;
            let on = (0..8u8).filter(|priority| {
                names.contains(&priority.to_string())
                    && self.file(cx, &format!("{directory}/{priority}"), text::counter).is_some_and(|on| on != 0)
            });
            Some(Priorities(on.fold(0, |set, priority| set | 1 << priority)))
        };
        let notifies = point("roce_np")?;
        Some(Ecn { notifies, reacts: point("roce_rp")? })
    }
}

impl DeviceReader for NetdevSetupReader {
    /// Empty if the interface reports nothing.
    fn read(&mut self, cx: &mut ReadContext<'_>) -> Vec<Fact> {
        let mut dcb = self.dcb(cx);
        dcb.trust = self.trust(cx).or(dcb.trust);
        let setup = NetdevSetup {
            netdev: Arc::clone(&self.netdev),
            pci_address: self.location.pci_address,
            device: self.location.device.clone(),
            dcb,
            ecn: self.ecn(cx),
            ipoib: self.ipoib(cx),
            offloads: self.offloads(cx),
            at: cx.now,
        };
        let silent =
            setup.dcb == Dcb::default() && setup.ecn.is_none() && setup.ipoib.is_none() && setup.offloads.is_empty();
        if silent { Vec::new() } else { vec![Arc::new(setup)] }
    }

    fn quarantined(&self) -> usize {
        let features = self.no_features_until.filter(|_| self.family.is_some() || self.ioctl.is_some());
        usize::from(self.no_dcb_until.is_some()) + usize::from(features.is_some())
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Mutex;

    use rustix::io::Errno;

    use super::dcb::tests::dcb_reply;
    use super::features::tests::features_reply;
    use super::*;
    use crate::host::collector::Depth;
    use crate::host::ethtool::access::EthtoolConnection as _;
    use crate::host::ethtool::ioctl::EthtoolSocket;
    use crate::host::harness::{CARD, CollectorHarness, facts};
    use crate::host::netlink::generic::tests::FakeFamily;
    use crate::host::netlink::socket;
    use crate::host::netlink::socket::NetlinkConnection;
    use crate::model::net::{Ecn, Ipoib, NetdevSetup, Offload, Priorities, PriorityTrust};
    use crate::model::time::BootTime;

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
        let harness = CollectorHarness::with_card(&SPEC);
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
    fn priorities_over_netlink() {
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
    fn an_unsupported_query_is_no_fault() {
        let (mut harness, route) = (harness(), Arc::new(Route::default()));
        harness.set_route(connect(&route));
        *route.refuses.lock().unwrap() = Some(Errno::OPNOTSUPP);
        assert_eq!((read(&mut harness).len(), harness.faults.len(), harness.quarantined()), (0, 0, 1));
        read(&mut harness);
        assert_eq!(*route.asked.lock().unwrap(), 1, "not asked for a while");
        for (errno, faults) in [(Errno::NODEV, 0), (Errno::IO, 1)] {
            harness.set_route(connect(&route));
            *route.refuses.lock().unwrap() = Some(errno);
            assert_eq!(
                (read(&mut harness).len(), harness.faults.len(), harness.quarantined()),
                (0, faults, 0),
                "{errno}"
            );
        }
    }

    #[test]
    fn offloads_and_kernels_without_them() {
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
    fn older_kernels_report_offloads_by_ioctl() {
        let (harness, made) = (harness(), Arc::new(FakeFamily::default()));
        let host = harness.memory.host();
        let setup = Setup { host: host.clone(), filter: Filter::default() };
        let ioctl: ReadFeatures = Arc::new(|netdev| {
            assert_eq!(netdev, "eth2");
            let feature = |name: &str, on, fixed| (name.to_owned(), on, fixed);
            Ok(vec![
                feature("rx-lro", false, true),
                feature("of-no-interest", true, true),
                feature("rx-gro", true, false),
            ])
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
}
