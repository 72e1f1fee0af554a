//! Listening sockets: addresses as exporters write them, or what systemd hands over.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use anyhow::{Context as _, bail};
use rustix::io::Errno;
use tokio::net::TcpListener;

use super::settings::WebSettings;

/// Opens the sockets.
///
/// # Errors
/// An address that is none, is taken, or is not this host's; no socket from systemd.
pub async fn listen(settings: &WebSettings) -> anyhow::Result<Vec<TcpListener>> {
    if settings.systemd_socket {
        return handed_over();
    }
    let mut listeners = Vec::new();
    for address in &settings.listen {
        let listener = bind(address).await.with_context(|| format!("cannot listen on {address:?}"))?;
        listeners.push(listener);
    }
    Ok(listeners)
}

/// Where a browser of this host finds what listens here.
pub fn url(address: SocketAddr, encrypted: bool) -> String {
    let scheme = if encrypted { "https" } else { "http" };
    if address.ip().is_unspecified() {
        return format!("{scheme}://localhost:{}", address.port());
    }
    format!("{scheme}://{address}")
}

/// Connections that may wait to be accepted. The standard library's 128 are few: a crowd would make a scrape wait a
/// second until its client's kernel tries again.
const BACKLOG: i32 = 4096;

/// `:10015` is every address of the host, in both families where it has both.
async fn bind(address: &str) -> anyhow::Result<TcpListener> {
    let listener = bind_address(address).await?;
    rustix::net::listen(&listener, BACKLOG)?;
    Ok(listener)
}

async fn bind_address(address: &str) -> anyhow::Result<TcpListener> {
    let Some(port) = address.strip_prefix(':') else {
        return Ok(TcpListener::bind(address).await?);
    };
    let port: u16 = port.parse().ok().with_context(|| format!("{port:?} is not a port (0 to 65535)"))?;
    match TcpListener::bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))).await {
        Err(error) if is_without_ipv6(&error) => {
            tracing::warn!("this host has no IPv6; listening on IPv4 alone");
            Ok(TcpListener::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))).await?)
        }
        outcome => Ok(outcome?),
    }
}

/// Whether a host has no IPv6, by the error of a socket of that family. Any other error is one of the port.
fn is_without_ipv6(error: &std::io::Error) -> bool {
    let without = [Errno::AFNOSUPPORT, Errno::ADDRNOTAVAIL].map(Errno::raw_os_error);
    error.raw_os_error().is_some_and(|code| without.contains(&code))
}

fn handed_over() -> anyhow::Result<Vec<TcpListener>> {
    let mut handed = listenfd::ListenFd::from_env();
    let mut listeners = Vec::new();
    for index in 0..handed.len() {
        if let Some(listener) = handed.take_tcp_listener(index).context("a socket from systemd is not TCP")? {
            listener.set_nonblocking(true)?;
            listeners.push(TcpListener::from_std(listener)?);
        }
    }
    if listeners.is_empty() {
        bail!("--web.systemd-socket: systemd passed no socket (LISTEN_FDS); start lanewatch.socket");
    }
    Ok(listeners)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_host_without_ipv6_listens_on_ipv4_alone() {
        let of = |errno: Errno| is_without_ipv6(&std::io::Error::from(errno));
        assert!(of(Errno::AFNOSUPPORT) && of(Errno::ADDRNOTAVAIL));
        assert!(!of(Errno::ADDRINUSE) && !of(Errno::ACCESS) && !of(Errno::MFILE));
    }

    #[tokio::test]
    async fn a_port_taken_in_ipv6_is_an_error() {
        // Only the IPv6 side of the port is taken.
        let taken =
            rustix::net::socket(rustix::net::AddressFamily::INET6, rustix::net::SocketType::STREAM, None).unwrap();
        rustix::net::sockopt::set_ipv6_v6only(&taken, true).unwrap();
        let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
        if rustix::net::bind(&taken, &any).is_err() {
            return;
        }
        rustix::net::listen(&taken, 1).unwrap();
        let taken = std::net::TcpListener::from(taken);
        let port = taken.local_addr().unwrap().port();
        assert!(bind(&format!(":{port}")).await.is_err());
    }

    #[test]
    fn addresses_for_a_browser() {
        for (address, encrypted, expected) in [
            ("127.0.0.1:9", false, "http://127.0.0.1:9"),
            ("[::]:10015", false, "http://localhost:10015"),
            ("0.0.0.0:10015", true, "https://localhost:10015"),
            ("[::1]:443", true, "https://[::1]:443"),
        ] {
            assert_eq!(url(address.parse().unwrap(), encrypted), expected);
        }
    }
}
