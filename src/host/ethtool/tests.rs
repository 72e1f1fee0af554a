//! The collector with statistics that a test makes up.

use std::sync::Mutex;

use rustix::io::Errno;

use super::*;
use crate::host::collector::Depth;
use crate::host::ethtool::standard::tests::{fec_reply, group, pause_reply, stats_reply};
use crate::host::io::Host;
use crate::host::memory::MemoryHost;
use crate::host::netlink::generic::tests::FakeFamily;
use crate::model::ethtool::StatisticKind;

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
    let connect: EthtoolConnector = Arc::new(move || Ok(Box::new(Connection(Arc::clone(&driver)))));
    let mut collector =
        EthtoolCollector::new(&Setup { host: host.clone(), filter: Filter::default() }, Some(connect), netlink);
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
    // PFC is switched on for one more priority.
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
    // Error correction is switched off, and the driver no longer answers for its own.
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
    let expected = NetdevLine { netdev: Arc::from("eth2"), fec: Some("rs"), pause: Some((true, false)) };
    assert_eq!((facts.len(), facts[0].downcast_ref()), (1, Some(&expected)));
}

#[test]
fn a_recorded_host_has_none() {
    let host = Arc::new(MemoryHost::new()).host();
    let mut collector = (SPEC.make)(&Setup { host: host.clone(), filter: Filter::default() });
    assert_eq!(collector.discover(&mut ReadContext::new(&host, BootTime(0), Depth::Full)), Ok(Vec::new()));
}
