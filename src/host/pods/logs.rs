//! Names of pods and containers: `/var/log/pods/<namespace>_<pod>_<uid>/<container>/` and
//! `/var/log/containers/<pod>_<namespace>_<container>-<id>.log`. Only names are read, never a log.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::host::collector::{DeviceReader, ReadContext};
use crate::host::io::DirStamp;
use crate::model::pods::{LoggedPod, PodNames};
use crate::model::snapshot::Fact;

/// As many pods as are kept; the kubelet's own limit is 110 a node, and large nodes have some hundred.
const MOST_PODS: usize = 4096;

/// The reader. A directory is listed again only after it changed.
#[derive(Default)]
pub(super) struct LogReader {
    directory: Option<DirStamp>,
    links: Option<DirStamp>,
    /// Names of directories that are no pod's are not kept.
    pods: BTreeMap<Arc<str>, KnownPod>,
    containers: BTreeMap<Arc<str>, Arc<str>>,
    fact: Arc<PodNames>,
}

struct KnownPod {
    uid: Arc<str>,
    stamp: Option<DirStamp>,
    logged: LoggedPod,
}

impl DeviceReader for LogReader {
    fn read(&mut self, cx: &mut ReadContext<'_>) -> Vec<Fact> {
        let directory = cx.host.roots.pod_logs.clone();
        let changed = self.list_pods(cx, &directory) | self.list_containers(cx, &directory) | self.list_links(cx);
        if changed {
            let pods = self.pods.values().map(|pod| (Arc::clone(&pod.uid), pod.logged.clone()));
            self.fact = Arc::new(PodNames { pods: pods.collect(), containers: self.containers.clone() });
        }
        vec![Arc::<PodNames>::clone(&self.fact)]
    }
}

impl LogReader {
    fn list_pods(&mut self, cx: &mut ReadContext<'_>, directory: &Path) -> bool {
        let stamp = cx.host.io.stamp(directory).ok();
        if stamp.is_some() && stamp == self.directory {
            return false;
        }
        // What cannot be listed has no names: none is kept that may be wrong by now.
        let names = cx.list(directory);
        self.directory = stamp.filter(|_| names.is_ok());
        let names = names.unwrap_or_default();
        self.pods.retain(|name, _| names.iter().any(|listed| **listed == **name));
        for name in names.iter().take(MOST_PODS) {
            if !self.pods.contains_key(name.as_str())
                && let Some(pod) = pod_of(name)
            {
                self.pods.insert(Arc::from(name.as_str()), pod);
            }
        }
        true
    }

    fn list_containers(&mut self, cx: &ReadContext<'_>, directory: &Path) -> bool {
        let mut changed = false;
        for (name, pod) in &mut self.pods {
            let path = directory.join(&**name);
            let stamp = cx.host.io.stamp(&path).ok();
            if stamp.is_some() && stamp == pod.stamp {
                continue;
            }
            // A pod whose directory is closed still has its name.
            let mut names = cx.host.io.list(&path).unwrap_or_default();
            names.sort_unstable();
            pod.logged.containers = names.iter().map(|name| Arc::from(name.as_str())).collect();
            pod.stamp = stamp;
            changed = true;
        }
        changed
    }

    /// The links are optional: without them the container is known where a pod has only one.
    fn list_links(&mut self, cx: &ReadContext<'_>) -> bool {
        let directory = &cx.host.roots.container_logs;
        let stamp = cx.host.io.stamp(directory).ok();
        if stamp == self.links {
            return false;
        }
        let names = cx.host.io.list(directory).unwrap_or_default();
        self.containers = names.iter().filter_map(|name| container_of(name)).collect();
        self.links = stamp;
        true
    }
}

/// `<namespace>_<pod>_<uid>`: neither name can hold a `_`. A static pod has a hash of 32 digits for its UID.
fn pod_of(name: &str) -> Option<KnownPod> {
    let (namespace, rest) = name.split_once('_')?;
    let (pod, uid) = rest.rsplit_once('_')?;
    let whole = matches!((uid.len(), uid.contains('-')), (36, true) | (32, false));
    let is_uid = whole && uid.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    let logged = LoggedPod { namespace: Arc::from(namespace), name: Arc::from(pod), containers: Arc::from([]) };
    let known = is_uid && is_name(namespace) && is_name(pod);
    known.then(|| KnownPod { uid: Arc::from(uid), stamp: None, logged })
}

/// `<pod>_<namespace>_<container>-<id>.log`; a name that the kubelet had to cut has no whole identifier.
fn container_of(name: &str) -> Option<(Arc<str>, Arc<str>)> {
    let (rest, id) = name.strip_suffix(".log")?.rsplit_once('-')?;
    let (_, container) = rest.rsplit_once('_')?;
    let whole = id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    (whole && is_name(container)).then(|| (Arc::from(id), Arc::from(container)))
}

/// Whether it can be the name of a Kubernetes object (RFC 1123).
fn is_name(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.';
    !text.is_empty() && text.len() <= 253 && text.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::host::collector::Filter;
    use crate::host::harness::{CollectorHarness, facts};

    const UID: &str = "3b1f0a52-1111-4222-8333-944444444444";
    const ID: &str = "0a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f9";

    fn read(harness: &mut CollectorHarness) -> PodNames {
        harness.discover().unwrap();
        facts::<PodNames>(&harness.read()).pop().unwrap_or_default()
    }

    fn harness() -> CollectorHarness {
        let harness = CollectorHarness::new(&super::super::SPEC, Filter::default());
        harness.memory.set(format!("/var/log/pods/ml_train-0_{UID}/worker/0.log"), "secret");
        harness.memory.set("/var/log/pods/kube-system_etcd-n1_8f1c2b3a4d5e6f708192a3b4c5d6e7f8/etcd/3.log", "");
        harness.memory.directory("/var/log/pods/lost+found");
        harness
    }

    #[test]
    fn pods_and_containers_have_names() {
        let mut harness = harness();
        harness.memory.set(format!("/var/log/pods/ml_train-0_{UID}/sidecar/0.log"), "");
        harness.memory.symlink(format!("/var/log/containers/train-0_ml_worker-{ID}.log"), "../pods/x");
        harness.memory.symlink("/var/log/containers/train-0_ml_sidecar-0a1b.log", "../pods/x");
        let names = read(&mut harness);
        assert_eq!(names.pods.len(), 2);
        let (uid, id) = (Arc::from(UID), Arc::from(ID));
        let container = |id| names.pod(&uid, id).name.and_then(|name| name.container);
        assert_eq!(names.pod(&uid, None).to_string(), "ml/train-0");
        assert_eq!((container(Some(&id)).as_deref(), container(None)), (Some("worker"), None));
        let of_static = names.pod(&Arc::from("8f1c2b3a4d5e6f708192a3b4c5d6e7f8"), None).name.unwrap();
        assert_eq!((&*of_static.pod, of_static.container.as_deref()), ("etcd-n1", Some("etcd")));
        assert_eq!(names.pod(&Arc::from("00000000-1111-4222-8333-944444444444"), None).name, None);
        assert!(!harness.opened.lock().unwrap().iter().any(|path| path.extension().is_some_and(|end| end == "log")));
        assert_eq!(harness.faults, []);
    }

    #[test]
    fn pods_appear_and_go_without_a_stale_name() {
        let mut harness = harness();
        assert_eq!(read(&mut harness).pods.len(), 2);
        let listed = harness.opened.lock().unwrap().len();
        assert_eq!(read(&mut harness).pods.len(), 2);
        assert_eq!(harness.opened.lock().unwrap().len(), listed, "nothing is listed again while nothing changes");
        harness.memory.set("/var/log/pods/ml_train-0_00000000-1111-4222-8333-944444444444/worker/0.log", "");
        harness.memory.remove(format!("/var/log/pods/ml_train-0_{UID}"));
        let names = read(&mut harness);
        assert_eq!(names.pods.len(), 2);
        assert!(!names.pods.contains_key(UID));
        // A container that comes later.
        harness.memory.directory("/var/log/pods/ml_train-0_00000000-1111-4222-8333-944444444444/late");
        let names = read(&mut harness);
        assert_eq!(names.pods["00000000-1111-4222-8333-944444444444"].containers.len(), 2);
        harness.memory.remove("/var/log/pods");
        assert_eq!(read(&mut harness), PodNames::default());
    }

    #[test]
    fn a_host_without_kubernetes_has_none() {
        let mut harness = CollectorHarness::new(&super::super::SPEC, Filter::default());
        assert_eq!((harness.discover(), harness.faults.len()), (Ok(vec![]), 0));
    }

    proptest! {
        #[test]
        fn any_name_parses_without_a_panic(text in any::<String>(), like in "[a-z0-9_.-]{0,40}(\\.log)?") {
            for name in [&text, &like] {
                let _ = (pod_of(name), container_of(name));
            }
        }

        #[test]
        fn names_survive(namespace in "[a-z0-9]([a-z0-9-]{0,10}[a-z0-9])?", pod in "[a-z0-9]([a-z0-9.-]{0,20}[a-z0-9])?") {
            let known = pod_of(&format!("{namespace}_{pod}_{UID}")).unwrap();
            prop_assert_eq!((&*known.logged.namespace, &*known.logged.name, &*known.uid), (&*namespace, &*pod, UID));
        }
    }
}
