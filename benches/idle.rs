//! What the agent costs while nobody asks and nothing is due: with every probe, peers, a job scheduler's command,
//! maintenance and VF reads configured, and beside it, at the same time over the same host, without them.
//!
//! Both stand before a `/sys` of eight cards in a mount namespace of their own (as root), so that probes are really on;
//! elsewhere both look at this machine. `SECONDS` in the environment changes how long it takes, `CARDS` the host.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a bench")]

#[path = "../tests/common/mod.rs"]
mod common;
mod limits;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use common::cost::cpu_time;
use common::host::HostTree;
use common::run::{PROGRAM, Server, free_address};
use limits::Limits;
use tempfile::TempDir;

/// Time after the start that is not counted: first readings, baselines, the journal.
const SETTLE: Duration = Duration::from_secs(20);

/// The configuration with everything on; nothing of it is due while this bench lasts.
fn everything(folder: &Path) -> String {
    let at = |name: &str| folder.join(name).display().to_string();
    format!(
        "[probe]\nenabled = true\nprobes = ['rdma_loopback', 'memory', 'rdma_peer', 'tcp_peer']\ninterval = '7d'\nlock = \
         '{lock}'\nbusy-files = ['{busy}']\nbusy-command = ['true']\n[probe.peers]\nserve = true\nlist = '{list}'\nname = \
         'node17:10015'\nkey-file = '{key}'\nslot = '7d'\n[policy.maintenance]\nfile = '{marker}'\nwindows = ['Sat \
         02:00-02:01']\n",
        lock = at("lock"),
        busy = at("busy"),
        list = at("peers.json"),
        key = at("key"),
        marker = at("maintenance"),
    )
}

fn main() {
    let seconds = limits::setting("SECONDS", 120);
    let cards: usize = limits::setting("CARDS", 8);
    let folder = TempDir::new().unwrap();
    HostTree::new(cards).write(folder.path()).unwrap();
    // A long list: 10,000 hosts that measure with each other.
    let hosts: Vec<String> = (0..10_000).map(|host| format!("\"node{host}:10015\"")).collect();
    fs::write(folder.path().join("peers.json"), format!("[{{\"targets\": [{}]}}]", hosts.join(","))).unwrap();
    let key = folder.path().join("key");
    fs::write(&key, "0f5d3c1a9b8e7d6c5b4a39281706f5e4").unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(folder.path().join("on.toml"), everything(folder.path())).unwrap();
    fs::write(folder.path().join("off.toml"), "").unwrap();
    let sys = folder.path().join("sys");
    let may_mount = Command::new("unshare").args(["-m", "mount", "--bind", "/tmp", "/sys/class"]).output();
    let sys = may_mount.is_ok_and(|output| output.status.success()).then_some(sys);
    let agents = ["on", "off"].map(|name| serve(&folder.path().join(format!("{name}.toml")), sys.as_deref()));
    let said = |name: &str| value(&agents[0], name);
    let ports = said("lanewatch_check_subjects{check=\"port_down\",result=\"ok\"}");
    thread::sleep(SETTLE);
    let before = [0, 1].map(|agent: usize| cpu_time(agents[agent].group.pid()));
    thread::sleep(Duration::from_secs(seconds));
    let share = |agent: usize| {
        let used = cpu_time(agents[agent].group.pid()).saturating_sub(before[agent]);
        used.as_secs_f64() / Duration::from_secs(seconds).as_secs_f64()
    };
    let (on, off) = (share(0), share(1));
    let percent = |share: f64| format!("{:.4} % of a core", share * 100.0);
    println!(
        "{seconds} s without a scrape, {} active ports:",
        ports.map_or("no".to_owned(), |ports| ports.to_string())
    );
    println!("  with everything on   {}", percent(on));
    println!("  without probes       {}", percent(off));
    println!("  probes add           {}", percent((on - off).max(0.0)));
    assert!(agents[0].get("/metrics").text().contains("lanewatch_probe_server_requests_total"), "peers may ask");
    let mut limits = Limits::default();
    limits.at_most("CPU that probes add while nothing is due, in % of a core", (on - off).max(0.0) * 100.0, 0.1);
    limits.at_most("CPU of all of it while nobody asks, in % of a core", on * 100.0, 0.1);
    limits.conclude();
}

/// An agent with this configuration, before this `/sys`.
fn serve(config: &Path, sys: Option<&Path>) -> Server {
    let (address, directory) = (free_address(), TempDir::new().unwrap());
    let mut command = match sys {
        Some(sys) => {
            let mut command = Command::new("unshare");
            // Not over /sys itself: a host whose /sys is none is not this one, and is not measured.
            let mount = |part| format!("mount --bind '{}' /sys/{part} && ", sys.join(part).display());
            let script = format!("{}{}{}exec \"$@\"", mount("devices"), mount("bus"), mount("class"));
            command.args(["-m", "sh", "-c", &script, "sh", PROGRAM]);
            command
        }
        None => Command::new(PROGRAM),
    };
    command.args(["serve", "--web.listen-address", &address.to_string(), "--config.file"]).arg(config);
    command.arg("--storage.path").arg(directory.path().join("state"));
    Server::spawn(command, address, directory, "/-/ready")
}

fn value(agent: &Server, series: &str) -> Option<f64> {
    let text = agent.get("/metrics").text();
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ').map(str::to_owned))?;
    line.parse().ok()
}
