//! PFs: counts of VFs that must agree, and PFs that are down under their VFs.

use super::Scene;
use crate::assess::limits::VF_HOLD;
use crate::assess::verdicts::Verdicts;
use crate::host::collector::Filter;
use crate::model::check::{Check, Severity};
use crate::model::finding::{Condition, Subject};
use crate::model::policy::VfPolicy;
use crate::model::reason::FindingReason;
use crate::model::sriov::Pf;
use crate::model::units::{counted, counted_as};

/// `vf_count_mismatch`: VFs that the policy expects, VFs asked for, VFs with a function, VFs that netlink lists. A count
/// that could not be had says nothing.
pub(super) fn mismatch(scene: &Scene<'_>, verdicts: &mut Verdicts) {
    for pf in &scene.pfs {
        // What is gone already of a removal that waits says nothing; that it waits is `vf_map_stale`.
        if pf.vfs.iter().any(|vf| vf.leaving) {
            verdicts.ok(Check::VfCountMismatch);
            continue;
        }
        let present = u32::try_from(pf.present()).unwrap_or(u32::MAX);
        let expected = scene.view.policy.vf_count(pf);
        let found = match (expected, pf.configured, pf.reported) {
            (Some(expected), ..) if present < expected => {
                let severity = if present == 0 { Severity::Critical } else { Severity::Warning };
                Some((severity, FindingReason::Policy, describe_missing(pf, expected, present)))
            }
            (_, Some(configured), _) if configured != present => Some((
                Severity::Warning,
                FindingReason::Links,
                format!(
                    "{} was configured for {}, but {} a PCI function. Check the kernel log for its driver; the number can \
                     only be changed from 0 (sriov_numvfs).",
                    pf.address,
                    counted(configured, "VF"),
                    counted_as(present, "has", "have")
                ),
            )),
            (.., Some(reported)) if reported != present => Some((
                Severity::Warning,
                FindingReason::NetlinkList,
                format!(
                    "{} has {}, but its driver lists {reported} over netlink: the configuration of the others can be neither \
                     read nor set. If the driver is not being reloaded right now, reload it when its VFs are unused.",
                    pf.address,
                    counted(present, "VF")
                ),
            )),
            _ => None,
        };
        let Some((severity, reason, summary)) = found else {
            verdicts.ok(Check::VfCountMismatch);
            continue;
        };
        let subject = Subject::Pci(pf.address);
        verdicts.found(
            Condition::new(Check::VfCountMismatch, subject, severity, reason, summary)
                .device(pf.devices.first().cloned())
                .with_evidence("expected", expected)
                .with_evidence("configured", pf.configured)
                .with_evidence("present", Some(present))
                .with_evidence("reported", pf.reported)
                .hold(VF_HOLD),
        );
    }
}

fn describe_missing(pf: &Pf, expected: u32, present: u32) -> String {
    let all = if present == 0 { expected.to_string() } else { format!("{} of {expected}", expected - present) };
    let advice = if present == 0 {
        "Create them again (sriov_numvfs), and find out what removed them: a driver reload, a firmware reset and a reboot \
         leave none unless a service creates them"
    } else {
        "The number can only be changed from 0 (sriov_numvfs), so stop the users of the others first"
    };
    format!(
        "{}: {all} VFs are missing, {present} are there. The policy expects {expected} (policy.vfs). {advice}.",
        pf.address
    )
}

/// `vf_count_mismatch` for rules of the policy that no PF matches: with its PF, all its VFs are gone.
pub(super) fn unmatched(scene: &Scene<'_>, verdicts: &mut Verdicts) {
    let listed = scene.view.snapshot.collector("sriov").is_some_and(|sriov| sriov.success && sriov.stuck.is_empty());
    let missing = |rule: &&VfPolicy| !scene.pfs.iter().any(|pf| rule.is_of(pf));
    let rules: Vec<&VfPolicy> = scene.view.policy.vfs.iter().filter(|_| listed).filter(missing).collect();
    if rules.is_empty() {
        return;
    }
    let of = |rule: &&VfPolicy| format!("{} of \"{}\"", rule.count, Filter::pattern_text(&rule.pfs));
    let expected: Vec<String> = rules.iter().map(of).collect();
    let summary = format!(
        "The policy expects VFs of PFs that this host does not have: {} (policy.vfs). Check that the card is there \
         (`lspci -D`), that its driver is bound, and that SR-IOV is enabled in BIOS and firmware.",
        expected.join(", ")
    );
    let (check, subject) = (Check::VfCountMismatch, Subject::Host("vfs"));
    let condition = Condition::new(check, subject, Severity::Critical, FindingReason::Policy, summary);
    verdicts.found(condition.with_evidence("present", Some(0)).hold(VF_HOLD));
}

/// `vf_pf_down`: no interface and no port of a PF is up, and guests use its VFs.
pub(super) fn pf_down(scene: &Scene<'_>, verdicts: &mut Verdicts) {
    for pf in &scene.pfs {
        let used = scene.vfs().filter(|seen| seen.key.pf == pf.address && seen.is_used()).count();
        if used == 0 {
            verdicts.skipped(Check::VfPfDown);
            continue;
        }
        let (up, reason) = match port_up(scene, pf) {
            Some(up) => (Some(up), FindingReason::PortDown),
            None => (pf.up.value(), FindingReason::InterfaceDown),
        };
        match up {
            None => verdicts.unknown(Check::VfPfDown, Subject::Pci(pf.address), pf.up.reason()),
            Some(true) => verdicts.ok(Check::VfPfDown),
            Some(false) => {
                let name = pf.netdevs.first().map(|name| format!(" ({name})")).unwrap_or_default();
                let summary = format!(
                    "{}{name} is down and {} in use, so they cannot reach anything outside this host. Set the interface up; if it \
                     is up, check cable and switch port.",
                    pf.address,
                    counted_as(used, "of its VFs is", "of its VFs are")
                );
                let subject = Subject::Pci(pf.address);
                verdicts.found(
                    Condition::new(Check::VfPfDown, subject, Severity::Warning, reason, summary)
                        .device(pf.devices.first().cloned())
                        .with_evidence("vfs_in_use", Some(used))
                        .hold(VF_HOLD),
                );
            }
        }
    }
}

/// Whether a port of the PF's RDMA devices is active; none when it has none, or one of which that is not known.
fn port_up(scene: &Scene<'_>, pf: &Pf) -> Option<bool> {
    let mut ports =
        pf.devices.iter().filter_map(|name| scene.view.snapshot.device(name)).flat_map(|d| &d.ports).peekable();
    ports.peek()?;
    let mut known = true;
    for port in ports {
        if port.is_active() {
            return Some(true);
        }
        known &= port.state.value().is_some();
    }
    known.then_some(false)
}
