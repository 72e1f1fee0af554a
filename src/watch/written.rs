//! Times as the state file has them: milliseconds since 1970.

use std::time::{Duration, SystemTime};

/// A time span in milliseconds.
pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A wall time in milliseconds since 1970.
pub(super) fn millis_of(wall: SystemTime) -> u64 {
    millis(wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}

/// The wall time of milliseconds since 1970.
pub(super) fn wall(at: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(at)).unwrap_or(SystemTime::UNIX_EPOCH)
}
