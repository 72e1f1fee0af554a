//! systemd's watchdog: told that all is well as long as the poller goes round and the server's thread runs.

use std::time::Duration;

use sd_notify::NotifyState;
use tokio::time::{MissedTickBehavior, interval};

use crate::watch::heartbeat::Heartbeat;

/// How often the poller must go round for a watchdog of this length.
pub fn beat(watchdog: Duration) -> Duration {
    watchdog / 8
}

/// Feeds the watchdog as long as the heartbeat goes on; never returns.
pub async fn feed(watchdog: Duration, heartbeat: Heartbeat) {
    let mut ticks = interval(watchdog / 3);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut before, mut silent) = (0, false);
    loop {
        ticks.tick().await;
        let count = heartbeat.count();
        if count != before {
            // A service manager that does not listen is no reason to stop.
            let _ = sd_notify::notify(&[NotifyState::Watchdog]);
        }
        if count == before && !silent {
            tracing::error!("the evaluation is stuck; no longer notifying the systemd watchdog");
        }
        (silent, before) = (count == before, count);
    }
}
