//! Which request gets which answer.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode};

use super::bodies::{Bodies, Document};
use super::gate::Refused;
use super::probe_server::ProbeRoute;
use crate::export::agent::AgentState;
use crate::export::negotiate;
use crate::export::web::Web;
use crate::watch::HostReport;

/// Where reports come from.
pub trait Source: Send + Sync {
    /// A report whose facts are no older than `max_age`, waiting at most `wait` for it; then the newest there is.
    /// None before the first complete pass.
    fn report(
        &self,
        max_age: Duration,
        wait: Duration,
    ) -> Pin<Box<dyn Future<Output = Option<Arc<HostReport>>> + Send + '_>>;

    /// The newest report, at once.
    fn latest(&self) -> Option<Arc<HostReport>>;
}

/// What the operator may choose.
#[derive(Debug, Clone)]
pub struct Options {
    /// Path of the metrics.
    pub telemetry_path: String,
    /// Requests that may wait for a report at a time; more are answered with 503. 0 is no limit.
    pub max_requests: usize,
    /// Connections that may be open at a time; beyond, the oldest idle one makes room.
    pub max_connections: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { telemetry_path: "/metrics".to_owned(), max_requests: 0, max_connections: 2_000 }
    }
}

/// Answers requests.
pub struct App {
    source: Arc<dyn Source>,
    options: Options,
    agent: Mutex<Arc<AgentState>>,
    web: Mutex<Arc<Web>>,
    pub(super) refused: Refused,
    bodies: Bodies,
    in_flight: AtomicUsize,
    pub(super) probes: OnceLock<ProbeRoute>,
}

/// How old facts may be at a scrape.
const MAX_AGE: Duration = Duration::from_secs(1);
/// What a scraper waits where it does not say.
const SCRAPE_TIMEOUT: Duration = Duration::from_secs(10);
const SCRAPE_TIMEOUT_HEADER: HeaderName = HeaderName::from_static("x-prometheus-scrape-timeout-seconds");

pub(super) type Answer = Response<Full<Bytes>>;

impl App {
    /// An application over a source.
    pub fn new(source: Arc<dyn Source>, options: Options, agent: AgentState) -> Self {
        let agent = Mutex::new(Arc::new(agent));
        Self {
            source,
            options,
            agent,
            web: Mutex::default(),
            refused: Refused::default(),
            bodies: Bodies::default(),
            in_flight: AtomicUsize::new(0),
            probes: OnceLock::new(),
        }
    }

    /// Takes a new web configuration. Connections that are open keep their encryption; whoever asks next is asked for
    /// what it says.
    pub fn set_web(&self, web: Arc<Web>) {
        *self.web.lock().unwrap_or_else(PoisonError::into_inner) = web;
    }

    /// The web configuration in force.
    pub fn web(&self) -> Arc<Web> {
        Arc::clone(&self.web.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes a new state of the agent, after a reload say.
    pub fn set_agent(&self, agent: AgentState) {
        *self.agent.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(agent);
    }

    /// Changes the state of the agent.
    pub fn change_agent(&self, change: impl FnOnce(&mut AgentState)) {
        let mut agent = self.agent.lock().unwrap_or_else(PoisonError::into_inner);
        change(Arc::make_mut(&mut agent));
    }

    /// The state of the agent as it is now.
    pub fn agent(&self) -> AgentState {
        self.agent.lock().unwrap_or_else(PoisonError::into_inner).as_ref().clone()
    }

    /// What the operator chose.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// How often a body was encoded since start.
    pub fn encodes(&self) -> u64 {
        self.bodies.encodes()
    }

    /// The answer to a request. For HEAD it has the body that GET would get; the server leaves it out.
    pub async fn answer(&self, request: &Parts) -> Answer {
        let Some(route) = self.route(request.uri.path()) else {
            return line(StatusCode::NOT_FOUND, "not found\n");
        };
        if !matches!(request.method, Method::GET | Method::HEAD) {
            let mut answer = line(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
            answer.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            return answer;
        }
        match route {
            Route::Healthy => line(StatusCode::OK, "healthy\n"),
            Route::Ready if self.source.latest().is_some() => line(StatusCode::OK, "ready\n"),
            Route::Ready => line(StatusCode::SERVICE_UNAVAILABLE, NOT_READY),
            Route::Page => self.page(&request.headers),
            Route::Metrics => {
                let format = negotiate::format(values(&request.headers, &header::ACCEPT));
                self.fresh(Document::Metrics(format), &request.headers).await
            }
            Route::Document(document) => self.fresh(document, &request.headers).await,
        }
    }

    fn route(&self, path: &str) -> Option<Route> {
        match path {
            path if path == self.options.telemetry_path => Some(Route::Metrics),
            "/" => Some(Route::Page),
            "/-/healthy" => Some(Route::Healthy),
            "/-/ready" => Some(Route::Ready),
            "/api/v1/findings" => Some(Route::Document(Document::Findings)),
            "/api/v1/events" => Some(Route::Document(Document::Events)),
            "/api/v1/snapshot" => Some(Route::Document(Document::Snapshot)),
            _ => None,
        }
    }

    /// The page shows what there is and never waits for a device.
    fn page(&self, headers: &HeaderMap) -> Answer {
        match self.source.latest() {
            Some(report) => self.document(Document::Page, &report, headers),
            None => answer(
                StatusCode::OK,
                Document::Page.content_type(),
                Bytes::from(crate::export::page::page(None, &self.options.telemetry_path)),
            ),
        }
    }

    async fn fresh(&self, document: Document, headers: &HeaderMap) -> Answer {
        let Some(_flight) = Flight::begin(&self.in_flight, self.options.max_requests) else {
            return line(StatusCode::SERVICE_UNAVAILABLE, "too many requests at a time\n");
        };
        let wait = wait(headers);
        // The source keeps to `wait`; should it not, the scrape still gets the newest report in time.
        let asked = tokio::time::timeout(wait + Duration::from_millis(50), self.source.report(MAX_AGE, wait)).await;
        match asked.ok().flatten().or_else(|| self.source.latest()) {
            Some(report) => self.document(document, &report, headers),
            None => line(StatusCode::SERVICE_UNAVAILABLE, NOT_READY),
        }
    }

    fn document(&self, document: Document, report: &Arc<HostReport>, headers: &HeaderMap) -> Answer {
        let gzip = negotiate::gzip(values(headers, &header::ACCEPT_ENCODING));
        let agent = Arc::clone(&self.agent.lock().unwrap_or_else(PoisonError::into_inner));
        let Some(body) = self.bodies.get(document, gzip, report, &agent, &self.options.telemetry_path) else {
            return line(StatusCode::INTERNAL_SERVER_ERROR, "the answer could not be encoded\n");
        };
        let mut answer = answer(StatusCode::OK, document.content_type(), body);
        answer.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept, Accept-Encoding"));
        if gzip {
            answer.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        answer
    }
}

enum Route {
    Page,
    Metrics,
    Healthy,
    Ready,
    Document(Document),
}

const NOT_READY: &str = "the first pass over the host is not complete\n";

/// A request that waits for a report, counted.
struct Flight<'a>(&'a AtomicUsize);

impl<'a> Flight<'a> {
    fn begin(count: &'a AtomicUsize, most: usize) -> Option<Self> {
        let flight = Self(count);
        let before = count.fetch_add(1, Ordering::Relaxed);
        (most == 0 || before < most).then_some(flight)
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How long a scraper can be kept waiting: its timeout less a tenth of it, at least a quarter of a second.
fn wait(headers: &HeaderMap) -> Duration {
    let stated = headers.get(SCRAPE_TIMEOUT_HEADER).and_then(|value| value.to_str().ok()?.trim().parse::<f64>().ok());
    let timeout = stated
        .filter(|seconds| *seconds > 0.0)
        .and_then(|seconds| Duration::try_from_secs_f64(seconds.min(300.0)).ok())
        .unwrap_or(SCRAPE_TIMEOUT);
    timeout.saturating_sub((timeout / 10).max(Duration::from_millis(250)))
}

/// The values of a header that may come several times.
fn values<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok())
}

pub(super) fn answer(status: StatusCode, content_type: &'static str, body: Bytes) -> Answer {
    let mut answer = Response::new(Full::new(body));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if content_type == Document::Page.content_type() {
        let policy = HeaderValue::from_static(crate::export::page::CONTENT_SECURITY_POLICY);
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    answer
}

/// An answer of one plain line.
pub(super) fn line(status: StatusCode, text: &'static str) -> Answer {
    answer(status, "text/plain; charset=utf-8", Bytes::from_static(text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scrape_timeout_leaves_time_to_answer() {
        let table = [
            ("10", 9_000),
            ("1", 750),
            ("0.2", 0),
            ("60.5", 54_450),
            ("1e9", 270_000),
            ("0", 9_000),
            ("-3", 9_000),
            ("NaN", 9_000),
            ("inf", 270_000),
            ("soon", 9_000),
        ];
        for (text, millis) in table {
            let mut headers = HeaderMap::new();
            headers.insert(SCRAPE_TIMEOUT_HEADER, HeaderValue::from_static(text));
            assert_eq!(wait(&headers), Duration::from_millis(millis), "{text}");
        }
        assert_eq!(wait(&HeaderMap::new()), Duration::from_secs(9));
    }
}
