//! Files that are watched for changes: by whoever writes them in place, by editors that rename, by certificate tools
//! that swap symbolic links, and by Kubernetes, which swaps a folder above the file.
//!
//! What the kernel tells of a folder is only the hint to look again; whether a file is another one is told by what it
//! is then. Where the kernel tells nothing (a network file system, no watches left) it is looked at now and then.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::event::{AccessKind, AccessMode};
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use crate::watch::watcher;

/// Writers get so long to be done.
const QUIET: Duration = Duration::from_millis(200);
/// However much happens in a folder, it is looked at after this.
const LONGEST: Duration = Duration::from_secs(2);
/// How often it is looked at without a hint.
const ANYWAY: Duration = Duration::from_secs(15);
/// Most links from a name to its file.
const LINKS: usize = 40;

/// The files.
pub struct Watched {
    files: Vec<PathBuf>,
    seen: Vec<Option<Print>>,
    hint: Arc<Notify>,
    watcher: Option<RecommendedWatcher>,
    folders: BTreeSet<PathBuf>,
}

/// What makes a file another one: device, inode, length, times of its content and of its entry.
type Print = (u64, u64, u64, (i64, i64), (i64, i64));

impl Watched {
    /// Watches these files.
    pub fn new(files: Vec<PathBuf>) -> Self {
        let hint = Arc::new(Notify::new());
        let bell = Arc::clone(&hint);
        let kernel = watcher::listen(move |event: notify::Result<notify::Event>| {
            // Reading is no change; without this the agent's own reading would be a hint.
            let reading = |kind: EventKind| matches!(kind, EventKind::Access(access) if access != AccessKind::Close(AccessMode::Write));
            if !event.is_ok_and(|event| reading(event.kind)) {
                bell.notify_one();
            }
        });
        if let Err(error) = &kernel {
            tracing::warn!("files are looked at every {} s: the kernel tells no changes: {error}", ANYWAY.as_secs());
        }
        let mut watched = Self { files, seen: Vec::new(), hint, watcher: kernel.ok(), folders: BTreeSet::new() };
        watched.look();
        watched
    }

    /// Watches these files from now on.
    pub fn set(&mut self, files: Vec<PathBuf>) {
        if files != self.files {
            self.files = files;
            self.look();
        }
    }

    /// Takes the files as they are now for seen, and watches the folders that lead to them.
    pub fn look(&mut self) {
        self.seen = self.files.iter().map(|file| print(file)).collect();
        let folders: BTreeSet<PathBuf> = self.files.iter().flat_map(|file| folders(file)).collect();
        if let Some(watcher) = &mut self.watcher {
            for gone in self.folders.difference(&folders) {
                // A folder that was removed is not watched any more anyway.
                let _ = watcher.unwatch(gone);
            }
            for folder in &folders {
                // Again, though it may be watched already: it may be another folder of the same name.
                if let Err(error) = watcher.watch(folder, RecursiveMode::NonRecursive) {
                    tracing::debug!(folder = %folder.display(), %error, "not watched");
                }
            }
        }
        self.folders = folders;
    }

    /// Resolves when a file is another one than was seen last, and its writer seems to be done.
    pub async fn changed(&mut self) {
        loop {
            if self.files.is_empty() {
                std::future::pending::<()>().await;
            }
            let hinted = timeout(ANYWAY, self.hint.notified()).await.is_ok();
            if !hinted && self.unchanged() {
                continue;
            }
            let end = Instant::now() + LONGEST;
            while Instant::now() < end && timeout(QUIET, self.hint.notified()).await.is_ok() {
                // Hints may come without a pause.
                sleep(Duration::from_millis(10)).await;
            }
            if !self.unchanged() {
                self.look();
                return;
            }
        }
    }

    fn unchanged(&self) -> bool {
        self.files.iter().map(|file| print(file)).eq(self.seen.iter().copied())
    }
}

fn print(file: &Path) -> Option<Print> {
    let meta = std::fs::metadata(file).ok()?;
    let (content, entry) = ((meta.mtime(), meta.mtime_nsec()), (meta.ctime(), meta.ctime_nsec()));
    Some((meta.dev(), meta.ino(), meta.len(), content, entry))
}

/// The folders in which a name can become another file: its own, and those of the links on the way.
fn folders(file: &Path) -> BTreeSet<PathBuf> {
    let mut folders = BTreeSet::new();
    let mut waiting = vec![file.to_owned()];
    for _ in 0..LINKS {
        let Some(path) = waiting.pop() else { break };
        // Every part of the path may be a link, as Kubernetes' `..data` is.
        for part in path.ancestors().filter(|part| !part.as_os_str().is_empty()) {
            let Ok(target) = std::fs::read_link(part) else { continue };
            let above = part.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
            folders.insert(above.to_owned());
            let rest = path.strip_prefix(part).unwrap_or(Path::new(""));
            let target = above.join(target);
            waiting.push(if rest.as_os_str().is_empty() { target } else { target.join(rest) });
        }
        let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
        folders.insert(above.to_owned());
    }
    folders
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    async fn changes(watched: &mut Watched) -> bool {
        timeout(Duration::from_secs(10), watched.changed()).await.is_ok()
    }

    async fn paused(watched: &mut Watched) -> bool {
        timeout(Duration::from_millis(700), watched.changed()).await.is_ok()
    }

    #[tokio::test]
    async fn writers_of_every_kind_are_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        fs::write(&file, "1").unwrap();
        let mut watched = Watched::new(vec![file.clone()]);
        fs::write(&file, "22").unwrap();
        assert!(changes(&mut watched).await, "written in place");
        let beside = directory.path().join(".file.swp");
        fs::write(&beside, "333").unwrap();
        fs::rename(&beside, &file).unwrap();
        assert!(changes(&mut watched).await, "renamed over it");
        fs::remove_file(&file).unwrap();
        assert!(changes(&mut watched).await, "removed");
        fs::write(&file, "4").unwrap();
        assert!(changes(&mut watched).await, "there again");
        fs::write(directory.path().join("other"), "5").unwrap();
        fs::read(&file).unwrap();
        assert!(!paused(&mut watched).await, "another file, and a reader");
    }

    #[tokio::test]
    async fn a_folder_swapped_above_it_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        for (folder, text) in [("..1", "one"), ("..2", "two!")] {
            fs::create_dir(at(folder)).unwrap();
            fs::write(at(folder).join("tls.crt"), text).unwrap();
        }
        symlink("..1", at("..data")).unwrap();
        symlink("..data/tls.crt", at("tls.crt")).unwrap();
        let mut watched = Watched::new(vec![at("tls.crt")]);
        symlink("..2", at("..new")).unwrap();
        fs::rename(at("..new"), at("..data")).unwrap();
        fs::remove_dir_all(at("..1")).unwrap();
        assert!(changes(&mut watched).await);
        // And the file in the new folder.
        fs::write(at("..2/tls.crt"), "three").unwrap();
        assert!(changes(&mut watched).await);
    }

    #[tokio::test]
    async fn a_link_into_another_folder_is_followed() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::create_dir_all(at("archive")).unwrap();
        fs::create_dir_all(at("live")).unwrap();
        fs::write(at("archive/cert1.pem"), "1").unwrap();
        symlink("../archive/cert1.pem", at("live/cert.pem")).unwrap();
        let mut watched = Watched::new(vec![at("live/cert.pem")]);
        fs::write(at("archive/cert1.pem"), "22").unwrap();
        assert!(changes(&mut watched).await);
    }
}
