//! What went wrong, by the words that perftest has for it. Several messages may stand in one line.

use std::fmt::Write as _;

use crate::model::benchmark::Failure;

/// Something that kept data from moving.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PerftestFailure {
    /// A word for it.
    pub failure: Failure,
    /// What happened, in one sentence with what to look at next.
    pub text: String,
    /// The status of the work completion that failed.
    pub completion: Option<WorkCompletion>,
    /// The vendor's syndrome.
    pub syndrome: Option<u32>,
    /// How many work requests were completed, and how many were sent.
    pub progress: Option<(u64, u64)>,
    /// Whether the program crashed then.
    pub crashed: bool,
}

/// Words of messages, and what they mean. The first that is there speaks.
const MESSAGES: &[(&str, Failure, &str)] = &[
    ("state is Down", Failure::PortDown, "the port is down: see the finding port_down"),
    (
        "Unable to find the Infiniband/RoCE device",
        Failure::DeviceMissing,
        "the device does not exist or its driver is not ready",
    ),
    ("Did not detect devices", Failure::DeviceMissing, "there is no RDMA device, or its driver is not ready"),
    ("Couldn't allocate MR", Failure::MemoryRegistration, MEMORY),
    ("Failed to create MR", Failure::MemoryRegistration, MEMORY),
    ("failed to create mr", Failure::MemoryRegistration, MEMORY),
    ("Failed to modify", Failure::QpSetup, ""),
    ("Unable to Connect the HCA's through the link", Failure::QpSetup, ""),
    ("Couldn't connect to", Failure::TcpSetup, ""),
    ("Unable to init the socket connection", Failure::TcpSetup, ""),
    ("Unable to open file descriptor for socket connection", Failure::TcpSetup, ""),
    ("Failed to exchange data between server and clients", Failure::TcpSetup, ""),
    ("Couldn't create QP", Failure::Resources, RESOURCES),
    ("Unable to create QP", Failure::Resources, RESOURCES),
    ("Couldn't create CQ", Failure::Resources, RESOURCES),
    ("Failed to create CQ", Failure::Resources, RESOURCES),
    ("Couldn't allocate PD", Failure::Resources, RESOURCES),
    (
        "Couldn't get context for the device",
        Failure::DeviceMissing,
        "the device cannot be opened: check the permissions of /dev/infiniband and the port's state",
    ),
];

const MEMORY: &str = "memory registration failed: check the locked memory limit (ulimit -l)";
const RESOURCES: &str = "the device is out of queues or contexts: check who uses them (`rdma resource`)";

/// Finds what went wrong in a text.
pub(super) fn find(text: &str, zero_gid: bool) -> Option<PerftestFailure> {
    let crashed = ["Segmentation fault", "Aborted (core dumped)"].iter().any(|word| text.contains(word));
    let mut trouble = completion(text).or_else(|| message(text, zero_gid))?;
    if crashed {
        trouble.text.push_str("; the program then crashed");
        trouble.crashed = true;
    }
    Some(trouble)
}

/// `Failed status 4: wr_id 0 syndrom 0x51`, `scnt=828, ccnt=700`.
fn completion(text: &str) -> Option<PerftestFailure> {
    let status = after(text, "Failed status").and_then(number);
    if status.is_none() && !text.contains("Completion with error") {
        return None;
    }
    let completion = status.and_then(|code| u32::try_from(code).ok()).map(WorkCompletion::of);
    let syndrome = after(text, "syndrom").and_then(|rest| {
        let digits = rest.trim_start_matches('e').trim_start().strip_prefix("0x")?;
        let end = digits.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(digits.len());
        u32::from_str_radix(digits.get(..end)?, 16).ok()
    });
    let completed = after(text, "ccnt=").and_then(number);
    let progress = completed.zip(after(text, "scnt=").and_then(number));
    let mut text = match completion {
        Some(WorkCompletion { code, name, .. }) => format!("a work request ended with status {code} ({name})"),
        None => "a work request ended in an error".to_owned(),
    };
    // Writing to a string cannot fail.
    if let Some(syndrome) = syndrome {
        let _ = write!(text, ", syndrome {syndrome:#x}");
    }
    if let Some((completed, sent)) = progress {
        let _ = write!(text, " after {completed} of {sent} completed");
    }
    if let Some(completion) = completion.filter(|completion| !completion.next.is_empty()) {
        text.push_str(": ");
        text.push_str(completion.next);
    }
    Some(PerftestFailure { failure: Failure::Completion, text, completion, syndrome, progress, crashed: false })
}

fn message(text: &str, zero_gid: bool) -> Option<PerftestFailure> {
    let (words, failure, said) = MESSAGES.iter().find(|(words, _, _)| text.contains(words))?;
    let text = match failure {
        Failure::QpSetup => qp_setup(text, zero_gid),
        Failure::TcpSetup => {
            let server = after(text, "Couldn't connect to").and_then(|rest| rest.split_whitespace().next());
            let server = server.map(|server| format!(" (server {server} unreachable)")).unwrap_or_default();
            format!(
                "TCP set-up failed{server}, which is not a fabric fault: check the program, firewall and address of the other end"
            )
        }
        Failure::PortDown => {
            let port = after(text, "Port number").and_then(number);
            port.map_or_else(|| (*said).to_owned(), |port| format!("port {port} is down: see the finding port_down"))
        }
        _ if said.is_empty() => (*words).to_owned(),
        _ => (*said).to_owned(),
    };
    Some(PerftestFailure { failure: *failure, text, completion: None, syndrome: None, progress: None, crashed: false })
}

/// Which step failed, and a GID of zeros where there is one.
fn qp_setup(text: &str, zero_gid: bool) -> String {
    let step = ["INIT", "RTR", "RTS"].into_iter().find(|step| {
        let step = format!("to {step}");
        after(text, "Failed to modify").is_some_and(|rest| rest.lines().next().is_some_and(|line| line.contains(&step)))
    });
    let step = step.map(|step| format!(" (QP to {step})")).unwrap_or_default();
    let next = if zero_gid {
        "the GID in use is all zeros: wrong GID index, or the interface has no address"
    } else {
        "check the GID index, MTU and addresses of both ends"
    };
    format!("connection set-up failed{step}: {next}")
}

/// What follows some words.
fn after<'a>(text: &'a str, words: &str) -> Option<&'a str> {
    text.split_once(words).map(|(_, rest)| rest)
}

/// The number that a text begins with, after blanks.
fn number(text: &str) -> Option<u64> {
    let text = text.trim_start();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.get(..end)?.parse().ok()
}

/// A status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkCompletion {
    /// Its number.
    pub code: u32,
    /// Its name in words.
    pub name: &'static str,
    /// What to look at next.
    pub next: &'static str,
}

const CHECK_GUEST: &str = "check the kernel log and the device's firmware";
const REGISTRATION: &str = "the program used memory that it had not registered: with GPU memory, check its BAR window";
const OTHER_END: &str = "check the other end: its program exited or refused the request";

/// Names and next steps, in the order of their numbers.
const STATUSES: [(&str, &str); 24] = [
    ("success", ""),
    ("local length error", "the two ends disagree on sizes: run both with the same options"),
    ("local queue pair operation error", CHECK_GUEST),
    ("local EE context operation error", CHECK_GUEST),
    ("local protection error", REGISTRATION),
    ("work request flushed", "an earlier error stopped the queue pair: find the first failed status"),
    ("memory window bind error", REGISTRATION),
    ("bad response", "the other end sent an unexpected response: compare firmware and drivers of both ends"),
    ("local access error", REGISTRATION),
    ("remote invalid request", OTHER_END),
    (
        "remote access error",
        "the other end's memory key or address is not valid there: after a move of a VF its map is stale",
    ),
    ("remote operation error", OTHER_END),
    (
        "transport retry exceeded",
        "no acknowledgement: check the other end's port, the network between them (MTU, VLAN, GID index, routing, lossless \
         queues) and, with VFs, the VF map",
    ),
    ("receiver not ready, retries exceeded", "the other end posted no receives: its program is too slow or has exited"),
    ("local RDD violation", CHECK_GUEST),
    ("remote invalid RD request", OTHER_END),
    ("remote aborted", OTHER_END),
    ("invalid EE context number", CHECK_GUEST),
    ("invalid EE context state", CHECK_GUEST),
    ("fatal error", CHECK_GUEST),
    ("response timeout", "no response in time: check the other end and the network between them"),
    ("general error", CHECK_GUEST),
    ("tag matching error", CHECK_GUEST),
    ("tag matching rendezvous incomplete", OTHER_END),
];

impl WorkCompletion {
    /// The status of a number.
    pub fn of(code: u32) -> Self {
        let known = usize::try_from(code).ok().and_then(|index| STATUSES.get(index));
        let (name, next) = known.copied().unwrap_or(("unknown status", CHECK_GUEST));
        Self { code, name, next }
    }
}
