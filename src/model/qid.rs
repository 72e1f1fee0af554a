//! Queue pair maps that some stacks outside of the kernel's tree show: which number on the wire stands for which of a
//! VF's own.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::ids::PciAddress;
use super::reading::ReadError;

/// Entries of one VF by state, in the stack's own words.
pub type QueueStates = BTreeMap<Arc<str>, u64>;

/// The map of one PF.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QidMap {
    /// The PF.
    pub pf: PciAddress,
    /// Entries by VF and state; a VF without any is not in it.
    pub vfs: BTreeMap<u32, QueueStates>,
    /// Global numbers that stand in more than one entry, and the VFs of those entries in order.
    pub twice: Vec<(u64, Vec<u32>)>,
    /// Why something could not be read, so that a VF which is missing may be there.
    pub trouble: Option<ReadError>,
}

impl QidMap {
    /// Entries of all VFs by state.
    pub fn states(&self) -> QueueStates {
        let mut all = QueueStates::new();
        for (state, count) in self.vfs.values().flatten() {
            *all.entry(Arc::clone(state)).or_default() += count;
        }
        all
    }
}
