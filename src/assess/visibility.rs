//! What can be seen of a host from where the agent stands, what cannot, and what would change that.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::holder::{Holder, MissingAccess};
use crate::model::host::Posture;
use crate::model::host::{Capability, Environment};
use crate::model::reading::ReadError;
use crate::model::snapshot::{CollectorState, Snapshot};
use crate::model::units::counted;
use crate::model::vfmap::{MappedVf, VfMap};

/// How much of something is seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum VisibilityLevel {
    /// All of it.
    Whole,
    /// There is none.
    Nothing,
    /// A part of it.
    Partly,
    /// None of it, though there may be some.
    Hidden,
}

impl VisibilityLevel {
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

/// Why not all of an area is seen: the `reason` label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VisibilityLimit {
    /// There is no sysfs where it was looked for.
    NoSysfs,
    /// There is no procfs where it was looked for.
    NoProcfs,
    /// The agent is in another network namespace than the host.
    NetworkNamespace,
    /// Its memory limit may be too small for a large host.
    MemoryLimit,
    /// The kernel is older than any that is supported.
    OldKernel,
    /// Files that cannot be read.
    Unreadable,
    /// A device that is not responding.
    Stuck,
    /// The device file is missing.
    NoDevice,
    /// A capability is missing.
    Permission,
    /// The capability is one of a user namespace, which does not apply to the host.
    UserNamespace,
    /// A security profile denies what the capability allows.
    Confinement,
}

impl VisibilityLimit {
    /// The word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoSysfs => "no_sysfs",
            Self::NoProcfs => "no_procfs",
            Self::NetworkNamespace => "network_namespace",
            Self::MemoryLimit => "memory_limit",
            Self::OldKernel => "old_kernel",
            Self::Unreadable => "unreadable",
            Self::Stuck => "stuck",
            Self::NoDevice => "no_device",
            Self::Permission => "permission",
            Self::UserNamespace => "user_namespace",
            Self::Confinement => "confinement",
        }
    }

    /// Whether a permission would lift it.
    const fn is_permission(self) -> bool {
        matches!(self, Self::Permission | Self::UserNamespace | Self::Confinement)
    }
}

/// One row: an area, how much of it is seen, why not more, and what would change that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Visibility {
    /// The area: a collector's name, or `host`, `namespace`, `memory`, `kernel`.
    pub area: &'static str,
    /// How much.
    pub seen: VisibilityLevel,
    /// Why not more; `None` where all is seen.
    pub limit: Option<VisibilityLimit>,
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
    ("holders", "VF holders"),
    ("irq", "interrupts"),
    ("ethtool", "Ethernet statistics"),
    ("kmsg", "kernel messages"),
];

/// With less memory than this the agent may be killed on a large host.
const LITTLE_MEMORY: u64 = 32 << 20;

/// The oldest kernel that is looked after.
const OLDEST: (u32, u32) = (4, 18);

/// Every area, the host as a whole first.
pub fn visibility(snapshot: &Snapshot, vf_map: &VfMap) -> Vec<Visibility> {
    // Not read yet: nothing is known to be missing.
    let unknown = Environment { live: true, has_sysfs: true, has_procfs: true, ..Environment::default() };
    let environment = snapshot.all::<Environment>().next().unwrap_or(&unknown);
    let mut areas = vec![host(environment)];
    areas.extend(namespace(snapshot));
    areas.extend(memory(environment));
    areas.extend(kernel(snapshot));
    let collectors = AREAS.iter().filter_map(|(name, what)| Some((*name, *what, snapshot.collector(name)?)));
    areas.extend(collectors.map(|(name, what, collector)| match name {
        "holders" => holders(vf_map, environment).unwrap_or_else(|| area(name, what, collector, environment)),
        _ if !environment.has_sysfs && name != "kmsg" => Visibility {
            area: name,
            seen: VisibilityLevel::Hidden,
            limit: Some(VisibilityLimit::NoSysfs),
            text: format!("{what}: unknown without sysfs"),
            remedy: None,
        },
        _ => area(name, what, collector, environment),
    }));
    areas
}

fn host(environment: &Environment) -> Visibility {
    let (seen, limit, text, remedy) = match (environment.has_sysfs, environment.has_procfs) {
        (false, _) => (
            VisibilityLevel::Hidden,
            Some(VisibilityLimit::NoSysfs),
            format!("no sysfs at {}", environment.sysfs),
            Some("mount the host's /sys and name it with --path.sysfs, or its root with --path.rootfs"),
        ),
        (true, false) => (
            VisibilityLevel::Partly,
            Some(VisibilityLimit::NoProcfs),
            "no procfs".to_owned(),
            Some("mount the host's /proc and name it with --path.procfs, or its root with --path.rootfs"),
        ),
        (true, true) => {
            let place = environment.container.map_or_else(String::new, |kind| format!(", from a container ({kind})"));
            (VisibilityLevel::Whole, None, format!("sysfs at {}{place}", environment.sysfs), None)
        }
    };
    Visibility { area: "host", seen, limit, text, remedy: remedy.map(str::to_owned) }
}

fn namespace(snapshot: &Snapshot) -> Option<Visibility> {
    let posture = snapshot.all::<Posture>().next()?;
    (posture.foreign_netns == Some(true)).then(|| Visibility {
        area: "namespace",
        seen: VisibilityLevel::Partly,
        limit: Some(VisibilityLimit::NetworkNamespace),
        text: match posture.rdma_netns_mode {
            Some("exclusive") => "interfaces, VF settings and RDMA devices belong to another network namespace",
            _ => "interfaces and VF settings belong to another network namespace",
        }
        .to_owned(),
        remedy: Some("run in the host's network namespace (hostNetwork: true, --network host)".to_owned()),
    })
}

fn memory(environment: &Environment) -> Option<Visibility> {
    let limit = environment.memory_limit_bytes.filter(|limit| *limit < LITTLE_MEMORY)?;
    Some(Visibility {
        area: "memory",
        seen: VisibilityLevel::Partly,
        limit: Some(VisibilityLimit::MemoryLimit),
        text: format!("the memory limit is {} MiB; a large host may need more", limit >> 20),
        remedy: Some(format!("a limit of {} MiB", LITTLE_MEMORY >> 20)),
    })
}

fn kernel(snapshot: &Snapshot) -> Option<Visibility> {
    let release = snapshot.system()?.kernel.as_ref()?;
    let mut numbers = release.split(['.', '-', '+']).map(|word| word.parse::<u32>().ok());
    let version = (numbers.next()??, numbers.next()??);
    (version < OLDEST).then(|| Visibility {
        area: "kernel",
        seen: VisibilityLevel::Partly,
        limit: Some(VisibilityLimit::OldKernel),
        text: format!(
            "Linux {release} is older than {}.{}: files and netlink messages may be missing",
            OLDEST.0, OLDEST.1
        ),
        remedy: Some("a newer kernel".to_owned()),
    })
}

fn area(name: &'static str, what: &str, collector: &CollectorState, environment: &Environment) -> Visibility {
    let result = |seen, limit, text, remedy| Visibility { area: name, seen, limit, text, remedy };
    let hidden = collector.faults.iter().filter(|fault| fault.reason == ReadError::Permission).count();
    let first = collector.faults.iter().find(|fault| fault.reason == ReadError::Permission);
    let others = collector.faults.len() - hidden;
    let count = collector.listed.as_ref().map(|listed| listed.len());
    if let Some(first) = first {
        let (limit, remedy) = permission(name, environment);
        let more = if hidden > 1 { format!(" and {} more", hidden - 1) } else { String::new() };
        let seen =
            if count.unwrap_or(0) == 0 || name == "kmsg" { VisibilityLevel::Hidden } else { VisibilityLevel::Partly };
        return result(seen, Some(limit), format!("{what}: no permission for {}{more}", first.source), Some(remedy));
    }
    match count {
        None => result(
            VisibilityLevel::Hidden,
            Some(VisibilityLimit::Unreadable),
            format!("{what}: cannot be listed"),
            None,
        ),
        _ if !collector.stuck.is_empty() => result(
            VisibilityLevel::Partly,
            Some(VisibilityLimit::Stuck),
            format!("{what}: {} is not responding", collector.stuck.join(", ")),
            None,
        ),
        Some(_) if others > 0 => {
            let files = counted(others, "file");
            let text = format!("{what}: {files} unreadable (see the table of collectors)");
            result(VisibilityLevel::Partly, Some(VisibilityLimit::Unreadable), text, None)
        }
        // A kernel always has a log: a /dev of the agent's own hides it.
        Some(0) if name == "kmsg" && environment.live => result(
            VisibilityLevel::Hidden,
            Some(VisibilityLimit::NoDevice),
            format!("{what}: /dev/kmsg is missing"),
            Some("the host's /dev/kmsg, and CAP_SYSLOG where kernel.dmesg_restrict is on".to_owned()),
        ),
        Some(0) => result(VisibilityLevel::Nothing, None, format!("{what}: none"), None),
        Some(_) if matches!(name, "kmsg" | "holders") => {
            result(VisibilityLevel::Whole, None, format!("{what}: read"), None)
        }
        Some(count) => result(VisibilityLevel::Whole, None, format!("{what}: {count} read"), None),
    }
}

/// VFs and those whose holders are hidden; `None` if no VF's holder is.
fn holders(vf_map: &VfMap, environment: &Environment) -> Option<Visibility> {
    let hidden = |row: &&MappedVf| matches!(row.holder, Holder::Unknown(missing) if missing.is_permission());
    let (count, all) = (vf_map.vfs.values().filter(hidden).count(), vf_map.vfs.len());
    if all == 0 && environment.has_sysfs {
        let text = "VF holders: no VFs on this host".to_owned();
        return Some(Visibility { area: "holders", seen: VisibilityLevel::Nothing, limit: None, text, remedy: None });
    }
    if count == 0 {
        return None;
    }
    let files = vf_map.vfs.values().any(|row| row.holder == Holder::Unknown(MissingAccess::Search));
    let (limit, remedy) = permission(if files { "libvirt" } else { "holders" }, environment);
    let seen = if count == all { VisibilityLevel::Hidden } else { VisibilityLevel::Partly };
    let text = format!("VF holders: unknown for {count} of {all}");
    Some(Visibility { area: "holders", seen, limit: Some(limit), text, remedy: Some(remedy) })
}

/// Why a permission is missing, and what would grant it.
fn permission(collector: &str, environment: &Environment) -> (VisibilityLimit, String) {
    let needed = match collector {
        "kmsg" => Capability::Syslog,
        "holders" => Capability::SysPtrace,
        _ => Capability::DacReadSearch,
    };
    if environment.user_namespace == Some(true) {
        let remedy = format!("{} outside a user namespace (inside one it does not apply to the host)", needed.as_str());
        return (VisibilityLimit::UserNamespace, remedy);
    }
    match (&environment.confinement, environment.has(needed)) {
        (Some(profile), Some(true)) => (
            VisibilityLimit::Confinement,
            format!("the profile {profile}, if it allowed the access ({} is granted),", needed.as_str()),
        ),
        _ => (VisibilityLimit::Permission, needed.as_str().to_owned()),
    }
}

/// All rows in one line: what is seen, then what is not, with what would change that. What permissions hide is in
/// `missing` already, by what would grant them.
pub fn summary(areas: &[Visibility], missing: &[Arc<str>]) -> String {
    let names = |seen: VisibilityLevel| areas.iter().filter(move |area| area.seen == seen).map(|area| area.area);
    let list = |seen| names(seen).collect::<Vec<_>>().join(", ");
    let mut parts = vec![format!("seen: {}", list(VisibilityLevel::Whole))];
    if names(VisibilityLevel::Nothing).next().is_some() {
        parts.push(format!("nothing there: {}", list(VisibilityLevel::Nothing)));
    }
    let granted = |area: &&Visibility| area.limit.is_some_and(VisibilityLimit::is_permission);
    for area in areas.iter().filter(|area| area.seen >= VisibilityLevel::Partly && !granted(area)) {
        let remedy = area.remedy.as_ref().map_or_else(String::new, |remedy| format!(" (fix: {remedy})"));
        parts.push(format!("{} {}: {}{remedy}", area.seen.as_str(), area.area, area.text));
    }
    parts.extend(missing.iter().map(ToString::to_string));
    parts.join("; ")
}

/// What the collectors read that are no area of their own.
const REST: [(&str, &str); 12] = [
    ("devlink", "device health"),
    ("gids", "port addressing"),
    ("machine", "virtualization"),
    ("netdev_setup", "interface settings"),
    ("numa", "NUMA nodes"),
    ("pci_tree", "GPU and network card topology"),
    ("pods", "pod names"),
    ("posture", "host settings"),
    ("qid_map", "queue pair maps"),
    ("rdma_cgroup", "RDMA use of pods and jobs"),
    ("rdma_qp", "queue pairs"),
    ("system", "host name and uptime"),
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
        by_remedy.entry(grants(missing, environment)).or_default().push(format!("holders of {}", counted(count, "VF")));
    }
    by_remedy.into_iter().map(|(remedy, what)| Arc::from(format!("{remedy} would show: {}", what.join(", ")))).collect()
}

/// What permissions hide of a collector; `None` if they hide nothing.
fn of_collector(collector: &CollectorState) -> Option<String> {
    let count = collector.faults.iter().filter(|fault| fault.reason == ReadError::Permission).count();
    let names = AREAS.iter().chain(&REST);
    let what = names.into_iter().find(|(name, _)| *name == collector.name).map_or(collector.name, |(_, what)| *what);
    match count {
        0 => None,
        _ if collector.name == "kmsg" => Some(what.to_owned()),
        count => Some(format!("{what} ({})", counted(count, "file"))),
    }
}

/// VFs whose holder a permission hides, by that permission.
fn of_holders(vf_map: &VfMap) -> BTreeMap<MissingAccess, usize> {
    let mut hidden = BTreeMap::new();
    for row in vf_map.vfs.values() {
        if let Holder::Unknown(missing) = row.holder
            && missing.is_permission()
        {
            *hidden.entry(missing).or_default() += 1;
        }
    }
    hidden
}

fn grants(missing: MissingAccess, environment: &Environment) -> String {
    let collector = if missing == MissingAccess::Search { "libvirt" } else { "holders" };
    match permission(collector, environment) {
        (VisibilityLimit::Permission, _) => missing.as_str().to_owned(),
        (_, remedy) => remedy,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::SystemTime;

    use super::*;
    use crate::model::host::System;
    use crate::model::snapshot::{Fact, Fault};
    use crate::model::time::{BootTime, Timestamp};

    fn environment() -> Environment {
        Environment {
            sysfs: Arc::from("/sys"),
            has_sysfs: true,
            has_procfs: true,
            user_namespace: Some(false),
            capabilities: Some(0),
            ..Environment::default()
        }
    }

    fn collector(name: &'static str, listed: usize, denied: &[&str]) -> CollectorState {
        let fault = |source: &&str| Fault { source: Arc::from(*source), reason: ReadError::Permission };
        CollectorState {
            name,
            success: true,
            listed: Some((0..listed).map(|n| Arc::from(n.to_string())).collect()),
            faults: denied.iter().map(fault).collect(),
            ..CollectorState::default()
        }
    }

    fn areas(environment: Environment, facts: Vec<Fact>, collectors: Vec<CollectorState>) -> Vec<Visibility> {
        let taken = Timestamp { tick: BootTime(0), wall: SystemTime::UNIX_EPOCH };
        let facts = facts.into_iter().chain([Arc::new(environment) as Fact]);
        visibility(&Snapshot::new(taken, facts, collectors), &VfMap::default())
    }

    fn of<'a>(areas: &'a [Visibility], name: &str) -> (VisibilityLevel, &'a str, &'a str) {
        let area = areas.iter().find(|area| area.area == name).unwrap_or_else(|| panic!("{name}: {areas:#?}"));
        (area.seen, area.limit.map_or("", VisibilityLimit::as_str), area.remedy.as_deref().unwrap_or_default())
    }

    #[test]
    fn a_host_without_a_card_hides_nothing() {
        let areas = areas(environment(), Vec::new(), vec![collector("rdma", 0, &[]), collector("pci", 0, &[])]);
        assert_eq!(of(&areas, "host"), (VisibilityLevel::Whole, "", ""));
        assert_eq!(of(&areas, "rdma"), (VisibilityLevel::Nothing, "", ""));
        assert_eq!(summary(&areas, &[]), "seen: host; nothing there: rdma, pci");
    }

    #[test]
    fn a_container_without_the_hosts_sysfs_sees_nothing_and_is_told_what_to_mount() {
        let none = Environment { has_sysfs: false, ..environment() };
        let areas = areas(none, Vec::new(), vec![collector("rdma", 0, &[]), collector("kmsg", 1, &[])]);
        let (seen, reason, remedy) = of(&areas, "host");
        assert_eq!((seen, reason), (VisibilityLevel::Hidden, "no_sysfs"));
        assert!(remedy.contains("--path.sysfs"), "{remedy}");
        // Not: there is none.
        assert_eq!(of(&areas, "rdma").0, VisibilityLevel::Hidden);
        assert_eq!(of(&areas, "kmsg").0, VisibilityLevel::Whole);
        assert!(summary(&areas, &[]).contains("hidden host: no sysfs at /sys (fix: mount"));
    }

    #[test]
    fn a_kernel_log_that_is_not_there_is_hidden_but_on_a_recorded_host() {
        let kmsg = || vec![collector("kmsg", 0, &[])];
        let live = areas(Environment { live: true, ..environment() }, Vec::new(), kmsg());
        let (seen, reason, remedy) = of(&live, "kmsg");
        assert_eq!((seen, reason), (VisibilityLevel::Hidden, "no_device"));
        assert!(remedy.contains("/dev/kmsg"), "{remedy}");
        assert_eq!(of(&areas(environment(), Vec::new(), kmsg()), "kmsg").0, VisibilityLevel::Nothing);
        // On a slow host the surroundings come after the first pass.
        let taken = Timestamp { tick: BootTime(0), wall: SystemTime::UNIX_EPOCH };
        let early = visibility(&Snapshot::new(taken, Vec::new(), kmsg()), &VfMap::default());
        assert_eq!(of(&early, "kmsg").0, VisibilityLevel::Hidden);
    }

    #[test]
    fn what_is_denied_says_what_would_grant_it() {
        let denied =
            || vec![collector("kmsg", 1, &["/dev/kmsg"]), collector("pci", 4, &["/sys/a/config", "/sys/b/config"])];
        let plain = areas(environment(), Vec::new(), denied());
        assert_eq!(of(&plain, "kmsg"), (VisibilityLevel::Hidden, "permission", "CAP_SYSLOG"));
        assert_eq!(of(&plain, "pci"), (VisibilityLevel::Partly, "permission", "CAP_DAC_READ_SEARCH"));
        assert!(plain.iter().any(|area| area.text.ends_with("no permission for /sys/a/config and 1 more")));

        let user = Environment { user_namespace: Some(true), capabilities: Some(u64::MAX), ..environment() };
        let apart = areas(user, Vec::new(), denied());
        let (_, reason, remedy) = of(&apart, "kmsg");
        assert_eq!(reason, "user_namespace");
        assert!(remedy.contains("outside a user namespace"), "{remedy}");

        // A profile denies what the capability would allow; without the capability both may be to blame.
        let profile = Some(Arc::from("docker-default (enforce)"));
        let confined = Environment { confinement: profile, capabilities: Some(u64::MAX), ..environment() };
        let all = areas(confined.clone(), Vec::new(), denied());
        let (_, reason, remedy) = of(&all, "kmsg");
        assert_eq!(reason, "confinement");
        assert!(
            remedy
                .starts_with("the profile docker-default (enforce), if it allowed the access (CAP_SYSLOG is granted)"),
            "{remedy}"
        );
        let weak = areas(Environment { capabilities: Some(0), ..confined }, Vec::new(), denied());
        assert_eq!(of(&weak, "kmsg").1, "permission");
    }

    #[test]
    fn what_permissions_hide_is_said_once_for_each_that_would_show_it() {
        let denied = |environment: Environment, kmsg: &[&str]| {
            let taken = Timestamp { tick: BootTime(0), wall: SystemTime::UNIX_EPOCH };
            let collectors = vec![
                collector("kmsg", 1, kmsg),
                collector("pci", 4, &["/sys/a/config", "/sys/b/config"]),
                collector("irq", 2, &["/proc/irq/3/smp_affinity"]),
                collector("gids", 0, &["/sys/c"]),
                collector("rdma", 2, &[]),
            ];
            let snapshot = Snapshot::new(taken, vec![Arc::new(environment) as Fact], collectors);
            let areas = visibility(&snapshot, &VfMap::default());
            let missing = missing(&snapshot, &VfMap::default());
            (missing.clone(), summary(&areas, &missing))
        };
        let (said, line) = denied(environment(), &["/dev/kmsg"]);
        let files = "CAP_DAC_READ_SEARCH would show: PCI functions and links (2 files), interrupts (1 file), port \
                     addressing (1 file)";
        assert_eq!(said, [Arc::from(files), Arc::from("CAP_SYSLOG would show: kernel messages")]);
        assert_eq!(line, format!("seen: host, rdma; {files}; CAP_SYSLOG would show: kernel messages"));
        assert_eq!(denied(environment(), &[]).0.len(), 1);
        let apart = Environment { user_namespace: Some(true), ..environment() };
        let log = "CAP_SYSLOG outside a user namespace (inside one it does not apply to the host) would show: kernel messages";
        assert_eq!(denied(apart, &["/dev/kmsg"]).0[1], Arc::from(log));
    }

    #[test]
    fn other_namespaces_old_kernels_and_little_memory_are_said() {
        let little = Environment { memory_limit_bytes: Some(16 << 20), ..environment() };
        let posture = Posture { foreign_netns: Some(true), rdma_netns_mode: Some("exclusive"), ..Posture::default() };
        let system = System { kernel: Some(Arc::from("4.17.19-generic")), ..System::default() };
        let areas = areas(little, vec![Arc::new(posture), Arc::new(system)], Vec::new());
        assert_eq!(of(&areas, "memory"), (VisibilityLevel::Partly, "memory_limit", "a limit of 32 MiB"));
        assert_eq!(of(&areas, "kernel"), (VisibilityLevel::Partly, "old_kernel", "a newer kernel"));
        let (_, reason, remedy) = of(&areas, "namespace");
        assert_eq!(reason, "network_namespace");
        assert!(remedy.contains("hostNetwork"), "{remedy}");
        assert!(areas.iter().any(|area| area.text.ends_with("RDMA devices belong to another network namespace")));
    }

    #[test]
    fn enough_of_everything_is_no_row() {
        let enough = Environment { memory_limit_bytes: Some(64 << 20), ..environment() };
        for kernel in ["4.18.0-553.el8_10.x86_64", "6.12.0-1-amd64", "5.15", "next"] {
            let system = System { kernel: Some(Arc::from(kernel)), ..System::default() };
            let posture = Posture { foreign_netns: Some(false), ..Posture::default() };
            let areas = areas(enough.clone(), vec![Arc::new(system), Arc::new(posture)], Vec::new());
            assert_eq!(areas.len(), 1, "{kernel}: {areas:#?}");
        }
    }
}
