//! Losses of a port's link, in the history and in the events.

use std::time::Duration;

use super::history_event::HistoryEvent;
use crate::model::finding::EventKind;
use crate::model::history::History;
use crate::model::ids::PortKey;
use crate::model::time::BootTime;
use crate::model::units::times;

/// Flaps kept for each port; a port that flaps more in twelve hours needs no exact count.
const MOST_FLAPS: usize = 256;

/// How long a flap is kept.
const REMEMBERED: Duration = Duration::from_secs(24 * 3600);

/// Whether links were lost while the agent ran, or before it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WhenLost {
    Running,
    Stopped,
}

/// Notes that a port lost its link and got it back so many times. Those soon after boot are no flaps.
pub(super) fn record_flaps(
    history: &mut History,
    key: &PortKey,
    (flaps, when): (u64, WhenLost),
    now: BootTime,
    settled: bool,
    news: &mut Vec<HistoryEvent>,
) {
    let past = history.ports.entry(key.clone()).or_default();
    let count = times(flaps);
    let apart = if settled { "" } else { " (soon after boot: not counted)" };
    let text = match when {
        WhenLost::Running => format!("{key} lost its link and got it back {count}{apart}"),
        WhenLost::Stopped => format!("{key} lost its link {count} while the agent was not running{apart}"),
    };
    news.push((EventKind::PortFlap, key.to_string(), text));
    if settled {
        past.flaps.extend((0..flaps.min(MOST_FLAPS as u64)).map(|_| now));
        while past.flaps.len() > MOST_FLAPS || past.flaps.front().is_some_and(|at| now.since(*at) > REMEMBERED) {
            past.flaps.pop_front();
        }
    }
}
