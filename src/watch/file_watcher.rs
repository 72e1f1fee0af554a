//! Watches directories and files for changes (inotify).
//!
//! Everything that touches the file system runs on a thread of its own, so a directory on a file system that hangs
//! blocks nobody else. A directory reports each change in it. A file reports that it became another one, whoever wrote
//! it: in place, by a rename, by a symbolic link that moved, or by a link in a folder above it, as Kubernetes does. The
//! kernel's event is only the hint to compare; where there are no events (network file systems, no watches left), files
//! are compared every 15 s, and directories are read at their collector's interval.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use notify::event::{AccessKind, AccessMode, ModifyKind};
use notify::{Config, ErrorKind, Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};

use crate::host::fs::Fs;
use crate::host::{Host, HostIo, WATCHED};

/// Stack of the thread.
const STACK: usize = 128 * 1024;
/// Writers get so long to finish.
const QUIET: Duration = Duration::from_millis(200);
/// Files are compared after this time even if events keep coming.
const MAX_QUIET: Duration = Duration::from_secs(2);
/// Files are compared this often without an event.
const POLL: Duration = Duration::from_secs(15);
/// Pause between events of a flood.
const PAUSE: Duration = Duration::from_millis(10);
/// Most symbolic links from a name to its file.
const MAX_LINKS: usize = 40;

/// A running watch; it ends when this is dropped.
#[derive(Debug)]
pub struct FileWatcher {
    commands: Sender<Command>,
}

enum Command {
    /// An event that may concern a file.
    Hint,
    /// Watch directories that appeared or were replaced.
    Refresh,
    /// Take the files as they are now for known.
    Acknowledge,
    /// Watch these files instead.
    SetFiles(Vec<PathBuf>),
    Stop,
}

impl FileWatcher {
    /// Watches directories; `on_change` gets the index of the one in which something changed. A directory that does
    /// not exist yet is watched from the next [`FileWatcher::refresh`] on.
    ///
    /// # Errors
    /// The system has no more threads.
    pub fn directories(
        io: Arc<dyn HostIo>,
        directories: Vec<PathBuf>,
        on_change: impl Fn(usize) + Send + 'static,
    ) -> io::Result<Self> {
        let (commands, inbox) = channel();
        spawn(move || {
            let paths = directories.clone();
            let on_event = move |event: notify::Result<Event>| {
                let Ok(event) = event else { return };
                for (index, path) in paths.iter().enumerate() {
                    let concerned = event.paths.iter().any(|changed| changed.starts_with(path));
                    if event.need_rescan() || (concerned && is_change(event.kind)) {
                        on_change(index);
                    }
                }
            };
            // Without a watcher the thread ends, and commands go nowhere.
            if let Some(inotify) = inotify(on_event) {
                DirectoryWatch::new(io, inotify, directories).run(&inbox);
            }
        })?;
        Ok(Self { commands })
    }

    /// Watches the directories whose files some collectors read, and the folder of requests; `on_change` gets the
    /// collector's index, or `None` for a request. `None` if there is nothing to watch.
    pub fn of_collectors(
        host: &Host,
        index_of: impl Fn(&str) -> Option<usize>,
        requests: Option<PathBuf>,
        on_change: impl Fn(Option<usize>) + Send + 'static,
    ) -> Option<Self> {
        let (mut directories, mut owners) = (Vec::new(), Vec::new());
        // Only the kernel of this host knows of changes to its files.
        let watched = if host.io.is_system() { WATCHED } else { &[] };
        for (name, paths) in watched {
            let Some(index) = index_of(name) else { continue };
            for path in paths(&host.roots) {
                directories.push(path);
                owners.push(Some(index));
            }
        }
        if let Some(requests) = requests {
            directories.push(requests);
            owners.push(None);
        }
        if directories.is_empty() {
            return None;
        }
        let io: Arc<dyn HostIo> = if host.io.is_system() { Arc::clone(&host.io) } else { Arc::new(Fs::new()) };
        let on_change = move |index: usize| on_change(owners.get(index).copied().flatten());
        let started = Self::directories(io, directories, on_change);
        started.inspect_err(|error| tracing::error!("no more threads: {error}")).ok()
    }

    /// Watches files; `on_change` is called when one of them became another file and its writer seems to be done.
    ///
    /// # Errors
    /// The system has no more threads.
    pub fn files(files: Vec<PathBuf>, on_change: impl Fn() + Send + 'static) -> io::Result<Self> {
        let (commands, inbox) = channel();
        let hints = commands.clone();
        let (ready, started) = channel();
        spawn(move || {
            let hinted = Arc::new(AtomicBool::new(false));
            let waiting = Arc::clone(&hinted);
            let on_event = move |event: notify::Result<Event>| {
                // Reading is no change; without this the agent's own reading would be a hint.
                let is_hint = !event.is_ok_and(|event| is_reading(event.kind));
                if is_hint && !waiting.swap(true, Ordering::AcqRel) {
                    let _ = hints.send(Command::Hint);
                }
            };
            let mut watch = FileWatch::new(files, inotify(on_event));
            let _ = ready.send(());
            watch.run(&inbox, &hinted, &on_change);
        })?;
        // What changes from now on is a change. A file system that hangs does not keep the caller.
        let _ = started.recv_timeout(MAX_QUIET);
        Ok(Self { commands })
    }

    /// Watches directories that appeared or were replaced since the last call.
    pub fn refresh(&self) {
        let _ = self.commands.send(Command::Refresh);
    }

    /// Takes the files as they are now for known: the caller reads them anyway.
    pub fn acknowledge(&self) {
        let _ = self.commands.send(Command::Acknowledge);
    }

    /// Watches these files from now on.
    pub fn set_files(&self, files: Vec<PathBuf>) {
        let _ = self.commands.send(Command::SetFiles(files));
    }
}

impl Drop for FileWatcher {
    fn drop(&mut self) {
        let _ = self.commands.send(Command::Stop);
    }
}

fn spawn(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name("file-watcher".to_owned()).stack_size(STACK).spawn(work).map(drop)
}

/// A watcher of the kernel's events; `None` if the kernel or the system has no more of them.
fn inotify(on_event: impl FnMut(notify::Result<Event>) + Send + 'static) -> Option<RecommendedWatcher> {
    let started = notify::recommended_watcher(on_event).and_then(|mut watcher| {
        // The library does not check whether its thread could start, and without one it panics at any other call and
        // even when it is dropped.
        if watcher.configure(Config::default()).is_err() {
            std::mem::forget(watcher);
            return Err(notify::Error::generic("no more threads"));
        }
        Ok(watcher)
    });
    let warn =
        |error: &notify::Error| tracing::warn!("no file events, files are only read at their intervals: {error}");
    started.inspect_err(warn).ok()
}

struct DirectoryWatch {
    io: Arc<dyn HostIo>,
    inotify: RecommendedWatcher,
    directories: Vec<WatchedDirectory>,
}

struct WatchedDirectory {
    path: PathBuf,
    /// Device and inode of what is watched; `None` if nothing is.
    watched: Option<(u64, u64)>,
    /// Whether a failure was logged.
    logged: bool,
}

impl DirectoryWatch {
    fn new(io: Arc<dyn HostIo>, inotify: RecommendedWatcher, paths: Vec<PathBuf>) -> Self {
        let directory = |path| WatchedDirectory { path, watched: None, logged: false };
        Self { io, inotify, directories: paths.into_iter().map(directory).collect() }
    }

    fn run(mut self, inbox: &Receiver<Command>) {
        loop {
            self.refresh();
            match inbox.recv() {
                Ok(Command::Stop) | Err(_) => return,
                Ok(_) => {}
            }
        }
    }

    fn refresh(&mut self) {
        for directory in &mut self.directories {
            let now = self.io.stamp(&directory.path).ok().map(|stamp| stamp.identity);
            if directory.watched == now {
                continue;
            }
            if directory.watched.take().is_some() {
                // The kernel drops the watch of a removed directory by itself.
                let _ = self.inotify.unwatch(&directory.path);
            }
            if now.is_none() {
                continue;
            }
            match self.inotify.watch(&directory.path, RecursiveMode::NonRecursive) {
                Ok(()) => directory.watched = now,
                // Removed in between.
                Err(error) if matches!(error.kind, ErrorKind::PathNotFound) => {}
                Err(error) => {
                    if !std::mem::replace(&mut directory.logged, true) {
                        log_unwatched(&directory.path, &error);
                    }
                }
            }
        }
    }
}

/// A missing permission is no trouble worth a warning.
fn log_unwatched(path: &Path, error: &notify::Error) {
    let path = path.display();
    let forbidden = matches!(&error.kind, ErrorKind::Io(error) if error.kind() == io::ErrorKind::PermissionDenied);
    if forbidden {
        tracing::debug!("no permission to watch {path}: it is only read at its interval");
    } else {
        tracing::warn!("cannot watch {path}, it is only read at its interval: {error}");
    }
}

struct FileWatch {
    inotify: Option<RecommendedWatcher>,
    files: Vec<PathBuf>,
    known: Vec<Option<Fingerprint>>,
    folders: BTreeSet<PathBuf>,
}

/// What makes a file another one: device, inode, length, times of its content and of its entry.
pub type Fingerprint = (u64, u64, u64, (i64, i64), (i64, i64));

impl FileWatch {
    fn new(files: Vec<PathBuf>, inotify: Option<RecommendedWatcher>) -> Self {
        let mut watch = Self { inotify, files, known: Vec::new(), folders: BTreeSet::new() };
        watch.acknowledge();
        watch
    }

    fn run(&mut self, inbox: &Receiver<Command>, hinted: &AtomicBool, on_change: &impl Fn()) {
        // When events began, while they go on.
        let mut began: Option<Instant> = None;
        loop {
            let wait = if began.is_some() { QUIET } else { POLL };
            match inbox.recv_timeout(wait) {
                Ok(Command::Hint) => {
                    thread::sleep(PAUSE);
                    hinted.store(false, Ordering::Release);
                    if began.get_or_insert_with(Instant::now).elapsed() < MAX_QUIET {
                        continue;
                    }
                }
                Ok(Command::Acknowledge | Command::Refresh) => {
                    self.acknowledge();
                    continue;
                }
                Ok(Command::SetFiles(files)) => {
                    if files != self.files {
                        self.files = files;
                        self.acknowledge();
                    }
                    continue;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Ok(Command::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            }
            began = None;
            if !self.files.iter().map(|file| fingerprint(file)).eq(self.known.iter().copied()) {
                self.acknowledge();
                on_change();
            }
        }
    }

    /// Takes the files as they are now for known, and watches the folders that lead to them.
    fn acknowledge(&mut self) {
        let folders: BTreeSet<PathBuf> = self.files.iter().flat_map(|file| folders_of(file)).collect();
        if let Some(inotify) = &mut self.inotify {
            for gone in self.folders.difference(&folders) {
                // The kernel drops the watch of a removed folder by itself.
                let _ = inotify.unwatch(gone);
            }
            for folder in &folders {
                // Also if it is watched already: it may be another folder of the same name.
                if let Err(error) = inotify.watch(folder, RecursiveMode::NonRecursive) {
                    tracing::debug!(folder = %folder.display(), %error, "not watched");
                }
            }
        }
        self.folders = folders;
        self.known = self.files.iter().map(|file| fingerprint(file)).collect();
    }
}

/// The fingerprint of a file, links followed; `None` if there is none.
pub fn fingerprint(file: &Path) -> Option<Fingerprint> {
    let meta = std::fs::metadata(file).ok()?;
    let (content, entry) = ((meta.mtime(), meta.mtime_nsec()), (meta.ctime(), meta.ctime_nsec()));
    Some((meta.dev(), meta.ino(), meta.len(), content, entry))
}

/// The folders in which a name can become another file: its own, and those of the links on the way.
fn folders_of(file: &Path) -> BTreeSet<PathBuf> {
    let mut folders = BTreeSet::new();
    let mut waiting = vec![file.to_owned()];
    for _ in 0..MAX_LINKS {
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

/// Whether the next reading will differ. A file that is being written counts once it is closed.
const fn is_change(kind: EventKind) -> bool {
    matches!(
        kind,
        EventKind::Create(_)
            | EventKind::Remove(_)
            | EventKind::Modify(ModifyKind::Name(_))
            | EventKind::Access(AccessKind::Close(AccessMode::Write))
    )
}

fn is_reading(kind: EventKind) -> bool {
    matches!(kind, EventKind::Access(access) if access != AccessKind::Close(AccessMode::Write))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// Far longer than the kernel takes.
    const LONG: Duration = Duration::from_secs(20);

    /// Time in which an event would have arrived.
    const SHORT: Duration = Duration::from_millis(300);

    /// Longer than writers get.
    const UNCHANGED: Duration = Duration::from_millis(700);

    fn drain(changes: &Receiver<usize>) {
        while changes.recv_timeout(SHORT).is_ok() {}
    }

    #[test]
    fn a_change_is_reported_with_the_index_of_its_directory() {
        let root = tempfile::tempdir().unwrap();
        let (first, second) = (root.path().join("first"), root.path().join("second"));
        fs::create_dir(&first).unwrap();
        let (sender, changes) = channel();
        let paths = vec![first.clone(), second.clone()];
        let on_event = {
            let paths = paths.clone();
            move |event: notify::Result<Event>| {
                let event = event.unwrap();
                let index = paths.iter().position(|path| event.paths.iter().any(|changed| changed.starts_with(path)));
                if is_change(event.kind) {
                    let _ = sender.send(index.unwrap());
                }
            }
        };
        let mut watch = DirectoryWatch::new(Arc::new(Fs::new()), inotify(on_event).unwrap(), paths);
        watch.refresh();
        fs::write(first.join("vm1.xml.new"), "<domain/>").unwrap();
        fs::rename(first.join("vm1.xml.new"), first.join("vm1.xml")).unwrap();
        assert_eq!(changes.recv_timeout(LONG), Ok(0));
        drain(&changes);
        // Reading it is no change.
        fs::read(first.join("vm1.xml")).unwrap();
        changes.recv_timeout(SHORT).unwrap_err();
        // A directory that appears later is watched from the next refresh on.
        fs::create_dir(&second).unwrap();
        watch.refresh();
        fs::write(second.join("vm2.xml"), "<domain/>").unwrap();
        assert_eq!(changes.recv_timeout(LONG), Ok(1));
        drain(&changes);
        // So is one that was replaced.
        fs::rename(&second, root.path().join("old")).unwrap();
        fs::create_dir(&second).unwrap();
        drain(&changes);
        watch.refresh();
        fs::write(second.join("vm3.xml"), "<domain/>").unwrap();
        assert_eq!(changes.recv_timeout(LONG), Ok(1));
    }

    #[test]
    fn a_directory_watch_ends_with_its_owner() {
        let (sender, changes) = channel();
        let missing = PathBuf::from("/nonexistent/qemu");
        let on_change = move |index| _ = sender.send(index);
        let watcher = FileWatcher::directories(Arc::new(Fs::new()), vec![missing], on_change).unwrap();
        watcher.refresh();
        drop(watcher);
        assert_eq!(changes.recv_timeout(LONG), Err(RecvTimeoutError::Disconnected));
    }

    fn watch(files: Vec<PathBuf>) -> (FileWatcher, Receiver<()>) {
        let (sender, changes) = channel();
        (FileWatcher::files(files, move || _ = sender.send(())).unwrap(), changes)
    }

    #[test]
    fn every_way_to_write_a_file_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        fs::write(&file, "1").unwrap();
        let (_watcher, changes) = watch(vec![file.clone()]);
        fs::write(&file, "22").unwrap();
        changes.recv_timeout(LONG).expect("written in place");
        let beside = directory.path().join(".file.swp");
        fs::write(&beside, "333").unwrap();
        fs::rename(&beside, &file).unwrap();
        changes.recv_timeout(LONG).expect("renamed over it");
        fs::remove_file(&file).unwrap();
        changes.recv_timeout(LONG).expect("removed");
        fs::write(&file, "4").unwrap();
        changes.recv_timeout(LONG).expect("created again");
        fs::write(directory.path().join("other"), "5").unwrap();
        fs::read(&file).unwrap();
        changes.recv_timeout(UNCHANGED).expect_err("another file, and a reader");
    }

    #[test]
    fn a_folder_swapped_above_a_file_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        for (folder, text) in [("..1", "one"), ("..2", "two!")] {
            fs::create_dir(at(folder)).unwrap();
            fs::write(at(folder).join("tls.crt"), text).unwrap();
        }
        symlink("..1", at("..data")).unwrap();
        symlink("..data/tls.crt", at("tls.crt")).unwrap();
        let (_watcher, changes) = watch(vec![at("tls.crt")]);
        symlink("..2", at("..new")).unwrap();
        fs::rename(at("..new"), at("..data")).unwrap();
        fs::remove_dir_all(at("..1")).unwrap();
        changes.recv_timeout(LONG).unwrap();
        // And the file in the new folder.
        fs::write(at("..2/tls.crt"), "three").unwrap();
        changes.recv_timeout(LONG).unwrap();
    }

    #[test]
    fn a_link_into_another_folder_is_followed() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::create_dir_all(at("archive")).unwrap();
        fs::create_dir_all(at("live")).unwrap();
        fs::write(at("archive/cert1.pem"), "1").unwrap();
        symlink("../archive/cert1.pem", at("live/cert.pem")).unwrap();
        let (_watcher, changes) = watch(vec![at("live/cert.pem")]);
        fs::write(at("archive/cert1.pem"), "22").unwrap();
        changes.recv_timeout(LONG).unwrap();
    }

    #[test]
    fn files_that_replace_the_watched_ones_are_watched() {
        let directory = tempfile::tempdir().unwrap();
        let (first, second) = (directory.path().join("first"), directory.path().join("second"));
        let (watcher, changes) = watch(vec![first.clone()]);
        watcher.set_files(vec![second.clone()]);
        fs::write(&first, "1").unwrap();
        changes.recv_timeout(UNCHANGED).unwrap_err();
        fs::write(&second, "1").unwrap();
        changes.recv_timeout(LONG).unwrap();
    }
}
