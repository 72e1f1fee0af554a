//! Records what collectors read of a host, so that the host can be replayed elsewhere.

mod scrub;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::io::{DirStamp, Host, HostIo, OpenFile, reason_of};
use crate::model::reading::ReadError;
pub use scrub::Scrubber;

/// Links followed on one path before it counts as a loop, as in the kernel.
const MOST_LINKS: usize = 40;

/// What was at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordedEntry {
    /// A directory.
    Directory,
    /// A file with this content.
    File(Vec<u8>),
    /// A file that could not be read.
    Unreadable,
    /// A link to this, relative.
    Link(PathBuf),
}

/// Entries by path, below `sys` and `proc`.
pub type Entries = BTreeMap<PathBuf, RecordedEntry>;

/// Host input that records everything that is read. Regular files that are only listed, and never read, are not
/// recorded: a serial number must not get into a recording because it is next to something else.
pub struct Recording {
    inner: Arc<dyn HostIo>,
    roots: [(PathBuf, &'static str); 2],
    seen: Arc<Mutex<Entries>>,
}

impl Recording {
    /// Wraps a host in a recording. Netlink is off, so that the files are read.
    pub fn of(host: &Host) -> (Arc<Self>, Host) {
        let recording = Arc::new(Self {
            inner: Arc::clone(&host.io),
            roots: [(host.sysfs.clone(), "sys"), (host.procfs.clone(), "proc")],
            seen: Arc::default(),
        });
        let io: Arc<dyn HostIo> = Arc::<Self>::clone(&recording);
        let host = Host { io, route: None, ethtool: None, live: false, ..host.clone() };
        (recording, host)
    }

    /// What was read so far, by paths without links.
    pub fn entries(&self) -> Entries {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Resolves a path and records the links on the way. `None` if it leaves the host's trees or loops through links.
    fn real(&self, path: &Path, follow_last: bool) -> Option<RecordedPath> {
        let (root, name, rest) =
            self.roots.iter().find_map(|(root, name)| Some((root, *name, path.strip_prefix(root).ok()?)))?;
        let mut ahead = parts(rest);
        let mut below = PathBuf::new();
        let mut links = 0;
        while let Some(part) = ahead.pop() {
            if part == ".." {
                if !below.pop() {
                    return None;
                }
                continue;
            }
            let next = below.join(&part);
            if ahead.is_empty() && !follow_last {
                below = next;
                continue;
            }
            let Ok(target) = self.inner.link(&root.join(&next)) else {
                below = next;
                continue;
            };
            links += 1;
            if links > MOST_LINKS {
                return None;
            }
            let target = self.note_link(&RecordedPath { root: root.clone(), name, below: next }, &target)?;
            ahead.extend(parts(&target));
        }
        Some(RecordedPath { root: root.clone(), name, below })
    }

    /// Records a link and returns its target, made relative.
    fn note_link(&self, at: &RecordedPath, target: &Path) -> Option<PathBuf> {
        let target = match target.strip_prefix(&at.root) {
            Ok(inside) if target.is_absolute() => {
                let up = at.below.components().count().saturating_sub(1);
                std::iter::repeat_n(Path::new(".."), up).chain([inside]).collect()
            }
            _ if target.is_absolute() => return None,
            _ => target.to_owned(),
        };
        self.note(at, RecordedEntry::Link(target.clone()));
        Some(target)
    }

    fn note(&self, at: &RecordedPath, entry: RecordedEntry) {
        note(&self.seen, at.path(), entry);
    }

    /// Records a directory, and those of its entries that are links and directories.
    fn note_list(&self, at: &RecordedPath, names: &[String]) {
        self.note(at, RecordedEntry::Directory);
        for name in names {
            let entry = RecordedPath { below: at.below.join(name), ..at.clone() };
            if entry.is_of_a_process() {
                continue;
            }
            let path = entry.root.join(&entry.below);
            if let Ok(target) = self.inner.link(&path) {
                self.note_link(&entry, &target);
            } else if self.inner.list(&path).is_ok() {
                self.note(&entry, RecordedEntry::Directory);
            } else if at.names_say_all() {
                self.note_file(&entry, &path);
            }
        }
    }

    /// Records a short file that no collector reads.
    fn note_file(&self, at: &RecordedPath, path: &Path) {
        let mut buffer = [0; 64];
        let content = self.inner.open(path).and_then(|mut file| file.read(&mut buffer));
        if let Ok(length) = content {
            self.note(at, RecordedEntry::File(buffer.get(..length).unwrap_or_default().to_vec()));
        }
    }

    /// Records that a file could not be read, unless it does not exist. Files that the kernel rejects while an
    /// interface is down, or for an empty GID, count as absent.
    fn note_failure(&self, at: &RecordedPath, error: &io::Error) {
        note_failure(&self.seen, at, error);
    }
}

/// A path below one of the recorded roots.
#[derive(Debug, Clone)]
struct RecordedPath {
    root: PathBuf,
    name: &'static str,
    below: PathBuf,
}

impl RecordedPath {
    fn path(&self) -> PathBuf {
        Path::new(self.name).join(&self.below)
    }

    /// Whether the names in this directory are data by themselves: the interrupts of a function.
    fn names_say_all(&self) -> bool {
        self.below.file_name().is_some_and(|name| name == "msi_irqs")
    }

    /// Whether it is below a process's directory.
    fn is_of_a_process(&self) -> bool {
        let first = self.below.components().next().map(|part| part.as_os_str().to_string_lossy().into_owned());
        self.name == "proc" && first.is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
    }
}

fn note(seen: &Mutex<Entries>, path: PathBuf, entry: RecordedEntry) {
    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    if entry == RecordedEntry::Directory {
        seen.entry(path).or_insert(entry);
    } else {
        seen.insert(path, entry);
    }
}

/// Appends a chunk to a file whose beginning is recorded.
fn append(seen: &Mutex<Entries>, path: &Path, offset: u64, chunk: &[u8]) {
    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(RecordedEntry::File(content)) = seen.get_mut(path)
        && content.len() as u64 == offset
    {
        content.extend_from_slice(chunk);
    }
}

fn note_failure(seen: &Mutex<Entries>, at: &RecordedPath, error: &io::Error) {
    let Some(reason) = reason_of(error) else { return };
    let silent = |part: Component<'_>| part.as_os_str() == "gid_attrs" || part.as_os_str() == "net";
    if reason != ReadError::NotSupported || !at.below.components().any(silent) {
        note(seen, at.path(), RecordedEntry::Unreadable);
    }
}

/// The names in a path, last one first.
fn parts(path: &Path) -> Vec<OsString> {
    let names = path.components().filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
    let mut parts: Vec<OsString> = names.map(|part| part.as_os_str().to_owned()).collect();
    parts.reverse();
    parts
}

impl HostIo for Recording {
    fn open(&self, path: &Path) -> io::Result<Box<dyn OpenFile>> {
        let at = self.real(path, true);
        match (self.inner.open(path), at) {
            (Ok(file), Some(at)) => Ok(Box::new(RecordedFile { file, at, seen: Arc::clone(&self.seen) })),
            (Err(error), Some(at)) => {
                self.note_failure(&at, &error);
                Err(error)
            }
            (opened, None) => opened,
        }
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let names = self.inner.list(path)?;
        if let Some(at) = self.real(path, true) {
            self.note_list(&at, &names);
        }
        Ok(names)
    }

    fn link(&self, path: &Path) -> io::Result<PathBuf> {
        let target = self.inner.link(path)?;
        if let Some(at) = self.real(path, false) {
            self.note_link(&at, &target);
        }
        Ok(target)
    }

    fn stamp(&self, path: &Path) -> io::Result<DirStamp> {
        let stamp = self.inner.stamp(path)?;
        if let Some(at) = self.real(path, true) {
            self.note(&at, RecordedEntry::Directory);
        }
        Ok(stamp)
    }
}

struct RecordedFile {
    file: Box<dyn OpenFile>,
    at: RecordedPath,
    seen: Arc<Mutex<Entries>>,
}

impl OpenFile for RecordedFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer);
        self.take(0, &read, buffer);
        read
    }

    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(offset, buffer);
        self.take(offset, &read, buffer);
        read
    }
}

impl RecordedFile {
    /// Records what was read: of a long file, chunk after chunk.
    fn take(&self, offset: u64, read: &io::Result<usize>, buffer: &[u8]) {
        match read {
            Ok(length) => {
                let content = buffer.get(..*length).unwrap_or_default();
                // Process names are private, except for the one that moves interrupts.
                if self.at.is_of_a_process() && content.trim_ascii() != b"irqbalance" {
                    return;
                }
                if offset == 0 {
                    note(&self.seen, self.at.path(), RecordedEntry::File(content.to_vec()));
                } else {
                    append(&self.seen, &self.at.path(), offset, content);
                }
            }
            Err(error) => note_failure(&self.seen, &self.at, error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use rustix::io::Errno;

    use super::*;
    use crate::host::memory::MemoryHost;

    fn read(host: &Host, path: &str) -> io::Result<String> {
        let mut buffer = [0; 100];
        let length = host.io.open(Path::new(path))?.read(&mut buffer)?;
        Ok(String::from_utf8_lossy(&buffer[..length]).into_owned())
    }

    #[test]
    fn recorded_paths_contain_no_links() {
        let memory = Arc::new(MemoryHost::new());
        memory.set("/sys/devices/pci0/ib/mlx5_0/state", "4: ACTIVE\n");
        memory.set("/sys/devices/pci0/ib/mlx5_0/vpd", "serial\n");
        memory.symlink("/sys/devices/pci0/ib/mlx5_0/device", "../../../pci0");
        memory.directory("/sys/devices/pci0/ib/mlx5_0/ports");
        memory.symlink("/sys/class/mlx5_0", "/sys/devices/pci0/ib/mlx5_0");
        memory.fail("/sys/devices/pci0/broken", Errno::IO);
        memory.fail("/sys/devices/pci0/net/ib0/carrier", Errno::INVAL);
        memory.set("/etc/secret", "x");
        memory.symlink("/sys/out", "/etc");
        let (recording, host) = Recording::of(&memory.host());
        assert_eq!(read(&host, "/sys/class/mlx5_0/state").unwrap(), "4: ACTIVE\n");
        assert!(read(&host, "/sys/class/mlx5_0/device/broken").is_err());
        assert!(read(&host, "/sys/devices/pci0/net/ib0/carrier").is_err());
        assert!(read(&host, "/sys/class/mlx5_0/none").is_err());
        assert_eq!(read(&host, "/sys/out/secret").unwrap(), "x");
        assert_eq!(host.io.list(Path::new("/sys/class/mlx5_0")).unwrap().len(), 4);
        assert!(host.io.stamp(Path::new("/sys/class")).is_ok());
        let file = |text: &str| RecordedEntry::File(text.as_bytes().to_vec());
        let expected = [
            ("sys/class", RecordedEntry::Directory),
            ("sys/class/mlx5_0", RecordedEntry::Link("../devices/pci0/ib/mlx5_0".into())),
            ("sys/devices/pci0/broken", RecordedEntry::Unreadable),
            ("sys/devices/pci0/ib/mlx5_0", RecordedEntry::Directory),
            ("sys/devices/pci0/ib/mlx5_0/device", RecordedEntry::Link("../../../pci0".into())),
            ("sys/devices/pci0/ib/mlx5_0/ports", RecordedEntry::Directory),
            ("sys/devices/pci0/ib/mlx5_0/state", file("4: ACTIVE\n")),
        ];
        let expected: Entries = expected.into_iter().map(|(path, entry)| (PathBuf::from(path), entry)).collect();
        assert_eq!(recording.entries(), expected);
    }

    #[test]
    fn loops_and_links_out_of_the_tree_are_not_recorded() {
        let memory = Arc::new(MemoryHost::new());
        memory.symlink("/sys/a", "b");
        memory.symlink("/sys/b", "a");
        memory.symlink("/sys/up", "../../..");
        let (recording, host) = Recording::of(&memory.host());
        assert!(read(&host, "/sys/a/x").is_err());
        assert!(read(&host, "/sys/up/x").is_err());
        assert!(!recording.entries().values().any(|entry| matches!(entry, RecordedEntry::File(_))));
    }

    #[test]
    fn long_files_are_recorded_whole_and_processes_are_not() {
        let memory = Arc::new(MemoryHost::new());
        memory.set("/proc/interrupts", "0123456789");
        memory.set("/proc/77/comm", "bash\n");
        memory.set("/proc/78/comm", "irqbalance\n");
        let (recording, host) = Recording::of(&memory.host());
        let mut file = host.io.open(Path::new("/proc/interrupts")).unwrap();
        let mut buffer = [0; 4];
        let mut offset = 0;
        while let Ok(length @ 1..) = file.read_at(offset, &mut buffer) {
            offset += length as u64;
        }
        read(&host, "/proc/77/comm").unwrap();
        read(&host, "/proc/78/comm").unwrap();
        host.io.list(Path::new("/proc")).unwrap();
        let file = |text: &str| RecordedEntry::File(text.as_bytes().to_vec());
        let expected = [("proc/78/comm", file("irqbalance\n")), ("proc/interrupts", file("0123456789"))];
        let mut entries = recording.entries();
        assert_eq!(entries.remove(Path::new("proc")), Some(RecordedEntry::Directory));
        let expected: Entries = expected.into_iter().map(|(path, entry)| (PathBuf::from(path), entry)).collect();
        assert_eq!(entries, expected);
    }
}
