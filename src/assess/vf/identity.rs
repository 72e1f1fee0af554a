//! MAC addresses and GUIDs: never set, set twice, or changed under their holder.

use std::collections::BTreeMap;

use super::config::enable_link;
use super::{Scene, Seen};
use crate::assess::verdicts::Verdicts;
use crate::model::check::{Check, Severity};
use crate::model::holder::Holder;
use crate::model::ids::Guid;
use crate::model::reading::ReadError;
use crate::model::reason::FindingReason;
use crate::model::sriov::{Fabric, Mac, VfDetail, VfKey, VfLink};
use crate::model::vfmap::VfIdentity;

/// `vf_identity_zero`: a GUID of an InfiniBand VF is zero (or all ones). A zero MAC address on Ethernet is none: the
/// guest makes its own.
pub(super) fn zero(scene: &Scene<'_>, verdicts: &mut Verdicts) {
    for seen in scene.vfs() {
        let unused = seen.vf.driver.is_none() && seen.row.holder == Holder::None;
        if seen.pf.fabric == Some(Fabric::Ethernet) || unused {
            verdicts.skipped(Check::VfIdentityZero);
            continue;
        }
        let guids = seen.vf.config.map(|config| [("node_guid", config.node_guid), ("port_guid", config.port_guid)]);
        let Some(guids) = guids.filter(|guids| guids.iter().any(|(_, guid)| guid.is_some())) else {
            // What the driver does not offer is nothing that could be read.
            let refused = match seen.pf.detail {
                VfDetail::Unavailable(reason) => Some(reason).filter(|reason| *reason != ReadError::NotSupported),
                _ => None,
            };
            verdicts.unknown(Check::VfIdentityZero, seen.subject(), refused.filter(|_| seen.vf.config.is_none()));
            continue;
        };
        let of = |bad: u64| -> Vec<&str> {
            guids.iter().filter(|(_, guid)| *guid == Some(Guid(bad))).map(|(name, _)| *name).collect()
        };
        let (reason, bad) = match (of(0), of(u64::MAX)) {
            (zero, ones) if zero.is_empty() && ones.is_empty() => {
                verdicts.ok(Check::VfIdentityZero);
                continue;
            }
            (zero, ones) if zero.is_empty() => (FindingReason::GuidAllOnes, ones),
            (zero, _) => (FindingReason::GuidZero, zero),
        };
        let what = if reason == FindingReason::GuidZero { "no" } else { "an invalid" };
        let is_down = seen.vf.config.is_some_and(|config| config.link == Some(VfLink::Disable));
        let link = if is_down {
            format!(" Its PF also keeps its link down. {}.", enable_link(seen.pf, seen.key.vf))
        } else {
            String::new()
        };
        let summary = format!(
            "{} has {what} {}, so its port never becomes ACTIVE. Set both (`ip link set {} vf {} node_guid ... port_guid ...`), \
             then rebind its driver.{link} The subnet manager must serve VFs (`virt_enabled 2` in NVIDIA's opensm.conf).",
            seen.name(),
            bad.join(" and "),
            seen.interface(),
            seen.key.vf
        );
        verdicts.found(seen.condition(Check::VfIdentityZero, Severity::Warning, reason, summary));
    }
}

/// `vf_identity_duplicate`: VFs of this host with one GUID, or one MAC address in one VLAN. A VF's node and port GUID
/// may be the same.
pub(super) fn duplicate(scene: &Scene<'_>, verdicts: &mut Verdicts) {
    let mut guids: BTreeMap<Guid, Vec<VfKey>> = BTreeMap::new();
    let mut macs: BTreeMap<(Mac, u16), Vec<VfKey>> = BTreeMap::new();
    let vlan = |seen: &Seen<'_>| seen.vf.config.and_then(|config| config.vlan).map_or(0, |vlan| vlan.id);
    let identity = |seen: &Seen<'_>| seen.vf.config.as_ref().map(VfIdentity::of).unwrap_or_default();
    for seen in scene.vfs() {
        let own = identity(&seen);
        let mut note = |guid: Guid| {
            let keys = guids.entry(guid).or_default();
            if keys.last() != Some(&seen.key) {
                keys.push(seen.key);
            }
        };
        own.node_guid.into_iter().chain(own.port_guid).for_each(&mut note);
        if let Some(mac) = own.mac {
            macs.entry((mac, vlan(&seen))).or_default().push(seen.key);
        }
    }
    for seen in scene.vfs() {
        let own = identity(&seen);
        let others = |keys: Option<&Vec<VfKey>>| -> Vec<VfKey> {
            keys.into_iter().flatten().copied().filter(|key| *key != seen.key).collect()
        };
        let by_guid = own.port_guid.into_iter().chain(own.node_guid).find_map(|guid| {
            let others = others(guids.get(&guid));
            (!others.is_empty()).then(|| (FindingReason::Guid, format!("GUID {guid}"), others))
        });
        let by_mac = || {
            let mac = own.mac?;
            let others = others(macs.get(&(mac, vlan(&seen))));
            (!others.is_empty()).then(|| (FindingReason::Mac, format!("MAC address {mac}"), others))
        };
        let Some((reason, what, others)) = by_guid.or_else(by_mac) else {
            verdicts.ok(Check::VfIdentityDuplicate);
            continue;
        };
        let names: Vec<String> = others.iter().map(ToString::to_string).collect();
        let summary = format!(
            "{} has {what}, the same as {}: frames for one may reach the other or get lost. Set a unique one (`ip link set {} \
             vf {} ...`).",
            seen.name(),
            names.join(", "),
            seen.interface(),
            seen.key.vf
        );
        verdicts.found(
            seen.condition(Check::VfIdentityDuplicate, Severity::Critical, reason, summary)
                .with_evidence("same_as", Some(names)),
        );
    }
}

/// `vf_identity_changed`: the MAC address or GUIDs changed under a holder, or a machine came back with a VF of another
/// identity.
pub(super) fn changed(scene: &Scene<'_>, verdicts: &mut Verdicts) {
    let machines = &scene.view.history.vf_map.machines;
    let mut held: BTreeMap<&str, Vec<VfIdentity>> = BTreeMap::new();
    for seen in scene.vfs() {
        if let Holder::Vm(vm) = &seen.row.holder {
            held.entry(&vm.domain).or_default().push(seen.row.identity);
        }
    }
    for seen in scene.vfs() {
        let row = seen.row;
        let tenure = row.tenure.as_ref().filter(|tenure| {
            tenure.holder == row.holder && !matches!(tenure.holder, Holder::Host(_) | Holder::Netns(_))
        });
        // What the machine had before is its own, whatever the VF was when it was taken.
        let is_its_own =
            machines.get(row.holder.name()).is_some_and(|expected| expected.iter().any(|one| one.is(&row.identity)));
        let under = tenure.filter(|tenure| !is_its_own && tenure.identity.differs(&row.identity));
        let under = under.map(|tenure| tenure.identity);
        let expected = || {
            let Holder::Vm(vm) = &row.holder else { return None };
            let (expected, now) = (machines.get(&vm.domain)?, held.get(&*vm.domain)?);
            if row.identity.is_empty() || expected.iter().any(|one| one.is(&row.identity)) {
                return None;
            }
            expected.iter().find(|one| !now.iter().any(|now| now.is(one))).copied()
        };
        let (reason, before) = match (under, expected()) {
            (Some(before), _) => (FindingReason::UnderHolder, before),
            (None, Some(before)) => (FindingReason::OtherVf, before),
            (None, None) => {
                verdicts.ok(Check::VfIdentityChanged);
                continue;
            }
        };
        let how = match reason {
            FindingReason::UnderHolder => "changed while it was in use",
            _ => "differs from what its VM had before",
        };
        let summary = format!(
            "The identity of {}, used by {}, {how}: it was {before} and is now {}. Restore the old one; or restart the guest, update \
             fabric and peers, and run `lanewatch baseline accept`.",
            seen.name(),
            row.holder,
            row.identity
        );
        verdicts.found(seen.condition(Check::VfIdentityChanged, Severity::Warning, reason, summary));
    }
}
