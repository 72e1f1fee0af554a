//! Interrupt vectors: which CPUs serve one (`/proc/irq/<n>/`), whether irqbalance runs and moves it, and how often each CPU
//! served it (from `/proc/interrupts` as a whole, or vector by vector from `/sys/kernel/irq/<n>/per_cpu_count` where that
//! is cheaper and complete).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::super::collector::ReadContext;
use super::super::file::{PolledFile, read_once};
use super::super::io::reason_of;
use super::super::text;
use super::table::{self, RowNames, RowVisitor, TableBuffer};
use crate::model::ids::PciAddress;
use crate::model::irq::{CpuSet, RawCounts};
use crate::model::reading::{ReadError, Reading};

/// What rarely changes is read again after this many passes, or when the effective CPUs have changed.
const SELDOM: u32 = 20;

/// The files of one vector, and their last values.
pub(super) struct VectorAffinity {
    effective_file: PolledFile,
    allowed_file: PolledFile,
    hint_file: PolledFile,
    age: u32,
    /// CPUs that serve it.
    pub(super) effective: Option<Arc<CpuSet>>,
    /// CPUs that may serve it.
    pub(super) allowed: Option<Arc<CpuSet>>,
    /// CPUs that its driver prefers.
    pub(super) hint: Option<Arc<CpuSet>>,
    /// Whether the kernel manages it, so that nobody can change it.
    pub(super) managed: bool,
}

impl VectorAffinity {
    pub(super) fn new(procfs: &Path, irq: u32) -> Self {
        let directory = procfs.join("irq").join(irq.to_string());
        let file = |name| PolledFile::new(directory.join(name));
        Self {
            effective_file: file("effective_affinity_list"),
            allowed_file: file("smp_affinity_list"),
            hint_file: file("affinity_hint"),
            age: 0,
            effective: None,
            allowed: None,
            hint: None,
            managed: false,
        }
    }

    /// Reads the files again. There may be thousands of vectors, so no descriptor stays open.
    pub(super) fn refresh(&mut self, cx: &mut ReadContext<'_>) {
        let before = self.effective.take();
        self.effective = reuse(before.as_ref(), self.effective_file.read(cx, list));
        self.effective_file.close();
        if self.age > 0 && self.age < SELDOM && self.effective == before {
            self.age += 1;
            return;
        }
        self.age = 1;
        let before = self.allowed.take();
        self.allowed = reuse(before.as_ref(), self.allowed_file.read(cx, list));
        self.allowed_file.close();
        let before = self.hint.take();
        self.hint = reuse(before.as_ref(), self.hint_file.read(cx, mask));
        self.hint_file.close();
        // If the mode is unknown, the vector counts as changeable.
        self.managed = matches!(cx.host.io.is_writable(self.allowed_file.path()), Ok(Some(false)));
    }

    pub(super) fn is_quarantined(&self) -> bool {
        [&self.effective_file, &self.allowed_file, &self.hint_file].into_iter().any(PolledFile::is_quarantined)
    }
}

/// The value before where it is the same.
fn reuse(before: Option<&Arc<CpuSet>>, now: Reading<CpuSet>) -> Option<Arc<CpuSet>> {
    let now = now.value()?;
    match before {
        Some(before) if **before == now => Some(Arc::clone(before)),
        _ => Some(Arc::new(now)),
    }
}

/// A list of CPUs; an empty one is absent.
pub(super) fn list(bytes: &[u8]) -> Reading<CpuSet> {
    some(text::parsed(bytes, CpuSet::from_list))
}

/// A mask of CPUs; an empty one is absent.
fn mask(bytes: &[u8]) -> Reading<CpuSet> {
    match some(text::parsed(bytes, CpuSet::from_mask)) {
        Reading::Unreadable(ReadError::Malformed) if bytes.is_empty() => Reading::Absent,
        reading => reading,
    }
}

fn some(reading: Reading<CpuSet>) -> Reading<CpuSet> {
    match reading {
        Reading::Value(set) if set.is_empty() => Reading::Absent,
        reading => reading,
    }
}

/// Processes are searched once in this many passes: a host has many.
const PROCESS_SCAN_INTERVAL: u32 = 40;

/// Detects irqbalance: by its socket in `/run`, or its process.
#[derive(Debug, Default)]
pub(super) struct IrqbalanceDetector {
    passes: u32,
    process: Option<PathBuf>,
}

impl IrqbalanceDetector {
    /// Whether it runs. An unreadable file counts as absent.
    pub(super) fn is_running(&mut self, cx: &mut ReadContext<'_>) -> bool {
        let scan = self.passes.is_multiple_of(PROCESS_SCAN_INTERVAL);
        self.passes = self.passes.wrapping_add(1);
        self.process = self.process.take().filter(|comm| is_irqbalance(cx, comm));
        if self.process.is_some() {
            return true;
        }
        if scan {
            let names = cx.host.io.list(&cx.host.procfs).unwrap_or_default();
            let processes = names.iter().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
            let mut comms = processes.map(|name| cx.host.procfs.join(name).join("comm"));
            self.process = comms.find(|comm| is_irqbalance(cx, comm));
        }
        self.process.is_some() || has_socket(cx)
    }
}

fn is_irqbalance(cx: &ReadContext<'_>, comm: &Path) -> bool {
    let mut name = [0; 16];
    let length = cx.host.io.open(comm).and_then(|mut file| file.read(&mut name));
    length.is_ok_and(|length| name.get(..length).is_some_and(|name| name.trim_ascii() == b"irqbalance"))
}

fn has_socket(cx: &ReadContext<'_>) -> bool {
    let run = cx.host.beside("run");
    let listed = |path: PathBuf| cx.host.io.list(&path).unwrap_or_default();
    // irqbalance names it `irqbalance<pid>.sock`.
    let socket = |name: &String| name.strip_prefix("irqbalance").is_some_and(|rest| rest.contains(".sock"));
    listed(run.join("irqbalance")).iter().any(socket) || listed(run).iter().any(socket)
}

/// A vector's own file costs about as much as this many rows of the table: an open, and a count for each possible CPU.
const ROWS_A_FILE: usize = 8;

/// The rows of the table are counted again after this many passes.
const RECOUNT: u32 = 40;

/// Counts and action names of one vector.
#[derive(Debug, Clone, Default)]
pub(super) struct VectorCounts {
    /// Counts by CPU.
    pub(super) counts: Option<RawCounts>,
    /// Names of its actions.
    pub(super) actions: Option<Arc<str>>,
}

/// A function whose vectors are known only by their names.
pub(super) struct UnlistedFunction {
    pub(super) address: PciAddress,
    pub(super) text: String,
    pub(super) interfaces: Vec<String>,
}

/// Reads counts.
#[derive(Default)]
pub(super) struct VectorCounter {
    buffer: TableBuffer,
    passes: u32,
    /// Number of rows in the table, if vectors have files of their own.
    rows: Option<usize>,
    possible: Option<CpuSet>,
    /// A vector's file was cut off before its last CPU: files end at a page.
    cut_off: bool,
}

impl VectorCounter {
    /// Counts these vectors; with functions whose vectors are not listed, finds those too.
    pub(super) fn read(
        &mut self,
        cx: &mut ReadContext<'_>,
        wanted: &[u32],
        unlisted: &[UnlistedFunction],
        known: &BTreeMap<u32, VectorCounts>,
    ) -> (BTreeMap<u32, VectorCounts>, Vec<(PciAddress, u32)>) {
        if unlisted.is_empty() && self.files_are_cheaper(cx, wanted.len()) {
            if let Some(counted) = self.read_files(cx, wanted, known) {
                return (counted, Vec::new());
            }
            self.cut_off = true;
        }
        self.read_table(cx, wanted, unlisted, known)
    }

    fn files_are_cheaper(&mut self, cx: &mut ReadContext<'_>, wanted: usize) -> bool {
        if self.passes.is_multiple_of(RECOUNT) {
            let listed = cx.host.io.list(&cx.host.sysfs.join("kernel/irq"));
            self.rows = listed.ok().map(|names| names.len());
            let mut possible = PolledFile::new(cx.host.sysfs.join("devices/system/cpu/possible"));
            self.possible = possible.read(cx, list).value();
        }
        self.passes = self.passes.wrapping_add(1);
        !self.cut_off && self.possible.is_some() && self.rows.is_some_and(|rows| wanted * ROWS_A_FILE < rows)
    }

    /// `None` if a file lacks the count of a possible CPU.
    fn read_files(
        &self,
        cx: &mut ReadContext<'_>,
        wanted: &[u32],
        known: &BTreeMap<u32, VectorCounts>,
    ) -> Option<BTreeMap<u32, VectorCounts>> {
        let possible: Vec<u32> = self.possible.as_ref()?.iter().take(1 << 16).collect();
        let mut counted = BTreeMap::new();
        for irq in wanted {
            let directory = cx.host.sysfs.join("kernel/irq").join(irq.to_string());
            let counts = PolledFile::new(directory.join("per_cpu_count")).read(cx, |text| per_cpu(text, &possible));
            let counts = match counts {
                Reading::Value(Some(counts)) => Some(counts),
                Reading::Value(None) => return None,
                Reading::Absent | Reading::Unreadable(_) => None,
            };
            let actions = match known.get(irq).and_then(|known| known.actions.clone()) {
                Some(actions) => Some(actions),
                None => read_once(cx, &directory.join("actions"), text::label),
            };
            counted.insert(*irq, VectorCounts { counts, actions });
        }
        Some(counted)
    }

    fn read_table(
        &mut self,
        cx: &mut ReadContext<'_>,
        wanted: &[u32],
        unlisted: &[UnlistedFunction],
        known: &BTreeMap<u32, VectorCounts>,
    ) -> (BTreeMap<u32, VectorCounts>, Vec<(PciAddress, u32)>) {
        let mut taker = VectorRows { wanted, unlisted, known, counted: BTreeMap::new(), claimed: Vec::new() };
        let path = cx.host.procfs.join("interrupts");
        let file = cx.host.io.open(&path);
        let outcome = file.and_then(|mut file| table::read(&mut *file, &mut self.buffer, &mut taker));
        if let Err(error) = outcome
            && let Some(reason) = reason_of(&error)
        {
            cx.fault(&path, reason);
        }
        (taker.counted, taker.claimed)
    }
}

/// `0,12,0,4294967295`: a count for each of these CPUs. The inner `None` means that there are fewer.
fn per_cpu(bytes: &[u8], possible: &[u32]) -> Reading<Option<RawCounts>> {
    let counts = bytes.split(|byte| *byte == b',').map(|count| u32::try_from(text::parse_decimal(count)?).ok());
    let Some(counts) = counts.collect::<Option<Vec<u32>>>() else {
        // The page may end after the last comma.
        let cut = bytes.last() == Some(&b',');
        return if cut { Reading::Value(None) } else { Reading::Unreadable(ReadError::Malformed) };
    };
    if counts.len() != possible.len() {
        return Reading::Value(None);
    }
    let some = possible.iter().copied().zip(counts).filter(|(_, count)| *count > 0);
    Reading::Value(Some(some.collect()))
}

/// Takes the rows of the vectors that are wanted.
struct VectorRows<'a> {
    /// By number, in order.
    wanted: &'a [u32],
    unlisted: &'a [UnlistedFunction],
    known: &'a BTreeMap<u32, VectorCounts>,
    counted: BTreeMap<u32, VectorCounts>,
    claimed: Vec<(PciAddress, u32)>,
}

impl RowVisitor for VectorRows<'_> {
    fn wants(&mut self, irq: u32) -> bool {
        self.wanted.binary_search(&irq).is_ok()
    }

    fn wants_named(&mut self, irq: u32, names: &RowNames<'_>) -> bool {
        let own = |function: &&UnlistedFunction| table::belongs(names, &function.text, &function.interfaces);
        let owner = self.unlisted.iter().find(own).map(|function| function.address);
        self.claimed.extend(owner.map(|address| (address, irq)));
        owner.is_some()
    }

    fn row(&mut self, irq: u32, counts: Option<&[(u32, u32)]>, names: &RowNames<'_>) {
        let known = self.known.get(&irq).and_then(|known| known.actions.as_ref());
        let actions = match known {
            _ if names.actions.is_empty() => None,
            Some(known) if **known == *names.actions => Some(Arc::clone(known)),
            _ => Some(Arc::from(names.actions)),
        };
        self.counted.insert(irq, VectorCounts { counts: counts.map(RawCounts::from), actions });
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_parse_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64), like in "[0-9a-f,-]{0,40}") {
            let _ = (list(&bytes), mask(&bytes), list(like.as_bytes()), mask(like.as_bytes()));
        }

        #[test]
        fn a_mask_and_a_list_of_the_same_are_the_same(mask_of in 1u32..) {
            let cpus: Vec<String> = (0..32).filter(|cpu| mask_of >> cpu & 1 == 1).map(|cpu| cpu.to_string()).collect();
            prop_assert_eq!(mask(format!("{mask_of:08x}").as_bytes()), list(cpus.join(",").as_bytes()));
        }
    }
}

#[cfg(test)]
mod counts_tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_list_cut_off_at_a_page_is_incomplete() {
        let counts = |text: &str| per_cpu(text.as_bytes(), &[0, 1, 4]);
        assert_eq!(counts("1,0,4294967295"), Reading::Value(Some(RawCounts::from([(0, 1), (4, u32::MAX)]))));
        assert_eq!(counts("1,0"), Reading::Value(None));
        assert_eq!(counts("1,0,"), Reading::Value(None));
        assert_eq!(counts("1,0,2,3"), Reading::Value(None));
        for wrong in ["", "1,0,x", "1,,2", "4294967296,0,0"] {
            assert_eq!(counts(wrong), Reading::Unreadable(ReadError::Malformed), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_parse_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = per_cpu(&bytes, &[0, 1]);
        }
    }
}
