//! The contract between a collector and the poller.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::io::{Host, LONGEST, reason_of};
use crate::model::ids::DeviceName;
use crate::model::reading::ReadError;
use crate::model::snapshot::{Fact, Fault};
use crate::model::time::BootTime;

/// One row of [`super::COLLECTORS`].
#[derive(Debug, Clone, Copy)]
pub struct Spec {
    /// Name: the `collector` label, `--collector.NAME` and `--no-collector.NAME`.
    pub name: &'static str,
    /// One sentence on what it reads, for the help.
    pub about: &'static str,
    /// How often it reads.
    pub interval: Duration,
    /// When a reader that has not answered counts as stuck.
    pub deadline: Duration,
    /// Whether a scrape asks it for facts no older than a second.
    pub fresh: bool,
    /// Makes one.
    pub make: fn(&Setup) -> Box<dyn Collector>,
}

/// What a collector is made with.
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
    /// Only these.
    pub include: Option<regex_lite::Regex>,
    /// Not these.
    pub exclude: Option<regex_lite::Regex>,
}

impl Filter {
    /// Whether a device of this name is read. Patterns match the whole name.
    pub fn allows(&self, name: &str) -> bool {
        self.include.as_ref().is_none_or(|pattern| pattern.is_match(name))
            && !self.exclude.as_ref().is_some_and(|pattern| pattern.is_match(name))
    }

    /// A pattern that matches whole names, from what a user typed.
    pub fn pattern(text: &str) -> Result<regex_lite::Regex, regex_lite::Error> {
        regex_lite::Regex::new(&format!("^(?:{text})$"))
    }
}

/// How deep a pass reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Depth {
    /// States only; counters keep their last reading.
    State,
    /// Everything.
    Full,
}

/// Something that [`Collector::discover`] found: the key of its reader, and what the reader needs to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Discovered {
    /// Unique among this collector's readers; sorts them too.
    pub key: Arc<str>,
    /// The RDMA device it belongs to, where it belongs to one.
    pub device: Option<DeviceName>,
}

/// A kernel source.
pub trait Collector: Send {
    /// Lists what is there now, in order, without asking hardware. An absent class is an empty list, no error.
    ///
    /// # Errors
    /// The reason why the listing itself failed, noted in the pass; what was known then stays.
    fn discover(&mut self, cx: &mut ReadContext<'_>) -> Result<Vec<Discovered>, ReadError>;

    /// Opens the reader of something that was found.
    fn open(&mut self, found: &Discovered) -> Box<dyn DeviceReader>;
}

/// One device's readings. Runs on a worker of its own and may block there.
pub trait DeviceReader: Send {
    /// Reads the facts; empty when the device went away meanwhile.
    fn read(&mut self, cx: &mut ReadContext<'_>) -> Vec<Fact>;

    /// How many of its files are left alone for now.
    fn quarantined(&self) -> usize {
        0
    }
}

/// The reader of something that is no longer there.
pub struct GoneReader;

impl DeviceReader for GoneReader {
    fn read(&mut self, _pass: &mut ReadContext<'_>) -> Vec<Fact> {
        Vec::new()
    }
}

/// One pass over one reader: the moment, how deep to go, what failed, and a buffer for all its reads.
pub struct ReadContext<'a> {
    /// The host.
    pub host: &'a Host,
    /// Now.
    pub now: BootTime,
    /// How deep.
    pub depth: Depth,
    /// Whether what is there was listed anew just before: only then are directories looked through for changes, too.
    /// A scrape between two listings reads what is known.
    pub listed: bool,
    /// What could not be read.
    pub faults: Vec<Fault>,
    /// Room for one file and a byte that says it is too long.
    pub buffer: Box<[u8; LONGEST + 1]>,
}

impl<'a> ReadContext<'a> {
    /// A pass at this moment.
    pub fn new(host: &'a Host, now: BootTime, depth: Depth) -> Self {
        Self { host, now, depth, listed: true, faults: Vec::new(), buffer: Box::new([0; LONGEST + 1]) }
    }

    /// The names in a directory; none at all where there is no directory.
    ///
    /// # Errors
    /// The reason why it could not be listed, noted as a fault.
    pub fn list(&mut self, directory: &Path) -> Result<Vec<String>, ReadError> {
        self.host.io.list(directory).or_else(|error| match reason_of(&error) {
            None => Ok(Vec::new()),
            Some(reason) => {
                self.fault(directory, reason);
                Err(reason)
            }
        })
    }

    /// Notes that something could not be read.
    pub fn fault(&mut self, path: &Path, reason: ReadError) {
        self.faults.push(Fault { source: Arc::from(path.to_string_lossy()), reason });
    }
}
