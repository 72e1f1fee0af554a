//! A poller that makes a pass when it is told to, on a host in memory and a clock that stands.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use lanewatch::host::COLLECTORS;
use lanewatch::host::collector::{Filter, Setup};
use lanewatch::model::check::Check;
use lanewatch::model::finding::Finding;
use lanewatch::model::history::Baseline;
use lanewatch::watch::clock::ManualClock;
use lanewatch::watch::store::Store;
use lanewatch::watch::{Engine, HostReport, Poller};

use super::faulty::Faulty;
use super::host::{Device, HostTree};

/// Longer than a pass takes.
pub const LONG: Duration = Duration::from_secs(30);

/// What collectors are made with.
pub fn setup(io: &Arc<Faulty>, filter: Filter) -> Setup {
    Setup { host: io.host(), filter }
}

/// A host in memory, and its devices by the paths that they have there.
pub fn of(host: &HostTree) -> (Arc<Faulty>, Vec<Device>) {
    let root = |path: PathBuf| Path::new("/").join(path);
    let devices = host.devices().into_iter().map(|device| Device {
        function: root(device.function),
        above: root(device.above),
        port: root(device.port),
        ..device
    });
    (Faulty::new(&host.tree()), devices.collect())
}

/// A poller whose passes are made by hand, on a clock that stands.
pub struct Hand {
    /// Its clock.
    pub clock: Arc<ManualClock>,
    poller: Poller,
}

impl Hand {
    /// Of this host, so long after its boot; with a state directory or without.
    pub fn new(io: &Arc<Faulty>, state: Option<&Path>, since: Duration) -> Self {
        Self::filtered(io, Filter::default(), state, since)
    }

    /// The same for some devices.
    pub fn filtered(io: &Arc<Faulty>, filter: Filter, state: Option<&Path>, since: Duration) -> Self {
        Self::with(&setup(io, filter), state, since)
    }

    /// With what collectors are made with.
    pub fn with(setup: &Setup, state: Option<&Path>, since: Duration) -> Self {
        let wall = SystemTime::UNIX_EPOCH + Duration::from_secs(1_790_000_000) + since;
        let clock = Arc::new(ManualClock::new(wall, since));
        let engine = Engine::new(Arc::default(), false);
        let store = state.map(|path| Store::new(path.to_owned()));
        let specs = COLLECTORS.iter().copied();
        let poller = Poller::new(setup, specs, Arc::<ManualClock>::clone(&clock), engine, store).unwrap();
        Self { clock, poller }
    }

    /// A pass, five seconds after the last one.
    pub fn pass(&mut self) -> Arc<HostReport> {
        self.after(Duration::from_secs(5))
    }

    /// What it has learned.
    pub fn baseline(&self) -> Baseline {
        self.poller.baseline().clone()
    }

    /// A pass so long after the last one.
    pub fn after(&mut self, time: Duration) -> Arc<HostReport> {
        self.clock.advance(time);
        self.poller.pass(LONG)
    }
}

/// The findings of a check.
pub fn found(report: &HostReport, check: Check) -> Vec<&Finding> {
    report.findings.iter().filter(|finding| finding.condition.check == check).collect()
}
