//! What a line means: the table of texts by driver, and the lines that several drivers share.

use crate::model::ids::PciAddress;
use crate::model::kmsg::{MessageKind, MessageSource};

/// A text that means something: all of these fragments, in any order.
struct Rule {
    drivers: &'static [MessageSource],
    fragments: &'static [&'static str],
    kind: MessageKind,
}

const MLX5: &[MessageSource] = &[MessageSource::Mlx5Core];
const MLX5_IB: &[MessageSource] = &[MessageSource::Mlx5Ib, MessageSource::Mlx5Core];
const INTEL: &[MessageSource] = &[MessageSource::Ice, MessageSource::I40e, MessageSource::Iavf];
const INTEL_VF: &[MessageSource] = &[MessageSource::Iavf, MessageSource::I40e, MessageSource::Ice];
const BNXT: &[MessageSource] = &[MessageSource::BnxtEn];
const BNXT_RE: &[MessageSource] = &[MessageSource::BnxtRe];
const NETDEVS: &[MessageSource] =
    &[MessageSource::Mlx5Core, MessageSource::Ice, MessageSource::I40e, MessageSource::Iavf, MessageSource::BnxtEn];
const NIC: &[MessageSource] = &[MessageSource::Ice, MessageSource::I40e, MessageSource::Iavf, MessageSource::BnxtEn];

const fn rule(drivers: &'static [MessageSource], fragments: &'static [&'static str], kind: MessageKind) -> Rule {
    Rule { drivers, fragments, kind }
}

/// The first that fits counts. Texts are those of kernels 4.18 to 6.18; older ones misspell some words.
#[rustfmt::skip]
const RULES: &[Rule] = &[
    rule(NETDEVS, &["available PCIe bandwidth, limited by"], MessageKind::PcieBandwidthLimited),
    rule(MLX5, &["Health issue observed", "emperature"], MessageKind::HighTemperature),
    rule(MLX5, &["synd 0x", "High temp"], MessageKind::HighTemperature),
    rule(MLX5, &["Health issue observed"], MessageKind::FirmwareFatal),
    rule(MLX5, &["synd 0x", ": "], MessageKind::FirmwareFatal),
    rule(MLX5, &["Fatal error ", " detected"], MessageKind::FirmwareFatal),
    rule(MLX5, &["health compromised"], MessageKind::DeviceHealth),
    rule(MLX5, &["health recovery failed"], MessageKind::DeviceHealth),
    rule(MLX5, &["PCI slot is unavailable"], MessageKind::DeviceHealth),
    rule(MLX5, &["Driver is in error state"], MessageKind::DeviceHealth),
    rule(MLX5, &["timeout. Will cause a leak of a command resource"], MessageKind::CommandTimeout),
    rule(MLX5, &["No done completion"], MessageKind::CommandTimeout),
    rule(MLX5, &["ACCESS_REG", "failed"], MessageKind::RegisterDenied),
    rule(MLX5, &["Port module event", "Cable plugged"], MessageKind::ModulePlugged),
    rule(MLX5, &["Port module event", "Cable unplugged"], MessageKind::ModulePlugged),
    rule(MLX5, &["Port module event", "Cable error"], MessageKind::ModuleError),
    rule(MLX5, &["Port module event[error]"], MessageKind::ModuleError),
    rule(MLX5, &["High temperature on sensors"], MessageKind::HighTemperature),
    rule(MLX5, &["Detected insufficient power on the PCIe slot"], MessageKind::PcieSlotPower),
    rule(MLX5, &["Sync Reset now"], MessageKind::FirmwareReset),
    rule(MLX5, &["PCI Sync FW Update Reset"], MessageKind::FirmwareReset),
    rule(MLX5, &["RX timeout on channel"], MessageKind::TxTimeout),
    rule(MLX5_IB, &["WC error: "], MessageKind::QpError),
    rule(MLX5_IB, &["dump_cqe:"], MessageKind::QpError),
    rule(MLX5_IB, &["bad qp"], MessageKind::QpError),
    rule(MLX5_IB, &["bad QP"], MessageKind::QpError),
    rule(NETDEVS, &["TX timeout"], MessageKind::TxTimeout),
    rule(NETDEVS, &["tx_timeout"], MessageKind::TxTimeout),
    rule(NETDEVS, &["NETDEV WATCHDOG", "timed out"], MessageKind::TxTimeout),
    rule(INTEL, &["is-configuration of the Ethernet port detected"], MessageKind::MediaMisconfigured),
    rule(INTEL, &["misconfiguration of the Ethernet port"], MessageKind::MediaMisconfigured),
    rule(INTEL, &["unsupported module type"], MessageKind::MediaMisconfigured),
    rule(INTEL, &["module's power requirements exceed"], MessageKind::MediaMisconfigured),
    rule(INTEL, &["installed module is incompatible"], MessageKind::MediaMisconfigured),
    rule(INTEL_VF, &["Reset indication received from the PF"], MessageKind::VfReset),
    rule(INTEL_VF, &["Reset warning received from the PF"], MessageKind::VfReset),
    rule(INTEL_VF, &["attempting to override administratively set MAC"], MessageKind::VfDenied),
    rule(INTEL_VF, &["VF is not trusted"], MessageKind::VfDenied),
    rule(INTEL_VF, &["Failed to add MAC filter"], MessageKind::VfDenied),
    rule(INTEL_VF, &["VF ", "failed opcode"], MessageKind::VfDenied),
    rule(&[MessageSource::Irdma], &["abnormal ae_id"], MessageKind::QpError),
    rule(&[MessageSource::Irdma], &["critical PE Error"], MessageKind::DeviceHealth),
    rule(&[MessageSource::Irdma], &["HMC Error"], MessageKind::DeviceHealth),
    rule(&[MessageSource::Irdma], &["Requesting a reset"], MessageKind::DeviceHealth),
    rule(BNXT, &["firmware fatal condition"], MessageKind::FirmwareFatal),
    rule(BNXT, &["Non-fatal firmware reset event"], MessageKind::FirmwareReset),
    rule(BNXT, &["Solicited firmware reset event"], MessageKind::FirmwareReset),
    rule(BNXT, &["Fatal firmware reset event"], MessageKind::FirmwareFatal),
    rule(BNXT, &["Chip temperature has gone", "thermal threshold"], MessageKind::HighTemperature),
    rule(BNXT_RE, &["FW STALL Detected"], MessageKind::CommandTimeout),
    rule(&[MessageSource::Efa], &["didn't send any completion for admin cmd"], MessageKind::CommandTimeout),
    rule(&[MessageSource::Efa], &["Admin queue is closed"], MessageKind::DeviceHealth),
    rule(&[MessageSource::Efa], &["Device isn't ready"], MessageKind::DeviceHealth),
    rule(NIC, &["NIC Link is Down"], MessageKind::LinkDown),
    rule(NIC, &["NIC Link is Up"], MessageKind::LinkUp),
    rule(NIC, &["NIC Link is up"], MessageKind::LinkUp),
    rule(MLX5, &["Link down"], MessageKind::LinkDown),
    rule(MLX5, &["Link up"], MessageKind::LinkUp),
    rule(&[MessageSource::Pcieport], &["DPC: containment event"], MessageKind::Dpc),
    rule(&[MessageSource::VfioPci], &["reset recovery - restoring BARs"], MessageKind::VfioError),
    rule(&[MessageSource::VfioPci], &["Unable to change power state"], MessageKind::VfioError),
    rule(&[MessageSource::VfioPci], &["not ready", "after"], MessageKind::VfioError),
];

/// What a driver's own text means; none for texts that mean nothing to us.
pub fn kind(driver: MessageSource, text: &str) -> Option<MessageKind> {
    let fits =
        |rule: &&Rule| rule.drivers.contains(&driver) && rule.fragments.iter().all(|fragment| text.contains(fragment));
    let kind = RULES.iter().find(fits)?.kind;
    is_real(kind, text).then_some(kind)
}

/// Texts that look like another.
fn is_real(kind: MessageKind, text: &str) -> bool {
    match kind {
        // No link at all, or a rate of nothing, is no limit.
        MessageKind::PcieBandwidthLimited => !text.contains("Unknown") && !text.starts_with("0.000 "),
        MessageKind::PcieSlotPower => {
            let watts = text.split_once("PCIe slot (").and_then(|(_, rest)| rest.split_once("W)"));
            watts.is_some_and(|(watts, _)| !watts.is_empty() && watts.bytes().all(|byte| byte.is_ascii_digit()))
        }
        // Notices and below (5 to 7) are no failure.
        MessageKind::FirmwareFatal => {
            !["severity(5)", "severity(6)", "severity(7)"].iter().any(|mild| text.contains(mild))
        }
        _ => true,
    }
}

/// Every driver with the kinds that it can have, in the order of the metrics.
pub fn pairs() -> Vec<(MessageSource, MessageKind)> {
    let own = RULES.iter().flat_map(|rule| rule.drivers.iter().map(|driver| (*driver, rule.kind)));
    let shared = [
        (MessageSource::Pcieport, MessageKind::AerFatal),
        (MessageSource::Pcieport, MessageKind::AerNonfatal),
        (MessageSource::Pcieport, MessageKind::AerCorrectable),
        (MessageSource::Iommu, MessageKind::IommuFault),
    ];
    let mut pairs: Vec<(MessageSource, MessageKind)> = own.chain(shared).collect();
    pairs.sort_unstable();
    pairs.dedup();
    pairs
}

/// The severity that an AER line names: kernels up to 6.11 say Corrected and Uncorrected, later ones Correctable and
/// Uncorrectable.
pub fn aer(text: &str) -> Option<MessageKind> {
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

/// The function that an IOMMU fault names: `[DMA Write] Request device [00:12.0] fault addr …` without a domain, with
/// `0x` before the numbers on some kernels, or AMD's `device=0000:05:00.0`. None when the text is no fault; a fault
/// may name nobody.
pub fn iommu_fault(text: &str) -> Option<Option<PciAddress>> {
    if let Some((_, rest)) = text.split_once("Request device [") {
        let fault = text.contains("fault addr") || text.contains("fault index") || text.contains("fault reason");
        return fault.then(|| rest.split_once(']').and_then(|(device, _)| address(device)));
    }
    let (_, rest) = text.split_once("Event logged [")?;
    let (name, rest) = rest.split_once(' ')?;
    let faults = [
        "IO_PAGE_FAULT",
        "ILLEGAL_DEV_TABLE_ENTRY",
        "DEV_TAB_HARDWARE_ERROR",
        "INVALID_DEVICE_REQUEST",
        "IOTLB_INV_TIMEOUT",
    ];
    faults.contains(&name).then(|| {
        let device = rest.split_once("device=").map(|(_, device)| device);
        device.and_then(|device| address(device.split([' ', ']']).next()?))
    })
}

/// An address whose domain may be missing: then it is 0.
pub fn address(text: &str) -> Option<PciAddress> {
    let plain = text.replace("0x", "");
    plain.parse().ok().or_else(|| format!("0000:{plain}").parse().ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn texts_and_their_look_alikes() {
        let mlx5 = |text: &str| kind(MessageSource::Mlx5Core, text);
        let table = [
            (
                "mlx5_pcie_event:299:(pid 2): Detected insufficient power on the PCIe slot (27W).",
                Some(MessageKind::PcieSlotPower),
            ),
            ("Detected insufficient power on the PCIe slot (27.5W).", None),
            ("Detected insufficient power on the PCIe slot (27 W).", None),
            ("Detected insufficient power on the PCIe slot (W).", None),
            ("mlx5_pcie_event:300:(pid 2): PCIe slot advertised sufficient power (75W).", None),
            ("126.028 Gb/s available PCIe bandwidth (32.0 GT/s PCIe x4 link)", None),
            (
                "63.008 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x8 link at 0000:3a:00.0 (capable of 252.048 Gb/s)",
                Some(MessageKind::PcieBandwidthLimited),
            ),
            ("0.000 Gb/s available PCIe bandwidth, limited by Unknown x0 link at 000f:00:00.0", None),
            (
                "x:1:(pid 0): Port module event[error]: module 0, Cable error, High Temperature",
                Some(MessageKind::ModuleError),
            ),
            (
                "x:1:(pid 0): Port module event[warning]: module 1, Cable error, Bus stuck",
                Some(MessageKind::ModuleError),
            ),
            ("Port module event: module 0, Cable unplugged", Some(MessageKind::ModulePlugged)),
            ("Port module event: Temperature normal", None),
            ("print_health_info:385:(pid 0): synd 0x7: irisc not responding", Some(MessageKind::FirmwareFatal)),
            ("print_health_info:374:(pid 0): assert_var[0] 0x00000001", None),
            ("Health issue observed, firmware internal error, severity(3) ERROR:", Some(MessageKind::FirmwareFatal)),
            ("Health issue observed, firmware internal error, severity(6) INFO:", None),
            ("Health issue observed, High temperature, severity(3) ERROR:", Some(MessageKind::HighTemperature)),
            (
                "poll_health:1:(pid 0): device's health compromised - reached miss count",
                Some(MessageKind::DeviceHealth),
            ),
            (
                "wait_func:1:(pid 5): ENABLE_HCA(0x104) timeout. Will cause a leak of a command resource",
                Some(MessageKind::CommandTimeout),
            ),
            (
                "mlx5_cmd_out_err:1: ACCESS_REG(0x805) op_mod(0x1) failed, status bad operation(0x2)",
                Some(MessageKind::RegisterDenied),
            ),
            ("enp65s0f0: Link down", Some(MessageKind::LinkDown)),
            ("some other info that doesn't match", None),
        ];
        for (text, expected) in table {
            assert_eq!(mlx5(text), expected, "{text}");
        }
        assert_eq!(
            kind(MessageSource::Mlx5Ib, "mlx5_poll_one:1:(pid 4): WC error: 4, Message: x"),
            Some(MessageKind::QpError)
        );
        assert_eq!(
            kind(MessageSource::Iavf, "Failed to add MAC filter, error IAVF_ERR_NVM"),
            Some(MessageKind::VfDenied)
        );
        assert_eq!(
            kind(MessageSource::BnxtEn, "Non-fatal firmware reset event, data1: 0x1"),
            Some(MessageKind::FirmwareReset)
        );
        assert_eq!(kind(MessageSource::VfioPci, "Captured SR-IOV VF 0000:3b:02.0 driver_override"), None);
        assert_eq!(
            kind(MessageSource::Ice, "NIC Link is up 100 Gbps Full Duplex, Requested FEC: RS-FEC"),
            Some(MessageKind::LinkUp)
        );
    }

    #[test]
    fn faults_of_every_spelling() {
        let at = |text: &str| iommu_fault(text).flatten().map(|address| address.to_string());
        let table = [
            ("[DMA Write] Request device [00:12.0] fault addr 0 [fault reason 05] PTE Write access", "0000:00:12.0"),
            ("[DMA Read] Request device [06:00.0] PASID ffffffff fault addr 1a [fault reason 06]", "0000:06:00.0"),
            ("[DMA Read NO_PASID] Request device [0x00:0x02.0] fault addr 0x7 [fault reason 0x07]", "0000:00:02.0"),
            ("Event logged [IO_PAGE_FAULT device=10000:05:00.0 domain=0x1 address=0x2]", "10000:05:00.0"),
            ("Event logged [IO_PAGE_FAULT device=05:00.0 domain=0x1 address=0x2]", "0000:05:00.0"),
        ];
        for (text, address) in table {
            assert_eq!(at(text).as_deref(), Some(address), "{text}");
        }
        assert_eq!(iommu_fault("Event logged [IO_PAGE_FAULT domain=0x0000 address=0x1 flags=0x0]"), Some(None));
        assert_eq!(iommu_fault("DRHD: handling fault status reg 402"), None);
        assert_eq!(iommu_fault("dmar_fault: 2474 callbacks suppressed"), None);
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
            assert_eq!(aer(text), Some(kind), "{text}");
        }
        assert_eq!(aer("Downstream Port link has been reset (0)"), None);
    }

    #[test]
    fn every_kind_can_be_had() {
        let pairs = pairs();
        for kind in MessageKind::ALL {
            assert!(pairs.iter().any(|(_, other)| other == kind), "{}", kind.as_str());
        }
        assert!(pairs.len() < 80, "{} series on every host", pairs.len());
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_table(text in any::<String>()) {
            for driver in MessageSource::ALL {
                let _ = kind(*driver, &text);
            }
            let _ = (aer(&text), iommu_fault(&text), address(&text));
            let _ = iommu_fault(&format!("Request device [{text}] fault addr"));
        }
    }
}
