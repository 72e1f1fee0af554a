//! What is found over time: flaps, errors, drift and degradation, played on a clock that is moved by hand.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "../common/mod.rs"]
mod common;

mod failover;
mod interrupts;
mod kernel_log;
mod links;
mod restarts;

use std::fmt::Display;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use common::faulty::{Fault, Faulty};
use common::hand::{Hand, found, of};
use common::host::{Card, Device, GEN3, GEN4, HostTree, LinkEnd};
use lanewatch::model::check::{Check, Severity};
use lanewatch::model::finding::EventKind;
use lanewatch::watch::HostReport;
use rustix::io::Errno;
use tempfile::TempDir;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// A host and a poller that has made its first pass.
struct Play {
    io: Arc<Faulty>,
    devices: Vec<Device>,
    hand: Hand,
    report: Arc<HostReport>,
}

impl Play {
    fn new(host: &HostTree) -> Self {
        Self::since(host, 2 * HOUR)
    }

    fn since(host: &HostTree, since: Duration) -> Self {
        let (io, devices) = of(host);
        io.memory.set("/proc/uptime", format!("{}.00 1.00\n", since.as_secs() + 5));
        let mut hand = Hand::new(&io, None, since);
        let report = hand.pass();
        Self { io, devices, hand, report }
    }

    /// Writes a line to a file of the first device's port.
    fn port(&self, file: &str, text: impl Display) {
        self.io.memory.set(self.devices[0].port.join(file), format!("{text}\n"));
    }

    fn counter(&self, name: &str, value: u64) {
        self.port(&format!("counters/{name}"), value);
    }

    /// Writes a line to a file of the first device's function.
    fn function(&self, file: &str, text: impl Display) {
        self.io.memory.set(self.devices[0].function.join(file), format!("{text}\n"));
    }

    fn pass(&mut self) {
        self.report = self.hand.pass();
    }

    /// Lets this time go by, with a pass every five seconds for the last of it.
    fn wait(&mut self, time: Duration) {
        let last = Duration::from_secs(15);
        self.report = self.hand.after(time.saturating_sub(last));
        (0..3).for_each(|_| self.pass());
    }

    /// Severity and reason of each finding of a check.
    fn found(&self, check: Check) -> Vec<(String, Severity, &'static str)> {
        let findings = found(&self.report, check).into_iter().map(|finding| &finding.condition);
        findings.map(|found| (found.subject.to_string(), found.severity, found.reason.as_str())).collect()
    }

    fn flaps(&self) -> Option<u64> {
        found(&self.report, Check::PortFlapping).first()?.condition.evidence.get("flaps")?.as_u64()
    }

    fn events(&self, kind: EventKind) -> usize {
        self.report.events.iter().filter(|event| event.kind == kind).count()
    }
}

fn one(subject: &str, severity: Severity, reason: &'static str) -> Vec<(String, Severity, &'static str)> {
    vec![(subject.to_owned(), severity, reason)]
}

#[test]
fn a_short_flap_shows_by_its_counter_and_clears_after_a_quiet_hour() {
    let mut play = Play::new(&HostTree::new(1));
    assert_eq!(play.flaps(), None);
    play.counter("link_downed", 1);
    play.pass();
    assert_eq!(play.flaps(), Some(1));
    assert_eq!(play.found(Check::PortFlapping), one("mlx5_0/1", Severity::Warning, "link_lost"));
    play.wait(59 * MINUTE);
    assert_eq!(play.flaps(), Some(1));
    play.wait(2 * MINUTE);
    assert_eq!(play.flaps(), None);
    assert_eq!(play.events(EventKind::PortFlap), 1);
}

#[test]
fn a_long_flap_shows_by_its_state() {
    let mut play = Play::new(&HostTree::new(1));
    for state in ["1: DOWN", "2: INIT", "3: ARMED"] {
        play.port("state", state);
        play.pass();
        assert_eq!(play.flaps(), None, "not yet back");
    }
    play.port("state", "4: ACTIVE");
    play.pass();
    assert_eq!(play.flaps(), Some(1));
    play.pass();
    assert_eq!((play.flaps(), play.events(EventKind::PortFlap)), (Some(1), 1));
}

#[test]
fn both_signals_of_one_outage_are_one_flap() {
    // The counter rises when the link goes, while it is away, when it comes back, or is seen only later.
    for rises_at in 0..4 {
        let mut play = Play::new(&HostTree::new(1));
        for (step, state) in ["1: DOWN", "1: DOWN", "4: ACTIVE"].into_iter().enumerate() {
            if step == rises_at {
                play.counter("link_downed", 1);
            }
            play.port("state", state);
            play.pass();
        }
        let so_far = play.flaps();
        if rises_at == 3 {
            // That late it can't be told from another one.
            play.counter("link_downed", 1);
        }
        play.pass();
        play.pass();
        assert_eq!((so_far, play.flaps()), (Some(1), Some(if rises_at == 3 { 2 } else { 1 })), "{rises_at}");
    }
    let mut play = Play::new(&HostTree::new(1));
    play.port("state", "1: DOWN");
    play.pass();
    play.counter("link_downed", 4);
    play.port("state", "4: ACTIVE");
    play.pass();
    assert_eq!(play.flaps(), Some(4), "and it says how many there were");
}

#[test]
fn three_flaps_in_twelve_hours_are_critical() {
    let flap = |play: &mut Play, count| {
        play.counter("link_downed", count);
        play.pass();
        play.found(Check::PortFlapping)[0].1
    };
    let mut play = Play::new(&HostTree::new(1));
    assert_eq!(flap(&mut play, 1), Severity::Warning);
    play.wait(5 * HOUR);
    assert_eq!(flap(&mut play, 2), Severity::Warning);
    play.wait(5 * HOUR);
    assert_eq!(flap(&mut play, 3), Severity::Critical);
    let mut play = Play::new(&HostTree::new(1));
    for count in 1..5 {
        assert_eq!(flap(&mut play, count), Severity::Warning);
        play.wait(7 * HOUR);
    }
}

#[test]
fn flaps_soon_after_boot_stand_apart() {
    let mut play = Play::since(&HostTree::new(1), MINUTE);
    play.counter("link_downed", 3);
    play.wait(10 * MINUTE);
    assert_eq!((play.flaps(), play.events(EventKind::PortFlap)), (None, 1));
    play.counter("link_downed", 4);
    play.wait(18 * MINUTE);
    assert_eq!((play.flaps(), play.events(EventKind::PortFlap)), (None, 2));
    play.wait(2 * MINUTE);
    play.counter("link_downed", 5);
    play.pass();
    assert_eq!((play.flaps(), play.events(EventKind::PortFlap)), (Some(1), 3));
}

#[test]
fn a_counter_that_goes_backwards_was_reset() {
    let mut play = Play::new(&HostTree::new(1));
    play.counter("symbol_error", 50_000);
    play.counter("link_downed", 2);
    let mut play = Play { report: play.hand.after(2 * HOUR), ..play };
    play.wait(HOUR + MINUTE);
    play.counter("symbol_error", 1);
    play.counter("link_downed", 0);
    let before = play.flaps();
    play.pass();
    assert_eq!((play.events(EventKind::CounterReset), play.flaps()), (1, before));
    play.wait(3 * HOUR);
    play.wait(HOUR);
    assert_eq!((play.found(Check::PortErrors), play.flaps()), (vec![], None), "no huge increase");
    play.counter("link_downed", 1);
    play.pass();
    assert_eq!(play.flaps(), Some(3), "it goes on counting from there");
}

#[test]
fn errors_count_by_the_window() {
    // Errors one after another, how far apart, and whether that is too often: on a fast line more are allowed.
    for (rate, errors, seconds, over) in [
        ("200 Gb/sec (4X HDR)", 2, 60, false),
        ("200 Gb/sec (4X HDR)", 3, 60, true),
        ("400 Gb/sec (4X NDR)", 3, 60, true),
        ("800 Gb/sec (4X XDR)", 5, 60, false),
        ("800 Gb/sec (4X XDR)", 6, 60, true),
        // Too few for twelve minutes, too many for two hours.
        ("400 Gb/sec (4X NDR)", 3, 1500, false),
        ("400 Gb/sec (4X NDR)", 4, 1500, true),
    ] {
        let mut host = HostTree::new(1);
        host.cards[0].rate = rate;
        let mut play = Play::new(&host);
        for count in 1..=errors {
            play.report = play.hand.after(Duration::from_secs(seconds));
            play.counter("symbol_error", count);
            play.pass();
        }
        let expected = if over { one("mlx5_0/1", Severity::Warning, "symbol_error") } else { vec![] };
        assert_eq!(play.found(Check::PortErrors), expected, "{errors} at {rate}");
        play.wait(HOUR);
        play.wait(HOUR / 2);
        for _ in 0..12 {
            play.wait(10 * MINUTE);
        }
        assert_eq!(play.found(Check::PortErrors), vec![], "an hour of quiet");
    }
}

#[test]
fn a_counter_at_its_end_says_so_and_does_not_wrap() {
    let mut play = Play::new(&HostTree::new(1));
    for name in ["unicast_rcv_packets", "unicast_xmit_packets"] {
        play.io.memory.remove(play.devices[0].port.join("counters").join(name));
    }
    play.counter("port_rcv_data", u64::from(u32::MAX) - 1);
    play.pass();
    assert_eq!(play.found(Check::PortCounterSaturated), vec![]);
    for _ in 0..3 {
        play.counter("port_rcv_data", u64::from(u32::MAX));
        play.pass();
        assert_eq!(play.found(Check::PortCounterSaturated), one("mlx5_0/1", Severity::Info, "saturated"));
    }
    play.counter("port_rcv_data", 7);
    play.pass();
    assert_eq!(play.found(Check::PortCounterSaturated), vec![]);
}

#[test]
fn a_port_slower_than_its_peers_or_than_before() {
    let mut host = HostTree::new(4);
    host.cards[0].rate = "100 Gb/sec (4X EDR)";
    let mut play = Play::new(&host);
    play.wait(MINUTE);
    assert_eq!(play.found(Check::PortRateLow), vec![], "not for two minutes yet");
    play.wait(MINUTE);
    assert_eq!(play.found(Check::PortRateLow), one("mlx5_0/1", Severity::Warning, "peers"));
    let mut play = Play::new(&HostTree::new(1));
    play.port("rate", "100 Gb/sec (4X EDR)");
    play.pass();
    play.wait(2 * MINUTE);
    assert_eq!(play.found(Check::PortRateLow), one("mlx5_0/1", Severity::Warning, "baseline"));
    play.port("rate", "200 Gb/sec (4X HDR)");
    play.pass();
    assert_eq!(play.found(Check::PortRateLow), vec![]);
}

#[test]
fn a_card_that_moved_to_a_lesser_slot_has_drifted() {
    let directory = TempDir::new().unwrap();
    let (io, devices) = of(&HostTree::new(1));
    Hand::new(&io, Some(directory.path()), 2 * HOUR).pass();
    let guid = |io: &Faulty, device: &Device| io.original(&infiniband(device).join("node_guid")).cloned();
    let Some(common::tree::Entry::File(text)) = guid(&io, &devices[0]) else { panic!() };
    // The same card, by its GUID, in the second slot, under another name.
    let mut host = HostTree::new(2);
    let small = LinkEnd::full(GEN3, 8);
    host.cards[1] = Card { device: LinkEnd::full(GEN4, 16).trained(GEN3, 8), upstream: small, ..host.cards[1].clone() };
    let (io, devices) = of(&host);
    io.memory.remove(&devices[0].function);
    io.memory.remove("/sys/class/infiniband/mlx5_0");
    io.memory.set(infiniband(&devices[1]).join("node_guid"), text);
    io.memory.set("/proc/sys/kernel/random/boot_id", "00000000-7d0e-4c3b-9a57-0d4bb8e1f203\n");
    let mut hand = Hand::new(&io, Some(directory.path()), 3 * HOUR);
    for _ in 0..3 {
        hand.pass();
    }
    let report = hand.pass();
    let drifted = found(&report, Check::PcieDrifted);
    assert_eq!(drifted[0].condition.subject.to_string(), devices[1].address);
    assert_eq!((drifted.len(), drifted[0].condition.reason.as_str()), (1, "baseline"));
    assert!(found(&report, Check::DeviceMissing).is_empty(), "it is here, under another name");
    assert!(found(&report, Check::PcieDegraded).is_empty(), "both ends do what they can");
}

fn infiniband(device: &Device) -> PathBuf {
    device.function.join("infiniband").join(&device.name)
}

#[test]
fn a_width_is_found_after_three_passes_and_a_speed_after_ten_minutes() {
    let mut play = Play::new(&HostTree::new(1));
    let address = play.devices[0].address.clone();
    play.function("current_link_width", 8);
    for pass in 1..=3 {
        play.pass();
        assert_eq!(play.found(Check::PcieDegraded).len(), usize::from(pass == 3), "pass {pass}");
    }
    assert_eq!(play.found(Check::PcieDegraded), one(&address, Severity::Critical, "width"));
    assert_eq!(play.events(EventKind::LinkChanged), 1);
    play.function("current_link_width", 16);
    play.pass();
    play.function("current_link_speed", GEN3);
    play.pass();
    play.wait(9 * MINUTE);
    assert_eq!(play.found(Check::PcieDegraded), vec![]);
    play.wait(MINUTE);
    assert_eq!(play.found(Check::PcieDegraded), one(&address, Severity::Warning, "speed"));
    play.function("current_link_speed", GEN4);
    play.pass();
    assert_eq!(play.found(Check::PcieDegraded), vec![]);
}

/// A subnet manager that gives out other LIDs, or another one that takes over, breaks what addresses ports by LID.
#[test]
fn a_port_with_another_address_is_an_event() {
    let mut play = Play::new(&HostTree::new(1));
    play.pass();
    assert_eq!(play.events(EventKind::AddressChanged), 0);
    for (file, value) in [("lid", "0x15"), ("sm_lid", "0x2"), ("lid", "0x0")] {
        play.port(file, value);
        play.pass();
    }
    play.pass();
    let events = play.report.events.iter().filter(|event| event.kind == EventKind::AddressChanged);
    let texts: Vec<&str> = events.map(|event| event.text.as_str()).collect();
    assert_eq!(
        texts,
        [
            "mlx5_0/1: LID 21 is gone",
            "mlx5_0/1: LID of the subnet manager went from 1 to 2",
            "mlx5_0/1: LID went from 1 to 21",
        ]
    );
    // Tables are read once a minute.
    play.port("gid_attrs/types/2", "RoCE v2");
    play.port("gids/2", "0000:0000:0000:0000:0000:ffff:0a00:0005");
    play.wait(2 * MINUTE);
    let text = &play.report.events.iter().find(|event| event.text.contains("GIDs")).unwrap().text;
    assert_eq!(text, "mlx5_0/1: GIDs went from IB/RoCE v1: 2 to IB/RoCE v1: 2, RoCE v2: 1 (2: 10.0.0.5)");
}

#[test]
fn why_a_path_carries_less_than_its_ports() {
    let low = LinkEnd::full(GEN4, 16).trained(GEN3, 8);
    let reasons = |card: Card| {
        let mut host = HostTree::new(1);
        host.cards[0] = card;
        let mut play = Play::new(&host);
        play.wait(11 * MINUTE);
        play.found(Check::PcieBelowPortRate)
    };
    let degraded = reasons(Card { device: low, ..Card::default() });
    assert_eq!(degraded, one("mlx5_0/1", Severity::Critical, "link_degraded"));
    let small = LinkEnd::full(GEN3, 8);
    let limited = reasons(Card { device: low, upstream: small, ..Card::default() });
    assert_eq!(limited, one("mlx5_0/1", Severity::Warning, "slot_limited"));
    let two = reasons(Card { functions: 2, ..Card::default() });
    assert_eq!(two.len(), 2, "both ports");
    assert!(two.iter().all(|(_, severity, reason)| (*severity, *reason) == (Severity::Info, "by_design")), "{two:?}");
    assert_eq!(reasons(Card::default()), vec![]);
}

#[test]
fn a_function_that_reads_all_ones_fell_off_the_bus() {
    let mut play = Play::new(&HostTree::new(1));
    let address = play.devices[0].address.clone();
    play.function("current_link_width", 63);
    play.function("current_link_speed", "Unknown");
    for pass in 1..=3 {
        play.pass();
        assert_eq!(play.found(Check::PcieOffBus).len(), usize::from(pass == 3));
    }
    assert_eq!(play.found(Check::PcieOffBus), one(&address, Severity::Critical, "all_ones"));
    assert_eq!(play.found(Check::PcieDegraded), vec![]);
}

#[test]
fn an_error_is_the_functions_and_else_the_root_ports() {
    let correctable = |count: u64| format!("RxErr {count}\nTOTAL_ERR_COR {count}");
    let mut play = Play::new(&HostTree::new(1));
    let (address, above) = (play.devices[0].address.clone(), play.devices[0].upstream.clone());
    let root = play.devices[0].above.join("aer_rootport_total_err_cor");
    play.io.memory.set(&root, "12\n");
    play.pass();
    assert_eq!(play.found(Check::PcieAer), one(&above, Severity::Warning, "correctable"), "only the port saw it");
    play.wait(HOUR);
    play.wait(MINUTE);
    assert_eq!(play.found(Check::PcieAer), vec![]);
    play.io.memory.set(&root, "14\n");
    play.function("aer_dev_correctable", correctable(2));
    play.pass();
    assert_eq!(play.found(Check::PcieAer), one(&address, Severity::Info, "correctable"), "once, at the function");
    play.function("aer_dev_fatal", "MalfTLP 1\nTOTAL_ERR_FATAL 1");
    play.pass();
    assert_eq!(play.found(Check::PcieAer)[0].1, Severity::Critical);
}

#[test]
fn a_file_that_cannot_be_read_for_once_ends_no_finding() {
    let mut host = HostTree::new(1);
    host.cards[0].device = LinkEnd::full(GEN4, 16).trained(GEN3, 8);
    let mut play = Play::new(&host);
    play.wait(11 * MINUTE);
    let checks = [Check::PcieDegraded, Check::PcieBelowPortRate];
    let before = checks.map(|check| play.found(check));
    assert!(before.iter().all(|found| found.len() == 1), "{before:?}");
    let (function, above) = (play.devices[0].function.clone(), play.devices[0].above.clone());
    let port = play.devices[0].port.clone();
    let files = [
        function.join("current_link_speed"),
        function.join("current_link_width"),
        function.clone(),
        above.clone(),
        port.join("state"),
        port.join("rate"),
    ];
    for path in files {
        play.io.spoil(&path, &Fault::Errno(Errno::IO));
        play.pass();
        play.io.mend(&path);
        play.pass();
        assert_eq!(checks.map(|check| play.found(check)), before, "{}", path.display());
    }
}

#[test]
fn a_port_above_that_cannot_be_read_makes_no_link_degraded() {
    let mut host = HostTree::new(1);
    let small = LinkEnd::full(GEN3, 8);
    host.cards[0] = Card { device: LinkEnd::full(GEN4, 16).trained(GEN3, 8), upstream: small, ..Card::default() };
    let (io, devices) = of(&host);
    for path in
        [devices[0].above.join("max_link_speed"), devices[0].above.join("max_link_width"), devices[0].above.clone()]
    {
        io.spoil(&path, &Fault::Errno(Errno::IO));
        let mut hand = Hand::new(&io, None, 2 * HOUR);
        for _ in 0..4 {
            let report = hand.pass();
            assert!(found(&report, Check::PcieDegraded).is_empty(), "{}", path.display());
            let unknown = report.undecided.iter().any(|undecided| undecided.check == Check::PcieDegraded);
            assert!(unknown, "{}", path.display());
        }
        io.mend(&path);
    }
}

#[test]
fn a_hop_that_cannot_be_read_leaves_the_path_unknown() {
    let mut host = HostTree::new(1);
    host.cards[0].switch = true;
    let mut play = Play::new(&host);
    let uplink = play.devices[0].above.parent().unwrap().to_owned();
    play.io.memory.set(uplink.join("current_link_speed"), format!("{GEN3}\n"));
    play.pass();
    let bandwidth = |play: &Play| play.report.lanes.paths.values().next().map(|path| path.bandwidth.gbits().round());
    assert_eq!(bandwidth(&play), Some(126.0));
    let known = play.hand.baseline();
    for path in [uplink.join("current_link_speed"), uplink.clone()] {
        play.io.spoil(&path, &Fault::Errno(Errno::IO));
        play.pass();
        assert_eq!(bandwidth(&play), None, "the narrowest link may be that one");
        play.io.mend(&path);
        play.pass();
        assert_eq!((bandwidth(&play), play.hand.baseline()), (Some(126.0), known.clone()), "nothing is forgotten");
    }
}

#[test]
fn a_guid_that_cannot_be_read_makes_no_other_device() {
    let mut play = Play::new(&HostTree::new(1));
    play.counter("symbol_error", 2);
    play.pass();
    let guid = infiniband(&play.devices[0]).join("node_guid");
    let known = play.hand.baseline();
    play.io.spoil(&guid, &Fault::Errno(Errno::IO));
    play.wait(2 * MINUTE);
    assert_eq!(play.hand.baseline(), known);
    play.io.mend(&guid);
    play.wait(2 * MINUTE);
    assert_eq!((play.hand.baseline(), play.events(EventKind::BaselineLearned)), (known, 1));
    play.counter("symbol_error", 3);
    play.pass();
    assert_eq!(play.found(Check::PortErrors), one("mlx5_0/1", Severity::Warning, "symbol_error"), "two and one");
    // Nor is one that could not be read from the start known twice.
    let (io, devices) = of(&HostTree::new(1));
    let guid = infiniband(&devices[0]).join("node_guid");
    io.spoil(&guid, &Fault::Errno(Errno::IO));
    let mut hand = Hand::new(&io, None, 2 * HOUR);
    hand.pass();
    io.mend(&guid);
    hand.after(2 * MINUTE);
    assert_eq!(hand.baseline().devices.keys().collect::<Vec<_>>(), ["b83f:d203:0000:0000"]);
}
