//! Which reason each fault has at each kind of path.

use std::path::Path;

use lanewatch::model::reading::ReadError;
use rustix::io::Errno;

use super::common::faulty::Fault;
use super::common::tree::Entry;

/// What is at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A number, or another closed form: nothing is malformed, as is everything that is not of the form.
    Closed,
    /// A closed form that may be empty, which means that there is nothing to say.
    ClosedOrEmpty,
    /// Free text; empty is absent.
    Text,
    /// A number or text that the kernel refuses with EINVAL while there is nothing to say.
    Refused(bool),
    /// A link that leads to a directory.
    Link,
    /// A link whose text names the driver.
    Driver,
    /// A directory.
    Directory,
}

impl Kind {
    /// Whether it is a file.
    pub fn is_file(self) -> bool {
        !matches!(self, Self::Link | Self::Driver | Self::Directory)
    }
}

/// The kind of what stands at a path.
pub fn kind(path: &Path, entry: Option<&Entry>) -> Kind {
    let name = path.file_name().unwrap().to_str().unwrap();
    match (entry, name) {
        (None | Some(Entry::Directory), _) => Kind::Directory,
        (Some(Entry::Link(_)), "driver") => Kind::Driver,
        (Some(Entry::Link(_)), _) => Kind::Link,
        (_, "fw_ver" | "board_id" | "hca_type" | "hostname" | "osrelease" | "boot_id" | "operstate" | "link_layer") => {
            Kind::Text
        }
        (_, "carrier" | "speed") => Kind::Refused(false),
        _ if path.parent().is_some_and(|parent| parent.ends_with("gid_attrs/ndevs")) => Kind::Refused(true),
        (_, "rate" | "cpulist" | "aer_dev_correctable" | "aer_dev_nonfatal" | "aer_dev_fatal") => Kind::ClosedOrEmpty,
        _ => Kind::Closed,
    }
}

/// What is tried at a kind of path.
pub fn faults(kind: Kind) -> Vec<(&'static str, Fault)> {
    let mut faults = vec![
        ("ENOENT", Fault::Errno(Errno::NOENT)),
        ("EINVAL", Fault::Errno(Errno::INVAL)),
        ("EIO", Fault::Errno(Errno::IO)),
        ("ENODEV", Fault::Errno(Errno::NODEV)),
        ("EACCES", Fault::Errno(Errno::ACCESS)),
        ("EOPNOTSUPP", Fault::Errno(Errno::OPNOTSUPP)),
        ("ETIMEDOUT", Fault::Errno(Errno::TIMEDOUT)),
    ];
    if kind != Kind::Directory {
        faults.extend([
            ("no number", Fault::Content(b"what?\n".to_vec())),
            ("empty", Fault::Content(Vec::new())),
            ("1 MiB", Fault::Content(vec![b'1'; 1 << 20])),
            ("not UTF-8", Fault::Content(b"\xff\xfe\n".to_vec())),
            ("a directory", Fault::Directory),
            ("dangling", Fault::Dangling),
            ("looping", Fault::Looping),
        ]);
    }
    faults
}

/// The reason that a fault at a path is counted with; none for what is no error.
pub fn reason(kind: Kind, fault: &str) -> Option<ReadError> {
    match (kind, fault) {
        (_, "ENOENT" | "dangling")
        | (Kind::Refused(_), "EINVAL" | "EOPNOTSUPP")
        // No link at all: the entry is the directory itself.
        | (Kind::Link, "EINVAL" | "no number" | "empty" | "1 MiB" | "not UTF-8" | "a directory")
        | (Kind::Text | Kind::Refused(true), "no number" | "empty")
        | (Kind::ClosedOrEmpty, "empty") => None,
        // A driver can't be a directory.
        (Kind::Driver, "EINVAL" | "no number" | "empty" | "1 MiB" | "not UTF-8" | "a directory") => {
            Some(ReadError::Malformed)
        }
        (_, "EINVAL" | "EOPNOTSUPP") => Some(ReadError::NotSupported),
        (_, "EIO" | "a directory" | "looping") => Some(ReadError::Io),
        (_, "ENODEV") => Some(ReadError::Gone),
        (_, "EACCES") => Some(ReadError::Permission),
        (_, "ETIMEDOUT") => Some(ReadError::Timeout),
        (_, "no number" | "empty" | "1 MiB" | "not UTF-8") => Some(ReadError::Malformed),
        (_, other) => panic!("{other} is no fault"),
    }
}
