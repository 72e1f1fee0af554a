//! Why a state directory cannot be used.

use std::io;
use std::path::PathBuf;

use super::VERSION;

/// Why a state could not be used or kept.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
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
    /// The file was written by a newer version.
    #[error("{path} has version {found}, this program knows {VERSION}")]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
}
