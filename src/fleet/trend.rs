//! The fleet over time: audits at several moments, and what got worse and better between them.
//!
//! Each audit sees one moment, so a problem's times are those of the audits that saw it, and what it cost is its bandwidth
//! for the time around each of them. A host that was not seen at a moment costs nothing there: unknown is not lost.

use std::collections::BTreeMap;

use serde::Serialize;

use super::audit::{AuditError, AuditPlan, audit_each};
use super::client::PrometheusClient;
use super::facts::HostId;
use super::host::{HostCapacityReport, RepairKind, Sums};
use super::tally::{ExcludedHosts, Fleet};
use crate::model::units::BytesPerSecond;

/// Bandwidth below this is rounding.
const NOTHING: f64 = 1.0;

/// When the comparison begins.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TrendStart {
    /// So many seconds before the audit's moment.
    Ago(f64),
    /// At this moment, in seconds since 1970.
    At(f64),
}

/// What is compared.
#[derive(Debug, Clone)]
pub struct TrendPlan {
    /// The last audit.
    pub audit: AuditPlan,
    /// When the first one is.
    pub start: TrendStart,
    /// Steps between the first and the last: one audit more than steps.
    pub steps: u32,
}

/// What became of a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProblemChange {
    /// It began, or takes more than it did.
    Worse,
    /// It ended, or takes less than it did.
    Better,
    /// It stands as it did.
    Same,
    /// It was there for a time, neither at the beginning nor at the end.
    Passed,
    /// Its host is not seen at the end.
    Unknown,
}

/// A problem that at least one of the audits saw.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    /// Where.
    pub host: HostId,
    /// What would fix it, which says what it is.
    pub kind: RepairKind,
    /// Which link, port or device.
    pub subject: String,
    /// The devices that it holds back.
    pub devices: Vec<String>,
    /// The first audit that saw it, in seconds since 1970.
    pub first_seen: f64,
    /// The last one.
    pub last_seen: f64,
    /// What it took at the beginning; 0 where it was not there.
    pub before: BytesPerSecond,
    /// What it takes at the end; 0 where it is not there.
    pub now: BytesPerSecond,
    /// What it took over the time, in bytes that could have been moved.
    pub cost: f64,
}

/// A host whose usable bandwidth changed.
#[derive(Debug, Clone, PartialEq)]
pub struct HostChange {
    /// Which.
    pub id: HostId,
    /// Its labels, in the order of the fleet's grouping.
    pub group: Vec<String>,
    /// When it was first seen.
    pub before: Sums,
    /// When it was last seen.
    pub now: Sums,
}

/// What was stranded over the time by cause, in bytes that could have been moved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct StrandedCost {
    /// By degraded links.
    #[serde(rename = "degraded_bytes")]
    pub degraded: f64,
    /// By slots.
    #[serde(rename = "slot_bytes")]
    pub slot: f64,
    /// By design.
    #[serde(rename = "design_bytes")]
    pub design: f64,
    /// By ports that were down.
    #[serde(rename = "down_bytes")]
    pub down: f64,
    /// By devices that were gone.
    #[serde(rename = "missing_bytes")]
    pub missing: f64,
}

impl StrandedCost {
    fn add(&mut self, sums: &Sums, seconds: f64) {
        self.degraded += sums.degraded.0 * seconds;
        self.slot += sums.slot.0 * seconds;
        self.design += sums.design.0 * seconds;
        self.down += sums.down.0 * seconds;
        self.missing += sums.missing.0 * seconds;
    }

    /// All of it.
    pub fn total(&self) -> f64 {
        self.degraded + self.slot + self.design + self.down + self.missing
    }
}

/// The fleet between two moments.
#[derive(Debug, Clone, PartialEq)]
pub struct Trend {
    /// When the first audit was to be, in seconds since 1970.
    pub asked_from: f64,
    /// The audits that found hosts, in seconds since 1970, oldest first.
    pub moments: Vec<f64>,
    /// The first of them.
    pub before: Fleet,
    /// The last of them.
    pub now: Fleet,
    /// What was stranded over the time.
    pub cost: StrandedCost,
    /// Problems by what became of them: how many, and their first ones.
    pub problems: BTreeMap<ProblemChange, ProblemList>,
    /// Hosts whose usable bandwidth changed, most lost first, and how many they are.
    pub hosts: (u64, Vec<HostChange>),
    /// Hosts that were not there at the beginning.
    pub new: ExcludedHosts,
    /// Hosts that are not seen at the end.
    pub gone: ExcludedHosts,
}

/// Problems of which the same became.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ProblemList {
    /// How many.
    pub count: u64,
    /// What they take at the end, less what they took at the beginning, in bytes per second: negative for a gain.
    pub difference: f64,
    /// What they took over the time, in bytes that could have been moved.
    pub cost: f64,
    /// The first of them.
    pub first: Vec<Problem>,
}

impl Trend {
    /// Seconds between the first and the last audit.
    pub fn period(&self) -> f64 {
        match (self.moments.first(), self.moments.last()) {
            (Some(first), Some(last)) => last - first,
            _ => 0.0,
        }
    }
}

/// How far it is: audits done and all of them, and hosts of the current one.
pub type TrendProgress<'a> = &'a mut dyn FnMut(usize, usize, usize, usize);

/// Audits the fleet at every moment of the plan, the last one first.
///
/// # Errors
/// A query that fails, or a server that knows no host at the last moment, or at none of the earlier ones.
pub async fn trend(
    client: &PrometheusClient,
    plan: &TrendPlan,
    progress: TrendProgress<'_>,
) -> Result<Trend, AuditError> {
    let all = usize::try_from(plan.steps).unwrap_or(usize::MAX).saturating_add(1);
    let mut samples = Vec::new();
    let now = sample(client, &plan.audit, &mut |done, hosts| progress(0, all, done, hosts)).await?;
    let end = now.fleet.time;
    let start = match plan.start {
        TrendStart::Ago(seconds) => end - seconds,
        TrendStart::At(moment) => moment,
    };
    if start >= end {
        return Err(AuditError::Nothing("--since is not before the time of the audit".to_owned()));
    }
    samples.push(now);
    for step in (0..plan.steps).rev() {
        let moment = start + (end - start) * f64::from(step) / f64::from(plan.steps);
        let earlier = AuditPlan { time: Some(moment.floor()), ..plan.audit.clone() };
        let index = samples.len();
        let mut show = |done, hosts| progress(index, all, done, hosts);
        let found = match sample(client, &earlier, &mut show).await {
            // Nobody had the label then: that is no error of the command line.
            Err(AuditError::UnknownLabel { .. }) => {
                let mut ungrouped = earlier;
                ungrouped.scope.by.clear();
                sample(client, &ungrouped, &mut show).await
            }
            found => found,
        };
        match found {
            Ok(sample) => samples.push(sample),
            // Before the server's oldest data, or before there was a fleet.
            Err(AuditError::Nothing(_)) => {}
            Err(error) => return Err(error),
        }
    }
    samples.sort_by(|a, b| a.fleet.time.total_cmp(&b.fleet.time));
    compare(start, samples, plan.audit.top)
        .ok_or_else(|| AuditError::Nothing("the server knows no host at any earlier moment since then".to_owned()))
}

/// One audit, and what it saw on each host.
struct Sample {
    fleet: Fleet,
    hosts: Vec<HostSample>,
}

struct HostSample {
    id: HostId,
    group: Vec<String>,
    total: Sums,
    problems: Vec<(RepairKind, String, Vec<String>, BytesPerSecond)>,
}

async fn sample(
    client: &PrometheusClient,
    plan: &AuditPlan,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Sample, AuditError> {
    let mut hosts = Vec::new();
    let mut each =
        |id: &HostId, group: &[String], report: &HostCapacityReport| hosts.push(HostSample::of(id, group, report));
    let fleet = audit_each(client, plan, progress, &mut each).await?;
    Ok(Sample { fleet, hosts })
}

impl HostSample {
    fn of(id: &HostId, group: &[String], report: &HostCapacityReport) -> Self {
        // PFs without VFs take nothing: their bandwidth is usable.
        let problems = report.fixes.iter().filter(|fix| fix.action != RepairKind::ConfigureVfs);
        let problems = problems
            .map(|fix| (fix.action, fix.subject.clone(), fix.devices.iter().cloned().collect(), fix.gain))
            .collect();
        Self { id: id.clone(), group: group.to_vec(), total: report.total, problems }
    }
}

/// A host, from when it was first seen to when it was last seen.
struct HostSpan {
    group: Vec<String>,
    first: (usize, Sums),
    last: (usize, Sums),
}

/// A problem, from when it was first seen to when it was last seen.
struct ProblemSpan {
    devices: Vec<String>,
    first: (usize, BytesPerSecond),
    last: (usize, BytesPerSecond),
    cost: f64,
}

/// Compares audits, oldest first; none for fewer than two. Of the lists at most `top` entries are kept.
fn compare(asked_from: f64, mut samples: Vec<Sample>, top: usize) -> Option<Trend> {
    let moments: Vec<f64> = samples.iter().map(|sample| sample.fleet.time).collect();
    let end = moments.len().checked_sub(1).filter(|last| *last > 0)?;
    let mut cost = StrandedCost::default();
    let mut hosts: BTreeMap<HostId, HostSpan> = BTreeMap::new();
    let mut problems: BTreeMap<(HostId, RepairKind, String), ProblemSpan> = BTreeMap::new();
    for (index, sample) in samples.iter_mut().enumerate() {
        let seconds = around(&moments, index);
        cost.add(&sample.fleet.total, seconds);
        for host in std::mem::take(&mut sample.hosts) {
            for (kind, subject, devices, gain) in host.problems {
                let span = problems.entry((host.id.clone(), kind, subject)).or_insert_with(|| ProblemSpan {
                    devices: Vec::new(),
                    first: (index, gain),
                    last: (index, gain),
                    cost: 0.0,
                });
                (span.devices, span.last) = (devices, (index, gain));
                span.cost += gain.0 * seconds;
            }
            let span = hosts.entry(host.id).or_insert_with(|| HostSpan {
                group: Vec::new(),
                first: (index, host.total),
                last: (index, host.total),
            });
            (span.group, span.last) = (host.group, (index, host.total));
        }
    }
    let (mut new, mut gone) = (ExcludedHosts::default(), ExcludedHosts::default());
    for (id, span) in &hosts {
        if span.first.0 > 0 {
            new.add(id.clone());
        }
        if span.last.0 < end {
            gone.add(id.clone());
        }
    }
    let problems = judge(problems, &hosts, &moments, end, top);
    let before = samples.first().map(|sample| sample.fleet.clone())?;
    let now = samples.pop()?.fleet;
    Some(Trend { asked_from, moments, before, now, cost, problems, hosts: changed(hosts, top), new, gone })
}

/// The seconds that a moment stands for: half of the way to its neighbours.
fn around(moments: &[f64], index: usize) -> f64 {
    let at = |index: usize| moments.get(index).copied();
    let here = at(index).unwrap_or_default();
    let before = index.checked_sub(1).and_then(at).unwrap_or(here);
    (at(index + 1).unwrap_or(here) - before) / 2.0
}

fn judge(
    problems: BTreeMap<(HostId, RepairKind, String), ProblemSpan>,
    hosts: &BTreeMap<HostId, HostSpan>,
    moments: &[f64],
    end: usize,
    top: usize,
) -> BTreeMap<ProblemChange, ProblemList> {
    let mut lists: BTreeMap<ProblemChange, ProblemList> = BTreeMap::new();
    for ((host, kind, subject), span) in problems {
        let host_is_seen_now = hosts.get(&host).is_some_and(|host| host.last.0 == end);
        let (was, is) = (span.first.0 == 0, span.last.0 == end);
        let before = if was { span.first.1 } else { BytesPerSecond(0.0) };
        let now = if is { span.last.1 } else { BytesPerSecond(0.0) };
        let change = match (was, is) {
            _ if !host_is_seen_now => ProblemChange::Unknown,
            (false, false) => ProblemChange::Passed,
            _ if now.0 - before.0 > before.0 * 0.01 => ProblemChange::Worse,
            _ if before.0 - now.0 > before.0 * 0.01 => ProblemChange::Better,
            _ => ProblemChange::Same,
        };
        let seen = |index: usize| moments.get(index).copied().unwrap_or_default();
        let list = lists.entry(change).or_default();
        list.count += 1;
        list.difference += now.0 - before.0;
        list.cost += span.cost;
        list.first.push(Problem {
            host,
            kind,
            subject,
            devices: span.devices,
            first_seen: seen(span.first.0),
            last_seen: seen(span.last.0),
            before,
            now,
            cost: span.cost,
        });
    }
    for list in lists.values_mut() {
        let weight = |problem: &Problem| (problem.now.0 - problem.before.0).abs();
        list.first.sort_by(|a, b| {
            let by_name = || (&a.host, a.kind, &a.subject).cmp(&(&b.host, b.kind, &b.subject));
            weight(b).total_cmp(&weight(a)).then_with(|| b.cost.total_cmp(&a.cost)).then_with(by_name)
        });
        list.first.truncate(top);
    }
    lists
}

/// Hosts that were seen more than once and whose usable bandwidth changed.
fn changed(hosts: BTreeMap<HostId, HostSpan>, top: usize) -> (u64, Vec<HostChange>) {
    let difference = |before: &Sums, now: &Sums| now.usable.0 - before.usable.0;
    let mut changed: Vec<HostChange> = hosts
        .into_iter()
        .filter(|(_, span)| difference(&span.first.1, &span.last.1).abs() > NOTHING)
        .map(|(id, span)| HostChange { id, group: span.group, before: span.first.1, now: span.last.1 })
        .collect();
    changed.sort_by(|a, b| {
        difference(&a.before, &a.now).total_cmp(&difference(&b.before, &b.now)).then_with(|| a.id.cmp(&b.id))
    });
    let count = changed.len() as u64;
    // Those that lost most and those that won most.
    if changed.len() > top {
        let (worst, best) = (top.div_ceil(2), top / 2);
        changed.drain(worst..changed.len().saturating_sub(best));
    }
    (count, changed)
}

#[cfg(test)]
#[allow(clippy::float_cmp, reason = "numbers that are exact")]
mod tests {
    use super::*;

    fn id(name: &str) -> HostId {
        HostId([name.into()].into())
    }

    /// A host with one port at 10 B/s, of which a degraded link takes so much.
    fn host(name: &str, lost: f64) -> HostSample {
        let total = Sums {
            hosts: 1,
            installed: BytesPerSecond(100.0),
            usable: BytesPerSecond(100.0 - lost),
            degraded: BytesPerSecond(lost),
            ..Sums::default()
        };
        let problem = (RepairKind::FixLink, "0000:0a:00.0".to_owned(), vec!["mlx5_0".to_owned()], BytesPerSecond(lost));
        HostSample { id: id(name), group: vec![], total, problems: if lost > 0.0 { vec![problem] } else { vec![] } }
    }

    fn sample(time: f64, hosts: Vec<HostSample>) -> Sample {
        let mut total = Sums::default();
        for host in &hosts {
            total += host.total;
        }
        Sample { fleet: Fleet { time, total, ..Fleet::default() }, hosts }
    }

    #[test]
    fn every_problem_is_judged_by_where_it_begins_and_ends() {
        let at = |time, lost: [f64; 6]| {
            let names = ["began", "deeper", "ended", "same", "passed", "gone"];
            let hosts = names.iter().zip(lost).filter(|(_, lost)| *lost >= 0.0);
            sample(time, hosts.map(|(name, lost)| host(name, lost)).collect())
        };
        let samples = vec![
            at(0.0, [0.0, 20.0, 50.0, 10.0, 0.0, 30.0]),
            at(10.0, [0.0, 20.0, 50.0, 10.0, 40.0, 30.0]),
            at(20.0, [60.0, 80.0, 0.0, 10.0, 0.0, -1.0]),
        ];
        let trend = compare(0.0, samples, 10).unwrap();
        let of = |change| {
            let list = &trend.problems[&change];
            let names: Vec<&str> = list.first.iter().map(|problem| &*problem.host.0[0]).collect();
            (names, list.difference, list.cost)
        };
        // Half a step at each end, a whole one in between.
        assert_eq!(of(ProblemChange::Worse), (vec!["deeper", "began"], 120.0, 300.0 + 700.0));
        assert_eq!(of(ProblemChange::Better), (vec!["ended"], -50.0, 750.0));
        assert_eq!(of(ProblemChange::Same), (vec!["same"], 0.0, 200.0));
        assert_eq!(of(ProblemChange::Passed), (vec!["passed"], 0.0, 400.0));
        assert_eq!(of(ProblemChange::Unknown), (vec!["gone"], -30.0, 450.0));
        assert_eq!((trend.gone.count, trend.new.count, trend.period()), (1, 0, 20.0));
        let cost: f64 = trend.problems.values().map(|list| list.cost).sum();
        assert_eq!((cost, trend.cost.total()), (2800.0, 2800.0));
        let hosts: Vec<&str> = trend.hosts.1.iter().map(|host| &*host.id.0[0]).collect();
        assert_eq!(hosts, ["began", "deeper", "ended"]);
        let began = &trend.problems[&ProblemChange::Worse].first[1];
        assert_eq!((began.first_seen, began.last_seen, began.before.0, began.now.0), (20.0, 20.0, 0.0, 60.0));
    }

    #[test]
    fn lists_are_cut_and_their_sums_are_not() {
        let many = |lost: f64| (0..30).map(|number| host(&format!("n{number:02}"), lost)).collect();
        let trend = compare(0.0, vec![sample(0.0, many(0.0)), sample(10.0, many(5.0))], 4).unwrap();
        let worse = &trend.problems[&ProblemChange::Worse];
        assert_eq!((worse.count, worse.first.len(), worse.difference), (30, 4, 150.0));
        assert_eq!((trend.hosts.0, trend.hosts.1.len()), (30, 4));
    }

    #[test]
    fn one_audit_is_no_comparison() {
        assert_eq!(compare(0.0, vec![sample(0.0, vec![host("a", 1.0)])], 4), None);
        assert_eq!(compare(0.0, vec![], 4), None);
    }
}
