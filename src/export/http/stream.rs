//! A stream that ends when its client does nothing for too long, and what the connection is doing.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// How long a client may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timeouts {
    /// From the first byte of a request's head to its last, and from connecting to the first byte.
    pub(super) head: Duration,
    /// Between requests.
    pub(super) idle: Duration,
    /// Without taking any of an answer.
    pub(super) stall: Duration,
}

impl Timeouts {
    pub(super) const DEFAULT: Self =
        Self { head: Duration::from_secs(10), idle: Duration::from_secs(120), stall: Duration::from_secs(30) };
}

/// The phase of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Phase {
    /// Waiting for a request.
    Idle,
    /// Reading a request's head.
    ReadingHead,
    /// Making an answer.
    Handling,
    /// Writing it.
    Responding,
}

/// The phase of a connection, shared with whoever must decide which one to close.
#[derive(Debug, Default)]
pub struct Activity(AtomicU8);

impl Activity {
    pub(super) fn phase(&self) -> Phase {
        match self.0.load(Ordering::Relaxed) {
            0 => Phase::Idle,
            1 => Phase::ReadingHead,
            2 => Phase::Handling,
            _ => Phase::Responding,
        }
    }

    pub(super) fn set(&self, phase: Phase) {
        self.0.store(phase as u8, Ordering::Relaxed);
    }

    /// Whether no request of it is being answered.
    pub fn is_idle(&self) -> bool {
        matches!(self.phase(), Phase::Idle | Phase::ReadingHead)
    }
}

/// A stream with timeouts. Not hyper's `header_read_timeout`: it counts the time between requests as part of the next head, so
/// that a scraper's connection would not last until its next scrape; and nothing in hyper limits a reader that stalls.
pub(super) struct TimeoutStream<S> {
    inner: S,
    timeouts: Timeouts,
    activity: Arc<Activity>,
    since: Instant,
    stalled: Option<Instant>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl<S> TimeoutStream<S> {
    pub(super) fn new(inner: S, timeouts: Timeouts, activity: Arc<Activity>) -> Self {
        Self { inner, timeouts, activity, since: Instant::now(), stalled: None, sleep: None }
    }

    fn enter(&mut self, phase: Phase) {
        self.activity.set(phase);
        self.since = Instant::now();
    }

    /// An error once the client is out of time; until then the task is woken at that time.
    fn poll_timeout(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let read = match self.activity.phase() {
            Phase::Idle => Some(self.since + self.timeouts.idle),
            Phase::ReadingHead => Some(self.since + self.timeouts.head),
            Phase::Handling | Phase::Responding => None,
        };
        let write = self.stalled.map(|since| since + self.timeouts.stall);
        let Some(deadline) = read.into_iter().chain(write).min() else { return Poll::Pending };
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if sleep.deadline() != deadline {
            sleep.as_mut().reset(deadline);
        }
        sleep.as_mut().poll(cx).map(|()| io::ErrorKind::TimedOut.into())
    }

    fn after_write<T>(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if result.is_pending() {
            self.stalled.get_or_insert_with(Instant::now);
            return self.poll_timeout(cx).map(Err);
        }
        self.stalled = None;
        result
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TimeoutStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let result = Pin::new(&mut self.inner).poll_read(cx, buf);
        if result.is_pending() {
            return self.poll_timeout(cx).map(Err);
        }
        if buf.filled().len() > before && self.activity.phase() == Phase::Idle {
            self.enter(Phase::ReadingHead);
        }
        result
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimeoutStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.after_write(cx, result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.after_write(cx, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.inner).poll_flush(cx);
        // The server flushes when all of an answer is written.
        if result.is_ready() && self.activity.phase() == Phase::Responding {
            self.enter(Phase::Idle);
        }
        self.after_write(cx, result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
