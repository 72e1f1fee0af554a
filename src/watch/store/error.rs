//! Why a state directory cannot be used.

use std::io;
use std::path::PathBuf;

use super::format::VERSION;

/// Why a state could not be used or saved.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file system is full or the quota is used up.
    #[error("{path}: no space left")]
    Full {
        /// The file.
        path: PathBuf,
    },
    /// A file operation failed.
    #[error("{action} {path}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// What is there could not be read and is left as it is.
    #[error("{path} could not be read: it is left as it is")]
    Frozen {
        /// The file.
        path: PathBuf,
    },
    /// Another process keeps its state there.
    #[error("another agent keeps its state in {path}")]
    Owned {
        /// The directory.
        path: PathBuf,
    },
    /// The file was written by a newer version.
    #[error("{path} has version {found}, this program knows {VERSION}")]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
}

impl StoreError {
    /// The error of a failed file operation.
    pub(super) fn of(action: &'static str, path: PathBuf, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full { path },
            _ => Self::Io { action, path, source },
        }
    }
}
