//! Takes up configurations that change while the agent runs: at SIGHUP, and when their files do. One that is wrong
//! changes nothing, which is said in the log and the metrics.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio::time::sleep;

use super::config::ConfigError;
use super::settings::Settings;
use crate::export::http::App;
use crate::export::web::Web;
use crate::export::{AgentState, WebState};
use crate::watch::{FileWatcher, PollerHandle};

/// A file that is wrong is read once more after this before it is said so: its writer may write more than one.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Reads the configuration again whenever it should be; never ends.
///
/// # Errors
/// The system gives no signals.
pub async fn watch_config<E: Display>(
    file: Option<&Path>,
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
                handle.set_policy(settings.policy, "the configuration was read again".to_owned());
                app.change_agent(|agent| {
                    (agent.reload_successful, agent.reloaded) = (true, Some(SystemTime::now()));
                });
                tracing::info!("configuration read again; paths, addresses and collectors change at a restart");
            }
            Err(error) => {
                app.change_agent(|agent| agent.reload_successful = false);
                tracing::error!("configuration kept as it was: {error}");
            }
        }
    }
}

/// Reads the web configuration again whenever it, or a file that it names, should be; never ends.
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
                tracing::info!("web configuration read again; connections that are open stay open");
                install(app, web);
            }
            Err(error) => {
                app.change_agent(|agent| {
                    agent.web = agent.web.map(|web| WebState { reload_successful: false, ..web });
                });
                tracing::error!("web configuration kept as it was: {error}");
            }
        }
    }
}

/// Puts a web configuration in force.
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

/// Waits until someone asks for it or a file has changed; whether someone asked.
async fn wait_for_change(hangup: impl Future<Output = Option<()>>, changes: &FileChanges) -> bool {
    tokio::select! {
        _ = hangup => {
            changes.acknowledge();
            true
        }
        () = changes.wait() => false,
    }
}

/// Reads, and reads once more when that fails, unless someone asked and wants to hear of it.
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
