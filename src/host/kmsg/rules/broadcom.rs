//! Broadcom NetXtreme-E and its RDMA part.

use super::Caller::{Function, Interface, RdmaClass, RdmaDevice};
use super::{Source, line, older};
use crate::model::kmsg::{MessageKind, MessageSource};

const EN: &[MessageSource] = &[MessageSource::BnxtEn];
const RE: &[MessageSource] = &[MessageSource::BnxtRe];

#[rustfmt::skip]
pub(super) const SOURCES: &[Source] = &[
    Source { drivers: RE, file: "drivers/infiniband/hw/bnxt_re/qplib_rcfw.c", lines: &[
        line(Function, "FW STALL Detected. cmdq[%#x]=%#x waited (%d > %d) msec active %d", MessageKind::CommandTimeout),
        line(Function, "QPLIB: Unreponsive rcfw channel detected.!!", MessageKind::CommandTimeout),
        line(Function, "cmdq[%#x]=%#x status %#x", MessageKind::CommandFailed),
        line(Function, "rcfw timedout: cookie = %#x, free_slots = %d", MessageKind::CommandTimeout),
        older(Function, "cmdq[%#x]=%#x timedout (%d)msec", MessageKind::CommandTimeout),
        older(Function, "cmdq[%#x]=%#x send failed", MessageKind::CommandTimeout),
    ]},
    Source { drivers: RE, file: "drivers/infiniband/hw/bnxt_re/ib_verbs.c", lines: &[
        line(RdmaDevice, "Failed to create HW CQ", MessageKind::CommandFailed),
        line(RdmaDevice, "Failed to create HW QP", MessageKind::CommandFailed),
        line(RdmaDevice, "Failed to modify HW QP", MessageKind::CommandFailed),
        line(RdmaDevice, "Failed to query HW QP", MessageKind::CommandFailed),
        line(RdmaDevice, "Failed to destroy HW QP", MessageKind::CommandFailed),
        line(RdmaDevice, "create HW QP1 failed!", MessageKind::CommandFailed),
        line(RdmaDevice, "Create HW SRQ failed!", MessageKind::CommandFailed),
        line(RdmaDevice, "Failed to allocate HW PD", MessageKind::CommandFailed),
        line(RdmaDevice, "Failed to allocate HW AH", MessageKind::CommandFailed),
        line(RdmaDevice, "Failed to register user MR - rc = %d", MessageKind::CommandFailed),
        line(RdmaDevice, "Failed to add GID: %#x", MessageKind::CommandFailed),
        older(RdmaClass, "Failed to create HW %s", MessageKind::CommandFailed),
        older(RdmaClass, "Failed to modify HW QP", MessageKind::CommandFailed),
    ]},
    Source { drivers: RE, file: "drivers/infiniband/hw/bnxt_re/main.c", lines: &[
        line(RdmaDevice, "Failed to enable RCFW channel: %#x", MessageKind::ProbeFailed),
        line(RdmaDevice, "Failed to initialize RCFW: %#x", MessageKind::ProbeFailed),
        line(RdmaDevice, "Failed to allocate RCFW Channel: %#x", MessageKind::ProbeFailed),
        line(RdmaDevice, "Failed to query HW version, rc = 0x%x", MessageKind::CommandFailed),
        line(RdmaDevice, "RoCE requires minimum 2 MSI-X vectors, but only %d reserved", MessageKind::ProbeFailed),
        line(RdmaDevice, "Failed to setup CC enable = %d", MessageKind::CommandFailed),
    ]},
    Source { drivers: RE, file: "drivers/infiniband/hw/bnxt_re/qplib_fp.c", lines: &[
        line(Function, "FP: CQ Processed Req wr_id[%d] = 0x%llx with status 0x%x", MessageKind::QpError),
        line(Function, "FP: CQ Process Cutoff Error status = 0x%x", MessageKind::QpError),
    ]},
    Source { drivers: EN, file: "drivers/net/ethernet/broadcom/bnxt/bnxt.c", lines: &[
        line(Interface, "Detected firmware fatal condition, initiating reset", MessageKind::FirmwareFatal),
        older(Interface, "Non-fatal firmware reset event", MessageKind::FirmwareReset),
        older(Interface, "Solicited firmware reset event", MessageKind::FirmwareReset),
        older(Interface, "Fatal firmware reset event", MessageKind::FirmwareFatal),
        older(Interface, "firmware fatal condition", MessageKind::FirmwareFatal),
        line(Interface, "Firmware not responding, status: 0x%x", MessageKind::DeviceHealth),
        line(Interface, "Firmware reset aborted", MessageKind::DeviceHealth),
        line(Interface, "Failed to reinitialize after aborted firmware reset", MessageKind::DeviceHealth),
        line(Function, "Cannot re-enable PCI device after reset.", MessageKind::DeviceHealth),
        line(Interface, "Chip temperature has gone %s the %s thermal threshold!", MessageKind::HighTemperature),
        line(Interface, "Unqualified SFP+ module detected on port %d", MessageKind::ModuleUnsupported),
        line(Interface, "SFP+ module is shutdown", MessageKind::ModuleFault),
        line(Interface, "Pause Storm detected!", MessageKind::TxTimeout),
        line(Interface, "TX timeout detected, starting reset task!", MessageKind::TxTimeout),
        line(Interface, "NIC Link is Down", MessageKind::LinkDown),
        line(Interface, "NIC Link is Up", MessageKind::LinkUp),
    ]},
    Source { drivers: EN, file: "drivers/net/ethernet/broadcom/bnxt/bnxt_hwrm.c", lines: &[
        line(Interface, "Error (timeout: %u) msg {0x%x 0x%x} len:%d", MessageKind::CommandTimeout),
    ]},
    Source { drivers: EN, file: "drivers/net/ethernet/broadcom/bnxt/bnxt_sriov.c", lines: &[
        line(Interface, "Cannot enable VF's as all resources are used by PF", MessageKind::SriovFailed),
        line(Interface, "Unable to reserve resources for SRIOV.", MessageKind::SriovFailed),
        line(Interface, "Only able to reserve resources for %d VFs.", MessageKind::SriovFailed),
        line(Interface, "VF MAC address %pM not approved by the PF", MessageKind::VfDenied),
    ]},
];
