//! Physical links over time: why one was last down, and losses so short that only the firmware saw them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::model::history::History;
use crate::model::line::{LastCause, Line, LineErrors, LineMinute};
use crate::model::link::NetdevLink;
use crate::model::net::{Netdev, NetdevStatistics};
use crate::model::snapshot::Snapshot;
use crate::model::time::BootTime;

/// How long the reason of a link that came back is remembered.
const REMEMBERED: Duration = Duration::from_secs(3600);

/// Drivers' names for how often the firmware lost the link.
const LINK_DOWNS: [&str; 2] = ["link_down_events_phy", "link_down_events"];

/// How often two counters say that the link of an interface was lost.
#[derive(Debug, Clone, Copy)]
struct Losses {
    /// When the firmware's was read.
    at: BootTime,
    firmware: u64,
    carrier: u64,
    /// Losses that the firmware counted and the carrier not, between the last two readings. One of the two may have been
    /// read a moment earlier: the next reading decides.
    pending: u64,
    /// Losses that the carrier showed and the firmware has not counted yet, and when: its counter may be asked for once a
    /// minute.
    ahead: (u64, BootTime),
}

/// How long a loss that the carrier showed waits for the firmware to count it.
const AHEAD: Duration = Duration::from_secs(90);

/// Shortest time over which errors are put in proportion to bits.
const MINUTE: Duration = Duration::from_secs(60);

/// Longest time between two readings that count as one after the other.
const LONGEST_GAP: Duration = Duration::from_secs(600);

/// A reading of a line's errors, and what must not change until the next one for both to be comparable.
#[derive(Debug, Clone)]
struct LineReading {
    errors: LineErrors,
    line: Line,
    carrier_downs: Option<u64>,
}

/// Errors of a line since the beginning of a minute.
#[derive(Debug)]
struct OpenMinute {
    first: LineReading,
    last: LineReading,
}

/// Compares each pass with the one before.
#[derive(Debug, Default)]
pub struct LineTracker {
    losses: BTreeMap<Arc<str>, Losses>,
    minutes: BTreeMap<Arc<str>, OpenMinute>,
}

impl LineTracker {
    /// Takes a pass into the history. Returns the interfaces whose link was lost for so short a time that the carrier
    /// never went, with how often.
    pub fn observe(&mut self, history: &mut History, snapshot: &Snapshot) -> BTreeMap<Arc<str>, u64> {
        let now = snapshot.taken.tick;
        for link in snapshot.all::<NetdevLink>() {
            let past = history.lines.entry(Arc::clone(&link.netdev)).or_default();
            if let Some(cause) = link.cause {
                past.cause = Some(LastCause { cause, at: now, steady: link.is_steady() });
            }
        }
        for past in history.lines.values_mut() {
            past.cause = past.cause.filter(|last| now.since(last.at) < REMEMBERED);
        }
        self.observe_errors(history, snapshot);
        let carriers: BTreeMap<&str, u64> =
            snapshot.all::<Netdev>().filter_map(|netdev| Some((&*netdev.name, netdev.carrier_downs?))).collect();
        let mut short = BTreeMap::new();
        for statistics in snapshot.all::<NetdevStatistics>() {
            let firmware = LINK_DOWNS.iter().find_map(|name| statistics.get(name));
            let Some((firmware, carrier)) = firmware.zip(carriers.get(&*statistics.netdev).copied()) else { continue };
            let count = self.count(&statistics.netdev, statistics.at, firmware, carrier);
            if count > 0 {
                short.insert(Arc::clone(&statistics.netdev), count);
            }
        }
        short
    }

    fn observe_errors(&mut self, history: &mut History, snapshot: &Snapshot) {
        for errors in snapshot.all::<LineErrors>() {
            let netdev = snapshot.all::<Netdev>().find(|netdev| netdev.name == errors.netdev);
            let port = snapshot.devices().flat_map(|device| &device.ports);
            let port = port.filter(|port| port.is_active()).find(|port| port.netdev.as_ref() == Some(&errors.netdev));
            let rate = port.and_then(|port| port.rate.value());
            let line = match rate {
                Some(rate) => Some(Line::new(rate.bandwidth, rate.width, errors.fec)),
                None => netdev.and_then(|netdev| Some(Line::new(netdev.speed.value()?, None, errors.fec))),
            };
            let carrier = netdev.is_none_or(|netdev| netdev.carrier.value() == Some(true));
            let past = history.lines.entry(Arc::clone(&errors.netdev)).or_default();
            past.line = line.filter(|_| carrier);
            let Some(line) = past.line else {
                self.minutes.remove(&errors.netdev);
                continue;
            };
            let carrier_downs = netdev.and_then(|netdev| netdev.carrier_downs);
            let reading = LineReading { errors: errors.clone(), line, carrier_downs };
            let Some(minute) = self.minutes.get_mut(&errors.netdev) else {
                let minute = OpenMinute { first: reading.clone(), last: reading };
                self.minutes.insert(Arc::clone(&errors.netdev), minute);
                continue;
            };
            if minute.last.errors.at == errors.at {
                continue;
            }
            if !minute.last.continues_to(&reading) {
                *minute = OpenMinute { first: reading.clone(), last: reading };
                continue;
            }
            if errors.at.since(minute.first.errors.at) >= MINUTE {
                past.push(LineMinute::between(&minute.first.errors, errors, line));
                minute.first = reading.clone();
            }
            minute.last = reading;
        }
    }

    fn count(&mut self, netdev: &Arc<str>, at: BootTime, firmware: u64, carrier: u64) -> u64 {
        let first = Losses { at, firmware, carrier, pending: 0, ahead: (0, at) };
        let Some(before) = self.losses.insert(Arc::clone(netdev), first) else { return 0 };
        if before.at == at {
            self.losses.insert(Arc::clone(netdev), before);
            return 0;
        }
        // A count that goes back was reset, or could not be read: it counts from there.
        if firmware < before.firmware || carrier < before.carrier {
            return 0;
        }
        let (lost, seen) = (firmware - before.firmware, carrier - before.carrier);
        let short = before.pending.saturating_sub(seen);
        let (waiting, since) = before.ahead;
        let waiting = if at.since(since) < AHEAD { waiting } else { 0 };
        let seen = seen.saturating_sub(before.pending);
        let left = (waiting + seen).saturating_sub(lost);
        let since = if seen > 0 || left == 0 { at } else { since };
        let pending = lost.saturating_sub(waiting + seen);
        self.losses.insert(Arc::clone(netdev), Losses { pending, ahead: (left, since), ..first });
        short
    }

    /// Forgets an interface that is gone.
    pub fn forget(&mut self, netdev: &str) {
        self.losses.remove(netdev);
        self.minutes.remove(netdev);
    }
}

impl LineReading {
    /// Whether the link was up all the time until a later reading, and every count went on.
    fn continues_to(&self, next: &Self) -> bool {
        let (before, now) = (&self.errors, &next.errors);
        let rises = |before: Option<u64>, now: Option<u64>| match (before, now) {
            (Some(before), Some(now)) => now >= before,
            (before, now) => before.is_some() == now.is_some(),
        };
        let pairs = [
            (before.corrected_bits, now.corrected_bits),
            (before.corrected_codewords, now.corrected_codewords),
            (before.lost_codewords, now.lost_codewords),
            (before.symbol_errors, now.symbol_errors),
        ];
        let same_bins = before.bins.len() == now.bins.len()
            && before.bins.iter().zip(&now.bins).all(|(before, now)| {
                (before.low, before.high) == (now.low, now.high) && before.codewords <= now.codewords
            });
        let lanes_rise =
            before.lanes.len() == now.lanes.len() && before.lanes.iter().zip(&now.lanes).all(|(a, b)| a <= b);
        self.line == next.line
            && self.carrier_downs == next.carrier_downs
            && before.link_downs == now.link_downs
            && now.at.since(before.at) <= LONGEST_GAP
            && pairs.into_iter().all(|(before, now)| rises(before, now))
            && same_bins
            && lanes_rise
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_that_the_carrier_did_not_show_are_counted_once() {
        let netdev: Arc<str> = Arc::from("eth2");
        // Firmware, carrier, and what is counted then.
        for steps in [
            // The carrier shows each loss, at once or a reading later.
            vec![(4, 2, 0), (5, 3, 0), (5, 3, 0), (6, 3, 0), (6, 4, 0), (6, 4, 0)],
            vec![(4, 2, 0), (4, 3, 0), (5, 3, 0), (5, 3, 0)],
            // The firmware's is read once a minute.
            vec![(4, 2, 0), (4, 3, 0), (4, 3, 0), (4, 3, 0), (5, 3, 0), (5, 3, 0)],
            // One that it never shows.
            vec![(4, 2, 0), (5, 2, 0), (5, 2, 1), (5, 2, 0)],
            // Two of three.
            vec![(4, 2, 0), (7, 2, 0), (7, 3, 2), (7, 3, 0)],
            // `ip link set down`: the carrier alone.
            vec![(4, 2, 0), (4, 3, 0), (4, 3, 0)],
            // The firmware's register could not be read for once.
            vec![(4, 2, 0), (0, 2, 0), (4, 2, 0)],
            // The driver was reloaded.
            vec![(4, 2, 0), (0, 0, 0), (0, 0, 0)],
        ] {
            let mut tracker = LineTracker::default();
            for (index, (firmware, carrier, expected)) in steps.iter().enumerate() {
                let at = BootTime(i64::try_from(index).unwrap() * 15_000);
                assert_eq!(tracker.count(&netdev, at, *firmware, *carrier), *expected, "{steps:?} at {index}");
                assert_eq!(tracker.count(&netdev, at, *firmware, *carrier), 0, "the same reading");
            }
        }
    }
}
