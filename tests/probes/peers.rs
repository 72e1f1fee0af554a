//! Probes between hosts, with a peer that starts its servers here; and real programs, where they are installed.

use std::cell::RefCell;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use lanewatch::assess::benchmark::Ceiling;
use lanewatch::bench::iperf::{self, TcpOutcome};
use lanewatch::bench::probe::{BenchmarkParameters, BenchmarkRunner};
use lanewatch::bench::process::Toolbox;
use lanewatch::bench::rdma::{LocalServer, Peer, PeerError, RemoteServer, TestPlan, Timeouts};
use lanewatch::bench::target::BenchmarkTarget;
use lanewatch::host::netlink::socket::route;
use lanewatch::model::benchmark::{Benchmark, BenchmarkKey, BenchmarkRun, Direction, Doubt, Outcome};
use lanewatch::model::units::BytesPerSecond;
use lanewatch::watch::HostReport;

use super::common::host::HostTree;
use super::common::run::free_address;
use super::common::tools::{Tool, require};
use super::{LONG, Scene};

/// A peer that starts its servers on this host.
struct Near<'a> {
    tools: &'a Toolbox,
    target: BenchmarkTarget,
    ceiling: Option<Ceiling>,
    serving: RefCell<Vec<LocalServer>>,
}

impl Peer for Near<'_> {
    fn name(&self) -> &'static str {
        "node18"
    }

    fn start(&self, plan: &TestPlan) -> Result<RemoteServer, PeerError> {
        let serving = LocalServer::start(self.tools, &self.target, plan)
            .map_err(|error| PeerError { reason: Doubt::PeerUnreachable, text: error.to_string() })?;
        serving.wait_until_listening(Duration::from_secs(20));
        let tcp_port = serving.tcp_port;
        self.serving.borrow_mut().push(serving);
        Ok(RemoteServer { host: "127.0.0.1".to_owned(), tcp_port, ceiling: self.ceiling.clone() })
    }
}

struct Nobody;

impl Peer for Nobody {
    fn name(&self) -> &'static str {
        "node19"
    }

    fn start(&self, _: &TestPlan) -> Result<RemoteServer, PeerError> {
        Err(PeerError { reason: Doubt::PeerUnreachable, text: "it does not answer".to_owned() })
    }
}

fn key(probe: Benchmark) -> BenchmarkKey {
    BenchmarkKey { probe, port: super::guarded::key().port }
}

fn run(scene: &Scene, report: &HostReport, tools: &Toolbox, probe: Benchmark, peer: &dyn Peer) -> BenchmarkRun {
    let timeouts = Timeouts { listen: Duration::from_secs(120), overrun: LONG, ..Timeouts::default() };
    let parameters =
        BenchmarkParameters { duration: Duration::from_secs(1), timeouts, ..BenchmarkParameters::default() };
    let connect = route();
    let bench = BenchmarkRunner {
        report,
        host: &scene.host(),
        tools,
        parameters: &parameters,
        route: Some(&connect),
        progress: &|_| {},
        now: &SystemTime::now,
    };
    bench.run(&key(probe), Some(peer))
}

#[test]
fn what_the_counters_do_not_show_went_another_way() {
    let scene = Scene::new("ok", &HostTree::new(1));
    let (report, tools) = (scene.report(), Toolbox::in_folders(scene.path("bin").into()));
    let target = BenchmarkTarget::new(&report, &scene.host(), &key(Benchmark::RdmaPeer).port.unwrap()).unwrap();
    let ceiling = Ceiling::new(Some(BytesPerSecond::from_gbits(100.0)), None, 1.0);
    let peer = Near { tools: &tools, target, ceiling, serving: RefCell::default() };
    let run = run(&scene, &report, &tools, Benchmark::RdmaPeer, &peer);
    assert_eq!(
        (run.result.outcome(), run.result.reason()),
        (Outcome::Inconclusive, "counters_disagree"),
        "{}",
        run.text
    );
    assert_eq!(run.peer.as_deref(), Some("node18"));
    assert!(run.ceiling.is_some_and(|ceiling| (ceiling.gbits() - 100.0).abs() < 1e-9), "that of the worse end");
    drop(peer);
    scene.is_clean();
}

#[test]
fn a_peer_that_dies_in_the_handshake_says_nothing_of_the_device() {
    let scene = Scene::new("gone", &HostTree::new(1));
    let (report, tools) = (scene.report(), Toolbox::in_folders(scene.path("bin").into()));
    let target = BenchmarkTarget::new(&report, &scene.host(), &key(Benchmark::RdmaPeer).port.unwrap()).unwrap();
    let peer = Near { tools: &tools, target, ceiling: None, serving: RefCell::default() };
    let run = run(&scene, &report, &tools, Benchmark::RdmaPeer, &peer);
    assert_eq!((run.result.outcome(), run.result.reason()), (Outcome::Inconclusive, "peer_gone"), "{}", run.text);
    drop(peer);
    scene.is_clean();
}

#[test]
fn a_peer_that_starts_nothing_says_nothing_of_the_device() {
    let scene = Scene::new("ok", &HostTree::new(1));
    let (report, tools) = (scene.report(), Toolbox::in_folders(scene.path("bin").into()));
    let run = run(&scene, &report, &tools, Benchmark::RdmaPeer, &Nobody);
    assert_eq!((run.result.outcome(), run.result.reason()), (Outcome::Inconclusive, "peer_unreachable"));
    assert_eq!(&*run.text, "node19 did not start a server: it does not answer");
}

#[test]
fn tcp_within_one_host_is_refused() {
    if require(Tool::Iperf3).is_none() {
        return;
    }
    let scene = Scene::new("ok", &HostTree::new(1));
    let (report, tools) = (scene.report(), Toolbox::new());
    let target = BenchmarkTarget::new(&report, &scene.host(), &key(Benchmark::TcpPeer).port.unwrap()).unwrap();
    let peer = Near { tools: &tools, target, ceiling: None, serving: RefCell::default() };
    let run = run(&scene, &report, &tools, Benchmark::TcpPeer, &peer);
    assert_eq!((run.result.outcome(), run.result.reason()), (Outcome::Skipped, "local_route"), "{}", run.text);
    assert!(run.text.contains("dev lo"), "{}", run.text);
}

#[test]
fn a_real_iperf3_is_read() {
    let Some(iperf3) = require(Tool::Iperf3) else { return };
    let address = free_address();
    let tcp_port = address.port();
    let mut server = Command::new(iperf3)
        .args(["--server", "--one-off", "--port", &tcp_port.to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let peer = RemoteServer { host: "127.0.0.1".to_owned(), tcp_port, ceiling: None };
    let timeouts = Timeouts { overrun: LONG, ..Timeouts::default() };
    let until = Instant::now() + LONG;
    let attempt = loop {
        let attempt = iperf::run(&Toolbox::new(), &peer, 2, Duration::from_secs(1), None, timeouts).unwrap();
        // Until it listens, nobody answers.
        if !matches!(attempt, TcpOutcome::Failed(..)) || Instant::now() >= until {
            break attempt;
        }
    };
    server.kill().unwrap();
    server.wait().unwrap();
    let TcpOutcome::Measured(measured, again) = attempt else { panic!("{attempt:?}") };
    assert!(measured.bandwidth(Direction::OneWay).is_some_and(|rate| rate.0 > 1e6));
    assert!(again.is_some());
    let refused = iperf::run(&Toolbox::new(), &peer, 2, Duration::from_secs(1), None, timeouts).unwrap();
    assert!(matches!(refused, TcpOutcome::Failed(..)), "{refused:?}");
}

#[test]
fn a_real_perftest_without_the_device_fails_for_that() {
    if require(Tool::Perftest).is_none() {
        return;
    }
    let scene = Scene::new("ok", &HostTree::new(1));
    let run = scene.run_with(&Toolbox::new(), LONG);
    assert_eq!((run.result.outcome(), run.result.reason()), (Outcome::Failed, "device_missing"), "{}", run.text);
}
