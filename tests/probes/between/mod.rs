//! Two agents on this machine, each before a `/sys` of its own with one software RDMA port: from the list of hosts to
//! `/metrics`, and what becomes of requests that are not a peer's.

mod certificates;
mod chain;
mod namespaces;
mod refused;

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::Scene;
use super::common::host::HostTree;
use super::common::run::{Group, PROGRAM, Server};
use super::common::tools::skip;

const KEY: &str = "b51e6f0fd0a14a3d8c2e97a0d8b9c4e2";

/// How long two agents may take to measure with each other: they meet in the first quarter of a slot, and a busy machine
/// misses some.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Whether this user may put a folder in the place of `/sys/class`; else the test is skipped.
fn may_mount() -> bool {
    let trial = Command::new("unshare").args(["-m", "mount", "--bind", "/tmp", "/sys/class"]).output();
    let may = trial.is_ok_and(|output| output.status.success());
    if !may {
        skip("nothing may be mounted here");
    }
    may
}

/// Fakes of perftest, a key, and a `/sys/class` with the RDMA port `rxe0/1`.
fn stage(mode: &str) -> Scene {
    let scene = Scene::new(mode, &HostTree::new(1));
    let port = scene.path("class/infiniband/rxe0/ports/1");
    for folder in ["gids", "gid_attrs/types"] {
        fs::create_dir_all(port.join(folder)).unwrap();
    }
    let device = scene.path("class/infiniband/rxe0");
    for (name, text) in
        [("node_type", "1: CA"), ("node_guid", "7a11:02ff:fe00:0009"), ("sys_image_guid", "7a11:02ff:fe00:0009")]
    {
        fs::write(device.join(name), format!("{text}\n")).unwrap();
    }
    for (name, text) in [
        ("state", "4: ACTIVE"),
        ("phys_state", "5: LinkUp"),
        ("link_layer", "Ethernet"),
        ("rate", "200 Gb/sec (4X HDR)"),
        ("lid", "0x0"),
        ("sm_lid", "0x0"),
        ("gids/0", "fe80:0000:0000:0000:7811:02ff:fe00:0009"),
        ("gid_attrs/types/0", "RoCE v2"),
    ] {
        fs::write(port.join(name), format!("{text}\n")).unwrap();
    }
    write_key(&scene.path("key"), KEY);
    scene
}

fn write_key(path: &Path, key: &str) {
    fs::write(path, key).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

/// Writes the configuration of an agent that listens there; `probe` and `peers` are more lines of the two tables.
fn configure(scene: &Scene, address: SocketAddr, probe: &str, peers: &str) -> PathBuf {
    let path = scene.path(&format!("lanewatch-{}.toml", address.port()));
    let patience = if probe.contains("patience") { "" } else { "patience = '3m'\n" };
    let text = format!(
        "[probe]\nlock = '{lock}'\nduration = '1s'\nmost-load = 100.0\nbudget = 0.1\n{patience}{probe}\n[probe.peers]\nname = \
         '{address}'\nkey-file = '{key}'\n{peers}\n",
        lock = scene.path(&format!("lock-{}", address.port())).display(),
        key = scene.path("key").display(),
    );
    fs::write(&path, text).unwrap();
    path
}

/// A command that runs the program with the stage's `/sys/class` and its programs before others.
fn before(scene: &Scene, arguments: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    let script = format!("mount --bind '{}' /sys/class && exec \"$@\"", scene.path("class").display());
    command.args(["-m", "sh", "-c", &script, "sh", PROGRAM]).args(arguments);
    command.env("PATH", format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", scene.path("bin").display()));
    command
}

fn serve(scene: &Scene, address: SocketAddr, config: &Path) -> Server {
    let directory = tempfile::TempDir::new().unwrap();
    let state = directory.path().join("state");
    let mut command = before(scene, &["serve", "--web.listen-address", &address.to_string(), "--config.file"]);
    command.arg(config).arg("--storage.path").arg(&state);
    Server::spawn(command, address, directory, "/-/ready")
}

/// Ends an agent as its host would, so that it tidies up what it has begun.
fn end(mut agent: Group) {
    agent.signal(Signal::TERM);
    assert!(agent.wait(TIMEOUT).is_some(), "it does not end");
}

/// The value of a series in an exposition; the labels as they are written.
fn value(metrics: &str, series: &str) -> Option<f64> {
    let line = metrics.lines().find(|line| line.strip_prefix(series).is_some_and(|rest| rest.starts_with(' ')))?;
    line.rsplit(' ').next()?.parse().ok()
}

fn requests(server: &Server, result: &str) -> Option<f64> {
    let series = format!("lanewatch_probe_server_requests_total{{result=\"{result}\"}}");
    value(&server.get("/metrics").text(), &series)
}

/// Waits until something is there.
fn until<T>(limit: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + limit;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "{what}: not within {limit:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}
