//! perftest between two processes: the other end is this port itself, or somebody else's server.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::time::{Duration, Instant};

use procfs::net::{TcpNetEntry, TcpState};
use serde::{Deserialize, Serialize};

use super::perftest::BandwidthUnit;
use super::process::RunDirectory;
use super::process::Toolbox;
use super::process::{Child, Invocation, ProcessExit, is_stopped};
use super::process::{PerftestOutcome, classify};
use super::target::BenchmarkTarget;
use crate::assess::benchmark::Ceiling;
use crate::model::benchmark::{Doubt, Failure};

/// A program of perftest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum BenchmarkTool {
    /// Bandwidth of writes.
    #[serde(rename = "ib_write_bw")]
    WriteBandwidth,
    /// Latency of writes.
    #[serde(rename = "ib_write_lat")]
    WriteLatency,
    /// Latency of reads.
    #[serde(rename = "ib_read_lat")]
    ReadLatency,
    /// TCP.
    #[serde(rename = "iperf3")]
    Iperf,
}

impl BenchmarkTool {
    /// Its file name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::WriteBandwidth => "ib_write_bw",
            Self::WriteLatency => "ib_write_lat",
            Self::ReadLatency => "ib_read_lat",
            Self::Iperf => "iperf3",
        }
    }
}

/// What both ends do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestPlan {
    /// The program.
    pub program: BenchmarkTool,
    /// Message size in bytes; latency has its own.
    pub size: u64,
    /// Queue pairs; latency has one.
    pub queue_pairs: u32,
    /// How long bandwidth is measured, in whole seconds.
    pub duration: Duration,
    /// Whether both directions are measured at once; the result is their sum.
    pub both: bool,
}

/// How long things may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// A server, until it listens.
    pub listen: Duration,
    /// A client, until it comes to the server that was started for it.
    pub connect: Duration,
    /// A program, beyond the time that it measures.
    pub overrun: Duration,
}

impl Timeouts {
    /// All of it, in proportion to what a program may take beyond the time that it measures.
    pub fn from_overrun(overrun: Duration) -> Self {
        Self { listen: overrun / 6, connect: overrun / 3, overrun }
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self::from_overrun(Duration::from_secs(30))
    }
}

/// Bytes of a message whose latency is measured.
const SMALL: u64 = 8;
/// Messages whose latency is measured.
const MESSAGES: u32 = 2_000;
/// Tries with another TCP port when somebody else took the first.
const TRIES: u32 = 3;

/// A server that somebody else started for this plan.
#[derive(Debug, Clone, PartialEq)]
pub struct RemoteServer {
    /// Name or address of the host.
    pub host: String,
    /// The TCP port that it listens on.
    pub tcp_port: u16,
    /// What its lane could carry, as it says.
    pub ceiling: Option<Ceiling>,
}

/// Somebody who can start the other end.
pub trait Peer {
    /// The name of the other host.
    fn name(&self) -> &str;

    /// Name or address that the data goes to, as far as it is known before a server is started.
    fn host(&self) -> &str {
        self.name()
    }

    /// Has a server started for a plan.
    ///
    /// # Errors
    /// Nobody answers, or the request was refused.
    fn start(&self, plan: &TestPlan) -> Result<RemoteServer, PeerError>;
}

/// Why a peer starts no server: nothing of it is known of the device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerError {
    /// Why.
    pub reason: Doubt,
    /// One sentence, or a part of one.
    pub text: String,
}

/// A server of this host: dropped, it is gone. The other end may be this host or another.
#[derive(Debug)]
pub struct LocalServer {
    /// The TCP port that it listens on.
    pub tcp_port: u16,
    child: Child,
    _directory: RunDirectory,
}

impl LocalServer {
    /// Starts the server of a plan on a free TCP port.
    ///
    /// # Errors
    /// The program is not there or cannot be started, or there is no free port.
    pub fn start(tools: &Toolbox, target: &BenchmarkTarget, plan: &TestPlan) -> io::Result<Self> {
        let program = tools.find(plan.program.name()).ok_or(io::ErrorKind::NotFound)?;
        let directory = RunDirectory::new()?;
        let tcp_port = free_port()?;
        let arguments = arguments(target, plan, tcp_port, None, None);
        let child = Child::start(&Invocation { program, arguments }, directory.path(), target.cpus.as_ref())?;
        Ok(Self { tcp_port, child, _directory: directory })
    }

    /// Waits until it listens; it may listen in a way that cannot be seen. False when it has ended.
    pub fn wait_until_listening(&self, timeouts: Duration) -> bool {
        let until = Instant::now() + timeouts;
        while !self.child.is_over() {
            if is_listening(self.tcp_port) || Instant::now() >= until {
                return true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        false
    }

    /// Waits until somebody connects. False when nobody did, and it may be ended.
    pub fn wait_for_client(&self, timeouts: Duration) -> bool {
        let until = Instant::now() + timeouts;
        loop {
            if self.child.is_over() || is_connected(self.tcp_port) {
                return true;
            }
            if is_stopped() || Instant::now() >= until {
                return false;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Waits for its end until a moment, and ends it then.
    pub fn finish(mut self, until: Instant) -> ProcessExit {
        self.child.wait(until)
    }
}

/// Runs a plan: against a server of this host (a loop), or a peer's.
pub fn run(
    tools: &Toolbox,
    target: &BenchmarkTarget,
    plan: &TestPlan,
    peer: Option<&RemoteServer>,
    timeouts: Timeouts,
) -> io::Result<PerftestOutcome> {
    let Some(peer) = peer else {
        let mut attempt = looped(tools, target, plan, timeouts)?;
        for _ in 1..TRIES {
            if !matches!(attempt, PerftestOutcome::Inconclusive(Doubt::PortTaken, _)) {
                break;
            }
            attempt = looped(tools, target, plan, timeouts)?;
        }
        return Ok(attempt);
    };
    let (attempt, _) = client(tools, target, plan, &peer.host, peer.tcp_port, timeouts)?;
    Ok(attempt)
}

fn looped(
    tools: &Toolbox,
    target: &BenchmarkTarget,
    plan: &TestPlan,
    timeouts: Timeouts,
) -> io::Result<PerftestOutcome> {
    let server = LocalServer::start(tools, target, plan)?;
    let name = plan.program.name();
    if !server.wait_until_listening(timeouts.listen) {
        let ended = server.finish(Instant::now());
        let attempt = classify(name, &ended, None, BandwidthUnit::GigabitsPerSecond);
        return Ok(match attempt {
            PerftestOutcome::Measured(_) => {
                PerftestOutcome::Inconclusive(Doubt::NoResult, format!("the {name} server exited"))
            }
            other => other,
        });
    }
    let (attempt, over) = client(tools, target, plan, "127.0.0.1", server.tcp_port, timeouts)?;
    // A server whose client is gone may wait for ever.
    let wait = if over { Duration::from_secs(2) } else { Duration::ZERO };
    let ended = server.finish(Instant::now() + wait);
    let cause = |attempt: &PerftestOutcome| {
        matches!(
            attempt,
            PerftestOutcome::Failed(Failure::TcpSetup, _)
                | PerftestOutcome::Inconclusive(Doubt::NoResult | Doubt::Timeout, _)
        )
    };
    if cause(&attempt) {
        // The server may know better.
        match classify(name, &ProcessExit { timed_out: false, ..ended }, None, BandwidthUnit::GigabitsPerSecond) {
            PerftestOutcome::Failed(failure, text) => return Ok(PerftestOutcome::Failed(failure, text)),
            taken @ PerftestOutcome::Inconclusive(Doubt::PortTaken, _) => return Ok(taken),
            _ => {}
        }
    }
    Ok(attempt)
}

/// Runs the client; whether it ended by itself comes back too.
fn client(
    tools: &Toolbox,
    target: &BenchmarkTarget,
    plan: &TestPlan,
    host: &str,
    tcp_port: u16,
    timeouts: Timeouts,
) -> io::Result<(PerftestOutcome, bool)> {
    let name = plan.program.name();
    let program = tools.find(name).ok_or(io::ErrorKind::NotFound)?;
    let directory = RunDirectory::new()?;
    let result = directory.path().join("result.json");
    let json = tools.writes_json(&program).then_some(result.as_path());
    let arguments = arguments(target, plan, tcp_port, json, Some(host));
    let mut child = Child::start(&Invocation { program, arguments }, directory.path(), target.cpus.as_ref())?;
    let measured = if plan.program == BenchmarkTool::WriteBandwidth { plan.duration } else { Duration::ZERO };
    let ended = child.wait(Instant::now() + measured + timeouts.overrun);
    let file = json.and_then(|path| read(path).ok());
    Ok((classify(name, &ended, file.as_deref(), BandwidthUnit::GigabitsPerSecond), !ended.timed_out))
}

/// The command line of an end. Both must have the same but for the host.
fn arguments(
    target: &BenchmarkTarget,
    plan: &TestPlan,
    tcp_port: u16,
    json: Option<&Path>,
    host: Option<&str>,
) -> Vec<String> {
    if plan.program == BenchmarkTool::Iperf {
        // A server of TCP; its client has a runner of its own.
        return ["--server", "--one-off", "--port", &tcp_port.to_string()].map(str::to_owned).to_vec();
    }
    let mut arguments: Vec<String> = Vec::new();
    let mut option = |name: &str, value: Option<String>| {
        arguments.push(name.to_owned());
        arguments.extend(value);
    };
    option("-d", Some(target.port.device.to_string()));
    option("-i", Some(target.port.port.to_string()));
    option("-p", Some(tcp_port.to_string()));
    option("-F", None);
    if let Some(index) = target.gid_index {
        option("-x", Some(index.to_string()));
    }
    if plan.program == BenchmarkTool::WriteBandwidth {
        option("-s", Some(plan.size.to_string()));
        option("-q", Some(plan.queue_pairs.to_string()));
        option("-D", Some(plan.duration.as_secs().max(1).to_string()));
        option("-f", Some((plan.duration.as_secs() / 5).min(2).to_string()));
        option("--report_gbits", None);
        if plan.both {
            option("-b", None);
        }
    } else {
        option("-s", Some(SMALL.to_string()));
        option("-n", Some(MESSAGES.to_string()));
    }
    if let Some(path) = json {
        option("--out_json", None);
        option(&format!("--out_json_file={}", path.display()), None);
    }
    arguments.extend(host.map(str::to_owned));
    arguments
}

/// The start of a result file: none is longer.
fn read(path: &Path) -> io::Result<String> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(1 << 20).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// A TCP port that nobody has now.
fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?.local_addr()?.port())
}

/// Whether somebody listens on a TCP port; asked of the kernel, since a connection would be taken for the client's.
fn is_listening(port: u16) -> bool {
    sockets(port, |state| *state == TcpState::Listen)
}

/// Whether somebody has connected to a TCP port.
fn is_connected(port: u16) -> bool {
    sockets(port, |state| *state != TcpState::Listen)
}

fn sockets(port: u16, wanted: impl Fn(&TcpState) -> bool) -> bool {
    let any = |entries: procfs::ProcResult<Vec<TcpNetEntry>>| {
        let mut entries = entries.into_iter().flatten();
        entries.any(|entry| entry.local_address.port() == port && wanted(&entry.state))
    };
    any(procfs::net::tcp()) || any(procfs::net::tcp6())
}
