//! What cards' firmware says of their ports, from files that an administrator's timer writes (`mstlink --json`): one
//! `<RDMA device>.json` in a directory. The agent never runs the tool, which needs root.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::collector::{Collector, DeviceReader, Discovered, Filter, GoneReader, ReadContext, Spec};
use super::file::content;
use super::function::DeviceInventory;
use super::io::{DirStamp, reason_of};
use super::mstlink::{LONGEST, parse};
use super::net::interfaces;
use crate::model::firmware_link::FirmwareReport;
use crate::model::ids::{DeviceName, PciAddress};
use crate::model::module::Module;
use crate::model::reading::ReadError;
use crate::model::snapshot::Fact;
use crate::model::time::BootTime;

/// The collector of firmware reports; off by default.
pub const SPEC: Spec = Spec {
    name: "mstlink",
    about: "Firmware's word on ports and modules, from files that lanewatch-mstlink.timer writes",
    interval: Duration::from_secs(60),
    deadline: Duration::from_secs(5),
    fresh: false,
    make: |setup| Box::new(FirmwareCollector { filter: setup.filter.clone(), places: BTreeMap::new() }),
};

/// How old a file may be: three times the timer's interval.
const OLDEST: Duration = Duration::from_secs(30 * 60);

/// The place of a file.
#[derive(Clone)]
struct Place {
    file: PathBuf,
    device: DeviceName,
    pci_address: PciAddress,
    netdev: Option<Arc<str>>,
}

struct FirmwareCollector {
    filter: Filter,
    places: BTreeMap<Arc<str>, Place>,
}

impl Collector for FirmwareCollector {
    fn discover(&mut self, cx: &mut ReadContext<'_>) -> Result<Vec<Discovered>, ReadError> {
        self.places.clear();
        let directory = cx.host.roots.mstlink.clone();
        let names = cx.list(&directory)?;
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let mut found = Vec::new();
        for device in &DeviceInventory::read(cx, &self.filter)?.allowed {
            let name = format!("{}.json", device.name);
            if !names.contains(&name) {
                continue;
            }
            let key: Arc<str> = Arc::from(device.name.as_str());
            let netdev = interfaces(cx, device).into_iter().next().map(|(_, name)| Arc::from(name));
            let (file, device_name) = (directory.join(name), device.name.clone());
            let place = Place { file, device: device_name.clone(), pci_address: device.address, netdev };
            self.places.insert(Arc::clone(&key), place);
            found.push(Discovered { key, device: Some(device_name) });
        }
        Ok(found)
    }

    fn open(&mut self, found: &Discovered) -> Box<dyn DeviceReader> {
        match self.places.get(&found.key) {
            Some(place) => Box::new(FirmwareReader { place: place.clone(), seen: None }),
            None => Box::new(GoneReader),
        }
    }
}

/// Reads one file. Its age is the time since it was last seen to change: no clock of another program is believed.
struct FirmwareReader {
    place: Place,
    seen: Option<SeenFile>,
}

/// A file as it was last read.
struct SeenFile {
    stamp: DirStamp,
    content: Vec<u8>,
    /// When it was first seen so.
    since: BootTime,
}

impl DeviceReader for FirmwareReader {
    fn read(&mut self, cx: &mut ReadContext<'_>) -> Vec<Fact> {
        let (io, file) = (&*cx.host.io, &self.place.file);
        // One byte more shows that a file is too long.
        let read = io.stamp(file).and_then(|stamp| Ok((stamp, content(io, file, LONGEST + 1)?)));
        let (stamp, bytes) = match read {
            Ok(read) => read,
            Err(error) => {
                if let Some(reason) = reason_of(&error) {
                    cx.fault(&self.place.file, reason);
                }
                return Vec::new();
            }
        };
        let same = |seen: &&SeenFile| seen.stamp == stamp && seen.content == bytes;
        let since = self.seen.as_ref().filter(same).map_or(cx.now, |seen| seen.since);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        self.seen = Some(SeenFile { stamp, content: bytes, since });
        if cx.now.since(since) > OLDEST {
            return Vec::new();
        }
        let Ok(link) = parse(&text) else {
            cx.fault(&self.place.file, ReadError::Malformed);
            return Vec::new();
        };
        let mut facts: Vec<Fact> = Vec::new();
        if let (Some(netdev), Some(identity)) = (&self.place.netdev, &link.identity) {
            facts.push(Arc::new(Module {
                netdev: Arc::clone(netdev),
                pci_address: self.place.pci_address,
                identity: Arc::clone(identity),
                limits: link.limits,
                values: link.values.clone(),
                at: since,
            }));
        }
        facts.push(Arc::new(FirmwareReport { device: self.place.device.clone(), link }));
        facts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::harness::{CARD, CollectorHarness, facts};

    const FILE: &str = "/run/lanewatch-mstlink/mlx5_0.json";

    fn harness() -> CollectorHarness {
        let harness = CollectorHarness::with_card(&SPEC);
        harness.memory.set(format!("{CARD}/net/ib0/type"), "32\n");
        harness
    }

    fn document(opcode: u32) -> String {
        format!(
            r#"{{"result":{{"output":{{"Operational Info":{{"State":"Polling"}},"Troubleshooting Info":{{"Status Opcode":"{opcode}","Recommendation":"Cable is unplugged"}},"Module Info":{{"Identifier":"OSFP","Temperature [C]":"51 [-5..75]"}}}}}},"status":{{"code":0}}}}"#
        )
    }

    fn read(harness: &mut CollectorHarness) -> (Vec<FirmwareReport>, Vec<Module>) {
        harness.discover().unwrap();
        let read = harness.read();
        (facts(&read), facts(&read))
    }

    #[test]
    fn a_report_joins_its_device_and_interface() {
        let mut harness = harness();
        assert_eq!((read(&mut harness), harness.faults.len()), ((vec![], vec![]), 0), "no directory is no fault");
        harness.memory.set(FILE, document(1024));
        harness.memory.set("/run/lanewatch-mstlink/mlx5_9.json", document(1024));
        let (reports, modules) = read(&mut harness);
        assert_eq!((reports.len(), reports[0].device.as_str(), reports[0].link.opcode), (1, "mlx5_0", Some(1024)));
        assert_eq!((modules.len(), &*modules[0].netdev), (1, "ib0"));
    }

    #[test]
    fn a_file_that_no_longer_changes_is_old_and_a_damaged_one_a_fault() {
        let mut harness = harness();
        harness.memory.set(FILE, document(1024));
        let reads = (0..400).filter(|_| !read(&mut harness).0.is_empty()).count();
        assert_eq!(reads, 361, "for half an hour, every five seconds");
        harness.memory.set(FILE, document(0));
        assert_eq!(read(&mut harness).0.len(), 1);
        for damaged in ["", "-E- Failed to open device", &document(0)[..40], &" ".repeat(70_000)] {
            harness.memory.set(FILE, damaged);
            assert_eq!((read(&mut harness).0.len(), harness.faults.len()), (0, 1), "{damaged:.20}");
        }
    }
}
