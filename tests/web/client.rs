//! A client for crowds: one connection, many requests.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// An encrypted connection that stays.
pub struct Connection(StreamOwned<ClientConnection, TcpStream>);

/// Trust in this authority, without sessions that are resumed.
pub fn trust(ca: &Path) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(&fs::read(ca).unwrap()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.resumption = rustls::client::Resumption::disabled();
    Arc::new(config)
}

impl Connection {
    pub fn open(address: SocketAddr, trust: &Arc<ClientConfig>) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        stream.set_nodelay(true)?;
        let name = ServerName::from(address.ip());
        let connection = ClientConnection::new(Arc::clone(trust), name).map_err(io::Error::other)?;
        Ok(Self(StreamOwned::new(connection, stream)))
    }

    /// The status of an answer.
    pub fn get(&mut self, path: &str, user: Option<&str>) -> io::Result<u16> {
        self.exchange(path, user).map(|(status, _)| status)
    }

    /// The body of an answer.
    pub fn body(&mut self, path: &str) -> io::Result<Vec<u8>> {
        self.exchange(path, None).map(|(_, body)| body)
    }

    fn exchange(&mut self, path: &str, user: Option<&str>) -> io::Result<(u16, Vec<u8>)> {
        let authorization = user.map_or_else(String::new, authorization);
        write!(self.0, "GET {path} HTTP/1.1\r\nHost: h\r\n{authorization}\r\n")?;
        self.0.flush()?;
        let (mut answer, mut buffer) = (Vec::new(), [0; 16 * 1024]);
        loop {
            let length = self.0.read(&mut buffer)?;
            if length == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            answer.extend(&buffer[..length]);
            if let Some(answer) = whole(&answer) {
                return Ok(answer);
            }
        }
    }

    /// The certificate that the server showed.
    pub fn certificate(&self) -> Vec<u8> {
        self.0.conn.peer_certificates().unwrap()[0].to_vec()
    }
}

/// The header for `name:password`.
pub fn authorization(user: &str) -> String {
    format!("Authorization: Basic {}\r\n", base64::engine::general_purpose::STANDARD.encode(user))
}

fn whole(answer: &[u8]) -> Option<(u16, Vec<u8>)> {
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
    let length: usize = head.split("content-length: ").nth(1)?.split("\r\n").next()?.parse().ok()?;
    let body = answer.get(end..end + length)?;
    Some((head.split(' ').nth(1)?.parse().ok()?, body.to_vec()))
}
