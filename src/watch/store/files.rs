//! Files of the state directory.
//!
//! Nothing that stands in a file's place can block the agent or lead elsewhere: no pipe without a reader, no device, no
//! link. The directory is open while something in it is used, and each name is one part below it, so that no link in
//! between can lead root elsewhere; what belongs to another user is left alone. Owner and mode of what is written follow the directory, whoever runs the command: a file that root makes in the
//! service's directory belongs to the service.

use std::fmt::Debug;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;

use rustix::fs::{AtFlags, Dir, FileType, FlockOperation, Gid, Mode, OFlags, Stat, Uid};
use rustix::io::Errno;

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

    /// Opens the state directory. Links to it are followed: systemd makes one, and whoever can change those above it
    /// can do anything.
    fn open_directory(&self) -> io::Result<Folder> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let descriptor = rustix::fs::open(&self.directory, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&descriptor)?;
        Ok(Folder { owner: stat.st_uid, descriptor, directory: stat })
    }

    /// The folder of a name, and the name in it.
    fn folder_of<'a>(&self, name: &'a str) -> io::Result<(Folder, &'a str)> {
        let directory = self.open_directory()?;
        match name.split_once('/') {
            None => Ok((directory, name)),
            Some((folder, name)) => Ok((directory.open_folder(folder)?, name)),
        }
    }

    /// The same, to write there.
    fn writable<'a>(&self, name: &'a str) -> io::Result<(Folder, &'a str)> {
        let (folder, name) = self.folder_of(name)?;
        let own = rustix::process::geteuid();
        if own.is_root() || [0, own.as_raw()].contains(&folder.directory.st_uid) {
            Ok((folder, name))
        } else {
            Err(io::Error::new(io::ErrorKind::PermissionDenied, "the directory belongs to another user"))
        }
    }
}

/// An open folder. Names below it are single parts, never followed if they are links.
struct Folder {
    descriptor: OwnedFd,
    owner: u32,
    /// The state directory's owner and mode.
    directory: Stat,
}

impl Folder {
    /// Opens a folder in this one; a link or another user's is an error.
    fn open_folder(&self, name: &str) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let descriptor = rustix::fs::openat(&self.descriptor, name, flags, Mode::empty())?;
        let owner = rustix::fs::fstat(&descriptor)?.st_uid;
        if self.is_own(owner) {
            Ok(Self { descriptor, owner, directory: self.directory })
        } else {
            Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("{name} belongs to another user")))
        }
    }

    /// Whether this user, root or the directory's owner has this number.
    fn is_own(&self, owner: u32) -> bool {
        [0, self.owner, self.directory.st_uid, rustix::process::geteuid().as_raw()].contains(&owner)
    }

    /// Opens a regular file of its own: `InvalidInput` for anything else.
    fn open(&self, name: &str, how: OFlags) -> io::Result<File> {
        let flags = how | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.descriptor, name, flags, Mode::from_raw_mode(0o600))?;
        let stat = rustix::fs::fstat(&file)?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && self.is_own(stat.st_uid) {
            Ok(File::from(file))
        } else {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file, or another user's"))
        }
    }

    /// Creates a file that does not exist.
    fn create(&self, name: &str, how: OFlags) -> io::Result<File> {
        let file = self.open(name, how | OFlags::CREATE | OFlags::EXCL)?;
        self.adopt(&file)?;
        Ok(file)
    }

    /// Opens a file to append to it; creates it if it does not exist. True if it was created. One with a second name is
    /// an error: it may be a file from elsewhere.
    fn open_append(&self, name: &str) -> io::Result<(File, bool)> {
        let how = OFlags::WRONLY | OFlags::APPEND;
        match self.open(name, how) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok((self.create(name, how)?, true)),
            Err(error) => Err(error),
            Ok(file) if rustix::fs::fstat(&file)?.st_nlink > 1 => {
                Err(io::Error::new(io::ErrorKind::InvalidInput, "more than one name"))
            }
            Ok(file) => Ok((file, false)),
        }
    }

    /// Removes a name, if it is there.
    fn clear(&self, name: &str) -> io::Result<()> {
        match rustix::fs::unlinkat(&self.descriptor, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Gives a new file the state directory's owner, and its mode without the right to execute.
    fn adopt(&self, file: &File) -> io::Result<()> {
        rustix::fs::fchmod(file, Mode::from_raw_mode(self.directory.st_mode & 0o666))?;
        self.give(file)
    }

    /// Gives what was made to the owner of the state directory, where this process may and it is not its owner already.
    fn give(&self, file: impl std::os::fd::AsFd) -> io::Result<()> {
        let (own, owner) = (rustix::fs::fstat(&file)?, &self.directory);
        if (own.st_uid, own.st_gid) != (owner.st_uid, owner.st_gid) && rustix::process::geteuid().is_root() {
            match rustix::fs::fchown(&file, Some(Uid::from_raw(owner.st_uid)), Some(Gid::from_raw(owner.st_gid))) {
                // A root that is nobody on a network file system.
                Ok(()) | Err(Errno::PERM) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

impl StateFiles for DiskFiles {
    fn create_directory(&self) -> io::Result<()> {
        if self.directory.is_dir() {
            return Ok(());
        }
        std::fs::DirBuilder::new().recursive(true).mode(0o755).create(&self.directory)?;
        // Whatever the umask was.
        rustix::fs::fchmod(&self.open_directory()?.descriptor, Mode::from_raw_mode(DIRECTORY_MODE))?;
        Ok(())
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let (folder, name) = self.folder_of(name)?;
        let file = folder.open(name, OFlags::RDONLY)?;
        if file.metadata()?.len() > LONGEST {
            let message = format!("longer than {LONGEST} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let mut bytes = Vec::new();
        file.take(LONGEST).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn read_end(&self, name: &str, most: u64) -> io::Result<Vec<u8>> {
        let (folder, name) = self.folder_of(name)?;
        let mut file = folder.open(name, OFlags::RDONLY)?;
        let start = file.metadata()?.len().saturating_sub(most);
        file.seek(SeekFrom::Start(start))?;
        let mut bytes = Vec::new();
        file.take(most).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn create(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let (folder, name) = self.writable(name)?;
        folder.clear(name)?;
        let mut file = folder.create(name, OFlags::WRONLY)?;
        file.write_all(bytes)?;
        file.sync_all()
    }

    fn append(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let (folder, name) = self.writable(name)?;
        let (mut file, created) = folder.open_append(name)?;
        let before = file.metadata()?.len();
        let written = file.write_all(bytes).and_then(|()| file.sync_all());
        if written.is_err() {
            let _ = file.set_len(before);
        } else if created {
            rustix::fs::fsync(&folder.descriptor)?;
        }
        written
    }

    fn length(&self, name: &str) -> io::Result<u64> {
        let (folder, name) = self.folder_of(name)?;
        let stat = rustix::fs::statat(&folder.descriptor, name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(u64::try_from(stat.st_size).unwrap_or(0))
    }

    fn link(&self, from: &str, to: &str) -> io::Result<()> {
        let ((from_folder, from), (to_folder, to)) = (self.writable(from)?, self.writable(to)?);
        to_folder.clear(to)?;
        Ok(rustix::fs::linkat(&from_folder.descriptor, from, &to_folder.descriptor, to, AtFlags::empty())?)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let ((from_folder, from), (to_folder, to)) = (self.writable(from)?, self.writable(to)?);
        Ok(rustix::fs::renameat(&from_folder.descriptor, from, &to_folder.descriptor, to)?)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let (folder, name) = self.writable(name)?;
        Ok(rustix::fs::unlinkat(&folder.descriptor, name, AtFlags::empty())?)
    }

    fn sync_directory(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.open_directory()?.descriptor)?)
    }

    fn create_requests(&self) -> io::Result<()> {
        let (directory, name) = self.writable(REQUESTS)?;
        match rustix::fs::mkdirat(&directory.descriptor, name, Mode::from_raw_mode(0o700)) {
            Err(Errno::EXIST) => directory.open_folder(name).map(drop),
            Err(error) => Err(error.into()),
            Ok(()) => {
                let folder = directory.open_folder(name)?;
                rustix::fs::fchmod(&folder.descriptor, Mode::from_raw_mode(0o700))?;
                directory.give(&folder.descriptor)
            }
        }
    }

    fn requests(&self) -> io::Result<Vec<String>> {
        let folder = self.open_directory()?.open_folder(REQUESTS)?;
        let names = Dir::read_from(&folder.descriptor)?;
        let names = names.filter_map(|entry| entry.ok()?.file_name().to_str().ok().map(str::to_owned));
        Ok(names.filter(|name| name != "." && name != "..").collect())
    }

    fn lock(&self) -> io::Result<Option<File>> {
        let (folder, name) = self.writable(LOCK)?;
        let there = rustix::fs::statat(&folder.descriptor, name, AtFlags::SYMLINK_NOFOLLOW);
        if there.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile) {
            // A pipe or link in its place would never be a lock.
            folder.clear(name)?;
        }
        let (file, _) = folder.open_append(name)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(file)),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
    use std::path::Path;

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
    fn a_folder_of_requests_that_is_a_link_leads_nowhere() {
        let (directory, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let files = DiskFiles::new(directory.path().to_owned());
        std::fs::write(elsewhere.path().join("1.json"), "theirs").unwrap();
        symlink(elsewhere.path(), directory.path().join(REQUESTS)).unwrap();
        files.create_requests().unwrap_err();
        files.create("requests/new", b"ours").unwrap_err();
        files.append("requests/1.json", b"ours").unwrap_err();
        files.read("requests/1.json").unwrap_err();
        files.remove("requests/1.json").unwrap_err();
        files.requests().unwrap_err();
        files.create("file", b"ours").unwrap();
        files.rename("file", "requests/1.json").unwrap_err();
        files.link("file", "requests/2.json").unwrap_err();
        let names: Vec<_> =
            std::fs::read_dir(elsewhere.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["1.json"]);
        assert_eq!(std::fs::read(elsewhere.path().join("1.json")).unwrap(), b"theirs");
    }

    #[test]
    fn a_file_with_a_second_name_is_not_appended_to() {
        let directory = tempfile::tempdir().unwrap();
        let files = DiskFiles::new(directory.path().to_owned());
        let target = directory.path().join("target");
        std::fs::write(&target, "theirs").unwrap();
        std::fs::hard_link(&target, directory.path().join("journal")).unwrap();
        files.append("journal", b"ours").unwrap_err();
        files.create("journal", b"ours").unwrap();
        files.append("journal", b" and more").unwrap();
        assert_eq!(std::fs::read(&target).unwrap(), b"theirs");
        assert_eq!(files.read("journal").unwrap(), b"ours and more");
    }

    #[test]
    fn what_another_user_owns_is_neither_read_nor_written() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let files = DiskFiles::new(directory.path().to_owned());
        let at = |name: &str| directory.path().join(name);
        for name in ["file", "lock"] {
            std::fs::write(at(name), "theirs").unwrap();
            chown(at(name), Some(4711), None).unwrap();
        }
        std::fs::create_dir(at(REQUESTS)).unwrap();
        std::fs::write(at("requests/1.json"), "theirs").unwrap();
        chown(at(REQUESTS), Some(4711), None).unwrap();
        files.read("file").unwrap_err();
        files.read_end("file", 3).unwrap_err();
        files.append("file", b"ours").unwrap_err();
        files.lock().unwrap_err();
        files.create_requests().unwrap_err();
        files.requests().unwrap_err();
        files.create("requests/2.json", b"ours").unwrap_err();
        assert_eq!(std::fs::read(at("file")).unwrap(), b"theirs");
        // In that user's own directory all of it is the service's.
        chown(directory.path(), Some(4711), None).unwrap();
        files.append("file", b" and ours").unwrap();
        assert_eq!(
            (files.read("file").unwrap(), files.requests().unwrap()),
            (b"theirs and ours".into(), vec!["1.json".into()])
        );
        assert!(files.lock().unwrap().is_some());
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
