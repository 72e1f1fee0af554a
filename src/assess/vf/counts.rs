//! PFs: counts of VFs that must agree, and PFs that are down under their VFs.

use super::Scene;
use crate::assess::limits::VF_HOLD;
use crate::assess::verdicts::Verdicts;
use crate::model::check::{Check, Severity};
use crate::model::finding::{Condition, Subject};
use crate::model::reason::FindingReason;
use crate::model::sriov::Pf;
use crate::model::units::{counted, counted_as};

/// `vf_count_mismatch`: VFs asked for, VFs with a function, VFs that netlink lists. A count that could not be had
/// says nothing.
pub(super) fn mismatch(scene: &Scene<'_>, verdicts: &mut Verdicts) {
    for pf in &scene.pfs {
        let present = u32::try_from(pf.present()).unwrap_or(u32::MAX);
        let found = match (pf.configured, pf.reported) {
            (Some(configured), _) if configured != present => Some((
                FindingReason::Links,
                format!(
                    "{} was configured for {}, but {} a PCI function. Check the kernel log for its driver; the number can \
                     only be changed from 0 (sriov_numvfs).",
                    pf.address,
                    counted(configured, "VF"),
                    counted_as(present, "has", "have")
                ),
            )),
            (_, Some(reported)) if reported != present => Some((
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
        let Some((reason, summary)) = found else {
            verdicts.ok(Check::VfCountMismatch);
            continue;
        };
        let subject = Subject::Pci(pf.address);
        verdicts.found(
            Condition::new(Check::VfCountMismatch, subject, Severity::Warning, reason, summary)
                .device(pf.devices.first().cloned())
                .with_evidence("configured", pf.configured)
                .with_evidence("present", Some(present))
                .with_evidence("reported", pf.reported)
                .hold(VF_HOLD),
        );
    }
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
                    "{}{name} is down and {} in use, so they reach nothing beyond this host. Set the interface up; if it \
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
