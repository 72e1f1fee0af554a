//! A kubelet that speaks the PodResources API on a Unix socket, and what is shown of its answers.

use std::convert::Infallible;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use lanewatch::host::COLLECTORS;
use lanewatch::host::collector::{Collector, Depth, DeviceReader, Filter, ReadContext, Setup};
use lanewatch::host::pods::podresources::{
    ClaimResource, ContainerDevices, ContainerResources, DynamicResource, ListPodResourcesResponse, PodResources,
};
use lanewatch::model::pods::Allocations;
use lanewatch::model::reading::ReadError;
use lanewatch::model::time::BootTime;
use prost::Message as _;
use tempfile::TempDir;
use tokio::sync::oneshot;

use super::common::run::as_nobody;
use super::hosts::PodHost;
use super::{metrics_of, said_of};

const SOCKET: &str = "var/lib/kubelet/pod-resources/kubelet.sock";

/// What it answers: bytes of a message, or a status.
#[derive(Clone)]
enum Answer {
    Message(Vec<u8>),
    Status(u32),
}

/// A kubelet that runs until it is dropped; its socket then stays without anyone behind it.
struct Kubelet {
    answer: Arc<Mutex<Answer>>,
    calls: Arc<AtomicUsize>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Kubelet {
    fn start(socket: &Path, answer: Answer) -> Self {
        fs::create_dir_all(socket.parent().unwrap()).unwrap();
        let _ = fs::remove_file(socket);
        let listener = std::os::unix::net::UnixListener::bind(socket).unwrap();
        listener.set_nonblocking(true).unwrap();
        let (answer, calls) = (Arc::new(Mutex::new(answer)), Arc::new(AtomicUsize::new(0)));
        let (stop, stopped) = oneshot::channel();
        let shared = (Arc::clone(&answer), Arc::clone(&calls));
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                tokio::select! {
                    () = serve(listener, shared) => {}
                    _ = stopped => {}
                }
            });
        });
        Self { answer, calls, stop: Some(stop), thread: Some(thread) }
    }

    fn of(socket: &Path, pods: Vec<PodResources>) -> Self {
        Self::start(socket, list(pods))
    }

    fn answer(&self, answer: Answer) {
        *self.answer.lock().unwrap() = answer;
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

async fn serve(listener: std::os::unix::net::UnixListener, shared: (Arc<Mutex<Answer>>, Arc<AtomicUsize>)) {
    let listener = tokio::net::UnixListener::from_std(listener).unwrap();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (answer, calls) = shared.clone();
        let respond = service_fn(move |request: Request<hyper::body::Incoming>| {
            calls.fetch_add(1, Ordering::SeqCst);
            let answer = answer.lock().unwrap().clone();
            async move {
                assert_eq!(request.uri().path(), "/v1.PodResourcesLister/List");
                let question = request.into_body().collect().await.unwrap().to_bytes();
                assert_eq!(&question[..], &[0; 5]);
                let (message, status) = match answer {
                    Answer::Message(message) => (message, 0),
                    Answer::Status(status) => (Vec::new(), status),
                };
                let mut framed = Vec::new();
                if status == 0 {
                    framed.push(0);
                    framed.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
                    framed.extend(message);
                }
                let mut trailers = HeaderMap::new();
                trailers.insert("grpc-status", status.to_string().parse().unwrap());
                let body = Full::new(Bytes::from(framed)).with_trailers(async { Some(Ok(trailers)) });
                let response = Response::builder().header("content-type", "application/grpc").body(body).unwrap();
                Ok::<_, Infallible>(response)
            }
        });
        tokio::spawn(async move {
            let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            let _ = connection.serve_connection(TokioIo::new(stream), respond).await;
        });
    }
}

fn list(pod_resources: Vec<PodResources>) -> Answer {
    Answer::Message(ListPodResourcesResponse { pod_resources }.encode_to_vec())
}

/// A pod with one container and these devices, each an entry of its own.
fn pod(name: &str, resource: &str, ids: &[&str]) -> PodResources {
    let devices = ids
        .iter()
        .map(|id| ContainerDevices { resource_name: resource.to_owned(), device_ids: vec![(*id).to_owned()] });
    let container =
        ContainerResources { name: "worker".to_owned(), devices: devices.collect(), ..ContainerResources::default() };
    PodResources { name: name.to_owned(), namespace: "ml".to_owned(), containers: vec![container] }
}

/// A VF of the host.
fn vf(number: u32) -> String {
    format!("0000:01:00.{}", number + 1)
}

struct Node {
    root: TempDir,
    setup: Setup,
    collector: Box<dyn Collector>,
    reader: Option<Box<dyn DeviceReader>>,
    now: BootTime,
}

impl Node {
    fn new() -> Self {
        let root = TempDir::new().unwrap();
        let mut host = PodHost::host(root.path());
        host.roots.kubelet_socket = Some(root.path().join(SOCKET));
        let setup = Setup { host, filter: Filter::default() };
        let spec = COLLECTORS.iter().find(|spec| spec.name == "pods").unwrap();
        Self { collector: (spec.make)(&setup), root, setup, reader: None, now: BootTime(0) }
    }

    fn socket(&self) -> PathBuf {
        self.root.path().join(SOCKET)
    }

    /// What is known after so much time; and what failed.
    fn after(&mut self, seconds: u64) -> (Option<Vec<String>>, Vec<ReadError>) {
        self.now = self.now.after(Duration::from_secs(seconds));
        let mut cx = ReadContext::new(&self.setup.host, self.now, Depth::Full);
        let found = self.collector.discover(&mut cx).unwrap();
        let reader = self.reader.get_or_insert_with(|| self.collector.open(&found[0]));
        let facts = reader.read(&mut cx);
        let known = facts.iter().find_map(|fact| fact.downcast_ref::<Allocations>());
        let shown = known.map(|known| {
            known
                .all
                .iter()
                .map(|given| format!("{}/{} {} {:?}", given.namespace, given.pod, given.resource, given.device))
                .collect()
        });
        (shown, cx.faults.iter().map(|fault| fault.reason).collect())
    }
}

#[test]
fn pods_appear_and_go_with_two_calls_a_minute() {
    let mut node = Node::new();
    let kubelet = Kubelet::of(&node.socket(), vec![pod("a", "x/vf", &[&vf(0), &vf(0)])]);
    let first = (
        Some(vec![format!("ml/a x/vf Pci({:?})", vf(0).parse::<lanewatch::model::ids::PciAddress>().unwrap())]),
        vec![],
    );
    assert_eq!(node.after(0), first);
    kubelet.answer(list(Vec::new()));
    assert_eq!((node.after(15), kubelet.calls()), (first, 1));
    assert_eq!((node.after(15), kubelet.calls()), ((Some(vec![]), vec![]), 2));
}

#[test]
fn a_kubelet_that_restarts_is_asked_again() {
    let mut node = Node::new();
    let answer = list(vec![pod("a", "x/vf", &["7"])]);
    let before = Kubelet::start(&node.socket(), answer.clone());
    let known = Some(vec!["ml/a x/vf Shared".to_owned()]);
    assert_eq!(node.after(0), (known.clone(), vec![]));
    drop(before);
    // Its socket is there, and nobody listens; then there is none.
    assert_eq!(node.after(30), (known.clone(), vec![ReadError::Io]));
    fs::remove_file(node.socket()).unwrap();
    assert_eq!(node.after(30), (known.clone(), vec![ReadError::Gone]));
    // An answer of two minutes ago counts no more.
    assert_eq!(node.after(75), (None, vec![ReadError::Gone]));
    let _after = Kubelet::start(&node.socket(), answer);
    assert_eq!(node.after(30), (known, vec![]));
}

#[test]
fn answers_that_are_refused_too_long_or_malformed() {
    let mut node = Node::new();
    let kubelet = Kubelet::start(&node.socket(), Answer::Status(12));
    for (answer, reason) in [
        (Answer::Status(12), ReadError::NotSupported),
        (Answer::Status(8), ReadError::Io),
        (Answer::Status(7), ReadError::Permission),
        (Answer::Message(vec![0xff; 40]), ReadError::Malformed),
        (Answer::Message(vec![0; (16 << 20) + 1]), ReadError::Malformed),
    ] {
        kubelet.answer(answer);
        assert_eq!(node.after(30), (None, vec![reason]));
    }
    // Up to 16 MiB are taken; names beyond reason are left out.
    let mut pods: Vec<PodResources> =
        (0..90_000).map(|number| pod(&format!("{number:0100}"), "x/vf", &["7"])).collect();
    pods.push(pod(&"y".repeat(1000), "x/vf", &["8"]));
    let answer = list(pods);
    let Answer::Message(bytes) = &answer else { panic!() };
    assert!(bytes.len() > 8 << 20 && bytes.len() < 16 << 20, "{}", bytes.len());
    kubelet.answer(answer);
    let (known, faults) = node.after(30);
    assert_eq!((known.map(|known| known.len()), faults), (Some(16 * 1024), vec![]));
}

fn host(vfs: u32, pods: u32) -> TempDir {
    let host = TempDir::new().unwrap();
    PodHost { vfs, pods }.write(host.path()).unwrap();
    host
}

const ASK: [&str; 2] = ["--collector.kubelet-socket", "/var/lib/kubelet/pod-resources/kubelet.sock"];

#[test]
fn what_the_kubelet_gave_is_shown_beside_what_is_used() {
    let host = host(4, 1);
    for pid in 2001..2004 {
        fs::remove_dir_all(host.path().join(format!("proc/{pid}"))).unwrap();
    }
    let claim = ClaimResource {
        driver_name: "sriovnetwork.k8snetworkplumbingwg.io".to_owned(),
        device_name: "0000-01-00-3".to_owned(),
    };
    let mut claimed = pod("claims", "", &[]);
    claimed.containers[0].dynamic_resources = vec![DynamicResource { claim_resources: vec![claim] }];
    let shared = pod("shares", "rdma/hca", &["0", "1"]);
    let pods = vec![pod("train-0", "x/vf", &[&vf(0)]), pod("idle", "x/vf", &[&vf(1)]), claimed, shared];
    let _kubelet = Kubelet::of(&host.path().join(SOCKET), pods);
    let series = metrics_of(&host, "lanewatch_vf_pod_info", &ASK);
    let of = |number: u32, rest: &str| {
        format!(
            "lanewatch_vf_pod_info{{pf=\"0000:01:00.0\",vf=\"{number}\",pci_address=\"{}\",namespace=\"ml\",{rest}}} 1",
            vf(number)
        )
    };
    let uid = PodHost::uid(0);
    assert_eq!(
        series,
        [
            of(0, &format!("pod=\"train-0\",container=\"worker\",uid=\"{uid}\",resource=\"x/vf\",source=\"process\"")),
            of(1, "pod=\"idle\",container=\"worker\",uid=\"\",resource=\"x/vf\",source=\"kubelet\""),
            of(
                2,
                "pod=\"claims\",container=\"worker\",uid=\"\",resource=\"sriovnetwork.k8snetworkplumbingwg.io\",source=\"kubelet\""
            ),
        ]
    );
    let table = said_of(&host, &["vf"], &ASK);
    assert!(table.contains("unused (given to pod ml/idle)") && table.contains("pod ml/train-0 (worker)"), "{table}");
    let document: serde_json::Value = serde_json::from_str(&said_of(&host, &["vf", "--format", "json"], &ASK)).unwrap();
    assert_eq!(document["pfs"][0]["vfs"][1]["allocated"]["pod"], "idle");
    assert_eq!(document["pfs"][0]["vfs"][3]["allocated"], serde_json::Value::Null);
    // Without the socket in the configuration nobody is asked.
    assert_eq!(metrics_of(&host, "lanewatch_vf_pod_info", &[]).len(), 1);
}

#[test]
fn of_two_pods_that_claim_a_device_it_is_the_one_that_uses_it() {
    let host = host(2, 2);
    fs::remove_dir_all(host.path().join("proc/2001")).unwrap();
    // The kubelet still lists pods that have ended.
    let pods = vec![
        pod("ended-0", "x/vf", &[&vf(0)]),
        pod("train-0", "x/vf", &[&vf(0)]),
        pod("ended-1", "x/vf", &[&vf(1)]),
        pod("new-1", "x/vf", &[&vf(1)]),
    ];
    let _kubelet = Kubelet::of(&host.path().join(SOCKET), pods);
    let series = metrics_of(&host, "lanewatch_vf_pod_info", &ASK);
    assert_eq!(series.len(), 1, "{series:#?}");
    assert!(series[0].contains("pod=\"train-0\"") && series[0].contains("resource=\"x/vf\""), "{series:#?}");
}

#[test]
fn a_socket_that_only_root_may_reach_is_said() {
    let host = host(1, 0);
    let _kubelet = Kubelet::of(&host.path().join(SOCKET), Vec::new());
    for (path, mode) in [("", 0o755), ("var/lib/kubelet/pod-resources", 0o750)] {
        fs::set_permissions(host.path().join(path), fs::Permissions::from_mode(mode)).unwrap();
    }
    let out = as_nobody(host.path(), &["vf", ASK[0], ASK[1]]);
    assert_eq!((out.code, out.stderr.as_str()), (Some(0), ""));
    assert!(out.stdout.contains("would show: pod names (1 file)"), "{}", out.stdout);
}

#[test]
fn a_path_that_is_none_is_refused() {
    let host = host(1, 0);
    let out = super::run(&host, &["vf", "--collector.kubelet-socket", "kubelet.sock"]);
    assert!(out.code == Some(2) || out.stderr.contains("--collector.kubelet-socket"), "{}", out.stderr);
    assert!(out.stderr.contains("an absolute path"), "{}", out.stderr);
}
