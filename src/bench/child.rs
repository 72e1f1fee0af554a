//! Child processes that leave nothing behind: each in a process group of its own and in a folder of its own, with an
//! outer deadline, killed as a group.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, setpriority_process, waitid};
use rustix::thread::{CpuSet as Affinity, sched_setaffinity};

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

#[cfg(test)]
mod tests {
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
