//! Network interfaces that share a port with an RDMA device (`/sys/class/net`).

use std::sync::Arc;

use super::ids::PciAddress;
use super::reading::Reading;
use super::units::BytesPerSecond;

/// One network interface of a watched function.
#[derive(Debug, Clone, PartialEq)]
pub struct Netdev {
    /// Interface name.
    pub name: Arc<str>,
    /// The PCI function it belongs to.
    pub pci_address: PciAddress,
    /// Port index on the function, from 0 (`dev_port`).
    pub port_index: Option<u32>,
    /// Hardware type (`type`): 1 Ethernet, 32 InfiniBand.
    pub hardware_type: Option<u32>,
    /// Whether the carrier is there; absent while the interface is down.
    pub carrier: Reading<bool>,
    /// Speed; absent when unknown (the kernel's -1).
    pub speed: Reading<BytesPerSecond>,
    /// Administrative and operational state (`operstate`).
    pub operstate: Option<Arc<str>>,
    /// Carrier changes since it was created.
    pub carrier_changes: Option<u64>,
    /// The bond that it is a member of (`master`).
    pub bond: Option<Arc<str>>,
    /// Whether the bond uses it (`bonding_slave/state`): `false` for a backup.
    pub bond_active: Option<bool>,
}
