//! Who holds a VF and who should: orphans, dangling claims, shared groups, wrong drivers.

use std::collections::{BTreeMap, BTreeSet};

use super::{Scene, Seen};
use crate::assess::limits::VF_HOLD;
use crate::assess::verdicts::Verdicts;
use crate::model::check::{Check, Severity};
use crate::model::finding::{Condition, Subject};
use crate::model::holder::{Claim, Domain, Holder};
use crate::model::ids::PciAddress;
use crate::model::reason::FindingReason;
use crate::model::sriov::Pf;
use crate::model::units::counted;

/// Idle VFs of one PF from which on they are one finding: so many at once are one cause.
const MANY: usize = 4;

/// `vf_orphan`: given to user space and nobody has it open, or bound to a kernel driver whose interface is in no
/// namespace. A holder that cannot be seen is unknown, never an orphan. VFs that a pool keeps are worth knowing only.
pub(super) fn orphan(scene: &Scene<'_>, verdicts: &mut Verdicts) {
    let mut idle: BTreeMap<PciAddress, (&Pf, Vec<Seen<'_>>)> = BTreeMap::new();
    for seen in scene.vfs() {
        match &seen.row.holder {
            Holder::Unknown(_) => verdicts.unknown(Check::VfOrphan, seen.subject(), None),
            Holder::None if seen.vf.is_for_user_space() => {
                idle.entry(seen.pf.address).or_insert_with(|| (seen.pf, Vec::new())).1.push(seen);
            }
            Holder::None if seen.vf.driver.is_some() => verdicts.found(without_interface(seen)),
            _ => verdicts.ok(Check::VfOrphan),
        }
    }
    for (pf, idle) in idle.into_values() {
        judge_idle(scene, pf, &idle, verdicts);
    }
}

fn without_interface(seen: Seen<'_>) -> Condition {
    let driver = seen.vf.driver.as_deref().unwrap_or_default();
    let text = format!(
        "{} is bound to {driver}, but its interface is in no network namespace. Unbind and bind {driver} again, and check \
         the kernel log.",
        seen.name()
    );
    seen.condition(Check::VfOrphan, Severity::Warning, FindingReason::NoInterface, text)
}

fn without_process(seen: Seen<'_>) -> Condition {
    let driver = seen.vf.driver.as_deref().unwrap_or_default();
    let text = format!(
        "{} is bound to {driver}, but no process has it open. Start its guest, or return it to the host (`virsh \
         nodedev-reattach`, or clear driver_override and bind its own driver).",
        seen.name()
    );
    seen.condition(Check::VfOrphan, Severity::Warning, FindingReason::NotHeld, text)
}

/// VFs of one PF that user space could have and nobody has. What no domain claims may be a pool's.
fn judge_idle(scene: &Scene<'_>, pf: &Pf, idle: &[Seen<'_>], verdicts: &mut Verdicts) {
    let pool = |seen: &Seen<'_>| {
        let address = seen.vf.address.filter(|address| scene.sources.claim(*address).is_none())?;
        scene.sources.pools?.pool_of(pf, address)
    };
    let mut pooled: BTreeMap<String, Vec<Seen<'_>>> = BTreeMap::new();
    let mut orphans = Vec::new();
    for seen in idle {
        match pool(seen) {
            Some(pool) => pooled.entry(pool).or_default().push(*seen),
            None => orphans.push(*seen),
        }
    }
    // A subject has one finding of a check: the orphans of a PF that has a pool, too, are told one by one.
    if orphans.len() >= MANY && pooled.is_empty() {
        verdicts.found(describe_many(pf, &orphans));
    } else {
        for seen in orphans {
            verdicts.found(without_process(seen));
        }
    }
    if !pooled.is_empty() {
        verdicts.found(describe_pools(pf, &pooled));
    }
}

fn describe_many(pf: &Pf, orphans: &[Seen<'_>]) -> Condition {
    let drivers: BTreeSet<&str> = orphans.iter().filter_map(|seen| seen.vf.driver.as_deref()).collect();
    let text = format!(
        "{} are bound to {}, but no process has them open: {}. Start their guests, or return them to the host (`virsh \
         nodedev-reattach`, or clear driver_override and bind their own driver).",
        share(pf, orphans),
        drivers.into_iter().collect::<Vec<_>>().join(" or "),
        numbers(orphans)
    );
    idle_condition(pf, orphans, Severity::Warning, FindingReason::NotHeld, text)
}

fn describe_pools(pf: &Pf, pooled: &BTreeMap<String, Vec<Seen<'_>>>) -> Condition {
    let all: Vec<Seen<'_>> = pooled.values().flatten().copied().collect();
    let parts: Vec<String> = pooled.iter().map(|(pool, idle)| format!("{} ({pool})", numbers(idle))).collect();
    let text = format!(
        "{} are idle in a pool: {}. They are bound for guests and free. If guests wait for a VF all the same, check what \
         hands them out.",
        share(pf, &all),
        parts.join("; ")
    );
    idle_condition(pf, &all, Severity::Info, FindingReason::IdlePool, text)
}

fn idle_condition(pf: &Pf, idle: &[Seen<'_>], severity: Severity, reason: FindingReason, text: String) -> Condition {
    Condition::new(Check::VfOrphan, Subject::Pci(pf.address), severity, reason, text)
        .device(pf.devices.first().cloned())
        .with_evidence("vfs", Some(idle.len()))
        .with_evidence("vf_numbers", Some(numbers(idle)))
        .hold(VF_HOLD)
}

/// `30 of the 32 VFs of 0000:98:00.0`.
fn share(pf: &Pf, idle: &[Seen<'_>]) -> String {
    format!("{} of the {} of {}", idle.len(), counted(pf.present(), "VF"), pf.address)
}

/// The numbers of VFs, runs of them short: `0-11, 14, 16-31`.
fn numbers(vfs: &[Seen<'_>]) -> String {
    let mut numbers: Vec<u32> = vfs.iter().map(|seen| seen.key.vf).collect();
    numbers.sort_unstable();
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((_, last)) if number.checked_sub(1) == Some(*last) => *last = number,
            _ => runs.push((number, number)),
        }
    }
    let run = |(first, last): (u32, u32)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    runs.into_iter().map(run).collect::<Vec<_>>().join(", ")
}

/// `vf_dangling`: a domain claims a function that is gone, or a VF that another holds.
pub(super) fn dangling(scene: &Scene<'_>, verdicts: &mut Verdicts) {
    for (address, claims) in scene.sources.claims() {
        let condition = match scene.at(address) {
            Some(seen) => judge_claims(seen, claims),
            None => gone(scene, address, claims),
        };
        match condition {
            Some(condition) => verdicts.found(condition),
            None => verdicts.ok(Check::VfDangling),
        }
    }
    lost(scene, verdicts);
}

fn names(claims: &[(&Domain, &Claim)]) -> String {
    let names: BTreeSet<&str> = claims.iter().map(|(domain, _)| &*domain.name).collect();
    names.into_iter().collect::<Vec<_>>().join(", ")
}

fn gone(scene: &Scene<'_>, address: PciAddress, claims: &[(&Domain, &Claim)]) -> Option<Condition> {
    let (_, claim) = claims.first()?;
    if claim.present != Some(false) {
        return None;
    }
    // Where it would be, had it not gone: the PF on the same bus. What stood on any other bus need not have been a VF.
    let pf = scene.pfs.iter().find(|pf| (pf.address.domain, pf.address.bus) == (address.domain, address.bus));
    let running: Vec<(&Domain, &Claim)> = claims.iter().copied().filter(|(domain, _)| domain.live).collect();
    let (severity, what) = if running.is_empty() {
        let what = format!(
            "{} claims {address}, but that function does not exist, so the domain will not start.",
            names(claims)
        );
        (Severity::Warning, what)
    } else {
        let what = format!(
            "{} is running and claims {address}, but that function no longer exists: the guest has lost the device.",
            names(&running)
        );
        (Severity::Critical, what)
    };
    let advice = match pf {
        Some(pf) => format!(
            " {} has {} now. Assign one of those; to create more, all VFs must be recreated, so stop their users first.",
            pf.address,
            counted(pf.present(), "VF")
        ),
        None => " Remove the device from the domain, or assign one that exists (`lspci -D`).".to_owned(),
    };
    let condition =
        Condition::new(Check::VfDangling, Subject::Pci(address), severity, FindingReason::Gone, what + &advice);
    Some(condition.with_evidence("claimed_by", Some(names(claims))).hold(VF_HOLD))
}

/// `vf_dangling` for pods and namespaces, which leave no claim: their VF was removed while they used it.
fn lost(scene: &Scene<'_>, verdicts: &mut Verdicts) {
    for (key, vf) in &scene.view.history.vf_map.gone {
        let Some(user) = vf.tenure.as_ref().map(|tenure| &tenure.holder) else { continue };
        let is_container = matches!(user, Holder::Pod(_) | Holder::Netns(_));
        if !is_container || scene.sources.lives(user, None) != Some(true) {
            continue;
        }
        let summary = format!(
            "VF {} of {} was removed while {user} used it, which still runs without it. Recreate the VF and restart the pod, or whatever else uses the namespace.",
            key.vf, key.pf
        );
        verdicts.found(
            Condition::new(Check::VfDangling, Subject::Vf(*key), Severity::Critical, FindingReason::Gone, summary)
                .address(vf.address)
                .with_evidence("holder_kind", Some(user.kind()))
                .with_evidence("holder", Some(user.name()))
                .with_holder_names(user)
                .hold(VF_HOLD),
        );
    }
}

fn judge_claims(seen: Seen<'_>, claims: &[(&Domain, &Claim)]) -> Option<Condition> {
    let distinct = |live: bool| -> BTreeSet<&str> {
        claims.iter().filter(|(domain, _)| domain.live || !live).map(|(domain, _)| &*domain.name).collect()
    };
    let live = distinct(true);
    let holder = &seen.row.holder;
    let held_by = match holder {
        Holder::Vm(vm) => Some(&*vm.domain),
        _ => None,
    };
    let name = seen.name();
    let (severity, reason, summary) = if live.len() > 1 {
        let text = format!(
            "{name} is claimed by {}, all of which are running; {holder} uses it. Detach it from the others.",
            names(claims)
        );
        (Severity::Warning, FindingReason::ClaimedTwice, text)
    } else if let Some(claimant) = live.first().filter(|claimant| held_by != Some(*claimant)) {
        match holder {
            Holder::Unknown(_) => return None,
            Holder::None => {
                let text = format!(
                    "{claimant} is running and claims {name}, but its process does not have it open: a detach or attach did \
                     not finish. Detach it (`virsh detach-device`) and attach it again."
                );
                (Severity::Warning, FindingReason::NotHeld, text)
            }
            other => {
                let text = format!(
                    "{claimant} is running and claims {name}, but {other} uses it: a detach or attach did not finish. \
                     Detach it from {claimant}, or remove it from {other} and attach it again."
                );
                (Severity::Warning, FindingReason::HeldByOther, text)
            }
        }
    } else if distinct(false).len() > 1 {
        let text = format!("{name} is claimed by {}: only one of them can run at a time.", names(claims));
        // One that runs keeps the others from starting.
        let severity = if live.is_empty() { Severity::Info } else { Severity::Warning };
        (severity, FindingReason::ClaimedTwice, text)
    } else {
        return None;
    };
    let condition = seen.condition(Check::VfDangling, severity, reason, summary);
    Some(condition.with_evidence("claimed_by", Some(names(claims))))
}

/// `vf_group_shared`: a VF that user space drives is not alone in its IOMMU group.
pub(super) fn group_shared(scene: &Scene<'_>, verdicts: &mut Verdicts) {
    for seen in scene.vfs() {
        if !seen.vf.is_for_user_space() {
            verdicts.skipped(Check::VfGroupShared);
            continue;
        }
        let (Some(group), [_, ..]) = (seen.vf.iommu_group, &*seen.vf.group_shared_with) else {
            verdicts.ok(Check::VfGroupShared);
            continue;
        };
        let others: Vec<String> = seen.vf.group_shared_with.iter().take(3).map(ToString::to_string).collect();
        let more = seen.vf.group_shared_with.len().saturating_sub(others.len());
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let summary = format!(
            "{} shares IOMMU group {group} with {}{more}: they are not isolated from each other and can only be passed \
             through together. Enable ACS and ARI in the BIOS, or use a slot below another root port.",
            seen.name(),
            others.join(", ")
        );
        verdicts.found(
            seen.condition(Check::VfGroupShared, Severity::Warning, FindingReason::NotIsolated, summary)
                .with_evidence("iommu_group", Some(group)),
        );
    }
}

/// `vf_driver_changed`: another driver is bound than the one that alone may bind.
pub(super) fn driver(scene: &Scene<'_>, verdicts: &mut Verdicts) {
    for seen in scene.vfs() {
        let wrong = match (&seen.vf.driver_override, &seen.vf.driver) {
            (Some(wanted), Some(bound)) if wanted != bound => (wanted, bound),
            _ => {
                verdicts.ok(Check::VfDriverChanged);
                continue;
            }
        };
        let (wanted, bound) = wrong;
        let summary = format!(
            "{} is bound to {bound}, but its driver_override is {wanted}. Unbind {bound}; {wanted} then binds if its \
             module is loaded.",
            seen.name()
        );
        verdicts.found(
            seen.condition(Check::VfDriverChanged, Severity::Warning, FindingReason::OverrideIgnored, summary)
                .with_evidence("driver_override", Some(&**wanted)),
        );
    }
}
