//! What a probe must know of the port that it runs on.

use crate::assess::benchmark::Ceiling;
use crate::host::Host;
use crate::host::benchmark_port::{BenchmarkPort, bond_rate, max_payload};
use crate::model::host::NumaNode;
use crate::model::ids::{PciAddress, PortKey};
use crate::model::irq::CpuSet;
use crate::model::rdma::LinkLayer;
use crate::watch::HostReport;

/// A port to measure.
#[derive(Debug, Clone)]
pub struct BenchmarkTarget {
    /// The port.
    pub port: PortKey,
    /// Its function; none for a software device.
    pub function: Option<PciAddress>,
    /// The CPUs of its NUMA node; `None` if that is not known.
    pub cpus: Option<CpuSet>,
    /// The GID index to name, on Ethernet: one of RoCE v2.
    pub gid_index: Option<u32>,
    /// What its lane could carry.
    pub ceiling: Option<Ceiling>,
    /// Its files.
    files: BenchmarkPort,
}

impl BenchmarkTarget {
    /// Looks at a port; none when it is not there.
    pub fn new(report: &HostReport, host: &Host, key: &PortKey) -> Option<Self> {
        let device = report.snapshot.device(&key.device)?;
        let port = device.ports.iter().find(|port| port.number == key.port)?;
        let files = BenchmarkPort::new(host, key);
        let function = device.identity.pci_address;
        let node = function.and_then(|address| report.snapshot.function(address)).and_then(|f| f.numa_node);
        let nodes = report.snapshot.all::<NumaNode>();
        let cpus = node.and_then(|id| nodes.filter(|node| node.id == id).find_map(|node| node.cpus.clone()));
        let payload = function.and_then(|function| max_payload(host, function));
        let bond = port.netdev.as_deref().and_then(|netdev| bond_rate(host, netdev));
        Some(Self {
            port: key.clone(),
            function,
            cpus: cpus.and_then(|list| CpuSet::from_list(&list)),
            gid_index: (port.link_layer == Some(LinkLayer::Ethernet)).then(|| files.roce_v2_gid()).flatten(),
            ceiling: Ceiling::of_port(&report.lanes, &report.topology, key, bond, payload),
            files,
        })
    }

    /// Whether there is hardware behind it: software RDMA is as fast as the CPU, and has no ceiling.
    pub fn is_hardware(&self) -> bool {
        self.function.is_some()
    }

    /// Bytes that the port has received and transmitted, where it counts them.
    pub fn moved(&self) -> Option<(u64, u64)> {
        self.files.moved_bytes()
    }
}
