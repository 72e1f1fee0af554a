//! How drivers are asked about interfaces: statistics over an ioctl, the rest over generic netlink.

use std::io;
use std::sync::Arc;

use rustix::io::Errno;

use crate::host::netlink::socket::NetlinkConnector;

/// An offload by the kernel's name: whether it is on, and whether it can't be changed.
pub type Feature = (String, bool, bool);

/// A source of drivers' own statistics: the kernel's ioctl, or a fake in tests.
pub trait EthtoolConnection: Send {
    /// How many statistics there are; the number changes with queues and PFC.
    fn count(&self, netdev: &str) -> io::Result<usize>;
    /// Their names.
    fn names(&self, netdev: &str, count: usize) -> io::Result<Vec<String>>;
    /// Their values, in the same order.
    fn values(&self, netdev: &str, count: usize) -> io::Result<Vec<u64>>;
    /// Offloads, where ethtool netlink does not have them.
    ///
    /// # Errors
    /// The errno; `EOPNOTSUPP` if the source has none.
    fn features(&self, netdev: &str) -> io::Result<Vec<Feature>> {
        let _ = netdev;
        Err(Errno::OPNOTSUPP.into())
    }
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
