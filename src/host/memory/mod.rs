//! A host in memory, for the demo and for tests: its files can change while they are being read.

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
/// Changes follow links, create missing directories and replace whatever is in the way. A change at a path that loops
/// through links does nothing.
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
        Host { io, sysfs, procfs, roots, route: None, ethtool: None, live: false }
    }

    /// Writes a file; creates it if needed.
    pub fn set(&self, path: impl AsRef<Path>, content: impl Into<Vec<u8>>) {
        if let Some(file) = self.change().file(path.as_ref()) {
            file.set(Ok(content.into()));
        }
    }

    /// Makes reads of a file fail until the next [`Self::set`]; creates it if needed.
    pub fn fail(&self, path: impl AsRef<Path>, errno: Errno) {
        if let Some(file) = self.change().file(path.as_ref()) {
            file.set(Err(errno));
        }
    }

    /// Makes reads of a file block until [`Self::release`] or its removal; creates it if needed.
    pub fn block(&self, path: impl AsRef<Path>) {
        if let Some(file) = self.change().file(path.as_ref()) {
            file.block(true);
        }
    }

    /// Lets all blocked reads continue.
    pub fn release(&self) {
        self.tree().files().for_each(|file| file.block(false));
    }

    /// Creates a directory that may stay empty; parents of entries are created anyway.
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

    fn tree(&self) -> RwLockReadGuard<'_, MemoryTree> {
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
        let tree = self.tree();
        match tree.node(tree.find(path, LastLink::Follow)?) {
            Some(MemoryNode::MemoryFile(file)) => Ok(Box::new(OpenMemoryFile(Arc::clone(file)))),
            _ => Err(Errno::ISDIR.into()),
        }
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let tree = self.tree();
        match tree.node(tree.find(path, LastLink::Follow)?) {
            Some(MemoryNode::MemoryDirectory(directory)) => {
                Ok(directory.names().map(|name| name.to_string_lossy().into_owned()).collect())
            }
            _ => Err(Errno::NOTDIR.into()),
        }
    }

    fn link(&self, path: &Path) -> io::Result<PathBuf> {
        let tree = self.tree();
        match tree.node(tree.find(path, LastLink::Keep)?) {
            Some(MemoryNode::Link(target)) => Ok(target.clone()),
            _ => Err(Errno::INVAL.into()),
        }
    }

    fn stamp(&self, path: &Path) -> io::Result<DirStamp> {
        let tree = self.tree();
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
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn text(host: &MemoryHost, path: &str) -> Result<String, Errno> {
        let mut buffer = [0; 64];
        let read = host.open(Path::new(path)).and_then(|mut file| file.read(&mut buffer));
        read.map(|length| String::from_utf8_lossy(&buffer[..length]).into_owned()).map_err(|error| errno(&error))
    }

    fn errno(error: &io::Error) -> Errno {
        Errno::from_raw_os_error(error.raw_os_error().unwrap())
    }

    fn stamp(host: &MemoryHost, path: &str) -> DirStamp {
        HostIo::stamp(host, Path::new(path)).unwrap()
    }

    #[test]
    fn an_open_file_shows_what_is_there_now() {
        let host = MemoryHost::new();
        host.set("/sys/a", "1\n");
        let mut file = host.open(Path::new("/sys/a")).unwrap();
        let mut buffer = [0; 4];
        assert_eq!(file.read(&mut buffer).unwrap(), 2);
        host.set("/sys/a", "23456");
        assert_eq!((file.read(&mut buffer).unwrap(), &buffer), (4, b"2345"));
        host.fail("/sys/a", Errno::IO);
        assert_eq!(errno(&file.read(&mut buffer).unwrap_err()), Errno::IO);
        host.set("/sys/a", "7");
        assert_eq!(file.read(&mut buffer).unwrap(), 1);
        host.remove("/sys");
        host.set("/sys/a", "8");
        assert_eq!(errno(&file.read(&mut buffer).unwrap_err()), Errno::NODEV);
        assert_eq!(text(&host, "/sys/a").as_deref(), Ok("8"));
    }

    #[test]
    fn links_are_followed_anywhere_in_a_path() {
        let host = MemoryHost::new();
        host.set("/sys/devices/card/infiniband/mlx5_0/node_guid", "1");
        host.symlink("/sys/class/infiniband/mlx5_0", "../../devices/card/infiniband/mlx5_0");
        host.symlink("/sys/devices/card/infiniband/mlx5_0/device", "../..");
        host.set("/sys/class/infiniband/mlx5_0/device/class", "2");
        assert_eq!(text(&host, "/sys/class/infiniband/mlx5_0/node_guid").as_deref(), Ok("1"));
        assert_eq!(text(&host, "/sys/devices/card/class").as_deref(), Ok("2"));
        host.symlink("/sys/absolute", "/sys/class/infiniband");
        assert_eq!(text(&host, "/sys/absolute/mlx5_0/device/class").as_deref(), Ok("2"));
        let device = HostIo::link(&host, Path::new("/sys/absolute/mlx5_0/device")).unwrap();
        assert_eq!(device, Path::new("../.."));
        assert_eq!(host.list(Path::new("/sys/class/infiniband/mlx5_0/device")).unwrap(), ["class", "infiniband"]);
    }

    #[test]
    fn dangling_links_and_loops_are_errors() {
        let host = MemoryHost::new();
        host.symlink("/a", "b");
        host.symlink("/b", "a");
        host.symlink("/c", "gone");
        assert_eq!(text(&host, "/a"), Err(Errno::LOOP));
        assert_eq!(text(&host, "/a/x"), Err(Errno::LOOP));
        assert_eq!(text(&host, "/c"), Err(Errno::NOENT));
        host.set("/a/x", "");
        assert_eq!(text(&host, "/a/x"), Err(Errno::LOOP));
        host.set("/c", "made");
        assert_eq!(text(&host, "/gone").as_deref(), Ok("made"));
    }

    #[test]
    fn errors_are_the_kernels() {
        let host = MemoryHost::new();
        host.set("/sys/file", "");
        host.directory("/sys/empty");
        assert_eq!(text(&host, "/sys/none"), Err(Errno::NOENT));
        assert_eq!(text(&host, "/sys/file/x"), Err(Errno::NOTDIR));
        assert_eq!(text(&host, "/sys"), Err(Errno::ISDIR));
        assert_eq!(host.list(Path::new("/sys/file")).map_err(|e| errno(&e)), Err(Errno::NOTDIR));
        assert_eq!(host.list(Path::new("/sys/empty")).unwrap(), [""; 0]);
        assert_eq!(HostIo::link(&host, Path::new("/sys/file")).map_err(|e| errno(&e)), Err(Errno::INVAL));
    }

    #[test]
    fn a_directory_is_stamped_with_its_entries_and_its_identity() {
        let host = MemoryHost::new();
        host.set("/sys/d/a", "1");
        let first = stamp(&host, "/sys/d");
        host.set("/sys/d/a", "2");
        assert_eq!(stamp(&host, "/sys/d"), first);
        host.set("/sys/d/b", "1");
        let second = stamp(&host, "/sys/d");
        assert_eq!(second.identity, first.identity);
        assert_ne!(second.modified, first.modified);
        host.remove("/sys/d/b");
        assert_ne!(stamp(&host, "/sys/d").modified, second.modified);
        host.remove("/sys/d");
        host.set("/sys/d/a", "1");
        assert_ne!(stamp(&host, "/sys/d").identity, first.identity);
    }

    #[test]
    fn a_change_replaces_what_is_in_its_way() {
        let host = MemoryHost::new();
        host.set("/sys/x", "file");
        host.directory("/sys/x");
        assert_eq!(text(&host, "/sys/x"), Err(Errno::ISDIR));
        host.set("/sys/x", "file again");
        host.set("/sys/x/y/z", "below");
        assert_eq!(text(&host, "/sys/x/y/z").as_deref(), Ok("below"));
        host.symlink("/sys/x", "other");
        assert_eq!(text(&host, "/sys/x"), Err(Errno::NOENT));
        host.remove("/");
        host.set("/", "not a file");
        assert_eq!(host.list(Path::new("/")).unwrap(), ["sys"]);
    }

    #[test]
    fn a_read_hangs_until_it_is_released() {
        let host = Arc::new(MemoryHost::new());
        host.set("/sys/wedged", "late");
        host.block("/sys/wedged");
        let (sent, received) = std::sync::mpsc::channel();
        let reader = Arc::clone(&host);
        let worker = std::thread::spawn(move || sent.send(text(&reader, "/sys/wedged")));
        assert!(received.recv_timeout(Duration::from_millis(30)).is_err());
        host.release();
        assert_eq!(received.recv_timeout(Duration::from_secs(5)).unwrap().as_deref(), Ok("late"));
        worker.join().unwrap().unwrap();
    }

    proptest! {
        /// Without links, the tree holds what a map of paths would.
        #[test]
        fn the_tree_equals_a_map_of_paths(changes in proptest::collection::vec(("/[ab](/[ab]){0,2}", any::<bool>()), 0..20)) {
            let host = MemoryHost::new();
            let mut map: BTreeMap<String, String> = BTreeMap::new();
            for (index, (path, put)) in changes.iter().enumerate() {
                map.retain(|old, _| !old.starts_with(&format!("{path}/")) && (old != path || *put));
                if *put {
                    map.retain(|old, _| !path.starts_with(&format!("{old}/")));
                    map.insert(path.clone(), index.to_string());
                    host.set(path, index.to_string());
                } else {
                    host.remove(path);
                }
            }
            for (path, content) in map {
                prop_assert_eq!(text(&host, &path), Ok(content));
            }
        }
    }
}
