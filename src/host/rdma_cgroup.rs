//! RDMA contexts and objects of pods and jobs (`rdma.current` and `rdma.max` of their control groups). Unprivileged, and the only
//! source that tells who uses a device that several pods share.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::collector::{Collector, DeviceReader, Discovered, ReadContext, Setup, Spec};
use super::holders::cgroup::owner_of_path;
use super::io::reason_of;
use crate::model::holder::CgroupOwner;
use crate::model::rdma_cgroup::{RdmaCgroup, RdmaResource, RdmaUse};
use crate::model::reading::ReadError;
use crate::model::snapshot::Fact;

/// The collector of RDMA control groups.
pub const SPEC: Spec = Spec {
    name: "rdma_cgroup",
    about: "RDMA contexts and objects of pods and jobs, and their limits",
    interval: Duration::from_secs(30),
    deadline: Duration::from_secs(5),
    fresh: false,
    make: |_: &Setup| Box::new(CgroupCollector),
};

/// Control groups of pods and jobs that are read.
const MOST: usize = 4096;

/// Levels below the root in which they are looked for: a kubelet in a container has them deeper than others.
const DEPTH: usize = 8;

/// Longest file that is read: a line for each device.
const LONGEST: usize = 64 * 1024;

struct CgroupCollector;

impl Collector for CgroupCollector {
    fn discover(&mut self, cx: &mut ReadContext<'_>) -> Result<Vec<Discovered>, ReadError> {
        let found = |_| Discovered { key: Arc::from("groups"), device: None };
        Ok(root(cx).map(found).into_iter().collect())
    }

    fn open(&mut self, _: &Discovered) -> Box<dyn DeviceReader> {
        Box::new(CgroupReader)
    }
}

/// The hierarchy with the controller: its own under cgroup v1, the one of all under v2. `None` if the kernel does not offer it.
fn root(cx: &ReadContext<'_>) -> Option<PathBuf> {
    let whole = cx.host.sysfs.join("fs/cgroup");
    let own = whole.join("rdma");
    if cx.host.io.stamp(&own).is_ok() {
        return Some(own);
    }
    let controllers = content(cx, &whole.join("cgroup.controllers")).ok()?;
    controllers.split_ascii_whitespace().any(|name| name == "rdma").then_some(whole)
}

struct CgroupReader;

impl DeviceReader for CgroupReader {
    fn read(&mut self, cx: &mut ReadContext<'_>) -> Vec<Fact> {
        let Some(root) = root(cx) else { return Vec::new() };
        let mut groups = Vec::new();
        find(cx, &root, String::new(), &mut groups);
        let mut facts: Vec<Fact> = Vec::new();
        for (directory, owner) in groups {
            let uses = uses(cx, &directory);
            if !uses.is_empty() {
                facts.push(Arc::new(RdmaCgroup { owner, uses }));
            }
        }
        facts
    }
}

/// Looks for control groups of pods and jobs, in places where those are.
fn find(cx: &ReadContext<'_>, root: &Path, below: String, groups: &mut Vec<(PathBuf, CgroupOwner)>) {
    let mut pending = vec![below];
    while let Some(path) = pending.pop() {
        let depth = path.matches('/').count();
        let names = cx.host.io.list(&root.join(path.trim_start_matches('/'))).unwrap_or_default();
        for name in names {
            let child = format!("{path}/{name}");
            let owner = owner_of_path(&child).filter(|owner| !matches!(owner, CgroupOwner::Vm(_)));
            match owner {
                Some(owner) if groups.len() < MOST => groups.push((root.join(child.trim_start_matches('/')), owner)),
                None if depth < DEPTH && leads_to_groups(&path, &name) => pending.push(child),
                Some(_) | None => {}
            }
        }
    }
}

/// Whether pods or jobs may be below a control group.
fn leads_to_groups(path: &str, name: &str) -> bool {
    let of_slurm = name.starts_with("slurm") || name.ends_with("slurmstepd.scope");
    let of_kubelet = name.contains("kubepods") || name == "kubelet" || name == "kubelet.slice";
    // Containers that may hold a kubelet.
    let nested = path.is_empty() && matches!(name, "docker" | "system.slice") || path == "/docker";
    let below = path.contains("kubepods") || (path.contains("slurm") && name.starts_with("uid_"));
    of_slurm
        || of_kubelet
        || nested
        || (below && !name.contains('.') && name != "rdma")
        || (path.starts_with("/docker/") && name.contains("kubelet"))
}

/// What a control group uses, and what is limited.
fn uses(cx: &mut ReadContext<'_>, directory: &Path) -> Vec<RdmaUse> {
    let path = directory.join("rdma.current");
    let current = match content(cx, &path) {
        Ok(text) => parse(&text),
        // A runtime that does not pass the controller on, or a group that has just ended.
        Err(error) => {
            if let Some(reason) = reason_of(&error).filter(|reason| *reason != ReadError::Gone) {
                cx.fault(&path, reason);
            }
            return Vec::new();
        }
    };
    if current.values().all(|count| count.is_none_or(|count| count == 0)) {
        return Vec::new();
    }
    let limits = content(cx, &directory.join("rdma.max")).map(|text| parse(&text)).unwrap_or_default();
    let used = current.into_iter().filter_map(|((device, resource), count)| {
        let current = count.filter(|count| *count > 0)?;
        let limit = limits.get(&(Arc::clone(&device), resource)).copied().flatten();
        Some(RdmaUse { device, resource, current, limit })
    });
    used.collect()
}

/// Lines `mlx5_0 hca_handle=1 hca_object=20 `; `max` is no limit, and keys of later kernels are left out.
fn parse(text: &str) -> BTreeMap<(Arc<str>, RdmaResource), Option<u64>> {
    let mut counts = BTreeMap::new();
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let Some(device) = words.next().filter(|word| !word.contains('=')).map(Arc::<str>::from) else { continue };
        for (key, value) in words.filter_map(|word| word.split_once('=')) {
            if let Some(resource) = RdmaResource::parse(key) {
                counts.insert((Arc::clone(&device), resource), value.parse().ok());
            }
        }
    }
    counts
}

fn content(cx: &ReadContext<'_>, path: &Path) -> std::io::Result<String> {
    let mut bytes = vec![0; LONGEST];
    let length = cx.host.io.open(path)?.read(&mut bytes)?;
    bytes.truncate(length);
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::host::collector::Filter;
    use crate::host::harness::{CollectorHarness, facts};

    const UID: &str = "3b1f0a52-1111-4222-8333-944444444444";

    fn read(harness: &mut CollectorHarness) -> Vec<String> {
        harness.discover().unwrap();
        let groups: Vec<RdmaCgroup> = facts(&harness.read());
        assert_eq!(harness.faults, []);
        let shown = groups.iter().flat_map(|group| {
            let owner = match &group.owner {
                CgroupOwner::Pod { uid, .. } => format!("pod {uid}"),
                CgroupOwner::Job(id) => format!("job {id}"),
                CgroupOwner::Vm(name) => format!("vm {name}"),
            };
            group.uses.iter().map(move |used| {
                format!("{owner} {} {} {} {:?}", used.device, used.resource.as_str(), used.current, used.limit)
            })
        });
        let mut shown: Vec<String> = shown.collect();
        shown.sort();
        shown
    }

    #[test]
    fn pods_and_jobs_under_both_versions() {
        let pod =
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod3b1f0a52_1111_4222_8333_944444444444.slice";
        let nested = format!(
            "/docker/{:064x}/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{}.slice",
            7,
            UID.replace('-', "_")
        );
        for (root, place, owner) in [
            ("/sys/fs/cgroup", pod.to_owned(), format!("pod {UID}")),
            ("/sys/fs/cgroup", nested, format!("pod {UID}")),
            ("/sys/fs/cgroup", "/system.slice/node1_slurmstepd.scope/job_77".to_owned(), "job 77".to_owned()),
            ("/sys/fs/cgroup/rdma", format!("/kubepods/besteffort/pod{UID}"), format!("pod {UID}")),
            ("/sys/fs/cgroup/rdma", "/slurm/uid_1000/job_77".to_owned(), "job 77".to_owned()),
        ] {
            let mut harness = CollectorHarness::new(&SPEC, Filter::default());
            harness.memory.set("/sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory pids rdma misc\n");
            let at = format!("{root}{place}");
            harness.memory.set(
                format!("{at}/rdma.current"),
                "mlx5_0 hca_handle=2 hca_object=20 \nmlx5_1 hca_handle=0 hca_object=0 \n",
            );
            harness.memory.set(
                format!("{at}/rdma.max"),
                "mlx5_0 hca_handle=max hca_object=2000 \nmlx5_1 hca_handle=max hca_object=max \n",
            );
            // What a container has is in its pod's count.
            harness
                .memory
                .set(format!("{at}/cri-containerd-0a1b.scope/rdma.current"), "mlx5_0 hca_handle=2 hca_object=20 \n");
            let expected =
                [format!("{owner} mlx5_0 hca_handle 2 None"), format!("{owner} mlx5_0 hca_object 20 Some(2000)")];
            assert_eq!(read(&mut harness), expected, "{at}");
            // A group that does not have the controller is unknown, not zero, and no fault.
            harness.memory.remove(format!("{at}/rdma.current"));
            assert_eq!(read(&mut harness), [""; 0], "{at}");
        }
    }

    #[test]
    fn nothing_is_read_without_the_controller() {
        let mut harness = CollectorHarness::new(&SPEC, Filter::default());
        assert_eq!(harness.discover().unwrap(), [""; 0]);
        harness.memory.set("/sys/fs/cgroup/cgroup.controllers", "cpu memory\n");
        assert_eq!(harness.discover().unwrap(), [""; 0]);
    }

    #[test]
    fn other_keys_are_left_out() {
        let counts =
            parse("mlx5_0 hca_handle=1 mr_mem=4096 hca_object=max\nhca_handle=3\nrxe0\n\nmlx5_1 hca_object=x\n");
        let of = |device: &str, resource| counts.get(&(Arc::from(device), resource)).copied();
        assert_eq!(of("mlx5_0", RdmaResource::Handle), Some(Some(1)));
        assert_eq!((of("mlx5_0", RdmaResource::Object), of("rxe0", RdmaResource::Handle)), (Some(None), None));
        assert_eq!(counts.len(), 3);
    }

    proptest! {
        #[test]
        fn any_text_parses_without_a_panic(text in any::<String>(), like in "([a-z0-9_]{1,8}( hca_(handle|object)=[0-9a-z]{0,22})*\n){0,4}") {
            let _ = (parse(&text), parse(&like));
        }
    }
}
