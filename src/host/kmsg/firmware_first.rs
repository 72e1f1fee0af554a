//! PCIe errors that the platform's firmware takes before the kernel does (APEI): a record of several lines says how bad
//! the error was and where. Up to kernel 6.15 sysfs does not count these.

use crate::model::ids::PciAddress;
use crate::model::kmsg::MessageKind;

/// The record that is being printed.
#[derive(Debug, Default)]
pub struct FirmwareRecord {
    /// `{10}`: lines of records that are printed at the same time have different numbers. Empty for the errors that
    /// the firmware kept over a restart.
    number: String,
    /// How bad the record or its section is.
    severity: Option<MessageKind>,
    /// Whether the section is about PCIe.
    is_pcie: bool,
}

impl FirmwareRecord {
    /// Takes a line; gives the error where the line names the function that it happened to. The outer `None` is for
    /// lines that belong to no record.
    pub fn take(&mut self, text: &str) -> Option<Option<(MessageKind, PciAddress)>> {
        let (number, words) = text.split_once("[Hardware Error]:")?;
        let words = words.trim_start();
        let starts = words.starts_with("Hardware error from APEI") || words.starts_with("event severity:");
        if number != self.number || starts {
            *self = Self { number: number.to_owned(), ..Self::default() };
        }
        if let Some(severity) = words.strip_prefix("event severity:") {
            self.severity = kind(severity);
        } else if let Some((_, severity)) = words.split_once(", type:").filter(|_| words.starts_with("Error ")) {
            // A record may have several sections, each with its own severity.
            self.severity = kind(severity);
            self.is_pcie = false;
        } else if let Some(section) = words.strip_prefix("section_type:") {
            self.is_pcie = section.trim() == "PCIe error";
        } else if let Some(address) = words.strip_prefix("device_id:").filter(|_| self.is_pcie) {
            let address = address.trim().parse().ok();
            return Some(self.severity.zip(address));
        }
        Some(None)
    }
}

/// `cper_severity_strs` of `drivers/firmware/efi/cper.c`; what is informational is no error.
fn kind(severity: &str) -> Option<MessageKind> {
    match severity.trim() {
        "corrected" => Some(MessageKind::AerCorrectable),
        "recoverable" => Some(MessageKind::AerNonfatal),
        "fatal" => Some(MessageKind::AerFatal),
        _ => None,
    }
}

/// What a record says, as one line.
pub fn summary(kind: MessageKind, address: PciAddress) -> String {
    let severity = match kind {
        MessageKind::AerCorrectable => "corrected",
        MessageKind::AerNonfatal => "recoverable",
        _ => "fatal",
    };
    format!("[Hardware Error]: event severity: {severity}, section_type: PCIe error, device_id: {address}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(lines: &[&str]) -> Vec<(MessageKind, String)> {
        let mut record = FirmwareRecord::default();
        let found = lines.iter().filter_map(|line| record.take(line).flatten());
        found.map(|(kind, address)| (kind, address.to_string())).collect()
    }

    #[test]
    fn each_section_has_its_severity_and_its_function() {
        let lines = [
            "{7}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 512",
            "{7}[Hardware Error]: event severity: recoverable",
            "{7}[Hardware Error]:  Error 0, type: corrected",
            "{7}[Hardware Error]:   section_type: PCIe error",
            "{7}[Hardware Error]:   device_id: 0000:30:02.0",
            "{7}[Hardware Error]:   vendor_id: 0x8086, device_id: 0x347a",
            "{7}[Hardware Error]:  Error 1, type: recoverable",
            "{7}[Hardware Error]:   section_type: PCIe error",
            "{7}[Hardware Error]:   device_id: 0001:31:00.1",
        ];
        assert_eq!(
            all(&lines),
            [
                (MessageKind::AerCorrectable, "0000:30:02.0".to_owned()),
                (MessageKind::AerNonfatal, "0001:31:00.1".to_owned())
            ]
        );
    }

    #[test]
    fn other_sections_and_notes_are_no_pcie_error() {
        let lines = [
            "{8}[Hardware Error]: event severity: corrected",
            "{8}[Hardware Error]:  Error 0, type: corrected",
            "{8}[Hardware Error]:   section_type: memory error",
            "{8}[Hardware Error]:   device_id: 0000:30:02.0",
            "{9}[Hardware Error]: event severity: info",
            "{9}[Hardware Error]:   section_type: PCIe error",
            "{9}[Hardware Error]:   device_id: 0000:30:02.0",
            "{10}[Hardware Error]:   device_id: 0000:30:02.0",
        ];
        assert_eq!(all(&lines), []);
        assert_eq!(FirmwareRecord::default().take("pcieport 0000:30:02.0: AER: aer_status: 0x1"), None);
    }

    proptest! {
        #[test]
        fn no_text_breaks_it(lines in proptest::collection::vec("\\{?[0-9]{0,2}\\}?\\[Hardware Error\\]:[a-z_:, 0-9A-Z.]{0,40}", 0..8)) {
            let mut record = FirmwareRecord::default();
            for line in lines {
                let _ = record.take(&line);
            }
        }
    }
}
