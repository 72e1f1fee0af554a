//! GPUs and the network cards near them: who is far from its card although its siblings are not.

use std::collections::BTreeMap;

use super::View;
use super::limits::DEVICE_HOLD;
use super::verdicts::Verdicts;
use crate::model::check::{Check, Severity};
use crate::model::finding::{Condition, Subject};
use crate::model::host::Machine;
use crate::model::ids::{DeviceName, PciAddress};
use crate::model::irq::NodeCpus;
use crate::model::pci_tree::{
    Distance, EndpointKind, PciTree, Relation, TreeEndpoint, TreeSetting, Uplink, vendor_name,
};
use crate::model::pcie::FunctionKind;
use crate::model::reason::FindingReason;
use crate::model::snapshot::Snapshot;
use crate::model::units::BytesPerSecond;

/// Of so many GPUs of a model, all but one in four have a near card where the one without is the odd one: hosts are built with
/// fewer cards than GPUs, too.
const ODD_ONE_OUT: usize = 4;

/// A network card of an RDMA device.
#[derive(Debug, Clone, Copy)]
pub struct RdmaNic<'a> {
    /// The device.
    pub device: &'a DeviceName,
    /// Its function.
    pub endpoint: &'a TreeEndpoint,
}

/// The GPUs and RDMA devices of a host, and how near they are.
#[derive(Debug, Clone)]
pub struct GpuTopology<'a> {
    /// The tree.
    pub tree: &'a PciTree,
    /// What the host is like.
    pub setting: TreeSetting,
    /// GPUs in order of their addresses.
    pub gpus: Vec<&'a TreeEndpoint>,
    /// RDMA devices, without VFs whose PF is here, in natural order of their names.
    pub nics: Vec<RdmaNic<'a>>,
    rates: BTreeMap<PciAddress, BytesPerSecond>,
}

impl<'a> GpuTopology<'a> {
    /// What a snapshot has; `None` if the tree was not read.
    pub fn new(snapshot: &'a Snapshot) -> Option<Self> {
        let tree: &PciTree = snapshot.all().next()?;
        let hypervisor = snapshot.all::<Machine>().any(|machine| machine.hypervisor == Some(true));
        let setting = TreeSetting { guest: hypervisor, single_node: !NodeCpus::of(snapshot).are_several() };
        let mut nics = Vec::new();
        let mut rates: BTreeMap<PciAddress, BytesPerSecond> = BTreeMap::new();
        for device in snapshot.devices() {
            let Some(address) = device.identity.pci_address.filter(|address| !is_vf_here(snapshot, *address)) else {
                continue;
            };
            for rate in device.ports.iter().filter_map(|port| port.rate.value()) {
                *rates.entry(address).or_default() += rate.bandwidth;
            }
            if let Some(endpoint) = tree.endpoints.get(&address) {
                nics.push(RdmaNic { device: &device.name, endpoint });
            }
        }
        nics.sort_by(|a, b| a.device.cmp(b.device));
        nics.dedup_by(|a, b| a.device == b.device);
        Some(Self { tree, setting, gpus: tree.of_kind(EndpointKind::Gpu).collect(), nics, rates })
    }

    /// How a GPU and another endpoint lie to each other.
    pub fn relation(&self, gpu: &TreeEndpoint, other: &TreeEndpoint) -> Relation {
        self.tree.relation(gpu, other, self.setting)
    }

    /// What the PCIe path between two endpoints carries each way; `None` unless they are below one root port.
    pub fn bandwidth(&self, gpu: &TreeEndpoint, other: &TreeEndpoint) -> Option<BytesPerSecond> {
        let relation = self.relation(gpu, other);
        let common = relation.common.filter(|_| relation.distance.is_some_and(Distance::is_near))?;
        self.tree.bandwidth(gpu, other, common)
    }

    /// Uplinks of switches, with what could be asked of them.
    pub fn uplinks(&self) -> BTreeMap<PciAddress, Uplink> {
        self.tree.uplinks(|address| self.rates.get(&address).copied())
    }

    /// Cards of the kinds that RDMA devices are on, whether they have a device now or not: a card that was given to a guest, or
    /// whose driver failed, is still near its GPU.
    fn cards(&self) -> impl Iterator<Item = &'a TreeEndpoint> + '_ {
        let of_a_device = |card: &TreeEndpoint| self.nics.iter().any(|nic| nic.endpoint.ids.own == card.ids.own);
        self.tree.of_kind(EndpointKind::Nic).filter(move |card| of_a_device(card))
    }

    /// The distance of a GPU to the nearest card; `None` if there is none, or it is unknown.
    pub fn nearest(&self, gpu: &TreeEndpoint) -> Option<Distance> {
        self.cards().filter_map(|card| self.relation(gpu, card).distance).min()
    }

    /// Whether places in the tree can be compared with each other and with the past: on bare metal without network cards that
    /// reach GPUs through a DMA function of their own, and so are far by design.
    pub fn is_comparable(&self) -> bool {
        !self.setting.guest
            && self.tree.of_kind(EndpointKind::DataDirect).next().is_none()
            && self.cards().next().is_some()
    }
}

/// Whether a function is a VF whose PF is here. A guest's own VF is a card like any other.
fn is_vf_here(snapshot: &Snapshot, function: PciAddress) -> bool {
    snapshot.function(function).is_some_and(|f| matches!(f.kind, FunctionKind::Virtual { pf: Some(_) }))
}

/// `gpu_nic_far`: a GPU without a near RDMA card, though most GPUs of its model have one, or it had one itself.
pub fn far(view: &View<'_>, verdicts: &mut Verdicts) {
    let Some(topology) = GpuTopology::new(view.snapshot) else { return };
    if !topology.is_comparable() {
        topology.gpus.iter().for_each(|_| verdicts.skipped(Check::GpuNicFar));
        return;
    }
    let nearest: Vec<Option<Distance>> = topology.gpus.iter().map(|gpu| topology.nearest(gpu)).collect();
    for (gpu, distance) in topology.gpus.iter().zip(&nearest) {
        let Some(distance) = *distance else {
            verdicts.unknown(Check::GpuNicFar, Subject::Pci(gpu.address), None);
            continue;
        };
        let siblings = || topology.gpus.iter().zip(&nearest).filter(|(other, _)| other.ids.own == gpu.ids.own);
        let (all, near) =
            (siblings().count(), siblings().filter(|(_, other)| other.is_some_and(Distance::is_near)).count());
        let learned = view.history.baseline.gpus.get(&gpu.place()).map(|known| known.nearest);
        let is_odd = !distance.is_near() && all >= ODD_ONE_OUT && (all - near) * ODD_ONE_OUT <= all;
        let (reason, before) = match learned {
            Some(before) if before < distance => (
                FindingReason::Baseline,
                format!("the baseline has one at {before}. Check whether a card was moved or is missing"),
            ),
            _ if is_odd => (
                FindingReason::Peers,
                format!(
                    "{near} of {all} GPUs of its model have one on their own switch. Check whether its card is missing or in the wrong slot"
                ),
            ),
            _ => {
                verdicts.ok(Check::GpuNicFar);
                continue;
            }
        };
        let summary = format!(
            "The {} GPU {} has no RDMA card nearer than {distance}; {before}. Transfers between this GPU and the network go through the CPU.",
            vendor_name(gpu.ids.own.0),
            gpu.address
        );
        verdicts.found(
            Condition::new(Check::GpuNicFar, Subject::Pci(gpu.address), Severity::Warning, reason, summary)
                .address(Some(gpu.address))
                .with_evidence("distance", Some(distance.as_str()))
                .with_evidence(
                    "expected_distance",
                    learned.filter(|_| reason == FindingReason::Baseline).map(Distance::as_str),
                )
                .hold(DEVICE_HOLD),
        );
    }
}
