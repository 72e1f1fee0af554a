//! The VF map as JSON. Names are those of the metrics where there is one.

use serde_json::{Map, Value, json};

use super::findings::{SCHEMA, host};
use crate::assess::vf::holders::HolderSources;
use crate::model::finding::Event;
use crate::model::holder::{Holder, Pod, VmManager};
use crate::model::ids::PciAddress;
use crate::model::sriov::{Fabric, Pf, Vf, VfConfig, VfDetail, VfKey, VfLink, Vlan};
use crate::model::time::rfc3339;
use crate::model::vfmap::{MappedVf, Signal, Verification};
use crate::watch::HostReport;

/// The map of these PFs, and what changed.
pub fn map(report: &HostReport, pfs: &[&Pf], changes: &[Event]) -> Value {
    let signals: Map<String, Value> = Signal::ALL
        .iter()
        .map(|signal| {
            let seen = report.vf_map.signal(*signal);
            let last = seen.last.map(rfc3339);
            (signal.as_str().to_owned(), json!({ "count": seen.count, "last": last }))
        })
        .collect();
    json!({
        "schema": SCHEMA,
        "host": host(report),
        "taken": rfc3339(report.snapshot.taken.wall),
        "pfs": pfs.iter().map(|pf| pf_value(report, pf)).collect::<Vec<_>>(),
        "migrations": signals,
        "changes": changes,
        "limited": report.limited,
    })
}

/// One PF with its VFs.
pub(super) fn pf_value(report: &HostReport, pf: &Pf) -> Value {
    let row = report.vf_map.pfs.get(&pf.address);
    let sources = HolderSources::new(&report.snapshot);
    let (detail, reason) = match pf.detail {
        VfDetail::Full => ("full", None),
        VfDetail::WithoutStatistics => ("without_statistics", None),
        VfDetail::NotAsked => ("not_asked", None),
        VfDetail::Unavailable(reason) => ("unavailable", Some(reason.as_str())),
    };
    json!({
        "pf": pf.address,
        "driver": pf.driver,
        "fabric": pf.fabric.map(|fabric| match fabric {
            Fabric::Ethernet => "ethernet",
            Fabric::InfiniBand => "infiniband",
        }),
        "netdevs": pf.netdevs,
        "devices": pf.devices,
        "up": pf.up.value(),
        "switchdev": pf.switchdev,
        "limit": pf.limit,
        "configured": pf.configured,
        "present": pf.present(),
        "reported": pf.reported,
        "detail": detail,
        "detail_unavailable_reason": reason,
        "generation": row.map(|row| row.generation),
        "last_change": row.and_then(|row| row.changed).map(rfc3339),
        "verified": report.vf_map.verified(pf.address).map(rfc3339),
        "holder": sources.holder_of_pf(pf).map(|held| json!({
            "kind": held.holder.kind(),
            "name": Some(held.holder.name()).filter(|name| !name.is_empty()),
            "pid": held.pid,
            "pod": pod_value(&held.holder),
            "vm": vm_value(&sources, &held.holder, Some(pf.address)),
        })),
        "vfs": pf.vfs.iter().map(|vf| vf_value(report, &sources, pf, vf)).collect::<Vec<_>>(),
    })
}

fn vf_value(report: &HostReport, sources: &HolderSources<'_>, pf: &Pf, vf: &Vf) -> Value {
    let claim = vf.address.and_then(|address| sources.claim(address));
    let row = report.vf_map.vfs.get(&VfKey { pf: pf.address, vf: vf.number });
    json!({
        "vf": vf.number,
        "pci_address": vf.address,
        "driver": vf.driver,
        "driver_override": vf.driver_override,
        "iommu_group": vf.iommu_group,
        "iommu_group_shared_with": &*vf.group_shared_with,
        "config": vf.config.as_ref().map(config_value),
        "config_missing": pf.unconfigured(vf),
        "claimed": claim.map(|(domain, claim)| json!({
            "domain": domain.name,
            "mac": claim.mac.map(|mac| mac.to_string()),
            "vlan": claim.vlan,
            "differs": vf.config.as_ref().map(|config| claim.differs(config)),
        })),
        "traffic": vf.traffic.map(|traffic| json!({
            "received_bytes": traffic.received_bytes,
            "transmitted_bytes": traffic.transmitted_bytes,
            "received_packets": traffic.received_packets,
            "transmitted_packets": traffic.transmitted_packets,
            "received_dropped": traffic.received_dropped,
            "transmitted_dropped": traffic.transmitted_dropped,
        })),
        "msix_vectors": vf.msix,
        "netdevs": vf.netdevs,
        "devices": vf.devices,
        "node": vf.node,
        "representor": vf.representor,
        "holder": row.map(|row| holder_value(sources, row, vf.address)),
        "allocated": row.and_then(|row| sources.allocation(vf.address, &row.holder)).map(|given| json!({
            "namespace": given.namespace,
            "pod": given.pod,
            "container": given.container,
            "resource": given.resource,
        })),
        "trust": row.map(|row| trust_value(row.verification)),
    })
}

fn config_value(config: &VfConfig) -> Value {
    json!({
        "mac": config.mac.map(|mac| mac.to_string()),
        "vlan": config.vlan.map(|vlan| vlan.id),
        "vlan_qos": config.vlan.map(|vlan| vlan.qos),
        "vlan_protocol": config.vlan.and_then(Vlan::protocol_name),
        "min_rate_megabits_per_second": config.min_rate,
        "max_rate_megabits_per_second": config.max_rate,
        "trust": config.trust,
        "spoof_check": config.spoof_check,
        "link_state": config.link.map(VfLink::as_str),
        "node_guid": config.node_guid.map(|guid| guid.to_string()),
        "port_guid": config.port_guid.map(|guid| guid.to_string()),
    })
}

/// The names of a pod; null for any other holder, and while they are unknown.
fn pod_value(holder: &Holder) -> Value {
    let Holder::Pod(Pod { uid, name: Some(name) }) = holder else { return Value::Null };
    json!({ "namespace": name.namespace, "pod": name.pod, "container": name.container, "uid": uid })
}

/// How a machine's manager calls it; null for any other holder, and if nothing describes it.
fn vm_value(sources: &HolderSources<'_>, holder: &Holder, address: Option<PciAddress>) -> Value {
    let Holder::Vm(vm) = holder else { return Value::Null };
    let Some(identity) = sources.identity(&vm.domain, address) else { return Value::Null };
    json!({
        "domain": vm.domain,
        "manager": identity.manager.map(VmManager::as_str),
        "name": identity.title,
        "uuid": identity.uuid,
        "project": identity.project,
    })
}

fn holder_value(sources: &HolderSources<'_>, row: &MappedVf, address: Option<PciAddress>) -> Value {
    let tenure = row.tenure.as_ref().filter(|tenure| tenure.holder == row.holder);
    let missing = match row.holder {
        Holder::Unknown(missing) => Some(missing.as_str()),
        _ => None,
    };
    json!({
        "kind": row.holder.kind(),
        "name": Some(row.holder.name()).filter(|name| !name.is_empty()),
        "pid": tenure.and_then(|tenure| tenure.pid),
        "since": tenure.map(|tenure| rfc3339(tenure.since)),
        "missing": missing,
        "pod": pod_value(&row.holder),
        "vm": vm_value(sources, &row.holder, address),
    })
}

fn trust_value(trust: Verification) -> Value {
    match trust {
        Verification::Undisturbed => json!({ "state": "undisturbed" }),
        Verification::Verified(at) => json!({ "state": "verified", "since": rfc3339(at) }),
        Verification::Unverified { since, signal } => {
            json!({ "state": "unverified", "since": rfc3339(since), "signal": signal.as_str() })
        }
    }
}
