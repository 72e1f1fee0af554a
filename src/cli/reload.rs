//! Reloads configurations at SIGHUP and when their files change. One with an error changes nothing; the log and the
//! metrics report it.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, oneshot};
use tokio::time::{sleep, timeout};

use super::config::error::{ConfigError, ConfigErrors};
use super::config::reference::restart_keys;
use super::settings::Settings;
use crate::export::http::App;
use crate::export::web::{Web, WebError};
use crate::export::{AgentState, WebState};
use crate::watch::{FileWatcher, PollerHandle};

/// A file with an error is read once more after this, before the error is reported: it may be half written.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// A file that was not written to for so long is whole.
const SETTLED_AFTER: Duration = Duration::from_secs(1);
/// A file that is written to all the time is read after this.
const MAX_SETTLE: Duration = Duration::from_secs(5);
/// So long a read may take before it is reported: a network file system may hang.
const PATIENCE: Duration = Duration::from_secs(10);

/// Reads the settings anew.
pub type ReadSettings = Arc<dyn Fn() -> Result<Settings, ConfigErrors> + Send + Sync>;

/// Reloads the configuration at SIGHUP and when its file changes; never ends. `started`: the values that the agent
/// started with.
///
/// # Errors
/// The system gives no signals.
pub async fn watch_config(
    file: Option<&Path>,
    started: &BTreeMap<String, String>,
    read_settings: &ReadSettings,
    handle: &PollerHandle,
    app: &App,
) -> std::io::Result<()> {
    let mut hangup = signal(SignalKind::hangup())?;
    let changes = FileChanges::new(file.map(Path::to_owned).into_iter().collect());
    let failed = |error: &str| {
        app.change_agent(|agent| agent.reload_successful = false);
        tracing::error!("reload failed, keeping the old configuration: {error}");
    };
    loop {
        let asked = wait_for_change(hangup.recv(), &changes).await;
        let read_settings = Arc::clone(read_settings);
        match read_with_retry(asked, &changes, move || read_settings(), failed).await {
            Ok(settings) => {
                handle.set_policy(settings.policy, "configuration reloaded".to_owned());
                app.change_agent(|agent| {
                    (agent.reload_successful, agent.reloaded) = (true, Some(SystemTime::now()));
                });
                tracing::info!("configuration reloaded");
                let keys = restart_keys(started, &settings.config.values);
                if !keys.is_empty() {
                    tracing::warn!(keys = keys.join(","), "changed keys need a restart to apply");
                }
            }
            Err(error) => failed(&error),
        }
    }
}

/// Reads the web configuration before anything is served.
///
/// # Errors
/// It cannot be used.
pub fn read_web_config(file: &Path) -> Result<Web, ConfigError> {
    settle(&[file.to_owned()]);
    let web = Web::load(file);
    if matches!(web, Err(WebError::Changing(_))) {
        settle(&[file.to_owned()]);
        return Ok(Web::load(file)?);
    }
    Ok(web?)
}

/// Reloads the web configuration at SIGHUP, and when it or a file that it names changes; never ends. One that asks
/// clients for less than the one in force is refused unless `allow_weaker`.
///
/// # Errors
/// The system gives no signals.
pub async fn watch_web_config(file: Option<&Path>, allow_weaker: bool, app: &App) -> std::io::Result<()> {
    let Some(file) = file else { return std::future::pending().await };
    let mut hangup = signal(SignalKind::hangup())?;
    let changes = FileChanges::new(app.web().files.paths());
    let failed = |error: &str| {
        app.change_agent(|agent| {
            agent.web = agent.web.map(|web| WebState { reload_successful: false, ..web });
        });
        tracing::error!("reload failed, keeping the old web configuration: {error}");
    };
    // A change after the files were read and before they were watched brings no event.
    let mut missed = !are_current(app).await;
    loop {
        let asked = !std::mem::take(&mut missed) && wait_for_change(hangup.recv(), &changes).await;
        let (file, before) = (file.to_owned(), app.web());
        let read = move || {
            settle(&before.files.paths());
            let web = Web::load(&file)?;
            if !allow_weaker {
                web.no_weaker_than(&before, &file)?;
            }
            Ok::<_, ConfigError>(web)
        };
        match read_with_retry(asked, &changes, read, failed).await {
            Ok(web) => {
                changes.set_files(web.files.paths());
                if web.is_stricter_than(&app.web()) {
                    tracing::info!("web configuration reloaded; it is stricter, open connections are closed");
                } else {
                    tracing::info!("web configuration reloaded; open connections stay open");
                }
                install(app, web);
                missed = !are_current(app).await;
            }
            Err(error) => failed(&error),
        }
    }
}

/// Whether the files of the web configuration in force are as they were when they were read.
async fn are_current(app: &App) -> bool {
    let files = app.web().files.clone();
    read_on_own_thread(move || Ok::<_, ConfigError>(files.are_current()), |_| {}).await.unwrap_or(true)
}

/// Waits until none of the files was written to lately: it may be half written.
fn settle(files: &[PathBuf]) {
    let end = Instant::now() + MAX_SETTLE;
    let is_fresh = |file: &PathBuf| {
        let modified = std::fs::metadata(file).and_then(|meta| meta.modified()).ok();
        // A time in the future is that of another clock.
        modified.and_then(|modified| modified.elapsed().ok()).is_some_and(|age| age < SETTLED_AFTER)
    };
    while files.iter().any(is_fresh) && Instant::now() < end {
        std::thread::sleep(SETTLED_AFTER / 5);
    }
}

/// Applies a web configuration.
pub fn install(app: &App, web: Web) {
    for remark in &web.remarks {
        tracing::warn!("{remark}");
    }
    let (reloaded, certificate_expires) = (SystemTime::now(), web.certificate_expires);
    app.set_web(web);
    app.change_agent(|agent: &mut AgentState| {
        agent.web = Some(WebState { reload_successful: true, reloaded, certificate_expires });
    });
}

/// Waits for SIGHUP or a changed file; whether it was SIGHUP.
async fn wait_for_change(hangup: impl Future<Output = Option<()>>, changes: &FileChanges) -> bool {
    tokio::select! {
        _ = hangup => {
            changes.acknowledge();
            true
        }
        () = changes.wait() => false,
    }
}

/// Reads, and reads once more after an error, unless `asked`: whoever sent SIGHUP waits for the result. `failed`
/// reports a read that takes long, before its outcome is known.
async fn read_with_retry<T: Send + 'static, E: Display>(
    asked: bool,
    changes: &FileChanges,
    read: impl Fn() -> Result<T, E> + Clone + Send + 'static,
    failed: impl Fn(&str),
) -> Result<T, String> {
    match read_on_own_thread(read.clone(), &failed).await {
        Err(_) if !asked => {
            sleep(RETRY_AFTER).await;
            changes.acknowledge();
            read_on_own_thread(read, &failed).await
        }
        result => result,
    }
}

/// Reads files on a thread of its own, so that a file system that hangs holds up neither the server nor the watchdog.
/// The thread is left behind until the file system responds, and nothing else is read before that.
pub async fn read_on_own_thread<T: Send + 'static, E: Display>(
    read: impl FnOnce() -> Result<T, E> + Send + 'static,
    failed: impl Fn(&str),
) -> Result<T, String> {
    read_reporting_after(PATIENCE, read, failed).await
}

async fn read_reporting_after<T: Send + 'static, E: Display>(
    patience: Duration,
    read: impl FnOnce() -> Result<T, E> + Send + 'static,
    failed: impl Fn(&str),
) -> Result<T, String> {
    let (sender, mut outcome) = oneshot::channel();
    let thread = std::thread::Builder::new().name("config-reader".to_owned());
    thread
        .spawn(move || {
            let _ = sender.send(read().map_err(|error| error.to_string()));
        })
        .map_err(|error| format!("no more threads: {error}"))?;
    let read = if let Ok(read) = timeout(patience, &mut outcome).await {
        read
    } else {
        failed(&format!("the file system has not responded for {} s", patience.as_secs()));
        outcome.await
    };
    read.unwrap_or_else(|_| Err("the thread that reads it has exited".to_owned()))
}

/// Files that the configuration is read from, and whether one of them has changed.
pub struct FileChanges {
    watcher: Option<FileWatcher>,
    changed: Arc<Notify>,
}

impl FileChanges {
    /// Watches these files.
    pub fn new(files: Vec<PathBuf>) -> Self {
        let changed = Arc::new(Notify::new());
        let notify = Arc::clone(&changed);
        let started = FileWatcher::files(files, move || notify.notify_one());
        let log = |error: &std::io::Error| tracing::error!("files are not watched, send SIGHUP to reload: {error}");
        Self { watcher: started.inspect_err(log).ok(), changed }
    }

    /// Watches these files from now on.
    fn set_files(&self, files: Vec<PathBuf>) {
        if let Some(watcher) = &self.watcher {
            watcher.set_files(files);
        }
    }

    /// Takes the files as they are now for known.
    fn acknowledge(&self) {
        self.watcher.iter().for_each(FileWatcher::acknowledge);
    }

    /// Resolves when a file has changed and its writer seems to be done.
    pub async fn wait(&self) {
        self.changed.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// The server and the watchdog are tasks of the same runtime.
    #[test]
    fn a_file_system_that_hangs_holds_up_no_other_task() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let (respond, hangs) = mpsc::channel::<()>();
        let read = move || {
            let _ = hangs.recv();
            Ok::<_, ConfigError>(7)
        };
        let read = runtime.block_on(async {
            let reading = tokio::spawn(read_on_own_thread(read, |_| {}));
            // Another task goes on while the file is read.
            tokio::task::yield_now().await;
            assert!(!reading.is_finished());
            respond.send(()).unwrap();
            reading.await.unwrap()
        });
        assert_eq!(read, Ok(7));
    }

    #[test]
    fn a_read_that_takes_long_is_reported_once_and_still_counts() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let (respond, hangs) = mpsc::channel::<()>();
        let (report, reports) = mpsc::channel();
        let read = move || {
            let _ = hangs.recv();
            Ok::<_, ConfigError>(7)
        };
        let read = runtime.block_on(read_reporting_after(Duration::ZERO, read, |error| {
            report.send(error.to_owned()).unwrap();
            respond.send(()).unwrap();
        }));
        assert_eq!(read, Ok(7));
        assert_eq!(reports.try_iter().collect::<Vec<_>>(), ["the file system has not responded for 0 s"]);
    }

    #[test]
    fn a_thread_that_ends_without_a_result_is_an_error() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let read = || -> Result<u8, ConfigError> { panic!("while reading") };
        assert!(runtime.block_on(read_on_own_thread(read, |_| {})).unwrap_err().contains("has exited"));
    }
}
