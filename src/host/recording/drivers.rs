//! What drivers answered over the ethtool ioctl, in recordings: the statistics and offloads that collectors know.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::scrub::Scrubber;
use crate::host::ethtool::access::{EthtoolConnection, EthtoolConnector, Feature};
use crate::host::ethtool::table;
use crate::host::netsetup::is_known_offload;

/// What one interface's driver answered.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriverAnswers {
    /// Its own statistics by name, in its order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    statistics: Vec<(String, u64)>,
    /// The errno in place of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    statistics_errno: Option<i32>,
    /// Offloads: name, on, fixed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    features: Vec<Feature>,
}

/// Answers by interface.
pub type Drivers = BTreeMap<String, DriverAnswers>;

/// Answers of a recording.
pub(super) type SeenDrivers = Arc<Mutex<Drivers>>;

/// Records what is said over a connection. The last answer counts.
pub(super) fn recording(connect: EthtoolConnector, into: &SeenDrivers) -> EthtoolConnector {
    let into = Arc::clone(into);
    Arc::new(move || Ok(Box::new(RecordedDrivers { connection: connect()?, into: Arc::clone(&into) })))
}

struct RecordedDrivers {
    connection: Box<dyn EthtoolConnection>,
    into: SeenDrivers,
}

impl RecordedDrivers {
    fn note(&self, netdev: &str, note: impl FnOnce(&mut DriverAnswers)) {
        note(self.into.lock().unwrap_or_else(PoisonError::into_inner).entry(netdev.to_owned()).or_default());
    }

    /// Records the refusal in an answer about statistics.
    fn noted<T>(&self, netdev: &str, answer: io::Result<T>) -> io::Result<T> {
        let errno = answer.as_ref().err().and_then(io::Error::raw_os_error);
        self.note(netdev, |driver| driver.statistics_errno = errno);
        answer
    }
}

impl EthtoolConnection for RecordedDrivers {
    fn count(&self, netdev: &str) -> io::Result<usize> {
        self.noted(netdev, self.connection.count(netdev))
    }

    fn names(&self, netdev: &str, count: usize) -> io::Result<Vec<String>> {
        let names = self.noted(netdev, self.connection.names(netdev, count))?;
        let statistics = names.iter().map(|name| (name.clone(), 0)).collect();
        self.note(netdev, |driver| driver.statistics = statistics);
        Ok(names)
    }

    fn values(&self, netdev: &str, count: usize) -> io::Result<Vec<u64>> {
        let values = self.noted(netdev, self.connection.values(netdev, count))?;
        self.note(netdev, |driver| {
            driver.statistics.iter_mut().zip(&values).for_each(|((_, value), seen)| *value = *seen);
        });
        Ok(values)
    }

    fn features(&self, netdev: &str) -> io::Result<Vec<Feature>> {
        let features = self.connection.features(netdev)?;
        self.note(netdev, |driver| driver.features.clone_from(&features));
        Ok(features)
    }
}

/// The answers with what may leave: drivers choose any names, so only known ones do.
pub(super) fn allowed(drivers: &Drivers, scrubber: &mut Scrubber) -> Drivers {
    let mut allowed = Drivers::new();
    for (netdev, driver) in drivers {
        let mut driver = driver.clone();
        driver.statistics.retain(|(name, _)| table::meaning(name).is_some());
        driver.features.retain(|(name, _, _)| is_known_offload(name));
        allowed.insert(scrubber.text(netdev), driver);
    }
    allowed
}

/// Replays what was recorded; `None` if no driver was asked.
pub(super) fn replaying(drivers: &Drivers) -> Option<EthtoolConnector> {
    let drivers = Arc::new(drivers.clone());
    (!drivers.is_empty())
        .then(|| -> EthtoolConnector { Arc::new(move || Ok(Box::new(Replayed(Arc::clone(&drivers))))) })
}

struct Replayed(Arc<Drivers>);

impl Replayed {
    fn statistics(&self, netdev: &str) -> io::Result<&[(String, u64)]> {
        let driver = self.0.get(netdev).ok_or(Errno::NODEV)?;
        match driver.statistics_errno {
            Some(errno) => Err(io::Error::from_raw_os_error(errno)),
            None => Ok(&driver.statistics),
        }
    }
}

impl EthtoolConnection for Replayed {
    fn count(&self, netdev: &str) -> io::Result<usize> {
        self.statistics(netdev).map(<[_]>::len)
    }

    fn names(&self, netdev: &str, _: usize) -> io::Result<Vec<String>> {
        Ok(self.statistics(netdev)?.iter().map(|(name, _)| name.clone()).collect())
    }

    fn values(&self, netdev: &str, _: usize) -> io::Result<Vec<u64>> {
        Ok(self.statistics(netdev)?.iter().map(|(_, value)| *value).collect())
    }

    fn features(&self, netdev: &str) -> io::Result<Vec<Feature>> {
        match self.0.get(netdev) {
            Some(driver) if !driver.features.is_empty() => Ok(driver.features.clone()),
            _ => Err(Errno::OPNOTSUPP.into()),
        }
    }
}
