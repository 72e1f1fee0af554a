//! A fact that may be missing, and why.

use serde::{Deserialize, Serialize};

/// Why a file or message could not be read: a closed set, the `reason` label of `lanewatch_read_errors_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadError {
    /// The driver does not offer it (EINVAL, EOPNOTSUPP, ENOSYS).
    NotSupported,
    /// The agent may not read it (EACCES, EPERM).
    Permission,
    /// Input/output error, or not a file (EIO, EISDIR, ELOOP and whatever else the kernel says).
    Io,
    /// The device went away (ENODEV, ENXIO).
    Gone,
    /// The device did not answer in time (ETIMEDOUT, or a read that hangs).
    Timeout,
    /// The content is not what the format says, or too long.
    Malformed,
    /// Refused before, asked again after a pause, and refused again.
    Quarantined,
}

impl ReadError {
    /// Every reason, in the order of the metrics.
    pub const ALL: [Self; 7] =
        [Self::NotSupported, Self::Permission, Self::Io, Self::Gone, Self::Timeout, Self::Malformed, Self::Quarantined];

    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotSupported => "not_supported",
            Self::Permission => "permission",
            Self::Io => "io",
            Self::Gone => "gone",
            Self::Timeout => "timeout",
            Self::Malformed => "malformed",
            Self::Quarantined => "quarantined",
        }
    }
}

/// A fact that a judgement needs: its value, or that the host does not say, or why it could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reading<T> {
    /// The value.
    Value(T),
    /// The host does not offer it, or says that it does not know.
    #[default]
    Absent,
    /// The host has it and it could not be read.
    Unreadable(ReadError),
}

impl<T> Reading<T> {
    /// The value, where there is one.
    pub fn value(self) -> Option<T> {
        match self {
            Self::Value(value) => Some(value),
            Self::Absent | Self::Unreadable(_) => None,
        }
    }

    /// A reading of a reference to the value.
    pub fn as_ref(&self) -> Reading<&T> {
        match self {
            Self::Value(value) => Reading::Value(value),
            Self::Absent => Reading::Absent,
            Self::Unreadable(reason) => Reading::Unreadable(*reason),
        }
    }

    /// Why it could not be read; none for a value and for an absent fact.
    pub fn reason(&self) -> Option<ReadError> {
        match self {
            Self::Unreadable(reason) => Some(*reason),
            Self::Value(_) | Self::Absent => None,
        }
    }

    /// The same reading of something made from the value.
    pub fn map<U>(self, make: impl FnOnce(T) -> U) -> Reading<U> {
        match self {
            Self::Value(value) => Reading::Value(make(value)),
            Self::Absent => Reading::Absent,
            Self::Unreadable(reason) => Reading::Unreadable(reason),
        }
    }

    /// This reading, or the other where this has no value.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        match (&self, &other) {
            (Self::Value(_), _) | (Self::Unreadable(_), Self::Absent) => self,
            _ => other,
        }
    }
}

impl<T> From<Option<T>> for Reading<T> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Absent, Self::Value)
    }
}
