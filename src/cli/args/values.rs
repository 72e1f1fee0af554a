//! Values of flags.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::{Args, ValueEnum};

use crate::model::time::LONGEST;

/// Log levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names are the definition")]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// Log formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// `level=info msg=…`
    Logfmt,
    /// One JSON object a line.
    Json,
}

/// Output formats of `check`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CheckFormat {
    /// For people.
    Text,
    /// Stable, versioned.
    Json,
    /// One status line with performance data, then details.
    Nagios,
    /// One line of at most 80 characters.
    Npd,
}

/// Output formats of commands with a document for programs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum DocumentFormat {
    /// A table.
    #[default]
    Text,
    /// Stable, versioned.
    Json,
}

/// Meanings of exit codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExitMap {
    /// 0 ok, 1 warning, 2 critical, 3 unknown.
    Nagios,
    /// 0 ok, 1 not ok, 2 unknown.
    Npd,
    /// 0 ok, 1 anything else.
    Binary,
}

/// When to use colors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set or it is dumb.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// A length of time; `0` needs no unit.
///
/// # Errors
/// It is not one.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let time =
        humantime::parse_duration(text).map_err(|_| format!("{text:?} is not a time such as 500ms, 5s or 2m"))?;
    if time <= LONGEST { Ok(time) } else { Err(format!("{text:?} is longer than 100 years")) }
}

/// The time between two reads. Limits of errors are per second or longer, so a shorter sample cannot be compared with
/// them.
///
/// # Errors
/// It is not 0 or from 1 s to 10 min.
pub fn parse_sample(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text)?;
    let allowed = time.is_zero() || (Duration::from_secs(1)..=Duration::from_secs(600)).contains(&time);
    if allowed { Ok(time) } else { Err(format!("{text:?} is not 0 or a time from 1s to 10m")) }
}

/// A time (RFC 3339), or how long ago.
///
/// # Errors
/// It is neither.
pub fn parse_time(text: &str, now: SystemTime) -> Result<SystemTime, String> {
    let ago = humantime::parse_duration(text).ok().and_then(|time| now.checked_sub(time));
    ago.or_else(|| humantime::parse_rfc3339_weak(text).ok()).ok_or_else(|| {
        format!("{text:?} is not a time: give an age (30m, 2h, 1d) or a date such as 2026-01-31T12:00:00Z")
    })
}

/// Flags of `metrics`.
#[derive(Debug, Clone, Args)]
pub struct MetricsArgs {
    /// Replace this file, for node_exporter's textfile collector
    #[arg(long, value_name = "PATH")]
    pub textfile: Option<PathBuf>,
    /// Print OpenMetrics instead of the text format
    #[arg(long, conflicts_with = "textfile")]
    pub openmetrics: bool,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::time::rfc3339;

    #[test]
    fn moments() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_790_000_000);
        assert_eq!(parse_time("1h", now).ok(), Some(now - Duration::from_secs(3600)));
        assert_eq!(parse_time(&rfc3339(now), SystemTime::UNIX_EPOCH).ok(), Some(now));
        assert!(parse_time("yesterday", now).is_err());
        for (text, time) in [("90000d", "1970-01-01T00:00:00Z"), ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59Z")] {
            assert_eq!(parse_time(text, now).map(rfc3339).ok().as_deref(), Some(time), "{text}");
        }
    }

    #[test]
    fn a_time_fits_every_clock() {
        assert_eq!(parse_duration("0"), Ok(Duration::ZERO));
        assert_eq!(parse_duration("90y"), Ok(Duration::from_secs(90 * 31_557_600)));
        assert_eq!(parse_duration("500000000000y").unwrap_err(), "\"500000000000y\" is longer than 100 years");
    }

    proptest! {
        #[test]
        fn no_text_breaks_a_parse_time(text in any::<String>(), like in "[0-9]{1,22}(ns|s|m|h|d|y|T|Z|-|:){0,3}") {
            let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_790_000_000);
            let _ = (parse_time(&text, now).map(rfc3339).is_ok(), parse_time(&like, now).map(rfc3339).is_ok());
        }
    }
}
