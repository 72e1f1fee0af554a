//! The folder of a run: a directory for temporary files of its own, locked while the run lives and gone with it. What an
//! agent left that was killed goes with the next run of the same user.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use tempfile::TempDir;

const PREFIX: &str = "lanewatch-probe-";

/// One that was made just now may not be locked yet.
const NEW: Duration = Duration::from_secs(60);

/// A folder that is removed with everything in it when this ends.
#[derive(Debug)]
pub struct RunDirectory {
    directory: TempDir,
    /// A lock and no process number: those are told apart in other PID namespaces, too, and are never used again.
    _lock: File,
}

impl RunDirectory {
    /// A new one where temporary files go.
    ///
    /// # Errors
    /// There is no place for it.
    pub fn new() -> io::Result<Self> {
        Self::below(&std::env::temp_dir(), SystemTime::now())
    }

    fn below(place: &Path, now: SystemTime) -> io::Result<Self> {
        sweep(place, now);
        let directory = tempfile::Builder::new().prefix(PREFIX).tempdir_in(place)?;
        let lock = open(directory.path())?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Self { directory, _lock: lock })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }
}

/// Removes what nobody holds any more. What cannot be removed is in nobody's way.
fn sweep(place: &Path, now: SystemTime) {
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX)) {
        if is_left(&entry.path(), now).unwrap_or(false) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn is_left(path: &Path, now: SystemTime) -> io::Result<bool> {
    let folder = open(path)?;
    let meta = folder.metadata()?;
    let old = now.duration_since(meta.modified()?).is_ok_and(|age| age >= NEW);
    Ok(old
        && meta.uid() == rustix::process::geteuid().as_raw()
        && flock(&folder, FlockOperation::NonBlockingLockExclusive).is_ok())
}

fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::open(path, OFlags::RDONLY | flags, Mode::empty())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_left_goes_and_what_is_in_use_stays() {
        let place = tempfile::tempdir().unwrap();
        let (left, other) = (place.path().join("lanewatch-probe-left"), place.path().join("lanewatch-other"));
        let link = place.path().join("lanewatch-probe-link");
        fs::create_dir_all(left.join("in/it")).unwrap();
        fs::write(left.join("result.json"), "{").unwrap();
        fs::create_dir(&other).unwrap();
        std::os::unix::fs::symlink(&other, &link).unwrap();
        let now = SystemTime::now();
        let used = RunDirectory::below(place.path(), now).unwrap();
        assert!(left.is_dir(), "it may be a run that begins");
        let later = now + 2 * NEW;
        let second = RunDirectory::below(place.path(), later).unwrap();
        assert!(!left.exists() && used.path().is_dir() && second.path().is_dir());
        assert!(other.is_dir() && link.is_symlink());
        let path = used.path().to_owned();
        drop(used);
        assert!(!path.exists());
    }
}
