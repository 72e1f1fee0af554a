//! Whether the map can be trusted: functions that were moved or made anew and nothing shows that they work.

use std::time::Duration;

use super::{HOLD, Scene, Seen, queues};
use crate::assess::verdicts::Verdicts;
use crate::model::check::{Check, Severity};
use crate::model::finding::{Condition, Hold, Subject};
use crate::model::holder::Holder;
use crate::model::time::rfc3339;
use crate::model::vfmap::{Signal, Verification};

/// A detach that has not finished after this time will not.
const DETACH: Hold = Hold::For(Duration::from_secs(10 * 60));

/// `vf_map_stale`: a VF, or in a guest a function, is not verified since a sign of a migration.
pub(super) fn map(scene: &Scene<'_>, verdicts: &mut Verdicts) {
    for seen in scene.vfs() {
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
            "{address} {}, and nothing shows that it moves data since: run a loop-back probe, or bind its driver anew \
             ({}).",
            signal.about(),
            rfc3339(since)
        );
        let subject = Subject::Pci(*address);
        let device = scene.view.snapshot.devices().find(|device| device.identity.pci_address == Some(*address));
        verdicts.found(
            Condition::new(Check::VfMapStale, subject, Severity::Critical, signal.as_str(), summary)
                .device(device.map(|device| device.name.clone()))
                .with_evidence("signal", Some(signal.as_str()))
                .with_evidence("unverified_since", Some(rfc3339(since)))
                .hold(HOLD),
        );
    }
}

fn describe(seen: Seen<'_>, signal: Signal) -> (&'static str, Hold, String) {
    if matches!(seen.row.holder, Holder::None | Holder::Host(_)) {
        let text = format!(
            "{} was taken from its guest, which still claims it and works with a function that is no longer its own: \
             detach it there and attach it again",
            seen.name()
        );
        return ("detach_failed", DETACH, text);
    }
    let text = format!(
        "{}, held by {}, {}, and nothing shows that it moves data since: have the guest bind its driver anew, detach \
         and attach it, or run a probe through it",
        seen.name(),
        seen.row.holder,
        signal.about()
    );
    (signal.as_str(), HOLD, text)
}
