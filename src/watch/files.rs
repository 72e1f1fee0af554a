//! Files of the state directory, opened so that nothing that stands in their place can make the agent wait: a pipe
//! without a reader, a device, a link that leads elsewhere.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;

/// Opens a file to write at its end; makes it if it is not there.
///
/// # Errors
/// What the system says; `InvalidInput` for what is no regular file.
pub(super) fn writable(path: &Path) -> io::Result<File> {
    let at_once = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = OpenOptions::new().create(true).append(true).custom_flags(at_once).open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"))
    }
}

/// Writes a file beside another, whole and synced. What stands there, left by a crash or put there, goes; it is not
/// opened.
///
/// # Errors
/// What the system says.
pub(super) fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pipe(path: &Path) {
        rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    }

    #[test]
    fn a_pipe_in_a_files_place_is_refused_or_replaced_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        pipe(&path);
        writable(&path).unwrap_err();
        // One that is read can be opened, and is no file all the same.
        let reader = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
        assert_eq!(writable(&path).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        drop(reader);
        write_new(&path, b"whole").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"whole");
        writable(&path).unwrap().write_all(b" and more").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"whole and more");
    }

    #[test]
    fn what_a_link_leads_to_stays_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let (target, link) = (directory.path().join("target"), directory.path().join("link"));
        std::fs::write(&target, "theirs").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        write_new(&link, b"ours").unwrap();
        assert_eq!(
            (std::fs::read(&target).unwrap(), std::fs::read(&link).unwrap()),
            (b"theirs".into(), b"ours".into())
        );
        std::fs::create_dir(directory.path().join("directory")).unwrap();
        write_new(&directory.path().join("directory"), b"ours").unwrap_err();
    }
}
