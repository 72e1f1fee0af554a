//! What tests of checks share: a view of facts without a past and without expectations.

use std::time::SystemTime;

use super::View;
use super::capacity::HostCapacity;
use crate::model::history::History;
use crate::model::pcie::PciFunction;
use crate::model::policy::Policy;
use crate::model::snapshot::{Fact, Snapshot};
use crate::model::time::{BootTime, Timestamp};
use crate::model::topology::Topology;

/// What is made of these facts alone.
pub(super) fn seen<T>(facts: Vec<Fact>, judge: impl FnOnce(&View<'_>) -> T) -> T {
    let stamp = Timestamp { tick: BootTime(0), wall: SystemTime::UNIX_EPOCH };
    let snapshot = Snapshot::new(stamp, facts, Vec::new());
    let topology = Topology::new(snapshot.all::<PciFunction>());
    let (lanes, history, policy) = (HostCapacity::new(&snapshot, &topology), History::default(), Policy::default());
    judge(&View {
        snapshot: &snapshot,
        topology: &topology,
        lanes: &lanes,
        history: &history,
        policy: &policy,
        instant: false,
    })
}
