//! Asks a server that speaks the Prometheus HTTP API.

use std::borrow::Cow;
use std::fmt;
use std::fmt::Write as _;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION, USER_AGENT};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};

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
            let hint =
                if is_plain(&why) { "the server does not speak TLS; should the URL start with http://? " } else { "" };
            PrometheusError::Connect { url: url.clone(), why: format!("{hint}{why}") }
        })?;
        let (head, body) = answer.into_parts();
        let body = match whole(Limited::new(body, self.endpoint.limit)).await {
            Ok(body) => body,
            Err(error) if error.is::<LengthLimitError>() => {
                return Err(PrometheusError::TooLong { url, limit: self.endpoint.limit >> 20 });
            }
            Err(error) => return Err(PrometheusError::Connect { url, why: causes(&*error) }),
        };
        if !head.status.is_success() {
            let location = head.headers.get(LOCATION).and_then(|to| to.to_str().ok());
            let message = location.map_or_else(|| error_message(&body), |to| format!("it is at {to}"));
            let hint = hint(head.status, &message);
            return Err(PrometheusError::Status { url, status: head.status, message, hint });
        }
        parse_series(&body).map_err(|error| PrometheusError::Answer { url, error })
    }

    fn url(&self) -> String {
        self.uri.to_string()
    }
}

/// All of a body, in one piece: each chunk of its own costs far more than a chunk of one byte holds.
async fn whole(mut body: Limited<Incoming>) -> Result<Vec<u8>, Box<dyn std::error::Error + Send + Sync>> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            bytes.extend_from_slice(&data);
        }
    }
    Ok(bytes)
}

fn is_busy(status: StatusCode) -> bool {
    matches!(status.as_u16(), 429 | 502..=504)
}

/// What may help, where that is plain.
fn hint(status: StatusCode, message: &str) -> &'static str {
    match status {
        _ if message.contains("HTTP request to an HTTPS server") => " (is it https://?)",
        _ if message.contains("no org id") => " (set one with --tenant)",
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

/// The labels of a series.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Labels(Vec<(Box<str>, Box<str>)>);

impl Labels {
    /// The value of a label; empty where it is not there, which is the same thing in Prometheus.
    pub fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(label, _)| **label == *name).map_or("", |(_, value)| value)
    }

    /// The names of the labels, in the order of the answer.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| &**name)
    }
}

impl<'a> FromIterator<(&'a str, &'a str)> for Labels {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a str)>>(labels: I) -> Self {
        Self(labels.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Labels;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("labels")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Labels, M::Error> {
                let mut labels = Vec::with_capacity(map.size_hint().unwrap_or(8));
                while let Some((name, value)) = map.next_entry::<Box<str>, Box<str>>()? {
                    let value = match crate::model::text::visible(&value) {
                        Cow::Borrowed(_) => value,
                        Cow::Owned(escaped) => escaped.into_boxed_str(),
                    };
                    labels.push((name, value));
                }
                Ok(Labels(labels))
            }
        }
        deserializer.deserialize_map(Pairs)
    }
}

/// One series with its value.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Its labels.
    pub labels: Labels,
    /// Its value.
    pub value: f64,
}

/// A moment in seconds since 1970, and a value as text.
#[derive(Deserialize)]
struct Sample(#[expect(dead_code, reason = "all samples of an answer have one time")] f64, String);

impl Sample {
    fn value(&self) -> Option<f64> {
        match &*self.1 {
            "+Inf" => Some(f64::INFINITY),
            "-Inf" => Some(f64::NEG_INFINITY),
            text => text.parse().ok(),
        }
    }
}

#[derive(Deserialize)]
struct Element {
    metric: Labels,
    value: Sample,
}

#[derive(Deserialize)]
#[serde(tag = "resultType", content = "result", rename_all = "lowercase")]
enum Data {
    Vector(Vec<Element>),
    Scalar(Sample),
}

#[derive(Deserialize)]
#[serde(tag = "status", rename_all = "lowercase")]
enum Document {
    Success {
        data: Data,
    },
    Error {
        #[serde(default, rename = "errorType")]
        kind: String,
        #[serde(default)]
        error: String,
    },
}

/// Why an answer has no rows.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// The server says so itself.
    #[error("{0}")]
    Refused(String),
    /// It is not what the API says.
    #[error("not a response of the Prometheus API: {0}")]
    Malformed(String),
}

/// Reads an answer. A scalar is one row without labels.
///
/// # Errors
/// The server's own error, or that the text is no answer of this API.
pub fn parse_series(body: &[u8]) -> Result<Vec<Series>, AnswerError> {
    let document = serde_json::from_slice(body).map_err(|error| AnswerError::Malformed(error.to_string()))?;
    let row = |(labels, sample): (Labels, Sample)| {
        let value = sample.value().ok_or_else(|| AnswerError::Malformed(format!("{:?} is not a number", sample.1)))?;
        Ok(Series { labels, value })
    };
    match document {
        Document::Error { kind, error } => Err(AnswerError::Refused(message(&kind, &error))),
        Document::Success { data: Data::Scalar(sample) } => Ok(vec![row((Labels::default(), sample))?]),
        Document::Success { data: Data::Vector(elements) } => {
            elements.into_iter().map(|element| row((element.metric, element.value))).collect()
        }
    }
}

/// What a server says in a body that comes with an error status: its own words, or the start of whatever it is.
pub fn error_message(body: &[u8]) -> String {
    if let Ok(Document::Error { kind, error }) = serde_json::from_slice(body) {
        return message(&kind, &error);
    }
    let text = String::from_utf8_lossy(body);
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().take(200).collect()
}

fn message(kind: &str, error: &str) -> String {
    let line = error.split_whitespace().collect::<Vec<_>>().join(" ");
    let line: String = line.chars().take(300).collect();
    if kind.is_empty() { line } else { format!("{kind}: {line}") }
}

#[cfg(test)]
mod client_tests {
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
            assert!(error.to_string().ends_with("give the part before /api/v1: http://p:9090"), "{error}");
        }
    }

    #[test]
    fn forms() {
        assert_eq!(escaped("a{b=~\"c|d\"} + 1"), "a%7Bb%3D~%22c%7Cd%22%7D%20%2B%201");
    }
}

#[cfg(test)]
#[allow(clippy::float_cmp, reason = "numbers that are exact")]
mod answer_tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn vectors_and_scalars() {
        let body = br#"{"status":"success","data":{"resultType":"vector","result":[
            {"metric":{"job":"a","device":"mlx5_0"},"value":[1790000000.5,"25000000000"]},
            {"metric":{},"value":[1790000000,"+Inf"]}]},"warnings":["w"]}"#;
        let rows = parse_series(body).unwrap();
        assert_eq!((rows[0].labels.get("device"), rows[0].labels.get("port"), rows[0].value), ("mlx5_0", "", 25e9));
        assert_eq!(rows[1].value, f64::INFINITY);
        let scalar =
            super::parse_series(br#"{"status":"success","data":{"resultType":"scalar","result":[1,"7"]}}"#).unwrap();
        assert_eq!(scalar, [Series { labels: Labels::default(), value: 7.0 }]);
        let empty = super::parse_series(
            br#"{"status":"success","isPartial":false,"data":{"resultType":"vector","result":[]}}"#,
        );
        assert_eq!(empty.unwrap(), []);
    }

    #[test]
    fn what_is_no_answer_is_said_so() {
        let refused =
            parse_series(br#"{"status":"error","errorType":"bad_data","error":"parse error:\n at 1"}"#).unwrap_err();
        assert_eq!(refused.to_string(), "bad_data: parse error: at 1");
        for text in ["", "{", "<html>", r#"{"status":"success"}"#, "[]", "null"] {
            assert!(matches!(parse_series(text.as_bytes()), Err(AnswerError::Malformed(_))), "{text}");
        }
        let matrix = r#"{"status":"success","data":{"resultType":"matrix","result":[]}}"#;
        assert!(parse_series(matrix.as_bytes()).unwrap_err().to_string().contains("matrix"));
        let odd = r#"{"status":"success","data":{"resultType":"scalar","result":[1,"seven"]}}"#;
        assert!(parse_series(odd.as_bytes()).is_err());
        assert_eq!(error_message(b"<html>\n <b>Bad  Gateway</b>"), "<html> <b>Bad Gateway</b>");
        assert_eq!(error_message(br#"{"status":"error","error":"no org id"}"#), "no org id");
    }

    proptest! {
        #[test]
        fn no_bytes_break_it(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse_series(&bytes);
            error_message(&bytes);
        }

        #[test]
        fn half_an_answer_is_none(cut in 0usize..130) {
            let body = r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{"job":"a"},"value":[1,"2"]}]}}"#;
            prop_assume!(cut < body.len());
            prop_assert!(parse_series(&body.as_bytes()[..cut]).is_err());
        }
    }
}
