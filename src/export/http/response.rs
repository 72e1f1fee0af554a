//! Responses. Encoded documents are made once for each report and shared by everyone who asks.

use std::fmt;
use std::io::Write as _;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use hyper::header::{self, HeaderValue};
use hyper::{Response, StatusCode};

use crate::export::agent::{AgentState, Process};
use crate::export::exposition::{self, Format};
use crate::export::{json, page};
use crate::model::text::visible_lines;
use crate::watch::HostReport;

/// Who is at the other end.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Client {
    /// Its address.
    pub(super) address: Option<IpAddr>,
    /// Whether it showed a certificate that was verified.
    pub(super) certified: bool,
}

/// A whole response.
pub(super) type HttpResponse = Response<Bytes>;

/// A response with a body.
pub(super) fn respond(status: StatusCode, content_type: &'static str, body: Bytes) -> HttpResponse {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if content_type == Document::Page.content_type() {
        let policy = HeaderValue::from_static(page::CONTENT_SECURITY_POLICY);
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    response
}

/// A response of one line of plain text.
pub(super) fn plain(status: StatusCode, text: &'static str) -> HttpResponse {
    respond(status, "text/plain; charset=utf-8", Bytes::from_static(text.as_bytes()))
}

/// What can be made from a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Document {
    Metrics(Format),
    Findings,
    Events,
    Snapshot,
    Page,
}

impl Document {
    pub(super) const fn content_type(self) -> &'static str {
        match self {
            Self::Metrics(format) => format.content_type(),
            Self::Findings | Self::Events | Self::Snapshot => "application/json",
            Self::Page => "text/html; charset=utf-8",
        }
    }
}

/// The encoded documents of the newest report.
#[derive(Default)]
pub(super) struct DocumentCache {
    cached: Mutex<Option<CachedReport>>,
    encodes: AtomicU64,
}

struct CachedReport {
    report: Arc<HostReport>,
    agent: Arc<AgentState>,
    bodies: Vec<(Document, bool, Bytes)>,
}

impl DocumentCache {
    /// The body of a document, encoded now if nobody asked before; `None` if it cannot be encoded.
    pub(super) fn get(
        &self,
        document: Document,
        gzip: bool,
        report: &Arc<HostReport>,
        agent: &Arc<AgentState>,
        telemetry_path: &str,
    ) -> Option<Bytes> {
        let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |of: &&mut CachedReport| Arc::ptr_eq(&of.report, report) && Arc::ptr_eq(&of.agent, agent);
        if let Some(current) = cached.as_mut().filter(same)
            && let Some((_, _, body)) = current.bodies.iter().find(|(d, g, _)| *d == document && *g == gzip)
        {
            return Some(body.clone());
        }
        // The next answer is about as long as the last one: its buffer need not grow, and be copied, step by step.
        let last = cached.as_ref().and_then(|last| last.bodies.iter().find(|(d, g, _)| *d == document && *g == gzip));
        let room = Vec::with_capacity(last.map_or(0, |(_, _, body)| body.len() + body.len() / 32));
        let mut out =
            if gzip { BodyWriter::Gzip(GzEncoder::new(room, Compression::fast())) } else { BodyWriter::Plain(room) };
        write(document, report, agent, telemetry_path, &mut out)?;
        let body = out.finish()?;
        self.encodes.fetch_add(1, Ordering::Relaxed);
        match cached.as_mut().filter(same) {
            Some(current) => current.bodies.push((document, gzip, body.clone())),
            None => {
                *cached = Some(CachedReport {
                    report: Arc::clone(report),
                    agent: Arc::clone(agent),
                    bodies: vec![(document, gzip, body.clone())],
                });
            }
        }
        Some(body)
    }

    pub(super) fn encodes(&self) -> u64 {
        self.encodes.load(Ordering::Relaxed)
    }
}

fn write(
    document: Document,
    report: &Arc<HostReport>,
    agent: &Arc<AgentState>,
    telemetry_path: &str,
    out: &mut BodyWriter,
) -> Option<()> {
    use fmt::Write as _;
    let value = match document {
        Document::Metrics(format) => return exposition::encode(format, report, agent, Process::read(), out).ok(),
        Document::Page => return out.write_str(&page::page(Some(report), telemetry_path)).ok(),
        Document::Findings => json::findings(report, report.status),
        Document::Events => json::events(report),
        Document::Snapshot => json::snapshot(report),
    };
    writeln!(out, "{value}").ok()
}

/// Takes text, and compresses it on the way if asked to.
enum BodyWriter {
    Plain(Vec<u8>),
    Gzip(GzEncoder<Vec<u8>>),
}

impl BodyWriter {
    /// The body, without spare capacity: slow readers may hold it for long.
    fn finish(self) -> Option<Bytes> {
        let bytes = match self {
            Self::Plain(bytes) => bytes,
            Self::Gzip(encoder) => encoder.finish().ok()?,
        };
        Some(Bytes::from(bytes.into_boxed_slice()))
    }
}

impl fmt::Write for BodyWriter {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // Whatever the text is made of, nothing of it acts on a terminal.
        let text = visible_lines(text);
        match self {
            Self::Plain(bytes) => bytes.extend_from_slice(text.as_bytes()),
            Self::Gzip(encoder) => encoder.write_all(text.as_bytes()).map_err(|_| fmt::Error)?,
        }
        Ok(())
    }
}
