//! Limits how often a name that others choose may fill the journal.
//!
//! A machine that is renamed every second would push everything else out. The first changes of a subject are recorded,
//! then one in a while, with the number of those left out. Events of the hardware are never left out.

use std::collections::HashMap;
use std::time::Duration;

use crate::model::finding::EventKind;
use crate::model::time::BootTime;

/// Events of a subject that are recorded at once.
const BURST: u32 = 10;
/// It gets one more with each interval.
const INTERVAL: Duration = Duration::from_secs(600);
/// Subjects that are remembered.
const MOST: usize = 10_000;

/// Counts events by kind and subject.
#[derive(Debug, Default)]
pub(super) struct EventLimiter(HashMap<(EventKind, String), Subject>);

#[derive(Debug)]
struct Subject {
    used: u32,
    refilled: BootTime,
    left_out: u64,
}

impl EventLimiter {
    /// How many events of this kind and subject were left out before this one; `None` if it is left out, too.
    pub(super) fn take(&mut self, now: BootTime, kind: EventKind, subject: &str) -> Option<u64> {
        if !matches!(kind, EventKind::VfChanged | EventKind::Migration) {
            return Some(0);
        }
        if self.0.len() >= MOST {
            self.0.retain(|_, subject| now.since(subject.refilled) < INTERVAL * BURST);
        }
        let new = Subject { used: 0, refilled: now, left_out: 0 };
        let subject = self.0.entry((kind, subject.to_owned())).or_insert(new);
        while subject.used > 0 && now.since(subject.refilled) >= INTERVAL {
            subject.used -= 1;
            subject.refilled = if subject.used == 0 { now } else { subject.refilled.after(INTERVAL) };
        }
        if subject.used >= BURST {
            subject.left_out += 1;
            return None;
        }
        if subject.used == 0 {
            subject.refilled = now;
        }
        subject.used += 1;
        Some(std::mem::take(&mut subject.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> BootTime {
        BootTime(seconds * 1_000)
    }

    #[test]
    fn a_machine_that_is_renamed_all_the_time_leaves_room() {
        let mut limiter = EventLimiter::default();
        let recorded: Vec<u64> =
            (0..3_600).filter_map(|second| limiter.take(at(second), EventKind::VfChanged, "vm1")).collect();
        assert!((12..=18).contains(&recorded.len()), "{recorded:?}");
        assert_eq!(recorded.iter().take(10).sum::<u64>(), 0);
        assert!(recorded.iter().sum::<u64>() > 2_900, "{recorded:?}");
        // Others, and events of the hardware, are recorded all the same.
        assert_eq!(limiter.take(at(3_600), EventKind::VfChanged, "vm2"), Some(0));
        for second in 0..100 {
            assert_eq!(limiter.take(at(second), EventKind::PortFlap, "mlx5_0/1"), Some(0));
        }
    }

    #[test]
    fn a_quiet_time_gives_the_burst_back() {
        let mut limiter = EventLimiter::default();
        for _ in 0..20 {
            limiter.take(at(0), EventKind::VfChanged, "vm1");
        }
        assert_eq!(limiter.take(at(100_000), EventKind::VfChanged, "vm1"), Some(10));
        assert_eq!(limiter.take(at(100_000), EventKind::VfChanged, "vm1"), Some(0));
    }
}
