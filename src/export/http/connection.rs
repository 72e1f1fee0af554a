//! One connection, from its first byte to its end.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;

use http_body_util::Full;
use hyper::Request;
use hyper::body::Incoming;
use hyper::header::{self, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::app::App;
use super::response::Client;
use super::stream::{TimeoutStream, Timeouts, Transport};
use super::table::{ConnectionEntry, Phase};
use crate::export::web::TlsRejection;

/// Longest head of a request, in bytes; longer ones are answered with 431.
const LONGEST_HEAD: usize = 16 * 1024;

/// Serves HTTP/1 on a stream until it ends, its client runs out of time, or `shutdown` becomes true; then the
/// request at hand is still answered.
pub(super) async fn drive<S: Transport + Send + 'static>(
    timeouts: Timeouts,
    stream: S,
    client: Client,
    app: Arc<App>,
    entry: Arc<ConnectionEntry>,
    shutdown: &mut watch::Receiver<bool>,
) {
    let stream = TimeoutStream::new(stream, timeouts, Arc::clone(&entry));
    let service = service_fn(move |request: Request<Incoming>| {
        let (app, entry) = (Arc::clone(&app), Arc::clone(&entry));
        async move {
            entry.set_phase(Phase::Handling);
            let (head, body) = request.into_parts();
            let mut answer = app.respond(client, &head, body).await;
            if let Some(date) = date() {
                answer.headers_mut().insert(header::DATE, date);
            }
            entry.begin_answer(answer.body());
            entry.set_phase(Phase::Responding);
            Ok::<_, Infallible>(answer.map(Full::new))
        }
    });
    let mut server = http1::Builder::new();
    server.max_buf_size(LONGEST_HEAD).header_read_timeout(None).auto_date_header(false);
    // Boxed, so that connections that send nothing stay small.
    let mut connection = Box::pin(server.serve_connection(TokioIo::new(stream), service));
    let result = tokio::select! {
        result = &mut connection => result,
        () = shutdown_requested(shutdown) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "connection ended");
    }
}

/// The `Date` header now. hyper's own stays where it is after the clock was set back.
fn date() -> Option<HeaderValue> {
    let now = jiff::Timestamp::now();
    HeaderValue::try_from(jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&now).ok()?).ok()
}

/// Resolves when `shutdown` is true, or its sender is gone.
pub(super) async fn shutdown_requested(shutdown: &mut watch::Receiver<bool>) {
    let _ = shutdown.wait_for(|shutdown| *shutdown).await;
}

/// The first byte of a client that wants TLS: the record type of a handshake.
const HANDSHAKE: u8 = 0x16;

/// The response to a client that speaks plain HTTP.
const NOT_TLS: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 45\r\n\
    Connection: close\r\n\r\nthis is an HTTPS server: use an https:// URL\n";

/// Encrypts a connection.
///
/// # Errors
/// The handshake fails, or the client is not allowed.
pub(super) async fn accept_tls(
    mut stream: TcpStream,
    tls: Arc<ServerConfig>,
    peer: IpAddr,
) -> Result<Box<TlsStream<TcpStream>>, TlsRejection> {
    let mut first = [0; 1];
    if stream.peek(&mut first).await.map_err(|error| TlsRejection::from_error(&error))? == 1 && first != [HANDSHAKE] {
        // Unread bytes would turn the end of this connection into a reset, and the response would be lost.
        let _ = stream.try_read(&mut [0; 4096]);
        // A client that is gone needs no response.
        let _ = stream.write_all(NOT_TLS).await;
        let _ = stream.shutdown().await;
        return Err(TlsRejection::NotTls);
    }
    TlsAcceptor::from(tls).accept(stream).await.map(Box::new).map_err(|error| {
        tracing::debug!(%peer, %error, "TLS handshake failed");
        TlsRejection::from_error(&error)
    })
}
