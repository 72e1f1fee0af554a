//! A host and the input interface through which collectors read it.

use std::fmt;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use super::ethtool::access::EthtoolAccess;
use super::netlink::socket::{NetlinkConnector, Protocol};
use crate::model::reading::ReadError;
use crate::model::sriov::QidMapLayout;

/// Longest content of a file without a buffer of its own; sysfs files end at one page, mostly of this size.
pub const LONGEST: usize = 4096;

/// What a directory looked like when it was listed: if this differs, it or a path to it was replaced, or a file in
/// it was added, removed or replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirStamp {
    /// Device and inode.
    pub identity: (u64, u64),
    /// Time of last modification, seconds and nanoseconds.
    pub modified: (i64, u64),
}

/// An open file that can be read from its beginning repeatedly.
pub trait OpenFile: Send {
    /// Reads from the beginning into `buffer`; the kernel's errno on failure.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Reads from `offset` on into `buffer`, for files longer than [`LONGEST`]; 0 is the end. Meant to be called with
    /// rising offsets, starting at 0.
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let Ok(skipped) = usize::try_from(offset) else { return Ok(0) };
        let mut whole = vec![0; skipped.saturating_add(buffer.len())];
        let length = self.read(&mut whole)?;
        let rest = whole.get(skipped..length).unwrap_or_default();
        Ok(buffer.iter_mut().zip(rest).map(|(to, from)| *to = *from).count())
    }
}

/// Capabilities that let this process inspect processes of other users.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// `CAP_SYS_PTRACE`: resolves their descriptors and namespaces.
    pub ptrace: bool,
    /// `CAP_DAC_READ_SEARCH` (or `CAP_DAC_OVERRIDE`): lists their descriptors.
    pub search: bool,
}

/// Input and output on a host, real or recorded.
pub trait HostIo: Send + Sync {
    /// Opens a file for reading.
    fn open(&self, path: &Path) -> io::Result<Box<dyn OpenFile>>;
    /// Opens a device file at its end: it gives what comes from now on (`SEEK_END` of `/dev/kmsg`). `Unsupported` where
    /// nothing comes.
    fn open_at_end(&self, _: &Path) -> io::Result<Box<dyn OpenFile>> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Names in a directory, in no order.
    fn list(&self, path: &Path) -> io::Result<Vec<String>>;
    /// The target of a symbolic link; `InvalidInput` (EINVAL) if the path is not one.
    fn link(&self, path: &Path) -> io::Result<PathBuf>;
    /// The current stamp of a directory.
    fn stamp(&self, path: &Path) -> io::Result<DirStamp>;
    /// The capabilities of this process.
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }
    /// Whether paths are on this system's own file system, so that its kernel can report changes.
    fn is_system(&self) -> bool {
        false
    }
    /// Connects to a netlink of its own, in place of the running kernel's; `None` if it has none.
    fn netlink(&self, protocol: Protocol) -> Option<NetlinkConnector> {
        let _ = protocol;
        None
    }
    /// Asks drivers in place of the running kernel; `None` if nobody can be asked.
    fn ethtool(&self) -> Option<EthtoolAccess> {
        None
    }
    /// Whether a file's mode lets anyone write to it. `None` on a recorded host, where modes mean nothing.
    fn is_writable(&self, path: &Path) -> io::Result<Option<bool>> {
        let _ = path;
        Ok(None)
    }
}

/// Directories outside of `/sys` and `/proc` that are read where they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roots {
    /// `/etc/libvirt`: definitions of domains.
    pub libvirt: PathBuf,
    /// `/run/libvirt`: live statuses of domains.
    pub run_libvirt: PathBuf,
    /// `/run/netns`: names of network namespaces.
    pub netns: PathBuf,
    /// `/var/log/pods`: a directory for each pod, named after it.
    pub pod_logs: PathBuf,
    /// `/var/log/containers`: a link for each container, named after it and its pod.
    pub container_logs: PathBuf,
    /// The socket of the kubelet's PodResources API, if it is to be asked.
    pub kubelet_socket: Option<PathBuf>,
    /// `/etc/pve`: Proxmox VE's configuration.
    pub proxmox: PathBuf,
    /// The socket of `lanewatch-module-reader`.
    pub module_reader: PathBuf,
    /// Where a timer writes what `mstlink` prints.
    pub mstlink: PathBuf,
    /// Where an out-of-tree stack has its queue pair maps, and their layout; `None` if it has none.
    pub qid_map: Option<Arc<QidMapLayout>>,
}

impl Roots {
    /// Where they are below a host root.
    pub fn below(root: &Path) -> Self {
        Self {
            libvirt: root.join("etc/libvirt"),
            run_libvirt: root.join("run/libvirt"),
            netns: root.join("run/netns"),
            pod_logs: root.join("var/log/pods"),
            container_logs: root.join("var/log/containers"),
            kubelet_socket: None,
            proxmox: root.join("etc/pve"),
            module_reader: root.join("run/lanewatch-module-reader.sock"),
            mstlink: root.join("run/lanewatch-mstlink"),
            qid_map: None,
        }
    }
}

/// A host: where its trees are and how to read them.
#[derive(Clone)]
pub struct Host {
    /// Input and output.
    pub io: Arc<dyn HostIo>,
    /// Its `/sys`.
    pub sysfs: PathBuf,
    /// Its `/proc`.
    pub procfs: PathBuf,
    /// Its other directories.
    pub roots: Roots,
    /// Connects to route netlink; `None` on a recorded host.
    pub route: Option<NetlinkConnector>,
    /// Asks drivers about interfaces (ethtool); `None` on a recorded host.
    pub ethtool: Option<EthtoolAccess>,
    /// Whether this is the running kernel's own view, so that netlink describes the same host.
    pub live: bool,
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sysfs, procfs, live, .. } = self;
        f.debug_struct("Host").field("sysfs", sysfs).field("procfs", procfs).field("live", live).finish_non_exhaustive()
    }
}

impl Host {
    /// A file or directory beside the trees: `run`, `dev/kmsg` of a running host, raw inputs of a recorded one.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.sysfs.parent().unwrap_or(Path::new("/")).join(name)
    }

    /// Connects to netlink: the recorded one, or the running kernel's if this is its host.
    pub fn netlink(&self, protocol: Protocol) -> Option<NetlinkConnector> {
        self.io.netlink(protocol).or_else(|| self.live.then(|| protocol.connector()))
    }

    /// The real directory behind a path that may be a link, as sysfs' class and bus entries are. Follows at most
    /// eight links and never leaves the text of the paths, so that recorded and injected hosts work the same.
    pub fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        let mut path = normal(path);
        for _ in 0..8 {
            let led = match self.io.link(&path) {
                Ok(target) if target.is_absolute() => normal(&target),
                Ok(target) => normal(&path.parent().unwrap_or(Path::new("/")).join(target)),
                Err(error) if error.raw_os_error() == Some(EINVAL) => return Ok(path),
                Err(error) => return Err(error),
            };
            // The kernel links to the directories of devices, never to another link (fs/sysfs/symlink.c).
            if led != path && led.strip_prefix(&self.sysfs).is_ok_and(|below| below.starts_with("devices")) {
                return Ok(led);
            }
            path = led;
        }
        Err(io::Error::from_raw_os_error(ELOOP))
    }
}

const EINVAL: i32 = rustix::io::Errno::INVAL.raw_os_error();
const ELOOP: i32 = rustix::io::Errno::LOOP.raw_os_error();

/// A path without `.`, and without `..` but for those that lead out of a relative path.
fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => match out.components().next_back() {
                Some(Component::Normal(_)) => {
                    out.pop();
                }
                Some(Component::RootDir | Component::Prefix(_)) => {}
                _ => out.push(part),
            },
            Component::Normal(_) | Component::RootDir | Component::Prefix(_) => out.push(part),
        }
    }
    out
}

/// The [`ReadError`] of an I/O error; `None` for ENOENT, which is no error for an optional file.
pub fn reason_of(error: &io::Error) -> Option<ReadError> {
    use rustix::io::Errno;
    let Some(code) = error.raw_os_error() else {
        return match error.kind() {
            io::ErrorKind::NotFound => None,
            io::ErrorKind::InvalidData => Some(ReadError::Malformed),
            io::ErrorKind::TimedOut => Some(ReadError::Timeout),
            _ => Some(ReadError::Io),
        };
    };
    match Errno::from_raw_os_error(code) {
        Errno::NOENT | Errno::NOTDIR => None,
        Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS => Some(ReadError::NotSupported),
        Errno::ACCESS | Errno::PERM => Some(ReadError::Permission),
        Errno::NODEV | Errno::NXIO => Some(ReadError::Gone),
        Errno::TIMEDOUT => Some(ReadError::Timeout),
        _ => Some(ReadError::Io),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_errno_has_its_reason() {
        use rustix::io::Errno;
        let reason = |code: Errno| reason_of(&io::Error::from_raw_os_error(code.raw_os_error()));
        assert_eq!(reason(Errno::NOENT), None);
        for code in [Errno::INVAL, Errno::OPNOTSUPP, Errno::NOSYS] {
            assert_eq!(reason(code), Some(ReadError::NotSupported));
        }
        for code in [Errno::ACCESS, Errno::PERM] {
            assert_eq!(reason(code), Some(ReadError::Permission));
        }
        for code in [Errno::IO, Errno::ISDIR, Errno::LOOP, Errno::MFILE] {
            assert_eq!(reason(code), Some(ReadError::Io));
        }
        for code in [Errno::NODEV, Errno::NXIO] {
            assert_eq!(reason(code), Some(ReadError::Gone));
        }
        assert_eq!(reason(Errno::TIMEDOUT), Some(ReadError::Timeout));
    }

    #[test]
    fn paths_lose_their_dots() {
        assert_eq!(normal(Path::new("/sys/class/infiniband/../../devices/./x")), Path::new("/sys/devices/x"));
        assert_eq!(normal(Path::new("/../..")), Path::new("/"));
        assert_eq!(normal(Path::new("../../host/./sys/x/..")), Path::new("../../host/sys"));
    }
}
