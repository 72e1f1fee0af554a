//! What the agent in a machine says, asked from outside, and waiting for it.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;

use crate::common::exposition::{Sample, parse};
use crate::common::http;
use crate::guest::{Guest, PATIENCE};

/// Between two looks. Each is a scrape, which costs an emulated machine dear.
const LOOK: Duration = Duration::from_millis(500);

impl Guest {
    /// What the agent answers from outside.
    pub fn get(&self, path: &str) -> String {
        let answer = http::get(self.address(), path).unwrap_or_else(|error| panic!("GET {path}: {error}"));
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        answer.text()
    }

    /// A scrape from outside.
    pub fn scrape(&self) -> Vec<Sample> {
        parse(&self.get("/metrics")).unwrap()
    }

    /// The value of the one series with this name and these labels; none when there is none.
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let labels: BTreeMap<String, String> = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let scrape = self.scrape();
        let mut found = scrape.iter().filter(|sample| sample.is(name, &labels));
        let value = found.next().map(|sample| sample.value);
        assert!(found.next().is_none(), "{name}{labels:?} is not one series");
        value
    }

    /// Waits until a series has this value; none waits until it has ended.
    pub fn wait_for(&mut self, name: &str, labels: &[(&str, &str)], value: Option<f64>) {
        let end = Instant::now() + PATIENCE;
        loop {
            let now = self.value(name, labels);
            if now == value {
                return;
            }
            if Instant::now() >= end {
                let family: Vec<_> = self.scrape().into_iter().filter(|sample| sample.name == name).collect();
                panic!("{name}{labels:?} is {now:?}, not {value:?}; {family:#?}\n{}", self.log());
            }
            thread::sleep(LOOK);
        }
    }

    /// Findings as `check`, `subject`, `reason`.
    pub fn findings(&self) -> Vec<[String; 3]> {
        let answer: Value = serde_json::from_str(&self.get("/api/v1/findings")).unwrap();
        listed(&answer)
    }

    /// Waits until a check finds something of this subject, or no longer does; the reason.
    pub fn wait_for_finding(&mut self, check: &str, subject: &str, there: bool) -> Option<String> {
        let end = Instant::now() + PATIENCE;
        loop {
            let findings = self.findings();
            let found = findings.iter().find(|finding| finding[0] == check && finding[1] == subject);
            if found.is_some() == there {
                return found.map(|finding| finding[2].clone());
            }
            assert!(Instant::now() < end, "{check} of {subject}: wanted {there}, got {findings:?}\n{}", self.log());
            thread::sleep(LOOK);
        }
    }

    /// Events as `kind`, `subject`.
    pub fn events(&self) -> Vec<[String; 2]> {
        let answer: Value = serde_json::from_str(&self.get("/api/v1/events")).unwrap();
        let events = answer["events"].as_array().unwrap_or_else(|| panic!("{answer}"));
        events.iter().map(|event| ["kind", "subject"].map(|key| text_of(event, key))).collect()
    }

    /// When an event of this kind and subject was whose text begins like this.
    pub fn event_time(&self, kind: &str, subject: &str, text: &str) -> Option<SystemTime> {
        let answer: Value = serde_json::from_str(&self.get("/api/v1/events")).unwrap();
        let mut events = answer["events"].as_array().unwrap().iter();
        let event = events.find(|event| {
            event["kind"] == kind && text_of(event, "subject") == subject && text_of(event, "text").starts_with(text)
        })?;
        Some(humantime::parse_rfc3339(event["time"].as_str()?).unwrap())
    }

    /// Kinds of the events so far.
    pub fn event_kinds(&self) -> Vec<String> {
        self.events().into_iter().map(|[kind, _]| kind).collect()
    }

    /// Waits until there has been such an event.
    pub fn wait_for_event(&mut self, kind: &str, subject: &str) {
        self.wait_until(&format!("event {kind} of {subject:?}"), |guest| {
            guest.events().iter().any(|event| event == &[kind, subject])
        });
    }

    /// Waits until something is so.
    pub fn wait_until(&mut self, what: &str, so: impl Fn(&Self) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !so(self) {
            assert!(Instant::now() < end, "never came: {what}\n{}", self.log());
            thread::sleep(LOOK);
        }
    }

    /// `lanewatch check` in the guest: exit code and document.
    pub fn check(&mut self) -> (i64, Value) {
        let (code, text) = self.run("lanewatch check --format json --sample 1s --timeout 60s 2>/dev/null");
        (code, serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}")))
    }

    /// Runs `lanewatch check` until it finds something of this subject, or no longer does; the reason. Its exit code must
    /// be that of its document. On a busy host a device may be late for one look.
    pub fn check_finds(&mut self, check: &str, subject: &str, there: bool) -> Option<String> {
        let end = Instant::now() + PATIENCE;
        loop {
            let (code, document) = self.check();
            let status = document["status"].as_str().unwrap_or_default();
            let codes = ["ok", "warning", "critical", "unknown"];
            assert_eq!(codes.iter().position(|word| *word == status), usize::try_from(code).ok(), "{document}");
            let found = listed(&document).into_iter().find(|finding| finding[0] == check && finding[1] == subject);
            if found.is_some() == there {
                return found.map(|[.., reason]| reason);
            }
            assert!(Instant::now() < end, "check: {check} of {subject}: wanted {there}\n{document:#}");
        }
    }
}

fn text_of(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}

/// Findings of a document as `check`, `subject`, `reason`.
fn listed(document: &Value) -> Vec<[String; 3]> {
    let all = document["findings"].as_array().unwrap_or_else(|| panic!("{document}"));
    all.iter().map(|finding| ["check", "subject", "reason"].map(|key| text_of(finding, key))).collect()
}
