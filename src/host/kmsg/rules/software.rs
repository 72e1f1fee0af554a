//! Devices in software, and the parts of the kernel that all RDMA devices share.

use super::Caller::{Interface, Module, RdmaClass, RdmaDevice};
use super::{Source, line, older};
use crate::model::kmsg::{MessageKind, MessageSource};

const CORE: &[MessageSource] = &[MessageSource::IbCore];
const IPOIB: &[MessageSource] = &[MessageSource::IbIpoib];
const RXE: &[MessageSource] = &[MessageSource::RdmaRxe];
const SIW: &[MessageSource] = &[MessageSource::Siw];
const WITH_INTERFACES: &[MessageSource] = &[
    MessageSource::Mlx5Core,
    MessageSource::Mlx4En,
    MessageSource::Ice,
    MessageSource::I40e,
    MessageSource::Iavf,
    MessageSource::BnxtEn,
    MessageSource::Mana,
    MessageSource::Hns3,
    MessageSource::Qede,
    MessageSource::Cxgb4,
    MessageSource::Ionic,
    MessageSource::Be2net,
];

#[rustfmt::skip]
pub(super) const SOURCES: &[Source] = &[
    Source { drivers: WITH_INTERFACES, file: "net/sched/sch_generic.c", lines: &[
        line(Interface, "NETDEV WATCHDOG: CPU: %d: transmit queue %u timed out %u ms", MessageKind::TxTimeout),
        older(Module(""), "NETDEV WATCHDOG: %s (%s): transmit queue %u timed out", MessageKind::TxTimeout),
    ]},
    Source { drivers: CORE, file: "drivers/infiniband/core/mad.c", lines: &[
        line(RdmaClass, "Fatal error (%d) on MAD QP (%u)", MessageKind::QpError),
    ]},
    Source { drivers: CORE, file: "drivers/infiniband/core/cache.c", lines: &[
        line(RdmaClass, "ib_query_port failed (%d)", MessageKind::CommandFailed),
        line(RdmaClass, "%s GID add failed port=%u index=%u", MessageKind::CommandFailed),
    ]},
    Source { drivers: IPOIB, file: "drivers/infiniband/ulp/ipoib/ipoib_main.c", lines: &[
        line(Module("ib0: "), "transmit timeout: latency %d msecs", MessageKind::TxTimeout),
    ]},
    Source { drivers: IPOIB, file: "drivers/infiniband/ulp/ipoib/ipoib_ib.c", lines: &[
        line(Module("ib0: "), "failed send event (status=%d, wrid=%d vend_err %#x)", MessageKind::QpError),
        line(Module("ib0: "), "failed recv event (status=%d, wrid=%d vend_err %#x)", MessageKind::QpError),
    ]},
    Source { drivers: RXE, file: "drivers/infiniband/sw/rxe/rxe_comp.c", lines: &[
        line(RdmaDevice, "non-flush error status = %d", MessageKind::QpError),
    ]},
    Source { drivers: SIW, file: "drivers/infiniband/sw/siw/siw_qp_rx.c", lines: &[
        line(Module("siw: "), "crc error. in: %08x, own %08x, op %u", MessageKind::QpError),
    ]},
    Source { drivers: SIW, file: "drivers/infiniband/sw/siw/siw_main.c", lines: &[
        line(Module("siw: "), "device registration error %d", MessageKind::ProbeFailed),
    ]},
];
