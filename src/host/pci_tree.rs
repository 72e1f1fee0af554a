//! Where GPUs, network cards and NVMe drives are in the PCIe tree (`/sys/bus/pci/devices`). Unprivileged, and nothing is
//! read of a function that sleeps.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::collector::{Collector, DeviceReader, Discovered, Filter, ReadContext, Setup, Spec};
use super::file::read_once;
use super::function::{DeviceInventory, address_of};
use super::pci::{parse_lanes, parse_speed};
use super::text;
use crate::model::ids::PciAddress;
use crate::model::pci_tree::{EndpointKind, FunctionIds, LinkCapability, PciTree, TreeEndpoint, TreePort, kind_of};
use crate::model::pcie::PciClass;
use crate::model::reading::{ReadError, Reading};
use crate::model::snapshot::Fact;
use crate::model::time::BootTime;

/// The collector of the PCIe tree.
pub const SPEC: Spec = Spec {
    name: "pci_tree",
    about: "GPUs, network cards and NVMe drives in the PCIe tree",
    interval: Duration::from_secs(60),
    deadline: Duration::from_secs(10),
    fresh: false,
    make: |setup: &Setup| Box::new(TreeCollector { filter: setup.filter.clone() }),
};

/// How long the tree is kept while no function comes or goes; drivers may be bound anew.
const KEPT: Duration = Duration::from_secs(10 * 60);

struct TreeCollector {
    filter: Filter,
}

impl Collector for TreeCollector {
    fn discover(&mut self, cx: &mut ReadContext<'_>) -> Result<Vec<Discovered>, ReadError> {
        let has_pci = cx.host.io.stamp(&cx.host.sysfs.join("bus/pci/devices")).is_ok();
        Ok(has_pci.then(|| Discovered { key: Arc::from("tree"), device: None }).into_iter().collect())
    }

    fn open(&mut self, _: &Discovered) -> Box<dyn DeviceReader> {
        Box::new(TreeReader { filter: self.filter.clone(), names: Vec::new(), until: None, fact: Arc::default() })
    }
}

struct TreeReader {
    filter: Filter,
    /// The functions of the bus when the tree was read.
    names: Vec<String>,
    until: Option<BootTime>,
    fact: Arc<PciTree>,
}

impl DeviceReader for TreeReader {
    fn read(&mut self, cx: &mut ReadContext<'_>) -> Vec<Fact> {
        let directory = cx.host.sysfs.join("bus/pci/devices");
        let Ok(mut names) = cx.list(&directory) else { return Vec::new() };
        let Ok(DeviceInventory { excluded, .. }) = DeviceInventory::read(cx, &self.filter) else { return Vec::new() };
        names.retain(|name| address_of(Path::new(name)).is_none_or(|address| !excluded.contains(&address)));
        names.sort_unstable();
        if self.names != names || self.until.is_none_or(|until| cx.now >= until) {
            self.fact = Arc::new(tree(cx, &directory, &names));
            (self.names, self.until) = (names, Some(cx.now.after(KEPT)));
        }
        vec![Arc::<PciTree>::clone(&self.fact)]
    }
}

/// A function that may end the tree: a GPU, a network card or a drive.
struct EndpointFunction {
    directory: PathBuf,
    address: PciAddress,
    class: PciClass,
    /// Vendor and device.
    ids: (u16, u16),
    kind: EndpointKind,
}

/// The endpoints, without VFs whose PF is here.
fn endpoints(
    cx: &mut ReadContext<'_>,
    directory: &Path,
    names: &[String],
    may_matter: impl Fn(PciClass) -> bool,
) -> Vec<EndpointFunction> {
    let mut found = Vec::new();
    for name in names {
        let Ok(address) = name.parse::<PciAddress>() else { continue };
        let entry = directory.join(name);
        let Ok(function) = cx.host.resolve(&entry) else { continue };
        // An archive that knows no links has the class below the function alone.
        let class = hex(cx, &entry.join("class")).or_else(|| hex(cx, &function.join("class")));
        let Some(class) = class.and_then(|class| u32::try_from(class).ok()).map(PciClass) else { continue };
        if !may_matter(class) || cx.host.io.link(&function.join("physfn")).is_ok() {
            continue;
        }
        let has_port = function.parent().and_then(address_of).is_some();
        let Some(ids) = pair(cx, &function, "vendor", "device") else { continue };
        if let Some(kind) = kind_of(class, ids, has_port)
            && address_of(&function) == Some(address)
        {
            found.push(EndpointFunction { directory: function, address, class, ids, kind });
        }
    }
    found
}

/// Directories of the GPUs of the host, for those who read more of them.
pub(super) fn gpus(cx: &mut ReadContext<'_>) -> Vec<PathBuf> {
    let directory = cx.host.sysfs.join("bus/pci/devices");
    let mut names = cx.host.io.list(&directory).unwrap_or_default();
    names.sort_unstable();
    let found = endpoints(cx, &directory, &names, may_be_gpu).into_iter();
    found.filter(|found| found.kind == EndpointKind::Gpu).map(|found| found.directory).collect()
}

/// Whether a function of this class may be an endpoint of the tree: storage, network, display, DMA, accelerator.
fn may_matter(class: PciClass) -> bool {
    matches!(class.0 >> 16, 0x01 | 0x02 | 0x03 | 0x08 | 0x12)
}

/// Whether a function of this class may be a GPU: nothing more is read of any other.
fn may_be_gpu(class: PciClass) -> bool {
    matches!(class.0 >> 16, 0x03 | 0x12)
}

fn tree(cx: &mut ReadContext<'_>, directory: &Path, names: &[String]) -> PciTree {
    let mut tree = PciTree::default();
    for EndpointFunction { directory: function, address, class, ids, kind } in
        endpoints(cx, directory, names, may_matter)
    {
        let above: Vec<(PathBuf, PciAddress)> = function
            .ancestors()
            .skip(1)
            .map_while(|directory| Some((directory.to_owned(), address_of(directory)?)))
            .collect();
        let root = function.ancestors().nth(above.len() + 1).and_then(Path::file_name);
        let Some(root) = root.map(|name| Arc::from(name.to_string_lossy())) else { continue };
        let awake = [&function].into_iter().chain(above.iter().map(|(port, _)| port)).all(|at| is_awake(cx, at));
        for (port, address) in &above {
            if tree.ports.contains_key(address) {
                continue;
            }
            let port_ids = pair(cx, port, "vendor", "device")
                .map(|own| FunctionIds { own, subsystem: pair(cx, port, "subsystem_vendor", "subsystem_device") });
            let link = if awake { link(cx, port) } else { LinkCapability::default() };
            tree.ports.insert(*address, TreePort { address: *address, ids: port_ids.unwrap_or_default(), link });
        }
        let group = function.join("iommu_group");
        let iommu_group = cx.host.io.stamp(&group).is_ok().then(|| {
            let kind = read_once(cx, &group.join("type"), text::label);
            kind.unwrap_or_else(|| Arc::from(""))
        });
        let driver = cx.host.io.link(&function.join("driver")).ok();
        let driver = driver.and_then(|target| Some(Arc::from(target.file_name()?.to_string_lossy())));
        let numa_node = read_once(cx, &function.join("numa_node"), node);
        let link = if awake { link(cx, &function) } else { LinkCapability::default() };
        let ports = above.into_iter().map(|(_, address)| address).collect();
        // Placement needs no more of its identifiers.
        let ids = FunctionIds { own: ids, subsystem: None };
        tree.endpoints.insert(
            address,
            TreeEndpoint { address, kind, class, ids, root, ports, driver, numa_node, link, iommu_group },
        );
    }
    tree
}

/// Reading the capabilities of a function that sleeps would wake it.
fn is_awake(cx: &mut ReadContext<'_>, function: &Path) -> bool {
    let status = read_once(cx, &function.join("power/runtime_status"), text::label);
    !matches!(status.as_deref(), Some("suspended" | "suspending"))
}

fn link(cx: &mut ReadContext<'_>, function: &Path) -> LinkCapability {
    let speed = read_once(cx, &function.join("max_link_speed"), parse_speed);
    let width = read_once(cx, &function.join("max_link_width"), parse_lanes);
    LinkCapability { speed, width }
}

/// `-1` where the firmware does not say.
fn node(bytes: &[u8]) -> Reading<u32> {
    match text::parse_decimal(bytes).and_then(|node| u32::try_from(node).ok()) {
        Some(node) => Reading::Value(node),
        None if bytes.starts_with(b"-") => Reading::Absent,
        None => Reading::Unreadable(ReadError::Malformed),
    }
}

fn hex(cx: &mut ReadContext<'_>, path: &Path) -> Option<u64> {
    let parse = |bytes: &[u8]| text::parse_hex(bytes).map_or(Reading::Unreadable(ReadError::Malformed), Reading::Value);
    read_once(cx, path, parse)
}

fn pair(cx: &mut ReadContext<'_>, function: &Path, first: &str, second: &str) -> Option<(u16, u16)> {
    let mut number = |name: &str| hex(cx, &function.join(name)).and_then(|number| u16::try_from(number).ok());
    Some((number(first)?, number(second)?))
}
