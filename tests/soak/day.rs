//! A whole day, pass by pass, on a clock that is moved on: 5,760 passes fifteen seconds apart.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use lanewatch::host::COLLECTORS;
use lanewatch::host::collector::Filter;
use lanewatch::model::time::{BootTime, Timestamp};
use lanewatch::watch::clock::Clock;
use lanewatch::watch::store::Store;
use lanewatch::watch::{Engine, Poller};
use tempfile::TempDir;

use super::journal::{count, events};
use crate::common::cost::open_files;
use crate::common::faulty::Faulty;
use crate::common::hand::{LONG, of, setup};
use crate::common::host::{Device, HostTree};

const PASS: Duration = Duration::from_secs(15);
const PASSES: u64 = 5_760;
/// Passes in an hour.
const HOUR: u64 = 240;

/// A boot clock that goes on, and a wall clock that someone sets.
struct StepClock(Mutex<Timestamp>);

impl StepClock {
    fn advance(&self, time: Duration) {
        let mut now = self.0.lock().unwrap();
        *now = Timestamp { tick: now.tick.after(time), wall: now.wall + time };
    }

    fn set_wall(&self, change: impl FnOnce(SystemTime) -> SystemTime) {
        let mut now = self.0.lock().unwrap();
        now.wall = change(now.wall);
    }
}

impl Clock for StepClock {
    fn now(&self) -> Timestamp {
        *self.0.lock().unwrap()
    }
}

/// What was done to the host.
#[derive(Debug, Default)]
struct Done {
    drops: usize,
    degraded: usize,
    unplugged: usize,
    steps: usize,
    restarts: usize,
}

fn port(io: &Faulty, device: &Device, up: bool, downed: usize) {
    let (state, physical) = if up { ("4: ACTIVE\n", "5: LinkUp\n") } else { ("1: DOWN\n", "3: Disabled\n") };
    io.memory.set(device.port.join("state"), state);
    io.memory.set(device.port.join("phys_state"), physical);
    io.memory.set(device.port.join("counters/link_downed"), format!("{downed}\n"));
}

fn link(io: &Faulty, device: &Device, speed: &str) {
    for end in [&device.function, &device.above] {
        io.memory.set(end.join("current_link_speed"), format!("{speed}\n"));
    }
}

fn resident_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

fn poller(io: &Arc<Faulty>, clock: &Arc<StepClock>, state: &Path) -> Poller {
    let store = Store::new(state.to_owned());
    let specs = COLLECTORS.iter().copied();
    let engine = Engine::new(Arc::default(), false);
    Poller::new(&setup(io, Filter::default()), specs, Arc::<StepClock>::clone(clock), engine, Some(store)).unwrap()
}

#[test]
#[ignore = "takes a minute; make soak runs it"]
fn a_day_of_passes_loses_no_event_and_grows_nothing() {
    let state = TempDir::new().unwrap();
    let (io, devices) = of(&HostTree::new(4));
    let wall = SystemTime::UNIX_EPOCH + Duration::from_secs(1_790_000_000);
    let since = Duration::from_secs(3 * 86_400);
    let clock = Arc::new(StepClock(Mutex::new(Timestamp { tick: BootTime(0).after(since), wall })));
    let mut agent = poller(&io, &clock, state.path());
    let (mut done, mut downed) = (Done::default(), vec![0; devices.len()]);
    let (mut early, mut files) = (0, 0);
    let began = Instant::now();
    for pass in 0..PASSES {
        let (hour, at) = (pass / HOUR, pass % HOUR);
        let device = |offset: u64| usize::try_from(hour + offset).unwrap() % devices.len();
        match at {
            // Six drops an hour, each on another device than what else happens.
            10 | 40 | 70 | 100 | 130 | 160 => {
                let chosen = device(at / 30);
                downed[chosen] += 1;
                done.drops += 1;
                port(&io, &devices[chosen], false, downed[chosen] - 1);
            }
            13 | 43 | 73 | 103 | 133 | 163 => {
                let chosen = device(at / 30);
                port(&io, &devices[chosen], true, downed[chosen]);
            }
            180 => {
                done.degraded += 1;
                link(&io, &devices[device(6)], "8.0 GT/s PCIe");
            }
            190 => link(&io, &devices[device(6)], "16.0 GT/s PCIe"),
            // The device goes and comes back.
            200 => {
                done.unplugged += 1;
                io.memory.remove(Path::new("/sys/class/infiniband").join(&devices[device(7)].name));
            }
            210 => io.mend(&Path::new("/sys/class/infiniband").join(&devices[device(7)].name)),
            // Someone sets the clock, there and back.
            215 if hour % 2 == 0 => {
                done.steps += 2;
                clock.set_wall(|wall| wall + Duration::from_secs(3600));
            }
            218 if hour % 2 == 0 => clock.set_wall(|wall| wall - Duration::from_secs(3600)),
            // Cut off without a goodbye, and started again.
            222 if hour % 3 == 2 => {
                done.restarts += 1;
                drop(agent);
                agent = poller(&io, &clock, state.path());
            }
            _ => {}
        }
        clock.advance(PASS);
        let _ = agent.pass(LONG);
        let _ = io.asked();
        if pass == PASSES / 4 {
            (early, files) = (resident_kib(), io.open_files());
        }
    }
    let (late, took) = (resident_kib(), began.elapsed());
    let events = events(state.path());
    println!(
        "24 hours in {took:.1?}: {done:?}; {} events; {early} KiB after 6 hours, {late} KiB after 24; {} files open on the \
         host (then {files}), {} descriptors",
        events.len(),
        io.open_files(),
        open_files(std::process::id())
    );
    assert_eq!(count(&events, "port_state", "to DOWN"), done.drops);
    assert_eq!(count(&events, "port_state", "to ACTIVE"), done.drops);
    assert_eq!(count(&events, "link_changed", "to 8 GT/s"), done.degraded);
    assert_eq!(count(&events, "link_changed", "to 16 GT/s"), done.degraded);
    assert_eq!(count(&events, "device_gone", ""), done.unplugged);
    assert_eq!(count(&events, "device_appeared", ""), done.unplugged);
    // What began has ended.
    assert_eq!(count(&events, "finding_began", "device_missing"), count(&events, "finding_ended", "device_missing"));
    assert!(late < early + 2 * 1024, "{early} KiB after 6 hours, {late} KiB after 24");
    assert_eq!(io.open_files(), files);
}
