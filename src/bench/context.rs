//! How this host measures, whoever wants it: the schedule, a peer, or a person.

use std::path::PathBuf;
use std::time::SystemTime;

use regex_lite::Regex;

use super::guard::IdleRules;
use super::probe::{BenchmarkParameters, BenchmarkRunner, own};
use super::process::Toolbox;
use super::rdma::Peer;
use super::target::BenchmarkTarget;
use crate::host::Host;
use crate::host::netlink::socket::route;
use crate::model::benchmark::{BenchmarkKey, BenchmarkRun};
use crate::model::ids::PortKey;
use crate::watch::HostReport;

/// What is measured with, and when not.
#[derive(Debug, Clone)]
pub struct BenchmarkContext {
    /// Which devices; all when there is none.
    pub devices: Option<Regex>,
    /// How to measure.
    pub parameters: BenchmarkParameters,
    /// When not to.
    pub rules: IdleRules,
    /// The host's lock.
    pub lock: PathBuf,
    /// The host to measure.
    pub host: Host,
}

impl BenchmarkContext {
    /// Whether a probe is of its devices, or of none.
    pub fn has(&self, key: &BenchmarkKey) -> bool {
        let device = key.device();
        self.devices.as_ref().is_none_or(|devices| device.is_none_or(|device| devices.is_match(device.as_str())))
    }

    /// The active ports of its devices, in the order of their names; VFs share their PF's lane.
    pub fn ports(&self, report: &HostReport) -> Vec<PortKey> {
        own(report).into_iter().filter(|key| self.has(key)).filter_map(|key| key.port).collect()
    }

    /// The place of a port among them: by it the two ends of a probe take ports that belong together. The first for one
    /// that is not among them.
    pub fn rail(&self, report: &HostReport, port: Option<&PortKey>) -> u32 {
        let place = self.ports(report).iter().position(|known| Some(known) == port);
        place.and_then(|place| u32::try_from(place).ok()).unwrap_or(0)
    }

    /// A port to measure; none when it is not there.
    pub fn target(&self, report: &HostReport, port: &PortKey) -> Option<BenchmarkTarget> {
        let mut target = BenchmarkTarget::new(report, &self.host, port)?;
        target.gid_index = self.parameters.gid_index.or(target.gid_index);
        Some(target)
    }

    /// Runs a probe; whether it may, and the lock, are the caller's. `progress`: what to call each step while it runs.
    pub fn run(
        &self,
        report: &HostReport,
        tools: &Toolbox,
        key: &BenchmarkKey,
        peer: Option<&dyn Peer>,
        progress: &dyn Fn(&str),
        now: &dyn Fn() -> SystemTime,
    ) -> BenchmarkRun {
        let (connect, Self { parameters, host, .. }) = (route(), self);
        BenchmarkRunner { report, host, tools, parameters, route: Some(&connect), progress, now }.run(key, peer)
    }
}
