//! ConnectX-3 and InfiniHost.

use super::Caller::{Function, Module};
use super::{Source, line};
use crate::model::kmsg::{MessageKind, MessageSource};

const CORE: &[MessageSource] = &[MessageSource::Mlx4Core];
const EN: &[MessageSource] = &[MessageSource::Mlx4En];
const IB: &[MessageSource] = &[MessageSource::Mlx4Ib];
const MTHCA: &[MessageSource] = &[MessageSource::IbMthca];

#[rustfmt::skip]
pub(super) const SOURCES: &[Source] = &[
    Source { drivers: CORE, file: "drivers/net/ethernet/mellanox/mlx4/catas.c", lines: &[
        line(Function, "Internal error detected:", MessageKind::FirmwareFatal),
        line(Function, "Internal error detected on the communication channel", MessageKind::FirmwareFatal),
        line(Function, "Internal error mark was detected on device", MessageKind::FirmwareFatal),
        line(Function, "Fail to reset HCA", MessageKind::DeviceHealth),
        line(Function, "device is going to be reset", MessageKind::FirmwareReset),
    ]},
    Source { drivers: CORE, file: "drivers/net/ethernet/mellanox/mlx4/cmd.c", lines: &[
        line(Function, "command 0x%x timed out (go bit not cleared)", MessageKind::CommandTimeout),
        line(Function, "ommunication channel command 0x%x", MessageKind::CommandTimeout),
        line(Function, "Received reset from slave:%d", MessageKind::VfReset),
        line(Function, "Failed processing vhcr for slave:%d, resetting slave", MessageKind::VfReset),
    ]},
    Source { drivers: CORE, file: "drivers/net/ethernet/mellanox/mlx4/eq.c", lines: &[
        line(Function, "Temperature Threshold was reached! Threshold: %d celsius degrees; Current Temperature: %d", MessageKind::HighTemperature),
    ]},
    Source { drivers: CORE, file: "drivers/net/ethernet/mellanox/mlx4/main.c", lines: &[
        line(Function, "Failed to enable SR-IOV, continuing without SR-IOV (err = %d)", MessageKind::SriovFailed),
        line(Function, "requested vfs (%d) > available vfs (%d). Continuing without SR_IOV", MessageKind::SriovFailed),
        line(Function, "Failed to reset HCA, aborting", MessageKind::DeviceHealth),
    ]},
    Source { drivers: CORE, file: "drivers/net/ethernet/mellanox/mlx4/reset.c", lines: &[
        line(Function, "PCI device did not come back after reset, aborting", MessageKind::DeviceHealth),
    ]},
    Source { drivers: CORE, file: "drivers/net/ethernet/mellanox/mlx4/port.c", lines: &[
        line(Function, "Module ID not recognized: %#x", MessageKind::ModuleUnsupported),
    ]},
    Source { drivers: EN, file: "drivers/net/ethernet/mellanox/mlx4/en_netdev.c", lines: &[
        line(Module("mlx4_en: enp5s0: "), "Tx timeout called on port:%d", MessageKind::TxTimeout),
        line(Module("mlx4_en: enp5s0: "), "TX timeout on queue: %d, QP: 0x%x, CQ: 0x%x, Cons: 0x%x, Prod: 0x%x", MessageKind::TxTimeout),
        line(Module("mlx4_en: enp5s0: "), "Link Down", MessageKind::LinkDown),
        line(Module("mlx4_en: enp5s0: "), "Link Up", MessageKind::LinkUp),
    ]},
    Source { drivers: EN, file: "drivers/net/ethernet/mellanox/mlx4/en_main.c", lines: &[
        line(Function, "Internal error detected, restarting device", MessageKind::FirmwareFatal),
    ]},
    Source { drivers: IB, file: "drivers/infiniband/hw/mlx4/mad.c", lines: &[
        line(Module("<mlx4_ib> mlx4_ib_tunnel_comp_worker: "), "Fatal error (%d) on a MAD QP on port %d", MessageKind::QpError),
    ]},
    Source { drivers: IB, file: "drivers/infiniband/hw/mlx4/main.c", lines: &[
        line(Module("<mlx4_ib> mlx4_ib_handle_catas_error: "), "mlx4_ib_handle_catas_error was started", MessageKind::DeviceHealth),
    ]},
    Source { drivers: IB, file: "drivers/infiniband/hw/mlx4/qp.c", lines: &[
        line(Module("<mlx4_ib> mlx4_ib_modify_qp: "), "INIT_PORT failed for port %d", MessageKind::CommandFailed),
        line(Module("<mlx4_ib> destroy_qp_common: "), "modify QP %06x to RESET failed.", MessageKind::CommandFailed),
    ]},
    Source { drivers: MTHCA, file: "drivers/infiniband/hw/mthca/mthca_catas.c", lines: &[
        line(Function, "Catastrophic error detected: %s", MessageKind::FirmwareFatal),
    ]},
    Source { drivers: MTHCA, file: "drivers/infiniband/hw/mthca/mthca_cmd.c", lines: &[
        line(Function, "SYS_EN DDR error: syn=%x, sock=%d, sladdr=%d, SPD source=%s", MessageKind::DeviceHealth),
    ]},
    Source { drivers: MTHCA, file: "drivers/infiniband/hw/mthca/mthca_main.c", lines: &[
        line(Function, "NOP command failed to generate interrupt (IRQ %d), aborting.", MessageKind::CommandTimeout),
        line(Function, "QUERY_FW command failed %d, aborting.", MessageKind::CommandFailed),
    ]},
    Source { drivers: MTHCA, file: "drivers/infiniband/hw/mthca/mthca_reset.c", lines: &[
        line(Function, "PCI device did not come back after reset, aborting.", MessageKind::DeviceHealth),
    ]},
    Source { drivers: MTHCA, file: "drivers/infiniband/hw/mthca/mthca_cq.c", lines: &[
        line(Function, "SW2HW_CQ failed (%d)", MessageKind::CommandFailed),
    ]},
];
