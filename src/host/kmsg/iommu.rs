//! Faults that Intel's and AMD's IOMMU report.

use super::names::Names;
use crate::model::ids::PciAddress;

/// AMD's events that are faults of a device.
const AMD_FAULTS: [&str; 8] = [
    "IO_PAGE_FAULT",
    "RMP_PAGE_FAULT",
    "RMP_HW_ERROR",
    "ILLEGAL_DEV_TABLE_ENTRY",
    "DEV_TAB_HARDWARE_ERROR",
    "PAGE_TAB_HARDWARE_ERROR",
    "INVALID_DEVICE_REQUEST",
    "IOTLB_INV_TIMEOUT",
];

/// Whether a line is one of an IOMMU, and what it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    /// A fault, of this function if it names one.
    Fault(Option<PciAddress>),
    /// Something else.
    Nothing,
}

/// What an IOMMU's line says: `[DMA Write] Request device [00:12.0] fault addr …` without a domain, with `0x` before
/// the numbers on some kernels; a device that does not confirm an invalidation by its `SID`; AMD's
/// `device=0000:05:00.0`. `None` for other lines.
pub fn read(text: &str, names: &dyn Names) -> Option<Said> {
    if let Some((_, rest)) = text.split_once("Request device [") {
        let fault = text.contains("fault addr") || text.contains("fault index") || text.contains("fault reason");
        let device = || rest.split_once(']').and_then(|(device, _)| address(device, names));
        return Some(if fault { Said::Fault(device()) } else { Said::Nothing });
    }
    if let Some((_, source)) = text.split_once("Invalidation Time-out Error: SID ") {
        return Some(Said::Fault(source_id(source).and_then(|device| address(&device, names))));
    }
    let (_, rest) = text.split_once("Event logged [")?;
    let (name, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    if !AMD_FAULTS.contains(&name) {
        return Some(Said::Nothing);
    }
    let device = rest.split_once("device=").and_then(|(_, device)| device.split([' ', ']', ',']).next());
    Some(Said::Fault(device.and_then(|device| address(device, names))))
}

/// A requester's number as the address that it stands for: bus, five bits of device, three of function.
fn source_id(text: &str) -> Option<String> {
    let id = u16::from_str_radix(text.split_ascii_whitespace().next()?.trim_start_matches("0x"), 16).ok()?;
    Some(format!("{:02x}:{:02x}.{:x}", id >> 8, id >> 3 & 0x1f, id & 7))
}

/// An address whose domain may be missing.
fn address(text: &str, names: &dyn Names) -> Option<PciAddress> {
    let plain = text.replace("0x", "");
    plain.parse().ok().or_else(|| names.in_some_domain(&plain))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::names::NoNames;
    use super::*;

    #[test]
    fn faults_of_every_spelling() {
        let at = |text: &str| match read(text, &NoNames) {
            Some(Said::Fault(address)) => address.map(|address| address.to_string()),
            _ => None,
        };
        let table = [
            ("[DMA Write] Request device [00:12.0] fault addr 0 [fault reason 05] PTE Write access", "0000:00:12.0"),
            ("[DMA Read] Request device [06:00.0] PASID ffffffff fault addr 1a [fault reason 06]", "0000:06:00.0"),
            ("[DMA Read NO_PASID] Request device [0x00:0x02.0] fault addr 0x7 [fault reason 0x07]", "0000:00:02.0"),
            ("[INTR-REMAP] Request device [41:00.3] fault index 0x1f [fault reason 0x22]", "0000:41:00.3"),
            ("VT-d detected Invalidation Time-out Error: SID 4111", "0000:41:02.1"),
            ("Event logged [IO_PAGE_FAULT device=10000:05:00.0 domain=0x1 address=0x2]", "10000:05:00.0"),
            ("Event logged [IO_PAGE_FAULT device=05:00.0 domain=0x1 address=0x2]", "0000:05:00.0"),
            ("Event logged [RMP_PAGE_FAULT device=0000:05:00.0, vmg_tag=0x0001, gpa=0x2]", "0000:05:00.0"),
        ];
        for (text, address) in table {
            assert_eq!(at(text).as_deref(), Some(address), "{text}");
        }
        let unnamed = read("Event logged [IO_PAGE_FAULT domain=0x0000 address=0x1 flags=0x0]", &NoNames);
        assert_eq!(unnamed, Some(Said::Fault(None)));
        assert_eq!(read("Event logged [COMMAND_HARDWARE_ERROR address=0x1 flags=0x0]", &NoNames), Some(Said::Nothing));
        assert_eq!(read("DRHD: handling fault status reg 402", &NoNames), None);
        assert_eq!(read("dmar_fault: 2474 callbacks suppressed", &NoNames), None);
    }

    proptest! {
        #[test]
        fn no_text_breaks_it(text in any::<String>()) {
            let _ = read(&text, &NoNames);
            let _ = read(&format!("Request device [{text}] fault addr"), &NoNames);
            let _ = read(&format!("Invalidation Time-out Error: SID {text}"), &NoNames);
            let _ = read(&format!("Event logged [IO_PAGE_FAULT device={text}"), &NoNames);
        }
    }
}
