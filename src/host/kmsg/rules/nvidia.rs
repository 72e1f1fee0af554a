//! ConnectX-4 and later, BlueField.

use super::Caller::{Interface, Module, TracedFunction, TracedRdmaClass};
use super::{Source, line, older, older_with, with};
use crate::model::kmsg::{MessageKind, MessageSource};

const CORE: &[MessageSource] = &[MessageSource::Mlx5Core];
const IB: &[MessageSource] = &[MessageSource::Mlx5Ib];

#[rustfmt::skip]
pub(super) const SOURCES: &[Source] = &[
    Source { drivers: CORE, file: "drivers/net/ethernet/mellanox/mlx5/core/health.c", lines: &[
        with(TracedFunction, "Health issue observed, %s, severity(%d) %s:", "emperature", MessageKind::HighTemperature),
        line(TracedFunction, "Health issue observed, %s, severity(%d) %s:", MessageKind::FirmwareFatal),
        older_with(TracedFunction, "synd 0x%x: %s", "High temp", MessageKind::HighTemperature),
        older(TracedFunction, "synd 0x%x: %s", MessageKind::FirmwareFatal),
        line(TracedFunction, "Fatal error %u detected", MessageKind::FirmwareFatal),
        line(TracedFunction, "device's health compromised - reached miss count", MessageKind::DeviceHealth),
        line(TracedFunction, "health recovery failed", MessageKind::DeviceHealth),
        line(TracedFunction, "PCI slot is unavailable", MessageKind::DeviceHealth),
        line(TracedFunction, "Driver is in error state. Unloading", MessageKind::DeviceHealth),
    ]},
    Source { drivers: CORE, file: "drivers/net/ethernet/mellanox/mlx5/core/main.c", lines: &[
        line(TracedFunction, "Firmware over %u MS in %s state, aborting", MessageKind::DeviceHealth),
    ]},
    Source { drivers: CORE, file: "drivers/net/ethernet/mellanox/mlx5/core/cmd.c", lines: &[
        line(TracedFunction, "timeout. Will cause a leak of a command resource", MessageKind::CommandTimeout),
        line(TracedFunction, "No done completion", MessageKind::CommandTimeout),
        line(TracedFunction, "%s(0x%x) timed out while waiting for a slot.", MessageKind::CommandTimeout),
        line(TracedFunction, "%s(0x%x) canceled on out of queue timeout.", MessageKind::CommandTimeout),
        line(TracedFunction, "%s(0x%x) timeout while waiting for command semaphore.", MessageKind::CommandTimeout),
        with(TracedFunction, "%s(0x%x) op_mod(0x%x) failed, status %s(0x%x)", "ACCESS_REG", MessageKind::RegisterDenied),
        with(TracedFunction, "%s(0x%x) op_mod(0x%x) failed, status %s(0x%x)", "internal error", MessageKind::CommandFailed),
    ]},
    Source { drivers: CORE, file: "drivers/net/ethernet/mellanox/mlx5/core/events.c", lines: &[
        with(TracedFunction, "Port module event[error]: module %u, %s, %s", "One or more network ports have been powered down due to insufficient/unadvertised power on the PCIe slot", MessageKind::SlotPower),
        with(TracedFunction, "Port module event[error]: module %u, %s, %s", "Power budget exceeded", MessageKind::ModulePower),
        with(TracedFunction, "Port module event[error]: module %u, %s, %s", "High Temperature", MessageKind::ModuleHot),
        with(TracedFunction, "Port module event[error]: module %u, %s, %s", "Bus stuck", MessageKind::ModuleFault),
        with(TracedFunction, "Port module event[error]: module %u, %s, %s", "No EEPROM/retry timeout", MessageKind::ModuleFault),
        with(TracedFunction, "Port module event[error]: module %u, %s, %s", "Bad or shorted cable/module", MessageKind::CableFault),
        with(TracedFunction, "Port module event[error]: module %u, %s, %s", "Long Range for non MLNX cable", MessageKind::ModuleUnsupported),
        with(TracedFunction, "Port module event[error]: module %u, %s, %s", "Enforce part number list", MessageKind::ModuleUnsupported),
        with(TracedFunction, "Port module event[error]: module %u, %s, %s", "Unknown identifier", MessageKind::ModuleUnsupported),
        line(TracedFunction, "Port module event[error]: module %u, %s, %s", MessageKind::ModuleError),
        with(TracedFunction, "Port module event: module %u, %s", "Cable plugged", MessageKind::ModulePlugged),
        with(TracedFunction, "Port module event: module %u, %s", "Cable unplugged", MessageKind::ModulePlugged),
        with(TracedFunction, "Port module event: module %u, %s", "Cable disabled", MessageKind::ModulePlugged),
        // Other kernels have no word in brackets, or another one.
        older_with(TracedFunction, "Port module event%s: module %u, %s, %s", "One or more network ports have been powered down due to insufficient/unadvertised power on the PCIe slot", MessageKind::SlotPower),
        older_with(TracedFunction, "Port module event%s: module %u, %s, %s", "Power budget exceeded", MessageKind::ModulePower),
        older_with(TracedFunction, "Port module event%s: module %u, %s, %s", "High Temperature", MessageKind::ModuleHot),
        older_with(TracedFunction, "Port module event%s: module %u, %s, %s", "Bus stuck", MessageKind::ModuleFault),
        older_with(TracedFunction, "Port module event%s: module %u, %s, %s", "No EEPROM/retry timeout", MessageKind::ModuleFault),
        older_with(TracedFunction, "Port module event%s: module %u, %s, %s", "Bad or shorted cable/module", MessageKind::CableFault),
        older_with(TracedFunction, "Port module event%s: module %u, %s, %s", "Long Range for non MLNX cable", MessageKind::ModuleUnsupported),
        older_with(TracedFunction, "Port module event%s: module %u, %s, %s", "Enforce part number list", MessageKind::ModuleUnsupported),
        older_with(TracedFunction, "Port module event%s: module %u, %s, %s", "Unknown identifier", MessageKind::ModuleUnsupported),
        older_with(TracedFunction, "Port module event%s: module %u, %s", "Cable error", MessageKind::ModuleError),
        line(TracedFunction, "High temperature on sensors", MessageKind::HighTemperature),
        line(TracedFunction, "Detected insufficient power on the PCIe slot (%uW).", MessageKind::PcieSlotPower),
    ]},
    Source { drivers: CORE, file: "drivers/net/ethernet/mellanox/mlx5/core/fw_reset.c", lines: &[
        line(TracedFunction, "Sync Reset now. Device is going to reset.", MessageKind::FirmwareReset),
        line(TracedFunction, "PCI Sync FW Update Reset", MessageKind::FirmwareReset),
        line(TracedFunction, "mlx5_sync_pci_reset failed, err %d", MessageKind::DeviceHealth),
        line(TracedFunction, "Sync reset did not complete, state=%d", MessageKind::DeviceHealth),
    ]},
    Source { drivers: CORE, file: "drivers/net/ethernet/mellanox/mlx5/core/sriov.c", lines: &[
        line(TracedFunction, "pci_enable_sriov failed : %d", MessageKind::SriovFailed),
        line(TracedFunction, "mlx5_device_enable_sriov failed : %d", MessageKind::SriovFailed),
        line(TracedFunction, "failed to enable eswitch SRIOV (%d)", MessageKind::SriovFailed),
        line(TracedFunction, "failed to enable VF %d (%d)", MessageKind::SriovFailed),
    ]},
    Source { drivers: CORE, file: "drivers/net/ethernet/mellanox/mlx5/core/eq.c", lines: &[
        line(TracedFunction, "CQ error on CQN 0x%x, syndrome 0x%x", MessageKind::QpError),
    ]},
    Source { drivers: CORE, file: "drivers/net/ethernet/mellanox/mlx5/core/en_main.c", lines: &[
        line(Interface, "TX timeout detected", MessageKind::TxTimeout),
        line(Interface, "Link down", MessageKind::LinkDown),
        line(Interface, "Link up", MessageKind::LinkUp),
    ]},
    Source { drivers: CORE, file: "drivers/net/ethernet/mellanox/mlx5/core/en/reporter_tx.c", lines: &[
        line(Interface, "TX timeout on queue: %d, SQ: 0x%x, CQ: 0x%x, SQ Cons: 0x%x SQ Prod: 0x%x, usecs since last trans: %u", MessageKind::TxTimeout),
        line(Interface, "TX timeout", MessageKind::TxTimeout),
    ]},
    Source { drivers: CORE, file: "drivers/net/ethernet/mellanox/mlx5/core/en/reporter_rx.c", lines: &[
        line(Interface, "RX timeout on channel: %d, %s RQ: 0x%x, CQ: 0x%x", MessageKind::TxTimeout),
    ]},
    Source { drivers: CORE, file: "drivers/net/ethernet/mellanox/mlx5/core/en/txrx.h", lines: &[
        line(Interface, "Error cqe on cqn 0x%x, ci 0x%x, qn 0x%x, opcode 0x%x, syndrome 0x%x, vendor syndrome 0x%x", MessageKind::QpError),
    ]},
    Source { drivers: IB, file: "drivers/infiniband/hw/mlx5/cq.c", lines: &[
        line(TracedRdmaClass, "WC error: %d, Message: %s", MessageKind::QpError),
        older(TracedRdmaClass, "dump error cqe", MessageKind::QpError),
        line(TracedRdmaClass, "Got SIGERR on key: 0x%x", MessageKind::QpError),
    ]},
    Source { drivers: IB, file: "drivers/infiniband/hw/mlx5/qp.c", lines: &[
        older(TracedFunction, "bad qp 0x%x", MessageKind::QpError),
        older(TracedFunction, "bad QP", MessageKind::QpError),
        line(Module("mlx5_0/1: "), "QP %d error: %s (0x%x 0x%x 0x%x)", MessageKind::QpError),
    ]},
    Source { drivers: IB, file: "drivers/infiniband/hw/mlx5/umr.c", lines: &[
        line(TracedRdmaClass, "reg umr failed (%u). Trying to recover and resubmit the flushed WQEs, mkey = %u", MessageKind::CommandFailed),
        line(TracedRdmaClass, "couldn't recover UMR, err %d", MessageKind::CommandFailed),
    ]},
    Source { drivers: IB, file: "drivers/infiniband/hw/mlx5/mr.c", lines: &[
        line(TracedRdmaClass, "async reg mr failed. status %d", MessageKind::CommandFailed),
        line(TracedRdmaClass, "add keys command failed, err %d", MessageKind::CommandFailed),
    ]},
    Source { drivers: CORE, file: "drivers/net/ethernet/mellanox/mlx5/core/pci_irq.c", lines: &[
        line(TracedFunction, "Failed to request irq. err = %d", MessageKind::CommandFailed),
    ]},
];
