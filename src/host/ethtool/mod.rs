//! Statistics of the network interfaces that share a port with an RDMA device (ethtool).

pub mod access;
pub mod ioctl;
pub mod line;
pub mod link_state;
pub mod standard;
pub mod table;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::collector::{Collector, DeviceReader, Discovered, Filter, GoneReader, ReadContext, Setup, Spec};
use super::function::DeviceInventory;
use super::io::reason_of;
use super::net::interfaces;
use crate::model::counter::CounterClass;
use crate::model::ids::{DeviceName, PciAddress};
use crate::model::net::{NetdevLine, NetdevStatistic, NetdevStatistics, StatisticKind};
use crate::model::reading::ReadError;
use crate::model::snapshot::Fact;
use crate::model::time::BootTime;
use access::{EthtoolAccess, EthtoolConnection, EthtoolConnector};
use line::line_errors;
use link_state::LinkStateReader;
use standard::{LINK_DOWNS, NOT_OFFERED, StandardStatisticsReader, is_counted};

/// The collector of Ethernet statistics.
pub const SPEC: Spec = Spec {
    name: "ethtool",
    about: "Pause frames, discards and line errors of Ethernet ports with RDMA (ethtool: driver and standard statistics)",
    interval: Duration::from_secs(15),
    deadline: Duration::from_secs(5),
    fresh: false,
    make: |setup| Box::new(EthtoolCollector::new(setup, setup.host.ethtool.clone())),
};

struct EthtoolCollector {
    filter: Filter,
    access: Option<EthtoolAccess>,
    owners: BTreeMap<Arc<str>, Owner>,
}

/// Whose an interface is, and where.
struct Owner {
    pci_address: PciAddress,
    device: DeviceName,
    directory: PathBuf,
    /// Whether its function is a VF, which firmware may refuse the state of the physical link.
    is_vf: bool,
}

impl EthtoolCollector {
    fn new(setup: &Setup, access: Option<EthtoolAccess>) -> Self {
        Self { filter: setup.filter.clone(), access, owners: BTreeMap::new() }
    }
}

impl Collector for EthtoolCollector {
    fn discover(&mut self, cx: &mut ReadContext<'_>) -> Result<Vec<Discovered>, ReadError> {
        if self.access.is_none() {
            return Ok(Vec::new());
        }
        self.owners.clear();
        for device in &DeviceInventory::read(cx, &self.filter)?.allowed {
            let is_vf = cx.host.io.link(&device.function.join("physfn")).is_ok();
            for (directory, name) in interfaces(cx, device) {
                let owner = Owner {
                    pci_address: device.address,
                    device: device.name.clone(),
                    directory: directory.join(&name),
                    is_vf,
                };
                self.owners.entry(Arc::from(name)).or_insert(owner);
            }
        }
        let found = |(name, owner): (&Arc<str>, &Owner)| Discovered {
            key: Arc::clone(name),
            device: Some(owner.device.clone()),
        };
        Ok(self.owners.iter().map(found).collect())
    }

    fn open(&mut self, found: &Discovered) -> Box<dyn DeviceReader> {
        match (self.owners.get(&found.key), &self.access) {
            (Some(owner), Some(EthtoolAccess { statistics, netlink })) => Box::new(EthtoolReader {
                netdev: Arc::clone(&found.key),
                pci_address: owner.pci_address,
                device: owner.device.clone(),
                is_vf: owner.is_vf,
                connect: Arc::clone(statistics),
                connection: None,
                count: 0,
                own: Vec::new(),
                indices: Vec::new(),
                not_before: None,
                standard_reader: netlink.clone().map(StandardStatisticsReader::new),
                link_state: netlink
                    .clone()
                    .filter(|_| !owner.is_vf)
                    .map(|netlink| LinkStateReader::new(netlink, &owner.directory)),
                standard: Vec::new(),
                layout: None,
            }),
            _ => Box::new(GoneReader),
        }
    }
}

struct EthtoolReader {
    netdev: Arc<str>,
    pci_address: PciAddress,
    device: DeviceName,
    connect: EthtoolConnector,
    connection: Option<Box<dyn EthtoolConnection>>,
    /// Number of all statistics of the driver, the known ones, and their indices.
    count: usize,
    own: Vec<NetdevStatistic>,
    indices: Vec<usize>,
    not_before: Option<BootTime>,
    /// Reads the standard ones.
    standard_reader: Option<StandardStatisticsReader>,
    is_vf: bool,
    /// Asks why a link is down; `None` for VFs.
    link_state: Option<LinkStateReader>,
    /// The standard ones that the driver does not count itself.
    standard: Vec<&'static str>,
    /// The driver's and the standard ones; reused while they stay the same.
    layout: Option<Arc<[NetdevStatistic]>>,
}

impl EthtoolReader {
    fn ask(&mut self) -> io::Result<Vec<u64>> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            empty => empty.insert((self.connect)()?),
        };
        // The set may change between the calls: then retry once.
        for _ in 0..2 {
            let count = connection.count(&self.netdev)?;
            if count != self.count || self.indices.is_empty() {
                let names = connection.names(&self.netdev, count)?;
                let known = names.iter().enumerate().filter_map(|(index, name)| {
                    let meaning = table::meaning(name)?;
                    Some((index, NetdevStatistic { name: Arc::from(name.as_str()), meaning }))
                });
                (self.indices, self.own) = known.unzip();
                (self.count, self.layout) = (names.len(), None);
            }
            let values = connection.values(&self.netdev, self.count)?;
            if values.len() == self.count {
                return Ok(self.indices.iter().filter_map(|index| values.get(*index).copied()).collect());
            }
            self.indices.clear();
        }
        Err(io::ErrorKind::InvalidData.into())
    }

    /// Values of the driver's own statistics; empty if it has none.
    fn own(&mut self, cx: &mut ReadContext<'_>) -> Vec<u64> {
        if self.not_before.is_some_and(|until| cx.now < until) {
            return Vec::new();
        }
        self.not_before = None;
        self.ask().unwrap_or_else(|error| {
            let reason = reason_of(&error);
            if reason == Some(ReadError::NotSupported) {
                self.not_before = Some(cx.now.after(NOT_OFFERED));
            }
            if let Some(reason) = reason {
                cx.fault(Path::new(&format!("ethtool statistics of {}", self.netdev)), reason);
            }
            (self.indices, self.own, self.layout) = (Vec::new(), Vec::new(), None);
            Vec::new()
        })
    }
}

impl DeviceReader for EthtoolReader {
    fn read(&mut self, cx: &mut ReadContext<'_>) -> Vec<Fact> {
        let mut values = self.own(cx);
        let netdev = Arc::clone(&self.netdev);
        let mut reading =
            self.standard_reader.as_mut().map(|standard_reader| standard_reader.read(cx, &netdev)).unwrap_or_default();
        let link = self.link_state.as_mut().map(|link_state| link_state.read(cx, &netdev)).unwrap_or_default();
        reading.statistics.extend(link.downs.map(|downs| (LINK_DOWNS, CounterClass::Error, downs)));
        reading.statistics.retain(|(name, _, _)| !is_counted(name, self.own.iter().map(|own| &*own.name)));
        if !self.standard.iter().eq(reading.statistics.iter().map(|(name, _, _)| name)) {
            self.standard = reading.statistics.iter().map(|(name, _, _)| *name).collect();
            self.layout = None;
        }
        values.extend(reading.statistics.iter().map(|(_, _, value)| *value));
        let layout = self.layout.get_or_insert_with(|| {
            let standard = reading.statistics.iter();
            let standard = standard.map(|(name, class, _)| NetdevStatistic {
                name: Arc::from(*name),
                meaning: StatisticKind::Event(*class),
            });
            self.own.iter().cloned().chain(standard).collect()
        });
        let mut facts: Vec<Fact> = Vec::new();
        if !values.is_empty() {
            facts.push(Arc::new(NetdevStatistics {
                netdev: Arc::clone(&netdev),
                pci_address: self.pci_address,
                device: self.device.clone(),
                layout: Arc::clone(layout),
                values,
                at: cx.now,
            }));
        }
        if reading.fec.is_some() || reading.pause.is_some() {
            let netdev = Arc::clone(&netdev);
            facts.push(Arc::new(NetdevLine { netdev, fec: reading.fec, pause: reading.pause }));
        }
        if !self.is_vf {
            let values = facts.first().and_then(|fact| fact.downcast_ref::<NetdevStatistics>());
            let statistics = |name: &str| values?.get(name);
            let errors = line_errors(&netdev, reading.fec, &reading.fec_counts, statistics, cx.now);
            facts.extend(errors.map(|errors| Arc::new(errors) as Fact));
        }
        facts.extend(link.state.map(|state| Arc::new(state) as Fact));
        facts
    }

    fn quarantined(&self) -> usize {
        usize::from(self.not_before.is_some())
            + self.standard_reader.as_ref().map_or(0, StandardStatisticsReader::quarantined)
    }
}

#[cfg(test)]
mod tests {
    //! The collector with statistics that a test makes up.

    use std::sync::Mutex;

    use rustix::io::Errno;

    use super::*;
    use crate::host::collector::Depth;
    use crate::host::ethtool::standard::tests::{fec_reply, group, pause_reply, stats_reply};
    use crate::host::io::Host;
    use crate::host::memory::MemoryHost;
    use crate::host::netlink::generic::tests::FakeFamily;
    use crate::host::netlink::socket::NetlinkConnector;
    use crate::model::line::FecMode;
    use crate::model::net::StatisticKind;

    #[derive(Default)]
    struct Driver {
        statistics: Mutex<Vec<(String, u64)>>,
        refuses: Mutex<Option<Errno>>,
        asked: Mutex<Vec<&'static str>>,
    }

    impl Driver {
        fn set(&self, statistics: &[(&str, u64)]) {
            *self.statistics.lock().unwrap() =
                statistics.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        }
    }

    struct Connection(Arc<Driver>);

    impl EthtoolConnection for Connection {
        fn count(&self, _: &str) -> io::Result<usize> {
            self.0.asked.lock().unwrap().push("count");
            match *self.0.refuses.lock().unwrap() {
                Some(errno) => Err(errno.into()),
                None => Ok(self.0.statistics.lock().unwrap().len()),
            }
        }

        fn names(&self, _: &str, _: usize) -> io::Result<Vec<String>> {
            self.0.asked.lock().unwrap().push("names");
            Ok(self.0.statistics.lock().unwrap().iter().map(|(name, _)| name.clone()).collect())
        }

        fn values(&self, _: &str, _: usize) -> io::Result<Vec<u64>> {
            Ok(self.0.statistics.lock().unwrap().iter().map(|(_, value)| *value).collect())
        }
    }

    fn reader(driver: &Arc<Driver>) -> (Host, Box<dyn DeviceReader>) {
        reader_with(driver, None)
    }

    fn reader_with(driver: &Arc<Driver>, netlink: Option<NetlinkConnector>) -> (Host, Box<dyn DeviceReader>) {
        let memory = Arc::new(MemoryHost::new());
        let function = "/sys/devices/pci0000:80/0000:81:00.0";
        memory.symlink(format!("{function}/infiniband/mlx5_0/device"), "../../../0000:81:00.0");
        memory.symlink("/sys/class/infiniband/mlx5_0", "../../devices/pci0000:80/0000:81:00.0/infiniband/mlx5_0");
        memory.set(format!("{function}/net/eth2/type"), "1\n");
        let host = memory.host();
        let driver = Arc::clone(driver);
        let statistics: EthtoolConnector = Arc::new(move || Ok(Box::new(Connection(Arc::clone(&driver)))));
        let setup = Setup { host: host.clone(), filter: Filter::default() };
        let mut collector = EthtoolCollector::new(&setup, Some(EthtoolAccess { statistics, netlink }));
        let found = collector.discover(&mut ReadContext::new(&host, BootTime(0), Depth::Full)).unwrap();
        assert_eq!(found.len(), 1);
        let reader = collector.open(&found[0]);
        (host, reader)
    }

    fn read(host: &Host, reader: &mut Box<dyn DeviceReader>, second: i64) -> (Option<NetdevStatistics>, usize) {
        let mut cx = ReadContext::new(host, BootTime(second * 1000), Depth::Full);
        let facts = reader.read(&mut cx);
        (facts.first().and_then(|fact| fact.downcast_ref().cloned()), cx.faults.len())
    }

    #[test]
    fn known_statistics_by_name_and_names_asked_for_once() {
        let driver = Arc::new(Driver::default());
        driver.set(&[("rx_packets", 1), ("rx_prio3_pause", 2), ("ch0_events", 3), ("rx_discards_phy", 4)]);
        let (host, mut reader) = reader(&driver);
        let (seen, faults) = read(&host, &mut reader, 0);
        let seen = seen.unwrap();
        assert_eq!((seen.values.clone(), seen.get("rx_discards_phy"), faults), (vec![2, 4], Some(4), 0));
        assert!(matches!(seen.layout[0].meaning, StatisticKind::PfcFrames { priority: 3, .. }));
        read(&host, &mut reader, 15);
        assert_eq!(*driver.asked.lock().unwrap(), ["count", "names", "count"]);
        // PFC is enabled for one more priority.
        driver.set(&[("rx_prio2_pause", 7), ("rx_prio3_pause", 2), ("x", 3), ("y", 4), ("rx_discards_phy", 5)]);
        let seen = read(&host, &mut reader, 30).0.unwrap();
        assert_eq!((seen.get("rx_prio2_pause"), seen.get("rx_discards_phy")), (Some(7), Some(5)));
    }

    #[test]
    fn an_interface_without_statistics_is_left_alone() {
        let driver = Arc::new(Driver::default());
        *driver.refuses.lock().unwrap() = Some(Errno::OPNOTSUPP);
        let (host, mut reader) = reader(&driver);
        assert_eq!(read(&host, &mut reader, 0), (None, 1));
        assert_eq!((read(&host, &mut reader, 15), reader.quarantined()), ((None, 0), 1));
        *driver.refuses.lock().unwrap() = None;
        driver.set(&[("rx_discards_phy", 4)]);
        assert!(read(&host, &mut reader, 600).0.is_some());
    }

    #[test]
    fn standard_statistics_stand_beside_the_drivers_own_and_count_nothing_twice() {
        let (driver, made) = (Arc::new(Driver::default()), Arc::new(FakeFamily::default()));
        driver.set(&[("rx_packets", 1), ("rx_crc_errors_phy", 2), ("rx_discards_phy", 3)]);
        made.set(32, &[stats_reply(&[group(1, &[(4, 2), (21, 5)])])]);
        made.set(29, &[fec_reply(50, &[(3, &[7])])]);
        let (host, mut reader) = reader_with(&driver, Some(FakeFamily::connect(&made)));
        let (seen, faults) = read(&host, &mut reader, 0);
        let seen = seen.unwrap();
        let pairs: Vec<(&str, u64)> = seen.iter().map(|(statistic, value)| (&*statistic.name, value)).collect();
        let own = [("rx_crc_errors_phy", 2), ("rx_discards_phy", 3)];
        assert_eq!(pairs, [&own[..], &[("FrameTooLongErrors", 5), ("fec_uncorrectable_blocks", 7)]].concat());
        assert_eq!((faults, reader.quarantined()), (0, 1), "pauses are not offered");
        let again = read(&host, &mut reader, 15).0.unwrap();
        assert!(Arc::ptr_eq(&seen.layout, &again.layout), "names are made once");
        // FEC is switched off, and the driver's own statistics fail.
        made.set(29, &[fec_reply(49, &[])]);
        *driver.refuses.lock().unwrap() = Some(Errno::OPNOTSUPP);
        let seen = read(&host, &mut reader, 30).0.unwrap();
        let pairs: Vec<(&str, u64)> = seen.iter().map(|(statistic, value)| (&*statistic.name, value)).collect();
        assert_eq!(pairs, [("FrameCheckSequenceErrors", 2), ("FrameTooLongErrors", 5)]);
    }

    #[test]
    fn a_line_says_how_it_is_run() {
        let (driver, made) = (Arc::new(Driver::default()), Arc::new(FakeFamily::default()));
        made.set(29, &[fec_reply(50, &[])]);
        made.set(21, &[pause_reply(1, 0, None)]);
        let (host, mut reader) = reader_with(&driver, Some(FakeFamily::connect(&made)));
        let facts = reader.read(&mut ReadContext::new(&host, BootTime(0), Depth::Full));
        let expected = NetdevLine { netdev: Arc::from("eth2"), fec: Some(FecMode::Rs), pause: Some((true, false)) };
        assert_eq!((facts.len(), facts[0].downcast_ref()), (1, Some(&expected)));
    }

    #[test]
    fn a_recorded_host_has_none() {
        let host = Arc::new(MemoryHost::new()).host();
        let mut collector = (SPEC.make)(&Setup { host: host.clone(), filter: Filter::default() });
        assert_eq!(collector.discover(&mut ReadContext::new(&host, BootTime(0), Depth::Full)), Ok(Vec::new()));
    }
}
