//! Files of the state directory.
//!
//! Nothing that stands in a file's place can block the agent or lead elsewhere: no pipe without a reader, no device, no
//! link. Owner and mode of what is written follow the directory, whoever runs the command: a file that root makes in the
//! service's directory belongs to the service.

use std::fmt::Debug;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Gid, Mode, OFlags, Uid};

/// Longest file that is read, in bytes; the state of thousands of VFs is far below it.
const LONGEST: u64 = 64 << 20;

/// Mode of a state directory that does not exist yet.
const DIRECTORY_MODE: u32 = 0o750;

/// What the store does with files; tests make each step fail. Names are relative to the state directory.
pub trait StateFiles: Debug + Send + Sync {
    /// Creates the directory, and those above it.
    ///
    /// # Errors
    /// What the system says, as for all others.
    fn create_directory(&self) -> io::Result<()>;
    /// The content of a regular file; `InvalidInput` for anything else in its place.
    fn read(&self, name: &str) -> io::Result<Vec<u8>>;
    /// At most the last so many bytes of a regular file.
    fn read_end(&self, name: &str, most: u64) -> io::Result<Vec<u8>> {
        let mut bytes = self.read(name)?;
        let start = bytes.len().saturating_sub(usize::try_from(most).unwrap_or(usize::MAX));
        bytes.drain(..start);
        Ok(bytes)
    }
    /// Creates a file with this content, synced to disk. What stands in its place is removed first, not opened.
    fn create(&self, name: &str, bytes: &[u8]) -> io::Result<()>;
    /// Appends to a file, synced to disk; creates it if it does not exist. When that fails, the file is cut to the
    /// length that it had, if possible.
    fn append(&self, name: &str, bytes: &[u8]) -> io::Result<()>;
    /// The length of a file.
    fn length(&self, name: &str) -> io::Result<u64>;
    /// Gives a file a second name; what has that name goes.
    fn link(&self, from: &str, to: &str) -> io::Result<()>;
    /// Renames a file over another.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Syncs the directory itself: the names in it.
    fn sync_directory(&self) -> io::Result<()>;
    /// Creates the folder of requests; only the owner of the state can enter it.
    fn create_requests(&self) -> io::Result<()>;
    /// Names of the files in the folder of requests.
    fn requests(&self) -> io::Result<Vec<String>>;
    /// Locks the directory for one process; `None` if another has it.
    fn lock(&self) -> io::Result<Option<File>>;
}

/// Name of the lock file.
const LOCK: &str = "lock";
/// Folder of requests.
pub(super) const REQUESTS: &str = "requests";

/// Files on disk.
#[derive(Debug, Clone)]
pub struct DiskFiles {
    directory: PathBuf,
}

impl DiskFiles {
    /// Files of this directory; nothing is touched yet.
    pub fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Opens a regular file to read it, if it belongs to the owner of the directory, to this user or to root. A link is not
    /// followed: root may run a command on the directory of a service.
    fn open_own(&self, name: &str) -> io::Result<File> {
        let flags = i32::try_from((OFlags::NONBLOCK | OFlags::NOFOLLOW).bits()).unwrap_or_default();
        let file = OpenOptions::new().read(true).custom_flags(flags).open(self.path(name))?;
        let (meta, directory) = (file.metadata()?, std::fs::metadata(&self.directory)?);
        let owners = [0, directory.uid(), rustix::process::geteuid().as_raw()];
        if meta.is_file() && owners.contains(&meta.uid()) {
            Ok(file)
        } else {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file, or another user's"))
        }
    }

    /// Gives a new file the directory's owner, and its mode without the right to execute.
    fn adopt(&self, file: &File) -> io::Result<()> {
        let directory = std::fs::metadata(&self.directory)?;
        rustix::fs::fchmod(file, Mode::from_raw_mode(directory.mode() & 0o666))?;
        give(file, &directory)
    }
}

/// Gives a file to the owner of another, where this process may and it is not its owner already.
fn give(file: &File, owner: &std::fs::Metadata) -> io::Result<()> {
    let own = file.metadata()?;
    if (own.uid(), own.gid()) != (owner.uid(), owner.gid()) && rustix::process::geteuid().is_root() {
        match rustix::fs::fchown(file, Some(Uid::from_raw(owner.uid())), Some(Gid::from_raw(owner.gid()))) {
            // A root that is nobody on a network file system.
            Ok(()) | Err(rustix::io::Errno::PERM) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Opens a regular file to append to it; creates it if it does not exist. True if it was created.
fn open_append(path: &Path) -> io::Result<(File, bool)> {
    let flags = i32::try_from((OFlags::NONBLOCK | OFlags::NOFOLLOW).bits()).unwrap_or_default();
    let mut options = OpenOptions::new();
    options.append(true).custom_flags(flags);
    let (file, created) = match options.open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            (options.create_new(true).mode(0o600).open(path)?, true)
        }
        opened => (opened?, false),
    };
    if file.metadata()?.is_file() {
        Ok((file, created))
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"))
    }
}

impl StateFiles for DiskFiles {
    fn create_directory(&self) -> io::Result<()> {
        if self.directory.is_dir() {
            return Ok(());
        }
        std::fs::DirBuilder::new().recursive(true).mode(0o755).create(&self.directory)?;
        // Whatever the umask was.
        rustix::fs::chmod(&self.directory, Mode::from_raw_mode(DIRECTORY_MODE))?;
        Ok(())
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let file = self.open_own(name)?;
        if file.metadata()?.len() > LONGEST {
            let message = format!("longer than {LONGEST} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let mut bytes = Vec::new();
        file.take(LONGEST).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn read_end(&self, name: &str, most: u64) -> io::Result<Vec<u8>> {
        let mut file = self.open_own(name)?;
        let start = file.metadata()?.len().saturating_sub(most);
        file.seek(SeekFrom::Start(start))?;
        let mut bytes = Vec::new();
        file.take(most).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn create(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let path = self.path(name);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        self.adopt(&file)?;
        file.write_all(bytes)?;
        file.sync_all()
    }

    fn append(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let (mut file, created) = open_append(&self.path(name))?;
        if created {
            self.adopt(&file)?;
        }
        let before = file.metadata()?.len();
        let written = file.write_all(bytes).and_then(|()| file.sync_all());
        if written.is_err() {
            let _ = file.set_len(before);
        } else if created {
            self.sync_directory()?;
        }
        written
    }

    fn length(&self, name: &str) -> io::Result<u64> {
        std::fs::metadata(self.path(name)).map(|meta| meta.len())
    }

    fn link(&self, from: &str, to: &str) -> io::Result<()> {
        let to = self.path(to);
        match std::fs::remove_file(&to) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        std::fs::hard_link(self.path(from), to)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.path(from), self.path(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.path(name))
    }

    fn sync_directory(&self) -> io::Result<()> {
        File::open(&self.directory)?.sync_all()
    }

    fn create_requests(&self) -> io::Result<()> {
        let path = self.path(REQUESTS);
        match std::fs::DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error),
            Ok(()) => {
                rustix::fs::chmod(&path, Mode::from_raw_mode(0o700))?;
                give(&File::open(&path)?, &std::fs::metadata(&self.directory)?)
            }
        }
    }

    fn requests(&self) -> io::Result<Vec<String>> {
        let entries = std::fs::read_dir(self.path(REQUESTS))?;
        Ok(entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect())
    }

    fn lock(&self) -> io::Result<Option<File>> {
        let path = self.path(LOCK);
        let is_other = |meta: std::fs::Metadata| !meta.is_file();
        if std::fs::symlink_metadata(&path).is_ok_and(is_other) {
            // A pipe or link in its place would never be a lock.
            std::fs::remove_file(&path)?;
        }
        let (file, created) = open_append(&path)?;
        if created {
            self.adopt(&file)?;
        }
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(file)),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn pipe(path: &Path) {
        rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    }

    #[test]
    fn a_pipe_in_a_files_place_is_refused_or_replaced_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let files = DiskFiles::new(directory.path().to_owned());
        let path = directory.path().join("file");
        pipe(&path);
        files.append("file", b"x").unwrap_err();
        // One that is read can be opened, and is no file all the same.
        let reader = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        assert_eq!(files.append("file", b"x").unwrap_err().kind(), io::ErrorKind::InvalidInput);
        drop(reader);
        files.create("file", b"whole").unwrap();
        assert_eq!(files.read("file").unwrap(), b"whole");
        files.append("file", b" and more").unwrap();
        assert_eq!(files.read("file").unwrap(), b"whole and more");
    }

    #[test]
    fn a_link_is_replaced_and_its_target_stays_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let files = DiskFiles::new(directory.path().to_owned());
        let (target, link) = (directory.path().join("target"), directory.path().join("link"));
        std::fs::write(&target, "theirs").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        files.append("link", b"ours").unwrap_err();
        files.create("link", b"ours").unwrap();
        assert_eq!(
            (std::fs::read(&target).unwrap(), std::fs::read(&link).unwrap()),
            (b"theirs".into(), b"ours".into())
        );
        std::fs::create_dir(directory.path().join("directory")).unwrap();
        files.create("directory", b"ours").unwrap_err();
    }

    #[test]
    fn modes_follow_the_directory_and_not_the_umask() {
        let directory = tempfile::tempdir().unwrap();
        let mode = |name: &str| std::fs::metadata(directory.path().join(name)).unwrap().permissions().mode() & 0o777;
        for (above, file) in [(0o755, 0o644), (0o750, 0o640), (0o700, 0o600)] {
            std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(above)).unwrap();
            let files = DiskFiles::new(directory.path().to_owned());
            files.create("created", b"").unwrap();
            files.append("appended", b"x").unwrap();
            drop(files.lock().unwrap().unwrap());
            for name in ["created", "appended", "lock"] {
                assert_eq!(mode(name), file, "{name} below {above:o}");
                files.remove(name).unwrap();
            }
        }
        let files = DiskFiles::new(directory.path().join("a/state"));
        files.create_directory().unwrap();
        files.create_requests().unwrap();
        files.create_requests().unwrap();
        assert_eq!((mode("a/state"), mode("a/state/requests")), (0o750, 0o700));
    }
}
