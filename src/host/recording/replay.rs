//! A recorded host that gives back what files cannot hold: refusals, numbers of namespaces, netlink's replies.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::drivers::{self, Drivers};
use super::entries::{KEPT, Recorded, RecordedEntry};
use super::netlink::{Exchange, replaying};
use crate::host::ethtool::access::EthtoolAccess;
use crate::host::fs::{Fs, read_regular};
use crate::host::io::{Capabilities, DirStamp, HostIo, OpenFile};
use crate::host::netlink::socket::{NetlinkConnector, Protocol};
use crate::model::reading::ReadError;

/// Name of the file beside `sys` and `proc`.
pub const FILE: &str = "snapshot.json";
/// Version of its format.
const VERSION: u32 = 1;
/// Longest one that is read, in bytes.
const LONGEST: u64 = 64 << 20;

/// What a snapshot has besides files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of the format.
    version: u32,
    /// Whether the agent could see other users' processes.
    #[serde(default)]
    ptrace: bool,
    /// Whether it could list their descriptors.
    #[serde(default)]
    search: bool,
    /// Paths that could not be read, and why.
    #[serde(default)]
    unreadable: BTreeMap<PathBuf, ReadError>,
    /// Numbers of named network namespaces.
    #[serde(default)]
    namespaces: BTreeMap<String, u64>,
    /// What netlink was asked and answered.
    #[serde(default)]
    netlink: Vec<Exchange>,
    /// What drivers answered over the ethtool ioctl.
    #[serde(default, skip_serializing_if = "Drivers::is_empty")]
    drivers: Drivers,
}

impl Manifest {
    /// What of a recording is not in its files.
    pub fn of(recorded: &Recorded) -> Self {
        let unreadable = recorded.entries.iter().filter_map(|(path, entry)| match entry {
            RecordedEntry::Unreadable(reason) => Some((path.clone(), *reason)),
            _ => None,
        });
        Self {
            version: VERSION,
            ptrace: recorded.capabilities.ptrace,
            search: recorded.capabilities.search,
            unreadable: unreadable.collect(),
            namespaces: recorded.namespaces.clone(),
            netlink: recorded.exchanges.clone(),
            drivers: recorded.drivers.clone(),
        }
    }

    /// The file's content.
    ///
    /// # Errors
    /// A path that is no text.
    pub fn encode(&self) -> serde_json::Result<Vec<u8>> {
        let mut bytes = serde_json::to_vec_pretty(self)?;
        bytes.push(b'\n');
        Ok(bytes)
    }
}

/// Reads an unpacked snapshot.
pub struct ReplayedHost {
    files: Fs,
    root: PathBuf,
    manifest: Manifest,
}

impl ReplayedHost {
    /// The snapshot in a directory; `None` if there is none, or one that cannot be read, which is logged.
    pub fn open(root: &Path) -> Option<Self> {
        let path = root.join(FILE);
        let bytes = match read_regular(&path, LONGEST) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                tracing::warn!("{}: {error}", path.display());
                return None;
            }
        };
        match serde_json::from_slice::<Manifest>(&bytes) {
            Ok(manifest) if manifest.version <= VERSION => {
                Some(Self { files: Fs::recorded(), root: root.to_owned(), manifest })
            }
            Ok(manifest) => {
                tracing::warn!("{}: version {} is newer than this program", path.display(), manifest.version);
                None
            }
            Err(error) => {
                tracing::warn!("{}: {error}", path.display());
                None
            }
        }
    }

    /// Whether this could not be read on the host.
    fn refusal(&self, path: &Path) -> io::Result<()> {
        let reason = path.strip_prefix(&self.root).ok().and_then(|path| self.manifest.unreadable.get(path));
        reason.map_or(Ok(()), |reason| {
            let errno = match reason {
                ReadError::Permission => Errno::ACCESS,
                ReadError::NotSupported => Errno::OPNOTSUPP,
                ReadError::Gone => Errno::NODEV,
                ReadError::Timeout => Errno::TIMEDOUT,
                ReadError::Io | ReadError::Malformed | ReadError::Quarantined => Errno::IO,
            };
            Err(errno.into())
        })
    }

    /// The refusal of a path whose links lead to one that was refused.
    fn refusal_of_target(&self, path: &Path) -> io::Result<()> {
        self.refusal(path)?;
        if self.manifest.unreadable.is_empty() {
            return Ok(());
        }
        let root = std::fs::canonicalize(&self.root)?;
        match std::fs::canonicalize(path) {
            Ok(target) => target.strip_prefix(root).map_or(Ok(()), |target| self.refusal(&self.root.join(target))),
            Err(_) => Ok(()),
        }
    }
}

impl HostIo for ReplayedHost {
    fn open(&self, path: &Path) -> io::Result<Box<dyn OpenFile>> {
        self.refusal_of_target(path)?;
        self.files.open(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        self.refusal_of_target(path)?;
        let mut names = self.files.list(path)?;
        names.retain(|name| name != KEPT);
        Ok(names)
    }

    fn link(&self, path: &Path) -> io::Result<PathBuf> {
        self.refusal(path)?;
        self.files.link(path)
    }

    fn stamp(&self, path: &Path) -> io::Result<DirStamp> {
        let stamp = self.files.stamp(path)?;
        let name = path.strip_prefix(self.root.join("run/netns")).ok().and_then(Path::to_str);
        let number = name.and_then(|name| self.manifest.namespaces.get(name));
        Ok(number.map_or(stamp, |number| DirStamp { identity: (stamp.identity.0, *number), ..stamp }))
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { ptrace: self.manifest.ptrace, search: self.manifest.search }
    }

    fn netlink(&self, protocol: Protocol) -> Option<NetlinkConnector> {
        replaying(protocol, &self.manifest.netlink)
    }

    fn ethtool(&self) -> Option<EthtoolAccess> {
        let statistics = drivers::replaying(&self.manifest.drivers)?;
        Some(EthtoolAccess { statistics, netlink: self.netlink(Protocol::Generic) })
    }
}
