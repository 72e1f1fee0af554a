//! PCIe errors (AER), by the function that reports them.

use std::collections::BTreeSet;
use std::time::Duration;

use super::View;
use super::verdicts::Verdicts;
use crate::model::check::{Check, Severity};
use crate::model::finding::{Condition, Subject};
use crate::model::history::{CounterWindow, LinkHistory};
use crate::model::ids::PciAddress;
use crate::model::pcie::{AerSeverity, FunctionKind, PciFunction};
use crate::model::time::BootTime;

/// How long an error is shown after it was last counted.
const QUIET: Duration = Duration::from_secs(3600);

fn rises(windows: &[CounterWindow; 3], now: BootTime) -> [u64; 3] {
    let rise = |window: &CounterWindow| window.rise(now, QUIET).map_or(0, |rise| rise.count);
    let [correctable, nonfatal, fatal] = windows;
    [rise(correctable), rise(nonfatal), rise(fatal)]
}

/// `pcie_aer`: errors counted within the last hour. What a function and a port above it both count is the function's.
pub fn errors(view: &View<'_>, verdicts: &mut Verdicts) {
    let now = view.snapshot.taken.tick;
    let counted = |past: &LinkHistory| rises(&past.aer, now);
    // Classes that a function has counted, as seen from each port above it.
    let mut below: BTreeSet<(PciAddress, usize)> = BTreeSet::new();
    for function in view.snapshot.all::<PciFunction>() {
        let Some(past) = view.history.functions.get(&function.address) else { continue };
        let mut port = function.upstream;
        for _ in 0..32 {
            let Some(address) = port else { break };
            below.extend(counted(past).iter().enumerate().filter(|(_, n)| **n > 0).map(|(class, _)| (address, class)));
            port = view.snapshot.function(address).and_then(|f| f.upstream);
        }
    }
    for function in view.snapshot.all::<PciFunction>() {
        if matches!(function.kind, FunctionKind::Virtual { .. }) {
            continue;
        }
        let counts =
            function.aer.classes.iter().any(Option::is_some) || function.aer.root_totals.iter().any(Option::is_some);
        let Some(past) = view.history.functions.get(&function.address).filter(|_| counts) else {
            verdicts.skipped(Check::PcieAer);
            continue;
        };
        let own = counted(past);
        let received = rises(&past.root_aer, now);
        // A root port's messages count only where nobody below owns to the error.
        let mut rose = [0; 3];
        for (class, (rose, (own, received))) in rose.iter_mut().zip(own.iter().zip(received)).enumerate() {
            let claimed = below.contains(&(function.address, class));
            *rose = if claimed { 0 } else { (*own).max(received) };
        }
        match judge(view, function, rose) {
            Some(condition) => verdicts.found(condition),
            None => verdicts.ok(Check::PcieAer),
        }
    }
}

fn judge(view: &View<'_>, function: &PciFunction, [correctable, nonfatal, fatal]: [u64; 3]) -> Option<Condition> {
    let many = correctable > view.policy.thresholds.correctable_aer_per_hour;
    let (severity, class) = match (fatal, nonfatal, correctable) {
        (0, 0, 0) => return None,
        (0, 0, _) => (if many { Severity::Warning } else { Severity::Info }, AerSeverity::Correctable),
        (0, _, _) => (Severity::Warning, AerSeverity::Nonfatal),
        _ => (Severity::Critical, AerSeverity::Fatal),
    };
    let parts =
        [(fatal, AerSeverity::Fatal), (nonfatal, AerSeverity::Nonfatal), (correctable, AerSeverity::Correctable)];
    let parts: Vec<String> =
        parts.iter().filter(|(n, _)| *n > 0).map(|(n, class)| format!("{n} {}", class.as_str())).collect();
    let device =
        view.snapshot.devices().find(|d| d.identity.pci_address == Some(function.address)).map(|d| d.name.clone());
    let who = device.as_ref().map_or_else(|| function.address.to_string(), |d| format!("{d} ({})", function.address));
    let names =
        function.aer.classes.iter().zip(AerSeverity::ALL).find(|(_, c)| *c == class).and_then(|(c, _)| c.as_ref());
    let names: Vec<String> = names.map_or_else(Vec::new, |named| {
        named.errors.iter().filter(|(_, n)| *n > 0).map(|(name, n)| format!("{name} {n}")).collect()
    });
    let seen = if names.is_empty() { String::new() } else { format!(" (since boot: {})", names.join(", ")) };
    let advice = match class {
        AerSeverity::Correctable => {
            "the link corrected them; if they continue, reseat the card and check the riser and the retimer"
        }
        AerSeverity::Nonfatal => "PCIe transactions were lost; check the kernel log for the TLP header",
        AerSeverity::Fatal => "the link is unreliable; drain the host, check the kernel log, then reseat the card",
    };
    let summary = format!("{who} reported PCIe errors in the last hour: {}{seen}; {advice}.", parts.join(", "));
    let condition = Condition::new(Check::PcieAer, Subject::Pci(function.address), severity, class.into(), summary);
    Some(
        condition
            .device(device)
            .with_evidence("correctable_in_an_hour", Some(correctable))
            .with_evidence("nonfatal_in_an_hour", Some(nonfatal))
            .with_evidence("fatal_in_an_hour", Some(fatal)),
    )
}
