//! Encoded answers, made once for each report and shared by everyone who asks.

use std::fmt;
use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::export::agent::{AgentState, Process};
use crate::export::exposition::{self, Format};
use crate::export::{json, page};
use crate::watch::HostReport;

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

/// The bodies of the newest report.
#[derive(Default)]
pub(super) struct Bodies {
    made: Mutex<Option<Made>>,
    encodes: AtomicU64,
}

struct Made {
    report: Arc<HostReport>,
    agent: Arc<AgentState>,
    bodies: Vec<(Document, bool, Bytes)>,
}

impl Bodies {
    /// The body of a document, made now if nobody asked before; none if it cannot be encoded, which only a lack of
    /// memory could bring about.
    pub(super) fn get(
        &self,
        document: Document,
        gzip: bool,
        report: &Arc<HostReport>,
        agent: &Arc<AgentState>,
        telemetry_path: &str,
    ) -> Option<Bytes> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |made: &&mut Made| Arc::ptr_eq(&made.report, report) && Arc::ptr_eq(&made.agent, agent);
        if let Some(made) = made.as_mut().filter(same)
            && let Some((_, _, body)) = made.bodies.iter().find(|(d, g, _)| *d == document && *g == gzip)
        {
            return Some(body.clone());
        }
        let mut out =
            if gzip { Out::Gzip(GzEncoder::new(Vec::new(), Compression::fast())) } else { Out::Plain(Vec::new()) };
        write(document, report, agent, telemetry_path, &mut out)?;
        let body = out.finish()?;
        self.encodes.fetch_add(1, Ordering::Relaxed);
        match made.as_mut().filter(same) {
            Some(made) => made.bodies.push((document, gzip, body.clone())),
            None => {
                *made = Some(Made {
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
    out: &mut Out,
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

/// Text, as it is or compressed on the way.
enum Out {
    Plain(Vec<u8>),
    Gzip(GzEncoder<Vec<u8>>),
}

impl Out {
    /// The body, without room to spare: it may be held by slow readers for long.
    fn finish(self) -> Option<Bytes> {
        let bytes = match self {
            Self::Plain(bytes) => bytes,
            Self::Gzip(encoder) => encoder.finish().ok()?,
        };
        Some(Bytes::from(bytes.into_boxed_slice()))
    }
}

impl fmt::Write for Out {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        match self {
            Self::Plain(bytes) => bytes.extend_from_slice(text.as_bytes()),
            Self::Gzip(encoder) => encoder.write_all(text.as_bytes()).map_err(|_| fmt::Error)?,
        }
        Ok(())
    }
}
