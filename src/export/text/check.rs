//! The answers of `check`: for people, for Nagios, for node-problem-detector. The first line is complete in itself.

use std::fmt::Write as _;
use std::sync::Arc;

use super::facts::facts;
use super::isolation::isolation;
use crate::assess::visibility::visibility;
use crate::export::gaps::{self, Gap, gaps};
use crate::model::check::{Check, CheckResult, Severity, Status};
use crate::model::count::counted;
use crate::model::environment::Environment;
use crate::model::finding::Finding;
use crate::model::reading::ReadError;
use crate::model::snapshot::Fault;
use crate::model::time::rfc3339;
use crate::watch::HostReport;

/// Longest line node-problem-detector keeps.
const NPD_LINE: usize = 80;

/// Lines of what is not known; the others are counted.
const GAPS: usize = 8;

/// For people; `verbose` adds how the host is set up, how every check stands and what could not be read.
pub fn text(report: &HostReport, status: Status, verbose: bool) -> String {
    let mut out = format!("{}: {}\n", word(status), headline(report, status));
    for finding in &report.findings {
        let condition = &finding.condition;
        let since = report.snapshot.taken.wall_time(finding.since);
        let _ = writeln!(
            out,
            "\n{:<8} {} {} ({}, since {})",
            condition.severity.as_str(),
            condition.check.as_str(),
            condition.subject,
            condition.reason,
            rfc3339(since)
        );
        out.push_str(&wrapped(&condition.summary, "         "));
    }
    for (finding, reason) in &report.excepted {
        let condition = &finding.condition;
        let _ = writeln!(out, "\naccepted {} {}: {reason}", condition.check.as_str(), condition.subject);
    }
    let gaps = gaps(report);
    let told: Vec<&Gap<'_>> = gaps.iter().filter(|gap| gap.reason != Some(ReadError::Permission)).collect();
    for gap in told.iter().take(if verbose { usize::MAX } else { GAPS }) {
        let _ = writeln!(out, "\nunknown  {}: {} ({})", gap.subject, gap.why(), gap.checks());
    }
    if !verbose && told.len() > GAPS {
        let _ = writeln!(out, "\nunknown  and {} more (--verbose names all)", told.len() - GAPS);
    }
    out.push_str(&limits(&report.limited, !verbose));
    if verbose {
        out.push_str(&facts(report));
        out.push_str(&visibility_lines(report));
        out.push_str(&details(report));
        out.push_str(&isolation(&report.snapshot));
    }
    out
}

/// Nagios: one line with performance data, then the findings.
pub fn nagios(report: &HostReport, status: Status) -> String {
    let count = |severity| report.findings.iter().filter(|f| f.condition.severity == severity).count();
    let (active, unknown, ports) = ports(report);
    let mut out = format!(
        "{}: {} | critical={} warning={} info={} ports_active={active} ports={ports} ports_unknown={unknown}\n",
        word(status),
        headline(report, status).replace('|', "/"),
        count(Severity::Critical),
        count(Severity::Warning),
        count(Severity::Info),
    );
    for finding in &report.findings {
        let condition = &finding.condition;
        let summary = condition.summary.replace('|', "/");
        let _ = writeln!(out, "{} {}: {summary}", condition.severity.as_str(), condition.check.as_str());
    }
    out
}

/// node-problem-detector: one short line.
pub fn npd(report: &HostReport, status: Status) -> String {
    let text = match report.findings.first().filter(|f| f.condition.severity > Severity::Info) {
        Some(finding) => {
            format!("{} {}: {}", finding.condition.subject, finding.condition.check.as_str(), finding.condition.reason)
        }
        None => headline(report, status),
    };
    let mut line: String = text.chars().take(NPD_LINE).collect();
    line.push('\n');
    line
}

const fn word(status: Status) -> &'static str {
    match status {
        Status::Ok => "OK",
        Status::Unknown => "UNKNOWN",
        Status::Warning => "WARNING",
        Status::Critical => "CRITICAL",
    }
}

/// Ports that are active, those of which that is not known, and all.
fn ports(report: &HostReport) -> (usize, usize, usize) {
    let ports = || report.snapshot.devices().flat_map(|device| &device.ports);
    let unknown = ports().filter(|port| port.state.value().is_none()).count();
    (ports().filter(|port| port.is_active()).count(), unknown, ports().count())
}

fn headline(report: &HostReport, status: Status) -> String {
    let (active, unread, ports) = ports(report);
    let not_known = if unread == 0 { String::new() } else { format!(", {unread} not known") };
    let devices = report.snapshot.devices().count();
    let inventory = match (devices, report.snapshot.collector("rdma")) {
        (0, None) => "RDMA devices are not read (collector rdma)".to_owned(),
        (0, Some(rdma)) if rdma.listed.is_none() => "RDMA devices could not be listed".to_owned(),
        (0, _) => "no RDMA device here".to_owned(),
        _ => format!("{}, {active} of {} active{not_known}", counted(devices, "device"), counted(ports, "port")),
    };
    let serious: Vec<&Finding> = report.findings.iter().filter(|f| f.condition.severity > Severity::Info).collect();
    match serious.as_slice() {
        [] if status == Status::Unknown => format!("{}; {inventory}", unknown(report)),
        [] => {
            let untold = gaps(report);
            let untold: Vec<&Gap<'_>> = untold.iter().filter(|gap| gap.reason.is_none()).collect();
            gaps::first(&untold).map_or(inventory.clone(), |first| format!("{inventory}; not known of {first}"))
        }
        [only] => format!("{} [{inventory}]", only.condition.summary),
        [first, rest @ ..] => format!("{} (and {} more) [{inventory}]", first.condition.summary, rest.len()),
    }
}

/// What makes a status unknown: the first cause, with its subjects.
fn unknown(report: &HostReport) -> String {
    let rootless = |environment: &&Environment| !environment.has_sysfs;
    if let Some(environment) = report.snapshot.all::<Environment>().find(rootless) {
        return format!("there is no sysfs at {}", environment.sysfs);
    }
    for collector in &report.snapshot.collectors {
        if let Some(stuck) = collector.stuck.first() {
            return format!("{} does not answer ({stuck})", collector.name);
        }
    }
    let unlisted = report.snapshot.collectors.iter().find(|collector| collector.listed.is_none());
    let named = |fault: &Fault| format!("cannot read {}: {}", fault.source, fault.reason.as_str());
    let faults = || report.snapshot.collectors.iter().flat_map(|collector| &collector.faults);
    if let Some(collector) = unlisted {
        let why = collector.faults.first().map(|fault| format!(": {}", named(fault))).unwrap_or_default();
        return format!("{} could not list what is there{why}", collector.name);
    }
    let gaps = gaps(report);
    let needed: Vec<&Gap<'_>> = gaps.iter().filter(|gap| gap.reason != Some(ReadError::Permission)).collect();
    let fault = faults().find(|fault| fault.reason != ReadError::Permission);
    match (gaps::first(&needed), fault) {
        (Some(first), Some(fault)) => format!("not known of {first}: {}", named(fault)),
        (Some(first), None) => format!("not known of {first}"),
        (None, Some(fault)) => named(fault),
        (None, None) => match report.limited.first() {
            Some(limit) => limit.to_string(),
            None => "a device is listed of which nothing could be read".to_owned(),
        },
    }
}

/// What is seen of the host, and what would show more.
fn visibility_lines(report: &HostReport) -> String {
    let mut out = String::from("\narea             visible\n");
    for sight in visibility(&report.snapshot, &report.vf_map) {
        let remedy = sight.remedy.map_or_else(String::new, |remedy| format!("; would change that: {remedy}"));
        let _ = writeln!(out, "{:<17}{:<14} {}{remedy}", sight.area, sight.seen.as_str().replace('_', " "), sight.text);
    }
    out
}

fn details(report: &HostReport) -> String {
    let mut out = String::from("\ncheck                    ok  degraded  failed  unknown  skipped\n");
    for check in Check::ALL {
        let [ok, degraded, failed, unknown, skipped] =
            report.standings.get(check).copied().unwrap_or([0; CheckResult::ALL.len()]);
        let _ = writeln!(out, "{:<23}{ok:>4}{degraded:>10}{failed:>8}{unknown:>9}{skipped:>9}", check.as_str());
    }
    out.push_str("\ncollector        state\n");
    for collector in &report.snapshot.collectors {
        let state = match (&collector.listed, collector.stuck.as_slice()) {
            (_, stuck @ [_, ..]) => format!("does not answer: {}", stuck.join(", ")),
            (None, _) => "could not list what is there".to_owned(),
            (Some(listed), []) => format!("read {} in {:?}", counted(listed.len(), "thing"), collector.duration),
        };
        let _ = writeln!(out, "{:<17}{state}", collector.name);
        for fault in &collector.faults {
            let _ = writeln!(out, "                 {}: {}", fault.source, fault.reason.as_str());
        }
    }
    out
}

/// What permissions hide, in one place; `more` says where the files are named.
pub fn limits(limited: &[Arc<str>], more: bool) -> String {
    let mut out = String::new();
    for (n, limit) in limited.iter().enumerate() {
        let lines = wrapped(limit, "         ");
        out.push_str(&if n == 0 { lines.replacen("         ", "\nlimited  ", 1) } else { lines });
    }
    if more && !limited.is_empty() {
        out.push_str("         (lanewatch check --verbose names every file)\n");
    }
    out
}

/// Breaks a text into lines of at most 100 characters.
pub fn wrapped(text: &str, indent: &str) -> String {
    let mut out = String::new();
    let mut line = String::from(indent);
    for word in text.split_whitespace() {
        if line.chars().count() + word.chars().count() >= 100 && line.len() > indent.len() {
            let _ = writeln!(out, "{}", line.trim_end());
            line = String::from(indent);
        }
        let _ = write!(line, "{word} ");
    }
    let _ = writeln!(out, "{}", line.trim_end());
    out
}
