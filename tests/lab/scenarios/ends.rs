//! Machines end with whoever started them.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use crate::common::run::Group;
use crate::common::tools::skip;
use crate::guest::Kernel;

/// How many processes have this word among their arguments.
fn running(word: &str) -> usize {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    lines.filter(|line| line.split(|byte| *byte == 0).any(|argument| argument == word.as_bytes())).count()
}

fn until(what: &str, so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !so() {
        assert!(Instant::now() < end, "never came: {what}");
        thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn nothing_is_left_of_a_machine_whose_caller_is_killed() {
    let image = Kernel::V6_12.image();
    if !image.join("stamp").exists() {
        return skip("no image of the lab (tests/lab/image.sh makes it)");
    }
    let keeper = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lab/machine.py");
    let name = format!("orphan-{}", std::process::id());
    // A shell that stands for a caller: killed while it waits for a call, with the pipe to the keeper still open.
    let mut command = Command::new("sh");
    command.arg("-c").arg("python3 \"$0\" \"$1\"; :").arg(keeper).arg(&name);
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    let mut caller = Group::spawn(&mut command);
    let mut calls = caller.child.stdin.take().unwrap();
    writeln!(calls, "{}", json!({"vm": "a", "call": "boot", "args": {"image": image, "name": name}})).unwrap();
    // The shell, the keeper, the machine.
    until("a machine", || running(&name) == 3);
    caller.signal(Signal::KILL);
    until("the end of all", || running(&name) == 0);
    drop(calls);
}
