//! Whether the map can be trusted: functions that were moved or made anew and nothing shows that they work.

use super::{Scene, Seen, queues};
use crate::assess::limits::{DETACH_HOLD, VF_HOLD};
use crate::assess::verdicts::Verdicts;
use crate::model::check::{Check, Severity};
use crate::model::finding::{Condition, Hold, Subject};
use crate::model::holder::Holder;
use crate::model::reason::FindingReason;
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
            Verification::Undisturbed | Verification::Verified(_) => queues::map(scene, seen, verdicts),
        }
    }
    for (address, row) in &scene.view.history.vf_map.guest {
        let Verification::Unverified { since, signal } = row.verification else {
            verdicts.ok(Check::VfMapStale);
            continue;
        };
        let summary = format!(
            "{address} {}; since then nothing shows that it moves data. Run a loopback benchmark, or rebind its driver \
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
        "Removal of {} waits for {} (pid {pid}), which has it open. Shut that down or detach the VF from it; until then \
         whoever removes the VF hangs, and so does everything that needs the PF's lock.",
        seen.name(),
        seen.row.holder
    );
    let reason = FindingReason::RemovalBlocked;
    Some(seen.condition(Check::VfMapStale, Severity::Warning, reason, summary).with_evidence("pid", Some(pid)))
}

fn describe(seen: Seen<'_>, signal: Signal) -> (FindingReason, Hold, String) {
    if let Some(user) = &seen.row.lost_by {
        let text = format!(
            "{} was recreated while {user} used it: {user} still runs, and the new VF is not in it. Restart the pod or \
             whatever uses the namespace",
            seen.name()
        );
        return (signal.into(), VF_HOLD, text);
    }
    if matches!(seen.row.holder, Holder::None | Holder::Host(_)) {
        let text = format!(
            "{} was taken from its guest, which still claims it and keeps using a function that it no longer has. \
             Detach it from the guest and attach it again",
            seen.name()
        );
        return (FindingReason::DetachFailed, DETACH_HOLD, text);
    }
    let text = format!(
        "{}, used by {}, {}; since then nothing shows that it moves data. Rebind the driver in the guest, detach \
         and attach the VF, or run a benchmark through it",
        seen.name(),
        seen.row.holder,
        signal.about()
    );
    (signal.into(), VF_HOLD, text)
}
