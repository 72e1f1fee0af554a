//! Turns readings into reports: joins facts, assesses them against the history, and tracks findings. No threads, no
//! clock.

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::event_limiter::EventLimiter;
use super::finding_tracker::{FindingChanges, FindingTracker, Known};
use super::history_event::{HistoryEvent, run_event};
use super::history_updater::HistoryUpdater;
use super::report::HostReport;
use super::store::{SavedFinding, SavedState};
use super::vfmap::VfMapUpdater;
use crate::assess::capacity::HostCapacity;
use crate::assess::irq;
use crate::assess::verdicts::{ResultCounts, Verdicts};
use crate::assess::visibility::missing;
use crate::assess::{View, assess};
use crate::model::benchmark::{BenchmarkHistories, BenchmarkHistory, BenchmarkRun};
use crate::model::check::{Check, CheckResult, Severity, Status};
use crate::model::finding::{Condition, Finding, Hold, Subject, UnknownSubject};
use crate::model::finding::{Event, EventKind};
use crate::model::history::{Baseline, History};
use crate::model::host::Environment;
use crate::model::ids::{PciAddress, PortKey};
use crate::model::pcie::PciFunction;
use crate::model::policy::Policy;
use crate::model::reading::ReadError;
use crate::model::snapshot::{CollectorState, Fault, Snapshot};
use crate::model::text::{LONGEST_NAME, LONGEST_SENTENCE, bounded};
use crate::model::time::{BootTime, Timestamp, rfc3339, unix_millis};
use crate::model::topology::Topology;

/// Events kept in memory.
const RECENT: usize = 200;

/// How long a finding that has ended is still shown as recovered.
const RECOVERED: Duration = Duration::from_secs(600);

/// Benchmarks that have not run for so long are forgotten.
const BENCHMARK_AGE: Duration = Duration::from_secs(180 * 24 * 3600);

/// Most benchmarks of ports that are remembered.
const MAX_BENCHMARKS: usize = 4096;

/// Everything about a host that outlives a pass.
#[derive(Debug, Default)]
pub struct Engine {
    history: History,
    history_updater: HistoryUpdater,
    vf_map_updater: VfMapUpdater,
    findings: FindingTracker,
    /// Findings that began or ended since they were last asked for.
    finding_changes: FindingChanges,
    policy: Arc<Policy>,
    recent: VecDeque<Event>,
    fresh: Vec<Event>,
    event_limiter: EventLimiter,
    recovered: VecDeque<(Finding, BootTime)>,
    shown: Arc<[Event]>,
    boot_id: Option<Arc<str>>,
    instant: bool,
    probes: Arc<BenchmarkHistories>,
    maintenance: Option<Arc<str>>,
}

impl Engine {
    /// An engine with this policy. `instant`: one look, no hold times.
    pub fn new(policy: Arc<Policy>, instant: bool) -> Self {
        Self { policy, instant, ..Self::default() }
    }

    /// The baseline as it is now.
    pub fn baseline(&self) -> &Baseline {
        &self.history.baseline
    }

    /// Restores what an earlier run saved, and its events, oldest first.
    pub fn restore(&mut self, saved: SavedState, events: Vec<Event>, now: Timestamp) {
        self.history.baseline = saved.baseline;
        self.history.vf_map = saved.vf_map;
        self.history.probes = saved.benchmarks;
        self.probes = Arc::new(self.history.probes.clone());
        self.history_updater.restore(saved.boot_id.clone(), saved.kernel_log);
        self.history_updater.restore_counters(saved.boot_id.clone(), saved.link_downed, &events);
        for (key, flaps) in saved.flaps {
            let flaps = flaps.into_iter().map(|at| now.boot_time(unix_millis::to_wall(at))).collect();
            self.history.ports.entry(key).or_default().flaps = flaps;
        }
        let key = |saved: SavedFinding| ((saved.check, saved.subject), now.boot_time(saved.since));
        let held = saved.findings.into_iter().map(key).map(|(key, since)| (key, Known::Held(since)));
        let pending = saved.pending.into_iter().map(key).map(|(key, since)| (key, Known::Pending(since)));
        self.findings.restore(pending.chain(held));
        self.boot_id = saved.boot_id.map(Arc::from);
        self.recent = events.into_iter().rev().take(RECENT).collect();
        self.shown = self.recent.iter().cloned().collect();
    }

    /// Forgets the baseline: the next pass learns the host as it is then.
    pub fn forget_baseline(&mut self) {
        self.history.baseline = Baseline::default();
        self.history.vf_map.accept();
        self.findings.clear_at_once();
    }

    /// Notes that a benchmark which began then moved data through a function, so the function works.
    pub fn prove(&mut self, function: PciAddress, began: SystemTime) {
        self.history.vf_map.prove(function, began);
    }

    /// Records a benchmark's run in its history, and in the events unless it was skipped.
    pub fn record(&mut self, run: BenchmarkRun, now: Timestamp) {
        self.happened(now, run_event(&run));
        if let Some(function) = run.function.filter(|_| run.moved_data()) {
            self.prove(function, run.began());
        }
        self.history.probes.entry(run.key.clone()).or_default().record(run);
        forget_old_benchmarks(&mut self.history.probes, now.wall);
        self.probes = Arc::new(self.history.probes.clone());
    }

    /// Checks whether the host is in maintenance, while findings are only acknowledged.
    pub fn look_for_maintenance(&mut self, now: SystemTime, exists: impl FnMut(&Path) -> bool) {
        self.maintenance = self.policy.maintenance.why(now, exists);
    }

    /// Removes devices that are no longer read from the baseline.
    pub fn keep_baseline(&mut self, keep: impl Fn(&str) -> bool) {
        self.history.baseline.devices.retain(|_, device| keep(&device.name));
    }

    /// Replaces the policy.
    pub fn set_policy(&mut self, policy: Arc<Policy>) {
        self.policy = policy;
    }

    /// Notes something that happened outside of the readings.
    pub fn note(&mut self, now: Timestamp, kind: EventKind, text: String) {
        self.happened(now, [(kind, String::new(), text)]);
    }

    /// `link_downed` of each port, up to which losses of its link are recorded.
    pub fn recorded_counters(&self) -> BTreeMap<PortKey, u64> {
        self.history_updater.recorded_counters()
    }

    /// Events since the last call, oldest first, for the journal.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.fresh)
    }

    /// Findings that began or ended since the last call.
    pub fn take_finding_changes(&mut self) -> FindingChanges {
        std::mem::take(&mut self.finding_changes)
    }

    /// What is to be saved after a report.
    pub fn saved_state(&self, report: &HostReport) -> SavedState {
        let now = report.snapshot.taken;
        let millis = |at: &BootTime| unix_millis::of(now.wall_time(*at));
        let flaps = self.history.ports.iter().filter(|(_, past)| !past.flaps.is_empty());
        let finding = |finding: &Finding| SavedFinding {
            check: finding.condition.check.as_str().to_owned(),
            subject: finding.condition.subject.to_string(),
            since: now.wall_time(finding.since),
        };
        SavedState {
            boot_id: report.snapshot.system().and_then(|system| system.boot_id.as_deref().map(str::to_owned)),
            baseline: self.history.baseline.clone(),
            flaps: flaps.map(|(key, past)| (key.clone(), past.flaps.iter().map(millis).collect())).collect(),
            link_downed: self.history_updater.recorded_counters(),
            findings: report.findings.iter().map(finding).collect(),
            pending: report.pending.iter().map(|pending| finding(&pending.0)).collect(),
            vf_map: self.history.vf_map.clone(),
            kernel_log: self.history.kernel_log,
            benchmarks: self.history.probes.clone(),
            applied: Vec::new(),
        }
    }

    /// What passes have added up to.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Judges a reading.
    pub fn observe(&mut self, snapshot: Snapshot) -> HostReport {
        let now = snapshot.taken;
        let topology = Topology::new(snapshot.all());
        let lanes = HostCapacity::new(&snapshot, &topology);
        let policy = Arc::clone(&self.policy);
        // Rules look at the baseline as it was before this pass; a single look never adds to it.
        let before = if self.instant { Some(self.history.baseline.clone()) } else { None };
        let mut events = self.history_updater.observe(&mut self.history, &snapshot, &topology, &lanes, &policy);
        events.extend(self.vf_map_updater.observe(&mut self.history.vf_map, &snapshot));
        if let Some(before) = before {
            self.history.baseline = before;
        }
        let view = View {
            snapshot: &snapshot,
            topology: &topology,
            lanes: &lanes,
            history: &self.history,
            policy: &policy,
            instant: self.instant,
        };
        let mut verdicts = assess(&view);
        let (conditions, excepted) = self.apply_policy(std::mem::take(&mut verdicts.conditions));
        let silent = LazyCell::new(|| silent(&snapshot));
        let unseen = |condition: &Condition| {
            let undecided = |u: &UnknownSubject| u.check == condition.check && u.subject == condition.subject;
            let device = condition.device.as_ref().is_some_and(|device| silent.contains(device.as_str()));
            let function = condition.pci_address.is_some_and(|address| silent.contains(&*address.to_string()));
            device || function || verdicts.undecided.iter().any(undecided)
        };
        let changes = self.findings.observe(now.tick, conditions, unseen, self.instant);
        let booted = self.booted(&snapshot);
        self.happened(now, booted);
        self.happened(now, events);
        self.happened(now, changes.began.iter().map(|finding| finding_event(EventKind::FindingBegan, finding)));
        self.happened(now, changes.ended.iter().map(|finding| finding_event(EventKind::FindingEnded, finding)));
        self.finding_changes.began.extend(changes.began);
        self.finding_changes.ended.extend(changes.ended.iter().cloned());
        self.recovered.extend(changes.ended.into_iter().map(|finding| (finding, now.tick)));
        self.recovered.retain(|(_, ended)| now.tick.since(*ended) < RECOVERED);
        let findings = self.findings.findings();
        let standings = self.standings(&verdicts, &findings, &excepted, now);
        let status = status(&snapshot, &verdicts, &findings);
        HostReport {
            limited: missing(&snapshot, &self.history.vf_map),
            vf_map: self.history.vf_map.clone(),
            link_changes: self.history.functions.iter().map(|(address, past)| (*address, past.changes)).collect(),
            irqs: irq::summaries(&snapshot, &self.history),
            flaps: self.history.flaps(now.tick),
            lines: self.history.line_summaries(now.tick),
            probes: Arc::clone(&self.probes),
            traffic: self.history.traffic(),
            fastest_rates: self.history.fastest_rates(),
            pending: self.findings.pending(),
            maintenance: self.maintenance.clone(),
            evaluated: now.wall,
            events: Arc::clone(&self.shown),
            recovered: self.recovered.iter().rev().cloned().collect(),
            excepted: excepted
                .into_iter()
                .map(|(condition, reason)| (Finding { condition, since: now.tick }, reason))
                .collect(),
            undecided: verdicts.undecided,
            snapshot,
            topology,
            lanes,
            findings,
            standings,
            status,
        }
    }

    /// Applies exceptions and other severities and hold times than the defaults.
    fn apply_policy(&self, conditions: Vec<Condition>) -> (Vec<Condition>, Vec<(Condition, Arc<str>)>) {
        let (mut kept, mut excepted) = (Vec::with_capacity(conditions.len()), Vec::new());
        for mut condition in conditions {
            if let Some(severity) = self.policy.severities.get(&condition.check) {
                condition.severity = *severity;
            }
            if let Some(hold) = self.policy.holds.get(&condition.check) {
                condition.hold = Hold::For(*hold);
            }
            match self.policy.exception(condition.check, &condition.subject) {
                Some(exception) => excepted.push((condition, Arc::from(&*exception.reason))),
                None => match &self.maintenance {
                    Some(why) => excepted.push((condition, Arc::from(format!("acknowledged: {why}")))),
                    None => kept.push(condition),
                },
            }
        }
        (kept, excepted)
    }

    fn standings(
        &self,
        verdicts: &Verdicts,
        findings: &[Finding],
        excepted: &[(Condition, Arc<str>)],
        now: Timestamp,
    ) -> ResultCounts {
        let mut standings: ResultCounts =
            Check::ALL.iter().map(|check| (*check, [0; CheckResult::ALL.len()])).collect();
        let mut add = |check: Check, standing: CheckResult, count: i64| {
            let place = CheckResult::ALL.iter().position(|s| *s == standing);
            if let Some(cell) = standings.get_mut(&check).zip(place).and_then(|(row, place)| row.get_mut(place)) {
                *cell = cell.saturating_add_signed(count);
            }
        };
        for (check, (ok, skipped)) in &verdicts.settled {
            add(*check, CheckResult::Ok, i64::try_from(*ok).unwrap_or(i64::MAX));
            add(*check, CheckResult::Skipped, i64::try_from(*skipped).unwrap_or(i64::MAX));
        }
        for finding in findings {
            let condition = &finding.condition;
            add(condition.check, condition.severity.into(), 1);
            if self.findings.lingers(finding, now.tick) {
                add(condition.check, CheckResult::Ok, -1);
            }
        }
        let found: BTreeSet<(Check, &Subject)> =
            findings.iter().map(|f| (f.condition.check, &f.condition.subject)).collect();
        for undecided in verdicts.undecided.iter().filter(|u| !found.contains(&(u.check, &u.subject))) {
            add(undecided.check, CheckResult::Unknown, 1);
        }
        for check in self.findings.waiting() {
            add(check, CheckResult::Ok, 1);
        }
        for (condition, _) in excepted {
            add(condition.check, CheckResult::Skipped, 1);
        }
        standings
    }

    /// Says so when this is another boot than the one before.
    fn booted(&mut self, snapshot: &Snapshot) -> Option<HistoryEvent> {
        let now = snapshot.system()?.boot_id.clone()?;
        let before = self.boot_id.replace(Arc::clone(&now)).filter(|before| *before != now);
        before.map(|_| (EventKind::Booted, String::new(), "the host has rebooted since the last reading".to_owned()))
    }

    fn happened(&mut self, now: Timestamp, events: impl IntoIterator<Item = HistoryEvent>) {
        let mut changed = false;
        for (kind, subject, text) in events {
            let subject = bounded(&subject, LONGEST_NAME).into_owned();
            let Some(left_out) = self.event_limiter.take(now.tick, kind, &subject) else { continue };
            let mut text = bounded(&text, LONGEST_SENTENCE).into_owned();
            if left_out > 0 {
                let _ = write!(text, " ({left_out} earlier changes omitted)");
            }
            let link_downed =
                if kind == EventKind::PortFlap { self.history_updater.link_downed(&subject) } else { None };
            let event = Event { time: rfc3339(now.wall), kind, subject, text, link_downed };
            self.recent.push_front(event.clone());
            self.recent.truncate(RECENT);
            self.fresh.push(event);
            changed = true;
        }
        if changed {
            self.shown = self.recent.iter().cloned().collect();
        }
    }
}

/// Forgets benchmarks that have not run for long, and those beyond the number that is remembered, oldest first.
fn forget_old_benchmarks(histories: &mut BenchmarkHistories, now: SystemTime) {
    let last = |history: &BenchmarkHistory| history.last.as_ref().map(|run| run.at);
    let is_old = |at: SystemTime| now.duration_since(at).is_ok_and(|age| age > BENCHMARK_AGE);
    histories.retain(|_, history| !last(history).is_some_and(is_old));
    while histories.len() > MAX_BENCHMARKS {
        let oldest = histories.iter().min_by_key(|(_, history)| last(history)).map(|(key, _)| key.clone());
        oldest.and_then(|key| histories.remove(&key));
    }
}

/// Devices and functions that do not answer, or are there and say nothing.
fn silent(snapshot: &Snapshot) -> BTreeSet<&str> {
    let listed = |name| {
        let keys = snapshot.collector(name).and_then(|collector| collector.listed.as_deref());
        keys.into_iter().flatten().map(|key| &**key)
    };
    let devices: BTreeSet<&str> = snapshot.devices().map(|device| device.name.as_str()).collect();
    let functions: BTreeSet<PciAddress> = snapshot.all::<PciFunction>().map(|function| function.address).collect();
    let stuck = snapshot.collectors.iter().flat_map(|collector| &collector.stuck).map(|key| &**key);
    let silent = listed("rdma").filter(|key| !devices.contains(key));
    let unread = listed("pci").filter(|key| key.parse().is_ok_and(|address| !functions.contains(&address)));
    stuck.chain(silent).chain(unread).collect()
}

fn finding_event(kind: EventKind, finding: &Finding) -> HistoryEvent {
    let condition = &finding.condition;
    let text = match kind {
        EventKind::FindingEnded => format!("{} no longer holds ({})", condition.check.as_str(), condition.reason),
        _ => format!("{} ({}): {}", condition.check.as_str(), condition.severity.as_str(), condition.summary),
    };
    (kind, condition.subject.to_string(), text)
}

/// The worst finding; unknown when something needed could not be read for another cause than a permission.
fn status(snapshot: &Snapshot, verdicts: &Verdicts, findings: &[Finding]) -> Status {
    let worst = findings.iter().map(|finding| finding.condition.severity).max();
    match worst {
        Some(Severity::Critical) => return Status::Critical,
        Some(Severity::Warning) => return Status::Warning,
        Some(Severity::Info) | None => {}
    }
    let unread = verdicts.undecided.iter().any(UnknownSubject::is_unread);
    let forbidden =
        |collector: &CollectorState| collector.faults.iter().any(|fault| fault.reason == ReadError::Permission);
    let blind = snapshot
        .collectors
        .iter()
        .any(|collector| !collector.stuck.is_empty() || (collector.listed.is_none() && !forbidden(collector)));
    let log = snapshot.collector("kmsg").and_then(|kmsg| kmsg.listed.as_ref()).is_some_and(|listed| !listed.is_empty());
    // Somebody named a directory that is no host's. A recording may be of the interrupts or of the log alone.
    let rootless = snapshot.all::<Environment>().any(|environment| {
        let recorded = !environment.live && (environment.has_procfs || log);
        !environment.has_sysfs && !recorded
    }) && !snapshot.collector("rdma").is_some_and(forbidden);
    if unread || blind || rootless || faceless(snapshot) { Status::Unknown } else { Status::Ok }
}

/// Whether a device is listed and nothing could be read of it, or its ports could not be listed.
fn faceless(snapshot: &Snapshot) -> bool {
    let Some(rdma) = snapshot.collector("rdma") else { return false };
    let hidden = |fault: &Fault| fault.reason == ReadError::Permission;
    let listed = rdma.listed.as_ref().map_or(0, |listed| listed.len());
    let portless = |fault: &Fault| fault.source.ends_with("/ports") && !hidden(fault);
    let unseen = snapshot.devices().count() < listed && !rdma.faults.iter().any(hidden);
    unseen || rdma.faults.iter().any(portless)
}
