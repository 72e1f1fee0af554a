//! What the kernel logged of a port's cable or module, joined with what is found of that port: one finding with all
//! evidence.

use std::fmt::Write as _;

use super::View;
use super::verdicts::Verdicts;
use crate::model::check::Check;
use crate::model::finding::{Condition, Subject};
use crate::model::ids::PortKey;
use crate::model::kmsg::{MessageGroup, MessageKind};
use crate::model::reason::FindingReason;

/// Checks of a port whose finding takes up what the kernel logged of its module.
const CHECKS: [Check; 3] = [Check::PortDown, Check::LinkQuality, Check::PortFlapping];

/// Whether a message is about a cable or module.
const fn is_of_module(kind: MessageKind) -> bool {
    matches!(
        kind,
        MessageKind::ModuleError
            | MessageKind::ModuleHot
            | MessageKind::ModuleFault
            | MessageKind::ModulePower
            | MessageKind::ModuleUnsupported
            | MessageKind::ModulePlugged
            | MessageKind::CableFault
    )
}

/// Reasons that say no more than that there is no link: a message that says why takes their place.
const fn says_nothing(reason: FindingReason) -> bool {
    matches!(reason, FindingReason::NoCarrier | FindingReason::Polling | FindingReason::Training | FindingReason::Down)
}

/// Adds a message about a module, with what to do about it, to the finding of its port; `false` if it is about something else, or nothing is found of
/// the port. A card with several ports at one function does not say which one it means.
pub(super) fn join(view: &View<'_>, verdicts: &mut Verdicts, group: &MessageGroup, advice: &str) -> bool {
    let Some(key) = port_of(view, group).filter(|_| is_of_module(group.kind)) else { return false };
    let subject = Subject::Port(key);
    let of_port = |check: &Check| verdicts.conditions.iter().position(|c| c.check == *check && c.subject == subject);
    let Some(condition) = CHECKS.iter().find_map(of_port).and_then(|at| verdicts.conditions.get_mut(at)) else {
        return false;
    };
    let minutes = group.last().map_or(0, |last| view.snapshot.taken.tick.since(last).as_secs() / 60);
    let ago = if minutes == 0 { "just now".to_owned() } else { format!("{minutes} min ago") };
    // Writing to a string cannot fail.
    let _ = write!(condition.summary, " The kernel logged {ago}: \"{}\". {advice}", group.text);
    if condition.check == Check::PortDown && says_nothing(condition.reason) && group.kind != MessageKind::ModulePlugged
    {
        condition.reason = group.kind.into();
    }
    add_evidence(condition, group);
    true
}

fn add_evidence(condition: &mut Condition, group: &MessageGroup) {
    let known = condition.evidence.get("module_messages").and_then(serde_json::Value::as_array).cloned();
    let mut messages = known.unwrap_or_default();
    messages.push(serde_json::json!({ "kind": group.kind.as_str(), "count": group.count, "text": &*group.text }));
    condition.evidence.insert("module_messages".to_owned(), messages.into());
}

/// The only port of the device at the function that a message names.
fn port_of(view: &View<'_>, group: &MessageGroup) -> Option<PortKey> {
    let mut devices = view.snapshot.devices().filter(|device| match (&group.address, &group.device) {
        (Some(address), _) => device.identity.pci_address == Some(*address),
        (None, Some(name)) => device.name == *name,
        (None, None) => false,
    });
    let device = devices.next().filter(|_| devices.next().is_none())?;
    let [port] = &device.ports[..] else { return None };
    Some(PortKey { device: device.name.clone(), port: port.number })
}
