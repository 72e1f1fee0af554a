//! What drivers say of their devices' health (devlink health reporters).

use std::sync::Arc;

use super::ids::{DeviceName, PciAddress};

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
