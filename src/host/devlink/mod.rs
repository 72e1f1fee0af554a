//! Health reporters of drivers over generic netlink (`DEVLINK_CMD_HEALTH_REPORTER_GET`, `uapi/linux/devlink.h`).

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;

use super::collector::{Collector, DeviceReader, Discovered, Filter, GoneReader, ReadContext, Setup, Spec};
use super::function::DeviceInventory;
use super::io::reason_of;
use super::netlink::attributes::{Attributes, number8, number64, put_text, text};
use super::netlink::generic::{self, GenericFamily, is};
use super::netlink::socket::{self, NetlinkConnector};
use crate::model::health::{FunctionHealth, Reporter};
use crate::model::ids::{DeviceName, PciAddress};
use crate::model::reading::ReadError;
use crate::model::snapshot::Fact;
use crate::model::time::BootTime;

/// The collector of health reporters.
pub const SPEC: Spec = Spec {
    name: "devlink",
    about: "What drivers say of their devices' health: state, errors and recoveries (devlink health reporters)",
    interval: Duration::from_secs(15),
    deadline: Duration::from_secs(5),
    fresh: false,
    make: |setup| Box::new(DevlinkCollector::new(setup, setup.host.live.then(socket::generic))),
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

/// Reporters of a function that are kept; drivers have up to six.
const MOST: usize = 16;
/// Longest name of one.
const LONGEST: usize = 32;

/// How long a function whose driver has none is not asked for.
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
    /// VFs beside their PF are left out: there may be hundreds.
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

/// Takes a reply about one reporter in, if it is about this function. The reporters of a name that several ports have
/// become one.
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

/// None for what says too little, or has a name that is no word.
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
