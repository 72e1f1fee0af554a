//! Pods that get VFs, move, are evicted and come back under the same name.

use super::*;
use crate::model::holder::{CgroupOwner, Pod};
use crate::model::pods::LoggedPod;

const FIRST: &str = "3b1f0a52-1111-4222-8333-944444444444";
const SECOND: &str = "5c2e1b63-1111-4222-8333-944444444444";

impl World {
    /// The kubelet makes the log directory of a pod.
    fn logs(&mut self, uid: &str, namespace: &str, name: &str, containers: &[&str]) -> &mut Self {
        let containers = containers.iter().map(|name| Arc::from(*name)).collect();
        let logged = LoggedPod { namespace: Arc::from(namespace), name: Arc::from(name), containers };
        self.pods.pods.insert(Arc::from(uid), logged);
        self
    }

    /// A process of a pod opens a VF's group.
    fn runs(&mut self, uid: &str, pid: u32, number: u32) -> &mut Self {
        self.openers.openers.push(Opener {
            pid,
            name: Arc::from("dpdk-testpmd"),
            owner: Some(CgroupOwner::Pod { uid: Arc::from(uid), container: None }),
            handles: vec![DeviceFile::Group(40 + number)],
            ..Opener::default()
        });
        self
    }

    fn ends(&mut self, pid: u32) -> &mut Self {
        self.openers.openers.retain(|opener| opener.pid != pid);
        self
    }

    /// The pods that are known by name.
    fn named(&self) -> Vec<String> {
        let rows = self.last.as_ref().unwrap().vf_map.vfs.values();
        let named = rows.filter_map(|row| match &row.holder {
            Holder::Pod(Pod { uid, name: Some(name) }) => {
                Some(format!("{} {} {:?} {uid}", name.namespace, name.pod, name.container.as_deref()))
            }
            _ => None,
        });
        named.collect()
    }

    fn holder(&self) -> String {
        self.last.as_ref().unwrap().vf_map.vfs.values().next().unwrap().holder.to_string()
    }

    fn news(&self) -> Vec<String> {
        let report = self.last.as_ref().unwrap();
        let changes = report.events.iter().filter(|event| event.kind == EventKind::VfChanged);
        changes.map(|event| event.text.clone()).filter(|text| text.contains("holder")).collect()
    }
}

fn line(name: &str, uid: &str) -> String {
    format!("ml {name} Some(\"worker\") {uid}")
}

#[test]
fn a_pod_is_named_at_each_step_and_no_name_is_stale() {
    let mut world = world(1);
    world.bind(0, "vfio-pci").logs(FIRST, "ml", "train-0", &["worker"]).pass(60).is_quiet();
    assert_eq!(world.named(), [""; 0]);
    world.runs(FIRST, 20, 0).pass(15).is_quiet();
    assert_eq!((world.holder(), world.named()), ("pod ml/train-0".to_owned(), vec![line("train-0", FIRST)]));
    // Evicted: the process ends, and its logs stay for a while.
    world.ends(20).pass(15).is_quiet();
    assert_eq!((world.holder(), world.named()), ("nobody".to_owned(), vec![]));
    // Started again under the same name, as a StatefulSet does, while the old logs are still there.
    world.logs(SECOND, "ml", "train-0", &["worker"]).runs(SECOND, 30, 0).pass(600).is_quiet();
    assert_eq!(world.named(), [line("train-0", SECOND)]);
    // Deleted, with its logs: the VF goes back.
    world.ends(30).bind(0, "mlx5_core").pods.pods.clear();
    world.pass(600).is_quiet();
    assert_eq!((world.holder(), world.named()), ("this host (ib1v0)".to_owned(), vec![]));
    let news = world.news();
    assert_eq!(news.len(), 5, "{news:#?}");
    assert!(news.iter().any(|text| text.contains("holder pod ml/train-0 became nobody")), "{news:#?}");
}

#[test]
fn a_name_that_becomes_known_later_is_no_change() {
    let mut world = world(1);
    world.bind(0, "vfio-pci").runs(FIRST, 20, 0).pass(60).is_quiet();
    assert_eq!((world.holder(), world.named()), (format!("pod {FIRST}"), vec![]));
    let before = world.news().len();
    world.logs(FIRST, "ml", "train-0", &["worker"]).pass(15).is_quiet();
    assert_eq!((world.holder(), world.news().len()), ("pod ml/train-0".to_owned(), before));
    // The logs are closed to the agent: the holder stays, without the name.
    world.pods.pods.clear();
    world.pass(15).is_quiet();
    assert_eq!((world.holder(), world.news().len(), world.named()), (format!("pod {FIRST}"), before, vec![]));
}

#[test]
fn a_finding_names_the_pod_that_lost_its_vf() {
    let mut world = world(1);
    world.bind(0, "vfio-pci").logs(FIRST, "ml", "train-0", &["worker"]).runs(FIRST, 20, 0).pass(300).is_quiet();
    world.vf(0).driver = None;
    world.pass(150).says("vf_map_stale", &format!("{PF}/vf0"), "removal_blocked");
    let condition = world.last.as_ref().unwrap().findings[0].condition.clone();
    assert!(condition.summary.contains("waits for pod ml/train-0 (pid 20)"), "{}", condition.summary);
    let evidence = |key: &str| condition.evidence.get(key).and_then(|value| value.as_str()).map(str::to_owned);
    assert_eq!(
        (evidence("holder"), evidence("namespace"), evidence("pod"), evidence("container")),
        (Some(FIRST.into()), Some("ml".into()), Some("train-0".into()), Some("worker".into()))
    );
}

#[test]
fn names_are_kept_from_run_to_run() {
    let mut world = world(1);
    world.bind(0, "vfio-pci").logs(FIRST, "ml", "train-0", &["worker"]).runs(FIRST, 20, 0).pass(60);
    let map = &world.last.as_ref().unwrap().vf_map;
    let read: VfMap = serde_json::from_str(&serde_json::to_string(map).unwrap()).unwrap();
    assert_eq!(read.vfs.values().next().unwrap().holder.to_string(), "pod ml/train-0");
}
