//! Modules in the cages of ports. Their memory needs CAP_NET_ADMIN, which also allows to change links: a small program of
//! its own ([`helper`]) has it and answers nothing but fixed reads; the collector asks it over a socket.

pub mod eeprom;
pub mod helper;
pub mod protocol;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;

use super::collector::{Collector, DeviceReader, Discovered, Filter, GoneReader, ReadContext, Spec};
use super::file::PolledFile;
use super::function::DeviceInventory;
use super::io::reason_of;
use super::net::{interfaces, parse_carrier};
use crate::model::ids::PciAddress;
use crate::model::module::{Module, ModuleIdentity, ModuleLimits, ModuleState};
use crate::model::reading::ReadError;
use crate::model::snapshot::Fact;
use crate::model::time::BootTime;
use eeprom::{Eeprom, EepromPart};
use protocol::{Answer, LONGEST_ANSWER, Request};

/// The collector of modules; off by default.
pub const SPEC: Spec = Spec {
    name: "module",
    about: "Modules and cables: identity, temperature, light (EEPROM, over lanewatch-module-reader)",
    interval: Duration::from_secs(15),
    deadline: Duration::from_secs(60),
    fresh: false,
    make: |setup| Box::new(ModuleCollector { filter: setup.filter.clone(), places: BTreeMap::new() }),
};

/// How often the values of a module are read: ageing takes weeks, and each read holds a lock that others need.
const INTERVAL: Duration = Duration::from_secs(300);

/// How long after its link came or went a module is read: until then it may still change its state.
const SETTLE: Duration = Duration::from_secs(10);

/// How long a module is left alone after two failures in a row.
const PAUSE: Duration = Duration::from_secs(30 * 60);

/// How long the helper may take; one module after another has its turn.
const ANSWERED: Duration = Duration::from_secs(30);

struct ModuleCollector {
    filter: Filter,
    places: BTreeMap<Arc<str>, Place>,
}

/// Where an interface is.
#[derive(Clone)]
struct Place {
    directory: PathBuf,
    pci_address: PciAddress,
}

impl Collector for ModuleCollector {
    fn discover(&mut self, cx: &mut ReadContext<'_>) -> Result<Vec<Discovered>, ReadError> {
        self.places.clear();
        let mut found = Vec::new();
        for device in &DeviceInventory::read(cx, &self.filter)?.allowed {
            let link = |name: &str| cx.host.io.link(&device.function.join(name)).ok();
            let driver = link("driver");
            let driver = driver.as_deref().and_then(Path::file_name).and_then(OsStr::to_str);
            let is_slow = driver.is_some_and(|driver| SLOW_DRIVERS.contains(&driver));
            if link("physfn").is_some() || (is_slow && self.filter.include.is_none()) {
                continue;
            }
            for (directory, name) in interfaces(cx, device) {
                let (key, place): (Arc<str>, _) =
                    (Arc::from(&*name), Place { directory: directory.join(&name), pci_address: device.address });
                if self.places.insert(Arc::clone(&key), place).is_none() {
                    found.push(Discovered { key, device: Some(device.name.clone()) });
                }
            }
        }
        found.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(found)
    }

    fn open(&mut self, found: &Discovered) -> Box<dyn DeviceReader> {
        match self.places.get(&found.key) {
            Some(place) => Box::new(ModuleReader::new(Arc::clone(&found.key), place)),
            None => Box::new(GoneReader),
        }
    }
}

/// Drivers that copy a module's memory a few bytes at a time, a firmware command each, and some of which log every read of a
/// module that they do not know. Devices of theirs are read only where the filter includes devices by name.
const SLOW_DRIVERS: [&str; 9] = ["ice", "i40e", "ixgbe", "hns3", "sfc", "mlx4_core", "qede", "cxgb4", "hinic"];

/// Reads one module: what it is when it is new, how it does every five minutes, and once after its link came or went.
struct ModuleReader {
    netdev: Arc<str>,
    pci_address: PciAddress,
    carrier: PolledFile,
    /// Whether there was a carrier, and since when.
    link: Option<(Option<bool>, BootTime)>,
    /// Whether the last change of the link was answered with a read.
    settled: bool,
    /// When a link that went, and one that came, was last answered with a read.
    answered: [Option<BootTime>; 2],
    read_at: Option<BootTime>,
    failures: u32,
    eeprom: Eeprom,
    known: Option<(Arc<ModuleIdentity>, ModuleLimits)>,
    fact: Option<Arc<Module>>,
}

impl ModuleReader {
    fn new(netdev: Arc<str>, place: &Place) -> Self {
        Self {
            netdev,
            pci_address: place.pci_address,
            carrier: PolledFile::new(place.directory.join("carrier")),
            link: None,
            settled: true,
            answered: [None; 2],
            read_at: None,
            failures: 0,
            eeprom: Eeprom::default(),
            known: None,
            fact: None,
        }
    }

    /// Whether the module is to be read now.
    fn is_due(&mut self, now: BootTime, carrier: Option<bool>) -> bool {
        let is_up = carrier == Some(true);
        match self.link {
            Some((before, _)) if before == carrier => {}
            Some(_) => {
                self.link = Some((carrier, now));
                self.settled = false;
                // What did not answer may be another one by now.
                self.failures = if is_up { 0 } else { self.failures };
            }
            None => self.link = Some((carrier, now)),
        }
        let Some(read_at) = self.read_at else { return true };
        let age = now.since(read_at);
        if self.failures >= 2 {
            return age >= PAUSE;
        }
        let [went, came] = &mut self.answered;
        let answered = if is_up { came } else { went };
        // A link that flaps says nothing new each time.
        let is_news = answered.is_none_or(|answered| now.since(answered) >= INTERVAL);
        let changed = !self.settled && is_news && self.link.is_some_and(|(_, since)| now.since(since) >= SETTLE);
        if changed {
            self.settled = true;
            *answered = Some(now);
            // Another module may have been plugged.
            if is_up {
                self.known = None;
            }
        }
        changed || age >= INTERVAL
    }

    fn ask(&mut self, cx: &ReadContext<'_>, part: EepromPart) -> io::Result<Eeprom> {
        let request = Request { part, netdev: self.netdev.to_string() };
        let answer = ask(&cx.host.roots.module_reader, &request)?;
        match answer {
            Answer::Blocks(eeprom) => Ok(eeprom),
            Answer::Failed(errno) => Err(io::Error::from_raw_os_error(errno)),
            Answer::Refused => Err(Errno::ACCESS.into()),
        }
    }

    /// What the module is; `None` if nothing is plugged, or it is of a kind that is not known.
    ///
    /// # Errors
    /// It cannot be read, or its checksum was wrong twice.
    fn read_identity(&mut self, cx: &ReadContext<'_>) -> io::Result<Option<ModuleIdentity>> {
        for _ in 0..2 {
            self.eeprom = self.ask(cx, EepromPart::Identity)?;
            let identity = self.eeprom.identity();
            if identity.is_some() || self.eeprom.form().is_none() {
                return Ok(identity);
            }
        }
        Err(io::ErrorKind::InvalidData.into())
    }

    fn read_module(&mut self, cx: &ReadContext<'_>) -> io::Result<Option<Module>> {
        if self.known.is_none()
            && let Some(identity) = self.read_identity(cx)?
        {
            let limits = self.ask(cx, EepromPart::Limits)?;
            self.eeprom.extend(limits);
            self.known = Some((Arc::new(identity), self.eeprom.limits()));
        }
        let Some((identity, limits)) = self.known.clone() else { return Ok(None) };
        let values = self.ask(cx, EepromPart::Values)?;
        self.eeprom.extend(values);
        // While it changes its state its values mean nothing.
        let settled = |state: Option<ModuleState>| state.is_none_or(ModuleState::is_settled);
        let values = self.eeprom.values().filter(|values| settled(values.state));
        let (netdev, pci_address) = (Arc::clone(&self.netdev), self.pci_address);
        Ok(Some(Module { netdev, pci_address, identity, limits, values, at: cx.now }))
    }
}

impl DeviceReader for ModuleReader {
    fn read(&mut self, cx: &mut ReadContext<'_>) -> Vec<Fact> {
        let carrier = self.carrier.read_unless_down(cx, parse_carrier).value();
        if self.is_due(cx.now, carrier) {
            self.read_at = Some(cx.now);
            match self.read_module(cx) {
                Ok(module) => {
                    self.failures = 0;
                    self.fact = module.map(Arc::new);
                }
                Err(error) => {
                    // A recorded host has no socket; on a running one the helper is not set up.
                    let reason = reason_of(&error).or(cx.host.live.then_some(ReadError::Io));
                    // Refused: too soon, or none of the helper's. What is known stays.
                    if reason != Some(ReadError::Permission) {
                        self.failures += 1;
                        (self.fact, self.known) = (None, None);
                    }
                    if let Some(reason) = reason {
                        cx.fault(Path::new(&format!("module of {}", self.netdev)), reason);
                    }
                }
            }
        }
        self.fact.iter().map(|module| Arc::clone(module) as Fact).collect()
    }

    fn quarantined(&self) -> usize {
        usize::from(self.failures >= 2)
    }
}

/// Asks the helper.
fn ask(socket: &Path, request: &Request) -> io::Result<Answer> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(ANSWERED))?;
    stream.set_write_timeout(Some(ANSWERED))?;
    stream.write_all(request.line().as_bytes())?;
    let mut answer = String::new();
    stream.take(LONGEST_ANSWER).read_to_string(&mut answer)?;
    Answer::parse(&answer).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests;
