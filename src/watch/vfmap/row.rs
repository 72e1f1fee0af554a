//! One VF from pass to pass.

use std::time::{Duration, SystemTime};

use super::VfMapDraft;
use crate::assess::vf::holders::{HolderSources, ResolvedHolder};
use crate::model::holder::Holder;
use crate::model::sriov::{Pf, Vf, VfKey};
use crate::model::vfmap::{MappedVf, Signal, Tenure, Verification, VfIdentity};

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
    let held = sources.holder(vf);
    let before = draft.map.vfs.get(&key).cloned();
    let identity =
        vf.config.as_ref().map_or_else(|| before.as_ref().map(|row| row.identity), |c| Some(VfIdentity::of(c)));
    let mut row = MappedVf {
        address: vf.address,
        driver: vf.driver.clone(),
        iommu_group: vf.iommu_group,
        identity: identity.unwrap_or_default(),
        holder: held.holder.clone(),
        tenure: before.as_ref().and_then(|row| row.tenure.clone()),
        verification: before.as_ref().map(|row| row.verification).unwrap_or_default(),
        instance: Some(vf.instance),
        mark: before.as_ref().and_then(|row| row.mark),
    };
    let begun = settle_tenure(&mut row, vf, &held, draft.now);
    let Some(before) = before else {
        draft.map.vfs.insert(key, row);
        if announce {
            draft.changed(key.pf, &key.to_string(), format!("{key} appeared"));
        }
        return;
    };
    let claimed = vf.address.is_some_and(|address| sources.live_claims(address).next().is_some());
    settle_trust(&mut row, &before, vf, begun, claimed, draft.now);
    let signal = disturbance(&before, &row, begun, claimed, pf_reprobed);
    let difference = difference(&before, &row);
    draft.map.vfs.insert(key, row);
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

/// How a holding started in this pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HoldingStart {
    /// The holding goes on, or there is none.
    None,
    /// The holder has another name; its process may be the same.
    NewHolder,
    /// Another process opened the function, which resets it.
    NewProcess,
}

/// Begins and ends tenures. What is unknown now ends nothing.
fn settle_tenure(row: &mut MappedVf, vf: &Vf, held: &ResolvedHolder, now: SystemTime) -> HoldingStart {
    match held.holder {
        Holder::Unknown(_) => return HoldingStart::None,
        Holder::None => {
            row.tenure = None;
            return HoldingStart::None;
        }
        _ => {}
    }
    let begun = match &row.tenure {
        Some(tenure) if tenure.pid.is_some() && held.pid.is_some() && tenure.pid != held.pid => {
            HoldingStart::NewProcess
        }
        // The process is the same, whatever it is called now.
        Some(tenure) if tenure.holder == held.holder || (held.pid.is_some() && tenure.pid == held.pid) => {
            HoldingStart::None
        }
        None if held.pid.is_some() => HoldingStart::NewProcess,
        Some(_) | None => HoldingStart::NewHolder,
    };
    if begun == HoldingStart::None {
        if let Some(tenure) = &mut row.tenure {
            let being_set_up = now.duration_since(tenure.since).is_ok_and(|time| time < SET_UP);
            tenure.pid = held.pid.or(tenure.pid);
            tenure.holder = held.holder.clone();
            if being_set_up || tenure.identity.is_empty() {
                tenure.identity = row.identity;
            }
            tenure.config = if being_set_up { vf.config.or(tenure.config) } else { tenure.config.or(vf.config) };
        }
    } else {
        let (holder, pid) = (held.holder.clone(), held.pid);
        row.tenure = Some(Tenure { holder, pid, since: now, identity: row.identity, config: vf.config });
    }
    begun
}

/// What gives trust back.
fn settle_trust(row: &mut MappedVf, before: &MappedVf, vf: &Vf, begun: HoldingStart, claimed: bool, now: SystemTime) {
    if !matches!(row.verification, Verification::Unverified { .. }) {
        return;
    }
    let bound = row.driver.is_some() && row.driver != before.driver;
    let expected = row.tenure.as_ref().map(|tenure| tenure.identity);
    let configured = before.identity != row.identity && !row.identity.is_empty() && expected == Some(row.identity);
    let moved = is_proof(row.mark, traffic(vf));
    if bound || begun == HoldingStart::NewProcess || configured || moved {
        (row.verification, row.mark) = (Verification::Verified(now), None);
    } else if matches!(row.holder, Holder::None | Holder::Host(_)) && !claimed {
        // Nobody is left who could be disturbed.
        (row.verification, row.mark) = (Verification::Undisturbed, None);
    }
}

/// What happened to a VF under a guest that calls for a proof.
fn disturbance(
    before: &MappedVf,
    row: &MappedVf,
    begun: HoldingStart,
    claimed: bool,
    pf_reprobed: bool,
) -> Option<Signal> {
    let guest = before.tenure.as_ref().filter(|tenure| tenure.holder.is_guest())?;
    let left = matches!(row.holder, Holder::None | Holder::Host(_));
    if left && before.holder == guest.holder && claimed {
        // Its owner still claims it.
        return Some(Signal::HolderChanged);
    }
    if left {
        return None;
    }
    let remade = before.instance.zip(row.instance).is_some_and(|(before, now)| before != now);
    let bound = row.driver != before.driver;
    let handed = row.holder.is_guest() && row.holder != guest.holder;
    let renumbered = before.iommu_group.zip(row.iommu_group).is_some_and(|(before, now)| before != now);
    match begun {
        HoldingStart::NewHolder if handed && !remade && !bound => Some(Signal::HolderChanged),
        HoldingStart::None if remade => Some(Signal::VfRecreated),
        HoldingStart::None if pf_reprobed => Some(Signal::PfReprobed),
        HoldingStart::None if renumbered => Some(Signal::GroupRenumbered),
        _ => None,
    }
}

/// What changed, in words; none when nothing did.
fn difference(before: &MappedVf, row: &MappedVf) -> Option<String> {
    let mut parts = Vec::new();
    let text = |value: Option<&str>| value.unwrap_or("none").to_owned();
    let mut part = |name: &str, old: String, new: String| {
        if old != new {
            parts.push(format!("{name} {old} became {new}"));
        }
    };
    let address = |row: &MappedVf| row.address.map_or("none".to_owned(), |address| address.to_string());
    part("address", address(before), address(row));
    part("driver", text(before.driver.as_deref()), text(row.driver.as_deref()));
    let group = |row: &MappedVf| row.iommu_group.map_or("none".to_owned(), |group| group.to_string());
    part("IOMMU group", group(before), group(row));
    part("identity", before.identity.to_string(), row.identity.to_string());
    let unknown = |holder: &Holder| matches!(holder, Holder::Unknown(_));
    if !unknown(&before.holder) && !unknown(&row.holder) {
        part("holder", before.holder.to_string(), row.holder.to_string());
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}
