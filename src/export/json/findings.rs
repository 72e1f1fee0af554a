//! Findings and events, and what every document has: its version and the name of the host.

use serde_json::{Map, Value, json};

use crate::model::check::{Check, CheckResult, Status};
use crate::model::finding::Finding;
use crate::model::time::rfc3339;
use crate::watch::HostReport;

/// Version of every document.
pub const SCHEMA: u32 = 1;

/// Status, findings and how many subjects stand where; the status is the report's, or what a caller makes of it.
pub fn findings(report: &HostReport, status: Status) -> Value {
    let excepted = report.excepted.iter().map(|(finding, why)| {
        let mut value = finding_value(report, finding);
        if let Value::Object(map) = &mut value {
            map.insert("exception".to_owned(), json!(why));
        }
        value
    });
    let recovered = report.recovered.iter().map(|(finding, ended)| {
        let mut value = finding_value(report, finding);
        if let Value::Object(map) = &mut value {
            map.insert("ended".to_owned(), json!(rfc3339(report.snapshot.taken.wall_time(*ended))));
        }
        value
    });
    let pending = report.pending.iter().map(|pending| {
        let mut value = finding_value(report, &pending.0);
        if let Value::Object(map) = &mut value {
            let due = pending.due().map(|due| rfc3339(report.snapshot.taken.wall_time(due)));
            map.insert("hold".to_owned(), json!(pending.0.condition.hold.to_string()));
            map.insert("finding_at".to_owned(), json!(due));
        }
        value
    });
    let undecided = report.undecided.iter().map(|undecided| {
        json!({
            "check": undecided.check,
            "subject": undecided.subject.to_string(),
            "reason": undecided.reason,
        })
    });
    json!({
        "schema": SCHEMA,
        "status": status,
        "host": host(report),
        "evaluated": rfc3339(report.evaluated),
        "findings": report.findings.iter().map(|finding| finding_value(report, finding)).collect::<Vec<_>>(),
        "pending": pending.collect::<Vec<_>>(),
        "checks": standings(report),
        "recovered": recovered.collect::<Vec<_>>(),
        "excepted": excepted.collect::<Vec<_>>(),
        "undecided": undecided.collect::<Vec<_>>(),
        "limited": report.limited,
    })
}

/// The newest events, newest first.
pub fn events(report: &HostReport) -> Value {
    json!({ "schema": SCHEMA, "host": host(report), "events": &*report.events })
}

pub(super) fn host(report: &HostReport) -> Option<&str> {
    report.snapshot.system()?.hostname.as_deref()
}

fn finding_value(report: &HostReport, finding: &Finding) -> Value {
    let found = &finding.condition;
    json!({
        "check": found.check,
        "severity": found.severity,
        "subject": found.subject.to_string(),
        "device": found.device,
        "port": found.port,
        "pci_address": found.pci_address,
        "reason": found.reason,
        "summary": found.summary,
        "since": rfc3339(report.snapshot.taken.wall_time(finding.since)),
        "evidence": found.evidence,
    })
}

fn standings(report: &HostReport) -> Map<String, Value> {
    let of = |check: &Check| {
        let counts = report.standings.get(check).copied().unwrap_or_default();
        let counts = CheckResult::ALL.iter().zip(counts).map(|(standing, n)| (standing.as_str().to_owned(), n.into()));
        Value::Object(counts.collect())
    };
    Check::ALL.iter().map(|check| (check.as_str().to_owned(), of(check))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::testing;

    fn pretty(value: &Value) -> String {
        format!("{value:#}\n")
    }

    #[test]
    fn findings_document() {
        testing::committed(
            "tests/golden/findings.json",
            &pretty(&findings(&testing::report(), testing::report().status)),
        );
    }

    #[test]
    fn events_document() {
        let document = events(&testing::report());
        assert_eq!(document["schema"], 1);
        assert_eq!(document["events"][0]["kind"], "link_changed");
    }

    #[test]
    fn every_check_is_counted() {
        let document = findings(&testing::report_of(Vec::new()), Status::Ok);
        assert_eq!(document["checks"].as_object().unwrap().len(), Check::ALL.len());
        assert_eq!(document["host"], Value::Null);
        assert_eq!(document["findings"][0]["since"], "2026-09-21T13:13:20Z");
    }
}
