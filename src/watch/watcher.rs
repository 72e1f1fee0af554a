//! What the kernel tells of changes in directories (inotify), where there is a thread to hear it.

use notify::{Config, Error, Event, RecommendedWatcher, Watcher as _};

/// Starts to listen; `told` is called on a thread of its own.
///
/// # Errors
/// The kernel gives no more watchers, or the system no more threads.
pub fn listen(told: impl FnMut(notify::Result<Event>) + Send + 'static) -> notify::Result<RecommendedWatcher> {
    let mut watcher = notify::recommended_watcher(told)?;
    // The library does not look whether its thread could start, and panics when it is asked for anything else, or even
    // dropped, without one.
    if watcher.configure(Config::default()).is_err() {
        std::mem::forget(watcher);
        return Err(Error::generic("no more threads"));
    }
    Ok(watcher)
}
