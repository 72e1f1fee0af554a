//! Which path a guest's interfaces use from pass to pass: their VF, or the hypervisor.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::vf::VfMapDraft;
use crate::model::datapath::{DataPath, DataPathLog, LOSSES_REMEMBERED, MOST_LOSSES, PathInUse};
use crate::model::kmsg::KernelLog;
use crate::model::snapshot::Snapshot;
use crate::model::units::times;
use crate::model::vfmap::Signal;

/// What was seen in the last pass.
#[derive(Debug, Default)]
pub(super) struct PathTracker {
    in_use: BTreeMap<Arc<str>, PathInUse>,
    logs: BTreeMap<Arc<str>, DataPathLog>,
}

impl PathTracker {
    pub(super) fn observe(&mut self, draft: &mut VfMapDraft<'_>, snapshot: &Snapshot) {
        let log = snapshot.all::<KernelLog>().next();
        for path in log.into_iter().flat_map(|log| &log.data_paths) {
            let before = self.logs.insert(Arc::clone(&path.netdev), path.clone()).unwrap_or_default();
            let (name, rise) = (&path.netdev, |now: u64, before: u64| now.saturating_sub(before));
            let revoked = rise(path.revoked, before.revoked);
            let text = format!("the host took the VF of {name} away {}", times(revoked));
            draft.signals(Signal::VfRevoked, revoked, name, text);
            let returned = rise(path.returned, before.returned);
            draft.signals(Signal::VfReturned, returned, name, format!("the host gave {name} a VF {}", times(returned)));
            let switched = rise(path.switched, before.switched);
            draft.signals(
                Signal::DataPathSwitched,
                switched,
                name,
                format!("{name} changed its path {}", times(switched)),
            );
        }
        for path in snapshot.all::<DataPath>() {
            self.take(draft, snapshot, path, log.is_some());
        }
    }

    /// Takes in which path an interface uses. Where the log cannot be read, a change that is seen is a switch.
    fn take(&mut self, draft: &mut VfMapDraft<'_>, snapshot: &Snapshot, path: &DataPath, has_log: bool) {
        let now = snapshot.taken.tick;
        let before = self.in_use.insert(Arc::clone(&path.netdev), path.in_use);
        let changed = before.is_some_and(|before| before != path.in_use);
        if changed && !has_log {
            let to = path.in_use.as_str();
            draft.signal(Signal::DataPathSwitched, &path.netdev, format!("{} uses the path {to} now", path.netdev));
        }
        let row = draft.map.paths.entry(Arc::clone(&path.netdev)).or_default();
        row.had_vf |= path.vf.is_some();
        row.left.retain(|at| now.since(*at) <= LOSSES_REMEMBERED);
        match path.in_use {
            PathInUse::Vf => row.synthetic_since = None,
            PathInUse::Synthetic => {
                row.synthetic_since.get_or_insert(now);
                if changed && !has_log && row.left.len() < MOST_LOSSES {
                    row.left.push(now);
                }
            }
        }
    }
}
