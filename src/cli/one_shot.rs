//! One-shot commands: look at a host once or twice, judge what is there now, write nothing.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;

use super::settings::Settings;
use crate::watch::clock::{Clock as _, SystemClock};
use crate::watch::store::Store;
use crate::watch::{Engine, HostReport, Poller};

/// Looks at the host. With a `sample` time it looks twice, so that there are rates; a recorded host does not change
/// and is looked at once. What the agent remembers in its state directory is used where it can be read.
///
/// # Errors
/// The system has no more threads.
pub fn read_once(settings: &Settings, sample: Duration, timeout: Duration) -> anyhow::Result<Arc<HostReport>> {
    let setup = settings.setup();
    let mut engine = Engine::new(Arc::clone(&settings.policy), true);
    let store = Store::new(settings.storage.clone());
    engine.restore(store.peek(), store.events(), SystemClock.now());
    for run in store.waiting_runs() {
        engine.record(run.into(), SystemClock.now());
    }
    engine.keep_baseline(|name| settings.filter.allows(name));
    let specs = settings.collectors.iter().copied();
    let mut poller = Poller::new(&setup, specs, Arc::new(SystemClock), engine, None).context("cannot start reading")?;
    let report = poller.pass(timeout);
    if sample.is_zero() || !setup.host.live || report.snapshot.devices().next().is_none() {
        return Ok(report);
    }
    std::thread::sleep(sample);
    Ok(poller.pass(timeout))
}
