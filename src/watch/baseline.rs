//! The baseline: what a host is like when all is well, raised by each pass.

use super::history_event::HistoryEvent;
use crate::assess::capacity::{HostCapacity, is_virtual};
use crate::assess::gpu::GpuTopology;
use crate::assess::irq::placement;
use crate::assess::ports::baseline_key;
use crate::model::finding::EventKind;
use crate::model::history::{GpuBaseline, History, IrqBaseline, LinkBaseline, PortBaseline};
use crate::model::ids::PortKey;
use crate::model::irq::IrqFunction;
use crate::model::snapshot::Snapshot;
use crate::model::topology::Topology;
use crate::model::units::link_bandwidth;

/// Raises the baseline to what is seen: a device, a port's best rate, a link's best speed and width. It never falls
/// by itself. VFs come and go with their guests and are not learned.
pub(super) fn learn_baseline(
    history: &mut History,
    snapshot: &Snapshot,
    topology: &Topology,
    lanes: &HostCapacity,
    news: &mut Vec<HistoryEvent>,
) {
    let nodes = history.nodes.clone();
    for device in snapshot.devices() {
        let function = device.identity.pci_address;
        if function.is_some_and(|function| is_virtual(snapshot, function)) {
            continue;
        }
        let key = baseline_key(history, device);
        // What was learned of it while its GUID could not be read.
        if key != device.name.as_str()
            && let Some(known) = history.baseline.devices.remove(device.name.as_str())
        {
            history.baseline.devices.entry(key.clone()).or_insert(known);
        }
        if !history.baseline.devices.contains_key(&key) {
            news.push((
                EventKind::BaselineLearned,
                device.name.to_string(),
                format!("{} was added to the baseline", device.name),
            ));
        }
        let known = history.baseline.devices.entry(key).or_default();
        if known.name != device.name.as_str() {
            device.name.as_str().clone_into(&mut known.name);
        }
        if let Some(function) =
            function.filter(|f| known.pci_address.as_ref().is_none_or(|text| *text != f.to_string()))
        {
            known.pci_address = Some(function.to_string());
        }
        for port in device.ports.iter().filter(|port| port.is_active()) {
            let lane = lanes.ports.get(&PortKey { device: device.name.clone(), port: port.number });
            let rate = lane.and_then(|lane| lane.rate).map(|rate| rate.0);
            let known =
                known.ports.entry(port.number).or_insert(PortBaseline { active: true, rate_bytes_per_second: None });
            known.active = true;
            known.rate_bytes_per_second = match (known.rate_bytes_per_second, rate) {
                (Some(before), Some(now)) => Some(before.max(now)),
                (before, now) => before.or(now),
            };
        }
        let Some(function) = function else { continue };
        let vectors = snapshot.all::<IrqFunction>().find(|vectors| vectors.address == function);
        if let Some(placement) = vectors.and_then(|vectors| placement(&nodes, vectors)) {
            let share = |placed: &IrqBaseline| (u128::from(placed.local) << 64) / u128::from(placed.vectors.max(1));
            let better = known.interrupts.is_none_or(|before| share(&placement) >= share(&before));
            known.interrupts = if better { Some(placement) } else { known.interrupts };
        }
        let seen: Vec<LinkBaseline> = topology
            .path(function)
            .map_while(|link| {
                let (speed, width) = (link.speed().current?, link.width().current?);
                Some(LinkBaseline { pci_address: link.name.to_string(), transfers_per_second: speed.0, lanes: width.0 })
            })
            .collect();
        for (hop, link) in seen.iter().enumerate() {
            let before = match hop {
                0 => known.path.first_mut(),
                _ => known.path.iter_mut().skip(1).find(|before| before.pci_address == link.pci_address),
            };
            match before {
                Some(before) => raise(before, link, &device.name.to_string(), news),
                None => known.path.push(link.clone()),
            }
        }
        if !seen.is_empty() && topology.is_whole(function) {
            let here =
                |before: &LinkBaseline| topology.path(function).any(|l| l.name.to_string() == before.pci_address);
            known.path.retain(here);
        }
    }
}

/// Learns how near each GPU's nearest RDMA card is; it never falls by itself.
pub(super) fn learn_gpus(history: &mut History, snapshot: &Snapshot) {
    let Some(topology) = GpuTopology::new(snapshot).filter(GpuTopology::is_comparable) else { return };
    for gpu in &topology.gpus {
        let Some(nearest) = topology.nearest(gpu) else { continue };
        let now = GpuBaseline { pci_address: gpu.address.to_string(), nearest };
        let known = history.baseline.gpus.entry(gpu.place()).or_insert_with(|| now.clone());
        *known = GpuBaseline { nearest: known.nearest.min(nearest), ..now };
    }
}

fn raise(before: &mut LinkBaseline, now: &LinkBaseline, device: &str, news: &mut Vec<HistoryEvent>) {
    let bandwidth = |link: &LinkBaseline| link_bandwidth(link.rate().0, link.rate().1).0;
    if bandwidth(now) > bandwidth(before) * (1.0 + 1e-9) {
        let (old, new) = (before.rate(), now.rate());
        let text = format!(
            "the link above {} is better than before: {} {} was {} {}",
            now.pci_address, new.0, new.1, old.0, old.1
        );
        news.push((EventKind::BaselineLearned, device.to_owned(), text));
        *before = now.clone();
    } else if before.pci_address != now.pci_address {
        before.pci_address.clone_from(&now.pci_address);
    }
}
