//! Why a port has no link, and what to do first: what its driver says, once it says the same thing again and again.

use super::View;
use crate::model::firmware_link::FirmwareReport;
use crate::model::line::LastCause;
use crate::model::link::{LinkCause, NetdevLink};
use crate::model::rdma::{LinkLayer, Port, RdmaDevice};
use crate::model::reason::FindingReason;

/// What a driver says of a link that is down.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct DownCause {
    /// What it says; `None` if it gives no reason.
    pub(super) cause: Option<LinkCause>,
    /// The reason of the finding; `None` while the driver's word still changes, or if it names none that is known.
    pub(super) reason: Option<FindingReason>,
    /// What that means and what to do first; `None` as long as the word is not steady.
    pub(super) text: Option<String>,
}

/// What the driver says of a port's link, if it was asked.
pub(super) fn down_cause(view: &View<'_>, device: &RdmaDevice, port: &Port) -> Option<DownCause> {
    let netdev = port.netdev.as_deref().filter(|_| port.link_layer == Some(LinkLayer::Ethernet));
    let link = view.snapshot.all::<NetdevLink>().find(|link| netdev == Some(&*link.netdev));
    let Some(link) = link.filter(|link| link.cause.is_some()) else {
        return from_firmware(view, device, port).or_else(|| Some(silent(link?, view.instant)));
    };
    if !link.is_steady() && !view.instant {
        return Some(DownCause { cause: link.cause, reason: None, text: None });
    }
    let cause = link.cause?;
    let (reason, text) = meaning(cause);
    let text = text.replace("{}", &cause.to_string());
    Some(DownCause { cause: Some(cause), reason, text: Some(text) })
}

/// A driver that gave no reason, again and again.
fn silent(link: &NetdevLink, instant: bool) -> DownCause {
    let text = "no carrier, and the driver gives no reason. Check cable, module and the other end";
    let text = (link.is_steady() || instant).then(|| text.to_owned());
    DownCause { cause: None, reason: None, text }
}

/// What the card's firmware says of a link that is down, where an administrator lets it be read.
fn from_firmware(view: &View<'_>, device: &RdmaDevice, port: &Port) -> Option<DownCause> {
    let report = FirmwareReport::of(view.snapshot, device, port)?;
    let cause = report.link.cause()?;
    let (reason, text) = meaning(cause);
    let said = report.link.recommendation.as_deref().map_or_else(|| cause.to_string(), str::to_owned);
    Some(DownCause { cause: Some(cause), reason, text: Some(text.replace("{}", &said)) })
}

/// What the driver said while the port last was down, within the last hour.
pub(super) fn last_cause(view: &View<'_>, port: &Port) -> Option<LastCause> {
    let netdev = port.netdev.as_deref().filter(|_| port.link_layer == Some(LinkLayer::Ethernet))?;
    view.history.lines.get(netdev)?.cause
}

/// What a cause suspects: the reason of a finding.
pub(super) const fn suspect(cause: LinkCause) -> Option<FindingReason> {
    meaning(cause).0
}

/// The reason, and a sentence with the first thing to do; `{}` stands for the driver's words.
pub(super) const fn meaning(cause: LinkCause) -> (Option<FindingReason>, &'static str) {
    use FindingReason::{
        CableFault, CableUnsupported, ModuleFault, ModuleHot, ModulePower, NoCable, NoPartner, SettingsDiffer,
        SignalBad, TrainingFailed,
    };
    match (cause.state, cause.substate) {
        (0, Some(1 | 4)) => (
            Some(NoPartner),
            "the other end does not respond ({}). First check that its port is on and that this cable leads to it",
        ),
        (0, Some(5 | 6)) | (2, Some(4 | 5)) => (
            Some(SettingsDiffer),
            "the two ends have different settings ({}). Compare speed, FEC and autonegotiation of both ends",
        ),
        (0, Some(_)) => {
            (Some(TrainingFailed), "autonegotiation fails ({}). Check the settings of both ends, then reseat the cable")
        }
        (1, Some(4)) => {
            (Some(NoPartner), "the other end is not ready (link training: {}). Check the other end's port first")
        }
        (1, _) => (
            Some(TrainingFailed),
            "link training fails ({}). Reseat cable or module, then check the other end, then change the cable",
        ),
        (2, _) => (
            Some(TrainingFailed),
            "the two ends cannot synchronise ({}). Compare FEC and speed of both ends, then change the cable",
        ),
        (3, Some(2)) => (
            Some(CableUnsupported),
            "the cable or module does not support the rate ({}). Use one for this rate, or set a lower one",
        ),
        (3, _) => (Some(SignalBad), "the signal is bad ({}). Reseat and clean both ends, then change cable or modules"),
        (4, _) => (
            Some(NoCable),
            "no cable detected. Plug it in or reseat it; if the port is unused, set `up = false` for it in the policy",
        ),
        (5, Some(1)) => (
            Some(CableUnsupported),
            "the card does not accept its cable or module ({}). Use one from the vendor's list, or update the firmware",
        ),
        (5, _) => (Some(CableFault), "the cable is faulty ({}). Replace it"),
        (6, _) => (Some(ModuleFault), "the module's EEPROM cannot be read ({}). Reseat the module, then replace it"),
        (7, _) => (None, "no carrier: {}. Reseat the cable, then try another one, then suspect the card"),
        (8, _) => {
            (Some(ModulePower), "the module draws more power than its cage gives ({}). Use one of a lower power class")
        }
        (9, _) => (Some(ModuleHot), "the module is too hot ({}). Check airflow and fans, then the module"),
        (10, _) => (Some(ModuleFault), "the module does not work ({}). Reseat it, then replace it"),
        _ => (None, "no carrier; the driver reports: {}. Check cable, module and the other end"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_has_its_suspect() {
        use FindingReason::*;
        let suspect = |state, substate| suspect(LinkCause { state, substate });
        for (state, substate, expected) in [
            (0, Some(1), Some(NoPartner)),
            (0, Some(2), Some(TrainingFailed)),
            (0, Some(4), Some(NoPartner)),
            (0, Some(5), Some(SettingsDiffer)),
            (0, Some(6), Some(SettingsDiffer)),
            (1, None, Some(TrainingFailed)),
            (1, Some(1), Some(TrainingFailed)),
            (1, Some(4), Some(NoPartner)),
            (2, Some(1), Some(TrainingFailed)),
            (2, Some(4), Some(SettingsDiffer)),
            (2, Some(5), Some(SettingsDiffer)),
            (3, Some(1), Some(SignalBad)),
            (3, Some(2), Some(CableUnsupported)),
            (4, None, Some(NoCable)),
            (5, Some(1), Some(CableUnsupported)),
            (5, Some(2), Some(CableFault)),
            (6, None, Some(ModuleFault)),
            (8, None, Some(ModulePower)),
            (9, None, Some(ModuleHot)),
            (10, Some(1), Some(ModuleFault)),
            // Not known to be any of them.
            (7, None, None),
            (11, None, None),
            // Some drivers answer 0 and mean that they have no reason.
            (0, None, None),
        ] {
            assert_eq!(suspect(state, substate), expected, "{state} {substate:?}");
        }
    }

    #[test]
    fn a_text_says_the_drivers_words_at_most_once() {
        for state in 0..=12 {
            for substate in (0..=7).map(|number| Some(number).filter(|number| *number > 0)) {
                let (_, text) = meaning(LinkCause { state, substate });
                assert!(text.matches("{}").count() <= 1 && !text.ends_with('.'), "{text}");
            }
        }
    }
}
