//! The poller while things come, go, hang and are asked for by many at once; and what it keeps.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "common/mod.rs"]
mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use common::faulty::{Fault, Faulty, Op};
use common::hand::{Hand, LONG, found, of, setup};
use common::host::{Device, HostTree};
use common::run::Server;
use common::tree::Entry;
use lanewatch::host::collector::{Filter, Setup};
use lanewatch::host::fs::Fs;
use lanewatch::host::io::Roots;
use lanewatch::host::{COLLECTORS, Host, Spec};
use lanewatch::model::benchmark::{Benchmark, BenchmarkKey, BenchmarkRun, Good, RunResult, SkipReason};
use lanewatch::model::check::{Check, Status};
use lanewatch::model::finding::EventKind;
use lanewatch::model::holder::Libvirt;
use lanewatch::model::reading::ReadError;
use lanewatch::watch::PollerHandle;
use lanewatch::watch::clock::{ManualClock, SystemClock};
use lanewatch::watch::store::{Request, Store, send};
use lanewatch::watch::{Engine, HostReport, Poller};
use tempfile::TempDir;

/// A poller in its own thread, until it is dropped.
struct Running {
    handle: PollerHandle,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn start(io: &Arc<Faulty>, interval: Duration) -> Self {
        let specs = COLLECTORS.iter().map(|spec| Spec { interval, deadline: Duration::from_millis(1500), ..*spec });
        let engine = Engine::new(Arc::default(), false);
        let poller = Poller::new(&setup(io, Filter::default()), specs, Arc::new(SystemClock), engine, None).unwrap();
        let handle = poller.handle();
        Self { handle, thread: Some(thread::spawn(move || poller.run())) }
    }

    fn report(&self, age: Duration) -> Arc<HostReport> {
        runtime().block_on(self.handle.report(age, LONG)).unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.handle.stop();
        self.thread.take().unwrap().join().unwrap();
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn names(report: &HostReport) -> Vec<String> {
    report.snapshot.devices().map(|device| device.name.to_string()).collect()
}

/// A domain's live status, with the VF that it holds.
const STATUS: &str = "<domstatus state='running' reason='booted' pid='77'><domain type='kvm' id='3'><name>vm3</name>\
    <devices><hostdev mode='subsystem' type='pci'><source><address domain='0x0000' bus='0x3b' slot='0x00' \
    function='0x1'/></source></hostdev></devices></domain></domstatus>";

#[test]
fn a_domain_that_appears_is_seen_long_before_the_interval_is_over() {
    let root = TempDir::new().unwrap();
    let statuses = root.path().join("run/libvirt/qemu");
    fs::create_dir_all(&statuses).unwrap();
    fs::create_dir_all(root.path().join("sys")).unwrap();
    let host = Host {
        io: Arc::new(Fs::new()),
        sysfs: root.path().join("sys"),
        procfs: root.path().join("proc"),
        roots: Roots::below(root.path()),
        route: None,
        ethtool: None,
        live: false,
    };
    let specs = COLLECTORS.iter().map(|spec| Spec { interval: Duration::from_secs(3600), ..*spec });
    let engine = Engine::new(Arc::default(), false);
    let setup = Setup { host, filter: Filter::default() };
    let poller = Poller::new(&setup, specs, Arc::new(SystemClock), engine, None).unwrap();
    let handle = poller.handle();
    let running = Running { handle, thread: Some(thread::spawn(move || poller.run())) };
    running.report(LONG);
    let domains = || {
        let latest = running.handle.latest().unwrap();
        latest
            .snapshot
            .all::<Libvirt>()
            .flat_map(|libvirt| &libvirt.domains)
            .map(|d| d.name.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(domains(), Vec::<String>::new());
    // The first watch may begin a moment after the first report.
    let begun = Instant::now();
    while domains().is_empty() && begun.elapsed() < LONG {
        fs::write(statuses.join("vm3.xml.new"), STATUS).unwrap();
        fs::rename(statuses.join("vm3.xml.new"), statuses.join("vm3.xml")).unwrap();
        thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(domains(), ["vm3"]);
    fs::remove_file(statuses.join("vm3.xml")).unwrap();
    let begun = Instant::now();
    while !domains().is_empty() && begun.elapsed() < LONG {
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(domains(), Vec::<String>::new());
}

#[test]
fn a_hundred_who_ask_at_once_share_one_pass() {
    let (io, devices) = of(&HostTree::new(2));
    let running = Running::start(&io, Duration::from_secs(3600));
    running.report(LONG);
    thread::sleep(Duration::from_millis(1100));
    let file = devices[0].port.join("counters/port_rcv_data");
    let before = io.reads(&file);
    let runtime = runtime();
    let asked: Vec<_> = (0..100)
        .map(|_| {
            let handle = running.handle.clone();
            runtime.spawn(async move { handle.report(Duration::from_secs(1), LONG).await.unwrap() })
        })
        .collect();
    let reports: Vec<_> = asked.into_iter().map(|asked| runtime.block_on(asked).unwrap()).collect();
    assert!(reports.iter().all(|report| Arc::ptr_eq(report, &reports[0])));
    assert_eq!(io.reads(&file) - before, 1);
}

#[test]
fn whoever_asks_all_the_time_reads_once_a_second() {
    let (io, devices) = of(&HostTree::new(1));
    let running = Running::start(&io, Duration::from_secs(3600));
    let file = devices[0].port.join("counters/port_rcv_data");
    running.report(LONG);
    let (before, begun) = (io.reads(&file), Instant::now());
    while begun.elapsed() < Duration::from_secs(3) {
        running.report(Duration::from_secs(1));
        thread::sleep(Duration::from_millis(1));
    }
    let reads = io.reads(&file) - before;
    assert!(
        (1..=usize::try_from(begun.elapsed().as_secs()).unwrap() + 1).contains(&reads),
        "{reads} in {:?}",
        begun.elapsed()
    );
}

#[test]
fn a_hang_holds_up_no_scrape() {
    let (io, devices) = of(&HostTree::new(2));
    let running = Running::start(&io, Duration::from_millis(300));
    running.report(LONG);
    let state = devices[1].port.join("state");
    io.spoil(&state, &Fault::Hang);
    let begun = Instant::now();
    let mut stuck = 0;
    while stuck == 0 && begun.elapsed() < Duration::from_secs(10) {
        let asked = Instant::now();
        let report = running.report(Duration::ZERO);
        assert!(asked.elapsed() < Duration::from_millis(1200), "{:?}", asked.elapsed());
        stuck = report.snapshot.collector("rdma").unwrap().stuck.len();
    }
    assert_eq!(stuck, 1);
    let reads = io.reads(&state);
    for _ in 0..5 {
        let report = running.report(Duration::ZERO);
        assert_eq!((names(&report), report.status), (vec!["mlx5_0".to_owned()], Status::Unknown));
        assert_eq!(report.snapshot.collector("rdma").unwrap().errors[4], 1, "counted once, as a timeout");
    }
    assert_eq!(io.reads(&state), reads, "never doubled");
    io.mend(&state);
    let begun = Instant::now();
    while names(&running.report(Duration::ZERO)).len() < 2 {
        assert!(begun.elapsed() < Duration::from_secs(10));
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_hanging_listing_holds_up_nothing_that_is_known() {
    let (io, devices) = of(&HostTree::new(2));
    let class = Path::new("/sys/class/infiniband");
    let setup = setup(&io, Filter::default());
    let specs = COLLECTORS.iter().map(|spec| Spec { deadline: Duration::from_millis(300), ..*spec });
    let clock = Arc::new(ManualClock::new(SystemTime::UNIX_EPOCH, Duration::from_secs(3600)));
    let mut poller = Poller::new(&setup, specs, clock, Engine::new(Arc::default(), true), None).unwrap();
    poller.pass(LONG);
    io.spoil(class, &Fault::Hang);
    let report = poller.pass(LONG);
    let stuck = |report: &HostReport, name| report.snapshot.collector(name).unwrap().stuck.len();
    let listings =
        |report: &HostReport| ["rdma", "pci", "net"].into_iter().map(|name| stuck(report, name)).sum::<usize>();
    assert_eq!(listings(&report), 3, "rdma, pci and net list the class");
    io.memory.set(devices[0].port.join("counters/symbol_error"), "77\n");
    let report = poller.pass(LONG);
    let port = &report.snapshot.devices().next().unwrap().ports[0];
    assert_eq!(port.counter("symbol_error"), Some(77));
    assert_eq!((report.status, listings(&report)), (Status::Unknown, 3));
    io.mend(class);
    let begun = Instant::now();
    while listings(&poller.pass(LONG)) > 0 {
        assert!(begun.elapsed() < LONG);
    }
}

#[test]
fn a_listing_that_fails_is_counted_and_takes_nothing_away() {
    let (io, _) = of(&HostTree::new(2));
    let class = Path::new("/sys/class/infiniband");
    let mut hand = Hand::new(&io, None, Duration::from_secs(3600));
    hand.pass();
    io.spoil(class, &Fault::Errno(rustix::io::Errno::IO));
    for count in 1..=3 {
        let report = hand.pass();
        let rdma = report.snapshot.collector("rdma").unwrap();
        assert_eq!((names(&report).len(), rdma.listed.is_none(), rdma.errors[2]), (2, true, count));
        assert_eq!(rdma.faults[0].reason, ReadError::Io);
        assert!(found(&report, Check::DeviceMissing).is_empty(), "a read error is not gone");
    }
}

#[test]
fn a_device_that_goes_ends_its_series_and_is_missed_after_three_passes() {
    let (io, devices) = of(&HostTree::new(2));
    let mut hand = Hand::new(&io, None, Duration::from_secs(3600));
    hand.pass();
    let open = io.open_files();
    let gone = &devices[1];
    let link = Path::new("/sys/class/infiniband").join(&gone.name);
    io.memory.remove(&link);
    io.memory.remove(&gone.function);
    for pass in 1..=3 {
        let report = hand.pass();
        assert_eq!(names(&report), ["mlx5_0"]);
        assert!(report.topology.links.values().all(|link| link.name.to_string() != gone.address));
        let missing = found(&report, Check::DeviceMissing);
        assert_eq!(missing.len(), usize::from(pass == 3), "in pass {pass}");
    }
    assert!(io.open_files() <= open * 3 / 5, "{} of {open} are open", io.open_files());
    bring_back(&io, gone, 5);
    let report = hand.pass();
    assert_eq!(names(&report), ["mlx5_0", "mlx5_1"]);
    assert!(found(&report, Check::DeviceMissing).is_empty());
    let kinds: Vec<EventKind> = report.events.iter().map(|event| event.kind).collect();
    assert!(kinds.contains(&EventKind::DeviceGone) && kinds.contains(&EventKind::DeviceAppeared), "{kinds:?}");
}

/// Makes all files of a device anew, with one counter that says this.
fn bring_back(io: &Faulty, device: &Device, symbol_errors: u64) {
    let original: Vec<PathBuf> = io.paths().filter(|path| path.starts_with(&device.function)).collect();
    for path in original {
        match io.original(&path).unwrap() {
            Entry::File(content) => io.memory.set(&path, content.clone()),
            Entry::Link(target) => io.memory.symlink(&path, target.clone()),
            Entry::Directory => io.memory.directory(&path),
        }
    }
    io.memory.set(device.port.join("counters/symbol_error"), format!("{symbol_errors}\n"));
    let link = Path::new("/sys/class/infiniband").join(&device.name);
    if let Some(Entry::Link(target)) = io.original(&link) {
        io.memory.symlink(&link, target.clone());
    }
}

#[test]
fn a_device_that_came_back_between_two_passes_is_read_anew() {
    let (io, devices) = of(&HostTree::new(1));
    let mut hand = Hand::new(&io, None, Duration::from_secs(3600));
    hand.pass();
    let open = io.open_files();
    io.memory.remove(&devices[0].function);
    bring_back(&io, &devices[0], 9);
    for _ in 0..3 {
        let report = hand.pass();
        let device = report.snapshot.devices().next().unwrap();
        assert_eq!(device.ports[0].counter("symbol_error"), Some(9));
        assert_eq!(report.topology.links.len(), 1);
    }
    assert_eq!(io.open_files(), open, "what was open of the old one is closed");
}

#[test]
fn hosts_change_while_they_are_read() {
    let (io, devices) = of(&HostTree::new(3));
    let running = Running::start(&io, Duration::from_millis(5));
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(2) {
        for device in &devices[1..] {
            io.memory.remove(Path::new("/sys/class/infiniband").join(&device.name));
            io.memory.remove(&device.function);
        }
        running.report(Duration::ZERO);
        devices[1..].iter().for_each(|device| bring_back(&io, device, 0));
        running.report(Duration::ZERO);
    }
    let begun = Instant::now();
    while names(&running.report(Duration::ZERO)).len() < 3 {
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
}

#[test]
fn nothing_of_an_excluded_device_is_opened() {
    let (io, devices) = of(&HostTree::new(3));
    let filter = Filter { exclude: Some(Filter::pattern("mlx5_1").unwrap()), ..Filter::default() };
    io.asked();
    let report = Hand::filtered(&io, filter, None, Duration::from_secs(3600)).pass();
    assert_eq!(names(&report), ["mlx5_0", "mlx5_2"]);
    let asked = io.asked();
    // Where a link leads may be asked; that touches no device.
    let touched = asked.iter().filter(|(op, path)| *op != Op::Link && path.starts_with(&devices[1].function));
    let touched: Vec<_> = touched.collect();
    assert!(touched.is_empty(), "{touched:?}");
    assert!(asked.iter().any(|(_, path)| path.starts_with(&devices[0].function)));
}

#[test]
fn descriptors_are_closed_with_their_lanes() {
    let (io, _) = of(&HostTree::new(2));
    let mut hand = Hand::new(&io, None, Duration::from_secs(3600));
    hand.pass();
    let open = io.open_files();
    assert!(open > 100);
    hand.pass();
    assert_eq!(io.open_files(), open);
    drop(hand);
    let begun = Instant::now();
    while io.open_files() > 0 {
        assert!(begun.elapsed() < Duration::from_secs(10), "{} stay open", io.open_files());
        thread::sleep(Duration::from_millis(5));
    }
}

/// A host with a port that is down, so that there is a finding with a beginning.
fn down() -> (Arc<Faulty>, Vec<Device>) {
    let (io, devices) = of(&HostTree::new(2));
    io.memory.set(devices[1].port.join("state"), "1: DOWN\n");
    io.memory.set(devices[1].port.join("phys_state"), "2: Polling\n");
    (io, devices)
}

fn since(report: &HostReport, check: Check) -> Vec<SystemTime> {
    found(report, check).iter().map(|finding| report.snapshot.taken.wall_time(finding.since)).collect()
}

#[test]
fn a_finding_keeps_its_beginning_over_a_restart_and_over_a_boot() {
    let (io, _) = down();
    let directory = TempDir::new().unwrap();
    let state = directory.path().join("state");
    let mut hand = Hand::new(&io, Some(&state), Duration::from_secs(7200));
    hand.pass();
    let began = since(&hand.after(Duration::from_secs(60)), Check::PortDown);
    assert_eq!(began.len(), 1);
    drop(hand);
    let mut hand = Hand::new(&io, Some(&state), Duration::from_secs(7400));
    let report = hand.pass();
    assert_eq!(since(&report, Check::PortDown), began, "at once, and since then");
    assert!(report.events.iter().filter(|event| event.kind == EventKind::FindingBegan).count() == 1);
    drop(hand);
    io.memory.set("/proc/sys/kernel/random/boot_id", "00000000-7d0e-4c3b-9a57-0d4bb8e1f203\n");
    io.memory.set("/proc/uptime", "60.00 100.00\n");
    let wall = SystemTime::UNIX_EPOCH + Duration::from_secs(1_790_000_000 + 9000);
    let clock = Arc::new(ManualClock::new(wall, Duration::from_secs(60)));
    let engine = Engine::new(Arc::default(), false);
    let specs = COLLECTORS.iter().copied();
    let store = Some(Store::new(state));
    let mut poller = Poller::new(&setup(&io, Filter::default()), specs, clock, engine, store).unwrap();
    let report = poller.pass(LONG);
    assert_eq!(since(&report, Check::PortDown), began);
    assert_eq!(report.events.iter().filter(|event| event.kind == EventKind::Booted).count(), 1);
}

#[test]
fn a_broken_state_is_set_aside_and_a_newer_one_left_alone() {
    let (io, _) = down();
    let directory = TempDir::new().unwrap();
    let state = directory.path();
    for broken in [&b"{\"version\": 1, \"base"[..], b"", b"\xff\xfe", b"[]", b"{\"version\": \"one\"}"] {
        fs::write(state.join("state.json"), broken).unwrap();
        assert_eq!(names(&Hand::new(&io, Some(state), Duration::from_secs(3600)).pass()).len(), 2);
        assert_eq!(fs::read(state.join("state.json.broken")).unwrap(), broken);
        assert!(Store::new(state.to_owned()).load().1.is_empty(), "a new one was written");
    }
    let newer = b"{\"version\": 99, \"what\": \"ever\"}";
    fs::write(state.join("state.json"), newer).unwrap();
    let journal = fs::read(state.join("events.jsonl")).unwrap();
    let mut hand = Hand::new(&io, Some(state), Duration::from_secs(3600));
    hand.pass();
    hand.after(Duration::from_secs(60));
    assert_eq!(fs::read(state.join("state.json")).unwrap(), newer);
    assert_eq!(fs::read(state.join("events.jsonl")).unwrap(), journal);
}

#[test]
fn a_state_that_cannot_be_kept_stops_nothing() {
    let (io, _) = down();
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    // No directory, and directories where files should be.
    for state in [file.join("state"), directory.path().join("odd")] {
        if !state.starts_with(&file) {
            fs::create_dir_all(state.join("state.json/x")).unwrap();
            fs::create_dir_all(state.join("state.json.broken/x")).unwrap();
            fs::create_dir_all(state.join("events.jsonl")).unwrap();
        }
        let mut hand = Hand::new(&io, Some(&state), Duration::from_secs(3600));
        hand.pass();
        assert_eq!(found(&hand.after(Duration::from_secs(60)), Check::PortDown).len(), 1);
    }
}

#[test]
fn what_could_not_be_kept_is_kept_later() {
    let (io, _) = down();
    let directory = TempDir::new().unwrap();
    let state = directory.path().join("state");
    fs::write(&state, "in the way").unwrap();
    let mut hand = Hand::new(&io, Some(&state), Duration::from_secs(3600));
    hand.pass();
    hand.after(Duration::from_secs(60));
    fs::remove_file(&state).unwrap();
    let report = hand.pass();
    let mut store = Store::new(state);
    let (saved, troubles) = store.load();
    assert!(troubles.is_empty());
    assert_eq!((saved.findings.len(), saved.baseline.devices.len()), (1, 2));
    assert_eq!(store.events().len(), report.events.len(), "no event is lost");
}

#[test]
fn a_baseline_that_is_accepted_beside_an_agent_ends_the_finding_and_stays() {
    let (io, devices) = of(&HostTree::new(2));
    let directory = TempDir::new().unwrap();
    let state = directory.path().join("state");
    let start = || {
        let mut store = Store::new(state.clone());
        assert!(store.take().unwrap(), "the agent before has ended");
        let specs = COLLECTORS.iter().map(|spec| Spec { interval: Duration::from_secs(3600), ..*spec });
        let engine = Engine::new(Arc::default(), false);
        let poller = Poller::new(&setup(&io, Filter::default()), specs, Arc::new(SystemClock), engine, Some(store));
        let poller = poller.unwrap();
        let handle = poller.handle();
        Running { handle, thread: Some(thread::spawn(move || poller.run())) }
    };
    // Two devices are expected, and one is gone.
    let running = start();
    running.report(LONG);
    drop(running);
    io.memory.remove(Path::new("/sys/class/infiniband").join(&devices[1].name));
    io.memory.remove(&devices[1].function);
    let running = start();
    assert_eq!(running.report(LONG).snapshot.devices().count(), 1);
    let answer = send(&state, &Request::AcceptBaseline, LONG).unwrap().expect("an answer");
    assert_eq!((answer.error, answer.baseline.devices.len()), (None, 1));
    assert_eq!(found(&running.report(Duration::ZERO), Check::DeviceMissing).len(), 0);
    // Nothing waits any more, and another answer is not written.
    assert_eq!(fs::read_dir(state.join("requests")).unwrap().count(), 0);
    drop(running);
    let running = start();
    assert_eq!(found(&running.report(LONG), Check::DeviceMissing).len(), 0);
    drop(running);
    assert_eq!(Store::new(state).peek().baseline.devices.len(), 1);
}

#[test]
fn a_request_left_by_a_command_is_applied_once_by_the_next_agent() {
    let (io, _) = of(&HostTree::new(1));
    let directory = TempDir::new().unwrap();
    let state = directory.path().join("state");
    let mut store = Store::new(state.clone());
    assert!(store.take().unwrap());
    let run = BenchmarkRun {
        result: RunResult::Ok(Good::AsUsual),
        took: Duration::from_secs(1),
        ..BenchmarkRun::skipped(
            &BenchmarkKey { probe: Benchmark::Memory, port: None },
            SystemTime::UNIX_EPOCH + Duration::from_secs(1_789_000_000),
            SkipReason::Locked,
            "",
        )
    };
    assert_eq!(send(&state, &Request::record([&run]), Duration::ZERO).unwrap(), None, "nobody answers");
    assert_eq!(store.waiting_runs().len(), 1);
    let specs = COLLECTORS.iter().copied();
    let engine = Engine::new(Arc::default(), false);
    let mut poller =
        Poller::new(&setup(&io, Filter::default()), specs, Arc::new(SystemClock), engine, Some(store)).unwrap();
    poller.pass(LONG);
    assert!(poller.apply_requests() && poller.apply_requests());
    let saved = Store::new(state.clone()).peek();
    let history = &saved.benchmarks[&BenchmarkKey { probe: Benchmark::Memory, port: None }];
    assert_eq!((history.runs.len(), saved.applied.len()), (1, 1));
    let left: Vec<_> = fs::read_dir(state.join("requests")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| name.to_str().unwrap().ends_with(".answer")), "{left:?}");
}

#[test]
fn a_torn_line_costs_only_itself() {
    let (io, _) = down();
    let directory = TempDir::new().unwrap();
    let state = directory.path();
    let mut hand = Hand::new(&io, Some(state), Duration::from_secs(3600));
    hand.pass();
    drop(hand);
    let journal = state.join("events.jsonl");
    let whole = Store::new(state.to_owned()).events().len();
    let text = fs::read(&journal).unwrap();
    fs::write(&journal, &text[..text.len() - 9]).unwrap();
    let mut hand = Hand::new(&io, Some(state), Duration::from_secs(7200));
    let told = hand.after(Duration::from_secs(60)).events.len();
    assert_eq!(Store::new(state.to_owned()).events().len(), told);
    assert!(told >= whole - 1, "only the torn one is gone");
}

#[test]
fn killed_while_it_writes() {
    let directory = TempDir::new().unwrap();
    let (host, state) = (directory.path().join("host"), directory.path().join("state"));
    let tree = HostTree::new(2);
    tree.write(&host).unwrap();
    let port = host.join(&tree.devices()[1].port).join("state");
    let mut events = 0;
    for round in 0..6 {
        let server = Server::start("serve", &[Path::new("--path.rootfs"), &host, Path::new("--storage.path"), &state]);
        // Each change is an event, and each event is written with the state.
        for change in 0..12 {
            fs::write(&port, if change % 2 == 0 { "1: DOWN\n" } else { "4: ACTIVE\n" }).unwrap();
            thread::sleep(Duration::from_millis(1000 / 12 + round));
            let _ = server.try_get("/metrics");
        }
        let pid = rustix::process::Pid::from_raw(i32::try_from(server.group.pid()).unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        drop(server);
        let mut store = Store::new(state.clone());
        let (saved, troubles) = store.load();
        assert!(troubles.is_empty(), "{troubles:?}");
        assert_eq!(saved.baseline.devices.len(), 2);
        let now = store.events().len();
        assert!(now > events, "{now} after {events}");
        events = now;
    }
}

#[test]
fn a_pipe_in_the_place_of_a_file_holds_up_no_scrape() {
    let directory = TempDir::new().unwrap();
    let host = directory.path().join("host");
    let tree = HostTree::new(2);
    tree.write(&host).unwrap();
    let file = host.join(&tree.devices()[1].port).join("counters/symbol_error");
    fs::remove_file(&file).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &file, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let server = Server::start("serve", &[Path::new("--path.rootfs"), &host]);
    for _ in 0..3 {
        let asked = Instant::now();
        let answer = server.get("/metrics");
        assert!(asked.elapsed() < Duration::from_secs(2), "{:?}", asked.elapsed());
        // Opened without waiting for a writer, it is no file that can be read.
        assert!(answer.text().contains("lanewatch_collector_stuck{collector=\"rdma\"} 0\n"));
        assert!(answer.text().contains("lanewatch_read_errors_total{collector=\"rdma\",reason=\"io\"} "));
        assert!(answer.text().contains("lanewatch_port_state{device=\"mlx5_1\",port=\"1\",state=\"ACTIVE\"} 1\n"));
        thread::sleep(Duration::from_millis(1100));
    }
}
