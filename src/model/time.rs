//! Moments. The clock is always an argument.

use std::ops::Sub;
use std::time::{Duration, SystemTime};

/// Milliseconds on a clock that never steps (the boot clock). May be negative: a moment before this boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BootTime(pub i64);

impl BootTime {
    /// The time from `earlier` to this moment; zero if it was not earlier.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// This moment plus a time.
    #[must_use]
    pub fn after(self, time: Duration) -> Self {
        Self(self.0.saturating_add(millis(time)))
    }
}

impl Sub<Duration> for BootTime {
    type Output = Self;

    fn sub(self, time: Duration) -> Self {
        Self(self.0.saturating_sub(millis(time)))
    }
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// The longest time that a setting or a flag can have: 100 years. Clocks can count to several times that.
pub const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// A moment on both clocks: the boot clock for intervals, the wall clock for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timestamp {
    /// Boot clock.
    pub tick: BootTime,
    /// Wall clock.
    pub wall: SystemTime,
}

impl Timestamp {
    /// The wall time of another tick, as this stamp's pair of clocks has it.
    pub fn wall_time(&self, tick: BootTime) -> SystemTime {
        let back = self.tick.since(tick);
        let ahead = tick.since(self.tick);
        self.wall.checked_sub(back).and_then(|wall| wall.checked_add(ahead)).unwrap_or(self.wall)
    }

    /// The tick of a wall time, as this stamp's pair of clocks has it.
    pub fn boot_time(&self, wall: SystemTime) -> BootTime {
        match self.wall.duration_since(wall) {
            Ok(ago) => self.tick - ago,
            Err(ahead) => self.tick.after(ahead.duration()),
        }
    }
}

/// Serializes a wall time as milliseconds since 1970: the form of the state file.
pub mod unix_millis {
    use std::time::{Duration, SystemTime};

    use serde::{Deserialize as _, Deserializer, Serializer};

    /// Milliseconds since 1970; 0 for a time before it.
    pub fn of(wall: SystemTime) -> u64 {
        let since = wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    /// The wall time of milliseconds since 1970; 1970 for one that the system cannot represent.
    pub fn to_wall(millis: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(millis)).unwrap_or(SystemTime::UNIX_EPOCH)
    }

    /// For `#[serde(with)]`.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(wall: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(of(*wall))
    }

    /// For `#[serde(with)]`.
    ///
    /// # Errors
    /// The value is no unsigned number.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SystemTime, D::Error> {
        u64::deserialize(deserializer).map(to_wall)
    }

    /// The same for a time that may be absent.
    pub mod option {
        use std::time::SystemTime;

        use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

        /// For `#[serde(with)]`.
        ///
        /// # Errors
        /// Those of the serializer.
        pub fn serialize<S: Serializer>(wall: &Option<SystemTime>, serializer: S) -> Result<S::Ok, S::Error> {
            wall.map(super::of).serialize(serializer)
        }

        /// For `#[serde(with)]`.
        ///
        /// # Errors
        /// The value is neither null nor an unsigned number.
        pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SystemTime>, D::Error> {
            Ok(Option::<u64>::deserialize(deserializer)?.map(super::to_wall))
        }
    }
}

/// Serializes a duration as milliseconds: the form of the state file.
pub mod duration_millis {
    use std::time::Duration;

    use serde::{Deserialize as _, Deserializer, Serializer};

    /// For `#[serde(with)]`.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
    }

    /// For `#[serde(with)]`.
    ///
    /// # Errors
    /// The value is no unsigned number.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_millis)
    }
}

/// Seconds since 1970 of a wall time, as Prometheus wants timestamps.
pub fn unix_seconds(wall: SystemTime) -> f64 {
    wall.duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64())
}

/// The last second that RFC 3339 has, since 1970: the end of the year 9999.
const LAST_SECOND: u64 = 253_402_300_799;

/// RFC 3339 in UTC, to the second; the first or last time that there is for one before 1970 or after 9999.
pub fn rfc3339(wall: SystemTime) -> String {
    let last = SystemTime::UNIX_EPOCH + Duration::from_secs(LAST_SECOND);
    humantime::format_rfc3339_seconds(wall.clamp(SystemTime::UNIX_EPOCH, last)).to_string()
}
