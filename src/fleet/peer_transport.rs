//! Requests to the agent of another host.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::header::{CONTENT_TYPE, HeaderValue, USER_AGENT};
use hyper::{Method, Request, Uri};
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use super::client::causes;
use super::tls::{self, TlsFiles};
use crate::bench::peers::http_peer::{HttpReply, PeerTransport};
use crate::bench::peers::request::{LONGEST, PATH, SIGNATURE};

/// How long it may take to be reached.
const CONNECT: Duration = Duration::from_secs(5);

/// Posts requests, one at a time and each over a connection of its own: they are far between.
#[derive(Debug, Clone)]
pub struct HttpTransport {
    /// How long a host may take to answer: it asks its job scheduler, and starts a program.
    pub timeout: Duration,
    /// TLS; none: connections are not encrypted. Its files are read for each request.
    pub tls: Option<TlsFiles>,
}

impl PeerTransport for HttpTransport {
    fn post(&self, to: &str, headers: &[(&'static str, String)], body: Vec<u8>) -> Result<HttpReply, String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        let exchange = async {
            let answer = tokio::time::timeout(self.timeout, self.exchange(to, headers, body)).await;
            answer.unwrap_or_else(|_| Err(format!("no response within {} s", self.timeout.as_secs())))
        };
        runtime.block_on(exchange)
    }
}

impl HttpTransport {
    async fn exchange(&self, to: &str, headers: &[(&'static str, String)], body: Vec<u8>) -> Result<HttpReply, String> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let uri: Uri = format!("{scheme}://{to}{PATH}").parse().map_err(|error| format!("{to}: {error}"))?;
        let mut request = Request::new(Full::new(Bytes::from(body)));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = uri;
        let written = request.headers_mut();
        written.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        written.insert(USER_AGENT, HeaderValue::from_static(concat!("lanewatch/", env!("CARGO_PKG_VERSION"))));
        for (name, value) in headers {
            written.insert(*name, HeaderValue::from_str(value).map_err(|error| error.to_string())?);
        }
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(CONNECT));
        let files = self.tls.clone().unwrap_or_default();
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls::config(&files).map_err(|error| error.to_string())?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let pool: Pool<_, Full<Bytes>> = Pool::builder(TokioExecutor::new()).build(connector);
        let (head, body) = pool.request(request).await.map_err(|error| causes(&error))?.into_parts();
        let body = Limited::new(body, LONGEST).collect().await.map_err(|error| causes(&*error))?;
        let signature = head.headers.get(SIGNATURE).and_then(|value| value.to_str().ok()).map(str::to_owned);
        Ok(HttpReply { status: head.status.as_u16(), signature, body: body.to_bytes().to_vec() })
    }
}
