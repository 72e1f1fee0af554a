//! Adds hosts up into a fleet. What is kept is bounded: sums by group, models, and the longest entries of lists.

use std::collections::BTreeMap;

use super::cables::Cable;
use super::facts::HostId;
use super::host::{HostCapacityReport, Model, Repair, Sums};
use crate::model::units::{BytesPerSecond, total};

/// A host in a list.
#[derive(Debug, Clone, PartialEq)]
pub struct HostSums {
    /// Which.
    pub id: HostId,
    /// Its labels, in the order of the fleet's grouping.
    pub group: Vec<String>,
    /// Its sums.
    pub sums: Sums,
}

/// Most excluded hosts that are kept by name; the others are counted.
const MOST_NAMES: usize = 10_000;

/// Hosts that are not in the sums.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ExcludedHosts {
    /// How many.
    pub count: u64,
    /// Which; the first 10,000 of them.
    pub first: Vec<HostId>,
}

impl ExcludedHosts {
    /// Adds a host.
    pub fn add(&mut self, host: HostId) {
        self.count += 1;
        if self.first.len() < MOST_NAMES {
            self.first.push(host);
        }
    }
}

/// Devices of one model and firmware.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FirmwareCount {
    /// Devices.
    pub devices: u64,
    /// Hosts that have such a device.
    pub hosts: u64,
}

/// A model with the firmwares that it runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelFirmware(pub BTreeMap<String, FirmwareCount>);

impl ModelFirmware {
    /// The firmware that most of its devices run.
    pub fn usual(&self) -> Option<&str> {
        let most = self.0.iter().max_by(|(a, x), (b, y)| x.devices.cmp(&y.devices).then_with(|| b.cmp(a)));
        most.map(|(firmware, _)| &**firmware)
    }

    /// Devices that run another one than most.
    pub fn skewed(&self) -> u64 {
        let usual = self.usual();
        let others = self.0.iter().filter(|(firmware, _)| Some(&***firmware) != usual);
        total(others.map(|(_, count)| count.devices))
    }
}

/// The fleet.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Fleet {
    /// The moment it is of, in seconds since 1970.
    pub time: f64,
    /// The labels that tell hosts apart.
    pub identity: Vec<String>,
    /// The labels that it is grouped by.
    pub by: Vec<String>,
    /// All of it.
    pub total: Sums,
    /// By group.
    pub groups: BTreeMap<Vec<String>, Sums>,
    /// Models.
    pub models: BTreeMap<Model, ModelFirmware>,
    /// Hosts with most that can be won back first, then those with most stranded by design.
    pub worst: Vec<HostSums>,
    /// What gives most back, most first.
    pub fixes: Vec<Repair>,
    /// How many fixes there are, and what all of them give back.
    pub all_fixes: (u64, BytesPerSecond),
    /// The worst cables between two hosts, those that lose data first.
    pub cables: Vec<Cable>,
    /// Hosts that cannot be scraped.
    pub unreachable: ExcludedHosts,
    /// Hosts whose agent no longer looks.
    pub stale: ExcludedHosts,
    /// Hosts that are there under another name as well.
    pub duplicate: ExcludedHosts,
}

impl Fleet {
    /// Adds a host. Of the lists at most `top` entries are kept.
    pub fn add(&mut self, id: &HostId, group: &[String], report: HostCapacityReport, top: usize) {
        self.total += report.total;
        for (group, sums) in report.groups {
            *self.groups.entry(group).or_default() += sums;
        }
        for ((model, firmware), devices) in report.firmware {
            let count = self.models.entry(model).or_default().0.entry(firmware).or_default();
            count.devices += devices;
            count.hosts += 1;
        }
        let sums = report.total;
        if sums.stranded().0 > 1.0 || sums.down_ports + sums.missing_devices > 0 {
            self.worst.push(HostSums { id: id.clone(), group: group.to_vec(), sums });
        }
        for fix in report.fixes {
            self.all_fixes.0 += 1;
            self.all_fixes.1 += fix.gain;
            self.fixes.push(fix);
        }
        if self.worst.len() > top.saturating_mul(2).max(64) {
            self.order_worst(top);
        }
        if self.fixes.len() > top.saturating_mul(2).max(64) {
            self.order_fixes(top);
        }
    }

    /// Puts the lists in their order.
    pub fn finish(&mut self, top: usize) {
        self.order_worst(top);
        self.order_fixes(top);
    }

    fn order_worst(&mut self, top: usize) {
        // A design is no fault of the host: it comes after all that can be fixed.
        let recoverable = |line: &HostSums| line.sums.recoverable().0;
        let stranded = |line: &HostSums| line.sums.stranded().0;
        self.worst.sort_by(|a, b| {
            let by_all = || stranded(b).total_cmp(&stranded(a)).then_with(|| a.id.cmp(&b.id));
            recoverable(b).total_cmp(&recoverable(a)).then_with(by_all)
        });
        self.worst.truncate(top);
    }

    fn order_fixes(&mut self, top: usize) {
        let key = |fix: &Repair| (fix.host.clone(), fix.action, fix.subject.clone());
        self.fixes.sort_by(|a, b| b.gain.0.total_cmp(&a.gain.0).then_with(|| key(a).cmp(&key(b))));
        self.fixes.truncate(top);
    }
}

#[cfg(test)]
#[allow(clippy::float_cmp, reason = "numbers that are exact")]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::fleet::host::RepairKind;

    fn host(number: u32, stranded: f64) -> (HostId, HostCapacityReport) {
        let id = HostId([format!("n{number}").into()].into());
        let total = Sums { hosts: 1, degraded: BytesPerSecond(stranded), ..Sums::default() };
        let fix = Repair {
            host: id.clone(),
            action: RepairKind::FixLink,
            subject: "0000:0a:00.0".to_owned(),
            devices: BTreeSet::new(),
            gain: BytesPerSecond(stranded),
        };
        let groups = BTreeMap::from([(vec![format!("r{}", number % 2)], total)]);
        let firmware = BTreeMap::from([((("MT1".to_owned(), String::new()), format!("{}", number % 3 / 2)), 2)]);
        (id, HostCapacityReport { total, groups, fixes: vec![fix], firmware })
    }

    #[test]
    fn lists_keep_the_most_whatever_the_order_of_hosts() {
        let mut fleet = Fleet::default();
        for number in 0..1000u32 {
            let (id, report) = host(number, f64::from(number * 7919 % 1000) * 1e6 + 2.0);
            fleet.add(&id, &[], report, 3);
            assert!(fleet.worst.len() <= 65 && fleet.fixes.len() <= 65);
        }
        fleet.finish(3);
        let gains: Vec<f64> = fleet.fixes.iter().map(|fix| fix.gain.0 - 2.0).collect();
        assert_eq!(gains, [999e6, 998e6, 997e6]);
        assert_eq!(fleet.worst[0].sums.degraded.0, 999e6 + 2.0);
        assert_eq!((fleet.all_fixes.0, fleet.total.hosts), (1000, 1000));
        assert_eq!(fleet.groups[&vec!["r1".to_owned()]].hosts, 500);
        let model = &fleet.models[&("MT1".to_owned(), String::new())];
        assert_eq!((model.usual(), model.skewed()), (Some("0"), 2 * 333));
    }
}
