//! Interfaces of a guest that lose their VF again and again, or work without it.

use std::time::Duration;

use super::View;
use super::limits::{SYNTHETIC_TIME, VF_LOSSES, VF_LOSSES_CRITICAL};
use super::verdicts::Verdicts;
use crate::model::check::{Check, Severity};
use crate::model::datapath::{DataPath, DataPathLog, PathInUse};
use crate::model::finding::{Condition, Subject};
use crate::model::kmsg::KernelLog;
use crate::model::reason::FindingReason;
use crate::model::time::BootTime;

/// `vf_failover`: an interface left its VF often in the last hour, or has been without it for long. One that never had a
/// VF lacks none.
pub fn failover(view: &View<'_>, verdicts: &mut Verdicts) {
    let logs = || view.snapshot.all::<KernelLog>().flat_map(|log| &log.data_paths);
    let now = view.snapshot.taken.tick;
    for path in view.snapshot.all::<DataPath>() {
        let log = logs().find(|log| log.netdev == path.netdev);
        let row = view.history.vf_map.paths.get(&path.netdev);
        let had_vf = path.vf.is_some() || log.is_some() || row.is_some_and(|row| row.had_vf);
        if !had_vf {
            verdicts.skipped(Check::VfFailover);
            continue;
        }
        let left = log.map_or_else(|| row.map_or(0, |row| row.left.len()), |log| log.left.len());
        let since = without_vf(path, log, row.and_then(|row| row.synthetic_since), now);
        match describe(path, left, since) {
            Some((severity, reason, text)) => verdicts.found(
                Condition::new(Check::VfFailover, Subject::Netdev(path.netdev.clone()), severity, reason, text)
                    .with_evidence("vf_losses", Some(left))
                    .with_evidence("path", Some(path.in_use.as_str()))
                    .with_evidence("driver", Some(path.failover.as_str())),
            ),
            None => verdicts.ok(Check::VfFailover),
        }
    }
}

/// How long the interface has been without its VF; the log knows it from before the first pass.
fn without_vf(path: &DataPath, log: Option<&DataPathLog>, seen: Option<BootTime>, now: BootTime) -> Option<Duration> {
    let said = log.and_then(|log| log.left.last().copied());
    let since = seen.into_iter().chain(said).min().filter(|_| path.in_use == PathInUse::Synthetic)?;
    Some(now.since(since))
}

fn describe(path: &DataPath, left: usize, without: Option<Duration>) -> Option<(Severity, FindingReason, String)> {
    let (name, driver) = (&path.netdev, path.failover.as_str());
    if left >= VF_LOSSES {
        let severity = if left >= VF_LOSSES_CRITICAL { Severity::Critical } else { Severity::Warning };
        let text = format!(
            "{name} ({driver}) lost its VF {left} times in the last hour: traffic falls back to the hypervisor's path each \
             time, and RDMA connections break. If the host is not being serviced, drain this machine, move it to another \
             host, and report it to the operator of the cloud or hypervisor."
        );
        return Some((severity, FindingReason::DataPathSwitched, text));
    }
    let without = without.filter(|time| *time >= SYNTHETIC_TIME)?;
    let text = format!(
        "{name} ({driver}) has been without its VF for {}: there is no RDMA, and less bandwidth. Check that the VF is there \
         (`lspci`), that its driver is bound and its interface is up; if it is missing, the host took it away: redeploy \
         or move the machine.",
        humantime::format_duration(Duration::from_secs(without.as_secs() / 60 * 60))
    );
    Some((Severity::Warning, FindingReason::SyntheticPath, text))
}
