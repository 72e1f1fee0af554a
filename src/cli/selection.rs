//! What a person names: a device, a port, a function, an interface.

use super::error::CliError;
use crate::export::path::PathDiagram;
use crate::model::ids::PciAddress;
use crate::model::net::Netdev;
use crate::model::sriov::{Pf, Vf, VfKey};
use crate::watch::HostReport;

/// What goes by a name.
#[derive(Debug)]
pub enum Selection<'a> {
    /// Lanes, and the one port that was meant.
    Paths(Vec<&'a PathDiagram<'a>>, Option<u32>),
    /// A PF without an RDMA device here.
    Pf(&'a Pf),
    /// A VF without one: bound to vfio-pci, say.
    Vf(&'a Pf, &'a Vf),
}

/// Who goes by this name: an RDMA device or one of its ports (`mlx5_3`, `mlx5_3/1`), a PCI address on a path, with or
/// without the domain, or an interface.
///
/// # Errors
/// Nobody does; what there is.
pub fn select<'a>(report: &'a HostReport, lanes: &'a [PathDiagram<'a>], name: &str) -> Result<Selection<'a>, CliError> {
    let find = |device: &str| lanes.iter().find(|lane| lane.device.name.as_str() == device);
    if let Some(lane) = find(name) {
        return Ok(Selection::Paths(vec![lane], None));
    }
    if let Some((device, port)) = name.rsplit_once('/')
        && let Some(lane) = find(device)
    {
        let number = port.parse().ok().filter(|n| lane.ports.iter().any(|end| end.port.number == *n));
        let ports: Vec<String> = lane.ports.iter().map(|end| end.port.number.to_string()).collect();
        let unknown = || CliError::Usage(format!("{device} has no port {port:?}; its ports are {}", ports.join(", ")));
        return Ok(Selection::Paths(vec![lane], Some(number.ok_or_else(unknown)?)));
    }
    let with_port = |lane: &'a PathDiagram<'a>| {
        let end = lane.ports.iter().find(|end| end.port.netdev.as_deref() == Some(name))?;
        Some(Selection::Paths(vec![lane], Some(end.port.number).filter(|_| lane.ports.len() > 1)))
    };
    if let Some(found) = lanes.iter().find_map(with_port) {
        return Ok(found);
    }
    let address = address(name).or_else(|| {
        let netdev = report.snapshot.all::<Netdev>().find(|netdev| *netdev.name == *name);
        netdev.map(|netdev| netdev.pci_address)
    });
    let own: Vec<&PathDiagram<'_>> = lanes.iter().filter(|lane| lane.device.identity.pci_address == address).collect();
    let passing = |lane: &&'a PathDiagram<'a>| address.is_some_and(|address| lane.passes(address));
    let found = if own.is_empty() || address.is_none() { lanes.iter().filter(passing).collect() } else { own };
    if !found.is_empty() {
        return Ok(Selection::Paths(found, None));
    }
    let pfs = || report.snapshot.all::<Pf>();
    let pf = pfs().find(|pf| pf_matches(pf, name)).map(Selection::Pf);
    let vf = || pfs().find_map(|pf| pf.vfs.iter().find(|vf| vf_matches(pf, vf, name)).map(|vf| Selection::Vf(pf, vf)));
    pf.or_else(vf).ok_or_else(|| no_match(report, lanes, name))
}

/// Whether a PF goes by this name: its address, with or without the domain, an interface or an RDMA device.
pub fn pf_matches(pf: &Pf, name: &str) -> bool {
    address(name) == Some(pf.address)
        || pf.netdevs.iter().any(|netdev| **netdev == *name)
        || pf.devices.iter().any(|device| device.as_str() == name)
}

/// Whether a VF goes by this name: its address, with or without the domain, its representor, or `0000:98:00.0/vf3`.
fn vf_matches(pf: &Pf, vf: &Vf, name: &str) -> bool {
    let key = VfKey { pf: pf.address, vf: vf.number };
    (vf.address.is_some() && address(name) == vf.address)
        || name.parse() == Ok(key)
        || vf.representor.as_deref() == Some(name)
}

/// A PCI address, whose domain is 0 where none is written.
fn address(name: &str) -> Option<PciAddress> {
    name.parse().or_else(|_| format!("0000:{name}").parse()).ok()
}

fn no_match(report: &HostReport, lanes: &[PathDiagram<'_>], name: &str) -> CliError {
    let lane = |lane: &PathDiagram<'_>| {
        let address = lane.device.identity.pci_address;
        let own = |netdev: &&Netdev| Some(netdev.pci_address) == address;
        let netdevs = report.snapshot.all::<Netdev>().filter(own).map(|netdev| netdev.name.to_string());
        let others: Vec<String> = address.iter().map(ToString::to_string).chain(netdevs).collect();
        let others = if others.is_empty() { String::new() } else { format!(" ({})", others.join(", ")) };
        format!("{}{others}", lane.device.name)
    };
    let pfs = report.snapshot.all::<Pf>().filter(|pf| pf.devices.is_empty()).map(|pf| pf.address.to_string());
    let there: Vec<String> = lanes.iter().map(lane).chain(pfs).collect();
    let there = if there.is_empty() { "it has none".to_owned() } else { format!("it has {}", there.join(", ")) };
    CliError::Usage(format!("no device, port, PCI address or interface {name:?} on this host; {there}"))
}
