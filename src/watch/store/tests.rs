//! Each step of writing the state fails, is torn, or is the last thing that happens, one by one.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use super::files::StateFiles;
use super::{Answer, Request, STATE_BROKEN, SavedState, Store};
use crate::model::finding::{Event, EventKind};

/// What happens at a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// The system call fails with this errno and has no effect; a write stops half-way.
    Errno(i32),
    /// The machine stops before the step.
    StopBefore,
    /// The machine stops in the middle of it: half of a write is done.
    StopWithin,
}

/// What a machine that stopped finds again of what was not synced.
#[derive(Debug, Clone, Copy)]
struct Survival {
    names: bool,
    data: bool,
}

#[derive(Debug, Default, Clone)]
struct Inode {
    data: Vec<u8>,
    synced: Vec<u8>,
}

#[derive(Debug, Default)]
struct Disk {
    inodes: Vec<Inode>,
    names: BTreeMap<String, usize>,
    synced_names: BTreeMap<String, usize>,
    steps: usize,
    fault: Option<(usize, Fault)>,
    is_stopped: bool,
}

/// Files in memory that know what a crash would leave of them.
#[derive(Debug, Default)]
struct SimulatedFiles(Mutex<Disk>);

impl Disk {
    /// Counts a step; true if only half of it is to be done.
    fn step(&mut self) -> io::Result<bool> {
        if self.is_stopped {
            return Err(io::Error::other("the machine has stopped"));
        }
        self.steps += 1;
        match self.fault {
            Some((at, fault)) if at == self.steps => match fault {
                Fault::Errno(errno) => Err(io::Error::from_raw_os_error(errno)),
                Fault::StopBefore => {
                    self.is_stopped = true;
                    Err(io::Error::other("the machine stops"))
                }
                Fault::StopWithin => Ok(true),
            },
            _ => Ok(false),
        }
    }

    fn inode(&self, name: &str) -> io::Result<usize> {
        self.names.get(name).copied().ok_or_else(|| io::Error::from_raw_os_error(2))
    }

    /// A step that is done or not.
    fn whole_step(&mut self) -> io::Result<()> {
        if self.step()? {
            self.is_stopped = true;
            return Err(io::Error::other("the machine stops"));
        }
        Ok(())
    }

    fn write(&mut self, inode: usize, bytes: &[u8]) -> io::Result<()> {
        let half = &bytes[..bytes.len() / 2];
        match self.step() {
            Ok(false) => self.inodes[inode].data.extend(bytes),
            Ok(true) => {
                self.inodes[inode].data.extend(half);
                self.is_stopped = true;
                return Err(io::Error::other("the machine stops"));
            }
            Err(error) => {
                if !self.is_stopped {
                    self.inodes[inode].data.extend(half);
                }
                return Err(error);
            }
        }
        self.whole_step()?;
        self.inodes[inode].synced = self.inodes[inode].data.clone();
        Ok(())
    }

    /// Starts the machine again.
    fn restart(&mut self, survival: Survival) {
        if self.is_stopped {
            if !survival.names {
                self.names = self.synced_names.clone();
            }
            if !survival.data {
                self.inodes.iter_mut().for_each(|inode| inode.data = inode.synced.clone());
            }
        }
        (self.is_stopped, self.fault) = (false, None);
    }
}

impl SimulatedFiles {
    fn disk<T>(&self, act: impl FnOnce(&mut Disk) -> T) -> T {
        act(&mut self.0.lock().unwrap())
    }

    /// What a command does beside the agent; no step of the agent.
    fn put(&self, name: &str, bytes: &[u8]) {
        self.disk(|disk| {
            disk.inodes.push(Inode { data: bytes.to_vec(), synced: bytes.to_vec() });
            disk.names.insert(name.to_owned(), disk.inodes.len() - 1);
            disk.synced_names.insert(name.to_owned(), disk.inodes.len() - 1);
        });
    }

    fn has(&self, name: &str) -> bool {
        self.disk(|disk| disk.names.contains_key(name))
    }
}

impl StateFiles for SimulatedFiles {
    fn create_directory(&self) -> io::Result<()> {
        self.disk(Disk::whole_step)
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        self.disk(|disk| {
            disk.whole_step()?;
            disk.inode(name).map(|inode| disk.inodes[inode].data.clone())
        })
    }

    fn create(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.disk(|disk| {
            disk.whole_step()?;
            disk.inodes.push(Inode::default());
            let inode = disk.inodes.len() - 1;
            disk.names.insert(name.to_owned(), inode);
            disk.write(inode, bytes)
        })
    }

    fn append(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.disk(|disk| {
            let created = disk.inode(name).is_err();
            if created {
                disk.whole_step()?;
                disk.inodes.push(Inode::default());
                disk.names.insert(name.to_owned(), disk.inodes.len() - 1);
            }
            let inode = disk.inode(name)?;
            disk.write(inode, bytes)?;
            if created {
                disk.whole_step()?;
                disk.synced_names = disk.names.clone();
            }
            Ok(())
        })
    }

    fn length(&self, name: &str) -> io::Result<u64> {
        self.disk(|disk| Ok(disk.inodes[disk.inode(name)?].data.len() as u64))
    }

    fn link(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk(|disk| {
            disk.whole_step()?;
            let inode = disk.inode(from)?;
            disk.names.insert(to.to_owned(), inode);
            Ok(())
        })
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk(|disk| {
            disk.whole_step()?;
            let inode = disk.inode(from)?;
            disk.names.remove(from);
            disk.names.insert(to.to_owned(), inode);
            Ok(())
        })
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk(|disk| {
            disk.whole_step()?;
            disk.inode(name)?;
            disk.names.remove(name);
            Ok(())
        })
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.disk(|disk| {
            disk.whole_step()?;
            disk.synced_names = disk.names.clone();
            Ok(())
        })
    }

    fn create_requests(&self) -> io::Result<()> {
        self.disk(Disk::whole_step)
    }

    fn requests(&self) -> io::Result<Vec<String>> {
        self.disk(|disk| {
            disk.whole_step()?;
            let names = disk.names.keys().filter_map(|name| name.strip_prefix("requests/"));
            Ok(names.map(str::to_owned).collect())
        })
    }

    fn lock(&self) -> io::Result<Option<File>> {
        self.disk(Disk::whole_step)?;
        tempfile::tempfile().map(Some)
    }
}

/// What an agent was told is kept.
#[derive(Debug, Default)]
struct Acknowledged {
    events: Vec<String>,
    save: u64,
    request: bool,
}

const REQUEST: &str = "requests/00000000000001-1-0000000000000001.json";
const ANSWER: &str = "requests/00000000000001-1-0000000000000001.answer";
const ID: &str = "00000000000001-1-0000000000000001";

fn event(number: u64) -> Event {
    Event {
        time: String::new(),
        kind: EventKind::Started,
        subject: String::new(),
        text: format!("event {number}"),
        link_downed: None,
    }
}

fn number(state: &SavedState) -> u64 {
    state.boot_id.as_ref().map_or(0, |text| text.parse().unwrap())
}

/// An agent's life: it starts, writes events and states, and applies a request.
fn live(files: &Arc<SimulatedFiles>) -> Acknowledged {
    let mut acknowledged = Acknowledged::default();
    let mut store = Store::with_files(PathBuf::from("/state"), Arc::<SimulatedFiles>::clone(files));
    let _ = store.take();
    let (state, _) = store.load();
    let mut waiting = Vec::new();
    for pass in number(&state) + 1..number(&state) + 5 {
        waiting.push(event(pass).text);
        if store.append(vec![event(pass)]).is_ok() {
            acknowledged.events.append(&mut waiting);
        }
        let mut answers = Vec::new();
        for (id, request) in store.requests(SystemTime::UNIX_EPOCH) {
            assert_eq!(request, Ok(Request::AcceptBaseline));
            if !store.was_applied(&id) {
                store.mark_applied(&id);
            }
            answers.push(id);
        }
        let state = SavedState { boot_id: Some(pass.to_string()), ..SavedState::default() };
        if store.save(state).is_ok() {
            acknowledged.save = pass;
            for id in answers {
                store.answer(&id, &Answer::default());
            }
        }
    }
    acknowledged.request = files.has(ANSWER);
    acknowledged
}

fn disk() -> Arc<SimulatedFiles> {
    let files = Arc::new(SimulatedFiles::default());
    live(&files);
    files.put(REQUEST, b"\"accept_baseline\"");
    files.disk(|disk| disk.steps = 0);
    files
}

#[test]
fn no_acknowledged_event_state_or_request_is_lost_whatever_step_fails() {
    let files = disk();
    let before = live(&files);
    assert_eq!((before.save, before.request, before.events.len()), (8, true, 4));
    let steps = files.disk(|disk| disk.steps);
    let interruptions = [Fault::StopBefore, Fault::StopWithin];
    let errors = [5, 13, 28, 30].map(Fault::Errno);
    let mut points = 0;
    for (fault, step) in
        interruptions.into_iter().chain(errors).flat_map(|fault| (1..=steps).map(move |step| (fault, step)))
    {
        for survival in [(false, false), (true, false), (false, true), (true, true)] {
            let survival = Survival { names: survival.0, data: survival.1 };
            if matches!(fault, Fault::Errno(_)) && survival.names != survival.data {
                // Nothing stops, so nothing is lost.
                continue;
            }
            points += 1;
            let point = format!("{fault:?} at step {step} of {steps}, {survival:?}");
            let files = disk();
            files.disk(|disk| disk.fault = Some((step, fault)));
            let acknowledged = live(&files);
            files.disk(|disk| disk.restart(survival));
            let mut store = Store::with_files(PathBuf::from("/state"), Arc::<SimulatedFiles>::clone(&files));
            let (state, troubles) = store.load();
            assert!(troubles.is_empty(), "{point}: {troubles:?}");
            assert!(!files.has(STATE_BROKEN), "{point}");
            assert!(number(&state) >= acknowledged.save.max(4), "{point}: {} of {}", number(&state), acknowledged.save);
            let events: Vec<String> = store.events().into_iter().map(|event| event.text).collect();
            for text in &acknowledged.events {
                assert!(events.contains(text), "{point}: {text} of {events:?}");
            }
            assert!(files.has(REQUEST) || store.was_applied(ID), "{point}: the request is lost");
            if acknowledged.request {
                assert!(store.was_applied(ID), "{point}: an answered request was forgotten");
            }
            // And it goes on, and answers what waits.
            let after = live(&files);
            assert!(after.save > number(&state), "{point}");
            assert!(!files.has(REQUEST), "{point}");
        }
    }
    assert!(points > 500, "{points} points");
    eprintln!("{points} points of {steps} steps");
}

#[test]
fn a_broken_state_is_set_aside_and_the_previous_one_is_used() {
    let files = disk();
    let broken = b"{\"version\":2,\"checksum\":\"\",\"state\":{}}\n";
    files.put("state.json", broken);
    let mut store = Store::with_files(PathBuf::from("/state"), Arc::<SimulatedFiles>::clone(&files));
    let (state, troubles) = store.load();
    assert_eq!(number(&state), 3, "{troubles:?}");
    assert!(troubles.iter().all(|text| text.contains("the previous state is used")), "{troubles:?}");
    assert_eq!(files.read(STATE_BROKEN).unwrap(), broken);
    // The first save does not replace the previous one: nothing good is on disk but that.
    store.save(SavedState { boot_id: Some("9".to_owned()), ..SavedState::default() }).unwrap();
    assert_eq!(number(&store.read("state.previous.json").ok().flatten().unwrap()), 3);
}

/// A state with an entry of every kind, as release 0.1.0 wrote it.
const WHOLE: &str = r#"{"version": 1, "boot_id": "5f1c0a52", "kernel_log": 9182,
  "baseline": {"devices": {
    "0c42:a103:00f7:1b2e": {"name": "mlx5_3", "pci_address": "0000:5e:00.0",
      "ports": {"1": {"active": true, "rate_bytes_per_second": 25e9}},
      "path": [{"pci_address": "0000:5e:00.0", "transfers_per_second": 16000000000, "lanes": 16}]},
    "mlx5_4": {"name": "mlx5_4"}}},
  "flaps": {"mlx5_3/1": [1789999000000], "mlx5_4/1": [1789999000001]},
  "findings": [{"check": "port_down", "subject": "mlx5_4/1", "since": 1789990000123},
    {"check": "port_down", "subject": "mlx5_5/1", "since": 1789990000124}],
  "vf_map": {
    "pfs": {"0000:5e:00.0": {"generation": 7, "changed": 1789990000456}, "0000:5f:00.0": {"generation": 8}},
    "vfs": {"0000:5e:00.0/vf2": {"pci_address": "0000:5e:00.4", "identity": {"mac": "02:4e:19:00:00:2a"}},
      "0000:5e:00.0/vf3": {"pci_address": "0000:5e:00.5",
        "identity": {"node_guid": "0c42:a103:00f7:1b2f", "port_guid": "0c42:a103:00f7:1b30"}}},
    "machines": {"train7": [{"mac": "02:4e:19:00:00:2a"}], "train8": [{"mac": "02:4e:19:00:00:2b"}]},
    "signals": {"domain_appeared": {"count": 3, "last": 1789980000000}, "domain_gone": {"count": 1}}},
  "probes": [
    {"probe": "rdma_loopback", "port": ["mlx5_3", 1], "spent": [[1789970000000, 2250]], "runs": [
      {"at": 1789970000000, "took": 2250, "outcome": "ok", "reason": "as_usual", "text": "a", "profile": "64k"},
      {"at": 1789970000001, "took": 2250, "outcome": "ok", "reason": "as_usual", "text": "b", "profile": "64k"}]},
    {"probe": "memory"}]}"#;

/// How many entries of each kind a state has.
fn entries(state: &SavedState) -> [usize; 10] {
    let map = &state.vf_map;
    [
        state.baseline.devices.len(),
        state.flaps.len(),
        state.findings.len(),
        map.pfs.len(),
        map.vfs.len(),
        map.machines.len(),
        map.signals.len(),
        state.benchmarks.len(),
        state.benchmarks.values().map(|history| history.runs.len()).sum(),
        usize::from(state.boot_id.is_some()) + usize::from(state.kernel_log.is_some()),
    ]
}

#[test]
fn a_malformed_entry_costs_only_itself() {
    let load = |text: &str| {
        let files = Arc::new(SimulatedFiles::default());
        files.put("state.json", text.as_bytes());
        let mut store = Store::with_files(PathBuf::from("/state"), Arc::<SimulatedFiles>::clone(&files));
        let loaded = store.load();
        assert!(!files.has(STATE_BROKEN), "{text}");
        loaded
    };
    let (whole, troubles) = load(WHOLE);
    assert_eq!((entries(&whole), troubles), ([2, 2, 2, 2, 2, 2, 2, 2, 2, 2], Vec::new()));
    for (good, malformed, kind, lost) in [
        ("\"mac\": \"02:4e:19:00:00:2a\"}},", "\"mac\": \"02:4e:19\"}},", 4, "vf_map.vfs.0000:5e:00.0/vf2"),
        ("0c42:a103:00f7:1b30", "0c42-a103", 4, "vf_map.vfs.0000:5e:00.0/vf3"),
        ("\"0000:5e:00.4\"", "\"5e:00.4\"", 4, "vf_map.vfs.0000:5e:00.0/vf2"),
        ("0000:5e:00.0/vf3", "0000:5e:00.0-vf3", 4, "vf_map.vfs.0000:5e:00.0-vf3"),
        ("\"0000:5f:00.0\":", "\"5f:00.0\":", 3, "vf_map.pfs.5f:00.0"),
        ("\"mac\": \"02:4e:19:00:00:2b\"", "\"mac\": 7", 5, "vf_map.machines.train8"),
        ("domain_gone", "domain_flown", 6, "vf_map.signals.domain_flown"),
        ("\"lanes\": 16", "\"lanes\": 1600", 0, "baseline.devices.0c42:a103:00f7:1b2e"),
        ("\"mlx5_4/1\": [", "\"mlx5_4\": [", 1, "flaps.mlx5_4"),
        ("1789990000124", "\"now\"", 2, "findings.1"),
        ("\"probe\": \"memory\"", "\"probe\": \"cache\"", 7, "probes.1"),
        ("\"text\": \"b\"", "\"text\": 3", 8, "probes.0.runs.1"),
        ("9182", "\"many\"", 9, "kernel_log"),
    ] {
        let (state, troubles) = load(&WHOLE.replacen(good, malformed, 1));
        let mut expected = entries(&whole);
        expected[kind] -= 1;
        assert_eq!(entries(&state), expected, "{malformed}: {troubles:?}");
        assert_eq!(troubles.len(), 1, "{malformed}: {troubles:?}");
        assert!(troubles[0].contains(lost), "{malformed}: {troubles:?}");
    }
    // A part of another shape costs that part.
    let (state, troubles) = load(&WHOLE.replacen("\"flaps\": {", "\"flaps\": 7, \"other\": {", 1));
    assert_eq!((state.flaps.len(), entries(&state)[4], troubles.len()), (0, 2, 1), "{troubles:?}");
    // What is no object with a version is broken.
    let files = Arc::new(SimulatedFiles::default());
    files.put("state.json", b"[]");
    let mut store = Store::with_files(PathBuf::from("/state"), Arc::<SimulatedFiles>::clone(&files));
    let _ = store.load();
    assert!(files.has(STATE_BROKEN));
}

#[test]
fn a_state_that_cannot_be_read_now_stays_as_it_is() {
    for errno in [5, 13, 116] {
        let files = disk();
        let steps = files.disk(|disk| disk.steps);
        files.disk(|disk| disk.fault = Some((steps + 1, Fault::Errno(errno))));
        let mut store = Store::with_files(PathBuf::from("/state"), Arc::<SimulatedFiles>::clone(&files));
        let (state, troubles) = store.load();
        assert_eq!((number(&state), troubles.len()), (0, 1));
        assert!(troubles[0].contains("left unchanged"), "{troubles:?}");
        store.save(SavedState::default()).unwrap_err();
        store.append(vec![event(1)]).unwrap_err();
        assert!(!files.has(STATE_BROKEN));
        let mut next = Store::with_files(PathBuf::from("/state"), Arc::<SimulatedFiles>::clone(&files));
        assert_eq!(number(&next.load().0), 4);
    }
}

#[test]
fn waiting_runs_that_cannot_be_read_now_stay() {
    let files = disk();
    files.put("probe-runs.jsonl", b"{}\n");
    let store = Store::with_files(PathBuf::from("/state"), Arc::<SimulatedFiles>::clone(&files));
    for errno in [5, 13] {
        files.disk(|disk| disk.fault = Some((disk.steps + 1, Fault::Errno(errno))));
        assert!(store.old_runs().is_empty());
        assert!(files.has("probe-runs.jsonl"), "errno {errno}");
    }
    store.remove_old_runs();
    assert!(!files.has("probe-runs.jsonl"));
}
