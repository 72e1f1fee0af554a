//! What the PF makes of a VF: settings left over from the last user, and settings that changed under one.

use super::{Scene, Seen};
use crate::assess::verdicts::Verdicts;
use crate::model::check::{Check, Severity};
use crate::model::holder::Holder;
use crate::model::reason::FindingReason;
use crate::model::sriov::{Fabric, Pf, VfConfig, VfLink};

/// `vf_leftover_config`: nobody holds the VF, and it is still set up for someone.
pub(super) fn leftover(scene: &Scene<'_>, verdicts: &mut Verdicts) {
    for seen in scene.vfs() {
        let Some(config) = seen.vf.config.filter(|_| seen.row.holder == Holder::None) else {
            verdicts.skipped(Check::VfLeftoverConfig);
            continue;
        };
        let ethernet = seen.pf.fabric == Some(Fabric::Ethernet);
        let left = [
            (FindingReason::Vlan, config.vlan.filter(|vlan| vlan.id != 0).map(|vlan| format!("VLAN {}", vlan.id))),
            (FindingReason::Trust, (config.trust == Some(true)).then(|| "trust".to_owned())),
            (
                FindingReason::Rate,
                config.max_rate.filter(|rate| *rate > 0).map(|rate| format!("a limit of {rate} Mb/s")),
            ),
            (
                FindingReason::Mac,
                config.mac.filter(|mac| ethernet && !mac.is_zero()).map(|mac| format!("MAC address {mac}")),
            ),
        ];
        let mut left = left.into_iter().filter_map(|(reason, text)| Some((reason, text?)));
        let Some((reason, first)) = left.next() else {
            verdicts.ok(Check::VfLeftoverConfig);
            continue;
        };
        let texts: Vec<String> = std::iter::once(first).chain(left.map(|(_, text)| text)).collect();
        let summary = format!(
            "{} is unused but still has {}, which its next user inherits. Reset it (`ip link set {} vf {} ...`).",
            seen.name(),
            texts.join(", "),
            seen.interface(),
            seen.key.vf
        );
        verdicts.found(seen.condition(Check::VfLeftoverConfig, Severity::Info, reason, summary));
    }
}

/// `vf_link_disabled`: a guest uses the VF, and its PF keeps its link down.
pub(super) fn link_disabled(scene: &Scene<'_>, verdicts: &mut Verdicts) {
    for seen in scene.vfs() {
        let Some(link) = seen.vf.config.and_then(|config| config.link).filter(|_| seen.is_used()) else {
            verdicts.skipped(Check::VfLinkDisabled);
            continue;
        };
        if link != VfLink::Disable {
            verdicts.ok(Check::VfLinkDisabled);
            continue;
        }
        let summary = format!(
            "{}, used by {}, has no link: its PF keeps it down (link state disable, policy Down). {}.",
            seen.name(),
            seen.row.holder,
            enable_link(seen.pf, seen.key.vf)
        );
        let reason = FindingReason::LinkDisabled;
        verdicts.found(seen.condition(Check::VfLinkDisabled, Severity::Warning, reason, summary));
    }
}

/// What lets the link of a VF follow its PF's.
pub(in crate::assess) fn enable_link(pf: &Pf, vf: u32) -> String {
    let netdev = pf.netdevs.first().map(|netdev| format!("`ip link set {netdev} vf {vf} state auto`"));
    let policy = format!("`echo Follow > /sys/bus/pci/devices/{}/sriov/{vf}/policy`", pf.address);
    match (netdev, pf.fabric) {
        (Some(netdev), Some(Fabric::InfiniBand)) => {
            format!("Let it follow the PF: {netdev}, or {policy} with MLNX_OFED")
        }
        (Some(netdev), _) => format!("Let it follow the PF: {netdev}"),
        (None, _) => format!("Let it follow the PF: {policy}"),
    }
}

/// `vf_config_drifted`: other settings than those its holder got, or than its domain wants.
pub(super) fn drifted(scene: &Scene<'_>, verdicts: &mut Verdicts) {
    for seen in scene.vfs() {
        let Some(config) = seen.vf.config else {
            verdicts.unknown(Check::VfConfigDrifted, seen.subject(), None);
            continue;
        };
        let row = seen.row;
        let tenure = row.tenure.as_ref().filter(|tenure| tenure.holder == row.holder && tenure.holder.is_guest());
        let changes = tenure.and_then(|tenure| tenure.config).map(|before| differences(&before, &config));
        let wanted = || unlike_claim(scene, seen, &config);
        let (reason, changes) = if let Some(changes) = changes.filter(|changes| !changes.is_empty()) {
            (FindingReason::UnderHolder, changes)
        } else if let Some(change) = wanted() {
            (FindingReason::DiffersFromClaim, vec![change])
        } else {
            verdicts.ok(Check::VfConfigDrifted);
            continue;
        };
        let summary = format!(
            "{}, used by {}: {}. Restore the setting (`ip link set {} vf {} ...`), or restart the guest with the new settings.",
            seen.name(),
            row.holder,
            changes.join(", "),
            seen.interface(),
            seen.key.vf
        );
        verdicts.found(seen.condition(Check::VfConfigDrifted, Severity::Warning, reason, summary));
    }
}

/// Settings, besides the identity, that differ where both are known.
fn differences(before: &VfConfig, now: &VfConfig) -> Vec<String> {
    let mut list = Vec::new();
    let mut compare = |name: &str, old: Option<String>, new: Option<String>| {
        if let Some((old, new)) = old.zip(new).filter(|(old, new)| old != new) {
            list.push(format!("{name} changed from {old} to {new}"));
        }
    };
    let switch = |on: Option<bool>| on.map(|on| if on { "on" } else { "off" }.to_owned());
    let number = |number: Option<u32>| number.map(|number| number.to_string());
    let vlan = |config: &VfConfig| config.vlan.map(|vlan| vlan.id.to_string());
    compare("VLAN", vlan(before), vlan(now));
    compare("trust", switch(before.trust), switch(now.trust));
    compare("spoof check", switch(before.spoof_check), switch(now.spoof_check));
    compare("min rate", number(before.min_rate), number(now.min_rate));
    compare("max rate", number(before.max_rate), number(now.max_rate));
    // A link that is kept down is a finding of its own.
    let follows = |link: &VfLink| *link != VfLink::Disable;
    let link = |config: &VfConfig| config.link.filter(follows).map(|link| link.as_str().to_owned());
    compare("link state", link(before), link(now));
    list
}

/// What a running domain wants otherwise.
fn unlike_claim(scene: &Scene<'_>, seen: Seen<'_>, config: &VfConfig) -> Option<String> {
    let address = seen.vf.address?;
    scene.sources.live_claims(address).find_map(|(domain, claim)| {
        match (claim.wrong_mac(config), claim.wrong_vlan(config)) {
            (Some((wanted, mac)), _) => {
                Some(format!("{} wants MAC address {wanted}, but the VF has {mac}", domain.name))
            }
            (None, Some((wanted, vlan))) => Some(format!("{} wants VLAN {wanted}, but the VF has {vlan}", domain.name)),
            (None, None) => None,
        }
    })
}
