//! Wakes a collector when a file in a directory that it reads has changed (inotify), long before its interval is over.
//!
//! A thread of its own asks the kernel to watch, so that a directory that does not answer holds up no pass. What is not
//! there yet, or was made anew, is watched after the next pass; what cannot be watched is still read at the interval.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use notify::event::{AccessKind, AccessMode, ModifyKind};
use notify::{ErrorKind, Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};

use super::poller_handle::PollerMessage;
use super::watcher;
use crate::host::{Directories, Host, HostIo, WATCHED};

/// Watching needs little stack.
const STACK: usize = 128 * 1024;

/// A directory and the index of the collector that reads it.
pub(super) type Target = (usize, PathBuf);

/// A running watch. It ends when this is dropped.
pub(super) struct Alarm {
    again: Sender<()>,
    collectors: Vec<usize>,
}

impl Alarm {
    /// Watches the directories whose files some collectors read; `place` tells a collector's index by its name.
    pub(super) fn of_collectors(
        host: &Host,
        place: impl Fn(&str) -> Option<usize>,
        inbox: &Sender<PollerMessage>,
    ) -> Option<Self> {
        let targets = |(name, directories): &(&str, Directories)| -> Vec<Target> {
            let paths = |index| directories(&host.roots).into_iter().map(move |path| (index, path));
            place(name).into_iter().flat_map(paths).collect()
        };
        let targets: Vec<Target> = WATCHED.iter().flat_map(targets).collect();
        if targets.is_empty() || !host.io.is_system() {
            return None;
        }
        let started = Self::start(Arc::clone(&host.io), targets, inbox.clone());
        started.inspect_err(|error| tracing::error!("no more threads: {error}")).ok()
    }

    /// Watches these directories and tells the poller which collector a change concerns.
    ///
    /// # Errors
    /// The system has no more threads.
    pub(super) fn start(io: Arc<dyn HostIo>, targets: Vec<Target>, inbox: Sender<PollerMessage>) -> io::Result<Self> {
        let (again, asked) = channel();
        let collectors = targets.iter().map(|(index, _)| *index).collect();
        let work = move || {
            if let Some(watch) = Watch::new(io, targets, inbox) {
                watch.run(&asked);
            }
        };
        thread::Builder::new().name("alarm".to_owned()).stack_size(STACK).spawn(work)?;
        Ok(Self { again, collectors })
    }

    /// After a pass of these collectors: looks again for directories that came meanwhile.
    pub(super) fn look(&self, read: &[usize]) {
        if self.collectors.iter().any(|index| read.contains(index)) {
            // Where nothing can be watched, nobody listens.
            let _ = self.again.send(());
        }
    }
}

/// One directory.
struct Place {
    path: PathBuf,
    /// Device and inode of what is watched.
    watched: Option<(u64, u64)>,
    /// Whether it was said that it cannot be watched.
    said: bool,
}

struct Watch {
    io: Arc<dyn HostIo>,
    watcher: RecommendedWatcher,
    places: Vec<Place>,
}

impl Watch {
    fn new(io: Arc<dyn HostIo>, targets: Vec<Target>, inbox: Sender<PollerMessage>) -> Option<Self> {
        let places = targets.iter().map(|(_, path)| Place { path: path.clone(), watched: None, said: false }).collect();
        let told = move |event: notify::Result<Event>| {
            let Ok(event) = event else { return };
            for (index, path) in &targets {
                let concerned = event.paths.iter().any(|changed| changed.starts_with(path));
                if event.need_rescan() || (concerned && matters(event.kind)) {
                    // A poller that has stopped hears nothing any more.
                    let _ = inbox.send(PollerMessage::Changed(*index));
                }
            }
        };
        match watcher::listen(told) {
            Ok(watcher) => Some(Self { io, watcher, places }),
            Err(error) => {
                tracing::warn!("cannot watch files, they are read at their interval only: {error}");
                None
            }
        }
    }

    fn run(mut self, asked: &Receiver<()>) {
        loop {
            self.look();
            if asked.recv().is_err() {
                return;
            }
        }
    }

    fn look(&mut self) {
        for place in &mut self.places {
            let now = self.io.stamp(&place.path).ok().map(|stamp| stamp.identity);
            if place.watched == now {
                continue;
            }
            if place.watched.take().is_some() {
                // The kernel has forgotten what is gone by itself.
                let _ = self.watcher.unwatch(&place.path);
            }
            if now.is_none() {
                continue;
            }
            match self.watcher.watch(&place.path, RecursiveMode::NonRecursive) {
                Ok(()) => place.watched = now,
                // Gone again.
                Err(error) if matches!(error.kind, ErrorKind::PathNotFound) => {}
                Err(error) => {
                    if !std::mem::replace(&mut place.said, true) {
                        say(&place.path.display().to_string(), &error);
                    }
                }
            }
        }
    }
}

/// What a missing permission hides is no trouble worth a warning.
fn say(path: &str, error: &notify::Error) {
    let forbidden = matches!(&error.kind, ErrorKind::Io(error) if error.kind() == io::ErrorKind::PermissionDenied);
    if forbidden {
        tracing::debug!("no permission to watch {path}: it is read at its interval only");
    } else {
        tracing::warn!("cannot watch {path}, it is read at its interval only: {error}");
    }
}

/// Whether something other will be read now. Opening and reading, our own too, changes nothing, and a file that is
/// being written is waited for until it is closed.
const fn matters(kind: EventKind) -> bool {
    matches!(
        kind,
        EventKind::Create(_)
            | EventKind::Remove(_)
            | EventKind::Modify(ModifyKind::Name(_))
            | EventKind::Access(AccessKind::Close(AccessMode::Write))
    )
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::*;
    use crate::host::fs::Fs;

    /// Far longer than the kernel takes.
    const LONG: Duration = Duration::from_secs(20);

    /// What is said at once or not at all.
    const SHORT: Duration = Duration::from_millis(300);

    fn changed(inbox: &Receiver<PollerMessage>, wait: Duration) -> Option<usize> {
        match inbox.recv_timeout(wait) {
            Ok(PollerMessage::Changed(index)) => Some(index),
            _ => None,
        }
    }

    /// Everything that comes until nothing does.
    fn drain(inbox: &Receiver<PollerMessage>) {
        while changed(inbox, SHORT).is_some() {}
    }

    #[test]
    fn a_change_is_told_to_whom_it_concerns() {
        let root = tempfile::tempdir().unwrap();
        let (first, second) = (root.path().join("first"), root.path().join("second"));
        fs::create_dir(&first).unwrap();
        let (sender, inbox) = channel();
        let targets = vec![(4, first.clone()), (7, second.clone())];
        let mut watch = Watch::new(Arc::new(Fs::new()), targets, sender).unwrap();
        watch.look();
        fs::write(first.join("vm1.xml.new"), "<domain/>").unwrap();
        fs::rename(first.join("vm1.xml.new"), first.join("vm1.xml")).unwrap();
        assert_eq!(changed(&inbox, LONG), Some(4));
        drain(&inbox);
        // Reading it is no change.
        fs::read(first.join("vm1.xml")).unwrap();
        assert_eq!(changed(&inbox, SHORT), None);
        // One that comes later is watched from the next look on.
        fs::create_dir(&second).unwrap();
        watch.look();
        fs::write(second.join("vm2.xml"), "<domain/>").unwrap();
        assert_eq!(changed(&inbox, LONG), Some(7));
        drain(&inbox);
        // And one that was made anew, too.
        fs::rename(&second, root.path().join("old")).unwrap();
        fs::create_dir(&second).unwrap();
        drain(&inbox);
        watch.look();
        fs::write(second.join("vm3.xml"), "<domain/>").unwrap();
        assert_eq!(changed(&inbox, LONG), Some(7));
    }

    #[test]
    fn it_ends_with_its_owner() {
        let (sender, inbox) = channel();
        let missing = PathBuf::from("/nonexistent/qemu");
        let alarm = Alarm::start(Arc::new(Fs::new()), vec![(0, missing)], sender).unwrap();
        alarm.look(&[0]);
        drop(alarm);
        assert!(inbox.recv_timeout(LONG).is_err_and(|error| error == std::sync::mpsc::RecvTimeoutError::Disconnected));
    }
}
