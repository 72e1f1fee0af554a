//! A host in memory, for the demonstration and for tests: its files can change while they are being read.

mod tree;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use rustix::io::Errno;

use super::io::{DirStamp, Host, HostIo, OpenFile, Roots};
use tree::{LastLink, MemoryFile, MemoryNode, MemoryTree};

/// A file system in memory that behaves as sysfs does towards a reader: open files show new content, removed ones
/// fail with ENODEV, links are followed wherever they stand in a path.
///
/// Changes follow links too, make the directories on the way and replace what else stands there. One at a path
/// that leads round in links does nothing.
#[derive(Debug)]
pub struct MemoryHost {
    tree: RwLock<MemoryTree>,
}

impl MemoryHost {
    /// An empty host.
    pub fn new() -> Self {
        Self { tree: RwLock::new(MemoryTree::new()) }
    }

    /// This host as collectors see it, with its trees at `/sys` and `/proc`.
    pub fn host(self: &Arc<Self>) -> Host {
        let io: Arc<dyn HostIo> = Arc::<Self>::clone(self);
        let (sysfs, procfs, roots) = (PathBuf::from("/sys"), PathBuf::from("/proc"), Roots::below(Path::new("/")));
        Host { io, sysfs, procfs, roots, route: None, live: false }
    }

    /// Gives a file this content; makes it if there is none.
    pub fn set(&self, path: impl AsRef<Path>, content: impl Into<Vec<u8>>) {
        if let Some(file) = self.change().file(path.as_ref()) {
            file.set(Ok(content.into()));
        }
    }

    /// Lets reads of a file fail; makes it if there is none. [`Self::set`] ends that.
    pub fn fail(&self, path: impl AsRef<Path>, errno: Errno) {
        if let Some(file) = self.change().file(path.as_ref()) {
            file.set(Err(errno));
        }
    }

    /// Lets reads of a file hang until [`Self::release`] or its removal; makes it if there is none.
    pub fn block(&self, path: impl AsRef<Path>) {
        if let Some(file) = self.change().file(path.as_ref()) {
            file.block(true);
        }
    }

    /// Lets all hanging reads go on.
    pub fn release(&self) {
        self.look().files().for_each(|file| file.block(false));
    }

    /// Makes a directory that may stay empty; those with entries need no making.
    pub fn directory(&self, path: impl AsRef<Path>) {
        self.change().directory(path.as_ref());
    }

    /// Makes a symbolic link, in place of what is there.
    pub fn symlink(&self, path: impl AsRef<Path>, target: impl Into<PathBuf>) {
        self.change().link(path.as_ref(), target.into());
    }

    /// Removes a file, a link or a directory with all in it.
    pub fn remove(&self, path: impl AsRef<Path>) {
        self.change().remove(path.as_ref());
    }

    fn look(&self) -> RwLockReadGuard<'_, MemoryTree> {
        self.tree.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self) -> RwLockWriteGuard<'_, MemoryTree> {
        self.tree.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for MemoryHost {
    fn default() -> Self {
        Self::new()
    }
}

impl HostIo for MemoryHost {
    fn open(&self, path: &Path) -> io::Result<Box<dyn OpenFile>> {
        let tree = self.look();
        match tree.node(tree.find(path, LastLink::Follow)?) {
            Some(MemoryNode::MemoryFile(file)) => Ok(Box::new(OpenMemoryFile(Arc::clone(file)))),
            _ => Err(Errno::ISDIR.into()),
        }
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let tree = self.look();
        match tree.node(tree.find(path, LastLink::Follow)?) {
            Some(MemoryNode::MemoryDirectory(directory)) => {
                Ok(directory.names().map(|name| name.to_string_lossy().into_owned()).collect())
            }
            _ => Err(Errno::NOTDIR.into()),
        }
    }

    fn link(&self, path: &Path) -> io::Result<PathBuf> {
        let tree = self.look();
        match tree.node(tree.find(path, LastLink::Keep)?) {
            Some(MemoryNode::Link(target)) => Ok(target.clone()),
            _ => Err(Errno::INVAL.into()),
        }
    }

    fn stamp(&self, path: &Path) -> io::Result<DirStamp> {
        let tree = self.look();
        let id = tree.find(path, LastLink::Follow)?;
        let changed = match tree.node(id) {
            Some(MemoryNode::MemoryDirectory(directory)) => directory.changed,
            _ => 0,
        };
        Ok(DirStamp { identity: (0, id), modified: (0, changed) })
    }
}

struct OpenMemoryFile(Arc<MemoryFile>);

impl OpenFile for OpenMemoryFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(0, buffer)
    }

    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(usize::try_from(offset).unwrap_or(usize::MAX), buffer)
    }
}

#[cfg(test)]
mod tests;
