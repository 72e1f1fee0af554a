//! Faults that an IOMMU reports: Intel's (DMAR), AMD's (AMD-Vi) and Arm's (SMMUv3).

use super::speaker::Names;
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
pub(super) enum IommuLine {
    /// A fault, of this function if it names one.
    Fault(Option<PciAddress>),
    /// Something else.
    Nothing,
}

/// What an IOMMU's line says: `[DMA Write] Request device [00:12.0] fault addr …` without a domain, with `0x` before
/// the numbers on some kernels; a device that does not confirm an invalidation by its `SID`; AMD's
/// `device=0000:05:00.0`. `None` for other lines.
pub(super) fn iommu_line(text: &str, names: &dyn Names) -> Option<IommuLine> {
    if let Some((_, rest)) = text.split_once("Request device [") {
        let fault = text.contains("fault addr") || text.contains("fault index") || text.contains("fault reason");
        let device = || rest.split_once(']').and_then(|(device, _)| address(device, names));
        return Some(if fault { IommuLine::Fault(device()) } else { IommuLine::Nothing });
    }
    if let Some((_, source)) = text.split_once("Invalidation Time-out Error: SID ") {
        let id = source.split_ascii_whitespace().next().and_then(hexadecimal);
        return Some(IommuLine::Fault(id.and_then(|id| requester(id, names))));
    }
    let (_, rest) = text.split_once("Event logged [")?;
    let (name, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    if !AMD_FAULTS.contains(&name) {
        return Some(IommuLine::Nothing);
    }
    let device = rest.split_once("device=").and_then(|(_, device)| device.split([' ', ']', ',']).next());
    Some(IommuLine::Fault(device.and_then(|device| address(device, names))))
}

/// Faults of SMMUv3. Each event takes several lines: `event 0x10 received:`, then its four words, the stream in the upper
/// half of the first. Kernels from 6.14 on add a line with the names: `event: F_TRANSLATION client: 0000:41:00.1 sid: …`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct SmmuEvent {
    /// Whether an event was announced and its first word is next.
    is_announced: bool,
    /// The stream of the last event whose words were read.
    stream: Option<u64>,
}

impl SmmuEvent {
    /// Takes a line; `None` for lines of others.
    pub(super) fn take(&mut self, text: &str, names: &dyn Names) -> Option<IommuLine> {
        let (device, words) = text.strip_prefix("arm-smmu-v3 ")?.split_once(": ")?;
        if device.contains(' ') {
            return None;
        }
        if words.starts_with("event 0x") && words.trim_end().ends_with("received:") {
            self.is_announced = true;
            return Some(IommuLine::Nothing);
        }
        if let Some(event) = words.strip_prefix("event: ") {
            let value = |name: &str| event.split_once(name).and_then(|(_, value)| value.split(' ').next());
            // It repeats the event whose words stand before it.
            let stream = self.stream.take();
            let is_told = stream.is_some() && stream == value("sid: ").and_then(hexadecimal);
            let client = value("client: ").and_then(|client| client.parse().ok());
            return Some(if is_told { IommuLine::Nothing } else { IommuLine::Fault(client) });
        }
        let word = hexadecimal(words.trim()).filter(|_| words.starts_with(['\t', ' ', '0']))?;
        if !std::mem::take(&mut self.is_announced) {
            return Some(IommuLine::Nothing);
        }
        // A stream is the requester's number; what stands above its 16 bits tells host bridges apart.
        let stream = word >> 32;
        self.stream = Some(stream);
        Some(IommuLine::Fault(requester(stream, names)))
    }
}

fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text.trim_start_matches("0x"), 16).ok()
}

/// The function whose number a requester has: bus, five bits of device, three of function.
fn requester(id: u64, names: &dyn Names) -> Option<PciAddress> {
    address(&format!("{:02x}:{:02x}.{:x}", id >> 8 & 0xff, id >> 3 & 0x1f, id & 7), names)
}

/// An address whose domain may be missing.
fn address(text: &str, names: &dyn Names) -> Option<PciAddress> {
    let plain = text.replace("0x", "");
    plain.parse().ok().or_else(|| names.in_some_domain(&plain))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::speaker::NoNames;
    use super::*;

    #[test]
    fn faults_of_every_spelling() {
        let at = |text: &str| match iommu_line(text, &NoNames) {
            Some(IommuLine::Fault(address)) => address.map(|address| address.to_string()),
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
        let unnamed = iommu_line("Event logged [IO_PAGE_FAULT domain=0x0000 address=0x1 flags=0x0]", &NoNames);
        assert_eq!(unnamed, Some(IommuLine::Fault(None)));
        assert_eq!(
            iommu_line("Event logged [COMMAND_HARDWARE_ERROR address=0x1 flags=0x0]", &NoNames),
            Some(IommuLine::Nothing)
        );
        assert_eq!(iommu_line("DRHD: handling fault status reg 402", &NoNames), None);
        assert_eq!(iommu_line("dmar_fault: 2474 callbacks suppressed", &NoNames), None);
    }

    /// The faults of lines of SMMUv3, with their functions.
    fn smmu(lines: &[&str]) -> Vec<String> {
        let mut event = SmmuEvent::default();
        let faults = lines.iter().filter_map(|line| match event.take(&format!("arm-smmu-v3 {line}"), &NoNames)? {
            IommuLine::Fault(address) => Some(address.map_or("-".to_owned(), |address| address.to_string())),
            IommuLine::Nothing => None,
        });
        faults.collect()
    }

    #[test]
    fn an_smmu_event_of_several_lines_counts_once() {
        let lines = [
            "arm-smmu-v3.2.auto: event 0x10 received:",
            "arm-smmu-v3.2.auto: \t0x0001050300000010",
            "arm-smmu-v3.2.auto: \t0x0000020000000000",
            "arm-smmu-v3.2.auto: \t0x00000000ff000000",
            "arm-smmu-v3.2.auto: \t0x0000000000000000",
            "arm-smmu-v3.2.auto: event: F_TRANSLATION client: 0000:05:00.3 sid: 0x10503 ssid: 0x0 iova: 0xff000000 ipa: 0x0",
            "arm-smmu-v3.3.auto: event: F_PERMISSION client: 0002:01:00.0 sid: 0x20100 ssid: 0x0 iova: 0x0 ipa: 0x0",
            "arm-smmu-v3.3.auto: event: C_BAD_STREAMID client: (unassigned sid) sid: 0x3 ssid: 0x0",
            "arm-smmu-v3.3.auto: EVTQ overflow detected -- events lost",
            "arm-smmu-v3.3.auto: \t0x0000020000000000",
            "arm-smmu-v3.3.auto: allocated 65536 entries for evtq",
        ];
        assert_eq!(smmu(&lines), ["0000:05:00.3", "0002:01:00.0", "-"]);
    }

    proptest! {
        #[test]
        fn no_text_breaks_it(text in any::<String>()) {
            let _ = iommu_line(&text, &NoNames);
            let _ = iommu_line(&format!("Request device [{text}] fault addr"), &NoNames);
            let _ = iommu_line(&format!("Invalidation Time-out Error: SID {text}"), &NoNames);
            let _ = iommu_line(&format!("Event logged [IO_PAGE_FAULT device={text}"), &NoNames);
            let _ = smmu(&["a: event 0x10 received:", &format!("a: \t0x{text}"), &format!("a: event: {text}")]);
        }
    }
}
