//! Lines in their order: whom each is about, and what the lines before it add to the one that counts.
//!
//! Some sources have formats of their own: IOMMUs, platforms that report PCIe errors in place of AER, and PCIe errors that
//! the platform's firmware takes before the kernel does (APEI). The latter are records of several lines with severity and
//! address; up to kernel 6.15 sysfs does not count these errors.

use super::iommu::{IommuLine, SmmuEvent, iommu_line};
use super::platform::platform_error;
use super::record::Record;
use super::rules::Matches;
use super::speaker::Speaker;
use super::speaker::{Names, Owner};
use crate::model::ids::{DeviceName, PciAddress};
use crate::model::kmsg::{MessageKind, MessageSource};

/// A line that means something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Whose line it is.
    pub driver: MessageSource,
    /// What.
    pub kind: MessageKind,
    /// The function that it is about.
    pub address: Option<PciAddress>,
    /// The RDMA device that it names.
    pub device: Option<DeviceName>,
    /// Whether a driver of RDMA hardware has the function.
    pub of_rdma: bool,
    /// Its words; those of several lines put together where no single one says it all.
    pub text: String,
}

/// What earlier lines said that later ones need.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reader {
    /// The last PCIe error that was announced: who received it, and how bad it was.
    announced: Option<(Option<PciAddress>, MessageKind)>,
    /// The last error that the firmware took first.
    record: FirmwareRecord,
    /// The last event of Arm's IOMMU.
    smmu: SmmuEvent,
}

impl Reader {
    /// What a record means.
    pub fn read(&mut self, record: &Record<'_>, names: &dyn Names) -> Option<Message> {
        let text = &*record.text;
        if let Some(error) = self.record.take(text) {
            let (kind, address) = error?;
            let of_rdma = names.is_of_rdma(address);
            let text = record_summary(kind, address);
            return Some(Message {
                driver: MessageSource::Pcieport,
                kind,
                address: Some(address),
                device: None,
                of_rdma,
                text,
            });
        }
        let speaker = Speaker::of(text);
        let subject = Subject::of(&speaker, record, names);
        let (driver, kind, address) = if let Some((kind, address)) = self.pcie_error(&speaker, subject.address) {
            (MessageSource::Pcieport, kind, address)
        } else if let Some((kind, address)) = platform_error(text) {
            (MessageSource::Pcieport, kind, Some(address))
        } else if let Some(outcome) = self.smmu.take(text, names).or_else(|| iommu_line(text, names)) {
            let IommuLine::Fault(address) = outcome else { return None };
            (MessageSource::Iommu, MessageKind::IommuFault, address.or(subject.address))
        } else {
            let (driver, kind) = meaning(&speaker, &subject)?;
            (driver, kind, subject.address.or_else(|| speaker.address_in_text()))
        };
        let of_rdma =
            [Some(driver), speaker.driver, subject.driver].into_iter().flatten().any(MessageSource::is_of_rdma)
                || address.is_some_and(|address| names.is_of_rdma(address));
        let is_device = subject.is_rdma || (subject.is_unknown && driver.is_rdma_part());
        let device = subject.name.filter(|_| is_device).map(DeviceName::new);
        Some(Message { driver, kind, address, device, of_rdma, text: text.to_owned() })
    }

    /// An error that AER reports stands in several lines: announced by the port that received it, then told by the
    /// function that it happened to, then what came of it. It counts once, where it happened.
    fn pcie_error(
        &mut self,
        speaker: &Speaker<'_>,
        address: Option<PciAddress>,
    ) -> Option<(MessageKind, Option<PciAddress>)> {
        let text = speaker.text.strip_prefix("AER: ").unwrap_or(speaker.text);
        if text.starts_with("PCIe Bus Error:") {
            let kind = severity(text)?;
            self.announced = Some((address, kind));
            return Some((kind, address));
        }
        if text.contains("rror received: id=") || text.contains("rror message received from") {
            self.announced = severity(text).map(|kind| (address, kind));
            return None;
        }
        let kind = self.announced.map_or(MessageKind::AerNonfatal, |(_, kind)| kind);
        if text.starts_with("can't find device of ID") {
            // Nobody told more: what was announced is all there is.
            let (receiver, kind) = self.announced.take()?;
            return Some((kind, receiver.or(address)));
        }
        if text.starts_with("device recovery failed") {
            return Some((MessageKind::AerFatal, address));
        }
        let lost = text.starts_with("can't recover") || text.starts_with("mlx5_pci_err_detected was called");
        lost.then_some((kind, address))
    }
}

/// The function that a driver of RDMA hardware names at the start of its line, whatever the line says.
pub fn rdma_function(record: &Record<'_>) -> Option<PciAddress> {
    let speaker = Speaker::of(&record.text);
    speaker.address.filter(|_| speaker.driver.is_some_and(MessageSource::is_of_rdma))
}

/// Whom a line is about, as far as its names and the host say.
struct Subject<'a> {
    address: Option<PciAddress>,
    /// The driver that has the function.
    driver: Option<MessageSource>,
    name: Option<&'a str>,
    is_rdma: bool,
    /// Whether the host does not know the name.
    is_unknown: bool,
}

impl<'a> Subject<'a> {
    fn of(speaker: &Speaker<'a>, record: &'a Record<'_>, names: &dyn Names) -> Self {
        let beside_line = record.device.as_deref();
        let beside = beside_line.and_then(|device| device.parse().ok());
        let name = speaker.name.or(beside_line.filter(|_| beside.is_none() && speaker.address.is_none()));
        let owner = name.and_then(|name| names.owner(name));
        let address = speaker.address.or(beside).or(owner.and_then(|owner| owner.address));
        // The driver that a line names is the function's own, except where the line is a part of the kernel's that
        // speaks of every function.
        let is_general = speaker.driver.is_none_or(|driver| !driver.is_of_rdma());
        let driver = owner
            .and_then(|owner| owner.driver)
            .or_else(|| address.filter(|_| is_general).and_then(|address| names.driver(address)));
        let is_rdma = speaker.is_rdma || owner.is_some_and(|Owner { is_rdma, .. }| is_rdma);
        Self { address, driver, name, is_rdma, is_unknown: owner.is_none() }
    }
}

/// Whose line it is, and what it means: by the drivers of the function that it is about, by the driver that it names,
/// by the kernel's own parts, and by its words alone where it names nothing that is known.
fn meaning(speaker: &Speaker<'_>, subject: &Subject<'_>) -> Option<(MessageSource, MessageKind)> {
    let matches = Matches::of(speaker.text);
    let of = |driver: Option<MessageSource>| driver.and_then(|driver| matches.by_driver(driver));
    let known = of(subject.driver).or_else(|| of(speaker.driver));
    let is_rdma = speaker.is_rdma || subject.is_rdma;
    let known = known.or_else(|| of(Some(MessageSource::IbCore).filter(|_| is_rdma)));
    let has_function = subject.address.is_some() || speaker.driver.is_some() || speaker.address_in_text().is_some();
    let known = known.or_else(|| of(Some(MessageSource::Pci).filter(|_| has_function)));
    let names_nobody = speaker.driver.is_none() && subject.driver.is_none() && speaker.address.is_none();
    known.or_else(|| matches.by_text(speaker.is_rdma).filter(|_| names_nobody))
}

/// The severity that an AER line names: kernels up to 6.11 say Corrected and Uncorrected, later ones Correctable and
/// Uncorrectable.
fn severity(text: &str) -> Option<MessageKind> {
    let severity = text.split_once("severity=").map_or(text, |(_, severity)| severity);
    if severity.contains("(Non-Fatal)") {
        Some(MessageKind::AerNonfatal)
    } else if severity.contains("(Fatal)") {
        Some(MessageKind::AerFatal)
    } else if severity.contains("Correct") {
        Some(MessageKind::AerCorrectable)
    } else {
        None
    }
}

/// The record that is being printed.
#[derive(Debug, Clone, Default, PartialEq)]
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
            self.severity = record_severity(severity);
        } else if let Some((_, severity)) = words.split_once(", type:").filter(|_| words.starts_with("Error ")) {
            // A record may have several sections, each with its own severity.
            self.severity = record_severity(severity);
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
fn record_severity(severity: &str) -> Option<MessageKind> {
    match severity.trim() {
        "corrected" => Some(MessageKind::AerCorrectable),
        "recoverable" => Some(MessageKind::AerNonfatal),
        "fatal" => Some(MessageKind::AerFatal),
        _ => None,
    }
}

/// What a record says, as one line.
fn record_summary(kind: MessageKind, address: PciAddress) -> String {
    let severity = match kind {
        MessageKind::AerCorrectable => "corrected",
        MessageKind::AerNonfatal => "recoverable",
        _ => "fatal",
    };
    format!("[Hardware Error]: event severity: {severity}, section_type: PCIe error, device_id: {address}")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::super::record::dmesg;
    use super::super::speaker::NoNames;
    use super::*;
    use crate::host::memory::MemoryHost;

    /// MessageSource, kind and subject of each line that means something.
    fn all(lines: &str) -> Vec<String> {
        all_of(lines, &NoNames)
    }

    fn all_of(lines: &str, names: &dyn Names) -> Vec<String> {
        let mut reader = Reader::default();
        let mut found = Vec::new();
        for line in lines.lines() {
            let record = dmesg(line);
            let Some(message) = reader.read(&record, names) else { continue };
            let address = message.address.map(|address| address.to_string());
            let subject = address.or(message.device.as_ref().map(ToString::to_string)).unwrap_or_default();
            let line = format!("{} {} {subject}", message.driver.as_str(), message.kind.as_str());
            found.push(line.trim_end().to_owned());
        }
        found
    }

    #[test]
    fn aer_of_old_kernels() {
        let lines = "\
            [    1.000001] pcieport 0000:00:1e.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, id=00f0(Receiver ID)\n\
            [    1.000002] pcieport 0000:00:1e.0:   device [8086:a29a] error status/mask=00000001/00002000\n\
            [    1.000003] pcieport 0000:00:1e.0:    [ 0] Receiver Error        \n\
            [    1.000004] pcieport 0000:00:1e.0: AER: Multiple Corrected error received: id=00f0\n\
            [    1.000005] pcieport 0000:00:1e.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, id=00f0(Receiver ID)\n\
            [    4.100000] pcieport 0000:00:1c.4: AER: Corrected error received: id=00e4\n\
            [    4.100001] pcieport 0000:00:1c.4: can't find device of ID00e4\n\
            [    5.200000] hpsa 0000:05:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, id=0500(Transmitter ID)\n\
            [    5.200004] hpsa 0000:05:00.0:    [ 8] RELAY_NUM Rollover    \n";
        assert_eq!(
            all(lines),
            [
                "pcieport aer_correctable 0000:00:1e.0",
                "pcieport aer_correctable 0000:00:1e.0",
                "pcieport aer_correctable 0000:00:1c.4",
                "pcieport aer_correctable 0000:05:00.0",
            ]
        );
    }

    #[test]
    fn aer_fatal_and_no_way_back() {
        let lines = "\
            [ 23.000001] pcieport 0000:00:1b.0: AER: Uncorrectable (Fatal) error message received from 0000:13:04.0\n\
            [ 23.000002] pcieport 0000:13:04.0: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Transaction Layer, (Receiver ID)\n\
            [ 23.000003] pcieport 0000:13:04.0:   device [111d:8063] error status/mask=00000020/00000000\n\
            [ 23.000004] pcieport 0000:13:04.0:    [ 5] SDES                   (First)\n\
            [ 23.000005] mlx5_core 0000:15:00.0: mlx5_pci_err_detected was called\n\
            [ 23.000006] pci 0000:15:00.1: AER: can't recover (no error_detected callback)\n\
            [ 24.100001] pcieport 0000:13:04.0: AER: Downstream Port link has been reset (0)\n\
            [ 24.100002] pcieport 0000:13:04.0: AER: device recovery failed\n\
            [ 25.000000] mlx5_core 0000:15:00.0: AER: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer\n\
            [ 26.000000] pcieport 0000:13:04.0: DPC: containment event, status:0x1f01 source:0x0000\n";
        assert_eq!(
            all(lines),
            [
                "pcieport aer_fatal 0000:13:04.0",
                "pcieport aer_fatal 0000:15:00.0",
                "pcieport aer_fatal 0000:15:00.1",
                "pcieport aer_fatal 0000:13:04.0",
                "pcieport aer_nonfatal 0000:15:00.0",
                "pcieport dpc 0000:13:04.0",
            ]
        );
    }

    #[test]
    fn faults_without_a_domain() {
        let lines = "\
            [10.000000] DMAR: [DMA Write] Request device [00:13.0] fault addr 0 [fault reason 05] PTE Write access is not set\n\
            [10.000001] DMAR: DRHD: handling fault status reg 2\n\
            [10.000002] dmar_fault: 2474 callbacks suppressed\n\
            [11.000000] DMAR: [DMA Read] Request device [07:00.0] PASID ffffffff fault addr 1a5e12000 [fault reason 06] x\n\
            [12.000000] DMAR: [DMA Read NO_PASID] Request device [0x00:0x03.0] fault addr 0x70ad5000 [fault reason 0x07] x\n\
            [13.000000] mlx5_core 10000:05:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0012 address=0x0 flags=0x0000]\n";
        assert_eq!(
            all(lines),
            [
                "iommu iommu_fault 0000:00:13.0",
                "iommu iommu_fault 0000:07:00.0",
                "iommu iommu_fault 0000:00:03.0",
                "iommu iommu_fault 10000:05:00.0",
            ]
        );
    }

    #[test]
    fn severities_of_old_and_new_kernels() {
        let table = [
            (
                "PCIe Bus Error: severity=Corrected, type=Physical Layer, id=00e8(Receiver ID)",
                MessageKind::AerCorrectable,
            ),
            ("PCIe Bus Error: severity=Correctable, type=Physical Layer", MessageKind::AerCorrectable),
            ("PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer", MessageKind::AerNonfatal),
            ("PCIe Bus Error: severity=Uncorrectable (Fatal), type=Transaction Layer", MessageKind::AerFatal),
        ];
        for (text, kind) in table {
            assert_eq!(severity(text), Some(kind), "{text}");
        }
        assert_eq!(severity("Downstream Port link has been reset (0)"), None);
    }

    #[test]
    fn lines_are_about_the_device_that_they_name() {
        let host = MemoryHost::new();
        host.symlink("/sys/class/infiniband/rocep7s0f1", "../../devices/pci0000:00/0000:07:00.1/infiniband/rocep7s0f1");
        host.symlink("/sys/class/infiniband/left", "../../devices/pci0000:00/0000:19:00.0/infiniband/left");
        host.symlink("/sys/class/net/ens3f0", "../../devices/pci0000:00/0000:19:00.0/net/ens3f0");
        host.symlink(
            "/sys/bus/auxiliary/devices/bnxt_en.rdma.0",
            "../../../devices/pci0000:00/0000:19:00.0/bnxt_en.rdma.0",
        );
        for (address, driver) in [("0000:07:00.1", "ice"), ("0000:19:00.0", "bnxt_en"), ("0002:41:00.2", "vfio-pci")] {
            host.symlink(format!("/sys/bus/pci/devices/{address}"), format!("../../../devices/pci0000:00/{address}"));
            host.symlink(
                format!("/sys/devices/pci0000:00/{address}/driver"),
                format!("../../../bus/pci/drivers/{driver}"),
            );
        }
        let host = Arc::new(host).host();
        let lines = "\
            [1.000000] ice 0000:07:00.1 rocep7s0f1: abnormal ae_id = 0x401 bool qp=1 qp_id = 1, ae_src=5\n\
            [1.000001] infiniband rocep7s0f1: Fatal error (1) on MAD QP (1)\n\
            [1.000002] infiniband left: Failed to modify HW QP\n\
            [1.000003] bnxt_re.bnxt_re bnxt_en.rdma.0: QPLIB: cmdq[0xd3a]=0x9 status 0x3\n\
            [1.000004] NETDEV WATCHDOG: ens3f0 (bnxt_en): transmit queue 3 timed out\n\
            [1.000005] DMAR: [DMA Read NO_PASID] Request device [41:00.2] fault addr 0x7 [fault reason 0x06] x\n\
            [1.000005] DMAR: [DMA Read NO_PASID] Request device [62:00.1] fault addr 0x7 [fault reason 0x06] x\n\
            [1.000006] pci 0000:07:00.1: can't enable 16 VFs (bus 41 out of range of [bus 07])\n\
            [1.000007] infiniband gone: abnormal ae_id = 0x401 bool qp=1 qp_id = 1, ae_src=5\n";
        assert_eq!(
            all_of(lines, &host),
            [
                "irdma qp_error 0000:07:00.1",
                "ib_core qp_error 0000:07:00.1",
                "bnxt_re command_failed 0000:19:00.0",
                "bnxt_re command_failed 0000:19:00.0",
                "bnxt_en tx_timeout 0000:19:00.0",
                "iommu iommu_fault 0002:41:00.2",
                "iommu iommu_fault 0000:62:00.1",
                "pci sriov_failed 0000:07:00.1",
                "irdma qp_error gone",
            ]
        );
    }

    #[test]
    fn errors_that_the_firmware_takes_first_count_once() {
        let lines = "\
            [7.000000] {3}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 4\n\
            [7.000001] {3}[Hardware Error]: event severity: corrected\n\
            [7.000002] {3}[Hardware Error]:  Error 0, type: corrected\n\
            [7.000003] {3}[Hardware Error]:   section_type: PCIe error\n\
            [7.000004] {3}[Hardware Error]:   device_id: 0000:20:03.1\n\
            [7.000005] {3}[Hardware Error]:   vendor_id: 0x1022, device_id: 0x1453\n\
            [7.000006] pcieport 0000:20:03.1: AER: aer_status: 0x00001000, aer_mask: 0x00006000\n\
            [7.000007] pcieport 0000:20:03.1: AER:    [12] Timeout\n\
            [7.000008] pcieport 0000:20:03.1: AER: aer_layer=Data Link Layer, aer_agent=Transmitter ID\n";
        assert_eq!(all(lines), ["pcieport aer_correctable 0000:20:03.1"]);
    }

    #[test]
    fn who_speaks() {
        let lines = "\
            [   13.283871] mlx5_core 0001:29:00.0: print_health_info:383:(pid 0): irisc_index 2\n\
            [   13.283908] mlx5_core 0001:29:00.0: print_health_info:385:(pid 0): synd 0x7: irisc not responding\n\
            [   14.000000] mlx5_port_module_event:1131:(pid 0): Port module event[error]: module 0, Cable error, High Temperature\n\
            [   15.000000] mlx5_core 10000:01:00.0 eth4: Link down\n\
            [   16.000000] infiniband mlx5_7: mlx5_ib_poll_cq:1:(pid 4): WC error: 4, Message: local protection error\n\
            [   17.000000] irdma 0000:84:00.0 irdma0: abnormal ae_id = 0x502 bool qp=1 qp_id = 3, ae_src=5\n\
            [   18.000000] NETDEV WATCHDOG: eth0 (mlx5_core): transmit queue 3 timed out\n\
            [   19.000000] ice 0000:84:00.0 eth9: NETDEV WATCHDOG: CPU: 3: transmit queue 2 timed out 5024 ms\n\
            [   20.000000] IPv6: ADDRCONF(NETDEV_UP): enp65s0f0: link is not ready\n\
            [   21.000000] cx7-pcie-hotplug MTKP0001:00: PCIe hotplug driver initialized successfully\n\
            [   22.000000] ixgbe 0000:06:00.1: PCI Express bandwidth of 32GT/s available\n\
            [   23.000000] igb 0000:02:00.0: eth0: (PCIe:5.0Gb/s:Width x4) 02:00:00:17:00:01\n\
            [   24.000000] i40e 0000:3b:00.0: VF 0 failed opcode 10, retval: -1\n\
            [   25.000000] iavf 0000:ec:01.1 eth2: NIC Link is Up Speed is 10 Gbps Full Duplex\n\
            [   26.000000] iavf 0000:ec:01.1: Reset indication received from the PF\n\
            [   27.000000] mlx5_core: some other info that doesn't match patterns\n\
            [   28.000000] pci 0003:01:00.0: 7.876 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x1 link at 0003:00:00.0\n";
        assert_eq!(
            all(lines),
            [
                "mlx5_core firmware_fatal 0001:29:00.0",
                "mlx5_core module_hot",
                "mlx5_core link_down 10000:01:00.0",
                "mlx5_ib qp_error mlx5_7",
                "irdma qp_error 0000:84:00.0",
                "mlx5_core tx_timeout",
                "ice tx_timeout 0000:84:00.0",
                "i40e vf_denied 0000:3b:00.0",
                "iavf link_up 0000:ec:01.1",
                "iavf vf_reset 0000:ec:01.1",
            ]
        );
    }

    proptest! {
        #[test]
        fn no_lines_break_it(lines in proptest::collection::vec(any::<String>(), 0..8), like in "(mlx5_core|pcieport|infiniband|ice|AER:)? ?[0-9a-f:. A-Za-z\\[\\]=()]{0,60}") {
            let mut reader = Reader::default();
            for line in lines.iter().chain([&like]) {
                let _ = reader.read(&dmesg(line), &NoNames);
            }
        }
    }
}

#[cfg(test)]
mod firmware_first_tests {
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
