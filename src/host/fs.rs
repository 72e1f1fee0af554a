//! The file system as a host: descriptors stay open and are read with `pread`.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::fs::{Mode, OFlags};
use rustix::process::{Resource, Rlimit};

use super::io::{DirStamp, HostIo, OpenFile};

/// Descriptors that must stay free for sockets and everything else.
const RESERVED: usize = 512;

/// Reads through the kernel. Keeps files open as long as the process's limit allows, and opens them anew for each
/// read beyond that.
#[derive(Debug)]
pub struct Fs {
    kept: Arc<AtomicUsize>,
    most: usize,
}

impl Fs {
    /// Raises the soft limit of open files to the hard one, and keeps at most three quarters of it.
    pub fn new() -> Self {
        let limit = rustix::process::getrlimit(Resource::Nofile);
        // Reading goes on with fewer kept descriptors where the limit cannot be raised.
        let _ = rustix::process::setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
        let current = rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(1 << 20);
        let most = usize::try_from(current).unwrap_or(1 << 20) / 4 * 3;
        Self { kept: Arc::default(), most: most.saturating_sub(RESERVED) }
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
            return Ok(Box::new(Kept { fd, kept: Arc::clone(&self.kept) }));
        }
        self.kept.fetch_sub(1, Ordering::Relaxed);
        Ok(Box::new(Reopened { path: path.to_owned() }))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(path)? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        Ok(names)
    }

    fn link(&self, path: &Path) -> io::Result<PathBuf> {
        std::fs::read_link(path)
    }

    fn stamp(&self, path: &Path) -> io::Result<DirStamp> {
        let stat = rustix::fs::stat(path)?;
        Ok(DirStamp { identity: (stat.st_dev, stat.st_ino), modified: (stat.st_mtime, stat.st_mtime_nsec) })
    }
}

/// Opens a file without waiting for a writer, should it be a pipe.
fn open(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty())?)
}

struct Kept {
    fd: OwnedFd,
    kept: Arc<AtomicUsize>,
}

impl OpenFile for Kept {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::pread(&self.fd, buffer, 0)?)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.kept.fetch_sub(1, Ordering::Relaxed);
    }
}

struct Reopened {
    path: PathBuf,
}

impl OpenFile for Reopened {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::pread(&open(&self.path)?, buffer, 0)?)
    }
}
