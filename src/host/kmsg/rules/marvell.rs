//! Marvell FastLinQ.

use super::Caller::Bracketed;
use super::{Source, line};
use crate::model::kmsg::{MessageKind, MessageSource};

const QED: &[MessageSource] = &[MessageSource::Qed];
const QEDE: &[MessageSource] = &[MessageSource::Qede];
const QEDR: &[MessageSource] = &[MessageSource::Qedr];

#[rustfmt::skip]
pub(super) const SOURCES: &[Source] = &[
    Source { drivers: QED, file: "drivers/net/ethernet/qlogic/qed/qed_mcp.c", lines: &[
        line(Bracketed, "The MFW failed to respond to command 0x%08x [param 0x%08x].", MessageKind::CommandTimeout),
        line(Bracketed, "The MFW is not responsive. Avoid sending", MessageKind::CommandTimeout),
        line(Bracketed, "MCP response failure, aborting", MessageKind::CommandTimeout),
        line(Bracketed, "The MFW notified that a critical error occurred in the device", MessageKind::FirmwareFatal),
        line(Bracketed, "Received a process kill indication", MessageKind::FirmwareFatal),
        line(Bracketed, "Fan failure was detected on the network interface card and it's going to be shut down.", MessageKind::HighTemperature),
        line(Bracketed, "Transceiver is present.", MessageKind::ModulePlugged),
        line(Bracketed, "Transceiver is unplugged.", MessageKind::ModulePlugged),
        line(Bracketed, "Failed to pass ACK for VF flr to MFW", MessageKind::VfResetFailed),
        line(Bracketed, "MFW failed to set MSI-X for VFs", MessageKind::SriovFailed),
    ]},
    Source { drivers: QED, file: "drivers/net/ethernet/qlogic/qed/qed_int.c", lines: &[
        line(Bracketed, "FW assertion!", MessageKind::FirmwareFatal),
        line(Bracketed, "`%s': Fatal attention", MessageKind::FirmwareFatal),
    ]},
    Source { drivers: QEDE, file: "drivers/net/ethernet/qlogic/qede/qede_main.c", lines: &[
        line(Bracketed, "TX timeout on queue %u!", MessageKind::TxTimeout),
        line(Bracketed, "Link is up", MessageKind::LinkUp),
        line(Bracketed, "Link is down", MessageKind::LinkDown),
    ]},
    Source { drivers: QEDR, file: "drivers/infiniband/hw/qedr/main.c", lines: &[
        line(Bracketed, "unsupported event %d on handle=%llx", MessageKind::QpError),
        line(Bracketed, "CQ event %d on handle %p", MessageKind::QpError),
        line(Bracketed, "QP event %d on handle %p", MessageKind::QpError),
        line(Bracketed, "Init HW Failed rc = %d", MessageKind::ProbeFailed),
        line(Bracketed, "qedr driver load failed rc=%d", MessageKind::ProbeFailed),
    ]},
    Source { drivers: QEDR, file: "drivers/infiniband/hw/qedr/verbs.c", lines: &[
        line(Bracketed, "create qp: fatal fault. rc=%d", MessageKind::CommandFailed),
        line(Bracketed, "roce register tid returned an error %d", MessageKind::CommandFailed),
        line(Bracketed, "roce alloc tid returned error %d", MessageKind::CommandFailed),
        line(Bracketed, "Error: POLL CQ with", MessageKind::QpError),
    ]},
];
