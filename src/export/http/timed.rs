//! A stream that ends when its client does nothing for too long.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use super::connection::{Activity, Doing};

/// How long a client may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// From the first byte of a request's head to its last, and from connecting to the first byte.
    pub(super) head: Duration,
    /// Between requests.
    pub(super) idle: Duration,
    /// Without taking any of an answer.
    pub(super) stall: Duration,
}

impl Limits {
    pub(super) const DEFAULT: Self =
        Self { head: Duration::from_secs(10), idle: Duration::from_secs(120), stall: Duration::from_secs(30) };
}

/// The stream. hyper's own timer would count the time between requests as part of the next head, so that a
/// scraper's connection would never last to its next scrape.
pub(super) struct Timed<S> {
    inner: S,
    limits: Limits,
    activity: Arc<Activity>,
    since: Instant,
    stalled: Option<Instant>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl<S> Timed<S> {
    pub(super) fn new(inner: S, limits: Limits, activity: Arc<Activity>) -> Self {
        Self { inner, limits, activity, since: Instant::now(), stalled: None, sleep: None }
    }

    fn now(&mut self, doing: Doing) {
        self.activity.set(doing);
        self.since = Instant::now();
    }

    /// Wakes the task when the client is out of time; an error when it is.
    fn patience(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let read = match self.activity.doing() {
            Doing::Idle => Some(self.since + self.limits.idle),
            Doing::Head => Some(self.since + self.limits.head),
            Doing::Work | Doing::Answer => None,
        };
        let write = self.stalled.map(|since| since + self.limits.stall);
        let Some(deadline) = read.into_iter().chain(write).min() else { return Poll::Pending };
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if sleep.deadline() != deadline {
            sleep.as_mut().reset(deadline);
        }
        sleep.as_mut().poll(cx).map(|()| io::ErrorKind::TimedOut.into())
    }

    fn wrote<T>(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if result.is_pending() {
            self.stalled.get_or_insert_with(Instant::now);
            return self.patience(cx).map(Err);
        }
        self.stalled = None;
        result
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Timed<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let result = Pin::new(&mut self.inner).poll_read(cx, buf);
        if result.is_pending() {
            return self.patience(cx).map(Err);
        }
        if buf.filled().len() > before && self.activity.doing() == Doing::Idle {
            self.now(Doing::Head);
        }
        result
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Timed<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.wrote(cx, result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.wrote(cx, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.inner).poll_flush(cx);
        // The server flushes when all of an answer is written.
        if result.is_ready() && self.activity.doing() == Doing::Answer {
            self.now(Doing::Idle);
        }
        self.wrote(cx, result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
