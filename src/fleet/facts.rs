//! What the series of one host say, as plain facts.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::client::Series;
use crate::model::check::Check;
use crate::model::reason::FindingReason;
use crate::model::units::{BytesPerSecond, Lanes, TransfersPerSecond, link_bandwidth};

/// A host: the values of the labels that tell hosts apart, in their order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub Arc<[Arc<str>]>);

impl HostId {
    /// The host that a series is of.
    pub fn of(row: &Series, identity: &[String]) -> Self {
        Self(identity.iter().map(|label| Arc::from(row.labels.get(label))).collect())
    }
}

/// An RDMA device that is neither a VF nor a sub-function.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DeviceFacts {
    /// PCI function; empty for a software device.
    pub pci_address: String,
    /// Driver.
    pub driver: String,
    /// Firmware.
    pub firmware: String,
    /// Board.
    pub board: String,
    /// The device's type, `MT4123`.
    pub hca_type: String,
    /// Node GUID; empty when unknown.
    pub node_guid: String,
    /// NUMA node.
    pub numa_node: String,
    /// `pf` or `none`.
    pub function: String,
    /// What its whole PCIe path carries.
    pub path: Option<BytesPerSecond>,
    /// The narrowest link of its path.
    pub limiting: String,
}

/// A port.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PortFacts {
    /// `InfiniBand` or `Ethernet`.
    pub link_layer: String,
    /// What its traffic leaves the host by: `function`, `bond`, `none`; empty if its agent does not say.
    pub uplink: String,
    /// Rate; none unless it is active.
    pub rate: Option<BytesPerSecond>,
    /// The least of rate and path.
    pub ceiling: Option<BytesPerSecond>,
    /// What is left of it when all ports of the path run at once.
    pub share: Option<BytesPerSecond>,
    /// The last rate that its wires had.
    pub past: Option<BytesPerSecond>,
}

impl PortFacts {
    /// Whether it has a wire of its own. Representors and the ports for a card's planes have none.
    pub fn has_wire(&self) -> bool {
        self.uplink != "none"
    }
}

/// A PCIe link.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LinkFacts {
    /// What it carries.
    pub current: Option<BytesPerSecond>,
    /// What it could carry, both ends considered.
    pub capable: Option<BytesPerSecond>,
    /// The fastest speed of its device.
    pub max_speed: Option<TransfersPerSecond>,
    /// The most lanes of its device.
    pub max_width: Option<Lanes>,
}

impl LinkFacts {
    /// What the device could carry in a better slot.
    pub fn device(&self) -> Option<BytesPerSecond> {
        Some(link_bandwidth(self.max_speed?, self.max_width?))
    }
}

/// The VFs of a PF.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PfFacts {
    /// How many there can be.
    pub limit: Option<u32>,
    /// How many are configured.
    pub configured: Option<u32>,
    /// How many functions there are.
    pub present: Option<u32>,
    /// How many are held, by the kind of holder.
    pub holders: BTreeMap<String, u32>,
}

/// A finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FindingFact {
    /// Check; `None` if this version does not know it.
    pub check: Option<Check>,
    /// Reason; `None` if this version does not know it.
    pub reason: Option<FindingReason>,
    /// Device.
    pub device: String,
    /// Port; empty when the finding is about none.
    pub port: String,
}

/// A device and a port's number.
pub type PortName = (String, String);

/// One host.
#[derive(Debug, Clone, PartialEq)]
pub struct HostFacts {
    /// Which.
    pub id: HostId,
    /// The values of the labels to group by; those of devices are empty here.
    pub group: Vec<String>,
    /// Version of its agent.
    pub version: String,
    /// When its checks last ran, in seconds since 1970.
    pub evaluated: Option<f64>,
    /// Devices by name.
    pub devices: BTreeMap<String, DeviceFacts>,
    /// Ports.
    pub ports: BTreeMap<PortName, PortFacts>,
    /// Links by the function that names them.
    pub links: BTreeMap<String, LinkFacts>,
    /// PFs by address.
    pub pfs: BTreeMap<String, PfFacts>,
    /// Findings.
    pub findings: Vec<FindingFact>,
}

/// A count; none for what no count is.
fn count(value: f64) -> Option<u32> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked")]
    (value >= 0.0 && value <= f64::from(u32::MAX) && value.fract() == 0.0).then_some(value as u32)
}

/// A rate; none for what no rate is.
fn rate(value: f64) -> Option<BytesPerSecond> {
    (value.is_finite() && value >= 0.0).then_some(BytesPerSecond(value))
}

impl HostFacts {
    /// A host of which nothing more is known.
    pub fn new(id: HostId, group: Vec<String>, version: String) -> Self {
        Self {
            id,
            group,
            version,
            evaluated: None,
            devices: BTreeMap::new(),
            ports: BTreeMap::new(),
            links: BTreeMap::new(),
            pfs: BTreeMap::new(),
            findings: Vec::new(),
        }
    }

    fn port(&mut self, row: &Series) -> &mut PortFacts {
        self.ports.entry((row.labels.get("device").to_owned(), row.labels.get("port").to_owned())).or_default()
    }

    fn link(&mut self, row: &Series) -> &mut LinkFacts {
        self.links.entry(row.labels.get("pci_address").to_owned()).or_default()
    }

    fn pf(&mut self, row: &Series) -> &mut PfFacts {
        self.pfs.entry(row.labels.get("pf").to_owned()).or_default()
    }

    fn device(&mut self, row: &Series) -> &mut DeviceFacts {
        self.devices.entry(row.labels.get("device").to_owned()).or_default()
    }

    /// Takes a number. The path of a device is taken by [`Self::info`] first, so that VFs stay out.
    pub fn value(&mut self, row: &Series) {
        let value = row.value;
        match row.labels.get("__name__") {
            "lanewatch_port_rate_bytes_per_second" => self.port(row).rate = rate(value),
            "lanewatch_port_ceiling_bytes_per_second" => self.port(row).ceiling = rate(value),
            "lanewatch_port_share_bytes_per_second" => self.port(row).share = rate(value),
            "lanewatch_pcie_path_bandwidth_bytes_per_second" => {
                if let Some(device) = self.devices.get_mut(row.labels.get("device")) {
                    device.path = rate(value);
                }
            }
            "lanewatch_pcie_link_current_bandwidth_bytes_per_second" => self.link(row).current = rate(value),
            "lanewatch_pcie_link_capable_bandwidth_bytes_per_second" => self.link(row).capable = rate(value),
            "lanewatch_pcie_link_max_speed_transfers_per_second" => {
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate is not negative")]
                let speed = rate(value).map(|speed| TransfersPerSecond(speed.0 as u64));
                self.link(row).max_speed = speed;
            }
            "lanewatch_pcie_link_max_width_lanes" => {
                self.link(row).max_width = count(value).and_then(|lanes| u8::try_from(lanes).ok()).map(Lanes);
            }
            "lanewatch_sriov_vfs" => match row.labels.get("kind") {
                "configured" => self.pf(row).configured = count(value),
                "present" => self.pf(row).present = count(value),
                _ => {}
            },
            "lanewatch_sriov_vfs_limit" => self.pf(row).limit = count(value),
            "lanewatch_evaluation_timestamp_seconds" => self.evaluated = Some(value),
            _ => {}
        }
    }

    /// Takes labels.
    pub fn info(&mut self, row: &Series) {
        let text = |label: &str| row.labels.get(label).to_owned();
        match row.labels.get("__name__") {
            "lanewatch_device_info" => {
                let device = self.device(row);
                let (path, limiting) = (device.path, std::mem::take(&mut device.limiting));
                *device = DeviceFacts {
                    pci_address: text("pci_address"),
                    driver: text("driver"),
                    firmware: text("firmware_version"),
                    board: text("board_id"),
                    hca_type: text("hca_type"),
                    node_guid: text("node_guid"),
                    numa_node: text("numa_node"),
                    function: text("function"),
                    path,
                    limiting,
                };
            }
            "lanewatch_port_info" => {
                let port = self.port(row);
                (port.link_layer, port.uplink) = (text("link_layer"), text("uplink"));
            }
            "lanewatch_pcie_path_info" => self.device(row).limiting = text("limiting_pci_address"),
            _ => {}
        }
    }

    /// Takes a finding.
    pub fn finding(&mut self, row: &Series) {
        let text = |label: &str| row.labels.get(label).to_owned();
        let (check, reason) = (text("check").parse().ok(), FindingReason::parse(&text("reason")));
        self.findings.push(FindingFact { check, reason, device: text("device"), port: text("port") });
    }

    /// Takes a count of VFs with one kind of holder.
    pub fn holder(&mut self, row: &Series) {
        let held = count(row.value).unwrap_or(0);
        let held_by = self.pf(row).holders.entry(row.labels.get("holder_kind").to_owned()).or_default();
        *held_by = held_by.saturating_add(held);
    }

    /// Takes the last rate of a wire: that of a port is what its wires carried together.
    pub fn past(&mut self, row: &Series) {
        if let Some(rate) = rate(row.value) {
            *self.port(row).past.get_or_insert(BytesPerSecond(0.0)) += rate;
        }
    }

    /// Whether something is down or gone whose rate only the past can tell.
    pub fn needs_past(&self) -> bool {
        self.findings.iter().any(|finding| matches!(finding.check, Some(Check::PortDown | Check::DeviceMissing)))
    }

    /// The reason of a check's finding on a port; on any of a device's ports where the port is empty.
    pub fn reason(&self, check: Check, device: &str, port: &str) -> Option<FindingReason> {
        self.finding_on(check, device, port)?.reason
    }

    /// A check's finding on a port; on any of a device's ports where the port is empty.
    pub fn finding_on(&self, check: Check, device: &str, port: &str) -> Option<&FindingFact> {
        let wanted =
            |finding: &&FindingFact| finding.check == Some(check) && finding.device == device && finding.port == port;
        self.findings.iter().find(wanted)
    }
}
