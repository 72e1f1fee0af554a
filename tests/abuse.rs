//! HTTP as nobody should speak it: the right status, bounded memory, and scrapes that are served all the while.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "common/mod.rs"]
mod common;

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use common::host::HostTree;
use common::http;
use common::run::{Server, lanewatch};
use tempfile::TempDir;

/// Idle connections at a time.
const CROWD: usize = 1_000;

/// `serve` over a small host that lives as long as the folder.
fn serve() -> (Server, TempDir) {
    let host = TempDir::new().unwrap();
    HostTree::new(2).write(host.path()).unwrap();
    let server = Server::start("serve", &["--path.rootfs", host.path().to_str().unwrap()]);
    (server, host)
}

/// Sends bytes and reads until the server closes or says nothing more for a while.
fn raw(address: SocketAddr, request: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    // A server that has refused already may close while this is being written.
    let _ = stream.write_all(request);
    let (mut answer, mut buffer) = (Vec::new(), [0; 16 * 1024]);
    while let Ok(length) = stream.read(&mut buffer) {
        if length == 0 {
            break;
        }
        answer.extend(&buffer[..length]);
    }
    answer
}

/// The statuses of the answers in these bytes.
fn statuses(answer: &[u8]) -> Vec<u16> {
    let text = String::from_utf8_lossy(answer);
    let starts = text.match_indices("HTTP/1.").map(|(at, _)| &text[at..]);
    starts.filter_map(|line| line.split(' ').nth(1)?.get(..3)?.parse().ok()).collect()
}

/// Resident memory in KiB.
fn resident(server: &Server) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.group.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn descriptors(server: &Server) -> usize {
    fs::read_dir(format!("/proc/{}/fd", server.group.pid())).unwrap().count()
}

#[test]
fn every_request_gets_the_status_it_deserves() {
    let (server, _host) = serve();
    let close = "Host: h\r\nConnection: close\r\n";
    let many = (0..200).map(|n| format!("X-{n}: {n}\r\n")).collect::<Vec<_>>().concat();
    let long = "a".repeat(20_000);
    let table: Vec<(&str, String, &[u16])> = vec![
        ("a long path", format!("GET /{long} HTTP/1.1\r\n{close}\r\n"), &[431]),
        ("a long query", format!("GET /metrics?{long} HTTP/1.1\r\n{close}\r\n"), &[431]),
        ("a path of a megabyte", format!("GET /{} HTTP/1.1\r\n{close}\r\n", "b".repeat(1 << 20)), &[431]),
        ("a long header", format!("GET /metrics HTTP/1.1\r\n{close}X: {long}\r\n\r\n"), &[431]),
        ("200 headers", format!("GET /metrics HTTP/1.1\r\n{close}{many}\r\n"), &[431]),
        ("no HTTP", "\x16\x03\x01\x02\r\n\r\n".to_owned(), &[400]),
        ("no version", "GET /metrics\r\n\r\n".to_owned(), &[400]),
        ("another version", format!("GET /metrics HTTP/3.0\r\n{close}\r\n"), &[400]),
        ("HTTP/2 without asking", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(), &[]),
        ("a header without a name", format!("GET /metrics HTTP/1.1\r\n{close}: x\r\n\r\n"), &[400]),
        (
            "two lengths",
            format!("GET /metrics HTTP/1.1\r\n{close}Content-Length: 1\r\nContent-Length: 2\r\n\r\n"),
            &[400],
        ),
        ("a negative length", format!("GET /metrics HTTP/1.1\r\n{close}Content-Length: -1\r\n\r\n"), &[400]),
        ("HTTP/1.0", "GET /metrics HTTP/1.0\r\n\r\n".to_owned(), &[200]),
        ("HTTP/1.0 that stays", "GET /-/healthy HTTP/1.0\r\nConnection: keep-alive\r\n\r\n".to_owned(), &[200]),
        ("HEAD", format!("HEAD /metrics HTTP/1.1\r\n{close}\r\n"), &[200]),
        ("POST", format!("POST /metrics HTTP/1.1\r\n{close}Content-Length: 0\r\n\r\n"), &[405]),
        (
            "a body of 10 GB that never comes",
            format!("POST /metrics HTTP/1.1\r\n{close}Content-Length: 9999999999\r\n\r\n"),
            &[405],
        ),
        (
            "chunks that never end",
            format!("GET /metrics HTTP/1.1\r\n{close}Transfer-Encoding: chunked\r\n\r\n5\r\nabc"),
            &[200],
        ),
        ("a word as a method", format!("BREW /metrics HTTP/1.1\r\n{close}\r\n"), &[405]),
        ("TRACE", format!("TRACE /metrics HTTP/1.1\r\n{close}\r\n"), &[405]),
        ("OPTIONS of all", format!("OPTIONS * HTTP/1.1\r\n{close}\r\n"), &[404]),
        ("CONNECT", format!("CONNECT example.org:443 HTTP/1.1\r\n{close}\r\n"), &[404]),
        ("two slashes", format!("GET //metrics HTTP/1.1\r\n{close}\r\n"), &[404]),
        ("an encoded letter", format!("GET /%6detrics HTTP/1.1\r\n{close}\r\n"), &[404]),
        ("an encoded slash", format!("GET /api%2fv1%2ffindings HTTP/1.1\r\n{close}\r\n"), &[404]),
        ("encoded dots", format!("GET /%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\n{close}\r\n"), &[404]),
        ("dots", format!("GET /../../etc/passwd HTTP/1.1\r\n{close}\r\n"), &[404]),
        ("dots to the metrics", format!("GET /-/../metrics HTTP/1.1\r\n{close}\r\n"), &[404]),
        ("a slash too many", format!("GET /metrics/ HTTP/1.1\r\n{close}\r\n"), &[404]),
        ("a parameter of the path", format!("GET /metrics;x=1 HTTP/1.1\r\n{close}\r\n"), &[404]),
        ("an encoded nothing", format!("GET /metrics%00 HTTP/1.1\r\n{close}\r\n"), &[404]),
        ("a query", format!("GET /metrics?a=%00&b=../.. HTTP/1.1\r\n{close}\r\n"), &[200]),
        ("absolute form", format!("GET http://example.org/metrics HTTP/1.1\r\n{close}\r\n"), &[200]),
        ("no path", format!("GET  HTTP/1.1\r\n{close}\r\n"), &[400]),
        ("a bare newline", "GET /-/healthy HTTP/1.1\nHost: h\nConnection: close\n\n".to_owned(), &[200]),
    ];
    for (what, request, expected) in table {
        let answer = raw(server.address, request.as_bytes());
        assert_eq!(statuses(&answer), expected, "{what}: {}", String::from_utf8_lossy(&answer));
        let text = String::from_utf8_lossy(&answer).into_owned();
        if what == "HEAD" {
            assert!(text.ends_with("\r\n\r\n") && text.contains("content-length: "), "{text}");
        }
        if what == "HTTP/1.0" {
            assert!(!text.to_ascii_lowercase().contains("transfer-encoding"), "{text}");
        }
        assert_eq!(server.get("/metrics").status, 200, "after {what}");
    }
}

#[test]
fn what_follows_a_body_is_not_a_request_of_its_own() {
    let (server, _host) = serve();
    // A proxy and a server that read the end of a request differently would let one client speak for another.
    let hidden = "GET /hidden HTTP/1.1\r\nHost: h\r\n\r\n";
    for lengths in [
        "Content-Length: 6\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 6\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding: xchunked\r\n",
    ] {
        let request = format!("POST /metrics HTTP/1.1\r\nHost: h\r\n{lengths}\r\n0\r\n\r\nX{hidden}");
        let found = statuses(&raw(server.address, request.as_bytes()));
        assert!(found.len() <= 2 && found.iter().all(|status| [400, 405].contains(status)), "{lengths}: {found:?}");
    }
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let (server, _host) = serve();
    let paths = ["/-/healthy", "/nothing", "/metrics", "/-/ready"];
    let asked = |n: usize| format!("GET {} HTTP/1.1\r\nHost: h\r\n\r\n", paths[n % 4]);
    let mut requests = (0..100).map(asked).collect::<Vec<_>>().concat();
    requests.push_str("GET /-/healthy HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    let found = statuses(&raw(server.address, requests.as_bytes()));
    let expected: Vec<u16> = (0..100).map(|n| [200, 404, 200, 200][n % 4]).chain([200]).collect();
    assert_eq!(found, expected);
}

#[test]
fn a_thousand_idle_connections_and_slow_ones_cost_little_and_stop_nobody() {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    let _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, raised);
    let (server, _host) = serve();
    for _ in 0..20 {
        assert_eq!(server.get("/metrics").status, 200);
    }
    let (memory, files) = (resident(&server), descriptors(&server));
    // Nothing at all, half a head, or a body that drips.
    let open = |n: usize| -> io::Result<TcpStream> {
        let mut stream = TcpStream::connect(server.address)?;
        match n % 3 {
            0 => {}
            1 => stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: h\r\nX-Slow: ")?,
            _ => stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\nx")?,
        }
        Ok(stream)
    };
    let crowd: Vec<TcpStream> = (0..CROWD).map(|n| open(n).unwrap()).collect();
    let began = Instant::now();
    let mut slowest = Duration::ZERO;
    while began.elapsed() < Duration::from_secs(3) {
        let asked = Instant::now();
        let answer = http::get(server.address, "/metrics").unwrap();
        assert!(answer.status == 200 && answer.text().contains("lanewatch_device_info"));
        slowest = slowest.max(asked.elapsed());
        thread::sleep(Duration::from_millis(20));
    }
    let grown = resident(&server).saturating_sub(memory);
    println!("{CROWD} connections: {grown} KiB more, slowest scrape {slowest:.1?}");
    assert!(grown < 24 * 1024, "{grown} KiB more for {CROWD} connections");
    drop(crowd);
    let began = Instant::now();
    while descriptors(&server) > files + 5 {
        assert!(began.elapsed() < Duration::from_secs(20), "{} descriptors, {files} before", descriptors(&server));
        thread::sleep(Duration::from_millis(100));
    }
}

/// What a user, a guest or a card could put into a name: move the cursor, clear the screen, forge a line, turn letters
/// around, and be very long.
const HOSTILE: &str = "vm\x1b[2J\x1b]0;x\x07\u{9b}31m\ncritical pcie_degraded forged\r\u{202e}x";

#[test]
fn names_of_others_forge_nothing_in_any_output() {
    let host = TempDir::new().unwrap();
    let mut tree = HostTree::new(2);
    tree.cards[0].vfs = 2;
    tree.write(host.path()).unwrap();
    let device = fs::canonicalize(host.path().join("sys/class/infiniband/mlx5_0")).unwrap();
    for name in ["fw_ver", "board_id", "hca_type"] {
        fs::write(device.join(name), format!("{HOSTILE}\n")).unwrap();
    }
    let proc = host.path().join("proc/4242");
    fs::create_dir_all(&proc).unwrap();
    fs::write(proc.join("comm"), "qemu-system-x86\n").unwrap();
    let arguments = format!("/usr/bin/qemu-system-x86_64\0-name\0guest={HOSTILE}{}\0", "y".repeat(60_000));
    fs::write(proc.join("cmdline"), arguments).unwrap();
    fs::create_dir_all(host.path().join("dev")).unwrap();
    fs::write(
        host.path().join("kmsg"),
        "3,1,1000,-;mlx5_core 0000:18:00.0: mlx5_cmd_out_err: \\x1b[2Jbad\\x0acritical forged\n",
    )
    .unwrap();
    let root = host.path().to_str().unwrap();
    let commands: [&[&str]; 8] = [
        &["check", "--sample", "0", "--verbose"],
        &["check", "--sample", "0", "--format", "nagios"],
        &["check", "--sample", "0", "--format", "npd"],
        &["check", "--sample", "0", "--format", "json"],
        &["explain", "--color", "never"],
        &["vf"],
        &["vf", "--format", "json"],
        &["metrics"],
    ];
    let clean = |what: &str, text: &str| {
        for line in text.lines() {
            let odd = line.chars().find(|c| c.is_control() && *c != '\t' || *c == '\u{202e}');
            assert!(odd.is_none(), "{what}: {odd:?} in {line:?}");
            assert!(!line.starts_with("critical pcie_degraded forged"), "{what}: {line}");
            assert!(what.contains("json") || line.len() < 8_000, "{what}: a line of {} bytes", line.len());
        }
    };
    for arguments in commands {
        let output = lanewatch(&[arguments, &["--path.rootfs", root, "--storage.path", "/nonexistent"]].concat());
        assert!(!output.stdout.is_empty(), "{arguments:?}: {}", output.stderr);
        clean(&arguments.join(" "), &output.stdout);
        clean(&arguments.join(" "), &output.stderr);
    }
    let output = lanewatch(&["metrics", "--path.rootfs", root, "--storage.path", "/nonexistent"]);
    assert!(output.stdout.contains("\\\\u001b[2J"), "the name is shown, escaped");
    let output = lanewatch(&["check", "--config.file", "/nonexistent/\x1b[2J\nlanewatch: forged"]);
    assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);
    clean("an error", &output.stderr);
    let server = Server::start("serve", &["--path.rootfs", root]);
    for path in ["/metrics", "/", "/api/v1/findings", "/api/v1/events"] {
        let text = server.get(path).text();
        let odd = text.chars().find(|c| c.is_control() && !matches!(c, '\n' | '\t') || *c == '\u{202e}');
        assert!(odd.is_none(), "{path}: {odd:?}");
    }
    clean("the log", &server.log());
}
