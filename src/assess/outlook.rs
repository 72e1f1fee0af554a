//! What can be seen of a host from where the agent stands, what cannot, and what would change that.

use std::sync::Arc;

pub use hidden::{missing, missing_of};

use crate::model::count::counted;
use crate::model::environment::{Capability, Environment};
use crate::model::holder::{Holder, Missing};
use crate::model::posture::Posture;
use crate::model::reading::Reason;
use crate::model::snapshot::{CollectorState, Snapshot};
use crate::model::vfmap::{Row, VfMap};

mod hidden;

/// Reasons that are a permission.
const PERMISSIONS: [&str; 3] = ["permission", "user_namespace", "confinement"];

/// How much of something is seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Seen {
    /// All of it.
    Whole,
    /// There is none.
    Nothing,
    /// A part of it.
    Partly,
    /// None of it, though there may be some.
    Hidden,
}

impl Seen {
    /// The word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Whole => "seen",
            Self::Nothing => "nothing_there",
            Self::Partly => "partly",
            Self::Hidden => "hidden",
        }
    }
}

/// One row: an area, how much of it is seen, why not more, and what would change that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sight {
    /// The area: a collector's name, or `host`, `namespace`, `memory`, `kernel`.
    pub area: &'static str,
    /// How much.
    pub seen: Seen,
    /// Why not more, in a word; empty where all is seen.
    pub reason: &'static str,
    /// A sentence without a period.
    pub text: String,
    /// What would show more.
    pub remedy: Option<String>,
}

/// Collectors that read a part of the host, and what that is.
const AREAS: [(&str, &str); 9] = [
    ("rdma", "RDMA devices"),
    ("rdma_netlink", "RDMA resources"),
    ("pci", "PCI functions and links"),
    ("net", "interfaces"),
    ("sriov", "PFs and their VFs"),
    ("holders", "who holds VFs"),
    ("irq", "interrupts"),
    ("ethtool", "Ethernet statistics"),
    ("kmsg", "kernel messages"),
];

/// With less memory than this the agent may be killed on a large host.
const LITTLE_MEMORY: u64 = 32 << 20;

/// The oldest kernel that is looked after.
const OLDEST: (u32, u32) = (4, 18);

/// Every area, the host as a whole first.
pub fn outlook(snapshot: &Snapshot, vf_map: &VfMap) -> Vec<Sight> {
    // Not read yet: nothing is known to be missing.
    let unknown = Environment { live: true, has_sysfs: true, has_procfs: true, ..Environment::default() };
    let environment = snapshot.all::<Environment>().next().unwrap_or(&unknown);
    let mut sights = vec![host(environment)];
    sights.extend(namespace(snapshot));
    sights.extend(memory(environment));
    sights.extend(kernel(snapshot));
    let areas = AREAS.iter().filter_map(|(name, what)| Some((*name, *what, snapshot.collector(name)?)));
    sights.extend(areas.map(|(name, what, collector)| match name {
        "holders" => holders(vf_map, environment).unwrap_or_else(|| area(name, what, collector, environment)),
        _ if !environment.has_sysfs && name != "kmsg" => Sight {
            area: name,
            seen: Seen::Hidden,
            reason: "no_sysfs",
            text: format!("{what}: not without sysfs"),
            remedy: None,
        },
        _ => area(name, what, collector, environment),
    }));
    sights
}

fn host(environment: &Environment) -> Sight {
    let (seen, reason, text, remedy) = match (environment.has_sysfs, environment.has_procfs) {
        (false, _) => (
            Seen::Hidden,
            "no_sysfs",
            format!("there is no sysfs at {}", environment.sysfs),
            Some("mount the host's /sys and name it with --path.sysfs, or its root with --path.rootfs"),
        ),
        (true, false) => (
            Seen::Partly,
            "no_procfs",
            "there is no procfs".to_owned(),
            Some("mount the host's /proc and name it with --path.procfs, or its root with --path.rootfs"),
        ),
        (true, true) => {
            let place = environment.container.map_or_else(String::new, |kind| format!(", from a container ({kind})"));
            (Seen::Whole, "", format!("sysfs at {}{place}", environment.sysfs), None)
        }
    };
    Sight { area: "host", seen, reason, text, remedy: remedy.map(str::to_owned) }
}

fn namespace(snapshot: &Snapshot) -> Option<Sight> {
    let posture = snapshot.all::<Posture>().next()?;
    (posture.foreign_netns == Some(true)).then(|| Sight {
        area: "namespace",
        seen: Seen::Partly,
        reason: "network_namespace",
        text: match posture.rdma_netns_mode {
            Some("exclusive") => "interfaces, VF settings and RDMA devices are those of another network namespace",
            _ => "interfaces and VF settings are those of another network namespace",
        }
        .to_owned(),
        remedy: Some("run in the host's network namespace (hostNetwork: true, --network host)".to_owned()),
    })
}

fn memory(environment: &Environment) -> Option<Sight> {
    let limit = environment.memory_limit_bytes.filter(|limit| *limit < LITTLE_MEMORY)?;
    Some(Sight {
        area: "memory",
        seen: Seen::Partly,
        reason: "memory_limit",
        text: format!("the memory limit is {} MiB, and a large host may need more", limit >> 20),
        remedy: Some(format!("a limit of {} MiB", LITTLE_MEMORY >> 20)),
    })
}

fn kernel(snapshot: &Snapshot) -> Option<Sight> {
    let release = snapshot.system()?.kernel.as_ref()?;
    let mut numbers = release.split(['.', '-', '+']).map(|word| word.parse::<u32>().ok());
    let version = (numbers.next()??, numbers.next()??);
    (version < OLDEST).then(|| Sight {
        area: "kernel",
        seen: Seen::Partly,
        reason: "old_kernel",
        text: format!(
            "Linux {release} is older than {}.{}: files and netlink messages may be missing",
            OLDEST.0, OLDEST.1
        ),
        remedy: Some("a newer kernel".to_owned()),
    })
}

fn area(name: &'static str, what: &str, collector: &CollectorState, environment: &Environment) -> Sight {
    let sight = |seen, reason, text, remedy| Sight { area: name, seen, reason, text, remedy };
    let hidden = collector.faults.iter().filter(|fault| fault.reason == Reason::Permission).count();
    let first = collector.faults.iter().find(|fault| fault.reason == Reason::Permission);
    let others = collector.faults.len() - hidden;
    let count = collector.listed.as_ref().map(|listed| listed.len());
    if let Some(first) = first {
        let (reason, remedy) = permission(name, environment);
        let more = if hidden > 1 { format!(" and {} more", hidden - 1) } else { String::new() };
        let seen = if count.unwrap_or(0) == 0 || name == "kmsg" { Seen::Hidden } else { Seen::Partly };
        return sight(seen, reason, format!("{what}: no permission for {}{more}", first.source), Some(remedy));
    }
    match count {
        None => sight(Seen::Hidden, "unreadable", format!("{what}: they cannot be listed"), None),
        _ if !collector.stuck.is_empty() => {
            sight(Seen::Partly, "stuck", format!("{what}: {} does not answer", collector.stuck.join(", ")), None)
        }
        Some(_) if others > 0 => {
            let files = counted(others, "file");
            let text = format!("{what}: {files} cannot be read (the collectors' table says which)");
            sight(Seen::Partly, "unreadable", text, None)
        }
        // A kernel always has a log: a /dev of the agent's own hides it.
        Some(0) if name == "kmsg" && environment.live => sight(
            Seen::Hidden,
            "no_device",
            format!("{what}: there is no /dev/kmsg here"),
            Some("the host's /dev/kmsg, and CAP_SYSLOG where kernel.dmesg_restrict is on".to_owned()),
        ),
        Some(0) => sight(Seen::Nothing, "", format!("{what}: none here"), None),
        Some(_) if matches!(name, "kmsg" | "holders") => sight(Seen::Whole, "", format!("{what}: read"), None),
        Some(count) => sight(Seen::Whole, "", format!("{what}: {count} read"), None),
    }
}

/// VFs and those whose holders are hidden; none where no VF's holder is.
fn holders(vf_map: &VfMap, environment: &Environment) -> Option<Sight> {
    let hidden = |row: &&Row| matches!(row.holder, Holder::Unknown(missing) if missing.is_permission());
    let (count, all) = (vf_map.rows.values().filter(hidden).count(), vf_map.rows.len());
    if all == 0 && environment.has_sysfs {
        let text = "who holds VFs: no VFs here".to_owned();
        return Some(Sight { area: "holders", seen: Seen::Nothing, reason: "", text, remedy: None });
    }
    if count == 0 {
        return None;
    }
    let files = vf_map.rows.values().any(|row| row.holder == Holder::Unknown(Missing::Search));
    let (reason, remedy) = permission(if files { "libvirt" } else { "holders" }, environment);
    let seen = if count == all { Seen::Hidden } else { Seen::Partly };
    let text = format!("who holds VFs: not told of {count} of {all}");
    Some(Sight { area: "holders", seen, reason, text, remedy: Some(remedy) })
}

/// Why a permission is missing, and what would grant it.
fn permission(collector: &str, environment: &Environment) -> (&'static str, String) {
    let needed = match collector {
        "kmsg" => Capability::Syslog,
        "holders" => Capability::SysPtrace,
        _ => Capability::DacReadSearch,
    };
    if environment.user_namespace == Some(true) {
        let remedy = format!("{} outside of a user namespace (in one it reaches nothing of the host)", needed.as_str());
        return ("user_namespace", remedy);
    }
    match (&environment.confinement, environment.has(needed)) {
        (Some(profile), Some(true)) => {
            ("confinement", format!("the profile {profile}, if it allowed it ({} is there),", needed.as_str()))
        }
        _ => ("permission", needed.as_str().to_owned()),
    }
}

/// All rows in one line: what is seen, then what is not, with what would change that. What permissions hide is in
/// `missing` already, by what would grant them.
pub fn summary(sights: &[Sight], missing: &[Arc<str>]) -> String {
    let names = |seen: Seen| sights.iter().filter(move |sight| sight.seen == seen).map(|sight| sight.area);
    let list = |seen| names(seen).collect::<Vec<_>>().join(", ");
    let mut parts = vec![format!("seen: {}", list(Seen::Whole))];
    if names(Seen::Nothing).next().is_some() {
        parts.push(format!("nothing there: {}", list(Seen::Nothing)));
    }
    let granted = |sight: &&Sight| PERMISSIONS.contains(&sight.reason);
    for sight in sights.iter().filter(|sight| sight.seen >= Seen::Partly && !granted(sight)) {
        let remedy = sight.remedy.as_ref().map_or_else(String::new, |remedy| format!(" (would change that: {remedy})"));
        parts.push(format!("{} {}: {}{remedy}", sight.seen.as_str(), sight.area, sight.text));
    }
    parts.extend(missing.iter().map(ToString::to_string));
    parts.join("; ")
}

#[cfg(test)]
mod tests;
