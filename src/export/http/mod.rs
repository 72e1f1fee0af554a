//! The HTTP server. Small on purpose: two methods, a handful of paths, and bounds on everything a client can hold.
//!
//! | path | |
//! |---|---|
//! | `/` | status page |
//! | `/metrics`, or as configured | metrics |
//! | `/-/healthy` | 200 while the program runs |
//! | `/-/ready` | 200 once a first pass is complete |
//! | `/api/v1/findings`, `/api/v1/events`, `/api/v1/snapshot` | JSON |
//! | `POST /api/v1/probe-server` | starts a server for the probe of a peer, where that is on |

mod app;
mod connection;
mod listen;
mod negotiate;
mod probe_server;
mod response;
mod stream;
mod table;

pub use app::{App, HttpOptions, ReportSource};
pub use listen::serve;
pub use probe_server::ProbeServer;

#[cfg(test)]
mod tests {
    //! The server over real sockets: routes, methods, negotiation; and the limits on what clients can hold.

    use std::future::Future;
    use std::net::SocketAddr;
    use std::pin::Pin;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::oneshot;

    use super::app::{App, HttpOptions, ReportSource};
    use super::listen::serve_within;
    use super::stream::Timeouts;
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

    impl ReportSource for Fixed {
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

    const TIMEOUTS: Timeouts = Timeouts {
        head: Duration::from_millis(400),
        idle: Duration::from_millis(800),
        grace: Duration::from_millis(900),
        least_rate: 100_000,
        answer: Duration::from_secs(20),
    };

    struct Running {
        address: SocketAddr,
        app: Arc<App>,
        end: Option<oneshot::Sender<()>>,
        task: tokio::task::JoinHandle<()>,
    }

    async fn start(source: Arc<Fixed>, options: HttpOptions) -> Running {
        start_within(Timeouts::DEFAULT, source, options).await
    }

    async fn start_within(timeouts: Timeouts, source: Arc<Fixed>, options: HttpOptions) -> Running {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let app = Arc::new(App::new(source, options, AgentState::default()));
        let (end, ended) = oneshot::channel::<()>();
        let serving = serve_within(timeouts, vec![listener], Arc::clone(&app), async {
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
        let running = start(Fixed::with(testing::report()), HttpOptions::default()).await;
        let table = [
            ("/metrics", 200, "text/plain; version=0.0.4; charset=utf-8", "lanewatch_finding{"),
            ("/metrics?x=1", 200, "text/plain; version=0.0.4; charset=utf-8", "lanewatch_finding{"),
            ("http://other/metrics", 200, "text/plain; version=0.0.4; charset=utf-8", "lanewatch_finding{"),
            ("/", 200, "text/html; charset=utf-8", "critical"),
            ("/-/healthy", 200, "text/plain; charset=utf-8", "healthy\n"),
            ("/-/ready", 200, "text/plain; charset=utf-8", "ready\n"),
            ("/api/v1/findings", 200, "application/json", "\"link_degraded\""),
            ("/api/v1/events", 200, "application/json", "\"link_changed\""),
            ("/api/v1/snapshot", 403, "text/plain; charset=utf-8", "--web.public-snapshot"),
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
    async fn the_snapshot_is_public_if_that_is_wanted() {
        let options = HttpOptions { public_snapshot: true, ..HttpOptions::default() };
        let running = start(Fixed::with(testing::report()), options).await;
        let (status, head, body) = get(running.address, "/api/v1/snapshot").await;
        assert!(status == 200 && head.contains("application/json"), "{head}");
        assert!(body.contains("\"path_bandwidth_bytes_per_second\""), "{body}");
    }

    #[tokio::test]
    async fn the_page_may_load_nothing() {
        let running = start(Arc::default(), HttpOptions::default()).await;
        let (_, head, _) = get(running.address, "/").await;
        assert!(head.contains("content-security-policy: default-src 'none'; style-src 'unsafe-inline'"), "{head}");
        assert!(!get(running.address, "/-/healthy").await.1.contains("content-security-policy"));
    }

    #[tokio::test]
    async fn before_the_first_pass() {
        let source = Arc::new(Fixed::default());
        let running = start(Arc::clone(&source), HttpOptions::default()).await;
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
        let options = HttpOptions { telemetry_path: "/t".to_owned(), ..HttpOptions::default() };
        let running = start(Fixed::with(testing::report()), options).await;
        assert_eq!(get(running.address, "/metrics").await.0, 404);
        assert_eq!(get(running.address, "/t").await.0, 200);
        assert!(get(running.address, "/").await.2.contains("href=\"/t\""));
    }

    #[tokio::test]
    async fn methods() {
        let running = start(Fixed::with(testing::report()), HttpOptions::default()).await;
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
        let running = start(Fixed::with(testing::report()), HttpOptions::default()).await;
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
        let running = start(Fixed::with(testing::report()), HttpOptions::default()).await;
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
        let running = start(Fixed::with(testing::report()), HttpOptions::default()).await;
        let (status, head, body) = split(&raw(running.address, b"GET /-/healthy HTTP/1.0\r\n\r\n").await);
        assert!(status == 200 && head.starts_with("http/1.0") && body == b"healthy\n", "{head}");
        let three = "GET /-/healthy HTTP/1.1\r\nHost: h\r\n\r\nGET /-/ready HTTP/1.1\r\nHost: h\r\n\r\n\
                 GET /-/healthy HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
        let answer = String::from_utf8(raw(running.address, three.as_bytes()).await).unwrap();
        assert_eq!(answer.matches("HTTP/1.1 200 OK").count(), 3, "{answer}");
        assert!(answer.find("ready\n").unwrap() < answer.rfind("healthy\n").unwrap());
    }

    #[tokio::test]
    async fn bad_requests() {
        let running = start(Fixed::with(testing::report()), HttpOptions::default()).await;
        let long = format!("GET / HTTP/1.1\r\nHost: h\r\nX: {}\r\n\r\n", "x".repeat(20_000));
        assert_eq!(split(&raw(running.address, long.as_bytes()).await).0, 431);
        let many = format!("GET / HTTP/1.1\r\nHost: h\r\n{}\r\n", "X: y\r\n".repeat(200));
        assert_eq!(split(&raw(running.address, many.as_bytes()).await).0, 431);
        for bad in
            ["nonsense\r\n\r\n", "GET /\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "\u{16}\u{3}\u{1}\u{2}\u{0}\u{1}\r\n\r\n"]
        {
            let answer = raw(running.address, bad.as_bytes()).await;
            assert!(answer.is_empty() || split(&answer).0 == 400, "{bad:?}");
        }
        assert_eq!(get(running.address, "/-/healthy").await.0, 200);
    }

    #[tokio::test]
    async fn concurrent_scrapes_share_one_encode() {
        let report = Arc::new(testing::report());
        let source = Arc::new(Fixed {
            report: Mutex::new(Some(Arc::clone(&report))),
            delay: Duration::from_millis(50),
            ..Fixed::default()
        });
        let running = start(Arc::clone(&source), HttpOptions::default()).await;
        let scrapes: Vec<_> = (0..50)
            .map(|_| {
                tokio::spawn(ask(running.address, "GET", "/metrics", "X-Prometheus-Scrape-Timeout-Seconds: 5\r\n"))
            })
            .collect();
        for scrape in scrapes {
            assert_eq!(scrape.await.unwrap().0, 200);
        }
        assert_eq!(running.app.encodes(), 1);
        let asked = (Duration::from_secs(1), Duration::from_millis(4_500));
        assert_eq!(source.asked.lock().unwrap().first(), Some(&asked));
        // A new state of the agent, and a new report, are told at once.
        running.app.set_agent(AgentState { reload_successful: false, ..AgentState::default() });
        assert!(get(running.address, "/metrics").await.2.contains("\nlanewatch_config_last_reload_successful 0\n"));
        *source.report.lock().unwrap() = Some(Arc::new(testing::report_of(Vec::new())));
        assert!(!get(running.address, "/metrics").await.2.contains("lanewatch_port_info{"));
        assert_eq!(running.app.encodes(), 3);
    }

    #[tokio::test]
    async fn too_many_requests_at_a_time() {
        let source = Arc::new(Fixed {
            report: Mutex::new(Some(Arc::new(testing::report()))),
            delay: TIMEOUTS.idle,
            ..Fixed::default()
        });
        let running = start(source, HttpOptions { max_requests: 2, ..HttpOptions::default() }).await;
        let scrapes: Vec<_> = (0..6).map(|_| tokio::spawn(ask(running.address, "GET", "/metrics", ""))).collect();
        let mut statuses = Vec::new();
        for scrape in scrapes {
            statuses.push(scrape.await.unwrap().0);
        }
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 200, 503, 503, 503, 503]);
        assert_eq!(get(running.address, "/metrics").await.0, 200);
    }

    #[tokio::test]
    async fn a_source_that_overstays_costs_no_scrape() {
        let source = Arc::new(Fixed {
            report: Mutex::new(Some(Arc::new(testing::report()))),
            delay: Duration::from_secs(3600),
            ..Fixed::default()
        });
        let running = start(source, HttpOptions::default()).await;
        let (status, _, _) =
            ask(running.address, "GET", "/metrics", "X-Prometheus-Scrape-Timeout-Seconds: 0.5\r\n").await;
        assert_eq!(status, 200);
    }

    #[tokio::test]
    async fn silent_clients_are_dropped() {
        let running = start_within(TIMEOUTS, Fixed::with(testing::report()), HttpOptions::default()).await;
        for start in ["", "GET /metr"] {
            let began = tokio::time::Instant::now();
            assert!(raw(running.address, start.as_bytes()).await.is_empty());
            assert!(
                began.elapsed() >= TIMEOUTS.head && began.elapsed() < TIMEOUTS.head * 10,
                "{start:?} {:?}",
                began.elapsed()
            );
        }
        // A connection that was used may rest for longer.
        let began = tokio::time::Instant::now();
        let answer = raw(running.address, b"GET /-/healthy HTTP/1.1\r\nHost: h\r\n\r\n").await;
        assert_eq!(split(&answer).0, 200);
        assert!(began.elapsed() >= TIMEOUTS.idle, "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn a_head_in_pieces_is_answered() {
        let running = start(Fixed::with(testing::report()), HttpOptions::default()).await;
        let mut stream = TcpStream::connect(running.address).await.unwrap();
        for piece in ["GET /-/hea", "lthy HTTP/1.1\r\nHost: h\r\n", "Connection: close\r\n\r\n"] {
            stream.write_all(piece.as_bytes()).await.unwrap();
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        assert_eq!(split(&answer).0, 200);
    }

    #[tokio::test]
    async fn a_head_in_drips_is_cut_off() {
        let running = start_within(TIMEOUTS, Fixed::with(testing::report()), HttpOptions::default()).await;
        let mut stream = TcpStream::connect(running.address).await.unwrap();
        let began = tokio::time::Instant::now();
        while stream.write_all(b"G").await.is_ok() && began.elapsed() < TIMEOUTS.head * 10 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(began.elapsed() < TIMEOUTS.head * 10);
    }

    /// A report whose metrics have some 6 MB.
    fn long_report() -> HostReport {
        report_with_counters(60_000)
    }

    fn report_with_counters(count: usize) -> HostReport {
        let mut device = testing::report().snapshot.devices().next().unwrap().clone();
        let names: Vec<String> = (0..count).map(|number| format!("a_counter_with_a_long_name_{number}")).collect();
        let list: Vec<(&str, Option<u64>)> = names.iter().map(|name| (name.as_str(), Some(1))).collect();
        device.counters = testing::counters(&list, true);
        testing::report_of(vec![device])
    }

    /// Asks for the metrics with little room to receive them.
    async fn reader(address: SocketAddr) -> TcpStream {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4_096).unwrap();
        let mut stream = socket.connect(address).await.unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").await.unwrap();
        stream
    }

    /// Reads `step` bytes every `pause` until the answer or the connection ends; what came.
    async fn read_slowly(stream: &mut TcpStream, step: usize, pause: Duration) -> Vec<u8> {
        let (mut all, mut buffer) = (Vec::new(), vec![0; step]);
        while let Ok(length) = stream.read(&mut buffer).await {
            if length == 0 {
                break;
            }
            all.extend(&buffer[..length]);
            tokio::time::sleep(pause).await;
        }
        all
    }

    #[tokio::test]
    async fn a_reader_below_the_least_rate_is_dropped_and_one_above_is_not() {
        let running = start_within(TIMEOUTS, Fixed::with(long_report()), HttpOptions::default()).await;
        let (mut dead, mut drip, mut slow) =
            (reader(running.address).await, reader(running.address).await, reader(running.address).await);
        let began = tokio::time::Instant::now();
        // It takes something all the time, and too little.
        let drip =
            tokio::spawn(
                async move { (read_slowly(&mut drip, 1_000, Duration::from_millis(100)).await, began.elapsed()) },
            );
        let mut taken = vec![0; 200_000];
        let mut total = 0;
        for _ in 0..6 {
            tokio::time::sleep(TIMEOUTS.grace / 3).await;
            total += slow.read_exact(&mut taken).await.unwrap();
        }
        let mut rest = Vec::new();
        total += slow.read_to_end(&mut rest).await.unwrap();
        assert!(total > 5_000_000 && rest.ends_with(b"\n"), "{total}");
        // What was on its way can be read, then the connection ends short.
        let mut got = Vec::new();
        let _ = tokio::time::timeout(Duration::from_secs(5), dead.read_to_end(&mut got)).await.expect("closed");
        assert!(got.len() < total, "{} of {total}", got.len());
        let (got, after) = drip.await.unwrap();
        assert!(got.len() < total && after < TIMEOUTS.answer, "{} after {after:?}", got.len());
        let [slow_readers, ..] = running.app.clients().closed();
        assert_eq!(slow_readers, 2);
    }

    #[tokio::test]
    async fn an_answer_has_a_longest_time_at_any_rate() {
        let timeouts = Timeouts { answer: Duration::from_secs(2), ..TIMEOUTS };
        let running = start_within(timeouts, Fixed::with(long_report()), HttpOptions::default()).await;
        let (mut steady, began) = (reader(running.address).await, tokio::time::Instant::now());
        let got = read_slowly(&mut steady, 20_000, Duration::from_millis(20)).await;
        // More than the least rate asks for.
        assert!(got.len() > 150_000 && got.len() < 5_000_000, "{}", got.len());
        assert!(began.elapsed() > Duration::from_secs(1) && began.elapsed() < Duration::from_secs(10));
    }

    #[tokio::test]
    async fn what_the_kernel_holds_for_a_client_counts_until_it_is_taken() {
        // The answer fits into the kernel's buffer, so the server is done with it at once.
        let running = start_within(TIMEOUTS, Fixed::with(testing::report()), HttpOptions::default()).await;
        let mut silent = Vec::new();
        for _ in 0..20 {
            silent.push(reader(running.address).await);
        }
        let began = tokio::time::Instant::now();
        while running.app.clients().closed()[0] < 20 {
            assert!(began.elapsed() < Duration::from_secs(5), "{:?}", running.app.clients().closed());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(began.elapsed() > TIMEOUTS.grace / 2, "{:?}", began.elapsed());
        assert_eq!(get(running.address, "/metrics").await.0, 200);
        assert_eq!(running.app.clients().closed()[0], 20);
    }

    #[tokio::test]
    async fn readers_of_old_bodies_make_room() {
        // Each of them asks when there is another report, so each holds a body of its own.
        // Some 600 kB each.
        let another_report = || report_with_counters(6_000);
        let source = Fixed::with(another_report());
        let options = HttpOptions { max_body_bytes: 3 << 20, ..HttpOptions::default() };
        let running = start(Arc::clone(&source), options).await;
        let mut readers = Vec::new();
        for _ in 0..9 {
            readers.push(reader(running.address).await);
            let mut first = [0; 100];
            readers.last_mut().unwrap().read_exact(&mut first).await.unwrap();
            *source.report.lock().unwrap() = Some(Arc::new(another_report()));
        }
        let closed = running.app.clients().closed()[1];
        assert!((3..9).contains(&closed), "{closed}");
        let mut rest = Vec::new();
        assert!(readers[0].read_to_end(&mut rest).await.is_err(), "the oldest is the first to go");
        rest.clear();
        readers[8].read_to_end(&mut rest).await.unwrap();
        assert!(rest.ends_with(b"\n"), "the newest is served");
    }

    #[tokio::test]
    async fn a_crowd_that_reads_nothing_locks_nobody_out() {
        let options = HttpOptions { max_connections: 20, ..HttpOptions::default() };
        let running = start(Fixed::with(long_report()), options).await;
        let mut crowd = Vec::new();
        for _ in 0..30 {
            crowd.push(reader(running.address).await);
        }
        assert_eq!(get(running.address, "/metrics").await.0, 200);
        assert!(running.app.clients().closed()[1] >= 10, "{:?}", running.app.clients().closed());
    }

    #[tokio::test]
    async fn answers_have_the_date_of_the_clock() {
        let running = start(Fixed::with(testing::report()), HttpOptions::default()).await;
        let (_, head, _) = get(running.address, "/-/healthy").await;
        let date = head.lines().find_map(|line| line.strip_prefix("date: ")).unwrap();
        let date = seconds_of(date);
        assert!((jiff::Timestamp::now().as_second() - date).abs() < 5, "{head}");
    }

    /// Seconds since 1970 of a `Date` in lower case.
    fn seconds_of(date: &str) -> i64 {
        let date = date.replace("gmt", "+0000");
        jiff::fmt::rfc2822::parse(&date).unwrap().timestamp().as_second()
    }

    #[tokio::test]
    async fn beyond_the_limit_the_oldest_idle_connection_makes_room() {
        let options = HttpOptions { max_connections: 3, ..HttpOptions::default() };
        let running = start(Fixed::with(testing::report()), options).await;
        let mut idle = Vec::new();
        for _ in 0..3 {
            idle.push(TcpStream::connect(running.address).await.unwrap());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(get(running.address, "/-/healthy").await.0, 200);
        let mut byte = [0];
        let closed =
            tokio::time::timeout(Duration::from_secs(2), idle[0].read(&mut byte)).await.expect("the oldest ended");
        assert!(matches!(closed, Ok(0) | Err(_)));
        assert!(tokio::time::timeout(Duration::from_millis(50), idle[2].read(&mut byte)).await.is_err());
    }

    #[tokio::test]
    async fn at_the_end_requests_at_hand_are_answered() {
        let source = Arc::new(Fixed {
            report: Mutex::new(Some(Arc::new(testing::report()))),
            delay: Duration::from_millis(300),
            ..Fixed::default()
        });
        let mut running = start(source, HttpOptions::default()).await;
        let _silent = TcpStream::connect(running.address).await.unwrap();
        let request = b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n";
        let scrape = tokio::spawn(async move { raw(running.address, request).await });
        tokio::time::sleep(Duration::from_millis(100)).await;
        running.end.take().unwrap().send(()).unwrap();
        let began = tokio::time::Instant::now();
        running.task.await.unwrap();
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
        assert_eq!(split(&scrape.await.unwrap()).0, 200);
        assert!(TcpStream::connect(running.address).await.is_err());
    }
}
