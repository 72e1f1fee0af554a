//! Runs the program that is tested, and ends what it started.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;

use super::http::{self, Response};

/// The program, as cargo built it beside this test.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_lanewatch");

/// How long a command may take before it is killed and the test fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a command left.
#[derive(Debug)]
pub struct Output {
    /// Exit code; none when a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// Runs the program to its end, in an empty directory of its own and without this process's `LANEWATCH_` settings.
pub fn lanewatch<S: AsRef<OsStr>>(arguments: &[S]) -> Output {
    let directory = TempDir::new().unwrap();
    lanewatch_in(directory.path(), arguments)
}

/// The same in this directory.
pub fn lanewatch_in<S: AsRef<OsStr>>(directory: &Path, arguments: &[S]) -> Output {
    let mut command = program();
    command.args(arguments).current_dir(directory);
    to_its_end(command, PATIENCE)
}

/// A copy of the program in a folder, where anybody may run it.
pub fn for_anybody(folder: &Path) -> PathBuf {
    let copy = folder.join("lanewatch");
    fs::copy(PROGRAM, &copy).unwrap();
    for path in [folder, &copy] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    copy
}

/// Runs the program on the host below `root` as a user without privileges: who runs the tests, or nobody where that is
/// root. The program is then copied beside the host, where anybody may run it.
pub fn as_nobody<S: AsRef<OsStr>>(root: &Path, arguments: &[S]) -> Output {
    let mut command = program();
    if rustix::process::geteuid().is_root() {
        const NOBODY: u32 = 65_534;
        let copy = for_anybody(root);
        let environment: Vec<_> =
            command.get_envs().map(|(name, value)| (name.to_owned(), value.map(OsStr::to_owned))).collect();
        command = Command::new(copy);
        for (name, value) in environment {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.uid(NOBODY).gid(NOBODY);
    }
    command.args(arguments).arg("--path.rootfs").arg(root).args(["--storage.path", "/nonexistent"]).current_dir("/");
    to_its_end(command, PATIENCE)
}

/// Runs a command to its end, and its whole process group to death when it takes longer than it may.
pub fn to_its_end(mut command: Command, patience: Duration) -> Output {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut group = Group::spawn(&mut command);
    let (stdout, stderr) = (group.child.stdout.take(), group.child.stderr.take());
    let stdout = thread::spawn(move || text(stdout));
    let stderr = thread::spawn(move || text(stderr));
    let status = group.wait(patience);
    drop(group);
    let (stdout, stderr) = (stdout.join().unwrap(), stderr.join().unwrap());
    let Some(status) = status else { panic!("{command:?} did not end in {patience:?}\n{stdout}\n{stderr}") };
    Output { code: status.code(), stdout, stderr }
}

fn text(pipe: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        let _ = pipe.read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The program without settings from outside, in a locale with Unicode.
pub fn program() -> Command {
    let mut command = Command::new(PROGRAM);
    command.env("LC_ALL", "C.UTF-8");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("LANEWATCH_")) {
        command.env_remove(name);
    }
    command
}

/// A process and all that it starts; killed when dropped.
pub struct Group {
    /// The process.
    pub child: Child,
}

impl Group {
    /// Starts a command as the head of a process group.
    pub fn spawn(command: &mut Command) -> Self {
        let child = command.process_group(0).spawn();
        Self { child: child.unwrap_or_else(|error| panic!("{command:?}: {error}")) }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended; none when it still runs after this time.
    pub fn wait(&mut self, patience: Duration) -> Option<ExitStatus> {
        let end = Instant::now() + patience;
        loop {
            match self.child.try_wait() {
                Ok(None) if Instant::now() < end => thread::sleep(Duration::from_millis(5)),
                Ok(status) => return status,
                Err(error) => panic!("waiting for a child: {error}"),
            }
        }
    }

    /// Sends a signal to the process alone.
    pub fn signal(&self, signal: Signal) {
        rustix::process::kill_process(self.id(), signal).unwrap();
    }

    fn id(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Gone already is as good.
        let _ = kill_process_group(self.id(), Signal::KILL);
        let _ = self.child.wait();
    }
}

/// A port on loopback that nobody listens on.
pub fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).unwrap()
}

/// A process that serves HTTP.
pub struct Server {
    /// The process.
    pub group: Group,
    /// Where it listens.
    pub address: SocketAddr,
    /// Its directory; its log is there.
    pub directory: TempDir,
}

impl Server {
    /// Starts `serve`, `demo` or the like and waits until it is ready. State goes to a directory of its own, unless
    /// the arguments say otherwise.
    pub fn start<S: AsRef<OsStr>>(verb: &str, arguments: &[S]) -> Self {
        let mut command = program();
        command.arg(verb).args(arguments);
        let (address, directory) = (free_address(), TempDir::new().unwrap());
        command.arg("--web.listen-address").arg(address.to_string());
        if verb == "serve" && !arguments.iter().any(|argument| argument.as_ref() == "--storage.path") {
            command.arg("--storage.path").arg(directory.path().join("state"));
        }
        Self::spawn(command, address, directory, "/-/ready")
    }

    /// Starts a command that will listen on this address, and waits until the path answers with 200.
    pub fn spawn(mut command: Command, address: SocketAddr, directory: TempDir, ready: &str) -> Self {
        let log = File::create(directory.path().join("log")).unwrap();
        command.current_dir(directory.path()).stdin(Stdio::null());
        command.stdout(log.try_clone().unwrap()).stderr(log);
        let group = Group::spawn(&mut command);
        let mut server = Self { group, address, directory };
        server.wait_until_ready(&command, ready);
        server
    }

    fn wait_until_ready(&mut self, command: &Command, ready: &str) {
        let end = Instant::now() + PATIENCE;
        while !http::get(self.address, ready).is_ok_and(|answer| answer.status == 200) {
            let ended = self.group.wait(Duration::from_millis(20));
            assert!(ended.is_none() && Instant::now() < end, "{command:?} is not ready ({ended:?})\n{}", self.log());
        }
    }

    /// GET.
    pub fn get(&self, path: &str) -> Response {
        self.try_get(path).unwrap_or_else(|error| panic!("GET {path}: {error}\n{}", self.log()))
    }

    /// GET that may fail.
    pub fn try_get(&self, path: &str) -> io::Result<Response> {
        http::get(self.address, path)
    }

    /// What it has printed.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }
}
