//! ACS on the ports between a GPU and a network card: what it sends up to the CPU that could go straight across.

use std::collections::{BTreeMap, BTreeSet};

use super::View;
use super::gpu::GpuTopology;
use crate::model::host::{Acs, AcsSwitches, PciIsolation, Posture};
use crate::model::ids::PciAddress;
use crate::model::pci_tree::{Distance, EndpointKind, TreeEndpoint};
use crate::model::sriov::{Pf, Vf};

/// As many directions as are listed.
const MOST: usize = 4;

/// Directions between GPUs and network cards below one root port that ACS redirects, on bare metal that gives nothing to guests.
///
/// Only the two ports where the paths part matter: request redirect acts on the port above the one who asks, completion
/// redirect on the port above the one who answers. A network card that is alone on its switch needs redirection on some
/// platforms and suffers nothing from it. Cards with address translation services pass it, and cards that reach a GPU
/// through a DMA function of their own must have it.
pub(super) fn acs(view: &View<'_>) -> Option<String> {
    let bare = view.snapshot.all::<Posture>().any(|posture| posture.virtualization == Some("none"));
    let topology = GpuTopology::new(view.snapshot).filter(|_| bare)?;
    let guests = view.snapshot.all::<Pf>().flat_map(|pf| &pf.vfs).any(Vf::is_for_user_space)
        || topology.tree.endpoints.values().any(TreeEndpoint::is_given_away);
    if guests || topology.setting.guest || topology.tree.of_kind(EndpointKind::DataDirect).next().is_some() {
        return None;
    }
    let isolation: BTreeMap<PciAddress, &PciIsolation> =
        view.snapshot.all::<PciIsolation>().map(|isolation| (isolation.address, isolation)).collect();
    let switches = |port: PciAddress| match isolation.get(&port)?.acs? {
        Acs::Switches(switches) => Some(switches),
        Acs::Hidden | Acs::None => None,
    };
    let mut directions: BTreeSet<(String, PciAddress)> = BTreeSet::new();
    for gpu in &topology.gpus {
        for nic in &topology.nics {
            let relation = topology.relation(gpu, nic.endpoint);
            let Some(common) = relation.common.filter(|_| relation.distance.is_some_and(Distance::is_near)) else {
                continue;
            };
            if isolation.get(&nic.endpoint.address).is_some_and(|card| card.ats == Some(true)) {
                continue;
            }
            let (Some(above_nic), Some(above_gpu)) = (below(nic.endpoint, common), below(gpu, common)) else {
                continue;
            };
            if switches(above_nic).is_some_and(AcsSwitches::redirects_requests) {
                let text = format!("{} to GPU {} (request redirect on {above_nic})", nic.device, gpu.address);
                directions.insert((text, above_nic));
            }
            if switches(above_gpu).is_some_and(AcsSwitches::redirects_completions) {
                let text =
                    format!("reads by {} from GPU {} (completion redirect on {above_gpu})", nic.device, gpu.address);
                directions.insert((text, above_gpu));
            }
        }
    }
    let ports: BTreeSet<String> = directions.iter().map(|(_, port)| port.to_string()).collect();
    let shown: Vec<&str> = directions.iter().take(MOST).map(|(text, _)| text.as_str()).collect();
    let more = directions.len().saturating_sub(shown.len());
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    (!directions.is_empty()).then(|| {
        format!(
            "ACS sends GPUDirect traffic through the CPU although it could stay within its PCIe switch: {}{more}. ACS isolates guests, and this host has none: turn it off in the BIOS, or with the kernel argument pci=disable_acs_redir={}.",
            shown.join(", "),
            ports.into_iter().collect::<Vec<_>>().join(";")
        )
    })
}

/// The port above an endpoint right below a port that it has in common with another.
fn below(endpoint: &TreeEndpoint, common: PciAddress) -> Option<PciAddress> {
    let position = endpoint.ports.iter().position(|port| *port == common)?;
    endpoint.ports.get(position.checked_sub(1)?).copied()
}
