//! What tests of checks share: a view of facts without expectations, and facts.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::time::SystemTime;

use super::View;
use super::capacity::HostCapacity;
use crate::model::history::History;
use crate::model::module::{CableTechnology, Module, ModuleForm, ModuleIdentity, ModuleLimits};
use crate::model::pcie::PciFunction;
use crate::model::policy::Policy;
use crate::model::snapshot::{Fact, Snapshot};
use crate::model::time::{BootTime, Timestamp};
use crate::model::topology::Topology;

/// What is made of these facts alone.
pub(super) fn seen<T>(facts: Vec<Fact>, judge: impl FnOnce(&View<'_>) -> T) -> T {
    seen_after(facts, |_| History::default(), judge)
}

/// The same with a past.
pub(super) fn seen_after<T>(
    facts: Vec<Fact>,
    past: impl FnOnce(&Snapshot) -> History,
    judge: impl FnOnce(&View<'_>) -> T,
) -> T {
    let stamp = Timestamp { tick: BootTime(0), wall: SystemTime::UNIX_EPOCH };
    let snapshot = Snapshot::new(stamp, facts, Vec::new());
    let topology = Topology::new(snapshot.all::<PciFunction>());
    let (lanes, history, policy) = (HostCapacity::new(&snapshot, &topology), past(&snapshot), Policy::default());
    judge(&View {
        snapshot: &snapshot,
        topology: &topology,
        lanes: &lanes,
        history: &history,
        policy: &policy,
        instant: false,
    })
}

/// An optical module of which nothing else is known.
pub(super) fn module(netdev: &str, address: &str) -> Module {
    let identity = ModuleIdentity {
        form: ModuleForm::Osfp,
        technology: CableTechnology::Optical,
        vendor: None,
        part_number: None,
        serial_number: None,
        revision: None,
        firmware_version: None,
        length: None,
    };
    Module {
        netdev: Arc::from(netdev),
        pci_address: address.parse().unwrap(),
        identity: Arc::new(identity),
        limits: ModuleLimits::default(),
        values: None,
        at: BootTime(0),
    }
}
