//! The kernel log: `/dev/kmsg` of a running host, `kmsg` or `dmesg.txt` beside the trees of a recorded one.

mod datapath;
mod groups;
mod iommu;
pub mod pattern;
mod platform;
pub mod reader;
pub mod record;
mod reduce;
pub mod rules;
pub mod speaker;
#[cfg(test)]
mod tests;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;

use super::collector::{Collector, DeviceReader, Discovered, ReadContext, Setup, Spec};
use super::file::read_once;
use super::io::{Host, OpenFile, reason_of};
use super::system;
use crate::model::kmsg::MessageSource;
use crate::model::reading::ReadError;
use crate::model::snapshot::Fact;
use crate::model::time::BootTime;
use datapath::DataPathLogs;
use groups::Groups;
use reader::{Message, Reader};
use record::{Record, When};
pub use reduce::reduce;
use speaker::Names;

/// The collector of kernel messages.
pub const SPEC: Spec = Spec {
    name: "kmsg",
    about: "Kernel messages about RDMA devices, PCIe errors, IOMMU faults and pass-through (/dev/kmsg)",
    interval: Duration::from_secs(5),
    deadline: Duration::from_secs(2),
    fresh: false,
    make,
};

fn make(setup: &Setup) -> Box<dyn Collector> {
    Box::new(Kmsg { host: setup.host.clone() })
}

/// Where the log is.
#[derive(Debug, Clone)]
enum Source {
    /// The running kernel's: each read gives one record.
    Live(PathBuf),
    /// Records as a file.
    Records(PathBuf),
    /// Lines without numbers.
    Lines(PathBuf),
}

struct Kmsg {
    host: Host,
}

impl Kmsg {
    fn source(&self) -> Option<Source> {
        let sources = if self.host.live {
            vec![Source::Live(self.host.beside("dev/kmsg"))]
        } else {
            vec![Source::Records(self.host.beside("kmsg")), Source::Lines(self.host.beside("dmesg.txt"))]
        };
        let there = |source: &Source| {
            let (Source::Live(path) | Source::Records(path) | Source::Lines(path)) = source;
            self.host.io.stamp(path).is_ok()
        };
        sources.into_iter().find(there)
    }

    /// The drivers whose messages are counted from zero on: those that the host has loaded, and the kernel's parts that
    /// speak of any function.
    fn loaded(&self) -> Vec<MessageSource> {
        let drivers = self.host.sysfs.join("bus/pci/drivers");
        let modules = self.host.sysfs.join("module");
        let is_loaded = |driver: &MessageSource| {
            let name = driver.as_str();
            self.host.io.stamp(&drivers.join(name)).is_ok() || self.host.io.stamp(&modules.join(name)).is_ok()
        };
        let counted = |driver: &&MessageSource| !driver.is_of_rdma() || driver.family().iter().any(is_loaded);
        MessageSource::ALL.iter().filter(counted).copied().collect()
    }
}

impl Collector for Kmsg {
    /// A container may have no log: that is nothing found.
    fn discover(&mut self, _: &mut ReadContext<'_>) -> Result<Vec<Discovered>, ReadError> {
        Ok(self.source().map(|_| Discovered { key: Arc::from("log"), device: None }).into_iter().collect())
    }

    fn open(&mut self, _: &Discovered) -> Box<dyn DeviceReader> {
        match self.source() {
            Some(source) => Box::new(Log {
                source,
                file: None,
                offset: 0,
                seen_lines: 0,
                reader: Reader::default(),
                groups: Groups::new(&self.loaded()),
                overruns: 0,
                lost: 0,
                forks: 0,
                data_paths: DataPathLogs::default(),
                first: None,
                last: None,
                boot: None,
                wall: None,
                end: None,
                caught_up: false,
            }),
            None => Box::new(super::collector::GoneReader),
        }
    }
}

/// Records read in one pass; more wait for the next.
const MOST: usize = 1 << 16;

/// Longest record of any kernel, with its continuation lines; a smaller buffer would lose records.
const RECORD: usize = 16 * 1024;

/// Longest line of a recorded log.
const LINE: usize = 64 * 1024;

struct Log {
    source: Source,
    file: Option<Box<dyn OpenFile>>,
    offset: u64,
    seen_lines: usize,
    reader: Reader,
    groups: Groups,
    overruns: u64,
    lost: u64,
    forks: u64,
    data_paths: DataPathLogs,
    first: Option<u64>,
    last: Option<u64>,
    /// When a recorded host was booted, and when its wall clock was at zero, on our clock.
    boot: Option<BootTime>,
    wall: Option<BootTime>,
    /// Where a running kernel's log ended when it was opened, until it has been read up to there.
    end: Option<End>,
    /// What was there at the start has been read: what comes now is new.
    caught_up: bool,
}

/// Where a log ended when it was opened. Reading what was there takes time, and lines come meanwhile: they are new.
struct End {
    file: Box<dyn OpenFile>,
    buffer: Vec<u8>,
    /// The number of the first record after it, once there is one.
    next: Option<u64>,
}

impl End {
    /// Whether this record of the log came after the end.
    fn is_before(&mut self, sequence: u64) -> bool {
        if self.next.is_none() {
            self.next = self.first_after();
        }
        self.next.is_some_and(|next| sequence >= next)
    }

    /// The number of the first record after the end that the kernel still has.
    fn first_after(&mut self) -> Option<u64> {
        let length = match self.file.read_at(0, &mut self.buffer) {
            // Some were dropped; the next read goes on with the oldest that is left.
            Err(error) if error.raw_os_error() == Some(Errno::PIPE.raw_os_error()) => {
                self.file.read_at(0, &mut self.buffer)
            }
            read => read,
        };
        let bytes = self.buffer.get(..length.ok()?)?;
        record::sequence(&String::from_utf8_lossy(bytes))
    }
}

/// A line that means something, still with its own time.
struct Seen {
    message: Message,
    when: When,
    sequence: Option<u64>,
}

impl DeviceReader for Log {
    fn read(&mut self, cx: &mut ReadContext<'_>) -> Vec<Fact> {
        let read = match self.source.clone() {
            Source::Live(path) => self.follow(cx, &path),
            Source::Records(path) => self.reread(cx, &path, true),
            Source::Lines(path) => self.reread(cx, &path, false),
        };
        if let Err((path, error)) = read {
            self.file = None;
            if let Some(reason) = reason_of(&error) {
                cx.fault(&path, reason);
            }
            if !self.caught_up {
                return Vec::new();
            }
        }
        let is_live = matches!(self.source, Source::Live(_));
        let mut data_paths = std::mem::take(&mut self.data_paths);
        data_paths.settle(|when| match when {
            When::Boot(micros) if is_live => live_tick(micros, cx.now),
            when => self.tick(when, cx.now),
        });
        self.data_paths = data_paths;
        // A running kernel's log has been read up to its end only where it says so.
        self.caught_up |= !is_live;
        let mut log = self.groups.log(cx.now);
        (log.lost, log.overruns, log.first, log.last) = (self.lost, self.overruns, self.first, self.last);
        log.forks = self.forks;
        log.data_paths = self.data_paths.logs(cx.now);
        vec![Arc::new(log)]
    }
}

type Outcome = Result<(), (PathBuf, io::Error)>;

impl Log {
    /// Reads what the running kernel has that was not read before.
    fn follow(&mut self, cx: &mut ReadContext<'_>, path: &std::path::Path) -> Outcome {
        let failed = |error| (path.to_owned(), error);
        let mut file = match self.file.take() {
            Some(file) => file,
            None => cx.host.io.open(path).map_err(failed)?,
        };
        if !self.caught_up && self.end.is_none() {
            let end = cx.host.io.open_at_end(path).map_err(failed)?;
            self.end = Some(End { file: end, buffer: vec![0; RECORD], next: None });
        }
        let mut buffer = vec![0; RECORD];
        for _ in 0..MOST {
            match file.read_at(self.offset, &mut buffer) {
                Ok(0) => {
                    self.caught_up = true;
                    break;
                }
                Ok(length) => {
                    self.offset += length as u64;
                    let bytes = buffer.get(..length).unwrap_or_default();
                    self.take_live(cx.host, cx.now, &String::from_utf8_lossy(bytes));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.caught_up = true;
                    break;
                }
                // Older records were dropped; the next read goes on with the oldest that is left.
                Err(error) if error.raw_os_error() == Some(Errno::PIPE.raw_os_error()) => self.overruns += 1,
                // A record that is too long for any buffer: its number will be missing.
                Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(error)),
            }
        }
        if self.caught_up {
            self.end = None;
        }
        self.file = Some(file);
        Ok(())
    }

    fn take_live(&mut self, names: &dyn Names, now: BootTime, text: &str) {
        let mut lines = text.lines();
        let Some(line) = lines.next() else { return };
        let sequence = record::sequence(line);
        if !self.is_next(sequence) {
            return;
        }
        let is_new = self.caught_up
            || sequence.is_some_and(|sequence| self.end.as_mut().is_some_and(|end| end.is_before(sequence)));
        let Some(mut record) = record::kmsg(line) else { return };
        record.device = lines.find_map(record::device);
        self.look_for_fork(&record, is_new);
        self.data_paths.take(&record.text, record.when, is_new);
        self.note_rdma_function(&record);
        if let Some(message) = self.reader.read(&record, names) {
            let at = match record.when {
                When::Boot(micros) => live_tick(micros, now),
                When::Wall(_) | When::Unknown => now,
            };
            self.groups.add(message, at, record.sequence, is_new, now);
        }
    }

    /// Whether a record was not read before; notes a gap before it.
    fn is_next(&mut self, sequence: Option<u64>) -> bool {
        let Some(sequence) = sequence else { return false };
        if self.last.is_some_and(|last| sequence <= last) {
            return false;
        }
        // A log that was empty at the start has lost all before its first record.
        let next = self.last.map_or(if self.caught_up { 0 } else { sequence }, |last| last.saturating_add(1));
        self.lost = self.lost.saturating_add(sequence.saturating_sub(next));
        self.first.get_or_insert(sequence);
        self.last = Some(sequence);
        true
    }

    /// Reads a recorded log again and takes what is new in it.
    fn reread(&mut self, cx: &mut ReadContext<'_>, path: &std::path::Path, records: bool) -> Outcome {
        let failed = |error| (path.to_owned(), error);
        let mut file = cx.host.io.open(path).map_err(failed)?;
        let (mut number, mut seen, mut newest) = (0, Vec::new(), (None, None));
        let mut pending: Option<String> = None;
        let known = self.seen_lines;
        lines(&mut *file, |line| {
            number += 1;
            if !records {
                if number > known {
                    self.take_line(cx.host, &record::dmesg(line), &mut newest, &mut seen);
                }
                return;
            }
            if line.starts_with(' ') {
                if let Some(pending) = &mut pending {
                    pending.push('\n');
                    pending.push_str(line);
                }
            } else if let Some(before) = pending.replace(line.to_owned()) {
                self.take_record(cx.host, &before, &mut newest, &mut seen);
            }
        })
        .map_err(failed)?;
        if let Some(before) = pending {
            self.take_record(cx.host, &before, &mut newest, &mut seen);
        }
        self.seen_lines = number;
        self.set_clocks(cx, newest);
        for Seen { message, when, sequence } in seen {
            let at = self.tick(when, cx.now);
            self.groups.add(message, at, sequence, self.caught_up, cx.now);
        }
        Ok(())
    }

    fn take_record(&mut self, names: &dyn Names, text: &str, newest: &mut Newest, seen: &mut Vec<Seen>) {
        let mut lines = text.lines();
        let Some(line) = lines.next() else { return };
        if !self.is_next(record::sequence(line)) {
            return;
        }
        if let Some(mut record) = record::kmsg(line) {
            record.device = lines.find_map(record::device);
            self.take_line(names, &record, newest, seen);
        }
    }

    fn take_line(&mut self, names: &dyn Names, record: &Record<'_>, newest: &mut Newest, seen: &mut Vec<Seen>) {
        match record.when {
            When::Boot(micros) => newest.0 = newest.0.max(Some(micros)),
            When::Wall(seconds) => newest.1 = newest.1.max(Some(seconds)),
            When::Unknown => {}
        }
        self.look_for_fork(record, self.caught_up);
        self.data_paths.take(&record.text, record.when, self.caught_up);
        self.note_rdma_function(record);
        if let Some(message) = self.reader.read(record, names) {
            seen.push(Seen { message, when: record.when, sequence: record.sequence });
        }
    }

    fn note_rdma_function(&mut self, record: &Record<'_>) {
        if let Some(address) = reader::rdma_function(record) {
            self.groups.add_rdma_function(address);
        }
    }

    /// Where firmware tells the kernel that the machine was copied, the random numbers are seeded anew: nothing else
    /// shows it.
    fn look_for_fork(&mut self, record: &Record<'_>, is_new: bool) {
        let said = record.text.starts_with("random: crng reseeded due to virtual machine fork");
        self.forks += u64::from(said && is_new);
    }

    /// A recorded host's clock stands at its uptime; where it does not say, at its newest line.
    fn set_clocks(&mut self, cx: &mut ReadContext<'_>, (micros, seconds): Newest) {
        if let (None, Some(micros)) = (self.boot, micros) {
            let newest = Duration::from_micros(micros);
            let uptime = read_once(cx, &cx.host.procfs.join("uptime"), system::uptime)
                .map_or(newest, |uptime| uptime.max(newest));
            self.boot = Some(cx.now - uptime);
        }
        if let (None, Some(seconds)) = (self.wall, seconds) {
            self.wall = Some(BootTime(cx.now.0.saturating_sub(seconds.saturating_mul(1000))));
        }
    }

    fn tick(&self, when: When, now: BootTime) -> BootTime {
        let at = match when {
            When::Boot(micros) => self.boot.map(|boot| boot.after(Duration::from_micros(micros))),
            When::Wall(seconds) => self.wall.map(|zero| BootTime(zero.0.saturating_add(seconds.saturating_mul(1000)))),
            When::Unknown => None,
        };
        at.map_or(now, |at| at.min(now))
    }
}

/// When the running kernel wrote a record.
fn live_tick(micros: u64, now: BootTime) -> BootTime {
    BootTime(i64::try_from(micros / 1000).unwrap_or(i64::MAX)).min(now)
}

/// The newest times seen: microseconds since boot, seconds on a wall clock.
type Newest = (Option<u64>, Option<i64>);

/// Gives each line of a file, without loading it whole; what is longer than [`LINE`] is cut.
fn lines(file: &mut dyn OpenFile, mut take: impl FnMut(&str)) -> io::Result<()> {
    let (mut offset, mut line, mut buffer) = (0u64, Vec::new(), vec![0; LINE]);
    loop {
        let length = file.read_at(offset, &mut buffer)?;
        offset += length as u64;
        for part in buffer.get(..length).unwrap_or_default().split_inclusive(|byte| *byte == b'\n') {
            let room = LINE.saturating_sub(line.len());
            line.extend(part.iter().take(room));
            if part.last() == Some(&b'\n') {
                take(String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']));
                line.clear();
            }
        }
        if length == 0 {
            if !line.is_empty() {
                take(&String::from_utf8_lossy(&line));
            }
            return Ok(());
        }
    }
}
