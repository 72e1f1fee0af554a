//! Health reporters of drivers over generic netlink (`DEVLINK_CMD_HEALTH_REPORTER_GET`, `uapi/linux/devlink.h`).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;

use super::collector::{Collector, DeviceReader, Discovered, Filter, GoneReader, ReadContext, Setup, Spec};
use super::function::DeviceInventory;
use super::io::reason_of;
use super::netlink::generic::{self, GenericFamily, is};
use super::netlink::message::{Attributes, number8, number64, put_text, text};
use super::netlink::socket::{NetlinkConnector, Protocol};
use crate::model::health::{FunctionHealth, Reporter};
use crate::model::ids::{DeviceName, PciAddress};
use crate::model::reading::ReadError;
use crate::model::snapshot::Fact;
use crate::model::time::BootTime;

/// The collector of health reporters.
pub const SPEC: Spec = Spec {
    name: "devlink",
    about: "Device health as drivers report it: state, errors, recoveries (devlink health reporters)",
    interval: Duration::from_secs(15),
    deadline: Duration::from_secs(5),
    fresh: false,
    make: |setup| Box::new(DevlinkCollector::new(setup, setup.host.netlink(Protocol::Generic))),
};

const GET: u8 = 52;
const BUS_NAME: u16 = 1;
const DEV_NAME: u16 = 2;
const REPORTER: u16 = 114;
const NAME: u16 = 115;
const STATE: u16 = 116;
const ERRORS: u16 = 117;
const RECOVERIES: u16 = 118;
const AUTO_RECOVER: u16 = 121;

/// Most reporters of a function; drivers have up to six.
const MOST: usize = 16;
/// Longest name of a reporter.
const LONGEST: usize = 32;

/// How long a function without reporters is not queried again.
const NOT_OFFERED: Duration = Duration::from_secs(10 * 60);

struct DevlinkCollector {
    filter: Filter,
    connect: Option<NetlinkConnector>,
    devices: BTreeMap<PciAddress, DeviceName>,
}

impl DevlinkCollector {
    fn new(setup: &Setup, connect: Option<NetlinkConnector>) -> Self {
        Self { filter: setup.filter.clone(), connect, devices: BTreeMap::new() }
    }
}

impl Collector for DevlinkCollector {
    /// Skips VFs whose PF is on this host: there may be hundreds.
    fn discover(&mut self, cx: &mut ReadContext<'_>) -> Result<Vec<Discovered>, ReadError> {
        if self.connect.is_none() {
            return Ok(Vec::new());
        }
        self.devices.clear();
        for device in DeviceInventory::read(cx, &self.filter)?.allowed {
            if cx.host.io.link(&device.function.join("physfn")).is_err() {
                self.devices.entry(device.address).or_insert(device.name);
            }
        }
        let found = self.devices.iter();
        Ok(found
            .map(|(address, device)| Discovered { key: Arc::from(address.to_string()), device: Some(device.clone()) })
            .collect())
    }

    fn open(&mut self, found: &Discovered) -> Box<dyn DeviceReader> {
        let function = found.key.parse().ok().and_then(|address| self.devices.get_key_value(&address));
        match (function, &self.connect) {
            (Some((pci_address, device)), Some(connect)) => Box::new(DevlinkReader {
                pci_address: *pci_address,
                device: device.clone(),
                family: GenericFamily::new("devlink", Arc::clone(connect)),
                not_before: None,
            }),
            _ => Box::new(GoneReader),
        }
    }
}

struct DevlinkReader {
    pci_address: PciAddress,
    device: DeviceName,
    family: GenericFamily,
    not_before: Option<BootTime>,
}

impl DeviceReader for DevlinkReader {
    /// Kernels since 6.6 list the reporters of the function alone, older ones those of every function.
    fn read(&mut self, cx: &mut ReadContext<'_>) -> Vec<Fact> {
        if self.not_before.is_some_and(|until| cx.now < until) {
            return Vec::new();
        }
        self.not_before = None;
        let name = self.pci_address.to_string();
        let replies = match self.family.ask(cx.now, GET, true, &request(&name)) {
            Ok(replies) => replies.unwrap_or_default(),
            Err(error) => {
                let reason = reason_of(&error).unwrap_or(ReadError::Io);
                if reason == ReadError::NotSupported || is(&error, &[Errno::NODEV]) {
                    self.not_before = Some(cx.now.after(NOT_OFFERED));
                } else {
                    cx.fault(Path::new(&format!("DEVLINK_CMD_HEALTH_REPORTER_GET {name}")), reason);
                }
                return Vec::new();
            }
        };
        let reporters = reporters(&replies, &name);
        if reporters.is_empty() {
            return Vec::new();
        }
        let (pci_address, device) = (self.pci_address, self.device.clone());
        vec![Arc::new(FunctionHealth { pci_address, device, reporters })]
    }

    fn quarantined(&self) -> usize {
        usize::from(self.not_before.is_some())
    }
}

/// The health reporters of a function (its address as text), by their names, from the replies that list them.
pub fn reporters(replies: &[Vec<u8>], function: &str) -> Vec<Reporter> {
    let mut reporters = Vec::new();
    for reply in replies {
        take(generic::attributes(reply), function, &mut reporters);
    }
    reporters.sort_by(|a, b| a.name.cmp(&b.name));
    reporters
}

/// The attributes of a request about a function.
fn request(name: &str) -> Vec<u8> {
    let mut out = Vec::new();
    put_text(&mut out, BUS_NAME, "pci");
    put_text(&mut out, DEV_NAME, name);
    out
}

/// Adds the reporter of a reply if it belongs to this function. Reporters of the same name on several ports are merged.
fn take(reply: Attributes<'_>, function: &str, reporters: &mut Vec<Reporter>) {
    let (mut bus, mut name, mut nest) = (None, None, None);
    for (kind, value) in reply {
        match kind {
            BUS_NAME => bus = text(value),
            DEV_NAME => name = text(value),
            REPORTER => nest = Some(value),
            _ => {}
        }
    }
    let mine = bus == Some("pci") && name == Some(function);
    let Some(reporter) = nest.filter(|_| mine).and_then(reporter) else { return };
    let full = reporters.len() >= MOST;
    match reporters.iter_mut().find(|known| known.name == reporter.name) {
        Some(known) => {
            known.in_error |= reporter.in_error;
            known.errors = known.errors.saturating_add(reporter.errors);
            known.recoveries = known.recoveries.saturating_add(reporter.recoveries);
            known.auto_recover = known.auto_recover.or(reporter.auto_recover);
        }
        None if full => {}
        None => reporters.push(reporter),
    }
}

/// `None` if a field is missing or the name is not a plain word.
fn reporter(nest: &[u8]) -> Option<Reporter> {
    let (mut name, mut state, mut errors, mut recoveries, mut auto_recover) = (None, None, None, None, None);
    for (kind, value) in Attributes::new(nest) {
        match kind {
            NAME => name = text(value),
            STATE => state = number8(value),
            ERRORS => errors = number64(value),
            RECOVERIES => recoveries = number64(value),
            AUTO_RECOVER => auto_recover = number8(value).map(|on| on != 0),
            _ => {}
        }
    }
    let word = |name: &&str| {
        let suits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
        (1..=LONGEST).contains(&name.len()) && name.bytes().all(suits)
    };
    Some(Reporter {
        name: Arc::from(name.filter(word)?),
        in_error: state? != 0,
        errors: errors?,
        recoveries: recoveries?,
        auto_recover,
    })
}

#[cfg(test)]
mod tests {
    //! Replies as the kernel lays them out.

    use proptest::prelude::*;

    use super::*;
    use crate::host::collector::Depth;
    use crate::host::harness::{CARD, CollectorHarness, facts};
    use crate::host::io::Host;
    use crate::host::netlink::generic::tests::FakeFamily;
    use crate::host::netlink::message::tests::attribute;
    use crate::host::netlink::socket;

    /// A reply about a reporter: name, state, errors, recoveries, whether it recovers by itself; and the port it is of.
    fn reply(function: &str, port: Option<u32>, said: (&str, u8, u64, u64, Option<u8>)) -> Vec<u8> {
        let (name, state, errors, recoveries, auto_recover) = said;
        let mut nest = [attribute(NAME, &[name.as_bytes(), &[0]].concat()), attribute(STATE, &[state])].concat();
        nest.extend(attribute(ERRORS, &errors.to_ne_bytes()));
        nest.extend(attribute(RECOVERIES, &recoveries.to_ne_bytes()));
        if let Some(on) = auto_recover {
            nest.extend(attribute(120, &10_000u64.to_ne_bytes()));
            nest.extend(attribute(AUTO_RECOVER, &[on]));
        }
        let mut out =
            [attribute(BUS_NAME, b"pci\0"), attribute(DEV_NAME, &[function.as_bytes(), &[0]].concat())].concat();
        out.extend(port.iter().flat_map(|port| attribute(3, &port.to_ne_bytes())));
        out.extend(attribute(REPORTER, &nest));
        out
    }

    fn reader(made: &Arc<FakeFamily>) -> (Host, Box<dyn DeviceReader>) {
        let harness = CollectorHarness::with_card(&SPEC);
        let host = harness.memory.host();
        let mut collector = DevlinkCollector::new(
            &Setup { host: host.clone(), filter: Filter::default() },
            Some(FakeFamily::connect(made)),
        );
        let found = collector.discover(&mut ReadContext::new(&host, BootTime(0), Depth::Full)).unwrap();
        assert_eq!(found.iter().map(|found| &*found.key).collect::<Vec<_>>(), ["0000:3b:00.0"]);
        let reader = collector.open(&found[0]);
        harness.memory.symlink(format!("{CARD}/physfn"), "../0000:3b:00.1");
        assert_eq!(
            collector.discover(&mut ReadContext::new(&host, BootTime(0), Depth::Full)),
            Ok(Vec::new()),
            "a VF beside its PF"
        );
        (host, reader)
    }

    fn read(host: &Host, reader: &mut Box<dyn DeviceReader>, second: i64) -> (Vec<Reporter>, usize) {
        let mut cx = ReadContext::new(host, BootTime(second * 1000), Depth::Full);
        let health = facts::<FunctionHealth>(&reader.read(&mut cx));
        (health.into_iter().flat_map(|health| health.reporters).collect(), cx.faults.len())
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn byte_for_byte() {
        #[rustfmt::skip]
        let handle = [
            8, 0, 1, 0, b'p', b'c', b'i', 0,
            17, 0, 2, 0, b'0', b'0', b'0', b'0', b':', b'3', b'b', b':', b'0', b'0', b'.', b'0', 0, 0, 0, 0,
        ];
        assert_eq!(request("0000:3b:00.0"), handle);
        #[rustfmt::skip]
        let nest = [
            80, 0, 114, 0,
            13, 0, 115, 0, b'f', b'w', b'_', b'f', b'a', b't', b'a', b'l', 0, 0, 0, 0,
            5, 0, 116, 0, 1, 0, 0, 0,
            12, 0, 117, 0, 3, 0, 0, 0, 0, 0, 0, 0,
            12, 0, 118, 0, 2, 0, 0, 0, 0, 0, 0, 0,
            12, 0, 120, 0, 0x60, 0xea, 0, 0, 0, 0, 0, 0,
            5, 0, 121, 0, 1, 0, 0, 0,
            5, 0, 141, 0, 1, 0, 0, 0,
        ];
        let reply = [&handle[..], &nest].concat();
        let mut seen = Vec::new();
        take(Attributes::new(&reply), "0000:3b:00.0", &mut seen);
        let name = Arc::from("fw_fatal");
        let expected = Reporter { name, in_error: true, errors: 3, recoveries: 2, auto_recover: Some(true) };
        assert_eq!(seen, [expected]);
        for end in 0..reply.len() {
            take(Attributes::new(&reply[..end]), "0000:3b:00.0", &mut Vec::new());
        }
    }

    #[test]
    fn the_reporters_of_a_function_and_of_no_other() {
        let made = Arc::new(FakeFamily::default());
        let own = "0000:3b:00.0";
        made.set(
            GET,
            &[
                reply(own, None, ("fw_fatal", 0, 0, 0, Some(1))),
                reply("0000:3b:00.1", None, ("fw", 1, 9, 9, None)),
                reply(own, None, ("fw", 1, 2, 1, None)),
                reply(own, Some(65_535), ("tx", 0, 4, 4, Some(1))),
                reply(own, Some(1), ("tx", 1, 1, 0, Some(1))),
                reply(own, None, ("a name\nof two lines", 1, 1, 1, None)),
            ],
        );
        let (host, mut reader) = reader(&made);
        let (reporters, faults) = read(&host, &mut reader, 0);
        let said: Vec<_> = reporters.iter().map(|r| (&*r.name, r.in_error, r.errors, r.recoveries)).collect();
        assert_eq!(said, [("fw", true, 2, 1), ("fw_fatal", false, 0, 0), ("tx", true, 5, 4)]);
        assert_eq!((faults, reporters[0].auto_recover, reporters[2].auto_recover), (0, None, Some(true)));
    }

    #[test]
    fn drivers_and_kernels_without_any_are_quiet() {
        let made = Arc::new(FakeFamily::default());
        let (host, mut one) = reader(&made);
        assert_eq!(read(&host, &mut one, 0), (Vec::new(), 0), "not supported");
        made.set(GET, &[reply("0000:3b:00.0", None, ("fw", 0, 0, 0, None))]);
        assert_eq!((read(&host, &mut one, 15).0.len(), one.quarantined()), (0, 1));
        assert_eq!((read(&host, &mut one, 600).0.len(), one.quarantined()), (1, 0));
        *made.refuses.lock().unwrap() = Some(Errno::NODEV);
        assert_eq!(read(&host, &mut one, 615), (Vec::new(), 0), "the driver has no devlink");
        *made.refuses.lock().unwrap() = Some(Errno::IO);
        assert_eq!(read(&host, &mut one, 1300), (Vec::new(), 1));
        let made = Arc::new(FakeFamily::default());
        *made.lacks.lock().unwrap() = true;
        let (host, mut other) = reader(&made);
        assert_eq!(read(&host, &mut other, 0), (Vec::new(), 0), "the kernel has no devlink");
    }

    #[test]
    fn a_recorded_host_has_none() {
        let mut harness = CollectorHarness::new(&SPEC, Filter::default());
        assert_eq!(harness.discover(), Ok(Vec::new()));
    }

    /// The kernel that runs the tests: a function that it does not have, listed over the real family.
    #[test]
    fn the_running_kernel_answers() {
        let made = Arc::new(FakeFamily::default());
        let (host, _) = reader(&made);
        let mut reader: Box<dyn DeviceReader> = Box::new(DevlinkReader {
            pci_address: "0000:ff:1f.7".parse().unwrap(),
            device: DeviceName::new("mlx5_0"),
            family: GenericFamily::new("devlink", socket::generic()),
            not_before: None,
        });
        assert_eq!(read(&host, &mut reader, 0), (Vec::new(), 0));
    }

    proptest! {
        #[test]
        fn any_reply_parses_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut reporters = Vec::new();
            take(Attributes::new(&bytes), "0000:3b:00.0", &mut reporters);
            let nested = [request("0000:3b:00.0"), attribute(REPORTER, &bytes)].concat();
            take(Attributes::new(&nested), "0000:3b:00.0", &mut reporters);
            prop_assert!(reporters.len() <= 2);
        }

        #[test]
        fn however_many_there_are_few_are_kept(names in proptest::collection::vec("[a-z]{0,40}", 0..100)) {
            let mut reporters = Vec::new();
            for name in &names {
                let reply = reply("0000:3b:00.0", None, (name, 0, u64::MAX, 1, None));
                take(Attributes::new(&reply), "0000:3b:00.0", &mut reporters);
            }
            prop_assert!(reporters.len() <= MOST);
            prop_assert!(reporters.iter().all(|reporter| reporter.name.len() <= LONGEST));
        }
    }
}
