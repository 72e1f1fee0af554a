//! Listening sockets: addresses as exporters write them, or what systemd hands over.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use anyhow::{Context as _, bail};
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

/// `:10015` is every address of the host, in both families where it has both.
async fn bind(address: &str) -> anyhow::Result<TcpListener> {
    let Some(port) = address.strip_prefix(':') else {
        return Ok(TcpListener::bind(address).await?);
    };
    let port: u16 = port.parse().ok().with_context(|| format!("{port:?} is not a port (0 to 65535)"))?;
    match TcpListener::bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))).await {
        Ok(listener) => Ok(listener),
        Err(_) => Ok(TcpListener::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))).await?),
    }
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
        bail!("--web.systemd-socket: systemd handed over no socket (LISTEN_FDS); start it through its socket unit");
    }
    Ok(listeners)
}

#[cfg(test)]
mod tests {
    use super::*;

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
