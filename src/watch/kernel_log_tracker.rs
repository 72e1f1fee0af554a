//! How far the kernel log was read, across restarts too, and how many records were lost.

use super::history_event::HistoryEvent;
use crate::model::finding::EventKind;
use crate::model::history::History;
use crate::model::kmsg::KernelLog;
use crate::model::snapshot::Snapshot;
use crate::model::units::counted_as;

/// Carries what was read of the log from one pass to the next.
#[derive(Debug, Default)]
pub struct KernelLogTracker {
    /// Boot and last record of an earlier run, until they have been compared.
    earlier: Option<(String, u64)>,
    lost: u64,
}

impl KernelLogTracker {
    /// Restores what an earlier run saved.
    pub fn restore(&mut self, boot_id: Option<String>, last: Option<u64>) {
        self.earlier = boot_id.zip(last);
    }

    /// Takes a pass and reports lost records: dropped while the agent ran, or while it did not.
    pub fn observe(&mut self, history: &mut History, snapshot: &Snapshot, news: &mut Vec<HistoryEvent>) {
        let Some(log) = snapshot.all::<KernelLog>().next() else { return };
        let boot_id = snapshot.system().and_then(|system| system.boot_id.as_deref());
        if let (Some(first), Some(boot_id), Some((boot, last))) = (log.first, boot_id, self.earlier.as_ref()) {
            let missed = first.saturating_sub(last.saturating_add(1));
            if *boot == *boot_id && missed > 0 {
                let text = format!("up to {} dropped while the agent was not running", records(missed));
                news.push((EventKind::KernelLogLost, String::new(), text));
            }
            self.earlier = None;
        }
        if log.lost > self.lost {
            let text = format!("{} dropped before they could be read", records(log.lost - self.lost));
            news.push((EventKind::KernelLogLost, String::new(), text));
        }
        self.lost = log.lost;
        history.kernel_log = log.last.or(history.kernel_log);
    }
}

/// How many records were, in words.
fn records(count: u64) -> String {
    counted_as(count, "kernel log record was", "kernel log records were")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::SystemTime;

    use super::*;
    use crate::model::host::System;
    use crate::model::snapshot::Fact;
    use crate::model::time::{BootTime, Timestamp};

    fn snapshot(first: u64, last: u64, dropped: u64) -> Snapshot {
        let log = KernelLog { first: Some(first), last: Some(last), lost: dropped, ..KernelLog::default() };
        let system = System { boot_id: Some(Arc::from("this")), ..System::default() };
        let taken = Timestamp { tick: BootTime(0), wall: SystemTime::UNIX_EPOCH };
        Snapshot::new(taken, [Arc::new(log) as Fact, Arc::new(system)], Vec::new())
    }

    fn news(track: &mut KernelLogTracker, snapshot: &Snapshot) -> Vec<String> {
        let (mut past, mut said) = (History::default(), Vec::new());
        track.observe(&mut past, snapshot, &mut said);
        assert!(past.kernel_log.is_some());
        said.into_iter().map(|(_, _, text)| text).collect()
    }

    #[test]
    fn lost_records_are_reported_once() {
        let mut track = KernelLogTracker::default();
        assert!(news(&mut track, &snapshot(0, 9, 0)).is_empty());
        assert_eq!(news(&mut track, &snapshot(0, 99, 40)).len(), 1);
        assert!(news(&mut track, &snapshot(0, 99, 40)).is_empty());
    }

    #[test]
    fn records_dropped_while_the_agent_was_down_are_reported_at_its_start() {
        let restored = |boot: &str| {
            let mut track = KernelLogTracker::default();
            track.restore(Some(boot.to_owned()), Some(100));
            track
        };
        assert!(news(&mut restored("this"), &snapshot(50, 120, 0)).is_empty());
        let said = news(&mut restored("this"), &snapshot(151, 190, 0));
        assert_eq!(said, ["up to 50 kernel log records were dropped while the agent was not running"]);
        assert!(news(&mut restored("another"), &snapshot(151, 190, 0)).is_empty());
    }
}
