//! What clients can ask for, hold and spoil.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{Fixed, LIMITS, Options, ask, get, raw, split, start, start_within};
use crate::export::{AgentState, testing};

#[tokio::test]
async fn bad_requests() {
    let running = start(Fixed::with(testing::report()), Options::default()).await;
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
    let running = start(Arc::clone(&source), Options::default()).await;
    let scrapes: Vec<_> = (0..50)
        .map(|_| tokio::spawn(ask(running.address, "GET", "/metrics", "X-Prometheus-Scrape-Timeout-Seconds: 5\r\n")))
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
        delay: LIMITS.idle,
        ..Fixed::default()
    });
    let running = start(source, Options { max_requests: 2, ..Options::default() }).await;
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
    let running = start(source, Options::default()).await;
    let (status, _, _) = ask(running.address, "GET", "/metrics", "X-Prometheus-Scrape-Timeout-Seconds: 0.5\r\n").await;
    assert_eq!(status, 200);
}

#[tokio::test]
async fn silent_clients_are_dropped() {
    let running = start_within(LIMITS, Fixed::with(testing::report()), Options::default()).await;
    for start in ["", "GET /metr"] {
        let began = tokio::time::Instant::now();
        assert!(raw(running.address, start.as_bytes()).await.is_empty());
        assert!(
            began.elapsed() >= LIMITS.head && began.elapsed() < LIMITS.head * 10,
            "{start:?} {:?}",
            began.elapsed()
        );
    }
    // A connection that was used may rest for longer.
    let began = tokio::time::Instant::now();
    let answer = raw(running.address, b"GET /-/healthy HTTP/1.1\r\nHost: h\r\n\r\n").await;
    assert_eq!(split(&answer).0, 200);
    assert!(began.elapsed() >= LIMITS.idle, "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_head_in_pieces_is_answered() {
    let running = start(Fixed::with(testing::report()), Options::default()).await;
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
    let running = start_within(LIMITS, Fixed::with(testing::report()), Options::default()).await;
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    let began = tokio::time::Instant::now();
    while stream.write_all(b"G").await.is_ok() && began.elapsed() < LIMITS.head * 10 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(began.elapsed() < LIMITS.head * 10);
}

#[tokio::test]
async fn a_reader_that_takes_nothing_is_dropped_and_a_slow_one_is_not() {
    let mut device = testing::report().snapshot.devices().next().unwrap().clone();
    let names: Vec<String> = (0..60_000).map(|number| format!("a_counter_with_a_long_name_{number}")).collect();
    let list: Vec<(&str, Option<u64>)> = names.iter().map(|name| (name.as_str(), Some(1))).collect();
    device.counters = testing::counters(&list, true);
    let running = start_within(LIMITS, Fixed::with(testing::report_of(vec![device])), Options::default()).await;
    let request = b"GET /metrics HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    let connect = || async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4_096).unwrap();
        let mut stream = socket.connect(running.address).await.unwrap();
        stream.write_all(request).await.unwrap();
        stream
    };
    let (mut dead, mut slow) = (connect().await, connect().await);
    let mut taken = vec![0; 200_000];
    let mut total = 0;
    for _ in 0..6 {
        tokio::time::sleep(LIMITS.stall / 3).await;
        total += slow.read_exact(&mut taken).await.unwrap();
    }
    let mut rest = Vec::new();
    total += slow.read_to_end(&mut rest).await.unwrap();
    assert!(total > 5_000_000 && rest.ends_with(b"\n"), "{total}");
    // What was on its way can be read, then the connection ends short.
    let mut got = Vec::new();
    let _ = tokio::time::timeout(Duration::from_secs(5), dead.read_to_end(&mut got)).await.expect("closed");
    assert!(got.len() < total, "{} of {total}", got.len());
}

#[tokio::test]
async fn beyond_the_limit_the_oldest_idle_connection_makes_room() {
    let options = Options { max_connections: 3, ..Options::default() };
    let running = start(Fixed::with(testing::report()), options).await;
    let mut idle = Vec::new();
    for _ in 0..3 {
        idle.push(TcpStream::connect(running.address).await.unwrap());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(get(running.address, "/-/healthy").await.0, 200);
    let mut byte = [0];
    let closed = tokio::time::timeout(Duration::from_secs(2), idle[0].read(&mut byte)).await.expect("the oldest ended");
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
    let mut running = start(source, Options::default()).await;
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
