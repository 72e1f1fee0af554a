//! How the host is set up: IOMMU, kernel arguments, virtualization, namespaces, CPUs, huge pages, drivers.

mod isolation;
mod machine;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::collector::{Collector, DeviceReader, Discovered, Filter, ReadContext, Setup, Spec};
use super::file::PolledFile;
use super::function::{DeviceFunction, DeviceInventory};
use super::netlink::nldev;
use super::netlink::socket::{self, NetlinkConnector};
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
    make: |setup| Box::new(PostureCollector::new(setup, setup.host.live.then(socket::kernel))),
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

struct PostureCollector {
    filter: Filter,
    connect: Option<NetlinkConnector>,
}

impl PostureCollector {
    fn new(setup: &Setup, connect: Option<NetlinkConnector>) -> Self {
        Self { filter: setup.filter.clone(), connect }
    }
}

impl Collector for PostureCollector {
    fn discover(&mut self, _: &mut ReadContext<'_>) -> Result<Vec<Discovered>, ReadError> {
        Ok(vec![Discovered { key: Arc::from("host"), device: None }])
    }

    fn open(&mut self, _: &Discovered) -> Box<dyn DeviceReader> {
        let (filter, connect) = (self.filter.clone(), self.connect.clone());
        Box::new(PostureReader { filter, connect, isolation: Vec::new(), of: Vec::new(), isolation_until: None })
    }
}

struct PostureReader {
    filter: Filter,
    connect: Option<NetlinkConnector>,
    /// What keeps functions apart, the functions that it was read of, and until when it stands.
    isolation: Vec<PciIsolation>,
    of: Vec<PciAddress>,
    isolation_until: Option<BootTime>,
}

impl DeviceReader for PostureReader {
    /// Nothing for a host that says nothing.
    fn read(&mut self, cx: &mut ReadContext<'_>) -> Vec<Fact> {
        let devices = DeviceInventory::read(cx, &self.filter).map(|inventory| inventory.allowed).unwrap_or_default();
        let functions = devices.iter().map(|device| (device.address, device.function.clone())).collect();
        let groups = groups(cx, &functions);
        let posture = Posture {
            virtualization: machine::virtualization(cx),
            iommu: iommu(cx, &groups, !devices.is_empty()),
            iommu_groups: groups,
            ari: ari(cx, &functions),
            arguments: arguments(cx),
            rdma_netns_mode: self.netns_mode(),
            foreign_netns: foreign_netns(cx),
            governors: governors(cx),
            numa_balancing: line(cx, cx.host.procfs.join("sys/kernel/numa_balancing"), text::counter).map(|on| on != 0),
            hugepages: hugepages(cx),
            driver_versions: driver_versions(cx),
        };
        let isolation = self.isolation(cx, &devices);
        let mut facts: Vec<Fact> = isolation.iter().map(|isolation| Arc::new(*isolation) as Fact).collect();
        if posture != Posture::default() {
            facts.push(Arc::new(posture));
        }
        facts
    }
}

impl PostureReader {
    /// Read anew when there are other functions, and seldom: each read asks hardware.
    fn isolation(&mut self, cx: &mut ReadContext<'_>, devices: &[DeviceFunction]) -> &[PciIsolation] {
        let of: Vec<PciAddress> = devices.iter().map(|device| device.address).collect();
        if self.isolation_until.is_none_or(|until| cx.now >= until) || self.of != of {
            self.isolation = isolation::read(cx, devices);
            (self.of, self.isolation_until) = (of, Some(cx.now.after(ISOLATION)));
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
fn line<T>(cx: &mut ReadContext<'_>, path: PathBuf, parse: impl FnOnce(&[u8]) -> Reading<T>) -> Option<T> {
    PolledFile::new(path).read(cx, parse).value()
}

/// The types of the functions' IOMMU groups; a group that does not say has an empty one.
fn groups(cx: &mut ReadContext<'_>, functions: &BTreeMap<PciAddress, PathBuf>) -> BTreeMap<PciAddress, Arc<str>> {
    let mut groups = BTreeMap::new();
    for (address, directory) in functions {
        let group = directory.join("iommu_group");
        if cx.host.io.stamp(&group).is_ok() {
            let kind = line(cx, group.join("type"), text::label).unwrap_or_else(|| Arc::from(""));
            groups.insert(*address, kind);
        }
    }
    groups
}

/// Which of the functions say that ARI is on, or off.
fn ari(cx: &mut ReadContext<'_>, functions: &BTreeMap<PciAddress, PathBuf>) -> BTreeMap<PciAddress, bool> {
    let mut flag = |(address, directory): (&PciAddress, &PathBuf)| {
        Some((*address, line(cx, directory.join("ari_enabled"), text::counter)? != 0))
    };
    functions.iter().filter_map(&mut flag).collect()
}

/// Nothing where the host does not show that it could have one.
fn iommu(cx: &mut ReadContext<'_>, groups: &BTreeMap<PciAddress, Arc<str>>, watched: bool) -> Option<Arc<str>> {
    let mut kinds = groups.values();
    if let Some(first) = kinds.next() {
        let word = if kinds.any(|kind| kind != first) { "mixed" } else { first };
        return Some(Arc::from(if word.is_empty() { "on" } else { word }));
    }
    let listed = cx.host.io.list(&cx.host.sysfs.join("kernel/iommu_groups")).ok()?;
    let on = !listed.is_empty();
    (!on || !watched).then(|| Arc::from(if on { "on" } else { "off" }))
}

fn arguments(cx: &mut ReadContext<'_>) -> Vec<Arc<str>> {
    let path = cx.host.procfs.join("cmdline");
    let known = |argument: &&str| {
        let name = argument.split_once('=').map_or(*argument, |(name, _)| name);
        ARGUMENTS.contains(&name)
    };
    let matching = |text: &str| text.split_ascii_whitespace().filter(known).map(Arc::from).collect();
    line(cx, path, |bytes| text::parsed(bytes, |text| Some(matching(text)))).unwrap_or_default()
}

/// Compares the agent's network namespace with the first process's; none where either cannot be seen.
fn foreign_netns(cx: &ReadContext<'_>) -> Option<bool> {
    let netns = |process: &str| cx.host.io.link(&cx.host.procfs.join(process).join("ns/net")).ok();
    // Of a recorded host these links would be the reader's.
    if cx.host.live { Some(netns("self")? != netns("1")?) } else { None }
}

fn governors(cx: &mut ReadContext<'_>) -> BTreeMap<Arc<str>, usize> {
    let directory = cx.host.sysfs.join("devices/system/cpu/cpufreq");
    let names = cx.host.io.list(&directory).unwrap_or_default();
    let mut governors = BTreeMap::new();
    for name in names.iter().filter(|name| name.starts_with("policy")).take(MOST_POLICIES) {
        if let Some(governor) = line(cx, directory.join(name).join("scaling_governor"), text::label) {
            *governors.entry(governor).or_default() += 1;
        }
    }
    governors
}

/// `hugepages-2048kB/{nr_hugepages,free_hugepages}`.
fn hugepages(cx: &mut ReadContext<'_>) -> BTreeMap<u64, (u64, u64)> {
    let directory = cx.host.sysfs.join("kernel/mm/hugepages");
    let names = cx.host.io.list(&directory).unwrap_or_default();
    let mut pages = BTreeMap::new();
    for name in names {
        let size = name.strip_prefix("hugepages-").and_then(|size| size.strip_suffix("kB"));
        let Some(size) = size.and_then(|size| text::parse_decimal(size.as_bytes())) else { continue };
        let mut count = |file: &str| line(cx, directory.join(&name).join(file), text::counter);
        if let Some(counts) = count("nr_hugepages").zip(count("free_hugepages")) {
            pages.insert(size, counts);
        }
    }
    pages
}

fn driver_versions(cx: &mut ReadContext<'_>) -> BTreeMap<Arc<str>, Arc<str>> {
    let version = |name: &&str| {
        let path = cx.host.sysfs.join("module").join(name).join("version");
        Some((Arc::from(*name), line(cx, path, text::label)?))
    };
    DRIVERS.iter().filter_map(version).collect()
}

/// The first bytes of a file that may be long.
fn beginning(cx: &mut ReadContext<'_>, path: &Path) -> Option<String> {
    let length = cx.host.io.open(path).and_then(|mut file| file.read(&mut cx.buffer[..])).ok()?;
    Some(String::from_utf8_lossy(cx.buffer.get(..length)?).into_owned())
}
