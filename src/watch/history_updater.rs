//! Adds each pass to the history: flaps, counter windows, link changes, and the baseline.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use super::baseline::{learn_baseline, learn_gpus};
use super::flaps::{WhenLost, record_flaps};
use super::history_event::HistoryEvent;
use super::interrupt_tracker::InterruptTracker;
use super::kernel_log_tracker::KernelLogTracker;
use super::last_seen::LastSeen;
use super::line_tracker::LineTracker;
use super::roce_windows::RoceWindows;
use crate::assess::capacity::HostCapacity;
use crate::model::finding::{Event, EventKind};
use crate::model::history::{CounterWindow, History, LinkHistory};
use crate::model::ids::{Guid, PciAddress, PortKey};
use crate::model::irq::{IrqFunction, NodeCpus};
use crate::model::link::NetdevLink;
use crate::model::net::{NetdevSetup, NetdevStatistics, PortAddressing};
use crate::model::pcie::{AerSeverity, PciFunction};
use crate::model::policy::{Policy, Thresholds};
use crate::model::rdma::{LinkLayer, Port, PortState, RdmaDevice};
use crate::model::snapshot::Snapshot;
use crate::model::time::BootTime;
use crate::model::topology::Topology;
use crate::model::units::{BytesPerSecond, Lanes as Width, TransfersPerSecond};

/// Compares each pass with the one before.
#[derive(Debug, Default)]
pub struct HistoryUpdater {
    ports: BTreeMap<PortKey, PortTracker>,
    links: BTreeMap<PciAddress, (TransfersPerSecond, Width)>,
    /// The GID table of each port, in words.
    gids: BTreeMap<PortKey, String>,
    devices: Option<Arc<[Arc<str>]>>,
    boot: Option<(Option<Arc<str>>, BootTime)>,
    interrupts: InterruptTracker,
    kernel_log: KernelLogTracker,
    roce: RoceWindows,
    lines: LineTracker,
    ports_seen: LastSeen<PortKey>,
    functions_seen: LastSeen<PciAddress>,
    netdevs_seen: LastSeen<Arc<str>>,
    /// When histories were last pruned.
    pruned: Option<BootTime>,
    /// Boot and `link_downed` of ports of an earlier run, until they have been compared.
    earlier: Option<(String, BTreeMap<PortKey, u64>)>,
}

/// Time between two looks for what is gone.
const PRUNE_INTERVAL: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
struct PortTracker {
    guid: Option<Guid>,
    state: Option<PortState>,
    lid: Option<u32>,
    sm_lid: Option<u32>,
    episode: Episode,
    counters_at: Option<BootTime>,
    link_downed: Option<u64>,
    bytes: Option<(BootTime, u64, u64)>,
    /// Whether `link_downed` is of an earlier run, which ended before this one began.
    is_earlier: bool,
}

impl HistoryUpdater {
    /// Takes the boot and the last kernel log record of an earlier run.
    pub fn restore(&mut self, boot_id: Option<String>, kernel_log: Option<u64>) {
        self.kernel_log.restore(boot_id, kernel_log);
    }

    /// Takes `link_downed` of each port as an earlier run recorded it: in its state, or in an event that is newer.
    pub fn restore_counters(&mut self, boot_id: Option<String>, saved: BTreeMap<PortKey, u64>, events: &[Event]) {
        let Some(boot_id) = boot_id else { return };
        let mut counters = saved;
        let since_boot = events.iter().rposition(|event| event.kind == EventKind::Booted).map_or(0, |at| at + 1);
        for event in events.iter().skip(since_boot) {
            if let (Some(key), Some(downed)) = (PortKey::parse(&event.subject), event.link_downed) {
                let known = counters.entry(key).or_insert(downed);
                *known = downed.max(*known);
            }
        }
        self.earlier = Some((boot_id, counters));
    }

    /// `link_downed` of each port, up to which losses of its link are recorded.
    pub fn recorded_counters(&self) -> BTreeMap<PortKey, u64> {
        self.ports.iter().filter_map(|(key, port)| Some((key.clone(), port.recorded()?))).collect()
    }

    /// The same of a port by its name.
    pub(super) fn link_downed(&self, port: &str) -> Option<u64> {
        self.ports.get(&PortKey::parse(port)?)?.recorded()
    }

    /// Compares the boot with that of an earlier run: only within one boot do counters go on.
    fn take_earlier(&mut self, snapshot: &Snapshot) {
        let Some(boot_id) = snapshot.system().and_then(|system| system.boot_id.as_deref()) else { return };
        let Some((boot, counters)) = self.earlier.take() else { return };
        if boot == boot_id {
            for (key, downed) in counters {
                let track = self.ports.entry(key).or_default();
                if track.link_downed.is_none() {
                    (track.link_downed, track.is_earlier) = (Some(downed), true);
                }
            }
        }
    }

    /// Adds a pass to the history and returns what happened.
    pub fn observe(
        &mut self,
        history: &mut History,
        snapshot: &Snapshot,
        topology: &Topology,
        lanes: &HostCapacity,
        policy: &Policy,
    ) -> Vec<HistoryEvent> {
        let mut news = Vec::new();
        let now = snapshot.taken.tick;
        let settled = self.settled(snapshot, &policy.thresholds);
        self.take_earlier(snapshot);
        self.devices_come_and_go(snapshot, &mut news);
        let short = self.lines.observe(history, snapshot);
        for device in snapshot.devices() {
            if !device.counters.layout.is_empty() {
                let windows = history.devices.entry(device.name.clone()).or_default();
                let reset = push_limited(windows, policy, device.counters_at, |name| device.counters.get(name));
                report_reset(device.name.as_str(), &reset, &mut news);
            }
            for port in &device.ports {
                let key = PortKey { device: device.name.clone(), port: port.number };
                let track = self.ports.entry(key.clone()).or_default();
                let guid = device.identity.node_guid;
                // One that could not be read is no other device.
                if track.guid.zip(guid).is_some_and(|(before, now)| before != now) {
                    *track = PortTracker::default();
                    history.ports.entry(key.clone()).or_default().windows.clear();
                }
                track.guid = guid.or(track.guid);
                track.observe(history, &key, device, port, now, settled, policy, &mut news);
                let losses = port.netdev.as_ref().and_then(|netdev| short.get(netdev)).copied().unwrap_or(0);
                if losses > 0 && port.link_layer == Some(LinkLayer::Ethernet) {
                    record_flaps(history, &key, (losses, WhenLost::Running), now, settled, &mut news);
                }
            }
        }
        self.gids_change(snapshot, &mut news);
        self.links_change(history, topology, &mut news);
        for function in snapshot.all::<PciFunction>() {
            count_errors(history, function, now);
        }
        history.nodes = NodeCpus::of(snapshot).remembering(&history.nodes);
        self.interrupts.observe(&mut history.irqs, snapshot.all());
        self.kernel_log.observe(history, snapshot, &mut news);
        self.roce.observe(history, snapshot);
        learn_baseline(history, snapshot, topology, lanes, &mut news);
        learn_gpus(history, snapshot);
        if self.pruned.is_none_or(|at| now.since(at) >= PRUNE_INTERVAL) {
            self.pruned = Some(now);
            self.prune(history, snapshot, topology);
        }
        news
    }

    /// Forgets the histories of ports, functions and interfaces that have been gone for long. What is listed and does
    /// not respond is not gone.
    fn prune(&mut self, history: &mut History, snapshot: &Snapshot, topology: &Topology) {
        let now = snapshot.taken.tick;
        let listed = |name: &str| -> BTreeSet<Arc<str>> {
            let listed = snapshot.collector(name).and_then(|collector| collector.listed.as_deref());
            listed.into_iter().flatten().cloned().collect()
        };
        let devices = listed("rdma");
        let known = history.ports.keys().chain(history.roce.keys()).chain(self.ports.keys()).cloned().collect();
        for key in self.ports_seen.expire(known, |key| devices.contains(key.device.as_str()), now) {
            history.ports.remove(&key);
            history.roce.remove(&key);
            self.ports.remove(&key);
            self.gids.remove(&key);
            self.roce.forget_port(&key);
        }
        history.devices.retain(|name, _| devices.contains(name.as_str()));
        let mut functions: BTreeSet<PciAddress> = topology.links.values().map(|link| link.name).collect();
        functions.extend(listed("pci").iter().filter_map(|key| key.parse::<PciAddress>().ok()));
        functions.extend(snapshot.all::<IrqFunction>().map(|function| function.address));
        let known = history.functions.keys().chain(history.irqs.keys()).chain(self.links.keys()).copied().collect();
        for address in self.functions_seen.expire(known, |address| functions.contains(address), now) {
            history.functions.remove(&address);
            history.irqs.remove(&address);
            self.links.remove(&address);
            self.interrupts.forget(address);
        }
        let mut netdevs: BTreeSet<&str> = snapshot.all::<NetdevStatistics>().map(|fact| &*fact.netdev).collect();
        netdevs.extend(snapshot.all::<NetdevSetup>().map(|fact| &*fact.netdev));
        netdevs.extend(snapshot.all::<NetdevLink>().map(|fact| &*fact.netdev));
        let known = history.netdevs.keys().chain(history.lines.keys()).cloned().collect();
        for netdev in self.netdevs_seen.expire(known, |netdev| netdevs.contains(&**netdev), now) {
            history.netdevs.remove(&netdev);
            history.lines.remove(&netdev);
            self.lines.forget(&netdev);
            self.roce.forget_netdev(&netdev);
        }
    }

    /// Whether the host has been up for long enough that a flap is one.
    fn settled(&mut self, snapshot: &Snapshot, thresholds: &Thresholds) -> bool {
        let now = snapshot.taken.tick;
        if let Some(system) = snapshot.system()
            && let Some(uptime) = system.uptime
            && self.boot.as_ref().is_none_or(|(id, _)| *id != system.boot_id)
        {
            self.boot = Some((system.boot_id.clone(), now - uptime));
        }
        self.boot.as_ref().is_none_or(|(_, boot)| now.since(*boot) >= thresholds.settle)
    }

    fn devices_come_and_go(&mut self, snapshot: &Snapshot, news: &mut Vec<HistoryEvent>) {
        let Some(listed) = snapshot.collector("rdma").and_then(|collector| collector.listed.as_ref()) else { return };
        if self.devices.as_ref().is_some_and(|before| Arc::ptr_eq(before, listed)) {
            return;
        }
        if let Some(before) = &self.devices {
            let names = |list: &Arc<[Arc<str>]>| list.iter().cloned().collect::<BTreeSet<_>>();
            let (before, now) = (names(before), names(listed));
            for name in now.difference(&before) {
                news.push((EventKind::DeviceAppeared, name.to_string(), format!("{name} appeared")));
            }
            for name in before.difference(&now) {
                news.push((EventKind::DeviceGone, name.to_string(), format!("{name} is gone")));
            }
        }
        self.devices = Some(Arc::clone(listed));
    }

    /// Programs name a GID by its index: one that moves breaks their configuration.
    fn gids_change(&mut self, snapshot: &Snapshot, news: &mut Vec<HistoryEvent>) {
        for addressing in snapshot.all::<PortAddressing>() {
            let (key, now) = (&addressing.port, gid_table(addressing));
            let Some(before) = self.gids.insert(key.clone(), now.clone()).filter(|before| *before != now) else {
                continue;
            };
            let text = format!("{key}: GIDs went from {before} to {now}");
            news.push((EventKind::AddressChanged, key.to_string(), text));
        }
    }

    fn links_change(&mut self, history: &mut History, topology: &Topology, news: &mut Vec<HistoryEvent>) {
        for link in topology.links.values() {
            let (Some(speed), Some(width)) = (link.speed().current, link.width().current) else { continue };
            let Some(before) = self.links.insert(link.name, (speed, width)) else { continue };
            if before != (speed, width) {
                history.functions.entry(link.name).or_insert_with(new_link).changes += 1;
                let text =
                    format!("the link above {} went from {} {} to {speed} {width}", link.name, before.0, before.1);
                news.push((EventKind::LinkChanged, link.name.to_string(), text));
            }
        }
    }
}

/// Where a port is between losing its link and having it back; `before` is what `link_downed` said when all was
/// well.
#[derive(Debug, Default, Clone, Copy)]
enum Episode {
    #[default]
    None,
    /// It was ACTIVE and is not.
    Lost { before: Option<u64> },
    /// It is ACTIVE again; counters read after `at` tell how often it went down.
    Regained { at: BootTime, before: Option<u64> },
}

impl PortTracker {
    #[expect(clippy::too_many_arguments, reason = "one step of a state machine over everything it looks at")]
    fn observe(
        &mut self,
        history: &mut History,
        key: &PortKey,
        device: &RdmaDevice,
        port: &Port,
        now: BootTime,
        settled: bool,
        policy: &Policy,
        news: &mut Vec<HistoryEvent>,
    ) {
        let state = port.state.value();
        if let (Some(before), Some(state)) = (self.state, state)
            && before != state
        {
            let text = format!("{key} went from {} to {}", before.as_str(), state.as_str());
            news.push((EventKind::PortState, key.to_string(), text));
        }
        let fresh = self.counters_at != Some(device.counters_at);
        let downed = port.counter("link_downed");
        address_changes(key, "LID", &mut self.lid, port.lid, news);
        address_changes(key, "LID of the subnet manager", &mut self.sm_lid, port.sm_lid, news);
        if let Some(state) = state {
            self.episode = match (self.episode, port.is_active()) {
                (Episode::None, false) if self.state.is_some_and(is_active) => {
                    Episode::Lost { before: self.link_downed }
                }
                (Episode::Lost { before }, true) => Episode::Regained { at: now, before },
                (episode, _) => episode,
            };
            self.state = Some(state);
        }
        let flaps = self.flaps(device.counters_at, downed, fresh);
        let is_earlier = fresh && downed.is_some() && std::mem::take(&mut self.is_earlier);
        if fresh {
            self.link_downed = downed.or(self.link_downed);
        }
        if flaps > 0 {
            let when = if is_earlier { WhenLost::Stopped } else { WhenLost::Running };
            record_flaps(history, key, (flaps, when), now, settled, news);
        }
        let past = history.ports.entry(key.clone()).or_default();
        // Down, some drivers (mlx5 with Ethernet) name a rate that means nothing.
        let rate = if port.is_active() { port.rate.value() } else { None };
        if let Some(rate) = rate
            && past.fastest.is_none_or(|fastest| rate.bandwidth.0 > fastest.bandwidth.0)
        {
            past.fastest = Some(rate);
        }
        if !fresh {
            return;
        }
        self.counters_at = Some(device.counters_at);
        let reset = push_limited(&mut past.windows, policy, device.counters_at, |name| port.counter(name));
        report_reset(&key.to_string(), &reset, news);
        past.traffic = self.traffic(port, device.counters_at);
    }

    /// `link_downed` up to which losses are recorded: one that is not over yet is not.
    fn recorded(&self) -> Option<u64> {
        match self.episode {
            Episode::Lost { before } | Episode::Regained { before, .. } => before.or(self.link_downed),
            Episode::None => self.link_downed,
        }
    }

    /// How often the link was lost and regained since the last reading. While the port is down nothing counts; once
    /// it is ACTIVE again and its counters were read, they say how often it went down, at least once.
    fn flaps(&mut self, counters_at: BootTime, downed: Option<u64>, fresh: bool) -> u64 {
        let rise = |before: Option<u64>| downed.zip(before).map(|(now, before)| now.saturating_sub(before));
        match self.episode {
            Episode::Regained { at, before } if counters_at >= at => {
                self.episode = Episode::None;
                rise(before).map_or(1, |rise| rise.max(1))
            }
            Episode::None if fresh => rise(self.link_downed).unwrap_or(0),
            _ => 0,
        }
    }

    /// The busier direction since the last reading.
    fn traffic(&mut self, port: &Port, at: BootTime) -> Option<BytesPerSecond> {
        use crate::model::counter::CounterKind::{ReceivedBytes, TransmittedBytes};
        let total = |wanted: fn(crate::model::counter::CounterKind) -> Option<u64>| port.total(wanted);
        let received = total(|meaning| if let ReceivedBytes { unit } = meaning { Some(unit) } else { None })?;
        let sent = total(|meaning| if let TransmittedBytes { unit } = meaning { Some(unit) } else { None })?;
        let (before, old_received, old_sent) = self.bytes.replace((at, received, sent))?;
        let time = at.since(before).as_secs_f64();
        let moved = received.saturating_sub(old_received).max(sent.saturating_sub(old_sent));
        #[expect(clippy::cast_precision_loss, reason = "a rate, not a count")]
        (time > 0.0).then(|| BytesPerSecond(moved as f64 / time))
    }
}

/// Adds the counters that have a limit to their windows; the names of those that went backwards.
fn push_limited(
    windows: &mut BTreeMap<Arc<str>, CounterWindow>,
    policy: &Policy,
    at: BootTime,
    value: impl Fn(&str) -> Option<u64>,
) -> Vec<&'static str> {
    let mut reset = Vec::new();
    for limit in &policy.thresholds.errors {
        let Some(value) = value(limit.counter) else { continue };
        if !windows.contains_key(limit.counter) {
            let limits = policy.thresholds.errors.iter().filter(|other| other.counter == limit.counter);
            let longest = limits.map(|limit| limit.window).max().unwrap_or(limit.window);
            windows.insert(Arc::from(limit.counter), CounterWindow::new(longest));
        }
        // A counter with two limits is read once.
        let window = windows.get_mut(limit.counter);
        if window.is_some_and(|window| !window.has(at) && window.push(at, value)) {
            reset.push(limit.counter);
        }
    }
    reset
}

fn report_reset(subject: &str, reset: &[&str], news: &mut Vec<HistoryEvent>) {
    if !reset.is_empty() {
        let text = format!("{subject}: {} went backwards: reset by a user, a tool or the driver", reset.join(", "));
        news.push((EventKind::CounterReset, subject.to_owned(), text));
    }
}

/// Says that a number given by the subnet manager changed; 0 is none. One that could not be read changes nothing.
fn address_changes(key: &PortKey, name: &str, known: &mut Option<u32>, now: Option<u32>, news: &mut Vec<HistoryEvent>) {
    let Some(now) = now else { return };
    let Some(before) = known.replace(now).filter(|before| *before != now) else { return };
    let text = match (before, now) {
        (0, now) => format!("{key}: {name} is {now}"),
        (before, 0) => format!("{key}: {name} {before} is gone"),
        (before, now) => format!("{key}: {name} went from {before} to {now}"),
    };
    news.push((EventKind::AddressChanged, key.to_string(), text));
}

/// What a GID table is like, in words: `IB/RoCE v1: 2, RoCE v2: 2 (3: 10.0.0.5)`.
fn gid_table(addressing: &PortAddressing) -> String {
    let types: Vec<String> = addressing.gids.iter().map(|(kind, count)| format!("{kind}: {count}")).collect();
    let entry = |(index, address): &(u32, Option<Ipv4Addr>)| Some(format!("{index}: {}", (*address)?));
    let addresses: Vec<String> = addressing.roce_v2.iter().filter_map(entry).collect();
    let addresses = if addresses.is_empty() { String::new() } else { format!(" ({})", addresses.join(", ")) };
    if types.is_empty() { "empty".to_owned() } else { format!("{}{addresses}", types.join(", ")) }
}

fn is_active(state: PortState) -> bool {
    matches!(state, PortState::Active | PortState::ActiveDefer)
}

fn new_link() -> LinkHistory {
    let hour = || CounterWindow::new(Duration::from_secs(3600));
    LinkHistory { changes: 0, aer: [hour(), hour(), hour()], root_aer: [hour(), hour(), hour()] }
}

fn count_errors(history: &mut History, function: &PciFunction, now: BootTime) {
    let counts =
        function.aer.classes.iter().any(Option::is_some) || function.aer.root_totals.iter().any(Option::is_some);
    if !counts {
        return;
    }
    let past = history.functions.entry(function.address).or_insert_with(new_link);
    debug_assert_eq!(past.aer.len(), AerSeverity::ALL.len());
    for (window, class) in past.aer.iter_mut().zip(&function.aer.classes) {
        if let Some(class) = class {
            window.push(now, class.total);
        }
    }
    for (window, total) in past.root_aer.iter_mut().zip(function.aer.root_totals) {
        if let Some(total) = total {
            window.push(now, total);
        }
    }
}
