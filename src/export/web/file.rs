//! The file (YAML) and the PEM files it names. Every key is optional; an unknown one is an error.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde::Deserialize;

use crate::host::fs::read_regular;
use crate::watch::{Fingerprint, fingerprint};

/// Longest file, in bytes.
pub(super) const LONGEST: u64 = 1 << 20;

/// An error in a web configuration. Its text never contains a password, a hash or a key.
#[derive(Debug, thiserror::Error)]
pub enum WebError {
    /// A file cannot be read.
    #[error("{file}: {source}")]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// It is not YAML, or has an unknown key or a value of the wrong type.
    #[error("{file}{place}: {message}")]
    Malformed {
        /// The file.
        file: PathBuf,
        /// Line and column, where known.
        place: String,
        /// What is wrong and what is allowed.
        message: String,
    },
    /// A value is not allowed.
    #[error("{file}: {key}: {message}")]
    Value {
        /// The file.
        file: PathBuf,
        /// The key.
        key: String,
        /// What is wrong and what is allowed.
        message: String,
    },
    /// The file, or one that it names, was written to while it was read.
    #[error("{0}: it, or a file that it names, is still being written")]
    Changing(PathBuf),
}

impl WebError {
    pub(super) fn value(file: &Path, key: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Value { file: file.to_owned(), key: key.into(), message: message.into() }
    }
}

/// Files that a configuration is made from, as they were before they were read.
#[derive(Debug, Clone, Default)]
pub struct SourceFiles(Vec<(PathBuf, Option<Fingerprint>)>);

impl SourceFiles {
    pub(super) fn add(&mut self, path: &Path) {
        self.0.push((path.to_owned(), fingerprint(path)));
    }

    /// Their paths.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.0.iter().map(|(path, _)| path.clone()).collect()
    }

    /// Whether none of them has changed.
    pub fn are_current(&self) -> bool {
        self.0.iter().all(|(path, before)| fingerprint(path) == *before)
    }
}

/// The file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct File {
    pub(super) tls_server_config: Option<Tls>,
    pub(super) http_server_config: Option<Http>,
    pub(super) basic_auth_users: Option<BTreeMap<String, Secret>>,
    pub(super) rate_limit: Option<RateLimit>,
}

/// `tls_server_config`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Tls {
    pub(super) cert: Option<String>,
    pub(super) key: Option<Secret>,
    pub(super) client_ca: Option<String>,
    pub(super) cert_file: Option<PathBuf>,
    pub(super) key_file: Option<PathBuf>,
    pub(super) client_auth_type: Option<String>,
    pub(super) client_ca_file: Option<PathBuf>,
    pub(super) client_allowed_sans: Option<Vec<String>>,
    pub(super) min_version: Option<String>,
    pub(super) max_version: Option<String>,
    pub(super) cipher_suites: Option<Vec<String>>,
    pub(super) curve_preferences: Option<Vec<String>>,
    pub(super) prefer_server_cipher_suites: Option<bool>,
}

impl Tls {
    /// Whether it is a heading without keys.
    pub(super) fn is_empty(&self) -> bool {
        let certificate = self.cert.is_some() || self.cert_file.is_some();
        let key = self.key.is_some() || self.key_file.is_some();
        let client = self.client_ca.is_some() || self.client_ca_file.is_some() || self.client_auth_type.is_some();
        !(certificate || key || client || self.client_allowed_sans.is_some())
    }
}

/// `http_server_config`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Http {
    pub(super) http2: Option<bool>,
    pub(super) headers: Option<BTreeMap<String, String>>,
}

/// `rate_limit`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RateLimit {
    pub(super) interval: Option<String>,
    pub(super) burst: Option<u32>,
}

/// Text that is never printed.
#[derive(Clone, Deserialize)]
#[serde(transparent)]
pub(super) struct Secret(String);

impl Secret {
    pub(super) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

pub(super) fn read(path: &Path) -> Result<File, WebError> {
    let unreadable = |source| WebError::Unreadable { file: path.to_owned(), source };
    let bytes = read_regular(path, LONGEST).map_err(unreadable)?;
    let text =
        String::from_utf8(bytes).map_err(|error| unreadable(io::Error::new(io::ErrorKind::InvalidData, error)))?;
    parse(path, &text)
}

pub(super) fn parse(path: &Path, text: &str) -> Result<File, WebError> {
    if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#') || line.trim() == "---") {
        return Ok(File::default());
    }
    let mut options = serde_saphyr::Options::default();
    // A snippet would put hashes and keys into the log.
    options.with_snippet = false;
    let mut key = String::new();
    let file = serde_saphyr::with_deserializer_from_str_with_options(text, options, |yaml| {
        serde_path_to_error::deserialize(yaml).map_err(|error| {
            key = format!("{}: ", error.path());
            error.into_inner()
        })
    });
    file.map_err(|error| {
        let at = error.location().map(|at| (at.line(), at.column())).filter(|(line, _)| *line > 0);
        let place = at.map(|(line, column)| format!(":{line}:{column}")).unwrap_or_default();
        WebError::Malformed { file: path.to_owned(), place, message: format!("{key}{}", plain(&error.to_string())) }
    })
}

/// The parser's message in one line, without the place (it is in front already) and without what a value was: that
/// may be a secret.
fn plain(message: &str) -> String {
    let line = message.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = match line.strip_prefix("error: ").unwrap_or(&line).split_once(": ") {
        Some((place, rest)) if place.starts_with("line ") => rest.to_owned(),
        _ => line,
    };
    let line = line.rsplit_once(" at line ").map_or(line.as_str(), |(before, _)| before);
    let line = match line {
        "expected mapping start" => "is not a mapping",
        "expected sequence start" => "is not a list",
        "invalid boolean" => "is not true or false",
        "invalid u32" => "is not a whole number from 0 to 4294967295",
        other => other,
    };
    match line.split_once("string \"") {
        Some((before, rest)) => {
            format!("{before}a text{}", rest.rsplit_once('"').map_or("", |(_, after)| after))
        }
        None => line.to_owned(),
    }
}

/// PEM text, inline or from a file of its own.
pub(super) struct Pem {
    name: String,
    pub(super) file: Option<PathBuf>,
    pub(super) bytes: Vec<u8>,
}

impl Pem {
    /// The error that says what is wrong with it.
    pub(super) fn wrong(&self, path: &Path, message: &str) -> WebError {
        let message = match &self.file {
            Some(file) => format!("{} {message}", file.display()),
            None => message.to_owned(),
        };
        WebError::value(path, &*self.name, message)
    }

    /// Its certificates, at least one.
    pub(super) fn certificates(&self, path: &Path) -> Result<Vec<CertificateDer<'static>>, WebError> {
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.bytes).collect();
        match certificates {
            Ok(certificates) if !certificates.is_empty() => Ok(certificates),
            _ => Err(self.wrong(path, "holds no certificate in PEM")),
        }
    }
}

pub(super) fn pem(
    path: &Path,
    name: &str,
    inline: Option<&str>,
    file: Option<&Path>,
    files: &mut SourceFiles,
) -> Result<Option<Pem>, WebError> {
    let key = format!("tls_server_config.{name}");
    match (inline, file) {
        (Some(text), None) => Ok(Some(Pem { name: key, file: None, bytes: text.as_bytes().to_vec() })),
        (_, Some(file)) => {
            // Relative to the configuration's own folder, as in Prometheus' exporters.
            let file = path.parent().map_or_else(|| file.to_owned(), |folder| folder.join(file));
            files.add(&file);
            let key = format!("{key}_file");
            let bytes = read_regular(&file, LONGEST)
                .map_err(|error| WebError::value(path, &*key, format!("{}: {error}", file.display())))?;
            Ok(Some(Pem { name: key, file: Some(file), bytes }))
        }
        (None, None) => Ok(None),
    }
}
