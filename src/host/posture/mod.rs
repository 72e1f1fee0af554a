//! How the host is set up: IOMMU, kernel arguments, virtualization, namespaces, CPUs, huge pages, drivers.

mod isolation;
mod machine;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::collector::{Collector, Filter, Found, Lane, Pass, Setup, Spec};
use super::file::Watched;
use super::function::{Attached, Census};
use super::netlink::nldev;
use super::netlink::socket::{self, Connect};
use super::text;
use crate::model::ids::PciAddress;
use crate::model::posture::{PciIsolation, Posture};
use crate::model::reading::{ReadError, Reading};
use crate::model::snapshot::Fact;
use crate::model::time::BootTime;

/// The collector of the host's setup.
pub const SPEC: Spec = Spec {
    name: "posture",
    about: "How the host is set up for RDMA and pass-through: IOMMU, kernel arguments, namespaces, CPUs, huge pages",
    interval: Duration::from_secs(60),
    deadline: Duration::from_secs(5),
    fresh: false,
    make: |setup| Box::new(Setups::new(setup, setup.host.live.then(socket::kernel))),
};

/// Names of kernel arguments that matter, up to their `=`.
const ARGUMENTS: [&str; 17] = [
    "intel_iommu",
    "amd_iommu",
    "iommu",
    "iommu.passthrough",
    "iommu.strict",
    "pci",
    "pcie_aspm",
    "pcie_acs_override",
    "vfio_iommu_type1.allow_unsafe_interrupts",
    "isolcpus",
    "nohz_full",
    "default_hugepagesz",
    "hugepagesz",
    "hugepages",
    "intel_idle.max_cstate",
    "processor.max_cstate",
    "numa_balancing",
];

/// Drivers whose version is asked for.
const DRIVERS: [&str; 8] = ["mlx5_core", "mlx5_ib", "ib_core", "ice", "irdma", "bnxt_en", "bnxt_re", "efa"];

/// How long what keeps functions apart stands.
const ISOLATION: Duration = Duration::from_secs(30 * 60);

/// CPU frequency policies that are read; a host has one for each CPU.
const MOST_POLICIES: usize = 1024;

struct Setups {
    filter: Filter,
    connect: Option<Connect>,
}

impl Setups {
    fn new(setup: &Setup, connect: Option<Connect>) -> Self {
        Self { filter: setup.filter.clone(), connect }
    }
}

impl Collector for Setups {
    fn discover(&mut self, _: &mut Pass<'_>) -> Result<Vec<Found>, ReadError> {
        Ok(vec![Found { key: Arc::from("host"), device: None }])
    }

    fn open(&mut self, _: &Found) -> Box<dyn Lane> {
        let (filter, connect) = (self.filter.clone(), self.connect.clone());
        Box::new(Whole { filter, connect, isolation: Vec::new(), of: Vec::new(), isolation_until: None })
    }
}

struct Whole {
    filter: Filter,
    connect: Option<Connect>,
    /// What keeps functions apart, the functions that it was read of, and until when it stands.
    isolation: Vec<PciIsolation>,
    of: Vec<PciAddress>,
    isolation_until: Option<BootTime>,
}

impl Lane for Whole {
    /// Nothing for a host that says nothing.
    fn read(&mut self, pass: &mut Pass<'_>) -> Vec<Fact> {
        let devices = Census::take(pass, &self.filter).map(|census| census.allowed).unwrap_or_default();
        let functions = devices.iter().map(|device| (device.address, device.function.clone())).collect();
        let groups = groups(pass, &functions);
        let posture = Posture {
            virtualization: machine::virtualization(pass),
            iommu: iommu(pass, &groups, !devices.is_empty()),
            iommu_groups: groups,
            ari: ari(pass, &functions),
            arguments: arguments(pass),
            rdma_netns_mode: self.netns_mode(),
            foreign_netns: foreign_netns(pass),
            governors: governors(pass),
            numa_balancing: line(pass, pass.host.procfs.join("sys/kernel/numa_balancing"), text::counter)
                .map(|on| on != 0),
            hugepages: hugepages(pass),
            driver_versions: driver_versions(pass),
        };
        let isolation = self.isolation(pass, &devices);
        let mut facts: Vec<Fact> = isolation.iter().map(|isolation| Arc::new(*isolation) as Fact).collect();
        if posture != Posture::default() {
            facts.push(Arc::new(posture));
        }
        facts
    }
}

impl Whole {
    /// Read anew when there are other functions, and seldom: each read asks hardware.
    fn isolation(&mut self, pass: &mut Pass<'_>, devices: &[Attached]) -> &[PciIsolation] {
        let of: Vec<PciAddress> = devices.iter().map(|device| device.address).collect();
        if self.isolation_until.is_none_or(|until| pass.now >= until) || self.of != of {
            self.isolation = isolation::read(pass, devices);
            (self.of, self.isolation_until) = (of, Some(pass.now.after(ISOLATION)));
        }
        &self.isolation
    }

    /// Asked anew each time: once a minute is not worth a socket.
    fn netns_mode(&self) -> Option<&'static str> {
        let replies = (self.connect.as_ref()?)().ok()?.ask(&nldev::system_request()).ok()?;
        let shared = nldev::system(replies.first()?).shared?;
        Some(if shared { "shared" } else { "exclusive" })
    }
}

/// One file, read once.
fn line<T>(pass: &mut Pass<'_>, path: PathBuf, parse: impl FnOnce(&[u8]) -> Reading<T>) -> Option<T> {
    Watched::new(path).read(pass, parse).value()
}

/// The types of the functions' IOMMU groups; a group that does not say has an empty one.
fn groups(pass: &mut Pass<'_>, functions: &BTreeMap<PciAddress, PathBuf>) -> BTreeMap<PciAddress, Arc<str>> {
    let mut groups = BTreeMap::new();
    for (address, directory) in functions {
        let group = directory.join("iommu_group");
        if pass.host.io.stamp(&group).is_ok() {
            let kind = line(pass, group.join("type"), text::label).unwrap_or_else(|| Arc::from(""));
            groups.insert(*address, kind);
        }
    }
    groups
}

/// Which of the functions say that ARI is on, or off.
fn ari(pass: &mut Pass<'_>, functions: &BTreeMap<PciAddress, PathBuf>) -> BTreeMap<PciAddress, bool> {
    let mut flag = |(address, directory): (&PciAddress, &PathBuf)| {
        Some((*address, line(pass, directory.join("ari_enabled"), text::counter)? != 0))
    };
    functions.iter().filter_map(&mut flag).collect()
}

/// Nothing where the host does not show that it could have one.
fn iommu(pass: &mut Pass<'_>, groups: &BTreeMap<PciAddress, Arc<str>>, watched: bool) -> Option<Arc<str>> {
    let mut kinds = groups.values();
    if let Some(first) = kinds.next() {
        let word = if kinds.any(|kind| kind != first) { "mixed" } else { first };
        return Some(Arc::from(if word.is_empty() { "on" } else { word }));
    }
    let listed = pass.host.io.list(&pass.host.sysfs.join("kernel/iommu_groups")).ok()?;
    let on = !listed.is_empty();
    (!on || !watched).then(|| Arc::from(if on { "on" } else { "off" }))
}

fn arguments(pass: &mut Pass<'_>) -> Vec<Arc<str>> {
    let path = pass.host.procfs.join("cmdline");
    let known = |argument: &&str| {
        let name = argument.split_once('=').map_or(*argument, |(name, _)| name);
        ARGUMENTS.contains(&name)
    };
    let matching = |text: &str| text.split_ascii_whitespace().filter(known).map(Arc::from).collect();
    line(pass, path, |bytes| text::parsed(bytes, |text| Some(matching(text)))).unwrap_or_default()
}

/// Compares the agent's network namespace with the first process's; none where either cannot be seen.
fn foreign_netns(pass: &Pass<'_>) -> Option<bool> {
    let netns = |process: &str| pass.host.io.link(&pass.host.procfs.join(process).join("ns/net")).ok();
    // Of a recorded host these links would be the reader's.
    if pass.host.live { Some(netns("self")? != netns("1")?) } else { None }
}

fn governors(pass: &mut Pass<'_>) -> BTreeMap<Arc<str>, usize> {
    let directory = pass.host.sysfs.join("devices/system/cpu/cpufreq");
    let names = pass.host.io.list(&directory).unwrap_or_default();
    let mut governors = BTreeMap::new();
    for name in names.iter().filter(|name| name.starts_with("policy")).take(MOST_POLICIES) {
        if let Some(governor) = line(pass, directory.join(name).join("scaling_governor"), text::label) {
            *governors.entry(governor).or_default() += 1;
        }
    }
    governors
}

/// `hugepages-2048kB/{nr_hugepages,free_hugepages}`.
fn hugepages(pass: &mut Pass<'_>) -> BTreeMap<u64, (u64, u64)> {
    let directory = pass.host.sysfs.join("kernel/mm/hugepages");
    let names = pass.host.io.list(&directory).unwrap_or_default();
    let mut pages = BTreeMap::new();
    for name in names {
        let size = name.strip_prefix("hugepages-").and_then(|size| size.strip_suffix("kB"));
        let Some(size) = size.and_then(|size| text::parse_decimal(size.as_bytes())) else { continue };
        let mut count = |file: &str| line(pass, directory.join(&name).join(file), text::counter);
        if let Some(counts) = count("nr_hugepages").zip(count("free_hugepages")) {
            pages.insert(size, counts);
        }
    }
    pages
}

fn driver_versions(pass: &mut Pass<'_>) -> BTreeMap<Arc<str>, Arc<str>> {
    let version = |name: &&str| {
        let path = pass.host.sysfs.join("module").join(name).join("version");
        Some((Arc::from(*name), line(pass, path, text::label)?))
    };
    DRIVERS.iter().filter_map(version).collect()
}

/// The first bytes of a file that may be long.
fn beginning(pass: &mut Pass<'_>, path: &Path) -> Option<String> {
    let length = pass.host.io.open(path).and_then(|mut file| file.read(&mut pass.buffer[..])).ok()?;
    Some(String::from_utf8_lossy(pass.buffer.get(..length)?).into_owned())
}
