//! Accepts connections, and runs each on a task of its own.

use std::future::{Future, poll_fn};
use std::io;
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;

use tokio::io::ReadBuf;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::app::App;
use super::connection::{accept_tls, drive, shutdown_requested};
use super::response::Client;
use super::stream::{Timeouts, Transport};
use super::table::{ConnectionEntry, ConnectionTable, Phase};
use crate::export::web::TlsRejection;

/// How long requests at hand may take after the end was asked for.
const GRACE: Duration = Duration::from_secs(3);
/// Serves on every listener until `shutdown` resolves, then lets requests at hand end.
pub async fn serve(listeners: Vec<TcpListener>, service: Arc<App>, shutdown: impl Future<Output = ()>) {
    serve_within(Timeouts::DEFAULT, listeners, service, shutdown).await;
}

pub(super) async fn serve_within(
    timeouts: Timeouts,
    listeners: Vec<TcpListener>,
    app: Arc<App>,
    shutdown: impl Future<Output = ()>,
) {
    let connections = app.connections();
    let (end, ending) = watch::channel(false);
    for listener in listeners {
        let acceptor =
            Acceptor { timeouts, app: Arc::clone(&app), connections: Arc::clone(&connections), ending: ending.clone() };
        tokio::spawn(acceptor.accept(listener));
    }
    drop(ending);
    shutdown.await;
    end.send_replace(true);
    // Every connection holds a receiver. hyper-util's `GracefulShutdown` waits for connections that speak HTTP already;
    // these may still be in a TLS handshake, or have sent nothing.
    if timeout(GRACE, end.closed()).await.is_err() {
        connections.abort_all();
    }
}

struct Acceptor {
    timeouts: Timeouts,
    app: Arc<App>,
    connections: Arc<ConnectionTable>,
    ending: watch::Receiver<bool>,
}

impl Acceptor {
    async fn accept(self, listener: TcpListener) {
        const FIRST_PAUSE: Duration = Duration::from_millis(10);
        let (mut ending, mut pause) = (self.ending.clone(), FIRST_PAUSE);
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = shutdown_requested(&mut ending) => return,
            };
            match accepted {
                Ok((stream, peer)) => {
                    pause = FIRST_PAUSE;
                    self.admit(stream, peer.ip());
                    // Requests at hand come first: a crowd that connects must not keep them waiting.
                    tokio::task::yield_now().await;
                }
                Err(error) if is_the_clients(&error) => tracing::debug!(%error, "connection failed before it began"),
                Err(error) => {
                    // Out of descriptors or memory: make room, and do not spin.
                    if pause == FIRST_PAUSE {
                        tracing::warn!(%error, "cannot accept connections");
                    }
                    self.connections.close_oldest_idle();
                    sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_secs(1));
                }
            }
        }
    }

    /// Starts a connection's task, if there is room.
    fn admit(&self, stream: TcpStream, peer: IpAddr) {
        self.connections.admit(peer, |entry| {
            let connection = AcceptedConnection {
                timeouts: self.timeouts,
                peer,
                app: Arc::clone(&self.app),
                ending: self.ending.clone(),
                entry: Arc::new(entry),
            };
            tokio::spawn(connection.run(stream)).abort_handle()
        });
    }
}

/// A connection that was accepted.
struct AcceptedConnection {
    timeouts: Timeouts,
    peer: IpAddr,
    app: Arc<App>,
    ending: watch::Receiver<bool>,
    entry: Arc<ConnectionEntry>,
}

impl AcceptedConnection {
    async fn run(mut self, stream: TcpStream) {
        let web = self.app.web();
        let (tls, verifies_clients) = (web.tls.clone(), web.verifies_clients);
        drop(web);
        // Until a client has sent a request or begun a handshake, it costs a socket and a small task, no buffers.
        let ready = tokio::select! {
            asked = timeout(self.timeouts.head, request(&stream, tls.is_some())) => matches!(asked, Ok(Ok(()))),
            () = shutdown_requested(&mut self.ending) => false,
        };
        if !ready {
            return;
        }
        // Otherwise the tail of a response waits for the acknowledgement of what came before.
        let _ = stream.set_nodelay(true);
        match tls {
            None => self.drive(stream, false).await,
            Some(tls) => {
                let shaken = tokio::select! {
                    shaken = timeout(self.timeouts.head, accept_tls(stream, tls, self.peer)) => shaken,
                    () = shutdown_requested(&mut self.ending) => return,
                };
                match shaken.unwrap_or(Err(TlsRejection::Other)) {
                    Ok(stream) => {
                        // The time for the head of the first request begins now.
                        self.entry.set_phase(Phase::ReadingHead);
                        let certified = verifies_clients && stream.get_ref().1.peer_certificates().is_some();
                        self.drive(stream, certified).await;
                    }
                    Err(why) => self.app.clients().reject(why),
                }
            }
        }
    }

    async fn drive<S: Transport + Send + 'static>(&mut self, stream: S, certified: bool) {
        let (app, entry) = (Arc::clone(&self.app), Arc::clone(&self.entry));
        let client = Client { address: Some(self.peer), certified };
        drive(self.timeouts, stream, client, app, entry, &mut self.ending).await;
    }
}

/// Resolves when a request's head, or 1 KiB of it, waits in the socket; of an encrypted connection the first byte.
/// Nothing is read: hyper allocates a buffer with the first byte that it sees, so that a thousand clients that send half
/// a head would hold megabytes.
async fn request(stream: &TcpStream, encrypted: bool) -> io::Result<()> {
    let mut pause = Duration::from_millis(20);
    loop {
        let complete = poll_fn(|cx| {
            let mut room = [MaybeUninit::uninit(); 1024];
            let mut seen = ReadBuf::uninit(&mut room);
            ready!(stream.poll_peek(cx, &mut seen))?;
            let (seen, full) = (seen.filled(), seen.remaining() == 0);
            let whole = || seen.windows(4).any(|end| end == b"\r\n\r\n") || seen.windows(2).any(|end| end == b"\n\n");
            let ended: io::Result<bool> = if seen.is_empty() {
                Err(io::ErrorKind::UnexpectedEof.into())
            } else {
                Ok(encrypted || full || whole())
            };
            Poll::Ready(ended)
        });
        if complete.await? {
            return Ok(());
        }
        // The socket stays readable, so only time can be waited for.
        sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(1));
    }
}

fn is_the_clients(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}
