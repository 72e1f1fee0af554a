//! A simulated fleet: hosts of the kinds that a real fleet has, with planted faults, as a time series database takes
//! them in. The series of each kind are what the program itself writes of such a host; a fleet repeats them with other
//! names and GUIDs.

mod kinds;
mod verdict;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::Path;

use tempfile::TempDir;

pub use kinds::{CheckResult, Kind, Truth, kinds};
pub use verdict::agree;

use super::run::lanewatch;
use super::tree::Tree;

/// The families that an audit asks about: what a large fleet is written with.
pub const AUDITED: &[&str] = &[
    "lanewatch_build_info",
    "lanewatch_device_info",
    "lanewatch_evaluation_timestamp_seconds",
    "lanewatch_finding",
    "lanewatch_pcie_link_capable_bandwidth_bytes_per_second",
    "lanewatch_pcie_link_current_bandwidth_bytes_per_second",
    "lanewatch_pcie_link_max_speed_transfers_per_second",
    "lanewatch_pcie_link_max_width_lanes",
    "lanewatch_pcie_path_bandwidth_bytes_per_second",
    "lanewatch_pcie_path_info",
    "lanewatch_port_ceiling_bytes_per_second",
    "lanewatch_port_info",
    "lanewatch_port_rate_bytes_per_second",
    "lanewatch_port_share_bytes_per_second",
    "lanewatch_sriov_vfs",
    "lanewatch_sriov_vfs_limit",
    "lanewatch_vf_holder_info",
    "lanewatch_wire_rate_bytes_per_second",
];

/// A host of the fleet.
#[derive(Debug, Clone, Copy)]
pub struct Host {
    /// Its number.
    pub number: usize,
    /// Its kind.
    pub kind: usize,
}

/// A fleet.
pub struct Fleet {
    /// Its kinds, with their series.
    pub kinds: Vec<(Kind, Pages)>,
    /// Its hosts.
    pub hosts: Vec<Host>,
    /// The moment it is of, in seconds since 1970.
    pub time: u64,
}

/// The series of a kind: lines without comments, and those of the past that are no longer there.
pub struct Pages {
    /// As it is.
    pub now: Vec<String>,
    /// Rates of ports that are down or gone now.
    pub past: Vec<String>,
}

/// How long before the fleet's time the past is, in seconds.
pub const PAST: u64 = 6 * 3600;

/// The form in which a database takes a fleet in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// OpenMetrics, for `promtool tsdb create-blocks-from openmetrics`: timestamps in seconds, with an end.
    OpenMetrics,
    /// Prometheus' text format with timestamps in milliseconds, for VictoriaMetrics' import.
    Text,
}

impl Fleet {
    /// So many hosts, every kind at least once; the same each time.
    pub fn new(size: usize, time: u64) -> Self {
        let kinds: Vec<(Kind, Pages)> = kinds()
            .into_iter()
            .map(|kind| {
                let pages = Pages::of(&kind);
                (kind, pages)
            })
            .collect();
        assert!(size >= kinds.len(), "a fleet has every kind of host");
        let mut seed = 17;
        let hosts = (0..size).map(|number| {
            let kind = if number < kinds.len() { number } else { pick(&kinds, below(&mut seed, 10_000)) };
            // Scattered over sites and racks.
            Host { number: (number * 7919) % size.next_power_of_two().max(8192), kind }
        });
        let hosts: Vec<Host> = hosts.collect();
        assert_eq!(hosts.iter().map(|host| host.number).collect::<BTreeSet<_>>().len(), size, "numbers are unique");
        Self { kinds, hosts, time }
    }

    /// The kind of a host.
    pub fn kind(&self, host: &Host) -> &Kind {
        &self.kinds[host.kind].0
    }

    /// Writes it. `families` are the names that are written; all when none.
    pub fn write(&self, out: &mut impl Write, form: Form, families: Option<&[&str]>) -> io::Result<usize> {
        let wanted = |line: &&String| families.is_none_or(|names| names.contains(&name(line)));
        let stamp = |seconds: u64| match form {
            Form::OpenMetrics => seconds.to_string(),
            Form::Text => (seconds * 1000).to_string(),
        };
        let (now, past) = (stamp(self.time - 1), stamp(self.time - PAST));
        let mut samples = 0;
        for host in &self.hosts {
            let (kind, pages) = &self.kinds[host.kind];
            for labels in labels(host, kind.standing) {
                let up = u8::from(kind.standing != CheckResult::Dead);
                writeln!(out, "up{{{labels}}} {up} {now}")?;
                samples += 1;
                if kind.standing == CheckResult::Dead {
                    continue;
                }
                for line in pages.past.iter().filter(wanted) {
                    writeln!(out, "{} {past}", own(line, &labels, host.number))?;
                }
                for line in pages.now.iter().filter(wanted) {
                    if name(line) == "lanewatch_evaluation_timestamp_seconds" {
                        let age = if kind.standing == CheckResult::Stale { 3600 } else { 5 };
                        writeln!(out, "{}{{{labels}}} {} {now}", name(line), self.time - age)?;
                    } else {
                        writeln!(out, "{} {now}", own(line, &labels, host.number))?;
                    }
                }
                samples += pages.now.iter().filter(wanted).count() + pages.past.iter().filter(wanted).count();
            }
        }
        if form == Form::OpenMetrics {
            writeln!(out, "# EOF")?;
        }
        Ok(samples)
    }
}

impl Pages {
    fn of(kind: &Kind) -> Self {
        let state = TempDir::new().unwrap();
        let mut past = Vec::new();
        if let Some(before) = &kind.before {
            past = look(before, state.path());
            let directory = written(before);
            let root = directory.path().display().to_string();
            let state = state.path().display().to_string();
            let output = lanewatch(&["baseline", "accept", "--path.rootfs", &root, "--storage.path", &state]);
            assert_eq!(output.code, Some(0), "{}", output.stderr);
        }
        let now = look(&kind.tree, state.path());
        let series = |line: &String| line.rsplit_once(' ').map(|(series, _)| series.to_owned());
        let there: BTreeSet<_> = now.iter().map(series).collect();
        past.retain(|line| name(line) == "lanewatch_wire_rate_bytes_per_second" && !there.contains(&series(line)));
        Self { now, past }
    }
}

fn written(tree: &Tree) -> TempDir {
    let directory = TempDir::new().unwrap();
    tree.write(directory.path()).unwrap();
    directory
}

/// What the program writes of a host.
fn look(tree: &Tree, state: &Path) -> Vec<String> {
    let directory = written(tree);
    let (root, state) = (directory.path().display().to_string(), state.display().to_string());
    let output = lanewatch(&["metrics", "--path.rootfs", &root, "--storage.path", &state]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    output.stdout.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
}

/// The name of a series.
pub fn name(line: &str) -> &str {
    line.split(['{', ' ']).next().unwrap_or_default()
}

/// A line with the labels of its target, and with GUIDs that no other host has.
pub fn own(line: &str, labels: &str, number: usize) -> String {
    let guid = format!("b83f:{:04x}:", 0x1000 + number);
    let line = line.replace("b83f:d203:", &guid);
    match line.split_once('{') {
        _ if labels.is_empty() => line,
        Some((name, rest)) => format!("{name}{{{labels},{rest}"),
        None => {
            let (name, value) = line.split_once(' ').unwrap_or_default();
            format!("{name}{{{labels}}} {value}")
        }
    }
}

/// The site of a host.
pub fn site(number: usize) -> &'static str {
    ["ams", "fra", "iad"][number % 3]
}

/// The name under which a host is scraped.
pub fn instance(number: usize) -> String {
    format!("h{number:05}.example:10015")
}

/// The labels of a host's targets: one, or two for a host that is there twice.
pub fn labels(host: &Host, standing: CheckResult) -> Vec<String> {
    let place = format!("site=\"{}\",rack=\"r{:03}\"", site(host.number), host.number / 32);
    let mut all = vec![format!("job=\"lanewatch\",instance=\"{}\",{place}", instance(host.number))];
    // Scraped by two servers that one queries together, such as a pair that Thanos does not deduplicate.
    if host.number.is_multiple_of(16) {
        let twin = format!("{},prometheus=\"b\"", all[0]);
        all.push(twin);
    }
    if standing == CheckResult::Twice {
        all.push(format!("job=\"lanewatch\",instance=\"z{:05}:10015\",{place}", host.number));
    }
    all
}

fn pick(kinds: &[(Kind, Pages)], mut at: u64) -> usize {
    for (index, (kind, _)) in kinds.iter().enumerate() {
        match at.checked_sub(kind.weight) {
            Some(rest) => at = rest,
            None => return index,
        }
    }
    unreachable!("weights add up to 10,000")
}

/// A number below a limit, that follows from a seed (splitmix64).
fn below(seed: &mut u64, limit: u64) -> u64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *seed;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)) % limit
}

/// What is to be found in a part of the fleet.
#[derive(Debug, Clone, Default)]
pub struct Planted {
    /// Hosts.
    pub hosts: u64,
    /// The truths of all of them, added up.
    pub truth: Truth,
}

impl Fleet {
    /// What is to be found on the hosts that suit.
    pub fn planted(&self, suits: impl Fn(&Host) -> bool) -> Planted {
        let mut sum = Planted::default();
        for host in self.hosts.iter().filter(|host| suits(host)) {
            let kind = self.kind(host);
            if matches!(kind.standing, CheckResult::Dead | CheckResult::Stale) {
                continue;
            }
            let (truth, more) = (&mut sum.truth, &kind.truth);
            sum.hosts += 1;
            truth.devices += more.devices;
            truth.ports.iter_mut().zip(more.ports).for_each(|(sum, part)| *sum += part);
            truth.vfs.iter_mut().zip(more.vfs).for_each(|(sum, part)| *sum += part);
            truth.stranded.iter_mut().zip(more.stranded).for_each(|(sum, part)| *sum += part);
            truth.installed += more.installed;
            truth.usable += more.usable;
            truth.vf_less += more.vf_less;
        }
        sum
    }

    /// How many hosts have this standing.
    pub fn count(&self, standing: CheckResult) -> u64 {
        self.hosts.iter().filter(|host| self.kind(host).standing == standing).count() as u64
    }

    /// Everything to do: instance, action, subject, and what it gives back in Gb/s.
    pub fn fixes(&self) -> BTreeMap<(String, String, String), f64> {
        let of = |host: &Host| {
            let fixes = self.kind(host).truth.fixes.iter();
            let name = instance(host.number);
            fixes
                .map(move |(action, subject, gain)| (((name.clone()), (*action).to_owned(), subject.clone()), *gain))
                .collect::<Vec<_>>()
        };
        self.hosts.iter().flat_map(of).collect()
    }

    /// Devices by type and firmware.
    pub fn firmware(&self) -> BTreeMap<(String, String), u64> {
        let mut counts = BTreeMap::new();
        for host in &self.hosts {
            let kind = self.kind(host);
            if !matches!(kind.standing, CheckResult::Dead | CheckResult::Stale) && kind.truth.devices > 0 {
                *counts.entry((kind.model.0.to_owned(), kind.model.1.to_owned())).or_default() += kind.truth.devices;
            }
        }
        counts
    }
}
