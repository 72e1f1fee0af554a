//! Asks a server that speaks the Prometheus HTTP API.

use std::fmt::Write as _;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION, USER_AGENT};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use super::answer::{self, AnswerError, Series};
use super::tls::{self, TlsError, TlsFiles};

/// Where to ask, and as whom.
#[derive(Debug, Clone)]
pub struct PrometheusEndpoint {
    /// The server's address, up to what comes before `/api/v1`.
    pub url: String,
    /// Headers of every request: authorization, tenant.
    pub headers: HeaderMap,
    /// TLS.
    pub tls: TlsFiles,
    /// How long an answer may take.
    pub timeout: Duration,
    /// How long an answer may be, in bytes.
    pub limit: usize,
    /// How often a request is made again that the server was too busy for.
    pub retries: u32,
}

/// Why there is no answer; each is one line.
#[derive(Debug, thiserror::Error)]
pub enum PrometheusError {
    /// The address is none.
    #[error("{url:?} is not a server address: {why}")]
    Url {
        /// As it was given.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// TLS cannot be set up.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The server cannot be reached.
    #[error("{url}: {why}")]
    Connect {
        /// What was asked.
        url: String,
        /// Why not.
        why: String,
    },
    /// No answer in time.
    #[error("{url}: no response within {}; raise it with --timeout", humantime::format_duration(*after))]
    Timeout {
        /// What was asked.
        url: String,
        /// The time it had.
        after: Duration,
    },
    /// The answer is longer than it may be.
    #[error(
        "{url}: the response is longer than {limit} MiB; allow more with --max-answer or ask for less with a lower --shard"
    )]
    TooLong {
        /// What was asked.
        url: String,
        /// In MiB.
        limit: usize,
    },
    /// The server says no.
    #[error("{url}: {status}{}{hint}", colon(message))]
    Status {
        /// What was asked.
        url: String,
        /// Status of the answer.
        status: StatusCode,
        /// What the server said.
        message: String,
        /// What may help.
        hint: &'static str,
    },
    /// The answer is not one.
    #[error("{url}: {error}")]
    Answer {
        /// What was asked.
        url: String,
        /// What is wrong.
        error: AnswerError,
    },
}

fn colon(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(": {message}") }
}

/// A client with its connections.
#[derive(Clone)]
pub struct PrometheusClient {
    pool: Pool<HttpsConnector<HttpConnector>, Full<Bytes>>,
    uri: Uri,
    endpoint: PrometheusEndpoint,
}

impl PrometheusClient {
    /// Makes a client; connects to nothing yet.
    ///
    /// # Errors
    /// An address that is none, or TLS files that cannot be used.
    pub fn new(endpoint: PrometheusEndpoint) -> Result<Self, PrometheusError> {
        // A password in an address ends up in process lists and in messages such as these.
        if let Some((_, host)) = endpoint.url.rsplit_once('@') {
            let why = "give credentials with --username and --password-file, or --bearer-token-file".to_owned();
            return Err(PrometheusError::Url { url: format!("...@{host}"), why });
        }
        let wrong = |why: &str| PrometheusError::Url { url: endpoint.url.clone(), why: why.to_owned() };
        let base = endpoint.url.trim_end_matches('/');
        if let Some((before, _)) = base.split_once("/api/v1") {
            return Err(wrong(&format!("give the part before /api/v1: {before}")));
        }
        let address = format!("{base}/api/v1/query");
        let uri: Uri = address.parse().map_err(|error: hyper::http::uri::InvalidUri| wrong(&error.to_string()))?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.host().is_none_or(str::is_empty) {
            return Err(wrong("use the form http://prometheus:9090"));
        }
        if uri.query().is_some() {
            return Err(wrong("it must not contain a query"));
        }
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(endpoint.timeout));
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls::config(&endpoint.tls)?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        Ok(Self { pool: Pool::builder(TokioExecutor::new()).build(connector), uri, endpoint })
    }

    /// An instant query, at a time in seconds since 1970 or at the server's now.
    ///
    /// # Errors
    /// Any [`PrometheusError`]. A server that is too busy (429, 502, 503, 504) is asked again a few times.
    pub async fn query(&self, expression: &str, time: Option<f64>) -> Result<Vec<Series>, PrometheusError> {
        let mut form = format!("query={}", escaped(expression));
        if let Some(time) = time {
            // Writing to a string cannot fail, here and below.
            let _ = write!(form, "&time={time}");
        }
        let form = Bytes::from(form);
        let mut pause = Duration::from_millis(250);
        for _ in 0..self.endpoint.retries {
            match self.once(form.clone()).await {
                Err(PrometheusError::Status { status, .. }) if is_busy(status) => tokio::time::sleep(pause).await,
                outcome => return outcome,
            }
            pause *= 4;
        }
        self.once(form).await
    }

    async fn once(&self, form: Bytes) -> Result<Vec<Series>, PrometheusError> {
        let timeout = self.endpoint.timeout;
        let outcome = tokio::time::timeout(timeout, self.exchange(form)).await;
        outcome.unwrap_or_else(|_| Err(PrometheusError::Timeout { url: self.url(), after: timeout }))
    }

    async fn exchange(&self, form: Bytes) -> Result<Vec<Series>, PrometheusError> {
        let url = self.url();
        let mut request = Request::new(Full::new(form));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, HeaderValue::from_static(concat!("lanewatch/", env!("CARGO_PKG_VERSION"))));
        headers.extend(self.endpoint.headers.clone());
        let answer = self.pool.request(request).await;
        let answer = answer.map_err(|error| {
            let why = causes(&error);
            let hint = if is_plain(&why) { "the server speaks no TLS; is it http://? " } else { "" };
            PrometheusError::Connect { url: url.clone(), why: format!("{hint}{why}") }
        })?;
        let (head, body) = answer.into_parts();
        let body = match Limited::new(body, self.endpoint.limit).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) if error.is::<LengthLimitError>() => {
                return Err(PrometheusError::TooLong { url, limit: self.endpoint.limit >> 20 });
            }
            Err(error) => return Err(PrometheusError::Connect { url, why: causes(&*error) }),
        };
        if !head.status.is_success() {
            let location = head.headers.get(LOCATION).and_then(|to| to.to_str().ok());
            let message = location.map_or_else(|| answer::error_message(&body), |to| format!("it is at {to}"));
            let hint = hint(head.status, &message);
            return Err(PrometheusError::Status { url, status: head.status, message, hint });
        }
        answer::parse_series(&body).map_err(|error| PrometheusError::Answer { url, error })
    }

    fn url(&self) -> String {
        self.uri.to_string()
    }
}

fn is_busy(status: StatusCode) -> bool {
    matches!(status.as_u16(), 429 | 502..=504)
}

/// What may help, where that is plain.
fn hint(status: StatusCode, message: &str) -> &'static str {
    match status {
        _ if message.contains("HTTP request to an HTTPS server") => " (is it https://?)",
        _ if message.contains("no org id") => " (--tenant names one)",
        StatusCode::UNAUTHORIZED => " (see --username, --password-file, --bearer-token-file)",
        StatusCode::NOT_FOUND => " (is there a path before /api/v1?)",
        _ => "",
    }
}

/// Whether a TLS handshake met a server that answered in plain text.
fn is_plain(why: &str) -> bool {
    why.contains("InvalidContentType") || why.contains("InvalidMessage")
}

/// An error with all that led to it, each said once.
pub(super) fn causes(error: &dyn std::error::Error) -> String {
    let mut words: Vec<String> = Vec::new();
    for error in std::iter::successors(Some(error), |error| error.source()) {
        let word = error.to_string();
        if !words.iter().any(|known| known.contains(&word)) {
            words.push(word);
        }
    }
    words.join(": ")
}

/// Text for a form: everything but what is plain is written as its bytes.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len() * 2);
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' | b'.' | b'~' => out.push(char::from(byte)),
            _ => drop(write!(out, "%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(url: &str) -> PrometheusEndpoint {
        PrometheusEndpoint {
            url: url.to_owned(),
            headers: HeaderMap::new(),
            tls: TlsFiles::default(),
            timeout: Duration::from_secs(1),
            limit: 1 << 20,
            retries: 0,
        }
    }

    #[test]
    fn addresses() {
        for (url, asked) in [
            ("http://p:9090", "http://p:9090/api/v1/query"),
            ("https://p/prometheus/", "https://p/prometheus/api/v1/query"),
            ("http://[::1]:9090", "http://[::1]:9090/api/v1/query"),
        ] {
            assert_eq!(PrometheusClient::new(endpoint(url)).unwrap_or_else(|e| panic!("{e}")).url(), asked);
        }
        for wrong in ["", "prometheus:9090", "ftp://p", "http://", "http://p?x=1", "http://a b", "http://u:secret@p"] {
            let Err(error @ PrometheusError::Url { .. }) = PrometheusClient::new(endpoint(wrong)) else {
                panic!("{wrong}")
            };
            assert!(!error.to_string().contains("secret"));
        }
    }

    #[test]
    fn an_address_with_the_path_of_the_interface_is_cut_for_the_reader() {
        for url in ["http://p:9090/api/v1", "http://p:9090/api/v1/query", "http://p:9090/api/v1/"] {
            let Err(error) = PrometheusClient::new(endpoint(url)) else { panic!("{url}") };
            assert!(error.to_string().ends_with("what comes before /api/v1 is asked for: http://p:9090"), "{error}");
        }
    }

    #[test]
    fn forms() {
        assert_eq!(escaped("a{b=~\"c|d\"} + 1"), "a%7Bb%3D~%22c%7Cd%22%7D%20%2B%201");
    }
}
