//! One connection, from its first byte to its end.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::app::App;
use super::response::Client;
use super::stream::{Activity, Phase, TimeoutStream, Timeouts};
use crate::export::web::TlsRejection;

/// Longest head of a request, in bytes; longer ones are answered with 431.
const LONGEST_HEAD: usize = 16 * 1024;

/// Serves HTTP/1 on a stream until it ends, its client runs out of time, or `shutdown` becomes true; then the
/// request at hand is still answered.
pub async fn drive<S>(stream: S, app: Arc<App>, activity: Arc<Activity>, mut shutdown: watch::Receiver<bool>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    drive_within(Timeouts::DEFAULT, stream, Client::default(), app, activity, &mut shutdown).await;
}

pub(super) async fn drive_within<S>(
    timeouts: Timeouts,
    stream: S,
    client: Client,
    app: Arc<App>,
    activity: Arc<Activity>,
    shutdown: &mut watch::Receiver<bool>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let stream = TimeoutStream::new(stream, timeouts, Arc::clone(&activity));
    let service = service_fn(move |request: Request<Incoming>| {
        let (app, activity) = (Arc::clone(&app), Arc::clone(&activity));
        async move {
            activity.set(Phase::Handling);
            let (head, body) = request.into_parts();
            let answer = app.respond(client, &head, body).await;
            activity.set(Phase::Responding);
            Ok::<_, Infallible>(answer)
        }
    });
    let mut server = http1::Builder::new();
    server.max_buf_size(LONGEST_HEAD).header_read_timeout(None);
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
