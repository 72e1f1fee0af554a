//! The status of a work completion (`enum ibv_wc_status`), by its number.

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
