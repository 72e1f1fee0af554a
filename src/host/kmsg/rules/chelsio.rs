//! Chelsio T4 to T6.

use super::Caller::{Function, Interface, Module};
use super::{Source, line};
use crate::model::kmsg::{MessageKind, MessageSource};

const CXGB4: &[MessageSource] = &[MessageSource::Cxgb4];
const IW: &[MessageSource] = &[MessageSource::IwCxgb4];

#[rustfmt::skip]
pub(super) const SOURCES: &[Source] = &[
    Source { drivers: IW, file: "drivers/infiniband/hw/cxgb4/iw_cxgb4.h", lines: &[
        line(Module("iw_cxgb4: "), "%s - Device %s not responding (disabling device) - tid %u qpid %u", MessageKind::DeviceHealth),
    ]},
    Source { drivers: IW, file: "drivers/infiniband/hw/cxgb4/device.c", lines: &[
        line(Module("iw_cxgb4: "), "%s: Fatal error - DB overflow recovery failed", MessageKind::DeviceHealth),
        line(Module("iw_cxgb4: "), "Unable to open CXIO rdev err %d", MessageKind::ProbeFailed),
        line(Module("iw_cxgb4: "), "%s: initialization failed: %ld", MessageKind::ProbeFailed),
    ]},
    Source { drivers: IW, file: "drivers/infiniband/hw/cxgb4/ev.c", lines: &[
        line(Function, "AE qpid %d opcode %d status 0x%x type %d len 0x%x wrid.hi 0x%x wrid.lo 0x%x", MessageKind::QpError),
        line(Module("iw_cxgb4: "), "BAD AE qpid 0x%x opcode %d status 0x%x type %d wrid.hi 0x%x wrid.lo 0x%x", MessageKind::QpError),
        line(Module("iw_cxgb4: "), "BAD AE cqid 0x%x qpid 0x%x opcode %d status 0x%x type %d wrid.hi 0x%x wrid.lo 0x%x", MessageKind::QpError),
    ]},
    Source { drivers: IW, file: "drivers/infiniband/hw/cxgb4/t4.h", lines: &[
        line(Module("iw_cxgb4: "), "cq overflow cqid %u", MessageKind::QpError),
    ]},
    Source { drivers: IW, file: "drivers/infiniband/hw/cxgb4/provider.c", lines: &[
        line(Module("iw_cxgb4: "), "%s - Failed registering iwarp device: %d", MessageKind::ProbeFailed),
    ]},
    Source { drivers: CXGB4, file: "drivers/net/ethernet/chelsio/cxgb4/t4_hw.c", lines: &[
        line(Function, "FW assertion at %.16s:%u, val0 %#x, val1 %#x", MessageKind::FirmwareFatal),
        line(Function, "command %#x in mailbox %d timed out", MessageKind::CommandTimeout),
        line(Function, "%s uncorrectable ECC data error", MessageKind::FirmwareFatal),
        line(Function, "MA parity error, parity status %#x", MessageKind::FirmwareFatal),
        line(Function, "%s FIFO parity error", MessageKind::FirmwareFatal),
        line(Function, "Port %d link down, reason: %s", MessageKind::LinkDown),
    ]},
    Source { drivers: CXGB4, file: "drivers/net/ethernet/chelsio/cxgb4/cxgb4_main.c", lines: &[
        line(Function, "encountered fatal error, adapter stopped", MessageKind::DeviceHealth),
        line(Interface, "port module unplugged", MessageKind::ModulePlugged),
        line(Interface, "%s: unsupported port module inserted", MessageKind::ModuleUnsupported),
        line(Interface, "%s: unknown port module inserted", MessageKind::ModuleUnsupported),
        line(Interface, "%s: transceiver module error", MessageKind::ModuleFault),
        line(Interface, "link up, %s, full-duplex, %s PAUSE", MessageKind::LinkUp),
        line(Interface, "link down", MessageKind::LinkDown),
    ]},
];
