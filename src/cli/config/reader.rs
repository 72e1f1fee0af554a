//! Values of a configuration file, each held against what is allowed of it.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use regex_lite::Regex;

use super::ConfigError;
use crate::host::collector::Filter;

/// Reads values of one table of a file, and says which of its keys is wrong.
#[derive(Debug, Clone, Copy)]
pub struct TableReader<'a> {
    file: &'a Path,
    /// The table, with its dot: `policy.`.
    table: &'a str,
}

impl<'a> TableReader<'a> {
    /// A reader of a table, which is named with its dot; of the whole file when that is empty.
    pub fn new(file: &'a Path, table: &'a str) -> Self {
        Self { file, table }
    }

    /// What is wrong with a key.
    pub fn wrong(&self, key: &str, message: impl Into<String>) -> ConfigError {
        ConfigError::Value { file: self.file.to_owned(), key: format!("{}{key}", self.table), message: message.into() }
    }

    /// A value that is not what is allowed.
    pub fn is_not(&self, key: &str, value: &str, allowed: &str) -> ConfigError {
        self.wrong(key, format!("{value:?} is not {allowed}"))
    }

    /// A number in a range.
    ///
    /// # Errors
    /// It is not in it.
    pub fn number<T>(&self, key: &str, value: Option<T>, range: RangeInclusive<T>) -> Result<Option<T>, ConfigError>
    where
        T: PartialOrd + Display,
    {
        match value {
            Some(value) if !range.contains(&value) => {
                Err(self.wrong(key, format!("{value} is not from {} to {}", range.start(), range.end())))
            }
            other => Ok(other),
        }
    }

    /// A time in a range; `allowed` says which.
    ///
    /// # Errors
    /// It is no time, or not in the range.
    pub fn time(
        &self,
        key: &str,
        text: Option<&str>,
        range: RangeInclusive<Duration>,
        allowed: &str,
    ) -> Result<Option<Duration>, ConfigError> {
        let Some(text) = text else { return Ok(None) };
        let time = humantime::parse_duration(text).ok().filter(|time| range.contains(time));
        time.map(Some).ok_or_else(|| self.is_not(key, text, allowed))
    }

    /// A pattern of whole names.
    ///
    /// # Errors
    /// It is no regular expression.
    pub fn pattern(&self, key: &str, text: &str) -> Result<Regex, ConfigError> {
        Filter::pattern(text).map_err(|error| self.is_not(key, text, &format!("a regular expression: {error}")))
    }
}
