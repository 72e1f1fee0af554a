//! What is wrong with a configuration, and a list that collects it, so that all of it can be reported at once.

use std::cell::RefCell;
use std::fmt;
use std::path::PathBuf;

use crate::export::web::WebError;

/// An error in a configuration file or on the command line.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{file}: {source}")]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file is not TOML, or has an unknown key or a value of another type.
    #[error("{file}{position}: {}{message}", prefix(key))]
    Malformed {
        /// The file.
        file: PathBuf,
        /// `:line:column`, where known.
        position: String,
        /// The key; empty for an error of syntax.
        key: String,
        /// What is wrong and what is allowed.
        message: String,
    },
    /// The web configuration is wrong.
    #[error(transparent)]
    Web(#[from] WebError),
    /// A value is not allowed.
    #[error("{file}: {key}: {message}")]
    Value {
        /// The file, or the command line.
        file: PathBuf,
        /// The key.
        key: String,
        /// What is wrong and what is allowed.
        message: String,
    },
}

impl ConfigError {
    fn key(&self) -> Option<&str> {
        match self {
            Self::Malformed { key, .. } | Self::Value { key, .. } => Some(key.as_str()).filter(|key| !key.is_empty()),
            Self::Unreadable { .. } | Self::Web(_) => None,
        }
    }
}

fn prefix(key: &str) -> String {
    if key.is_empty() { String::new() } else { format!("{key}: ") }
}

/// At least one error.
#[derive(Debug)]
pub struct ConfigErrors(Vec<ConfigError>);

impl ConfigErrors {
    /// The errors, in the order in which they were found.
    pub fn iter(&self) -> impl Iterator<Item = &ConfigError> {
        self.0.iter()
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            write!(f, "{}{error}", if index == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

impl<E: Into<ConfigError>> From<E> for ConfigErrors {
    fn from(error: E) -> Self {
        Self(vec![error.into()])
    }
}

/// Collects errors.
#[derive(Debug, Default)]
pub struct ErrorList(RefCell<Vec<ConfigError>>);

impl ErrorList {
    /// Adds an error, unless it follows from one that is there: a value that could not be read is not missing, too.
    pub fn push(&self, error: ConfigError) {
        let mut errors = self.0.borrow_mut();
        let known = |key: &str| errors.iter().filter_map(ConfigError::key).any(|known| is_within(key, known));
        if !error.key().is_some_and(known) {
            errors.push(error);
        }
    }

    /// Whether there is no error.
    pub fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// The value if there is no error.
    ///
    /// # Errors
    /// All that were collected.
    pub fn into_result<T>(self, value: T) -> Result<T, ConfigErrors> {
        let errors = self.0.into_inner();
        if errors.is_empty() { Ok(value) } else { Err(ConfigErrors(errors)) }
    }
}

/// Whether a key is `table`, or within it.
fn is_within(key: &str, table: &str) -> bool {
    key.strip_prefix(table).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_follows_from_another_is_left_out() {
        let errors = ErrorList::default();
        for key in ["probe.peers.list", "probe.peers.list", "probe.peers.list[0]", "probe.peers.lists"] {
            errors.push(ConfigError::Value { file: "f".into(), key: key.to_owned(), message: "wrong".to_owned() });
        }
        let error = errors.into_result(()).unwrap_err();
        assert_eq!(error.to_string(), "f: probe.peers.list: wrong; f: probe.peers.lists: wrong");
    }
}
