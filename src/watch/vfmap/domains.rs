//! Virtual machines from pass to pass: which came, which went, and which came from elsewhere with their VFs.
//!
//! Libvirt writes the status of a machine that is moved here in steps (paused / starting up, paused / migration,
//! running / migrated, and later unpaused), QEMU opens the VF somewhere in between, and a pass sees any part of that. So
//! nothing here rests on the order: that a guest came from elsewhere is a fact about one start of the machine, whenever
//! it is learned, and it is held against every VF that this start has, whenever that is opened.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::vf::VfMapDraft;
use super::vf::traffic;
use crate::assess::vf::holders::HolderSources;
use crate::model::finding::EventKind;
use crate::model::holder::{Domain, Holder, Openers};
use crate::model::ids::PciAddress;
use crate::model::snapshot::Snapshot;
use crate::model::sriov::{Pf, Vf, VfKey};
use crate::model::vfmap::{DomainRecord, Signal, Verification};

/// Takes in which machines run, and asks for a proof from the VFs of those that came from elsewhere.
pub(super) fn observe(draft: &mut VfMapDraft<'_>, sources: &HolderSources<'_>, snapshot: &Snapshot) {
    let vfs: BTreeMap<PciAddress, (VfKey, &Vf)> = snapshot
        .all::<Pf>()
        .flat_map(|pf| pf.vfs.iter().map(move |vf| (VfKey { pf: pf.address, vf: vf.number }, vf)))
        .filter_map(|(key, vf)| Some((vf.address?, (key, vf))))
        .collect();
    if let Some(libvirt) = sources.libvirt {
        let running = running(sources, snapshot);
        come_and_go(draft, &running, libvirt.readable, |address| vfs.contains_key(address));
    }
    ask_for_proof(draft, &vfs);
}

/// A machine that runs, by libvirt and by the command line of its QEMU.
#[derive(Default)]
struct Running {
    pid: Option<u32>,
    id: Option<u32>,
    arrived: bool,
    settled: bool,
    claims: BTreeSet<PciAddress>,
    opens: bool,
}

fn running(sources: &HolderSources<'_>, snapshot: &Snapshot) -> BTreeMap<Arc<str>, Running> {
    let mut running: BTreeMap<Arc<str>, Running> = BTreeMap::new();
    let libvirt = sources.libvirt.into_iter().filter(|libvirt| libvirt.readable).flat_map(|libvirt| &libvirt.domains);
    for domain in libvirt.filter(|domain| domain.live) {
        running.entry(Arc::clone(&domain.name)).or_default().add(domain);
    }
    for openers in snapshot.all::<Openers>() {
        for machine in &openers.machines {
            running.entry(Arc::clone(&machine.name)).or_default().add(machine);
        }
        for opener in &openers.openers {
            if let Some(name) = &opener.domain {
                let machine = running.entry(Arc::clone(name)).or_default();
                machine.opens = true;
                machine.pid = machine.pid.or(Some(opener.pid));
            }
        }
    }
    running
}

impl Running {
    fn add(&mut self, domain: &Domain) {
        // After a migration within one host two QEMUs have one name for a moment: libvirt's word comes first.
        if self.pid.is_some() && domain.pid.is_some() && self.pid != domain.pid {
            return;
        }
        self.pid = self.pid.or(domain.pid);
        self.id = self.id.or(domain.id);
        self.arrived |= domain.arrived();
        self.settled |= domain.is_settled();
        self.claims.extend(domain.claims.iter().map(|claim| claim.address));
    }
}

impl DomainRecord {
    /// Whether this is the start of the machine that is seen now.
    fn is_of(&self, now: &Running) -> bool {
        fn differs(before: Option<u32>, now: Option<u32>) -> bool {
            before.zip(now).is_some_and(|(before, now)| before != now)
        }
        !differs(self.id, now.id) && !differs(self.pid, now.pid)
    }

    fn take(&mut self, now: &Running, holds: bool) {
        if self.settled {
            self.attached.extend(now.claims.difference(&self.claims));
        }
        self.attached.retain(|address| now.claims.contains(address));
        self.pid = now.pid.or(self.pid);
        self.id = now.id.or(self.id);
        self.arrived |= now.arrived;
        self.settled |= now.settled;
        self.holds |= holds;
        self.claims.clone_from(&now.claims);
    }
}

fn come_and_go(
    draft: &mut VfMapDraft<'_>,
    running: &BTreeMap<Arc<str>, Running>,
    complete: bool,
    is_vf: impl Fn(&PciAddress) -> bool,
) {
    let before = draft.map.domains.take();
    let is_first = before.is_none();
    let mut records = before.unwrap_or_default();
    for (name, now) in running {
        let holds = now.opens || now.claims.iter().any(&is_vf);
        let known = records.get(name).filter(|record| record.is_of(now)).cloned();
        if known.is_none() && records.get(name).is_some_and(|record| record.holds) {
            draft.signal(Signal::DomainGone, name, format!("VM {name} stopped; it used VFs"));
        }
        let (held, arrived) = known.as_ref().map_or((false, false), |record| (record.holds, record.arrived));
        let mut record = known.unwrap_or_default();
        record.take(now, holds);
        // One that runs when watching begins may have come long ago; one that is still on its way has not.
        record.arrived_unseen |= is_first && (now.settled || now.id.is_none());
        if !is_first && record.holds && !held {
            let how = if record.arrived { ", moved or restored here" } else { "" };
            draft.signal(Signal::DomainAppeared, name, format!("VM {name} appeared with VFs{how}"));
        } else if record.holds && record.arrived && !arrived && !record.arrived_unseen {
            let text = format!("VM {name} was moved or restored here with its VFs");
            draft.news.push((EventKind::Migration, name.to_string(), text));
        }
        records.insert(Arc::clone(name), record);
    }
    // Where libvirt's files cannot be read, only a process that is seen tells that a machine runs.
    let stopped: Vec<Arc<str>> =
        records.keys().filter(|name| complete && !running.contains_key(*name)).map(Arc::clone).collect();
    for name in stopped {
        if records.remove(&name).is_some_and(|record| record.holds) {
            draft.signal(Signal::DomainGone, &name, format!("VM {name} stopped; it used VFs"));
        }
    }
    draft.map.domains = Some(records);
}

/// A VF that came with its guest has to show that it works here, once for each time that it was taken.
fn ask_for_proof(draft: &mut VfMapDraft<'_>, vfs: &BTreeMap<PciAddress, (VfKey, &Vf)>) {
    let Some(records) = &draft.map.domains else { return };
    for (key, vf) in vfs.values() {
        let Some(mapped) = draft.map.vfs.get_mut(key) else { continue };
        let (Holder::Vm(vm), Some(tenure)) = (&mapped.holder, &mut mapped.tenure) else { continue };
        let Some(record) = records.get(&vm.domain).filter(|record| record.arrived) else { continue };
        if tenure.arrival || mapped.address.is_some_and(|address| record.attached.contains(&address)) {
            continue;
        }
        tenure.arrival = true;
        if !record.arrived_unseen {
            mapped.verification = Verification::Unverified { since: draft.now, signal: Signal::DomainAppeared };
            mapped.mark = traffic(vf);
        }
    }
}
