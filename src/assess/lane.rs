//! What the PCIe paths leave of the ports' rates: ceilings and shares.

use std::collections::BTreeMap;

use crate::model::ids::{DeviceName, PciAddress, PortKey};
use crate::model::units::BytesPerSecond;

/// The path of one device, as far as its links are known.
#[derive(Debug, Clone, PartialEq)]
pub struct DevicePath {
    /// The PCI function the path starts at (a VF's own address; its links are its PF's).
    pub function: PciAddress,
    /// The least bandwidth over the hops.
    pub bandwidth: BytesPerSecond,
    /// The link that limits it, by name.
    pub limiting: PciAddress,
}

/// One port's rate and what is left of it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PortLane {
    /// Its rate, when it means something: the port is active.
    pub rate: Option<BytesPerSecond>,
    /// The least of rate and path.
    pub ceiling: Option<BytesPerSecond>,
    /// What it gets when all active ports of its path run at once, in proportion to their rates.
    pub share: Option<BytesPerSecond>,
}

/// The lanes of a host.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Lanes {
    /// Paths by device; a device whose path is unknown has none.
    pub paths: BTreeMap<DeviceName, DevicePath>,
    /// Every port.
    pub ports: BTreeMap<PortKey, PortLane>,
    /// The rates of the active ports that share a link, added up.
    pub demand: BTreeMap<PciAddress, BytesPerSecond>,
}
