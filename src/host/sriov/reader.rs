//! Reader of one PF with all its VFs.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::netdev::{PfNetdev, SwitchRole};
use super::vendor_files::VendorFiles;
use super::vf::{VfFiles, link_address, link_name, list, node, stamp, update_names};
use super::vf_list::{VfListClient, VfListEntry};
use crate::host::collector::{DeviceReader, ReadContext};
use crate::host::file::{PolledFile, read_once};
use crate::host::io::{Host, reason_of};
use crate::host::text;
use crate::model::ids::{DeviceName, PciAddress};
use crate::model::reading::{ReadError, Reading};
use crate::model::snapshot::Fact;
use crate::model::sriov::{Fabric, Pf, Vf, VfDetail, is_user_space};

/// Where a PF is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PfLocation {
    pub(super) address: PciAddress,
    pub(super) directory: PathBuf,
    /// Class code.
    pub(super) class: Option<u32>,
}

/// The reader of one PF.
pub(super) struct PfReader {
    location: PfLocation,
    limit: PolledFile,
    configured: PolledFile,
    vf_list: VfListClient,
    interfaces: BTreeMap<String, PfNetdev>,
    devices: Vec<DeviceName>,
    driver: Option<Arc<str>>,
    vfs: BTreeMap<u32, VfFiles>,
    vendor: BTreeMap<u32, VendorFiles>,
    passes: u64,
    quarantined: usize,
    marker: Option<BindingMarker>,
}

/// What identifies a binding of the driver. A PF sticks to one kind: switching kinds would look like a new binding.
#[derive(Debug, Clone, Copy)]
enum BindingMarker {
    PfNetdev,
    Device,
}

impl PfReader {
    pub(super) fn new(location: PfLocation, host: &Host) -> Self {
        Self {
            limit: PolledFile::new(location.directory.join("sriov_totalvfs")),
            configured: PolledFile::new(location.directory.join("sriov_numvfs")),
            vf_list: VfListClient::new(host.route.clone()),
            interfaces: BTreeMap::new(),
            devices: Vec::new(),
            driver: None,
            vfs: BTreeMap::new(),
            vendor: BTreeMap::new(),
            passes: 0,
            quarantined: 0,
            marker: None,
            location,
        }
    }

    /// Reads the functions behind `virtfn*`. The directory's modification time does not change when they come and go.
    fn functions(&mut self, cx: &mut ReadContext<'_>, names: &[String]) -> Vec<Vf> {
        let numbers = names.iter().filter_map(|name| {
            let number = text::parse_decimal(name.strip_prefix("virtfn")?.as_bytes())?;
            u32::try_from(number).ok()
        });
        let mut now: Vec<u32> = numbers.collect();
        now.sort_unstable();
        self.vfs.retain(|number, _| now.binary_search(number).is_ok());
        let mut vfs = Vec::with_capacity(now.len());
        for number in now {
            let link = self.location.directory.join(format!("virtfn{number}"));
            let Some(address) = link_address(cx, &link) else { continue };
            if self.vfs.get(&number).is_none_or(|files| files.address() != Some(address)) {
                let Ok(directory) = cx.host.resolve(&link) else { continue };
                self.vfs.insert(number, VfFiles::new(directory, number, address));
            }
            vfs.extend(self.vfs.get_mut(&number).and_then(|files| files.read(cx, self.passes)));
        }
        vfs
    }

    /// The VFs whose removal waits. The kernel takes `virtfn<n>` and the driver's link away first and then waits until
    /// nobody has the function open (`pci_iov_remove_virtfn`), while netlink still lists it.
    fn leaving(&self, cx: &mut ReadContext<'_>, announced: Option<u32>, vfs: &[Vf]) -> Vec<Vf> {
        let missing: Vec<u32> = (0..announced.unwrap_or(0).min(u32::from(u16::MAX)))
            .filter(|number| vfs.binary_search_by_key(number, |vf| vf.number).is_err())
            .collect();
        if missing.is_empty() {
            return Vec::new();
        }
        let mut file = |name: &str| read_once(cx, &self.location.directory.join(name), small);
        let Some((offset, stride)) = file("sriov_offset").zip(file("sriov_stride")) else { return Vec::new() };
        let mut found = Vec::new();
        for number in missing {
            let Some(address) = self.location.address.vf(offset, stride, number) else { continue };
            let Ok(directory) = cx.host.resolve(&cx.host.sysfs.join(format!("bus/pci/devices/{address}"))) else {
                continue;
            };
            let Some(instance) = stamp(cx, &directory) else { continue };
            let driver = link_name(cx, &directory.join("driver"));
            let group = link_name(cx, &directory.join("iommu_group"));
            found.push(Vf {
                number,
                address: Some(address),
                leaving: true,
                instance,
                iommu_group: group.and_then(|name| name.parse().ok()),
                node: node(cx, &directory, driver.as_deref()),
                driver: driver.map(Arc::from),
                ..Vf::default()
            });
        }
        found
    }

    fn update_interfaces(&mut self, cx: &mut ReadContext<'_>, there: bool) {
        let directory = self.location.directory.join("net");
        let names = if there { list(cx, &directory) } else { Vec::new() };
        self.interfaces.retain(|name, _| names.binary_search(name).is_ok());
        for name in names {
            self.interfaces.entry(name.clone()).or_insert_with(|| PfNetdev::new(&directory, &name));
        }
    }

    /// Combined state of the PF's own interfaces, and the VFs' representors.
    fn read_interfaces(&mut self, cx: &mut ReadContext<'_>) -> PfNetdevs {
        let alone = self.interfaces.len() == 1;
        let mut all = PfNetdevs::default();
        for interface in self.interfaces.values_mut() {
            match interface.switch_role(cx, alone) {
                SwitchRole::Vf(number) => {
                    all.representors.insert(number, Arc::clone(&interface.name));
                }
                SwitchRole::Other => {}
                SwitchRole::Own => {
                    all.fabric = all.fabric.or(interface.fabric(cx));
                    all.probe = all.probe.or(interface.instance(cx));
                    all.up = match (all.up, interface.up(cx)) {
                        (Reading::Value(true), _) | (_, Reading::Value(true)) => Reading::Value(true),
                        (Reading::Value(false), _) | (_, Reading::Value(false)) => Reading::Value(false),
                        (before, now) => before.or(now),
                    };
                    all.names.push(Arc::clone(&interface.name));
                }
            }
        }
        all
    }

    /// Fills in VFs from the vendor's files where netlink has no data.
    fn read_vendor_files(&mut self, cx: &mut ReadContext<'_>, vfs: &mut [Vf]) {
        self.vendor.retain(|number, _| vfs.iter().any(|vf| vf.number == *number));
        for vf in vfs.iter_mut().filter(|vf| vf.config.is_none() || vf.traffic.is_none()) {
            let files = self.vendor.entry(vf.number);
            let files = files.or_insert_with(|| VendorFiles::new(&self.location.directory, vf.number));
            let (config, traffic) = files.read(cx, vf.config, vf.traffic);
            vf.config = vf.config.or(config);
            vf.traffic = vf.traffic.or(traffic);
        }
    }
}

impl PfReader {
    /// How many VFs there should be. Reading `sriov_numvfs` waits for the device's lock, in the kernel and beyond any
    /// signal, for as long as a removal waits for whoever has a VF open. So on a running host the number is netlink's
    /// (`IFLA_NUM_VF`, the same field of the kernel), or that of the links; the file is read of a recorded host alone.
    fn configured(&mut self, cx: &mut ReadContext<'_>, announced: Option<u32>, names: &[String]) -> Option<u32> {
        if !cx.host.live {
            return self.configured.read(cx, small).value();
        }
        let links = names.iter().filter(|name| name.starts_with("virtfn")).count();
        announced.or_else(|| u32::try_from(links).ok())
    }
}

#[derive(Default)]
struct PfNetdevs {
    names: Vec<Arc<str>>,
    fabric: Option<Fabric>,
    up: Reading<bool>,
    probe: Option<u64>,
    representors: BTreeMap<u32, Arc<str>>,
}

impl DeviceReader for PfReader {
    fn read(&mut self, cx: &mut ReadContext<'_>) -> Vec<Fact> {
        let names = match cx.host.io.list(&self.location.directory) {
            Ok(names) => names,
            Err(error) => {
                if let Some(reason) = reason_of(&error) {
                    cx.fault(&self.location.directory, reason);
                }
                return Vec::new();
            }
        };
        self.passes += 1;
        let has = |name: &str| names.iter().any(|other| other == name);
        let driver = if has("driver") { link_name(cx, &self.location.directory.join("driver")) } else { None };
        if self.driver.as_deref() != driver.as_deref() {
            self.driver = driver.map(Arc::from);
        }
        let user_space = self.driver.as_deref().is_some_and(is_user_space);
        let group = if user_space && has("iommu_group") {
            link_name(cx, &self.location.directory.join("iommu_group")).and_then(|name| name.parse().ok())
        } else {
            None
        };
        self.update_interfaces(cx, has("net"));
        let rdma = self.location.directory.join("infiniband");
        let devices = if has("infiniband") { list(cx, &rdma) } else { Vec::new() };
        update_names(&mut self.devices, &devices, DeviceName::new);
        let mut vfs = self.functions(cx, &names);
        let mut interfaces = self.read_interfaces(cx);
        let device = self.devices.first().map(|device| rdma.join(device.as_str()));
        let device = device.and_then(|device| stamp(cx, &device));
        let (reply, detail) = self.vf_list.read(cx, &interfaces.names);
        let fabric = reply.as_ref().and_then(|list| list.fabric).or(interfaces.fabric);
        let (announced, reported) = match (&reply, detail) {
            (Some(list), _) => (list.announced, u32::try_from(list.entries.len()).ok()),
            (None, VfDetail::Full) => (None, Some(0).filter(|_| vfs.is_empty())),
            (None, _) => (None, None),
        };
        let leaving = self.leaving(cx, announced, &vfs);
        vfs.extend(leaving);
        vfs.sort_by_key(|vf| vf.number);
        merge_list(&mut vfs, reply.map(|list| list.entries).unwrap_or_default(), fabric, self.driver.as_deref());
        if has("sriov") {
            self.read_vendor_files(cx, &mut vfs);
        }
        let switchdev = !interfaces.representors.is_empty();
        for vf in &mut vfs {
            vf.representor = interfaces.representors.remove(&vf.number);
        }
        self.marker = self.marker.or(match (interfaces.probe, device) {
            (Some(_), _) => Some(BindingMarker::PfNetdev),
            (None, Some(_)) => Some(BindingMarker::Device),
            (None, None) => None,
        });
        let probe = match self.marker {
            Some(BindingMarker::Device) => device,
            _ => interfaces.probe,
        };
        let pf = Pf {
            address: self.location.address,
            driver: self.driver.clone(),
            iommu_group: group,
            node: node(cx, &self.location.directory, self.driver.as_deref()),
            fabric: fabric.or_else(|| fabric_of(self.location.class?)),
            limit: self.limit.read(cx, small).value(),
            configured: self.configured(cx, announced, &names),
            reported,
            announced,
            netdevs: interfaces.names,
            devices: self.devices.clone(),
            up: interfaces.up,
            switchdev,
            probe,
            detail,
            vfs,
        };
        let vendor: usize = self.vendor.values_mut().map(VendorFiles::quarantined).sum();
        self.quarantined = vendor + usize::from(self.limit.is_quarantined());
        vec![Arc::new(pf)]
    }

    fn quarantined(&self) -> usize {
        self.quarantined
    }
}

/// In-tree drivers that count the traffic of VFs (`ndo_get_vf_stats` in Linux 6.12). For all others the kernel sends
/// zeros, which say nothing.
const COUNTING: [&str; 8] = ["mlx5_core", "mlx4_core", "ice", "i40e", "ixgbe", "fm10k", "ionic", "LiquidIO"];

/// Gives each VF what netlink says of it; those that only netlink knows are added.
fn merge_list(vfs: &mut Vec<Vf>, entries: Vec<VfListEntry>, fabric: Option<Fabric>, driver: Option<&str>) {
    let moved = |entry: &VfListEntry| entry.traffic.is_some_and(|traffic| !traffic.is_zero());
    let counts = driver.is_none_or(|driver| COUNTING.contains(&driver)) || entries.iter().any(moved);
    for VfListEntry { number, mut config, traffic } in entries {
        if fabric == Some(Fabric::InfiniBand) {
            // Netlink's MAC address is the PF's own, the same for every VF.
            (config.mac, config.vlan) = (None, None);
        }
        let traffic = traffic.filter(|_| counts);
        match vfs.binary_search_by_key(&number, |vf| vf.number) {
            Ok(at) => {
                if let Some(vf) = vfs.get_mut(at) {
                    (vf.config, vf.traffic) = (Some(config), traffic);
                }
            }
            Err(at) => vfs.insert(at, Vf { number, config: Some(config), traffic, ..Vf::default() }),
        }
    }
}

/// Fabric of a class of network controllers.
fn fabric_of(class: u32) -> Option<Fabric> {
    match class >> 8 {
        0x0200 => Some(Fabric::Ethernet),
        0x0207 => Some(Fabric::InfiniBand),
        _ => None,
    }
}

fn small(bytes: &[u8]) -> Reading<u32> {
    let number = text::parse_decimal(bytes).and_then(|number| u32::try_from(number).ok());
    number.map_or(Reading::Unreadable(ReadError::Malformed), Reading::Value)
}
