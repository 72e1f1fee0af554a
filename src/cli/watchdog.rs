//! systemd's watchdog: told that all is well as long as the poller goes round and the server's thread runs.

use std::time::Duration;

use sd_notify::NotifyState;
use tokio::time::{MissedTickBehavior, interval};

use crate::watch::pulse::Pulse;

/// How often the poller must go round for a watchdog of this length.
pub fn beat(watchdog: Duration) -> Duration {
    watchdog / 8
}

/// Feeds the watchdog for as long as it is fed with beats itself; never ends.
pub async fn feed(watchdog: Duration, pulse: Pulse) {
    let mut ticks = interval(watchdog / 3);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut before, mut silent) = (0, false);
    loop {
        ticks.tick().await;
        let beats = pulse.beats();
        if beats != before {
            // A service manager that does not listen is no reason to stop.
            let _ = sd_notify::notify(&[NotifyState::Watchdog]);
        }
        if beats == before && !silent {
            tracing::error!("the evaluation does not go on; the watchdog is not told that all is well");
        }
        (silent, before) = (beats == before, beats);
    }
}
