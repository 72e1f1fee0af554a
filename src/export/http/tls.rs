//! The beginning of an encrypted connection.

use std::net::IpAddr;
use std::sync::Arc;

use rustls::ServerConfig;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::export::web::Refused;

/// The first byte of a client that wants TLS: the record type of a handshake.
const HANDSHAKE: u8 = 0x16;

/// What someone hears who does not.
const NOT_TLS: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 45\r\n\
    Connection: close\r\n\r\nthis is an HTTPS server: use an https:// URL\n";

/// Encrypts a connection.
///
/// # Errors
/// The client does not go along, or may not.
pub(super) async fn accept(
    mut stream: TcpStream,
    tls: Arc<ServerConfig>,
    peer: IpAddr,
) -> Result<Box<TlsStream<TcpStream>>, Refused> {
    let mut first = [0; 1];
    if stream.peek(&mut first).await.map_err(|error| Refused::of(&error))? == 1 && first != [HANDSHAKE] {
        // What is not read would make the end of this connection a reset, and the answer be lost.
        let _ = stream.try_read(&mut [0; 4096]);
        // Whoever is gone already needs no answer.
        let _ = stream.write_all(NOT_TLS).await;
        let _ = stream.shutdown().await;
        return Err(Refused::NotTls);
    }
    TlsAcceptor::from(tls).accept(stream).await.map(Box::new).map_err(|error| {
        tracing::debug!(%peer, %error, "no encrypted connection");
        Refused::of(&error)
    })
}
