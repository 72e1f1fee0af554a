//! A small fleet over forty minutes, as a Prometheus that scraped it would have it: recorded hosts and written ones,
//! read by the agent's own poller on a clock that moves, and encoded by its own encoder.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use lanewatch::export::{AgentState, Format, Process, encode};
use lanewatch::host::netlink::socket::{NetlinkConnection, NetlinkConnector};
use lanewatch::model::benchmark::{
    Benchmark, BenchmarkKey, BenchmarkRun, Direction, Good, Measurements, RunResult, Shortfall, Statistic,
};
use lanewatch::model::ids::{DeviceName, PortKey};
use lanewatch::model::units::BytesPerSecond;
use lanewatch::watch::Poller;
use lanewatch::watch::clock::ManualClock;
use tempfile::TempDir;

use crate::case::{Case, Stage};
use crate::common::host::{Card, GEN3, GEN4, HostTree, Layer, LinkEnd};
use crate::common::iplink::{self, Interface};
use crate::common::vfs::VfHost;
use crate::replay;

/// When the first scrape is, in seconds since 1970.
pub const START: u64 = 1_800_000_000;
/// Seconds between scrapes.
pub const INTERVAL: u64 = 30;
/// How many scrapes there are.
pub const SCRAPES: u64 = 80;
/// When the last scrape is.
pub const END: u64 = START + INTERVAL * (SCRAPES - 1);

/// Recorded hosts, and where in the fleet they stand. The last one has neither site nor rack.
const RECORDED: [(&str, &str, &str); 15] = [
    ("two-cards-one-at-gen3-x8", "north", "n1"),
    ("gen3-x8-slot-under-200g", "north", "n1"),
    ("two-full-ports-on-one-link", "north", "n1"),
    ("flap-between-readings", "north", "n2"),
    ("correctable-errors-rise", "north", "n2"),
    ("queues-by-interface-name", "north", "n2"),
    ("irqbalance-moves-half-of-the-vectors", "north", "n2"),
    ("vfs-held-by-processes", "south", "s1"),
    ("vf-held-by-a-machine", "south", "s1"),
    ("vf-one-mac-twice", "south", "s1"),
    ("vfs-of-interfaces-and-of-a-pool", "south", "s1"),
    ("one-counter-refused", "south", "s2"),
    ("new-messages-and-an-hour-later", "south", "s2"),
    ("saturated-32-bit-counters", "south", "s2"),
    ("no-rdma", "", ""),
];

/// Everything that the fleet served, as OpenMetrics with time stamps.
pub fn openmetrics() -> String {
    let mut out = String::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/hosts");
    let cases = Case::all(&folder).unwrap();
    for (number, (name, site, rack)) in RECORDED.iter().enumerate() {
        let case = cases.iter().find(|case| case.name == *name).unwrap_or_else(|| panic!("no host {name}"));
        let stage = case.stage().unwrap();
        let target = Target::new(&format!("node{:02}", number + 1), site, rack);
        let mut reading = 0;
        let show = |_: u64, since: Duration| show(&stage, &mut reading, since);
        let printed = stage.host().join(replay::IP_LINK);
        let route = printed.exists().then(|| replay::route(printed));
        target.scrape(&stage.host(), route.as_ref(), show, &mut out);
    }
    busy(&mut out);
    hypervisor(&mut out);
    written_report(&mut out);
    gone(&mut out);
    namesakes(&mut out);
    foreign(&mut out);
    out.push_str("# EOF\n");
    out
}

/// Hosts that another cluster has under the same names.
const NAMESAKES: [&str; 8] = ["node01", "node02", "node08", "node09", "node10", "node16", "node17", "node18"];

/// Another cluster whose hosts have the same names, as one database of several clusters has them.
fn namesakes(out: &mut String) {
    let marks = NAMESAKES.map(|name| format!("instance=\"{name}:10015\","));
    let lines: Vec<String> = out
        .lines()
        .filter(|line| marks.iter().any(|mark| line.contains(mark)))
        .map(|line| line.replacen("instance=", "cluster=\"west\",instance=", 1))
        .collect();
    for line in lines {
        writeln!(out, "{line}").unwrap();
    }
}

/// Another exporter's job: one host that responds and one that doesn't.
fn foreign(out: &mut String) {
    for scrape in 0..SCRAPES {
        let at = START + scrape * INTERVAL;
        for (instance, up) in [("node01:9100", 1), ("node02:9100", 0)] {
            writeln!(out, "up{{instance=\"{instance}\",job=\"node\"}} {up} {at}").unwrap();
            for name in ["process_resident_memory_bytes", "process_open_fds", "scrape_duration_seconds"] {
                writeln!(out, "{name}{{instance=\"{instance}\",job=\"node\"}} {up} {at}").unwrap();
            }
        }
    }
}

/// A recorded host is what it was at each of its readings.
fn show(stage: &Stage, reading: &mut usize, since: Duration) {
    while stage.moments.get(*reading + 1).is_some_and(|next| next.at <= since) {
        *reading += 1;
        stage.show(*reading).unwrap();
    }
}

/// What a scrape configuration says of a host.
struct Target {
    labels: String,
}

impl Target {
    fn new(name: &str, site: &str, rack: &str) -> Self {
        let mut labels = format!("instance=\"{name}:10015\",job=\"lanewatch\"");
        for (label, value) in [("site", site), ("rack", rack)] {
            if !value.is_empty() {
                write!(labels, ",{label}=\"{value}\"").unwrap();
            }
        }
        Self { labels }
    }

    /// The samples of an exposition with these labels and this time, and what Prometheus adds of its own.
    fn take(&self, text: &str, took: Duration, at: u64, out: &mut String) {
        let mut samples = 0;
        for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
            let name = line.find(['{', ' ']).unwrap();
            let (name, rest) = line.split_at(name);
            let (own, value) = match rest.strip_prefix('{') {
                Some(rest) => rest.rsplit_once("} ").unwrap(),
                None => ("", rest.trim()),
            };
            let comma = if own.is_empty() { "" } else { "," };
            writeln!(out, "{name}{{{own}{comma}{}}} {value} {at}", self.labels).unwrap();
            samples += 1;
        }
        let took = took.as_secs_f64();
        for (name, value) in
            [("up", 1.0), ("scrape_duration_seconds", took), ("scrape_samples_scraped", f64::from(samples))]
        {
            writeln!(out, "{name}{{{}}} {value} {at}", self.labels).unwrap();
        }
    }

    /// Reads a host for as long as the fleet is watched. The agent is started anew in the middle.
    fn scrape(
        &self,
        host: &Path,
        route: Option<&NetlinkConnector>,
        change: impl FnMut(u64, Duration),
        out: &mut String,
    ) {
        self.scrape_with(host, route, change, |_, _, _| {}, out);
    }

    fn scrape_with(
        &self,
        host: &Path,
        route: Option<&NetlinkConnector>,
        mut change: impl FnMut(u64, Duration),
        mut probe: impl FnMut(u64, SystemTime, &Poller),
        out: &mut String,
    ) {
        let fresh = || replay::begin(host, route.cloned(), false).unwrap();
        let (mut poller, mut clock): (Poller, Arc<ManualClock>) = fresh();
        let moment = |scrape: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(START + scrape * INTERVAL);
        let mut born = moment(0);
        for scrape in 0..SCRAPES {
            let since = Duration::from_secs(scrape * INTERVAL);
            if scrape == SCRAPES / 2 && self.labels.contains("node01") {
                (poller, clock) = fresh();
                clock.advance(since);
                born = moment(scrape);
            }
            change(scrape, since);
            probe(scrape, moment(scrape), &poller);
            // Passes of their own between scrapes, as hold times count them.
            let began = Instant::now();
            let report = poller.pass(Duration::from_secs(20));
            let mut text = String::new();
            let state = AgentState { reloaded: Some(born), ..AgentState::default() };
            let epoch = born.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64();
            let process = Process { started: Some(epoch), ..Process::read() };
            encode(Format::Text, &report, &Arc::new(state), process, &mut text).unwrap();
            self.take(&text, began.elapsed(), START + scrape * INTERVAL, out);
            for _ in 0..3 {
                clock.advance(Duration::from_secs(INTERVAL) / 3);
                poller.pass(Duration::from_secs(20));
            }
        }
    }
}

/// How busy a port is, 0 to 1, at a scrape: it comes and goes.
fn load(port: u64, scrape: u64) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "small numbers")]
    let (port, scrape) = (port as f64, scrape as f64);
    0.45 + 0.35 * (scrape / 9.0 + port).sin() + 0.1 * (scrape / 2.3 + port * 2.0).cos()
}

/// A part of a whole number.
fn part(of: u64, load: f64) -> u64 {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "positive")]
    let part = (of as f64 * load) as u64;
    part
}

/// Four cards under load. The second one trains to less, the fourth loses its link for a while, the third is RoCE
/// and congested.
fn busy(out: &mut String) {
    let mut host = HostTree::new(4);
    host.hostname = "node16".into();
    host.cards[2] =
        Card { functions: 2, switch: true, layer: Layer::Ethernet, rate: "100 Gb/sec (4X EDR)", ..Card::default() };
    host.cards[3].device = LinkEnd::full(GEN4, 16).trained(GEN4, 8);
    host.cards[3].upstream = LinkEnd::full(GEN4, 8);
    let directory = TempDir::new().unwrap();
    host.write(directory.path()).unwrap();
    let devices = host.devices();
    let change = |scrape: u64, _: Duration| {
        for (port, device) in (0_u64..).zip(&devices) {
            let counter = |name: &str, rise: u64| raise(&directory.path().join(&device.port).join(name), rise);
            let busy = load(port, scrape);
            let limit = if port == 1 && scrape > 25 { 7_800_000_000 } else { 12_000_000_000 };
            for (name, half) in [("rcv", busy), ("xmit", busy * 0.8)] {
                counter(&format!("counters/port_{name}_data"), part(limit * INTERVAL / 4, half));
                counter(&format!("counters/port_{name}_packets"), part(limit * INTERVAL / 4096, half));
            }
            counter("counters/port_xmit_wait", part(4_000_000, busy * busy));
            if device.function.ends_with(&devices[2].address) {
                counter("hw_counters/np_cnp_sent", part(90_000, busy));
                counter("hw_counters/rp_cnp_handled", part(60_000, busy));
                counter("hw_counters/local_ack_timeout_err", part(90, busy));
            }
            if port == 3 {
                counter("counters/symbol_error", part(40, busy));
            }
        }
        match scrape {
            25 => {
                for place in [&devices[1].function, &devices[1].above] {
                    fs::write(directory.path().join(place).join("current_link_speed"), format!("{GEN3}\n")).unwrap();
                    fs::write(directory.path().join(place).join("current_link_width"), "8\n").unwrap();
                }
            }
            45 | 50 => {
                let port = directory.path().join(&devices[3].port);
                let (state, physical) =
                    if scrape == 45 { ("1: DOWN", "2: Polling") } else { ("4: ACTIVE", "5: LinkUp") };
                fs::write(port.join("state"), format!("{state}\n")).unwrap();
                fs::write(port.join("phys_state"), format!("{physical}\n")).unwrap();
                raise(&port.join("counters/link_downed"), u64::from(scrape == 45));
            }
            60 => fs::write(directory.path().join(&devices[0].port).join("state"), "1: DOWN\n").unwrap(),
            _ => {}
        }
    };
    let names: Vec<_> = devices.iter().map(|device| device.name.clone()).collect();
    let probe = |scrape: u64, at: SystemTime, poller: &Poller| {
        if scrape % 12 == 6 {
            for (port, name) in (0_u64..).zip(&names) {
                poller.handle().record(run(name, port, scrape, at));
            }
        }
    };
    Target::new("node16", "north", "n1").scrape_with(directory.path(), None, change, probe, out);
}

/// A run of a probe, as one that measured would report it.
fn run(device: &str, port: u64, scrape: u64, at: SystemTime) -> BenchmarkRun {
    let slow = port == 1 && scrape > 25;
    let ceiling = if slow { 7.4e9 } else { 24.2e9 };
    #[allow(clippy::cast_precision_loss, reason = "small numbers")]
    let shake = (scrape as f64 * 1.7 + port as f64).sin();
    let one_way = ceiling * (0.965 + 0.01 * shake) * if slow { 0.8 } else { 1.0 };
    let latency = 1.1e-6 + 0.05e-6 * shake;
    BenchmarkRun {
        key: BenchmarkKey {
            probe: if port == 2 { Benchmark::RdmaPeer } else { Benchmark::RdmaLoopback },
            port: Some(PortKey { device: DeviceName::new(device), port: 1 }),
        },
        at,
        took: Duration::from_secs_f64(6.0 + shake),
        result: if slow { RunResult::Slow(Shortfall::BelowHistory) } else { RunResult::Ok(Good::NearCeiling) },
        text: Arc::from("written"),
        measured: Measurements {
            bandwidth: vec![(Direction::OneWay, one_way), (Direction::Both, one_way * 1.9)],
            latency: vec![
                (Direction::Write, Statistic::Typical, latency),
                (Direction::Write, Statistic::P99, latency * 1.6),
            ],
        },
        ceiling: Some(BytesPerSecond(ceiling)),
        profile: Arc::from("written"),
        peer: None,
        function: None,
    }
}

/// A hypervisor whose VFs move data; two of them change their holders.
fn hypervisor(out: &mut String) {
    let host = VfHost { pfs: 2, vfs: 4, here: false };
    let directory = TempDir::new().unwrap();
    host.write(directory.path()).unwrap();
    let interfaces = Arc::new(Mutex::new(host.interfaces()));
    let route = route(Arc::clone(&interfaces));
    let files = directory.path().join("proc/1000/fd");
    let change = |scrape: u64, _: Duration| {
        for (pf, interface) in (0_u64..).zip(interfaces.lock().unwrap().iter_mut()) {
            for (number, vf) in (0_u64..).zip(&mut interface.vfs) {
                let busy = load(pf * 4 + number, scrape);
                let values = vf.statistics.get_or_insert([0; 8]);
                let rises = [800_000, 640_000, 3_200_000_000, 2_500_000_000, 0, 0, 60, 4];
                for (value, rise) in values.iter_mut().zip(rises) {
                    *value += part(rise * INTERVAL, busy * busy);
                }
            }
        }
        match scrape {
            30 => fs::remove_file(files.join("10")).unwrap(),
            31 => {
                // Another machine takes it.
                let next = directory.path().join("proc/1002");
                fs::create_dir_all(next.join("fd")).unwrap();
                fs::create_dir_all(next.join("ns")).unwrap();
                fs::write(next.join("comm"), "qemu-system-x86\n").unwrap();
                fs::write(next.join("cmdline"), "/usr/bin/qemu-system-x86_64\0-name\0guest=vm9\0").unwrap();
                std::os::unix::fs::symlink("net:[1]", next.join("ns/net")).unwrap();
                std::os::unix::fs::symlink("/dev/vfio/0", next.join("fd/10")).unwrap();
            }
            50 => fs::remove_file(files.join("12")).unwrap(),
            _ => {}
        }
    };
    Target::new("node17", "south", "s1").scrape(directory.path(), Some(&route), change, out);
}

fn route(interfaces: Arc<Mutex<Vec<Interface>>>) -> NetlinkConnector {
    Arc::new(move || Ok(Box::new(Listed { interfaces: Arc::clone(&interfaces) })))
}

struct Listed {
    interfaces: Arc<Mutex<Vec<Interface>>>,
}

impl NetlinkConnection for Listed {
    fn ask(&mut self, request: &[u8]) -> std::io::Result<Vec<Vec<u8>>> {
        let (name, statistics) = iplink::asked(request);
        let interfaces = self.interfaces.lock().unwrap();
        let found = interfaces.iter().find(|interface| interface.name == name);
        let gone = || std::io::Error::from_raw_os_error(rustix::io::Errno::NODEV.raw_os_error());
        found.map(|interface| vec![interface.reply(statistics)]).ok_or_else(gone)
    }
}

fn raise(counter: &Path, by: u64) {
    let text = fs::read_to_string(counter).unwrap_or_else(|error| panic!("{}: {error}", counter.display()));
    fs::write(counter, format!("{}\n", text.trim().parse::<u64>().unwrap() + by)).unwrap();
}

/// What only a running kernel's netlink says stands in the exposition that the encoder's own test has written.
fn written_report(out: &mut String) {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/metrics.txt")).unwrap();
    for scrape in 0..SCRAPES {
        let at = START + scrape * INTERVAL;
        Target::new("node18", "south", "s2").take(&text, Duration::from_millis(3), at, out);
    }
}

/// A host that does not answer.
fn gone(out: &mut String) {
    let Target { labels } = Target::new("node19", "south", "s2");
    for scrape in 0..SCRAPES {
        writeln!(out, "up{{{labels}}} 0 {}", START + scrape * INTERVAL).unwrap();
    }
}
