//! Counter directories of a port or device: `counters/` and `hw_counters/`.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::host::collector::ReadContext;
use crate::host::file::PolledFile;
use crate::host::io::{DirStamp, reason_of};
use crate::host::netlink::nldev;
use crate::host::text;
use crate::model::counter::{
    CounterClass, CounterDirectory, CounterKind, CounterLayout, Counters, layout, meaning, stand_ins,
};
use crate::model::ids::natural;
use crate::model::reading::{ReadError, Reading};

/// Of a directory with more counters than this (hfi1 has hundreds, one for each context) only the counters with a known
/// meaning are read.
const MOST: usize = 128;

/// Where a port's hardware counters come from in a pass.
pub(super) enum CounterSource<'a> {
    /// Their files.
    Files,
    /// A reply of `STAT_GET`, and files for what it lacks.
    Reply(&'a [u8]),
    /// Nowhere: the driver has just failed to answer for all of them.
    Nothing,
}

/// The counters of one pair of directories, and how to read them.
pub(super) struct CounterDirs {
    pma: Option<StampedDirectory>,
    hardware: StampedDirectory,
    pma_files: CounterFiles,
    hardware_files: CounterFiles,
    /// Whether nothing was read yet since the directories were listed.
    is_new: bool,
}

struct StampedDirectory {
    path: PathBuf,
    stamp: Option<DirStamp>,
}

impl StampedDirectory {
    fn new(path: PathBuf) -> Self {
        Self { path, stamp: None }
    }

    /// Whether the directory has changed since it was listed.
    fn changed(&mut self, cx: &mut ReadContext<'_>) -> bool {
        match stamp(cx, &self.path) {
            Ok(now) => std::mem::replace(&mut self.stamp, now) != now,
            Err(_) => false,
        }
    }

    fn names(&mut self, cx: &mut ReadContext<'_>) -> Vec<Arc<str>> {
        let listed = if self.stamp.is_some() { cx.host.io.list(&self.path) } else { Ok(Vec::new()) };
        let mut names = listed.unwrap_or_else(|error| {
            // Listed again on the next pass.
            self.stamp = None;
            if let Some(reason) = reason_of(&error) {
                cx.fault(&self.path, reason);
            }
            Vec::new()
        });
        // mlx5 refreshes the whole set when the first counter is read; the others then come from memory.
        let key = |name: &String| name != "rx_write_requests";
        names.sort_unstable_by(|a, b| key(a).cmp(&key(b)).then_with(|| natural(a, b)));
        if names.len() > MOST {
            names.retain(|name| meaning(name, CounterDirectory::Hardware) != CounterKind::Event(CounterClass::Other));
        }
        names.into_iter().map(Arc::from).collect()
    }
}

/// The stamp of a directory; `None` if it does not exist.
///
/// # Errors
/// Why it could not be read, also recorded as a fault.
pub(super) fn stamp(cx: &mut ReadContext<'_>, path: &Path) -> Result<Option<DirStamp>, ReadError> {
    let failed = |error: io::Error| reason_of(&error).map_or(Ok(None), Err);
    cx.host.io.stamp(path).map(Some).or_else(failed).inspect_err(|reason| cx.fault(path, *reason))
}

impl CounterDirs {
    /// The directories below a port's directory.
    pub(super) fn of_port(port: &Path) -> Self {
        Self::new(Some(StampedDirectory::new(port.join("counters"))), port)
    }

    /// The directory below a device's directory.
    pub(super) fn of_device(device: &Path) -> Self {
        Self::new(None, device)
    }

    fn new(pma: Option<StampedDirectory>, parent: &Path) -> Self {
        let hardware = StampedDirectory::new(parent.join("hw_counters"));
        Self {
            pma,
            hardware,
            pma_files: CounterFiles::default(),
            hardware_files: CounterFiles::default(),
            is_new: true,
        }
    }

    /// Lists the directories again if they changed; true if so.
    pub(super) fn refresh(&mut self, cx: &mut ReadContext<'_>) -> bool {
        let pma_changed = self.pma.as_mut().is_some_and(|directory| directory.changed(cx));
        if !self.hardware.changed(cx) && !pma_changed {
            return false;
        }
        let pma_names = self.pma.as_mut().map(|directory| directory.names(cx)).unwrap_or_default();
        let (pma, hardware) = layout(&pma_names, &self.hardware.names(cx));
        if let Some(directory) = &self.pma {
            self.pma_files = CounterFiles::new(pma, &directory.path);
        }
        self.hardware_files = CounterFiles::new(hardware, &self.hardware.path);
        self.is_new = true;
        true
    }

    /// Whether there are hardware counters to read.
    pub(super) fn has_hardware(&self) -> bool {
        !self.hardware_files.files.is_empty()
    }

    /// Reads all of them.
    pub(super) fn read(&mut self, cx: &mut ReadContext<'_>, hardware: &CounterSource<'_>) {
        self.pma_files.read(cx, &CounterSource::Files);
        self.hardware_files.read(cx, hardware);
        // Only now: a counter that takes over later would look as if the other had been reset.
        if std::mem::take(&mut self.is_new) {
            let Counters { layout, values } = &self.pma_files.last;
            let unread = layout.iter().zip(values).filter(|(_, value)| value.is_none()).map(|(counter, _)| counter);
            if let Some(layout) = stand_ins(&self.hardware_files.last.layout, &unread.collect::<Vec<_>>()) {
                self.hardware_files.last.layout = layout;
            }
        }
    }

    /// The last values of `counters/`.
    pub(super) fn pma(&self) -> Counters {
        self.pma_files.last.clone()
    }

    /// The last values of `hw_counters/`.
    pub(super) fn hardware(&self) -> Counters {
        self.hardware_files.last.clone()
    }

    pub(super) fn quarantined(&self) -> usize {
        let files = self.pma_files.files.iter().chain(&self.hardware_files.files);
        files.filter(|file| file.is_quarantined()).count()
    }
}

/// Whether the card did not respond.
fn is_silent(reading: Reading<u64>) -> bool {
    matches!(reading, Reading::Unreadable(ReadError::Timeout | ReadError::Gone))
}

/// One file for each counter of a layout, in its order.
#[derive(Default)]
struct CounterFiles {
    files: Vec<PolledFile>,
    last: Counters,
    /// Index in the layout of each counter of a netlink reply, in the reply's order.
    slots: Vec<usize>,
}

impl CounterFiles {
    fn new(layout: CounterLayout, directory: &Path) -> Self {
        let files = layout.iter().map(|counter| PolledFile::new(directory.join(&*counter.name))).collect();
        let values = vec![None; layout.len()];
        Self { files, last: Counters { layout, values }, slots: Vec::new() }
    }

    fn read(&mut self, cx: &mut ReadContext<'_>, source: &CounterSource<'_>) {
        self.last.values.fill(None);
        match source {
            CounterSource::Files => {}
            CounterSource::Reply(reply) => self.take(reply),
            CounterSource::Nothing => return,
        }
        let mut silent = false;
        for (value, file) in self.last.values.iter_mut().zip(&mut self.files).filter(|(value, _)| value.is_none()) {
            let reading = file.read(cx, text::counter);
            let was_silent = std::mem::replace(&mut silent, is_silent(reading));
            // One failing file costs only itself. After a second one in a row the card does not respond, and each
            // further file would wait up to a minute.
            if silent && was_silent {
                return;
            }
            *value = reading.value();
        }
    }

    /// Takes values by name. Every reply has its names in the same order.
    fn take(&mut self, reply: &[u8]) {
        let Counters { layout, values } = &mut self.last;
        for (at, (name, value)) in nldev::counters(reply).enumerate() {
            let is_at = |slot: usize| layout.get(slot).is_some_and(|counter| *counter.name == *name);
            let slot = match self.slots.get(at).copied() {
                Some(slot) if is_at(slot) => slot,
                _ => {
                    let slot = layout.iter().position(|counter| *counter.name == *name).unwrap_or(usize::MAX);
                    self.slots.truncate(at);
                    self.slots.push(slot);
                    slot
                }
            };
            if let Some(place) = values.get_mut(slot) {
                *place = Some(value);
            }
        }
    }
}
