//! One probe a host at a time: an advisory lock that ends with the process that holds it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};

const NAME: &str = "lanewatch-probe.lock";

/// The lock, held while this lives.
#[derive(Debug)]
pub struct HostLock(#[expect(dead_code, reason = "held open")] File);

impl HostLock {
    /// Where it is: all users of the host must find the same one.
    pub fn place() -> PathBuf {
        let folder = Path::new("/run/lock");
        if folder.is_dir() { folder.join(NAME) } else { std::env::temp_dir().join(NAME) }
    }

    /// Takes it; none when somebody else has it.
    ///
    /// # Errors
    /// The file cannot be opened or made.
    pub fn take(path: &Path) -> io::Result<Option<Self>> {
        let open = |create| {
            let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
            let flags = i32::try_from(flags.bits()).unwrap_or(0);
            let mut options = OpenOptions::new();
            options.read(true).custom_flags(flags);
            if create {
                options.write(true).create(true).truncate(false).mode(0o644);
            }
            options.open(path)
        };
        // One that another user made must not be opened for creation in a folder for everybody.
        let file = open(false)
            .or_else(|error| if error.kind() == io::ErrorKind::NotFound { open(true) } else { Err(error) })?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        // A lock needs no more than reading; who may not widen the mode did not make it.
        let _ = file.set_permissions(std::fs::Permissions::from_mode(0o644));
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self(file))),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_and_none_is_stale() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let first = HostLock::take(&path).unwrap();
        assert!(first.is_some() && HostLock::take(&path).unwrap().is_none());
        drop(first);
        assert!(HostLock::take(&path).unwrap().is_some());
    }

    #[test]
    fn a_link_or_a_folder_is_no_lock() {
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(directory.path().join("elsewhere"), &link).unwrap();
        assert!(HostLock::take(&link).is_err());
        assert!(!directory.path().join("elsewhere").exists());
        assert!(HostLock::take(directory.path()).is_err());
    }
}
