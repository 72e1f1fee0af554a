//! Which request gets which answer.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};

use super::negotiate;
use super::probe_server::{ProbeRoute, ProbeServer};
use super::response::{Client, Document, DocumentCache, HttpResponse, plain, respond};
use super::table::{ConnectionLimits, ConnectionTable};
use crate::export::agent::AgentState;
use crate::export::clients::{ClientCounts, ClosedConnection};
use crate::export::page;
use crate::export::web::{AuthOutcome, Web};
use crate::watch::HostReport;

/// Where reports come from.
pub trait ReportSource: Send + Sync {
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
pub struct HttpOptions {
    /// Path of the metrics.
    pub telemetry_path: String,
    /// Requests that may wait for a report at a time; more are answered with 503. 0 is no limit.
    pub max_requests: usize,
    /// Connections that may be open at a time; beyond, the oldest idle one makes room.
    pub max_connections: usize,
    /// Bytes of different answers that clients have not taken yet; beyond, readers of the oldest make room.
    pub max_body_bytes: usize,
    /// Whether everyone may read the snapshot; otherwise only clients that show who they are.
    pub public_snapshot: bool,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            telemetry_path: "/metrics".to_owned(),
            max_requests: 0,
            max_connections: 2_000,
            max_body_bytes: 32 << 20,
            public_snapshot: false,
        }
    }
}

/// Answers requests.
pub struct App {
    source: Arc<dyn ReportSource>,
    options: HttpOptions,
    agent: Mutex<Arc<AgentState>>,
    web: Mutex<Arc<Web>>,
    failed_logins: FailedLogins,
    documents: DocumentCache,
    in_slot: AtomicUsize,
    probes: OnceLock<ProbeRoute>,
    clients: Arc<ClientCounts>,
    connections: Arc<ConnectionTable>,
    counted: Mutex<Option<Instant>>,
}

/// Failed logins are logged at the first and then every so many.
const LOGGED_EVERY: u64 = 100;
/// How often counts of clients are taken over into the metrics.
const COUNTED_EVERY: Duration = Duration::from_secs(1);
/// How old facts may be at a scrape.
const MAX_AGE: Duration = Duration::from_secs(1);
/// What a scraper waits where it does not say.
const SCRAPE_TIMEOUT: Duration = Duration::from_secs(10);
const SCRAPE_TIMEOUT_HEADER: HeaderName = HeaderName::from_static("x-prometheus-scrape-timeout-seconds");

impl App {
    /// An application over a source.
    pub fn new(source: Arc<dyn ReportSource>, options: HttpOptions, agent: AgentState) -> Self {
        let agent = Mutex::new(Arc::new(agent));
        let clients = Arc::new(ClientCounts::default());
        let limits = ConnectionLimits::new(options.max_connections, options.max_body_bytes);
        Self {
            source,
            options,
            agent,
            web: Mutex::default(),
            failed_logins: FailedLogins::default(),
            documents: DocumentCache::default(),
            in_slot: AtomicUsize::new(0),
            probes: OnceLock::new(),
            connections: Arc::new(ConnectionTable::new(limits, Arc::clone(&clients))),
            clients,
            counted: Mutex::default(),
        }
    }

    /// Takes a new web configuration. If it asks for more than the last one, open connections are closed; else they
    /// keep their encryption, and whoever asks next is asked for what it says.
    pub fn set_web(&self, mut web: Web) {
        let before = self.web();
        web.inherit(&before);
        let stricter = web.is_stricter_than(&before);
        *self.web.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(web);
        if stricter {
            self.connections.close_all(ClosedConnection::AccessTightened);
        }
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
    pub fn options(&self) -> &HttpOptions {
        &self.options
    }

    /// How often a body was encoded since start.
    pub fn encodes(&self) -> u64 {
        self.documents.encodes()
    }

    /// Accepts requests of peers from now on; without this the path does not exist.
    pub fn set_probe_server(&self, server: Arc<dyn ProbeServer>) {
        let route = ProbeRoute::new(server);
        let zero = route.counts();
        if self.probes.set(route).is_ok() {
            self.change_agent(|agent| agent.probe_requests = Some(zero));
        }
    }

    /// The answer to a request of a client, if it may have one.
    pub(super) async fn respond(&self, client: Client, request: &Parts, body: Incoming) -> HttpResponse {
        let web = self.web();
        let mut answer = match self.probes.get().filter(|_| ProbeRoute::matches(request)) {
            // Requests of peers have limits and signatures of their own.
            Some(route) => route.respond(client, request, body).await,
            None => match self.refusal(&web, client.address, request).await {
                Some(refusal) => refusal,
                None => self.answer(request, client.certified || web.users.is_some()).await,
            },
        };
        for (name, value) in &web.headers {
            answer.headers_mut().insert(name.clone(), value.clone());
        }
        answer
    }

    /// Counts of clients.
    pub(super) fn clients(&self) -> &ClientCounts {
        &self.clients
    }

    /// The open connections.
    pub(super) fn connections(&self) -> Arc<ConnectionTable> {
        Arc::clone(&self.connections)
    }

    /// Takes the counts of clients over into the state of the agent, at most once a second: each change makes the next
    /// answer be encoded anew, and clients must not bring that about.
    fn take_counts(&self) {
        let now = Instant::now();
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        if counted.is_some_and(|counted| now.duration_since(counted) < COUNTED_EVERY) {
            return;
        }
        let (rejected, closed) = (self.clients.rejected(), self.clients.closed());
        let probes = self.probes.get().map(ProbeRoute::counts);
        let same = |agent: &AgentState| {
            (agent.tls_rejections, agent.closed_connections, agent.probe_requests) == (rejected, closed, probes)
        };
        let mut agent = self.agent.lock().unwrap_or_else(PoisonError::into_inner);
        if same(&agent) {
            return;
        }
        *counted = Some(now);
        let agent = Arc::make_mut(&mut agent);
        (agent.tls_rejections, agent.closed_connections, agent.probe_requests) = (rejected, closed, probes);
    }

    async fn refusal(&self, web: &Arc<Web>, peer: Option<IpAddr>, request: &Parts) -> Option<HttpResponse> {
        if web.rate.as_ref().is_some_and(|rate| !rate.take(Instant::now())) {
            return Some(retry_later("too many requests\n"));
        }
        let users = web.users.as_ref()?;
        let shown = request.headers.get(header::AUTHORIZATION);
        match users.authenticate(peer, shown).await {
            AuthOutcome::Accepted => None,
            AuthOutcome::TooManyAttempts => Some(retry_later("too many attempts\n")),
            AuthOutcome::Rejected => {
                if shown.is_some() {
                    self.failed_logins.log(peer);
                }
                let mut answer = plain(StatusCode::UNAUTHORIZED, "unauthorized\n");
                let basic = HeaderValue::from_static("Basic realm=\"lanewatch\", charset=\"UTF-8\"");
                answer.headers_mut().insert(header::WWW_AUTHENTICATE, basic);
                Some(answer)
            }
        }
    }

    /// The answer to a request of a client that showed who it is, or did not. For HEAD it has the body that GET would
    /// get; the server leaves it out.
    async fn answer(&self, request: &Parts, authenticated: bool) -> HttpResponse {
        let Some(route) = self.route(request.uri.path()) else {
            return plain(StatusCode::NOT_FOUND, "not found\n");
        };
        if !matches!(request.method, Method::GET | Method::HEAD) {
            let mut answer = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
            answer.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            return answer;
        }
        match route {
            Route::Healthy => plain(StatusCode::OK, "healthy\n"),
            Route::Ready if self.source.latest().is_some() => plain(StatusCode::OK, "ready\n"),
            Route::Ready => plain(StatusCode::SERVICE_UNAVAILABLE, NOT_READY),
            Route::Page => self.page(&request.headers),
            Route::Metrics => {
                let format = negotiate::format(values(&request.headers, &header::ACCEPT));
                self.fresh(Document::Metrics(format), &request.headers).await
            }
            Route::Document(Document::Snapshot) if !authenticated && !self.options.public_snapshot => {
                plain(StatusCode::FORBIDDEN, SNAPSHOT_NEEDS_LOGIN)
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
    fn page(&self, headers: &HeaderMap) -> HttpResponse {
        match self.source.latest() {
            Some(report) => self.document(Document::Page, &report, headers),
            None => respond(
                StatusCode::OK,
                Document::Page.content_type(),
                Bytes::from(page::page(None, &self.options.telemetry_path)),
            ),
        }
    }

    async fn fresh(&self, document: Document, headers: &HeaderMap) -> HttpResponse {
        let Some(_slot) = RequestSlot::take(&self.in_slot, self.options.max_requests) else {
            return plain(StatusCode::SERVICE_UNAVAILABLE, "too many concurrent requests\n");
        };
        let wait = wait(headers);
        // The source keeps to `wait`; should it not, the scrape still gets the newest report in time.
        let asked = tokio::time::timeout(wait + Duration::from_millis(50), self.source.report(MAX_AGE, wait)).await;
        match asked.ok().flatten().or_else(|| self.source.latest()) {
            Some(report) => self.document(document, &report, headers),
            None => plain(StatusCode::SERVICE_UNAVAILABLE, NOT_READY),
        }
    }

    fn document(&self, document: Document, report: &Arc<HostReport>, headers: &HeaderMap) -> HttpResponse {
        let gzip = negotiate::gzip(values(headers, &header::ACCEPT_ENCODING));
        self.take_counts();
        let agent = Arc::clone(&self.agent.lock().unwrap_or_else(PoisonError::into_inner));
        let Some(body) = self.documents.get(document, gzip, report, &agent, &self.options.telemetry_path) else {
            return plain(StatusCode::INTERNAL_SERVER_ERROR, "the response could not be encoded\n");
        };
        let mut answer = respond(StatusCode::OK, document.content_type(), body);
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

const SNAPSHOT_NEEDS_LOGIN: &str = "the snapshot needs a password or a verified client certificate \
     (--web.config.file), or --web.public-snapshot\n";

const NOT_READY: &str = "the first pass over the host is not complete\n";

/// One of the requests that may wait for a report at a time.
struct RequestSlot<'a>(&'a AtomicUsize);

impl<'a> RequestSlot<'a> {
    fn take(count: &'a AtomicUsize, most: usize) -> Option<Self> {
        let slot = Self(count);
        let before = count.fetch_add(1, Ordering::Relaxed);
        (most == 0 || before < most).then_some(slot)
    }
}

impl Drop for RequestSlot<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Logs failed logins: the first, and then every hundredth.
#[derive(Debug, Default)]
struct FailedLogins(AtomicU64);

impl FailedLogins {
    /// Logs neither names nor passwords: people type one into the field of the other.
    fn log(&self, peer: Option<IpAddr>) {
        let before = self.0.fetch_add(1, Ordering::Relaxed);
        if before.is_multiple_of(LOGGED_EVERY) {
            let peer = peer.map_or_else(|| "unknown".to_owned(), |peer| peer.to_string());
            tracing::warn!(%peer, failed = before + 1, "wrong user name or password");
        }
    }
}

fn retry_later(text: &'static str) -> HttpResponse {
    let mut answer = plain(StatusCode::TOO_MANY_REQUESTS, text);
    answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    answer
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
