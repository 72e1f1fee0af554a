//! How requests of peers end.

use std::sync::atomic::{AtomicU64, Ordering};

/// How a request ended: the `result` label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// A server was started.
    Started,
    /// Too many requests, of one address or in all.
    RateLimited,
    /// The request is longer than it may be, or took too long to arrive.
    TooLong,
    /// It is no request, or asks for something that is not allowed.
    Malformed,
    /// It has no signature and no certificate.
    Unsigned,
    /// Its signature is wrong.
    WrongSignature,
    /// It was meant for another host.
    WrongHost,
    /// It was signed too long ago, or in the future: the clocks differ, or it was kept back.
    ClockSkew,
    /// It came before.
    Replayed,
    /// The host, its port or another probe is at work, or it is in maintenance.
    Busy,
    /// There is no such program or port here.
    Unavailable,
    /// The server did not start.
    NotStarted,
}

impl Ending {
    /// All, in the order of the metrics.
    pub const ALL: [Self; 12] = [
        Self::Started,
        Self::RateLimited,
        Self::TooLong,
        Self::Malformed,
        Self::Unsigned,
        Self::WrongSignature,
        Self::WrongHost,
        Self::ClockSkew,
        Self::Replayed,
        Self::Busy,
        Self::Unavailable,
        Self::NotStarted,
    ];

    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::RateLimited => "rate_limited",
            Self::TooLong => "too_long",
            Self::Malformed => "malformed",
            Self::Unsigned => "unsigned",
            Self::WrongSignature => "wrong_signature",
            Self::WrongHost => "wrong_host",
            Self::ClockSkew => "clock_skew",
            Self::Replayed => "replayed",
            Self::Busy => "busy",
            Self::Unavailable => "unavailable",
            Self::NotStarted => "not_started",
        }
    }
}

/// How many requests ended how.
#[derive(Debug, Default)]
pub struct Counts([AtomicU64; Ending::ALL.len()]);

impl Counts {
    /// Counts one.
    pub fn add(&self, ending: Ending) {
        for (count, known) in self.0.iter().zip(Ending::ALL) {
            if known == ending {
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// The counts, in the order of [`Ending::ALL`].
    pub fn all(&self) -> [u64; Ending::ALL.len()] {
        std::array::from_fn(|index| self.0.get(index).map_or(0, |count| count.load(Ordering::Relaxed)))
    }
}
