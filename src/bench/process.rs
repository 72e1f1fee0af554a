//! Child processes that leave nothing behind: finding the programs, the directory of a run, and the process itself, in a
//! process group of its own, with a deadline, killed as a group. Then the outcome: values, a failure of the device or the
//! path, or a failure of the tool itself, which says nothing about the device.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, setpriority_process, waitid};
use rustix::thread::{CpuSet as Affinity, sched_setaffinity};
use tempfile::TempDir;

use super::perftest::{BandwidthUnit, PerftestJsonError, PerftestReport, from_json, from_text};
use crate::model::benchmark::{Doubt, Failure};
use crate::model::irq::CpuSet;

/// Most that a program may print, in bytes; then it is killed.
const MOST_OUTPUT: u64 = 4 << 20;

/// How often a child is looked at.
const LOOK: Duration = Duration::from_millis(10);

/// From SIGTERM to SIGKILL.
const GRACE: Duration = Duration::from_millis(500);

/// The niceness of probes. The class of input and output follows it: probes have none of their own.
const NICE: i32 = 10;

/// Set when this process is asked to end.
static STOPPED: AtomicBool = AtomicBool::new(false);

/// Ends every child at once, and lets no other start: this process is asked to end.
pub fn stop_all() {
    STOPPED.store(true, Ordering::Relaxed);
}

/// Whether this process is asked to end.
pub fn is_stopped() -> bool {
    STOPPED.load(Ordering::Relaxed)
}

/// How a child ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessExit {
    /// Its exit code; none when a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Whether it was killed because its time was over.
    pub timed_out: bool,
    /// Whether it was killed because it printed without end.
    pub flooded: bool,
    /// What it printed, standard output and then standard error.
    pub output: String,
}

/// A program with its arguments.
#[derive(Debug, Clone)]
pub struct Invocation {
    /// The program.
    pub program: PathBuf,
    /// Arguments.
    pub arguments: Vec<String>,
}

/// A running child. Dropped, it is killed with its group.
#[derive(Debug)]
pub struct Child {
    inner: std::process::Child,
    directory: PathBuf,
    ended: bool,
}

impl Child {
    /// Starts a program in a folder, which also takes what it prints, at low priority and on these CPUs. It dies with
    /// the agent where the system has `setpriv`: to the kernel that is the thread that starts it, which must outlive it.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn start(invocation: &Invocation, directory: &Path, cpus: Option<&CpuSet>) -> io::Result<Self> {
        if is_stopped() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let mut command = match find("setpriv") {
            Some(setpriv) => {
                let mut command = Command::new(setpriv);
                command.args(["--pdeathsig", "KILL", "--"]).arg(&invocation.program);
                command
            }
            None => Command::new(&invocation.program),
        };
        command
            .args(&invocation.arguments)
            .current_dir(directory)
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(File::create(directory.join("stdout"))?)
            .stderr(File::create(directory.join("stderr"))?)
            .process_group(0);
        let inner = command.spawn()?;
        let child = Self { inner, directory: directory.to_owned(), ended: false };
        // What cannot be set costs politeness or precision, and no result.
        let _ = setpriority_process(child.group(), NICE);
        if let Some(cpus) = cpus.filter(|cpus| !cpus.is_empty()) {
            let mut affinity = Affinity::new();
            (0..Affinity::MAX_CPU).filter(|cpu| u32::try_from(*cpu).is_ok_and(|cpu| cpus.contains(cpu))).for_each(
                |cpu| {
                    affinity.set(cpu);
                },
            );
            let _ = sched_setaffinity(child.group(), &affinity);
        }
        Ok(child)
    }

    /// The process, which is its group's leader.
    pub fn group(&self) -> Option<Pid> {
        Pid::from_raw(i32::try_from(self.inner.id()).ok()?)
    }

    /// Whether it has ended by itself. It stays a zombie, so that its group's number stays its own.
    pub fn is_over(&self) -> bool {
        let Some(pid) = self.group().filter(|_| !self.ended) else { return true };
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        !matches!(waitid(WaitId::Pid(pid), options), Ok(None))
    }

    /// Waits for its end until a moment, and then ends it.
    pub fn wait(&mut self, until: Instant) -> ProcessExit {
        let (mut timed_out, mut flooded) = (false, false);
        while !self.is_over() {
            timed_out = is_stopped() || Instant::now() >= until;
            flooded = self.printed() > MOST_OUTPUT;
            if timed_out || flooded {
                break;
            }
            std::thread::sleep(LOOK);
        }
        let status = self.end();
        ProcessExit {
            code: status.and_then(|status| status.code()),
            signal: status.and_then(|status| status.signal()),
            timed_out,
            flooded,
            output: self.output(),
        }
    }

    /// Ends whatever is left of its group and reaps it.
    pub fn end(&mut self) -> Option<ExitStatus> {
        if self.ended {
            return None;
        }
        let group = self.group();
        let signal = |signal| group.map(|group| kill_process_group(group, signal));
        if !self.is_over() {
            signal(Signal::TERM);
            let until = Instant::now() + GRACE;
            while !self.is_over() && Instant::now() < until {
                std::thread::sleep(LOOK);
            }
        }
        // Before the leader is reaped, and whether or not it is over: its own children may not be.
        signal(Signal::KILL);
        let status = self.inner.wait().ok();
        self.ended = true;
        status
    }

    fn printed(&self) -> u64 {
        let size = |name| std::fs::metadata(self.directory.join(name)).map_or(0, |meta| meta.len());
        size("stdout") + size("stderr")
    }

    fn output(&self) -> String {
        let mut bytes = Vec::new();
        for name in ["stdout", "stderr"] {
            if let Ok(file) = File::open(self.directory.join(name)) {
                // What cannot be read is as if it were not printed.
                let _ = file.take(MOST_OUTPUT).read_to_end(&mut bytes);
                bytes.push(b'\n');
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.end();
    }
}

/// The program of this name in the folders of `PATH`.
pub fn find(name: &str) -> Option<PathBuf> {
    find_in(name, &std::env::var_os("PATH").unwrap_or_default())
}

/// The program of this name in these folders, between colons.
pub fn find_in(name: &str, folders: &OsStr) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt as _;
    let usable = |path: &PathBuf| {
        std::fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    std::env::split_paths(folders).filter(|folder| folder.is_absolute()).map(|folder| folder.join(name)).find(usable)
}

const PREFIX: &str = "lanewatch-probe-";

/// One that was made just now may not be locked yet.
const NEW: Duration = Duration::from_secs(60);

/// A folder that is removed with everything in it when this ends.
#[derive(Debug)]
pub struct RunDirectory {
    directory: TempDir,
    /// A lock and no process number: those are told apart in other PID namespaces, too, and are never used again.
    _lock: File,
}

impl RunDirectory {
    /// A new one where temporary files go.
    ///
    /// # Errors
    /// There is no place for it.
    pub fn new() -> io::Result<Self> {
        Self::below(&std::env::temp_dir(), SystemTime::now())
    }

    fn below(place: &Path, now: SystemTime) -> io::Result<Self> {
        sweep(place, now);
        let directory = tempfile::Builder::new().prefix(PREFIX).tempdir_in(place)?;
        let lock = open(directory.path())?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Self { directory, _lock: lock })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }
}

/// Removes what nobody holds any more. What cannot be removed is in nobody's way.
fn sweep(place: &Path, now: SystemTime) {
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX)) {
        if is_left(&entry.path(), now).unwrap_or(false) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn is_left(path: &Path, now: SystemTime) -> io::Result<bool> {
    let folder = open(path)?;
    let meta = folder.metadata()?;
    let old = now.duration_since(meta.modified()?).is_ok_and(|age| age >= NEW);
    Ok(old
        && meta.uid() == rustix::process::geteuid().as_raw()
        && flock(&folder, FlockOperation::NonBlockingLockExclusive).is_ok())
}

fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::open(path, OFlags::RDONLY | flags, Mode::empty())?))
}

/// How long a program may take to say what it can do.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Where programs are, and which of them write JSON.
#[derive(Debug, Default)]
pub struct Toolbox {
    folders: OsString,
    json: Mutex<BTreeMap<PathBuf, bool>>,
}

impl Toolbox {
    /// Looks in the folders of `PATH`.
    pub fn new() -> Self {
        Self::in_folders(std::env::var_os("PATH").unwrap_or_default())
    }

    /// Looks in these folders, between colons.
    pub fn in_folders(folders: OsString) -> Self {
        Self { folders, json: Mutex::default() }
    }

    /// Where a program is.
    pub fn find(&self, name: &str) -> Option<PathBuf> {
        find_in(name, &self.folders)
    }

    /// Whether a perftest program can write its result as JSON (`--out_json_file`).
    pub fn writes_json(&self, program: &Path) -> bool {
        let mut known = self.json.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(known) = known.get(program) {
            return *known;
        }
        // One that does not answer, on a busy host say, is asked again the next time.
        let Some(help) = ask(program) else { return false };
        let answer = help.contains("out_json_file");
        known.insert(program.to_owned(), answer);
        answer
    }
}

fn ask(program: &Path) -> Option<String> {
    let directory = RunDirectory::new().ok()?;
    let invocation = Invocation { program: program.to_owned(), arguments: vec!["--help".to_owned()] };
    let mut child = Child::start(&invocation, directory.path(), None).ok()?;
    Some(child.wait(Instant::now() + TIMEOUT)).filter(|ended| !ended.timed_out).map(|ended| ended.output)
}

/// What came of a run.
#[derive(Debug, Clone, PartialEq)]
pub enum PerftestOutcome {
    /// It measured.
    Measured(Box<PerftestReport>),
    /// Data could not be moved.
    Failed(Failure, String),
    /// The tool got into trouble: why, and a sentence.
    Inconclusive(Doubt, String),
}

/// Judges how perftest ended, by its exit, what it printed, and its result file (if it wrote one), whose bandwidths are
/// in `unit`. `name` is the program's.
pub fn classify(name: &str, ended: &ProcessExit, file: Option<&str>, unit: BandwidthUnit) -> PerftestOutcome {
    let text = from_text(&ended.output);
    let document = file.map(|file| from_json(file, unit));
    let odd = |reason, text| PerftestOutcome::Inconclusive(reason, text);
    if let Some(trouble) = &text.trouble {
        return PerftestOutcome::Failed(trouble.failure, trouble.text.clone());
    }
    if ended.output.contains("Couldn't listen") {
        return odd(Doubt::PortTaken, format!("{name}: its TCP port is in use"));
    }
    if ended.timed_out {
        return odd(Doubt::Timeout, format!("{name} timed out and was killed"));
    }
    if ended.flooded {
        return odd(Doubt::Garbage, format!("{name} printed too much output and was killed"));
    }
    let impossible = text.impossible || matches!(document, Some(Err(PerftestJsonError::Impossible { .. })));
    if impossible {
        return odd(Doubt::ImpossibleValue, format!("{name} reported an impossible value"));
    }
    if let Some(signal) = ended.signal {
        return odd(Doubt::Crashed, format!("{name} was killed by signal {signal}"));
    }
    let measured = match document {
        Some(Ok(report)) => Some(report),
        // The file may be another run's or in no form that is known; the text has its unit with it.
        Some(Err(_)) | None => text.has_values().then_some(text),
    };
    match (measured, ended.code) {
        (Some(report), Some(0)) => PerftestOutcome::Measured(Box::new(report)),
        (Some(_), code) => {
            let code = code.map_or("none".to_owned(), |code| code.to_string());
            odd(
                Doubt::ExitStatus,
                format!("{name} failed after the measurement (exit status {code}): its value is discarded"),
            )
        }
        (None, code) => {
            let said = ended.output.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with("---"));
            let said = said.map(|line| format!(": {}", line.chars().take(120).collect::<String>())).unwrap_or_default();
            let code = code.map_or("none".to_owned(), |code| code.to_string());
            odd(Doubt::NoResult, format!("{name} printed no result (exit status {code}){said}"))
        }
    }
}

#[cfg(test)]
mod child_tests {
    use super::*;

    fn shell(script: &str, limit: Duration) -> (ProcessExit, tempfile::TempDir) {
        let directory = tempfile::tempdir().unwrap();
        let arguments = vec!["-c".to_owned(), script.to_owned()];
        let invocation = Invocation { program: PathBuf::from("/bin/sh"), arguments };
        let mut child = Child::start(&invocation, directory.path(), None).unwrap();
        (child.wait(Instant::now() + limit), directory)
    }

    /// Whether a process is there and no zombie.
    fn is_alive(pid: &str) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.trim_start().starts_with('Z'))
    }

    /// Whether a process that was killed is gone; the kernel may take a moment.
    fn dies(pid: &str) -> bool {
        let until = Instant::now() + Duration::from_secs(10);
        while is_alive(pid) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        !is_alive(pid)
    }

    #[test]
    fn both_outputs_and_the_code() {
        let (ended, _directory) = shell("echo one; echo two >&2; exit 3", Duration::from_secs(20));
        assert_eq!((ended.code, ended.output.as_str(), ended.timed_out), (Some(3), "one\n\ntwo\n\n", false));
    }

    #[test]
    fn what_ignores_sigterm_is_killed_with_its_children() {
        let script = "trap '' TERM; sleep 600 & echo $!; while :; do sleep 0.05; done";
        let (ended, _directory) = shell(script, Duration::from_millis(300));
        assert_eq!((ended.timed_out, ended.signal), (true, Some(9)));
        assert!(dies(ended.output.lines().next().unwrap()));
    }

    #[test]
    fn children_of_one_that_has_ended_are_killed() {
        let (ended, _directory) = shell("sleep 600 & echo $!", Duration::from_secs(20));
        assert_eq!((ended.timed_out, ended.code), (false, Some(0)));
        assert!(dies(ended.output.lines().next().unwrap()));
    }

    #[test]
    fn what_prints_without_end_is_killed() {
        let (ended, _directory) = shell("yes", Duration::from_secs(60));
        assert!(ended.flooded && !ended.timed_out);
        assert!(ended.output.len() < 9 << 20);
    }

    #[test]
    fn programs_are_found_or_not() {
        assert!(find_in("sh", OsStr::new("/nowhere:/bin:/usr/bin")).is_some());
        assert_eq!(find_in("no-such-program", OsStr::new("/bin")), None);
        assert_eq!(find_in("sh", OsStr::new("")), None);
    }
}

#[cfg(test)]
mod folder_tests {
    use super::*;

    #[test]
    fn what_was_left_goes_and_what_is_in_use_stays() {
        let place = tempfile::tempdir().unwrap();
        let (left, other) = (place.path().join("lanewatch-probe-left"), place.path().join("lanewatch-other"));
        let link = place.path().join("lanewatch-probe-link");
        fs::create_dir_all(left.join("in/it")).unwrap();
        fs::write(left.join("result.json"), "{").unwrap();
        fs::create_dir(&other).unwrap();
        std::os::unix::fs::symlink(&other, &link).unwrap();
        let now = SystemTime::now();
        let used = RunDirectory::below(place.path(), now).unwrap();
        assert!(left.is_dir(), "it may be a run that begins");
        let later = now + 2 * NEW;
        let second = RunDirectory::below(place.path(), later).unwrap();
        assert!(!left.exists() && used.path().is_dir() && second.path().is_dir());
        assert!(other.is_dir() && link.is_symlink());
        let path = used.path().to_owned();
        drop(used);
        assert!(!path.exists());
    }
}

#[cfg(test)]
mod classify_tests {
    use super::*;

    const TABLE: &str = " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n 65536      5000             \
                         91.10              91.02\t\t     0.173607\n";
    const FILE: &str = "{\"results\": {\"MsgSize\": 65536, \"BW_average\": 90.5}}";

    fn ended(output: &str) -> ProcessExit {
        ProcessExit { code: Some(0), signal: None, timed_out: false, flooded: false, output: output.to_owned() }
    }

    fn of(ended: &ProcessExit, file: Option<&str>) -> PerftestOutcome {
        classify("ib_write_bw", ended, file, BandwidthUnit::GigabitsPerSecond)
    }

    fn word(attempt: &PerftestOutcome) -> &'static str {
        match attempt {
            PerftestOutcome::Measured(_) => "measured",
            PerftestOutcome::Failed(failure, _) => failure.as_str(),
            PerftestOutcome::Inconclusive(doubt, _) => doubt.as_str(),
        }
    }

    fn gbits(attempt: &PerftestOutcome) -> f64 {
        let PerftestOutcome::Measured(report) = attempt else { return f64::NAN };
        report.best().map_or(f64::NAN, |row| row.average.gbits())
    }

    #[test]
    fn the_file_comes_before_the_text_and_the_text_before_nothing() {
        assert!((gbits(&of(&ended(TABLE), Some(FILE))) - 90.5).abs() < 1e-9);
        assert!((gbits(&of(&ended(TABLE), Some("}{ overwritten"))) - 91.02).abs() < 1e-9);
        assert!((gbits(&of(&ended(TABLE), None)) - 91.02).abs() < 1e-9);
    }

    #[test]
    fn tool_trouble_is_no_failure() {
        let hung = ProcessExit { timed_out: true, code: None, signal: Some(15), ..ended("") };
        let cases = [
            (hung, None, "timeout"),
            (ProcessExit { flooded: true, code: None, signal: Some(9), ..ended("yyyy") }, None, "garbage"),
            (ProcessExit { code: None, signal: Some(11), ..ended("") }, None, "crashed"),
            (ProcessExit { code: Some(1), ..ended(TABLE) }, Some(FILE), "exit_status"),
            (ended("hello"), None, "no_result"),
            (ProcessExit { code: Some(1), ..ended("") }, None, "no_result"),
            (ended(&TABLE.replace("91.02", "-4.10")), None, "impossible_value"),
            (ended(""), Some("{\"BW_average\": -3}"), "impossible_value"),
            (ProcessExit { code: Some(1), ..ended("Couldn't listen to port 18515\n") }, None, "port_taken"),
        ];
        for (ended, file, expected) in cases {
            assert_eq!(word(&of(&ended, file)), expected, "{ended:?}");
        }
    }

    #[test]
    fn a_trouble_that_is_named_comes_before_a_timeout() {
        let text = "Completion with error at client\n Failed status 12: wr_id 0 syndrom 0x81\n";
        let hung = ProcessExit { timed_out: true, code: None, signal: Some(9), ..ended(text) };
        assert_eq!(word(&of(&hung, None)), "completion_error");
    }
}
