//! How often each CPU served each vector: from `/proc/interrupts` as a whole, or vector by vector from
//! `/sys/kernel/irq/<n>/per_cpu_count` where that is cheaper and says all.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::affinity::list;
use super::table::{self, RowNames, RowVisitor, TableBuffer};
use crate::host::collector::ReadContext;
use crate::host::file::PolledFile;
use crate::host::io::reason_of;
use crate::host::text;
use crate::model::ids::PciAddress;
use crate::model::irq::CpuSet;
use crate::model::irq::RawCounts;
use crate::model::reading::{ReadError, Reading};

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
                None => PolledFile::new(directory.join("actions")).read(cx, text::label).value(),
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
