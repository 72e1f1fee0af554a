//! The built-in host for `demo` and for tests with moving counters: two ConnectX-6 with a 200 Gb/s port each. The
//! second card loses half of its PCIe lanes and speed for a while, and now and then its link.
//!
//! Its files are fixed and its faults follow a schedule, whereas `tests/common/host.rs` builds hosts of any shape on
//! disk with what a test asks for: the two share no code because they share no purpose.

use std::sync::Arc;
use std::time::Duration;

pub use card::Phase;

use card::Card;

use super::io::Host;
use super::memory::MemoryHost;

mod card;

/// Uptime of the host at the start of the scenario.
const UP_BEFORE: Duration = Duration::from_secs(12 * 24 * 3600 + 4711);

/// The host, in memory.
#[derive(Debug)]
pub struct Example {
    memory: Arc<MemoryHost>,
    cards: [Card; 2],
    now: Duration,
    pace: u32,
}

impl Example {
    /// The host at the start of its scenario.
    pub fn new() -> Self {
        let memory = Arc::new(MemoryHost::new());
        system(&memory);
        let cards = [Card::new(0, 0x97, 1), Card::new(1, 0xb1, 1)];
        for card in &cards {
            card.make(&memory);
        }
        let mut example = Self { memory, cards, now: Duration::ZERO, pace: 1 };
        example.show(Phase::Healthy);
        example
    }

    /// The host in the middle of its fault.
    pub fn at_fault() -> Self {
        let mut example = Self::new();
        example.advance(Duration::from_secs(u64::midpoint(DEGRADES, RECOVERS)));
        example
    }

    /// The host with a scenario that goes on so many times faster. Rates stay as they are.
    #[must_use]
    pub fn with_pace(self, pace: u32) -> Self {
        Self { pace, ..self }
    }

    /// The host as collectors see it.
    pub fn host(&self) -> Host {
        self.memory.host()
    }

    /// Advances the scenario to this time since its start.
    pub fn advance(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.now);
        let scenario_time = now.saturating_mul(self.pace);
        let (before, phase) = (phase(self.now.saturating_mul(self.pace)), phase(scenario_time));
        let [_, second] = &mut self.cards;
        if phase != before {
            second.enter(phase, round(scenario_time));
        }
        for card in &mut self.cards {
            card.count(passed, now.as_secs());
        }
        self.now = now;
        self.show(phase);
    }

    fn show(&mut self, phase: Phase) {
        let [first, second] = &self.cards;
        first.show(&self.memory, Phase::Healthy);
        second.show(&self.memory, phase);
        let up = UP_BEFORE + self.now;
        let (seconds, hundredths) = (up.as_secs(), up.subsec_millis() / 10);
        self.memory.set("/proc/uptime", format!("{seconds}.{hundredths:02} {}.00\n", seconds * 60));
    }
}

impl Default for Example {
    fn default() -> Self {
        Self::new()
    }
}

fn system(memory: &MemoryHost) {
    let nodes = "/sys/devices/system/node";
    memory.set(format!("{nodes}/online"), "0-1\n");
    memory.set(format!("{nodes}/possible"), "0-1\n");
    for (node, cpus, distance) in [(0, "0-15,32-47", "10 20"), (1, "16-31,48-63", "20 10")] {
        memory.set(format!("{nodes}/node{node}/cpulist"), format!("{cpus}\n"));
        memory.set(format!("{nodes}/node{node}/distance"), format!("{distance}\n"));
    }
    let kernel = "/proc/sys/kernel";
    memory.set(format!("{kernel}/hostname"), "example-host\n");
    memory.set(format!("{kernel}/osrelease"), "5.15.0-119-generic\n");
    memory.set(format!("{kernel}/random/boot_id"), "2f6f1f0c-7c1e-4b52-9b6a-3f1d8f0e9a77\n");
}

/// The link degrades so soon that a visitor sees it, and stays so for longer than the alert rules wait.
pub const DEGRADES: u64 = 8;
/// The link recovers.
pub const RECOVERS: u64 = 608;
/// The port loses its link, again for longer than the alert rules wait.
pub const LOSES_LINK: u64 = 780;
/// The port regains its link.
pub const REGAINS_LINK: u64 = 1_080;
/// The scenario starts again.
pub const ROUND: u64 = 1_200;
/// The port loses its link in one round of so many (six hours): the warning stays for an hour, and three of them in
/// twelve hours would be critical.
const FLAPS_EVERY: u64 = 18;

/// The state of the second card at a time since the beginning.
pub fn phase(now: Duration) -> Phase {
    match now.as_secs() % ROUND {
        DEGRADES..RECOVERS => Phase::Degraded,
        LOSES_LINK..REGAINS_LINK if round(now).is_multiple_of(FLAPS_EVERY) => Phase::LinkLost,
        _ => Phase::Healthy,
    }
}

/// Number of the current round.
fn round(now: Duration) -> u64 {
    now.as_secs() / ROUND
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::host::COLLECTORS;
    use crate::host::collector::{Depth, Filter, ReadContext, Setup};
    use crate::model::pcie::PciFunction;
    use crate::model::rdma::RdmaDevice;
    use crate::model::snapshot::Fact;
    use crate::model::time::BootTime;

    /// Everything the collectors read of the host, and what failed.
    fn facts(example: &Example) -> (Vec<Fact>, Vec<String>) {
        let setup = Setup { host: example.host(), filter: Filter::default() };
        let mut cx = ReadContext::new(&setup.host, BootTime(0), Depth::Full);
        let mut facts = Vec::new();
        for spec in COLLECTORS {
            let mut collector = (spec.make)(&setup);
            for found in collector.discover(&mut cx).unwrap() {
                facts.extend(collector.open(&found).read(&mut cx));
            }
        }
        (facts, cx.faults.iter().map(|fault| format!("{} {:?}", fault.source, fault.reason)).collect())
    }

    fn of<T: Clone + 'static>(facts: &[Fact]) -> Vec<T> {
        facts.iter().filter_map(|fact| fact.downcast_ref::<T>().cloned()).collect()
    }

    fn bandwidths(facts: &[Fact]) -> Vec<String> {
        let topology = crate::model::topology::Topology::new(of::<PciFunction>(facts).iter());
        topology
            .links
            .values()
            .filter(|link| link.upstream.is_some())
            .map(|link| link.bandwidth().unwrap().to_string())
            .collect()
    }

    #[test]
    fn every_phase_reads_without_a_fault() {
        let mut example = Example::new();
        for second in [0, 5, 60, 607, 609, 785, 1_100, 1_300] {
            example.advance(Duration::from_secs(second));
            let (facts, faults) = facts(&example);
            assert!(faults.is_empty(), "{second}: {faults:?}");
            let devices: Vec<RdmaDevice> = of(&facts);
            assert_eq!(devices.len(), 2);
            for device in &devices {
                assert_eq!(device.ports[0].pma.values.len(), 21);
                assert_eq!(device.ports[0].hardware.values.len(), 29);
                assert!(device.ports[0].counters().count() == 50);
            }
            let slow = phase(Duration::from_secs(second)) == Phase::Degraded;
            assert_eq!(bandwidths(&facts), ["252.1 Gb/s", if slow { "63.0 Gb/s" } else { "252.1 Gb/s" }], "{second}");
        }
    }

    #[test]
    fn the_scenario_repeats_and_flaps_rarely() {
        let at = |second| phase(Duration::from_secs(second));
        assert_eq!(
            [at(0), at(7), at(8), at(607), at(608)].map(|p| p == Phase::Degraded),
            [false, false, true, true, false]
        );
        assert_eq!([at(780), at(1_079), at(1_080)].map(|p| p == Phase::LinkLost), [true, true, false]);
        assert_eq!(at(1_200 + 20), Phase::Degraded);
        assert_eq!(at(1_200 + 800), Phase::Healthy);
        assert_eq!(at(1_200 * 18 + 800), Phase::LinkLost);
    }

    /// Three readings at an interval of 15 s and the hold time come before the time that an alert waits.
    #[test]
    fn faults_last_long_enough_for_their_alerts() {
        let alerts = include_str!("../../../alerts/lanewatch.rules.yml");
        let wait = |check: &str| -> u64 {
            let mut rules = alerts.split("- alert: ").filter(|rule| rule.contains(&format!("{{check=\"{check}\", ")));
            let longest = rules.try_fold(0, |longest: u64, rule| {
                let minutes = rule.split_once(" for: ")?.1.split_once('m')?.0;
                Some(longest.max(minutes.parse().ok()?))
            });
            longest.unwrap() * 60
        };
        let (readings, hold) = (3 * 15, 60);
        {
            let check = "pcie_degraded";
            assert!(RECOVERS - DEGRADES > wait(check) + readings + hold, "{check}");
        }
        assert!(REGAINS_LINK - LOSES_LINK > wait("port_down") + readings + hold);
    }

    #[test]
    fn the_pace_changes_the_scenario_and_not_the_rates() {
        let mut example = Example::new().with_pace(10);
        let slow = |example: &Example| bandwidths(&facts(example).0)[1] == "63.0 Gb/s";
        for (second, degraded) in [(0, false), (1, true), (60, true), (61, false)] {
            example.advance(Duration::from_secs(second));
            assert_eq!(slow(&example), degraded, "{second}");
        }
        assert!(slow(&Example::at_fault()));
    }

    #[test]
    fn counters_move_at_the_rates_of_the_phase() {
        let mut example = Example::new();
        let moved = |example: &Example| -> Vec<u64> {
            of::<RdmaDevice>(&facts(example).0)
                .iter()
                .map(|d| d.ports[0].counter("port_rcv_data").unwrap() * 4)
                .collect()
        };
        let mut gbits = |from: u64, to: u64| -> Vec<u64> {
            (example.now.as_secs() + 1..=from).for_each(|s| example.advance(Duration::from_secs(s)));
            let before = moved(&example);
            (from + 1..=to).for_each(|s| example.advance(Duration::from_secs(s)));
            moved(&example)
                .iter()
                .zip(before)
                .map(|(after, before)| (after - before) * 8 / (to - from) / 1_000_000_000)
                .collect()
        };
        let healthy = gbits(0, 7);
        assert!(healthy.iter().all(|rate| (174..=182).contains(rate)), "{healthy:?}");
        let degraded = gbits(20, 40);
        assert!((174..=182).contains(&degraded[0]) && (55..=58).contains(&degraded[1]), "{degraded:?}");
        let lost = gbits(781, 787);
        assert_eq!(lost[1], 0);
        let device = &of::<RdmaDevice>(&facts(&example).0)[1];
        assert_eq!(device.ports[0].counter("link_downed"), Some(1));
        assert!(!device.ports[0].is_active());
    }
}
