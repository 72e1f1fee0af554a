//! Cards that were given away whole: a driver for user space has their PF, so that this host sees no device of theirs.

use crate::assess::vf::holders::HolderSources;
use crate::model::sriov::Pf;
use crate::watch::HostReport;

/// Who has a PF that was given away; none for one that this host drives itself.
pub fn given(report: &HostReport, pf: &Pf) -> Option<String> {
    let holder = HolderSources::new(&report.snapshot).holder_of_pf(pf)?.holder;
    Some(format!("given away whole (driver {}), held by {holder}", pf.driver.as_deref().unwrap_or("unknown")))
}

/// What `explain` says of a PF without an RDMA device.
pub fn explained(report: &HostReport, pf: &Pf) -> String {
    match given(report, pf) {
        Some(text) => format!("{}\n\n  {text}\n", pf.address),
        None => format!(
            "{0}\n\n  driver {1}, no RDMA device here; `lanewatch vf {0}` shows its VFs\n",
            pf.address,
            pf.driver.as_deref().unwrap_or("none")
        ),
    }
}
