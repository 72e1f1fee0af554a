//! Signs of a migration that a guest itself can see.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use super::paths::PathTracker;
use super::vf::VfMapDraft;
use super::vf::is_proof;
use crate::model::counter::CounterKind;
use crate::model::host::Machine;
use crate::model::ids::PciAddress;
use crate::model::kmsg::KernelLog;
use crate::model::pcie::{FunctionKind, PciFunction};
use crate::model::snapshot::Snapshot;
use crate::model::time::Timestamp;
use crate::model::vfmap::{GuestFunction, Signal, Verification};

/// A step of the wall clock that no slewing makes.
const STEP: Duration = Duration::from_secs(1);

/// How long after boot the clock is being set.
const SETTLE: Duration = Duration::from_secs(10 * 60);

/// What is carried from one pass to the next.
#[derive(Debug, Default)]
pub(super) struct GuestTracker {
    functions: bool,
    clock: Option<Timestamp>,
    forks: Option<u64>,
    paths: PathTracker,
}

impl GuestTracker {
    pub(super) fn observe(&mut self, draft: &mut VfMapDraft<'_>, snapshot: &Snapshot) {
        let machine = snapshot.all::<Machine>().next();
        let clock = self.clock.replace(snapshot.taken);
        if machine.is_none_or(|machine| machine.hypervisor != Some(true)) {
            draft.map.guest.clear();
            draft.map.paths.clear();
            return;
        }
        self.functions_come_and_go(draft, snapshot);
        self.paths.observe(draft, snapshot);
        let settled = snapshot.system().and_then(|system| system.uptime).is_none_or(|uptime| uptime >= SETTLE);
        if let Some(step) = clock.filter(|_| settled).and_then(|before| step(before, snapshot.taken)) {
            let text = format!("the wall clock stepped by {:.1} s against the boot clock", step.as_secs_f64());
            doubt_all(draft, snapshot, Signal::ClockStepped, text);
        }
        let forks = snapshot.all::<KernelLog>().next().map(|log| log.forks);
        if self.forks.zip(forks).is_some_and(|(before, now)| now > before) {
            doubt_all(draft, snapshot, Signal::MachineForked, "the machine was restored or cloned".to_owned());
        }
        self.forks = forks.or(self.forks);
        if let Some(identity) = machine.and_then(|machine| machine.identity.clone()) {
            let before = draft.map.machine.replace(identity.to_string());
            if before.is_some_and(|before| before != *identity) {
                doubt_all(draft, snapshot, Signal::MachineChanged, "the machine's identity changed".to_owned());
            }
        }
        for (address, row) in &mut draft.map.guest {
            let proven = matches!(row.verification, Verification::Unverified { .. })
                && is_proof(row.mark, traffic(snapshot, *address));
            if proven {
                (row.verification, row.mark) = (Verification::Verified(draft.now), None);
            }
        }
    }

    /// A function that appears was probed by its driver: it is known to work.
    fn functions_come_and_go(&mut self, draft: &mut VfMapDraft<'_>, snapshot: &Snapshot) {
        if snapshot.collector("pci").is_none_or(|pci| pci.listed.is_none() || !pci.stuck.is_empty()) {
            return;
        }
        let is_own = |function: &&PciFunction| {
            let virtual_or_plain = matches!(function.kind, FunctionKind::Plain | FunctionKind::Virtual { pf: None });
            virtual_or_plain && function.class.is_some_and(|class| class.0 >> 16 == 0x02)
        };
        let now: BTreeSet<PciAddress> =
            snapshot.all::<PciFunction>().filter(is_own).map(|function| function.address).collect();
        let gone: Vec<PciAddress> = draft.map.guest.keys().copied().filter(|old| !now.contains(old)).collect();
        for address in gone {
            draft.map.guest.remove(&address);
            draft.signal(
                Signal::FunctionRemoved,
                &address.to_string(),
                format!("{address} was removed from this guest"),
            );
        }
        for address in now {
            if draft.map.guest.contains_key(&address) {
                continue;
            }
            let verification =
                if self.functions { Verification::Verified(draft.now) } else { Verification::Undisturbed };
            draft.map.guest.insert(address, GuestFunction { verification, mark: None });
            if self.functions {
                draft.signal(Signal::FunctionAdded, &address.to_string(), format!("{address} was added to this guest"));
            }
        }
        self.functions = true;
    }
}

/// Takes back the trust in every function of this guest.
fn doubt_all(draft: &mut VfMapDraft<'_>, snapshot: &Snapshot, signal: Signal, text: String) {
    draft.signal(signal, "", text);
    for (address, row) in &mut draft.map.guest {
        row.verification = Verification::Unverified { since: draft.now, signal };
        row.mark = traffic(snapshot, *address);
    }
}

/// Bytes that the RDMA devices of a function received and transmitted.
fn traffic(snapshot: &Snapshot, address: PciAddress) -> Option<(u64, u64)> {
    let devices = snapshot.devices().filter(|device| device.identity.pci_address == Some(address));
    let mut sum = None;
    for port in devices.flat_map(|device| &device.ports) {
        let received = port.total(|meaning| match meaning {
            CounterKind::ReceivedBytes { unit } => Some(unit),
            _ => None,
        });
        let sent = port.total(|meaning| match meaning {
            CounterKind::TransmittedBytes { unit } => Some(unit),
            _ => None,
        });
        if let Some((received, sent)) = received.zip(sent) {
            let (a, b) = sum.unwrap_or((0u64, 0u64));
            sum = Some((a.saturating_add(received), b.saturating_add(sent)));
        }
    }
    sum
}

/// How far the wall clock went away from the boot clock between two moments, where that is more than slewing does.
fn step(before: Timestamp, now: Timestamp) -> Option<Duration> {
    let expected: SystemTime = before.wall_time(now.tick);
    let off = now.wall.duration_since(expected).unwrap_or_else(|behind| behind.duration());
    (off >= STEP).then_some(off)
}
