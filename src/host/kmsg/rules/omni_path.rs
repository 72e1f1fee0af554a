//! Cornelis Omni-Path.

use super::Caller::FunctionOfDevice;
use super::{Source, line};
use crate::model::kmsg::{MessageKind, MessageSource};

const HFI1: &[MessageSource] = &[MessageSource::Hfi1];

#[rustfmt::skip]
pub(super) const SOURCES: &[Source] = &[
    Source { drivers: HFI1, file: "drivers/infiniband/hw/hfi1/chip.c", lines: &[
        line(FunctionOfDevice, "Critical temperature reached! Forcing device into freeze mode!", MessageKind::HighTemperature),
        line(FunctionOfDevice, "Aborted freeze recovery. Please REBOOT system", MessageKind::DeviceHealth),
        line(FunctionOfDevice, "8051 host command %u timeout", MessageKind::CommandTimeout),
        line(FunctionOfDevice, "Previous 8051 host command timed out, skipping command %u", MessageKind::CommandTimeout),
        line(FunctionOfDevice, "%s: timeout starting 8051 firmware", MessageKind::CommandTimeout),
        line(FunctionOfDevice, "Parity error in DC LBM block", MessageKind::FirmwareFatal),
        line(FunctionOfDevice, "%s: QSFP cable temperature too high", MessageKind::ModuleHot),
        line(FunctionOfDevice, "%s: QSFP supply voltage too high", MessageKind::ModuleFault),
        line(FunctionOfDevice, "%s: QSFP supply voltage too low", MessageKind::ModuleFault),
        line(FunctionOfDevice, "%s: Cable RX channel 1/2 power too low", MessageKind::CableFault),
        line(FunctionOfDevice, "%s: Cable RX channel 3/4 power too low", MessageKind::CableFault),
        line(FunctionOfDevice, "%s: Cable TX channel 1/2 power too low", MessageKind::CableFault),
        line(FunctionOfDevice, "%s: Cable TX channel 3/4 power too low", MessageKind::CableFault),
        line(FunctionOfDevice, "QSFP not responding, giving up", MessageKind::ModuleFault),
        line(FunctionOfDevice, "%s: QSFP module removed", MessageKind::ModulePlugged),
        line(FunctionOfDevice, "%s: QSFP module inserted", MessageKind::ModulePlugged),
        line(FunctionOfDevice, "%sUnexpected link down", MessageKind::LinkDown),
        line(FunctionOfDevice, "8051: Link down%s", MessageKind::LinkDown),
        line(FunctionOfDevice, "8051: Link up", MessageKind::LinkUp),
        line(FunctionOfDevice, "Link downgrade is disabled and link has downgraded, downing link", MessageKind::CableFault),
        line(FunctionOfDevice, "Link is outside of downgrade allowed, downing link", MessageKind::CableFault),
    ]},
    Source { drivers: HFI1, file: "drivers/infiniband/hw/hfi1/platform.c", lines: &[
        line(FunctionOfDevice, "%s: Port disabled due to system power restrictions", MessageKind::SlotPower),
        line(FunctionOfDevice, "%s: Cable failed bitrate check, disabling port", MessageKind::ModuleUnsupported),
    ]},
    Source { drivers: HFI1, file: "drivers/infiniband/hw/hfi1/pcie.c", lines: &[
        line(FunctionOfDevice, "PCIe link speed or width did not match target%s", MessageKind::PcieBandwidthLimited),
        line(FunctionOfDevice, "SBR failed - unable to read from device", MessageKind::DeviceHealth),
        line(FunctionOfDevice, "State Permanent Failure, disabling", MessageKind::DeviceHealth),
    ]},
    Source { drivers: HFI1, file: "drivers/infiniband/hw/hfi1/firmware.c", lines: &[
        line(FunctionOfDevice, "8051 start timeout, current state 0x%x", MessageKind::CommandTimeout),
        line(FunctionOfDevice, "%s firmware authorization failed", MessageKind::ProbeFailed),
        line(FunctionOfDevice, "Cannot acquire SBus resource to reset fabric SerDes - perhaps you should reboot", MessageKind::DeviceHealth),
    ]},
    Source { drivers: HFI1, file: "drivers/infiniband/hw/hfi1/sdma.c", lines: &[
        line(FunctionOfDevice, "SDMA (%u) engine error: 0x%llx state %s", MessageKind::TxTimeout),
        line(FunctionOfDevice, "%s: engine %u timeout waiting for packets to egress, remaining count %u, bouncing link", MessageKind::TxTimeout),
    ]},
    Source { drivers: HFI1, file: "drivers/infiniband/hw/hfi1/pio.c", lines: &[
        line(FunctionOfDevice, "%s: context %u(%u) timeout waiting for packets to egress, remaining count %u, bouncing link", MessageKind::TxTimeout),
    ]},
    Source { drivers: HFI1, file: "drivers/infiniband/hw/hfi1/driver.c", lines: &[
        line(FunctionOfDevice, "Reinitialize unit %u after reset failed with %d", MessageKind::DeviceHealth),
    ]},
];
