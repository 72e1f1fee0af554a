//! The output of `check`: for people, for Nagios, for node-problem-detector.

use std::fmt::Write as _;

use super::style::Style;
use super::verbose::sections;
use super::write_group;
use crate::export::view::groups;
use crate::export::view::{UnknownGroup, summarize, unknowns};
use crate::model::check::{Severity, Status};
use crate::model::finding::{Finding, PendingFinding};
use crate::model::host::Environment;
use crate::model::pcie::RdmaCard;
use crate::model::reading::ReadError;
use crate::model::snapshot::Fault;
use crate::model::time::BootTime;
use crate::model::units::counted;
use crate::watch::HostReport;

/// Longest line node-problem-detector keeps.
const NPD_LINE: usize = 80;

/// Lines about unknowns; the others are counted.
const UNKNOWNS: usize = 8;

/// How a person wants the text of `check`.
#[derive(Debug, Clone, Default)]
pub struct CheckText {
    /// Whether to add how the host is set up, how every check stands and every file that could not be read.
    pub verbose: bool,
    /// Colour, width and time zone.
    pub style: Style,
    /// When this run began: a finding that is no older is seen for the first time.
    pub began: Option<BootTime>,
}

/// For people: every finding once, under its cause.
pub fn text(report: &HostReport, status: Status, options: &CheckText) -> String {
    let style = &options.style;
    let title = word(status);
    let title = match status {
        Status::Ok => style.good(&title).to_string(),
        Status::Unknown => style.bold(&title).to_string(),
        Status::Warning => style.caution(&title).to_string(),
        Status::Critical => style.bad(&title).to_string(),
    };
    let mut out = format!("{title}: {}\n", summary_line(report, status));
    for group in groups(report) {
        write_group(&mut out, report, &group, style, options.began, "");
    }
    for pending in &report.pending {
        out.push_str(&pending_text(report, pending, style));
    }
    for (finding, reason) in &report.excepted {
        let condition = &finding.condition;
        let _ = writeln!(out, "\naccepted {} {}: {reason}", condition.check.as_str(), condition.subject);
    }
    let unknowns = unknowns(report);
    let shown: Vec<&UnknownGroup<'_>> =
        unknowns.iter().filter(|group| group.reason != Some(ReadError::Permission)).collect();
    for group in shown.iter().take(if options.verbose { usize::MAX } else { UNKNOWNS }) {
        let _ = writeln!(out, "\nunknown  {}: {} ({})", group.subject, group.why(), group.checks());
    }
    if !options.verbose && shown.len() > UNKNOWNS {
        let _ = writeln!(out, "\nunknown  {} more (--verbose lists all)", shown.len() - UNKNOWNS);
    }
    out.push_str(&style.limits(&report.limited, !options.verbose));
    if options.verbose {
        out.push_str(&sections(report, style));
    }
    out
}

/// A condition that is not a finding yet, and when it will be one.
fn pending_text(report: &HostReport, pending: &PendingFinding, style: &Style) -> String {
    let Finding { condition, since } = &pending.0;
    let taken = report.snapshot.taken;
    let head = format!(
        "\npending  {} {} {} ({}), {}; a finding if it holds for {}\n",
        condition.severity.as_str(),
        condition.check.as_str(),
        condition.subject,
        condition.reason,
        style.since(taken, *since, None),
        condition.hold,
    );
    head + &style.wrap(&condition.summary, "         ")
}

/// The first line for people: how many findings there are, since they follow one by one.
fn summary_line(report: &HostReport, status: Status) -> String {
    let count = |severity| report.findings.iter().filter(|f| f.condition.severity == severity).count();
    let (critical, warnings, info) = (count(Severity::Critical), count(Severity::Warning), count(Severity::Info));
    if critical + warnings == 0 {
        return headline(report, status);
    }
    let mut parts = Vec::new();
    if critical > 0 {
        parts.push(format!("{critical} critical"));
    }
    if warnings > 0 {
        parts.push(counted(warnings, "warning"));
    }
    if info > 0 {
        parts.push(format!("{info} info"));
    }
    format!("{}; {}", parts.join(", "), inventory(report))
}

/// Nagios: one line with the worst finding and performance data, then the other findings.
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
    let in_first_line = usize::from(report.findings.first().is_some_and(|f| f.condition.severity > Severity::Info));
    for finding in report.findings.iter().skip(in_first_line) {
        let condition = &finding.condition;
        let summary = condition.summary.replace('|', "/");
        let _ = writeln!(out, "{} {}: {summary}", condition.severity.as_str(), condition.check.as_str());
    }
    for PendingFinding(Finding { condition, .. }) in &report.pending {
        let summary = condition.summary.replace('|', "/");
        let _ = writeln!(out, "pending {} {}: {summary}", condition.severity.as_str(), condition.check.as_str());
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

fn word(status: Status) -> String {
    status.as_str().to_ascii_uppercase()
}

/// Ports that are active, those in an unknown state, and all.
fn ports(report: &HostReport) -> (usize, usize, usize) {
    let ports = || report.snapshot.devices().flat_map(|device| &device.ports);
    let unknown = ports().filter(|port| port.state.value().is_none()).count();
    (ports().filter(|port| port.is_active()).count(), unknown, ports().count())
}

/// How many devices and ports there are: `2 devices, 2 of 2 ports active`.
fn inventory(report: &HostReport) -> String {
    let (active, unknown, ports) = ports(report);
    let unknown = if unknown == 0 { String::new() } else { format!(", {unknown} unknown") };
    let devices = report.snapshot.devices().count();
    match (devices, report.snapshot.collector("rdma")) {
        (0, None) => "RDMA devices are not read (collector rdma is off)".to_owned(),
        (0, Some(rdma)) if rdma.listed.is_none() => "cannot list RDMA devices".to_owned(),
        (0, _) => match report.snapshot.all::<RdmaCard>().count() {
            0 => "no RDMA devices found".to_owned(),
            cards => format!("no RDMA devices, but {} capable of RDMA", counted(cards, "card")),
        },
        _ => {
            let waiting = report.pending.len();
            let pending = if waiting == 0 { String::new() } else { format!(", {waiting} pending") };
            format!("{}, {active} of {} active{unknown}{pending}", counted(devices, "device"), counted(ports, "port"))
        }
    }
}

/// The worst finding, or what is unknown, in one line that is complete in itself.
fn headline(report: &HostReport, status: Status) -> String {
    let inventory = inventory(report);
    let serious: Vec<&Finding> = report.findings.iter().filter(|f| f.condition.severity > Severity::Info).collect();
    match serious.as_slice() {
        [] if status == Status::Unknown => format!("{}; {inventory}", unknown(report)),
        [] => {
            let unknowns = unknowns(report);
            let unreported: Vec<&UnknownGroup<'_>> = unknowns.iter().filter(|group| group.reason.is_none()).collect();
            summarize(&unreported).map_or(inventory.clone(), |first| format!("{inventory}; unknown: {first}"))
        }
        [only] => format!("{} [{inventory}]", only.condition.summary),
        [first, rest @ ..] => format!("{} (and {} more) [{inventory}]", first.condition.summary, rest.len()),
    }
}

/// What makes a status unknown: the first cause, with its subjects.
fn unknown(report: &HostReport) -> String {
    let rootless = |environment: &&Environment| !environment.has_sysfs;
    if let Some(environment) = report.snapshot.all::<Environment>().find(rootless) {
        return format!("no sysfs at {}", environment.sysfs);
    }
    for collector in &report.snapshot.collectors {
        if let Some(stuck) = collector.stuck.first() {
            return format!("collector {}: {stuck} not responding", collector.name);
        }
    }
    let unlisted = report.snapshot.collectors.iter().find(|collector| collector.listed.is_none());
    let describe = |fault: &Fault| format!("cannot read {}: {}", fault.source, fault.reason.as_str());
    let faults = || report.snapshot.collectors.iter().flat_map(|collector| &collector.faults);
    if let Some(collector) = unlisted {
        let why = collector.faults.first().map(|fault| format!(": {}", describe(fault))).unwrap_or_default();
        return format!("collector {} cannot list devices{why}", collector.name);
    }
    let groups = unknowns(report);
    let needed: Vec<&UnknownGroup<'_>> =
        groups.iter().filter(|group| group.reason != Some(ReadError::Permission)).collect();
    let fault = faults().find(|fault| fault.reason != ReadError::Permission);
    match (summarize(&needed), fault) {
        (Some(first), Some(fault)) => format!("{first} unknown: {}", describe(fault)),
        (Some(first), None) => format!("unknown: {first}"),
        (None, Some(fault)) => describe(fault),
        (None, None) => match report.limited.first() {
            Some(limit) => limit.to_string(),
            None => "a listed device has no readable files".to_owned(),
        },
    }
}
