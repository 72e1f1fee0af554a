//! What one-shot commands have in common: read a host, evaluate its current state, write nothing.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;

use super::settings::Settings;
use crate::host::collector::Setup;
use crate::host::example::Example;
use crate::model::history::Baseline;
use crate::watch::clock::{Clock as _, SystemClock};
use crate::watch::store::{SavedState, Store};
use crate::watch::{Engine, HostReport, Poller};

/// Reads the host and evaluates it. With a `sample` time it is read twice, so that there are rates; a recorded host does
/// not change and is read once. The agent's state directory is used if it can be read.
///
/// # Errors
/// The system has no more threads.
pub fn read_once(settings: &Settings, sample: Duration, timeout: Duration) -> anyhow::Result<Arc<HostReport>> {
    let setup = settings.setup();
    let mut engine = Engine::new(Arc::clone(&settings.policy), true);
    if settings.demo {
        let saved = SavedState { baseline: example_baseline(settings, timeout)?, ..SavedState::default() };
        engine.restore(saved, Vec::new(), SystemClock.now());
    } else {
        let store = Store::new(settings.storage.clone());
        engine.restore(store.peek(), store.events(), SystemClock.now());
        for run in store.waiting_runs() {
            engine.record(run.into(), SystemClock.now());
        }
    }
    engine.keep_baseline(|name| settings.filter.allows(name));
    let specs = settings.collectors.iter().copied();
    let mut poller =
        Poller::new(&setup, specs, Arc::new(SystemClock), engine, None).context("cannot start the poller")?;
    let report = poller.pass(timeout);
    if sample.is_zero() || !setup.host.live || report.snapshot.devices().next().is_none() {
        return Ok(report);
    }
    std::thread::sleep(sample);
    Ok(poller.pass(timeout))
}

/// The baseline of the example host, learned before its fault.
///
/// # Errors
/// The system has no more threads.
pub fn example_baseline(settings: &Settings, timeout: Duration) -> anyhow::Result<Baseline> {
    let setup = Setup { host: Example::new().host(), filter: settings.filter.clone() };
    let engine = Engine::new(Arc::clone(&settings.policy), false);
    let specs = settings.collectors.iter().copied();
    let mut poller =
        Poller::new(&setup, specs, Arc::new(SystemClock), engine, None).context("cannot start the poller")?;
    poller.pass(timeout);
    Ok(poller.baseline().clone())
}
