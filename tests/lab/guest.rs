//! One virtual machine with the program in it: what is done to it. What its agent says is in `watching`.

use std::fs::{self, Permissions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::common::http;
use crate::common::run::{Group, PROGRAM, free_address};
use crate::common::tools::skip;
use crate::kernels::architecture;
pub use crate::kernels::{Kernel, on, on_each_kernel};

/// How long something in a guest may take to come about.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// Port of the agent in every guest.
const PORT: u16 = 10015;

/// A machine that runs: four CPUs on two NUMA nodes, `pf0` (igb at 0000:41:00.0, 8 GT/s x8 above it) on node 0, `pf1`
/// (0000:81:00.0, 16 GT/s x16 above it) on node 1.
pub struct Guest {
    /// The process that keeps the machine, and the machine as its child.
    _group: Group,
    calls: ChildStdin,
    answers: BufReader<ChildStdout>,
    address: SocketAddr,
    options: Value,
    _directory: TempDir,
}

impl Guest {
    /// Boots a machine of this kernel; none, and the scenario skipped, where there is no image.
    pub fn boot(kernel: Kernel) -> Option<Self> {
        Self::boot_with(kernel, &json!({}))
    }

    /// The same with more options of the machine (`Lab` in `machine.py`).
    pub fn boot_with(kernel: Kernel, options: &Value) -> Option<Self> {
        let image = kernel.image();
        if !image.join("stamp").exists() {
            skip("no image of the lab (tests/lab/image.sh makes it)");
            return None;
        }
        let directory = TempDir::new().unwrap();
        let inject = directory.path().join("inject");
        place_program(&inject);
        let address = free_address();
        let mut all = json!({"image": image, "inject": inject, "hostfwd": [[address.port(), PORT]]});
        all["arch"] = json!(architecture());
        let options = options.as_object().unwrap();
        all["cache"] = json!(Path::new(env!("CARGO_MANIFEST_DIR")).join(".cache/lab/saved"));
        all["saved"] = json!(options.is_empty());
        for (key, value) in options {
            all[key] = value.clone();
        }
        let mut command = Command::new("python3");
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lab/machine.py"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut group = Group::spawn(&mut command);
        let (calls, answers) = (group.child.stdin.take().unwrap(), group.child.stdout.take().unwrap());
        let answers = BufReader::new(answers);
        let mut guest = Self { _group: group, calls, answers, address, options: all.clone(), _directory: directory };
        guest.call("boot", &all);
        Some(guest)
    }

    /// Where the agent listens, on this host.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Calls a method of the machine's keeper.
    pub fn call(&mut self, call: &str, args: &Value) -> Value {
        self.try_call(call, args).unwrap_or_else(|error| panic!("{call} {args}: {error}"))
    }

    fn try_call(&mut self, call: &str, args: &Value) -> Result<Value, String> {
        let gone = |error: std::io::Error| format!("the machine's keeper is gone: {error}");
        writeln!(self.calls, "{}", json!({"vm": "a", "call": call, "args": args})).map_err(gone)?;
        let mut line = String::new();
        self.answers.read_line(&mut line).map_err(gone)?;
        let mut answer: Value = serde_json::from_str(&line).map_err(|error| format!("{error}: {line:?}"))?;
        match answer.get("error") {
            Some(error) => Err(error.as_str().unwrap_or_default().to_owned()),
            None => Ok(answer["ok"].take()),
        }
    }

    /// Runs a command; its exit code, and what it printed.
    pub fn run(&mut self, command: &str) -> (i64, String) {
        let answer = self.call("sh", &json!({"cmd": command}));
        (answer[0].as_i64().unwrap(), answer[1].as_str().unwrap().to_owned())
    }

    /// Runs a command that must succeed; what it printed.
    pub fn sh(&mut self, command: &str) -> String {
        let (code, text) = self.run(command);
        assert_eq!(code, 0, "{command}\n{text}");
        text
    }

    /// Waits until a command succeeds.
    pub fn until(&mut self, command: &str) {
        self.sh(&format!("for i in $(seq 600); do {command} && exit 0; sleep 0.2; done; exit 1"));
    }

    /// The bytes of a file in the guest.
    pub fn file(&mut self, path: &str) -> Vec<u8> {
        let text = self.sh(&format!("od -An -v -tx1 {path}"));
        text.split_ascii_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
    }

    /// Starts the agent with this configuration, as its log goes to `/run/lanewatch.log`, and waits until it is ready.
    pub fn serve(&mut self, config: &str) {
        self.serve_under("", config);
    }

    /// The same by another program: `unshare --time`, say.
    pub fn serve_under(&mut self, by: &str, config: &str) {
        self.sh(&format!("cat > /run/lanewatch.toml <<'END'\n{config}\nEND"));
        self.sh(&format!(
            "mkdir -p /var/lib/lanewatch; (setsid {by} lanewatch serve --web.public-snapshot --config.file /run/lanewatch.toml \
             > /run/lanewatch.log 2>&1 &)"
        ));
        let end = Instant::now() + PATIENCE;
        while !http::get(self.address, "/-/ready").is_ok_and(|answer| answer.status == 200) {
            assert!(Instant::now() < end, "the agent is not ready\n{}", self.log());
            thread::sleep(Duration::from_millis(200));
        }
    }

    /// Ends the agent as `kill` would.
    pub fn stop(&mut self, signal: &str) {
        self.sh(&format!("pkill -{signal} lanewatch; while pgrep lanewatch >/dev/null; do sleep 0.1; done"));
    }

    /// The agent's log.
    pub fn log(&mut self) -> String {
        self.run("cat /run/lanewatch.log").1
    }

    /// Two Soft-RoCE devices, `rxe0` on `pf0` and `rxe1` on `pf1`, with addresses.
    pub fn soft_roce(&mut self) {
        self.sh(
            "ip link set pf0 up; ip link set pf1 up; ip addr add 192.168.50.1/24 dev pf0; \
             ip addr add 192.168.51.1/24 dev pf1; modprobe rdma_rxe; modprobe rdma_ucm; \
             rdma link add rxe0 type rxe netdev pf0 && rdma link add rxe1 type rxe netdev pf1; \
             for i in $(seq 400); do [ $(cat /sys/class/infiniband/rxe?/ports/1/state | grep -c ACTIVE) = 2 ] && exit 0; \
             sleep 0.25; done; rdma link; exit 1",
        );
    }

    /// The stand-in provider: `mlx5_0`, InfiniBand on `pf0`, and `mlx5_1`, RoCE on `pf1`.
    pub fn stand_in(&mut self) {
        self.sh("ip link set pf0 up; ip link set pf1 up; ip addr add 192.168.51.1/24 dev pf1; \
             modprobe labib pci=0000:41:00.0,0000:81:00.0 roce=0,1");
        self.until("grep -q ACTIVE /sys/class/infiniband/mlx5_1/ports/1/state");
    }

    /// Sets values of a stand-in device.
    pub fn set(&mut self, device: &str, values: &[(&str, u64)]) {
        let set = |(key, value): &(&str, u64)| format!("echo {value} > /sys/kernel/debug/labib/{device}/{key}");
        let commands: Vec<String> = values.iter().map(set).collect();
        self.sh(&commands.join(" && "));
    }

    /// Moves the machine to another process. `extra` are arguments for what was plugged in since it booted.
    pub fn migrate(&mut self, extra: &[&str]) {
        self.options["extra"] = json!(extra);
        self.call("migrate", &json!({"to": "a", "options": self.options}));
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.try_call("sh", &json!({"cmd": "cat /run/lanewatch.log; dmesg | tail -n 60"}));
            let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/lab");
            let name = thread::current().name().unwrap_or("scenario").replace("::", "-");
            let _ = fs::create_dir_all(&kept);
            let _ = fs::write(kept.join(format!("{name}.log")), format!("{log:#?}").replace("\\n", "\n"));
        }
        let _ = self.try_call("close", &json!({}));
    }
}

/// Puts the program where the guest looks for it: the one under test, without its symbols.
fn place_program(inject: &Path) {
    static STRIPPED: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let program = std::env::var_os("LANEWATCH_LAB_PROGRAM").unwrap_or_else(|| PROGRAM.into());
        let directory = TempDir::new().unwrap();
        let placed = directory.path().join("lanewatch");
        let strip = format!("{}-linux-gnu-strip", architecture());
        let stripped = Command::new(strip).arg("-o").arg(&placed).arg(&program).status();
        fs::read(if stripped.is_ok_and(|status| status.success()) { placed } else { program.into() }).unwrap()
    });
    let binaries = inject.join("bin");
    fs::create_dir_all(&binaries).unwrap();
    let placed = binaries.join("lanewatch");
    fs::write(&placed, &*STRIPPED).unwrap();
    fs::set_permissions(&placed, Permissions::from_mode(0o755)).unwrap();
}
