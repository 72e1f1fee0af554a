//! The contract between a collector and the poller.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::io::{Host, LONGEST, reason_of};
use crate::model::ids::DeviceName;
use crate::model::reading::ReadError;
use crate::model::snapshot::{Fact, Fault};
use crate::model::time::BootTime;

/// One entry of [`super::COLLECTORS`].
#[derive(Debug, Clone, Copy)]
pub struct Spec {
    /// Name: the `collector` label, `--collector.NAME` and `--no-collector.NAME`.
    pub name: &'static str,
    /// One sentence on what it reads, for the help.
    pub about: &'static str,
    /// How often it reads.
    pub interval: Duration,
    /// How long a reader may take before it counts as stuck.
    pub deadline: Duration,
    /// Whether a scrape wants its facts no older than a second.
    pub fresh: bool,
    /// Creates the collector.
    pub make: fn(&Setup) -> Box<dyn Collector>,
}

/// What a collector is created with.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The host to read.
    pub host: Host,
    /// Which devices to read.
    pub filter: Filter,
}

/// Which RDMA devices are read; applied before anything of a device is opened.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Read only these; `None` means all.
    pub include: Option<regex_lite::Regex>,
    /// Do not read these.
    pub exclude: Option<regex_lite::Regex>,
}

impl Filter {
    /// Whether a device of this name is read. Patterns match the whole name.
    pub fn allows(&self, name: &str) -> bool {
        self.include.as_ref().is_none_or(|pattern| pattern.is_match(name))
            && !self.exclude.as_ref().is_some_and(|pattern| pattern.is_match(name))
    }

    /// Compiles a user's pattern so that it matches whole names.
    pub fn pattern(text: &str) -> Result<regex_lite::Regex, regex_lite::Error> {
        regex_lite::Regex::new(&format!("^(?:{text})$"))
    }

    /// A pattern as the user wrote it.
    pub fn pattern_text(pattern: &regex_lite::Regex) -> &str {
        let whole = pattern.as_str();
        whole.strip_prefix("^(?:").and_then(|text| text.strip_suffix(")$")).unwrap_or(whole)
    }
}

/// How deep a pass reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Depth {
    /// States only; counters keep their last value.
    State,
    /// Everything.
    Full,
}

/// A device that [`Collector::discover`] found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Discovered {
    /// Key of its reader: unique within the collector, and its sort order.
    pub key: Arc<str>,
    /// The RDMA device it belongs to, if any.
    pub device: Option<DeviceName>,
}

/// A kernel source.
pub trait Collector: Send {
    /// Lists the devices that are present, sorted, without touching hardware. An absent class is an empty list, not an
    /// error.
    ///
    /// # Errors
    /// Why the listing failed, also recorded as a fault; the devices known before stay.
    fn discover(&mut self, cx: &mut ReadContext<'_>) -> Result<Vec<Discovered>, ReadError>;

    /// Opens the reader of a device.
    fn open(&mut self, found: &Discovered) -> Box<dyn DeviceReader>;
}

/// Reads one device. Runs on a worker thread of its own, where it may block.
pub trait DeviceReader: Send {
    /// Reads the facts; empty if the device has gone.
    fn read(&mut self, cx: &mut ReadContext<'_>) -> Vec<Fact>;

    /// How many of its files are quarantined.
    fn quarantined(&self) -> usize {
        0
    }
}

/// The reader of a device that is gone: reads nothing.
pub struct GoneReader;

impl DeviceReader for GoneReader {
    fn read(&mut self, _pass: &mut ReadContext<'_>) -> Vec<Fact> {
        Vec::new()
    }
}

/// What one read of one device works with: the time, the depth, the faults so far and a buffer for all its reads.
pub struct ReadContext<'a> {
    /// The host.
    pub host: &'a Host,
    /// Now.
    pub now: BootTime,
    /// How deep to read.
    pub depth: Depth,
    /// Whether the devices have just been listed again. Only then are directories checked for changes; a scrape between
    /// two listings reads the files that are already known.
    pub listed: bool,
    /// What could not be read so far.
    pub faults: Vec<Fault>,
    /// Room for one file, plus a byte that shows when a file is too long.
    pub buffer: Box<[u8; LONGEST + 1]>,
}

impl<'a> ReadContext<'a> {
    /// A context for a read at this time.
    pub fn new(host: &'a Host, now: BootTime, depth: Depth) -> Self {
        Self { host, now, depth, listed: true, faults: Vec::new(), buffer: Box::new([0; LONGEST + 1]) }
    }

    /// The names in a directory; empty if it does not exist.
    ///
    /// # Errors
    /// Why it could not be listed, also recorded as a fault.
    pub fn list(&mut self, directory: &Path) -> Result<Vec<String>, ReadError> {
        self.host.io.list(directory).or_else(|error| match reason_of(&error) {
            None => Ok(Vec::new()),
            Some(reason) => {
                self.fault(directory, reason);
                Err(reason)
            }
        })
    }

    /// Records that a path could not be read.
    pub fn fault(&mut self, path: &Path, reason: ReadError) {
        self.faults.push(Fault { source: Arc::from(path.to_string_lossy()), reason });
    }
}
