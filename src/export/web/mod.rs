//! The web configuration: TLS, client certificates, users, headers and a rate limit, in the format of Prometheus'
//! exporters.

mod client;
mod file;
mod rate_limit;
mod tls;
mod users;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use hyper::header::{HeaderName, HeaderValue};
use rustls::ServerConfig;

pub use client::TlsRejection;
pub use file::WebError;
pub(super) use rate_limit::AttemptLimits;
pub use rate_limit::TokenBucket;
pub use users::{AuthOutcome, Users};

/// A web configuration in force.
#[derive(Default)]
pub struct Web {
    /// How connections are encrypted; `None` if they are not.
    pub tls: Option<Arc<ServerConfig>>,
    /// Whether a certificate that a client shows is verified.
    pub verifies_clients: bool,
    /// When the server's certificate expires.
    pub certificate_expires: Option<SystemTime>,
    /// The users who may ask; `None` if everyone may.
    pub users: Option<Users>,
    /// Headers that every response gets.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// The rate limit of requests.
    pub rate: Option<TokenBucket>,
    /// The files it was made from.
    pub files: Vec<PathBuf>,
    /// What works but the operator should know, one sentence each.
    pub remarks: Vec<String>,
}

impl Web {
    /// Reads a file and what it names.
    ///
    /// # Errors
    /// A file that cannot be read, an unknown key, a value that is not allowed, a key that is not the certificate's.
    pub fn load(path: &Path) -> Result<Self, WebError> {
        let (file, mut files) = (file::read(path)?, vec![path.to_owned()]);
        let mut remarks = Vec::new();
        let tls = file.tls_server_config.as_ref().filter(|tls| !tls.is_empty());
        let tls = tls.map(|tls| tls::build(path, tls, &mut files, &mut remarks)).transpose()?;
        let http = file.http_server_config.unwrap_or_default();
        if http.http2 == Some(true) {
            remarks.push("http_server_config.http2: connections speak HTTP/1.1; HTTP/2 is not offered".to_owned());
        }
        let hashes = file.basic_auth_users.unwrap_or_default();
        if tls.is_none() && !hashes.is_empty() {
            remarks.push("basic_auth_users without tls_server_config: passwords cross the network readable".to_owned());
        }
        Ok(Self {
            users: (!hashes.is_empty()).then(|| Users::new(path, hashes)).transpose()?,
            headers: headers(path, http.headers.unwrap_or_default())?,
            rate: file.rate_limit.map(|rate| rate_limit::parse(path, &rate)).transpose()?.flatten(),
            verifies_clients: tls.as_ref().is_some_and(|tls| tls.verifies_clients),
            certificate_expires: tls.as_ref().and_then(|tls| tls.expires),
            tls: tls.map(|tls| tls.config),
            files,
            remarks,
        })
    }

    /// Checks that this configuration still asks for what `before` did. A file that is half written, or was emptied,
    /// must not open what was closed.
    ///
    /// # Errors
    /// Encryption or passwords are gone.
    pub fn no_weaker_than(&self, before: &Self, path: &Path) -> Result<(), WebError> {
        let gone = match (before.tls.is_some() && self.tls.is_none(), before.users.is_some() && self.users.is_none()) {
            (true, _) => "tls_server_config",
            (_, true) => "basic_auth_users",
            _ => return Ok(()),
        };
        Err(WebError::value(path, gone, "is gone; to serve without it takes a restart"))
    }
}

/// The headers that may be set, and their allowed values; an empty list allows any.
const ALLOWED: [(&str, &[&str]); 5] = [
    ("Content-Security-Policy", &[]),
    ("Strict-Transport-Security", &[]),
    ("X-Content-Type-Options", &["nosniff"]),
    ("X-Frame-Options", &["deny", "sameorigin"]),
    ("X-XSS-Protection", &[]),
];

/// The headers that are set; an empty value sets none.
fn headers(path: &Path, written: BTreeMap<String, String>) -> Result<Vec<(HeaderName, HeaderValue)>, WebError> {
    let mut headers = Vec::new();
    for (name, value) in written.into_iter().filter(|(_, value)| !value.is_empty()) {
        let key = format!("http_server_config.headers.{name}");
        let Some((known, values)) = ALLOWED.iter().find(|(known, _)| known.eq_ignore_ascii_case(&name)) else {
            let names = ALLOWED.map(|(known, _)| known).join(", ");
            return Err(WebError::value(path, key, format!("not a header that may be set; these may: {names}")));
        };
        if !values.is_empty() && !values.iter().any(|allowed| allowed.eq_ignore_ascii_case(&value)) {
            let message = format!("{value:?} is not allowed; it can be {}", values.join(" or "));
            return Err(WebError::value(path, key, message));
        }
        match (HeaderName::try_from(*known), HeaderValue::try_from(value)) {
            (Ok(name), Ok(value)) => headers.push((name, value)),
            _ => return Err(WebError::value(path, key, "not a text that a header can hold")),
        }
    }
    Ok(headers)
}

#[cfg(test)]
mod tests;
