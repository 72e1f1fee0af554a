//! How drivers are asked about interfaces: statistics over an ioctl, the rest over generic netlink.

use std::io;
use std::sync::Arc;

use crate::host::netlink::socket::NetlinkConnector;

/// A source of drivers' own statistics: the kernel's ioctl, or a fake in tests.
pub trait EthtoolConnection: Send {
    /// How many statistics there are; the number changes with queues and PFC.
    fn count(&self, netdev: &str) -> io::Result<usize>;
    /// Their names.
    fn names(&self, netdev: &str, count: usize) -> io::Result<Vec<String>>;
    /// Their values, in the same order.
    fn values(&self, netdev: &str, count: usize) -> io::Result<Vec<u64>>;
}

/// Opens a connection for drivers' own statistics.
pub type EthtoolConnector = Arc<dyn Fn() -> io::Result<Box<dyn EthtoolConnection>> + Send + Sync>;

/// Both ways to a driver.
#[derive(Clone)]
pub struct EthtoolAccess {
    /// Its own statistics.
    pub statistics: EthtoolConnector,
    /// Everything else (generic netlink, family `ethtool`); `None` if there is no netlink.
    pub netlink: Option<NetlinkConnector>,
}
