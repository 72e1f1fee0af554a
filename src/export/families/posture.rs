//! How the host is set up.

use super::FIRST;
use crate::export::catalogue::{Family, Kind};
use crate::model::posture::Posture;

/// The rows.
pub const FAMILIES: &[Family] = &[Family {
    name: "lanewatch_host_posture_info",
    kind: Kind::Info,
    help: "How the host is set up for RDMA and pass-through: CPU governors, NUMA balancing, kernel arguments that matter \
           (/proc/cmdline).",
    labels: &["governor", "numa_balancing", "kernel_arguments"],
    worst: "1",
    since: FIRST,
    write: |content, out| {
        let Some(posture) = content.report.snapshot.all::<Posture>().next() else { return };
        let governors: Vec<&str> = posture.governors.keys().map(|governor| &**governor).collect();
        let switch = |on: bool| if on { "on" } else { "off" };
        out.info(&[
            governors.join(",").as_str().into(),
            posture.numa_balancing.map(switch).into(),
            posture.arguments.join(" ").as_str().into(),
        ]);
    },
}];
