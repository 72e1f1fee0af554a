//! Reckons one host: what its ports have and can move, what is stranded and why, and what would give it back.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::AddAssign;

use serde::Serialize;

use super::facts::{DeviceFacts, HostFacts, HostId, PfFacts, PortFacts, PortName};
use super::stranded::{StrandedByCause, by_reason, card, limiting, split};
use crate::model::check::Check;
use crate::model::units::BytesPerSecond;

/// Bandwidth below this is rounding.
const NOTHING: f64 = 1.0;

/// VFs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct VfSums {
    /// How many there can be.
    pub limit: u64,
    /// How many are configured.
    pub configured: u64,
    /// Held by a VM, a pod, a network namespace or a process.
    pub held: u64,
    /// With a driver and an interface on the host itself, in nobody else's hands.
    pub on_host: u64,
    /// Configured, and held by nobody.
    pub free: u64,
    /// Configured, and who holds them cannot be seen.
    pub unknown: u64,
}

/// What is added up. `installed` is `usable` and all causes together, but for `vf_less`, which is a part of `usable`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Sums {
    /// Hosts.
    pub hosts: u64,
    /// RDMA devices with a PCI function and a wire; no VFs or sub-functions.
    pub devices: u64,
    /// Their ports that have a wire.
    pub ports: u64,
    /// Active ports with a known rate.
    pub active_ports: u64,
    /// Ports that should be up and are not.
    pub down_ports: u64,
    /// Devices that should be there and are not.
    pub missing_devices: u64,
    /// Of those, ports of which no rate is known: they are in no sum of bandwidth.
    pub rateless_ports: u64,
    /// The rates of active ports, and the last rates of those that should be.
    #[serde(rename = "installed_bytes_per_second")]
    pub installed: BytesPerSecond,
    /// What the active ports can move when all run at once.
    #[serde(rename = "usable_bytes_per_second")]
    pub usable: BytesPerSecond,
    /// Lost to links below what both of their ends can do.
    #[serde(rename = "degraded_bytes_per_second")]
    pub degraded: BytesPerSecond,
    /// Lost to slots that give less than their card could use.
    #[serde(rename = "slot_bytes_per_second")]
    pub slot: BytesPerSecond,
    /// Lost to cards, or to ports that share a link, by design.
    #[serde(rename = "design_bytes_per_second")]
    pub design: BytesPerSecond,
    /// Lost to ports that are down.
    #[serde(rename = "down_bytes_per_second")]
    pub down: BytesPerSecond,
    /// Lost to devices that are gone.
    #[serde(rename = "missing_bytes_per_second")]
    pub missing: BytesPerSecond,
    /// Of ports whose path is not known, or held back for an unknown cause.
    #[serde(rename = "unknown_bytes_per_second")]
    pub unknown: BytesPerSecond,
    /// Usable, but without a VF on a host that gives out VFs.
    #[serde(rename = "vf_less_bytes_per_second")]
    pub vf_less: BytesPerSecond,
    /// VFs.
    pub vfs: VfSums,
}

impl Sums {
    /// All that is installed and not usable, but for what is merely unknown.
    pub fn stranded(&self) -> BytesPerSecond {
        [self.degraded, self.slot, self.design, self.down, self.missing].into_iter().sum()
    }

    /// What can be won back: all that is stranded, but for what is so by design.
    pub fn recoverable(&self) -> BytesPerSecond {
        [self.degraded, self.slot, self.down, self.missing].into_iter().sum()
    }
}

impl AddAssign for VfSums {
    fn add_assign(&mut self, other: Self) {
        self.limit += other.limit;
        self.configured += other.configured;
        self.held += other.held;
        self.on_host += other.on_host;
        self.free += other.free;
        self.unknown += other.unknown;
    }
}

impl AddAssign for Sums {
    fn add_assign(&mut self, other: Self) {
        self.hosts += other.hosts;
        self.devices += other.devices;
        self.ports += other.ports;
        self.active_ports += other.active_ports;
        self.down_ports += other.down_ports;
        self.missing_devices += other.missing_devices;
        self.rateless_ports += other.rateless_ports;
        self.installed += other.installed;
        self.usable += other.usable;
        self.degraded += other.degraded;
        self.slot += other.slot;
        self.design += other.design;
        self.down += other.down;
        self.missing += other.missing;
        self.unknown += other.unknown;
        self.vf_less += other.vf_less;
        self.vfs += other.vfs;
    }
}

/// What gives bandwidth back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RepairKind {
    /// Reseat the card, check slot and riser: the link runs below what both ends support.
    #[serde(rename = "mend_link")]
    FixLink,
    /// Move the card to a better slot.
    MoveCard,
    /// Bring the port up.
    BringUpPort,
    /// Get the device back.
    RestoreDevice,
    /// Configure VFs.
    ConfigureVfs,
}

impl RepairKind {
    /// The words for what it repairs.
    pub const fn problem(self) -> &'static str {
        match self {
            Self::FixLink => "degraded link",
            Self::MoveCard => "slow slot",
            Self::BringUpPort => "port down",
            Self::RestoreDevice => "device gone",
            Self::ConfigureVfs => "no VFs",
        }
    }

    /// The words for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::FixLink => "fix the link",
            Self::MoveCard => "move to a faster slot",
            Self::BringUpPort => "bring up the port",
            Self::RestoreDevice => "restore the device",
            Self::ConfigureVfs => "configure VFs",
        }
    }
}

/// Something to do.
#[derive(Debug, Clone, PartialEq)]
pub struct Repair {
    /// Where.
    pub host: HostId,
    /// What.
    pub action: RepairKind,
    /// Which link, port, device or PF.
    pub subject: String,
    /// The devices that it is for.
    pub devices: BTreeSet<String>,
    /// What it gives back.
    pub gain: BytesPerSecond,
}

/// A device's model: its type (the driver's name where it has none) and its board.
pub type Model = (String, String);

/// What was computed for a host.
#[derive(Debug, Clone, PartialEq)]
pub struct HostCapacityReport {
    /// All of it.
    pub total: Sums,
    /// By the labels that the fleet is grouped by.
    pub groups: BTreeMap<Vec<String>, Sums>,
    /// What to do.
    pub fixes: Vec<Repair>,
    /// Devices by model and firmware.
    pub firmware: BTreeMap<(Model, String), u64>,
}

/// Reckons a host. `by` are the labels to group by.
pub fn compute_capacity(host: &HostFacts, by: &[String]) -> HostCapacityReport {
    let mut calculator =
        HostCalculator { host, by, groups: BTreeMap::new(), fixes: BTreeMap::new(), firmware: BTreeMap::new() };
    for (name, device) in &host.devices {
        let mut ports = host.ports.iter().filter(|((owner, _), _)| owner == name).peekable();
        // The ports of a device for a card's planes stand for no wire, and it for no card.
        let only_planes = ports.peek().is_some() && ports.all(|(_, port)| !port.has_wire());
        if !device.pci_address.is_empty() && !only_planes {
            calculator.device(name, device);
        }
    }
    for (name, port) in host.ports.iter().filter(|(_, port)| port.has_wire()) {
        if let Some(device) = host.devices.get(&name.0).filter(|device| !device.pci_address.is_empty()) {
            calculator.port(name, device, port);
        }
    }
    for finding in host.findings.iter().filter(|finding| finding.check == Some(Check::DeviceMissing)) {
        calculator.missing(&finding.device);
    }
    for (address, pf) in &host.pfs {
        calculator.pf(address, pf);
    }
    calculator.end()
}

struct HostCalculator<'a> {
    host: &'a HostFacts,
    by: &'a [String],
    groups: BTreeMap<Vec<String>, Sums>,
    fixes: BTreeMap<(RepairKind, String), (BTreeSet<String>, BytesPerSecond)>,
    firmware: BTreeMap<(Model, String), u64>,
}

impl HostCalculator<'_> {
    /// The sums of a device's group.
    fn group(&mut self, name: &str, device: &DeviceFacts, link_layer: &str) -> &mut Sums {
        let value = |(label, host): (&String, &String)| match &**label {
            "hca_type" => device.hca_type.clone(),
            "board_id" => device.board.clone(),
            "firmware_version" => device.firmware.clone(),
            "driver" => device.driver.clone(),
            "device" => name.to_owned(),
            "numa_node" => device.numa_node.clone(),
            "function" => device.function.clone(),
            "link_layer" => link_layer.to_owned(),
            _ => host.clone(),
        };
        let key = self.by.iter().zip(&self.host.group).map(value).collect();
        self.groups.entry(key).or_default()
    }

    fn fix(&mut self, action: RepairKind, subject: &str, device: &str, gain: BytesPerSecond) {
        if gain.0 > NOTHING {
            let (devices, sum) = self.fixes.entry((action, subject.to_owned())).or_default();
            devices.insert(device.to_owned());
            *sum += gain;
        }
    }

    fn device(&mut self, name: &str, device: &DeviceFacts) {
        let layers = self.host.ports.range((name.to_owned(), String::new())..);
        let layer =
            layers.take_while(|((device, _), _)| device == name).map(|(_, port)| port.link_layer.clone()).next();
        self.group(name, device, &layer.unwrap_or_default()).devices += 1;
        let kind = if device.hca_type.is_empty() { &device.driver } else { &device.hca_type };
        let model = (kind.clone(), device.board.clone());
        *self.firmware.entry((model, device.firmware.clone())).or_default() += 1;
    }

    fn port(&mut self, name: &PortName, device: &DeviceFacts, port: &PortFacts) {
        let host = self.host;
        let down = host.finding_on(Check::PortDown, &name.0, &name.1).is_some();
        let sums = self.group(&name.0, device, &port.link_layer);
        sums.ports += 1;
        let Some(rate) = port.rate else {
            if down {
                sums.down_ports += 1;
                self.down(name, device, port);
            }
            return;
        };
        sums.active_ports += 1;
        sums.installed += rate;
        let Some(share) = port.share.or(port.ceiling) else {
            sums.unknown += rate;
            return;
        };
        sums.usable += share;
        if rate.0 - share.0 <= rate.0 * 1e-9 {
            return;
        }
        let reason = host.reason(Check::PcieBelowPortRate, &name.0, &name.1);
        let limit = limiting(host, name);
        let parts = limit.and_then(|(_, link)| split(rate, share, link));
        let parts = parts.unwrap_or_else(|| by_reason(rate, share, reason));
        let StrandedByCause { degraded, slot, design, unknown } = parts;
        sums.degraded += degraded;
        sums.slot += slot;
        sums.design += design;
        sums.unknown += unknown;
        let subject = limit.map_or(&*device.pci_address, |(link, _)| link).to_owned();
        self.fix(RepairKind::FixLink, &subject, &name.0, degraded);
        self.fix(RepairKind::MoveCard, &subject, &name.0, slot);
    }

    /// A port that should be up: its rate is its own last one, else that of its like on this host.
    fn down(&mut self, name: &PortName, device: &DeviceFacts, port: &PortFacts) {
        let Some(rate) = port.past.or_else(|| self.of_its_like(device)) else {
            self.group(&name.0, device, &port.link_layer).rateless_ports += 1;
            return;
        };
        let sums = self.group(&name.0, device, &port.link_layer);
        sums.installed += rate;
        sums.down += rate;
        let gain = device.path.map_or(rate, |path| path.min(rate));
        self.fix(RepairKind::BringUpPort, &format!("{}/{}", name.0, name.1), &name.0, gain);
    }

    /// The rate that all active ports of the same model on this host have; none when they differ.
    fn of_its_like(&self, device: &DeviceFacts) -> Option<BytesPerSecond> {
        let alike = |name: &str| {
            let other = self.host.devices.get(name);
            other.is_some_and(|other| (&other.hca_type, &other.board) == (&device.hca_type, &device.board))
        };
        let alike = self.host.ports.iter().filter(|((name, _), port)| alike(name) && port.has_wire());
        let mut rates = alike.filter_map(|(_, port)| port.rate);
        let first = rates.next()?;
        rates.all(|rate| (rate.0 - first.0).abs() < NOTHING).then_some(first)
    }

    /// A device that is gone: its ports' last rates.
    fn missing(&mut self, name: &str) {
        let ports = self.host.ports.iter().filter(|((device, _), _)| device == name);
        let rate: BytesPerSecond = ports.clone().filter_map(|(_, port)| port.past).sum();
        // One of which the past knows nothing had a port, too.
        let rateless = if rate.0 > 0.0 { ports.filter(|(_, port)| port.past.is_none()).count() as u64 } else { 1 };
        let sums = self.group(name, &DeviceFacts::default(), "");
        sums.missing_devices += 1;
        sums.rateless_ports += rateless;
        sums.installed += rate;
        sums.missing += rate;
        self.fix(RepairKind::RestoreDevice, name, name, rate);
    }

    fn pf(&mut self, address: &str, pf: &PfFacts) {
        let host = self.host;
        let configured = pf.configured.or(pf.present).unwrap_or(0);
        let held = |kinds: &[&str]| {
            let counts = pf.holders.iter().filter(|(kind, _)| kinds.contains(&&***kind));
            counts.map(|(_, count)| u64::from(*count)).sum::<u64>()
        };
        let (taken, on_host, free) = (held(&["vm", "pod", "netns", "process"]), held(&["host"]), held(&["none"]));
        let vfs = VfSums {
            limit: u64::from(pf.limit.unwrap_or(configured)),
            configured: u64::from(configured),
            held: taken,
            on_host,
            free,
            unknown: u64::from(configured).saturating_sub(taken + on_host + free),
        };
        let owners = host.devices.iter().filter(|(_, device)| device.pci_address == address);
        let owner = owners.map(|(name, device)| (name.clone(), device.clone())).next();
        let (name, device) = owner.unwrap_or_default();
        let of_device = |owner: &String, port: &PortFacts| *owner == name && !name.is_empty() && port.has_wire();
        let ports = || host.ports.iter().filter(|((owner, _), port)| of_device(owner, port));
        let layer = ports().map(|(_, port)| port.link_layer.clone()).next().unwrap_or_default();
        self.group(&name, &device, &layer).vfs += vfs;
        let others = || host.pfs.iter().filter(|(other, _)| *other != address);
        let given_out = others().any(|(_, other)| other.configured.or(other.present).unwrap_or(0) > 0);
        if configured == 0 && pf.limit.is_some_and(|limit| limit > 0) && given_out {
            let usable = ports().filter_map(|(_, port)| port.rate.and(port.share.or(port.ceiling))).sum();
            self.group(&name, &device, &layer).vf_less += usable;
            self.fix(RepairKind::ConfigureVfs, address, &name, usable);
        }
    }

    fn end(mut self) -> HostCapacityReport {
        if self.groups.is_empty() {
            self.group("", &DeviceFacts::default(), "");
        }
        let mut total = Sums::default();
        for sums in self.groups.values_mut() {
            total += *sums;
            sums.hosts = 1;
        }
        total.hosts = 1;
        let id = &self.host.id;
        let fixes = self.fixes.into_iter().map(|((action, subject), (devices, gain))| Repair {
            host: id.clone(),
            action,
            subject,
            devices,
            gain,
        });
        HostCapacityReport { total, groups: self.groups, fixes: fixes.collect(), firmware: self.firmware }
    }
}

/// What tells a host whatever it is called: the node GUIDs of its devices. None when it has none, or when one of them
/// is not set.
pub fn fingerprint(host: &HostFacts) -> Option<BTreeSet<(&str, &str)>> {
    let real = host.devices.values().filter(|device| !device.pci_address.is_empty());
    let guids: BTreeSet<_> = real.map(|device| (&*device.node_guid, card(&device.pci_address))).collect();
    let set = |guid: &str| guid.bytes().any(|byte| byte.is_ascii_hexdigit() && byte != b'0');
    (!guids.is_empty() && guids.iter().all(|(guid, _)| set(guid))).then_some(guids)
}

#[cfg(test)]
#[allow(clippy::float_cmp, reason = "numbers that are exact")]
mod tests {
    use super::*;
    use crate::fleet::client::{Labels, Series};

    /// A host from lines: `family{labels} value`, with labels as `name=value` without quotes.
    fn host(lines: &[&str]) -> HostFacts {
        let mut host = HostFacts::new(HostId([].into()), vec!["r1".to_owned(), String::new()], String::new());
        let mut rows: Vec<(String, Series)> = lines.iter().map(|line| row(line)).collect();
        rows.sort_by_key(|(name, _)| !name.ends_with("_info"));
        for (name, row) in rows {
            match &*name {
                "finding" => host.finding(&row),
                "holders" => host.holder(&row),
                "past" => host.past(&row),
                name if name.ends_with("_info") => host.info(&row),
                _ => host.value(&row),
            }
        }
        host
    }

    fn row(line: &str) -> (String, Series) {
        let (series, value) = line.rsplit_once(' ').unwrap();
        let (name, labels) = series.split_once('{').unwrap();
        let full = format!("lanewatch_{name}");
        let pairs = labels.trim_end_matches('}').split(',').filter_map(|pair| pair.split_once('='));
        let labels: Labels = pairs.chain([("__name__", &*full)]).collect();
        (name.to_owned(), Series { labels, value: value.parse().unwrap() })
    }

    const X16: f64 = 16e9 * 128.0 / 130.0 * 16.0 / 8.0;

    /// A card with one device and one active port of 25 GB/s on a link of this width at 16 GT/s.
    fn card_of(device: &str, address: &str, lanes: f64, share: f64) -> Vec<String> {
        let current = X16 * lanes / 16.0;
        vec![
            format!(
                "device_info{{device={device},pci_address={address},hca_type=MT4123,firmware_version=1.2,function=pf}} 1"
            ),
            format!("port_info{{device={device},port=1,link_layer=InfiniBand}} 1"),
            format!("port_rate_bytes_per_second{{device={device},port=1}} 25000000000"),
            format!("port_share_bytes_per_second{{device={device},port=1}} {share}"),
            format!("pcie_path_info{{device={device},pci_address={address},limiting_pci_address={address}}} 1"),
            format!("pcie_link_current_bandwidth_bytes_per_second{{pci_address={address}}} {current}"),
            format!("pcie_link_capable_bandwidth_bytes_per_second{{pci_address={address}}} {X16}"),
            format!("pcie_link_max_speed_transfers_per_second{{pci_address={address}}} 16000000000"),
            format!("pcie_link_max_width_lanes{{pci_address={address}}} 16"),
        ]
    }

    fn report(cards: &[Vec<String>], more: &[&str]) -> HostCapacityReport {
        let lines: Vec<&str> = cards.iter().flatten().map(String::as_str).chain(more.iter().copied()).collect();
        compute_capacity(&host(&lines), &["rack".to_owned(), "hca_type".to_owned()])
    }

    fn whole(sums: &Sums) {
        let all = sums.usable.0 + sums.stranded().0 + sums.unknown.0;
        assert!((sums.installed.0 - all).abs() < 1.0, "{sums:?}");
    }

    #[test]
    fn a_degraded_link_is_a_fix_with_its_gain() {
        let quarter = X16 / 4.0;
        let good = card_of("mlx5_0", "0000:0a:00.0", 16.0, 25e9);
        let found = report(&[good, card_of("mlx5_1", "0000:0b:00.0", 4.0, quarter)], &[]);
        assert_eq!((found.total.ports, found.total.installed.0, found.total.usable.0), (2, 50e9, 25e9 + quarter));
        assert!((found.total.degraded.0 - (25e9 - quarter)).abs() < 1.0);
        assert_eq!(found.fixes.len(), 1);
        let fix = &found.fixes[0];
        assert_eq!((fix.action, &*fix.subject), (RepairKind::FixLink, "0000:0b:00.0"));
        assert_eq!(found.groups.keys().next().unwrap(), &["r1", "MT4123"]);
        assert_eq!(found.firmware[&(("MT4123".to_owned(), String::new()), "1.2".to_owned())], 2);
        whole(&found.total);
    }

    #[test]
    fn two_functions_of_one_card_share_its_link_and_are_not_counted_twice() {
        let half = X16 / 2.0;
        let (first, mut second) =
            (card_of("mlx5_0", "0000:0a:00.0", 16.0, half), card_of("mlx5_1", "0000:0a:00.1", 16.0, half));
        // One link, named by the lowest function.
        second.retain(|line| !line.starts_with("pcie_link"));
        let found = report(&[first, second], &[]);
        assert!((found.total.usable.0 - X16).abs() < 1.0);
        assert!((found.total.design.0 - (50e9 - X16)).abs() < 1.0);
        assert!(found.fixes.is_empty(), "{:?}", found.fixes);
        whole(&found.total);
    }

    #[test]
    fn an_uplink_that_the_metrics_do_not_show_goes_by_the_finding() {
        let share = 25e9 / 2.0;
        let cards = [card_of("mlx5_0", "0000:0a:00.0", 16.0, share), card_of("mlx5_1", "0000:0b:00.0", 16.0, share)];
        let found =
            report(&cards, &["finding{check=pcie_below_port_rate,reason=link_degraded,device=mlx5_0,port=1} 1"]);
        assert_eq!((found.total.degraded.0, found.total.unknown.0), (share, share));
        assert_eq!(found.fixes.len(), 1);
        whole(&found.total);
    }

    #[test]
    fn a_port_that_should_be_up_has_its_last_rate_or_that_of_its_like() {
        let down = [
            "device_info{device=mlx5_1,pci_address=0000:0b:00.0,hca_type=MT4123} 1",
            "port_info{device=mlx5_1,port=1} 1",
            "pcie_path_bandwidth_bytes_per_second{device=mlx5_1,pci_address=0000:0b:00.0} 8000000000",
        ];
        let finding = "finding{check=port_down,reason=link_down,device=mlx5_1,port=1} 1";
        let good = [card_of("mlx5_0", "0000:0a:00.0", 16.0, 25e9)];
        let never = report(&good, &down);
        assert_eq!((never.total.ports, never.total.down_ports, never.total.installed.0), (2, 0, 25e9));
        let [first, second, third] = down;
        let like = report(&good, &[first, second, third, finding]);
        assert_eq!((like.total.down_ports, like.total.down.0), (1, 25e9));
        assert_eq!(like.fixes[0].gain.0, 8e9, "what its path carries");
        let past = report(&good, &[first, second, third, finding, "past{device=mlx5_1,port=1} 5000000000"]);
        assert_eq!((past.total.down.0, past.fixes[0].gain.0), (5e9, 5e9));
        let alone = report(&[], &[first, second, third, finding]);
        assert_eq!((alone.total.down_ports, alone.total.rateless_ports, alone.total.installed.0), (1, 1, 0.0));
        whole(&past.total);
    }

    #[test]
    fn a_device_that_is_gone_is_worth_its_past() {
        let finding = "finding{check=device_missing,reason=gone,device=mlx5_9} 1";
        let found = report(&[], &[finding, "past{device=mlx5_9,port=1} 12500000000"]);
        assert_eq!((found.total.missing_devices, found.total.missing.0, found.total.ports), (1, 12.5e9, 0));
        assert_eq!(found.fixes[0].action, RepairKind::RestoreDevice);
        assert_eq!(report(&[], &[finding]).total.rateless_ports, 1);
    }

    #[test]
    fn vfs_by_who_holds_them_and_a_pf_without_any_on_a_host_that_gives_them_out() {
        let cards = [card_of("mlx5_0", "0000:0a:00.0", 16.0, 25e9), card_of("mlx5_1", "0000:0b:00.0", 16.0, 25e9)];
        let pfs = [
            "sriov_vfs{pf=0000:0a:00.0,kind=configured} 8",
            "sriov_vfs{pf=0000:0a:00.0,kind=present} 8",
            "sriov_vfs_limit{pf=0000:0a:00.0} 16",
            "sriov_vfs{pf=0000:0b:00.0,kind=configured} 0",
            "sriov_vfs_limit{pf=0000:0b:00.0} 16",
            "holders{pf=0000:0a:00.0,holder_kind=vm} 3",
            "holders{pf=0000:0a:00.0,holder_kind=pod} 1",
            "holders{pf=0000:0a:00.0,holder_kind=host} 1",
            "holders{pf=0000:0a:00.0,holder_kind=none} 2",
        ];
        let found = report(&cards, &pfs);
        let expected = VfSums { limit: 32, configured: 8, held: 4, on_host: 1, free: 2, unknown: 1 };
        assert_eq!(found.total.vfs, expected);
        assert_eq!((found.total.vf_less.0, found.total.usable.0), (25e9, 50e9));
        assert_eq!((found.fixes[0].action, &*found.fixes[0].subject), (RepairKind::ConfigureVfs, "0000:0b:00.0"));
        // Where nobody gives out VFs, none is missed.
        assert_eq!(report(&cards, &pfs[3..5]).total.vf_less.0, 0.0);
        whole(&found.total);
    }

    #[test]
    fn a_bond_is_one_device_with_the_rate_of_all_its_ports() {
        let mut bond = card_of("mlx5_bond_0", "0000:0a:00.0", 16.0, 25e9);
        bond.push("sriov_vfs{pf=0000:0a:00.1,kind=configured} 0".to_owned());
        let found = report(&[bond], &[]);
        assert_eq!((found.total.devices, found.total.installed.0, found.total.usable.0), (1, 25e9, 25e9));
    }

    #[test]
    fn software_devices_and_vfs_add_nothing() {
        let lines = [
            "device_info{device=rxe0,pci_address=,function=none} 1",
            "port_info{device=rxe0,port=1} 1",
            "port_rate_bytes_per_second{device=rxe0,port=1} 1000000000",
            "port_rate_bytes_per_second{device=mlx5_7,port=1} 25000000000",
        ];
        let found = report(&[], &lines);
        assert_eq!(
            (found.total.hosts, found.total.devices, found.total.ports, found.total.installed.0),
            (1, 0, 0, 0.0)
        );
    }

    #[test]
    fn a_path_that_is_not_known_is_neither_usable_nor_stranded() {
        let mut card = card_of("mlx5_0", "0000:0a:00.0", 16.0, 25e9);
        card.retain(|line| !line.contains("share"));
        let found = report(&[card], &[]);
        assert_eq!((found.total.unknown.0, found.total.usable.0), (25e9, 0.0));
        whole(&found.total);
    }

    #[test]
    fn hosts_are_known_by_their_guids() {
        let of = |guid: &str| host(&[&format!("device_info{{device=a,pci_address=0000:0a:00.0,node_guid={guid}}} 1")]);
        assert!(fingerprint(&of("0011:2233:4455:6677")).is_some());
        assert!(fingerprint(&of("0000:0000:0000:0000")).is_none() && fingerprint(&of("")).is_none());
        assert_eq!(fingerprint(&of("0011:2233:4455:6677")), fingerprint(&of("0011:2233:4455:6677")));
    }
}
