//! What drivers say of their devices' health (devlink health reporters), and how warm the devices are (hwmon).

use std::sync::Arc;

use super::ids::{DeviceName, PciAddress};
use super::units::Celsius;

/// One reporter of a driver, over all ports that have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reporter {
    /// The driver's name for it: `fw`, `fw_fatal`, `tx`, `rx`, `vnic`.
    pub name: Arc<str>,
    /// Whether what it last reported is not fixed.
    pub in_error: bool,
    /// Errors that it reported.
    pub errors: u64,
    /// Recoveries that succeeded.
    pub recoveries: u64,
    /// Whether the driver recovers by itself; `None` if it cannot recover.
    pub auto_recover: Option<bool>,
}

/// The reporters of one function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FunctionHealth {
    /// The function.
    pub pci_address: PciAddress,
    /// The RDMA device on it.
    pub device: DeviceName,
    /// By name.
    pub reporters: Vec<Reporter>,
}

/// A temperature sensor of a function (`<function>/hwmon/hwmon*/temp*`).
#[derive(Debug, Clone, PartialEq)]
pub struct NicTemperature {
    /// The function.
    pub pci_address: PciAddress,
    /// The driver's label, else the file's name (`temp1`); unique within the function.
    pub sensor: Arc<str>,
    /// The temperature now.
    pub value: Celsius,
    /// The sensor's own limit (`temp*_crit`); `None` if it has none.
    pub critical: Option<Celsius>,
}
