//! Each kind of message with lines that are of it, from every driver that can say it, and lines that only look so.

use super::super::reader::Reader;
use super::super::record::dmesg;
use super::super::rules::pairs;
use super::super::speaker::NoNames;
use crate::model::check::Severity;
use crate::model::kmsg::{MessageKind, MessageSource};

/// A kind, how bad it is, lines that mean it, lines close to those that do not.
type Meaning = (MessageKind, Severity, &'static [&'static str], &'static [&'static str]);

const MEANINGS: &[Meaning] = &[
    (
        MessageKind::DeviceHealth,
        Severity::Critical,
        &[
            "mlx5_core 0000:41:00.0: poll_health:825:(pid 0): device's health compromised - reached miss count",
            "mlx5_core 0000:41:00.0: mlx5_health_try_recover:368:(pid 9): health recovery failed",
            "mlx5_core 0000:41:00.0: mlx5_error_sw_reset:233:(pid 9): PCI slot is unavailable",
            "mlx5_core 0000:41:00.0: Driver is in error state. Unloading",
            "irdma 0000:84:00.0 irdma0: critical PE Error, GLPE_CRITERR=0x00000002",
            "irdma 0000:84:00.0 irdma0: HMC Error",
            "irdma 0000:84:00.0 irdma0: Requesting a reset",
            "efa 0000:00:06.0: Admin queue is closed",
            "efa 0000:00:06.0: Device isn't ready, abort com init",
        ],
        &[
            "mlx5_core 0000:41:00.0: mlx5_health_try_recover:340:(pid 9): health recovery succeeded",
            "mlx5_core 0000:41:00.0: PCI slot 4 is available",
            "irdma 0000:84:00.0 irdma0: PE Push enabled",
            "efa 0000:00:06.0: Device is ready",
            "nvme 0000:41:00.0: device's health compromised - reached miss count",
        ],
    ),
    (
        MessageKind::FirmwareFatal,
        Severity::Critical,
        &[
            "mlx5_core 0000:41:00.0: Health issue observed, firmware internal error, severity(3) ERROR:",
            "mlx5_core 0000:41:00.0: print_health_info:385:(pid 0): synd 0x7: irisc not responding",
            "mlx5_core 0000:41:00.0: mlx5_trigger_health_work:700:(pid 0): Fatal error 2 detected",
            "bnxt_en 0000:65:00.0 eth3: Firmware reported a firmware fatal condition",
            "bnxt_en 0000:65:00.0 eth3: Fatal firmware reset event, data1: 0x1, data2: 0x0",
        ],
        &[
            "mlx5_core 0000:41:00.0: Health issue observed, firmware internal error, severity(6) INFO:",
            "mlx5_core 0000:41:00.0: print_health_info:383:(pid 0): irisc_index 2",
            "mlx5_core 0000:41:00.0: ext_synd 0x0000",
            "mlx5_core 0000:41:00.0: Fatal error reporting enabled",
            "bnxt_en 0000:65:00.0 eth3: Non-fatal firmware reset event, data1: 0x1",
        ],
    ),
    (
        MessageKind::CommandTimeout,
        Severity::Critical,
        &[
            "mlx5_core 0000:41:00.0: wait_func:1195:(pid 5): ENABLE_HCA(0x104) timeout. Will cause a leak of a command resource",
            "mlx5_core 0000:41:00.0: wait_func_handle_exec_timeout:1:(pid 5): cmd[0]: ENABLE_HCA(0x104) No done completion",
            "bnxt_re 0000:65:00.0 bnxt_re0: FW STALL Detected. cmdq[0x1f]=0x3 waited (11 > 10) msec active 1",
            "efa 0000:00:06.0: The device didn't send any completion for admin cmd Create CQ(5) status 0",
        ],
        &[
            "mlx5_core 0000:41:00.0: wait_func:1195:(pid 5): cmd[0]: ENABLE_HCA(0x104) recovered after timeout",
            "mlx5_core 0000:41:00.0: mlx5_cmd_out_err:1:(pid 5): CREATE_MKEY(0x200) op_mod(0x0) failed, status bad parameter(0x3)",
            "bnxt_re 0000:65:00.0 bnxt_re0: FW is ready",
            "efa 0000:00:06.0: The device sent a completion for admin cmd Create CQ(5)",
        ],
    ),
    (
        MessageKind::AerFatal,
        Severity::Critical,
        &[
            "mlx5_core 0000:41:00.0: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Transaction Layer, (Receiver ID)",
            "pcieport 0000:40:01.0: AER: PCIe Bus Error: severity=Uncorrected (Fatal), type=Inaccessible, (Unregistered Agent ID)",
            "pcieport 0000:40:01.0: AER: device recovery failed",
        ],
        &[
            "pcieport 0000:40:01.0: AER: Downstream Port link has been reset (0)",
            "pcieport 0000:40:01.0: AER: device recovery successful",
            "pcieport 0000:40:01.0: AER: enabled with IRQ 30",
        ],
    ),
    (
        MessageKind::Dpc,
        Severity::Critical,
        &["pcieport 0000:40:01.0: DPC: containment event, status:0x1f01 source:0x0000"],
        &[
            "pcieport 0000:40:01.0: DPC: error containment capabilities: Int Msg #0, RPExt+ PoisonedTLP+",
            "pcieport 0000:40:01.0: DPC: enabled with IRQ 30",
        ],
    ),
    (
        MessageKind::AerNonfatal,
        Severity::Warning,
        &[
            "mlx5_core 0000:41:00.0: AER: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer, (Requester ID)",
            "mlx5_core 0000:41:00.0: PCIe Bus Error: severity=Uncorrectable (Non-Fatal), type=Transaction Layer",
        ],
        &[
            "mlx5_core 0000:41:00.0:    [14] CmpltTO                (First)",
            "pcieport 0000:40:01.0: AER: enabled with IRQ 30",
        ],
    ),
    (
        MessageKind::IommuFault,
        Severity::Warning,
        &[
            "DMAR: [DMA Write NO_PASID] Request device [41:00.2] fault addr 0x7f000 [fault reason 0x05] PTE Write access is not set",
            "DMAR: [DMA Read] Request device [41:00.2] fault addr 7f000 [fault reason 06] PTE Read access is not set",
            "vfio-pci 0000:41:00.2: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0012 address=0x7f000 flags=0x0020]",
            "AMD-Vi: Event logged [IO_PAGE_FAULT device=41:00.2 domain=0x0012 address=0x7f000 flags=0x0020]",
        ],
        &[
            "DMAR: DRHD: handling fault status reg 402",
            "dmar_fault: 2474 callbacks suppressed",
            "DMAR: Intel(R) Virtualization Technology for Directed I/O",
            "mlx5_core 0000:41:00.0: Adding to iommu group 17",
        ],
    ),
    (
        MessageKind::PcieBandwidthLimited,
        Severity::Warning,
        &[
            "mlx5_core 0000:41:00.0: 63.008 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x8 link at 0000:40:01.0 (capable of 252.048 Gb/s with 16.0 GT/s PCIe x16 link)",
            "ice 0000:84:00.0: 31.504 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x4 link at 0000:80:01.0 (capable of 252.048 Gb/s)",
        ],
        &[
            "mlx5_core 0000:41:00.0: 126.028 Gb/s available PCIe bandwidth (32.0 GT/s PCIe x4 link)",
            "mlx5_core 0000:41:00.0: 0.000 Gb/s available PCIe bandwidth, limited by Unknown x0 link at 0000:40:01.0",
            "ixgbe 0000:06:00.1: PCI Express bandwidth of 32GT/s available",
        ],
    ),
    (
        MessageKind::ModuleError,
        Severity::Warning,
        &[
            "mlx5_core 0000:41:00.0: Port module event[error]: module 0, Cable error, Unknown error",
            "mlx5_core 0000:41:00.0: Port module event: module 1, Cable error",
        ],
        &[
            "mlx5_core 0000:41:00.0: Port module event: Temperature normal",
            "mlx5_core 0000:41:00.0: Port module event: module 0, Cable plugged",
        ],
    ),
    (
        MessageKind::ModuleHot,
        Severity::Warning,
        &[
            "mlx5_port_module_event:1131:(pid 0): Port module event[error]: module 0, Cable error, High Temperature",
            "hfi1 0000:05:00.0: hfi1_0: handle_qsfp_error_conditions: QSFP cable temperature too high",
        ],
        &["hfi1 0000:05:00.0: hfi1_0: handle_qsfp_error_conditions: QSFP cable temperature too low"],
    ),
    (
        MessageKind::ModuleFault,
        Severity::Warning,
        &[
            "mlx5_core 0000:41:00.0: Port module event[error]: module 0, Cable error, Bus stuck (I2C or data shorted)",
            "mlx5_core 0000:41:00.0: Port module event[warning]: module 1, Cable error, No EEPROM/retry timeout",
            "bnxt_en 0000:65:00.0 eth3: SFP+ module is shutdown",
        ],
        &["bnxt_en 0000:65:00.0 eth3: Module part number 740-061405"],
    ),
    (
        MessageKind::ModulePower,
        Severity::Warning,
        &[
            "mlx5_core 0000:41:00.0: Port module event[error]: module 0, Cable error, Power budget exceeded",
            "ice 0000:84:00.0: The module's power requirements exceed the device's power supply. Cannot start link",
        ],
        &["mlx5_core 0000:41:00.0: PCIe slot power capability was not advertised."],
    ),
    (
        MessageKind::ModuleUnsupported,
        Severity::Warning,
        &[
            "mlx5_core 0000:41:00.0: Port module event: module 1, Cable error, Unknown identifier",
            "ice 0000:84:00.0: Rx/Tx is disabled on this device because an unsupported module type was detected. Refer to",
            "i40e 0000:3b:00.0: The installed module is incompatible with the device's NVM image. Cannot start link.",
            "bnxt_en 0000:65:00.0 eth3: Unqualified SFP+ module detected on port 0",
        ],
        &["ice 0000:84:00.0: The selected speed is supported by the module"],
    ),
    (
        MessageKind::CableFault,
        Severity::Warning,
        &["mlx5_core 0000:41:00.0: Port module event[error]: module 0, Cable error, Bad or shorted cable/module"],
        &["mlx5_core 0000:41:00.0: Port module event: module 0, Cable unplugged"],
    ),
    (
        MessageKind::SlotPower,
        Severity::Warning,
        &[
            "mlx5_core 0003:01:00.0: Port module event[error]: module 0, Cable error, One or more network ports have been powered down due to insufficient/unadvertised power on the PCIe slot",
            "pcieport 0000:40:01.0: pciehp: Slot(2): Power fault",
        ],
        &["mlx5_core 0000:41:00.0: Detected insufficient power on the PCIe slot (27W)."],
    ),
    (
        MessageKind::CardRemoved,
        Severity::Warning,
        &[
            "pcieport 0000:40:01.0: pciehp: Slot(2): Link Down",
            "pcieport 0000:40:01.0: pciehp: Slot(2): Card not present",
        ],
        &["pcieport 0000:40:01.0: pciehp: Slot(2): Card present", "mlx5_core 0000:41:00.0 eth4: Link down"],
    ),
    (
        MessageKind::CommandFailed,
        Severity::Warning,
        &[
            "bnxt_en 0000:65:00.0: QPLIB: cmdq[0xd3a]=0x9 status 0x3",
            "bnxt_en 0000:65:00.0 rocep101s0f0: Failed to create HW CQ",
            "ice 0000:84:00.0 rocep132s0: cqp opcode = 0x1 maj_err_code = 0xffff min_err_code = 0x8002",
            "mana 7870:00:00.0 mana_0: Failed to create rc qp err -71",
        ],
        &[
            "mlx5_core 0000:41:00.0: mlx5_cmd_out_err:1:(pid 5): CREATE_MKEY(0x200) op_mod(0x0) failed, status bad parameter(0x3), syndrome (0x6231), err(-22)",
            "bnxt_en 0000:65:00.0: QPLIB: cmdq[0x41d]=0x3 timedout (20000)msec",
        ],
    ),
    (
        MessageKind::ProbeFailed,
        Severity::Warning,
        &[
            "mlx5_core 0000:41:00.0: probe with driver mlx5_core failed with error -110",
            "mlx5_core: probe of 0000:41:00.0 failed with error -110",
        ],
        &["mlx5_core 0000:41:00.0: firmware version: 28.39.1002"],
    ),
    (
        MessageKind::VfResetFailed,
        Severity::Warning,
        &["vfio-pci 0000:41:00.2: not ready 65535ms after FLR; giving up"],
        &["vfio-pci 0000:41:00.2: not ready 1023ms after FLR; waiting"],
    ),
    (
        MessageKind::SriovFailed,
        Severity::Warning,
        &[
            "mlx5_core 0000:41:00.0: not enough MMIO resources for SR-IOV",
            "mlx5_core 0000:41:00.0: can't enable 16 VFs (bus 41 out of range of [bus 40])",
        ],
        &["mlx5_core 0000:41:00.0: driver left SR-IOV enabled after remove"],
    ),
    (
        MessageKind::RemovalBlocked,
        Severity::Warning,
        &["vfio-pci 0000:41:00.2: Relaying device request to user (#10)"],
        &["vfio-pci 0000:41:00.2: enabling device (0000 -> 0002)"],
    ),
    (
        MessageKind::HighTemperature,
        Severity::Warning,
        &[
            "mlx5_core 0000:41:00.0: temp_warn:1:(pid 0): High temperature on sensors with bit set 0 1",
            "mlx5_core 0000:41:00.0: Health issue observed, High temperature, severity(3) ERROR:",
            "bnxt_en 0000:65:00.0 eth3: Chip temperature has gone above the warning thermal threshold!",
        ],
        &[
            "mlx5_core 0000:41:00.0: Temperature on sensors is normal",
            "bnxt_en 0000:65:00.0 eth3: Chip temperature is 61 degree C",
        ],
    ),
    (
        MessageKind::TxTimeout,
        Severity::Warning,
        &[
            "mlx5_core 0000:41:00.0 eth4: TX timeout detected",
            "mlx5_core 0000:41:00.0 eth4: TX timeout on queue: 3, SQ: 0x1f, CQ: 0x2, SQ Cons: 0x1 SQ Prod: 0x9, usecs since last trans: 9",
            "mlx5_core 0000:41:00.0 eth4: RX timeout on channel: 2, ICOSQ: 0x1 RQ: 0x2, CQ: 0x3",
            "NETDEV WATCHDOG: eth4 (mlx5_core): transmit queue 3 timed out",
            "ice 0000:84:00.0 eth9: tx_timeout: VSI_num: 6, Q 2, NTC: 0x1, HW_HEAD: 0x2, NTU: 0x3, INT: 0x0",
            "iavf 0000:84:01.0 eth10: NETDEV WATCHDOG: CPU: 3: transmit queue 2 timed out 5024 ms",
            "i40e 0000:3b:00.0 eth5: tx_timeout: VSI_seid: 390, Q 0, NTC: 0x1, HWB: 0x2, NTU: 0x3, TAIL: 0x3, INT: 0x0",
            "bnxt_en 0000:65:00.0 eth3: TX timeout detected, starting reset task!",
        ],
        &["mlx5_core 0000:41:00.0 eth4: TX queues: 63", "NETDEV WATCHDOG: eth0 (e1000e): transmit queue 0 timed out"],
    ),
    (
        MessageKind::MediaMisconfigured,
        Severity::Warning,
        &[
            "ice 0000:84:00.0: Possible mis-configuration of the Ethernet port detected, please use the Intel(R) Ethernet Port Configuration Tool",
            "ice 0000:84:00.0 eth9: Potential misconfiguration of the Ethernet port detected. If it was not intended, please",
        ],
        &[
            "ice 0000:84:00.0: The selected speed is supported by the module",
            "ice 0000:84:00.0: DCB is enabled in the hardware",
        ],
    ),
    (
        MessageKind::VfioError,
        Severity::Warning,
        &[
            "vfio-pci 0000:41:00.2: vfio_bar_restore: reset recovery - restoring BARs",
            "vfio-pci 0000:41:00.2: Unable to change power state from D3cold to D0, device inaccessible",
        ],
        &[
            "vfio-pci 0000:41:00.2: enabling device (0000 -> 0002)",
            "vfio-pci 0000:41:00.2: Captured SR-IOV VF 0000:41:00.3 driver_override",
            "vfio-pci 0000:41:00.2: vfio_ecap_init: hiding ecap 0x19@0x200",
        ],
    ),
    (
        MessageKind::QpError,
        Severity::Warning,
        &[
            "infiniband mlx5_0: dump_cqe:272:(pid 88): dump error cqe",
            "infiniband mlx5_0: mlx5_poll_one:500:(pid 88): WC error: 10, Message: remote access error",
            "mlx5_core 0000:41:00.0: mlx5_rsc_event:90:(pid 0): bad qp 0x1f in event",
            "irdma 0000:84:00.0 irdma0: abnormal ae_id = 0x502 bool qp=1 qp_id = 3, ae_src=5",
        ],
        &["infiniband mlx5_0: Couldn't create counters", "irdma 0000:84:00.0 irdma0: ae_id = 0x0"],
    ),
    (
        MessageKind::PcieSlotPower,
        Severity::Info,
        &["mlx5_core 0000:41:00.0: mlx5_pcie_event:299:(pid 0): Detected insufficient power on the PCIe slot (27W)."],
        &[
            "mlx5_core 0000:41:00.0: mlx5_pcie_event:304:(pid 0): PCIe slot advertised sufficient power (75W).",
            "mlx5_core 0000:41:00.0: Detected insufficient power on the PCIe slot (27.5W).",
            "mlx5_core 0000:41:00.0: Detected insufficient power on the PCIe slot (W).",
        ],
    ),
    (
        MessageKind::ModulePlugged,
        Severity::Info,
        &[
            "mlx5_core 0000:41:00.0: Port module event: module 0, Cable plugged",
            "mlx5_core 0000:41:00.0: Port module event: module 0, Cable unplugged",
        ],
        &["mlx5_core 0000:41:00.0: Port module event: Temperature normal"],
    ),
    (
        MessageKind::RegisterDenied,
        Severity::Info,
        &[
            "mlx5_core 0000:41:00.2: mlx5_cmd_out_err:808:(pid 7): ACCESS_REG(0x805) op_mod(0x1) failed, status bad operation(0x2)",
        ],
        &[
            "mlx5_core 0000:41:00.2: mlx5_cmd_out_err:808:(pid 7): QUERY_VPORT_COUNTER(0x770) op_mod(0x0) failed, status bad operation(0x2)",
        ],
    ),
    (
        MessageKind::FirmwareReset,
        Severity::Info,
        &[
            "mlx5_core 0000:41:00.0: mlx5_sync_reset_now_event:412:(pid 9): Sync Reset now. Device is going to reset.",
            "mlx5_core 0000:41:00.0: PCI Sync FW Update Reset Request from other host",
            "bnxt_en 0000:65:00.0 eth3: Solicited firmware reset event, data1: 0x2, data2: 0x0, min wait 1000 ms, max wait 4000 ms",
            "bnxt_en 0000:65:00.0 eth3: Non-fatal firmware reset event, data1: 0x1, data2: 0x0",
        ],
        &[
            "mlx5_core 0000:41:00.0: firmware version: 20.39.3004",
            "bnxt_en 0000:65:00.0 eth3: Firmware does not support reset",
        ],
    ),
    (
        MessageKind::VfReset,
        Severity::Info,
        &[
            "iavf 0000:84:01.0: Reset indication received from the PF",
            "iavf 0000:84:01.0: Reset warning received from the PF",
        ],
        &[
            "iavf 0000:84:01.0: PF returned error -5 (IAVF_ERR_PARAM) to our request 3",
            "iavf 0000:84:01.0 eth10: Multiqueue Enabled: Queue pair count = 4",
        ],
    ),
    (
        MessageKind::VfDenied,
        Severity::Info,
        &[
            "ice 0000:84:00.0: VF attempting to override administratively set MAC address, bring down and up the VF interface to resume normal operation",
            "i40e 0000:3b:00.0: VF 0 failed opcode 10, retval: -1",
            "iavf 0000:84:01.0: Failed to add MAC filter, error IAVF_ERR_NVM",
            "i40e 0000:3b:00.0: VF is not trusted, switch the VF to trusted to add more functionality",
        ],
        &["ice 0000:84:00.0: VF 0 is now trusted", "i40e 0000:3b:00.0: Setting MAC 52:54:00:00:00:01 on VF 0"],
    ),
    (
        MessageKind::LinkUp,
        Severity::Info,
        &[
            "mlx5_core 0000:41:00.0 eth4: Link up",
            "ice 0000:84:00.0 eth9: NIC Link is up 100 Gbps Full Duplex, Requested FEC: RS-FEC",
            "bnxt_en 0000:65:00.0 eth3: NIC Link is Up, 100000 Mbps full duplex, Flow control: none",
        ],
        &[
            "IPv6: ADDRCONF(NETDEV_CHANGE): eth4: link becomes ready",
            "e1000e 0000:00:1f.6 eno1: NIC Link is Up 1000 Mbps Full Duplex",
        ],
    ),
    (
        MessageKind::LinkDown,
        Severity::Info,
        &[
            "mlx5_core 0000:41:00.0 eth4: Link down",
            "ice 0000:84:00.0 eth9: NIC Link is Down",
            "bnxt_en 0000:65:00.0 eth3: NIC Link is Down",
        ],
        &["IPv6: ADDRCONF(NETDEV_UP): eth4: link is not ready", "e1000e 0000:00:1f.6 eno1: NIC Link is Down"],
    ),
    (
        MessageKind::AerCorrectable,
        Severity::Info,
        &[
            "mlx5_core 0000:41:00.0: AER: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
            "mlx5_core 0000:41:00.0: PCIe Bus Error: severity=Correctable, type=Data Link Layer, (Transmitter ID)",
        ],
        &[
            "mlx5_core 0000:41:00.0:    [ 0] RxErr",
            "mlx5_core 0000:41:00.0:   device [15b3:101b] error status/mask=00000001/00002000",
        ],
    ),
];

fn meaning(line: &str) -> Option<(MessageSource, MessageKind)> {
    // Each on its own: what lines before it announced is of no matter here.
    Reader::default()
        .read(&dmesg(&format!("[   12.345678] {line}")), &NoNames)
        .map(|message| (message.driver, message.kind))
}

#[test]
fn every_kind_is_what_it_is_and_not_what_looks_like_it() {
    for (kind, severity, lines, alike) in MEANINGS {
        assert_eq!(kind.severity(), *severity, "{}", kind.as_str());
        assert!(!lines.is_empty() && !alike.is_empty(), "{}", kind.as_str());
        for line in *lines {
            assert_eq!(meaning(line).map(|(_, kind)| kind), Some(*kind), "{line}");
        }
        for line in *alike {
            assert_ne!(meaning(line).map(|(_, kind)| kind), Some(*kind), "{line}");
        }
    }
}

#[test]
fn nothing_of_the_table_is_left_out() {
    let said: Vec<(MessageSource, MessageKind)> =
        MEANINGS.iter().flat_map(|(_, _, lines, _)| *lines).filter_map(|line| meaning(line)).collect();
    for kind in MessageKind::ALL {
        assert_eq!(MEANINGS.iter().filter(|(other, ..)| other == kind).count(), 1, "{}", kind.as_str());
    }
    let possible = pairs();
    assert!(said.iter().all(|pair| possible.contains(pair)), "a series for each");
}
