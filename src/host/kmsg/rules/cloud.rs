//! Devices of clouds: Amazon's EFA, Alibaba's eRDMA, Microsoft's MANA, VMware's PVRDMA.

use super::Caller::{Function, Interface, RdmaDevice};
use super::{Source, line};
use crate::model::kmsg::{MessageKind, MessageSource};

const EFA: &[MessageSource] = &[MessageSource::Efa];
const ERDMA: &[MessageSource] = &[MessageSource::Erdma];
const MANA: &[MessageSource] = &[MessageSource::Mana];
const MANA_IB: &[MessageSource] = &[MessageSource::ManaIb];
const PVRDMA: &[MessageSource] = &[MessageSource::VmwPvrdma];

#[rustfmt::skip]
pub(super) const SOURCES: &[Source] = &[
    Source { drivers: EFA, file: "drivers/infiniband/hw/efa/efa_com.c", lines: &[
        line(RdmaDevice, "The device didn't send any completion for admin cmd", MessageKind::CommandTimeout),
        line(RdmaDevice, "The device sent a completion but the driver didn't receive any MSI-X interrupt for admin cmd", MessageKind::CommandTimeout),
        line(RdmaDevice, "Wait for completion (polling) timeout", MessageKind::CommandTimeout),
        line(RdmaDevice, "Reading register timed out. expected: req id[%u] offset[%#x] actual: req id[%u] offset[%#x]", MessageKind::CommandTimeout),
        line(RdmaDevice, "Admin queue is closed", MessageKind::DeviceHealth),
        line(RdmaDevice, "Device isn't ready, abort com init %#x", MessageKind::DeviceHealth),
        line(RdmaDevice, "Device isn't ready, can't reset device", MessageKind::DeviceHealth),
        line(RdmaDevice, "Device isn't ready", MessageKind::DeviceHealth),
        line(RdmaDevice, "Reset indication didn't turn on", MessageKind::DeviceHealth),
        line(RdmaDevice, "Reset indication didn't turn off", MessageKind::DeviceHealth),
        line(RdmaDevice, "Failed to process command %s (opcode %u) err %d", MessageKind::CommandFailed),
        line(RdmaDevice, "Failed to submit command %s (opcode %u) err %ld", MessageKind::CommandFailed),
    ]},
    Source { drivers: EFA, file: "drivers/infiniband/hw/efa/efa_com_cmd.c", lines: &[
        line(RdmaDevice, "Failed to create qp [%d]", MessageKind::CommandFailed),
        line(RdmaDevice, "Failed to create cq[%d]", MessageKind::CommandFailed),
        line(RdmaDevice, "Failed to register mr [%d]", MessageKind::CommandFailed),
        line(RdmaDevice, "Failed to modify qp-%u modify_mask[%#x] [%d]", MessageKind::CommandFailed),
    ]},
    Source { drivers: EFA, file: "drivers/infiniband/hw/efa/efa_main.c", lines: &[
        line(Function, "EFA device init failed", MessageKind::ProbeFailed),
        line(Function, "Failed to enable MSI-X. error %d", MessageKind::ProbeFailed),
    ]},
    Source { drivers: ERDMA, file: "drivers/infiniband/hw/erdma/erdma_main.c", lines: &[
        line(Function, "wait init done failed.", MessageKind::ProbeFailed),
        line(Function, "request irq vectors failed(%d)", MessageKind::ProbeFailed),
        line(Function, "ib_register_device failed: ret = %d", MessageKind::ProbeFailed),
        line(RdmaDevice, "failed (%d) to link netdev", MessageKind::ProbeFailed),
    ]},
    Source { drivers: ERDMA, file: "drivers/infiniband/hw/erdma/erdma_verbs.c", lines: &[
        line(RdmaDevice, "failed to destroy QP %u: %d", MessageKind::CommandFailed),
        line(RdmaDevice, "failed to destroy CQ %u: %d", MessageKind::CommandFailed),
        line(RdmaDevice, "failed to deregister MR 0x%x: %d", MessageKind::CommandFailed),
        line(RdmaDevice, "failed to destroy AH %u: %d", MessageKind::CommandFailed),
    ]},
    Source { drivers: MANA_IB, file: "drivers/infiniband/hw/mana/main.c", lines: &[
        line(RdmaDevice, "Failed to create RNIC adapter err %d", MessageKind::ProbeFailed),
        line(RdmaDevice, "Failed to query adapter caps err %d", MessageKind::ProbeFailed),
        line(RdmaDevice, "Failed to create cq err %d", MessageKind::CommandFailed),
        line(RdmaDevice, "Failed to create rc qp err %d", MessageKind::CommandFailed),
        line(RdmaDevice, "Failed to destroy rc qp err %d", MessageKind::CommandFailed),
        line(RdmaDevice, "Failed to config IP addr err %d", MessageKind::CommandFailed),
        line(RdmaDevice, "Failed to config Mac addr err %d", MessageKind::CommandFailed),
    ]},
    Source { drivers: MANA_IB, file: "drivers/infiniband/hw/mana/device.c", lines: &[
        line(RdmaDevice, "Failed to get netdev for IB port 1", MessageKind::ProbeFailed),
        line(RdmaDevice, "Failed to register device, ret %d", MessageKind::ProbeFailed),
        line(RdmaDevice, "Failed to create EQs, ret %d", MessageKind::ProbeFailed),
    ]},
    Source { drivers: MANA_IB, file: "drivers/infiniband/hw/mana/qp.c", lines: &[
        line(RdmaDevice, "Failed modify qp err %d", MessageKind::CommandFailed),
        line(Interface, "vPort RX configuration failed: 0x%x", MessageKind::CommandFailed),
    ]},
    Source { drivers: MANA, file: "drivers/net/ethernet/microsoft/mana/hw_channel.c", lines: &[
        line(Function, "HWC: Request timed out!", MessageKind::CommandTimeout),
    ]},
    Source { drivers: MANA, file: "drivers/net/ethernet/microsoft/mana/shm_channel.c", lines: &[
        line(Function, "Timeout when setting up HWC: %d", MessageKind::ProbeFailed),
        line(Function, "Timeout when tearing down HWC", MessageKind::CommandTimeout),
    ]},
    Source { drivers: MANA, file: "drivers/net/ethernet/microsoft/mana/gdma_main.c", lines: &[
        line(Function, "test_eq timed out on queue %d", MessageKind::ProbeFailed),
    ]},
    Source { drivers: MANA, file: "drivers/net/ethernet/microsoft/mana/mana_en.c", lines: &[
        line(Interface, "Failed to fence RQ %u: timed out", MessageKind::CommandTimeout),
    ]},
    Source { drivers: PVRDMA, file: "drivers/infiniband/hw/vmw_pvrdma/pvrdma_cmd.c", lines: &[
        line(Function, "completion timeout or interrupted", MessageKind::CommandTimeout),
        line(Function, "failed to write request error reg: %d", MessageKind::CommandFailed),
    ]},
    Source { drivers: PVRDMA, file: "drivers/infiniband/hw/vmw_pvrdma/pvrdma_main.c", lines: &[
        // After the interface was down and up again, as it is when the machine is moved.
        line(Function, "failed to activate device during link up", MessageKind::DeviceHealth),
        line(Function, "failed to activate device", MessageKind::ProbeFailed),
        line(Function, "failed to find paired net device", MessageKind::ProbeFailed),
        line(Function, "could not create binding, error: %d", MessageKind::CommandFailed),
    ]},
    Source { drivers: PVRDMA, file: "drivers/infiniband/hw/vmw_pvrdma/pvrdma_cq.c", lines: &[
        line(Function, "could not create completion queue, error: %d", MessageKind::CommandFailed),
        line(Function, "CQ ring state invalid", MessageKind::DeviceHealth),
    ]},
    Source { drivers: PVRDMA, file: "drivers/infiniband/hw/vmw_pvrdma/pvrdma_qp.c", lines: &[
        line(Function, "could not create queuepair, error: %d", MessageKind::CommandFailed),
        line(Function, "could not modify queuepair, error: %d", MessageKind::CommandFailed),
    ]},
    Source { drivers: PVRDMA, file: "drivers/infiniband/hw/vmw_pvrdma/pvrdma_mr.c", lines: &[
        line(Function, "could not register mem region, error: %d", MessageKind::CommandFailed),
    ]},
];
