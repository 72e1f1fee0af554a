//! Keeps the VF map from pass to pass: what changed, who came and went, and what must be shown to work again.

mod domains;
mod guest;
mod paths;
mod vf;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::history_event::HistoryEvent;
use crate::assess::vf::holders::HolderSources;
use crate::model::finding::EventKind;
use crate::model::holder::Holder;
use crate::model::ids::PciAddress;
use crate::model::snapshot::Snapshot;
use crate::model::sriov::{Pf, VfKey};
use crate::model::time::unix_millis;
use crate::model::vfmap::{MappedVf, Signal, VfIdentity, VfMap};
use guest::GuestTracker;
use vf::VfMapDraft;

/// Machines without VFs whose identities are remembered; the one that had some longest ago goes first.
const MAX_GONE_MACHINES: usize = 4096;

/// VFs that went while a guest had them; the one that was taken longest ago goes first.
const MAX_GONE_VFS: usize = 4096;

/// How long a machine without VFs is remembered, in milliseconds: 180 days.
const MACHINE_AGE: u64 = 180 * 24 * 3_600_000;

/// What a mapper carries from one pass to the next besides the map itself.
#[derive(Debug, Default)]
pub struct VfMapUpdater {
    guest: GuestTracker,
}

impl VfMapUpdater {
    /// Takes a pass into the map and says what happened.
    pub fn observe(&mut self, map: &mut VfMap, snapshot: &Snapshot) -> Vec<HistoryEvent> {
        let sources = HolderSources::new(snapshot);
        let mut draft = VfMapDraft { map, now: snapshot.taken.wall, news: Vec::new() };
        forget_gone(&mut draft, snapshot);
        for pf in snapshot.all::<Pf>() {
            observe_pf(&mut draft, &sources, pf);
        }
        domains::observe(&mut draft, &sources, snapshot);
        forget_owners_of_gone(&mut draft, &sources);
        remember_machines(&mut draft, &sources);
        self.guest.observe(&mut draft, snapshot);
        draft.news
    }
}

/// Leaves out PFs that are no longer listed. One that does not answer stays as it was.
fn forget_gone(draft: &mut VfMapDraft<'_>, snapshot: &Snapshot) {
    let Some(listed) = snapshot.collector("sriov").and_then(|collector| collector.listed.as_ref()) else { return };
    let gone: Vec<PciAddress> =
        draft.map.pfs.keys().copied().filter(|pf| !listed.iter().any(|key| **key == *pf.to_string())).collect();
    for pf in gone {
        draft.map.pfs.remove(&pf);
        draft.map.vfs.retain(|key, _| key.pf != pf);
        draft.map.gone.retain(|key, _| key.pf != pf);
        draft.news.push((EventKind::VfChanged, pf.to_string(), format!("PF {pf} is gone with its VFs")));
    }
}

fn observe_pf(draft: &mut VfMapDraft<'_>, sources: &HolderSources<'_>, pf: &Pf) {
    let known = draft.map.pfs.contains_key(&pf.address);
    let row = draft.map.pfs.entry(pf.address).or_default();
    let reprobed = row.probe.zip(pf.probe).is_some_and(|(before, now)| before != now);
    row.probe = pf.probe.or(row.probe);
    if reprobed {
        let subject = pf.address.to_string();
        draft.signal(Signal::PfReprobed, &subject, format!("the driver of PF {} was rebound", pf.address));
    }
    let gone: Vec<VfKey> = draft
        .map
        .vfs
        .range(VfKey { pf: pf.address, vf: 0 }..=VfKey { pf: pf.address, vf: u32::MAX })
        .map(|(key, _)| *key)
        .filter(|key| pf.vfs.binary_search_by_key(&key.vf, |vf| vf.number).is_err())
        .collect();
    for key in gone {
        let Some(vf) = draft.map.vfs.remove(&key) else { continue };
        let held = if vf.holder == Holder::None { String::new() } else { format!(" (used by {})", vf.holder) };
        draft.changed(key.pf, &key.to_string(), format!("{key} is gone{held}"));
        if vf.tenure.as_ref().is_some_and(|tenure| tenure.holder.is_guest()) {
            draft.map.gone.insert(key, vf);
        }
    }
    for vf in &pf.vfs {
        vf::observe(draft, sources, pf, vf, reprobed, known);
    }
}

/// A VF that is gone matters as long as the one who had it lives.
fn forget_owners_of_gone(draft: &mut VfMapDraft<'_>, sources: &HolderSources<'_>) {
    draft.map.gone.retain(|_, vf| {
        let tenure = vf.tenure.as_ref();
        tenure.is_some_and(|tenure| sources.lives(&tenure.holder, tenure.pid) != Some(false))
    });
    while draft.map.gone.len() > MAX_GONE_VFS {
        let since = |vf: &MappedVf| vf.tenure.as_ref().map(|tenure| tenure.since);
        let oldest = draft.map.gone.iter().min_by_key(|(_, vf)| since(vf)).map(|(key, _)| *key);
        oldest.and_then(|key| draft.map.gone.remove(&key));
    }
}

/// Remembers what the VFs of each machine are. What was remembered stays expected until the machine has it again,
/// or wants what it has now.
fn remember_machines(draft: &mut VfMapDraft<'_>, sources: &HolderSources<'_>) {
    let mut now: BTreeMap<Arc<str>, Vec<(&MappedVf, VfIdentity)>> = BTreeMap::new();
    for row in draft.map.vfs.values() {
        if let Holder::Vm(vm) = &row.holder
            && !row.identity.is_empty()
        {
            now.entry(Arc::clone(&vm.domain)).or_default().push((row, row.identity));
        }
    }
    let wanted = |row: &MappedVf| {
        let mut claims = row.address.into_iter().flat_map(|address| sources.live_claims(address));
        claims.any(|(_, claim)| claim.mac.is_some() && claim.mac == row.identity.mac)
    };
    let seen = unix_millis::of(draft.now);
    for (name, rows) in now {
        draft.map.machines_seen.insert(Arc::clone(&name), seen);
        let expected = draft.map.machines.get(&name);
        let whole = |identity: &VfIdentity| {
            let known = expected.and_then(|expected| expected.iter().find(|one| one.is(identity)));
            known.map_or(*identity, |known| identity.with(known))
        };
        let identities: Vec<VfIdentity> = rows.iter().map(|(_, identity)| whole(identity)).collect();
        let is_missing = |one: &VfIdentity| !identities.iter().any(|now| now.is(one));
        let missing = expected.is_some_and(|expected| expected.iter().any(is_missing));
        let known = expected.is_some_and(|expected| *expected == identities);
        if !known && (!missing || rows.iter().all(|(row, _)| wanted(row))) {
            draft.map.machines.insert(name, identities);
        }
    }
    forget_machines(draft.map, seen);
}

/// Forgets machines that have had no VF for long, and those beyond the number that is remembered, oldest first.
fn forget_machines(map: &mut VfMap, now: u64) {
    let VfMap { machines, machines_seen, .. } = map;
    machines_seen.retain(|name, _| machines.contains_key(name));
    let mut gone: Vec<(u64, Arc<str>)> = Vec::new();
    for name in machines.keys() {
        // An earlier release did not save when.
        let seen = *machines_seen.entry(Arc::clone(name)).or_insert(now);
        if seen < now {
            gone.push((seen, Arc::clone(name)));
        }
    }
    gone.sort();
    let surplus = gone.len().saturating_sub(MAX_GONE_MACHINES);
    for (position, (seen, name)) in gone.into_iter().enumerate() {
        if position < surplus || now - seen > MACHINE_AGE {
            machines.remove(&name);
            machines_seen.remove(&name);
        }
    }
}

#[cfg(test)]
mod tests {
    //! Timelines: what is said while VFs are made, given away, moved, lost and repaired.

    mod guest {
        //! What a guest sees of its own migration.

        use super::*;
        use crate::model::benchmark::{
            Benchmark, BenchmarkKey, BenchmarkRun, Doubt, Failure, Measurements, RunResult, Shortfall,
        };
        use crate::model::counter::Counters;
        use crate::model::datapath::{DataPath, DataPathLog, Failover, PathInUse};
        use crate::model::host::Machine;
        use crate::model::ids::{DeviceName, PortKey};
        use crate::model::kmsg::KernelLog;
        use crate::model::pcie::{PciClass, PciFunction};
        use crate::model::rdma::{DeviceIdentity, RdmaDevice};

        struct GuestTracker {
            engine: Engine,
            now: Timestamp,
            functions: Vec<PciFunction>,
            machine: Machine,
            log: KernelLog,
            /// Whether the kernel log can be read.
            has_log: bool,
            paths: Vec<DataPath>,
            device: RdmaDevice,
            last: Option<HostReport>,
        }

        fn function() -> PciFunction {
            PciFunction {
                class: Some(PciClass(0x02_0700)),
                ids: Some((0x15b3, 0x101c)),
                driver: Some(Arc::from("mlx5_core")),
                ..PciFunction::at(address(8))
            }
        }

        fn device() -> RdmaDevice {
            let identity = DeviceIdentity { pci_address: Some(address(8)), ..DeviceIdentity::default() };
            let (name, counters) = (DeviceName::new("mlx5_0"), Counters::default());
            RdmaDevice { name, identity: Arc::new(identity), ports: Vec::new(), counters, counters_at: BootTime(0) }
        }

        /// A loop-back probe over the function that ended so, at this time.
        fn run(result: RunResult, at: SystemTime) -> BenchmarkRun {
            let port = Some(PortKey { device: DeviceName::new("mlx5_0"), port: 1 });
            BenchmarkRun {
                key: BenchmarkKey { probe: Benchmark::RdmaLoopback, port },
                at,
                took: Duration::from_secs(5),
                result,
                text: Arc::from(""),
                measured: Measurements::default(),
                ceiling: None,
                profile: Arc::from(""),
                peer: None,
                function: Some(address(8)),
            }
        }

        fn guest(hypervisor: bool) -> GuestTracker {
            let mut guest = GuestTracker {
                engine: Engine::new(Arc::new(Policy::default()), false),
                now: Timestamp {
                    tick: BootTime(86_400_000),
                    wall: SystemTime::UNIX_EPOCH + Duration::from_secs(1_790_000_000),
                },
                functions: vec![function()],
                machine: Machine { hypervisor: Some(hypervisor), identity: Some(Arc::from("a")) },
                log: KernelLog::default(),
                has_log: true,
                paths: Vec::new(),
                device: device(),
                last: None,
            };
            guest.pass(15);
            guest
        }

        impl GuestTracker {
            fn pass(&mut self, seconds: u64) -> &mut Self {
                for _ in 0..seconds.div_ceil(15) {
                    let step = Duration::from_secs(15);
                    self.now = Timestamp { tick: self.now.tick.after(step), wall: self.now.wall + step };
                    let pci = CollectorState { name: "pci", listed: Some(Arc::from([])), ..CollectorState::default() };
                    let facts = self.functions.iter().map(|function| Arc::new(function.clone()) as Fact);
                    let facts = facts.chain([Arc::new(self.machine.clone()) as Fact]);
                    let facts = facts.chain(self.has_log.then(|| Arc::new(self.log.clone()) as Fact));
                    let facts = facts.chain(self.paths.iter().map(|path| Arc::new(path.clone()) as Fact));
                    let facts = facts.chain([Arc::new(self.device.clone()) as Fact]);
                    self.last = Some(self.engine.observe(Snapshot::new(self.now, facts, vec![pci])));
                }
                self
            }

            fn findings(&self) -> Vec<(&'static str, String, &'static str)> {
                let found = self.last.as_ref().unwrap().findings.iter().map(|finding| &finding.condition);
                found.map(|found| (found.check.as_str(), found.subject.to_string(), found.reason.as_str())).collect()
            }

            fn count(&self, signal: Signal) -> u64 {
                let map = &self.last.as_ref().unwrap().vf_map;
                map.signal(signal).count
            }
        }

        #[test]
        fn a_function_is_taken_and_given_back() {
            let mut guest = guest(true);
            guest.functions.clear();
            guest.pass(30);
            guest.functions.push(function());
            guest.pass(600);
            assert_eq!(guest.findings(), []);
            assert_eq!((guest.count(Signal::FunctionRemoved), guest.count(Signal::FunctionAdded)), (1, 1));
        }

        #[test]
        fn the_wall_clock_steps() {
            let mut guest = guest(true);
            guest.now.wall += Duration::from_secs(3);
            guest.pass(60);
            assert_eq!((guest.findings().len(), guest.count(Signal::ClockStepped)), (0, 1));
            guest.pass(90);
            assert_eq!(guest.findings(), [("vf_map_stale", "0000:98:01.0".to_owned(), "clock_stepped")]);
            // A probe that moves data proves it, one that fails does not.
            let results = [
                (RunResult::Failed(Failure::Completion), 1),
                (RunResult::Inconclusive(Doubt::Timeout), 1),
                (RunResult::Slow(Shortfall::BelowCeiling), 0),
            ];
            for (result, left) in results {
                let now = guest.now;
                guest.engine.record(run(result, now.wall), now);
                guest.pass(15);
                assert_eq!(
                    guest.findings().iter().filter(|found| found.0 == "vf_map_stale").count(),
                    left,
                    "{result:?}"
                );
            }
            // On a host of metal a step is somebody's business and not a migration's.
            let mut metal = super::guest::guest(false);
            metal.now.wall += Duration::from_secs(3);
            metal.pass(600);
            assert_eq!((metal.findings().len(), metal.count(Signal::ClockStepped)), (0, 0));
        }

        fn path(in_use: PathInUse) -> DataPath {
            let vf = (in_use == PathInUse::Vf).then(|| Arc::from("enP40338s1"));
            DataPath { netdev: Arc::from("eth0"), failover: Failover::HvNetvsc, vf, in_use }
        }

        #[test]
        fn a_host_that_is_serviced_takes_the_vf_for_a_moment() {
            let mut guest = guest(true);
            guest.paths = vec![path(PathInUse::Vf)];
            guest.pass(300);
            let left = guest.now.tick;
            let said = |switched, returned| DataPathLog {
                netdev: Arc::from("eth0"),
                switched,
                revoked: 1,
                returned,
                left: vec![left],
            };
            (guest.paths, guest.log.data_paths) = (vec![path(PathInUse::Synthetic)], vec![said(1, 0)]);
            guest.pass(240);
            (guest.paths, guest.log.data_paths) = (vec![path(PathInUse::Vf)], vec![said(2, 1)]);
            guest.pass(600);
            assert_eq!(guest.findings(), []);
            let signals = [Signal::VfRevoked, Signal::VfReturned, Signal::DataPathSwitched];
            assert_eq!(signals.map(|signal| guest.count(signal)), [1, 1, 2]);
            let events = &guest.last.as_ref().unwrap().events;
            assert!(events.iter().any(|event| event.text == "the host took the VF of eth0 away once"), "{events:?}");
        }

        #[test]
        fn an_interface_that_keeps_losing_its_vf() {
            let mut guest = guest(true);
            guest.paths = vec![path(PathInUse::Vf)];
            let start = guest.now.tick;
            let lose = |guest: &mut GuestTracker, times: u64| {
                let left = (0..times).map(|n| start.after(Duration::from_secs(n))).collect();
                let log =
                    DataPathLog { netdev: Arc::from("eth0"), switched: 2 * times, left, ..DataPathLog::default() };
                guest.log.data_paths = vec![log];
                guest.pass(15);
                guest.last.as_ref().unwrap().findings.iter().map(|found| found.condition.severity).collect::<Vec<_>>()
            };
            assert_eq!(lose(&mut guest, 3), []);
            assert_eq!(lose(&mut guest, 4), [crate::model::check::Severity::Warning]);
            assert_eq!(lose(&mut guest, 900), [crate::model::check::Severity::Critical]);
            assert_eq!(guest.findings(), [("vf_failover", "eth0".to_owned(), "data_path_switched")]);
            assert_eq!(guest.count(Signal::DataPathSwitched), 1800);
        }

        #[test]
        fn an_interface_that_stays_without_its_vf() {
            let mut guest = guest(true);
            // One that never had a VF lacks none.
            guest.paths = vec![path(PathInUse::Synthetic)];
            guest.pass(3600);
            assert_eq!(guest.findings(), []);
            guest.paths = vec![path(PathInUse::Vf)];
            guest.pass(60);
            guest.paths = vec![path(PathInUse::Synthetic)];
            guest.pass(585);
            assert_eq!(guest.findings(), []);
            guest.pass(60);
            assert_eq!(guest.findings(), [("vf_failover", "eth0".to_owned(), "synthetic_path")]);
            guest.paths = vec![path(PathInUse::Vf)];
            guest.pass(15);
            assert_eq!(guest.findings(), []);
        }

        #[test]
        fn without_the_log_a_change_that_is_seen_counts() {
            let mut guest = guest(true);
            guest.has_log = false;
            for _ in 0..4 {
                for in_use in [PathInUse::Vf, PathInUse::Synthetic] {
                    guest.paths = vec![path(in_use)];
                    guest.pass(30);
                }
            }
            assert_eq!(guest.findings(), [("vf_failover", "eth0".to_owned(), "data_path_switched")]);
            assert_eq!(guest.count(Signal::DataPathSwitched), 7);
            guest.paths = vec![path(PathInUse::Vf)];
            guest.pass(3660);
            assert_eq!(guest.findings(), []);
        }

        #[test]
        fn the_machine_is_restored_or_another() {
            let mut guest = guest(true);
            guest.log.forks = 1;
            guest.pass(150);
            assert_eq!(guest.findings(), [("vf_map_stale", "0000:98:01.0".to_owned(), "machine_forked")]);
            // The function is taken away and comes back: its driver has probed it.
            guest.functions.clear();
            guest.pass(15);
            guest.functions.push(function());
            guest.pass(15);
            assert_eq!(guest.findings(), []);
            guest.machine.identity = Some(Arc::from("b"));
            guest.pass(15);
            assert_eq!(guest.count(Signal::MachineChanged), 1);
        }
    }
    mod pods {
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
    }
    mod lost {
        //! VFs that get lost on the host itself: interfaces, numbers, PFs, drivers.

        use super::*;
        use crate::model::benchmark::{Benchmark, BenchmarkKey, BenchmarkRun, RunResult, Shortfall, SkipReason};
        use crate::model::ids::{DeviceName, PortKey};

        #[test]
        fn an_interface_that_vanished_from_every_namespace() {
            let mut world = world(1);
            let elsewhere = NamespaceInterface {
                address: address(1),
                netdev: Arc::from("net1"),
                namespace: Arc::from("blue"),
                owner: None,
            };
            world.vf(0).netdevs.clear();
            world.namespaces.interfaces.push(elsewhere.clone());
            world.pass(600).is_quiet();
            assert_eq!(world.last.as_ref().unwrap().vf_map.vfs.values().next().unwrap().holder.kind(), "netns");
            world.namespaces.interfaces.clear();
            world.pass(60).is_quiet();
            world.pass(90).says("vf_orphan", &format!("{PF}/vf0"), "no_interface");
            world.namespaces.interfaces.push(elsewhere);
            world.pass(15).is_quiet();
            // Where a namespace is hidden, nothing can be said.
            world.namespaces = Namespaces { missing: Some(MissingAccess::Namespace), ..Namespaces::default() };
            world.pass(600).is_quiet();
            let row = world.last.as_ref().unwrap().vf_map.vfs.values().next().unwrap();
            assert!(matches!(row.holder, Holder::Unknown(_)), "{row:?}");
        }

        #[test]
        fn an_interface_in_the_only_namespace_without_a_process() {
            let mut world = world(1);
            world.vf(0).netdevs.clear();
            let empty = |names: &[&str]| Namespaces {
                missing: Some(MissingAccess::Namespace),
                empty: names.iter().map(|name| Arc::from(*name)).collect(),
                ..Namespaces::default()
            };
            let holder =
                |world: &World| world.last.as_ref().unwrap().vf_map.vfs.values().next().unwrap().holder.clone();
            world.namespaces = empty(&["blue"]);
            world.pass(600).is_quiet();
            assert_eq!(holder(&world), Holder::Netns(Arc::from("blue")));
            // In which of two it is, nothing tells.
            world.namespaces = empty(&["blue", "red"]);
            world.pass(600).is_quiet();
            assert!(matches!(holder(&world), Holder::Unknown(_)), "{:?}", holder(&world));
        }

        #[test]
        fn renumbered_after_a_card_was_added() {
            let mut world = world(1);
            world.bind(0, "vfio-pci").start("vm1", 20, &[0], "booted").pass(300).is_quiet();
            // After the next boot the card has another bus number; the definition names the old one.
            let map: VfMap =
                serde_json::from_str(&serde_json::to_string(&world.engine.history().vf_map).unwrap()).unwrap();
            let mut after = super::tests::world(1);
            after.engine = Engine::new(Arc::new(Policy::default()), false);
            let saved = crate::watch::store::SavedState { vf_map: map, ..Default::default() };
            after.engine.restore(saved, Vec::new(), after.now);
            after.pf.address = "0000:99:00.0".parse().unwrap();
            after.pf.vfs[0].address = "0000:99:00.1".parse().ok();
            after.define("vm1", None, &[0], "");
            after.libvirt.domains[0].claims[0].present = Some(false);
            after.pass(60).is_quiet();
            after.pass(90).says("vf_dangling", "0000:98:00.1", "gone");
            assert!(
                after.last.as_ref().unwrap().events.iter().any(|event| event.text.contains("PF 0000:98:00.0 is gone"))
            );
            after.libvirt.domains[0].claims[0].address = "0000:99:00.1".parse().unwrap();
            after.libvirt.domains[0].claims[0].present = Some(true);
            after.pass(15).is_quiet();
        }

        #[test]
        fn a_pf_that_is_reset_under_its_vfs() {
            let mut world = world(2);
            world.bind(0, "vfio-pci").start("vm1", 20, &[0], "booted").pass(300).is_quiet();
            world.pf.probe = None;
            world.pass(15);
            world.pf.probe = Some(2);
            world.pass(60).is_quiet();
            world.pass(90).says("vf_map_stale", &format!("{PF}/vf0"), "pf_reprobed");
            assert_eq!(world.count(Signal::PfReprobed), 1);
            let since = world.last.as_ref().unwrap().vf_map.verified(world.pf.address);
            assert_eq!(since, None);
            // Some broadcasts prove nothing; data in both directions does.
            world.vf(0).traffic.as_mut().unwrap().received_bytes = Some(100 << 20);
            world.pass(60).says("vf_map_stale", &format!("{PF}/vf0"), "pf_reprobed");
            world.vf(0).traffic.as_mut().unwrap().transmitted_bytes = Some(2 << 20);
            world.pass(15).is_quiet();
            assert!(world.last.as_ref().unwrap().vf_map.verified(world.pf.address).is_some());
        }

        #[test]
        fn vfs_made_anew_under_a_holder_until_it_opens_them_again() {
            let mut world = world(1);
            world.bind(0, "vfio-pci").start("vm1", 20, &[0], "booted").pass(300).is_quiet();
            world.vf(0).instance += 1;
            world.pass(150).says("vf_map_stale", &format!("{PF}/vf0"), "vf_recreated");
            world.stop("vm1").start("vm1", 31, &[0], "booted").pass(15).is_quiet();
            assert_eq!(world.count(Signal::VfRecreated), 1);
        }

        #[test]
        fn a_domain_that_was_moved_here_with_its_vf() {
            let mut world = world(1);
            world.bind(0, "vfio-pci").pass(15);
            world.start("vm1", 20, &[0], "migrated").pass(60).is_quiet();
            world.pass(90).says("vf_map_stale", &format!("{PF}/vf0"), "domain_appeared");
            // Bound anew: detached and attached.
            world.openers.openers.clear();
            world.stop("vm1").define("vm1", Some(20), &[], "migrated").bind(0, "mlx5_core").pass(15);
            world.stop("vm1").bind(0, "vfio-pci").start("vm1", 20, &[0], "migrated").pass(15).is_quiet();
            world.pass(600).is_quiet();
        }

        #[test]
        fn a_probe_proves_a_vf() {
            let mut world = world(1);
            world.bind(0, "vfio-pci").start("vm1", 20, &[0], "booted").pass(300);
            world.vf(0).instance += 1;
            world.pass(150);
            assert_eq!(world.findings().len(), 1);
            // What a probe that began before it found says nothing.
            let at = world.now.wall;
            world.engine.prove(address(1), at - Duration::from_secs(3600));
            world.pass(15);
            assert_eq!(world.findings().len(), 1);
            let function = world.vf(0).address;
            let port = PortKey { device: DeviceName::new("mlx5_9"), port: 1 };
            let key = BenchmarkKey { probe: Benchmark::RdmaLoopback, port: Some(port) };
            let skipped = BenchmarkRun { function, ..BenchmarkRun::skipped(&key, at, SkipReason::PortBusy, "") };
            world.engine.record(skipped.clone(), world.now);
            world.pass(15);
            assert_eq!(world.findings().len(), 1, "nothing was moved");
            world
                .engine
                .record(BenchmarkRun { result: RunResult::Slow(Shortfall::BelowCeiling), ..skipped }, world.now);
            world.pass(15).is_quiet();
        }

        #[test]
        fn sixty_one_of_sixty_four() {
            let mut world = world(64);
            world.pass(300).is_quiet();
            world.pf.reported = Some(61);
            world.pf.vfs.iter_mut().skip(61).for_each(|vf| vf.config = None);
            world.pass(60).is_quiet();
            world.pass(90).says("vf_count_mismatch", PF, "netlink_list");
            world.pf.reported = Some(64);
            world.pass(15).is_quiet();
            // Details that are not to be had are no lack of VFs.
            (world.pf.reported, world.pf.detail) =
                (None, VfDetail::Unavailable(crate::model::reading::ReadError::NotSupported));
            world.pass(600).is_quiet();
            world.pf.vfs.truncate(61);
            world.pass(150).says("vf_count_mismatch", PF, "links");
        }

        #[test]
        fn orphans_and_leftovers() {
            let mut world = world(1);
            world.pf.fabric = Some(Fabric::Ethernet);
            let mac = Mac([2, 0, 0, 0, 0, 7]);
            world.vf(0).config = Some(VfConfig { mac: Some(mac), trust: Some(true), ..VfConfig::default() });
            world.bind(0, "vfio-pci").pass(60).is_quiet();
            world.pass(90);
            let found: BTreeMap<_, _> =
                world.findings().into_iter().map(|(check, _, reason)| (check, reason)).collect();
            assert_eq!(found, [("vf_orphan", "not_held"), ("vf_leftover_config", "trust")].into());
            world.bind(0, "mlx5_core").pass(15).is_quiet();
            // A process that can't be looked into may hold it.
            world.openers.missing = Some(MissingAccess::Ptrace);
            world.bind(0, "vfio-pci").pass(600).is_quiet();
            let report = world.last.as_ref().unwrap();
            let row = report.vf_map.vfs.values().next().unwrap();
            assert_eq!(row.holder, Holder::Unknown(MissingAccess::Ptrace));
            let sentence = "CAP_SYS_PTRACE would show: holders of 1 VF";
            assert_eq!(report.limited, [Arc::from(sentence)]);
            assert_eq!(report.status, crate::model::check::Status::Ok);
        }

        #[test]
        fn configuration_groups_drivers_and_a_pf_that_is_down() {
            let mut world = world(1);
            world.pf.fabric = Some(Fabric::Ethernet);
            world.vf(0).config = Some(VfConfig { trust: Some(true), spoof_check: Some(true), ..VfConfig::default() });
            world.bind(0, "vfio-pci").start("vm1", 20, &[0], "booted").pass(30);
            // Still being set up.
            world.vf(0).config.as_mut().unwrap().spoof_check = Some(false);
            world.pass(600).is_quiet();
            world.vf(0).config.as_mut().unwrap().trust = Some(false);
            world.pass(150).says("vf_config_drifted", &format!("{PF}/vf0"), "under_holder");
            world.vf(0).config.as_mut().unwrap().trust = Some(true);
            world.pass(15).is_quiet();
            world.vf(0).group_shared_with = Arc::from([address(5)]);
            world.pass(150).says("vf_group_shared", &format!("{PF}/vf0"), "not_isolated");
            world.vf(0).group_shared_with = Arc::default();
            world.vf(0).driver_override = Some(Arc::from("mlx5_vfio_pci"));
            world.pass(150).says("vf_driver_changed", &format!("{PF}/vf0"), "override_ignored");
            world.vf(0).driver_override = None;
            world.pf.up = Reading::Value(false);
            world.pass(150).says("vf_pf_down", PF, "interface_down");
            world.pf.up = Reading::Value(true);
            world.pass(15).is_quiet();
        }

        #[test]
        fn the_map_survives_a_restart() {
            let mut world = world(2);
            world.bind(0, "vfio-pci").start("vm1", 20, &[0], "booted").pass(300);
            world.vf(0).instance += 1;
            world.pass(150).says("vf_map_stale", &format!("{PF}/vf0"), "vf_recreated");
            let before = &world.engine.history().vf_map;
            let map: VfMap = serde_json::from_str(&serde_json::to_string(before).unwrap()).unwrap();
            assert_eq!((&map.signals, &map.machines), (&before.signals, &before.machines));
            let generation = before.pfs[&world.pf.address].generation;
            world.engine = Engine::new(Arc::new(Policy::default()), false);
            let saved = crate::watch::store::SavedState { vf_map: map, ..Default::default() };
            world.engine.restore(saved, Vec::new(), world.now);
            world.pass(135).says("vf_map_stale", &format!("{PF}/vf0"), "vf_recreated");
            assert_eq!(world.engine.history().vf_map.pfs[&world.pf.address].generation, generation);
        }
    }
    #[test]
    fn machines_are_forgotten_oldest_first_and_never_while_they_have_vfs() {
        let mut map = VfMap::default();
        let day = 24 * 3_600_000;
        let now = 400 * day;
        let mut add = |name: String, seen: u64| {
            map.machines.insert(Arc::from(name.as_str()), Vec::new());
            map.machines_seen.insert(Arc::from(name.as_str()), seen);
        };
        add("a-live".to_owned(), now);
        add("m-half-a-year-ago".to_owned(), now - 181 * day);
        for number in 0..MAX_GONE_MACHINES as u64 + 2 {
            // The later in the alphabet, the longer ago.
            add(format!("b{number:05}"), now - 1000 - number);
        }
        forget_machines(&mut map, now);
        let has = |name: &str| map.machines.contains_key(name) && map.machines_seen.contains_key(name);
        assert!(has("a-live") && has("b00000") && has("b04095"));
        assert!(!has("b04096") && !has("b04097") && !has("m-half-a-year-ago"));
    }

    mod order {
        //! The same changes in any order, seen at any moments: the verdict is the same in the end.
        //!
        //! Libvirt, QEMU, the kernel and a container's runtime write on their own. Each keeps its own order; how they interleave
        //! and what falls between two passes is chance. A timeline is what each of them does; it is run with many
        //! interleavings, and what is found in the end must be what is expected, every time.
        //!
        //! `LANEWATCH_SHUFFLES` says how many interleavings are tried.

        use super::*;
        use crate::model::holder::{CgroupOwner, NetworkNamespace};

        type Change = fn(&mut World);

        /// What one writer does, in its order.
        type Writer = &'static [Change];

        /// What is found in the end: check, subject without the PF, reason.
        type Expected = &'static [(&'static str, &'static str, &'static str)];

        struct Timeline {
            name: &'static str,
            /// What was there before, seen by several passes.
            before: Writer,
            writers: &'static [Writer],
            found: Expected,
            /// Who has VF 0 in the end.
            holder: &'static str,
        }

        const PID: u32 = 17_170;

        fn status(world: &mut World, state: &str, reason: &str, pid: Option<u32>, incoming: bool) {
            let claim = Claim { address: address(1), mac: None, vlan: None, present: Some(true) };
            world.libvirt.domains.retain(|domain| &*domain.name != "vm1");
            world.libvirt.domains.push(Domain {
                name: Arc::from("vm1"),
                live: true,
                state: Some(Arc::from(state)),
                reason: Some(Arc::from(reason)),
                pid,
                id: Some(3),
                incoming,
                incoming_job: incoming,
                claims: vec![claim],
                ..Domain::default()
            });
        }

        fn qemu(world: &mut World, incoming: bool) {
            world.openers.machines.push(Domain {
                name: Arc::from("vm1"),
                live: true,
                pid: Some(PID),
                incoming,
                ..Domain::default()
            });
        }

        fn opens(world: &mut World, pid: u32, name: &str, domain: Option<&str>) {
            world.openers.openers.push(Opener {
                pid,
                name: Arc::from(name),
                domain: domain.map(Arc::from),
                handles: vec![DeviceFile::Group(40)],
                started: Some(u64::from(pid)),
                ..Opener::default()
            });
            world.openers.openers.sort_by_key(|opener| opener.pid);
        }

        fn exits(world: &mut World, pid: u32) {
            world.openers.openers.retain(|opener| opener.pid != pid);
            world.openers.machines.retain(|machine| machine.pid != Some(pid));
        }

        const BOUND: Change = |world| _ = world.bind(0, "vfio-pci");
        const GIVEN_BACK: Change = |world| _ = world.bind(0, "mlx5_core");
        const QEMU_STARTS: Change = |world| qemu(world, false);
        const QEMU_WAITS_FOR_A_STATE: Change = |world| qemu(world, true);
        const QEMU_OPENS: Change = |world| opens(world, PID, "qemu-system-x86", Some("vm1"));
        const QEMU_EXITS: Change = |world| exits(world, PID);
        const STARTING: Change = |world| status(world, "paused", "starting up", None, false);
        const STARTING_WITH_PID: Change = |world| status(world, "paused", "starting up", Some(PID), false);
        const BOOTED: Change = |world| status(world, "running", "booted", Some(PID), false);
        const MOVING_IN: Change = |world| status(world, "paused", "starting up", None, true);
        const MOVING_IN_WITH_PID: Change = |world| status(world, "paused", "starting up", Some(PID), true);
        const INCOMING: Change = |world| status(world, "paused", "migration", Some(PID), true);
        const MIGRATED: Change = |world| status(world, "running", "migrated", Some(PID), false);
        const POST_COPY: Change = |world| status(world, "running", "post-copy", Some(PID), true);
        const RESTORING: Change = |world| status(world, "paused", "migration", Some(PID), false);
        const RESTORED: Change = |world| status(world, "running", "restored", Some(PID), false);
        const UNPAUSED: Change = |world| status(world, "running", "unpaused", Some(PID), false);
        const OUTGOING: Change = |world| status(world, "paused", "migration", Some(PID), false);
        const CANCELED: Change = |world| status(world, "running", "migration canceled", Some(PID), false);
        const STATUS_REMOVED: Change = |world| world.libvirt.domains.retain(|domain| &*domain.name != "vm1");
        const A_HELPER_OPENS: Change = |world| opens(world, PID + 1, "dpdk-dumpcap", None);
        const POD: &str = "3b1f0a52-1111-4222-8333-944444444444";

        fn pod() -> CgroupOwner {
            CgroupOwner::Pod { uid: Arc::from(POD), container: None }
        }

        const POD_STARTS: Change = |world| {
            world.namespaces.seen.push(NetworkNamespace { name: Arc::from("4026532200"), owner: Some(pod()) });
        };
        const POD_GETS_THE_VF: Change = |world| {
            world.vf(0).netdevs.clear();
            world.namespaces.interfaces.push(NamespaceInterface {
                address: address(1),
                netdev: Arc::from("net1"),
                namespace: Arc::from("4026532200"),
                owner: Some(pod()),
            });
        };
        const POD_GIVES_IT_BACK: Change = |world| {
            world.namespaces.interfaces.clear();
            world.vf(0).netdevs = vec![Arc::from("ib1v0")];
        };
        const POD_ENDS: Change = |world| {
            world.namespaces.seen.clear();
            world.namespaces.interfaces.clear();
        };
        const VFS_REMOVED: Change = |world| {
            world.namespaces.interfaces.clear();
            world.pf.vfs.clear();
            (world.pf.configured, world.pf.reported, world.pf.announced) = (Some(0), Some(0), Some(0));
        };
        const VFS_MADE_AGAIN: Change = |world| {
            world.pf.vfs = vec![Vf { instance: 2000, ..vf(0) }, Vf { instance: 2001, ..vf(1) }];
            (world.pf.configured, world.pf.reported, world.pf.announced) = (Some(2), Some(2), Some(2));
        };

        const TIMELINES: &[Timeline] = &[
            Timeline {
                name: "a machine that boots",
                before: &[],
                writers: &[&[BOUND], &[STARTING, STARTING_WITH_PID, BOOTED], &[QEMU_STARTS, QEMU_OPENS]],
                found: &[],
                holder: "vm1",
            },
            Timeline {
                name: "a machine that is moved here",
                before: &[],
                writers: &[
                    &[BOUND],
                    &[MOVING_IN, MOVING_IN_WITH_PID, INCOMING, MIGRATED],
                    &[QEMU_WAITS_FOR_A_STATE, QEMU_OPENS],
                ],
                found: &[("vf_map_stale", "/vf0", "domain_appeared")],
                holder: "vm1",
            },
            Timeline {
                name: "one that is moved here and paused and resumed after",
                before: &[],
                writers: &[
                    &[BOUND],
                    &[MOVING_IN, MOVING_IN_WITH_PID, INCOMING, MIGRATED, UNPAUSED],
                    &[QEMU_WAITS_FOR_A_STATE, QEMU_OPENS],
                ],
                found: &[("vf_map_stale", "/vf0", "domain_appeared")],
                holder: "vm1",
            },
            Timeline {
                name: "a move whose memory comes after the guest runs",
                before: &[],
                writers: &[
                    &[BOUND],
                    &[MOVING_IN_WITH_PID, INCOMING, POST_COPY, MIGRATED],
                    &[QEMU_WAITS_FOR_A_STATE, QEMU_OPENS],
                ],
                found: &[("vf_map_stale", "/vf0", "domain_appeared")],
                holder: "vm1",
            },
            Timeline {
                name: "a machine that is restored from a saved image",
                before: &[],
                writers: &[
                    &[BOUND],
                    &[STARTING, STARTING_WITH_PID, RESTORING, RESTORED],
                    &[QEMU_WAITS_FOR_A_STATE, QEMU_OPENS],
                ],
                found: &[("vf_map_stale", "/vf0", "domain_appeared")],
                holder: "vm1",
            },
            Timeline {
                name: "a machine that is moved away",
                before: &[BOUND, QEMU_STARTS, QEMU_OPENS, BOOTED],
                writers: &[&[OUTGOING, STATUS_REMOVED], &[QEMU_EXITS, GIVEN_BACK]],
                found: &[],
                holder: "ib1v0",
            },
            Timeline {
                name: "a move that is cancelled, on the host that keeps the machine",
                before: &[BOUND, QEMU_STARTS, QEMU_OPENS, BOOTED],
                writers: &[&[OUTGOING, CANCELED]],
                found: &[],
                holder: "vm1",
            },
            Timeline {
                name: "a move that is cancelled, on the other host",
                before: &[],
                writers: &[&[
                    BOUND,
                    QEMU_WAITS_FOR_A_STATE,
                    MOVING_IN_WITH_PID,
                    INCOMING,
                    QEMU_EXITS,
                    STATUS_REMOVED,
                    GIVEN_BACK,
                ]],
                found: &[],
                holder: "ib1v0",
            },
            Timeline {
                name: "a helper that opens the group of a machine's VF",
                before: &[],
                writers: &[&[BOUND, QEMU_STARTS, QEMU_OPENS], &[A_HELPER_OPENS], &[BOOTED]],
                found: &[],
                holder: "vm1",
            },
            Timeline {
                name: "VFs that are made again under a pod that lives on",
                before: &[POD_STARTS, POD_GETS_THE_VF],
                writers: &[&[VFS_REMOVED, VFS_MADE_AGAIN]],
                found: &[("vf_map_stale", "/vf0", "vf_recreated")],
                holder: "ib1v0",
            },
            Timeline {
                name: "VFs that are removed under a pod that lives on",
                before: &[POD_STARTS, POD_GETS_THE_VF],
                writers: &[&[VFS_REMOVED]],
                found: &[("vf_dangling", "/vf0", "gone")],
                holder: "",
            },
            Timeline {
                name: "a pod that gives its VF back and ends",
                before: &[POD_STARTS, POD_GETS_THE_VF],
                writers: &[&[POD_GIVES_IT_BACK, POD_ENDS]],
                found: &[],
                holder: "ib1v0",
            },
            Timeline {
                name: "VFs that are made again while their pod ends",
                before: &[POD_STARTS, POD_GETS_THE_VF],
                writers: &[&[VFS_REMOVED, VFS_MADE_AGAIN], &[POD_ENDS]],
                found: &[],
                holder: "ib1v0",
            },
        ];

        /// How many interleavings are tried: `LANEWATCH_SHUFFLES`.
        pub(super) fn shuffles() -> u64 {
            std::env::var("LANEWATCH_SHUFFLES").ok().and_then(|text| text.parse().ok()).unwrap_or(100)
        }

        /// Numbers without a pattern, the same in every run (xorshift).
        pub(super) struct Numbers(u64);

        impl Numbers {
            /// Those of the interleaving of this number.
            pub(super) fn new(number: u64) -> Self {
                let mut numbers = Self(0x9e37_79b9_7f4a_7c15 ^ (number + 1).wrapping_mul(0xd134_2543_de82_ef95));
                (0..4).for_each(|_| _ = numbers.below(2));
                numbers
            }

            pub(super) fn below(&mut self, limit: usize) -> usize {
                self.0 ^= self.0 << 13;
                self.0 ^= self.0 >> 7;
                self.0 ^= self.0 << 17;
                usize::try_from(self.0 % u64::try_from(limit).unwrap()).unwrap()
            }
        }

        /// One interleaving: the changes in their order, and after each how many passes see it.
        fn interleaving(timeline: &Timeline, numbers: &mut Numbers) -> Vec<(Change, u64)> {
            let mut left: Vec<Writer> = timeline.writers.to_vec();
            let mut changes = Vec::new();
            while !left.is_empty() {
                let at = numbers.below(left.len());
                let (next, rest) = left[at].split_first().unwrap();
                // Often none: several changes fall between two passes.
                let passes = [0, 0, 1, 3][numbers.below(4)];
                changes.push((*next, passes));
                left[at] = rest;
                left.retain(|writer| !writer.is_empty());
            }
            changes
        }

        fn in_the_end(timeline: &Timeline, changes: &[(Change, u64)]) -> (Vec<(String, String, String)>, String) {
            let mut world = world(2);
            for change in timeline.before {
                change(&mut world);
            }
            if !timeline.before.is_empty() {
                world.settle();
            }
            for (change, passes) in changes {
                change(&mut world);
                world.pass(passes * 15);
            }
            world.settle();
            let text = |(check, subject, reason): (&str, String, &str)| {
                (check.to_owned(), subject.replace(PF, ""), reason.to_owned())
            };
            let found = world.findings().into_iter().map(text).collect();
            let holder = world.last.as_ref().unwrap().vf_map.vfs.values().next().map(|vf| vf.holder.name().to_owned());
            (found, holder.unwrap_or_default())
        }

        #[test]
        fn every_interleaving_ends_in_the_same_verdict() {
            for timeline in TIMELINES {
                let expected: Vec<(String, String, String)> = timeline
                    .found
                    .iter()
                    .map(|(check, subject, reason)| ((*check).to_owned(), (*subject).to_owned(), (*reason).to_owned()))
                    .collect();
                for number in 0..shuffles() {
                    let changes = interleaving(timeline, &mut Numbers::new(number));
                    let passes: Vec<u64> = changes.iter().map(|(_, passes)| *passes).collect();
                    let (found, holder) = in_the_end(timeline, &changes);
                    let case = format!("{}, interleaving {number}, passes {passes:?}", timeline.name);
                    assert_eq!(found, expected, "{case}");
                    assert_eq!(holder, timeline.holder, "{case}");
                }
            }
        }

        #[test]
        fn data_in_both_directions_proves_a_machine_that_was_moved_here() {
            let mut world = world(2);
            for change in [BOUND, MOVING_IN_WITH_PID, QEMU_WAITS_FOR_A_STATE, INCOMING, QEMU_OPENS, MIGRATED] {
                change(&mut world);
                world.pass(15);
            }
            world.pass(150).says("vf_map_stale", &format!("{PF}/vf0"), "domain_appeared");
            let traffic = world.vf(0).traffic.as_mut().unwrap();
            (traffic.received_bytes, traffic.transmitted_bytes) = (Some(5 << 20), Some(5 << 20));
            world.pass(15).is_quiet();
            // Once is enough: nothing new is held against it later.
            UNPAUSED(&mut world);
            world.pass(600).is_quiet();
        }

        #[test]
        fn a_vf_that_is_attached_while_the_guest_runs_was_probed_by_it() {
            let mut world = world(2);
            for change in [QEMU_WAITS_FOR_A_STATE, INCOMING] {
                change(&mut world);
            }
            world.libvirt.domains[0].claims.clear();
            MIGRATED(&mut world);
            world.libvirt.domains[0].claims.clear();
            world.pass(300).is_quiet();
            BOUND(&mut world);
            MIGRATED(&mut world);
            QEMU_OPENS(&mut world);
            world.pass(600).is_quiet();
        }

        #[test]
        fn a_move_while_nobody_watched_is_seen_at_the_next_start() {
            let mut world = world(2);
            world.pass(60);
            let remembered = world.engine.history().vf_map.clone();
            for change in [BOUND, QEMU_WAITS_FOR_A_STATE, QEMU_OPENS, MIGRATED, UNPAUSED] {
                change(&mut world);
            }
            let text = serde_json::to_string(&remembered).unwrap();
            world.engine = Engine::new(Arc::new(Policy::default()), false);
            let vf_map = serde_json::from_str(&text).unwrap();
            world.engine.restore(
                crate::watch::store::SavedState { vf_map, ..Default::default() },
                Vec::new(),
                world.now,
            );
            world.pass(150).says("vf_map_stale", &format!("{PF}/vf0"), "domain_appeared");
        }

        #[test]
        fn a_machine_that_came_before_anybody_watched_is_not_suspected() {
            let mut world = world(2);
            for change in [BOUND, QEMU_WAITS_FOR_A_STATE, QEMU_OPENS, MIGRATED] {
                change(&mut world);
            }
            world.engine = Engine::new(Arc::new(Policy::default()), false);
            world.pass(600).is_quiet();
        }

        #[test]
        fn a_change_that_was_hidden_is_still_an_event() {
            let mut world = world(2);
            POD_STARTS(&mut world);
            POD_GETS_THE_VF(&mut world);
            world.pass(60);
            let generation =
                |world: &World| world.last.as_ref().unwrap().vf_map.pfs.values().next().unwrap().generation;
            let before = generation(&world);
            let missing = Some(MissingAccess::Namespace);
            world.namespaces = Namespaces { missing, ..Namespaces::default() };
            world.pass(60);
            assert_eq!(generation(&world), before);
            world.namespaces.missing = None;
            world.pass(60);
            assert_eq!(generation(&world), before + 1);
            let events = &world.last.as_ref().unwrap().events;
            assert!(events.iter().any(|event| event.text.contains(&format!("holder pod {POD} became"))), "{events:?}");
        }

        #[test]
        fn the_process_that_was_there_first_stays_the_holder() {
            let mut world = world(2);
            BOUND(&mut world);
            opens(&mut world, 50, "primary", None);
            world.pass(60);
            // A number above, and, after the numbers began anew, one below.
            opens(&mut world, 60, "secondary", None);
            opens(&mut world, 40, "later", None);
            world.openers.openers[0].started = Some(99);
            world.pass(60);
            let holder =
                |world: &World| world.last.as_ref().unwrap().vf_map.vfs.values().next().unwrap().holder.clone();
            assert_eq!(holder(&world), Holder::Process(Arc::from("primary")));
            let since = world.last.as_ref().unwrap().vf_map.vfs.values().next().unwrap().tenure.clone().unwrap().since;
            assert!(world.now.wall.duration_since(since).unwrap() >= Duration::from_secs(100));
            exits(&mut world, 50);
            world.pass(15);
            assert_eq!(holder(&world), Holder::Process(Arc::from("secondary")));
        }
    }

    mod libvirt;

    mod queues {
        //! Queue pair maps of stacks that have them.

        use super::*;
        use crate::model::reading::ReadError;

        /// A map in which these VFs have an entry.
        fn map(vfs: &[u32]) -> QidMap {
            let states = || BTreeMap::from([(Arc::from("RTS"), 3)]);
            let vfs = vfs.iter().map(|vf| (*vf, states())).collect();
            QidMap { pf: PF.parse().unwrap(), vfs, twice: Vec::new(), trouble: None }
        }

        #[test]
        fn a_vf_in_use_without_an_entry() {
            let mut world = world(3);
            world.bind(0, "vfio-pci").start("vm1", 20, &[0], "booted");
            // Nobody uses the last one.
            (world.vf(2).driver, world.vf(2).netdevs) = (None, Vec::new());
            world.qid_map = Some(map(&[0, 1]));
            world.pass(600).is_quiet();
            world.qid_map = Some(map(&[1]));
            world.pass(60).is_quiet();
            world.pass(90).says("vf_map_stale", &format!("{PF}/vf0"), "qid_map");
            // Repaired: the VF is attached anew, and its entries come.
            world.qid_map = Some(map(&[0, 1]));
            world.pass(15).is_quiet();
            // A map that cannot be read speaks against nobody.
            world.qid_map = Some(QidMap { trouble: Some(ReadError::Io), ..map(&[]) });
            world.pass(600).is_quiet();
            let undecided = &world.last.as_ref().unwrap().undecided;
            assert_eq!(undecided.iter().filter(|u| u.check.as_str() == "vf_map_stale").count(), 2);
            // Nor does a host without any.
            world.qid_map = None;
            world.pass(600).is_quiet();
        }

        #[test]
        fn a_vf_in_use_whose_entries_are_all_invalid() {
            let mut world = world(2);
            world.bind(0, "vfio-pci").start("vm1", 20, &[0], "booted");
            let entries = |states: &[&str]| states.iter().map(|state| (Arc::from(*state), 2)).collect();
            let of_first = |states: &[&str]| {
                let mut map = map(&[0, 1]);
                map.vfs.insert(0, entries(states));
                Some(map)
            };
            world.qid_map = of_first(&["INVALID", "RTS"]);
            world.pass(600).is_quiet();
            world.qid_map = of_first(&["invalid"]);
            world.pass(60).is_quiet();
            world.pass(90).says("vf_map_stale", &format!("{PF}/vf0"), "qid_invalid");
            // Of one that nobody uses it is as it should be.
            world.stop("vm1").pass(600);
            assert!(!world.findings().iter().any(|found| found.0 == "vf_map_stale"), "{:?}", world.findings());
        }

        #[test]
        fn a_number_that_two_entries_claim() {
            let mut world = world(3);
            world.bind(0, "vfio-pci").start("vm1", 20, &[0], "booted");
            world.qid_map = Some(QidMap { twice: vec![(4711, vec![0, 1])], ..map(&[0, 1, 2]) });
            world.pass(60).is_quiet();
            world.pass(90);
            let both = [0, 1].map(|number| ("vf_map_stale", format!("{PF}/vf{number}"), "qid_claimed_twice"));
            assert_eq!(world.findings(), both);
            world.qid_map = Some(map(&[0, 1, 2]));
            world.pass(15).is_quiet();
        }
    }

    use std::collections::BTreeMap;
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::model::finding::EventKind;
    use crate::model::holder::{
        Claim, DeviceFile, Domain, FunctionNetwork, FunctionPools, Libvirt, MissingAccess, NamespaceInterface,
        Namespaces, Opener, Openers,
    };
    use crate::model::ids::Guid;
    use crate::model::pods::PodNames;
    use crate::model::policy::Policy;
    use crate::model::reading::Reading;
    use crate::model::snapshot::{CollectorState, Fact};
    use crate::model::sriov::QidMap;
    use crate::model::sriov::{Fabric, Mac, Vf, VfConfig, VfDetail, VfLink, VfTraffic};
    use crate::model::time::{BootTime, Timestamp};
    use crate::watch::{Engine, HostReport};

    const PF: &str = "0000:98:00.0";

    /// A host that a test changes, watched every 15 s.
    struct World {
        engine: Engine,
        now: Timestamp,
        pf: Pf,
        openers: Openers,
        libvirt: Libvirt,
        namespaces: Namespaces,
        pods: PodNames,
        pools: FunctionPools,
        qid_map: Option<QidMap>,
        last: Option<HostReport>,
    }

    fn address(function: u8) -> PciAddress {
        format!("0000:98:{:02x}.{:x}", function / 8, function % 8).parse().unwrap()
    }

    /// A VF on the host's own driver, with its interface there and its GUIDs set.
    fn vf(number: u8) -> Vf {
        let guid = Guid(0x0200_0000_0000_0100 + u64::from(number));
        Vf {
            number: u32::from(number),
            address: Some(address(number + 1)),
            instance: u64::from(number) + 1000,
            driver: Some(Arc::from("mlx5_core")),
            iommu_group: Some(u32::from(number) + 40),
            config: Some(VfConfig { node_guid: Some(guid), port_guid: Some(guid), ..VfConfig::default() }),
            traffic: Some(VfTraffic { received_bytes: Some(0), transmitted_bytes: Some(0), ..VfTraffic::default() }),
            netdevs: vec![Arc::from(format!("ib1v{number}"))],
            ..Vf::default()
        }
    }

    fn world(vfs: u8) -> World {
        let pf = Pf {
            address: PF.parse().unwrap(),
            driver: Some(Arc::from("mlx5_core")),
            iommu_group: None,
            node: None,
            fabric: Some(Fabric::InfiniBand),
            limit: Some(127),
            configured: Some(u32::from(vfs)),
            reported: Some(u32::from(vfs)),
            announced: Some(u32::from(vfs)),
            netdevs: vec![Arc::from("ib1")],
            devices: Vec::new(),
            up: Reading::Value(true),
            switchdev: false,
            probe: Some(1),
            detail: VfDetail::Full,
            vfs: (0..vfs).map(vf).collect(),
        };
        let mut world = World {
            engine: Engine::new(Arc::new(Policy::default()), false),
            now: Timestamp {
                tick: BootTime(86_400_000),
                wall: SystemTime::UNIX_EPOCH + Duration::from_secs(1_790_000_000),
            },
            pf,
            openers: Openers { visible: true, ..Openers::default() },
            libvirt: Libvirt { domains: Vec::new(), readable: true, has_live: true },
            namespaces: Namespaces::default(),
            pods: PodNames::default(),
            pools: FunctionPools::default(),
            qid_map: None,
            last: None,
        };
        world.look();
        world
    }

    impl World {
        fn look(&mut self) -> &HostReport {
            let keys: Vec<Arc<str>> = vec![Arc::from(self.pf.address.to_string())];
            let sriov =
                CollectorState { name: "sriov", success: true, listed: Some(keys.into()), ..CollectorState::default() };
            let mut facts: Vec<Fact> = vec![
                Arc::new(self.pf.clone()),
                Arc::new(self.openers.clone()),
                Arc::new(self.libvirt.clone()),
                Arc::new(self.namespaces.clone()),
                Arc::new(self.pods.clone()),
                Arc::new(self.pools.clone()),
            ];
            facts.extend(self.qid_map.clone().map(|map| Arc::new(map) as Fact));
            let report = self.engine.observe(Snapshot::new(self.now, facts, vec![sriov]));
            self.last.insert(report)
        }

        /// Lets so much time pass, with a reading every 15 s.
        fn pass(&mut self, seconds: u64) -> &mut Self {
            for _ in 0..seconds.div_ceil(15) {
                let step = Duration::from_secs(15);
                self.now = Timestamp { tick: self.now.tick.after(step), wall: self.now.wall + step };
                self.look();
            }
            self
        }

        /// Lets more time pass than any check waits for, with a reading now and then.
        fn settle(&mut self) -> &mut Self {
            for _ in 0..4 {
                let step = Duration::from_secs(75);
                self.now = Timestamp { tick: self.now.tick.after(step), wall: self.now.wall + step };
                self.look();
            }
            self
        }

        /// Findings about VFs: check, subject, reason.
        fn findings(&self) -> Vec<(&'static str, String, &'static str)> {
            let report = self.last.as_ref().unwrap();
            let found = report.findings.iter().map(|finding| &finding.condition);
            found.map(|found| (found.check.as_str(), found.subject.to_string(), found.reason.as_str())).collect()
        }

        fn is_quiet(&self) {
            assert_eq!(self.findings(), []);
        }

        fn says(&self, check: &str, subject: &str, reason: &str) {
            assert_eq!(self.findings(), [(check, subject.to_owned(), reason)].map(|(a, b, c)| (leak(a), b, leak(c))));
        }

        fn vf(&mut self, number: usize) -> &mut Vf {
            &mut self.pf.vfs[number]
        }

        fn bind(&mut self, number: usize, driver: &str) -> &mut Self {
            let vf = self.vf(number);
            vf.driver = Some(Arc::from(driver));
            vf.netdevs = if driver == "vfio-pci" { Vec::new() } else { vec![Arc::from(format!("ib1v{number}"))] };
            self
        }

        /// A machine that has these VFs open and is a domain of libvirt.
        fn start(&mut self, name: &str, pid: u32, vfs: &[usize], reason: &str) -> &mut Self {
            let groups = vfs.iter().map(|number| DeviceFile::Group(40 + u32::try_from(*number).unwrap())).collect();
            let name: Arc<str> = Arc::from(name);
            self.openers.openers.push(Opener {
                pid,
                name: Arc::from("qemu-system-x86"),
                domain: Some(Arc::clone(&name)),
                handles: groups,
                ..Opener::default()
            });
            self.define(&name, Some(pid), vfs, reason)
        }

        fn define(&mut self, name: &str, pid: Option<u32>, vfs: &[usize], reason: &str) -> &mut Self {
            let claim = |number: &usize| Claim {
                address: address(u8::try_from(*number).unwrap() + 1),
                mac: None,
                vlan: None,
                present: Some(true),
            };
            self.libvirt.domains.push(Domain {
                name: Arc::from(name),
                live: pid.is_some(),
                state: pid.map(|_| Arc::from("running")),
                reason: pid.map(|_| Arc::from(reason)),
                pid,
                id: pid,
                claims: vfs.iter().map(claim).collect(),
                ..Domain::default()
            });
            self
        }

        /// Its process and its live status go.
        fn stop(&mut self, name: &str) -> &mut Self {
            self.openers.openers.retain(|opener| opener.domain.as_deref() != Some(name));
            self.libvirt.domains.retain(|domain| *domain.name != *name);
            self
        }

        fn count(&self, signal: Signal) -> u64 {
            let map = &self.last.as_ref().unwrap().vf_map;
            map.signal(signal).count
        }

        fn guids(&mut self, number: usize, guid: u64) -> &mut Self {
            let config = self.vf(number).config.as_mut().unwrap();
            (config.node_guid, config.port_guid) = (Some(Guid(guid)), Some(Guid(guid)));
            self
        }
    }

    fn leak(text: &str) -> &'static str {
        Box::leak(text.to_owned().into_boxed_str())
    }

    #[test]
    fn made_given_away_and_moved_away_cleanly() {
        let mut world = world(0);
        world.pass(60).is_quiet();
        // Being made: the count is held back, GUIDs are not set yet, no driver is bound.
        (world.pf.configured, world.pf.reported) = (None, Some(0));
        world.pf.vfs = vec![Vf { driver: None, config: None, ..vf(0) }];
        world.pass(60).is_quiet();
        (world.pf.configured, world.pf.reported) = (Some(1), Some(1));
        world.pf.vfs = vec![vf(0)];
        world.guids(0, 0).pass(60).is_quiet();
        world.guids(0, 7).pass(600).is_quiet();
        // Given to a machine: bound, then a while until its process has it open.
        world.bind(0, "vfio-pci").define("vm1", Some(20), &[0], "booted").pass(60).is_quiet();
        world.stop("vm1").start("vm1", 20, &[0], "booted").pass(3600).is_quiet();
        let report = world.last.as_ref().unwrap();
        let row = report.vf_map.vfs.values().next().unwrap();
        assert_eq!((row.holder.kind(), row.holder.name()), ("vm", "vm1"));
        assert!(report.vf_map.pfs.values().next().unwrap().generation >= 3);
        // Moved away: process and status go, the VF goes back to the host.
        world.stop("vm1").pass(15).is_quiet();
        world.bind(0, "mlx5_core").pass(3600).is_quiet();
        assert_eq!((world.count(Signal::DomainAppeared), world.count(Signal::DomainGone)), (1, 1));
        let events = &world.last.as_ref().unwrap().events;
        assert!(events.iter().any(|event| event.kind == EventKind::Migration && event.text.contains("vm1")));
        assert!(events.iter().any(|event| event.kind == EventKind::VfChanged && event.text.contains("holder VM vm1")));
    }

    #[test]
    fn a_detach_that_failed_dangles_and_then_is_stale() {
        let mut world = world(2);
        world.bind(0, "vfio-pci").start("vm1", 20, &[0], "booted").pass(300).is_quiet();
        // The machine lives on and still claims the VF; its process has let go of it.
        world.openers.openers.clear();
        world.pass(60).is_quiet();
        world.pass(90);
        assert!(world.findings().contains(&("vf_dangling", format!("{PF}/vf0"), "not_held")), "{:?}", world.findings());
        assert!(!world.findings().iter().any(|(check, _, _)| *check == "vf_map_stale"));
        world.pass(600);
        assert!(
            world.findings().contains(&("vf_map_stale", format!("{PF}/vf0"), "detach_failed")),
            "{:?}",
            world.findings()
        );
        // Repaired: detached in the domain too, and given back.
        world.stop("vm1").define("vm1", Some(20), &[], "booted").bind(0, "mlx5_core").pass(15).is_quiet();
    }

    #[test]
    fn a_machine_that_comes_back_with_another_vf() {
        let mut world = world(3);
        world.bind(0, "vfio-pci").start("vm1", 20, &[0], "booted").pass(300).is_quiet();
        world.stop("vm1").bind(0, "mlx5_core").pass(600).is_quiet();
        world.bind(2, "vfio-pci").start("vm1", 30, &[2], "booted").pass(60).is_quiet();
        world.pass(90).says("vf_identity_changed", &format!("{PF}/vf2"), "other_vf");
        // Repaired: the VF has the identity that the machine had.
        world.guids(0, 9).guids(2, 0x0200_0000_0000_0100).pass(15).is_quiet();
        world.pass(600).is_quiet();
    }

    #[test]
    fn an_identity_that_changes_under_its_holder() {
        let mut world = world(1);
        world.bind(0, "vfio-pci").start("vm1", 20, &[0], "booted").pass(600).is_quiet();
        world.guids(0, 5).pass(150).says("vf_identity_changed", &format!("{PF}/vf0"), "under_holder");
        world.guids(0, 0x0200_0000_0000_0100).pass(15).is_quiet();
        world.guids(0, 5).pass(150);
        assert_eq!(world.findings().len(), 1);
        // Accepted by the operator.
        world.engine.forget_baseline();
        world.pass(15).is_quiet();
        world.pass(600).is_quiet();
    }

    #[test]
    fn two_machines_claim_one_vf() {
        let mut world = world(1);
        world.bind(0, "vfio-pci").start("vm1", 20, &[0], "booted").define("vm2", Some(30), &[0], "booted");
        world.pass(60).is_quiet();
        world.pass(90).says("vf_dangling", &format!("{PF}/vf0"), "claimed_twice");
        world.stop("vm2").pass(15).is_quiet();
        // One that is off cannot start while the other runs; where both are off, it is worth knowing and no more.
        world.define("vm2", None, &[0], "").pass(150).says("vf_dangling", &format!("{PF}/vf0"), "claimed_twice");
        assert_eq!(world.last.as_ref().unwrap().status, crate::model::check::Status::Warning);
        world.stop("vm1").bind(0, "mlx5_core").define("vm1", None, &[0], "").pass(150);
        assert_eq!(world.last.as_ref().unwrap().status, crate::model::check::Status::Ok);
    }

    #[test]
    fn the_removal_of_a_vf_waits_for_its_machine() {
        let mut world = world(2);
        world.bind(0, "vfio-pci").start("vm1", 20, &[0], "booted").pass(300).is_quiet();
        // The kernel has taken the driver off, and waits for QEMU to close the group.
        world.vf(0).driver = None;
        world.pass(150).says("vf_map_stale", &format!("{PF}/vf0"), "removal_blocked");
        let report = world.last.as_ref().unwrap();
        let summary = &report.findings[0].condition.summary;
        assert!(summary.contains("waits for VM vm1 (pid 20)"), "{summary}");
        assert_eq!(report.vf_map.vfs.values().next().unwrap().holder.name(), "vm1");
        // Functions that went before it are no other fault.
        world.vf(0).leaving = true;
        world.vf(1).address = None;
        world.pass(150).says("vf_map_stale", &format!("{PF}/vf0"), "removal_blocked");
        world.vf(0).leaving = false;
        world.vf(1).address = Some(address(2));
        world.bind(0, "vfio-pci").pass(15).is_quiet();
    }

    #[test]
    fn a_running_machine_that_lost_its_function_is_worse_off_than_one_that_is_off() {
        let mut world = world(1);
        world.define("vm1", Some(20), &[0], "booted");
        let claim = &mut world.libvirt.domains[0].claims[0];
        (claim.address, claim.present) = ("0000:0a:00.0".parse().unwrap(), Some(false));
        world.pass(150).says("vf_dangling", "0000:0a:00.0", "gone");
        let found = |world: &World| world.last.as_ref().unwrap().findings[0].condition.clone();
        assert_eq!(found(&world).severity, crate::model::check::Severity::Critical);
        let running = found(&world).summary;
        assert!(running.contains("the guest has lost the device") && !running.contains("VF"), "{running}");
        world.libvirt.domains[0].live = false;
        world.pass(150);
        assert_eq!(found(&world).severity, crate::model::check::Severity::Warning);
        assert!(found(&world).summary.contains("will not start"));
    }

    /// The summary of the only finding.
    fn summary(world: &World) -> &str {
        let findings = &world.last.as_ref().unwrap().findings;
        assert_eq!(findings.len(), 1, "{:?}", world.findings());
        &findings[0].condition.summary
    }

    #[test]
    fn idle_vfs_of_a_kubernetes_node_are_one_finding_and_no_fault() {
        let mut world = world(8);
        for number in 0..8 {
            world.bind(number, "vfio-pci");
        }
        world.start("vm1", 20, &[3], "booted").pools.kubernetes = true;
        world.pass(150).says("vf_orphan", PF, "idle_pool");
        assert_eq!(world.last.as_ref().unwrap().status, crate::model::check::Status::Ok);
        let text = summary(&world);
        assert!(text.starts_with("7 of the 8 VFs of 0000:98:00.0 are idle in a pool: 0-2, 4-7 (this Kube"), "{text}");
        // A VF that a domain claims is that domain's, and no pool's.
        world.define("vm2", None, &[6], "").pass(150);
        let found = [("vf_orphan", format!("{PF}/vf6"), "not_held"), ("vf_orphan", PF.to_owned(), "idle_pool")];
        assert_eq!(world.findings(), found);
    }

    #[test]
    fn a_network_of_libvirt_is_a_pool_of_its_pf_alone() {
        let mut world = world(2);
        world.bind(0, "vfio-pci").bind(1, "vfio-pci");
        let network = FunctionNetwork { name: Arc::from("fast"), pfs: vec![Arc::from("ib1")], functions: Vec::new() };
        world.pools.networks = vec![network];
        world.pass(150).says("vf_orphan", PF, "idle_pool");
        assert!(summary(&world).contains("the libvirt network fast"), "{}", summary(&world));
        world.pools.networks[0].pfs = vec![Arc::from("ib7")];
        world.pools.networks[0].functions = vec![address(2)];
        world.pass(150);
        let found = [("vf_orphan", format!("{PF}/vf0"), "not_held"), ("vf_orphan", PF.to_owned(), "idle_pool")];
        assert_eq!(world.findings(), found);
    }

    #[test]
    fn many_orphans_of_one_pf_are_one_finding() {
        let mut world = world(6);
        for number in 0..3 {
            world.bind(number, "vfio-pci");
        }
        world.pass(150);
        let each = [0, 1, 2].map(|number| ("vf_orphan", format!("{PF}/vf{number}"), "not_held"));
        assert_eq!(world.findings(), each);
        world.bind(5, "vfio-pci").pass(150).says("vf_orphan", PF, "not_held");
        assert_eq!(world.last.as_ref().unwrap().status, crate::model::check::Status::Warning);
        assert!(
            summary(&world).starts_with("4 of the 6 VFs of 0000:98:00.0 are bound to vfio-pci"),
            "{}",
            summary(&world)
        );
        assert!(summary(&world).contains("0-2, 5"), "{}", summary(&world));
    }

    /// A policy that expects so many VFs of the PFs that match.
    fn expecting(pattern: &str, count: u32) -> Engine {
        let pfs = crate::host::collector::Filter::pattern(pattern).unwrap();
        let vfs = vec![crate::model::policy::VfPolicy { pfs, count }];
        Engine::new(Arc::new(Policy { vfs, ..Policy::default() }), false)
    }

    #[test]
    fn vfs_that_the_policy_expects() {
        for pattern in ["0000:98:00\\.0", "ib1"] {
            let mut world = world(32);
            world.engine = expecting(pattern, 32);
            world.pass(150).is_quiet();
            world.pf.vfs.truncate(31);
            (world.pf.configured, world.pf.reported) = (Some(31), Some(31));
            world.pass(60).is_quiet();
            world.pass(90).says("vf_count_mismatch", PF, "policy");
            assert!(summary(&world).contains("1 of 32 VFs are missing, 31 are there"), "{}", summary(&world));
            assert_eq!(world.last.as_ref().unwrap().status, crate::model::check::Status::Warning);
            world.pf.vfs.clear();
            (world.pf.configured, world.pf.reported) = (Some(0), Some(0));
            world.pass(150).says("vf_count_mismatch", PF, "policy");
            assert!(summary(&world).contains("32 VFs are missing, 0 are there"), "{}", summary(&world));
            assert_eq!(world.last.as_ref().unwrap().status, crate::model::check::Status::Critical);
        }
        // More than expected is no fault, and without the policy none of them is.
        let mut more = world(32);
        more.engine = expecting("ib1", 8);
        more.pass(150).is_quiet();
        world(0).pass(150).is_quiet();
        let mut gone = world(0);
        gone.engine = expecting("ib2", 8);
        gone.pass(150).says("vf_count_mismatch", "host/vfs", "policy");
        assert!(summary(&gone).contains("does not have: 8 of \"ib2\""), "{}", summary(&gone));
    }

    #[test]
    fn a_vf_in_use_without_a_link() {
        let mut world = world(1);
        world.vf(0).config.as_mut().unwrap().link = Some(VfLink::Disable);
        // The host's own driver has it: an orchestrator sets the link when it gives the VF away.
        world.pass(600).is_quiet();
        world.bind(0, "vfio-pci").start("vm1", 20, &[0], "booted").pass(60).is_quiet();
        world.pass(90).says("vf_link_disabled", &format!("{PF}/vf0"), "link_disabled");
        assert!(summary(&world).contains("`ip link set ib1 vf 0 state auto`"), "{}", summary(&world));
        world.vf(0).config.as_mut().unwrap().link = Some(VfLink::Auto);
        world.pass(600).is_quiet();
        // Taken down under its user: one finding, not two.
        world.vf(0).config.as_mut().unwrap().link = Some(VfLink::Disable);
        world.pass(150).says("vf_link_disabled", &format!("{PF}/vf0"), "link_disabled");
    }

    #[test]
    fn guids_that_are_zero_or_used_twice() {
        let mut world = world(2);
        world.guids(1, 0).pass(60).is_quiet();
        world.pass(90).says("vf_identity_zero", &format!("{PF}/vf1"), "guid_zero");
        world.guids(1, 0x0200_0000_0000_0100).pass(150);
        let both = [0, 1].map(|number| ("vf_identity_duplicate", format!("{PF}/vf{number}"), "guid"));
        assert_eq!(world.findings(), both);
        world.guids(1, 8).pass(15).is_quiet();
    }
}
