//! Records what collectors read of a host, so that the host can be replayed elsewhere.

mod allowed;
mod contents;
mod drivers;
pub mod entries;
mod netlink;
mod replay;
pub mod scrub;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::ethtool::access::EthtoolAccess;
use super::io::{Capabilities, DirStamp, Host, HostIo, OpenFile, reason_of};
use super::netlink::socket::{NetlinkConnector, Protocol};
use crate::model::reading::ReadError;
pub use allowed::allowed;
pub use drivers::{DriverAnswers, Drivers};
use entries::is_process;
pub use entries::{Entries, KEPT, Recorded, RecordedEntry};
pub use netlink::Exchange;
pub use replay::{FILE, Manifest, ReplayedHost};
pub use scrub::{NameKind, Scrubber};

/// Links followed on one path before it counts as a loop, as in the kernel.
const MOST_LINKS: usize = 40;

/// Longest file that is recorded, in bytes.
const MOST_BYTES: usize = 64 << 20;

/// Host input that records everything that is read. Regular files that are only listed, and never read, are not
/// recorded: a serial number must not get into a recording because it is next to something else.
pub struct Recording {
    inner: Arc<dyn HostIo>,
    host: Host,
    /// Directories and files of the host, and what they are called in the recording.
    roots: Vec<(PathBuf, &'static str)>,
    seen: Arc<Mutex<Entries>>,
    namespaces: Mutex<BTreeMap<String, u64>>,
    exchanges: netlink::Exchanges,
    drivers: drivers::SeenDrivers,
}

impl Recording {
    /// Wraps a host in a recording.
    pub fn of(host: &Host) -> (Arc<Self>, Host) {
        let roots = vec![
            (host.roots.netns.clone(), "run/netns"),
            (host.roots.run_libvirt.clone(), "run/libvirt"),
            (host.roots.libvirt.clone(), "etc/libvirt"),
            (host.beside("dev/kmsg"), "kmsg"),
            (host.beside("kmsg"), "kmsg"),
            (host.beside("dmesg.txt"), "dmesg.txt"),
            (host.beside("run"), "run"),
            (host.sysfs.clone(), "sys"),
            (host.procfs.clone(), "proc"),
        ];
        let recording = Arc::new(Self {
            inner: Arc::clone(&host.io),
            host: host.clone(),
            roots,
            seen: Arc::default(),
            namespaces: Mutex::default(),
            exchanges: Arc::default(),
            drivers: Arc::default(),
        });
        let io: Arc<dyn HostIo> = Arc::<Self>::clone(&recording);
        let route = host.route.clone().map(|route| netlink::recording(Protocol::Route, route, &recording.exchanges));
        let ethtool = host.ethtool.clone().map(|access| EthtoolAccess {
            statistics: drivers::recording(access.statistics, &recording.drivers),
            netlink: access.netlink.map(|asked| netlink::recording(Protocol::Generic, asked, &recording.exchanges)),
        });
        (recording, Host { io, route, ethtool, ..host.clone() })
    }

    /// What was read so far, by paths without links.
    pub fn recorded(&self) -> Recorded {
        Recorded {
            entries: self.entries(),
            is_live: self.host.live,
            capabilities: self.inner.capabilities(),
            namespaces: self.namespaces.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            exchanges: self.exchanges.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            drivers: self.drivers.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }

    /// Files, links and directories that were read so far, by paths without links.
    pub fn entries(&self) -> Entries {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Resolves a path and records the links on the way. `None` if it leaves the host's trees or loops through links.
    fn real(&self, path: &Path, follow_last: bool) -> Option<RecordedPath> {
        let (root, name, rest) =
            self.roots.iter().find_map(|(root, name)| Some((root, *name, path.strip_prefix(root).ok()?)))?;
        // Links of processes lead to what is no file, or out of the host.
        let as_written = RecordedPath { root: root.clone(), name, below: rest.to_owned() };
        if as_written.is_of_a_process() || name == "kmsg" || name == "dmesg.txt" {
            return Some(as_written);
        }
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
        if at.is_of_a_process() {
            self.note(at, RecordedEntry::Link(target.to_owned()));
            return Some(target.to_owned());
        }
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
        if at.name == "run" {
            for name in names.iter().filter(|name| name.starts_with("irqbalance")) {
                let socket = RecordedPath { below: at.below.join(name), ..at.clone() };
                self.note(&socket, RecordedEntry::File(Vec::new()));
            }
        }
        // Elsewhere names are private, and mean nothing by themselves.
        let listed = if at.name == "sys" { names } else { &[] };
        for name in listed {
            let entry = RecordedPath { below: at.below.join(name), ..at.clone() };
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
        if self.below.as_os_str().is_empty() {
            PathBuf::from(self.name)
        } else {
            Path::new(self.name).join(&self.below)
        }
    }

    /// Whether the names in this directory are data by themselves: the interrupts of a function.
    fn names_say_all(&self) -> bool {
        self.below.file_name().is_some_and(|name| name == "msi_irqs")
    }

    /// Whether it is below a process's directory.
    fn is_of_a_process(&self) -> bool {
        let first = self.below.components().next().map(|part| part.as_os_str().to_string_lossy().into_owned());
        self.name == "proc" && first.is_some_and(|name| is_process(&name))
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

/// Records a part of a file. What was not read before it is recorded as zeros.
fn note_part(seen: &Mutex<Entries>, path: PathBuf, offset: u64, part: &[u8]) {
    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    let Ok(offset) = usize::try_from(offset) else { return };
    let end = offset.saturating_add(part.len());
    if end > MOST_BYTES {
        return;
    }
    let entry = seen.entry(path).or_insert_with(|| RecordedEntry::File(Vec::new()));
    if let RecordedEntry::File(content) = entry {
        if content.len() < end {
            content.resize(end, 0);
        }
        content.splice(offset..end, part.iter().copied());
    }
}

/// Records a file that was read from its beginning, unless more of it is known.
fn note_beginning(seen: &Mutex<Entries>, path: PathBuf, content: &[u8], is_cut: bool) {
    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    let longer = |known: &RecordedEntry| matches!(known, RecordedEntry::File(known) if known.len() > content.len());
    if !(is_cut && seen.get(&path).is_some_and(longer)) {
        seen.insert(path, RecordedEntry::File(content.to_vec()));
    }
}

fn note_failure(seen: &Mutex<Entries>, at: &RecordedPath, error: &io::Error) {
    let Some(reason) = reason_of(error) else { return };
    let silent = |part: Component<'_>| part.as_os_str() == "gid_attrs" || part.as_os_str() == "net";
    if reason != ReadError::NotSupported || !at.below.components().any(silent) {
        note(seen, at.path(), RecordedEntry::Unreadable(reason));
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

    /// What comes from now on is of no record.
    fn open_at_end(&self, path: &Path) -> io::Result<Box<dyn OpenFile>> {
        self.inner.open_at_end(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let names = match self.inner.list(path) {
            Ok(names) => names,
            Err(error) => {
                if let Some(at) = self.real(path, true) {
                    self.note_failure(&at, &error);
                }
                return Err(error);
            }
        };
        if let Some(at) = self.real(path, true) {
            self.note_list(&at, &names);
        }
        Ok(names)
    }

    fn link(&self, path: &Path) -> io::Result<PathBuf> {
        let target = match self.inner.link(path) {
            Ok(target) => target,
            Err(error) => {
                // EINVAL says that it is no link.
                let refused = reason_of(&error) == Some(ReadError::Permission);
                if let Some(at) = self.real(path, false).filter(|_| refused) {
                    self.note_failure(&at, &error);
                }
                return Err(error);
            }
        };
        if let Some(at) = self.real(path, false) {
            self.note_link(&at, &target);
        }
        Ok(target)
    }

    fn stamp(&self, path: &Path) -> io::Result<DirStamp> {
        let stamp = self.inner.stamp(path)?;
        if let Ok(name) = path.strip_prefix(&self.host.roots.netns)
            && let Some(name) = name.to_str()
        {
            let mut namespaces = self.namespaces.lock().unwrap_or_else(PoisonError::into_inner);
            namespaces.insert(name.to_owned(), stamp.identity.1);
            return Ok(stamp);
        }
        if let Some(at) = self.real(path, true).filter(|at| at.name == "sys") {
            self.note(&at, RecordedEntry::Directory);
        }
        Ok(stamp)
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn is_writable(&self, path: &Path) -> io::Result<Option<bool>> {
        self.inner.is_writable(path)
    }

    /// Of rdma netlink only what no file has is recorded, so that a reader without it can replay the rest.
    fn netlink(&self, protocol: Protocol) -> Option<NetlinkConnector> {
        let connect = self.inner.netlink(protocol).or_else(|| self.host.live.then(|| protocol.connector()))?;
        Some(netlink::recording(protocol, connect, &self.exchanges))
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
        match &read {
            Ok(length) => {
                let content = buffer.get(..*length).unwrap_or_default();
                note_beginning(&self.seen, self.at.path(), content, *length == buffer.len());
            }
            Err(error) => self.failed(error),
        }
        read
    }

    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(offset, buffer);
        match &read {
            Ok(length) => note_part(&self.seen, self.at.path(), offset, buffer.get(..*length).unwrap_or_default()),
            Err(error) => self.failed(error),
        }
        read
    }
}

impl RecordedFile {
    fn failed(&self, error: &io::Error) {
        let end = [io::ErrorKind::WouldBlock, io::ErrorKind::Interrupted, io::ErrorKind::BrokenPipe];
        // The end of a log, and records that it dropped.
        if self.at.name != "kmsg" || !end.contains(&error.kind()) {
            note_failure(&self.seen, &self.at, error);
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
            ("sys/devices/pci0/broken", RecordedEntry::Unreadable(ReadError::Io)),
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
    fn long_files_are_recorded_whole_and_registers_where_they_are() {
        let memory = Arc::new(MemoryHost::new());
        memory.set("/proc/interrupts", "0123456789");
        memory.set("/proc/77/comm", "bash\n");
        memory.symlink("/proc/77/fd/3", "/dev/vfio/40");
        memory.fail("/proc/78/fd", Errno::ACCESS);
        let (recording, host) = Recording::of(&memory.host());
        let mut file = host.io.open(Path::new("/proc/interrupts")).unwrap();
        let mut buffer = [0; 4];
        let mut offset = 0;
        while let Ok(length @ 1..) = file.read_at(offset, &mut buffer) {
            offset += length as u64;
        }
        memory.set("/sys/config", "0123456789");
        let mut registers = host.io.open(Path::new("/sys/config")).unwrap();
        registers.read_at(6, &mut buffer).unwrap();
        registers.read_at(0, &mut buffer[..2]).unwrap();
        read(&host, "/proc/77/comm").unwrap();
        host.io.link(Path::new("/proc/77/fd/3")).unwrap();
        read(&host, "/proc/78/fd").unwrap_err();
        host.io.list(Path::new("/proc")).unwrap();
        let file = |bytes: &[u8]| RecordedEntry::File(bytes.to_vec());
        let expected = [
            ("proc", RecordedEntry::Directory),
            ("proc/77/comm", file(b"bash\n")),
            ("proc/77/fd/3", RecordedEntry::Link("/dev/vfio/40".into())),
            ("proc/78/fd", RecordedEntry::Unreadable(ReadError::Permission)),
            ("proc/interrupts", file(b"0123456789")),
            ("sys/config", file(b"01\0\0\0\x006789")),
        ];
        let expected: Entries = expected.into_iter().map(|(path, entry)| (PathBuf::from(path), entry)).collect();
        assert_eq!(recording.entries(), expected);
    }
}
