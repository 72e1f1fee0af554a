//! What the past says: windows over counters, flaps, and the baseline. [`crate::watch`] keeps it, checks read it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::benchmark::BenchmarkHistories;
use super::ids::{DeviceName, PciAddress, PortKey};
use super::irq::NodeCpus;
use super::line::{LineHistory, LineSummary};
use super::pci_tree::Distance;
use super::rdma::PortRate;
use super::time::BootTime;
use super::units::{BytesPerSecond, Lanes, TransfersPerSecond, total};
use super::vfmap::VfMap;

/// The time for which flaps are shown.
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Longest time whose increases are kept as one.
const LONGEST_STEP: Duration = Duration::from_secs(60);

/// Increases of one counter over a span, in steps of a thirtieth of it, a minute at most. A counter that goes backwards was reset and
/// counts on from its new value.
#[derive(Debug, Clone)]
pub struct CounterWindow {
    span: Duration,
    last: Option<(BootTime, u64)>,
    first: Option<BootTime>,
    steps: VecDeque<(BootTime, u64)>,
}

/// An increase and the time it was seen over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Increase {
    /// How much the counter rose.
    pub count: u64,
    /// Over how long; less than the window while it fills.
    pub observed: Duration,
}

impl CounterWindow {
    /// A window of this span.
    pub fn new(span: Duration) -> Self {
        Self { span, last: None, first: None, steps: VecDeque::new() }
    }

    /// Takes a reading; true when the counter had gone backwards.
    pub fn push(&mut self, now: BootTime, value: u64) -> bool {
        let Some((_, before)) = self.last.replace((now, value)) else {
            self.first = Some(now);
            return false;
        };
        let (rise, reset) = if value >= before { (value - before, false) } else { (value, true) };
        if rise > 0 {
            match self.steps.back_mut() {
                Some((at, count)) if now.since(*at) < (self.span / 30).min(LONGEST_STEP) => {
                    *count = count.saturating_add(rise);
                }
                _ => self.steps.push_back((now, rise)),
            }
        }
        while self.steps.front().is_some_and(|(at, _)| now.since(*at) > self.span) {
            self.steps.pop_front();
        }
        reset
    }

    /// The rise over the last `span` of time, or since the first reading; none before the second reading.
    pub fn rise(&self, now: BootTime, span: Duration) -> Option<Increase> {
        let (last, _) = self.last?;
        let observed = last.since(self.first?);
        if observed.is_zero() {
            return None;
        }
        let count = total(self.steps.iter().filter(|(at, _)| now.since(*at) <= span).map(|(_, rise)| *rise));
        Some(Increase { count, observed: observed.min(span) })
    }

    /// Whether the last reading is of this time.
    pub fn has(&self, at: BootTime) -> bool {
        self.last.is_some_and(|(last, _)| last == at)
    }

    /// The last raw value.
    pub fn value(&self) -> Option<u64> {
        self.last.map(|(_, value)| value)
    }
}

/// The past of one port.
#[derive(Debug, Clone, Default)]
pub struct PortHistory {
    /// When the port lost its link and got it back, newest last; those soon after boot or a firmware reset stand
    /// apart and are not here.
    pub flaps: VecDeque<BootTime>,
    /// Windows of the counters that rules look at, by counter name.
    pub windows: BTreeMap<Arc<str>, CounterWindow>,
    /// The busier direction's traffic over the last interval.
    pub traffic: Option<BytesPerSecond>,
    /// The fastest rate that it was active at since the agent started.
    pub fastest: Option<PortRate>,
}

/// What a host's device was like when all was well.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceBaseline {
    /// Its name then.
    pub name: String,
    /// Its PCI address then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pci_address: Option<String>,
    /// Its ports, by number.
    #[serde(default)]
    pub ports: BTreeMap<u32, PortBaseline>,
    /// The links of its path, from the device up.
    #[serde(default)]
    pub path: Vec<LinkBaseline>,
    /// Its completion vectors, on hosts where their place can be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupts: Option<IrqBaseline>,
}

/// How many completion vectors a device had, and how many of them on its own NUMA node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct IrqBaseline {
    /// All.
    pub vectors: u64,
    /// Those on the device's own node.
    pub local: u64,
}

/// What a port was like.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PortBaseline {
    /// Whether it has been ACTIVE.
    pub active: bool,
    /// The highest rate it was ACTIVE at, bytes per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bytes_per_second: Option<f64>,
}

/// What a link was like.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkBaseline {
    /// The address that named it.
    pub pci_address: String,
    /// Speed, transfers per second.
    pub transfers_per_second: u64,
    /// Width in lanes.
    pub lanes: u8,
}

impl LinkBaseline {
    /// Speed and width with their units.
    pub fn rate(&self) -> (TransfersPerSecond, Lanes) {
        (TransfersPerSecond(self.transfers_per_second), Lanes(self.lanes))
    }
}

/// The learned or accepted state of a host, by node GUID where a device has one, else by name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Baseline {
    /// Devices by key.
    pub devices: BTreeMap<String, DeviceBaseline>,
    /// GPUs by their place in the PCIe tree, without bus numbers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub gpus: BTreeMap<String, GpuBaseline>,
}

/// How near a GPU's nearest RDMA card was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuBaseline {
    /// The GPU's address then.
    pub pci_address: String,
    /// The least distance.
    pub nearest: Distance,
}

/// The past of one PCIe link or function.
#[derive(Debug, Clone)]
pub struct LinkHistory {
    /// Changes of speed or width that the poller saw.
    pub changes: u64,
    /// Increases of AER totals, by class.
    pub aer: [CounterWindow; 3],
    /// Increases of what a root port received from below, by class.
    pub root_aer: [CounterWindow; 3],
}

/// The past of one function's interrupts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct IrqHistory {
    /// Interrupts served since boot, by CPU; they go on over a wrap, a CPU that went away and a driver that was
    /// reloaded. None while they cannot be counted.
    pub served: Option<BTreeMap<u32, u64>>,
    /// By vector and CPU, over the last interval that had any interrupt of the function; at first, since boot.
    pub recent: BTreeMap<u32, Vec<(u32, u64)>>,
    /// Whether `recent` is still all since boot.
    pub since_boot: bool,
    /// Changes of the CPUs in force of a vector that were seen.
    pub affinity_changes: u64,
}

/// All that is remembered of a host.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// Ports.
    pub ports: BTreeMap<PortKey, PortHistory>,
    /// Windows of the counters of devices that rules look at, by counter name.
    pub devices: BTreeMap<DeviceName, BTreeMap<Arc<str>, CounterWindow>>,
    /// PCI functions.
    pub functions: BTreeMap<PciAddress, LinkHistory>,
    /// CPUs by node, with those that do not run now.
    pub nodes: NodeCpus,
    /// Interrupts, by function.
    pub irqs: BTreeMap<PciAddress, IrqHistory>,
    /// Statistics of Ethernet ports, by interface and name.
    pub netdevs: BTreeMap<Arc<str>, BTreeMap<Arc<str>, CounterWindow>>,
    /// Physical links, by interface.
    pub lines: BTreeMap<Arc<str>, LineHistory>,
    /// Counters of RDMA ports on Ethernet that tell of loss, by name.
    pub roce: BTreeMap<PortKey, BTreeMap<&'static str, CounterWindow>>,
    /// Number of the last kernel log record that was read.
    pub kernel_log: Option<u64>,
    /// What was learned or accepted before.
    pub baseline: Baseline,
    /// Who holds which VF.
    pub vf_map: VfMap,
    /// What probes measured.
    pub probes: BenchmarkHistories,
}

impl History {
    /// The fastest rate that each port was active at since the agent started.
    pub fn fastest_rates(&self) -> BTreeMap<PortKey, PortRate> {
        self.ports.iter().filter_map(|(key, past)| Some((key.clone(), past.fastest?))).collect()
    }

    /// The traffic of each port over the last interval.
    pub fn traffic(&self) -> BTreeMap<PortKey, BytesPerSecond> {
        self.ports.iter().filter_map(|(key, past)| Some((key.clone(), past.traffic?))).collect()
    }

    /// Flaps of each port in the last day.
    pub fn flaps(&self, now: BootTime) -> BTreeMap<PortKey, usize> {
        let count = |past: &PortHistory| past.flaps.iter().filter(|at| now.since(**at) <= DAY).count();
        let counts = self.ports.iter().map(|(key, past)| (key.clone(), count(past)));
        counts.filter(|(_, count)| *count > 0).collect()
    }

    /// How the line of each interface does now.
    pub fn line_summaries(&self, now: BootTime) -> BTreeMap<Arc<str>, LineSummary> {
        self.lines.iter().map(|(netdev, past)| (Arc::clone(netdev), past.summary(now))).collect()
    }
}
