//! The server over real sockets: routes, methods, negotiation.

mod bounds;

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use super::app::{App, Options, Source};
use super::listen::serve_within;
use super::timed::Limits;
use crate::export::{AgentState, testing};
use crate::watch::HostReport;

/// A source with one report, or none, that takes its time.
#[derive(Default)]
struct Fixed {
    report: Mutex<Option<Arc<HostReport>>>,
    delay: Duration,
    asked: Mutex<Vec<(Duration, Duration)>>,
}

impl Fixed {
    fn with(report: HostReport) -> Arc<Self> {
        Arc::new(Self { report: Mutex::new(Some(Arc::new(report))), ..Self::default() })
    }
}

impl Source for Fixed {
    fn report(
        &self,
        max_age: Duration,
        wait: Duration,
    ) -> Pin<Box<dyn Future<Output = Option<Arc<HostReport>>> + Send + '_>> {
        self.asked.lock().unwrap().push((max_age, wait));
        Box::pin(async {
            tokio::time::sleep(self.delay).await;
            self.latest()
        })
    }

    fn latest(&self) -> Option<Arc<HostReport>> {
        self.report.lock().unwrap().clone()
    }
}

const LIMITS: Limits =
    Limits { head: Duration::from_millis(400), idle: Duration::from_millis(800), stall: Duration::from_millis(900) };

struct Running {
    address: SocketAddr,
    app: Arc<App>,
    end: Option<oneshot::Sender<()>>,
    task: tokio::task::JoinHandle<()>,
}

async fn start(source: Arc<Fixed>, options: Options) -> Running {
    start_within(Limits::DEFAULT, source, options).await
}

async fn start_within(limits: Limits, source: Arc<Fixed>, options: Options) -> Running {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = Arc::new(App::new(source, options, AgentState::default()));
    let (end, ended) = oneshot::channel::<()>();
    let serving = serve_within(limits, vec![listener], Arc::clone(&app), async {
        let _ = ended.await;
    });
    Running { address, app, end: Some(end), task: tokio::spawn(serving) }
}

/// Sends bytes and reads until the server closes.
async fn raw(address: SocketAddr, request: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request).await.unwrap();
    let mut answer = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut answer));
    let _ = read.await.expect("the server did not close");
    answer
}

async fn ask(address: SocketAddr, method: &str, path: &str, headers: &str) -> (u16, String, Vec<u8>) {
    let request = format!("{method} {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{headers}\r\n");
    split(&raw(address, request.as_bytes()).await)
}

/// Status, head in lower case, body.
fn split(answer: &[u8]) -> (u16, String, Vec<u8>) {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
    let head = String::from_utf8(answer[..end].to_vec()).unwrap().to_ascii_lowercase();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), head, answer[end + 4..].to_vec())
}

async fn get(address: SocketAddr, path: &str) -> (u16, String, String) {
    let (status, head, body) = ask(address, "GET", path, "").await;
    (status, head, String::from_utf8(body).unwrap())
}

#[tokio::test]
async fn routes() {
    let running = start(Fixed::with(testing::report()), Options::default()).await;
    let table = [
        ("/metrics", 200, "text/plain; version=0.0.4; charset=utf-8", "lanewatch_finding{"),
        ("/metrics?x=1", 200, "text/plain; version=0.0.4; charset=utf-8", "lanewatch_finding{"),
        ("http://other/metrics", 200, "text/plain; version=0.0.4; charset=utf-8", "lanewatch_finding{"),
        ("/", 200, "text/html; charset=utf-8", "critical"),
        ("/-/healthy", 200, "text/plain; charset=utf-8", "healthy\n"),
        ("/-/ready", 200, "text/plain; charset=utf-8", "ready\n"),
        ("/api/v1/findings", 200, "application/json", "\"link_degraded\""),
        ("/api/v1/events", 200, "application/json", "\"link_changed\""),
        ("/api/v1/snapshot", 200, "application/json", "\"path_bandwidth_bytes_per_second\""),
        ("/metrics/", 404, "text/plain; charset=utf-8", "not found\n"),
        ("//metrics", 404, "text/plain; charset=utf-8", "not found\n"),
        ("/../metrics", 404, "text/plain; charset=utf-8", "not found\n"),
        ("/-/../metrics", 404, "text/plain; charset=utf-8", "not found\n"),
        ("/%6detrics", 404, "text/plain; charset=utf-8", "not found\n"),
        ("/Metrics", 404, "text/plain; charset=utf-8", "not found\n"),
        ("/metrics%00", 404, "text/plain; charset=utf-8", "not found\n"),
        ("/api/v1", 404, "text/plain; charset=utf-8", "not found\n"),
        ("*", 404, "text/plain; charset=utf-8", "not found\n"),
    ];
    for (path, status, content_type, part) in table {
        let (got, head, body) = get(running.address, path).await;
        assert_eq!(got, status, "{path}");
        assert!(head.contains(&format!("content-type: {content_type}")), "{path}: {head}");
        assert!(body.contains(part), "{path}: {body}");
    }
}

#[tokio::test]
async fn the_page_may_load_nothing() {
    let running = start(Arc::default(), Options::default()).await;
    let (_, head, _) = get(running.address, "/").await;
    assert!(head.contains("content-security-policy: default-src 'none'; style-src 'unsafe-inline'"), "{head}");
    assert!(!get(running.address, "/-/healthy").await.1.contains("content-security-policy"));
}

#[tokio::test]
async fn before_the_first_pass() {
    let source = Arc::new(Fixed::default());
    let running = start(Arc::clone(&source), Options::default()).await;
    for (path, status) in
        [("/-/healthy", 200), ("/-/ready", 503), ("/metrics", 503), ("/api/v1/findings", 503), ("/", 200)]
    {
        assert_eq!(get(running.address, path).await.0, status, "{path}");
    }
    *source.report.lock().unwrap() = Some(Arc::new(testing::report()));
    assert_eq!(get(running.address, "/-/ready").await.0, 200);
    assert_eq!(get(running.address, "/metrics").await.0, 200);
}

#[tokio::test]
async fn another_telemetry_path() {
    let options = Options { telemetry_path: "/t".to_owned(), ..Options::default() };
    let running = start(Fixed::with(testing::report()), options).await;
    assert_eq!(get(running.address, "/metrics").await.0, 404);
    assert_eq!(get(running.address, "/t").await.0, 200);
    assert!(get(running.address, "/").await.2.contains("href=\"/t\""));
}

#[tokio::test]
async fn methods() {
    let running = start(Fixed::with(testing::report()), Options::default()).await;
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH", "BREW"] {
        let (status, head, body) = ask(running.address, method, "/metrics", "").await;
        assert_eq!(status, 405, "{method}");
        assert!(head.contains("allow: get, head"), "{head}");
        assert_eq!(body, b"only GET and HEAD\n");
        assert_eq!(ask(running.address, method, "/nowhere", "").await.0, 404, "{method}");
    }
    let (status, _, _) = ask(running.address, "POST", "/metrics", "Content-Length: 100000000\r\n").await;
    assert_eq!(status, 405);
}

#[tokio::test]
async fn head_has_the_headers_of_get_and_no_body() {
    let running = start(Fixed::with(testing::report()), Options::default()).await;
    for path in ["/metrics", "/", "/-/healthy", "/api/v1/findings", "/nowhere"] {
        let (status, head, body) = ask(running.address, "HEAD", path, "").await;
        let (get_status, get_head, get_body) = ask(running.address, "GET", path, "").await;
        let undated = |head: &str| -> Vec<String> {
            head.lines().filter(|line| !line.starts_with("date:")).map(str::to_owned).collect()
        };
        assert_eq!((status, undated(&head)), (get_status, undated(&get_head)), "{path}");
        assert!(body.is_empty() && !get_body.is_empty());
        assert!(head.contains(&format!("content-length: {}", get_body.len())), "{head}");
    }
}

#[tokio::test]
async fn negotiation() {
    let running = start(Fixed::with(testing::report()), Options::default()).await;
    let (_, head, body) = ask(
        running.address,
        "GET",
        "/metrics",
        "Accept: application/openmetrics-text;version=1.0.0;q=0.6,*/*;q=0.2\r\nAccept-Encoding: gzip\r\n",
    )
    .await;
    assert!(head.contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8"), "{head}");
    assert!(head.contains("content-encoding: gzip") && head.contains("vary: accept, accept-encoding"), "{head}");
    let mut text = String::new();
    std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&body[..]), &mut text).unwrap();
    assert!(text.ends_with("# EOF\n"));
    let (_, head, body) = ask(running.address, "GET", "/metrics", "Accept-Encoding: gzip;q=0\r\n").await;
    assert!(!head.contains("content-encoding"), "{head}");
    assert!(body.starts_with(b"# HELP lanewatch_build_info"));
}

#[tokio::test]
async fn old_and_pipelined_requests() {
    let running = start(Fixed::with(testing::report()), Options::default()).await;
    let (status, head, body) = split(&raw(running.address, b"GET /-/healthy HTTP/1.0\r\n\r\n").await);
    assert!(status == 200 && head.starts_with("http/1.0") && body == b"healthy\n", "{head}");
    let three = "GET /-/healthy HTTP/1.1\r\nHost: h\r\n\r\nGET /-/ready HTTP/1.1\r\nHost: h\r\n\r\n\
                 GET /-/healthy HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    let answer = String::from_utf8(raw(running.address, three.as_bytes()).await).unwrap();
    assert_eq!(answer.matches("HTTP/1.1 200 OK").count(), 3, "{answer}");
    assert!(answer.find("ready\n").unwrap() < answer.rfind("healthy\n").unwrap());
}
