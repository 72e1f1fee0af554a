//! PCIe errors that a platform reports in place of AER: EEH on POWER, PCI events on IBM Z.

use crate::model::ids::PciAddress;
use crate::model::kmsg::MessageKind;

/// What a line says of a function, and how bad it is. `None` for other lines.
///
/// `EEH: PE#fd (PCI 0001:01:00.0): Invoking mlx5_core->error_detected(IO frozen)` (`arch/powerpc/kernel/eeh_driver.c`) is
/// said once for each function of a frozen partition, when its driver is asked what to do.
/// `zpci: 0002:00:00.0: Event 0x3a reports an error for PCI function 0x41` is of `arch/s390/pci/pci_event.c`.
pub(super) fn platform_error(text: &str) -> Option<(MessageKind, PciAddress)> {
    if let Some(eeh) = text.strip_prefix("EEH: PE#") {
        let (address, words) = eeh.split_once(" (PCI ")?.1.split_once("): ")?;
        let kind = if words.ends_with("->error_detected(IO frozen)") {
            MessageKind::AerNonfatal
        } else if words.ends_with("->error_detected(permanent failure)") {
            MessageKind::AerFatal
        } else {
            return None;
        };
        return Some((kind, address.parse().ok()?));
    }
    let (address, words) = text.strip_prefix("zpci: ")?.split_once(": ")?;
    let lost = words.starts_with("Automatic recovery failed") || words == "The reset request failed";
    let reported = words.starts_with("Event 0x") && words.contains("reports an error for PCI function");
    let kind = if lost { MessageKind::AerFatal } else { MessageKind::AerNonfatal };
    (lost || reported).then_some(())?;
    Some((kind, address.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_that_a_platform_froze_or_gave_up() {
        let at = |text: &str| platform_error(text).map(|(kind, address)| format!("{} {address}", kind.as_str()));
        let table = [
            (
                "EEH: PE#fd (PCI 0021:01:00.1): Invoking mlx5_core->error_detected(IO frozen)",
                "aer_nonfatal 0021:01:00.1",
            ),
            (
                "EEH: PE#2 (PCI 0001:0b:00.0): Invoking qede->error_detected(permanent failure)",
                "aer_fatal 0001:0b:00.0",
            ),
            ("zpci: 0004:00:00.0: Event 0x3a reports an error for PCI function 0x601", "aer_nonfatal 0004:00:00.0"),
            (
                "zpci: 0004:00:00.0: Automatic recovery failed; operator intervention is required",
                "aer_fatal 0004:00:00.0",
            ),
            ("zpci: 0004:00:00.0: The reset request failed", "aer_fatal 0004:00:00.0"),
        ];
        for (text, expected) in table {
            assert_eq!(at(text).as_deref(), Some(expected), "{text}");
        }
        for text in [
            "EEH: PE#fd (PCI 0021:01:00.1): mlx5_core driver reports: 'recovered'",
            "EEH: PE#fd (PCI 0021:01:00.1): Invoking mlx5_core->resume()",
            "EEH: PE#fd (PCI nowhere): Invoking mlx5_core->error_detected(IO frozen)",
            "EEH: Frozen PHB#21-PE#fd detected",
            "zpci: 0004:00:00.0: The device is ready to resume operations",
            "zpci: n/a: Event 0x3a reports an error for PCI function 0x601",
        ] {
            assert_eq!(at(text), None, "{text}");
        }
    }
}
