//! The agent's own environment: container, namespaces, capabilities, confinement, memory limit. Read once a minute,
//! because limits and profiles change at run time.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::collector::{Collector, DeviceReader, Discovered, ReadContext, Setup, Spec};
use super::text;
use crate::model::host::Environment;
use crate::model::reading::ReadError;
use crate::model::snapshot::Fact;

/// The collector of the agent's environment.
pub const SPEC: Spec = Spec {
    name: "environment",
    about: "The agent's own environment: container, namespaces, capabilities, confinement, memory limit",
    interval: Duration::from_secs(60),
    deadline: Duration::from_secs(2),
    fresh: false,
    make,
};

fn make(_: &Setup) -> Box<dyn Collector> {
    Box::new(EnvironmentCollector)
}

/// Files that a container runtime leaves at the root, and the runtime.
const MARKS: [(&str, &str); 3] =
    [("/var/run/secrets/kubernetes.io", "kubernetes"), ("/.dockerenv", "docker"), ("/run/.containerenv", "podman")];

/// The full range of user IDs, which only the initial user namespace maps.
const EVERYONE: u64 = 4_294_967_295;

struct EnvironmentCollector;

impl Collector for EnvironmentCollector {
    fn discover(&mut self, _: &mut ReadContext<'_>) -> Result<Vec<Discovered>, ReadError> {
        Ok(vec![Discovered { key: Arc::from("agent"), device: None }])
    }

    fn open(&mut self, _: &Discovered) -> Box<dyn DeviceReader> {
        Box::new(EnvironmentCollector)
    }
}

impl DeviceReader for EnvironmentCollector {
    /// A missing or unreadable file is no fault here: this collector reports what is hidden.
    fn read(&mut self, cx: &mut ReadContext<'_>) -> Vec<Fact> {
        let (sysfs, procfs) = (cx.host.sysfs.clone(), cx.host.procfs.clone());
        let there = |cx: &ReadContext<'_>, path: &Path| cx.host.io.list(path).is_ok_and(|names| !names.is_empty());
        let mut own = |file: &str| content(cx, &procfs.join("self").join(file));
        let (map, status, attribute) = (own("uid_map"), own("status"), own("attr/current"));
        let groups = own("cgroup");
        let environment = Environment {
            live: cx.host.live,
            sysfs: Arc::from(sysfs.to_string_lossy()),
            has_sysfs: ["class", "bus", "devices"].iter().any(|name| there(cx, &sysfs.join(name))),
            has_procfs: there(cx, &procfs),
            // On a recorded host these would be those of the machine that replays it.
            container: if cx.host.live { container(cx) } else { None },
            user_namespace: map.as_deref().and_then(in_user_namespace),
            capabilities: status.as_deref().and_then(effective),
            confinement: attribute.as_deref().and_then(confinement),
            memory_limit_bytes: groups.as_deref().and_then(|groups| memory_limit(cx, &sysfs, groups)),
        };
        vec![Arc::new(environment)]
    }
}

/// The beginning of a file; the rest of these files is not needed.
fn content(cx: &mut ReadContext<'_>, path: &Path) -> Option<String> {
    let length = cx.host.io.open(path).and_then(|mut file| file.read(&mut cx.buffer[..])).ok()?;
    Some(String::from_utf8_lossy(cx.buffer.get(..length)?).into_owned())
}

fn container(cx: &ReadContext<'_>) -> Option<&'static str> {
    MARKS.iter().find(|(mark, _)| cx.host.io.stamp(Path::new(mark)).is_ok()).map(|(_, kind)| *kind)
}

/// `         0          0 4294967295`: first user here, first user outside, how many.
/// An empty map belongs to a new namespace, never to the initial one.
fn in_user_namespace(map: &str) -> Option<bool> {
    if map.is_empty() {
        return Some(true);
    }
    let words = map.lines().next()?.split_ascii_whitespace();
    let mut numbers = words.map(|word| text::parse_decimal(word.as_bytes()));
    let (inside, outside, count) = (numbers.next()??, numbers.next()??, numbers.next()??);
    Some((inside, outside, count) != (0, 0, EVERYONE))
}

/// `CapEff: 000001ffffffffff`, with a tab.
fn effective(status: &str) -> Option<u64> {
    let digits = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(digits.trim(), 16).ok()
}

/// `docker-default (enforce)`, `system_u:system_r:container_t:s0:c1,c2`; not `unconfined` in either.
fn confinement(attribute: &str) -> Option<Arc<str>> {
    let word = attribute.trim_matches(['\0', '\n', ' ']);
    let free = word.is_empty() || word.contains("unconfined") || word.ends_with("(complain)") || word == "kernel";
    (!free).then(|| Arc::from(word))
}

/// The least limit from the agent's control group up to the root, in version 2 or 1.
fn memory_limit(cx: &mut ReadContext<'_>, sysfs: &Path, groups: &str) -> Option<u64> {
    let of = |line: &str| {
        let mut parts = line.splitn(3, ':');
        let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let root = sysfs.join("fs/cgroup");
        if number == "0" && controllers.is_empty() {
            return Some((root, path.to_owned(), "memory.max"));
        }
        let memory = controllers.split(',').any(|controller| controller == "memory");
        memory.then(|| (root.join("memory"), path.to_owned(), "memory.limit_in_bytes"))
    };
    let mut least: Option<u64> = None;
    for (root, path, file) in groups.lines().filter_map(of) {
        let mut folder: Option<PathBuf> = Some(root.join(path.trim_start_matches('/')));
        while let Some(group) = folder.take_if(|group| group.starts_with(&root)) {
            let limit = content(cx, &group.join(file)).and_then(|text| text::parse_decimal(text.trim().as_bytes()));
            // In version 1 "no limit" is the highest number of whole pages.
            least = limit.filter(|limit| *limit < 1 << 60).into_iter().chain(least).min();
            folder = group.parent().map(Path::to_owned);
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::host::collector::Depth;
    use crate::host::memory::MemoryHost;
    use crate::model::host::Capability;
    use crate::model::time::BootTime;

    fn read(host: &Arc<MemoryHost>, live: bool) -> Environment {
        let mut host = host.host();
        host.live = live;
        let mut cx = ReadContext::new(&host, BootTime(0), Depth::Full);
        let facts = EnvironmentCollector.read(&mut cx);
        assert!(cx.faults.is_empty());
        facts.first().and_then(|fact| fact.downcast_ref().cloned()).unwrap()
    }

    #[test]
    fn a_host_without_anything_says_nothing() {
        let environment = read(&Arc::new(MemoryHost::new()), true);
        assert!(!environment.has_sysfs && !environment.has_procfs && environment.container.is_none());
        assert_eq!(environment.has(Capability::Syslog), None);
    }

    #[test]
    fn a_pod_on_an_old_host() {
        let host = Arc::new(MemoryHost::new());
        host.set("/sys/class/net/lo/mtu", "65536\n");
        host.set("/proc/self/uid_map", "         0          0 4294967295\n");
        host.set("/proc/self/status", "Name:\tlanewatch\nCapPrm:\t0000000000000000\nCapEff:\t0000000000080004\n");
        host.set("/proc/self/attr/current", "cri-containerd.apparmor.d (enforce)\n");
        host.set("/proc/self/cgroup", "12:cpu,cpuacct:/pod/c\n5:memory:/pod/c\n1:name=systemd:/pod/c\n");
        host.set("/sys/fs/cgroup/memory/pod/c/memory.limit_in_bytes", "9223372036854771712\n");
        host.set("/sys/fs/cgroup/memory/pod/memory.limit_in_bytes", "33554432\n");
        host.set("/.dockerenv", "");
        let environment = read(&host, true);
        assert!(environment.has_sysfs && environment.has_procfs);
        assert_eq!((environment.container, environment.user_namespace), (Some("docker"), Some(false)));
        let has = [Capability::DacReadSearch, Capability::SysPtrace, Capability::Syslog].map(|c| environment.has(c));
        assert_eq!(has, [Some(true), Some(true), Some(false)]);
        assert_eq!(environment.confinement.as_deref(), Some("cri-containerd.apparmor.d (enforce)"));
        assert_eq!(environment.memory_limit_bytes, Some(32 << 20));
        // A recorded host is not the machine that replays it.
        assert_eq!(read(&host, false).container, None);
    }

    #[test]
    fn the_least_limit_on_the_way_up_holds() {
        let host = Arc::new(MemoryHost::new());
        host.set("/proc/self/cgroup", "0::/a.slice/b.service\n");
        host.set("/sys/fs/cgroup/a.slice/b.service/memory.max", "max\n");
        host.set("/sys/fs/cgroup/a.slice/memory.max", "67108864\n");
        assert_eq!(read(&host, true).memory_limit_bytes, Some(64 << 20));
        host.set("/proc/self/cgroup", "0::/\n");
        assert_eq!(read(&host, true).memory_limit_bytes, None);
    }

    #[test]
    fn confinement_profiles() {
        let table = [
            ("unconfined\n", None),
            ("docker-default (enforce)\n", Some("docker-default (enforce)")),
            ("mine (complain)\n", None),
            ("system_u:system_r:container_t:s0:c1,c2\0", Some("system_u:system_r:container_t:s0:c1,c2")),
            ("unconfined_u:unconfined_r:unconfined_t:s0\0", None),
            ("kernel\0", None),
            ("", None),
        ];
        for (text, expected) in table {
            assert_eq!(confinement(text).as_deref(), expected, "{text}");
        }
        for (map, expected) in [
            ("0 0 4294967295", Some(false)),
            ("0 1000 1\n1 100000 65536", Some(true)),
            ("0 0 65536", Some(true)),
            ("", Some(true)),
            ("0 0", None),
        ] {
            assert_eq!(in_user_namespace(map), expected, "{map}");
        }
    }

    proptest! {
        #[test]
        fn any_text_parses_without_a_panic(text in "\\PC{0,80}") {
            let host = Arc::new(MemoryHost::new());
            let host = host.host();
            let mut cx = ReadContext::new(&host, BootTime(0), Depth::Full);
            let _ = (in_user_namespace(&text), effective(&text), confinement(&text));
            let _ = memory_limit(&mut cx, Path::new("/sys"), &text);
        }
    }
}
