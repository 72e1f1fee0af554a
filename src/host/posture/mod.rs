//! Configuration of the host: IOMMU, kernel arguments, virtualization, namespaces, CPUs, huge pages, drivers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::collector::{Collector, DeviceReader, Discovered, Filter, ReadContext, Setup, Spec};
use super::file::read_once;
use super::function::{DeviceFunction, DeviceInventory};
use super::netlink::nldev;
use super::netlink::socket::{NetlinkConnector, Protocol};
use super::pci_tree;
use super::text;
use crate::model::host::{PciIsolation, Posture};
use crate::model::ids::PciAddress;
use crate::model::reading::ReadError;
use crate::model::snapshot::Fact;
use crate::model::time::BootTime;

mod isolation;

/// The collector of the host's configuration.
pub const SPEC: Spec = Spec {
    name: "posture",
    about: "Host configuration for RDMA and pass-through: IOMMU, kernel arguments, namespaces, CPUs, huge pages",
    interval: Duration::from_secs(60),
    deadline: Duration::from_secs(5),
    fresh: false,
    make: |setup| Box::new(PostureCollector::new(setup, setup.host.netlink(Protocol::Rdma))),
};

/// Names of kernel arguments that matter, up to their `=`.
pub(super) const ARGUMENTS: [&str; 17] = [
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

/// Drivers whose version is read.
const DRIVERS: [&str; 8] = ["mlx5_core", "mlx5_ib", "ib_core", "ice", "irdma", "bnxt_en", "bnxt_re", "efa"];

/// How long the isolation of functions is kept before it is read again.
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
        Box::new(PostureReader {
            filter,
            connect,
            isolation: Vec::new(),
            of: Vec::new(),
            gpus: Vec::new(),
            isolation_until: None,
        })
    }
}

struct PostureReader {
    filter: Filter,
    connect: Option<NetlinkConnector>,
    /// Isolation of the functions below, kept until the time below.
    isolation: Vec<PciIsolation>,
    of: Vec<PciAddress>,
    gpus: Vec<PathBuf>,
    isolation_until: Option<BootTime>,
}

impl DeviceReader for PostureReader {
    /// Empty if the host reports nothing.
    fn read(&mut self, cx: &mut ReadContext<'_>) -> Vec<Fact> {
        let devices = DeviceInventory::read(cx, &self.filter).map(|inventory| inventory.allowed).unwrap_or_default();
        let functions = devices.iter().map(|device| (device.address, device.function.clone())).collect();
        let groups = groups(cx, &functions);
        let posture = Posture {
            virtualization: virtualization(cx),
            iommu: iommu(cx, &groups, !devices.is_empty()),
            iommu_groups: groups,
            ari: ari(cx, &functions),
            arguments: arguments(cx),
            rdma_netns_mode: self.netns_mode(),
            foreign_netns: foreign_netns(cx),
            governors: governors(cx),
            numa_balancing: read_once(cx, &cx.host.procfs.join("sys/kernel/numa_balancing"), text::counter)
                .map(|on| on != 0),
            hugepages: hugepages(cx),
            driver_versions: driver_versions(cx),
            peer_memory: peer_memory(cx),
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
    /// Read again when the functions change, otherwise rarely: each read accesses hardware.
    fn isolation(&mut self, cx: &mut ReadContext<'_>, devices: &[DeviceFunction]) -> &[PciIsolation] {
        let of: Vec<PciAddress> = devices.iter().map(|device| device.address).collect();
        if self.isolation_until.is_none_or(|until| cx.now >= until) || self.of != of {
            // GPUs matter beside RDMA devices alone, and do not come and go.
            self.gpus = if of.is_empty() { Vec::new() } else { pci_tree::gpus(cx) };
            self.isolation = isolation::read(cx, devices, &self.gpus);
            (self.of, self.isolation_until) = (of, Some(cx.now.after(ISOLATION)));
        }
        &self.isolation
    }

    /// Opens a connection for each query: once a minute is not worth a permanent socket.
    fn netns_mode(&self) -> Option<&'static str> {
        let replies = (self.connect.as_ref()?)().ok()?.ask(&nldev::system_request()).ok()?;
        let shared = nldev::system(replies.first()?).shared?;
        Some(if shared { "shared" } else { "exclusive" })
    }
}

/// The types of the functions' IOMMU groups; a group that does not say has an empty one.
fn groups(cx: &mut ReadContext<'_>, functions: &BTreeMap<PciAddress, PathBuf>) -> BTreeMap<PciAddress, Arc<str>> {
    let mut groups = BTreeMap::new();
    for (address, directory) in functions {
        let group = directory.join("iommu_group");
        if cx.host.io.stamp(&group).is_ok() {
            let kind = read_once(cx, &group.join("type"), text::label).unwrap_or_else(|| Arc::from(""));
            groups.insert(*address, kind);
        }
    }
    groups
}

/// Which of the functions say that ARI is on, or off.
fn ari(cx: &mut ReadContext<'_>, functions: &BTreeMap<PciAddress, PathBuf>) -> BTreeMap<PciAddress, bool> {
    let mut flag = |(address, directory): (&PciAddress, &PathBuf)| {
        Some((*address, read_once(cx, &directory.join("ari_enabled"), text::counter)? != 0))
    };
    functions.iter().filter_map(&mut flag).collect()
}

/// `None` if the host does not show whether it has an IOMMU.
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

/// Modules that register the memory of GPUs for RDMA, as those libraries look for them that use it.
fn peer_memory(cx: &mut ReadContext<'_>) -> BTreeMap<Arc<str>, Arc<str>> {
    let mut found = BTreeMap::new();
    for name in ["nvidia_peermem", "efa_nv_peermem"] {
        let module = cx.host.sysfs.join("module").join(name);
        if cx.host.io.stamp(&module).is_ok() {
            let version = read_once(cx, &module.join("version"), text::label).unwrap_or_else(|| Arc::from(""));
            found.insert(Arc::from(name), version);
        }
    }
    for directory in ["kernel/mm/memory_peers", "kernel/memory_peers"] {
        let directory = cx.host.sysfs.join(directory);
        for name in cx.host.io.list(&directory).unwrap_or_default().iter().take(16) {
            let version =
                read_once(cx, &directory.join(name).join("version"), text::label).unwrap_or_else(|| Arc::from(""));
            found.insert(Arc::from(name.as_str()), version);
        }
    }
    found
}

fn arguments(cx: &mut ReadContext<'_>) -> Vec<Arc<str>> {
    let path = cx.host.procfs.join("cmdline");
    let known = |argument: &&str| {
        let name = argument.split_once('=').map_or(*argument, |(name, _)| name);
        ARGUMENTS.contains(&name)
    };
    let matching = |text: &str| text.split_ascii_whitespace().filter(known).map(Arc::from).collect();
    read_once(cx, &path, |bytes| text::parsed(bytes, |text| Some(matching(text)))).unwrap_or_default()
}

/// Compares the agent's network namespace with that of process 1; `None` if either is hidden.
fn foreign_netns(cx: &ReadContext<'_>) -> Option<bool> {
    let netns = |process: &str| cx.host.io.link(&cx.host.procfs.join(process).join("ns/net")).ok();
    // On a recorded host these links would be those of the machine that replays it.
    if cx.host.live { Some(netns("self")? != netns("1")?) } else { None }
}

fn governors(cx: &mut ReadContext<'_>) -> BTreeMap<Arc<str>, usize> {
    let directory = cx.host.sysfs.join("devices/system/cpu/cpufreq");
    let names = cx.host.io.list(&directory).unwrap_or_default();
    let mut governors = BTreeMap::new();
    for name in names.iter().filter(|name| name.starts_with("policy")).take(MOST_POLICIES) {
        if let Some(governor) = read_once(cx, &directory.join(name).join("scaling_governor"), text::label) {
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
        let mut count = |file: &str| read_once(cx, &directory.join(&name).join(file), text::counter);
        if let Some(counts) = count("nr_hugepages").zip(count("free_hugepages")) {
            pages.insert(size, counts);
        }
    }
    pages
}

fn driver_versions(cx: &mut ReadContext<'_>) -> BTreeMap<Arc<str>, Arc<str>> {
    let version = |name: &&str| {
        let path = cx.host.sysfs.join("module").join(name).join("version");
        Some((Arc::from(*name), read_once(cx, &path, text::label)?))
    };
    DRIVERS.iter().filter_map(version).collect()
}

/// The first bytes of a file that may be long.
fn beginning(cx: &mut ReadContext<'_>, path: &Path) -> Option<String> {
    let length = cx.host.io.open(path).and_then(|mut file| file.read(&mut cx.buffer[..])).ok()?;
    Some(String::from_utf8_lossy(cx.buffer.get(..length)?).into_owned())
}

/// Vendor and product names in DMI, and the hypervisor that they identify.
const NAMES: [(&str, &str); 11] = [
    ("QEMU", "kvm"),
    ("KVM", "kvm"),
    ("OpenStack", "kvm"),
    ("Google Compute Engine", "kvm"),
    ("Amazon EC2", "amazon"),
    ("VMware", "vmware"),
    ("VMW", "vmware"),
    ("Microsoft Corporation Virtual Machine", "microsoft"),
    ("Xen", "xen"),
    ("innotek GmbH", "oracle"),
    ("Parallels", "parallels"),
];

/// The hypervisor; `none` for bare metal. `None` if it is unknown.
fn virtualization(cx: &mut ReadContext<'_>) -> Option<&'static str> {
    let dmi = cx.host.sysfs.join("class/dmi/id");
    let mut name = |file: &str| read_once(cx, &dmi.join(file), text::label);
    let (vendor, product) = (name("sys_vendor"), name("product_name"));
    let names = format!("{} {}", vendor.as_deref().unwrap_or_default(), product.as_deref().unwrap_or_default());
    let known = NAMES.iter().find(|(part, _)| names.contains(part)).map(|(_, kind)| *kind);
    // Bare-metal instances have the cloud's names but no hypervisor.
    let under = under_hypervisor(cx);
    match (known, under) {
        (_, Some(false)) => Some("none"),
        (Some(kind), _) => Some(kind),
        (None, Some(true)) => Some("vm-other"),
        (None, None) => None,
    }
}

/// Whether the CPU reports a hypervisor (x86: a flag in `/proc/cpuinfo`); `None` if it has no flags.
fn under_hypervisor(cx: &mut ReadContext<'_>) -> Option<bool> {
    let path = cx.host.procfs.join("cpuinfo");
    let text = beginning(cx, &path)?;
    let flags = text.lines().find(|line| line.starts_with("flags"))?;
    Some(flags.split_ascii_whitespace().any(|flag| flag == "hypervisor"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::host::collector::Filter;
    use crate::host::harness::{CollectorHarness, facts};

    fn read(harness: &mut CollectorHarness) -> Option<Posture> {
        harness.discover().unwrap();
        facts(&harness.read()).into_iter().next()
    }

    #[test]
    fn a_host_without_data_has_no_posture() {
        let mut harness = CollectorHarness::new(&SPEC, Filter::default());
        assert_eq!((read(&mut harness), harness.faults.len()), (None, 0));
    }

    #[test]
    fn what_a_host_says() {
        let mut harness = CollectorHarness::new(&SPEC, Filter::default());
        let function = "/sys/devices/pci0000:80/0000:81:00.0";
        harness.memory.symlink(format!("{function}/infiniband/mlx5_0/device"), "../../../0000:81:00.0");
        harness
            .memory
            .symlink("/sys/class/infiniband/mlx5_0", "../../devices/pci0000:80/0000:81:00.0/infiniband/mlx5_0");
        harness.memory.set("/sys/kernel/iommu_groups/17/type", "DMA-FQ\n");
        harness.memory.symlink(format!("{function}/iommu_group"), "../../../kernel/iommu_groups/17");
        harness
            .memory
            .set("/proc/cmdline", "BOOT_IMAGE=/vmlinuz root=/dev/sda1 intel_iommu=on iommu=pt quiet isolcpus=2-5\n");
        harness.memory.set("/proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu vme sse2\n");
        harness.memory.set("/sys/class/dmi/id/sys_vendor", "Dell Inc.\n");
        harness.memory.set("/sys/devices/system/cpu/cpufreq/policy0/scaling_governor", "powersave\n");
        harness.memory.set("/sys/devices/system/cpu/cpufreq/policy1/scaling_governor", "powersave\n");
        harness.memory.set("/proc/sys/kernel/numa_balancing", "1\n");
        harness.memory.set("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "1024\n");
        harness.memory.set("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "1000\n");
        harness.memory.set("/sys/module/mlx5_core/version", "24.10-1.1.4\n");
        let posture = read(&mut harness).unwrap();
        assert_eq!(harness.faults, []);
        assert_eq!((posture.virtualization, posture.iommu.as_deref()), (Some("none"), Some("DMA-FQ")));
        assert_eq!(
            posture.arguments.iter().map(|a| &**a).collect::<Vec<_>>(),
            ["intel_iommu=on", "iommu=pt", "isolcpus=2-5"]
        );
        assert_eq!(posture.governors, BTreeMap::from([(Arc::from("powersave"), 2)]));
        assert_eq!((posture.numa_balancing, posture.rdma_netns_mode), (Some(true), None));
        assert_eq!(posture.hugepages, BTreeMap::from([(2048, (1024, 1000))]));
        assert_eq!(posture.driver_versions.len(), 1);
        harness.memory.set("/proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu hypervisor sse2\n");
        harness.memory.set("/sys/class/dmi/id/sys_vendor", "QEMU\n");
        assert_eq!(read(&mut harness).unwrap().virtualization, Some("kvm"));
        harness.memory.remove(format!("{function}/iommu_group"));
        harness.memory.remove("/sys/kernel/iommu_groups/17");
        harness.memory.directory("/sys/kernel/iommu_groups");
        assert_eq!(read(&mut harness).unwrap().iommu.as_deref(), Some("off"));
    }

    /// The files whose form is this collector's own.
    const FILES: [&str; 8] = [
        "/proc/cmdline",
        "/proc/cpuinfo",
        "/proc/sys/kernel/numa_balancing",
        "/sys/class/dmi/id/sys_vendor",
        "/sys/devices/system/cpu/cpufreq/policy0/scaling_governor",
        "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
        "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages",
        "/sys/module/mlx5_core/version",
    ];

    proptest! {
        #[test]
        fn no_content_breaks_it(
            contents in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), FILES.len()),
            size in "[0-9a-zA-Z]{0,24}",
        ) {
            let mut harness = CollectorHarness::new(&SPEC, Filter::default());
            for (file, content) in FILES.iter().zip(contents) {
                harness.memory.set(file, content);
            }
            harness.memory.set(format!("/sys/kernel/mm/hugepages/hugepages-{size}kB/nr_hugepages"), "1\n");
            let _ = read(&mut harness);
        }
    }
}
