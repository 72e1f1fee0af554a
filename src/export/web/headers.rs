//! Headers that every answer gets.

use std::collections::BTreeMap;
use std::path::Path;

use hyper::header::{HeaderName, HeaderValue};

use super::file::WebError;

/// The headers that may be set, and what they may say; nothing listed: anything.
const ALLOWED: [(&str, &[&str]); 5] = [
    ("Content-Security-Policy", &[]),
    ("Strict-Transport-Security", &[]),
    ("X-Content-Type-Options", &["nosniff"]),
    ("X-Frame-Options", &["deny", "sameorigin"]),
    ("X-XSS-Protection", &[]),
];

/// Those that are set; a blank one is not.
pub(super) fn check(
    path: &Path,
    written: BTreeMap<String, String>,
) -> Result<Vec<(HeaderName, HeaderValue)>, WebError> {
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
