//! A host to look at without one: two ConnectX-6, each with its 200 Gb/s port up, one of which loses half of its PCIe
//! lanes and speed for a while, and once in a while its link. For `demo`, and for tests that want a host that moves.

mod card;
mod scenario;

use std::sync::Arc;
use std::time::Duration;

use super::io::Host;
use super::memory::MemoryHost;
use card::Card;
pub use scenario::{Phase, phase};

/// How long the host had been up when it is first looked at.
const UP_BEFORE: Duration = Duration::from_secs(12 * 24 * 3600 + 4711);

/// The host, in memory.
#[derive(Debug)]
pub struct Example {
    memory: Arc<MemoryHost>,
    cards: [Card; 2],
    now: Duration,
}

impl Example {
    /// The host at the beginning of its scenario.
    pub fn new() -> Self {
        let memory = Arc::new(MemoryHost::new());
        system(&memory);
        let cards = [Card::new(0, 0x97, 1), Card::new(1, 0xb1, 1)];
        for card in &cards {
            card.make(&memory);
        }
        let mut example = Self { memory, cards, now: Duration::ZERO };
        example.show(Phase::Healthy);
        example
    }

    /// The host as collectors see it.
    pub fn host(&self) -> Host {
        self.memory.host()
    }

    /// Moves it on to this time since its beginning: counters rise, and the scenario goes on.
    pub fn advance(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.now);
        let (before, phase) = (scenario::phase(self.now), scenario::phase(now));
        let [_, second] = &mut self.cards;
        if phase != before {
            second.enter(phase, scenario::round(now));
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

#[cfg(test)]
mod tests;
