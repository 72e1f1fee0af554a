//! Compares what was said with what was expected, and prints both.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

use crate::case::{Case, Stage};
use crate::common::exposition;
use crate::expect::{self, Output};
use crate::output;

/// A finding as the product gave it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Check.
    pub check: String,
    /// Subject.
    pub subject: String,
    /// Reason; empty when it has none.
    pub reason: String,
    /// Severity.
    pub severity: String,
}

/// What the product said when a reading was judged.
#[derive(Debug, Clone, Default)]
pub struct Reading {
    /// Findings that hold.
    pub findings: Vec<Finding>,
    /// The exposition.
    pub samples: Vec<exposition::Sample>,
    /// `status`.
    pub status: String,
}

/// A way to have a case read and judged.
pub trait Replay {
    /// What is said at each of `stage.moments`: at `at` the reading is to be shown ([`Stage::show`]), at `judged` its
    /// report is taken; between them the poller goes on over the same tree.
    fn run(&self, stage: &Stage) -> Result<Vec<Reading>, String>;

    /// What is said of an output of a benchmark, with the host as it is at the last reading.
    fn read(&self, output: &Output, stage: &Stage) -> Result<Value, String>;
}

/// One expectation and what became of it.
#[derive(Debug)]
pub struct Row {
    kind: Kind,
    expected: String,
    /// What was there instead; none when all is well.
    wrong: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Finding,
    NoFinding,
    Sample,
    NoSample,
    Output,
    Status,
}

/// A case after its replay.
#[derive(Debug)]
pub struct Outcome {
    name: String,
    rows: Vec<Row>,
    readings: Vec<Reading>,
    error: Option<String>,
}

impl Outcome {
    /// Replays a case and compares.
    pub fn of(case: &Case, replay: &impl Replay) -> Self {
        match case.stage() {
            Ok(stage) => Self::of_stage(case, &stage, replay),
            Err(error) => Self { name: case.name.clone(), rows: Vec::new(), readings: Vec::new(), error: Some(error) },
        }
    }

    /// Replays a case that is staged, and compares.
    pub fn of_stage(case: &Case, stage: &Stage, replay: &impl Replay) -> Self {
        let said = (|| {
            let readings = replay.run(stage)?;
            if readings.len() != stage.moments.len() {
                return Err(format!("{} of {} readings", readings.len(), stage.moments.len()));
            }
            let outputs = case.expect.outputs.iter().map(|it| Ok((it, replay.read(it, stage)?)));
            Ok::<_, String>((readings, outputs.collect::<Result<Vec<_>, String>>()?))
        })();
        match said {
            Ok((readings, outputs)) => {
                let mut rows = compare(&case.expect, &readings);
                for (it, said) in outputs {
                    let of = |(expected, wrong)| Row { kind: Kind::Output, expected, wrong };
                    rows.extend(output::compare(it, &said).into_iter().map(of));
                }
                Self { name: case.name.clone(), rows, readings, error: None }
            }
            Err(error) => Self { name: case.name.clone(), rows: Vec::new(), readings: Vec::new(), error: Some(error) },
        }
    }

    /// Whether all is as expected.
    pub fn is_right(&self) -> bool {
        self.error.is_none() && self.rows.iter().all(|row| row.wrong.is_none())
    }

    fn count(&self, kind: Kind) -> String {
        let of_kind = || self.rows.iter().filter(|row| row.kind == kind);
        match of_kind().count() {
            0 => "-".to_owned(),
            all => format!("{}/{all}", of_kind().filter(|row| row.wrong.is_none()).count()),
        }
    }
}

fn compare(expect: &expect::Expect, readings: &[Reading]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (number, reading) in readings.iter().enumerate() {
        let now = |at: Option<usize>| at.is_none_or(|at| at == number);
        let mut row = |kind, expected: String, wrong| {
            rows.push(Row { kind, expected: format!("t{number} {expected}"), wrong });
        };
        for it in expect.findings.iter().filter(|it| now(it.at)) {
            let what = [Some(&it.check), it.subject.as_ref(), it.reason.as_ref()];
            let what = what.into_iter().flatten().map(String::as_str).collect::<Vec<_>>().join(" ");
            row(Kind::Finding, what, finding(it, reading));
        }
        for it in expect.no_findings.iter().filter(|it| now(it.at)) {
            let what = format!("no {} {}", it.check, it.subject.as_deref().unwrap_or("at all"));
            row(Kind::NoFinding, what, no_finding(it, reading));
        }
        for it in expect.samples.iter().filter(|it| now(it.at)) {
            let what = format!("{}{} = {}", it.name, braces(&it.labels), it.value);
            row(Kind::Sample, what, sample(it, reading));
        }
        for it in expect.no_samples.iter().filter(|it| now(it.at)) {
            let what = format!("no {}{}", it.name, braces(&it.labels));
            row(Kind::NoSample, what, no_sample(it, reading));
        }
    }
    if let (Some(status), Some(last)) = (&expect.status, readings.last()) {
        let wrong = (*status != last.status).then(|| last.status.clone());
        rows.push(Row { kind: Kind::Status, expected: format!("status {status}"), wrong });
    }
    rows
}

fn finding(it: &expect::Finding, reading: &Reading) -> Option<String> {
    let of_check = || reading.findings.iter().filter(|found| found.check == it.check);
    let suits = |found: &Finding| {
        it.subject.as_ref().is_none_or(|subject| *subject == found.subject)
            && it.reason.as_ref().is_none_or(|reason| *reason == found.reason)
    };
    let others = || list(of_check());
    (!of_check().any(suits)).then(|| if others().is_empty() { "none".to_owned() } else { others() })
}

fn no_finding(it: &expect::NoFinding, reading: &Reading) -> Option<String> {
    let suits = |found: &&Finding| {
        found.check == it.check && it.subject.as_ref().is_none_or(|subject| *subject == found.subject)
    };
    let found = list(reading.findings.iter().filter(suits));
    (!found.is_empty()).then_some(found)
}

fn sample(it: &expect::Sample, reading: &Reading) -> Option<String> {
    let found: Vec<_> = reading.samples.iter().filter(|sample| sample.is(&it.name, &it.labels)).collect();
    let expected = expect::value(&it.value)?;
    match found.as_slice() {
        [one] if is_near(one.value, expected) => None,
        [one] => Some(one.text.clone()),
        [] => {
            let others = reading.samples.iter().filter(|sample| sample.name == it.name);
            let others: Vec<_> = others.take(3).map(|sample| braces(&sample.labels) + " " + &sample.text).collect();
            Some(if others.is_empty() { "absent".to_owned() } else { format!("absent, but {}", others.join(", ")) })
        }
        many => Some(format!("{} series", many.len())),
    }
}

fn no_sample(it: &expect::NoSample, reading: &Reading) -> Option<String> {
    let found = reading.samples.iter().find(|sample| sample.is(&it.name, &it.labels))?;
    Some(format!("{}{} {}", found.name, braces(&found.labels), found.text))
}

/// To 1e-9 of what is expected.
fn is_near(value: f64, expected: f64) -> bool {
    (value - expected).abs() <= expected.abs() * 1e-9
}

fn braces(labels: &BTreeMap<String, String>) -> String {
    let labels: Vec<_> = labels.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
    if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) }
}

fn list<'a>(findings: impl Iterator<Item = &'a Finding>) -> String {
    let one = |found: &Finding| {
        let reason = if found.reason.is_empty() { String::new() } else { format!(" {}", found.reason) };
        format!("{} {}{reason} ({})", found.check, found.subject, found.severity)
    };
    findings.map(one).collect::<Vec<_>>().join(", ")
}

/// All cases, one line each: how many expectations of each kind were met. Below a case what was found at each
/// reading, and each expectation that was not met with what was there instead. The last line sums up.
pub fn table(outcomes: &[Outcome]) -> String {
    let width = outcomes.iter().map(|outcome| outcome.name.len()).max().unwrap_or(0).max(4);
    let mut text = format!("{:width$}       finding  no finding  sample   no sample  output  status\n", "case");
    for outcome in outcomes {
        let verdict = if outcome.is_right() { "ok" } else { "WRONG" };
        let count = |kind| outcome.count(kind);
        let _ = writeln!(
            text,
            "{:width$} {verdict:5} {:7}  {:10}  {:7}  {:9}  {:6}  {}",
            outcome.name,
            count(Kind::Finding),
            count(Kind::NoFinding),
            count(Kind::Sample),
            count(Kind::NoSample),
            count(Kind::Output),
            outcome.readings.last().map_or("-", |last| last.status.as_str()),
        );
        for (number, reading) in outcome.readings.iter().enumerate().filter(|(_, it)| !it.findings.is_empty()) {
            let _ = writeln!(text, "    t{number}: {}", list(reading.findings.iter()));
        }
        if let Some(error) = &outcome.error {
            let _ = writeln!(text, "  ! {error}");
        }
        for row in &outcome.rows {
            if let Some(wrong) = &row.wrong {
                let _ = writeln!(text, "  ! expected {}; got {wrong}", row.expected);
            }
        }
    }
    let right = outcomes.iter().filter(|outcome| outcome.is_right()).count();
    let rows = || outcomes.iter().flat_map(|outcome| &outcome.rows);
    let met = rows().filter(|row| row.wrong.is_none()).count();
    let _ = writeln!(text, "{right} of {} cases right; {met} of {} expectations met", outcomes.len(), rows().count());
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expect::Expect;

    fn reading() -> Reading {
        let samples = exposition::parse("a{x=\"1\",y=\"1\"} 63000000000.0\na{x=\"1\",y=\"2\"} 0\nb 1\n").unwrap();
        let finding = |check: &str, subject: &str, reason: &str| Finding {
            check: check.to_owned(),
            subject: subject.to_owned(),
            reason: reason.to_owned(),
            severity: "critical".to_owned(),
        };
        let findings =
            vec![finding("port_down", "mlx5_0/1", ""), finding("pcie_below_port_rate", "mlx5_1/1", "by_design")];
        Reading { findings, samples, status: "critical".to_owned() }
    }

    fn wrong(text: &str) -> Vec<String> {
        let rows = compare(&Expect::parse(text).unwrap(), &[reading(), Reading::default()]);
        rows.into_iter().filter_map(|row| Some(format!("{}: {}", row.expected, row.wrong?))).collect()
    }

    #[test]
    fn what_is_met_is_met() {
        let met = [
            "[[finding]]\nat = 0\ncheck = \"port_down\"",
            "[[finding]]\nat = 0\ncheck = \"pcie_below_port_rate\"\nsubject = \"mlx5_1/1\"\nreason = \"by_design\"",
            "[[no_finding]]\ncheck = \"port_down\"\nsubject = \"mlx5_9/1\"",
            "[[no_finding]]\nat = 1\ncheck = \"port_down\"",
            "[[sample]]\nat = 0\nname = \"a\"\nlabels = { y = \"1\" }\nvalue = 63000000000",
            "[[sample]]\nat = 0\nname = \"a\"\nlabels = { y = \"1\" }\nvalue = 63000000050.0",
            "[[sample]]\nat = 0\nname = \"a\"\nlabels = { y = \"2\" }\nvalue = 0",
            "[[no_sample]]\nname = \"a\"\nlabels = { y = \"3\" }",
            "[[no_sample]]\nat = 1\nname = \"a\"",
            "status = \"\"",
        ];
        for text in met {
            assert_eq!(wrong(text), [] as [&str; 0], "{text}");
        }
    }

    #[test]
    fn what_is_not_met_says_what_was_there() {
        let not_met = [
            ("[[finding]]\ncheck = \"port_down\"", "t1 port_down: none"),
            (
                "[[finding]]\nat = 0\ncheck = \"port_down\"\nsubject = \"x\"",
                "t0 port_down x: port_down mlx5_0/1 (critical)",
            ),
            ("[[no_finding]]\ncheck = \"port_down\"", "t0 no port_down at all: port_down mlx5_0/1 (critical)"),
            ("[[sample]]\nat = 0\nname = \"a\"\nlabels = { x = \"1\" }\nvalue = 1", "t0 a{x=\"1\"} = 1: 2 series"),
            ("[[sample]]\nat = 0\nname = \"b\"\nvalue = 1.00000001", "t0 b = 1.00000001: 1"),
            ("[[sample]]\nat = 0\nname = \"c\"\nvalue = 0", "t0 c = 0: absent"),
            ("[[no_sample]]\nname = \"b\"", "t0 no b: b 1"),
            ("status = \"ok\"", "status ok: "),
        ];
        for (text, expected) in not_met {
            assert_eq!(wrong(text), [expected], "{text}");
        }
    }
}
