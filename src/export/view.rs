//! A report in the order in which it is exported.

use super::agent::{AgentState, Process};
use crate::assess::capacity::PortCapacity;
use crate::model::ids::{PciAddress, PortKey};
use crate::model::pcie::{FunctionKind, PciFunction};
use crate::model::rdma::{Port, RdmaDevice};
use crate::model::sriov::Pf;
use crate::watch::HostReport;

/// A report, its devices and functions in natural order, and the agent's own state.
pub struct ReportView<'a> {
    /// The report.
    pub report: &'a HostReport,
    /// The agent.
    pub agent: &'a AgentState,
    /// The agent's process.
    pub process: Process,
    /// RDMA devices in natural order of their names.
    pub devices: Vec<&'a RdmaDevice>,
    /// Their ports.
    pub ports: Vec<PortView<'a>>,
    /// PCI functions in order of their addresses.
    pub functions: Vec<&'a PciFunction>,
    /// PFs in order of their addresses.
    pub pfs: Vec<&'a Pf>,
}

/// One port with its device and what its path leaves of its rate.
pub struct PortView<'a> {
    /// The device.
    pub device: &'a RdmaDevice,
    /// The port.
    pub port: &'a Port,
    /// Rate, ceiling and share.
    pub lane: Option<&'a PortCapacity>,
    /// Whether it is a VF's, of which there may be hundreds: state and rate are shown, the PF counts the traffic.
    pub brief: bool,
}

impl<'a> ReportView<'a> {
    /// Sorts what a report has. Of things that claim the same name the first stands: a series must be unique.
    pub fn new(report: &'a HostReport, agent: &'a AgentState, process: Process) -> Self {
        let mut devices: Vec<&RdmaDevice> = report.snapshot.devices().collect();
        devices.sort_by(|a, b| a.name.cmp(&b.name));
        devices.dedup_by(|a, b| a.name == b.name);
        let mut functions: Vec<&PciFunction> = report.snapshot.all().collect();
        functions.sort_by_key(|function| function.address);
        functions.dedup_by_key(|function| function.address);
        let mut ports = Vec::with_capacity(devices.len());
        for device in &devices {
            let first = ports.len();
            let at = device.identity.pci_address.and_then(|address| {
                let index = functions.binary_search_by_key(&address, |function| function.address).ok()?;
                functions.get(index)
            });
            let brief = at.is_some_and(|function| matches!(function.kind, FunctionKind::Virtual { pf: Some(_) }));
            for port in &device.ports {
                let key = PortKey { device: device.name.clone(), port: port.number };
                ports.push(PortView { device, port, lane: report.lanes.ports.get(&key), brief });
            }
            if let Some(of_device) = ports.get_mut(first..) {
                of_device.sort_by_key(|row| row.port.number);
            }
        }
        ports.dedup_by(|a, b| a.port.number == b.port.number && a.device.name == b.device.name);
        let mut pfs: Vec<&Pf> = report.snapshot.all().collect();
        pfs.sort_by_key(|pf| pf.address);
        pfs.dedup_by_key(|pf| pf.address);
        Self { report, agent, process, devices, ports, functions, pfs }
    }

    /// The PCI function at an address, if it is watched.
    pub fn function(&self, address: PciAddress) -> Option<&'a PciFunction> {
        let index = self.functions.binary_search_by_key(&address, |function| function.address).ok()?;
        self.functions.get(index).copied()
    }
}
