//! Pods and jobs that are about to reach the limit of their RDMA control group.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::View;
use super::limits::RDMA_CGROUP_HOLD;
use super::verdicts::Verdicts;
use crate::model::check::{Check, Severity};
use crate::model::finding::{Condition, Subject};
use crate::model::holder::{CgroupOwner, Holder, Pod};
use crate::model::ids::DeviceName;
use crate::model::pods::PodNames;
use crate::model::rdma_cgroup::{RdmaCgroup, RdmaResource, RdmaUse};
use crate::model::reason::FindingReason;
use crate::model::snapshot::Snapshot;

/// As many pods and jobs as a finding names.
const NAMED: usize = 3;

/// Who a control group belongs to, by name as far as it is known; `None` for a machine, whose limits are its manager's.
pub fn holder(snapshot: &Snapshot, owner: &CgroupOwner) -> Option<Holder> {
    match owner {
        CgroupOwner::Pod { uid, .. } => {
            let names: Option<&PodNames> = snapshot.all().next();
            Some(Holder::Pod(names.map_or_else(|| Pod::new(Arc::clone(uid)), |names| names.pod(uid, None))))
        }
        CgroupOwner::Job(id) => Some(Holder::Job(Arc::clone(id))),
        CgroupOwner::Vm(_) => None,
    }
}

/// Whether so much is in use of a limit that the next requests will fail: 90 % of it.
fn is_near(used: &RdmaUse) -> bool {
    used.limit.is_some_and(|limit| u128::from(used.current) * 10 >= u128::from(limit) * 9)
}

/// `rdma_cgroup_limit_near`: at the limit the kernel refuses contexts and objects with EAGAIN, and logs nothing.
pub fn limit_near(view: &View<'_>, verdicts: &mut Verdicts) {
    let mut near: BTreeMap<(&str, RdmaResource), Vec<String>> = BTreeMap::new();
    for group in view.snapshot.all::<RdmaCgroup>() {
        for used in &group.uses {
            if used.limit.is_none() {
                continue;
            }
            if let (true, Some(holder)) = (is_near(used), holder(view.snapshot, &group.owner)) {
                let limit = used.limit.unwrap_or_default();
                near.entry((&*used.device, used.resource))
                    .or_default()
                    .push(format!("{holder} {} of {limit}", used.current));
            } else {
                verdicts.ok(Check::RdmaCgroupLimitNear);
            }
        }
    }
    for ((device, resource), mut who) in near {
        who.sort_unstable();
        let more = who.len().saturating_sub(NAMED);
        who.truncate(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let (what, reason) = match resource {
            RdmaResource::Handle => ("contexts", FindingReason::HcaHandle),
            RdmaResource::Object => ("objects (queue pairs, memory regions and the like)", FindingReason::HcaObject),
        };
        let summary = format!(
            "RDMA {what} of {device} are near the limit of their control group (rdma.max): {}{more}. At the limit, creating more fails with EAGAIN. Raise the limit, or look for a leak in the application.",
            who.join(", ")
        );
        let device = DeviceName::new(device);
        verdicts.found(
            Condition::new(
                Check::RdmaCgroupLimitNear,
                Subject::Device(device.clone()),
                Severity::Warning,
                reason,
                summary,
            )
            .device(Some(device))
            .hold(RDMA_CGROUP_HOLD),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assess::testing::seen;
    use crate::model::snapshot::Fact;

    fn said(groups: &[(&str, u64, Option<u64>)]) -> Vec<(String, String)> {
        let facts = groups.iter().enumerate().map(|(number, (device, current, limit))| {
            let one = RdmaUse {
                device: Arc::from(*device),
                resource: RdmaResource::Object,
                current: *current,
                limit: *limit,
            };
            Arc::new(RdmaCgroup { owner: CgroupOwner::Job(Arc::from(number.to_string())), uses: vec![one] }) as Fact
        });
        seen(facts.collect(), |view| {
            let mut verdicts = Verdicts::default();
            limit_near(view, &mut verdicts);
            let found = verdicts.conditions.into_iter();
            found.map(|condition| (condition.subject.to_string(), condition.summary)).collect()
        })
    }

    #[test]
    fn nine_tenths_of_a_limit_are_near() {
        assert_eq!(said(&[("mlx5_0", 1_000_000, None), ("mlx5_0", 899, Some(1000)), ("mlx5_1", 0, Some(10))]), []);
        let found = said(&[("mlx5_0", 900, Some(1000)), ("mlx5_0", 1000, Some(1000)), ("mlx5_1", 5, Some(1000))]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].0, "mlx5_0");
        assert!(found[0].1.contains("job 0 900 of 1000, job 1 1000 of 1000. At the limit"), "{}", found[0].1);
        let many: Vec<_> = (0..9).map(|_| ("mlx5_0", 10, Some(10))).collect();
        assert!(said(&many)[0].1.contains("job 2 10 of 10 and 6 more"), "{:?}", said(&many));
    }
}
