//! The report: facts, findings and events of one moment, from which every output is made.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use crate::assess::capacity::HostCapacity;
use crate::assess::verdicts::ResultCounts;
use crate::model::benchmark::BenchmarkHistories;
use crate::model::check::Status;
use crate::model::finding::Event;
use crate::model::finding::{Finding, PendingFinding, UnknownSubject};
use crate::model::ids::{PciAddress, PortKey};
use crate::model::irq::IrqSummary;
use crate::model::line::LineSummary;
use crate::model::rdma::PortRate;
use crate::model::snapshot::Snapshot;
use crate::model::time::BootTime;
use crate::model::topology::Topology;
use crate::model::units::BytesPerSecond;
use crate::model::vfmap::VfMap;

/// The source of metrics, `check`, `explain`, the status page and JSON.
#[derive(Debug, Clone)]
pub struct HostReport {
    /// The facts.
    pub snapshot: Snapshot,
    /// Links and paths.
    pub topology: Topology,
    /// Ports with their ceilings and shares.
    pub lanes: HostCapacity,
    /// What holds, worst first.
    pub findings: Vec<Finding>,
    /// Conditions that have not held for long enough to be findings, worst first.
    pub pending: Vec<PendingFinding>,
    /// Findings that ended within the last ten minutes, newest first, and when: a port that is back has not been well.
    pub recovered: Vec<(Finding, BootTime)>,
    /// Findings that policy accepts, with the reason given there.
    pub excepted: Vec<(Finding, Arc<str>)>,
    /// What could not be judged.
    pub undecided: Vec<UnknownSubject>,
    /// How many subjects stand where.
    pub standings: ResultCounts,
    /// The host as a whole.
    pub status: Status,
    /// Things a missing permission hides, one sentence each, with what would show them.
    pub limited: Vec<Arc<str>>,
    /// The newest events, newest first.
    pub events: Arc<[Event]>,
    /// The fastest rate that each port was active at since the agent started.
    pub fastest_rates: BTreeMap<PortKey, PortRate>,
    /// Changes of speed or width that were seen, by link.
    pub link_changes: BTreeMap<PciAddress, u64>,
    /// Who holds which VF.
    pub vf_map: VfMap,
    /// A summary of each function's interrupts.
    pub irqs: BTreeMap<PciAddress, IrqSummary>,
    /// How often ports lost their links in the last day; those that did not are absent.
    pub flaps: BTreeMap<PortKey, usize>,
    /// How the line of each interface does.
    pub lines: BTreeMap<Arc<str>, LineSummary>,
    /// What probes measured.
    pub probes: Arc<BenchmarkHistories>,
    /// The busier direction's traffic of each port over the last interval; absent before the second reading.
    pub traffic: BTreeMap<PortKey, BytesPerSecond>,
    /// Why findings are only acknowledged: the host is in maintenance. `None` if it is not.
    pub maintenance: Option<Arc<str>>,
    /// When the judgement was made.
    pub evaluated: SystemTime,
}
