//! Queue pair maps of stacks that have them: a VF in use that is missing in its PF's map, and a number on the wire that
//! two entries claim.

use super::{Scene, Seen};
use crate::assess::verdicts::Verdicts;
use crate::model::check::{Check, Severity};
use crate::model::holder::Holder;
use crate::model::reason::FindingReason;
use crate::model::sriov::VfKey;

/// `vf_map_stale` by the queue pair map, for a VF that nothing else speaks against.
pub(super) fn map(scene: &Scene<'_>, seen: Seen<'_>, verdicts: &mut Verdicts) {
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
    if !used || map.vfs.contains_key(&seen.key.vf) {
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
