//! Files that are polled: kept open between reads, quarantined when the driver rejects them, and not even opened when
//! the listing of their directory lacks them.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::collector::ReadContext;
use super::io::{HostIo, LONGEST, OpenFile, reason_of};
use crate::model::reading::{ReadError, Reading};
use crate::model::time::BootTime;

/// First quarantine of a rejected file; it doubles with each rejection up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_secs(10 * 60);
const LONGEST_PAUSE: Duration = Duration::from_secs(60 * 60);

/// Longest content of a file on a kernel with the largest pages, 64 KiB (arm64, POWER).
const LARGEST_PAGE: usize = 64 * 1024;

/// A file that is read on every pass through one open descriptor.
///
/// A file that the driver rejects with EINVAL or the like is quarantined for ten minutes, later for an hour: each such
/// read costs a firmware command and often a line in the kernel log.
pub struct PolledFile {
    path: PathBuf,
    file: Option<Box<dyn OpenFile>>,
    refused: Option<Quarantine>,
}

#[derive(Clone, Copy)]
struct Quarantine {
    until: BootTime,
    pause: Duration,
}

impl PolledFile {
    /// A file at this path; it is opened at its first read.
    pub fn new(path: PathBuf) -> Self {
        Self { path, file: None, refused: None }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is quarantined.
    pub fn is_quarantined(&self) -> bool {
        self.refused.is_some()
    }

    /// Reads and parses it. `parse` gets the bytes without surrounding white space and returns [`Reading::Absent`] for
    /// a text that means "unknown", [`Reading::Unreadable`] for a malformed one.
    ///
    /// A missing file is [`Reading::Absent`] and no fault; every other failure is recorded as a fault, once.
    pub fn read<T>(&mut self, cx: &mut ReadContext<'_>, parse: impl FnOnce(&[u8]) -> Reading<T>) -> Reading<T> {
        if self.refused.is_some_and(|refusal| cx.now < refusal.until) {
            return Reading::Unreadable(ReadError::Quarantined);
        }
        let reading = self.once(cx, parse);
        match reading {
            Reading::Unreadable(ReadError::NotSupported) => Reading::Unreadable(self.refuse(cx)),
            Reading::Unreadable(reason) => {
                cx.fault(&self.path, reason);
                reading
            }
            Reading::Value(_) | Reading::Absent => {
                self.refused = None;
                reading
            }
        }
    }

    /// [`Self::read`] for a file that the kernel rejects while an interface is down: that is [`Reading::Absent`], no
    /// fault, and the file is read again next time.
    pub fn read_unless_down<T>(
        &mut self,
        cx: &mut ReadContext<'_>,
        parse: impl FnOnce(&[u8]) -> Reading<T>,
    ) -> Reading<T> {
        match self.once(cx, parse) {
            Reading::Unreadable(ReadError::NotSupported) => Reading::Absent,
            Reading::Unreadable(reason) => {
                cx.fault(&self.path, reason);
                Reading::Unreadable(reason)
            }
            reading => reading,
        }
    }

    /// Closes it; the next read opens the path again.
    pub fn close(&mut self) {
        self.file = None;
    }

    fn once<T>(&mut self, cx: &mut ReadContext<'_>, parse: impl FnOnce(&[u8]) -> Reading<T>) -> Reading<T> {
        match self.bytes(cx) {
            Ok(length) if length > LONGEST => self.large_page(parse),
            Ok(length) => parse(cx.buffer.get(..length).unwrap_or_default().trim_ascii()),
            Err(error) => reason_of(&error).map_or(Reading::Absent, Reading::Unreadable),
        }
    }

    /// Reads a file that is longer than a page of 4 KiB. It is rare, so it has a buffer of its own for that time.
    fn large_page<T>(&mut self, parse: impl FnOnce(&[u8]) -> Reading<T>) -> Reading<T> {
        let mut buffer = vec![0; LARGEST_PAGE + 1];
        match self.file.as_mut().map(|file| file.read(&mut buffer)) {
            Some(Ok(length)) if length <= LARGEST_PAGE => parse(buffer.get(..length).unwrap_or_default().trim_ascii()),
            Some(Err(error)) => reason_of(&error).map_or(Reading::Absent, Reading::Unreadable),
            Some(Ok(_)) | None => Reading::Unreadable(ReadError::Malformed),
        }
    }

    fn refuse(&mut self, cx: &mut ReadContext<'_>) -> ReadError {
        let (reason, pause) = match self.refused {
            None => (ReadError::NotSupported, FIRST_PAUSE),
            Some(refusal) => (ReadError::Quarantined, (refusal.pause * 2).min(LONGEST_PAUSE)),
        };
        self.file = None;
        self.refused = Some(Quarantine { until: cx.now.after(pause), pause });
        cx.fault(&self.path, reason);
        reason
    }

    /// Reads through the open descriptor. ENODEV may mean that the device was removed and added again under the same
    /// name, so the path is opened once more.
    fn bytes(&mut self, cx: &mut ReadContext<'_>) -> io::Result<usize> {
        if let Some(file) = &mut self.file {
            match file.read(&mut cx.buffer[..]) {
                Ok(length) => return Ok(length),
                Err(error) if reason_of(&error) != Some(ReadError::Gone) => return Err(error),
                Err(_) => self.file = None,
            }
        }
        let mut file = cx.host.io.open(&self.path)?;
        let length = file.read(&mut cx.buffer[..])?;
        self.file = Some(file);
        Ok(length)
    }
}

/// A file that follows the listing of its directory.
pub trait AttributeFile {
    /// Takes the current listing of the directory.
    fn relist(&mut self, names: &[String]);

    /// Whether it is quarantined.
    fn is_quarantined(&self) -> bool;
}

/// A file that is read on every pass, if the directory has it.
pub struct Attribute {
    name: &'static str,
    file: PolledFile,
    listed: bool,
}

impl Attribute {
    /// A file of this directory; absent until [`AttributeFile::relist`] finds it in a listing.
    pub fn new(directory: &Path, name: &'static str) -> Self {
        Self { name, file: PolledFile::new(directory.join(name)), listed: false }
    }

    /// Reads it as [`PolledFile::read`] does.
    pub fn read<T>(&mut self, cx: &mut ReadContext<'_>, parse: impl FnOnce(&[u8]) -> Reading<T>) -> Reading<T> {
        if self.listed { self.file.read(cx, parse) } else { Reading::Absent }
    }

    /// Reads it as [`PolledFile::read_unless_down`] does.
    pub fn read_unless_down<T>(
        &mut self,
        cx: &mut ReadContext<'_>,
        parse: impl FnOnce(&[u8]) -> Reading<T>,
    ) -> Reading<T> {
        if self.listed { self.file.read_unless_down(cx, parse) } else { Reading::Absent }
    }
}

impl AttributeFile for Attribute {
    fn relist(&mut self, names: &[String]) {
        self.listed = names.iter().any(|name| name == self.name);
        self.file.close();
    }

    fn is_quarantined(&self) -> bool {
        self.file.is_quarantined()
    }
}

/// A file whose content rarely changes: read until it has a value, then again only after the directory has changed.
pub struct CachedAttribute<T> {
    attribute: Attribute,
    value: Option<T>,
}

impl<T: Clone> CachedAttribute<T> {
    /// A file of this directory; absent until [`AttributeFile::relist`] finds it in a listing.
    pub fn new(directory: &Path, name: &'static str) -> Self {
        Self { attribute: Attribute::new(directory, name), value: None }
    }

    /// Drops the value, so that it is read again.
    pub fn forget(&mut self) {
        self.value = None;
    }

    /// The cached value; read if there is none.
    pub fn read(&mut self, cx: &mut ReadContext<'_>, parse: impl FnOnce(&[u8]) -> Reading<T>) -> Reading<T> {
        if let Some(value) = &self.value {
            return Reading::Value(value.clone());
        }
        let reading = self.attribute.read(cx, parse);
        if let Reading::Value(value) = &reading {
            self.value = Some(value.clone());
            self.attribute.file.close();
        }
        reading
    }
}

impl<T> AttributeFile for CachedAttribute<T> {
    fn relist(&mut self, names: &[String]) {
        self.attribute.relist(names);
        self.value = None;
    }

    fn is_quarantined(&self) -> bool {
        self.attribute.is_quarantined()
    }
}

/// Reads a file once and closes it.
pub(super) fn read_once<T>(
    cx: &mut ReadContext<'_>,
    path: &Path,
    parse: impl FnOnce(&[u8]) -> Reading<T>,
) -> Option<T> {
    PolledFile::new(path.to_owned()).read(cx, parse).value()
}

/// The beginning of a file, up to `most` bytes.
pub(super) fn content(io: &dyn HostIo, path: &Path, most: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; most];
    let length = io.open(path)?.read(&mut bytes)?;
    bytes.truncate(length);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustix::io::Errno;

    use super::*;
    use crate::host::collector::Depth;
    use crate::host::memory::MemoryHost;
    use crate::host::text;

    /// Reads a file once, and says what that was and how many faults it made.
    fn read(host: &Arc<MemoryHost>, file: &mut PolledFile, second: i64, unless_down: bool) -> (Reading<u64>, usize) {
        let host = host.host();
        let mut cx = ReadContext::new(&host, BootTime(second * 1000), Depth::Full);
        let reading =
            if unless_down { file.read_unless_down(&mut cx, text::counter) } else { file.read(&mut cx, text::counter) };
        (reading, cx.faults.len())
    }

    #[test]
    fn a_refused_file_is_left_alone_and_asked_again() {
        let (host, mut file) = (Arc::new(MemoryHost::new()), PolledFile::new(PathBuf::from("/sys/x")));
        host.fail("/sys/x", Errno::INVAL);
        assert_eq!(read(&host, &mut file, 0, false), (Reading::Unreadable(ReadError::NotSupported), 1));
        host.set("/sys/x", "5\n");
        assert_eq!(read(&host, &mut file, 599, false), (Reading::Unreadable(ReadError::Quarantined), 0));
        assert_eq!(read(&host, &mut file, 600, false), (Reading::Value(5), 0));
        assert!(!file.is_quarantined());
    }

    #[test]
    fn a_file_ends_at_the_largest_page() {
        let (host, mut file) = (Arc::new(MemoryHost::new()), PolledFile::new(PathBuf::from("/sys/x")));
        for (zeros, expected) in [
            (4095, Reading::Value(7)),
            (4096, Reading::Value(7)),
            (65_535, Reading::Value(7)),
            (65_536, Reading::Unreadable(ReadError::Malformed)),
            (1_000_000, Reading::Unreadable(ReadError::Malformed)),
        ] {
            host.set("/sys/x", format!("{}7", "0".repeat(zeros)));
            assert_eq!(read(&host, &mut file, 0, false).0, expected, "{zeros}");
        }
    }

    #[test]
    fn a_file_refused_while_an_interface_is_down_is_absent_for_that_time() {
        let (host, mut file) = (Arc::new(MemoryHost::new()), PolledFile::new(PathBuf::from("/sys/carrier")));
        host.fail("/sys/carrier", Errno::INVAL);
        assert_eq!(read(&host, &mut file, 0, true), (Reading::Absent, 0));
        assert!(!file.is_quarantined());
        host.set("/sys/carrier", "1\n");
        assert_eq!(read(&host, &mut file, 5, true), (Reading::Value(1), 0));
        host.set("/sys/carrier", "up\n");
        assert_eq!(read(&host, &mut file, 10, true), (Reading::Unreadable(ReadError::Malformed), 1));
        host.fail("/sys/carrier", Errno::IO);
        assert_eq!(read(&host, &mut file, 15, true), (Reading::Unreadable(ReadError::Io), 1));
    }
}
