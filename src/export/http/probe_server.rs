//! `POST /api/v1/probe-server`: a peer asks for the server of its probe. What is looked at comes in the order of what it
//! costs: how often, how long, who, what.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::{Body as _, Incoming};
use hyper::header::{self, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::response::{Client, HttpResponse, plain, respond};
use crate::bench::peers::authentication::{Credentials, Rejection};
use crate::bench::peers::request::{LONGEST, NONCE, PATH, SIGNATURE, TIME, TO};
use crate::bench::peers::request::{RequestCounts, RequestResult};
use crate::bench::peers::servers::{BenchmarkServers, PeerResponse};
use crate::export::web::{AttemptLimits, TokenBucket};

/// How long a body may take to arrive.
const PATIENCE: Duration = Duration::from_secs(5);
/// Requests of all addresses that are looked at: so many at once, and one more with each interval.
const ALL: (Duration, u32) = (Duration::from_millis(50), 100);
/// Requests that are worked on at a time.
const AT_WORK: usize = 4;

/// Somebody who starts servers for peers.
pub trait ProbeServer: Send + Sync {
    /// Answers a request; it may block for some seconds.
    fn answer(&self, from: Option<IpAddr>, shown: &Credentials, body: &[u8]) -> PeerResponse;
}

impl ProbeServer for BenchmarkServers {
    fn answer(&self, from: Option<IpAddr>, shown: &Credentials, body: &[u8]) -> PeerResponse {
        Self::answer(self, from, shown, body)
    }
}

/// How many requests are looked at: of each address, and of all.
struct RequestLimits {
    each: AttemptLimits,
    all: TokenBucket,
}

impl RequestLimits {
    fn new() -> Self {
        Self { each: AttemptLimits::default(), all: TokenBucket::new(ALL.0, ALL.1) }
    }

    fn take(&self, address: Option<IpAddr>, now: Instant) -> bool {
        self.each.of(address, now).take(now) && self.all.take(now)
    }
}

/// The route and its limits.
pub(super) struct ProbeRoute {
    server: Arc<dyn ProbeServer>,
    counts: RequestCounts,
    /// Limits of requests that show something, and of those that show nothing: a flood of the latter, which anyone can
    /// send, takes nothing away from peers.
    shown: RequestLimits,
    unsigned: RequestLimits,
    at_work: Arc<Semaphore>,
}

impl ProbeRoute {
    pub(super) fn new(server: Arc<dyn ProbeServer>) -> Self {
        Self {
            server,
            counts: RequestCounts::default(),
            shown: RequestLimits::new(),
            unsigned: RequestLimits::new(),
            at_work: Arc::new(Semaphore::new(AT_WORK)),
        }
    }

    /// Whether a request is for this route.
    pub(super) fn matches(request: &Parts) -> bool {
        request.uri.path() == PATH
    }

    /// How requests ended so far, in the order of [`RequestResult::ALL`].
    pub(super) fn counts(&self) -> [u64; RequestResult::ALL.len()] {
        self.counts.all()
    }

    /// The response to a request of a peer.
    pub(super) async fn respond(&self, client: Client, request: &Parts, body: Incoming) -> HttpResponse {
        if request.method != Method::POST {
            let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "only POST is allowed here\n");
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("POST"));
            return response;
        }
        let answered = match self.work(client, request, body).await {
            Ok(answered) => answered,
            Err(rejection) => PeerResponse::no(&rejection, None),
        };
        self.counts.add(answered.result);
        let mut response = respond(status(answered.result), "application/json", Bytes::from(answered.body));
        let headers = response.headers_mut();
        if let Some(signature) = answered.signature.and_then(|text| HeaderValue::from_str(&text).ok()) {
            headers.insert(SIGNATURE, signature);
        }
        if answered.result == RequestResult::RateLimited {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }

    async fn work(&self, client: Client, request: &Parts, body: Incoming) -> Result<PeerResponse, Rejection> {
        let now = Instant::now();
        let busy = || Rejection::new(RequestResult::RateLimited, "too many requests");
        let credentials = shown(client, request);
        let is_signed = credentials.certified || credentials.signature.is_some();
        let limits = if is_signed { &self.shown } else { &self.unsigned };
        if !limits.take(client.address, now) {
            return Err(busy());
        }
        let long = || {
            Rejection::new(
                RequestResult::TooLong,
                format!("a request may have at most {LONGEST} bytes and must not be sent slowly"),
            )
        };
        if body.size_hint().lower() > u64::try_from(LONGEST).unwrap_or(u64::MAX) {
            return Err(long());
        }
        let body = timeout(PATIENCE, Limited::new(body, LONGEST).collect()).await;
        let body = body.ok().and_then(Result::ok).ok_or_else(long)?.to_bytes();
        let work = Arc::clone(&self.at_work).try_acquire_owned().map_err(|_| busy())?;
        let server = Arc::clone(&self.server);
        let answered = tokio::task::spawn_blocking(move || {
            let answered = server.answer(client.address, &credentials, &body);
            drop(work);
            answered
        });
        answered.await.map_err(|_| Rejection::new(RequestResult::NotStarted, "the request could not be processed"))
    }
}

/// What a request came with. A header that comes twice is as good as none.
fn shown(client: Client, request: &Parts) -> Credentials {
    let header = |name: &str| {
        let mut all = request.headers.get_all(name).iter();
        let only = all.next().filter(|_| all.next().is_none())?;
        only.to_str().ok().map(str::to_owned)
    };
    Credentials {
        to: header(TO),
        time: header(TIME).and_then(|time| time.parse().ok()),
        nonce: header(NONCE),
        signature: header(SIGNATURE),
        certified: client.certified,
        local: client.address.is_some_and(|address| address.to_canonical().is_loopback()),
    }
}

fn status(result: RequestResult) -> StatusCode {
    match result {
        RequestResult::Started => StatusCode::OK,
        RequestResult::RateLimited => StatusCode::TOO_MANY_REQUESTS,
        RequestResult::TooLong => StatusCode::PAYLOAD_TOO_LARGE,
        RequestResult::Malformed => StatusCode::BAD_REQUEST,
        RequestResult::Unsigned
        | RequestResult::WrongSignature
        | RequestResult::ClockSkew
        | RequestResult::Replayed => StatusCode::UNAUTHORIZED,
        RequestResult::WrongHost => StatusCode::MISDIRECTED_REQUEST,
        RequestResult::Busy | RequestResult::Unavailable | RequestResult::NotStarted => StatusCode::SERVICE_UNAVAILABLE,
    }
}
