//! The tree behind [`super::MemoryHost`]: directories, files and links, and the way through them.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;

/// Links followed on one path before it counts as a loop, as in the kernel.
const MOST_LINKS: usize = 40;

/// The number of the root directory.
const ROOT: u64 = 0;

/// A file, shared by the tree and by those who have it open.
#[derive(Debug)]
pub(super) struct MemoryFile {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    content: Result<Vec<u8>, Errno>,
    blocked: bool,
    removed: bool,
}

impl MemoryFile {
    pub(super) fn new() -> Self {
        let state = State { content: Ok(Vec::new()), blocked: false, removed: false };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    pub(super) fn set(&self, content: Result<Vec<u8>, Errno>) {
        self.lock().content = content;
    }

    pub(super) fn block(&self, blocked: bool) {
        self.lock().blocked = blocked;
        self.changed.notify_all();
    }

    pub(super) fn read(&self, offset: usize, buffer: &mut [u8]) -> io::Result<usize> {
        let state = self.changed.wait_while(self.lock(), |state| state.blocked && !state.removed);
        let state = state.unwrap_or_else(PoisonError::into_inner);
        if state.removed {
            return Err(Errno::NODEV.into());
        }
        let content = state.content.as_ref().map_err(|errno| io::Error::from(*errno))?;
        let content = content.get(offset..).unwrap_or_default();
        Ok(buffer.iter_mut().zip(content).map(|(to, from)| *to = *from).count())
    }

    fn remove(&self) {
        self.lock().removed = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is at a path.
#[derive(Debug)]
pub(super) enum MemoryNode {
    MemoryDirectory(MemoryDirectory),
    MemoryFile(Arc<MemoryFile>),
    Link(PathBuf),
}

/// A directory: the numbers of its entries by name, and when one was added or removed.
#[derive(Debug, Default)]
pub(super) struct MemoryDirectory {
    entries: BTreeMap<OsString, u64>,
    pub(super) changed: u64,
}

impl MemoryDirectory {
    pub(super) fn names(&self) -> impl Iterator<Item = &OsStr> {
        self.entries.keys().map(OsString::as_os_str)
    }
}

/// What to do with a link at the very end of a path.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LastLink {
    Follow,
    Keep,
}

/// How far a path leads: the entries found, then the names that do not exist.
struct PathWalk {
    trail: Vec<(OsString, u64)>,
    missing: Vec<OsString>,
}

impl PathWalk {
    fn end(&self) -> u64 {
        self.trail.last().map_or(ROOT, |(_, id)| *id)
    }
}

/// The whole tree. Nodes have numbers that are never used again.
#[derive(Debug)]
pub(super) struct MemoryTree {
    nodes: BTreeMap<u64, MemoryNode>,
    clock: u64,
}

impl MemoryTree {
    pub(super) fn new() -> Self {
        Self { nodes: BTreeMap::from([(ROOT, MemoryNode::MemoryDirectory(MemoryDirectory::default()))]), clock: ROOT }
    }

    /// The node at a path.
    pub(super) fn find(&self, path: &Path, last: LastLink) -> io::Result<u64> {
        let way = self.walk(path, last)?;
        match self.nodes.get(&way.end()) {
            _ if way.missing.is_empty() => Ok(way.end()),
            Some(MemoryNode::MemoryDirectory(_)) => Err(Errno::NOENT.into()),
            _ => Err(Errno::NOTDIR.into()),
        }
    }

    pub(super) fn node(&self, id: u64) -> Option<&MemoryNode> {
        self.nodes.get(&id)
    }

    pub(super) fn files(&self) -> impl Iterator<Item = &Arc<MemoryFile>> {
        self.nodes.values().filter_map(|node| match node {
            MemoryNode::MemoryFile(file) => Some(file),
            MemoryNode::MemoryDirectory(_) | MemoryNode::Link(_) => None,
        })
    }

    /// The file at a path; created if needed.
    pub(super) fn file(&mut self, path: &Path) -> Option<Arc<MemoryFile>> {
        if let Ok(id) = self.find(path, LastLink::Follow)
            && let Some(MemoryNode::MemoryFile(file)) = self.nodes.get(&id)
        {
            return Some(Arc::clone(file));
        }
        let file = Arc::new(MemoryFile::new());
        self.place(path, LastLink::Follow, MemoryNode::MemoryFile(Arc::clone(&file)))?;
        Some(file)
    }

    /// Makes a directory, unless there is one.
    pub(super) fn directory(&mut self, path: &Path) {
        let there = self.find(path, LastLink::Follow).ok().and_then(|id| self.nodes.get(&id));
        if !matches!(there, Some(MemoryNode::MemoryDirectory(_))) {
            self.place(path, LastLink::Follow, MemoryNode::MemoryDirectory(MemoryDirectory::default()));
        }
    }

    pub(super) fn link(&mut self, path: &Path, target: PathBuf) {
        self.place(path, LastLink::Keep, MemoryNode::Link(target));
    }

    pub(super) fn remove(&mut self, path: &Path) {
        let Ok(PathWalk { mut trail, missing }) = self.walk(path, LastLink::Keep) else { return };
        let Some((name, id)) = trail.pop().filter(|_| missing.is_empty()) else { return };
        let parent = trail.last().map_or(ROOT, |(_, id)| *id);
        self.clock += 1;
        if let Some(MemoryNode::MemoryDirectory(directory)) = self.nodes.get_mut(&parent) {
            directory.entries.remove(&name);
            directory.changed = self.clock;
        }
        self.forget(id);
    }

    /// Inserts a node at a path. Missing directories are created, and whatever is in the way is replaced. `None`,
    /// without any change, for the root itself and for a path that loops through links.
    fn place(&mut self, path: &Path, last: LastLink, node: MemoryNode) -> Option<()> {
        let PathWalk { mut trail, mut missing } = self.walk(path, last).ok()?;
        let in_the_way =
            !matches!(self.nodes.get(&trail.last().map_or(ROOT, |(_, id)| *id)), Some(MemoryNode::MemoryDirectory(_)));
        if missing.is_empty() || in_the_way {
            missing.insert(0, trail.pop()?.0);
        }
        let name = missing.pop()?;
        let mut parent = trail.last().map_or(ROOT, |(_, id)| *id);
        for between in missing {
            parent = self.insert(parent, between, MemoryNode::MemoryDirectory(MemoryDirectory::default()));
        }
        self.insert(parent, name, node);
        Some(())
    }

    fn insert(&mut self, parent: u64, name: OsString, node: MemoryNode) -> u64 {
        self.clock += 1;
        let id = self.clock;
        self.nodes.insert(id, node);
        if let Some(MemoryNode::MemoryDirectory(directory)) = self.nodes.get_mut(&parent) {
            directory.changed = id;
            if let Some(old) = directory.entries.insert(name, id) {
                self.forget(old);
            }
        }
        id
    }

    /// Removes a node and all below it; open files below it fail from then on.
    fn forget(&mut self, id: u64) {
        match self.nodes.remove(&id) {
            Some(MemoryNode::MemoryDirectory(directory)) => {
                for below in directory.entries.into_values() {
                    self.forget(below);
                }
            }
            Some(MemoryNode::MemoryFile(file)) => file.remove(),
            Some(MemoryNode::Link(_)) | None => {}
        }
    }

    fn walk(&self, path: &Path, last: LastLink) -> io::Result<PathWalk> {
        let mut trail: Vec<(OsString, u64)> = Vec::new();
        let mut ahead = parts(path);
        let mut links = 0;
        while let Some(name) = ahead.pop() {
            if name == ".." {
                trail.pop();
                continue;
            }
            let here = self.nodes.get(&trail.last().map_or(ROOT, |(_, id)| *id));
            let next = match here {
                Some(MemoryNode::MemoryDirectory(directory)) => directory.entries.get(&name).copied(),
                _ => None,
            };
            let Some(id) = next else {
                let missing = std::iter::once(name).chain(ahead.into_iter().rev()).collect();
                return Ok(PathWalk { trail, missing });
            };
            match self.nodes.get(&id) {
                Some(MemoryNode::Link(target)) if last == LastLink::Follow || !ahead.is_empty() => {
                    links += 1;
                    if links > MOST_LINKS {
                        return Err(Errno::LOOP.into());
                    }
                    if target.is_absolute() {
                        trail.clear();
                    }
                    ahead.extend(parts(target));
                }
                _ => trail.push((name, id)),
            }
        }
        Ok(PathWalk { trail, missing: Vec::new() })
    }
}

/// The names in a path, last one first.
fn parts(path: &Path) -> Vec<OsString> {
    let mut parts: Vec<OsString> = path
        .components()
        .filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir))
        .map(|part| part.as_os_str().to_owned())
        .collect();
    parts.reverse();
    parts
}
