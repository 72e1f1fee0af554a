//! A host in memory that keeps a record of what is asked of it, and any one file of which can be spoilt.

use std::collections::BTreeMap;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use lanewatch::host::io::{DirStamp, Host, HostIo, OpenFile};
use lanewatch::host::memory::MemoryHost;
use rustix::io::Errno;

use super::tree::{Entry, Tree};

/// What was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Op {
    /// A file was opened.
    Open,
    /// It was read; not recorded.
    Read,
    /// A directory was listed.
    List,
    /// A link's target was asked for.
    Link,
    /// A directory was looked at.
    Timestamp,
}

impl Op {
    /// Those that are recorded.
    pub const ALL: [Self; 4] = [Self::Open, Self::List, Self::Link, Self::Timestamp];
}

/// What can be wrong with a path.
#[derive(Debug, Clone)]
pub enum Fault {
    /// The kernel says this: for a missing file or permission when it is opened, else when it is read.
    Errno(Errno),
    /// A file with this content stands there.
    Content(Vec<u8>),
    /// A directory stands there.
    Directory,
    /// A link that leads nowhere.
    Dangling,
    /// A link that leads to itself.
    Looping,
    /// Whoever asks waits until [`Faulty::mend`].
    Hang,
}

/// The host.
pub struct Faulty {
    /// Its files.
    pub memory: Arc<MemoryHost>,
    entries: BTreeMap<PathBuf, Entry>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    open: AtomicUsize,
}

#[derive(Default)]
struct State {
    record: Vec<(Op, PathBuf)>,
    reads: BTreeMap<PathBuf, usize>,
    spoilt: Option<(PathBuf, Fault)>,
}

impl Faulty {
    /// A host with these files.
    pub fn new(tree: &Tree) -> Arc<Self> {
        let memory = Arc::new(MemoryHost::new());
        let entries: BTreeMap<PathBuf, Entry> =
            tree.entries().map(|(path, entry)| (Path::new("/").join(path), entry.clone())).collect();
        for (path, entry) in &entries {
            put(&memory, path, entry);
        }
        Arc::new(Self { memory, entries, shared: Arc::default() })
    }

    /// As collectors see it.
    pub fn host(self: &Arc<Self>) -> Host {
        let io: Arc<dyn HostIo> = Arc::<Self>::clone(self);
        Host { io, ..self.memory.host() }
    }

    /// What was asked since the last call, in order.
    pub fn asked(&self) -> Vec<(Op, PathBuf)> {
        std::mem::take(&mut self.state().record)
    }

    /// How often the file at this path was read.
    pub fn reads(&self, path: &Path) -> usize {
        self.state().reads.get(path).copied().unwrap_or(0)
    }

    /// How many files are open.
    pub fn open_files(&self) -> usize {
        self.shared.open.load(Ordering::Relaxed)
    }

    /// Every path that it was made with.
    pub fn paths(&self) -> impl Iterator<Item = PathBuf> {
        self.entries.keys().cloned()
    }

    /// Every file that it was made with.
    pub fn files(&self) -> impl Iterator<Item = PathBuf> {
        let files = self.entries.iter().filter(|(_, entry)| matches!(entry, Entry::File(_)));
        files.map(|(path, _)| path.clone())
    }

    /// What stood at a path when the host was made; none for a directory that has entries.
    pub fn original(&self, path: &Path) -> Option<&Entry> {
        self.entries.get(&canonical(&self.memory, path.parent()?).join(path.file_name()?))
    }

    /// Spoils a path.
    pub fn spoil(&self, path: &Path, fault: &Fault) {
        match fault {
            Fault::Errno(_) | Fault::Hang => self.state().spoilt = Some((path.to_owned(), fault.clone())),
            Fault::Content(content) => {
                if self.memory.link(path).is_ok() {
                    self.memory.remove(path);
                }
                self.memory.set(path, content.clone());
            }
            Fault::Directory => {
                self.memory.remove(path);
                self.memory.directory(path);
            }
            Fault::Dangling => self.memory.symlink(path, "nowhere"),
            Fault::Looping => self.memory.symlink(path, path.file_name().unwrap_or_default()),
        }
    }

    /// Makes a path what it was, and lets everyone go on who waits.
    pub fn mend(&self, path: &Path) {
        if self.state().spoilt.take().is_some() {
            self.shared.changed.notify_all();
        } else if let Some(entry) = self.original(path) {
            self.memory.remove(path);
            put(&self.memory, path, entry);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state()
    }

    fn ask(&self, op: Op, path: &Path) -> io::Result<()> {
        self.state().record.push((op, path.to_owned()));
        // A fault at a link is one of asking for its target: the kernel follows it. What is no link says so.
        let is_link = self.memory.link(path).is_ok();
        if is_link == (op == Op::Link) { self.shared.pass(path, op) } else { Ok(()) }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits or fails if the path is spoilt that way. A file is opened even if it can't be read, unless it is missing
    /// or forbidden; and one that is open goes on answering when it is.
    fn pass(&self, path: &Path, op: Op) -> io::Result<()> {
        let hangs =
            |state: &mut State| op != Op::Open && matches!(&state.spoilt, Some((at, Fault::Hang)) if at == path);
        let state = self.changed.wait_while(self.state(), hangs).unwrap_or_else(PoisonError::into_inner);
        match &state.spoilt {
            Some((at, Fault::Errno(errno))) if at == path => {
                let at_open = matches!(*errno, Errno::NOENT | Errno::ACCESS);
                let passes = (op == Op::Open && !at_open) || (op == Op::Read && at_open);
                if passes { Ok(()) } else { Err((*errno).into()) }
            }
            _ => Ok(()),
        }
    }
}

fn put(memory: &MemoryHost, path: &Path, entry: &Entry) {
    match entry {
        Entry::File(content) => memory.set(path, content.clone()),
        Entry::Link(target) => memory.symlink(path, target.clone()),
        Entry::Directory => memory.directory(path),
    }
}

/// A path without links.
fn canonical(memory: &MemoryHost, path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(out.pop()),
            part => out.push(part),
        }
        if let Ok(target) = memory.link(&out) {
            out.pop();
            out = canonical(memory, &out.join(target));
        }
    }
    out
}

impl HostIo for Faulty {
    fn open(&self, path: &Path) -> io::Result<Box<dyn OpenFile>> {
        self.ask(Op::Open, path)?;
        let file = self.memory.open(path)?;
        self.shared.open.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(Opened { path: path.to_owned(), file, shared: Arc::clone(&self.shared) }))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        self.ask(Op::List, path)?;
        self.memory.list(path)
    }

    fn link(&self, path: &Path) -> io::Result<PathBuf> {
        self.ask(Op::Link, path)?;
        HostIo::link(&*self.memory, path)
    }

    fn stamp(&self, path: &Path) -> io::Result<DirStamp> {
        self.ask(Op::Timestamp, path)?;
        self.memory.stamp(path)
    }
}

struct Opened {
    path: PathBuf,
    file: Box<dyn OpenFile>,
    shared: Arc<Shared>,
}

impl OpenFile for Opened {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        *self.shared.state().reads.entry(self.path.clone()).or_default() += 1;
        self.shared.pass(&self.path, Op::Read)?;
        self.file.read(buffer)
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.shared.open.fetch_sub(1, Ordering::Relaxed);
    }
}
