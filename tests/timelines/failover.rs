//! Guests whose interfaces lose their VF: Hyper-V's, that Azure services, and virtio's, that are migrated.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use lanewatch::model::check::{Check, Severity};
use lanewatch::model::finding::EventKind;
use lanewatch::model::vfmap::Signal;
use lanewatch::watch::HostReport;

use super::common::faulty::Faulty;
use super::common::hand::{Hand, found, of};
use super::common::host::HostTree;
use super::{HOUR, MINUTE};

/// When the agent starts, after boot.
const START: Duration = Duration::from_secs(2 * 3600);

const NETVSC: &str = "hv_netvsc 000d3a6c-71f2-000d-3a6c-71f2000d3a6c";

/// A CPU of a virtual machine.
const GUEST: &str = "processor\t: 0\nflags\t\t: fpu hypervisor vme\n";

struct Guest {
    io: Arc<Faulty>,
    hand: Hand,
    /// Seconds since boot, as the clock of the readings has it.
    now: u64,
    log: Option<String>,
    lines: u64,
    report: Arc<HostReport>,
}

impl Guest {
    /// `eth0` of Hyper-V with its VF; with a kernel log, or without.
    fn hyper_v(has_log: bool) -> Self {
        let (io, _) = of(&HostTree::new(1));
        io.memory.directory("/sys/bus/vmbus/drivers/hv_netvsc");
        let interface = |name: &str, device: &str, driver: &str| {
            io.memory.set(format!("/sys/class/net/{name}/operstate"), "up\n");
            io.memory.symlink(format!("/sys/class/net/{name}/device"), format!("../../../{device}"));
            io.memory.symlink(format!("/sys/{device}/driver"), format!("../../bus/x/drivers/{driver}"));
        };
        interface("eth0", "000d3a6c-71f2-000d-3a6c-71f2000d3a6c", "hv_netvsc");
        interface("enP40338s1", "9d92:00:02.0", "mlx5_core");
        Self::start(io, has_log, "/sys/class/net/eth0/lower_enP40338s1", "../enP40338s1")
    }

    /// `ens3` of virtio, above its standby and its VF.
    fn virtio() -> Self {
        let (io, _) = of(&HostTree::new(1));
        io.memory.directory("/sys/module/net_failover");
        for (name, device, driver) in [
            ("ens3", "virtio0", "virtio_net"),
            ("ens3nsby", "virtio0", "virtio_net"),
            ("ens4", "0000:00:04.0", "mlx5_core"),
        ] {
            io.memory.set(format!("/sys/class/net/{name}/operstate"), "up\n");
            io.memory.symlink(format!("/sys/class/net/{name}/device"), format!("../../../{device}"));
            io.memory.symlink(format!("/sys/{device}/driver"), format!("../../bus/x/drivers/{driver}"));
        }
        io.memory.symlink("/sys/class/net/ens3/lower_ens3nsby", "../ens3nsby");
        Self::start(io, true, "/sys/class/net/ens3/lower_ens4", "../ens4")
    }

    fn start(io: Arc<Faulty>, has_log: bool, lower: &str, vf: &str) -> Self {
        io.memory.set("/proc/cpuinfo", GUEST);
        io.memory.set("/proc/uptime", format!("{}.00 1.00\n", START.as_secs() + 5));
        io.memory.symlink(lower, vf);
        let log = has_log.then(String::new);
        if has_log {
            io.memory.set("/kmsg", "6,0,1000000,-;Linux version 6.12\n");
        }
        let mut hand = Hand::new(&io, None, START);
        let report = hand.pass();
        let mut guest = Self { io, hand, now: START.as_secs() + 5, log, lines: 0, report };
        guest.wait(MINUTE);
        guest
    }

    /// What the kernel logs now.
    fn says(&mut self, text: &str) {
        if let Some(log) = &mut self.log {
            self.lines += 1;
            let _ = writeln!(log, "6,{},{},-;{text}", self.lines, self.now * 1_000_000);
            self.io.memory.set("/kmsg", log.clone());
        }
    }

    fn wait(&mut self, time: Duration) {
        self.now += time.as_secs();
        self.report = self.hand.after(time);
    }

    /// The host takes the VF away, in the words of `netvsc_drv.c`.
    fn revoke(&mut self) {
        self.says(&format!("{NETVSC} eth0: Data path switched from VF: enP40338s1"));
        self.says(&format!("{NETVSC} eth0: VF slot 1 removed"));
        self.io.memory.remove("/sys/class/net/eth0/lower_enP40338s1");
    }

    /// And gives it back.
    fn give_back(&mut self) {
        self.says(&format!("{NETVSC} eth0: VF slot 1 added"));
        self.says(&format!("{NETVSC} eth0: Data path switched to VF: enP40338s1"));
        self.io.memory.symlink("/sys/class/net/eth0/lower_enP40338s1", "../enP40338s1");
    }

    fn found(&self) -> Vec<(String, Severity, &'static str)> {
        let found = found(&self.report, Check::VfFailover).into_iter().map(|finding| &finding.condition);
        found.map(|found| (found.subject.to_string(), found.severity, found.reason.as_str())).collect()
    }

    fn count(&self, signal: Signal) -> u64 {
        self.report.vf_map.signal(signal).count
    }
}

fn one(netdev: &str, severity: Severity, reason: &'static str) -> Vec<(String, Severity, &'static str)> {
    vec![(netdev.to_owned(), severity, reason)]
}

#[test]
fn a_vf_that_is_taken_away_once_for_service_is_an_event_and_no_finding() {
    let mut guest = Guest::hyper_v(true);
    assert_eq!((guest.found(), guest.count(Signal::VfRevoked)), (vec![], 0));
    guest.revoke();
    guest.wait(MINUTE / 2);
    assert_eq!((guest.count(Signal::VfRevoked), guest.count(Signal::VfReturned)), (1, 0));
    guest.give_back();
    guest.wait(MINUTE / 2);
    let counts = [Signal::VfRevoked, Signal::VfReturned, Signal::DataPathSwitched].map(|signal| guest.count(signal));
    assert_eq!((counts, guest.found()), ([1, 1, 2], vec![]));
    assert!(guest.report.events.iter().filter(|event| event.kind == EventKind::Migration).count() >= 2);
    guest.wait(2 * HOUR);
    assert_eq!(guest.found(), vec![]);
}

#[test]
fn an_interface_that_keeps_losing_its_vf_is_found_and_worse_the_more_often() {
    for has_log in [true, false] {
        let mut guest = Guest::hyper_v(has_log);
        for loss in 1..=31 {
            guest.revoke();
            guest.wait(Duration::from_secs(5));
            guest.give_back();
            guest.wait(MINUTE);
            let expected = match loss {
                0..=3 => vec![],
                4..=29 => one("eth0", Severity::Warning, "data_path_switched"),
                _ => one("eth0", Severity::Critical, "data_path_switched"),
            };
            assert_eq!(guest.found(), expected, "after {loss} losses, with a log: {has_log}");
        }
        assert_eq!(guest.count(Signal::DataPathSwitched), 62);
        // An hour of quiet ends it.
        guest.wait(HOUR + MINUTE);
        guest.wait(MINUTE);
        assert_eq!(guest.found(), vec![], "with a log: {has_log}");
    }
}

#[test]
fn an_interface_that_stays_without_its_vf_is_found_and_one_that_never_had_one_lacks_none() {
    for has_log in [true, false] {
        let mut guest = Guest::hyper_v(has_log);
        guest.revoke();
        guest.wait(MINUTE);
        guest.wait(8 * MINUTE);
        assert_eq!(guest.found(), vec![], "with a log: {has_log}");
        guest.wait(2 * MINUTE);
        assert_eq!(guest.found(), one("eth0", Severity::Warning, "synthetic_path"), "with a log: {has_log}");
        guest.wait(5 * HOUR);
        assert_eq!(guest.found(), one("eth0", Severity::Warning, "synthetic_path"), "with a log: {has_log}");
        guest.give_back();
        guest.wait(MINUTE);
        assert_eq!(guest.found(), vec![], "with a log: {has_log}");
    }
    let (io, _) = of(&HostTree::new(1));
    io.memory.set("/proc/cpuinfo", GUEST);
    io.memory.directory("/sys/bus/vmbus/drivers/hv_netvsc");
    io.memory.set("/sys/class/net/eth0/operstate", "up\n");
    io.memory.symlink("/sys/class/net/eth0/device", "../../../000d3a6c-71f2-000d-3a6c-71f2000d3a6c");
    io.memory.symlink("/sys/000d3a6c-71f2-000d-3a6c-71f2000d3a6c/driver", "../../bus/x/drivers/hv_netvsc");
    let mut hand = Hand::new(&io, None, START);
    hand.pass();
    assert!(found(&hand.after(3 * HOUR), Check::VfFailover).is_empty());
}

/// As QEMU does it for a guest whose primary is paired for failover: unplugged, moved, plugged in again.
#[test]
fn a_guest_with_a_failover_pair_that_is_migrated() {
    let mut guest = Guest::virtio();
    guest.says("virtio_net virtio0 ens3: failover primary slave:ens4 unregistered");
    guest.io.memory.remove("/sys/class/net/ens3/lower_ens4");
    guest.wait(MINUTE / 2);
    assert_eq!((guest.count(Signal::VfRevoked), guest.found()), (1, vec![]));
    guest.says("virtio_net virtio0 ens3: failover primary slave:ens4 registered");
    guest.io.memory.symlink("/sys/class/net/ens3/lower_ens4", "../ens4");
    guest.wait(MINUTE / 2);
    let counts = [Signal::VfRevoked, Signal::VfReturned, Signal::DataPathSwitched].map(|signal| guest.count(signal));
    assert_eq!((counts, guest.found()), ([1, 1, 2], vec![]));
}
