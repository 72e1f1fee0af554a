//! `expect.toml`: what must and must not be said of a recorded host.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

/// The whole file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    /// When the readings happen; 60 s apart where it does not say.
    #[serde(default)]
    pub at: Vec<String>,
    /// What must hold.
    #[serde(default, rename = "finding")]
    pub findings: Vec<Finding>,
    /// What must not hold.
    #[serde(default, rename = "no_finding")]
    pub no_findings: Vec<NoFinding>,
    /// Series that must be there.
    #[serde(default, rename = "sample")]
    pub samples: Vec<Sample>,
    /// Series that must not be there.
    #[serde(default, rename = "no_sample")]
    pub no_samples: Vec<NoSample>,
    /// Outputs of benchmarks, and what must be said of them after the last reading.
    #[serde(default, rename = "output")]
    pub outputs: Vec<Output>,
    /// The status after the last reading.
    pub status: Option<String>,
}

/// A finding that must hold.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finding {
    /// After which reading; after each one where it is not said.
    pub at: Option<usize>,
    /// Which check.
    pub check: String,
    /// Of what.
    pub subject: Option<String>,
    /// Why.
    pub reason: Option<String>,
}

/// A finding that must not hold.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoFinding {
    /// After which reading; after each one where it is not said.
    pub at: Option<usize>,
    /// Which check.
    pub check: String,
    /// Of what; of anything where it is not said.
    pub subject: Option<String>,
}

/// A series that must be there, once.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sample {
    /// After which reading; after each one where it is not said.
    pub at: Option<usize>,
    /// Name.
    pub name: String,
    /// Labels that select it; it may have more.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Value, to 1e-9 of it.
    pub value: toml::Value,
}

/// Series that must not be there.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoSample {
    /// After which reading; after each one where it is not said.
    pub at: Option<usize>,
    /// Name.
    pub name: String,
    /// Labels that select them; they may have more.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

/// An output of perftest or iperf3 that lies beside the host, and what must be said of it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Output {
    /// Its file.
    pub file: String,
    /// Outputs that are read with it: what several say together.
    #[serde(default)]
    pub beside: Vec<String>,
    /// The device or port that it is held against; that of the name in it where it is not said.
    pub device: Option<String>,
    /// Fields of the answer and their values; `latency_seconds/typical` is a field within another.
    #[serde(default)]
    pub fields: BTreeMap<String, toml::Value>,
    /// Fields that must have no value.
    #[serde(default)]
    pub absent: Vec<String>,
    /// Parts of what is said, of this output or of all together.
    #[serde(default)]
    pub says: Vec<String>,
}

/// How far apart readings are where a case does not say.
pub const STEP: Duration = Duration::from_secs(60);

impl Expect {
    /// Reads a file.
    pub fn parse(text: &str) -> Result<Self, String> {
        let expect: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        expect.times(1)?;
        for sample in &expect.samples {
            value(&sample.value).ok_or_else(|| format!("{}: the value is no number", sample.name))?;
        }
        Ok(expect)
    }

    /// When each of at least so many readings happens.
    pub fn times(&self, at_least: usize) -> Result<Vec<Duration>, String> {
        let times = self.at.iter().map(|text| humantime::parse_duration(text).map_err(|error| format!("at: {error}")));
        let mut times = times.collect::<Result<Vec<_>, _>>()?;
        if !times.is_sorted() {
            return Err("at: readings must follow one another".to_owned());
        }
        while times.len() < at_least.max(1) {
            times.push(times.last().map_or(Duration::ZERO, |last| last.saturating_add(STEP)));
        }
        Ok(times)
    }

    /// The readings that are spoken of.
    pub fn readings(&self) -> impl Iterator<Item = usize> {
        let findings = self.findings.iter().map(|it| it.at).chain(self.no_findings.iter().map(|it| it.at));
        let samples = self.samples.iter().map(|it| it.at).chain(self.no_samples.iter().map(|it| it.at));
        findings.chain(samples).flatten()
    }
}

/// A number, whole or not.
pub fn value(value: &toml::Value) -> Option<f64> {
    #[allow(clippy::cast_precision_loss, reason = "compared to 1e-9 of it")]
    value.as_float().or_else(|| value.as_integer().map(|whole| whole as f64))
}

#[test]
fn times_follow_one_another() {
    let times = |text: &str, at_least| Expect::parse(text)?.times(at_least);
    let seconds = |list: &[u64]| Ok(list.iter().map(|seconds| Duration::from_secs(*seconds)).collect::<Vec<_>>());
    assert_eq!(times("", 1), seconds(&[0]));
    assert_eq!(times("", 3), seconds(&[0, 60, 120]));
    assert_eq!(times("at = [\"0s\", \"30m\"]", 1), seconds(&[0, 1800]));
    assert_eq!(times("at = [\"0s\", \"30m\"]", 3), seconds(&[0, 1800, 1860]));
    for wrong in ["at = [\"60s\", \"0s\"]", "at = [\"soon\"]", "[[finding]]\ncheck = \"a\"\nseverity = \"b\"", "x = 1"]
    {
        assert!(Expect::parse(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn the_last_moment_has_no_next() {
    let expect = Expect::parse("at = [\"18446744073709551615s\"]").unwrap();
    assert_eq!(expect.times(2).unwrap().len(), 2);
}

#[cfg(test)]
mod any {
    use proptest::prelude::*;

    use super::Expect;

    proptest! {
        #[test]
        fn no_text_breaks_the_reader(text in any::<String>(), like in "((at|\\[\\[finding\\]\\]|check|status|value|=|\"|[0-9]|s| )\n?){0,24}") {
            let _ = (Expect::parse(&text).is_ok(), Expect::parse(&like).map(|expect| expect.times(3).is_ok()));
        }
    }
}
