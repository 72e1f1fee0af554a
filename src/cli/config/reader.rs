//! Values of a configuration file, each checked against what is allowed.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use regex_lite::Regex;

use super::error::{ConfigError, ErrorList};
use crate::host::collector::Filter;

/// Checks the values of one table of a file. An error names its key and what is allowed.
#[derive(Debug, Clone)]
pub struct TableReader<'a> {
    errors: &'a ErrorList,
    file: &'a Path,
    /// The table, with its dot: `policy.`.
    table: String,
}

impl<'a> TableReader<'a> {
    /// A reader of a table whose name ends with a dot; of the whole file if it is empty.
    pub fn new(errors: &'a ErrorList, file: &'a Path, table: &str) -> Self {
        Self { errors, file, table: table.to_owned() }
    }

    /// A reader of the command line's flags; `prefix` is `--path.`, say.
    pub fn of_flags(errors: &'a ErrorList, prefix: &str) -> Self {
        Self::new(errors, Path::new("command line"), prefix)
    }

    /// A reader of a table within this one; its name ends with a dot.
    #[must_use]
    pub fn table(&self, name: &str) -> Self {
        Self { table: format!("{}{name}", self.table), ..self.clone() }
    }

    /// Reports an error of another file.
    pub fn add(&self, error: ConfigError) {
        self.errors.push(error);
    }

    /// Reports an error in a key.
    pub fn error(&self, key: &str, message: impl Into<String>) {
        let (file, key) = (self.file.to_owned(), format!("{}{key}", self.table));
        self.errors.push(ConfigError::Value { file, key, message: message.into() });
    }

    /// Reports a value that is not what is allowed.
    pub fn not_allowed(&self, key: &str, value: &str, allowed: &str) {
        self.error(key, format!("{value:?} is not {allowed}"));
    }

    /// A number in a range.
    pub fn number<T>(&self, key: &str, value: Option<T>, range: RangeInclusive<T>) -> Option<T>
    where
        T: PartialOrd + Display,
    {
        let value = value?;
        if range.contains(&value) {
            return Some(value);
        }
        self.error(key, format!("{value} is not between {} and {}", range.start(), range.end()));
        None
    }

    /// A time in a range, which `allowed` describes.
    pub fn time(
        &self,
        key: &str,
        text: Option<&str>,
        range: RangeInclusive<Duration>,
        allowed: &str,
    ) -> Option<Duration> {
        let text = text?;
        let time = humantime::parse_duration(text).ok().filter(|time| range.contains(time));
        if time.is_none() {
            self.not_allowed(key, text, allowed);
        }
        time
    }

    /// A pattern of whole names.
    pub fn pattern(&self, key: &str, text: &str) -> Option<Regex> {
        Filter::pattern(text)
            .inspect_err(|error| self.not_allowed(key, text, &format!("a regular expression: {error}")))
            .ok()
    }
}
