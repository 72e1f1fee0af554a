//! Checks whether the maintenance marker exists, on a thread of its own: the marker may be on a file system that hangs,
//! and polling goes on.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// How long a pass waits for an answer. Files in memory and on disks answer long before.
const WAIT: Duration = Duration::from_millis(100);
/// A file system that has not responded for so long is logged.
const LATE: Duration = Duration::from_secs(5);

/// Whether a file exists; tests make it hang.
type Exists = fn(&Path) -> bool;

/// The maintenance marker as it was last seen.
#[derive(Debug)]
pub(super) struct MaintenanceMarker {
    exists: Exists,
    checker: Option<Checker>,
}

/// A thread that checks one path.
#[derive(Debug)]
struct Checker {
    path: PathBuf,
    requests: Sender<()>,
    answers: Receiver<bool>,
    /// The last answer.
    last: bool,
    /// Since when the thread has not answered.
    asked: Option<Instant>,
    is_late: bool,
}

impl Default for MaintenanceMarker {
    fn default() -> Self {
        Self { exists: |path| std::fs::symlink_metadata(path).is_ok(), checker: None }
    }
}

impl MaintenanceMarker {
    /// Whether this file exists, or did when the file system last responded. A file that was never seen does not.
    pub(super) fn exists(&mut self, path: &Path) -> bool {
        if self.checker.as_ref().is_none_or(|checker| checker.path != path) {
            // A thread that hangs on the old path ends when its file system responds.
            self.checker = Checker::start(path.to_owned(), self.exists);
        }
        self.checker.as_mut().is_some_and(Checker::check)
    }
}

impl Checker {
    /// `None` if the system has no more threads, which is logged.
    fn start(path: PathBuf, exists: Exists) -> Option<Self> {
        let (requests, inbox) = channel();
        let (outbox, answers) = channel();
        let checked = path.clone();
        let thread = std::thread::Builder::new().name("maintenance".to_owned()).stack_size(64 << 10);
        let started = thread.spawn(move || {
            for () in inbox {
                if outbox.send(exists(&checked)).is_err() {
                    return;
                }
            }
        });
        match started {
            Ok(_) => Some(Self { path, requests, answers, last: false, asked: None, is_late: false }),
            Err(error) => {
                tracing::error!("no more threads: {error}");
                None
            }
        }
    }

    fn check(&mut self) -> bool {
        if self.asked.is_none() && self.requests.send(()).is_ok() {
            self.asked = Some(Instant::now());
        }
        let Some(asked) = self.asked else { return self.last };
        // Whoever did not answer before has had its time.
        let wait = if asked.elapsed() < WAIT { WAIT } else { Duration::ZERO };
        match self.answers.recv_timeout(wait) {
            Ok(exists) => {
                if std::mem::take(&mut self.is_late) {
                    tracing::info!("{}: responds again", self.path.display());
                }
                (self.last, self.asked) = (exists, None);
            }
            Err(RecvTimeoutError::Timeout) if asked.elapsed() >= LATE && !self.is_late => {
                self.is_late = true;
                let state = if self.last { "in maintenance" } else { "not in maintenance" };
                tracing::warn!("{}: the file system is not responding, the host stays {state}", self.path.display());
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
        }
        self.last
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Condvar, Mutex};

    use super::*;

    /// Whether the file system hangs.
    static HANGS: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());

    fn exists(path: &Path) -> bool {
        let (hangs, changed) = &HANGS;
        drop(changed.wait_while(hangs.lock().unwrap(), |hangs| *hangs).unwrap());
        path.ends_with("here")
    }

    fn hang(value: bool) {
        *HANGS.0.lock().unwrap() = value;
        HANGS.1.notify_all();
    }

    #[test]
    fn a_file_system_that_hangs_costs_one_short_wait_and_the_last_answer_holds() {
        let mut marker = MaintenanceMarker { exists, checker: None };
        assert!(marker.exists(Path::new("/run/here")) && !marker.exists(Path::new("/run/gone")));
        assert!(marker.exists(Path::new("/run/here")));
        hang(true);
        let began = Instant::now();
        assert!((0..50).all(|_| marker.exists(Path::new("/run/here"))));
        assert!(began.elapsed() < WAIT * 10, "{:?}", began.elapsed());
        // Another path that hangs is not known to exist.
        assert!(!marker.exists(Path::new("/run/also/here")));
        hang(false);
        let began = Instant::now();
        while !marker.exists(Path::new("/run/also/here")) {
            assert!(began.elapsed() < Duration::from_secs(10), "no answer");
        }
    }
}
