//! Whether the map can be trusted: functions that were moved or made anew and nothing shows that they work.

use super::{Scene, Seen};
use crate::assess::limits::{DETACH_HOLD, VF_HOLD};
use crate::assess::verdicts::Verdicts;
use crate::model::check::{Check, Severity};
use crate::model::finding::{Condition, Hold, Subject};
use crate::model::holder::Holder;
use crate::model::reason::FindingReason;
use crate::model::sriov::VfKey;
use crate::model::time::rfc3339;
use crate::model::vfmap::{Signal, Verification};

/// `vf_map_stale`: a VF, or in a guest a function, is not verified since a sign of a migration.
pub(super) fn map(scene: &Scene<'_>, verdicts: &mut Verdicts) {
    for seen in scene.vfs() {
        if let Some(condition) = removal_blocked(seen) {
            verdicts.found(condition);
            continue;
        }
        match seen.row.verification {
            Verification::Unverified { since, signal } => {
                let (reason, hold, text) = describe(seen, signal);
                let summary = format!("{text} ({}).", rfc3339(since));
                verdicts.found(
                    seen.condition(Check::VfMapStale, Severity::Critical, reason, summary)
                        .with_evidence("signal", Some(signal.as_str()))
                        .with_evidence("unverified_since", Some(rfc3339(since)))
                        .hold(hold),
                );
            }
            Verification::Undisturbed | Verification::Verified(_) => judge_queues(scene, seen, verdicts),
        }
    }
    for (address, row) in &scene.view.history.vf_map.guest {
        let Verification::Unverified { since, signal } = row.verification else {
            verdicts.ok(Check::VfMapStale);
            continue;
        };
        let summary = format!(
            "{address} {}; nothing has shown since then that it moves data. Run a loopback benchmark, or rebind its driver \
             ({}).",
            signal.about(),
            rfc3339(since)
        );
        let subject = Subject::Pci(*address);
        let device = scene.view.snapshot.devices().find(|device| device.identity.pci_address == Some(*address));
        verdicts.found(
            Condition::new(Check::VfMapStale, subject, Severity::Critical, signal.into(), summary)
                .device(device.map(|device| device.name.clone()))
                .with_evidence("signal", Some(signal.as_str()))
                .with_evidence("unverified_since", Some(rfc3339(since)))
                .hold(VF_HOLD),
        );
    }
}

/// A VF without a driver that a process has open: its driver was told to let go of it, and waits for that process.
fn removal_blocked(seen: Seen<'_>) -> Option<Condition> {
    let tenure = seen.row.tenure.as_ref().filter(|tenure| tenure.holder == seen.row.holder)?;
    let pid = tenure.pid.filter(|_| seen.vf.driver.is_none() && seen.row.holder.is_guest())?;
    let summary = format!(
        "Removing {} waits for {} (pid {pid}), which has it open. Stop that process or detach the VF from it; until then the removal hangs, and so does everything else that needs the PF's lock.",
        seen.name(),
        seen.row.holder
    );
    let reason = FindingReason::RemovalBlocked;
    Some(seen.condition(Check::VfMapStale, Severity::Warning, reason, summary).with_evidence("pid", Some(pid)))
}

fn describe(seen: Seen<'_>, signal: Signal) -> (FindingReason, Hold, String) {
    if let Some(user) = &seen.row.lost_by {
        let text = format!(
            "{} was recreated while {user} used it: {user} still runs, and the new VF is not in it. Restart the pod, or whatever else uses the namespace",
            seen.name()
        );
        return (signal.into(), VF_HOLD, text);
    }
    if matches!(seen.row.holder, Holder::None | Holder::Host(_)) {
        let text = format!(
            "{} was removed from its guest, which still claims it and keeps using it. \
             Detach it from the guest and attach it again",
            seen.name()
        );
        return (FindingReason::DetachFailed, DETACH_HOLD, text);
    }
    let text = format!(
        "{}, used by {}, {}; nothing has shown since then that it moves data. Rebind the driver in the guest, detach \
         and attach the VF, or run a benchmark through it",
        seen.name(),
        seen.row.holder,
        signal.about()
    );
    (signal.into(), VF_HOLD, text)
}

/// `vf_map_stale` by the queue pair map, for a VF that nothing else speaks against.
fn judge_queues(scene: &Scene<'_>, seen: Seen<'_>, verdicts: &mut Verdicts) {
    let Some(map) = scene.qid_maps.get(&seen.key.pf) else {
        verdicts.ok(Check::VfMapStale);
        return;
    };
    let twice = map.twice.iter().find(|(_, vfs)| vfs.contains(&seen.key.vf));
    if let Some((number, vfs)) = twice {
        let others: Vec<String> = vfs.iter().map(|vf| VfKey { pf: seen.key.pf, vf: *vf }.to_string()).collect();
        let summary = format!(
            "Global queue pair number {number} has two entries in the queue pair map, for {}: data for one may reach \
             the other or get lost. Detach the VF that was moved last and attach it again.",
            others.join(" and ")
        );
        verdicts.found(
            seen.condition(Check::VfMapStale, Severity::Critical, FindingReason::QidClaimedTwice, summary)
                .with_evidence("global_queue_pair", Some(*number)),
        );
        return;
    }
    let used = seen.is_used() || matches!(seen.row.holder, Holder::Host(_));
    if !used {
        verdicts.ok(Check::VfMapStale);
    } else if map.is_invalid(seen.key.vf) {
        let summary = format!(
            "{}, used by {}, has only invalid entries in its PF's queue pair map: connections are set up, but no data \
             flows. Rebind the driver in the guest, or detach the VF and attach it again.",
            seen.name(),
            seen.row.holder
        );
        verdicts.found(seen.condition(Check::VfMapStale, Severity::Critical, FindingReason::QidInvalid, summary));
    } else if map.vfs.contains_key(&seen.key.vf) {
        verdicts.ok(Check::VfMapStale);
    } else if let Some(reason) = map.trouble {
        verdicts.unknown(Check::VfMapStale, seen.subject(), Some(reason));
    } else {
        let summary = format!(
            "{}, used by {}, has no entry in its PF's queue pair map: connections are set up, but no data flows. \
             Rebind the driver in the guest, or detach the VF and attach it again.",
            seen.name(),
            seen.row.holder
        );
        verdicts.found(seen.condition(Check::VfMapStale, Severity::Critical, FindingReason::QidMap, summary));
    }
}
