//! HiSilicon Kunpeng.

use super::Caller::{Function, Interface, RdmaDevice};
use super::{Source, line};
use crate::model::kmsg::{MessageKind, MessageSource};

const HNS3: &[MessageSource] = &[MessageSource::Hns3];
const ROCE: &[MessageSource] = &[MessageSource::HnsRoce];

#[rustfmt::skip]
pub(super) const SOURCES: &[Source] = &[
    Source { drivers: ROCE, file: "drivers/infiniband/hw/hns/hns_roce_cmd.c", lines: &[
        line(Function, "[cmd] token 0x%x mailbox 0x%x timeout.", MessageKind::CommandTimeout),
        line(Function, "[cmd] token 0x%x mailbox 0x%x error %d.", MessageKind::CommandFailed),
        line(Function, "failed to post mailbox 0x%x in poll mode, ret = %d.", MessageKind::CommandFailed),
        line(Function, "failed to post mailbox 0x%x in event mode, ret = %d.", MessageKind::CommandFailed),
    ]},
    Source { drivers: ROCE, file: "drivers/infiniband/hw/hns/hns_roce_hw_v2.c", lines: &[
        line(Function, "Cmdq IO error, opcode = 0x%x, return = %d.", MessageKind::CommandFailed),
        line(Function, "failed to wait mbox status 0x%x", MessageKind::CommandTimeout),
        line(Function, "failed to post mailbox, ret = %d.", MessageKind::CommandFailed),
        line(Function, "AEQ overflow!", MessageKind::DeviceHealth),
        line(Function, "func clear failed.", MessageKind::DeviceHealth),
        line(Function, "failed to recover %s, index = %u, ret = %d.", MessageKind::DeviceHealth),
        line(Function, "In reset process RoCE reinit failed %d.", MessageKind::DeviceHealth),
        line(Function, "RoCE instance init failed! ret = %d", MessageKind::ProbeFailed),
        line(RdmaDevice, "function level reset.", MessageKind::VfReset),
        line(RdmaDevice, "local work queue 0x%x catast error, sub_event type is: %d", MessageKind::QpError),
        line(RdmaDevice, "invalid request local work queue 0x%x error.", MessageKind::QpError),
        line(RdmaDevice, "local access violation work queue 0x%x error, sub_event type is: %d", MessageKind::QpError),
        line(RdmaDevice, "SRQ catas error.", MessageKind::QpError),
        line(RdmaDevice, "CQ 0x%x access err.", MessageKind::QpError),
        line(RdmaDevice, "CQ 0x%x overflow", MessageKind::QpError),
        line(RdmaDevice, "DB overflow.", MessageKind::QpError),
        line(RdmaDevice, "error cqe status 0x%x:", MessageKind::QpError),
        line(RdmaDevice, "failed to modify QP, ret = %d.", MessageKind::CommandFailed),
    ]},
    Source { drivers: ROCE, file: "drivers/infiniband/hw/hns/hns_roce_cq.c", lines: &[
        line(RdmaDevice, "failed to send create cmd for CQ(0x%lx), ret = %d.", MessageKind::CommandFailed),
        line(Function, "DESTROY_CQ failed (%d) for CQN %06lx", MessageKind::CommandFailed),
    ]},
    Source { drivers: ROCE, file: "drivers/infiniband/hw/hns/hns_roce_mr.c", lines: &[
        line(RdmaDevice, "failed to create MPT, ret = %d.", MessageKind::CommandFailed),
        line(Function, "failed to create mpt, ret = %d.", MessageKind::CommandFailed),
    ]},
    Source { drivers: ROCE, file: "drivers/infiniband/hw/hns/hns_roce_main.c", lines: &[
        line(Function, "hw_init failed!", MessageKind::ProbeFailed),
        line(Function, "setup hca failed!", MessageKind::ProbeFailed),
        line(Function, "eq init failed!", MessageKind::ProbeFailed),
        line(Function, "cmd init failed!", MessageKind::ProbeFailed),
    ]},
    Source { drivers: HNS3, file: "drivers/net/ethernet/hisilicon/hns3/hns3_enet.c", lines: &[
        line(Interface, "tx_timeout count: %llu, queue id: %d, SW_NTU: 0x%x, SW_NTC: 0x%x, napi state: %lu", MessageKind::TxTimeout),
        line(Interface, "link up", MessageKind::LinkUp),
        line(Interface, "link down", MessageKind::LinkDown),
    ]},
    Source { drivers: HNS3, file: "drivers/net/ethernet/hisilicon/hns3/hns3pf/hclge_err.c", lines: &[
        line(Function, "HNS Non-Fatal RAS error(status=0x%x) identified", MessageKind::FirmwareFatal),
        line(Function, "ROCEE Non-Fatal RAS error identified", MessageKind::FirmwareFatal),
        line(Function, "ROCEE RAS 2bit ECC error", MessageKind::FirmwareFatal),
        line(Function, "HNS hw error(RAS) identified during init", MessageKind::FirmwareFatal),
    ]},
    Source { drivers: HNS3, file: "drivers/net/ethernet/hisilicon/hns3/hns3pf/hclge_main.c", lines: &[
        line(Function, "Wait for reset timeout: %d", MessageKind::DeviceHealth),
        line(Function, "asserting function reset fail %d!", MessageKind::DeviceHealth),
        line(Function, "Reset fail!", MessageKind::DeviceHealth),
        line(Function, "VF %u heartbeat timeout", MessageKind::VfReset),
    ]},
    Source { drivers: HNS3, file: "drivers/net/ethernet/hisilicon/hns3/hns3vf/hclgevf_main.c", lines: &[
        line(Function, "couldn't get reset done status from h/w, timeout!", MessageKind::VfResetFailed),
        line(Function, "failed to assert VF reset, ret = %d", MessageKind::VfResetFailed),
    ]},
    Source { drivers: HNS3, file: "drivers/net/ethernet/hisilicon/hns3/hns3pf/hclge_mbx.c", lines: &[
        line(Function, "SFP tx is disabled!", MessageKind::ModuleFault),
        line(Function, "SFP is absent!", MessageKind::ModulePlugged),
    ]},
];
