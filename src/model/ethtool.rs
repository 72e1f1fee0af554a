//! What an Ethernet port counts besides its RDMA device: pauses, discards, errors of the line and of the PCIe side.

use std::sync::Arc;

use super::counter::CounterClass;
use super::ids::{DeviceName, PciAddress};
use super::time::BootTime;

/// Which way, as seen from this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PauseDirection {
    /// From the network: it asked this host to wait.
    Received,
    /// To the network: this host asked it to wait.
    Transmitted,
}

impl PauseDirection {
    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Received => "received",
            Self::Transmitted => "transmitted",
        }
    }
}

/// What a statistic means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatisticKind {
    /// An event of a class.
    Event(CounterClass),
    /// Pause frames of a priority (PFC).
    PfcFrames {
        /// 0 to 7.
        priority: u8,
        /// Which way.
        direction: PauseDirection,
    },
    /// Time for which traffic stood still, in microseconds.
    PauseMicroseconds {
        /// 0 to 7; none for pauses of the whole link.
        priority: Option<u8>,
        /// Which way.
        direction: PauseDirection,
    },
    /// A level in percent of the last second.
    Percent,
}

/// One statistic that is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetdevStatistic {
    /// The driver's name for it.
    pub name: Arc<str>,
    /// What it means.
    pub meaning: StatisticKind,
}

/// The known statistics of an interface.
#[derive(Debug, Clone, PartialEq)]
pub struct NetdevStatistics {
    /// The interface.
    pub netdev: Arc<str>,
    /// Its function.
    pub pci_address: PciAddress,
    /// The RDMA device that shares its port.
    pub device: DeviceName,
    /// What there is, in the driver's order.
    pub layout: Arc<[NetdevStatistic]>,
    /// Values in the same order.
    pub values: Vec<u64>,
    /// When they were read.
    pub at: BootTime,
}

impl NetdevStatistics {
    /// Statistics and their values.
    pub fn iter(&self) -> impl Iterator<Item = (&NetdevStatistic, u64)> {
        self.layout.iter().zip(self.values.iter().copied())
    }

    /// The value of this name.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.iter().find_map(|(statistic, value)| (*statistic.name == *name).then_some(value))
    }
}

/// How an Ethernet line is run (ethtool netlink, `PAUSE_GET` and `FEC_GET`). What the driver does not say is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NetdevLine {
    /// The interface.
    pub netdev: Arc<str>,
    /// How errors are corrected: `off`, `rs`, `baser`, `llrs`.
    pub fec: Option<&'static str>,
    /// Whether pauses of the whole link are obeyed and sent: received, transmitted.
    pub pause: Option<(bool, bool)>,
}
