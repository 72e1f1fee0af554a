//! `serve` as a service manager meets it: readiness, sockets handed over, reload, and an end in time.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "common/mod.rs"]
mod common;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use common::exposition::parse;
use common::host::{GEN3, GEN4, HostTree, LinkEnd};
use common::http;
use common::run::{Group, PROGRAM, Server, free_address, program, to_its_end};
use common::tools::{Tool, require, skip};
use rustix::process::Signal;
use tempfile::TempDir;

/// A host whose second card has trained to 8 GT/s x8.
fn host(directory: &Path) -> HostTree {
    let mut host = HostTree::new(2);
    host.cards[1].device = LinkEnd::full(GEN4, 16).trained(GEN3, 8);
    host.cards[1].upstream = LinkEnd::full(GEN4, 16).trained(GEN3, 8);
    host.write(directory).unwrap();
    host
}

/// The same, with a file that whoever opens it waits for: a process holds a write lease on it, and the kernel lets
/// nobody else in until that process gives it up (or 45 s are over).
struct HangingHost {
    holder: Group,
}

impl HangingHost {
    fn new(directory: &Path) -> Option<Self> {
        const HOLD: &str = "import fcntl, os, signal, sys\n\
            signal.signal(signal.SIGIO, signal.SIG_IGN)\n\
            file = os.open(sys.argv[1], os.O_RDWR)\n\
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)\n\
            print('held', flush=True)\n\
            sys.stdin.read()";
        let python = require(Tool::Python)?;
        // Where an archive knows no links, a link is a file with its target, and is read as one.
        let driver = directory.join(&host(directory).devices()[0].function).join("driver");
        let target = fs::read_link(&driver).unwrap();
        fs::remove_file(&driver).unwrap();
        fs::write(&driver, target.to_str().unwrap()).unwrap();
        let mut command = Command::new(python);
        command.args(["-c", HOLD]).arg(&driver).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut holder = Group::spawn(&mut command);
        let mut said = String::new();
        BufReader::new(holder.child.stdout.take().unwrap()).read_line(&mut said).unwrap();
        if said != "held\n" {
            skip("this file system knows no leases");
            return None;
        }
        Some(Self { holder })
    }

    /// Lets everyone in.
    fn release(mut self) {
        drop(self.holder.child.stdin.take());
        assert!(self.holder.wait(Duration::from_secs(10)).is_some());
    }
}

/// `serve` on this host, once it answers at all; `change` may add to the command.
fn serve(root: &Path, change: impl FnOnce(&mut Command)) -> Server {
    serve_in(TempDir::new().unwrap(), root, change)
}

/// The same, with its state below this directory.
fn serve_in(directory: TempDir, root: &Path, change: impl FnOnce(&mut Command)) -> Server {
    let address = free_address();
    let mut command = program();
    command.args(["serve", "--storage.path", "state", "--web.listen-address", &address.to_string(), "--path.rootfs"]);
    command.arg(root);
    change(&mut command);
    Server::spawn(command, address, directory, "/-/healthy")
}

/// What a service manager listens on.
struct Manager {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Manager {
    fn listening(directory: &Path) -> Self {
        let path = directory.join("notify");
        Self { socket: UnixDatagram::bind(&path).unwrap(), path }
    }

    /// The next message, if one comes in this time.
    fn told(&self, patience: Duration) -> Option<String> {
        self.socket.set_read_timeout(Some(patience)).unwrap();
        let mut buffer = [0; 256];
        let length = self.socket.recv(&mut buffer).ok()?;
        Some(String::from_utf8_lossy(&buffer[..length]).trim().to_owned())
    }
}

/// Ends it the way service managers do; what it made of that.
fn end(server: &mut Server) -> Option<i32> {
    server.group.signal(Signal::TERM);
    let status = server.group.wait(Duration::from_secs(5));
    status.unwrap_or_else(|| panic!("still there after 5 s\n{}", server.log())).code()
}

#[test]
fn it_is_ready_after_the_first_complete_pass_and_says_when_it_stops() {
    let directory = TempDir::new().unwrap();
    let Some(hanging) = HangingHost::new(&directory.path().join("host")) else { return };
    let manager = Manager::listening(directory.path());
    let mut server = serve(&directory.path().join("host"), |command| _ = command.env("NOTIFY_SOCKET", &manager.path));
    assert_eq!(manager.told(Duration::from_millis(600)), None);
    assert_eq!(server.get("/-/ready").status, 503);
    hanging.release();
    assert_eq!(manager.told(Duration::from_secs(10)).as_deref(), Some("READY=1"));
    assert_eq!(server.get("/-/ready").status, 200);
    server.group.signal(Signal::TERM);
    assert_eq!(manager.told(Duration::from_secs(5)).as_deref(), Some("STOPPING=1"));
    assert_eq!(server.group.wait(Duration::from_secs(5)).unwrap().code(), Some(0), "{}", server.log());
}

#[test]
fn a_read_that_hangs_does_not_keep_it_alive() {
    let directory = TempDir::new().unwrap();
    let Some(_hanging) = HangingHost::new(directory.path()) else { return };
    // In the first pass, with a scrape that waits for it.
    let mut early = serve(directory.path(), |_| {});
    let address = early.address;
    let scrape = thread::spawn(move || http::get(address, "/metrics"));
    thread::sleep(Duration::from_millis(300));
    assert_eq!(end(&mut early), Some(0));
    // The scrape is answered or cut off; it does not wait for ever.
    let _ = scrape.join().unwrap();
    // And long after it, when the device counts as stuck.
    let mut late = serve(directory.path(), |_| {});
    let stuck = "lanewatch_collector_stuck{collector=\"pci\"} 1\n";
    let began = Instant::now();
    while !late.try_get("/metrics").is_ok_and(|answer| answer.text().contains(stuck)) {
        assert!(began.elapsed() < Duration::from_secs(40), "{}", late.log());
        thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(end(&mut late), Some(0));
    assert!(late.log().contains("not responding") && late.log().contains("message=stopped"), "{}", late.log());
}

/// What prints and ends does so as well, and says what it could not read.
#[test]
fn a_read_that_hangs_keeps_no_command_alive() {
    let directory = TempDir::new().unwrap();
    let Some(_hanging) = HangingHost::new(directory.path()) else { return };
    for command in ["check", "vf"] {
        let mut run = program();
        run.args([command, "--timeout", "1s", "--storage.path", "/nonexistent", "--path.rootfs"]).arg(directory.path());
        let output = to_its_end(run, Duration::from_secs(20));
        assert!(output.code.is_some() && !output.stdout.is_empty(), "{command}: {output:?}");
    }
}

/// Scrapes until a finding of the degraded link is there with this severity.
fn until_severity(server: &Server, severity: &str) {
    let wanted = format!("lanewatch_finding{{check=\"pcie_degraded\",severity=\"{severity}\"");
    let began = Instant::now();
    while !server.get("/metrics").text().contains(&wanted) {
        assert!(began.elapsed() < Duration::from_secs(40), "{severity}\n{}", server.log());
        thread::sleep(Duration::from_millis(300));
    }
}

/// Values of the two metrics on the configuration.
fn reloads(server: &Server) -> (bool, f64) {
    let samples = parse(&server.get("/metrics").text()).unwrap();
    let value = |name: &str| samples.iter().find(|sample| sample.name == name).unwrap().value;
    let at = value("lanewatch_config_last_reload_success_timestamp_seconds");
    (value("lanewatch_config_last_reload_successful") > 0.5, at)
}

/// A degraded host, served with a configuration file in which nothing stands yet.
fn configured() -> (TempDir, PathBuf, Server) {
    let directory = TempDir::new().unwrap();
    host(&directory.path().join("host"));
    let config = directory.path().join("lanewatch.toml");
    fs::write(&config, "").unwrap();
    let server = serve(&directory.path().join("host"), |command| _ = command.arg("--config.file").arg(&config));
    until_severity(&server, "critical");
    (directory, config, server)
}

#[test]
fn a_configuration_is_read_again_and_a_bad_one_changes_nothing() {
    let (_directory, config, server) = configured();
    let (successful, started) = reloads(&server);
    assert!(successful);

    fs::write(&config, "[policy.severity]\npcie_degraded = \"warning\"\n").unwrap();
    server.group.signal(Signal::HUP);
    until_severity(&server, "warning");
    let (successful, reloaded) = reloads(&server);
    assert!(successful && reloaded > started, "{reloaded} after {started}");

    fs::write(&config, "[policy.severity]\npcie_degraded = \"fatal\"\n").unwrap();
    server.group.signal(Signal::HUP);
    let began = Instant::now();
    while reloads(&server).0 {
        assert!(began.elapsed() < Duration::from_secs(20), "{}", server.log());
        thread::sleep(Duration::from_millis(50));
    }
    let (_, kept) = reloads(&server);
    assert!((kept - reloaded).abs() < 1e-6, "the configuration in force is that of {reloaded}, not of {kept}");
    let log = server.log();
    let complaints: Vec<&str> =
        log.lines().filter(|line| line.contains("level=error") && !line.contains(" check=")).collect();
    assert_eq!(complaints.len(), 1, "{log}");
    for part in [
        "keeping the old configuration",
        "lanewatch.toml",
        "policy.severity.pcie_degraded",
        "info, warning or critical",
    ] {
        assert!(complaints[0].contains(part), "{part:?} in {}", complaints[0]);
    }
    until_severity(&server, "warning");

    fs::write(&config, "").unwrap();
    server.group.signal(Signal::HUP);
    until_severity(&server, "critical");
    assert!(reloads(&server).0);
}

#[test]
fn a_configuration_that_changes_is_read_without_a_signal() {
    let (directory, config, server) = configured();
    // As an editor does it: beside, and then renamed.
    let beside = directory.path().join("lanewatch.toml~");
    fs::write(&beside, "[policy.severity]\npcie_degraded = \"warning\"\n").unwrap();
    fs::rename(&beside, &config).unwrap();
    until_severity(&server, "warning");
    fs::write(&config, "[policy.severity]\npcie_degraded = \"fatal\"\n").unwrap();
    let began = Instant::now();
    while reloads(&server).0 {
        assert!(began.elapsed() < Duration::from_secs(20), "{}", server.log());
        thread::sleep(Duration::from_millis(50));
    }
    assert!(server.log().contains("keeping the old configuration"), "{}", server.log());
    until_severity(&server, "warning");
}

/// A file system in a directory, mounted there by a process that never answers what the kernel asks it.
struct HungFileSystem {
    holder: Group,
}

impl HungFileSystem {
    /// None where nothing can be mounted.
    fn mount(directory: &Path) -> Option<Self> {
        const MOUNT: &str = "import ctypes, os, sys\n\
            libc = ctypes.CDLL(None, use_errno=True)\n\
            device = os.open('/dev/fuse', os.O_RDWR)\n\
            options = f'fd={device},rootmode=40000,user_id=0,group_id=0'.encode()\n\
            at = sys.argv[1].encode()\n\
            mounted = libc.mount(b'hung', at, b'fuse', 0, options) == 0\n\
            print('mounted' if mounted else os.strerror(ctypes.get_errno()), flush=True)\n\
            sys.stdin.read()\n\
            libc.umount2(at, 2)";
        let mut command = Command::new(require(Tool::Python)?);
        command.args(["-c", MOUNT]).arg(directory).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut holder = Group::spawn(&mut command);
        let mut said = String::new();
        BufReader::new(holder.child.stdout.take().unwrap()).read_line(&mut said).unwrap();
        if said == "mounted\n" {
            Some(Self { holder })
        } else {
            skip("nothing can be mounted here");
            None
        }
    }
}

impl Drop for HungFileSystem {
    fn drop(&mut self) {
        drop(self.holder.child.stdin.take());
        self.holder.wait(Duration::from_secs(10));
    }
}

#[test]
fn a_maintenance_marker_on_a_file_system_that_hangs_stops_no_polling() {
    let directory = TempDir::new().unwrap();
    let root = directory.path().join("host");
    let port = root.join(&host(&root).devices()[0].port).join("state");
    let (config, share) = (directory.path().join("lanewatch.toml"), directory.path().join("share"));
    fs::create_dir(&share).unwrap();
    fs::write(share.join("marker"), "").unwrap();
    fs::write(&config, format!("[policy.maintenance]\nfile = {:?}\n", share.join("marker"))).unwrap();
    let server = serve(&root, |command| _ = command.arg("--config.file").arg(&config));
    let maintenance = |text: &str| text.contains("lanewatch_maintenance 1\n");
    let began = Instant::now();
    while !server.try_get("/metrics").is_ok_and(|answer| maintenance(&answer.text())) {
        assert!(began.elapsed() < Duration::from_secs(20), "{}", server.log());
        thread::sleep(Duration::from_millis(200));
    }
    let Some(hung) = HungFileSystem::mount(&share) else { return };
    for state in ["DOWN", "ACTIVE", "DOWN"] {
        fs::write(&port, if state == "DOWN" { "1: DOWN\n" } else { "4: ACTIVE\n" }).unwrap();
        let line = format!("lanewatch_port_state{{device=\"mlx5_0\",port=\"1\",state=\"{state}\"}} 1\n");
        let began = Instant::now();
        loop {
            thread::sleep(Duration::from_millis(1_100));
            let text = server.get("/metrics").text();
            // What was known before holds until the file system says otherwise.
            if text.contains(&line) {
                assert!(maintenance(&text), "{text}");
                break;
            }
            assert!(began.elapsed() < Duration::from_secs(10), "polling has stopped\n{}", server.log());
        }
    }
    let began = Instant::now();
    while !server.log().contains("the file system is not responding, the host stays in maintenance") {
        assert!(began.elapsed() < Duration::from_secs(20), "{}", server.log());
        thread::sleep(Duration::from_millis(200));
    }
    // Without its server the file system ends.
    drop(hung);
    fs::remove_file(share.join("marker")).unwrap();
    let began = Instant::now();
    while maintenance(&server.get("/metrics").text()) {
        assert!(began.elapsed() < Duration::from_secs(20), "{}", server.log());
        thread::sleep(Duration::from_millis(1_100));
    }
}

/// Length of the watchdog in these tests.
const WATCHDOG: Duration = Duration::from_millis(900);

/// `serve` with a watchdog, once it has said that it is ready.
fn watched(root: &Path, manager: &Manager) -> Server {
    let server = serve(root, |command| {
        let length = WATCHDOG.as_micros().to_string();
        command.env("NOTIFY_SOCKET", &manager.path).env("WATCHDOG_USEC", length).env_remove("WATCHDOG_PID");
    });
    let began = Instant::now();
    while manager.told(Duration::from_secs(40)).unwrap() != "READY=1" {
        assert!(began.elapsed() < Duration::from_secs(60), "{}", server.log());
    }
    server
}

#[test]
fn the_watchdog_is_fed_while_a_collector_is_stuck() {
    let directory = TempDir::new().unwrap();
    let Some(_hanging) = HangingHost::new(&directory.path().join("host")) else { return };
    let manager = Manager::listening(directory.path());
    let server = watched(&directory.path().join("host"), &manager);
    let began = Instant::now();
    while began.elapsed() < WATCHDOG * 5 {
        assert_eq!(manager.told(WATCHDOG).as_deref(), Some("WATCHDOG=1"), "{}", server.log());
    }
    let stuck = "lanewatch_collector_stuck{collector=\"pci\"} 1\n";
    assert!(server.get("/metrics").text().contains(stuck), "nothing was stuck\n{}", server.log());
}

/// One thread of a process, stopped: a tracer holds it until it is told to let go.
struct Halted {
    _tracer: Group,
}

impl Halted {
    /// None where tracing is forbidden.
    fn new(pid: u32, thread: &str) -> Option<Self> {
        const TRACE: &str = "import ctypes, os, sys\n\
            libc = ctypes.CDLL(None, use_errno=True)\n\
            libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]\n\
            tasks = f'/proc/{sys.argv[1]}/task'\n\
            name = lambda task: open(f'{tasks}/{task}/comm').read().strip()\n\
            thread = next(int(task) for task in os.listdir(tasks) if name(task) == sys.argv[2])\n\
            seize, interrupt = 0x4206, 0x4207\n\
            done = all(libc.ptrace(step, thread, None, None) == 0 for step in (seize, interrupt))\n\
            print('held' if done else 'forbidden', flush=True)\n\
            sys.stdin.read()";
        let mut command = Command::new(require(Tool::Python)?);
        command.args(["-c", TRACE, &pid.to_string(), thread]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut tracer = Group::spawn(&mut command);
        let mut said = String::new();
        BufReader::new(tracer.child.stdout.take().unwrap()).read_line(&mut said).unwrap();
        match said.as_str() {
            "held\n" => Some(Self { _tracer: tracer }),
            "forbidden\n" => {
                skip("no process may trace another here");
                None
            }
            _ => panic!("{said:?} of {thread} in {pid}"),
        }
    }
}

#[test]
fn the_watchdog_starves_when_the_evaluation_is_stuck() {
    let directory = TempDir::new().unwrap();
    host(&directory.path().join("host"));
    let manager = Manager::listening(directory.path());
    let server = watched(&directory.path().join("host"), &manager);
    let Some(_halted) = Halted::new(server.group.child.id(), "poller") else { return };
    server.group.signal(Signal::HUP);
    let began = Instant::now();
    while manager.told(WATCHDOG * 2).is_some() {
        assert!(began.elapsed() < Duration::from_secs(30), "fed though nothing is evaluated\n{}", server.log());
    }
    // The rest of it is as alive as ever, and would have gone on saying so.
    assert_eq!(server.get("/-/healthy").status, 200);
    assert!(server.log().contains("the evaluation is stuck"), "{}", server.log());
}

/// What the poller has not saved yet when the agent is asked to end, it saves first.
#[test]
fn the_end_waits_for_the_last_save() {
    let (directory, config, mut server) = configured();
    let Some(halted) = Halted::new(server.group.child.id(), "poller") else { return };
    fs::write(&config, "[policy.hold]\nport_down = \"7m\"\n").unwrap();
    server.group.signal(Signal::HUP);
    thread::sleep(Duration::from_secs(1));
    server.group.signal(Signal::TERM);
    assert!(server.group.wait(Duration::from_secs(2)).is_none(), "it did not wait\n{}", server.log());
    drop(halted);
    let ended = server.group.wait(Duration::from_secs(10)).unwrap();
    assert_eq!(ended.code(), Some(0), "{}", server.log());
    let journal = fs::read_to_string(server.directory.path().join("state/events.jsonl")).unwrap();
    assert!(journal.contains("\"kind\":\"reloaded\""), "{journal}\n{}", server.log());
    drop(directory);
}

#[test]
fn a_pipe_in_the_place_of_a_state_file_holds_nothing_up() {
    let (directory, own) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    host(directory.path());
    let state = own.path().join("state");
    fs::create_dir(&state).unwrap();
    for name in ["state.json.new", "state.json", "events.jsonl", "lock"] {
        assert!(Command::new("mkfifo").arg(state.join(name)).status().unwrap().success());
    }
    let mut server = serve_in(own, directory.path(), |_| {});
    until_severity(&server, "critical");
    assert_eq!(end(&mut server), Some(0), "{}", server.log());
    assert!(fs::symlink_metadata(state.join("state.json")).unwrap().is_file(), "{}", server.log());
    assert!(server.log().contains("events.jsonl"), "{}", server.log());
}

#[test]
fn sockets_are_taken_from_those_who_hand_them_over() {
    let directory = TempDir::new().unwrap();
    host(directory.path());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // What systemd does: the socket is descriptor 3, and the variables name the process that it is for.
    let script = "exec 3<&0 0</dev/null; export LISTEN_PID=$$ LISTEN_FDS=1; exec \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh", PROGRAM, "serve", "--web.systemd-socket", "--storage.path", "state"]);
    command.arg("--path.rootfs").arg(directory.path());
    let mut server = with_socket(command, listener, address);
    assert!(server.get("/metrics").text().contains("lanewatch_device_info{device=\"mlx5_0\""));
    assert_eq!(end(&mut server), Some(0));
}

/// Starts a command with a socket as its standard input.
fn with_socket(mut command: Command, listener: TcpListener, address: SocketAddr) -> Server {
    let directory = TempDir::new().unwrap();
    let log = fs::File::create(directory.path().join("log")).unwrap();
    command.current_dir(directory.path()).stdin(OwnedFd::from(listener));
    command.stdout(log.try_clone().unwrap()).stderr(log);
    let group = Group::spawn(&mut command);
    let server = Server { group, address, directory };
    let began = Instant::now();
    while !server.try_get("/-/ready").is_ok_and(|answer| answer.status == 200) {
        assert!(began.elapsed() < Duration::from_secs(30), "{}", server.log());
        thread::sleep(Duration::from_millis(50));
    }
    server
}

#[test]
fn systemds_own_tool_hands_a_socket_over() {
    // A part of systemd; the test before this one does the same by hand.
    if Command::new("systemd-socket-activate").arg("--version").output().is_err() {
        return;
    }
    let directory = TempDir::new().unwrap();
    host(directory.path());
    let (address, own) = (free_address(), TempDir::new().unwrap());
    let mut command = Command::new("systemd-socket-activate");
    command.args(["-l", &address.to_string(), PROGRAM, "serve", "--web.systemd-socket", "--storage.path", "state"]);
    command.arg("--path.rootfs").arg(directory.path());
    let mut server = Server::spawn(command, address, own, "/-/ready");
    assert!(server.get("/metrics").text().contains("lanewatch_device_info{device=\"mlx5_0\""));
    assert_eq!(end(&mut server), Some(0));
}

#[test]
fn no_socket_from_systemd_is_one_line() {
    let directory = TempDir::new().unwrap();
    let mut command = program();
    command.args(["serve", "--web.systemd-socket", "--log.level", "error", "--storage.path", "state", "--path.rootfs"]);
    command.arg(directory.path()).current_dir(directory.path());
    let output = to_its_end(command, Duration::from_secs(30));
    assert_eq!(output.code, Some(1));
    assert_eq!(
        output.stderr,
        "lanewatch: --web.systemd-socket: systemd passed no socket (LISTEN_FDS); start lanewatch.socket\n"
    );
}
