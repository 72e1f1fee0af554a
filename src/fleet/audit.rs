//! Runs an audit: lists the hosts, queries their facts in shards, and adds them up.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use tokio::task::JoinSet;

use super::cables::worst_cables;
use super::client::{Labels, Series};
use super::client::{PrometheusClient, PrometheusError};
use super::facts::{HostFacts, HostId};
use super::host::{HostCapacityReport, compute_capacity, fingerprint};
use super::query::{DEVICE_LABELS, LINE_RATIOS, Scope};
use super::tally::Fleet;

/// What is asked.
#[derive(Debug, Clone)]
pub struct AuditPlan {
    /// About whom.
    pub scope: Scope,
    /// The moment, in seconds since 1970; the server's now when none.
    pub time: Option<f64>,
    /// Hosts asked about at once.
    pub shard: usize,
    /// Longest lists.
    pub top: usize,
    /// How far back the rate of a port that is down may lie, as PromQL has it: `7d`.
    pub history: String,
    /// A host whose checks last ran longer ago is stale, in seconds.
    pub stale_after: f64,
}

/// Why there is no audit.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// A query failed.
    #[error(transparent)]
    Client(#[from] PrometheusError),
    /// The server knows no host.
    #[error("{0}")]
    Nothing(String),
    /// No host has a label to group by.
    #[error("--by {label}: no host has this label; hosts have {}, devices have {}", .known.join(", "), DEVICE_LABELS.join(", "))]
    UnknownLabel {
        /// The label.
        label: String,
        /// Labels that a host has.
        known: Vec<String>,
    },
}

/// How far it is: hosts done, and all of them.
pub type Progress<'a> = &'a mut dyn FnMut(usize, usize);

/// The hosts that share one value of `instance`: they are asked about together.
type Instances = BTreeMap<String, Vec<HostFacts>>;

/// Runs the queries and computes the sums.
///
/// # Errors
/// A query that fails, or a server that knows no host.
pub async fn audit(client: &PrometheusClient, plan: &AuditPlan, progress: Progress<'_>) -> Result<Fleet, AuditError> {
    let mut fleet = audit_each(client, plan, progress, &mut |_, _, _| {}).await?;
    let [raw, lost] = LINE_RATIOS.map(|ratio| plan.scope.cables(ratio));
    let (raw, lost) = (client.query(&raw, Some(fleet.time)).await?, client.query(&lost, Some(fleet.time)).await?);
    fleet.cables = worst_cables(&raw, &lost, &plan.scope.identity, plan.top);
    Ok(fleet)
}

/// Sees every host that is in the sums, with its labels to group by.
pub type EachHost<'a> = &'a mut dyn FnMut(&HostId, &[String], &HostCapacityReport);

/// [`audit`] without the cables; shows what was computed for each host.
///
/// # Errors
/// A query that fails, or a server that knows no host.
pub async fn audit_each(
    client: &PrometheusClient,
    plan: &AuditPlan,
    progress: Progress<'_>,
    each: EachHost<'_>,
) -> Result<Fleet, AuditError> {
    let time = match plan.time {
        Some(time) => time,
        None => client.query("time()", None).await?.first().map_or(0.0, |row| row.value),
    };
    let mut fleet =
        Fleet { time, identity: plan.scope.identity.clone(), by: plan.scope.by.clone(), ..Fleet::default() };
    let unreachable = unreachable_hosts(client, plan, time, &mut fleet).await?;
    let instances = instances(client, plan, time, &unreachable).await?;
    if instances.is_empty() && fleet.unreachable.count == 0 {
        let within = if plan.scope.matchers.is_empty() { "" } else { " with these labels" };
        return Err(AuditError::Nothing(format!("the server has no lanewatch_build_info{within} at that time")));
    }
    if let Some(label) = unknown_label(&plan.scope.by, instances.values().flatten()) {
        let rows = client.query(&plan.scope.any_host(), Some(time)).await?;
        let known = rows.first().map(|row| host_labels(&row.labels)).unwrap_or_default();
        return Err(AuditError::UnknownLabel { label: label.to_owned(), known });
    }
    let all: usize = instances.values().map(Vec::len).sum();
    let (mut done, mut seen) = (0, HashSet::new());
    let mut rest = instances;
    progress(done, all);
    while !rest.is_empty() {
        let after = rest.keys().nth(plan.shard.max(1)).cloned();
        let later = after.map(|key| rest.split_off(&key)).unwrap_or_default();
        let shard = facts(client, plan, time, std::mem::replace(&mut rest, later)).await?;
        for host in shard.into_values() {
            done += 1;
            add_host(&mut fleet, plan, &mut seen, &host, each);
        }
        progress(done, all);
    }
    fleet.finish(plan.top);
    Ok(fleet)
}

/// The targets that cannot be scraped, which also go on the fleet's list. Empty if the server has no `up` of its own, as
/// one that only receives remote writes.
async fn unreachable_hosts(
    client: &PrometheusClient,
    plan: &AuditPlan,
    time: f64,
    fleet: &mut Fleet,
) -> Result<BTreeSet<HostId>, PrometheusError> {
    let jobs = client.query(&plan.scope.jobs(), Some(time)).await?;
    let jobs: Vec<String> = jobs.iter().map(|row| row.labels.get("job").to_owned()).collect();
    let mut unreachable = BTreeSet::new();
    if jobs.is_empty() {
        return Ok(unreachable);
    }
    for row in client.query(&plan.scope.up(&jobs), Some(time)).await? {
        let id = HostId::of(&row, &plan.scope.identity);
        if row.value < 0.5 {
            fleet.unreachable.add(id.clone());
            unreachable.insert(id);
        }
    }
    Ok(unreachable)
}

/// Every host that is not unreachable, with its labels.
async fn instances(
    client: &PrometheusClient,
    plan: &AuditPlan,
    time: f64,
    unreachable: &BTreeSet<HostId>,
) -> Result<Instances, PrometheusError> {
    let mut instances = Instances::new();
    for row in client.query(&plan.scope.hosts(), Some(time)).await? {
        let id = HostId::of(&row, &plan.scope.identity);
        let hosts = instances.entry(row.labels.get("instance").to_owned()).or_default();
        // The same host with another version for a moment, or with a label that its scrapers see differently.
        if unreachable.contains(&id) || hosts.iter().any(|host| host.id == id) {
            continue;
        }
        let of_host = |label: &String| if DEVICE_LABELS.contains(&&**label) { "" } else { row.labels.get(label) };
        let group = plan.scope.by.iter().map(|label| of_host(label).to_owned()).collect();
        hosts.push(HostFacts::new(id, group, row.labels.get("version").to_owned()));
    }
    instances.retain(|_, hosts| !hosts.is_empty());
    Ok(instances)
}

/// The first label to group by that no host has; labels of devices are theirs. `None` for a fleet without hosts.
fn unknown_label<'a>(by: &'a [String], hosts: impl Iterator<Item = &'a HostFacts>) -> Option<&'a str> {
    let mut missing: BTreeSet<usize> = by.iter().enumerate().map(|(index, _)| index).collect();
    missing.retain(|index| by.get(*index).is_some_and(|label| !DEVICE_LABELS.contains(&&**label)));
    let mut any = false;
    for host in hosts {
        any = true;
        missing.retain(|index| host.group.get(*index).is_none_or(String::is_empty));
    }
    missing.first().filter(|_| any).and_then(|index| by.get(*index)).map(String::as_str)
}

/// The labels by which hosts can be grouped: those of a target, not those that every agent sets itself.
fn host_labels(labels: &Labels) -> Vec<String> {
    let own = ["__name__", "version", "revision"];
    labels.names().filter(|name| !own.contains(name)).map(str::to_owned).collect()
}

/// Adds one series to the facts of its host.
type Apply = fn(&mut HostFacts, &Series);

/// Fills in the facts of a shard.
async fn facts(
    client: &PrometheusClient,
    plan: &AuditPlan,
    time: f64,
    shard: Instances,
) -> Result<BTreeMap<HostId, HostFacts>, PrometheusError> {
    let names: Vec<&str> = shard.keys().map(String::as_str).collect();
    let scope = &plan.scope;
    // In this order: what a device is comes before its numbers.
    let queries: [(String, Apply); 4] = [
        (scope.infos(&names), HostFacts::info),
        (scope.values(&names), HostFacts::value),
        (scope.findings(&names), HostFacts::finding),
        (scope.holders(&names), HostFacts::holder),
    ];
    let mut asked = JoinSet::new();
    for (index, (query, apply)) in queries.into_iter().enumerate() {
        let client = client.clone();
        asked.spawn(async move { (index, apply, client.query(&query, Some(time)).await) });
    }
    let mut answers = BTreeMap::new();
    while let Some(answer) = asked.join_next().await {
        // Nothing here panics or is cancelled; a task that ended otherwise has no rows.
        if let Ok((index, apply, rows)) = answer {
            answers.insert(index, (apply, rows?));
        }
    }
    let mut hosts: BTreeMap<HostId, HostFacts> = BTreeMap::new();
    for host in shard.into_values().flatten() {
        hosts.insert(host.id.clone(), host);
    }
    for (apply, rows) in answers.into_values() {
        add_series(&mut hosts, scope, &rows, apply);
    }
    let past: BTreeSet<String> =
        hosts.values().filter(|host| host.needs_past()).map(|host| instance(host, scope)).collect();
    if !past.is_empty() {
        let names: Vec<&str> = past.iter().map(String::as_str).collect();
        let rows = client.query(&scope.past_rates(&names, &plan.history), Some(time)).await?;
        add_series(&mut hosts, scope, &rows, HostFacts::past);
    }
    Ok(hosts)
}

fn add_series(hosts: &mut BTreeMap<HostId, HostFacts>, scope: &Scope, rows: &[Series], apply: Apply) {
    for row in rows {
        if let Some(host) = hosts.get_mut(&HostId::of(row, &scope.identity)) {
            apply(host, row);
        }
    }
}

fn instance(host: &HostFacts, scope: &Scope) -> String {
    let at = scope.identity.iter().position(|label| label == "instance");
    at.and_then(|at| host.id.0.get(at)).map_or_else(String::new, ToString::to_string)
}

/// Adds a host to the fleet, unless it is stale or there already under another name.
fn add_host(fleet: &mut Fleet, plan: &AuditPlan, seen: &mut HashSet<u64>, host: &HostFacts, each: EachHost<'_>) {
    if host.evaluated.is_some_and(|evaluated| evaluated + plan.stale_after < fleet.time) {
        fleet.stale.add(host.id.clone());
        return;
    }
    if let Some(guids) = fingerprint(host) {
        let mut hasher = DefaultHasher::new();
        guids.hash(&mut hasher);
        if !seen.insert(hasher.finish()) {
            fleet.duplicate.add(host.id.clone());
            return;
        }
    }
    let report = compute_capacity(host, &plan.scope.by);
    each(&host.id, &host.group, &report);
    fleet.add(&host.id, &host.group, report, plan.top);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(group: &[&str]) -> HostFacts {
        let group = group.iter().map(|value| (*value).to_owned()).collect();
        HostFacts::new(HostId([].into()), group, String::new())
    }

    #[test]
    fn a_label_that_no_host_has_is_unknown() {
        let by = ["rack", "hca_type", "site"].map(str::to_owned);
        let hosts = [host(&["", "", "ams"]), host(&["r1", "", ""])];
        assert_eq!(unknown_label(&by, hosts.iter()), None);
        assert_eq!(unknown_label(&by, hosts.iter().take(1)), Some("rack"));
        assert_eq!(unknown_label(&by, hosts.iter().skip(1)), Some("site"));
        assert_eq!(unknown_label(&by, [].iter()), None, "a fleet without hosts has no labels");
    }

    #[test]
    fn the_labels_of_a_host_are_named() {
        let labels: Labels = [("__name__", "lanewatch_build_info"), ("version", "1"), ("job", "a"), ("site", "ams")]
            .into_iter()
            .collect();
        let known = host_labels(&labels);
        let error = AuditError::UnknownLabel { label: "rack".to_owned(), known };
        let text = error.to_string();
        assert!(
            text.starts_with("--by rack: no host has this label; hosts have job, site, devices have hca_type"),
            "{text}"
        );
    }
}
