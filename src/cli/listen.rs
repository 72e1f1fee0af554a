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
