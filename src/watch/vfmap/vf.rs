//! One VF from pass to pass, and the VF map while a pass is being applied.

use std::time::{Duration, SystemTime};

use super::super::history_event::HistoryEvent;
use crate::assess::vf::holders::{HolderSources, ResolvedHolder};
use crate::model::finding::EventKind;
use crate::model::holder::Holder;
use crate::model::ids::PciAddress;
use crate::model::sriov::{Pf, Vf, VfKey};
use crate::model::vfmap::{MappedVf, Signal, Tenure, Verification, VfIdentity, VfMap};

/// Traffic in both directions that shows that a function moves data: connections are set up with far less.
const PROOF: u64 = 1 << 20;

/// How long after a VF was taken its configuration is still being made.
const SET_UP: Duration = Duration::from_secs(120);

/// Bytes received and transmitted.
pub(super) fn traffic(vf: &Vf) -> Option<(u64, u64)> {
    let traffic = vf.traffic?;
    traffic.received_bytes.zip(traffic.transmitted_bytes)
}

/// Whether so much was moved both ways since a mark.
pub(super) fn is_proof(mark: Option<(u64, u64)>, now: Option<(u64, u64)>) -> bool {
    mark.zip(now).is_some_and(|((received, sent), (now_received, now_sent))| {
        now_received.saturating_sub(received) >= PROOF && now_sent.saturating_sub(sent) >= PROOF
    })
}

/// Takes a VF into the map. `announce`: the PF was known before, so that a VF which is new is news.
pub(super) fn observe(
    draft: &mut VfMapDraft<'_>,
    sources: &HolderSources<'_>,
    pf: &Pf,
    vf: &Vf,
    pf_reprobed: bool,
    announce: bool,
) {
    let key = VfKey { pf: pf.address, vf: vf.number };
    let known = draft.map.vfs.get(&key).cloned();
    let is_new = known.is_none();
    // One that was removed under its user and made again has that past, whether the gap was seen or not.
    let before = known.or_else(|| draft.map.gone.remove(&key));
    let present = before.as_ref().and_then(|before| before.tenure.as_ref()?.pid);
    let resolved = sources.holder(vf, present);
    let identity = vf.config.as_ref().map(VfIdentity::of).or(before.as_ref().map(|before| before.identity));
    let last_known = match &resolved.holder {
        Holder::Unknown(_) => before.as_ref().and_then(|before| before.last_known.clone()),
        holder => Some(holder.clone()),
    };
    let mut mapped = MappedVf {
        address: vf.address,
        driver: vf.driver.clone(),
        iommu_group: vf.iommu_group,
        identity: identity.unwrap_or_default(),
        holder: resolved.holder.clone(),
        last_known,
        lost_by: before.as_ref().and_then(|before| before.lost_by.clone()),
        tenure: before.as_ref().and_then(|before| before.tenure.clone()),
        verification: before.as_ref().map(|before| before.verification).unwrap_or_default(),
        instance: Some(vf.instance),
        mark: before.as_ref().and_then(|before| before.mark),
    };
    let change = update_tenure(&mut mapped, vf, &resolved, draft.now);
    if is_new && announce {
        draft.changed(key.pf, &key.to_string(), format!("{key} appeared"));
    }
    let Some(before) = before else {
        draft.map.vfs.insert(key, mapped);
        return;
    };
    let claimed = vf.address.is_some_and(|address| sources.live_claims(address).next().is_some());
    update_loss(&mut mapped, &before, sources);
    let signal = disturbance(&before, &mapped, change, claimed, pf_reprobed);
    verify(&mut mapped, &before, vf, change, claimed, draft.now);
    let difference = difference(&before, &mapped).filter(|_| !is_new);
    draft.map.vfs.insert(key, mapped);
    if let Some(text) = difference {
        draft.changed(key.pf, &key.to_string(), format!("{key}: {text}"));
    }
    if let Some(signal) = signal {
        // The PF's own signal is counted once, at the PF.
        if signal != Signal::PfReprobed {
            draft.signal(signal, &key.to_string(), format!("{key} {}", signal.about()));
        }
        draft.doubt(key, signal, traffic(vf));
    }
}

/// What happened to the tenure in a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TenureChange {
    /// It goes on, or there is none.
    None,
    /// Another holder, as far as can be seen by name.
    Named,
    /// Another process: it opened the function, and by that reset it.
    Opened,
}

/// Begins and ends tenures. What is unknown now ends nothing.
fn update_tenure(mapped: &mut MappedVf, vf: &Vf, resolved: &ResolvedHolder, now: SystemTime) -> TenureChange {
    match resolved.holder {
        Holder::Unknown(_) => return TenureChange::None,
        Holder::None => {
            mapped.tenure = None;
            return TenureChange::None;
        }
        _ => {}
    }
    let change = match &mapped.tenure {
        Some(tenure) if tenure.pid.is_some() && resolved.pid.is_some() && tenure.pid != resolved.pid => {
            TenureChange::Opened
        }
        // The process is the same, whatever it is called now.
        Some(tenure) if tenure.holder == resolved.holder || (resolved.pid.is_some() && tenure.pid == resolved.pid) => {
            TenureChange::None
        }
        None if resolved.pid.is_some() => TenureChange::Opened,
        Some(_) | None => TenureChange::Named,
    };
    if change == TenureChange::None {
        if let Some(tenure) = &mut mapped.tenure {
            let being_set_up = now.duration_since(tenure.since).is_ok_and(|time| time < SET_UP);
            tenure.pid = resolved.pid.or(tenure.pid);
            tenure.holder = resolved.holder.clone();
            if being_set_up || tenure.identity.is_empty() {
                tenure.identity = mapped.identity;
            }
            tenure.config = if being_set_up { vf.config.or(tenure.config) } else { tenure.config.or(vf.config) };
        }
    } else {
        mapped.tenure = Some(Tenure {
            holder: resolved.holder.clone(),
            pid: resolved.pid,
            since: now,
            identity: mapped.identity,
            config: vf.config,
            arrival: false,
        });
    }
    change
}

/// A pod or namespace whose VF was removed has lost it, even if another function has its number now and this host's
/// driver works with that one. It ends when the pod does, or has a VF of this number again.
fn update_loss(mapped: &mut MappedVf, before: &MappedVf, sources: &HolderSources<'_>) {
    if let Some(user) =
        before.tenure.as_ref().filter(|tenure| matches!(tenure.holder, Holder::Pod(_) | Holder::Netns(_)))
        && is_remade(before, mapped)
        && mapped.holder != user.holder
    {
        mapped.lost_by = Some(user.holder.clone());
    }
    let ended = |user: &Holder| mapped.holder == *user || sources.lives(user, None) == Some(false);
    if mapped.lost_by.as_ref().is_some_and(ended) {
        mapped.lost_by = None;
    }
}

/// Whether it is another making of the function, as far as both are known.
fn is_remade(before: &MappedVf, now: &MappedVf) -> bool {
    before.instance.zip(now.instance).is_some_and(|(before, now)| before != now)
}

/// What shows that a VF works for the one who has it now. What this host's driver does with it is no proof for a guest.
fn verify(mapped: &mut MappedVf, before: &MappedVf, vf: &Vf, change: TenureChange, claimed: bool, now: SystemTime) {
    let Verification::Unverified { signal, .. } = mapped.verification else { return };
    let unused = matches!(mapped.holder, Holder::None | Holder::Host(_)) && !claimed && mapped.lost_by.is_none();
    let traffic = traffic(vf);
    // After a restart there is no mark, and one above what is counted now is of counters that began anew.
    let is_past = |(mark, now): ((u64, u64), (u64, u64))| mark.0 <= now.0 && mark.1 <= now.1;
    if !mapped.mark.zip(traffic).is_some_and(is_past) {
        mapped.mark = traffic.or(mapped.mark);
    }
    let expected = mapped.tenure.as_ref().map(|tenure| tenure.identity);
    let configured = matches!(signal, Signal::PfReprobed | Signal::GroupRenumbered)
        && before.identity != mapped.identity
        && !mapped.identity.is_empty()
        && expected == Some(mapped.identity);
    if unused {
        // Nobody is left who could be disturbed.
        (mapped.verification, mapped.mark) = (Verification::Undisturbed, None);
    } else if mapped.lost_by.is_none()
        && (change == TenureChange::Opened || configured || is_proof(mapped.mark, traffic))
    {
        (mapped.verification, mapped.mark) = (Verification::Verified(now), None);
    }
}

/// What happened to a VF under a guest that calls for a proof.
fn disturbance(
    before: &MappedVf,
    mapped: &MappedVf,
    change: TenureChange,
    claimed: bool,
    pf_reprobed: bool,
) -> Option<Signal> {
    let guest = before.tenure.as_ref().filter(|tenure| tenure.holder.is_guest())?;
    let remade = is_remade(before, mapped);
    if mapped.lost_by.is_some() {
        return (before.lost_by.is_none() && remade).then_some(Signal::VfRecreated);
    }
    let left = matches!(mapped.holder, Holder::None | Holder::Host(_));
    if left && before.last_known.as_ref() == Some(&guest.holder) && claimed {
        // Its owner still claims it.
        return Some(Signal::HolderChanged);
    }
    if left {
        return None;
    }
    let bound = mapped.driver != before.driver;
    let handed = mapped.holder.is_guest() && mapped.holder != guest.holder;
    let renumbered = before.iommu_group.zip(mapped.iommu_group).is_some_and(|(before, now)| before != now);
    match change {
        TenureChange::Named if handed && !remade && !bound => Some(Signal::HolderChanged),
        TenureChange::None if remade => Some(Signal::VfRecreated),
        TenureChange::None if pf_reprobed => Some(Signal::PfReprobed),
        TenureChange::None if renumbered => Some(Signal::GroupRenumbered),
        _ => None,
    }
}

/// What changed, in words; `None` if nothing did. A holder that is unknown now is no change; one that is known again is
/// compared with the last that was.
fn difference(before: &MappedVf, now: &MappedVf) -> Option<String> {
    let mut parts = Vec::new();
    let text = |value: Option<&str>| value.unwrap_or("none").to_owned();
    let mut part = |name: &str, old: String, new: String| {
        if old != new {
            parts.push(format!("{name} {old} became {new}"));
        }
    };
    let address = |vf: &MappedVf| vf.address.map_or("none".to_owned(), |address| address.to_string());
    part("address", address(before), address(now));
    part("driver", text(before.driver.as_deref()), text(now.driver.as_deref()));
    let group = |vf: &MappedVf| vf.iommu_group.map_or("none".to_owned(), |group| group.to_string());
    part("IOMMU group", group(before), group(now));
    part("identity", before.identity.to_string(), now.identity.to_string());
    // The name of the same holder may become known later.
    if let (Some(old), Some(new)) = (&before.last_known, &now.last_known)
        && old != new
    {
        part("holder", old.to_string(), new.to_string());
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// The map while a pass is taken in.
pub(super) struct VfMapDraft<'a> {
    pub(super) map: &'a mut VfMap,
    pub(super) now: SystemTime,
    pub(super) news: Vec<HistoryEvent>,
}

impl VfMapDraft<'_> {
    /// Counts a signal and says so.
    pub(super) fn signal(&mut self, signal: Signal, subject: &str, text: String) {
        let seen = self.map.signals.entry(signal).or_default();
        seen.count += 1;
        seen.last = Some(self.now);
        self.news.push((EventKind::Migration, subject.to_owned(), text));
    }

    /// Counts a signal that came so often since the last pass, and says so once.
    pub(super) fn signals(&mut self, signal: Signal, count: u64, subject: &str, text: String) {
        if count == 0 {
            return;
        }
        self.signal(signal, subject, text);
        self.map.signals.entry(signal).or_default().count += count - 1;
    }

    /// Says that something in the map changed, and counts its generation.
    pub(super) fn changed(&mut self, pf: PciAddress, key: &str, text: String) {
        self.news.push((EventKind::VfChanged, key.to_owned(), text));
        let row = self.map.pfs.entry(pf).or_default();
        row.generation += 1;
        row.changed = Some(self.now);
    }

    /// Takes back the trust in a VF until something shows that it works.
    pub(super) fn doubt(&mut self, key: VfKey, signal: Signal, traffic: Option<(u64, u64)>) {
        if let Some(row) = self.map.vfs.get_mut(&key) {
            row.verification = Verification::Unverified { since: self.now, signal };
            row.mark = traffic;
        }
    }
}
