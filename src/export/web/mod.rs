//! The web configuration: TLS, client certificates, users, headers and a rate limit, in the format of Prometheus'
//! exporters.

mod attempts;
mod bucket;
mod client;
mod file;
mod headers;
mod refused;
mod tls;
mod users;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use hyper::header::{HeaderName, HeaderValue};
use rustls::ServerConfig;

pub(super) use attempts::Attempts;
pub use bucket::Bucket;
pub use file::WebError;
pub use refused::Refused;
pub use users::{Users, Verdict};

/// A web configuration in force.
#[derive(Default)]
pub struct Web {
    /// How connections are encrypted; none: they are not.
    pub tls: Option<Arc<ServerConfig>>,
    /// Whether a certificate that a client shows is verified.
    pub verifies_clients: bool,
    /// When the first certificate of the chain ends.
    pub certificate_ends: Option<SystemTime>,
    /// Who may ask; none: everyone.
    pub users: Option<Users>,
    /// Headers that every answer gets.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// How many requests are answered.
    pub rate: Option<Bucket>,
    /// The files it was made from.
    pub files: Vec<PathBuf>,
    /// What works and yet should be known, one sentence each.
    pub remarks: Vec<String>,
}

impl Web {
    /// Reads a file and what it names.
    ///
    /// # Errors
    /// A file that cannot be read, an unknown key, a value that is not allowed, a key that is not the certificate's.
    pub fn load(path: &Path) -> Result<Self, WebError> {
        let (written, mut files) = (file::read(path)?, vec![path.to_owned()]);
        let mut remarks = Vec::new();
        let tls = written.tls_server_config.as_ref().filter(|tls| !tls.is_empty());
        let tls = tls.map(|tls| tls::build(path, tls, &mut files, &mut remarks)).transpose()?;
        let http = written.http_server_config.unwrap_or_default();
        if http.http2 == Some(true) {
            remarks.push("http_server_config.http2: connections speak HTTP/1.1; HTTP/2 is not offered".to_owned());
        }
        let hashes = written.basic_auth_users.unwrap_or_default();
        if tls.is_none() && !hashes.is_empty() {
            remarks.push("basic_auth_users without tls_server_config: passwords cross the network readable".to_owned());
        }
        Ok(Self {
            users: (!hashes.is_empty()).then(|| Users::new(path, hashes)).transpose()?,
            headers: headers::check(path, http.headers.unwrap_or_default())?,
            rate: written.rate_limit.map(|rate| bucket::limit(path, &rate)).transpose()?.flatten(),
            verifies_clients: tls.as_ref().is_some_and(|tls| tls.verifies_clients),
            certificate_ends: tls.as_ref().and_then(|tls| tls.ends),
            tls: tls.map(|tls| tls.config),
            files,
            remarks,
        })
    }

    /// What this one no longer asks for that `before` did. A file that is being written, or was emptied, must not
    /// open what was closed.
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

#[cfg(test)]
mod tests;
