//! One connection, from its first byte to its end.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use super::app::App;
use super::timed::{Limits, Timed};

/// Longest head of a request, in bytes; longer ones are answered with 431.
const LONGEST_HEAD: usize = 16 * 1024;

/// Who is at the other end.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Client {
    /// Its address.
    pub(super) address: Option<IpAddr>,
    /// Whether it showed a certificate that was verified.
    pub(super) certified: bool,
}

/// What a connection is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Doing {
    /// Waiting for a request.
    Idle,
    /// Reading a request's head.
    Head,
    /// Making an answer.
    Work,
    /// Writing it.
    Answer,
}

/// What a connection is doing, for whoever must decide which one to close.
#[derive(Debug, Default)]
pub struct Activity(AtomicU8);

impl Activity {
    pub(super) fn doing(&self) -> Doing {
        match self.0.load(Ordering::Relaxed) {
            0 => Doing::Idle,
            1 => Doing::Head,
            2 => Doing::Work,
            _ => Doing::Answer,
        }
    }

    pub(super) fn set(&self, doing: Doing) {
        self.0.store(doing as u8, Ordering::Relaxed);
    }

    /// Whether no request of it is being answered.
    pub fn is_idle(&self) -> bool {
        matches!(self.doing(), Doing::Idle | Doing::Head)
    }
}

/// Serves HTTP/1 on a stream until it ends, its client runs out of time, or `shutdown` becomes true; then the
/// request at hand is still answered.
pub async fn drive<S>(stream: S, app: Arc<App>, activity: Arc<Activity>, mut shutdown: watch::Receiver<bool>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    drive_within(Limits::DEFAULT, stream, Client::default(), app, activity, &mut shutdown).await;
}

pub(super) async fn drive_within<S>(
    limits: Limits,
    stream: S,
    client: Client,
    app: Arc<App>,
    activity: Arc<Activity>,
    shutdown: &mut watch::Receiver<bool>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let timed = Timed::new(stream, limits, Arc::clone(&activity));
    let service = service_fn(move |request: Request<Incoming>| {
        let (app, activity) = (Arc::clone(&app), Arc::clone(&activity));
        async move {
            activity.set(Doing::Work);
            let (head, body) = request.into_parts();
            let answer = app.respond(client, &head, body).await;
            activity.set(Doing::Answer);
            Ok::<_, Infallible>(answer)
        }
    });
    let mut server = http1::Builder::new();
    server.max_buf_size(LONGEST_HEAD).header_read_timeout(None);
    // Boxed, so that connections that never say anything stay small.
    let mut connection = Box::pin(server.serve_connection(TokioIo::new(timed), service));
    let result = tokio::select! {
        result = &mut connection => result,
        () = asked_to_end(shutdown) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "connection ended");
    }
}

/// Resolves when `shutdown` is true, or nobody is left to say so.
pub(super) async fn asked_to_end(shutdown: &mut watch::Receiver<bool>) {
    let _ = shutdown.wait_for(|shutdown| *shutdown).await;
}
