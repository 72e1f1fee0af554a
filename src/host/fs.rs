//! The file system as a host: descriptors stay open and are read with `pread`.

use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::fs::{FsWord, Mode, OFlags, SeekFrom};
use rustix::process::{Resource, Rlimit};
use rustix::thread::CapabilitySet;

use super::io::{Capabilities, DirStamp, HostIo, OpenFile};

/// Descriptors reserved for sockets and everything else.
const RESERVED: usize = 512;

/// What `statfs` says of sysfs (`include/uapi/linux/magic.h`).
const SYSFS_MAGIC: FsWord = 0x6265_6572;

/// Reads through the kernel. Keeps files open up to the process's limit of descriptors; beyond it, each read opens its
/// file again.
#[derive(Debug)]
pub struct Fs {
    kept: Arc<AtomicUsize>,
    most: usize,
    recorded: bool,
}

impl Fs {
    /// Raises the soft limit of open files to the hard one, and keeps at most three quarters of it.
    pub fn new() -> Self {
        let limit = rustix::process::getrlimit(Resource::Nofile);
        // If the limit cannot be raised, fewer descriptors stay open.
        let _ = rustix::process::setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
        let current = rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(1 << 20);
        let most = usize::try_from(current).unwrap_or(1 << 20) / 4 * 3;
        Self { kept: Arc::default(), most: most.saturating_sub(RESERVED), recorded: false }
    }

    /// Whether a path is the kernel's own sysfs, wherever it is mounted.
    pub fn is_sysfs(path: &Path) -> bool {
        rustix::fs::statfs(path).is_ok_and(|stat| stat.f_type == SYSFS_MAGIC)
    }

    /// Reads a recorded host. Archives and checkouts without symbolic links leave files that hold the link's target;
    /// those are treated as links.
    pub fn recorded() -> Self {
        Self { recorded: true, ..Self::new() }
    }
}

impl Default for Fs {
    fn default() -> Self {
        Self::new()
    }
}

impl HostIo for Fs {
    fn open(&self, path: &Path) -> io::Result<Box<dyn OpenFile>> {
        let fd = open(path)?;
        if self.kept.fetch_add(1, Ordering::Relaxed) < self.most {
            return Ok(Box::new(OpenedFile { fd, kept: Arc::clone(&self.kept) }));
        }
        self.kept.fetch_sub(1, Ordering::Relaxed);
        Ok(Box::new(ReopenedFile { path: path.to_owned(), open: None }))
    }

    fn open_at_end(&self, path: &Path) -> io::Result<Box<dyn OpenFile>> {
        let fd = open(path)?;
        rustix::fs::seek(&fd, SeekFrom::End(0))?;
        self.kept.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(OpenedFile { fd, kept: Arc::clone(&self.kept) }))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(path)? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        Ok(names)
    }

    fn link(&self, path: &Path) -> io::Result<PathBuf> {
        match std::fs::read_link(path) {
            Err(error) if self.recorded && error.kind() == io::ErrorKind::InvalidInput => {
                written_link(path).ok_or(error)
            }
            outcome => outcome,
        }
    }

    fn stamp(&self, path: &Path) -> io::Result<DirStamp> {
        let stat = rustix::fs::stat(path)?;
        Ok(DirStamp { identity: (stat.st_dev, stat.st_ino), modified: (stat.st_mtime, stat.st_mtime_nsec) })
    }

    fn capabilities(&self) -> Capabilities {
        let Ok(sets) = rustix::thread::capabilities(None) else { return Capabilities::default() };
        let search = CapabilitySet::DAC_READ_SEARCH | CapabilitySet::DAC_OVERRIDE;
        Capabilities {
            ptrace: sets.effective.contains(CapabilitySet::SYS_PTRACE),
            search: sets.effective.intersects(search),
        }
    }

    fn is_system(&self) -> bool {
        true
    }

    fn is_writable(&self, path: &Path) -> io::Result<Option<bool>> {
        if self.recorded {
            return Ok(None);
        }
        Ok(Some(rustix::fs::stat(path)?.st_mode & 0o222 != 0))
    }
}

/// Reads a regular file of at most `most` bytes. Anything else, a pipe or a device, is refused before it can block.
///
/// # Errors
/// What the system says; `InvalidInput` for what is no regular file or too long.
pub fn read_regular(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = std::fs::File::from(open(path)?);
    let meta = file.metadata()?;
    if !meta.is_file() || meta.len() > most {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("not a regular file of at most {most} bytes")));
    }
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The target in a file that stands for a link: one line, relative, leading upwards.
fn written_link(path: &Path) -> Option<PathBuf> {
    let meta = std::fs::symlink_metadata(path).ok()?;
    if !meta.is_file() || meta.len() > 512 {
        return None;
    }
    let text = std::fs::read_to_string(path).ok()?;
    let target = text.trim_end();
    (target.starts_with("../") && !target.contains('\n')).then(|| PathBuf::from(target))
}

/// Opens a file without blocking, neither on a pipe's writer nor on log lines to come.
fn open(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK, Mode::empty())?)
}

struct OpenedFile {
    fd: OwnedFd,
    kept: Arc<AtomicUsize>,
}

impl OpenFile for OpenedFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read_at(0, buffer)
    }

    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::pread(&self.fd, buffer, offset)?)
    }
}

impl Drop for OpenedFile {
    fn drop(&mut self) {
        self.kept.fetch_sub(1, Ordering::Relaxed);
    }
}

struct ReopenedFile {
    path: PathBuf,
    /// Open from the first chunk to the last, because the kernel generates some files per open.
    open: Option<OwnedFd>,
}

impl OpenFile for ReopenedFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::pread(&open(&self.path)?, buffer, 0)?)
    }

    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let fd = match self.open.take() {
            Some(fd) if offset > 0 => fd,
            _ => open(&self.path)?,
        };
        let length = rustix::io::pread(&fd, buffer, offset)?;
        self.open = (length > 0).then_some(fd);
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkout_without_links_is_still_a_host() -> io::Result<()> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("device");
        std::fs::write(&path, "../../0000:3b:00.0")?;
        assert_eq!(Fs::recorded().link(&path)?, Path::new("../../0000:3b:00.0"));
        assert!(Fs::new().link(&path).is_err());
        std::fs::write(&path, "0x15b3\n")?;
        assert!(Fs::recorded().link(&path).is_err());
        Ok(())
    }
}
