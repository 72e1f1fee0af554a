//! Starts servers for peers: one at a time, where nothing is disturbed, and never for long.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::authentication::PeerKey;
use super::authentication::{Credentials, Rejection, RequestAuthenticator, millis};
use super::request::RequestResult;
use super::request::{ErrorDocument, PathCapacity, ServerRequest, StartedServer};
use crate::bench::context::BenchmarkContext;
use crate::bench::guard;
use crate::bench::guard::HostLock;
use crate::bench::process::Toolbox;
use crate::bench::process::is_stopped;
use crate::bench::rdma::{BenchmarkTool, LocalServer, TestPlan, Timeouts};
use crate::bench::target::BenchmarkTarget;
use crate::model::benchmark::{Benchmark, BenchmarkKey, SkipReason};
use crate::model::ids::PortKey;
use crate::watch::clock::Clock;
use crate::watch::{HostReport, PollerHandle};

/// How long the server before may take to end: a probe runs several, one after the other.
const AFTER: Duration = Duration::from_secs(2);
/// So long the traffic of a port may be that of the same peer's probe, since its first server.
const VISIT: Duration = Duration::from_secs(180);

/// Who was let to a port last, and since when.
type Visit = (Option<IpAddr>, PortKey, Instant);

/// Starts servers.
pub struct BenchmarkServers {
    handle: PollerHandle,
    clock: Arc<dyn Clock>,
    context: BenchmarkContext,
    tools: Arc<Toolbox>,
    authenticator: RequestAuthenticator,
    visit: Mutex<Option<Visit>>,
    /// Whoever keeps the last server.
    watch: Mutex<Option<JoinHandle<()>>>,
}

/// The answer to a request.
#[derive(Debug)]
pub struct PeerResponse {
    /// How it ended.
    pub result: RequestResult,
    /// The document.
    pub body: Vec<u8>,
    /// Its signature.
    pub signature: Option<String>,
}

impl BenchmarkServers {
    /// One for the host that a poller reads.
    pub fn new(
        handle: PollerHandle,
        clock: Arc<dyn Clock>,
        context: BenchmarkContext,
        tools: Toolbox,
        authenticator: RequestAuthenticator,
    ) -> Self {
        Self {
            handle,
            clock,
            context,
            tools: Arc::new(tools),
            authenticator,
            visit: Mutex::default(),
            watch: Mutex::default(),
        }
    }

    /// Answers a request; it may take some seconds.
    pub fn answer(&self, from: Option<IpAddr>, shown: &Credentials, body: &[u8]) -> PeerResponse {
        let now = self.clock.now().wall;
        let judged = self.authenticator.judge(shown, body, now);
        let (key, started) = match judged {
            Ok(key) => (key, self.follow(from, body)),
            Err(rejection) => (None, Err(rejection)),
        };
        match started {
            Ok(started) => Self::yes(key.as_ref(), shown, &started),
            Err(rejection) => {
                let skewed = rejection.result == RequestResult::ClockSkew;
                tracing::debug!(result = rejection.result.as_str(), "no server for a peer: {}", rejection.text);
                PeerResponse::no(&rejection, skewed.then(|| millis(now)))
            }
        }
    }

    /// Waits until nothing is left of the last server, when this process is asked to end.
    pub fn finish(&self) {
        let last = self.watch.lock().unwrap_or_else(PoisonError::into_inner).take();
        // One that panicked has nothing left either.
        let _ = last.map(JoinHandle::join);
    }

    fn yes(key: Option<&PeerKey>, shown: &Credentials, started: &StartedServer) -> PeerResponse {
        let body = serde_json::to_vec(started).unwrap_or_default();
        let nonce = shown.nonce.as_deref().unwrap_or_default();
        let signature = key.map(|key| key.sign_answer(nonce, &body));
        PeerResponse { result: RequestResult::Started, body, signature }
    }

    fn follow(&self, from: Option<IpAddr>, body: &[u8]) -> Result<StartedServer, Rejection> {
        let request = ServerRequest::parse(body).map_err(|why| Rejection::new(RequestResult::Malformed, why))?;
        let plan = request.plan();
        let unavailable = |text: &str| Rejection::new(RequestResult::Unavailable, text);
        let report = self.handle.latest().ok_or_else(|| unavailable("the host has not been read yet"))?;
        let ports = self.context.ports(&report);
        let port = request.port_of(ports.len()).and_then(|index| ports.get(index));
        let port = port.ok_or_else(|| unavailable("no port is active"))?;
        let probe = if plan.program == BenchmarkTool::Iperf { Benchmark::TcpPeer } else { Benchmark::RdmaPeer };
        if self.tools.find(plan.program.name()).is_none() {
            return Err(unavailable(&format!("{} is not installed", plan.program.name())));
        }
        let lock = self.lock()?;
        self.may_run(from, &report, &BenchmarkKey { probe, port: Some(port.clone()) })?;
        let target = self.context.target(&report, port).ok_or_else(|| unavailable("the port no longer exists"))?;
        if is_stopped() {
            return Err(not_started("the agent is shutting down"));
        }
        let lane = target.ceiling.as_ref().map(PathCapacity::from);
        let name = plan.program.name();
        let tcp_port = self.start(target, plan, lock)?;
        tracing::info!(%port, program = name, tcp_port, "serves a peer");
        Ok(StartedServer { tcp_port, lane })
    }

    /// Starts a server, and a thread that keeps it and the lock. The TCP port comes back.
    fn start(&self, target: BenchmarkTarget, plan: TestPlan, lock: HostLock) -> Result<u16, Rejection> {
        let (tools, timeouts) = (Arc::clone(&self.tools), self.context.parameters.timeouts);
        let (tell, told) = mpsc::channel();
        let keep = move || {
            // Here, since a program dies with the thread that starts it: that of a request ends when it is idle.
            let serving = match listening(&tools, &target, &plan, timeouts) {
                Ok(serving) => serving,
                Err(rejection) => return drop(tell.send(Err(rejection))),
            };
            let until = Instant::now() + plan.duration + timeouts.overrun;
            if tell.send(Ok(serving.tcp_port)).is_ok() {
                // Who asked may have thought better of it, or be gone: the host does not wait for long.
                let came = serving.wait_for_client(timeouts.connect);
                serving.finish(if came { until } else { Instant::now() });
            }
            drop(lock);
        };
        let kept = std::thread::Builder::new().name("probe-server".to_owned()).spawn(keep);
        let kept = kept.map_err(|error| not_started(format!("cannot start a thread: {error}")))?;
        *self.watch.lock().unwrap_or_else(PoisonError::into_inner) = Some(kept);
        told.recv().unwrap_or_else(|_| Err(not_started("its thread exited")))
    }

    fn lock(&self) -> Result<HostLock, Rejection> {
        let until = Instant::now() + AFTER;
        loop {
            match HostLock::take(&self.context.lock) {
                Ok(Some(lock)) => return Ok(lock),
                Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(20)),
                Ok(None) => {
                    return Err(Rejection::new(RequestResult::Busy, "another benchmark is running on this host"));
                }
                Err(error) => {
                    tracing::error!("{} cannot be locked: {error}", self.context.lock.display());
                    return Err(Rejection::new(
                        RequestResult::NotStarted,
                        "the host's benchmark lock cannot be opened",
                    ));
                }
            }
        }
    }

    /// Whether the guard lets a server run. Traffic and holders may be those of the same peer's probe a moment ago.
    fn may_run(&self, from: Option<IpAddr>, report: &HostReport, key: &BenchmarkKey) -> Result<(), Rejection> {
        let Some(port) = &key.port else { return Ok(()) };
        let mut visit = self.visit.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |(who, at, since): &Visit| *who == from && at == port && since.elapsed() < VISIT;
        let again = visit.as_ref().is_some_and(same);
        let rules = &self.context.rules;
        let free = match guard::facts(report, key, rules, guard::load()) {
            Err((SkipReason::PortBusy | SkipReason::DeviceHeld | SkipReason::CpuBusy, _)) if again => Ok(()),
            other => other,
        };
        free.and_then(|()| guard::ask_scheduler(&self.tools, rules)).map_err(|(reason, text)| {
            let unknown = matches!(reason, SkipReason::Unknown | SkipReason::PortDown);
            Rejection::new(if unknown { RequestResult::Unavailable } else { RequestResult::Busy }, text)
        })?;
        if !again {
            *visit = Some((from, port.clone(), Instant::now()));
        }
        Ok(())
    }
}

fn not_started(text: impl Into<String>) -> Rejection {
    Rejection::new(RequestResult::NotStarted, text)
}

/// Starts the server of a plan, and waits until it listens.
fn listening(
    tools: &Toolbox,
    target: &BenchmarkTarget,
    plan: &TestPlan,
    timeouts: Timeouts,
) -> Result<LocalServer, Rejection> {
    let name = plan.program.name();
    let serving = LocalServer::start(tools, target, plan);
    let serving = serving.map_err(|error| not_started(format!("{name} cannot be started: {error}")))?;
    if serving.wait_until_listening(timeouts.listen) {
        return Ok(serving);
    }
    Err(not_started(format!("the {name} server exited")))
}

impl PeerResponse {
    /// A rejection; `clock` is this host's, in milliseconds since 1970, where clocks are the reason.
    pub fn no(rejection: &Rejection, clock: Option<u64>) -> Self {
        let Rejection { result, text } = rejection;
        let told = ErrorDocument { reason: result.as_str().to_owned(), message: text.clone(), clock };
        Self { result: *result, body: serde_json::to_vec(&told).unwrap_or_default(), signature: None }
    }
}
