//! Lines in their order: who speaks, and what lines before it say of the one that counts.

use super::kinds::{self, aer};
use super::record::Record;
use crate::model::ids::{DeviceName, PciAddress};
use crate::model::kmsg::{MessageKind, MessageSource};

/// A line that means something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Who.
    pub driver: MessageSource,
    /// What.
    pub kind: MessageKind,
    /// The function that it names.
    pub address: Option<PciAddress>,
    /// The RDMA device that it names.
    pub device: Option<DeviceName>,
    /// Whether a driver of RDMA hardware has the function.
    pub of_rdma: bool,
}

/// What earlier lines said that later ones need.
#[derive(Debug, Default)]
pub struct Reader {
    /// The last PCIe error that was announced: who received it, and how bad it was.
    announced: Option<(Option<PciAddress>, MessageKind)>,
}

impl Reader {
    /// What a record means.
    pub fn read(&mut self, record: &Record<'_>) -> Option<Message> {
        let text = &*record.text;
        let speaker = Speaker::of(text);
        let named = || record.device.as_deref().and_then(|device| device.parse().ok());
        let address = speaker.address.or_else(named);
        if let Some(message) = self.pcie_error(&speaker, address) {
            return Some(message);
        }
        if text.contains("Request device [") || text.contains("Event logged [") {
            let fault = kinds::iommu_fault(text)?;
            let address = fault.or(address);
            let of_rdma = speaker.is_of_rdma();
            return Some(Message {
                driver: MessageSource::Iommu,
                kind: MessageKind::IommuFault,
                address,
                device: None,
                of_rdma,
            });
        }
        let driver = speaker.driver?;
        let kind = kinds::kind(driver, speaker.text)?;
        let named = record.device.as_deref().filter(|_| driver == MessageSource::Mlx5Ib && speaker.device.is_none());
        let device = speaker.device.or(named).map(DeviceName::new);
        Some(Message { driver, kind, address, device, of_rdma: driver.is_of_rdma() })
    }

    /// An error that AER reports stands in several lines: announced by the port that received it, then told by the
    /// function that it happened to, then what came of it. It counts once, where it happened.
    fn pcie_error(&mut self, speaker: &Speaker<'_>, address: Option<PciAddress>) -> Option<Message> {
        let of_rdma = speaker.is_of_rdma();
        let message = |kind, address| Message { driver: MessageSource::Pcieport, kind, address, device: None, of_rdma };
        let text = speaker.text.strip_prefix("AER: ").unwrap_or(speaker.text);
        if text.starts_with("PCIe Bus Error:") {
            let kind = aer(text)?;
            self.announced = Some((address, kind));
            return Some(message(kind, address));
        }
        if text.contains("rror received: id=") || text.contains("rror message received from") {
            self.announced = aer(text).map(|kind| (address, kind));
            return None;
        }
        let kind = self.announced.map_or(MessageKind::AerNonfatal, |(_, kind)| kind);
        if text.starts_with("can't find device of ID") {
            // Nobody told more: what was announced is all there is.
            let (receiver, kind) = self.announced.take()?;
            return Some(message(kind, receiver.or(address)));
        }
        if text.starts_with("device recovery failed") {
            return Some(message(MessageKind::AerFatal, address));
        }
        let lost = text.starts_with("can't recover") || text.starts_with("mlx5_pci_err_detected was called");
        lost.then(|| message(kind, address))
    }
}

/// Who a line says is speaking.
#[derive(Debug, Default, PartialEq, Eq)]
struct Speaker<'a> {
    driver: Option<MessageSource>,
    address: Option<PciAddress>,
    device: Option<&'a str>,
    /// What follows the names.
    text: &'a str,
}

impl<'a> Speaker<'a> {
    fn is_of_rdma(&self) -> bool {
        self.driver.is_some_and(MessageSource::is_of_rdma)
    }

    /// `mlx5_core 0000:98:00.0: text`, `mlx5_core 0000:41:00.0 enp65s0f0: text`, `infiniband mlx5_0: text`,
    /// `irdma 0000:98:00.0 irdma0: text`, `mlx5_port_module_event:1131:(pid 0): text`, `NETDEV WATCHDOG: eth0 (ice): …`.
    fn of(line: &'a str) -> Self {
        let (first, rest) = line.split_once(' ').unwrap_or((line, ""));
        if let Some(watched) = line.strip_prefix("NETDEV WATCHDOG: ") {
            let driver =
                watched.split_once('(').and_then(|(_, rest)| rest.split_once(')')).and_then(|(name, _)| by_name(name));
            return Self { driver, text: line, ..Self::default() };
        }
        if first == "infiniband" {
            let (device, text) = rest.split_once(": ").unwrap_or((rest, ""));
            let driver = if device.starts_with("bnxt_re") { MessageSource::BnxtRe } else { MessageSource::Mlx5Ib };
            return Self { driver: Some(driver), address: None, device: Some(device), text };
        }
        if let Some((name, _)) = first.split_once(':') {
            // A driver's own function may stand in the place of its name.
            let driver = by_name(name).or_else(|| name.starts_with("mlx5_").then_some(MessageSource::Mlx5Core));
            return Self { driver, text: rest, ..Self::default() };
        }
        let (second, after) = rest.split_once(' ').unwrap_or((rest, ""));
        let driver = by_name(first);
        if let Some(address) = second.strip_suffix(':') {
            return Self { driver, address: address.parse().ok(), device: None, text: after.trim_start() };
        }
        let Ok(address) = second.parse() else { return Self { driver, text: rest, ..Self::default() } };
        // A device or interface stands between address and text.
        let (name, text) = after.split_once(": ").unwrap_or(("", after));
        let rdma = driver
            .is_some_and(|driver| matches!(driver, MessageSource::Irdma | MessageSource::BnxtRe | MessageSource::Efa));
        let device = Some(name).filter(|name| rdma && !name.is_empty() && !name.contains(' '));
        Self { driver, address: Some(address), device, text: text.trim_start() }
    }
}

fn by_name(name: &str) -> Option<MessageSource> {
    match name {
        "pci" => Some(MessageSource::Pcieport),
        "mlx5_ib" => Some(MessageSource::Mlx5Ib),
        _ => {
            MessageSource::ALL.iter().copied().find(|driver| driver.as_str() == name && *driver != MessageSource::Iommu)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::record::dmesg;
    use super::*;

    /// Source, kind and subject of each line that means something.
    fn all(lines: &str) -> Vec<String> {
        let mut reader = Reader::default();
        let messages = lines.lines().filter_map(|line| reader.read(&dmesg(line)));
        let subject = |message: &Message| {
            let address = message.address.map(|address| address.to_string());
            address.or(message.device.as_ref().map(ToString::to_string)).unwrap_or_default()
        };
        messages
            .map(|m| format!("{} {} {}", m.driver.as_str(), m.kind.as_str(), subject(&m)).trim_end().to_owned())
            .collect()
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
                "mlx5_core module_error",
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
                let _ = reader.read(&dmesg(line));
            }
        }
    }
}
