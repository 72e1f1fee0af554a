//! The collector on recorded hosts and on a log that is written while it is read.

mod meanings;

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex};

use proptest::prelude::*;

use super::*;
use crate::host::collector::{Depth, Filter};
use crate::host::io::{DirStamp, HostIo};
use crate::host::memory::MemoryHost;
use crate::model::kmsg::{KernelLog, MessageKind, MessageSource};

/// A ring of records as the kernel has it: the oldest are dropped, a reader that missed some gets one error.
#[derive(Default)]
struct Ring(Mutex<State>);

struct State {
    records: VecDeque<(u64, String)>,
    next: u64,
    /// Written as soon as this many records have been read.
    meanwhile: Option<(u64, Vec<String>)>,
    read: u64,
    /// Records that the ring holds.
    holds: usize,
}

impl Default for State {
    fn default() -> Self {
        Self { records: VecDeque::new(), next: 0, meanwhile: None, read: 0, holds: HOLDS }
    }
}

/// Records that a ring holds by default.
const HOLDS: usize = 5_000;

impl Ring {
    fn write(&self, micros: u64, text: &str) {
        self.0.lock().unwrap().write(micros, text);
    }
}

impl State {
    fn write(&mut self, micros: u64, text: &str) {
        let sequence = self.next;
        self.next += 1;
        self.records.push_back((sequence, format!("4,{sequence},{micros},-;{text}\n SUBSYSTEM=pci\n")));
        if self.records.len() > self.holds {
            self.records.pop_front();
        }
    }
}

/// A descriptor: each has its own place.
struct Reading {
    ring: Arc<Ring>,
    at: u64,
}

impl OpenFile for Reading {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut state = self.ring.0.lock().unwrap();
        let Some((oldest, _)) = state.records.front() else { return Err(Errno::AGAIN.into()) };
        let oldest = *oldest;
        if oldest > self.at {
            self.at = oldest;
            return Err(Errno::PIPE.into());
        }
        let Ok(index) = usize::try_from(self.at - oldest) else { return Err(Errno::AGAIN.into()) };
        let Some((_, record)) = state.records.get(index) else { return Err(Errno::AGAIN.into()) };
        let length = record.len();
        buffer[..length].copy_from_slice(record.as_bytes());
        self.at += 1;
        state.read += 1;
        let read = state.read;
        if let Some((_, lines)) = state.meanwhile.take_if(|(after, _)| *after <= read) {
            for line in lines {
                state.write(7_000_000_000, &line);
            }
        }
        Ok(length)
    }

    fn read_at(&mut self, _: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.read(buffer)
    }
}

struct Live(Arc<Ring>);

impl HostIo for Live {
    fn open(&self, path: &Path) -> io::Result<Box<dyn OpenFile>> {
        assert_eq!(path, Path::new("/dev/kmsg"));
        Ok(Box::new(Reading { ring: Arc::clone(&self.0), at: 0 }))
    }

    fn open_at_end(&self, _: &Path) -> io::Result<Box<dyn OpenFile>> {
        let at = self.0.0.lock().unwrap().next;
        Ok(Box::new(Reading { ring: Arc::clone(&self.0), at }))
    }

    fn list(&self, _: &Path) -> io::Result<Vec<String>> {
        Err(Errno::NOENT.into())
    }

    fn link(&self, _: &Path) -> io::Result<PathBuf> {
        Err(Errno::NOENT.into())
    }

    fn stamp(&self, _: &Path) -> io::Result<DirStamp> {
        Ok(DirStamp { identity: (0, 1), modified: (0, 0) })
    }
}

struct Logs {
    host: Host,
    reader: Box<dyn DeviceReader>,
}

impl Logs {
    fn new(host: Host) -> Self {
        let mut collector = make(&Setup { host: host.clone(), filter: Filter::default() });
        let found = collector.discover(&mut ReadContext::new(&host, BootTime(0), Depth::Full)).unwrap();
        Self { reader: collector.open(&found[0]), host }
    }

    fn live(ring: &Arc<Ring>) -> Self {
        let io = Arc::new(Live(Arc::clone(ring)));
        Self::new(Host { io, live: true, ..Arc::new(MemoryHost::new()).host() })
    }

    fn read(&mut self, second: i64) -> KernelLog {
        let mut cx = ReadContext::new(&self.host, BootTime(second * 1000), Depth::Full);
        let facts = self.reader.read(&mut cx);
        assert_eq!(cx.faults, []);
        facts[0].downcast_ref::<KernelLog>().unwrap().clone()
    }
}

fn count(log: &KernelLog, driver: MessageSource, kind: MessageKind) -> u64 {
    log.counts.iter().find(|(pair, _)| *pair == (driver, kind)).map_or(0, |(_, count)| *count)
}

const DOWN: &str = "mlx5_core 0000:41:00.0 eth4: Link down";

#[test]
fn a_machine_that_was_restored_or_cloned_says_so() {
    let ring = Arc::new(Ring::default());
    ring.write(1_000_000, "random: crng reseeded due to virtual machine fork");
    let mut logs = Logs::live(&ring);
    assert_eq!(logs.read(7_000).forks, 0, "before the start");
    ring.write(7_001_000_000, "random: crng reseeded on system resumption");
    assert_eq!(logs.read(7_002).forks, 0);
    ring.write(7_003_000_000, "random: crng reseeded due to virtual machine fork");
    assert_eq!((logs.read(7_005).forks, logs.read(7_010).forks), (1, 1));
}

#[test]
fn an_error_that_firmware_took_is_of_rdma_if_an_rdma_driver_names_the_function() {
    let ring = Arc::new(Ring::default());
    let record = |micros, address: &str| {
        ring.write(micros, "{3}[Hardware Error]: event severity: recoverable");
        ring.write(micros, "{3}[Hardware Error]:   section_type: PCIe error");
        ring.write(micros, &format!("{{3}}[Hardware Error]:   device_id: {address}"));
    };
    record(1_000_000, "0000:41:00.0");
    record(1_000_001, "0000:42:00.0");
    ring.write(1_000_002, "mlx5_core 0000:41:00.0: AER: aer_status: 0x00004000, aer_mask: 0x00000000");
    ring.write(1_000_003, "nvme 0000:42:00.0: AER: aer_status: 0x00004000, aer_mask: 0x00000000");
    let log = Logs::live(&ring).read(10);
    let of_rdma: Vec<_> =
        log.groups.iter().map(|group| (group.address.unwrap().to_string(), group.kind, group.of_rdma)).collect();
    assert_eq!(
        of_rdma,
        [
            ("0000:41:00.0".to_owned(), MessageKind::AerNonfatal, true),
            ("0000:42:00.0".to_owned(), MessageKind::AerNonfatal, false)
        ]
    );
}

#[test]
fn what_was_there_at_the_start_is_history() {
    let ring = Arc::new(Ring::default());
    ring.write(1_000_000, DOWN);
    ring.write(4_000_000_000, DOWN);
    let mut logs = Logs::live(&ring);
    let first = logs.read(7_000);
    assert_eq!(count(&first, MessageSource::Mlx5Core, MessageKind::LinkDown), 0);
    assert_eq!(
        first.groups.iter().map(|group| (group.count, group.last())).collect::<Vec<_>>(),
        [(1, Some(BootTime(4_000_000)))]
    );
    ring.write(7_001_000_000, DOWN);
    let second = logs.read(7_005);
    assert_eq!(count(&second, MessageSource::Mlx5Core, MessageKind::LinkDown), 1);
    assert_eq!((second.groups[0].count, second.first, second.last), (2, Some(0), Some(2)));
    assert_eq!(count(&logs.read(7_010), MessageSource::Mlx5Core, MessageKind::LinkDown), 1, "nothing is read twice");
    assert!(logs.read(20_000).groups.is_empty(), "an hour later it is of no matter");
}

#[test]
fn what_comes_while_the_history_is_read_is_new() {
    for (lines, overrun) in [(1, 0), (HOLDS - 100, 0), (2 * HOLDS, 1)] {
        let ring = Arc::new(Ring::default());
        (0..100).for_each(|second| ring.write(second * 1_000_000, DOWN));
        ring.0.lock().unwrap().meanwhile = Some((7, vec![DOWN.to_owned(); lines]));
        let mut logs = Logs::live(&ring);
        let log = logs.read(7_000);
        // Of more than the ring holds, the rest was lost, and this is said.
        let kept = lines.min(HOLDS) as u64;
        assert_eq!((count(&log, MessageSource::Mlx5Core, MessageKind::LinkDown), log.overruns), (kept, overrun));
        ring.write(7_001_000_000, DOWN);
        assert_eq!(count(&logs.read(7_005), MessageSource::Mlx5Core, MessageKind::LinkDown), kept + 1);
    }
}

#[test]
fn a_history_of_several_passes_is_none_of_it_new() {
    let ring = Arc::new(Ring::default());
    ring.0.lock().unwrap().holds = MOST + 100;
    (0..MOST as u64 + 50).for_each(|line| ring.write(line, DOWN));
    let mut logs = Logs::live(&ring);
    for second in [7_000, 7_005, 7_010] {
        assert_eq!(count(&logs.read(second), MessageSource::Mlx5Core, MessageKind::LinkDown), 0);
    }
    ring.write(7_011_000_000, DOWN);
    assert_eq!(count(&logs.read(7_015), MessageSource::Mlx5Core, MessageKind::LinkDown), 1);
}

#[test]
fn a_burst_is_counted_and_bounded_and_what_was_lost_is_said() {
    let ring = Arc::new(Ring::default());
    let mut logs = Logs::live(&ring);
    logs.read(100);
    for line in 0..100_000u64 {
        let (bus, device) = (line % 256, line / 256 % 32);
        ring.write(101_000_000 + line, &format!("mlx5_core 0000:{bus:02x}:{device:02x}.0 eth4: Link down"));
    }
    let log = logs.read(105);
    assert_eq!((log.overruns, log.lost + count(&log, MessageSource::Mlx5Core, MessageKind::LinkDown)), (1, 100_000));
    assert_eq!(count(&log, MessageSource::Mlx5Core, MessageKind::LinkDown), HOLDS as u64);
    assert!(log.groups.len() <= 256 && log.groups.iter().all(|group| group.moments.len() <= 8));
}

#[test]
fn a_recorded_host_stands_at_its_newest_line_or_its_uptime() {
    let host = Arc::new(MemoryHost::new());
    host.set("/kmsg", format!("6,7,1000000,-;{DOWN}\n SUBSYSTEM=pci\n6,8,900000000,-;x\n"));
    let mut logs = Logs::new(host.host());
    assert_eq!(logs.read(86_400).groups[0].last(), Some(BootTime(86_400_000 - 899_000)));
    host.set("/kmsg", format!("6,8,900000000,-;x\n6,9,900500000,-;{DOWN}\n"));
    let log = logs.read(86_460);
    assert_eq!((log.groups[0].count, count(&log, MessageSource::Mlx5Core, MessageKind::LinkDown), log.lost), (2, 1, 0));
    host.set("/proc/uptime", "90000.00 1.00\n");
    assert!(Logs::new(host.host()).read(86_400).groups.is_empty());
}

#[test]
fn lines_that_name_no_device_may_have_one_below() {
    let host = Arc::new(MemoryHost::new());
    let text = "mlx5_port_module_event:1:(pid 0): Port module event[error]: module 0, Cable error, Bus stuck";
    host.set("/kmsg", format!("4,1,1,-;{text}\n SUBSYSTEM=pci\n DEVICE=+pci:0000:5c:00.0\n30,2,2,-;{text}\n"));
    let log = Logs::new(host.host()).read(0);
    let [group] = &*log.groups else { panic!("{log:?}") };
    assert_eq!((group.address, group.count), ("0000:5c:00.0".parse().ok(), 1), "others may write, and do not count");
}

#[test]
fn text_grows_at_its_end() {
    let host = Arc::new(MemoryHost::new());
    host.set("/dmesg.txt", format!("[    1.000000] {DOWN}\n[    2.000000] {DOWN}"));
    let mut logs = Logs::new(host.host());
    assert_eq!(logs.read(10).groups[0].count, 2);
    host.set("/dmesg.txt", format!("[    1.000000] {DOWN}\n[    2.000000] {DOWN}\n[    3.000000] {DOWN}\n"));
    let log = logs.read(15);
    assert_eq!((log.groups[0].count, count(&log, MessageSource::Mlx5Core, MessageKind::LinkDown)), (3, 1));
}

#[test]
fn counts_begin_at_zero_for_the_drivers_that_are_loaded() {
    use MessageSource::{BnxtRe, Ice, Iommu, Irdma, Mlx5Core, Pcieport, Siw};

    let host = Arc::new(MemoryHost::new());
    host.set("/kmsg", "6,7,1000000,-;x\n");
    host.directory("/sys/bus/pci/drivers/ice");
    host.directory("/sys/module/siw");
    let log = Logs::new(host.host()).read(10);
    let has = |driver| log.counts.iter().any(|((other, _), count)| *other == driver && *count == 0);
    assert_eq!([Ice, Irdma, Siw, Pcieport, Iommu].map(has), [true; 5]);
    assert_eq!([Mlx5Core, BnxtRe].map(has), [false; 2]);
}

#[test]
fn no_log_is_nothing_found_and_one_that_is_forbidden_a_fault() {
    let memory = Arc::new(MemoryHost::new());
    let host = memory.host();
    let mut collector = make(&Setup { host: host.clone(), filter: Filter::default() });
    let mut cx = ReadContext::new(&host, BootTime(0), Depth::Full);
    assert_eq!(collector.discover(&mut cx), Ok(Vec::new()));
    memory.fail("/kmsg", Errno::PERM);
    let found = collector.discover(&mut cx).unwrap();
    assert!(collector.open(&found[0]).read(&mut cx).is_empty());
    assert_eq!(cx.faults[0].reason, ReadError::Permission);
}

/// A file that gives a few bytes at a time.
struct Slow(Vec<u8>, usize);

impl OpenFile for Slow {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read_at(0, buffer)
    }

    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let rest = self.0.get(usize::try_from(offset).unwrap()..).unwrap_or_default();
        Ok(buffer.iter_mut().take(self.1).zip(rest).map(|(to, from)| *to = *from).count())
    }
}

proptest! {
    #[test]
    fn no_bytes_break_the_reader(log in proptest::collection::vec(any::<u8>(), 0..300), records in any::<bool>()) {
        let host = Arc::new(MemoryHost::new());
        let path = if records { "/kmsg" } else { "/dmesg.txt" };
        host.set(path, &log[..log.len() / 2]);
        let mut logs = Logs::new(host.host());
        logs.read(10);
        host.set(path, log);
        logs.read(15);
    }

    #[test]
    fn lines_survive_pieces(text in "([a-z\u{e4}; ]{0,20}\n){0,8}[a-z]{0,9}", step in 1usize..40) {
        let mut seen = Vec::new();
        lines(&mut Slow(text.clone().into_bytes(), step), |line| seen.push(line.to_owned())).unwrap();
        prop_assert_eq!(seen, text.lines().map(str::to_owned).collect::<Vec<_>>());
    }
}
