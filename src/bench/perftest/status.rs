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

const CHECK_GUEST: &str = "look at the kernel log and at the device's firmware";
const REGISTRATION: &str =
    "the program used memory that it had not registered: with GPU memory, look at its BAR window";
const OTHER_END: &str = "look at the other end: its program ended, or it refused the request";

/// Names and next steps, in the order of their numbers.
const STATUSES: [(&str, &str); 24] = [
    ("success", ""),
    ("local length error", "the two ends disagree on sizes: run both with the same options"),
    ("local queue pair operation error", CHECK_GUEST),
    ("local EE context operation error", CHECK_GUEST),
    ("local protection error", REGISTRATION),
    ("work request flushed", "an earlier error stopped the queue pair: look for the first status"),
    ("memory window bind error", REGISTRATION),
    ("bad response", "the other end answered what nobody asked: compare firmware and drivers of both ends"),
    ("local access error", REGISTRATION),
    ("remote invalid request", OTHER_END),
    (
        "remote access error",
        "the other end's memory key or address is not valid there: after a move of a VF its map is stale",
    ),
    ("remote operation error", OTHER_END),
    (
        "transport retry exceeded",
        "nothing was acknowledged: look at the other end's port, the way there (MTU, VLAN, GID index, routing, lossless \
         queues), and with VFs at the VF map",
    ),
    ("receiver not ready, retries exceeded", "the other end posted no receives: its program is too slow or gone"),
    ("local RDD violation", CHECK_GUEST),
    ("remote invalid RD request", OTHER_END),
    ("remote aborted", OTHER_END),
    ("invalid EE context number", CHECK_GUEST),
    ("invalid EE context state", CHECK_GUEST),
    ("fatal error", CHECK_GUEST),
    ("response timeout", "no answer in time: look at the other end and the way there"),
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
