//! Physical links over time: why one is down, losses that only the firmware saw, errors on the line, hot cards.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lanewatch::export::{Format, Process, encode};
use lanewatch::host::Host;
use lanewatch::host::collector::{Filter, Setup};
use lanewatch::model::check::{Check, Severity};
use lanewatch::watch::HostReport;
use lanewatch::watch::clock::Clock as _;

use super::common::cage::{Cage, optic, put, receive};
use super::common::ethtool::{Drivers, Fec, Interface};
use super::common::exposition::{Sample, parse};
use super::common::faulty::Faulty;
use super::common::hand::{Hand, found, of};
use super::common::host::{Card, Device, HostTree, Layer};
use super::{HOUR, MINUTE};

/// A host with one RoCE card, its driver, and a poller that passes every five seconds.
struct Line {
    io: Arc<Faulty>,
    device: Device,
    drivers: Drivers,
    hand: Hand,
    report: Arc<HostReport>,
    carrier_downs: u64,
}

impl Line {
    fn new(rate: &'static str) -> Self {
        Self::with(rate, None)
    }

    /// With a module that is read.
    fn with(rate: &'static str, cage: Option<&Cage>) -> Self {
        let mut tree = HostTree::new(1);
        tree.cards[0] = Card { layer: Layer::Ethernet, rate, ..Card::default() };
        let (io, devices) = of(&tree);
        io.memory.set("/proc/uptime", "7205.00 1.00\n");
        let drivers = Drivers::default();
        let mut host = Host { ethtool: Some(drivers.access()), ..io.host() };
        if let Some(cage) = cage {
            host.roots.module_reader = cage.socket();
        }
        let hand = Hand::with(&Setup { host, filter: Filter::default() }, None, 2 * HOUR);
        let device = devices[0].clone();
        let report = Arc::clone(&Hand::new(&io, None, 2 * HOUR).pass());
        let mut line = Self { io, device, drivers, hand, report, carrier_downs: 0 };
        if let Some(cage) = cage {
            cage.serve(&line.name(), &line.hand.clock);
        }
        line.netdev("carrier_down_count", "0");
        line.driver(|interface| {
            interface.downs = Some(0);
            interface.fec = Some(Fec { active: 50, ..Fec::default() });
        });
        line.pass();
        line
    }

    fn name(&self) -> String {
        let directory = self.device.function.join("net");
        let names = self.io.host().io.list(&directory).unwrap();
        names[0].clone()
    }

    fn directory(&self) -> PathBuf {
        self.device.function.join("net").join(self.name())
    }

    fn netdev(&self, file: &str, text: &str) {
        self.io.memory.set(self.directory().join(file), format!("{text}\n"));
    }

    fn driver(&self, change: impl FnOnce(&mut Interface)) {
        self.drivers.set(&self.name(), change);
    }

    fn pass(&mut self) {
        self.report = self.hand.pass();
    }

    /// Lets this time go by, with a pass every five seconds.
    fn wait(&mut self, time: Duration) {
        (0..time.as_secs() / 5).for_each(|_| self.pass());
    }

    /// Lets this time go by at the pace of the collector, a pass every 15 seconds.
    fn wait_at_its_pace(&mut self, time: Duration) {
        for _ in 0..time.as_secs() / 15 {
            self.report = self.hand.after(Duration::from_secs(15));
        }
    }

    /// The link goes, for this cause.
    fn lose(&mut self, cause: Option<(u8, Option<u8>)>) {
        self.io.memory.set(self.device.port.join("state"), "1: DOWN\n");
        self.io.memory.set(self.device.port.join("phys_state"), "3: Disabled\n");
        self.carrier_downs += 1;
        self.netdev("carrier", "0");
        self.netdev("carrier_down_count", &self.carrier_downs.to_string());
        self.driver(|interface| {
            interface.cause = cause;
            interface.downs = interface.downs.map(|downs| downs + 1);
        });
    }

    /// The link comes back.
    fn regain(&mut self) {
        self.io.memory.set(self.device.port.join("state"), "4: ACTIVE\n");
        self.io.memory.set(self.device.port.join("phys_state"), "5: LinkUp\n");
        self.netdev("carrier", "1");
        self.driver(|interface| interface.cause = None);
    }

    fn found(&self, check: Check) -> Vec<(Severity, &'static str)> {
        let conditions = found(&self.report, check).into_iter().map(|finding| &finding.condition);
        conditions.map(|condition| (condition.severity, condition.reason.as_str())).collect()
    }

    fn summary(&self, check: Check) -> String {
        found(&self.report, check).first().map(|finding| finding.condition.summary.clone()).unwrap_or_default()
    }

    fn samples(&self, name: &str) -> Vec<Sample> {
        let mut text = String::new();
        encode(Format::Text, &self.report, &Arc::default(), Process::default(), &mut text).unwrap();
        parse(&text).unwrap().into_iter().filter(|sample| sample.name == name).collect()
    }
}

const RATE: &str = "400 Gb/sec (4X NDR)";

#[test]
fn a_port_without_a_cable_says_so_once_the_driver_did_so_three_times() {
    let mut line = Line::new(RATE);
    line.wait(MINUTE);
    let before = line.drivers.asked(6);
    line.lose(Some((4, None)));
    let mut reasons = Vec::new();
    for _ in 0..12 {
        line.pass();
        let answers = line.drivers.asked(6) - before;
        if let [(severity, reason)] = line.found(Check::PortDown)[..] {
            assert_eq!((severity, reason), (Severity::Critical, if answers < 3 { "no_carrier" } else { "no_cable" }));
            reasons.push(reason);
        }
    }
    assert_eq!((reasons.len(), reasons.last()), (6, Some(&"no_cable")));
    assert!(line.summary(Check::PortDown).contains("is DOWN: no cable detected. Plug it in or reseat it;"));
    let info = line.samples("lanewatch_netdev_link_cause_info");
    assert_eq!((info.len(), &*info[0].labels["state"], &*info[0].labels["substate"]), (1, "no_cable", ""));
    line.regain();
    line.wait(Duration::from_secs(20));
    assert_eq!((line.found(Check::PortDown), line.samples("lanewatch_netdev_link_cause_info").len()), (vec![], 0));
}

#[test]
fn a_cause_that_keeps_changing_is_no_reason() {
    let mut line = Line::new(RATE);
    line.lose(Some((1, Some(1))));
    for round in 0..20 {
        line.driver(|interface| interface.cause = Some(if round % 2 == 0 { (0, Some(1)) } else { (1, Some(1)) }));
        line.pass();
        let reasons = line.found(Check::PortDown);
        assert!(reasons.iter().all(|(_, reason)| *reason == "no_carrier"), "{reasons:?}");
    }
    assert_eq!(line.found(Check::PortDown).len(), 1);
}

#[test]
fn a_driver_that_gives_no_reason_is_quoted_so_and_rarely_asked() {
    let mut line = Line::new(RATE);
    line.wait(MINUTE);
    line.lose(None);
    line.wait(2 * MINUTE);
    assert_eq!(line.found(Check::PortDown), [(Severity::Critical, "no_carrier")]);
    assert!(line.summary(Check::PortDown).contains("the driver gives no reason"), "{}", line.summary(Check::PortDown));
    let before = line.drivers.asked(6);
    line.wait(9 * MINUTE);
    let asked = line.drivers.asked(6) - before;
    assert!((9..=10).contains(&asked), "{asked}: the count of lost links, once a minute");
}

#[test]
fn a_flap_says_what_the_driver_reported_while_the_link_was_down() {
    let mut line = Line::new(RATE);
    line.wait(MINUTE);
    line.lose(Some((3, Some(1))));
    line.pass();
    line.regain();
    line.wait(Duration::from_secs(20));
    assert_eq!(line.found(Check::PortFlapping), [(Severity::Warning, "link_lost")], "it was said once");
    let said = "While it was down, the driver reported: Bad signal integrity, Large number of physical errors.";
    assert!(line.summary(Check::PortFlapping).contains(said), "{}", line.summary(Check::PortFlapping));
    line.lose(Some((3, Some(1))));
    line.wait(MINUTE);
    line.regain();
    line.wait(Duration::from_secs(20));
    assert_eq!(line.found(Check::PortFlapping), [(Severity::Warning, "signal_bad")]);
    line.wait(HOUR);
    assert_eq!(line.found(Check::PortFlapping), vec![]);
}

#[test]
fn a_loss_that_only_the_firmware_saw_is_a_flap_once() {
    let mut line = Line::new(RATE);
    line.wait(2 * MINUTE);
    line.driver(|interface| interface.downs = Some(1));
    line.wait(3 * MINUTE);
    assert_eq!(line.found(Check::PortFlapping), [(Severity::Warning, "link_lost")]);
    let flaps = |line: &Line| found(&line.report, Check::PortFlapping)[0].condition.evidence["flaps"].as_u64();
    assert_eq!(flaps(&line), Some(1));
    // One that the carrier shows, too, is one.
    line.lose(None);
    line.wait(Duration::from_secs(10));
    line.regain();
    line.wait(3 * MINUTE);
    assert_eq!(flaps(&line), Some(2));
}

#[test]
fn a_card_that_gets_hot_warns_before_its_limit() {
    let mut line = Line::new(RATE);
    let chip = line.device.function.join("hwmon/hwmon3");
    let set = |line: &Line, file: &str, text: &str| line.io.memory.set(chip.join(file), format!("{text}\n"));
    set(&line, "temp1_label", "asic");
    set(&line, "temp1_crit", "105000");
    for (degrees, expected) in [
        (99_000, vec![]),
        (101_500, vec![(Severity::Warning, "asic")]),
        (106_000, vec![(Severity::Critical, "asic")]),
        (104_000, vec![(Severity::Warning, "asic")]),
        (98_000, vec![]),
    ] {
        set(&line, "temp1_input", &degrees.to_string());
        line.wait(4 * MINUTE);
        assert_eq!(line.found(Check::NicHot), expected, "{degrees}");
    }
    let celsius = line.samples("lanewatch_nic_temperature_celsius");
    assert_eq!((celsius.len(), celsius[0].value, &*celsius[0].labels["sensor"]), (1, 98.0, "asic"));
}

/// Line bits of 400 Gb/s in fifteen seconds.
const BITS: f64 = 425e9 * 15.0;

/// The counters of an mlx5 port while its line runs.
#[derive(Default)]
struct Errors {
    bits: u64,
    lanes: [u64; 4],
    lost: u64,
}

impl Errors {
    /// Lets the line run for fifteen seconds with this share of wrong bits in each lane, and this many lost codewords.
    fn run(&mut self, line: &mut Line, lanes: [f64; 4], lost: u64) {
        for (lane, share) in self.lanes.iter_mut().zip(lanes) {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
            let wrong = (share * BITS / 4.0).round() as u64;
            *lane += wrong;
            self.bits += wrong;
        }
        self.lost += lost;
        self.show(line);
        line.report = line.hand.after(Duration::from_secs(15));
    }

    fn minutes(&mut self, line: &mut Line, minutes: usize, lanes: [f64; 4]) {
        (0..minutes * 4).for_each(|_| self.run(line, lanes, 0));
    }

    fn show(&self, line: &Line) {
        let Self { bits, lanes, lost } = self;
        line.driver(|interface| {
            interface.statistics.insert("rx_corrected_bits_phy".to_owned(), *bits);
            for (lane, wrong) in lanes.iter().enumerate() {
                interface.statistics.insert(format!("rx_err_lane_{lane}_phy"), *wrong);
            }
            interface.fec = Some(Fec { active: 50, lost: vec![*lost], ..Fec::default() });
        });
    }
}

fn value(line: &Line, name: &str) -> Option<f64> {
    let samples = line.samples(name);
    assert!(samples.len() <= 1);
    samples.first().map(|sample| sample.value)
}

const RAW: &str = "lanewatch_netdev_raw_bit_error_ratio";
const WORST: &str = "lanewatch_netdev_worst_lane_raw_bit_error_ratio";
const LOST: &str = "lanewatch_netdev_lost_codeword_ratio";

#[test]
fn errors_that_creep_up_over_hours_warn_before_anything_is_lost() {
    let (mut line, mut errors) = (Line::new(RATE), Errors::default());
    errors.show(&line);
    assert_eq!((value(&line, RAW), value(&line, LOST)), (None, None), "nothing was watched yet");
    for (share, expected) in
        [(1e-9, vec![]), (1e-7, vec![]), (9e-6, vec![]), (2e-5, vec![(Severity::Warning, "raw_errors")])]
    {
        errors.minutes(&mut line, 22, [share; 4]);
        assert_eq!(line.found(Check::LinkQuality), expected, "{share:e}");
        let raw = value(&line, RAW).unwrap();
        assert!((raw / share - 1.0).abs() < 1e-3, "{raw:e}");
        assert_eq!(value(&line, LOST), Some(0.0));
    }
    let summary = line.summary(Check::LinkQuality);
    let said = "mlx5_0/1: 2e-5 of the bits are wrong before correction; the limit is 1e-5. No data is lost yet.";
    assert!(summary.starts_with(said), "{summary}");
    errors.minutes(&mut line, 100, [1e-9; 4]);
    assert_eq!(line.found(Check::LinkQuality), vec![]);
}

#[test]
fn losses_at_few_errors_are_bursts() {
    let (mut line, mut errors) = (Line::new(RATE), Errors::default());
    errors.minutes(&mut line, 5, [3e-8; 4]);
    errors.run(&mut line, [3e-8; 4], 2);
    errors.minutes(&mut line, 2, [3e-8; 4]);
    assert_eq!(line.found(Check::LinkQuality), vec![], "two may be chance");
    errors.run(&mut line, [3e-8; 4], 5);
    errors.minutes(&mut line, 2, [3e-8; 4]);
    assert_eq!(line.found(Check::LinkQuality), [(Severity::Warning, "codewords_lost")]);
    let summary = line.summary(Check::LinkQuality);
    assert!(
        summary.contains("lost 7 codewords in 9 min at a raw error ratio of 3e-8: bursts, not a weak signal."),
        "{summary}"
    );
    // Again and again is worse.
    for _ in 0..2 {
        errors.minutes(&mut line, 15, [3e-8; 4]);
        errors.run(&mut line, [3e-8; 4], 4);
        errors.minutes(&mut line, 2, [3e-8; 4]);
    }
    assert_eq!(line.found(Check::LinkQuality), [(Severity::Critical, "codewords_lost")]);
    errors.minutes(&mut line, 120, [3e-8; 4]);
    assert_eq!(line.found(Check::LinkQuality).len(), 1, "not for two hours yet");
    errors.minutes(&mut line, 30, [3e-8; 4]);
    assert_eq!(line.found(Check::LinkQuality), vec![]);
}

#[test]
fn one_bad_lane_is_named() {
    let (mut line, mut errors) = (Line::new(RATE), Errors::default());
    errors.minutes(&mut line, 25, [1e-9, 1e-9, 1e-9, 1e-6]);
    assert_eq!(line.found(Check::LinkQuality), vec![], "not for half an hour yet");
    errors.minutes(&mut line, 10, [1e-9, 1e-9, 1e-9, 1e-6]);
    assert_eq!(line.found(Check::LinkQuality), [(Severity::Info, "lane_uneven")]);
    assert!(line.summary(Check::LinkQuality).contains("lane 3 has 1e-6 wrong bits"));
    let worst = value(&line, WORST).unwrap();
    assert!((worst / 1e-6 - 1.0).abs() < 1e-3, "{worst:e}");
    errors.minutes(&mut line, 25, [1e-9, 1e-9, 1e-9, 1e-4]);
    assert_eq!(line.found(Check::LinkQuality), [(Severity::Warning, "raw_errors")]);
    assert!(line.summary(Check::LinkQuality).contains("(lane 3: 100 % of them)"));
}

#[test]
fn a_window_in_which_the_link_went_down_says_nothing() {
    let (mut line, mut errors) = (Line::new(RATE), Errors::default());
    errors.minutes(&mut line, 3, [1e-9; 4]);
    // Half a minute, then the link goes and comes back with its counters cleared.
    errors.run(&mut line, [1e-9; 4], 0);
    errors.run(&mut line, [1e-3; 4], 900);
    line.lose(Some((3, Some(1))));
    line.wait(Duration::from_secs(15));
    assert_eq!(value(&line, WORST).map(|worst| worst < 1e-8), None, "no link");
    errors = Errors::default();
    errors.show(&line);
    line.regain();
    line.wait(Duration::from_secs(30));
    assert_eq!(line.found(Check::LinkQuality), vec![]);
    errors.minutes(&mut line, 2, [1e-9; 4]);
    let raw = value(&line, RAW).unwrap();
    assert!((raw / 1e-9 - 1.0).abs() < 1e-2, "{raw:e}");
    assert_eq!(line.found(Check::LinkQuality), vec![]);
}

#[test]
fn bins_alone_tell_how_near_loss_is() {
    let mut line = Line::new(RATE);
    let mut bins: Vec<(u32, u32, u64)> = (0..16).map(|bin| (bin, bin, 0)).collect();
    // 15 s of codewords, a few of which had 12 wrong symbols.
    for step in 0..60u64 {
        bins[0].2 += 1_171_875_000;
        bins[1].2 += 6_375;
        bins[12].2 += u64::from(step >= 20 && step.is_multiple_of(8));
        let fec = Fec { active: 50, bins: bins.clone(), ..Fec::default() };
        line.driver(|interface| interface.fec = Some(fec));
        line.report = line.hand.after(Duration::from_secs(15));
    }
    assert_eq!(line.found(Check::LinkQuality), [(Severity::Warning, "fec_margin")]);
    assert!(
        line.summary(Check::LinkQuality).contains("codewords had at least 11 wrong symbols; FEC corrects up to 15")
    );
    let raw = value(&line, RAW).unwrap();
    assert!((raw / 1e-9 - 1.0).abs() < 1e-2, "{raw:e}");
    let counted = line.samples("lanewatch_netdev_fec_codewords_total");
    assert_eq!((counted.len(), &*counted[12].labels["errors_low"], counted[12].value), (16, "12", 5.0));
}

#[test]
fn without_fec_symbols_are_all_there_is() {
    let mut line = Line::new("25 Gb/sec (1X EDR)");
    for step in 0..20 {
        line.driver(|interface| {
            interface.statistics.insert("rx_pcs_symbol_err_phy".to_owned(), step / 2);
            interface.fec = Some(Fec { active: 49, ..Fec::default() });
        });
        line.report = line.hand.after(Duration::from_secs(15));
    }
    assert_eq!((value(&line, RAW), value(&line, LOST)), (None, None));
    assert_eq!(line.found(Check::LinkQuality), [(Severity::Warning, "codewords_lost")]);
    assert!(line.summary(Check::LinkQuality).contains("symbols in"), "{}", line.summary(Check::LinkQuality));
}

#[test]
fn a_port_has_at_most_25_more_series() {
    let (mut line, mut errors) = (Line::new(RATE), Errors::default());
    errors.minutes(&mut line, 15, [1e-9; 4]);
    let bins = (0..16).map(|bin| (bin, bin, 1)).collect();
    line.driver(|interface| interface.fec = Some(Fec { active: 50, bins, ..interface.fec.clone().unwrap() }));
    for sensor in [1, 2] {
        for file in ["input", "crit"] {
            let file = line.device.function.join(format!("hwmon/hwmon1/temp{sensor}_{file}"));
            line.io.memory.set(file, "50000\n");
        }
    }
    line.wait(2 * MINUTE);
    let series = line_series(&line);
    assert!((20..=25).contains(&series), "{series}");
}

/// Series of a port's line, without its module.
fn line_series(line: &Line) -> usize {
    let new = [
        "lanewatch_netdev_carrier_downs_total",
        "lanewatch_netdev_link_cause_info",
        "lanewatch_netdev_fec_codewords_total",
        "lanewatch_netdev_lane_corrected_bits_total",
        RAW,
        WORST,
        LOST,
        "lanewatch_nic_temperature_celsius",
        "lanewatch_nic_temperature_critical_celsius",
    ];
    new.iter().map(|name| line.samples(name).len()).sum()
}

/// What mstlink says of a port: state, reason, temperature, serial number of the module.
fn firmware(line: &Line, state: &str, opcode: u32, degrees: u32, serial: &str) {
    let document = format!(
        r#"{{"result":{{"output":{{"Operational Info":{{"State":"{state}"}},"Troubleshooting Info":{{"Status Opcode":"{opcode}",
        "Recommendation":"said by the firmware"}},"Module Info":{{"Identifier":"OSFP","Cable Technology":"1310 nm EML",
        "Vendor Serial Number":"{serial}","Temperature [C]":"{degrees} [-5..75]",
        "Rx Power Current [dBm]":"1.1,1.2,1.3,1.1 [-8.5..6]"}}}}}},"status":{{"code":0}}}}"#
    );
    line.io.memory.set("/run/lanewatch-mstlink/mlx5_0.json", document);
}

fn serial(line: &Line) -> Vec<String> {
    let info = line.samples("lanewatch_module_info");
    info.into_iter().map(|mut sample| sample.labels.remove("serial_number").unwrap()).collect()
}

#[test]
fn a_module_that_gets_hot_is_a_fault_before_the_port_goes() {
    let mut line = Line::new(RATE);
    firmware(&line, "Active", 0, 55, "S1");
    line.wait(10 * MINUTE);
    assert_eq!(line.found(Check::ModuleFault), vec![]);
    firmware(&line, "Active", 0, 78, "S1");
    line.wait(4 * MINUTE);
    assert_eq!(line.found(Check::ModuleFault), vec![], "not read twice yet");
    line.wait(2 * MINUTE);
    assert_eq!(line.found(Check::ModuleFault), [(Severity::Warning, "limits")]);
    line.lose(None);
    line.wait(MINUTE);
    assert_eq!(line.found(Check::PortDown), [(Severity::Critical, "module_hot")]);
    assert_eq!(line.found(Check::ModuleFault), vec![], "one finding, not two");
}

#[test]
fn a_cable_that_is_unplugged_and_replaced() {
    let mut line = Line::new(RATE);
    firmware(&line, "Active", 0, 50, "S1");
    line.wait(MINUTE);
    assert_eq!(serial(&line), ["S1"]);
    // The driver gives no reason; the firmware does, and the kernel logged something.
    line.lose(None);
    firmware(&line, "Polling", 1024, 50, "N/A");
    line.wait(MINUTE);
    assert_eq!(line.found(Check::PortDown), [(Severity::Critical, "no_cable")]);
    assert_eq!(serial(&line), [""]);
    line.regain();
    firmware(&line, "Active", 0, 48, "S2");
    line.wait(MINUTE);
    assert_eq!((line.found(Check::PortDown), serial(&line)), (vec![], vec!["S2".to_owned()]));
}

#[test]
fn what_the_kernel_logged_of_a_module_is_part_of_the_ports_finding() {
    let mut line = Line::new(RATE);
    let address = line.device.address.clone();
    line.wait(MINUTE);
    line.lose(None);
    let text = "Port module event[error]: module 0, Cable error, Bus stuck (I2C or data shorted)";
    let now: u64 = 2 * 3600 + 60;
    line.io.memory.set(
        "/kmsg",
        format!(
            "3,1,{},-;mlx5_core {address}: port_module_event:1131:(pid 0): {text}\n SUBSYSTEM=pci\n",
            now * 1_000_000
        ),
    );
    line.wait(2 * MINUTE);
    assert_eq!(line.found(Check::PortDown), [(Severity::Critical, "module_fault")]);
    let summary = line.summary(Check::PortDown);
    assert!(summary.contains(text) && summary.contains("reseat it, then replace it"), "{summary}");
    assert_eq!(line.found(Check::KernelMessage), vec![], "one finding, not two");
    let messages = &found(&line.report, Check::PortDown)[0].condition.evidence["module_messages"];
    assert_eq!(messages[0]["kind"], "module_fault");
}

/// Samples of modules.
fn module_series(line: &Line) -> usize {
    let mut text = String::new();
    encode(Format::Text, &line.report, &Arc::default(), Process::default(), &mut text).unwrap();
    parse(&text).unwrap().iter().filter(|sample| sample.name.starts_with("lanewatch_module_")).count()
}

#[test]
fn a_module_costs_as_many_series_and_reads_as_the_documents_say() {
    let cage = Cage::new();
    cage.plug(Some(optic("S1", 8)));
    let mut line = Line::with(RATE, Some(&cage));
    line.wait(HOUR);
    assert_eq!(cage.asked(), 8 + 12 * 3, "identity and limits once, then state, monitors and lanes");
    let series = module_series(&line);
    assert!(series <= 50, "{series} beside the 25 of a line");
    assert_eq!(line.samples("lanewatch_module_receive_power_watts").len(), 8);
    let bounds = [(6, 60..=61), (29, 240..=241)];
    let before = bounds.clone().map(|(command, _)| line.drivers.asked(command));
    line.wait_at_its_pace(HOUR);
    for ((command, bound), before) in bounds.into_iter().zip(before) {
        let asked = line.drivers.asked(command) - before;
        assert!(bound.contains(&asked), "{command}: {asked}");
    }
    // Down with a reason that stays, then without one.
    for (cause, bound) in [(Some((4, None)), 200..=241), (None, 60..=70)] {
        line.lose(cause);
        let before = line.drivers.asked(6);
        line.wait_at_its_pace(HOUR);
        let asked = line.drivers.asked(6) - before;
        assert!(bound.contains(&asked), "{cause:?}: {asked}");
        line.regain();
        line.wait(MINUTE);
    }
}

#[test]
fn a_lane_without_light_is_found_by_the_modules_own_limits_and_ends() {
    let cage = Cage::new();
    cage.plug(Some(optic("S1", 4)));
    let mut line = Line::with(RATE, Some(&cage));
    line.wait(10 * MINUTE);
    assert_eq!(line.found(Check::ModuleLight), vec![]);
    let mut dark = optic("S1", 4);
    receive(&mut dark, 2, 0);
    cage.plug(Some(dark));
    line.wait(6 * MINUTE);
    assert_eq!(line.found(Check::ModuleLight), vec![], "not read twice yet");
    line.wait(5 * MINUTE);
    assert_eq!(line.found(Check::ModuleLight), [(Severity::Warning, "receive_low")]);
    assert!(
        line.summary(Check::ModuleLight).contains("lane 2 receives no light"),
        "{}",
        line.summary(Check::ModuleLight)
    );
    cage.plug(Some(optic("S1", 4)));
    line.wait(6 * MINUTE);
    assert_eq!(line.found(Check::ModuleLight), vec![]);
}

#[test]
fn a_module_that_is_pulled_and_replaced_is_another_one() {
    let cage = Cage::new();
    cage.plug(Some(optic("S1", 4)));
    let mut line = Line::with(RATE, Some(&cage));
    line.wait(10 * MINUTE);
    assert_eq!(serial(&line), ["S1"]);
    cage.plug(None);
    line.lose(Some((4, None)));
    line.wait(20 * MINUTE);
    assert_eq!((line.found(Check::PortDown), serial(&line)), (vec![(Severity::Critical, "no_cable")], vec![]));
    cage.plug(Some(optic("S2", 4)));
    line.regain();
    line.wait(Duration::from_secs(30));
    assert_eq!((line.found(Check::PortDown), serial(&line)), (vec![], vec!["S2".to_owned()]));
}

#[test]
fn whatever_is_known_of_a_port_that_is_down_is_one_finding() {
    let cage = Cage::new();
    cage.plug(Some(optic("S1", 4)));
    let mut line = Line::with(RATE, Some(&cage));
    let address = line.device.address.clone();
    line.wait(10 * MINUTE);
    let mut broken = optic("S1", 4);
    put(&mut broken, 0, 3, &[0x0a]);
    put(&mut broken, 0, 14, &[80, 0]);
    cage.plug(Some(broken));
    line.lose(Some((10, Some(1))));
    firmware(&line, "Polling", 1042, 80, "S1");
    let text = "Port module event[error]: module 0, Cable error, High Temperature";
    let now = (2 * 3600 + 605) * 1_000_000_u64;
    line.io.memory.set(
        "/kmsg",
        format!("3,1,{now},-;mlx5_core {address}: port_module_event:1131:(pid 0): {text}\n SUBSYSTEM=pci\n"),
    );
    line.wait(12 * MINUTE);
    assert_eq!(line.found(Check::PortDown), [(Severity::Critical, "module_fault")]);
    let of_port = |check: &Check| !line.found(*check).is_empty();
    let others =
        [Check::ModuleFault, Check::ModuleLight, Check::LinkQuality, Check::KernelMessage, Check::PortFlapping];
    assert_eq!(others.into_iter().filter(of_port).collect::<Vec<_>>(), vec![]);
    let summary = line.summary(Check::PortDown);
    for part in ["CMIS module is not in ModuleReady state", "its module reports a fault", text] {
        assert!(summary.contains(part), "{part}: {summary}");
    }
}

#[test]
fn a_message_about_a_module_joins_a_flap_and_a_bad_line() {
    let message = |line: &Line| {
        let now = line.hand.clock.now().tick.0 * 1000;
        let text = "Port module event[error]: module 0, Cable error, Bad or shorted cable/module";
        let address = &line.device.address;
        line.io.memory.set(
            "/kmsg",
            format!("3,1,{now},-;mlx5_core {address}: port_module_event:1131:(pid 0): {text}\n SUBSYSTEM=pci\n"),
        );
    };
    let mut flapped = Line::new(RATE);
    flapped.wait(MINUTE);
    flapped.lose(None);
    flapped.pass();
    message(&flapped);
    flapped.regain();
    flapped.wait(30 * Duration::from_secs(1));
    let (mut bad, mut errors) = (Line::new(RATE), Errors::default());
    errors.minutes(&mut bad, 25, [2e-5; 4]);
    message(&bad);
    errors.minutes(&mut bad, 2, [2e-5; 4]);
    for (line, check) in [(flapped, Check::PortFlapping), (bad, Check::LinkQuality)] {
        assert_eq!(line.found(check).len(), 1, "{check:?}");
        assert!(line.summary(check).contains("Bad or shorted cable/module"), "{}", line.summary(check));
        assert_eq!(line.found(Check::KernelMessage), vec![], "one finding, not two");
    }
}
