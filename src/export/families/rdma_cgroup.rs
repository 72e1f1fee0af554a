//! RDMA contexts and objects by pod and job.

use std::collections::BTreeMap;

use crate::assess::rdma_cgroup::holder;
use crate::export::family::{FIRST_RELEASE, Family, MetricKind, Series};
use crate::export::view::ReportView;
use crate::model::holder::{Holder, Pod};
use crate::model::rdma_cgroup::{RdmaCgroup, RdmaResource};

/// Pods and jobs that have series of their own, the largest users first; the others are added up.
const MOST: usize = 100;

const USE: &[&str] = &["device", "resource", "holder_kind", "holder"];

/// The families, in the order of the exposition.
pub const FAMILIES: &[Family] = &[
    Family {
        name: "lanewatch_rdma_cgroup_objects",
        kind: MetricKind::Gauge,
        help: "RDMA contexts (hca_handle) and objects (hca_object) of a pod or job on a device, without zeros; the \
               100 largest users, the others together as holder other (rdma.current).",
        labels: USE,
        worst: "2 per device and pod or job, 202 per device",
        since: FIRST_RELEASE,
        write: |view, out| {
            for ((device, resource), users) in by_device(view) {
                let mut rest = 0u64;
                for (number, (holder, current, _)) in users.iter().enumerate() {
                    if number < MOST {
                        let (kind, name) = (holder.kind().into(), holder.name().into());
                        out.gauge(&[device.into(), resource.as_str().into(), kind, name], *current);
                    } else {
                        rest = rest.saturating_add(*current);
                    }
                }
                if rest > 0 {
                    out.gauge(&[device.into(), resource.as_str().into(), "other".into(), "other".into()], rest);
                }
            }
        },
    },
    Family {
        name: "lanewatch_rdma_cgroup_limit_objects",
        kind: MetricKind::Gauge,
        help: "Limit of RDMA contexts and objects of a pod or job on a device; absent without one (rdma.max).",
        labels: USE,
        worst: "2 per device and pod or job, 200 per device",
        since: FIRST_RELEASE,
        write: |view, out| {
            for ((device, resource), users) in by_device(view) {
                for (holder, _, limit) in users.iter().take(MOST) {
                    let (kind, name) = (holder.kind().into(), holder.name().into());
                    out.known(&[device.into(), resource.as_str().into(), kind, name], *limit);
                }
            }
        },
    },
    Family {
        name: "lanewatch_rdma_pod_info",
        kind: MetricKind::Info,
        help: "Names of pods with RDMA contexts or objects, by UID (/var/log/pods), to join with holder.",
        labels: &["holder", "namespace", "pod"],
        worst: "1 per pod with RDMA, 100",
        since: FIRST_RELEASE,
        write: names,
    },
];

type Users = Vec<(Holder, u64, Option<u64>)>;

/// Users of each device and resource, the largest first.
fn by_device<'a>(view: &ReportView<'a>) -> BTreeMap<(&'a str, RdmaResource), Users> {
    let mut all: BTreeMap<(&str, RdmaResource), Users> = BTreeMap::new();
    for group in view.report.snapshot.all::<RdmaCgroup>() {
        let Some(holder) = holder(&view.report.snapshot, &group.owner) else { continue };
        for used in &group.uses {
            all.entry((&*used.device, used.resource)).or_default().push((holder.clone(), used.current, used.limit));
        }
    }
    for users in all.values_mut() {
        users.sort_by(|(a, more, _), (b, other, _)| other.cmp(more).then_with(|| a.cmp(b)));
        // Two control groups of one pod: under cgroup v1 it may be there twice.
        users.dedup_by(|(a, ..), (b, ..)| a == b);
    }
    all
}

fn names(view: &ReportView<'_>, out: &mut Series<'_, '_>) {
    let groups = view.report.snapshot.all::<RdmaCgroup>();
    let mut pods: Vec<Pod> = groups
        .filter_map(|group| match holder(&view.report.snapshot, &group.owner)? {
            Holder::Pod(pod) => Some(pod),
            _ => None,
        })
        .collect();
    pods.sort();
    pods.dedup();
    for Pod { uid, name } in pods.iter().take(MOST) {
        let Some(name) = name else { continue };
        out.info(&[(&**uid).into(), (&*name.namespace).into(), (&*name.pod).into()]);
    }
}
