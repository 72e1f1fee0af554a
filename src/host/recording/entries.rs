//! What a recording consists of.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::drivers::Drivers;
use super::netlink::Exchange;
use crate::host::io::Capabilities;
use crate::model::reading::ReadError;

/// What a directory holds that stands for a file which could not be read.
pub const KEPT: &str = ".keep";

/// What was at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordedEntry {
    /// A directory.
    Directory,
    /// A file with this content.
    File(Vec<u8>),
    /// Something that could not be read, and why.
    Unreadable(ReadError),
    /// A link to this.
    Link(PathBuf),
}

/// Entries by path, below `sys`, `proc` and others.
pub type Entries = BTreeMap<PathBuf, RecordedEntry>;

/// A recorded host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recorded {
    /// Files, links and directories.
    pub entries: Entries,
    /// Whether it was the running host, of which some files are not read.
    pub is_live: bool,
    /// What the reading process could see of others.
    pub capabilities: Capabilities,
    /// Numbers of named network namespaces.
    pub namespaces: BTreeMap<String, u64>,
    /// What netlink was asked and answered.
    pub exchanges: Vec<Exchange>,
    /// What drivers answered over the ethtool ioctl.
    pub drivers: Drivers,
}

/// Whether this names a process's directory in `/proc`.
pub(super) fn is_process(name: &str) -> bool {
    name == "self" || (!name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit()))
}
