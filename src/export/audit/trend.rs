//! The fleet over time as text, JSON and CSV.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::text::{fabric, name, percent, table};
use super::{SCHEMA, cells, csv_text, identity, labels, left_out, moment, with};
use crate::fleet::facts::HostId;
use crate::fleet::host::Sums;
use crate::fleet::tally::{ExcludedHosts, Fleet};
use crate::fleet::trend::{Problem, ProblemChange, ProblemList, Trend};
use crate::model::time::rfc3339;
use crate::model::units::{BytesPerSecond, counted};

/// Tables of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrendTable {
    /// Sums by group, at the beginning and at the end.
    Groups,
    /// Hosts whose usable bandwidth changed, at the beginning and at the end.
    Hosts,
    /// Problems.
    Problems,
    /// Hosts that are new or gone, and those that are not in the sums of the end.
    Excluded,
}

/// In the order in which people ask.
const CHANGES: [(ProblemChange, &str); 5] = [
    (ProblemChange::Worse, "worse"),
    (ProblemChange::Better, "better"),
    (ProblemChange::Passed, "came and went"),
    (ProblemChange::Same, "unchanged"),
    (ProblemChange::Unknown, "host no longer seen"),
];

/// The comparison for people.
pub fn report(trend: &Trend) -> String {
    let mut out = String::new();
    let (first, last) = (trend.moments.first().copied(), trend.moments.last().copied());
    // Writing to a string cannot fail, here and below.
    let _ = writeln!(
        out,
        "{} to {}: {}",
        rfc3339(moment(first.unwrap_or_default())),
        rfc3339(moment(last.unwrap_or_default())),
        counted(trend.moments.len() as u64, "audit"),
    );
    if first.is_some_and(|first| first - trend.asked_from >= 1.0) {
        let _ = writeln!(out, "no data from {} on: the server has none before", rfc3339(moment(trend.asked_from)));
    }
    sums(&mut out, &trend.before.total, &trend.now.total);
    cost(&mut out, trend);
    for (change, words) in CHANGES {
        if let Some(list) = trend.problems.get(&change) {
            problems(&mut out, trend, list, words);
        }
    }
    hosts(&mut out, trend);
    groups(&mut out, trend);
    for (hosts, words) in [
        (&trend.new, "not seen at the beginning"),
        (&trend.gone, "not seen at the end"),
        (&trend.now.unreachable, "cannot be scraped now"),
        (&trend.now.stale, "whose agent has stopped checking"),
    ] {
        if hosts.count > 0 {
            let names: Vec<String> = hosts.first.iter().take(3).map(|id| name(&trend.now, id)).collect();
            let others = if hosts.count > names.len() as u64 { ", ..." } else { "" };
            let _ = writeln!(out, "\n{} {words}: {}{others}", counted(hosts.count, "host"), names.join(", "));
        }
    }
    out
}

/// With its sign.
fn signed(bytes_per_second: f64) -> String {
    let rate = fabric(BytesPerSecond(bytes_per_second.abs()));
    match bytes_per_second {
        value if value > 1.0 => format!("+{rate}"),
        value if value < -1.0 => format!("-{rate}"),
        _ => "-".to_owned(),
    }
}

/// Usable, stranded and unknown add up to what is installed, in every column; the lines below `stranded` to it.
fn sums(out: &mut String, before: &Sums, now: &Sums) {
    let counts = [
        ("hosts", before.hosts, now.hosts),
        ("devices", before.devices, now.devices),
        ("ports", before.ports, now.ports),
        ("ports down", before.down_ports, now.down_ports),
        ("devices gone", before.missing_devices, now.missing_devices),
    ];
    let mut rows: Vec<Vec<String>> = Vec::new();
    for (words, before, now) in counts {
        let change = match now.checked_sub(before) {
            Some(0) => "-".to_owned(),
            Some(more) => format!("+{more}"),
            None => format!("-{}", before - now),
        };
        rows.push(vec![words.to_owned(), before.to_string(), now.to_string(), change]);
    }
    let rates = [
        ("installed", before.installed, now.installed),
        ("usable", before.usable, now.usable),
        ("stranded", before.stranded(), now.stranded()),
        ("  degraded links", before.degraded, now.degraded),
        ("  slots", before.slot, now.slot),
        ("  by design", before.design, now.design),
        ("  ports down", before.down, now.down),
        ("  devices gone", before.missing, now.missing),
        ("unknown", before.unknown, now.unknown),
    ];
    for (words, before, now) in rates {
        rows.push(vec![words.to_owned(), fabric(before), fabric(now), signed(now.0 - before.0)]);
    }
    out.push('\n');
    table(out, &["", "before", "now", "change"], &rows);
}

/// Bytes that could have been moved.
fn volume(bytes: f64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
    let mut value = bytes;
    let mut unit = "B";
    for next in units {
        unit = next;
        if value < 1000.0 {
            break;
        }
        if next != "EB" {
            value /= 1000.0;
        }
    }
    format!("{value:.1} {unit}")
}

fn cost(out: &mut String, trend: &Trend) {
    let period = trend.period();
    let average = |bytes: f64| fabric(BytesPerSecond(if period > 0.0 { bytes / period } else { 0.0 }));
    let cost = &trend.cost;
    let _ = writeln!(
        out,
        "\nstranded over this time: {} on average, {} that could have been moved",
        average(cost.total()),
        volume(cost.total())
    );
    let causes = [
        ("degraded links", cost.degraded),
        ("slots", cost.slot),
        ("by design", cost.design),
        ("ports down", cost.down),
        ("devices gone", cost.missing),
    ];
    let rows: Vec<Vec<String>> = causes
        .into_iter()
        .filter(|(_, bytes)| *bytes > 0.0)
        .map(|(words, bytes)| vec![format!("  {words}"), average(bytes), volume(bytes)])
        .collect();
    table(out, &[], &rows);
}

fn problems(out: &mut String, trend: &Trend, list: &ProblemList, words: &str) {
    let shown = if (list.first.len() as u64) < list.count {
        format!("{} of {}", list.first.len(), list.count)
    } else {
        list.count.to_string()
    };
    let _ = writeln!(out, "\n{words}: {shown}; usable {}, cost {}", signed(-list.difference), volume(list.cost));
    let rate = |rate: BytesPerSecond| if rate.0 < 1.0 { "-".to_owned() } else { fabric(rate) };
    let row = |problem: &Problem| {
        vec![
            name(&trend.now, &problem.host),
            problem.kind.problem().to_owned(),
            problem.subject.clone(),
            problem.devices.join(" "),
            rate(problem.before),
            rate(problem.now),
            rfc3339(moment(problem.first_seen)),
            rfc3339(moment(problem.last_seen)),
            volume(problem.cost),
        ]
    };
    let rows: Vec<Vec<String>> = list.first.iter().map(row).collect();
    let heading = ["host", "problem", "where", "devices", "took", "takes", "first seen", "last seen", "cost"];
    table(out, &heading, &rows);
}

fn hosts(out: &mut String, trend: &Trend) {
    let (count, list) = &trend.hosts;
    if *count == 0 {
        return;
    }
    let shown = if (list.len() as u64) < *count { format!("{} of {count}", list.len()) } else { count.to_string() };
    let _ = writeln!(out, "\nhosts whose usable bandwidth changed: {shown}");
    let rows: Vec<Vec<String>> = list
        .iter()
        .map(|host| {
            let change = signed(host.now.usable.0 - host.before.usable.0);
            let mut row = vec![name(&trend.now, &host.id)];
            row.extend(host.group.iter().cloned());
            row.extend([fabric(host.before.usable), fabric(host.now.usable), change]);
            row
        })
        .collect();
    let mut heading = vec!["host"];
    heading.extend(trend.now.by.iter().map(String::as_str));
    heading.extend(["usable before", "usable now", "change"]);
    table(out, &heading, &rows);
}

fn groups(out: &mut String, trend: &Trend) {
    if trend.now.by.is_empty() {
        return;
    }
    let _ = writeln!(out, "\nby {}", trend.now.by.join(", "));
    let rows: Vec<Vec<String>> = merged(trend)
        .into_iter()
        .map(|(group, before, now)| {
            let mut row = group.to_vec();
            row.extend([before.hosts.to_string(), now.hosts.to_string()]);
            row.extend([fabric(before.usable), fabric(now.usable), signed(now.usable.0 - before.usable.0)]);
            row.extend([percent(before.usable, before.installed), percent(now.usable, now.installed)]);
            row
        })
        .collect();
    let mut heading: Vec<&str> = trend.now.by.iter().map(String::as_str).collect();
    heading.extend(["hosts before", "now", "usable before", "now", "change", "before", "now"]);
    table(out, &heading, &rows);
}

/// Groups of both ends, each with its sums at both.
fn merged(trend: &Trend) -> Vec<(&[String], Sums, Sums)> {
    // Labels that nobody had at the beginning are no groups of it.
    let old = if trend.before.by == trend.now.by { Some(&trend.before.groups) } else { None };
    let mut names: Vec<&Vec<String>> =
        trend.now.groups.keys().chain(old.into_iter().flat_map(|old| old.keys())).collect();
    names.sort();
    names.dedup();
    let of = |fleet: &Fleet, name: &Vec<String>| fleet.groups.get(name).copied().unwrap_or_default();
    names.into_iter().map(|name| (&**name, of(&trend.before, name), of(&trend.now, name))).collect()
}

/// A table with its heading.
///
/// # Errors
/// None that a comparison can cause.
pub fn csv_table(trend: &Trend, table: TrendTable) -> Result<String, csv::Error> {
    let identity = || trend.now.identity.iter().cloned();
    let by = || trend.now.by.iter().cloned();
    let values = |id: &HostId| id.0.iter().map(ToString::to_string).collect::<Vec<_>>();
    let both = |before: &Sums, now: &Sums| cells(before).into_iter().chain(cells(now)).collect::<Vec<_>>();
    let sums = || ["before", "now"].into_iter().flat_map(|when| super::SUMS.map(|sum| format!("{when}_{sum}")));
    let mut rows: Vec<Vec<String>> = Vec::new();
    match table {
        TrendTable::Groups => {
            rows.push(by().chain(sums()).collect());
            for (group, before, now) in merged(trend) {
                rows.push(group.iter().cloned().chain(both(&before, &now)).collect());
            }
        }
        TrendTable::Hosts => {
            rows.push(identity().chain(by()).chain(sums()).collect());
            for host in &trend.hosts.1 {
                let labels = values(&host.id).into_iter().chain(host.group.iter().cloned());
                rows.push(labels.chain(both(&host.before, &host.now)).collect());
            }
        }
        TrendTable::Problems => {
            let own = [
                "change",
                "problem",
                "subject",
                "devices",
                "before_bytes_per_second",
                "now_bytes_per_second",
                "first_seen",
                "last_seen",
                "cost_bytes",
            ];
            rows.push(identity().chain(own.map(str::to_owned)).collect());
            for (change, words) in CHANGES {
                for problem in trend.problems.get(&change).iter().flat_map(|list| &list.first) {
                    let own = [
                        words.to_owned(),
                        problem.kind.problem().to_owned(),
                        problem.subject.clone(),
                        problem.devices.join(" "),
                        problem.before.0.to_string(),
                        problem.now.0.to_string(),
                        rfc3339(moment(problem.first_seen)),
                        rfc3339(moment(problem.last_seen)),
                        problem.cost.to_string(),
                    ];
                    rows.push(values(&problem.host).into_iter().chain(own).collect());
                }
            }
        }
        TrendTable::Excluded => {
            rows.push(identity().chain(["reason".to_owned()]).collect());
            let now = &trend.now;
            for (reason, hosts) in [
                ("new", &trend.new),
                ("gone", &trend.gone),
                ("dead", &now.unreachable),
                ("stale", &now.stale),
                ("twice", &now.duplicate),
            ] {
                rows.extend(hosts.first.iter().map(|id| values(id).into_iter().chain([reason.to_owned()]).collect()));
            }
        }
    }
    csv_text(rows)
}

/// The document.
///
/// # Errors
/// None that a comparison can cause.
pub fn json_document(trend: &Trend, exceeded: &[String]) -> Result<String, serde_json::Error> {
    let now = &trend.now;
    let identity = |id: &HostId| identity(now, id);
    let labels = |values: &[String]| labels(now, values);
    let excluded = |hosts: &ExcludedHosts| left_out(now, hosts);
    let sums = |sums: &Sums| with("stranded_bytes_per_second", json!(sums.stranded()), sums);
    let problem = |problem: &Problem| {
        json!({
            "host": identity(&problem.host),
            "action": problem.kind,
            "subject": problem.subject,
            "devices": problem.devices,
            "first_seen": rfc3339(moment(problem.first_seen)),
            "last_seen": rfc3339(moment(problem.last_seen)),
            "before_bytes_per_second": problem.before,
            "now_bytes_per_second": problem.now,
            "cost_bytes": problem.cost,
        })
    };
    let mut problems = Map::new();
    for (change, _) in CHANGES {
        let list = trend.problems.get(&change).cloned().unwrap_or_default();
        let name = serde_json::to_value(change)?;
        problems.insert(
            name.as_str().unwrap_or_default().to_owned(),
            json!({
                "count": list.count,
                "difference_bytes_per_second": list.difference,
                "cost_bytes": list.cost,
                "first": list.first.iter().map(problem).collect::<Vec<_>>(),
            }),
        );
    }
    let mut hosts = Vec::new();
    for host in &trend.hosts.1 {
        hosts.push(json!({
            "host": identity(&host.id),
            "labels": labels(&host.group),
            "before": sums(&host.before)?,
            "now": sums(&host.now)?,
        }));
    }
    let mut groups = Vec::new();
    for (group, before, after) in merged(trend) {
        groups.push(json!({"labels": labels(group), "before": sums(&before)?, "now": sums(&after)?}));
    }
    let document: Value = json!({
        "schema": SCHEMA,
        "since": rfc3339(moment(trend.asked_from)),
        "moments": trend.moments.iter().map(|time| rfc3339(moment(*time))).collect::<Vec<_>>(),
        "identity": now.identity,
        "by": now.by,
        "before": sums(&trend.before.total)?,
        "now": sums(&now.total)?,
        "cost": with_total(&trend.cost)?,
        "problems": problems,
        "changed_hosts": {"count": trend.hosts.0, "first": hosts},
        "groups": groups,
        "left_out": {
            "new": excluded(&trend.new),
            "gone": excluded(&trend.gone),
            "dead": excluded(&now.unreachable),
            "stale": excluded(&now.stale),
            "twice": excluded(&now.duplicate),
        },
        "exceeded": exceeded,
    });
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

fn with_total(cost: &crate::fleet::trend::StrandedCost) -> Result<Value, serde_json::Error> {
    let mut value = serde_json::to_value(cost)?;
    if let Value::Object(map) = &mut value {
        map.insert("stranded_bytes".to_owned(), json!(cost.total()));
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::volume;

    #[test]
    fn volumes() {
        for (bytes, text) in [(0.0, "0.0 B"), (1500.0, "1.5 kB"), (2.5e15, "2.5 PB"), (3e21, "3000.0 EB")] {
            assert_eq!(volume(bytes), text);
        }
    }
}
