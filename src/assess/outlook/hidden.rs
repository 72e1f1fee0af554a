//! What missing permissions hide, by what would grant them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{AREAS, permission};
use crate::model::count::counted;
use crate::model::environment::Environment;
use crate::model::holder::{Holder, Missing};
use crate::model::reading::Reason;
use crate::model::snapshot::{CollectorState, Snapshot};
use crate::model::vfmap::VfMap;

/// What the collectors read that are no area of their own.
const REST: [(&str, &str); 9] = [
    ("devlink", "devices' health"),
    ("gids", "how ports are addressed"),
    ("machine", "whether the host is a guest"),
    ("netdev_setup", "how interfaces are set up"),
    ("numa", "NUMA nodes"),
    ("posture", "how the host is set up"),
    ("qid_map", "queue pair maps"),
    ("rdma_qp", "queue pairs"),
    ("system", "the host's name and uptime"),
];

/// One sentence for each thing that would show more, with all that it would show: `CAP_SYSLOG would show: kernel
/// messages`.
pub fn missing(snapshot: &Snapshot, vf_map: &VfMap) -> Vec<Arc<str>> {
    missing_of(snapshot, vf_map, |_| true)
}

/// The same of these collectors alone.
pub fn missing_of(snapshot: &Snapshot, vf_map: &VfMap, wanted: impl Fn(&str) -> bool) -> Vec<Arc<str>> {
    let unknown = Environment::default();
    let environment = snapshot.all::<Environment>().next().unwrap_or(&unknown);
    let mut by_remedy: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for collector in snapshot.collectors.iter().filter(|collector| wanted(collector.name)) {
        if let Some(what) = of_collector(collector) {
            by_remedy.entry(permission(collector.name, environment).1).or_default().push(what);
        }
    }
    let holders = if wanted("holders") { of_holders(vf_map) } else { BTreeMap::new() };
    for (missing, count) in holders {
        by_remedy.entry(grants(missing, environment)).or_default().push(format!("who holds {}", counted(count, "VF")));
    }
    by_remedy.into_iter().map(|(remedy, what)| Arc::from(format!("{remedy} would show: {}", what.join(", ")))).collect()
}

/// What permissions hide of a collector; none where they hide nothing.
fn of_collector(collector: &CollectorState) -> Option<String> {
    let count = collector.faults.iter().filter(|fault| fault.reason == Reason::Permission).count();
    let names = AREAS.iter().chain(&REST);
    let what = names.into_iter().find(|(name, _)| *name == collector.name).map_or(collector.name, |(_, what)| *what);
    match count {
        0 => None,
        _ if collector.name == "kmsg" => Some(what.to_owned()),
        count => Some(format!("{what} ({})", counted(count, "file"))),
    }
}

/// VFs whose holder a permission hides, by that permission.
fn of_holders(vf_map: &VfMap) -> BTreeMap<Missing, usize> {
    let mut hidden = BTreeMap::new();
    for row in vf_map.rows.values() {
        if let Holder::Unknown(missing) = row.holder
            && missing.is_permission()
        {
            *hidden.entry(missing).or_default() += 1;
        }
    }
    hidden
}

fn grants(missing: Missing, environment: &Environment) -> String {
    let collector = if missing == Missing::Search { "libvirt" } else { "holders" };
    match permission(collector, environment) {
        ("permission", _) => missing.as_str().to_owned(),
        (_, remedy) => remedy,
    }
}
