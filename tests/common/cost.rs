//! What a process has cost, from `/proc`.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::run::Group;

/// CPU time of a process so far, all its threads together, in user and kernel mode.
///
/// `stat` counts in hundredths of a second and has the threads that have ended; `schedstat` of the living threads
/// counts in nanoseconds. The greater of both is right to a hundredth, and exact as long as no thread ends.
pub fn cpu_time(pid: u32) -> Duration {
    of_all_threads(pid).max(of_living_threads(pid))
}

/// `utime` and `stime`.
fn of_all_threads(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // The name, in parentheses, may have blanks; `utime` is the twelfth field after it.
    let after = stat.rsplit_once(')').unwrap().1;
    let hundredths: u64 = after.split_whitespace().skip(11).take(2).map(|text| text.parse::<u64>().unwrap()).sum();
    Duration::from_millis(hundredths * 10)
}

fn of_living_threads(pid: u32) -> Duration {
    let of_thread = |thread: std::io::Result<fs::DirEntry>| {
        let text = fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    };
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    Duration::from_nanos(threads.filter_map(of_thread).sum())
}

/// Largest resident memory so far, in bytes: `VmHWM`.
pub fn peak_memory(pid: u32) -> u64 {
    status(pid, "VmHWM:") * 1024
}

/// Runs a command to its end: the largest resident memory that it had, in bytes, and its exit code.
pub fn peak_of(mut command: Command) -> (u64, Option<i32>) {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut group = Group::spawn(&mut command);
    let (pid, began, mut most) = (group.pid(), Instant::now(), 0);
    loop {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let here = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        most = most.max(here.unwrap_or(0) * 1024);
        if let Some(ended) = group.wait(Duration::from_millis(2)) {
            return (most, ended.code());
        }
        assert!(began.elapsed() < Duration::from_secs(300), "{command:?} does not end");
    }
}

/// How many descriptors it has open.
pub fn open_files(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

/// How many threads it has.
pub fn threads(pid: u32) -> u64 {
    status(pid, "Threads:")
}

fn status(pid: u32, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}
