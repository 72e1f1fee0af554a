//! Clients that read as slowly as they can.

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketType};
use tempfile::TempDir;

use crate::common::http;
use crate::common::run::{Server, free_address, program};
use crate::common::vfs::VfHost;

const READERS: usize = 2_000;
/// Memory of the agent.
const MEMORY: u64 = 64 << 20;
/// How long scrapes are counted.
const ATTACK: Duration = Duration::from_secs(20);

/// Readers that take 1 KiB every 300 ms of what they asked for. One that is closed comes back.
struct SlowReaders {
    stop: Arc<AtomicBool>,
    closed: Arc<AtomicU64>,
    thread: Option<thread::JoinHandle<()>>,
}

fn open(address: SocketAddr, request: &str) -> Option<TcpStream> {
    // Before it connects, so that it never offers more room.
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).ok()?;
    rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 4096).ok()?;
    rustix::net::connect(&socket, &address).ok()?;
    let mut stream = TcpStream::from(socket);
    stream.write_all(request.as_bytes()).ok()?;
    stream.set_nonblocking(true).ok()?;
    Some(stream)
}

impl SlowReaders {
    fn start(address: SocketAddr, number: usize, request: &'static str) -> Self {
        let (stop, closed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, counted) = (Arc::clone(&stop), Arc::clone(&closed));
        let thread = thread::spawn(move || {
            let mut readers: Vec<Option<TcpStream>> = Vec::new();
            while readers.len() < number && !stopped.load(Ordering::Relaxed) {
                readers.extend((0..number.min(50)).map(|_| open(address, request)));
                thread::sleep(Duration::from_millis(50));
            }
            let mut buffer = [0; 1024];
            while !stopped.load(Ordering::Relaxed) {
                let mut reopened = 0;
                for reader in &mut readers {
                    let gone = match reader.as_mut().map(|stream| stream.read(&mut buffer)) {
                        None | Some(Ok(0)) => true,
                        Some(Ok(_)) => false,
                        Some(Err(error)) => error.kind() != ErrorKind::WouldBlock,
                    };
                    if gone {
                        counted.fetch_add(u64::from(reader.take().is_some()), Ordering::Relaxed);
                        if reopened < 20 {
                            *reader = open(address, request);
                            reopened += 1;
                        }
                    }
                }
                thread::sleep(Duration::from_millis(300));
            }
        });
        Self { stop, closed, thread: Some(thread) }
    }
}

impl Drop for SlowReaders {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().unwrap().join();
    }
}

/// Resident memory, in bytes.
fn resident(server: &Server) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.group.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// Memory of all TCP sockets of the system, in bytes.
fn socket_memory() -> u64 {
    let text = fs::read_to_string("/proc/net/sockstat").unwrap();
    let line = text.lines().find(|line| line.starts_with("TCP:")).unwrap();
    line.rsplit(' ').next().unwrap().parse::<u64>().unwrap() * 4096
}

/// A control group that holds a process to so much memory, of version 2 or 1; none where nobody can make one.
fn limit_memory(pid: u32, bytes: u64) -> Option<PathBuf> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = |of: &str| {
        let line = own.lines().find_map(|line| line.split_once(of).map(|(_, path)| path));
        line.map(|path| path.trim_start_matches('/').to_owned())
    };
    let group = format!("lanewatch-test-{pid}");
    let version_2 = path("0::").map(|own| (Path::new("/sys/fs/cgroup").join(own).join(&group), "memory.max"));
    let version_1 = path(":memory:")
        .map(|own| (Path::new("/sys/fs/cgroup/memory").join(own).join(&group), "memory.limit_in_bytes"));
    version_2.into_iter().chain(version_1).find_map(|(group, limit)| {
        fs::create_dir(&group).ok()?;
        // A folder on another file system has no such file.
        let limited = group.join(limit).exists()
            && fs::write(group.join(limit), bytes.to_string()).is_ok()
            && fs::write(group.join("cgroup.procs"), pid.to_string()).is_ok();
        if !limited {
            let _ = fs::remove_dir(&group);
        }
        limited.then_some(group)
    })
}

/// The agent over so many VFs.
fn serve(pfs: u32, vfs: u32) -> (Server, TempDir) {
    let host = TempDir::new().unwrap();
    VfHost { pfs, vfs, here: true }.write(host.path()).unwrap();
    let (address, directory) = (free_address(), TempDir::new().unwrap());
    let mut command = program();
    command.args(["serve", "--storage.path", "state", "--web.listen-address", &address.to_string()]);
    command.args(["--web.public-snapshot", "--path.rootfs"]).arg(host.path());
    (Server::spawn(command, address, directory, "/-/ready"), host)
}

/// How long a scrape takes that must come whole.
fn timed(server: &Server, length: usize) -> Duration {
    let asked = Instant::now();
    let answer = http::get(server.address, "/metrics");
    let took = asked.elapsed();
    let whole = answer.as_ref().is_ok_and(|answer| answer.status == 200 && answer.body.len() > length / 2);
    assert!(whole, "{:?} after {took:?}\n{}", answer.map(|answer| answer.status), server.log());
    took
}

#[test]
fn two_thousand_slow_readers_lock_nobody_out_and_hold_little_memory() {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    let _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, raised);
    let (server, _host) = serve(2, 128);
    let length = server.get("/metrics").body.len();
    let alone = (0..20).map(|_| timed(&server, length)).max().unwrap();
    let group = limit_memory(server.group.pid(), MEMORY);
    let (before, sockets) = (resident(&server), socket_memory());
    let readers =
        SlowReaders::start(server.address, READERS, "GET /metrics HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    let (began, mut took, mut most, mut kernel) = (Instant::now(), Vec::new(), 0, 0);
    while began.elapsed() < ATTACK {
        took.push(timed(&server, length));
        most = most.max(resident(&server));
        kernel = kernel.max(socket_memory().saturating_sub(sockets));
        thread::sleep(Duration::from_millis(100));
    }
    let closed = readers.closed.load(Ordering::Relaxed);
    took.sort_unstable();
    let slowest = *took.last().unwrap();
    println!(
        "{READERS} slow readers of {length} bytes: {} scrapes, slowest {slowest:.1?} ({alone:.1?} \
         alone), middle {:.1?}; {} MiB resident \
         ({} before), sockets {} MiB more; {closed} readers closed; memory limit: {}",
        took.len(),
        took[took.len() / 2],
        most >> 20,
        before >> 20,
        kernel >> 20,
        if group.is_some() { "cgroup" } else { "asserted" },
    );
    drop(readers);
    assert!(slowest < Duration::from_secs(1), "a scrape took {slowest:.1?}, {alone:.1?} alone");
    assert!(most < MEMORY, "{} MiB resident", most >> 20);
    assert!(kernel < 48 << 20, "{} MiB in sockets", kernel >> 20);
    thread::sleep(Duration::from_millis(1_100));
    let text = server.get("/metrics").text();
    let counted = |reason: &str| {
        let name = format!("lanewatch_web_closed_connections_total{{reason=\"{reason}\"}} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&name));
        line.map_or(0.0, |value| value.parse::<f64>().unwrap())
    };
    assert!(counted("too_many_answers") > 100.0, "{text}");
    assert!(server.log().contains("connections closed by the server"), "{}", server.log());
    if let Some(group) = group {
        drop(server);
        let _ = fs::remove_dir(group);
    }
}

#[test]
fn a_slow_reader_is_closed_and_a_fast_one_is_not() {
    let (server, _host) = serve(1, 64);
    let _slow = SlowReaders::start(server.address, 3, "GET /api/v1/snapshot HTTP/1.1\r\nHost: h\r\n\r\n");
    let (began, mut closed) = (Instant::now(), false);
    while !closed {
        assert!(began.elapsed() < Duration::from_secs(40), "slow readers stay\n{}", server.log());
        let text = server.get("/metrics").text();
        closed = text.contains("closed_connections_total{reason=\"slow_reader\"} 3");
        thread::sleep(Duration::from_millis(500));
    }
    assert!(began.elapsed() > Duration::from_secs(8), "{:?}", began.elapsed());
}

#[test]
fn the_snapshot_asks_for_a_login() {
    let host = TempDir::new().unwrap();
    VfHost { pfs: 1, vfs: 2, here: true }.write(host.path()).unwrap();
    let root = host.path().to_str().unwrap();
    let server = Server::start("serve", &["--path.rootfs", root]);
    let answer = server.get("/api/v1/snapshot");
    assert_eq!(answer.status, 403, "{}", answer.text());
    assert!(answer.text().contains("--web.public-snapshot"), "{}", answer.text());
    assert_eq!(server.get("/api/v1/findings").status, 200);
    let server = Server::start("serve", &["--path.rootfs", root, "--web.public-snapshot"]);
    assert_eq!(server.get("/api/v1/snapshot").status, 200);
}
