//! Reloads configurations at SIGHUP and when their files change. One with an error changes nothing; the log and the
//! metrics report it.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio::time::sleep;

use super::config::error::ConfigError;
use super::config::reference::restart_keys;
use super::settings::Settings;
use crate::export::http::App;
use crate::export::web::Web;
use crate::export::{AgentState, WebState};
use crate::watch::{FileWatcher, PollerHandle};

/// A file with an error is read once more after this, before the error is reported: it may be half written.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Reloads the configuration at SIGHUP and when its file changes; never ends. `started`: the values that the agent
/// started with.
///
/// # Errors
/// The system gives no signals.
pub async fn watch_config<E: Display>(
    file: Option<&Path>,
    started: &BTreeMap<String, String>,
    read_settings: impl Fn() -> Result<Settings, E>,
    handle: &PollerHandle,
    app: &App,
) -> std::io::Result<()> {
    let mut hangup = signal(SignalKind::hangup())?;
    let changes = FileChanges::new(file.map(Path::to_owned).into_iter().collect());
    loop {
        let asked = wait_for_change(hangup.recv(), &changes).await;
        match read_with_retry(asked, &changes, &read_settings).await {
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
            Err(error) => {
                app.change_agent(|agent| agent.reload_successful = false);
                tracing::error!("reload failed, the configuration stays as it was: {error}");
            }
        }
    }
}

/// Reloads the web configuration at SIGHUP, and when it or a file that it names changes; never ends.
///
/// # Errors
/// The system gives no signals.
pub async fn watch_web_config(file: Option<&Path>, app: &App) -> std::io::Result<()> {
    let Some(file) = file else { return std::future::pending().await };
    let mut hangup = signal(SignalKind::hangup())?;
    let changes = FileChanges::new(app.web().files.clone());
    loop {
        let asked = wait_for_change(hangup.recv(), &changes).await;
        let read = || {
            let web = Web::load(file)?;
            web.no_weaker_than(&app.web(), file)?;
            Ok::<_, ConfigError>(web)
        };
        match read_with_retry(asked, &changes, read).await {
            Ok(web) => {
                changes.set_files(web.files.clone());
                tracing::info!("web configuration reloaded; open connections stay open");
                install(app, web);
            }
            Err(error) => {
                app.change_agent(|agent| {
                    agent.web = agent.web.map(|web| WebState { reload_successful: false, ..web });
                });
                tracing::error!("reload failed, the web configuration stays as it was: {error}");
            }
        }
    }
}

/// Applies a web configuration.
pub fn install(app: &App, web: Web) {
    for remark in &web.remarks {
        tracing::warn!("{remark}");
    }
    let (reloaded, certificate_expires) = (SystemTime::now(), web.certificate_expires);
    app.set_web(Arc::new(web));
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

/// Reads, and reads once more after an error, unless `asked`: whoever sent SIGHUP waits for the result.
async fn read_with_retry<T, E>(asked: bool, changes: &FileChanges, read: impl Fn() -> Result<T, E>) -> Result<T, E> {
    match read() {
        Err(_) if !asked => {
            sleep(RETRY_AFTER).await;
            changes.acknowledge();
            read()
        }
        result => result,
    }
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
