//! A stream that ends when its client does nothing for too long, or takes an answer too slowly.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::{set_socket_linger, set_socket_send_buffer_size};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_rustls::server::TlsStream;

use super::table::{ConnectionEntry, Phase};

/// How long a client may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timeouts {
    /// From the first byte of a request's head to its last, and from connecting to the first byte.
    pub(super) head: Duration,
    /// Between requests.
    pub(super) idle: Duration,
    /// The least time to take an answer, whatever its length.
    pub(super) grace: Duration,
    /// The least rate after that, on average, in bytes a second.
    pub(super) least_rate: u32,
    /// The longest time to take an answer, at whatever rate.
    pub(super) answer: Duration,
}

impl Timeouts {
    pub(super) const DEFAULT: Self = Self {
        head: Duration::from_secs(10),
        idle: Duration::from_secs(120),
        grace: Duration::from_secs(10),
        least_rate: 16 * 1024,
        answer: Duration::from_secs(120),
    };

    /// How long a client that took so many bytes of an answer may have taken.
    fn allowed(&self, taken: u64) -> Duration {
        let at_least_rate = Duration::from_secs(1).mul_f64(units(taken) / f64::from(self.least_rate.max(1)));
        self.grace.saturating_add(at_least_rate).min(self.answer)
    }
}

fn units(bytes: u64) -> f64 {
    // Answers are far shorter than what a u32 holds.
    f64::from(u32::try_from(bytes).unwrap_or(u32::MAX))
}

/// Room in the kernel for what a client has not taken yet, in bytes; the kernel doubles it and counts its own
/// structures. It would buffer megabytes otherwise, for each slow reader. A client that empties it at once gets more.
const FIRST_BUFFER: usize = 8 * 1024;
const LAST_BUFFER: usize = 128 * 1024;
/// A client that makes room within this time gets twice the buffer.
const FAST: Duration = Duration::from_millis(250);
/// The time after which a client may have taken the rest of an answer; each time it has not, twice as long.
const FIRST_CHECK: Duration = Duration::from_millis(5);
const LAST_CHECK: Duration = Duration::from_millis(500);

/// A stream that may be over a TCP socket.
pub(super) trait Transport: AsyncRead + AsyncWrite + Unpin {
    /// The socket below it.
    fn socket(&self) -> Option<&TcpStream>;
}

impl Transport for TcpStream {
    fn socket(&self) -> Option<&TcpStream> {
        Some(self)
    }
}

impl Transport for Box<TlsStream<TcpStream>> {
    fn socket(&self) -> Option<&TcpStream> {
        Some(self.get_ref().0)
    }
}

/// An answer that the client has not taken whole.
struct SentAnswer {
    began: Instant,
    /// Bytes that the kernel took.
    taken: u64,
    /// When to see whether the client has taken what the kernel holds; `None` while the server is still writing.
    check: Option<(Instant, Duration)>,
    /// Room in the kernel, in bytes, and since when it is full.
    buffer: usize,
    full: Option<Instant>,
}

/// A stream with timeouts. Not hyper's `header_read_timeout`: it counts the time between requests as part of the next
/// head, so that a scraper's connection would not last until its next scrape; and nothing in hyper limits a slow reader.
pub(super) struct TimeoutStream<S: Transport> {
    inner: S,
    timeouts: Timeouts,
    connection: Arc<ConnectionEntry>,
    since: Instant,
    answer: Option<SentAnswer>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl<S: Transport> TimeoutStream<S> {
    pub(super) fn new(inner: S, timeouts: Timeouts, connection: Arc<ConnectionEntry>) -> Self {
        Self { inner, timeouts, connection, since: Instant::now(), answer: None, sleep: None }
    }

    fn enter(&mut self, phase: Phase) {
        self.connection.set_phase(phase);
        self.since = Instant::now();
    }

    /// An error once the client is out of time; until then the task is woken at that time.
    fn poll_timeout(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        loop {
            let read = match self.connection.phase() {
                Phase::Idle => Some(self.since + self.timeouts.idle),
                Phase::ReadingHead => Some(self.since + self.timeouts.head),
                Phase::Handling | Phase::Responding => None,
            };
            let answer = self.answer.as_ref().map(|answer| answer.began + self.timeouts.allowed(answer.taken));
            let check = self.answer.as_ref().and_then(|answer| Some(answer.check?.0));
            let Some(wake) = [read, answer, check].into_iter().flatten().min() else { return Poll::Pending };
            let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(wake)));
            if sleep.deadline() != wake {
                sleep.as_mut().reset(wake);
            }
            if sleep.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            // A client that took the last of its answer in time is not too slow.
            if self.is_drained() {
                self.end_answer();
                continue;
            }
            if answer == Some(wake) {
                self.connection.is_too_slow();
                return Poll::Ready(io::ErrorKind::TimedOut.into());
            }
            if read == Some(wake) {
                return Poll::Ready(io::ErrorKind::TimedOut.into());
            }
            if let Some((at, pause)) = self.answer.as_mut().and_then(|answer| answer.check.as_mut()) {
                *pause = (*pause * 2).min(LAST_CHECK);
                *at = Instant::now() + *pause;
            }
        }
    }

    /// Whether all is written, and the client has taken nearly all of it. The send buffer is the smallest now, so that
    /// its socket can be written to only if it holds next to nothing.
    fn is_drained(&self) -> bool {
        let Some(answer) = &self.answer else { return false };
        let Some(socket) = self.inner.socket() else { return answer.check.is_some() };
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        answer.check.is_some()
            && poll(&mut [PollFd::new(socket, PollFlags::OUT)], Some(&now)).is_ok_and(|ready| ready > 0)
    }

    /// The server has begun to write.
    fn begin_answer(&mut self) {
        if let Some(SentAnswer { check: None, .. }) = &self.answer {
            return;
        }
        // What was sent before and not taken counts on.
        let new = || SentAnswer { began: Instant::now(), taken: 0, check: None, buffer: FIRST_BUFFER, full: None };
        let answer = self.answer.get_or_insert_with(new);
        answer.check = None;
        let buffer = answer.buffer;
        self.set_buffer(buffer);
    }

    /// The server has written all.
    fn finish_answer(&mut self) {
        let Some(answer) = self.answer.as_mut().filter(|answer| answer.check.is_none()) else { return };
        answer.check = Some((Instant::now() + FIRST_CHECK, FIRST_CHECK));
        self.set_buffer(1);
        if self.is_drained() {
            self.end_answer();
        }
    }

    fn end_answer(&mut self) {
        self.answer = None;
        self.connection.end_answer();
    }

    fn set_buffer(&self, bytes: usize) {
        if let Some(socket) = self.inner.socket() {
            let _ = set_socket_send_buffer_size(socket, bytes);
        }
    }

    fn after_write(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        let mut larger = None;
        if let Some(answer) = &mut self.answer {
            match &result {
                Poll::Pending => _ = answer.full.get_or_insert_with(Instant::now),
                Poll::Ready(Ok(bytes)) => {
                    answer.taken = answer.taken.saturating_add(u64::try_from(*bytes).unwrap_or(0));
                    let fast = answer.full.take().is_some_and(|since| since.elapsed() < FAST);
                    if fast && answer.buffer < LAST_BUFFER {
                        answer.buffer *= 2;
                        larger = Some(answer.buffer);
                    }
                }
                Poll::Ready(Err(_)) => {}
            }
        }
        if let Some(bytes) = larger {
            self.set_buffer(bytes);
        }
        if result.is_pending() {
            return self.poll_timeout(cx).map(Err);
        }
        result
    }
}

impl<S: Transport> Drop for TimeoutStream<S> {
    fn drop(&mut self) {
        if self.connection.is_reset()
            && let Some(socket) = self.inner.socket()
        {
            // Otherwise the kernel would keep what is not taken for as long as the client wants.
            let _ = set_socket_linger(socket, Some(Duration::ZERO));
        }
    }
}

impl<S: Transport> AsyncRead for TimeoutStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let result = Pin::new(&mut self.inner).poll_read(cx, buf);
        if result.is_pending() {
            return self.poll_timeout(cx).map(Err);
        }
        if buf.filled().len() > before && self.connection.phase() == Phase::Idle {
            self.enter(Phase::ReadingHead);
        }
        result
    }
}

impl<S: Transport> AsyncWrite for TimeoutStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.begin_answer();
        let result = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.after_write(cx, result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.begin_answer();
        let result = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.after_write(cx, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.inner).poll_flush(cx) {
            Poll::Pending => self.poll_timeout(cx).map(Err),
            result @ Poll::Ready(_) => {
                // The server flushes when all of an answer is written.
                if self.connection.phase() == Phase::Responding {
                    self.enter(Phase::Idle);
                }
                self.finish_answer();
                result
            }
        }
    }

    /// Ends the connection once the client has taken its answer. A socket that is closed before takes the kernel's
    /// memory for as long as its client likes, and nobody counts it.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.finish_answer();
        if self.answer.is_some() {
            if let Poll::Ready(error) = self.poll_timeout(cx) {
                return Poll::Ready(Err(error));
            }
            if self.answer.is_some() {
                return Poll::Pending;
            }
        }
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
