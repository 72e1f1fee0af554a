//! The clock, behind a trait so that timelines can be played in tests.

use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use rustix::time::{ClockId, clock_gettime};

use crate::model::time::{BootTime, Timestamp};

/// Tells the time.
pub trait Clock: Send + Sync {
    /// Now, on both clocks.
    fn now(&self) -> Timestamp;
}

/// The system's clocks: boot time, which goes on while suspended, and wall time.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let boot = clock_gettime(ClockId::Boottime);
        Timestamp { tick: BootTime(boot.tv_sec * 1000 + boot.tv_nsec / 1_000_000), wall: SystemTime::now() }
    }
}

/// A clock that stands until it is moved.
#[derive(Debug)]
pub struct ManualClock(Mutex<Timestamp>);

impl ManualClock {
    /// Starts at this wall time, as many milliseconds after boot as it is given.
    pub fn new(wall: SystemTime, since_boot: Duration) -> Self {
        Self(Mutex::new(Timestamp { tick: BootTime(0).after(since_boot), wall }))
    }

    /// Moves on.
    pub fn advance(&self, time: Duration) {
        let mut now = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *now = Timestamp { tick: now.tick.after(time), wall: now.wall.checked_add(time).unwrap_or(now.wall) };
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        *self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
